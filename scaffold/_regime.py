r"""Is another block worth having? Three answers, not two.

    improvable     the lower confidence bound of s* is above 0 ("improvable_material": above eta)
    deepest        its upper bound is below eta: an equivalence test, since absence of evidence is not enough
    undetermined   neither; with the number of samples that would decide

eta = sqrt(2 beta gain) is the signal below which even the best step gains less than `gain`, and is declared beforehand. Every answer is about one family of
blocks at one site; the network is at its deepest for a family when all its sites are.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from scipy import stats

from ._order import StructuralOrder
from ._signal import Signal, score_upper

Verdict = Literal["improvable_material", "improvable", "deepest", "undetermined", "degenerate"]


class Regime(NamedTuple):
    """A verdict about one family at one site, and what it rests on. `needed`: samples that would decide an undetermined case."""

    verdict: Verdict
    family: str
    lower: float
    upper: float
    eta: float
    needed: float
    why: str


def threshold(gain: float, curvature: float, longest: float = math.inf) -> float:
    """eta: the signal whose best step, at most `longest`, gains `gain` at curvature beta: sqrt(2 beta gain) where that step is allowed.

    **Example:** `threshold(0.01, 2.0)` is 0.2.
    """
    if not gain > 0 or not longest > 0 or not (curvature > 0 or math.isfinite(longest)):
        raise ValueError(f"gain={gain!r}, curvature={curvature!r} and longest={longest!r}: expected a gain above 0, and a curvature above 0 or a longest step.")
    if curvature > 0 and math.sqrt(2 * gain / curvature) <= longest:
        return math.sqrt(2 * curvature * gain)
    return max(gain / longest + curvature * longest / 2, gain / longest / 2)


def decide(
    *, lower: float, upper: float, eta: float, family: str, needed: float = math.nan, order: StructuralOrder | None = None, dead: bool = False
) -> Regime:
    """Decide from confidence bounds of s*.

    **Arguments:** `lower`, `upper`: bounds that hold together at the level wanted; `eta`: see `threshold`; `needed`: see `samples_to_decide`;
    `order`: of the block's initialisation; `dead`: all activation gradients are zero.

    **Raises:** `ValueError` for an eta that is not above 0, or bounds that cross.

    Source: arXiv 2605.08297, section 2.3 (deepest-model regime).

    **Example:** `decide(lower=0.1, upper=0.3, eta=0.2, family="linear").verdict` is "improvable".
    """
    if not eta > 0:
        raise ValueError(f"eta={eta!r} is not possible; expected a signal above 0, declared before looking. Use threshold(gain, curvature).")
    if order is not None and order.kind == "degenerate":
        return Regime("degenerate", family, lower, upper, eta, math.nan, str(order))
    if dead:
        return Regime("degenerate", family, lower, upper, eta, math.nan, "all activation gradients are zero: nothing at this site changes the loss")
    if lower > upper:
        raise ValueError(f"lower={lower:g} is above upper={upper:g}; expected bounds of one signal. Measure both on the same samples.")
    if lower > eta:
        return Regime("improvable_material", family, lower, upper, eta, math.nan, f"the signal is above eta = {eta:.3g}")
    if lower > 0:
        return Regime("improvable", family, lower, upper, eta, math.nan, f"the signal is above 0; whether it is above eta = {eta:.3g} is open")
    if upper < eta:
        return Regime("deepest", family, lower, upper, eta, math.nan, f"the signal is below eta = {eta:.3g}: no block of this family gains what was asked for")
    return Regime("undetermined", family, lower, upper, eta, needed, "the interval reaches from 0 to above eta: more samples")


def samples_to_decide(signal: Signal, eta: float, *, delta: float = 0.05, power: float = 0.8) -> float:
    r"""How many samples decide with probability `power`, were the signal what was measured (0 where U < 0): the smaller of two numbers.

        improvable    2 (z_delta + z_power)^2 v / s^2                            cross-fitted lower bound above 0
        deepest       the upper bound at U = s^2 + z_power sd(U) is below eta    where s < eta

    Infinite where neither ever does.

    **Example:** `samples_to_decide(measure_signal(g, a), 0.2)`
    """
    s2, v = max(signal.squared, 0.0), signal.along**2
    tau = signal.trace**2 / signal.effective_rank if signal.effective_rank > 0 else 0.0
    z, beta = float(stats.norm.ppf(1 - delta)), float(stats.norm.ppf(power))
    improvable = 2 * (z + beta) ** 2 * v / s2 if s2 > 0 else math.inf

    def upper(n: float) -> float:
        spread = math.sqrt(4 * v * s2 / n + 2 * tau / n**2)
        return score_upper(s2 + beta * spread, signal.along**2, tau, n, delta)

    deepest = math.inf
    if math.sqrt(s2) < eta:
        low, high = 1.0, 2.0
        while upper(high) >= eta and high < 1e15:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if upper(middle) >= eta else (low, middle)
        deepest = high
    return float(math.ceil(min(improvable, deepest))) if math.isfinite(min(improvable, deepest)) else math.inf


def shared_level(delta: float, comparisons: int) -> float:
    """Bonferroni's level for each of several sites, families or steps that are looked at together.

    **Example:** `shared_level(0.05, 10)` is 0.005.
    """
    if comparisons < 1:
        raise ValueError(f"comparisons={comparisons} is not possible; expected at least 1.")
    return delta / comparisons


def deepest_network(regimes: Mapping[str, Regime]) -> Verdict:
    """The verdict about all sites together: improvable where one is, deepest only where all are.

    **Raises:** `ValueError` without sites.
    """
    if not regimes:
        raise ValueError("no sites were given; expected at least one.")
    found = [r.verdict for r in regimes.values()]
    for verdict in ("improvable_material", "improvable"):
        if verdict in found:
            return verdict
    return "deepest" if all(v == "deepest" for v in found) else "degenerate" if all(v == "degenerate" for v in found) else "undetermined"
