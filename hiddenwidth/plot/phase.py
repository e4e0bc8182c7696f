"""The picture of the phase diagram, drawn from a record alone."""

from typing import Any

import numpy as np
import xarray as xr

from .._statistics import NORMAL_95

REGION_COLOURS = ("#2a788e", "#b8de29", "#fdae61", "#d7301f")
SCHEME_MARKS = {"mlu": ("*", "MLU"), "lazy": ("D", "lazy"), "fan_in": ("^", "fan-in"), "complete_p": ("v", "CompleteP")}


def phase(data: xr.Dataset, claims: list[dict[str, Any]], *, title: str = ""):
    """The phase diagram of Theorem 3: regions of all cells with predicted and measured boundaries, and the curves that they are read from.

    **Arguments:** `data`: `PhaseFit.data` or the dataset of a `phase` record; `claims`: the claims of the record as dictionaries.

    **Returns:** a dictionary of matplotlib Axes: `map`, `update`, `fluctuation`, `scale`, `tuned`, `schemes`, `loss`.

    **Example:** `hw.plot.phase(fit.data, [c.to_json() for c in fit.claims])`
    """
    import matplotlib.pyplot as plt  # 1.3 s: only when a picture is wanted

    by_name = {c["name"]: c for c in claims}
    figure, axes = plt.subplot_mosaic([["map", "map", "update", "fluctuation"], ["scale", "tuned", "schemes", "loss"]], figsize=(19, 10), layout="constrained")
    figure.suptitle(title, fontsize=12)
    dims = np.unique(data.dim.values)
    colour = dict(zip(dims, plt.get_cmap("viridis")(np.linspace(0.0, 0.8, len(dims))), strict=True))
    _map(axes["map"], data, by_name)
    _update(axes["update"], data, by_name, colour)
    _fluctuation(axes["fluctuation"], data, colour)
    _scale(axes["scale"], data, by_name, colour)
    _tuned(axes["tuned"], data, colour)
    _schemes(axes["schemes"], data, colour)
    _loss(axes["loss"], data, colour)
    return axes


def _ratio(data: xr.Dataset) -> np.ndarray:
    return data.depth.values * data.width.values / data.dim.values


def _offset(data: xr.Dataset) -> np.ndarray:
    """Shapes with the same LM/D stand side by side."""
    ratio, factor = _ratio(data), np.ones(data.sizes["shape"])
    for value in np.unique(ratio):
        same = np.flatnonzero(ratio == value)
        factor[same] = 2.0 ** ((np.arange(len(same)) - (len(same) - 1) / 2) * 0.8 / 6)
    return factor


def _plain(axis, *, x: bool = True, y: bool = True) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for on, one, scale in ((x, axis.xaxis, axis.set_xscale), (y, axis.yaxis, axis.set_yscale)):
        if on:
            scale("log", base=2)
            one.set_major_locator(LogLocator(base=4))
            one.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}" if v >= 1 else f"1/{1 / v:g}"))
            one.set_minor_formatter(NullFormatter())
    axis.grid(True, which="major", alpha=0.3)


def _map(axis, data: xr.Dataset, by_name: dict[str, Any]) -> None:
    names = data.attrs["regions"].split(",")
    rho, x = data.rho.values, _ratio(data) * _offset(data)
    for code, (name, colour) in enumerate(zip(names, REGION_COLOURS, strict=True)):
        shape, cell = np.nonzero(data.region.values == code)
        axis.plot(x[shape], rho[cell], "s", ms=7, color=colour, alpha=0.75, mew=0, label=name)
    ends = np.array([_ratio(data).min() / 1.5, _ratio(data).max() * 1.5])
    axis.plot(ends, [1, 1], "-", color="k", lw=1.5, label=r"predicted: $\rho = 1$")
    axis.plot(ends, np.sqrt(ends), "--", color="k", lw=1.5, label=r"predicted: $\rho = \sqrt{LM/D}$")
    for name, law, style in (("critical", np.ones(2), "-"), ("blow_up", np.sqrt(ends), "--")):
        c = by_name[f"{name}.constant"]
        if c["value"] is not None:
            label = "critical scale" if name == "critical" else "blow-up scale"
            axis.plot(ends, c["value"] * law, style, color="C3", lw=1.5, label=f"fitted {label}: {c['value']:.2f} times")
            if None not in c["ci95"]:
                axis.fill_between(ends, c["ci95"][0] * law, c["ci95"][1] * law, color="C3", alpha=0.3, lw=0)
        half = NORMAL_95 * data[f"{name}_rho_se"].values
        axis.errorbar(x, data[f"{name}_rho"].values, half, fmt="o", ms=4, mfc="w", mec="C3", ecolor="C3", capsize=2, lw=1)
    for name, (mark, label) in SCHEME_MARKS.items():
        at = data.scheme_rho.sel(scheme=name).values
        axis.plot(x, at, mark, ms=9 if mark == "*" else 5.5, mfc="w" if name != "complete_p" else "none", mec="k", mew=0.9, ls="none", label=label)
    _plain(axis)
    axis.set(title="phase diagram: region of every cell, measured", xlabel=r"$LM/D$  (side by side: same $LM/D$)", xlim=ends)
    axis.set_ylabel(r"residual scale / critical scale,  $\rho$")
    axis.figure.legend(
        *axis.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9, title="phase diagram (circles: measured boundaries, 95 %)"
    )


