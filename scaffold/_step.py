r"""How far to go along a direction, and what is certain to be gained there.

    line search    the best of a grid of near-identity steps, t = 0 among them
    Armijo         t in {t0 g^k}: the first with R(t) <= R(0) - c t s
    smooth         t = s_lo/beta_hi gains at least s_lo^2/(2 beta_hi)

Three grades of the gain Delta_R: "exact" (a sum over the population), "smooth" (from bounds of signal and curvature), "evaluated" (the mean of
D = loss(f_old) - loss(f_new) over samples that chose neither direction nor step, with a lower bound).
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float, PyTree

from ._directions import gain
from ._gradients import Loss
from ._insert import Expanded
from ._loss import AbstractLoss
from ._mean_bounds import Method, lower_bound
from ._path import Path, path, sample_gains, unit_step
from ._population import Population, Quantity, risk_gain

#: Near-identity steps tau = rms h / rms u of the grid; 0 goes before them.
TAUS = tuple(float(t) for t in np.geomspace(1e-3, 1.0, 13))


class Gain(NamedTuple):
    """A decrease of risk: value, lower bound at level 1 - delta, and on what it rests."""

    value: float
    lower: float
    se: float
    grade: Literal["exact", "smooth", "evaluated"]
    certainty: Literal["exact", "finite_sample", "asymptotic", "estimated"]
    delta: float


class Step(NamedTuple):
    """A step t along a direction: near-identity size, signal and curvature on the samples of the search, gain predicted and seen."""

    t: float
    tau: float
    signal: float
    curvature: float
    predicted: float
    seen: float
    walked: Path


def line_search(expanded: Expanded, v: PyTree[Array], loss: Loss, x: PyTree, y: PyTree, *, taus: tuple[float, ...] = TAUS, chunk: int = 512) -> Step:
    r"""The step with the least mean loss on these samples, over near-identity steps; 0 where none is better.

    **Arguments:** `taus`: steps, in units of rms u / rms J v.

    **Returns:** a `Step`. Its curvature is the largest secant over steps up to the chosen one (or the smallest): no step gains less than s t - beta t^2/2 on
    these samples. `predicted` takes the secant at the step itself, that is t (s(0) + s(t))/2.

    **Raises:** `ValueError` for a direction that moves nothing.

    Source: arXiv 2605.08297, scaffold models.

    **Example:** `line_search(expanded, v, SquaredError(), x, y).t`
    """
    unit = unit_step(expanded, v, x, y, loss, chunk=chunk)
    walked = path(expanded, v, np.concatenate([[0.0], unit * np.asarray(taus)]), loss, x, y, chunk=chunk)
    means = walked.losses.mean(1)
    best = int(np.argmin(means))
    end = max(best, 1) + 1
    upto = walked._replace(steps=walked.steps[:end], slopes=walked.slopes[:end])
    beta, t = upto.curvature(), float(walked.steps[best])
    predicted = t * float(walked.slopes[0].mean() + walked.slopes[best].mean()) / 2
    return Step(t, float(walked.near_identity()[best]), walked.signal, beta, predicted, float(means[0] - means[best]), walked)


def armijo(risk: Callable[[float], float], signal: float, *, first: float = 1.0, shrink: float = 0.5, fraction: float = 0.5, most: int = 60) -> float:
    r"""The first t in {first * shrink^k} with R(t) <= R(0) - fraction t s; where s(0) - s(t) <= beta t it is at least shrink * s/beta.

    **Raises:** `ValueError` for a signal that is not above 0, and where no step of the list is accepted.

    **Example:** `armijo(lambda t: (t - 1) ** 2 / 2, 1.0)` is 1.0.
    """
    if not signal > 0:
        raise ValueError(f"signal={signal!r} is not above 0; expected a descent direction. Reverse it, or look at another site.")
    start, t = risk(0.0), first
    for _ in range(most):
        if risk(t) <= start - fraction * t * signal:
            return t
        t *= shrink
    raise ValueError(
        f"no step from {first:g} down to {t:g} decreases the risk by fraction={fraction:g} of what the signal promises; expected one. Check signal."
    )


def smooth_gain(lower: float, curvature: float, *, longest: float = math.inf, delta: float = 0.05) -> Gain:
    """Grade "smooth": s_lo^2/(2 beta_hi), or s_lo t - beta_hi t^2/2 at the longest step.

    **Example:** `smooth_gain(0.2, 2.0).value` is 0.01.
    """
    value = gain(lower, curvature, longest)
    return Gain(value, value, math.nan, "smooth", "asymptotic", delta)


def exact_gain(population: Population, old: Callable[[Any], Array], new: Callable[[Any], Array], loss: Loss) -> Gain:
    """Grade "exact": a sum over the population.

    **Raises:** `ValueError` for a population whose means are estimates.

    **Example:** `exact_gain(FinitePopulation(x, y), split, expanded.moved(v, 0.1), SquaredError())`
    """
    found: Quantity = risk_gain(population, old, new, loss)
    if found.grade != "exact":
        raise ValueError("population has no exact means; expected a FinitePopulation. Use evaluated_gain.")
    return Gain(found.value, found.value, 0.0, "exact", "exact", 0.0)


def evaluated_gain(
    expanded: Expanded,
    v: PyTree[Array],
    t: float,
    loss: Loss,
    x: PyTree,
    y: PyTree,
    *,
    method: Method = "t",
    reach: float | None = None,
    delta: float = 0.05,
    chunk: int = 512,
) -> Gain:
    r"""Grade "evaluated": the mean of D over samples that chose nothing.

    **Arguments:** `method`: of the lower bound; `reach`: largest |D| that is possible, for the methods that hold for finite samples, see `difference_bound`.

    **Raises:** `ValueError` as `lower_bound`.

    **Example:** `evaluated_gain(expanded, v, 0.1, SquaredError(), x, y).lower`
    """
    gains = sample_gains(expanded, v, t, loss, x, y, chunk=chunk)
    bound = lower_bound(gains, method=method, delta=delta, interval=None if reach is None else (-reach, reach))
    return Gain(float(gains.mean()), bound.value, float(gains.std(ddof=1)) / math.sqrt(len(gains)), "evaluated", bound.grade, delta)


def difference_bound(loss: AbstractLoss, top_lipschitz: float, t: float, largest: Float[np.ndarray, ""] | float) -> float:
    """Largest |D| of a step: min(B, lipschitz * top_lipschitz * t * sup|J v|). It shrinks with t.

    **Example:** `difference_bound(Brier(), 1.0, 0.01, 2.0)`
    """
    found = min(loss.bound, loss.lipschitz * top_lipschitz * t * float(largest))
    if not math.isfinite(found):
        raise ValueError(f"loss {type(loss).__name__} has no bound and no Lipschitz constant; expected one of them. Use Brier() or a clipped loss.")
    return found
