r"""The Mean ODE by spectral collocation: the same particles and nodes as `integrate`, several times faster for smooth units.

At the Chebyshev nodes s_i both equations are algebraic, Q being the matrix that integrates the interpolant from 0 to each node,

    H_i = h_0 + sum_j Q_ij F_j(H_j),      F_j(h) = alpha E[phi(h, Z_k(s_j))],
    B_i = b_1 + sum_j Q*_ij A_j^T B_j,    A_j = alpha E[D_h phi(H_j, Z_k(s_j))],      Q* from each node to 1,

so that phi is needed at the nodes only and nothing is interpolated between them. The first is solved by Newton's method with the Jacobians A extrapolated from
earlier gradient steps, starting from extrapolated states: two or three evaluations a step. The second is linear and needs one. Where the span of the data is
so large that A costs more than it saves, both are iterated as they stand (Picard).

diffrax integrates phi of interpolated parameters and this the interpolant of phi: both converge spectrally, to the same limit, by errors of
the same size and different value.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree
from scipy import special

from .._devices import reference_precision
from .._problem import StateSpace
from .._quadrature import AbstractQuadrature
from .._scaling import Scaling
from .._train import update
from .._unit import AbstractUnit
from . import chebyshev
from .integrate import integrate, particle_bytes, standard_points
from .reduction import Coordinates

#: Particles whose activations at all nodes are evaluated together: what fits in a core's cache.
CHUNK = 1024
#: Newton's method while a data point has at most this many coordinates: beyond, its Jacobian costs more than the evaluations it saves.
NEWTON_DIM = 8
MAX_SWEEPS = 60
#: Linear equations are solved to this share of the tolerance.
INNER = 1e-2
#: Extrapolation over gradient steps: states from this many earlier ones, Jacobians from one fewer.
HISTORY = 4


class Walk(NamedTuple):
    """Where training stands: particles (or the initial ones, when the flow is computed anew each time), and states and Jacobians of the last steps."""

    z: PyTree[Float[Array, "chunk node point ..."]]
    hidden: Float[Array, "history node batch dim"]  # newest first
    jacobian: Float[Array, "history node batch dim dim"] | None
    taken: Int[Array, ""]  # gradient steps so far


class Fixed(NamedTuple):
    """What does not change from step to step."""

    unit: AbstractUnit
    scaling: Scaling
    weights: Float[Array, "chunk point"]
    space: StateSpace
    tolerance: Float[Array, ""]


class Past(NamedTuple):
    """States and adjoints of all earlier steps, from which the flow of the units is computed anew; later rows are not read."""

    hidden: Float[Array, "step node batch dim"]
    adjoint: Float[Array, "step node batch dim"]


def collocate(
    where: Coordinates, scaling: Scaling, quadrature: AbstractQuadrature, replicate: int, steps: int, nodes: int, tolerance: float, *,
    memory: float = math.inf, tick: Callable[[], object] = lambda: None, first_step: float = 0.0,
) -> tuple[Float[np.ndarray, "step node batch reduced"], Float[np.ndarray, "step node batch reduced"]]:  # fmt: skip
    """One replicate of the quadrature: (h, b) at all steps and nodes, as `integrate`.

    Particles at all nodes are kept when they fit in `memory` bytes; otherwise their flow is computed anew from the states in every evaluation. Where the
    iteration does not converge (training about to blow up), diffrax takes over from the start. `first_step` is `integrate`'s and means nothing here.
    """
    with reference_precision():
        z0, weights = standard_points(where, quadrature, replicate)
        fixed = Fixed(where.unit, scaling.traced(jnp.float64), jnp.asarray(weights), where.space.astype(jnp.float64), jnp.asarray(tolerance))
        keep = particle_bytes(z0, nodes) <= memory
        fixed, walk = begin(fixed, z0, nodes, keep)
        shape = (steps + 1, nodes, *where.space.start.shape)
        hidden, adjoint = np.zeros(shape), np.zeros(shape)
        for k in range(steps + 1):
            past = None if keep else Past(jnp.asarray(hidden), jnp.asarray(adjoint))
            walk, h, b = _advance(fixed, walk, past)
            hidden[k], adjoint[k] = np.asarray(h), np.asarray(b)
            if not np.all(np.isfinite(hidden[k])):  # the iteration does not converge: adaptive steps may, or can say why nothing does
                return integrate(where, scaling, quadrature, replicate, steps, nodes, tolerance, memory=memory, tick=tick)
            tick()
    return hidden, adjoint


def begin(fixed: Fixed, z0: PyTree, nodes: int, keep: bool = True) -> tuple[Fixed, Walk]:
    """Chunks of particles, at every node or (not `keep`) once, and an empty history."""
    number, (batch, dim) = fixed.weights.shape[0], fixed.space.start.shape
    chunk = CHUNK if number % CHUNK == 0 else number

    def spread(x):
        return jnp.broadcast_to(jnp.asarray(x).reshape(-1, 1, chunk, *x.shape[1:]), (number // chunk, nodes if keep else 1, chunk, *x.shape[1:]))

    hidden = jnp.zeros((HISTORY, nodes, batch, dim))
    jacobian = jnp.zeros((HISTORY - 1, nodes, batch, dim, dim)) if dim <= NEWTON_DIM else None
    return fixed._replace(weights=fixed.weights.reshape(-1, chunk)), Walk(jax.tree.map(spread, z0), hidden, jacobian, jnp.asarray(0))


def advance(fixed: Fixed, walk: Walk, past: Past | None = None) -> tuple[Walk, Float[Array, "node batch dim"], Float[Array, "node batch dim"]]:
    """Solve both equations at the present parameters and take the gradient step: (walk, h, b); NaN where the iteration does not converge."""
    unit, scaling, weights, space, tolerance = fixed
    nodes = walk.hidden.shape[1]
    up = chebyshev.integration(nodes)
    down = up[-1:] - up
    start = jnp.broadcast_to(space.start, walk.hidden.shape[1:])

    def over_particles(function, shape):
        """alpha times the sum over chunks of function(z at a node, weights, node's own arguments), nodes batched."""

        def chunk(total, x):
            z, w = x
            return total + function(_present(fixed, z, past, walk.taken), w), None

        return scaling.alpha * lax.scan(chunk, jnp.zeros(shape), (walk.z, weights))[0]

    def field(h):
        return over_particles(lambda z, w: jax.vmap(lambda h, z: unit.block(h, z, w)[0])(h, z), h.shape)

    def pulled(h, b):
        """alpha E[D_h phi^T b] at every node."""

        def node(h, b, z, w):
            return unit.block_vjp(h, z, w, unit.block(h, z, w)[1], b)[0]

        return over_particles(lambda z, w: jax.vmap(lambda h, b, z: node(h, b, z, w))(h, b, z), b.shape)

    def jacobian(h):
        """alpha E[D_h phi], one row of it a pull-back."""

        def node(h, z, w):
            _, cache = unit.block(h, z, w)
            rows = jnp.broadcast_to(jnp.eye(h.shape[-1])[:, None], (h.shape[-1], *h.shape))
            return jnp.moveaxis(jax.vmap(lambda e: unit.block_vjp(h, z, w, cache, e)[0])(rows), 0, 1)

        return over_particles(lambda z, w: jax.vmap(lambda h, z: node(h, z, w))(h, z), (*h.shape, h.shape[-1]))

    guess = jnp.where(walk.taken > 0, _extrapolate(walk.hidden, walk.taken), start)
    known = walk.jacobian
    correct = (lambda residual: residual) if known is None else _linear_solver(up, _extrapolate(known, walk.taken), tolerance)
    h, converged = _iterate(lambda h: correct(start + _integral(up, field(h)) - h), guess, tolerance)
    end = jnp.broadcast_to(space.adjoint(space.readout(h[-1])), h.shape)
    if known is None:
        b, good = _iterate(lambda b: end + _integral(down, pulled(h, b)) - b, end, tolerance)
        converged &= good
    else:
        slopes = jacobian(h)
        b = _linear_solver(down, jnp.swapaxes(slopes, -1, -2), tolerance)(end)
        known = _push(known, slopes)
    h = jnp.where(converged, h, jnp.nan)
    z = walk.z if past is not None else lax.scan(lambda _, z: (None, _moved(unit, scaling, z, h, b)), None, walk.z)[1]
    return Walk(z, _push(walk.hidden, h), known, walk.taken + 1), h, b


_advance = eqx.filter_jit(advance)


def _present(fixed: Fixed, z: PyTree, past: Past | None, count: Int[Array, ""]) -> PyTree:
    """The particles of one chunk now: as kept, or carried through all steps so far."""
    if past is None:
        return z
    nodes = past.hidden.shape[1]
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (nodes, *x.shape[1:])), z)
    return lax.fori_loop(0, count, lambda i, z: _moved(fixed.unit, fixed.scaling, z, past.hidden[i], past.adjoint[i]), start)


