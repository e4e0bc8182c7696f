"""Options of `hiddenwidth shape`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .._choices import positive_float, positive_int
from .._rates import MIN_SEEDS
from ._dimension_config import DimensionConfig, ProblemName


@dataclasses.dataclass(frozen=True)
class ShapeConfig:
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
    seed: int = 0
    """Seed of embeddings and initialisations."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks; limits are always float64."""
    memory: float = 2e9
    """Bytes for weights and saved states of the networks trained at once."""
    out: Path = Path("results/shape")
    """Directory for the record."""
    overwrite: bool = False
    """Write into a directory that is not empty."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Fewer networks, within 60 s on 2 cores."""
    progress: bool = True
    """Show progress bars."""

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
    if not 0 <= config.seed < 2**32:
        raise ValueError(f"seed={config.seed} is not possible; expected a whole number from 0 to {2**32 - 1}.")
    positive_float("memory", config.memory)
    positive_float("max_check_params", config.max_check_params)
    if positive_int("seeds", config.check_seeds()) < MIN_SEEDS:
        raise ValueError(f"seeds={config.seeds} is too few for an interval; expected at least {MIN_SEEDS}.")
