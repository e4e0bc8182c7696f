"""How the seeds of an ensemble are laid out in memory: the one place where that is chosen, by shape. All layouts train the same networks, to rounding."""

from typing import Any, Literal

import jax

from ._columns import MANY
from ._lanes import FEW_BATCH, FEW_DIM, LANES
from ._two_layer import TwoLayer

#: Bytes of a core's own cache that a layer of all seeds abreast should fit into.
CACHE = 5e5

Layout = Literal["rows", "columns", "lanes"]


def choose_layout(unit: Any, width: int, dim: int, batch: int, seeds: int) -> Layout:
    """The fastest of those measured on a CPU (`python -m benchmarks speed.step`); any other unit, and accelerators, train as they are written: rows."""
    if not isinstance(unit, TwoLayer) or unit.inner is not None or jax.default_backend() != "cpu":
        return "rows"
    if width == 1 and dim <= FEW_DIM and batch <= FEW_BATCH and seeds >= LANES:
        return "lanes"
    return "columns" if width >= MANY else "rows"


def fastest_abreast(scalars: int, width: int, dim: int, batch: int, itemsize: int) -> int:
    """Seeds that are trained abreast for speed: as many as keep one layer's weights (`scalars` of each), states and activations in a core's cache."""
    layer = itemsize * (scalars + 2 * batch * (dim + width))
    return max(1, int(CACHE / layer))
