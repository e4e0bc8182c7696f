"""The picture of `hiddenwidth dimension`."""

from typing import Any

import numpy as np
import xarray as xr

from .._statistics import NORMAL_95
from .style import constant, log_axes


def dimension(data: xr.Dataset, claims: list[dict[str, Any]], *, title: str = ""):
    """What finite D costs: limit in D, its exponent over steps, fluctuation and bias over D, and the joint law against networks.

    **Arguments:** `data`: `DimensionFit.data` or the dataset of a `dimension` record; `claims`: the claims of the record as dictionaries.

    **Returns:** an array of matplotlib Axes, (observable, panel).

    **Example:** `hw.plot.dimension(fit.data, [c.to_json() for c in fit.claims])`
    """
    import matplotlib.pyplot as plt

    by_name = {c["name"]: c for c in claims}
    observables = list(data.observable.values)
    figure, axes = plt.subplots(len(observables), 5, figsize=(20.5, 4.2 * len(observables)), layout="constrained", squeeze=False)
    figure.suptitle(title, fontsize=12)
    for row, name in zip(axes, observables, strict=True):
        one = data.sel(observable=name)
        what = "hidden state" if name == "hidden" else "output"
        _limit_panel(row[0], one)
        row[0].set(
            title=f"{what}: Mean ODE(D) - Mean ODE($\\infty$)\n$d/\\sqrt{{D}}$, {constant(by_name, name, 'limit', 'd')}", xlabel="D", ylabel="error, rms"
        )
        log_axes(row[0])
        _step_panel(row[1], one)
        row[1].set(title=f"{what}: exponent of D in the limit\nat every gradient step", xlabel="gradient step k", ylabel="exponent")
        _cells_panel(row[2], one, "variance", "fitted_variance", "in_fluctuation_fit")
        scale = r"b\,\sqrt{D/(LM)}" if name == "hidden" else r"b/\sqrt{LM}"
        row[2].set(
            title=f"{what}: fluctuation\n${scale}$, {constant(by_name, name, 'fluctuation', 'b')}", xlabel="D", ylabel="standard deviation x $\\sqrt{LM}$"
        )
        log_axes(row[2])
        if name == "output":  # flat: a decade says so, a factor of 1.1 would show noise
            row[2].set_ylim(*(np.sqrt(np.prod(row[2].get_ylim())) * np.array([10**-0.5, 10**0.5])))
            log_axes(row[2])
        _cells_panel(row[3], one, "bias2", "fitted_bias2", "in_bias_fit", floor=True)
        row[3].set(title=f"{what}: sampling bias\n$c\\,D/(LM)$, {constant(by_name, name, 'bias', 'c')}", xlabel="D", ylabel="bias x LM")
        log_axes(row[3])
        if "joint_error" in data:
            _joint_panel(row[4], one)
        row[4].set(title=f"{what}: whole error of networks\nwith fresh embeddings", xlabel="predicted from the four terms", ylabel="measured")
    axes[0, 0].legend(fontsize=8)
    axes[0, 1].legend(fontsize=8)
    axes[0, 2].legend(fontsize=8, title="LM/D (lines: fit, mean over L)", title_fontsize=8)
    axes[0, 3].legend(fontsize=8)
    axes[0, 4].legend(fontsize=8, title="D", title_fontsize=8)
    return axes


def _limit_panel(axis, one: xr.Dataset) -> None:
    dim, square, se = one.limit_dim.values.astype(float), one.limit2.values, one.limit2_se.values
    root, used = np.sqrt(square), one.in_limit_fit.values.astype(bool)
    half = NORMAL_95 * se / (2 * root)
    axis.errorbar(dim[used], root[used], half[used], fmt="o", ms=4.5, color="C0", capsize=2, label="rms over embeddings")
    if not used.all():
        axis.errorbar(dim[~used], root[~used], half[~used], fmt="o", ms=4.5, mfc="none", color="C0", capsize=2, label="outside the range of the fit")
    axis.plot(dim, np.sqrt(one.fitted_limit2.values), "-", color="C0", lw=1, label="$d/\\sqrt{D}$ with next orders")
    axis.plot(dim, np.sqrt(one.fitted_limit2.values[-1] * dim[-1] / dim), ":", color="grey", lw=1, label="pure $1/\\sqrt{D}$")


