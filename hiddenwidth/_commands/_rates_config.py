"""Options of `hiddenwidth rates`, and the sizes that each problem is run with."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from .._choices import positive_int
from .._rates import MIN_SEEDS
from ._options import RateOptions


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a problem is run with unless the user says otherwise."""

    dim: int
    steps: int
    seeds: int
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    log2_points: int
    replicates: int
    depth_log2_points: int


SIZES = {
    ("sine", False): Sizes(16, 10, 1536, (8, 16, 32, 64, 128), (1, 2, 4, 8, 16), 15, 6, 11),
    ("sine", True): Sizes(16, 10, 256, (8, 16, 32, 64), (1, 2, 4, 8), 13, 4, 10),
    ("gaussian", False): Sizes(32, 14, 512, (8, 16, 32, 64, 128), (2, 4, 8, 16), 13, 6, 12),
    ("gaussian", True): Sizes(32, 14, 96, (8, 16, 32, 64), (2, 4, 8, 16), 12, 4, 9),
    ("digits", False): Sizes(32, 9, 96, (8, 16, 32, 64), (2, 4, 8, 16), 11, 4, 8),
    ("digits", True): Sizes(32, 9, 16, (8, 16, 32), (2, 4, 8), 10, 4, 7),
}


@dataclasses.dataclass(frozen=True)
class RatesConfig(RateOptions):
    """Measure a/L, b sqrt(D/(LM)) and c/(LM): networks against the Neural Mean ODE of their training.

    Writes rates.json, rates.nc and rates.png into OUT. Example: hiddenwidth rates --problem sine --out results/sine
    """

    depths: tuple[int, ...] | None = None
    """Depths L of the grid."""
    widths: tuple[int, ...] | None = None
    """Widths M of the grid."""
    seeds: int | None = None
    """Independent initialisations in every cell."""
    out: Path = Path("results/rates")
    """Directory for the record."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A smaller grid with a coarser reference, within 60 s on 2 cores."""

    def sizes(self) -> Sizes:
        """The preset of the problem with what the user gave instead."""
        preset = SIZES[self.problem, self.quick]
        given = {k: getattr(self, k) for k in ("dim", "steps", "seeds", "depths", "widths") if getattr(self, k) is not None}
        return dataclasses.replace(preset, **given)


def check(config: RatesConfig, sizes: Sizes) -> None:
    """Complain before anything is computed."""
    config.check_run()
    for what in ("depths", "widths"):
        values = getattr(sizes, what)
        if not values:
            raise ValueError(f"{what}=() is empty; expected at least one.")
        for value in values:
            positive_int(what, value)
    if positive_int("seeds", sizes.seeds) < MIN_SEEDS:
        raise ValueError(f"seeds={sizes.seeds} is too few for an interval; expected at least {MIN_SEEDS}.")
