"""Options of `hiddenwidth shape`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from .._choices import positive_float, positive_int
from .._rates import MIN_SEEDS
from ._dimension_config import DimensionConfig, ProblemName
from ._options import RunOptions


@dataclasses.dataclass(frozen=True)
class ShapeConfig(RunOptions):
    """The best depth, width and dimension for a budget of parameters, and networks that show it.

    Writes shape.json, shape.nc and shape.png into OUT. Example: hiddenwidth shape --params 1e6 --out results/shape
    """

    params: float = 1e6
    """Parameters of units and embeddings."""
    slack: float = 0.05
    """How far above the least error the shape may be for the sake of being shallow; 0 asks for the least error at any depth."""
    max_depth: int | None = None
    """Deepest network that is acceptable."""
    law: Path | None = None
    """Directory of a record of `hiddenwidth dimension` with the constants (default: measure them first, as `dimension --quick` does)."""
    problem: ProblemName = "sine"
    """1-d regression; independent Gaussian inputs and targets. Not used with --law, whose record names it."""
    steps: int | None = None
    """Gradient steps k. Not used with --law."""
    learning_rate: float = 1.0
    """Normalised learning rate. Not used with --law."""
    check: bool = True
    """Train networks at the chosen shape, its neighbours, all depth and all width."""
    max_check_params: float = 3e6
    """Budgets above this are not trained for the check."""
    seeds: int | None = None
    """Networks of every shape in the check."""
    out: Path = Path("results/shape")
    """Directory for the record."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Fewer networks, within 60 s on 2 cores."""

    def check_seeds(self) -> int:
        """Networks of every shape in the check."""
        return (16 if self.quick else 96) if self.seeds is None else self.seeds

    def measurement(self, recorded: dict | None) -> DimensionConfig:
        """The run of `hiddenwidth dimension` that gives the constants, or the one that gave them."""
        names = ("problem", "steps", "learning_rate") if recorded is None else ("problem", "steps", "learning_rate", "activation")
        source = {k: getattr(self, k) for k in names} if recorded is None else {k: recorded[k] for k in names}
        seed = self.seed if recorded is None else recorded["seed"]
        fewer = 64 if self.quick else None
        return DimensionConfig(**source, seeds=fewer, seed=seed, dtype=self.dtype, memory=self.memory, quick=True, progress=self.progress)


def check(config: ShapeConfig) -> None:
    """Complain before anything is computed."""
    config.check_run()
    positive_float("max_check_params", config.max_check_params)
    if positive_int("seeds", config.check_seeds()) < MIN_SEEDS:
        raise ValueError(f"seeds={config.seeds} is too few for an interval; expected at least {MIN_SEEDS}.")
