r"""The Neural Mean ODE of training: gradient descent on the infinitely deep, infinitely hidden-wide network.

At step k the units at depth-time s are the push-forward of mu_0 by a map Z_k(s; .), and

    d/ds h_k =  alpha E[phi(h_k, Z_k(s))],                       h_k(0) = h_0
    d/ds b_k = -alpha E[D_h phi(h_k, Z_k(s))^T b_k],             b_k(1) = W_U dLoss/df
    Z_{k+1}(s; z) = Z_k(s; z) - (eta/alpha) sum_x D_z phi(h_k(s, x), Z_k(s; z))^T b_k(s, x),     Z_0(s; z) = z

Representation: quadrature points z_j of mu_0, the same at every s, times Chebyshev nodes in s. Z_k(s; z) is analytic in s for smooth units, so
interpolation between a dozen nodes is exact to about 1e-7, and diffrax integrates both equations on the interpolated parameters.
"""

from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree
from tqdm.auto import tqdm

from .._choices import choose, positive_float, positive_int
from .._parallel import collect
from .._problem import Problem, StateSpace
from .._quadrature import AbstractQuadrature, Sobol
from .._scaling import Scaling
from .._train import update
from .._unit import AbstractUnit
from . import chebyshev
from .reduction import Coordinates, ambient, reduced
from .solution import Budget, MeanODE

MAX_ODE_STEPS = 512
FIRST_ODE_STEP = 0.1


def mean_ode(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    steps: int,
    quadrature: AbstractQuadrature | None = None,
    nodes: int = 12,
    tolerance: float = 1e-8,
    coordinates: str = "auto",
    budget: bool = True,
    progress: bool = False,
) -> MeanODE:
    r"""Integrate the Neural Mean ODE of training over `steps` steps of gradient descent.

    **Arguments:**

    - `problem`, `unit`, `scaling`: what is trained. `problem.dim` may be `math.inf`.
    - `steps`: gradient steps k.
    - `quadrature`: rule for mu_0, by default `Sobol()`; its replicates give the standard errors.
    - `nodes`: Chebyshev nodes in depth-time.
    - `tolerance`: relative and absolute tolerance of the ODE solver.
    - `coordinates`: `"reduced"` (exact reduction to the span of the data, for Gaussian two-layer units, any D and D infinite), `"ambient"` (R^D, any
      unit) or `"auto"` (reduced where it is proved).
    - `budget`: also estimate the errors of nodes and tolerance, by refining both on a small quadrature.
    - `progress`: show a progress bar.

    **Returns:** a `MeanODE`: states at every step and depth-time with standard errors, the flow of any unit, and the error budget.

    **Raises:** `ValueError` for sizes or names that are not possible, for D infinite in ambient coordinates, and for a
    step at which the limit itself stops being finite.

    Works in float64 whatever JAX's precision switch says.

    Source: arXiv 2509.10167, Theorem 1.

    **Example:**

    ```python
    problem = hw.problems.sine(8, dim=math.inf)
    limit = hw.mean_ode(problem, hw.TwoLayer("tanh"), hw.mlu(), steps=10)
    limit.output(10), limit.output_se(10)
    ```
    """
    positive_int("steps", steps)
    positive_int("nodes", nodes, at_least=3)
    positive_float("tolerance", tolerance)
    quadrature = Sobol() if quadrature is None else quadrature
    where = coordinates_of(problem, unit, scaling, coordinates)
    bar = tqdm(total=steps * quadrature.replicates, desc="mean ODE", unit="step", disable=not progress, leave=False)
    with bar:
        runs = collect(lambda i: _integrate(where, scaling, quadrature, i, steps, nodes, tolerance, bar.update), range(quadrature.replicates))
    hidden, adjoint = (np.stack(x) for x in zip(*runs, strict=True))
    solution = MeanODE(problem, unit, scaling, where, quadrature, chebyshev.nodes(nodes), tolerance, hidden, adjoint, None)
    if not budget:
        return solution
    return eqx.tree_at(lambda s: s.budget, solution, _budget(solution), is_leaf=lambda x: x is None)


def coordinates_of(problem: Problem, unit: AbstractUnit, scaling: Scaling, coordinates: str) -> Coordinates:
    """The coordinates that a user's word stands for."""
    choose("coordinates", coordinates, {"auto": None, "reduced": None, "ambient": None})
    if scaling.fan_in:
        raise ValueError("scaling 'fan_in' has a law that depends on the width M, so it has no Mean ODE; use mlu() or lazy(alpha).")
    if coordinates == "reduced" or (coordinates == "auto" and unit.rotation_invariant(1)):
        return reduced(problem, unit, scaling)
    return ambient(problem, unit, scaling)