def _curve(axis, x, y, half, colour, label) -> None:
    ok = np.isfinite(y)
    axis.errorbar(x[ok], y[ok], None if half is None else half[ok], fmt="o-", ms=2.5, lw=0.8, color=colour, label=label, capsize=1.5)


def _each(data: xr.Dataset, colour):
    """(index, colour, label of the first shape of a D)."""
    seen = set()
    for i, dim in enumerate(data.dim.values):
        yield i, colour[dim], None if dim in seen else f"D = {dim}"
        seen.add(dim)


def _update(axis, data: xr.Dataset, by_name, colour) -> None:
    rho = data.rho.values
    for i, c, label in _each(data, colour):
        below = data.fluctuation.values[i] < 1
        _curve(axis, rho[below], data.local_update.values[i, below], NORMAL_95 * data.local_update_se.values[i, below], c, label)
    lazy = rho[(rho >= 1.4) & np.any(data.fluctuation.values < 1, 0)]
    top = float(np.nanmedian(data.local_update.sel(rho=2.0, method="nearest"))) * float(data.rho.sel(rho=2.0, method="nearest"))
    axis.plot(lazy, 0.7 * top / lazy, ":", color="k", lw=1.2, label=r"slope of $1/\rho$")
    axis.axvline(1, color="k", lw=1)
    critical = by_name["critical.constant"]["value"]
    if critical is not None:
        axis.axvline(critical, color="C3", lw=1, label="half of the maximum")
    _plain(axis)
    axis.set(title="local update $A$ after the last step\n(cells with $F < 1$)", xlabel=r"$\rho$", ylabel="$A$")
    axis.legend(fontsize=8)


def _fluctuation(axis, data: xr.Dataset, colour) -> None:
    for i, c, label in _each(data, colour):
        x = data.rho.values / np.sqrt(_ratio(data)[i])
        _curve(axis, x, data.fluctuation.values[i], NORMAL_95 * data.fluctuation_se.values[i], c, label)
    axis.axvline(1, color="k", ls="--", lw=1)
    axis.axhline(1, color="C3", lw=1, label="$F = 1$: blow-up scale")
    _plain(axis)
    axis.set(title="fluctuation $F$ at initialisation\n(all shapes on one curve)", xlabel=r"$\rho\,/\,\sqrt{LM/D}$", ylabel="$F$")
    axis.legend(fontsize=8)


def _scale(axis, data: xr.Dataset, by_name, colour) -> None:
    """Both boundaries as residual scales against the predicted ones; the diagonal is the law with constant 1."""
    critical = np.sqrt(data.dim.values) / (data.depth.values * data.width.values)
    for name, law, mark in (("critical", critical, "o"), ("blow_up", critical * np.sqrt(_ratio(data)), "s")):
        text = ", ".join(_power(by_name, name, k, s) for k, s in (("depth", "L"), ("width", "M"), ("dim", "D")))
        label = f"{name.replace('_', '-')}: {text}"
        for i, c, _ in _each(data, colour):
            value, half = data[f"{name}_rho"].values[i] * critical[i], NORMAL_95 * data[f"{name}_rho_se"].values[i] * critical[i]
            axis.errorbar(law[i], value, half, fmt=mark, ms=5, mfc="w" if mark == "s" else c, color=c, capsize=2)
        axis.plot([], [], mark, color="grey", mfc="w" if mark == "s" else "grey", label=label)
    ends = np.array([critical.min() / 2, (critical * np.sqrt(_ratio(data))).max() * 2])
    axis.plot(ends, ends, "-", color="k", lw=1, label="predicted, constant 1")
    _plain(axis)
    axis.set(
        title="boundaries as residual scales\nfitted exponents (95 %)", xlabel=r"predicted: $\sqrt{D}/(LM)$ or $1/\sqrt{LM}$", ylabel="measured residual scale"
    )
    axis.legend(fontsize=7.5, loc="upper left")


