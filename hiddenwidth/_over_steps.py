r"""Constants of the error law as functions of the number of gradient steps, up to the stability horizon and beyond it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import stats

from ._claims import Claim
from ._limit.infinite_width import DepthError
from ._limit.solution import Limit
from ._limit.stability import Horizon
from ._rates import fit_rates

#: Growth is fitted from this step on: before it the outputs of the limit itself are still small.
GROWTH_FROM = 4
VERDICTS = ("holds", "fails", "undetermined", "beyond the horizon")


class Growth(NamedTuple):
    """How a constant grows with the step: k^rate or e^(rate k), whichever leaves the smaller residual."""

    kind: str
    rate: float
    residual: float  # rms of the logarithm
    residual_other: float


def claims_over_steps(
    runs: xr.Dataset, limit: Limit, depth: Mapping[int, DepthError], reach: Horizon, *, bootstrap: int = 400, seed: int = 0
) -> dict[int, list[Claim]]:
    """The claims of `fit_rates` at every recorded step."""
    return {int(k): fit_rates(runs, limit, depth[int(k)], step=int(k), reach=reach, bootstrap=bootstrap, seed=seed).claims for k in runs.recorded.values}


def dataset_over_steps(claims: Mapping[int, list[Claim]], reach: Horizon, flat: Horizon | None = None) -> xr.Dataset:
    """Value, interval and verdict of every claim at every step; `flat`: the horizon of the limit at D = infinity, which bounds claims about D."""
    steps = sorted(claims)
    names = [c.name for c in claims[steps[0]]]
    found = {(k, c.name): c for k in steps for c in claims[k]}

    def rows(of) -> Float[np.ndarray, "claim step"]:
        return np.array([[float(of(found[k, n])) if (k, n) in found else np.nan for k in steps] for n in names])

    def verdict(c: Claim) -> int:
        return VERDICTS.index(c.verdict)

    ends = np.array([(flat if flat is not None and ".limit." in n else reach).step for n in names])
    codes = np.where(np.asarray(steps)[None] > ends[:, None], 3.0, rows(verdict))
    columns = {
        "value": rows(lambda c: c.value),
        "se": rows(lambda c: c.se),
        "low": rows(lambda c: c.ci95[0]),
        "high": rows(lambda c: c.ci95[1]),
        "verdict": codes,
    }
    return xr.Dataset({k: (("claim", "step"), v) for k, v in columns.items()}, coords={"claim": names, "step": steps})


def jointly(by_step: Mapping[int, list[Claim]], reach: Horizon, flat: Horizon | None = None) -> list[Claim]:
    r"""Every exponent once, for all recorded steps up to its horizon together.

    Of m steps one in 20/m misses a 95 % interval by chance alone; intervals that hold together (Bonferroni) are wider by z(1 - 0.025/m)/z(0.975). Value and
    interval are those of the step furthest from theory, in units of its interval. "fails" where any step is outside of its wider interval, "undetermined"
    where a step by itself is undetermined.
    """
    steps = sorted(by_step)
    found = []
    for first in by_step[steps[0]]:
        end = (flat if flat is not None and ".limit." in first.name else reach).step
        here = [(k, c) for k in steps if k <= end for c in by_step[k] if c.name == first.name]
        if "exponent" not in first.name or first.theory is None or not here:
            continue
        wider = float(stats.norm.ppf(1 - 0.025 / len(here)) / stats.norm.ppf(0.975))
        k, worst = max(here, key=lambda x: _away(x[1]))
        half = (worst.ci95[1] - worst.ci95[0]) / 2 * wider
        open_steps = [k for k, c in here if c.verdict == "undetermined"]
        if _away(worst) > wider:
            verdict, why = "fails", f"theory's {worst.theory:g} is outside the joint interval at k = {k}"
        elif open_steps:
            verdict, why = "undetermined", f"so by itself at k = {', '.join(map(str, open_steps))}"
        else:
            verdict, why = "holds", ""
        name = f"{first.name}[all {len(here)} steps to {here[-1][0]}]"
        found.append(worst._replace(name=name, ci95=(worst.value - half, worst.value + half), verdict=verdict, why=why))
    return found


def _away(c: Claim) -> float:
    """Distance from theory in half-widths; -1 where there is no interval."""
    half = (c.ci95[1] - c.ci95[0]) / 2
    return abs(c.value - c.theory) / half if c.theory is not None and np.isfinite(half) and half > 0 else -1.0


def growth(data: xr.Dataset, name: str, last: int) -> Growth | None:
    """Fit both growth laws to one constant on GROWTH_FROM <= k <= last; None with fewer than four usable steps."""
    at = data.sel(claim=name)
    good = (at.step.values >= GROWTH_FROM) & (at.step.values <= last) & np.isfinite(at.value.values) & (at.value.values > 0)
    if good.sum() < 4:
        return None
    k, logs = at.step.values[good].astype(float), np.log(at.value.values[good])

    def line(x):
        centred = x - x.mean()
        slope = float(centred @ logs / (centred @ centred))
        rest = logs - logs.mean() - slope * centred
        return slope, float(np.sqrt(np.mean(rest**2)))

    power, exponential = line(np.log(k)), line(k)
    if power[1] <= exponential[1]:
        return Growth("power", *power, exponential[1])
    return Growth("exponential", *exponential, power[1])


def growth_table(data: xr.Dataset, reach: Horizon, flat: Horizon) -> dict[str, dict[str, Any]]:
    """The better growth law of every constant, up to the horizon that belongs to it. A description: the points share their networks, so it has no interval."""
    found = {}
    for name in map(str, data.claim.values):
        law = growth(data, name, (flat if ".limit." in name else reach).step) if name.endswith(".constant") else None
        if law is not None:
            found[name] = law._asdict()
    return found
