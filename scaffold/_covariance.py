r"""Second moments of activation gradients, debiased, with intervals.

With M = E S (S = G G^T, summed over positions) and U-statistics over samples, in which no sample meets itself:

    omega = off_U / fro_U              share of |M|_F^2 off the diagonal
    PR    = tr2_U / fro_U              participation ratio, the effective rank of M
    align = (1 - omega) - (2 + PR)/(d + 2)

The last is 0 for a basis that has nothing to do with M (a Haar-random one): a flat spectrum looks diagonal in any basis. Intervals come from leaving out groups
of samples. A ratio whose denominator is not positive is NaN, with the reason beside it.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from ._moments import Moments

#: Eigenvalues below this share of the largest count as zero.
RANGE = 1e-10


class Estimate(NamedTuple):
    """A number with a 95 % interval; `why`: what kept it from being measured."""

    value: float
    low: float
    high: float
    why: str = ""


class Covariance(NamedTuple):
    """Measures of the second moments of activation gradients.

    `omega`, `participation`, `align`: see the top of this file; `rms_correlation`: root mean square of the correlations less what independent signs of the
    same size would show; `mean_abs_correlation`, `max_abs_correlation`: as they are; `floor`: that root mean square under independent signs; `largest`:
    lambda_max of M (per position); `stable_rank`: tr/lambda_max; `entropy_rank`: exponential of the spectral entropy; `condition`: of M on its numerical
    range, of dimension `rank`.
    """

    n: int
    dim: int
    omega: Estimate
    participation: Estimate
    align: Estimate
    rms_correlation: Estimate
    mean_abs_correlation: float
    max_abs_correlation: float
    floor: float
    largest: Estimate
    stable_rank: float
    entropy_rank: float
    condition: float
    rank: int


def covariance(moments: Moments) -> Covariance:
    """Measure the second moments.

    **Raises:** `ValueError` for fewer than two samples.

    Source: arXiv 2605.08297, assumption 3 (of which the proofs use the largest eigenvalue alone).

    **Example:** `covariance(stream(split, SquaredError(), block.features, (x, y))).omega`
    """
    if moments.n < 2:
        raise ValueError(f"n={moments.n} samples have no covariance; expected at least 2.")
    whole, parts = moments.total(), moments.without_each()
    square = whole.square[0] / whole.places[0]
    values = np.maximum(np.linalg.eigvalsh(square), 0.0)
    inside = values[values > RANGE * values[-1]] if values[-1] > 0 else np.empty(0)
    share = inside / inside.sum() if inside.size else inside
    r = correlations(whole)
    off = ~np.eye(len(square), dtype=bool)
    return Covariance(
        n=moments.n,
        dim=len(square),
        omega=jackknife(_omega, whole, parts),
        participation=jackknife(_participation, whole, parts),
        align=jackknife(_align, whole, parts),
        rms_correlation=jackknife(_rms_correlation, whole, parts),
        mean_abs_correlation=float(np.mean(np.abs(r[off]))) if off.any() else math.nan,
        max_abs_correlation=float(np.max(np.abs(r[off]))) if off.any() else math.nan,
        floor=math.sqrt(float(np.mean(floors(whole)[off]))) if off.any() else math.nan,
        largest=jackknife(_largest, whole, parts),
        stable_rank=float(values.sum() / values[-1]) if inside.size else math.nan,
        entropy_rank=float(np.exp(-np.sum(share * np.log(share)))) if inside.size else math.nan,
        condition=float(inside[-1] / inside[0]) if inside.size else math.nan,
        rank=int(inside.size),
    )


def debiased(m: Moments) -> tuple[float, float, float]:
    """(off_U, fro_U, tr2_U) of sums over one group."""
    n = m.n
    total, own = m.square[0], m.square2[0]
    off = np.sum(total**2) - np.sum(np.diag(total) ** 2) - (np.sum(own) - np.trace(own))
    fro = np.sum(total**2) - np.sum(own)
    tr2 = np.trace(total) ** 2 - m.trace2[0]
    pairs = n * (n - 1)
    return float(off) / pairs, float(fro) / pairs, float(tr2) / pairs


def correlations(m: Moments) -> Float[np.ndarray, "dim dim"]:
    """Uncentred correlations of the coordinates; NaN where one is zero throughout."""
    size = np.sqrt(np.diag(m.square[0]))
    with np.errstate(invalid="ignore", divide="ignore"):
        return m.square[0] / np.outer(size, size)


def floors(m: Moments) -> Float[np.ndarray, "dim dim"]:
    """Mean of r_ij^2 if every entry of every sample had an independent sign: what unequal sizes of samples alone produce."""
    size = np.diag(m.square[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        return m.square2[0] / np.outer(size, size)


def jackknife(measure, whole: Moments, parts: list[Moments]) -> Estimate:
    """A measure of all samples with the Student interval from leaving out one group at a time."""
    value, why = measure(whole)
    if why or len(parts) < 2:
        return Estimate(value, math.nan, math.nan, why or "fewer than two groups of samples")
    left = np.array([measure(p)[0] if p.n > 1 else math.nan for p in parts])
    if not np.isfinite(left).all():
        return Estimate(value, math.nan, math.nan, "not defined without one of the groups")
    g = len(left)
    half = float(stats.t.ppf(0.975, g - 1) * math.sqrt((g - 1) / g * np.sum((left - left.mean()) ** 2)))
    return Estimate(value, value - half, value + half)


def _ratio(over: float, under: float) -> tuple[float, str]:
    if under <= 0:
        return math.nan, "the debiased squared norm of the second moments is not positive: too few samples, or no gradient at all"
    return over / under, ""


def _omega(m: Moments) -> tuple[float, str]:
    off, fro, _ = debiased(m)
    return _ratio(off, fro)


def _participation(m: Moments) -> tuple[float, str]:
    _, fro, tr2 = debiased(m)
    return _ratio(tr2, fro)


def _align(m: Moments) -> tuple[float, str]:
    (omega, why), (rank, _) = _omega(m), _participation(m)
    return (1 - omega) - (2 + rank) / (len(m.square[0]) + 2), why


def _rms_correlation(m: Moments) -> tuple[float, str]:
    off = ~np.eye(len(m.square[0]), dtype=bool)
    if not off.any():
        return math.nan, "one coordinate has no correlations"
    value = float(np.mean((correlations(m) ** 2 - floors(m))[off]))
    return (math.nan, "a coordinate of the gradient is zero throughout") if not math.isfinite(value) else (math.sqrt(max(value, 0.0)), "")


def _largest(m: Moments) -> tuple[float, str]:
    return float(np.linalg.eigvalsh(m.square[0])[-1]) / float(m.places[0]), ""


def matrix_bernstein(largest: float, bound: float, n: int, dim: int, delta: float) -> float:
    """t with |M_hat - M| <= t at level 1 - delta for |G|^2 <= bound: the root of 2 d exp(-n t^2 / (2 (bound lambda_max + bound t/3))) = delta.

    **Example:** `matrix_bernstein(1.0, 4.0, 1000, 8, 0.05)`
    """
    log = math.log(2 * dim / delta)
    return log * bound / (3 * n) + math.sqrt((log * bound / (3 * n)) ** 2 + 2 * log * bound * largest / n)


def signal_variance(
    gradient: Float[np.ndarray, "n *positions dim"], features: Float[np.ndarray, "n *positions m"], *, steps: int = 200, seed: int = 0
) -> float:
    r"""lambda_max of Cov(z), z = sum_p G a^T: the largest variance of a fixed-direction signal over unit directions.

    Power iteration on V -> mean_i <z_i, V> z_i - <C, V> C; no matrix of the size of z squared. At most sup|a|^2 lambda_max(M).

    **Example:** `signal_variance(g, a)`
    """
    g, a = (np.asarray(x, np.float64).reshape(len(x), -1, x.shape[-1]) for x in (gradient, features))
    centre = np.einsum("npi,npj->ij", g, a) / len(g)
    v = np.random.default_rng(seed).standard_normal(centre.shape)
    value = 0.0
    for _ in range(steps):
        v /= max(float(np.linalg.norm(v)), 1e-300)
        along = np.einsum("npi,ij,npj->n", g, v, a, optimize=True)
        new = np.einsum("n,npi,npj->ij", along / len(g), g, a, optimize=True) - np.sum(centre * v) * centre
        before, value, v = value, float(np.sum(new * v)), new
        if abs(value - before) <= 1e-10 * abs(value):
            break
    return value
