r"""Log-linear laws fitted by quasi-likelihood: E[y_c] = exp(x_c . beta), with the variance of y_c a known function of its mean.

The estimating equation  sum_c x_c mu_c (y_c - mu_c) / var_c(mu_c) = 0  has expectation zero whatever the law of y, so unbiased squares may be fitted even where
noise makes some of them negative, which a straight line through logarithms cannot. Solved by Gauss-Newton, many data sets (bootstrap draws) at once.

A coefficient may carry a prior N(centre, scale^2): it enters as one more datum. Bootstrap draws move its centre too, so that intervals contain what the prior
leaves open.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

Variance = Callable[[Float[np.ndarray, "*draws cells"]], Float[np.ndarray, "*draws cells"]]

ITERATIONS = 60
MAX_STEP = 1.0  # in log units: keeps Gauss-Newton inside the range of exp
TOLERANCE = 1e-9


class LogLinear(NamedTuple):
    """A fit: coefficients and their standard errors, goodness of fit, and whether Gauss-Newton settled."""

    beta: Float[np.ndarray, "*draws terms"]
    se: Float[np.ndarray, "*draws terms"]
    chi2: Float[np.ndarray, "*draws"]
    dof: int
    converged: Bool[np.ndarray, "*draws"]

    @property
    def p_value(self) -> float:
        """Probability of a chi2 at least as large if the law holds (single fit)."""
        return float(stats.chi2.sf(self.chi2, self.dof)) if self.dof > 0 else float("nan")


def fit(
    design: Float[np.ndarray, "cells terms"],
    values: Float[np.ndarray, "*draws cells"],
    variance: Variance,
    start: Float[np.ndarray, " terms"] | None = None,
    prior_scale: Float[np.ndarray, " terms"] | None = None,
    prior_centre: Float[np.ndarray, "*draws terms"] | float = 0.0,
) -> LogLinear:
    """Fit E[values] = exp(design @ beta) to every row of `values`; `prior_scale` is infinite for a free coefficient (default: all are)."""
    precision = np.zeros(design.shape[1]) if prior_scale is None else 1.0 / prior_scale**2
    start = _start(design, precision == 0, np.atleast_2d(values)[0]) if start is None else start
    beta = np.broadcast_to(start, (*values.shape[:-1], design.shape[1])).copy()
    converged = np.zeros(values.shape[:-1], bool)

    def linearise(beta):
        """Values less mean with their weights, and the equilibrated normal matrix (columns differ by orders of magnitude) with its scales."""
        mean = np.exp(np.clip(beta @ design.T, -300, 300))
        weight = 1.0 / variance(mean)
        jacobian = mean[..., None] * design
        normal = np.swapaxes(jacobian, -1, -2) @ (weight[..., None] * jacobian) + np.diag(precision)
        slope = np.einsum("...ci,...c->...i", jacobian, weight * (values - mean)) - precision * (beta - prior_centre)
        scale = np.sqrt(np.einsum("...ii->...i", normal)) + 1e-300
        return slope, normal / scale[..., None] / scale[..., None, :] + 1e-13 * np.eye(design.shape[1]), scale

    for _ in range(ITERATIONS):
        slope, normal, scale = linearise(beta)
        step = np.linalg.solve(normal, (slope / scale)[..., None])[..., 0] / scale
        size = np.abs(step @ design.T).max(-1)
        step = step * np.minimum(1.0, MAX_STEP / np.maximum(size, 1e-300))[..., None]
        beta = beta + step
        converged = size < TOLERANCE
        if np.all(converged):
            break
    _, normal, scale = linearise(beta)
    se = np.sqrt(np.maximum(np.einsum("...ii->...i", np.linalg.inv(normal)), 0.0)) / scale
    mean = np.exp(np.clip(beta @ design.T, -300, 300))
    chi2 = np.sum((values - mean) ** 2 / variance(mean), axis=-1) + np.sum(precision * (beta - prior_centre) ** 2, axis=-1)
    return LogLinear(beta, se, chi2, design.shape[0] - int(np.sum(precision == 0)), converged)


def _start(design: Float[np.ndarray, "cells terms"], free: Bool[np.ndarray, " terms"], values: Float[np.ndarray, " cells"]) -> Float[np.ndarray, " terms"]:
    """Least squares through the logarithms of what is positive, for the free coefficients; 0 for those with a prior."""
    beta = np.zeros(design.shape[1])
    design = design[:, free]
    good = values > 0
    if good.sum() < design.shape[1]:
        good = np.ones_like(good)
    logs = np.log(np.maximum(values[good], 1e-300))
    beta[free] = np.linalg.lstsq(design[good], logs, rcond=None)[0]
    return beta
