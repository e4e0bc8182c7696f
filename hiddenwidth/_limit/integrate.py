r"""Numerics of the Mean ODE: particles times Chebyshev nodes, forward and backward solves by diffrax, one step of every particle.

Z_k(s; z_j) is stored at the nodes s_i for all quadrature points z_j. Between the nodes it is interpolated, so the right-hand sides of both ODEs are
functions of s that diffrax may evaluate anywhere.
"""

import math
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._devices import reference_precision
from .._problem import StateSpace
from .._quadrature import AbstractQuadrature
from .._scaling import Scaling
from .._train import update
from .._unit import AbstractUnit
from . import chebyshev
from .reduction import Coordinates

MAX_ODE_STEPS = 512
FIRST_ODE_STEP = 0.1
BLOW_UP = 1e3


class DivergedError(ValueError):
    """Training blows up in the limit itself."""


class ExhaustedError(ValueError):
    """The ODE solver ran out of steps."""


def standard_points(where: Coordinates, quadrature: AbstractQuadrature, replicate: int) -> tuple[PyTree, Float[np.ndarray, " points"]]:
    """Quadrature points of mu_0 as unit parameters, and their weights."""
    laws = where.unit.laws(where.space.start.shape[1])
    points, weights = quadrature.points(laws, replicate)
    blocks = np.split(points, np.cumsum([count for _, count in laws])[:-1], axis=1)
    return where.unit.params(blocks, where.std), weights


def integrate(
    where: Coordinates, scaling: Scaling, quadrature: AbstractQuadrature, replicate: int, steps: int, nodes: int, tolerance: float, *,
    memory: float = math.inf, tick: Callable[[], object] = lambda: None, first_step: float = FIRST_ODE_STEP,
) -> tuple[Float[np.ndarray, "step node batch reduced"], Float[np.ndarray, "step node batch reduced"]]:  # fmt: skip
    """One replicate of the quadrature: (h, b) at all steps and nodes.

    **Raises:** `DivergedError` when training blows up, `ExhaustedError` when the solver needs more than `MAX_ODE_STEPS` steps at this tolerance,
    `ValueError` when the particles do not fit in `memory` bytes.
    """
    z0, weights = standard_points(where, quadrature, replicate)
    needed = particle_bytes(z0, nodes)
    if needed > memory:
        raise ValueError(
            f"the particles of one replicate at {nodes} nodes need {needed / 1e9:.2g} GB and memory= leaves {memory / 1e9:.2g} GB to each that runs at once; "
            "expected them to fit. Raise memory, take fewer points or nodes, or integrator='collocation', which can do without keeping them."
        )
    with reference_precision():
        return _integrate_64(where, scaling, z0, weights, steps, nodes, tolerance, tick, first_step)


def particle_bytes(z0: PyTree, nodes: int) -> float:
    """Old and new particles at all nodes, float64."""
    return 2.0 * 8.0 * nodes * sum(np.size(x) for x in jax.tree.leaves(z0))


def _integrate_64(where: Coordinates, scaling: Scaling, z0, weights, steps: int, nodes: int, tolerance: float, tick, first_step: float):
    space, weights, scaling = where.space.astype(jnp.float64), jnp.asarray(weights), scaling.traced(jnp.float64)
    z = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (nodes, *x.shape)), z0)
    hidden, adjoint = [], []
    for k in range(steps + 1):
        h, b = _solve(where.unit, scaling, z, weights, space, jnp.asarray(tolerance), jnp.asarray(first_step))
        hidden.append(np.asarray(h))
        adjoint.append(np.asarray(b))
        if not np.all(np.isfinite(hidden[-1])):
            _give_up(k, z0, z, tolerance)
        if k < steps:
            z = _move(where.unit, scaling, z, weights, h, b)
            tick()
    return np.stack(hidden), np.stack(adjoint)


