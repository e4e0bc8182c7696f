r"""What one cell of the phase diagram measures: networks of one shape trained at many residual scales from the same draws.

    local update          A^2 = mean over units and data of  (Delta u . h / D)^2        Delta u = u_k - u_0,  h = h_{l-1} of the network at step 0
    init fluctuation      F^2 = mean over data and coordinates of  (h_L - h_0)^2        at step 0; h_0 is the Mean ODE there, since E phi = 0
    global change         C^2 = mean over data and coordinates of  (h_{L,k} - h_{L,0})^2

A sees what a step does to a unit's own preactivation while its input is held fixed, so it cannot grow because other blocks moved. Member i of every cell draws
the same standard numbers, those of `fold_in(key, i)`: cells of a shape differ by their residual scale and rates alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key

from ._ensemble import DIVERGENCE, group_size
from ._problem import Problem, StateSpace
from ._resnet import ResNet
from ._scaling import Scaling
from ._train import descend, forward
from ._two_layer import TwoLayer
from ._types import AnyArray

#: Bytes of the networks trained abreast on a CPU.
CACHE = 8e6


class Shape(NamedTuple):
    """Depth L, width M and embedding dimension D."""

    depth: int
    width: int
    dim: int

    @property
    def ratio(self) -> float:
        """LM/D, the square of the theory's blow-up scale in units of the critical one."""
        return self.depth * self.width / self.dim


class Cells(NamedTuple):
    """Mean squares of one network a member and a cell, and its losses."""

    local_update2: Float[AnyArray, "*cells"]
    fluctuation2: Float[AnyArray, "*cells"]
    change2: Float[AnyArray, "*cells"]
    loss: Float[AnyArray, "*cells step"]

    @property
    def diverged(self) -> np.ndarray:
        """Whose loss was not finite, or above `DIVERGENCE` times its start, at any step?"""
        with np.errstate(invalid="ignore", over="ignore"):
            return ~(self.loss <= DIVERGENCE * self.loss[..., :1]).all(-1)

    @property
    def descended(self) -> np.ndarray:
        """Whose loss was finite and rose at no step?"""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.isfinite(self.loss).all(-1) & (np.diff(self.loss, axis=-1) <= 0).all(-1)


def measure(
    problem: Problem, unit: TwoLayer, scalings: Sequence[Scaling], *, shape: Shape, seeds: int, steps: int, dtype: Any, memory: float, key: Key[Array, ""]
) -> Cells:
    """Train `seeds` members at every scaling; arrays (seed, scaling) in numpy.

    `scalings` have v of the critical size (`Scaling.at`), so one compiled function and one draw of the weights serve them all.
    """
    group = group_size(problem, unit, shape.depth, shape.width, dtype.itemsize, memory)
    if jax.default_backend() == "cpu":
        group = max(1, int(group * CACHE / memory))  # what stays in the cache is up to twice as fast
    with jax.enable_x64(dtype == jnp.float64):
        space = problem.space().astype(dtype)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(seeds))
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *[s.traced(dtype) for s in (_unnamed(s) for s in scalings)])
        abreast = _divisor(len(scalings), group)
        members = _divisor(seeds, group // abreast)
        return Cells(*(np.asarray(x) for x in _measure(unit, stacked, space, keys, shape, steps, abreast, members)))


def _unnamed(scaling: Scaling) -> Scaling:
    """Numbers only: scalings with different names do not stack."""
    if scaling.fan_in:
        raise ValueError("a scaling with fan_in=True draws v of another size; expected one with critical v. Use scaling.at(width, dim).")
    return Scaling(scaling.alpha, scaling.learning_rate_u, scaling.learning_rate_v)


def _divisor(number: int, at_most: int) -> int:
    """Largest divisor: batches without a remainder, which would be compiled once more."""
    return max(d for d in range(1, min(number, max(1, at_most)) + 1) if number % d == 0)


@eqx.filter_jit
def _measure(unit: TwoLayer, scalings: Scaling, space: StateSpace, keys: Key[Array, " seed"], shape: Shape, steps: int, abreast: int, members: int) -> Cells:
    dtype = space.start.dtype
    weights = jnp.full((shape.width,), 1.0 / shape.width, dtype)

    def member(key):
        start = ResNet.init(unit, Scaling(), depth=shape.depth, width=shape.width, dim=shape.dim, dtype=dtype, key=key).params

        def cell(scaling):
            seen, (states, _) = forward(unit, scaling, start, weights, space)
            params, path = descend(unit, scaling, start, weights, space, steps, (steps,))
            moved = jnp.einsum("lxd,ljd->lxj", states, params.u - start.u) * space.inner
            return Cells(jnp.mean(moved**2), jnp.mean((seen.hidden - space.start) ** 2), jnp.mean((path.hidden[0] - seen.hidden) ** 2), path.loss)

        return lax.map(cell, scalings, batch_size=abreast)

    with jax.default_matmul_precision("highest"):
        return lax.map(member, keys, batch_size=members)
