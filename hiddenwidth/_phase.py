r"""The phase diagram of Theorem 3, measured: residual scale against LM/D.

Residual scale = rho sqrt(D)/(L M). At every shape (L, M, D) networks are trained on a geometric ladder of rho, with the rates of one stated rule
(`residual`: eta_v = eta, eta_u = eta / max(1, rho)^2), and at the scales that four schemes choose: MLU, a lazy one, fan-in, CompleteP.
"""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from ._choices import positive_float, positive_int
from ._ensemble import check_dtype, group_size
from ._parallel import default_workers, each
from ._phase_cells import Cells, Shape, measure
from ._problem import Problem
from ._provenance import provenance
from ._scaling import Scaling, complete_p, fan_in, lazy, mlu, residual
from ._sweep import Interrupted
from ._two_layer import TwoLayer

SCHEMES = ("mlu", "lazy", "fan_in", "complete_p")
SMALLEST = 1 / 16
#: Variables with one entry a member.
MEMBERS = ("local_update2", "fluctuation2", "change2", "loss_start", "loss_end", "diverged")


def phase_diagram(
    problem: Problem,
    unit: TwoLayer | None = None,
    *,
    shapes: Sequence[Sequence[int]],
    seeds: int,
    steps: int = 7,
    learning_rate: float = 1.0,
    per_octave: int = 2,
    reach: float = 8.0,
    embedding: str = "orthogonal",
    dtype: Any = jnp.float32,
    memory: float = 2e9,
    workers: int | None = None,
    progress: bool = False,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Measure local updates, fluctuation, global change, loss and divergence over residual scale and shape.

    **Arguments:**

    - `problem`: the data; they are embedded anew at the dimension of every shape. `unit`: a two-layer unit (default: tanh).
    - `shapes`: (depth, width, dim), each with LM of at least D.
    - `seeds`: initialisations at the largest dimension; smaller ones get more, so that seeds times D is the same and all cells are equally exact.
    - `steps`: gradient steps. `learning_rate`: the normalised rate eta of the rule.
    - `per_octave`: residual scales a factor of two; `reach`: the ladder runs from rho = 1/16 to `reach` times sqrt(LM/D).
    - `embedding`: `"orthogonal"` gives every D exactly the limiting Gram matrix, so that D enters through sampling alone.
    - the rest: as for `sweep`.

    **Returns:** a dataset over (shape, rho, seed) with `local_update2`, `fluctuation2`, `change2`, `loss_start`, `loss_end`, `diverged`; the same over
    (shape, scheme, seed) with the prefix `scheme_`; NaN where a shape has no cell or no such seed. `depth`, `width`, `dim` say which shape it is.

    **Raises:** `ValueError` for shapes or numbers that are not possible; `Interrupted` on Ctrl-C, with the finished shapes in its `runs`.

    Source: arXiv 2509.10167, Theorem 3.

    **Example:**

    ```python
    runs = hw.phase_diagram(problem, shapes=[(8, 8, 4), (16, 8, 4)], seeds=8, steps=2, per_octave=1, reach=2.0, key=jax.random.key(0))
    runs.local_update2.mean("seed")
    ```
    """
    unit = TwoLayer("tanh") if unit is None else unit
    chosen = check_shapes(shapes)
    for what, value in (("seeds", seeds), ("steps", steps), ("per_octave", per_octave)):
        positive_int(what, value)
    positive_float("learning_rate", learning_rate)
    check_reach(reach)
    dtype = check_dtype(dtype)
    workers = default_workers() if workers is None else positive_int("workers", workers)
    key_embed, key_net = jax.random.split(key)
    problems = embedded(problem, unit, chosen, embedding=embedding, dtype=dtype, memory=memory / workers, key=key_embed)
    runs = _empty(chosen, seeds, per_octave, reach)
    runs.attrs = {
        "problem": problem.name, "unit": repr(unit), "steps": steps, "learning_rate": learning_rate, "embedding": embedding, "dtype": str(dtype),
        "key": json.dumps(np.asarray(jax.random.key_data(key)).tolist()),
        **{name: value if isinstance(value, (str, int, float)) else json.dumps(value) for name, value in provenance().items()},
    }  # fmt: skip

    def run(shape: Shape) -> tuple[Cells, float]:
        start = time.perf_counter()
        scalings = [residual(rho, learning_rate_v=learning_rate) for rho in ladder(shape, per_octave, reach)]
        scalings += [s.at(shape.width, shape.dim) for s in schemes(shape, learning_rate)]
        cells = measure(
            problems[shape.dim], unit, scalings, shape=shape, seeds=seeds_at(shape, chosen, seeds), steps=steps, dtype=dtype, memory=memory / workers,
            key=shape_key(key_net, shape),
        )  # fmt: skip
        return cells, time.perf_counter() - start

    # Largest first, so that the last shapes to finish are short.
    order = sorted(chosen, key=lambda s: -s.depth * s.width)
    with tqdm(total=len(chosen), desc="phase diagram", unit="shape", disable=not progress, leave=False) as bar:

        def store(shape: Shape, result: tuple[Cells, float]) -> None:
            _store(runs, chosen.index(shape), *result)
            bar.update()

        try:
            each(run, order, store, workers=workers)
        except KeyboardInterrupt:
            runs.attrs["interrupted"] = 1
            raise Interrupted(runs) from None
    return runs


def check_shapes(shapes: Sequence[Sequence[int]], what: str = "shapes") -> list[Shape]:
    """Shapes in order, each once; refused when empty, not whole numbers, or with LM below D."""
    if not shapes:
        raise ValueError(f"{what}={tuple(shapes)!r} is empty; expected at least one (depth, width, dim).")
    for shape in shapes:
        if len(shape) != 3:
            raise ValueError(f"{what}={shape!r} is not a shape; expected three whole numbers: depth, width, dim.")
        for value in shape:
            positive_int(what, value)
        if Shape(*shape).ratio < 1:
            raise ValueError(f"{what}={tuple(shape)!r} has LM/D below 1, where no residual scale is lazy; expected depth * width of at least dim.")
    return sorted({Shape(*(int(x) for x in s)) for s in shapes}, key=lambda s: (s.dim, s.depth * s.width, s.depth))


def check_reach(reach: float) -> None:
    """The ladder has to get to the blow-up scale."""
    if positive_float("reach", reach) < 1:
        raise ValueError(f"reach={reach!r} ends the ladder below the blow-up scale; expected at least 1.")


def embedded(
    problem: Problem, unit: TwoLayer, shapes: Sequence[Shape], *, embedding: str, dtype: Any, memory: float, key: Key[Array, ""]
) -> dict[int, Problem]:
    """The problem at every dimension; refuses data that do not fit into one, and shapes that do not fit into `memory`."""
    problems = {dim: problem.with_dim(dim, key=key, embedding=embedding) for dim in sorted({s.dim for s in shapes})}
    for shape in shapes:
        group_size(problems[shape.dim], unit, shape.depth, shape.width, dtype.itemsize, memory)
    return problems


def ladder(shape: Shape, per_octave: int, reach: float) -> list[float]:
    """2^(i / per_octave) from 1/16 to `reach` sqrt(LM/D); 1 is on it."""
    low, high = per_octave * math.log2(SMALLEST), per_octave * math.log2(reach * math.sqrt(shape.ratio))
    return [2.0 ** (i / per_octave) for i in range(round(low), math.floor(high + 1e-9) + 1)]


def schemes(shape: Shape, learning_rate: float) -> list[Scaling]:
    """What `SCHEMES` do at this shape; the lazy one sits half way, in logarithm, between the two predicted boundaries."""
    return [
        mlu(learning_rate),
        lazy(shape.ratio**0.25, learning_rate),
        fan_in(learning_rate),
        complete_p(learning_rate, width=shape.width, dim=shape.dim),
    ]


def seeds_at(shape: Shape, shapes: list[Shape], seeds: int) -> int:
    """The same number of independent coordinates, seeds times D, at every shape."""
    return seeds * max(s.dim for s in shapes) // shape.dim


def shape_key(key: Key[Array, ""], shape: Shape) -> Key[Array, ""]:
    """Every shape has its own networks, whatever other shapes there are."""
    for number in shape:
        key = jax.random.fold_in(key, number)
    return key


def _empty(shapes: list[Shape], seeds: int, per_octave: int, reach: float) -> xr.Dataset:
    ladders = [ladder(s, per_octave, reach) for s in shapes]
    members = max(seeds_at(s, shapes, seeds) for s in shapes)
    sizes = {"rho": max(map(len, ladders)), "scheme": len(SCHEMES)}
    variables: dict[str, Any] = {
        prefix + name: (("shape", axis, "seed"), np.full((len(shapes), sizes[axis], members), np.nan))
        for prefix, axis in (("", "rho"), ("scheme_", "scheme"))
        for name in MEMBERS
    }
    variables["done"] = ("shape", np.zeros(len(shapes), bool))
    variables["wall_s"] = ("shape", np.full(len(shapes), np.nan))
    rho = [[s.at(x.width, x.dim).alpha for s in schemes(x, 1.0)] for x in shapes]
    variables["scheme_rho"] = (("shape", "scheme"), np.array(rho))
    variables |= {name: ("shape", np.array([getattr(s, name) for s in shapes])) for name in Shape._fields}
    return xr.Dataset(variables, coords={"rho": max(ladders, key=len), "scheme": list(SCHEMES), "seed": np.arange(members)})


def _store(runs: xr.Dataset, at: int, cells: Cells, wall: float) -> None:
    columns = {
        "local_update2": cells.local_update2, "fluctuation2": cells.fluctuation2, "change2": cells.change2,
        "loss_start": cells.loss[..., 0], "loss_end": cells.loss[..., -1], "diverged": cells.diverged,
    }  # fmt: skip
    for name, value in columns.items():
        here = value.T  # (cell, seed): the ladder, then the schemes
        steps = len(here) - len(SCHEMES)
        runs[name].values[at, :steps, : here.shape[1]] = here[:steps]
        runs[f"scheme_{name}"].values[at, :, : here.shape[1]] = here[steps:]
    runs["done"].values[at] = True
    runs["wall_s"].values[at] = wall