def _give_up(step: int, z0: PyTree, z: PyTree, tolerance: float) -> None:
    """Say why the solver stopped: training blew up, or the tolerance is out of reach."""
    size = max(float(np.max(np.abs(x))) for x in jax.tree.leaves(z0))
    growth = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(z)) / size
    if not growth < BLOW_UP:
        raise DivergedError(
            f"the Mean ODE blew up by step {step} (parameters grown {growth:.0e} times): learning_rate= is too large for this problem. "
            "Lower it or take fewer steps."
        )
    raise ExhaustedError(
        f"the ODE solver needed more than {MAX_ODE_STEPS} steps at tolerance={tolerance:g} (gradient step {step}). Raise tolerance; "
        "activations with a kink, such as relu, want about 1e-5."
    )


@eqx.filter_jit
def _solve(
    unit: AbstractUnit,
    scaling: Scaling,
    z: PyTree,
    weights: Float[Array, " points"],
    space: StateSpace,
    tolerance: Float[Array, ""],
    first_step: Float[Array, ""],
) -> tuple[Float[Array, "node batch dim"], Float[Array, "node batch dim"]]:
    """Forward and backward ODE at fixed parameters: h and b at the nodes."""
    number = jax.tree.leaves(z)[0].shape[0]
    at = jnp.asarray(chebyshev.nodes(number))

    def params(s):
        row = chebyshev.row(s, number)
        return jax.tree.map(lambda x: jnp.tensordot(row, x, axes=1), z)

    def field(s, h):
        total, _ = unit.block(h, params(s), weights)
        return scaling.alpha * total

    def adjoint_field(s, h, b):
        units = params(s)
        _, cache = unit.block(h, units, weights)
        dh, _ = unit.block_vjp(h, units, weights, cache, b)
        return -scaling.alpha * dh

    return forward_backward(field, adjoint_field, space, at, tolerance, first_step)


def forward_backward(
    field: Callable,
    adjoint_field: Callable,
    space: StateSpace,
    at: Float[Array, " node"],
    tolerance: Float[Array, ""],
    first_step: Float[Array, ""],
) -> tuple[Float[Array, "node batch dim"], Float[Array, "node batch dim"]]:
    """dh/ds = field(s, h) from the embedded data, then db/ds = adjoint_field(s, h(s), b) from the loss; both at `at`, NaN when steps run out."""
    control = diffrax.PIDController(rtol=tolerance, atol=tolerance)
    solver = diffrax.Dopri8()
    up = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda s, h, _: field(s, h)), solver, 0.0, 1.0, first_step, space.start,
        saveat=diffrax.SaveAt(ts=at, dense=True), stepsize_controller=control, max_steps=MAX_ODE_STEPS, throw=False,
    )  # fmt: skip
    assert up.ys is not None
    h = up.ys
    down = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda s, b, _: adjoint_field(s, up.evaluate(s), b)), solver, 1.0, 0.0, -first_step, space.adjoint(space.readout(h[-1])),
        saveat=diffrax.SaveAt(ts=at[::-1]), stepsize_controller=control, max_steps=MAX_ODE_STEPS, throw=False,
    )  # fmt: skip
    assert down.ys is not None
    good = (up.result == diffrax.RESULTS.successful) & (down.result == diffrax.RESULTS.successful)
    return jnp.where(good, h, jnp.nan), down.ys[::-1]


@eqx.filter_jit(donate="none")
def _move(
    unit: AbstractUnit,
    scaling: Scaling,
    z: PyTree,
    weights: Float[Array, " points"],
    h: Float[Array, "node batch dim"],
    b: Float[Array, "node batch dim"],
) -> PyTree:
    """One gradient step of every particle at every node."""

    def node(_, x):
        z, h, b = x
        _, cache = unit.block(h, z, weights)
        _, dz = unit.block_vjp(h, z, weights, cache, b)
        return None, update(z, dz, unit.rates(scaling))

    return lax.scan(node, None, (z, h, b))[1]
