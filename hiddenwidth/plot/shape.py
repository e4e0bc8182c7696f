"""The picture of `hiddenwidth shape`."""

from typing import Any

import numpy as np
import xarray as xr

from .._statistics import NORMAL_95
from .style import log_axes

TERM_LABELS = {"depth": "depth, $a/L$", "bias": "bias, $c\\,D/(LM)$", "fluctuation": "fluctuation, $b\\sqrt{D/(LM)}$", "limit": "finite D, $d/\\sqrt{D}$"}


def shape(data: xr.Dataset, info: dict[str, Any], *, title: str = ""):
    """The shape for a budget: error against depth, networks of this budget, best shapes of all budgets.

    **Arguments:** `data`: the dataset of a `shape` record; `info`: its json content, of which `shape` and `checked` are used.

    **Returns:** an array of three matplotlib Axes.

    **Example:** `axes = hw.plot.shape(record.data, record.info)` with `record` read from the directory that `hiddenwidth shape` wrote.
    """
    import matplotlib.pyplot as plt

    best = info["shape"]
    figure, axes = plt.subplots(1, 3, figsize=(17, 5.2), layout="constrained")
    figure.suptitle(title, fontsize=12)
    _depth_panel(axes[0], data, best)
    if info.get("checked"):
        _check_panel(axes[1], data, info["checked"])
    else:
        _shares_panel(axes[1], best)
    _budget_panel(axes[2], data, best)
    return axes


def _depth_panel(axis, data: xr.Dataset, best: dict[str, Any]) -> None:
    axis.plot(data.at_depth.values, data.error_at_depth.values, "-", color="C0", label="best M and D at depth L")
    least, chosen = best["least"], best["chosen"]
    axis.axhspan(least["error"], least["error"] * (1 + best["slack"]), color="C0", alpha=0.15, lw=0, label=f"within {best['slack']:.0%} of the least error")
    axis.plot(chosen["depth"], chosen["error"], "o", color="C3", ms=8, label=f"chosen, L = {chosen['depth']}")
    axis.plot(least["depth"], least["error"], "s", color="C2", ms=7, label=f"least error, L = {least['depth']}, M = {least['width']}")
    axis.set(title="hidden state: predicted error at this budget\n(leading orders)", xlabel="L", ylabel="error to the Mean ODE, rms")
    log_axes(axis)
    axis.legend(fontsize=9)


def _check_panel(axis, data: xr.Dataset, checked: list[dict[str, Any]]) -> None:
    one = data.sel(observable="hidden").isel(cell=slice(0, len(checked)))
    at = np.arange(len(checked))
    bottom = np.zeros(len(checked))
    square = one.predicted.values**2
    for colour, (term, label) in zip(("C4", "C1", "C9", "C7"), TERM_LABELS.items(), strict=True):
        part = one[f"share_{term}"].values * square / one.predicted.values
        axis.bar(at, part, 0.7, bottom=bottom, color=colour, alpha=0.6, label=label)
        bottom = bottom + part
    axis.errorbar(at - 0.12, one.predicted.values, [one.predicted.values - one.predicted_low.values, one.predicted_high.values - one.predicted.values],
                  fmt="_", ms=10, color="black", capsize=3, lw=1, label="predicted, with next orders")  # fmt: skip
    axis.errorbar(at + 0.12, one.error.values, NORMAL_95 * one.error_se.values, fmt="o", color="C3", ms=5, capsize=3, lw=1.2, label="networks")
    labels = [f"{r['name']}\n{r['depth']}, {r['width']}, {r['dim']}" for r in checked]
    axis.set_xticks(at, labels, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    axis.set_ylim(0, 1.45 * float(np.nanmax([bottom.max(), np.nanmax(one.error.values)])))
    axis.set(title="hidden state: networks of this budget\n(L, M, D; bars split by share of the mean square)", ylabel="error to the Mean ODE, rms")
    axis.grid(True, axis="y", alpha=0.3)
    axis.legend(fontsize=8, ncols=2, loc="upper center")


def _shares_panel(axis, best: dict[str, Any]) -> None:
    for i, which in enumerate(("chosen", "least")):
        bottom = 0.0
        for colour, (term, label) in zip(("C4", "C1", "C9", "C7"), TERM_LABELS.items(), strict=True):
            share = best[which]["shares"][term]
            axis.bar(i, share, 0.6, bottom=bottom, color=colour, alpha=0.6, label=label if i == 0 else None)
            bottom += share
    axis.set_xticks([0, 1], ["chosen", "least error"])
    axis.set(title="share of every term in the mean square\n(not checked on networks)", ylim=(0, 1.35))
    axis.legend(fontsize=8, ncols=2, loc="upper center")


def _budget_panel(axis, data: xr.Dataset, best: dict[str, Any]) -> None:
    budget = data.budget.values
    for colour, size, power, letter in (("C3", "depth", 1 / 6, "L"), ("C0", "width", 1 / 2, "M"), ("C2", "dim", 1 / 3, "D")):
        axis.plot(budget, data.shape_of_budget.sel(size=size).values, "o", ms=4, color=colour, label=f"{letter}, best whole number")
        through = best["asymptotic"][size] * (budget / best["budget"]) ** power
        label = {"depth": "$P^{1/6}$", "width": "$P^{1/2}$", "dim": "$P^{1/3}$"}[size]
        axis.plot(budget, through, "-", lw=1, color=colour, label=f"{letter} ~ {label}, measured constants")
    axis.axvline(best["budget"], color="grey", ls=":", lw=1)
    axis.set(xscale="log", yscale="log", title="chosen shape of every budget\n(dotted: this one)", xlabel="parameters P", ylabel="L, M, D")
    axis.grid(True, alpha=0.3)
    axis.legend(fontsize=8)
