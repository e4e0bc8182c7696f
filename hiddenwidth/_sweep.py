"""A grid of ensembles over depth and width, as one labelled dataset."""

import json
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from ._choices import positive_int
from ._ensemble import Ensemble, check_dtype, ensemble, group_size
from ._parallel import default_workers, each
from ._problem import Problem
from ._provenance import provenance
from ._scaling import Scaling
from ._train import check_hidden_steps
from ._unit import AbstractUnit


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
    seeds: int,
    steps: int,
    dtype: Any = jnp.float32,
    hidden_steps: tuple[int, ...] | None = None,
    memory: float = 2e9,
    workers: int | None = None,
    progress: bool = False,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Train an ensemble at every (depth, width).

    **Arguments:**

    - `depths`, `widths`: the grid. `seeds`: members a cell; every cell has its own, independent of those of other cells.
    - `memory`: bytes for weights and saved states, shared by the cells that run at once.
    - `workers`: cells trained at once (default: one a core on CPU, one on an accelerator).
    - `progress`: show a progress bar.
    - the rest: as for `ensemble`.

    **Returns:** a dataset with `hidden (depth, width, seed, recorded, batch, dim)`, `output (depth, width, seed, step, batch, out)`, `loss`, `diverged_at`
    (-1: did not), `wall_s`, and in its attributes configuration, versions, device, dtype.

    **Raises:** `Interrupted` on Ctrl-C, with the finished cells in its `runs`.

    **Example:**

    ```python
    runs = hw.sweep(problem, unit, hw.mlu(), depths=[8, 32], widths=[1, 4], seeds=16, steps=10, key=jax.random.key(0))
    runs.loss.isel(step=-1).mean("seed")
    ```
    """
    depths = sorted({positive_int("depths", d) for d in depths})
    widths = sorted({positive_int("widths", w) for w in widths})
    if not depths or not widths:
        raise ValueError(f"depths={list(depths)} and widths={list(widths)}: expected at least one of each.")
    positive_int("seeds", seeds)
    recorded = check_hidden_steps(hidden_steps, positive_int("steps", steps))
    workers = default_workers() if workers is None else positive_int("workers", workers)

    def run(cell: tuple[int, int]) -> tuple[Ensemble, float]:
        start = time.perf_counter()
        depth, width = cell
        cell_key = jax.random.fold_in(jax.random.fold_in(key, depth), width)
        members = ensemble(
            problem, unit, scaling, depth=depth, width=width, seeds=seeds, steps=steps, dtype=dtype, hidden_steps=recorded,
            memory=memory / workers, key=cell_key,
        )  # fmt: skip
        return members, time.perf_counter() - start

    dtype = check_dtype(dtype)
    group_size(problem, unit, max(depths), max(widths), dtype.itemsize, memory / workers)  # refuse before anything is computed
    runs = _empty(problem, depths, widths, seeds, steps, recorded, dtype)
    runs.attrs = _attributes(problem, unit, scaling, steps, recorded, dtype, key)
    # Largest first, so that the last cells to finish are short.
    cells = sorted(((d, w) for d in depths for w in widths), key=lambda c: -c[0] * c[1])
    with tqdm(total=len(cells), desc="networks", unit="cell", disable=not progress, leave=False) as bar:

        def store(cell: tuple[int, int], result: tuple[Ensemble, float]) -> None:
            _store(runs, cell, *result)
            bar.update()

        try:
            each(run, cells, store, workers=workers)
        except KeyboardInterrupt:
            runs.attrs["interrupted"] = 1
            raise Interrupted(runs) from None
    return runs


def _empty(problem: Problem, depths, widths, seeds: int, steps: int, recorded, dtype) -> xr.Dataset:
    batch, out = problem.targets.shape
    cell = (len(depths), len(widths))

    def blank(*shape, fill: Any = np.nan, kind: Any = dtype):
        return np.full((*cell, *shape), fill, kind)

    return xr.Dataset(
        {
            "hidden": (("depth", "width", "seed", "recorded", "batch", "dim"), blank(seeds, len(recorded), batch, int(problem.space().start.shape[1]))),
            "output": (("depth", "width", "seed", "step", "batch", "out"), blank(seeds, steps + 1, batch, out)),
            "loss": (("depth", "width", "seed", "step"), blank(seeds, steps + 1)),
            "diverged_at": (("depth", "width", "seed"), blank(seeds, fill=-1, kind=np.int32)),
            "done": (("depth", "width"), blank(fill=False, kind=bool)),
            "wall_s": (("depth", "width"), blank(kind=np.float64)),
        },
        coords={"depth": list(depths), "width": list(widths), "seed": np.arange(seeds), "step": np.arange(steps + 1), "recorded": list(recorded)},
    )


def _store(runs: xr.Dataset, cell: tuple[int, int], members: Ensemble, wall: float) -> None:
    at = {"depth": cell[0], "width": cell[1]}
    for name, value in (
        ("hidden", members.hidden),
        ("output", members.output),
        ("loss", members.loss),
        ("diverged_at", members.diverged_at),
        ("done", True),
        ("wall_s", wall),
    ):
        runs[name].loc[at] = value


def _attributes(problem, unit, scaling, steps, recorded, dtype, key) -> dict[str, Any]:
    return {
        "problem": problem.name,
        "problem_digest": problem.digest(),
        "dim": int(problem.dim),
        "unit": repr(unit),
        "scaling": repr(scaling),
        "steps": steps,
        "dtype": str(dtype),
        "key": json.dumps(np.asarray(jax.random.key_data(key)).tolist()),
        **{name: value if isinstance(value, (str, int, float)) else json.dumps(value) for name, value in provenance().items()},
    }