def _step_panel(axis, one: xr.Dataset) -> None:
    step, value, half = one.step.values, one.limit_exponent.values, one.limit_exponent_half.values
    ok = np.isfinite(value) & np.isfinite(half)
    axis.errorbar(step[ok], value[ok], half[ok], fmt="o", ms=4.5, color="C0", capsize=2, label="fit, 95 %")
    axis.axhline(-0.5, color="grey", ls=":", lw=1, label="theory, -1/2")
    axis.set_ylim(-0.6, -0.4)
    axis.set_xticks(step[1 :: max(1, (len(step) - 1) // 8)])
    axis.grid(True, alpha=0.3)


def _cells_panel(axis, one: xr.Dataset, value: str, fitted: str, used: str, *, floor: bool = False) -> None:
    """Root of a mean square times its power of LM against D, one colour a load LM/D; points of one load differ in L alone and are set a little apart."""
    import matplotlib.pyplot as plt

    product = one.depth.values * one.width.values.astype(float)
    dim = one.dim.values.astype(float)
    load = np.round(product / dim, 6)
    depths = list(np.unique(one.depth.values))
    scale = product if floor else np.sqrt(product)
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.85, len(np.unique(load))))
    square, se = one[value].values, one[f"{value}_se"].values
    low = one.below_floor.values.astype(bool) if floor else np.zeros(len(square), bool)
    for colour, this in zip(colours, np.unique(load), strict=True):
        at = load == this
        shift = np.array([1.05 ** (depths.index(d) - (len(depths) - 1) / 2) for d in one.depth.values])
        shown = at & np.isfinite(square) & ~low
        root = np.sqrt(np.maximum(square, 1e-300))
        half = np.minimum(NORMAL_95 * se / (2 * root), 0.95 * root)
        for mask, face in ((shown & one[used].values.astype(bool), colour), (shown & ~one[used].values.astype(bool), "none")):
            if mask.any():
                axis.errorbar(
                    (dim * shift)[mask], (scale * root)[mask], (scale * half)[mask], fmt="o", ms=4, mfc=face, color=colour, lw=1, capsize=2,
                    label=f"{this:g}" if face is colour and not floor else None,
                )  # fmt: skip
        if (at & low).any():
            top = np.sqrt(np.maximum(square + NORMAL_95 * se, 1e-300)) * scale
            axis.plot((dim * shift)[at & low], top[at & low], "v", ms=5, mfc="none", color=colour)
        fit = [(d, np.mean((scale * np.sqrt(one[fitted].values))[at & (dim == d)])) for d in np.unique(dim[at])]
        axis.plot(*zip(*fit, strict=True), "-", color=colour, lw=1)
    if floor:
        axis.plot([], [], "v", mfc="none", color="grey", label="below its noise floor:\nupper limit (95 %)")
        axis.plot([], [], "o", color="grey", label="LM/D as on the left")


def _joint_panel(axis, one: xr.Dataset) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    dims = np.unique(one.joint_dim.values)
    colours = plt.get_cmap("plasma")(np.linspace(0.0, 0.8, len(dims)))
    for colour, dim in zip(colours, dims, strict=True):
        at = one.joint_dim.values == dim
        x, y = one.joint_predicted.values[at], one.joint_error.values[at]
        across = np.abs(np.stack([one.joint_predicted_low.values[at], one.joint_predicted_high.values[at]]) - x)
        axis.errorbar(x, y, NORMAL_95 * one.joint_error_se.values[at], across, fmt="o", ms=4.5, color=colour, capsize=2, lw=1, label=f"{dim:g}")
    ends = np.array([min(axis.get_xlim()[0], axis.get_ylim()[0]), max(axis.get_xlim()[1], axis.get_ylim()[1])])
    axis.plot(ends, ends, "-", color="grey", lw=1, zorder=0)
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_locator(MaxNLocator(6))
    axis.grid(True, alpha=0.3)
