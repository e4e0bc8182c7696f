"""A grid of independent cells: which there are, what each yields, and how they are run. Knows nothing of networks.

A cell is a tuple of indices, one for each axis; `Layout.at` gives it names. Cells are run largest first, so that the last to finish are short, by an executor
(threads here, a cluster in `_cluster.py`), and each is handed to a sink as it finishes: a dataset in memory here, a folder in `_store.py`.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from ._parallel import each

Cell = tuple[int, ...]
Arrays = Mapping[str, Any]
#: What a job is: named coordinates of a cell -> its arrays.
Compute = Callable[[dict[str, Any]], Arrays]

#: Seconds between two looks at the cells that other processes are computing.
POLL = 0.5


class Field(NamedTuple):
    """One array that every cell yields, without the axes of the grid; `fill` stands where a cell is missing."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    fill: float


class Layout(NamedTuple):
    """Axes of the grid with their values, the arrays of a cell, and the coordinates of the arrays' own axes."""

    axes: dict[str, list]
    fields: dict[str, Field]
    coords: dict[str, list]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def cells(self) -> list[Cell]:
        """All cells."""
        return list(itertools.product(*map(range, self.shape)))

    def at(self, cell: Cell) -> dict[str, Any]:
        """The coordinates of a cell by name."""
        return {name: values[i] for (name, values), i in zip(self.axes.items(), cell, strict=True)}

    def name(self, cell: Cell) -> str:
        """A cell as it is called in messages: `depth=8 width=2`."""
        return " ".join(f"{k}={v}" for k, v in self.at(cell).items())

    def cast(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The arrays of a cell as they are kept: its own types, padded with `fill` where it is smaller than the largest."""
        kept = {}
        for name, field in self.fields.items():
            value = np.asarray(arrays[name], field.dtype)
            if value.shape != field.shape:
                padding = [(0, whole - own) for whole, own in zip(field.shape, value.shape, strict=True)]
                value = np.pad(value, padding, constant_values=field.fill)
            kept[name] = value
        return kept

    def empty(self) -> xr.Dataset:
        """A dataset in which no cell is done."""
        data: dict[str, Any] = {
            name: ((*self.axes, *field.dims), np.full((*self.shape, *field.shape), field.fill, field.dtype)) for name, field in self.fields.items()
        }
        return xr.Dataset({**data, "done": (tuple(self.axes), np.zeros(self.shape, bool))}, coords={**self.axes, **self.coords})


@runtime_checkable
class Sink(Protocol):
    """Where finished cells go. Other processes may fill the same one."""

    def missing(self) -> list[Cell]:
        """Cells that nobody has finished."""
        ...

    def claim(self, cell: Cell) -> bool:
        """Take a cell for this process; False when it is finished or another process computes it. Called from any thread."""
        ...

    def put(self, cell: Cell, arrays: Arrays) -> None:
        """Keep a finished cell and give up the claim. Called from any thread."""
        ...


class Memory:
    """A sink in memory."""

    def __init__(self, layout: Layout):
        self.layout, self.runs = layout, layout.empty()

    def missing(self) -> list[Cell]:
        """Cells that are not done."""
        return [cell for cell in self.layout.cells if not self.runs["done"].values[cell]]

    def claim(self, cell: Cell) -> bool:
        """Nobody else is here."""
        return True

    def put(self, cell: Cell, arrays: Arrays) -> None:
        """Write into the dataset."""
        for name, value in {**self.layout.cast(arrays), "done": True}.items():
            self.runs[name].values[cell] = value


#: Runs the cells it can claim, in this order, and calls `done(cell, arrays)`, from any thread, as each finishes.
Executor = Callable[[Compute, Layout, Sequence[Cell], Callable[[Cell], bool], Callable[[Cell, Arrays], None]], None]


def on_threads(workers: int) -> Executor:
    """Cells on the cores of this machine."""

    def execute(compute: Compute, layout: Layout, cells: Sequence[Cell], claim: Callable[[Cell], bool], done: Callable[[Cell, Arrays], None]) -> None:
        def run(cell: Cell) -> None:
            if claim(cell):
                done(cell, compute(layout.at(cell)))  # kept before this thread begins another: a crash loses what runs and nothing else

        each(run, cells, lambda cell, nothing: None, workers=workers)

    return execute


def run_grid(layout: Layout, compute: Compute, sink: Sink, execute: Executor, *, cost: Callable[[dict[str, Any]], float], progress: bool = False) -> None:
    """Run every cell that the sink lacks.

    What other processes have claimed is left to them, and taken over when they end without having finished it. Ctrl-C and errors leave the finished cells in
    the sink.
    """
    costs = {cell: float(cost(layout.at(cell))) for cell in layout.cells}
    missing = sink.missing()
    with tqdm(total=len(costs), initial=len(costs) - len(missing), desc="networks", unit="cell", disable=not progress, leave=False) as bar:

        def done(cell: Cell, arrays: Arrays) -> None:
            sink.put(cell, arrays)
            bar.update()

        while missing:
            execute(compute, layout, _largest_first(missing, costs), sink.claim, done)
            left = sink.missing()
            if left and len(left) == len(missing):
                time.sleep(POLL)
            missing = left
            bar.update(len(costs) - len(missing) - bar.n)


def _largest_first(cells: Iterable[Cell], costs: Mapping[Cell, float]) -> list[Cell]:
    return sorted(cells, key=lambda cell: -costs[cell])
