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
    start, unembedding, basis = _span(problem)
    space = StateSpace(start, unembedding, problem.targets, problem.loss, 1.0)
    here = TwoLayer(unit.activation, unit.law, inner=1.0)
    return Coordinates(here, space, scaling.relative_std(width, problem.dim), basis, reduced=True)


def _span(problem: Problem):
    """(a_0, W_U in coordinates, Q); for D infinite from the limiting Gram matrix, with Q None."""
    if problem.embedding is None or problem.unembedding is None:
        d_in, d_out = problem.inputs.shape[1], problem.targets.shape[1]
        _, singular, right = np.linalg.svd(problem.inputs, full_matrices=False)
        keep = right[singular > 1e-12 * singular[0]]
        states = problem.inputs @ keep.T / math.sqrt(d_in)
        return (
            np.concatenate([states, np.zeros((len(states), d_out))], axis=1),
            np.concatenate([np.zeros((len(keep), d_out)), math.sqrt(d_out) * np.eye(d_out)]),
            None,
        )
    dim = problem.dim
    states = problem.inputs @ problem.embedding.T
    columns = np.concatenate([states.T / np.sqrt(len(states)), problem.unembedding], axis=1)
    left, singular, _ = np.linalg.svd(columns, full_matrices=False)
    basis = left[:, singular > 1e-12 * singular[0]] * math.sqrt(dim)
    return states @ basis / dim, basis.T @ problem.unembedding / dim, basis