def _moved(unit: AbstractUnit, scaling: Scaling, z: PyTree, h: Float[Array, "node batch dim"], b: Float[Array, "node batch dim"]) -> PyTree:
    """One gradient step of a chunk of particles at every node."""

    def node(z, h, b):
        whole = jnp.ones(jax.tree.leaves(z)[0].shape[0], h.dtype)  # the step of a particle does not depend on its weight
        _, dz = unit.block_vjp(h, z, whole, unit.block(h, z, whole)[1], b)
        return update(z, dz, unit.rates(scaling))

    return jax.vmap(node)(z, h, b)


def _integral(matrix: Float[np.ndarray, "node node"], values: Float[Array, "node batch dim"]) -> Float[Array, "node batch dim"]:
    return jnp.einsum("ij,jnc->inc", matrix, values)


def _linear_solver(matrix: Float[np.ndarray, "node node"], slopes: Float[Array, "node batch dim dim"], tolerance: Float[Array, ""]) -> Callable:
    """x -> y with  y_i - sum_j matrix_ij slopes_j y_j = x_i, by iteration: no particle is touched, and integrals converge factorially.

    No factorisation: batches of LAPACK calls from several threads at once can wait for each other for ever in XLA's pool on a machine of few cores.
    """

    def solve(x):
        return _iterate(lambda y: x + _integral(matrix, jnp.einsum("jnab,jnb->jna", slopes, y)) - y, x, INNER * tolerance)[0]

    return solve


