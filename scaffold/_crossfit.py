r"""Cross-fitting: every fold evaluates a direction that the other folds chose, so that choosing does not flatter it.

Every unit direction has s(v) <= s*, so a lower bound on the average of s(v^(-k)) over folds is one on s*. The standard error is not that of n independent
numbers: for the steepest linear direction the cross-fitted mean is, where s = 0, a degenerate U-statistic in which every pair of samples of different folds
occurs twice, and its variance is twice the naive one.

    se = sqrt(2) sd(Z)/sqrt(n)            families that are linear in their direction
    se = mean over folds of sd_k/sqrt(n_k)    any other (Minkowski: whatever the dependence)
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from ._mean_bounds import lower_bound


class CrossFit(NamedTuple):
    """Average over folds of the signal of directions chosen on the others, with its standard error and a lower confidence bound on s*."""

    value: float
    se: float
    lower: float
    delta: float
    folds: Float[np.ndarray, " folds"]
    kind: Literal["linear", "any", "finite_sample"]


def cross_fit(
    n: int,
    choose: Callable[[Int[np.ndarray, " train"]], Any],
    evaluate: Callable[[Any, Int[np.ndarray, " test"]], Float[np.ndarray, " test"]],
    *,
    folds: int = 2,
    kind: Literal["linear", "any", "finite_sample"] = "linear",
    interval: tuple[float, float] | None = None,
    delta: float = 0.05,
    seed: int = 0,
) -> CrossFit:
    r"""Cross-fit a direction.

    **Arguments:** `choose(train)`: a unit direction from these samples; `evaluate(direction, test)`: Z_i = -<G_i, J v(u_i)> of these; `kind`: which standard
    error; "finite_sample": average of per-fold empirical Bernstein bounds at delta/folds, which needs the `interval` that Z cannot leave; `seed`: of the folds.

    **Returns:** a `CrossFit`.

    **Raises:** `ValueError` for folds of fewer than two samples.

    Source: arXiv 2605.08297, condition 1.

    **Example:** `cross_fit(len(g), lambda t: steepest(g[t], a[t]), lambda v, t: signals(v, g[t], a[t]))`
    """
    if folds < 2 or n < 2 * folds:
        raise ValueError(f"folds={folds} of n={n} samples: expected at least 2 folds of at least 2 samples.")
    order = np.random.default_rng(seed).permutation(n)
    tests = [np.sort(order[k::folds]) for k in range(folds)]
    z = [np.asarray(evaluate(choose(np.setdiff1d(order, test)), test), np.float64) for test in tests]
    means = np.array([x.mean() for x in z])
    value = float(means.mean())
    if kind == "finite_sample":
        lower = float(np.mean([lower_bound(x, delta=delta / folds, interval=interval).value for x in z]))
        return CrossFit(value, math.nan, lower, delta, means, kind)
    if kind == "linear":
        se = math.sqrt(2) * float(np.concatenate(z).std(ddof=1)) / math.sqrt(n)
    else:
        se = float(np.mean([x.std(ddof=1) / math.sqrt(len(x)) for x in z]))
    return CrossFit(value, se, value - float(stats.norm.ppf(1 - delta)) * se, delta, means, kind)


def cross_fit_steepest(
    gradient: Float[np.ndarray, "n *positions dim"], features: Float[np.ndarray, "n *positions m"], *, folds: int = 2, delta: float = 0.05, seed: int = 0
) -> CrossFit:
    """Cross-fit the steepest direction -C/|C| of a family h = V a(u).

    **Example:** `cross_fit_steepest(g, a).lower`
    """
    g = np.asarray(gradient, np.float64).reshape(len(gradient), -1, gradient.shape[-1])
    a = np.asarray(features, np.float64).reshape(len(features), -1, features.shape[-1])

    def choose(train):
        c = np.einsum("npi,npj->ij", g[train], a[train])
        return -c / max(float(np.linalg.norm(c)), 1e-300)

    def evaluate(v, test):
        return -np.einsum("npi,ij,npj->n", g[test], v, a[test], optimize=True)

    return cross_fit(len(g), choose, evaluate, folds=folds, delta=delta, seed=seed)
