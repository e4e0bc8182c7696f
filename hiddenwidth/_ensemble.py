r"""Ensembles: many independent initialisations of one shape, trained together.

Member i draws its weights with `fold_in(key, i)`, so it is the network that `ResNet.init(..., key=fold_in(key, i))` gives, and more members never
change earlier ones.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ._choices import positive_int
from ._columns import ColumnUnit
from ._devices import over_seeds, seed_devices, to_host
from ._lanes import in_lanes
from ._layout import choose_layout, fastest_abreast
from ._problem import Problem, StateSpace
from ._resnet import draw_params
from ._scaling import Scaling
from ._train import check_hidden_steps, walk
from ._unit import AbstractUnit

#: Peak memory over weights and saved states; a test holds it.
PEAK = 1.2

#: A member has diverged when its loss is not finite or exceeds this many times its loss at initialisation.
DIVERGENCE = 1e4


class Ensemble(eqx.Module):
    """Trajectories of independent members, numpy arrays, and which of them diverged (at which step; -1: did not)."""

    output: Float[np.ndarray, "seed step batch out"]
    loss: Float[np.ndarray, "seed step"]
    hidden: Float[np.ndarray, "seed recorded batch dim"]
    hidden_steps: tuple[int, ...]

    @property
    def diverged(self) -> Bool[np.ndarray, " seed"]:
        """Which members diverged."""
        return self.diverged_at >= 0

    @property
    def diverged_at(self) -> np.ndarray:
        """First step at which a member's loss was not finite or above `DIVERGENCE` times its start; -1: never."""
        return diverged_at(self.loss)


def diverged_at(loss: Float[np.ndarray, "seed step"]) -> np.ndarray:
    """First step at which a loss is not finite or above `DIVERGENCE` times its start; -1: never."""
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~(loss <= DIVERGENCE * loss[:, :1])
    return np.where(bad.any(1), bad.argmax(1), -1)


def ensemble(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    depth: int,
    width: int,
    seeds: int,
    steps: int,
    dtype: Any = jnp.float32,
    hidden_steps: tuple[int, ...] | None = None,
    memory: float = 2e9,
    deepest: int | None = None,
    key: Key[Array, ""],
) -> Ensemble:
    r"""Train `seeds` independent initialisations of one shape.

    **Arguments:**

    - `problem`, `unit`, `scaling`: as for `mean_ode`; the dimension must be finite.
    - `depth`, `width`: L and M. `seeds`: number of members. `steps`: gradient steps.
    - `dtype`: of weights and states, float32 or float64.
    - `hidden_steps`: steps at which the last hidden state is kept (default: the last one).
    - `memory`: bytes that weights and saved states may take; members are trained in groups that fit.
    - `deepest`: the largest depth that will be asked for. Ensembles that differ in their depth alone then share one compiled program, which keeps room for so
      many layers; not where that would leave fewer members abreast. The numbers are the same to rounding.
    - `key`: member i uses `fold_in(key, i)`.

    **Returns:** an `Ensemble`. Members that diverge are marked, never removed or replaced.

    **Example:**

    ```python
    runs = hw.ensemble(problem, unit, hw.mlu(), depth=16, width=4, seeds=8, steps=10, key=jax.random.key(0))
    runs.loss[:, -1]
    ```
    """
    for what, value in (("depth", depth), ("width", width), ("seeds", seeds), ("steps", steps)):
        positive_int(what, value)
    if deepest is not None and positive_int("deepest", deepest) < depth:
        raise ValueError(f"deepest={deepest} is below depth={depth}; expected at least that. Leave deepest=None.")
    dtype = check_dtype(dtype)
    recorded = check_hidden_steps(hidden_steps, steps)
    with jax.enable_x64(dtype == jnp.float64):
        space = problem.space().astype(dtype)
        devices = seed_devices(seeds)
        share = -(-seeds // len(devices))

        def abreast(layers: int) -> int:
            return members_abreast(problem, unit, layers, width, share, dtype.itemsize, memory, len(devices))

        room = depth if deepest is None or _fits_fewer(abreast, depth, deepest) else deepest
        groups = -(-share // abreast(room))
        group = -(-share // groups)
        share = groups * group  # groups of one size: a smaller last one would be compiled as a program of its own
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(share * len(devices)))  # as many for every device; what is too much is cut off
        layers = jnp.asarray(depth, jnp.int32)
        output, loss, hidden = to_host(_members(unit, scaling.traced(dtype), space, keys, layers, room, width, steps, recorded, group, dtype, devices))
        return Ensemble(output[:seeds], loss[:seeds], hidden[:seeds], recorded)


def _fits_fewer(abreast: Callable[[int], int], depth: int, deepest: int) -> bool:
    try:
        return abreast(deepest) < abreast(depth)
    except ValueError:  # a network so deep does not fit at all
        return True


def check_dtype(dtype: Any) -> Any:
    """float32 or float64, or say so."""
    name = jnp.dtype(dtype)
    if name not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype={name.name!r} is not possible; expected float32 or float64.")
    return name


@eqx.filter_jit
def _members(unit, scaling, space: StateSpace, keys, depth: Int[Array, ""], room: int, width: int, steps: int, recorded, group: int, dtype, devices):
    """Train all members; `depth` layers in arrays with room for `room`."""

    def members(keys, scaling, space, depth):
        batch, dim = space.start.shape
        layout = choose_layout(unit, width, dim, batch, group)

        def init(key):
            return draw_params(unit, scaling, depth=room, width=width, dim=dim, dtype=dtype, columns=layout == "columns", used=depth, key=key)

        def train(unit, space, params):
            return walk(unit, scaling, params, jnp.full((width,), 1.0 / width, dtype), space, steps, recorded, depth)[1]

        if layout == "lanes":
            return in_lanes(train, init, unit, space, keys)
        one = ColumnUnit(unit) if layout == "columns" else unit
        # One seed at a time is not batched at all: matrix libraries do not know products in batches of one.
        return lax.map(lambda key: train(one, space, init(key)), keys, batch_size=group if group > 1 else None)

    with jax.default_matmul_precision("highest"):
        return over_seeds(members, devices)(keys, scaling, space, depth)


def members_abreast(problem: Problem, unit: AbstractUnit, depth: int, width: int, seeds: int, itemsize: int, memory: float, devices: int = 1) -> int:
    """How many of `seeds` members a device trains at once: those that fit into the memory, and on a CPU no more than its cache holds a layer of.

    **Raises:** `ValueError` when not even one fits.
    """
    room = min(seeds, group_size(problem, unit, depth, width, itemsize, memory, devices))
    if jax.default_backend() != "cpu":
        return room
    batch, dim = len(problem.inputs), int(problem.dim)
    return min(room, fastest_abreast(width * sum(count for _, count in unit.laws(dim)), width, dim, batch, itemsize))


def group_size(problem: Problem, unit: AbstractUnit, depth: int, width: int, itemsize: int, memory: float, devices: int = 1) -> int:
    """How many members fit on each of the `devices` in `memory` bytes for all: weights, updated in place, and what is saved for the backward sweep.

    **Raises:** `ValueError` when not even one fits.
    """
    batch, dim = len(problem.inputs), int(problem.dim)
    weights, states = depth * width * sum(count for _, count in unit.laws(dim)), depth * batch * (dim + width)
    one = devices * itemsize * PEAK * (weights + states)
    if one > memory:
        raise ValueError(
            f"one network with depth={depth} width={width} dim={dim} needs {one / 1e9:.3g} GB and memory={memory / 1e9:.3g} GB; "
            "expected it to fit. Raise memory or choose a smaller shape."
        )
    return int(memory / one)
