r"""How long gradient descent on a limit stays stable, and why it stops.

The theorems fix the number of steps k; the limit itself is a dynamical system in k that may lose its stability. What is measured, J = I - eta Hessian being
the Jacobian of a step:

- **sharpness**: the largest eigenvalue S_k of the Hessian of the loss in the geometry of the step, z <- z - eta grad. Where eta S_k > 2 a step overshoots
  along that direction and multiplies a deviation by eta S_k - 1 > 1.
- **gain**: the product of eta S_i - 1 over the steps since then, G_{k+1} = max(1, G_k |eta S_k - 1|): how much the unstable deviation has
  grown.
- **amplification**: |J_{k-1} ... J_0 d| / |d|, what has become of a perturbation of the initial parameters, in root mean square over random directions d.
- **horizon**: the last step at which the gain is at most ten and the loss of the limit has not risen. Beyond it the constants of the error laws explode, then
  two trajectories that agreed to 1e-3 have nothing in common, and an exponent fitted there is an exponent of nothing.

The loss of the limit alone is a poor witness: the unstable direction may be orthogonal to everything by a symmetry of the data, so that only rounding or
quadrature errors excite it, and the loss rises late; networks, whose fluctuations excite it at once, leave earlier.

All of it is taken on the infinitely wide network of finite depth (Euler steps of the limit), by Hessian-vector products; the Hessian itself never exists.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, Key, PyTree

from .._choices import positive_int
from .._devices import reference_precision
from .._problem import Problem, StateSpace
from .._quadrature import AbstractQuadrature, Sobol
from .._scaling import Scaling
from .._train import backward, forward
from .._unit import AbstractUnit
from .integrate import DivergedError, standard_points
from .mean_ode import coordinates_of
from .reduction import Coordinates
from .relative import Linearised
from .solution import Limit

#: Particles of the stability analysis.
SMALL = Sobol(8, 1, symmetric=True)

#: A rise of the loss counts when it exceeds this share of the initial loss and this many standard errors over replicates.
RISE_SHARE, RISE_SE = 1e-6, 3.0
#: The horizon ends where an unstable deviation has grown by this factor.
GAIN = 10.0
#: Power iterations at the first step and at every later one, to which the eigenvector is carried.
FIRST_ITERATIONS, POWER_ITERATIONS = 300, 40


class Horizon(NamedTuple):
    """`step` is the last at which error laws are claimed, of a limit known to step `last`; `cause` says why it ends there (empty: it does not).

    `overshoots_from`: the first step with eta S > 2 (-1: none).
    """

    step: int
    last: int
    cause: str
    overshoots_from: int

    def __str__(self) -> str:
        if not self.cause:
            return f"no loss of stability up to step {self.last}"
        sharp = f"; sharpness above 2/eta from step {self.overshoots_from}" if self.overshoots_from >= 0 else ""
        return f"stability horizon at step {self.step}: {self.cause}{sharp}"


def horizon(limit: Limit, *, depth: int = 16) -> Horizon:
    r"""The last step of a limit up to which gradient descent is stable, and error laws may be claimed.

    **Arguments:** `limit`: from `mean_ode` or `tangent_ode`; `depth`: as for `stability`.

    **Returns:** a `Horizon`: the loss has not risen and no unstable deviation has grown more than tenfold up to its `step`.

    Source: the number of steps is fixed in arXiv 2509.10167, Theorems 1 and 2; their constants depend on it.

    **Example:** `hw.horizon(limit).step`
    """
    losses = limit.loss_replicates()
    rises = np.diff(losses, axis=1)
    error = rises.std(0, ddof=1) / math.sqrt(len(rises)) if len(rises) > 1 else np.zeros(limit.steps)
    up = np.flatnonzero(rises.mean(0) > np.maximum(RISE_SE * error, RISE_SHARE * losses[:, 0].mean()))
    where = limit.where
    if limit.kind == "tangent_ode" and not isinstance(where.unit, Linearised):
        where = where._replace(unit=Linearised(where.unit))
    if limit.kind == "linearised_ode":
        raise ValueError("the linearised network has no horizon: it is linear. Pass a solution of mean_ode or tangent_ode.")
    seen = _measure(where, limit.scaling, limit.steps, depth, SMALL, 2, jax.random.key(0))
    grown = np.flatnonzero(seen.gain.values > GAIN)
    sharp = np.flatnonzero(seen.sharpness.values > 2)
    ends = [(int(up[0]), "the loss of the limit rises after it")] if len(up) else []
    ends += [(int(grown[0]) - 1, f"beyond it an unstable deviation has grown more than {GAIN:g} times")] if len(grown) else []
    step, cause = min(ends, default=(limit.steps, ""))
    return Horizon(step, limit.steps, cause, int(sharp[0]) if len(sharp) else -1)


def stability(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    steps: int,
    depth: int = 16,
    quadrature: AbstractQuadrature | None = None,
    directions: int = 8,
    coordinates: str = "auto",
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Loss, sharpness, gain and amplification of perturbations at every gradient step.

    **Arguments:** `problem`, `unit`, `scaling`, `coordinates`: as for `mean_ode`; `depth`: Euler steps in depth-time; `quadrature`: particles (default: 2^8
    symmetric Sobol points, enough for eigenvalues to a per cent); `directions`: random directions d; `key`: draws them.

    **Returns:** a dataset over `step`: `loss`, `sharpness` (eta S_k: above 2 the step overshoots), `gain`, `amplification` (rms over directions) and its
    standard error.

    **Raises:** `ValueError` when training blows up.

    Source: definitions at the head of the module; 2/eta is the threshold of gradient descent on a quadratic function.

    **Example:** `hw.stability(problem, unit, hw.mlu(), steps=4, depth=4, quadrature=hw.Sobol(5, 1), key=jax.random.key(0)).sharpness`
    """
    positive_int("steps", steps)
    positive_int("depth", depth)
    positive_int("directions", directions, at_least=2)
    where = coordinates_of(problem, unit, scaling, coordinates)
    seen = _measure(where, scaling, steps, depth, SMALL if quadrature is None else quadrature, directions, key)
    if not np.all(np.isfinite(seen.loss)):
        raise DivergedError("training blows up: learning_rate= is too large for this problem. Lower it or take fewer steps.")
    return seen


