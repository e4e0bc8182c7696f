"""Pictures, drawn from data sets alone. Every function returns its Axes."""

from typing import Any

import numpy as np
import xarray as xr


def analysis(data: xr.Dataset, *, site: str | None = None, title: str = "") -> Any:
    r"""Four panels: signals by site; predicted against realised decrease; correlations of the activation gradient at one site beside one draw of their null.

    **Arguments:** `data`: of `Analysis.dataset()`, or read from a record; `site`: of the correlations (default: the last); `title`: of the figure.

    **Returns:** 2 x 2 Axes.

    **Raises:** `ValueError` for a site that is not in the data.

    **Example:** `scaffold.plot.analysis(found.dataset())[0, 0].figure.savefig("analysis.png")`
    """
    import matplotlib.pyplot as plt

    names = [str(s) for s in data.site.values]
    if site is not None and site not in names:
        raise ValueError(f"site={site!r} is not in the data; expected one of {', '.join(names)}.")
    figure, axes = plt.subplots(2, 2, figsize=(14, 10.5), layout="constrained")
    _signals(axes[0, 0], data, names)
    _gains(axes[0, 1], data, names)
    shown = names[-1] if site is None else site
    _correlations(axes[1, 0], axes[1, 1], data.sel(site=shown), shown)
    figure.suptitle(title)
    return axes


def _signals(axis, data: xr.Dataset, names: list[str]) -> None:
    """Signals in units of eta, so that all sites and families share one axis."""
    families = [str(f) for f in data.family.values]
    shift = (np.arange(len(families)) - (len(families) - 1) / 2) * 0.8 / len(families)
    places = np.arange(len(names))
    for number, family in enumerate(families):
        one = data.sel(family=family)
        eta = one.eta.values
        low, high, value, floor = (one[k].values / eta for k in ("lower", "upper", "signal", "floor"))
        x = places + shift[number]
        axis.vlines(x, low, high, color=f"C{number}", lw=2.5, alpha=0.8)
        axis.plot(x, value, "o", color=f"C{number}", ms=5, label=family)
        axis.plot(x, floor, "_", color="black", ms=11, mew=1.5, label="noise floor" if number == len(families) - 1 else None)
    axis.axhline(1, color="black", ls="--", lw=1, label=r"$\eta$: smallest signal that matters")
    axis.axhline(0, color="grey", lw=0.8)
    axis.set_yscale("symlog", linthresh=1)
    axis.set_xticks(places, names)
    axis.set_ylabel(r"first-order signal $s$ / $\eta$")
    axis.set_title(f"Signal by site (bars: bounds that hold together at {1 - data.attrs['delta']:.0%})", fontsize=10)
    axis.grid(True, axis="y", alpha=0.3)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * 12)  # room for the legend
    axis.legend(fontsize=8, ncols=3, loc="upper center")


def _gains(axis, data: xr.Dataset, names: list[str]) -> None:
    """Predicted on the samples of the step, realised on those that evaluate."""
    markers = "osD^vP*Xhd<>8p"
    families = [str(f) for f in data.family.values]
    for number, family in enumerate(families):
        for place, name in enumerate(names):
            one = data.sel(family=family, site=name)
            axis.errorbar(
                float(one.predicted), float(one.realised), yerr=1.96 * float(one.realised_se), color=f"C{number}",
                marker=markers[place % len(markers)], ms=6, lw=1, capsize=2,
            )  # fmt: skip
    largest = float(np.nanmax([*data.predicted.values.ravel(), 1e-300]))
    axis.plot([0, largest], [0, largest], color="black", ls="--", lw=1)
    axis.axhline(0, color="grey", lw=0.8)
    handles = [axis.plot([], [], "s", color=f"C{n}", label=f)[0] for n, f in enumerate(families)]
    handles += [axis.plot([], [], markers[n % len(markers)], color="grey", label=s)[0] for n, s in enumerate(names)]
    handles += [axis.plot([], [], color="black", ls="--", lw=1, label="realised = predicted")[0]]
    axis.legend(handles=handles, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    axis.set_xlabel("predicted decrease of the risk")
    axis.set_ylabel("realised decrease (bars: 95 %)")
    axis.set_title("Predicted against realised, on samples that chose nothing", fontsize=10)
    axis.grid(True, alpha=0.3)


def _correlations(left, right, one: xr.Dataset, name: str) -> None:
    off = np.abs(np.where(np.eye(one.sizes["row"], dtype=bool), 0, np.stack([one.correlations.values, one.null.values])))
    reach = max(float(np.nanmax(off)), 1e-3)
    for axis, key, what in ((left, "correlations", "correlations of the activation gradient"), (right, "null", "the same with independent signs (null)")):
        image = axis.imshow(one[key].values, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
        axis.set_title(f"{name}: {what}", fontsize=10)
        axis.set_xlabel("coordinate")
        axis.set_ylabel("coordinate")
    left.figure.colorbar(image, ax=[left, right], shrink=0.8, label="correlation (colours end at the largest off the diagonal)")
