"""The picture of the lazy law, drawn from its record."""

from typing import Any

import numpy as np
import xarray as xr

from .._statistics import NORMAL_95


def lazy(data: xr.Dataset, claims: list[dict[str, Any]], *, title: str = ""):
    """Theorem 2 for hidden states: the gap without networks, the fluctuation, the whole error over alpha, and the best alpha.

    **Arguments:** `data`: `LazyFit.data` or the dataset of a `lazy` record; `claims`: the claims of the record as dictionaries.

    **Returns:** an array of matplotlib Axes, (2, 2).

    **Example:** `hw.plot.lazy(fit.data, [c.to_json() for c in fit.claims])`
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12.5, 9), layout="constrained")
    figure.suptitle(title, fontsize=12)
    one = data.sel(observable="hidden")
    product = (one.depth * one.width).values
    order = np.argsort(product, kind="stable")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(set(product.tolist()))))
    colour_of = dict(zip(sorted(set(product.tolist())), colours, strict=True))
    for axis in axes.ravel():
        axis.set(xscale="log", yscale="log")
    _gap_panel(axes[0, 0], data, one, int(order[-1]))
    _fluctuation_panel(axes[0, 1], one, order, colour_of)
    _error_panel(axes[1, 0], one, order, colour_of)
    _optimum_panel(axes[1, 1], data, one, claims)
    for axis in axes.ravel():
        axis.grid(True, alpha=0.3)
    for axis in axes.ravel()[:3]:
        axis.set_xlabel(r"$\alpha$")
        low, high = axis.get_xlim()
        ticks = [t for t in (0.5, 1, 2, 4, 8, 16, 32, 64, 128) if low <= t <= high]
        axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axis.minorticks_off()
    return axes


def _gap_panel(axis, data: xr.Dataset, one: xr.Dataset, largest: int) -> None:
    alpha = one.reference_alpha.values
    gap, line = (one[k].values.mean(-1) for k in ("tangent_gap", "linearisation_gap"))
    axis.plot(alpha, gap, "o-", ms=4, color="C0", label=r"Mean ODE($\alpha$) to tangent ODE")
    power = 1 / float(data.asymptotic_exponent[0]) / 2 - 1
    axis.plot(alpha, gap[-1] * (alpha[-1] / alpha) ** power, ":", color="grey", label=rf"$1/\alpha^{power:.0f}$")
    if "contrast_gap" in data:
        other = data["contrast_gap"].values.mean(-1)
        axis.plot(data.contrast_alpha, other, "^-", ms=4, color="C2", label=f"the same, {data.attrs['contrast']}")
        power = int(data.attrs["contrast_order"])
        axis.plot(
            data.contrast_alpha,
            other[-1] * (data.contrast_alpha.values[-1] / data.contrast_alpha.values) ** power,
            "--",
            color="grey",
            label=rf"$1/\alpha^{power}$" if power > 1 else r"$1/\alpha$",
        )
    axis.plot(alpha, line, "s-", ms=4, color="C3", label=r"Mean ODE($\alpha$) to linearised network")
    shape = one.isel(shape=largest)
    ok = np.isfinite(shape.error2.values)
    where = f"L={int(shape.depth)}, M={int(shape.width)}"
    axis.plot(one.alpha.values[ok], np.sqrt(shape.linearised2.values[ok]), "x", color="C3", label=f"networks ({where}) to linearised network")
    axis.set(title="which limit: distances without and with networks", ylabel="hidden state, rms per coordinate")
    axis.legend(fontsize=8)


def _fluctuation_panel(axis, one: xr.Dataset, order, colour_of) -> None:
    for i in order:
        shape = one.isel(shape=int(i))
        v, se, used = shape.variance.values, shape.variance_se.values, shape.in_fluctuation_fit.values.astype(bool)
        product, colour = int(shape.depth * shape.width), colour_of[int(shape.depth * shape.width)]
        sd = np.sqrt(v)
        for mask, face in ((used, colour), (~used & np.isfinite(v), "none")):
            axis.errorbar(one.alpha.values[mask], sd[mask], NORMAL_95 * (se / (2 * sd))[mask], fmt="o", ms=4, mfc=face, color=colour, capsize=2, lw=1)
        axis.plot(one.alpha, np.sqrt(shape.fitted_variance), "-", color=colour, lw=1, label=f"LM = {product}" if _first(one, order, i, product) else None)
    axis.plot([], [], "o", mfc="none", color="grey", label="outside the range of the fit")
    axis.set(title=r"fluctuation over initialisations, $b\,\alpha\sqrt{D/(LM)}$", ylabel="standard deviation")
    axis.legend(fontsize=8)


def _first(one: xr.Dataset, order, index, product: int) -> bool:
    """Is this the first shape with that LM? One legend entry for each."""
    same = [i for i in order if int(one.depth[i] * one.width[i]) == product]
    return bool(same[0] == index)


def _error_panel(axis, one: xr.Dataset, order, colour_of) -> None:
    for i in order:
        shape = one.isel(shape=int(i))
        product = int(shape.depth * shape.width)
        if not _first(one, order, i, product):
            continue
        e2, se, colour = shape.error2.values, shape.error2_se.values, colour_of[product]
        ok = np.isfinite(e2)
        e = np.sqrt(e2)
        label = f"L={int(shape.depth)}, M={int(shape.width)}"
        axis.errorbar(one.alpha.values[ok], e[ok], NORMAL_95 * (se / (2 * e))[ok], fmt="o", ms=4, color=colour, capsize=2, lw=1, label=label)
        predicted = np.sqrt(shape.fitted_error2.values)
        axis.plot(one.alpha, predicted, "-", color=colour, lw=1)
        low = int(np.nanargmin(predicted))
        axis.plot(one.alpha.values[low], predicted[low], "v", color="C3", ms=7, zorder=5)
    axis.plot([], [], "-", color="grey", label="sum of the three terms")
    axis.plot([], [], "v", color="C3", label="its least value on the grid")
    axis.set(title="whole error to the tangent ODE", ylabel="hidden state, rms per coordinate")
    axis.legend(fontsize=8)


def _optimum_panel(axis, data: xr.Dataset, one: xr.Dataset, claims: list[dict[str, Any]]) -> None:
    dim = float(data.attrs["dim"])
    x = data.product_over_dim.values
    axis.plot(x, data.predicted_optimum, "-", color="C0", label="predicted from the three terms")
    slope = float(data.asymptotic_exponent[0])
    axis.plot(x, data.predicted_optimum.values[-1] * (x / x[-1]) ** slope, ":", color="grey", label=f"asymptotic, exponent {slope:.3f}")
    shown = False
    for c in claims:
        if not c["name"].startswith("hidden.optimum.alpha[") or c["se"] is None:
            continue
        depth, width = (int(part.split("=")[1]) for part in c["name"].split("[")[1].rstrip("]").split(", "))
        half = (c["ci95"][1] - c["ci95"][0]) / 2
        axis.errorbar(depth * width / dim, c["value"], half, fmt="o", ms=5, color="C3", capsize=3, label=None if shown else "measured (95 %)")
        shown = True
    axis.set(title=r"best $\alpha$", xlabel="L M / D", ylabel=r"$\alpha^*$", xlim=(x[0], 1e10))
    inside = data.predicted_optimum.values[x <= 1e10]
    axis.set_ylim(0.6 * np.nanmin(inside), 1.6 * np.nanmax(inside))
    ticks = [t for t in (0.5, 1, 2, 4, 8, 16, 32) if axis.get_ylim()[0] <= t <= axis.get_ylim()[1]]
    axis.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=8)
