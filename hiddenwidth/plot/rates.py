"""The picture of the error law of Theorem 1, drawn from its record."""

from typing import Any

import numpy as np
import xarray as xr

from .._statistics import NORMAL_95
from .style import constant, log_axes

TITLES = {
    "hidden": "last hidden state, rms per coordinate",
    "output": "output, rms",
}


def rates(data: xr.Dataset, claims: list[dict[str, Any]], *, title: str = ""):
    """The error law of Theorem 1: whole error, fluctuation, bias and depth error, for hidden states and outputs.

    **Arguments:** `data`: `RateFit.data` or the dataset of a `rates` record; `claims`: the claims of the record as dictionaries.

    **Returns:** an array of matplotlib Axes, (observable, panel).

    **Example:** `hw.plot.rates(fit.data, [c.to_json() for c in fit.claims])`
    """
    import matplotlib.pyplot as plt  # 1.3 s: only when a picture is wanted

    by_name = {c["name"]: c for c in claims}
    observables = list(data.observable.values)
    figure, axes = plt.subplots(len(observables), 4, figsize=(16.5, 4.2 * len(observables)), layout="constrained", squeeze=False)
    figure.suptitle(title, fontsize=12)
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.85, data.sizes["depth"]))
    for row, name in zip(axes, observables, strict=True):
        one = data.sel(observable=name)
        _panel(row[0], one, "error2", "fitted_error2", None, colours)
        row[0].set(title=f"whole error to the Mean ODE\n{TITLES[name]}", xlabel="L M", ylabel="error")
        _panel(row[1], one, "variance", "fitted_variance", "in_fluctuation_fit", colours)
        scale = r"b\,\sqrt{D/(LM)}" if name == "hidden" else r"b/\sqrt{LM}"
        row[1].set(
            title=f"fluctuation over initialisations\n${scale}$, {constant(by_name, name, 'fluctuation', 'b')}", xlabel="L M", ylabel="standard deviation"
        )
        _panel(row[2], one, "bias2", "fitted_bias2", "in_bias_fit", colours, floor=True)
        row[2].set(title=f"sampling bias\n$c/(LM)$, {constant(by_name, name, 'bias', 'c')}", xlabel="L M", ylabel="bias")
        _depth_panel(row[3], one)
        row[3].set(title=f"depth error, width infinite\n$a/L$, {constant(by_name, name, 'depth', 'a')}", xlabel="L", ylabel="error")
        for axis in row:
            log_axes(axis)
    axes[0, 0].legend(fontsize=8, title="depth L (lines: fit)", title_fontsize=8)
    (hollow,) = axes[0, 1].plot([], [], "o", mfc="none", color="grey", label="outside the range of the fit")
    axes[0, 1].legend(handles=[hollow], fontsize=8)
    axes[0, 2].legend(fontsize=8)
    axes[0, 3].legend(fontsize=8)
    return axes


def _panel(axis, one: xr.Dataset, value: str, fitted: str, used: str | None, colours, *, floor: bool = False) -> None:
    """Root of a mean square against LM, one colour a depth; hollow: not used in the fit. Error bars: 95 %."""
    for colour, depth in zip(colours, one.depth.values, strict=True):
        at = one.sel(depth=depth)
        product = depth * at.width.values.astype(float)
        square, se = at[value].values, at[f"{value}_se"].values
        low = bool(floor) & at["below_floor"].values.astype(bool) if floor else np.zeros(len(square), bool)
        shown = np.isfinite(square) & ~low
        root = np.sqrt(np.maximum(square, 1e-300))
        half = NORMAL_95 * se / (2 * root)
        filled = shown & (at[used].values.astype(bool) if used else True)
        for mask, face in ((filled, colour), (shown & ~filled, "none")):
            if mask.any():
                axis.errorbar(
                    product[mask], root[mask], np.minimum(half, 0.95 * root)[mask], fmt="o", ms=4.5, mfc=face, color=colour, lw=1, capsize=2,
                    label=f"{depth}" if face is colour and not floor else None,
                )  # fmt: skip
        if low.any():
            limit = np.sqrt(np.maximum(square + NORMAL_95 * se, 1e-300))[low]
            axis.plot(product[low], limit, "v", ms=5, mfc="none", color=colour)
        fit = at[fitted].values
        ok = np.isfinite(fit) & (fit > 0)
        axis.plot(product[ok], np.sqrt(fit[ok]), "-", color=colour, lw=1)
    if floor:
        axis.plot([], [], "v", mfc="none", color="grey", label="below its noise floor:\nupper limit (95 %)")
        axis.plot([], [], "o", color="grey", label="depths as on the left")


def _depth_panel(axis, one: xr.Dataset) -> None:
    curve = one["depth_error"].values
    depth = one.reference_depth.values.astype(float)
    replicates = len(curve)
    half = NORMAL_95 * curve.std(0, ddof=1) / np.sqrt(replicates) if replicates > 1 else np.zeros(len(depth))
    axis.errorbar(depth, curve.mean(0), half, fmt="s", ms=5, color="C3", capsize=2, label="infinite width - Mean ODE")
    axis.plot(depth, one["fitted_depth_error"].values, "-", color="C3", lw=1, label="a/L with next orders")
    axis.plot(depth, one["fitted_depth_error"].values[-1] * depth[-1] / depth, ":", color="grey", lw=1, label="pure 1/L")
