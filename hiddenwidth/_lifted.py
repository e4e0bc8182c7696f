r"""Networks of any shape (L, M, D) against the one Mean ODE at D = infinity, every member with embeddings of its own.

Let the columns of E (D x r) be what [W_E, W_U] has instead of an orthonormal basis: h_0 = E a_0 and W_U = E W, where a_0 and W are the start and the
readout at D = infinity. The law of the units does not change under rotations of R^D, so only E^T E matters, and E = sqrt(D) [P; 0] stands for all with
E^T E = D P^2: P = I for orthogonal embeddings, which leave the limit as it is at D = infinity, and P = G^(1/2) for Gaussian ones (`_limit.dimension`), whose
draws are coupled across D. The limit is lifted by the same columns, and a member's deviation is

    x = h_L - E a(1),      gap = E^T x / D   (the coordinates of x in the span of the data when E^T E = D I),      square = |x|^2 / D.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import lax
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from ._choices import choose, positive_int
from ._ensemble import check_dtype, diverged_at, group_size
from ._limit.dimension import gram_roots
from ._limit.solution import Limit
from ._parallel import default_workers, each
from ._problem import EMBEDDINGS, StateSpace
from ._resnet import ResNet
from ._sweep import Interrupted
from ._train import descend


class Size(NamedTuple):
    """Depth L, width M, embedding dimension D."""

    depth: int
    width: int
    dim: int


def sweep_shapes(
    limit: Limit,
    shapes: Sequence[tuple[int, int, int]],
    *,
    seeds: int,
    embedding: str = "gaussian",
    step: int | None = None,
    dtype: Any = jnp.float32,
    memory: float = 2e9,
    workers: int | None = None,
    progress: bool = False,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Train an ensemble at every shape (L, M, D), each member with fresh embeddings, and compare with the limit at D = infinity.

    **Arguments:**

    - `limit`: `mean_ode` of a problem with dim=math.inf.
    - `shapes`: (depth, width, dim) of every cell. `seeds`: members of each.
    - `embedding`: `"gaussian"` (finite D is then an error of its own) or `"orthogonal"` (the limit is the same at every D).
    - `step`: gradient steps (default: all of the limit's).
    - `dtype`, `memory`, `workers`, `progress`: as for `sweep`.
    - `key`: a member depends on it, its shape and its number alone. Its embeddings depend on D instead of the shape, through the same uniform numbers at
      every D: shapes are compared on the same draws.

    **Returns:** a dataset over `cell` (coordinates depth, width, dim) with, for every member, the deviation from the lifted limit:
    `gap (cell, seed, batch, reduced)` and `square (cell, seed)` of the last hidden state, `output_gap (cell, seed, batch, out)`; and `diverged_at`
    (-1: did not), `done`.

    **Raises:** `ValueError` for a limit at finite dim or a dim too small for the data; `Interrupted` on Ctrl-C, with the finished cells in its `runs`.

    **Example:**

    ```python
    infinite = hw.mean_ode(problem.with_dim(math.inf), unit, hw.mlu(), steps=2, quadrature=hw.Sobol(6, 2), budget=False)
    hw.sweep_shapes(infinite, [(8, 4, 16), (8, 8, 32)], seeds=4, key=jax.random.key(0)).square.mean("seed")
    ```
    """
    if limit.problem.dim != math.inf or not limit.where.reduced:
        raise ValueError(f"limit has dim={limit.problem.dim}; expected the limit at dim=math.inf. Integrate mean_ode on problem.with_dim(math.inf).")
    choose("embedding", embedding, EMBEDDINGS)
    positive_int("seeds", seeds)
    step = limit.steps if step is None else positive_int("step", step)
    target = limit.hidden(step)
    dtype, workers = check_dtype(dtype), default_workers() if workers is None else positive_int("workers", workers)
    batch, rank = target.shape
    cells = [Size(*(positive_int(what, x) for what, x in zip(Size._fields, shape, strict=True))) for shape in shapes]
    for cell in cells:
        if cell.dim < rank:
            raise ValueError(f"dim={cell.dim} is too small for these data; expected at least {rank}, the dimension of the span of inputs and outputs.")

    def group(cell: Size) -> int:
        at_dim = limit.problem.with_dim(cell.dim, key=jax.random.key(0))
        return min(seeds, group_size(at_dim, limit.unit, cell.depth, cell.width, dtype.itemsize, memory / workers))

    groups = {cell: group(cell) for cell in cells}  # refuse what does not fit before anything is computed

    def run(cell: Size):
        with jax.enable_x64(dtype == jnp.float64):
            own = key
            for part in cell:
                own = jax.random.fold_in(own, part)
            keys = jax.vmap(lambda i: jax.random.fold_in(own, i))(jnp.arange(seeds))
            roots = jnp.asarray(gram_roots(rank, (cell.dim,), seeds, draw_seed, pairs=False)[0] if embedding == "gaussian" else identity, dtype)
            space = limit.where.space.astype(dtype)
            scaling = limit.scaling.traced(dtype)
            return jax.tree.map(np.asarray, _members(limit.unit, scaling, space, jnp.asarray(target, dtype), keys, roots, cell, step, groups[cell]))

    identity = np.broadcast_to(np.eye(rank), (seeds, rank, rank))
    draw_seed = np.asarray(jax.random.key_data(key)).tolist()
    runs = _empty(cells, seeds, batch, rank, limit.problem.targets.shape[1])
    runs.attrs = {"problem_digest": limit.problem.digest(), "embedding": embedding, "step": step, "dtype": str(dtype), "reduced": rank}
    order = sorted(range(len(cells)), key=lambda i: -math.prod(cells[i]))  # largest first, so that the last to finish are short
    with tqdm(total=len(cells), desc="networks", unit="cell", disable=not progress, leave=False) as bar:

        def store(i: int, seen) -> None:
            gap, square, output_gap, loss = seen
            for name, value in (("gap", gap), ("square", square), ("output_gap", output_gap), ("diverged_at", diverged_at(loss)), ("done", True)):
                runs[name][i] = value
            bar.update()

        try:
            each(lambda i: run(cells[i]), order, store, workers=workers)
        except KeyboardInterrupt:
            raise Interrupted(runs) from None
    return runs


