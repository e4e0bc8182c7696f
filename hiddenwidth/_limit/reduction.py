r"""The exact reduction: for rotation-invariant two-layer units the limit lives in the span of the data, whatever D is.

Let the columns of Q (D x r, Q^T Q = D I) span [W_E X, W_U]. In coordinates a = Q^T h / D, beta = Q^T b / D, g = Q^T u / D, g' = Q^T v / D,

    da/ds = alpha E[g' sigma(g.a)],      dbeta/ds = -alpha E[g sigma'(g.a) (g'.beta)],
    g <- g - (eta/alpha) sum_x sigma'(g.a) (g'.beta) a,      g' <- g' - (eta/alpha) sum_x sigma(g.a) beta

with g ~ rho_u N(0, I_r), g' ~ rho_v N(0, I_r): the same equations as in R^D with the inner product u.h in place of u.h/D.

Why nothing is lost: h(s) and b(s) stay in span Q. At initialisation they do; a step changes u and v only inside the span, and the part of v
outside it is independent of everything inside phi and has mean zero, so it drops out of every expectation.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._problem import Problem, StateSpace
from .._scaling import InitStd, Scaling
from .._two_layer import TwoLayer
from .._unit import AbstractUnit


class Coordinates(NamedTuple):
    """Where a limit is computed: unit and state space in these coordinates, standard deviations there, and the way back to R^D."""

    unit: AbstractUnit
    space: StateSpace
    std: InitStd
    basis: Float[np.ndarray, "dim reduced"] | None  # h = basis @ a; None: nothing to map back (ambient, or D infinite)
    reduced: bool

    def to_ambient(self, a: Float[np.ndarray, "*axes reduced"]) -> Float[np.ndarray, "*axes dim"]:
        """Hidden states in R^D; unchanged in ambient coordinates and when D is infinite."""
        return a if self.basis is None else a @ self.basis.T

    @property
    def coordinate_count(self) -> float:
        """What a sum of squares is divided by to be a mean square of h per coordinate.

        |a|^2 = |h|^2 / D, so in reduced coordinates with D infinite the sum already is the mean square.
        """
        if self.basis is not None:
            return float(len(self.basis))
        return 1.0 / self.space.inner  # D in R^D, 1 in reduced coordinates without a basis


def ambient(problem: Problem, unit: AbstractUnit, scaling: Scaling, width: float = 1.0) -> Coordinates:
    """R^D itself."""
    return Coordinates(unit, problem.space(), scaling.init_std(width, problem.dim), None, reduced=False)


def reduced(problem: Problem, unit: AbstractUnit, scaling: Scaling, width: float = 1.0) -> Coordinates:
    """Coordinates in the span of [W_E X, W_U], r = min(D, rank X + d_out) of them.

    **Raises:** `ValueError` for a unit or a law that does not close in these coordinates.
    """
    if not isinstance(unit, TwoLayer) or not unit.rotation_invariant(1):
        raise ValueError(
            f"{unit!r} has no reduced coordinates: they need a TwoLayer unit with a rotation-invariant law (law='gaussian'). "
            "Use coordinates='ambient' and a finite dim."
        )
    return span(problem, unit, scaling, width)


def span(problem: Problem, unit: TwoLayer, scaling: Scaling, width: float = 1.0) -> Coordinates:
    """The same coordinates without asking whether the unit's dynamics close in them."""
    start, unembedding, basis = _span(problem)
    space = StateSpace(start, unembedding, problem.targets, problem.loss, 1.0)
    here = TwoLayer(unit.activation, unit.law, inner=1.0)
    return Coordinates(here, space, scaling.relative_std(width, problem.dim), basis, reduced=True)


def _span(problem: Problem):
    """(a_0, W_U in coordinates, Q): the polar coordinates of [W_E, W_U], which tend to those of D infinite as D grows; there Q is None.

    Let K hold orthonormal rows that span the inputs and C = [W_E K^T sqrt(d_in), W_U / sqrt(d_out)] / sqrt D, whose Gram matrix tends to the identity. With
    the polar decomposition C = (Q / sqrt D) P the coordinates are those of D infinite times P = (C^T C)^(1/2): one quadrature serves every D, and its error
    cancels in differences between them.
    """
    d_in, d_out = problem.inputs.shape[1], problem.targets.shape[1]
    _, singular, right = np.linalg.svd(problem.inputs, full_matrices=False)
    keep = right[singular > 1e-12 * singular[0]]
    rank = len(keep)
    states = np.concatenate([problem.inputs @ keep.T / math.sqrt(d_in), np.zeros((len(problem.inputs), d_out))], axis=1)
    unembedding = np.concatenate([np.zeros((rank, d_out)), math.sqrt(d_out) * np.eye(d_out)])
    if problem.embedding is None or problem.unembedding is None:
        return states, unembedding, None
    columns = np.concatenate([problem.embedding @ keep.T * math.sqrt(d_in), problem.unembedding / math.sqrt(d_out)], axis=1) / math.sqrt(problem.dim)
    left, singular, right = np.linalg.svd(columns, full_matrices=False)
    good = singular > 1e-12 * singular[0]
    if good.sum() == rank + d_out:
        basis, factor = left @ right, right.T * singular @ right
    else:  # D too small: the columns depend on each other, there is no polar factor, and any basis of their span will do
        basis, factor = left[:, good], (singular[:, None] * right)[good]
    return states @ factor.T, factor @ unembedding, basis * math.sqrt(problem.dim)