def _measure(where: Coordinates, scaling: Scaling, steps: int, depth: int, quadrature: AbstractQuadrature, directions: int, key: Key[Array, ""]) -> xr.Dataset:
    with reference_precision():
        z, weights = jax.tree.map(jnp.asarray, standard_points(where, quadrature, 0))
        z = jax.tree.map(lambda x: jnp.broadcast_to(x, (depth, *x.shape)), z)
        key_power, key_directions = jax.random.split(key)
        leaves, tree = jax.tree.flatten(z)

        def draw(key):
            keys = jax.random.split(key, len(leaves))
            return tree.unflatten([jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)])

        power = draw(key_power)
        moves = jax.vmap(draw)(jax.random.split(key_directions, directions))
        space, traced = where.space.astype(jnp.float64), scaling.traced(jnp.float64)
        start = np.asarray(_norms(moves, weights))
        rows: dict[str, list[float]] = {k: [] for k in ("loss", "sharpness", "gain", "amplification", "amplification_se")}
        gain = 1.0
        for k in range(steps + 1):
            growth2 = (np.asarray(_norms(moves, weights)) / start) ** 2
            iterations = jnp.asarray(FIRST_ITERATIONS if k == 0 else POWER_ITERATIONS)  # traced: one compilation serves both
            z, power, sharpness, moves, loss = _step(where.unit, traced, z, weights, space, power, moves, iterations)
            rms = math.sqrt(growth2.mean())
            values = (float(loss), float(sharpness), gain, rms, float(growth2.std(ddof=1)) / math.sqrt(directions) / (2 * rms))
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
            factor = abs(float(sharpness) - 1)
            gain = max(1.0, gain * factor) if math.isfinite(factor) else math.inf  # training blew up: nothing is stable beyond
    return xr.Dataset({k: (("step",), np.asarray(v)) for k, v in rows.items()}, coords={"step": np.arange(steps + 1)})


def _inner(d: PyTree, e: PyTree, weights: Float[Array, " points"]) -> Float[Array, ""]:
    """Mean over depth, coordinates and, by their weights, particles: the geometry in which the step is a gradient and the Hessian symmetric."""
    means = jax.tree.map(lambda x, y: jnp.sum(weights * jnp.mean((x * y).reshape(*x.shape[:2], -1), axis=(0, 2))), d, e)
    return sum(jax.tree.leaves(means), jnp.zeros(()))


def _norm(d: PyTree, weights: Float[Array, " points"]) -> Float[Array, ""]:
    return jnp.sqrt(_inner(d, d, weights))


@eqx.filter_jit
def _norms(moves: PyTree, weights: Float[Array, " points"]) -> Float[Array, " directions"]:
    return jax.vmap(lambda d: _norm(d, weights))(moves)


@eqx.filter_jit
def _step(unit: AbstractUnit, scaling: Scaling, z: PyTree, weights, space: StateSpace, power: PyTree, moves: PyTree, iterations: Int[Array, ""]):
    """One gradient step: new parameters, top eigenvector and eigenvalue of the step's Jacobian, perturbations carried along, loss."""

    def descend(z):
        seen, saved = forward(unit, scaling, z, weights, space)
        return backward(unit, scaling, z, weights, space, seen, saved)[0], seen.loss

    new, carry, loss = jax.linearize(descend, z, has_aux=True)
    root = jax.tree.map(jnp.sqrt, unit.rates(scaling))

    def hessian(v):
        """eta Hessian = I - J, made symmetric by the roots of the rates when parts of a unit have different ones."""
        v = _scale(v, root, divide=False)
        return _scale(jax.tree.map(lambda v, jv: v - jv, v, carry(v)), root, divide=True)

    def iterate(_, state):
        # Eigenvalues come in pairs of nearly opposite sign (u and v exchange), so plain power iteration would mix both ends of the spectrum. Shifted by
        # a bound of its modulus, which is kept up to date, the top end alone is the largest.
        v, shift = state
        hv = hessian(v)
        shift = jnp.maximum(shift, _norm(hv, weights))
        moved = jax.tree.map(lambda h, v: h + shift * v, hv, v)
        size = _norm(moved, weights)
        return jax.tree.map(lambda x: x / size, moved), shift

    power = jax.tree.map(lambda x: x / _norm(power, weights), power)
    power, _ = jax.lax.fori_loop(0, iterations, iterate, (power, jnp.zeros(())))
    return new, power, _inner(power, hessian(power), weights), jax.vmap(carry)(moves), loss


def _scale(v: PyTree, root: PyTree, *, divide: bool) -> PyTree:
    """Multiply or divide every part of v by the root of its rate; parts that never move (rate 0) drop out."""

    def part(r, x):
        inverse = jnp.where(r > 0, 1 / jnp.where(r > 0, r, 1.0), 0.0)
        return jax.tree.map(lambda x: x * (inverse if divide else r), x)

    return jax.tree.map(part, root, v)
