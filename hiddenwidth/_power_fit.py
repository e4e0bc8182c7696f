r"""Exponents of a quantity measured at several shapes:  log y = const + p_L log L + p_M log M + p_D log D + corrections.

Ordinary least squares: the shapes are measured equally well (seeds times D is the same at each). A 95 % interval adds two half-widths in quadrature:
Student's, from the scatter of the shapes about the fit on its residual degrees of freedom, and the normal one from resampled seeds. Noise of the
seeds is in both, so the interval is somewhat wide; what the law itself leaves over is in the first alone.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from ._depth_fit import Estimate
from ._statistics import NORMAL_95

MISSING = Estimate(math.nan, math.nan, math.nan)


class PowerFit(NamedTuple):
    """Exponents by name, root mean square scatter of log y about the fit, residual degrees of freedom, which shapes were used."""

    exponents: dict[str, Estimate]
    scatter: float
    dof: int
    used: Bool[np.ndarray, " shape"]


def fit_powers(
    log_y: Float[np.ndarray, " shape"],
    powers: dict[str, Float[np.ndarray, " shape"]],
    *,
    corrections: dict[str, Float[np.ndarray, " shape"]] | None = None,
    draws: Float[np.ndarray, "draw shape"] | None = None,
) -> PowerFit:
    """Fit one law.

    **Arguments:** `log_y`: NaN where nothing was measured, such a shape is left out; `powers`: the logarithms whose coefficients are wanted;
    `corrections`: terms that vanish in the limit, fitted when they leave at least three degrees of freedom; `draws`: log y of resampled seeds (a shape
    that is NaN in more than a tenth of them is left out; elsewhere a NaN is replaced by the mean of the other draws).

    **Returns:** a `PowerFit`; exponents are NaN when the shapes cannot tell them apart.
    """
    used = np.isfinite(log_y)
    if draws is not None:
        used &= np.isfinite(draws).mean(0) >= 0.9
    head = np.stack([np.ones_like(log_y), *powers.values()], 1)
    extra = list((corrections or {}).values())
    design = np.stack([*head.T, *extra], 1) if used.sum() >= head.shape[1] + len(extra) + 3 else head
    x = design[used]
    dof = int(used.sum()) - x.shape[1]
    if dof < 1 or np.linalg.matrix_rank(x / np.linalg.norm(x, axis=0), tol=1e-6) < x.shape[1]:
        return PowerFit(dict.fromkeys(powers, MISSING), math.nan, max(dof, 0), used)
    solve = np.linalg.pinv(x)
    beta = solve @ log_y[used]
    scatter2 = float(np.sum((log_y[used] - x @ beta) ** 2)) / dof
    se_scatter = np.sqrt(scatter2 * np.diag(np.linalg.inv(x.T @ x)))
    se_seeds = np.zeros(len(beta)) if draws is None else _seed_error(solve, draws[:, used])
    student = float(stats.t.ppf(0.975, dof))
    exponents = {
        name: Estimate(float(beta[i]), math.hypot(se_scatter[i], se_seeds[i]), math.hypot(student * se_scatter[i], NORMAL_95 * se_seeds[i]))
        for i, name in enumerate(powers, start=1)
    }
    return PowerFit(exponents, math.sqrt(scatter2), dof, used)


def mean_of(values: Float[np.ndarray, " n"], draws: Float[np.ndarray, "draw n"] | None = None) -> Estimate:
    """Mean with an interval made in the same way: scatter (Student) and resampled seeds in quadrature."""
    kept = np.isfinite(values)
    if kept.sum() < 2:
        return MISSING
    fit = fit_powers(values, {}, draws=None)  # the constant alone
    count = int(kept.sum())
    se = fit.scatter / math.sqrt(count)
    seeds = 0.0 if draws is None else float(np.nanstd(np.nanmean(draws[:, kept], 1), ddof=1))
    student = float(stats.t.ppf(0.975, count - 1))
    return Estimate(float(values[kept].mean()), math.hypot(se, seeds), math.hypot(student * se, NORMAL_95 * seeds))


def _seed_error(solve: Float[np.ndarray, "power shape"], draws: Float[np.ndarray, "draw shape"]) -> Float[np.ndarray, " power"]:
    filled = np.where(np.isfinite(draws), draws, np.nanmean(draws, 0))
    return (filled @ solve.T).std(0, ddof=1)
