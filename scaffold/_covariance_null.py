r"""Is the covariance of activation gradients nearly diagonal? Three questions, each with its own answer and its null.

    exact       could the off-diagonal second moments be those of independent signs?    p-value by sign flips; a real network with many samples is rejected
    size        is the share omega off the diagonal small, and are correlations?        equivalence: the whole interval on one side
    alignment   are the axes special, or is the spectrum just flat?                     align against 0, its value in a random basis

The sign-flip null multiplies every entry G_ki by an independent sign: it keeps all sizes, in particular those of whole samples, which differ a hundredfold
between easy and hard ones. Nulls of independent Gaussian samples (Schott, Jiang) reject an exactly diagonal covariance of such samples; they are here for
comparison.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from ._covariance import Covariance, covariance
from ._moments import GROUPS, moments_of

#: Shares and correlations below which a covariance counts as nearly diagonal.
OMEGA, CORRELATION = 0.25, 0.1
#: Sign flips that are computed at once.
TOGETHER = 50


class Diagonality(NamedTuple):
    """The three answers. `size`: of the off-diagonal part; `alignment`: of the axes; p-values of the exact question, for squares and for the largest."""

    exact_p: float
    largest_p: float
    size: Literal["near_diagonal", "not_near_diagonal", "undetermined"]
    alignment: Literal["axis_aligned", "anti_aligned", "as_a_random_basis", "undetermined"]
    omega0: float
    correlation0: float
    measured: Covariance


def diagonality(
    gradient: Float[np.ndarray, "n *positions dim"], *, omega0: float = OMEGA, correlation0: float = CORRELATION, flips: int = 999, seed: int = 0
) -> Diagonality:
    r"""Answer the three questions from activation gradients.

    **Arguments:** `gradient`: G of samples that did not train the network; `omega0`, `correlation0`: what counts as small, declared beforehand; `flips`,
    `seed`: of the null.

    **Returns:** `Diagonality`; there is no verdict without its null.

    **Raises:** `ValueError` for fewer than two samples or one coordinate.

    Source: arXiv 2605.08297, assumption 3 (near-diagonality).

    **Example:** `diagonality(g).size`
    """
    g = np.asarray(gradient, np.float64).reshape(len(gradient), -1, gradient.shape[-1])
    if g.shape[-1] < 2:
        raise ValueError("one coordinate is diagonal by itself; expected at least 2.")
    found = covariance(moments_of(g, np.zeros((*g.shape[:2], 1)), groups=min(GROUPS, len(g))))
    exact, largest = sign_flip_p(g, flips=flips, seed=seed)
    omega, align = found.omega, found.align
    if not math.isfinite(omega.high):
        size = "undetermined"
    elif omega.high < omega0 and found.rms_correlation.value < correlation0:
        size = "near_diagonal"
    else:
        size = "not_near_diagonal" if omega.low > omega0 else "undetermined"
    if not math.isfinite(align.low):
        alignment = "undetermined"
    else:
        alignment = "axis_aligned" if align.low > 0 else "anti_aligned" if align.high < 0 else "as_a_random_basis"
    return Diagonality(exact, largest, size, alignment, omega0, correlation0, found)


def sign_flip_p(g: Float[np.ndarray, "n positions dim"], *, flips: int = 999, seed: int = 0) -> tuple[float, float]:
    """p-values of the sum of squared off-diagonal second moments, and of the largest absolute correlation, under independent signs."""
    n, _, d = g.shape
    rng = np.random.default_rng(seed)
    off = ~np.eye(d, dtype=bool)
    total = np.einsum("npi,npj->ij", g, g)
    size = np.sqrt(np.maximum(np.diag(total), 1e-300))

    def measures(square):
        return np.sum(square[..., off] ** 2, axis=-1), np.max(np.abs(square / np.outer(size, size))[..., off], axis=-1)

    seen = measures(total)
    reached = np.zeros(2)
    for begin in range(0, flips, TOGETHER):
        signs = rng.choice(np.array([-1.0, 1.0]), size=(min(TOGETHER, flips - begin), n, 1, d))
        flipped = (signs * g).reshape(len(signs), -1, d)
        null = measures(np.swapaxes(flipped, 1, 2) @ flipped)
        reached += [np.sum(x >= s * (1 - 1e-12)) for x, s in zip(null, seen, strict=True)]
    exact, largest = (1 + reached) / (flips + 1)
    return float(exact), float(largest)


def schott(g: Float[np.ndarray, "n dim"]) -> float:
    """z of Schott's test that centred Gaussian samples have independent coordinates. Wrong for samples of different sizes."""
    n, d = g.shape
    r = np.corrcoef(g, rowvar=False)[np.triu_indices(d, 1)]
    mean = d * (d - 1) / (2 * (n - 1))
    sd = math.sqrt(d * (d - 1) * (n - 2) / ((n - 1) ** 2 * (n + 1)))
    return float((np.sum(r**2) - mean) / sd)


def jiang_p(g: Float[np.ndarray, "n dim"]) -> float:
    """p-value of the largest absolute correlation of Gaussian samples with independent coordinates (extreme-value limit; conservative)."""
    n, d = g.shape
    r = np.corrcoef(g, rowvar=False)[np.triu_indices(d, 1)]
    y = n * float(np.max(r**2)) - 4 * math.log(d) + math.log(math.log(d))
    return float(1 - math.exp(-math.exp(-y / 2) / math.sqrt(8 * math.pi)))


def correlation_null(n: int) -> tuple[float, float]:
    """(E r^2, E|r|) of two independent Gaussian coordinates after centring: 1/(n - 1) and Gamma((n-1)/2) / (sqrt(pi) Gamma(n/2)).

    **Example:** `correlation_null(10)[1]` is 0.2734375.
    """
    return 1 / (n - 1), float(math.exp(gammaln((n - 1) / 2) - gammaln(n / 2)) / math.sqrt(math.pi))


def flat_spectrum_condition(n: int, dim: int) -> float:
    """Condition number that n samples of an identity covariance show: ((1 + sqrt(d/n)) / (1 - sqrt(d/n)))^2; infinite for n <= d.

    **Example:** `flat_spectrum_condition(400, 100)` is 9.
    """
    ratio = math.sqrt(dim / n)
    return ((1 + ratio) / (1 - ratio)) ** 2 if n > dim else math.inf
