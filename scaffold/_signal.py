r"""Strength of the first-order signal s = |E z|, z = G a^T summed over positions, when its direction is not known beforehand.

    U = (|sum z|^2 - sum |z_i|^2) / (n (n - 1))        unbiased for s^2: its sign is kept
    floor^2 = tr Cov(z) / n                            what the plug-in |mean z|^2 exceeds s^2 by
    tau = sum_{i != j} <z_i, z_j>^2 / (n (n - 1))      unbiased for tr Cov(z)^2 where s = 0

The test of s = 0 flips the signs of samples: T(e) = sum_{i != j} e_i e_j <z_i, z_j> is as likely at any e as at e = 1 when z is symmetric, whatever its
scale from sample to sample. The upper bound is of score type, the largest s with s^2 <= U + z_{1-delta} sqrt(4 v s^2/n + 2 tau/n^2), v the variance of z along
its mean.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

#: Sign flips, and rows of a Gram matrix that are held at once.
FLIPS, ROWS = 999, 2048
#: Effective rank from which the normal approximation of U is good; below it only the sign-flip test is.
NORMAL_RANK = 30.0


class Signal(NamedTuple):
    """Strength of a signal measured on n samples that did not choose anything.

    `plug_in`: |mean z|; `floor`: its noise floor; `squared`: U; `value`: root of |U| with its sign; `upper`: upper confidence bound at level 1 - delta;
    `p_value`: of s = 0, by sign flips; `p_normal`: by the normal approximation, NaN where the effective rank is below 30; `effective_rank`: (tr Cov)^2 / tau;
    `trace`: tr Cov(z); `along`: standard deviation of z along its mean.
    """

    n: int
    plug_in: float
    floor: float
    squared: float
    value: float
    upper: float
    delta: float
    p_value: float
    p_normal: float
    effective_rank: float
    trace: float
    along: float


class _Sums(NamedTuple):
    """What all statistics follow from."""

    plug2: float  # |mean z|^2
    own: Float[np.ndarray, " n"]  # |z_i|^2
    along_mean: Float[np.ndarray, " n"]  # <z_i, mean z>
    squares: float  # sum_{i != j} <z_i, z_j>^2
    flipped: Float[np.ndarray, " flips"]  # T(e)


def measure_signal(
    gradient: Float[np.ndarray, "n *positions dim"],
    features: Float[np.ndarray, "k *places m"],
    *,
    delta: float = 0.05,
    flips: int = FLIPS,
    seed: int = 0,
) -> Signal:
    r"""Measure s of a family h = V a(u) from activation gradients and features.

    **Arguments:** `gradient`, `features`: G and a of samples that neither trained the network nor chose the features; `delta`: of the upper bound; `flips`,
    `seed`: of the test.

    **Returns:** a `Signal`.

    **Raises:** `ValueError` for fewer than two samples, different numbers of samples or positions, numbers that are not finite.

    Source: arXiv 2605.08297, condition 1; U-statistic as in Chen and Qin (2010).

    **Example:** `measure_signal(g, a).p_value`
    """
    g, a = _checked(gradient, features)
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r} is not possible; expected a probability between 0 and 1.")
    n = len(g)
    signs = np.random.default_rng(seed).choice(np.array([-1.0, 1.0]), size=(flips, n))
    sums = (_from_vectors if g.shape[-1] * a.shape[-1] < n else _from_gram)(g, a, signs)
    squared = (n**2 * sums.plug2 - sums.own.sum()) / (n * (n - 1))
    trace = max((sums.own.sum() - n * sums.plug2) / (n - 1), 0.0)
    tau = sums.squares / (n * (n - 1))
    plug = math.sqrt(max(sums.plug2, 0.0))
    along = float(np.var(sums.along_mean, ddof=1)) / plug**2 if plug > 0 else 0.0
    rank = trace**2 / tau if tau > 0 else math.nan
    observed = n * (n - 1) * squared
    # Statistics that are equal up to rounding count as equal.
    reached = int((sums.flipped >= observed - 1e-9 * sums.own.sum()).sum())
    normal = float(stats.norm.sf(squared / math.sqrt(2 * tau / (n * (n - 1))))) if tau > 0 and rank >= NORMAL_RANK else math.nan
    return Signal(
        n, plug, math.sqrt(trace / n), squared, math.copysign(math.sqrt(abs(squared)), squared), score_upper(squared, along, tau, n, delta), delta,
        (1 + reached) / (flips + 1), normal, rank, trace, math.sqrt(along),
    )  # fmt: skip


def mcdiarmid_upper(plug_in: float, bound: float, n: int, delta: float) -> float:
    """Upper bound on s for every n, from |z| <= bound: plug-in + bound (1/sqrt(n) + sqrt(2 ln(1/delta)/n)).

    **Example:** `mcdiarmid_upper(0.1, 1.0, 1000, 0.05)`
    """
    return plug_in + bound * (1 + math.sqrt(2 * math.log(1 / delta))) / math.sqrt(n)


def score_upper(squared: float, along: float, tau: float, n: float, delta: float) -> float:
    """Larger root of (q - U)^2 = z^2 (4 v q/n + 2 tau/n^2) in q = s^2; 0 where no s fits."""
    z2 = float(stats.norm.ppf(1 - delta)) ** 2
    half = squared + 2 * z2 * along / n
    inside = half**2 - squared**2 + 2 * z2 * max(tau, 0.0) / n**2
    return math.sqrt(max(half + math.sqrt(inside), 0.0)) if inside >= 0 else 0.0


def _checked(gradient, features) -> tuple[np.ndarray, np.ndarray]:
    """As (n, positions, dim) and (n, positions, m) in float64."""
    g, a = (np.asarray(x, np.float64) for x in (gradient, features))
    if g.ndim < 2 or g.shape[:-1] != a.shape[:-1]:
        raise ValueError(
            f"gradient has shape {g.shape} and features {a.shape}; expected the same samples and positions, (n, *positions, dim) and (n, *positions, m)."
        )
    if len(g) < 2:
        raise ValueError(f"n={len(g)} samples are too few for a standard error; expected at least 2.")
    for name, x in (("gradient", g), ("features", a)):
        if not np.isfinite(x).all():
            raise ValueError(f"{name} holds numbers that are not finite; expected none.")
    return g.reshape(len(g), -1, g.shape[-1]), a.reshape(len(a), -1, a.shape[-1])


def signal_vectors(g: Float[np.ndarray, "n positions dim"], a: Float[np.ndarray, "n positions m"]) -> Float[np.ndarray, "n q"]:
    """z of every sample, as a vector."""
    return np.einsum("npi,npj->nij", g, a).reshape(len(g), -1)


def _from_vectors(g, a, signs) -> _Sums:
    """With z in memory: few entries, many samples."""
    z = signal_vectors(g, a)
    mean, own = z.mean(0), np.sum(z**2, axis=1)
    squares = float(np.sum((z.T @ z) ** 2) - np.sum(own**2))
    return _Sums(float(mean @ mean), own, z @ mean, squares, np.sum((signs @ z) ** 2, axis=1) - own.sum())


def _from_gram(g, a, signs) -> _Sums:
    """With inner products, a block of rows at a time: many entries."""
    n, positions = g.shape[:2]
    own, rows = np.empty(n), np.empty(n)
    squares, flipped = 0.0, np.zeros(len(signs))
    flat_g, flat_a = g.reshape(-1, g.shape[-1]), a.reshape(-1, a.shape[-1])
    step = max(1, ROWS // positions**2)
    for begin in range(0, n, step):
        block = slice(begin, min(begin + step, n))
        gram = (g[block].reshape(-1, g.shape[-1]) @ flat_g.T) * (a[block].reshape(-1, a.shape[-1]) @ flat_a.T)
        gram = gram.reshape(-1, positions, n, positions).sum((1, 3))
        here = np.arange(block.start, block.stop)
        own[block] = gram[here - begin, here]
        rows[block] = gram.sum(1)
        gram[here - begin, here] = 0.0
        squares += float(np.sum(gram**2))
        flipped += np.sum((signs[:, block] @ gram) * signs, axis=1)
    return _Sums(float(rows.sum()) / n**2, own, rows / n, squares, flipped)
