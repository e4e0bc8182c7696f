r"""Learning rates tuned at every residual scale: do some rates give maximal local updates?

The derived rule (`stable_rate_u`) lowers eta_u above rho = 1 by argument; the sweep asks every pair of rates instead. It runs over
eta_v and over eta_u max(1, rho)^2, the rate of u in units of the rule, which is 1 there.

A pair of rates is **stable** when in every seed the loss stays finite and rises at no step. A weaker condition, a last loss below the first one, admits more:
one large step of u throws the loss up and partly saturates the units, and a few steps later the loss can be back below its start, with local updates of
order one at any rho. What it admits is kept as `tuned_largest_weak`, beside.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from ._choices import positive_float, positive_int
from ._ensemble import check_dtype
from ._parallel import default_workers, each
from ._phase import check_shapes, embedded, shape_key
from ._phase_cells import Cells, Shape, measure
from ._problem import Problem
from ._scaling import residual, stable_rate_u
from ._sweep import Interrupted
from ._two_layer import TwoLayer

RHOS = tuple(2.0 ** (i / 2) for i in range(-2, 10))


def ladder_u(per_octave: int) -> tuple[float, ...]:
    """Rates of u in units of the rule: geometric, from 1 to 32."""
    return tuple(2.0 ** (i / per_octave) for i in range(5 * per_octave + 1))


RATES_U = ladder_u(4)
RATES_V = (0.125, 0.5, 1.0, 2.0)


def tuned_rates(
    problem: Problem,
    unit: TwoLayer | None = None,
    *,
    shapes: Sequence[Sequence[int]],
    seeds: int = 2,
    steps: int = 7,
    rhos: Sequence[float] = RHOS,
    rates_u: Sequence[float] = RATES_U,
    rates_v: Sequence[float] = RATES_V,
    embedding: str = "orthogonal",
    dtype: Any = jnp.float32,
    memory: float = 2e9,
    workers: int | None = None,
    progress: bool = False,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Local updates and losses over residual scale and both learning rates.

    **Arguments:** `rates_u`: rates of u in units of the derived rule, eta_u max(1, rho)^2; `rates_v`: eta_v; `rhos`: residual scales in units of the critical
    one; the rest: as for `phase_diagram`, with the same number of `seeds` at every shape.

    **Returns:** a dataset over (tuned_shape, tuned_rho, rate_u, rate_v): `tuned_local_update` (root mean square over seeds, units and data),
    `tuned_loss` (mean over seeds, after the last step), `tuned_stable`; and per shape and rho, over the stable pairs, `tuned_largest` (largest local
    update) and `tuned_best` (local update at the smallest loss), NaN where no pair is stable; `tuned_largest_weak`: the largest local update among pairs
    whose last loss is below the first in every seed.

    **Raises:** `ValueError` for numbers that are not possible; `Interrupted` on Ctrl-C, with an empty dataset.

    **Example:**

    ```python
    few = {"rhos": [1.0, 4.0], "rates_u": [1.0, 4.0], "rates_v": [1.0]}
    hw.tuned_rates(problem, shapes=[(8, 8, 4)], steps=2, **few, key=jax.random.key(0)).tuned_largest
    ```
    """
    unit = TwoLayer("tanh") if unit is None else unit
    chosen = check_shapes(shapes, "tuned_shapes")
    for what, value in (("seeds", seeds), ("steps", steps)):
        positive_int(what, value)
    axes = {"tuned_rho": rhos, "rate_u": rates_u, "rate_v": rates_v}
    for what, values in axes.items():
        for value in values:
            positive_float(what, value)
    dtype = check_dtype(dtype)
    workers = default_workers() if workers is None else positive_int("workers", workers)
    key_embed, key_net = jax.random.split(key)
    problems = embedded(problem, unit, chosen, embedding=embedding, dtype=dtype, memory=memory / workers, key=key_embed)
    scalings = [residual(rho, learning_rate_u=u * stable_rate_u(rho), learning_rate_v=v) for rho in rhos for u in rates_u for v in rates_v]
    grid = tuple(len(values) for values in axes.values())
    found: dict[Shape, Cells] = {}

    def run(shape: Shape) -> Cells:
        return measure(
            problems[shape.dim], unit, scalings, shape=shape, seeds=seeds, steps=steps, dtype=dtype, memory=memory / workers, key=shape_key(key_net, shape)
        )

    with tqdm(total=len(chosen), desc="tuned rates", unit="shape", disable=not progress, leave=False) as bar:

        def store(shape: Shape, cells: Cells) -> None:
            found[shape] = cells
            bar.update()

        try:
            each(run, sorted(chosen, key=lambda s: -math.prod(s)), store, workers=workers)
        except KeyboardInterrupt:
            raise Interrupted(xr.Dataset()) from None
    return _dataset(chosen, axes, [_summary(found[s], grid) for s in chosen])


def _summary(cells: Cells, grid: tuple[int, ...]) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore", over="ignore"):
        update = np.sqrt(cells.local_update2.astype(np.float64).mean(0)).reshape(grid)
        loss = cells.loss[..., -1].astype(np.float64).mean(0).reshape(grid)
    stable = np.asarray(cells.descended.all(0)).reshape(grid)
    flat = (grid[0], -1)
    with np.errstate(invalid="ignore"):
        weak = (np.isfinite(cells.loss).all(-1) & (cells.loss[..., -1] < cells.loss[..., 0])).all(0).reshape(grid)
    largest, largest_weak = (np.where(ok, update, -np.inf).reshape(flat).max(1) for ok in (stable, weak))
    some = np.isfinite(largest)
    best = np.where(stable, loss, np.inf).reshape(flat).argmin(1)
    found: dict[str, np.ndarray] = {
        "tuned_local_update": update, "tuned_loss": loss, "tuned_stable": stable,
        "tuned_largest": np.where(some, largest, np.nan),
        "tuned_largest_weak": np.where(np.isfinite(largest_weak), largest_weak, np.nan),
        "tuned_best": np.where(some, update.reshape(flat)[np.arange(grid[0]), best], np.nan),
    }  # fmt: skip
    return found


def _dataset(shapes: list[Shape], axes: dict[str, Sequence[float]], found: list[dict[str, np.ndarray]]) -> xr.Dataset:
    def dims(value: np.ndarray) -> tuple[str, ...]:
        return ("tuned_shape", *axes)[: value.ndim]

    variables = {name: (dims(stacked := np.stack([f[name] for f in found])), stacked) for name in found[0]}
    variables |= {f"tuned_{k}": ("tuned_shape", np.array([getattr(s, k) for s in shapes])) for k in Shape._fields}
    return xr.Dataset(variables, coords={name: list(values) for name, values in axes.items()})
