r"""Quadratures of the initial law mu_0: points and weights such that  E phi(h, z) ~ sum_j w_j phi(h, z_j).

Replicates are independent randomisations of the same rule; their spread is the standard error of everything computed from them.
Replicate i does not depend on how many there are.
"""

import abc
import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.stats import qmc

from ._choices import positive_int
from ._law import AbstractLaw, Gaussian

Laws = Sequence[tuple[AbstractLaw, int]]


class AbstractQuadrature(eqx.Module):
    """A rule for expectations under independent standard scalars."""

    replicates: eqx.AbstractVar[int]

    @abc.abstractmethod
    def points(self, laws: Laws, replicate: int) -> tuple[Float[np.ndarray, "points scalars"], Float[np.ndarray, " points"]]:
        """Points and weights (summing to 1) of one replicate."""


class Sobol(AbstractQuadrature):
    r"""Scrambled Sobol points mapped through the quantile function, the default rule.

    **Arguments:** `log2_points`: 2^log2_points points; `replicates`: independent scrambles; `whiten`: shift and shear the points so that
    means and covariances are exact (linear units are then integrated without error); `symmetric`: reflect the points in every block of scalars with a symmetric
    law, so that expectations which vanish by symmetry (E phi = 0) vanish exactly, at the price of fewer independent points; `seed`: of the scrambles.

    One scramble of 2^13 points leaves a standard deviation of about 1e-4 on outputs where points are 4-dimensional (scalar regression in reduced
    coordinates) and of about 2e-3 in 20 dimensions, after ten or so steps; the error falls nearly as 1/points in the first case.
    """

    log2_points: int = 13
    replicates: int = 8
    whiten: bool = True
    symmetric: bool = False
    seed: int = 0

    def __check_init__(self):
        positive_int("log2_points", self.log2_points)
        positive_int("replicates", self.replicates)

    def points(self, laws, replicate):
        scalars = sum(count for _, count in laws)
        sampler = qmc.Sobol(scalars, scramble=True, bits=30, rng=np.random.default_rng([self.seed, replicate]))
        reflections = _reflections(laws) if self.symmetric else [np.ones(scalars)]
        halvings = len(reflections).bit_length() - 1
        if self.log2_points <= halvings:
            raise ValueError(f"log2_points={self.log2_points} is too few for symmetric=True; expected at least {halvings + 1}.")
        uniform = sampler.random_base2(self.log2_points - halvings) + 2.0**-31  # centre of the cell: never 0, never 1
        points = _map(uniform, laws)
        return _standardise(np.concatenate([signs * points for signs in reflections]), self.whiten)


class MonteCarlo(AbstractQuadrature):
    """Independent random points; the yardstick for other rules."""

    number: int = 8192
    replicates: int = 8
    whiten: bool = False
    seed: int = 0

    def __check_init__(self):
        positive_int("number", self.number)
        positive_int("replicates", self.replicates)

    def points(self, laws, replicate):
        rng = np.random.default_rng([self.seed, replicate])
        uniform = rng.uniform(2.0**-54, 1.0, size=(self.number, sum(count for _, count in laws)))
        return _standardise(_map(uniform, laws), self.whiten)


class GaussHermite(AbstractQuadrature):
    """Tensor Gauss-Hermite rule with `order` points in each dimension: exact for polynomials, good for erf, poor for tanh (its poles).

    Deterministic, so there is one replicate and no standard error: judge it by raising `order`.
    """

    order: int = 16
    replicates: int = eqx.field(init=False, default=1)

    def __check_init__(self):
        positive_int("order", self.order)

    def points(self, laws, replicate):
        del replicate
        scalars = sum(count for _, count in laws)
        if not all(isinstance(law, Gaussian) for law, _ in laws):
            raise ValueError("GaussHermite integrates Gaussian laws only; use Sobol for a skewed law.")
        if self.order**scalars > 2**22:
            raise ValueError(
                f"GaussHermite(order={self.order}) in {scalars} dimensions needs {self.order}**{scalars} points; "
                "lower the order or use Sobol, whose cost does not depend on the dimension."
            )
        node, weight = np.polynomial.hermite_e.hermegauss(self.order)
        weight = weight / math.sqrt(2 * math.pi)
        grids = np.meshgrid(*[node] * scalars, indexing="ij")
        weights = np.meshgrid(*[weight] * scalars, indexing="ij")
        return np.stack([g.ravel() for g in grids], axis=-1), np.prod([w.ravel() for w in weights], axis=0)


def _reflections(laws: Laws) -> list[Float[np.ndarray, " scalars"]]:
    """All ways to flip the signs of whole blocks whose law is symmetric."""
    choices = [(1.0, -1.0) if law.symmetric else (1.0,) for law, _ in laws]
    return [np.repeat(signs, [count for _, count in laws]) for signs in itertools.product(*choices)]


def _map(uniform: Float[np.ndarray, "points scalars"], laws: Laws) -> Float[np.ndarray, "points scalars"]:
    columns, start = [], 0
    for law, count in laws:
        columns.append(law.quantile(uniform[:, start : start + count]))
        start += count
    return np.concatenate(columns, axis=1)


def _standardise(points: Float[np.ndarray, "points scalars"], whiten: bool):
    number, scalars = points.shape
    if whiten and number > 2 * scalars:
        points = points - points.mean(0)
        points = np.linalg.solve(np.linalg.cholesky(points.T @ points / number), points.T).T
    return points, np.full(number, 1.0 / number)
