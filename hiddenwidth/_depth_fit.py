r"""Fit of the depth error of the infinitely wide network: e(L) = a L^p exp(c_1/L + c_2/L^2).

The data have no sampling noise to speak of (the same quadrature points stand on both sides), so what limits an interval is the
expansion itself. Two errors are combined: the Student interval over quadrature replicates, each fitted on its own, and the
truncation of the expansion, taken as three times (the safety factor of grid-convergence studies) the larger of two changes:
leaving out the highest correction, leaving out the shallowest network.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

SAFETY = 3.0


class Estimate(NamedTuple):
    """A number, its standard error and the half-width of its 95 % interval."""

    value: float
    se: float
    half_width: float


class DepthFit(NamedTuple):
    """Constant and exponent of e(L) = a L^p, and the corrections used for the curve."""

    constant: Estimate
    exponent: Estimate
    corrections: Float[np.ndarray, " orders"]


def fit_depth(depths: Float[np.ndarray, " depth"], error: Float[np.ndarray, "replicate depth"]) -> DepthFit:
    """Fit every replicate; needs at least 4 depths."""
    if len(depths) < 4:
        raise ValueError(f"{len(depths)} depths are too few for the depth law; expected at least 4, for example 8, 16, 32, 64.")
    order = min(2, len(depths) - 3)
    logs = np.log(error)
    fits = [
        [_expand(d, y, q, exponent=e) for e in (-1.0, None)]
        for d, y, q in (
            (depths, logs, order),
            (depths, logs, order - 1),
            (depths[1:], logs[:, 1:], min(order, len(depths) - 3)),
        )
    ]
    constants = [np.exp(fixed[0][:, 0]) for fixed, _ in fits]
    exponents = [free[0][:, 1] for _, free in fits]
    return DepthFit(_combine(*constants), _combine(*exponents), fits[0][0][1].mean(0))


def _expand(depths, logs, order: int, *, exponent: float | None):
    """Weighted least squares for log e; the weights grow as L^(order+1), as the neglected term falls."""
    columns = [np.ones_like(depths)] + ([np.log(depths)] if exponent is None else [])
    head = len(columns)
    design = np.stack(columns + [depths ** -float(q) for q in range(1, order + 1)], axis=1)
    weight = depths ** (order + 1.0)
    target = logs if exponent is None else logs - exponent * np.log(depths)
    beta = np.linalg.lstsq(design * weight[:, None], (target * weight).T, rcond=None)[0].T
    return beta[:, :head], beta[:, head:]


def _combine(fine: Float[np.ndarray, " replicate"], *others: Float[np.ndarray, " replicate"]) -> Estimate:
    replicates = len(fine)
    truncation = SAFETY * max(abs(float(fine.mean() - other.mean())) for other in others)
    if replicates < 2:
        return Estimate(float(fine.mean()), math.nan, math.nan)
    se = float(fine.std(ddof=1)) / math.sqrt(replicates)
    student = float(stats.t.ppf(0.975, replicates - 1))
    return Estimate(float(fine.mean()), math.hypot(se, truncation / 2), math.hypot(student * se, truncation))