def _power(by_name, name: str, power: str, letter: str) -> str:
    c = by_name[f"{name}.exponent_{power}"]
    if c["value"] is None or None in c["ci95"]:
        return f"${letter}$: not resolved"
    half = (c["ci95"][1] - c["ci95"][0]) / 2
    digits = 3 if half < 0.01 else 2
    return f"${letter}^{{{c['value']:.{digits}f} \\pm {half:.{digits}f}}}$"


def _tuned(axis, data: xr.Dataset, colour) -> None:
    axis.axvline(1, color="k", lw=1)
    if "tuned_largest" in data:
        rho = data.tuned_rho.values
        axis.plot(rho, data.tuned_largest_weak.values.T, "-", lw=0.8, color="0.8", zorder=0)
        axis.plot([], [], "-", lw=0.8, color="0.8", label="largest $A$, loss merely lower at the end")
        for what, style, face in (("largest", "-", None), ("best", ":", "w")):
            for i, dim in enumerate(data.tuned_dim.values):
                c = colour.get(dim, "grey")
                axis.plot(rho, data[f"tuned_{what}"].values[i], f"o{style}", ms=3.5, lw=0.9, color=c, mfc=face or c)
        axis.plot([], [], "o-", color="grey", ms=3.5, label="largest $A$ among stable rates")
        axis.plot([], [], "o:", color="grey", mfc="w", ms=3.5, label="$A$ at the stable rates of least loss")
    shown = (data.rho.values >= 0.49) & (data.rho.values <= (data.tuned_rho.values.max() if "tuned_rho" in data else 16) * 1.01)
    below = data.local_update.where(data.fluctuation < 1).values[:, shown]
    middle = np.full(below.shape[1], np.nan)
    some = np.isfinite(below).any(0)
    middle[some] = np.nanmedian(below[:, some], 0)
    axis.plot(data.rho.values[shown], middle, "k--", lw=1.3, label="rates of the derived rule")
    _plain(axis)
    axis.set(title=r"rates tuned at every $\rho$" + "\n(stable: the loss rises at no step)", xlabel=r"$\rho$", ylabel="$A$")
    axis.legend(fontsize=7.5, loc="lower left")


def _schemes(axis, data: xr.Dataset, colour) -> None:
    x = data.width.values / data.dim.values
    grid = np.geomspace(x.min(), x.max(), 50)
    for scheme, what, mark, label in (("fan_in", "fluctuation", "^", "$F$, fan-in"), ("complete_p", "local_update", "v", "$A$, CompleteP")):
        ratio = (data[f"scheme_{what}"].sel(scheme=scheme) / data[f"scheme_{what}"].sel(scheme="mlu")).values
        for i, c, _ in _each(data, colour):
            axis.plot(x[i], ratio[i], mark, ms=6, color=c, mfc="w" if mark == "v" else c)
        axis.plot([], [], mark, color="grey", mfc="w" if mark == "v" else "grey", label=label)
    axis.plot(grid, np.sqrt(grid), "-", color="k", lw=1, label=r"$\sqrt{M/D}$")
    axis.plot(grid[grid >= 1], grid[grid >= 1] ** -0.5, ":", color="k", lw=1, label=r"$1/\sqrt{M/D}$, lazy")
    axis.axvline(1, color="grey", lw=1)
    axis.axhline(1, color="grey", lw=1)
    _plain(axis)
    axis.set(title="fan-in and CompleteP over MLU\n(equal at $M = D$)", xlabel="$M/D$", ylabel="ratio to MLU")
    axis.legend(fontsize=8)


def _loss(axis, data: xr.Dataset, colour) -> None:
    for i, c, _ in _each(data, colour):
        x = data.rho.values / np.sqrt(_ratio(data)[i])
        axis.plot(x, data.mean_loss_start.values[i], "-", lw=0.8, color=c)
        axis.plot(x, data.mean_loss_end.values[i], ":", lw=1.1, color=c)
        axis.plot(x, data.change.values[i], "--", lw=0.8, color=c)
        limit = data.training_limit_rho.values[i] / np.sqrt(_ratio(data)[i])
        if np.isfinite(limit):
            at = int(np.abs(x - limit).argmin())
            axis.plot(x[at], data.mean_loss_end.values[i, at], "X", color="C3", ms=7)
    for style, label in (("-", "loss at initialisation"), (":", "loss after the last step"), ("--", "global change of $h_L$")):
        axis.plot([], [], style, color="grey", label=label)
    axis.plot([], [], "X", ls="none", color="C3", ms=7, label="training no longer lowers\nthe loss of half the seeds")
    axis.axvline(1, color="k", ls="--", lw=1)
    _plain(axis)
    axis.set(title="loss and global change\n(means over seeds)", xlabel=r"$\rho\,/\,\sqrt{LM/D}$", ylabel="loss, rms change")
    axis.legend(fontsize=8)