def _iterate(change: Callable, start: Float[Array, "node batch dim"], tolerance: Float[Array, ""]):
    """x <- x + change(x) until what is left of the error, the last change times its rate of contraction, is below the tolerance."""

    def more(state):
        x, size, rate, sweeps = state
        return (size * jnp.minimum(rate, 1.0) > tolerance * (1 + jnp.max(jnp.abs(x)))) & (sweeps < MAX_SWEEPS)

    def sweep(state):
        x, size, _, sweeps = state
        move = change(x)
        now = jnp.max(jnp.abs(move))
        return x + move, now, jnp.where(sweeps == 0, 1.0, now / size), sweeps + 1

    x, size, rate, _ = lax.while_loop(more, sweep, (start, jnp.asarray(1e300), jnp.asarray(1.0), jnp.asarray(0)))
    return x, size * jnp.minimum(rate, 1.0) <= tolerance * (1 + jnp.max(jnp.abs(x)))


def _extrapolate(past: Float[Array, "history ..."], count: Int[Array, ""]) -> Float[Array, "..."]:
    """The polynomial through the last values, as many as there are, one step on (0 when there are none)."""
    length = len(past)
    table = np.zeros((length + 1, length))
    for number in range(1, length + 1):
        table[number, :number] = (-1.0) ** np.arange(number) * special.binom(number, np.arange(1, number + 1))
    return jnp.tensordot(jnp.asarray(table)[jnp.minimum(count, length)], past, axes=1)


def _push(history: Float[Array, "history ..."], newest: Float[Array, "..."]) -> Float[Array, "history ..."]:
    return jnp.concatenate([newest[None], history[:-1]])