def standard_points(where: Coordinates, quadrature: AbstractQuadrature, replicate: int) -> tuple[PyTree, Float[np.ndarray, " points"]]:
    """Quadrature points of mu_0 as unit parameters, and their weights."""
    laws = where.unit.laws(where.space.start.shape[1])
    points, weights = quadrature.points(laws, replicate)
    blocks = np.split(points, np.cumsum([count for _, count in laws])[:-1], axis=1)
    return where.unit.params(blocks, where.std), weights


def _integrate(
    where: Coordinates, scaling: Scaling, quadrature: AbstractQuadrature, replicate: int, steps: int, nodes: int, tolerance: float,
    tick: Callable[[], object] = lambda: None, first_step: float = FIRST_ODE_STEP,
) -> tuple[Float[np.ndarray, "step node batch reduced"], Float[np.ndarray, "step node batch reduced"]]:  # fmt: skip
    """One replicate: (h, b) at all steps and nodes."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        return _integrate_64(where, scaling, *standard_points(where, quadrature, replicate), steps, nodes, tolerance, tick, first_step)


def _integrate_64(where: Coordinates, scaling: Scaling, z0, weights, steps: int, nodes: int, tolerance: float, tick, first_step: float):
    space, weights = where.space.astype(jnp.float64), jnp.asarray(weights)
    z = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (nodes, *x.shape)), z0)
    hidden, adjoint = [], []
    for k in range(steps + 1):
        h, b = _solve(where.unit, scaling, z, weights, space, jnp.asarray(tolerance), jnp.asarray(first_step))
        hidden.append(np.asarray(h))
        adjoint.append(np.asarray(b))
        if not np.all(np.isfinite(hidden[-1])):
            raise ValueError(f"the Mean ODE left the finite numbers at step {k}: learning_rate is too large for this problem. Lower it or take fewer steps.")
        if k < steps:
            z = _move(where.unit, scaling, z, weights, h, b)
            tick()
    return np.stack(hidden), np.stack(adjoint)


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

    def field(s, h, _):
        total, _ = unit.block(h, params(s), weights)
        return scaling.alpha * total

    control = diffrax.PIDController(rtol=tolerance, atol=tolerance)
    solver = diffrax.Dopri8()
    up = diffrax.diffeqsolve(
        diffrax.ODETerm(field), solver, 0.0, 1.0, first_step, space.start,
        saveat=diffrax.SaveAt(ts=at, dense=True), stepsize_controller=control, max_steps=MAX_ODE_STEPS, throw=False,
    )  # fmt: skip
    assert up.ys is not None
    h = up.ys

    def adjoint_field(s, b, _):
        now, units = up.evaluate(s), params(s)
        _, cache = unit.block(now, units, weights)
        dh, _ = unit.block_vjp(now, units, weights, cache, b)
        return -scaling.alpha * dh

    down = diffrax.diffeqsolve(
        diffrax.ODETerm(adjoint_field), solver, 1.0, 0.0, -first_step, space.adjoint(space.readout(h[-1])),
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


def _budget(solution: MeanODE) -> Budget:
    """Errors of nodes and tolerance by refinement on one small replicate (the same points on both sides, so their own error cancels)."""
    small = Sobol(log2_points=8, replicates=1)
    steps, nodes, tolerance = solution.steps, len(solution.nodes), solution.tolerance

    def last(nodes: int, tolerance: float, first_step: float):
        hidden, _ = _integrate(solution.where, solution.scaling, small, 0, steps, nodes, tolerance, first_step=first_step)
        return hidden[:, -1]

    # The tighter run also starts with another step: at loose tolerances both would accept the same steps and agree to the last bit.
    cases = [
        (nodes, tolerance, FIRST_ODE_STEP),
        (2 * nodes - 1, tolerance, FIRST_ODE_STEP),
        (nodes, tolerance / 100, FIRST_ODE_STEP / 3),
    ]
    base, finer, tighter = collect(lambda case: last(*case), cases)

    def rms(other):
        square = np.sum(solution.where.to_ambient(other - base) ** 2, axis=-1) / solution.where.coordinate_count
        return float(np.sqrt(square.mean(1)).max())

    return Budget(nodes=rms(finer), tolerance=rms(tighter), quadrature=solution.quadrature_error())
