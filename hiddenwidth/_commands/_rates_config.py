"""Options of `hiddenwidth rates`, and the sizes that each problem is run with."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from .. import problems
from .._choices import positive_int
from .._problem import Problem
from .._rates import MIN_SEEDS


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
class RatesConfig:
    """Measure a/L, b sqrt(D/(LM)) and c/(LM): networks against the Neural Mean ODE of their training.

    Writes rates.json, rates.nc and rates.png into OUT. Example: hiddenwidth rates --problem sine --out results/sine
    """

    problem: Literal["sine", "gaussian", "digits"] = "sine"
    """1-d regression; independent Gaussian inputs and targets; real handwritten digits."""
    depths: tuple[int, ...] | None = None
    """Depths L of the grid."""
    widths: tuple[int, ...] | None = None
    """Widths M of the grid."""
    dim: int | None = None
    """Embedding dimension D."""
    seeds: int | None = None
    """Independent initialisations in every cell."""
    steps: int | None = None
    """Gradient steps k."""
    learning_rate: float = 1.0
    """Normalised learning rate, of order one at every shape."""
    learning_rate_u: float | None = None
    """The rate of the reading weights u alone."""
    learning_rate_v: float | None = None
    """The rate of the writing weights v alone."""
    activation: Literal["tanh", "erf", "relu", "gelu", "softplus", "linear"] = "tanh"
    """Activation of the units."""
    law: Literal["gaussian", "skewed"] = "gaussian"
    """Initial law of the writing weights; skewed has no reduced coordinates, so its reference is less exact."""
    loss: Literal["squared", "logistic", "softmax"] = "squared"
    """Loss; logistic and softmax need class labels (--problem digits)."""
    embedding: Literal["gaussian", "orthogonal"] = "gaussian"
    """Random embeddings, or orthogonalised ones with exactly the limiting Gram matrix."""
    classes: tuple[int, ...] = (3, 8)
    """Digits to tell apart (--problem digits)."""
    components: int = 4
    """Principal components of the images (--problem digits)."""
    seed: int = 0
    """Seed of embeddings and initialisations."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks; references are always float64."""
    memory: float = 2e9
    """Bytes for weights and saved states of the networks trained at once."""
    out: Path = Path("results/rates")
    """Directory for the record."""
    overwrite: bool = False
    """Write into a directory that is not empty."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A smaller grid with a coarser reference, within 60 s on 2 cores."""
    progress: bool = True
    """Show progress bars."""

    def sizes(self) -> Sizes:
        """The preset of the problem with what the user gave instead."""
        preset = SIZES[self.problem, self.quick]
        given = {k: getattr(self, k) for k in ("dim", "steps", "seeds", "depths", "widths") if getattr(self, k) is not None}
        return dataclasses.replace(preset, **given)

    def make_problem(self, dim: int) -> Problem:
        """The chosen problem, embedded."""
        common: dict[str, Any] = {"dim": dim, "key": jax.random.fold_in(jax.random.key(self.seed), 0), "embedding": self.embedding, "loss": self.loss}
        if self.problem == "digits":
            return problems.digits(self.classes, components=self.components, **common)
        if self.loss != "squared":
            raise ValueError(f"loss={self.loss!r} needs class labels and problem={self.problem!r} has none; use --problem digits or --loss squared.")
        return problems.sine(**common) if self.problem == "sine" else problems.gaussian(**common)


def check(config: RatesConfig, sizes: Sizes) -> None:
    """Complain before anything is computed."""
    if not 0 <= config.seed < 2**32:
        raise ValueError(f"seed={config.seed} is not possible; expected a whole number from 0 to {2**32 - 1}.")
    for what in ("depths", "widths"):
        values = getattr(sizes, what)
        if not values:
            raise ValueError(f"{what}=() is empty; expected at least one.")
        for value in values:
            positive_int(what, value)
    positive_int("steps", sizes.steps)
    if positive_int("seeds", sizes.seeds) < MIN_SEEDS:
        raise ValueError(f"seeds={sizes.seeds} is too few for an interval; expected at least {MIN_SEEDS}.")
