"""Options of `hiddenwidth horizon`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from .._choices import positive_float, positive_int
from .._rates import MIN_SEEDS
from ._options import ProblemOptions

#: Steps at which laws are fitted, and the horizon itself besides.
RECORDED = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What the command runs unless the user says otherwise."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    seeds: tuple[int, ...]  # one for each width, or one for all
    log2_points: int
    reference_depths: tuple[int, ...]
    dims: tuple[int, ...]
    draws: int
    recorded: tuple[int, ...]
    depth_log2_points: int

    def seeds_by_width(self) -> dict[int, int]:
        """Members of the cells of every width."""
        return dict(zip(self.widths, self.seeds * len(self.widths) if len(self.seeds) == 1 else self.seeds, strict=True))


DEFAULT = Sizes((8, 32, 128, 1024), (1, 4, 16), (1024, 256, 384), 12, (32, 64, 128, 256, 512), (1024, 2048, 4096, 8192, 16384, 32768, 65536), 24, RECORDED, 9)
QUICK = Sizes((16, 32, 64), (2, 4), (48,), 10, (16, 32, 64, 128), (1024, 4096, 16384, 65536), 8, (1, 4, 16, 40, 64), 7)


@dataclasses.dataclass(frozen=True)
class HorizonConfig(ProblemOptions):
    """Measure how the constants of the error law grow with the number of steps, and where the limit itself loses its stability.

    Writes horizon.json, horizon.nc and horizon.png into OUT. Example: hiddenwidth horizon --learning-rates 0.25 1 --out results/horizon
    """

    dim: int = 16
    """Embedding dimension D of the networks."""
    steps: int = 64
    """Gradient steps k."""
    learning_rates: tuple[float, ...] = (0.5, 1.0)
    """Normalised learning rates."""
    depths: tuple[int, ...] | None = None
    """Depths L of the networks."""
    widths: tuple[int, ...] | None = None
    """Widths M of the networks."""
    seeds: tuple[int, ...] | None = None
    """Independent initialisations in every cell: one number, or one for each of the widths."""
    dims: tuple[int, ...] | None = None
    """Embedding dimensions at which the limit is compared with D = infinity."""
    out: Path = Path("results/horizon")
    """Directory for the record."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A smaller grid at fewer steps, within 60 s on 2 cores."""

    def sizes(self) -> Sizes:
        """The preset with what the user gave instead."""
        given = {k: getattr(self, k) for k in ("depths", "widths", "seeds", "dims") if getattr(self, k) is not None}
        return dataclasses.replace(QUICK if self.quick else DEFAULT, **given)


def check(config: HorizonConfig, sizes: Sizes) -> None:
    """Complain before anything is computed."""
    config.check_run()
    if config.law != "gaussian":
        raise ValueError(f"law={config.law!r} has no limit at D = infinity (no reduced coordinates), which the law in D needs; expected law='gaussian'.")
    for what in ("depths", "widths", "dims"):
        values = getattr(sizes, what)
        if not values:
            raise ValueError(f"{what}=() is empty; expected at least one.")
        for value in values:
            positive_int(what, value)
    if len(set(sizes.dims)) < 3:
        raise ValueError(f"dims={sizes.dims} is too few for an exponent; expected at least 3.")
    if not config.learning_rates or len(set(config.learning_rates)) < len(config.learning_rates):
        raise ValueError(f"learning_rates={config.learning_rates} is not possible; expected at least one, each once.")
    for rate in config.learning_rates:
        positive_float("learning_rates", rate)
    if len(sizes.seeds) not in (1, len(sizes.widths)):
        raise ValueError(f"seeds={sizes.seeds} does not go with widths={sizes.widths}; expected one number, or one for each width.")
    for number in sizes.seeds:
        if positive_int("seeds", number) < MIN_SEEDS:
            raise ValueError(f"seeds={number} is too few for an interval; expected at least {MIN_SEEDS}.")
