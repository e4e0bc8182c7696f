r"""What a sweep will cost, before it starts.

    flops      6 n for every weight, step and seed: 12 L M D n a step and seed for two-layer units
    bytes      weights and saved states of the members that are trained abreast
    seconds    c + b k L G + flops / r        k steps, G groups of members one after the other

Compilation c, time b of a block that is waited for, and rate r come from two small runs, each timed when compiled: small cells wait, large ones calculate.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from scipy import optimize

from ._cluster import check_sendable, result, threads
from ._ensemble import ensemble, group_size
from ._problem import Problem
from ._scaling import Scaling
from ._store import open_sweep
from ._store_description import StoreWarning, check_config, describe, is_used
from ._sweep_cells import Cells
from ._unit import AbstractUnit

if TYPE_CHECKING:
    from distributed import Client

#: Flops that a calibration run may take, and how often it is timed.
PROBE_FLOPS, PROBES = 1e9, 3


class Calibration(NamedTuple):
    """Seconds to compile a cell, seconds a block that is waited for, seconds a flop."""

    compile_s: float
    block_s: float
    flop_s: float


def sweep_cost(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    depths: Sequence[int],
    widths: Sequence[int],
    dims: Sequence[int] | None = None,
    alphas: Sequence[float] | None = None,
    seeds: int | Mapping[int, int],
    steps: int,
    dtype: Any = jnp.float32,
    hidden_steps: tuple[int, ...] | None = None,
    embedding: str = "gaussian",
    memory: float = 2e9,
    workers: int | None = None,
    store: str | Path | None = None,
    client: "Client | None" = None,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Estimate what `sweep` with the same arguments will cost, from two small runs that are timed (on a worker, where there is a `client`).

    **Arguments:** those of `sweep`.

    **Returns:** a dataset over the cells: `flops`, `bytes` (weights and saved states of the members trained abreast), `seconds` of a cell that runs alone,
    `done` (finished in the store); in its attributes `parallel` (cells at once), `total_s` (all cells that are not done), `compile_s`, `block_s`, `flop_s`.
    An estimate: cells that run at once share caches and cores.

    **Raises:** `ValueError` for what `sweep` refuses.

    **Example:**

    ```python
    cost = hw.sweep_cost(problem, unit, hw.mlu(), depths=[4, 8], widths=[2], seeds=4, steps=2, key=jax.random.key(0))
    float(cost.flops.sum()), cost.total_s
    ```
    """
    cells = Cells.checked(
        problem, unit, scaling, depths=depths, widths=widths, dims=dims, alphas=alphas, seeds=seeds, steps=steps, dtype=dtype, hidden_steps=hidden_steps,
        embedding=embedding, memory=memory, workers=workers, client=client, key=key,
    )  # fmt: skip
    layout, done = cells.layout(), False
    if store is not None and is_used(Path(store)):
        check_config(Path(store), describe(cells.config(), cells.attributes()))
        done = _done(store)
    if client is None:
        found, parallel = calibrate(cells), cells.at_once
    else:
        check_sendable(cells)
        found, parallel = result(client.submit(calibrate, cells, pure=False)), sum(threads(client))
    costs = np.array([(cells.flops(at), _bytes(cells, at), _seconds(cells, at, found)) for at in map(layout.at, layout.cells)]).reshape(*layout.shape, 3)
    table = {name: (tuple(layout.axes), costs[..., i]) for i, name in enumerate(("flops", "bytes", "seconds"))}
    left = np.where(done, 0.0, costs[..., 2])
    attributes = {"parallel": parallel, "total_s": max(float(left.sum()) / parallel, float(left.max())), **found._asdict()}
    return xr.Dataset({**table, "done": (tuple(layout.axes), np.broadcast_to(done, layout.shape))}, coords=layout.axes, attrs=attributes)


def _done(store: str | Path) -> Any:
    """Which cells are finished; none when the store cannot be read before `sweep` has repaired it. Damage is for `sweep` to report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        try:
            return open_sweep(store)["done"].values
        except ValueError:
            return False


def calibrate(cells: Cells) -> Calibration:
    """Time the smallest cell, and the largest that one member and one step make affordable."""
    layout = cells.layout()
    order = sorted(map(layout.at, layout.cells), key=cells.flops)
    one = dataclasses.replace(cells, seeds=dict.fromkeys(cells.seeds, 1), steps=1)
    large = next((at for at in reversed(order) if one.flops(at) <= PROBE_FLOPS), order[0])
    rows, times, compiling = [], [], []
    for at in (order[0], large):
        probe = dataclasses.replace(cells, steps=min(cells.steps, 2))
        affordable = max(1, min(cells.group(at), int(PROBE_FLOPS / probe.flops(at) * cells.seeds_at(at))))
        probe = dataclasses.replace(probe, seeds=dict.fromkeys(cells.seeds, affordable))
        seconds = [_time(probe, at) for _ in range(1 + PROBES)]
        times.append(min(seconds[1:]))
        compiling.append(seconds[0] - times[-1])
        rows.append((probe.steps * at["depth"], probe.flops(at)))
    matrix = np.array(rows) / np.array(times)[:, None]  # relative errors
    scale = matrix.max(0)
    solved, _ = optimize.nnls(matrix / scale, np.ones(2))
    block_s, flop_s = solved / scale
    return Calibration(float(np.mean(compiling)), float(block_s), float(flop_s))


def _time(cells: Cells, at: dict[str, Any]) -> float:
    start = time.perf_counter()
    ensemble(
        cells.problem_at(at), cells.unit, cells.scaling_at(at), depth=at["depth"], width=at["width"], seeds=cells.seeds_at(at), steps=cells.steps,
        dtype=cells.dtype, memory=cells.memory, key=cells.key_at(at),
    )  # fmt: skip
    return time.perf_counter() - start


def _seconds(cells: Cells, at: dict[str, Any], found: Calibration) -> float:
    groups = math.ceil(cells.seeds_at(at) / cells.group(at))
    # All depths and alphas of a width share one program.
    compiled = at["depth"] == cells.axes["depth"][-1] and at.get("alpha") == cells.axes.get("alpha", [None])[0]
    return found.compile_s * compiled + found.block_s * cells.steps * at["depth"] * groups + found.flop_s * cells.flops(at)


def _bytes(cells: Cells, at: dict[str, Any]) -> float:
    many = 2.0**80  # group_size says how many members fit: into a memory so large that rounding down does not matter
    one = many / group_size(cells.problem_at(at), cells.unit, at["depth"], at["width"], cells.dtype.itemsize, many)
    return one * cells.group(at)
