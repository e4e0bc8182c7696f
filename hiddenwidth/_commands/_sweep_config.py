"""Options of `hiddenwidth sweep`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from .._choices import positive_float, positive_int
from ._options import RateOptions

#: Embedding dimension of each problem unless the user says otherwise.
DIMS = {"sine": 16, "gaussian": 32, "digits": 32}


@dataclasses.dataclass(frozen=True)
class SweepConfig(RateOptions):
    """Train networks over a grid of depth, width, embedding dimension and alpha, into a folder that keeps each cell; the same command continues it.

    Example: hiddenwidth sweep --depths 8 16 32 --widths 1 2 4 --dims 16 64 --seeds 64 --out results/sweep
    """

    depths: tuple[int, ...] = (8, 16, 32, 64)
    """Depths L of the grid."""
    widths: tuple[int, ...] = (1, 2, 4, 8)
    """Widths M of the grid."""
    dims: tuple[int, ...] | None = None
    """Embedding dimensions D of the grid, the data embedded anew at each (default: --dim alone)."""
    alphas: tuple[float, ...] | None = None
    """Multipliers of the residual branch (default: 1 alone)."""
    seeds: int = 32
    """Independent initialisations in every cell."""
    out: Path = Path("results/sweep")
    """Folder of the cells. What is finished there is kept and not computed again."""
    cluster: str | None = None
    """Address of a Dask scheduler whose workers train the networks (needs the extra cluster), for example tcp://host:8786."""
    retries: int = 3
    """How often a cell is tried again when it fails on a worker or its worker is lost."""
    calibrate: bool = True
    """Time two small runs first and say what the sweep will cost."""
    estimate: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Say what every cell will cost, and stop."""
    overwrite: tyro.conf.Suppress[bool] = False

    def grid(self) -> dict[str, tuple | None]:
        """The axes as `sweep` takes them."""
        return {"depths": self.depths, "widths": self.widths, "dims": self.dims, "alphas": self.alphas}

    def check(self) -> None:
        """Complain before anything is computed."""
        self.check_run()
        for what, values in self.grid().items():
            if values is not None and not values:
                raise ValueError(f"{what}=() is empty; expected at least one.")
            for value in values or ():
                positive_float(what, value) if what == "alphas" else positive_int(what, value)
        positive_int("seeds", self.seeds)
        if self.dim is not None and self.dims is not None:
            raise ValueError(f"dim={self.dim} and dims={self.dims} were both given; expected one. Add {self.dim} to --dims if it belongs to the grid.")
        if self.estimate and not self.calibrate:
            raise ValueError("estimate=True needs the timed runs that --no-calibrate leaves out; give one of the two.")