@eqx.filter_jit
def _members(unit, scaling, space: StateSpace, target, keys, roots, cell: Size, step: int, group: int):
    depth, width, dim = cell
    rank, dtype = space.start.shape[1], space.start.dtype

    def member(drawn):
        key, root = drawn
        columns = math.sqrt(dim) * jnp.zeros((dim, rank), dtype).at[:rank].set(root)
        lifted = StateSpace(space.start @ columns.T, columns @ space.unembedding, space.targets, space.loss_name, 1.0 / dim)
        net = ResNet.init(unit, scaling, depth=depth, width=width, dim=dim, dtype=dtype, key=key)
        seen = descend(unit, scaling, net.params, jnp.full((width,), 1.0 / width, dtype), lifted, step, (step,))[1]
        x = seen.hidden[0] - target @ columns.T
        square = jnp.mean(jnp.sum(x**2, axis=-1)) / dim
        return x @ columns / dim, square, seen.output[-1] - target @ space.unembedding, seen.loss

    with jax.default_matmul_precision("highest"):
        return lax.map(member, (keys, roots), batch_size=group)


def _empty(cells: list[Size], seeds: int, batch: int, rank: int, out: int) -> xr.Dataset:
    shape = (len(cells), seeds)
    depth, width, dim = (np.array([c[i] for c in cells], int) for i in range(3))
    return xr.Dataset(
        {
            "gap": (("cell", "seed", "batch", "reduced"), np.full((*shape, batch, rank), np.nan)),
            "square": (("cell", "seed"), np.full(shape, np.nan)),
            "output_gap": (("cell", "seed", "batch", "out"), np.full((*shape, batch, out), np.nan)),
            "diverged_at": (("cell", "seed"), np.full(shape, -1, np.int32)),
            "done": (("cell",), np.zeros(len(cells), bool)),
        },
        coords={"depth": ("cell", depth), "width": ("cell", width), "dim": ("cell", dim)},
    )
