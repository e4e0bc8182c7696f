"""A grid of ensembles over depth and width, and where asked over embedding dimension and alpha, as one labelled dataset."""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from ._choices import positive_int
from ._cluster import check_sendable, on_cluster
from ._ensemble import ensemble
from ._grid import Memory, on_threads, run_grid
from ._problem import Problem
from ._provenance import provenance
from ._scaling import Scaling
from ._store import Store, open_sweep
from ._sweep_cells import Cells
from ._unit import AbstractUnit

if TYPE_CHECKING:
    from distributed import Client


class Interrupted(KeyboardInterrupt):
    """A sweep was stopped by Ctrl-C; `runs` holds the cells that were finished."""

    def __init__(self, runs: xr.Dataset):
        super().__init__()
        self.runs = runs


def sweep(
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
    retries: int = 3,
    progress: bool = False,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Train an ensemble at every (depth, width), or every (depth, width, dim, alpha).

    **Arguments:**

    - `depths`, `widths`: the grid. `seeds`: members a cell, one number or one for each width, as in `{1: 1024, 16: 128}`; every cell has its own, independent
      of those of other cells.
    - `dims`: embedding dimensions D. At each the data are embedded anew, `problem.with_dim(D, key=fold_in(fold_in(key, 2**31 - 1), D), embedding=embedding)`.
    - `alphas`: multipliers of the branch, `lazy` with the learning rates of `scaling`.
    - `memory`: bytes for weights and saved states, shared by the cells that run at once on one machine or in one worker process of a cluster.
    - `workers`: cells trained at once (default: one a core on CPU, one on an accelerator).
    - `store`: a folder in which each cell is kept as it finishes. The same sweep with the same folder continues where the last one stopped, however it
      stopped; several processes may work on one. Damaged cells are computed again, with a warning.
    - `client`: a `distributed.Client`; the cells then run on its workers, and one that is lost with its worker is tried again, up to `retries` times.
    - `progress`: show a progress bar.
    - the rest: as for `ensemble`.

    **Returns:** a dataset with `hidden (depth, width, seed, recorded, batch, dim)`, `output (depth, width, seed, step, batch, out)`, `loss`, `diverged_at`
    (-1: did not), `seeds` (members of the cell; the arrays are NaN, `diverged_at` -1 beyond), `wall_s`, and in its attributes configuration, versions, device,
    dtype. With `dims` there is an axis `embedding_dim` after `width`, and
    `hidden` is NaN beyond a cell's own dimension; with `alphas` an axis `alpha` after these. With a `store` arrays are read when they are used (`open_sweep`).

    **Raises:** `Interrupted` on Ctrl-C, with the finished cells in its `runs`; `ValueError` for a store that holds another configuration; `OSError` for a full
    disk (finished cells stay).

    **Example:**

    ```python
    runs = hw.sweep(problem, unit, hw.mlu(), depths=[8, 32], widths=[1, 4], seeds=16, steps=10, key=jax.random.key(0))
    runs.loss.isel(step=-1).mean("seed")
    ```
    """
    positive_int("retries", retries, at_least=0)
    cells = Cells.checked(
        problem, unit, scaling, depths=depths, widths=widths, dims=dims, alphas=alphas, seeds=seeds, steps=steps, dtype=dtype, hidden_steps=hidden_steps,
        embedding=embedding, memory=memory, workers=workers, client=client, key=key,
    )  # fmt: skip
    layout, attributes, compute = cells.layout(), cells.attributes(), functools.partial(train_cell, cells)
    if client is None:
        execute = on_threads(cells.at_once)
    else:
        check_sendable(compute)
        execute = on_cluster(client, retries=retries)
    sink = Memory(layout) if store is None else Store(Path(store), layout, cells.config(), attributes)

    def runs() -> xr.Dataset:
        return sink.runs.assign_attrs(attributes) if isinstance(sink, Memory) else open_sweep(sink.path)

    try:
        run_grid(layout, compute, sink, execute, cost=cells.flops, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted(runs().assign_attrs(interrupted=1)) from None
    finally:
        if isinstance(sink, Store):
            sink.close()
    return runs()


def train_cell(cells: Cells, at: dict[str, Any]) -> dict[str, Any]:
    """Train the ensemble of one cell, here or on a worker."""
    start = time.perf_counter()
    if (here := provenance()["versions"]["hiddenwidth"]) != cells.version:
        raise ValueError(f"this worker has hiddenwidth {here}; expected {cells.version}, as in the process that asks. Install the same one everywhere.")
    members = ensemble(
        cells.problem_at(at), cells.unit, cells.scaling_at(at), depth=at["depth"], width=at["width"], seeds=cells.seeds_at(at), steps=cells.steps,
        dtype=cells.dtype, hidden_steps=cells.recorded, memory=cells.memory / cells.at_once, deepest=cells.axes["depth"][-1], key=cells.key_at(at),
    )  # fmt: skip
    seen = {"hidden": members.hidden, "output": members.output, "loss": members.loss, "diverged_at": members.diverged_at, "seeds": cells.seeds_at(at)}
    return seen | {"wall_s": time.perf_counter() - start}
