r"""Unbiased statistics of an ensemble against a reference, and their bootstrap over seeds.

With x_i the deviation of member i from the reference (scaled so that |x|^2 is a mean square per coordinate), m its mean over R members:

    variance  V = 1/(R-1) sum_i |x_i - m|^2              fluctuation over initialisations
    bias^2    B = |m|^2 - V/R - (reference error)^2      unbiased: negative values are noise, and say so
    error^2   T = 1/R sum_i |x_i|^2                      what a single network pays
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

#: Half-width of a normal 95 % interval in standard errors.
NORMAL_95 = 1.959963984540054


class CellStatistics(NamedTuple):
    """Estimates and bootstrap draws of one cell and one observable; draws are centred on the estimates."""

    variance: float
    bias2: float
    error2: float
    bias_variance: float  # variance in the coordinates in which the bias is measured
    bias_anisotropy: float  # tr Sigma^2 / (tr Sigma)^2 there, 1 / (effective dimension)
    variance_relative_se2: float  # (se of V / V)^2
    reference2: float  # squared standard error of the reference
    seeds: int
    variance_draws: Float[np.ndarray, " draws"]
    bias2_draws: Float[np.ndarray, " draws"]
    error2_draws: Float[np.ndarray, " draws"]


def missing_cell(draws: int) -> CellStatistics:
    """A cell that may not be used: nothing is known about it."""
    nan, nans = float("nan"), np.full(draws, np.nan)
    return CellStatistics(nan, nan, nan, nan, nan, nan, nan, 0, nans, nans, nans)


def seed_counts(seeds: int, draws: int, rng: np.random.Generator) -> Float[np.ndarray, "draws seeds"]:
    """How often each member is drawn in each bootstrap sample."""
    picks = rng.integers(seeds, size=(draws, seeds), dtype=np.int32)  # a multinomial sampler takes twice the time
    return np.stack([np.bincount(pick, minlength=seeds) for pick in picks]).astype(np.float64)


def cell_statistics(
    deviation: Float[np.ndarray, "seed full"],
    projected: Float[np.ndarray, "seed small"],
    total_shift: Float[np.ndarray, " full"],
    reference2: float,
    reference_draws: Float[np.ndarray, "draws small"],
    counts: Float[np.ndarray, "draws seed"],
) -> CellStatistics:
    """Statistics of one cell.

    **Arguments:** `deviation`: x_i, members minus the infinitely wide network of the same depth; `projected`: the coordinates in which its mean can be
    non-zero; `total_shift`: infinitely wide network minus limit, added back for the total error; `reference2`: squared standard error of the
    reference; `reference_draws`: bootstrap draws of the reference's own error; `counts`: from `seed_counts`.
    """
    seeds = len(deviation)
    fix = seeds / (seeds - 1)

    def spread(x, counts):
        """Unbiased variance of resampled members: mean square minus square of the mean. `x` is centred, so that nothing cancels."""
        square = counts @ np.sum(x**2, axis=1) / seeds
        return (square - np.sum((counts @ x / seeds) ** 2, axis=1)) * fix

    one = np.ones((1, seeds))
    centred = deviation - deviation.mean(0)
    variance = float(spread(centred, one)[0])
    squares = np.sum(centred**2, axis=1)
    relative_se2 = float(squares.var(ddof=1) / seeds / squares.mean() ** 2)
    variance_draws = spread(centred, counts) * fix  # E* of the resampled variance is (R-1)/R V

    mean = projected.mean(0)
    small = projected - mean
    bias_variance = float(spread(small, one)[0])
    bias2 = float(mean @ mean) - bias_variance / seeds - reference2
    means = counts @ projected / seeds - reference_draws
    # |m*|^2 carries the noise of m and that of the resampling: subtract both, so that draws scatter around the estimate.
    noise = spread(small, counts) / seeds + bias_variance / seeds + 2 * reference2
    bias2_draws = np.sum(means**2, axis=1) - noise
    # Resampling a mean that is noisy itself spreads B like 4 B n + 6 n^2 (n = V/R + reference error) instead of 4 B n + 2 n^2.
    level, n = max(bias2, 0.0), bias_variance / seeds + reference2
    shrink = math.sqrt((4 * level * n + 2 * n**2) / (4 * level * n + 6 * n**2)) if n > 0 else 1.0
    bias2_draws = bias2 + shrink * (bias2_draws - bias2)

    gram = small.T @ small if small.shape[1] < seeds else small @ small.T
    trace = np.trace(gram)
    anisotropy = float(np.sum(gram**2) / trace**2) if trace > 0 else 1.0

    total = np.sum((deviation + total_shift) ** 2, axis=1)
    return CellStatistics(
        variance, bias2, float(total.mean()), bias_variance, anisotropy, relative_se2, reference2, seeds,
        variance_draws, bias2_draws, counts @ total / seeds,
    )  # fmt: skip
