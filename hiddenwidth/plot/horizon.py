"""The picture of constants and exponents over the number of steps, drawn from its record."""

import numpy as np
import xarray as xr

CONSTANTS = {
    "hidden.fluctuation.constant": ("b, hidden", "C0"), "output.fluctuation.constant": ("b, output", "C1"),
    "hidden.depth.constant": ("a, hidden", "C2"), "output.limit.constant": ("d, output", "C3"),
}  # fmt: skip
EXPONENTS = {
    "hidden.fluctuation.exponent_depth": ("fluctuation in L", -0.5, "C0"), "hidden.fluctuation.exponent_width": ("fluctuation in M", -0.5, "C1"),
    "hidden.depth.exponent": ("depth error in L", -1.0, "C2"), "output.limit.exponent": ("limit in D, output", -0.5, "C3"),
}  # fmt: skip


def horizon(data: xr.Dataset, *, title: str = ""):
    """Loss and sharpness, constants and exponents over the step, one column a learning rate.

    **Arguments:** `data`: the dataset of a `horizon` record.

    **Returns:** an array of matplotlib Axes, (3, learning rates).
    """
    import matplotlib.pyplot as plt

    rates = data.learning_rate.values
    figure, axes = plt.subplots(3, len(rates), figsize=(6.6 * len(rates), 11), layout="constrained", squeeze=False, sharex=True)
    figure.suptitle(title, fontsize=12)
    for column, rate in zip(axes.T, rates, strict=True):
        one = data.sel(learning_rate=rate)
        reach, last = float(one.horizon), float(data.every_step[-1])
        _stability_panel(column[0], one, f"$\\eta$ = {rate:g}")
        _constants_panel(column[1], one)
        _exponents_panel(column[2], one)
        for axis in column:
            if reach < last:
                axis.axvline(reach, color="black", lw=1, ls="--")
                axis.axvspan(reach, last, color="grey", alpha=0.12)
            axis.grid(True, alpha=0.3)
            axis.set_xlim(0, last + 1)
        column[2].set_xlabel("gradient steps k")
    return axes


def _stability_panel(axis, one: xr.Dataset, title: str) -> None:
    axis.semilogy(one.every_step, one.loss, color="C0", label="loss of the limit")
    axis.semilogy(one.every_step, one.sharpness.where(one.sharpness > 0), color="C3", label=r"sharpness $\eta S$")
    axis.semilogy(one.every_step, one.amplification, color="C2", label="amplification of a perturbation")
    axis.axhline(2.0, color="C3", lw=1, ls=":", label="2: the step overshoots")
    axis.set(title=f"stability of the limit, {title}")
    axis.legend(fontsize=8)


def _points(axis, one: xr.Dataset, name: str, label: str, colour: str, shift: float = 0.0) -> None:
    at = one.sel(claim=name)
    good = np.isfinite(at.value.values) & np.isfinite(at.low.values)
    inside = at.verdict.values < 3  # 3: beyond the horizon that belongs to the claim
    for mask, face in ((good & inside, colour), (good & ~inside, "none")):
        value = at.value.values[mask]
        bars = [value - at.low.values[mask], at.high.values[mask] - value]
        axis.errorbar(
            at.step.values[mask] + shift, value, bars, fmt="o", ms=4, mfc=face, color=colour, capsize=2, lw=1, label=label if face == colour else None
        )


def _constants_panel(axis, one: xr.Dataset) -> None:
    for name, (label, colour) in CONSTANTS.items():
        _points(axis, one, name, label, colour)
    axis.set(title="constants of the error law (hollow: beyond the horizon)", yscale="log")
    axis.legend(fontsize=8)


def _exponents_panel(axis, one: xr.Dataset) -> None:
    for i, (name, (label, theory, colour)) in enumerate(EXPONENTS.items()):
        shifted = one.assign(value=one.value - theory, low=one.low - theory, high=one.high - theory)
        _points(axis, shifted, name, f"{label} (theory {theory:g})", colour, 0.35 * (i - 1.5))
    axis.axhline(0.0, color="grey", lw=1)
    axis.set(title="exponent minus theory", ylim=(-0.35, 0.65))
    axis.legend(fontsize=8, loc="upper left")
