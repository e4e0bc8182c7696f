"""Options that the commands share: the problem, the units, the rates, where to write."""

import dataclasses
from typing import Any, Literal

import jax

from .. import problems
from .._choices import positive_float, positive_int
from .._problem import Problem


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a run is made."""

    seed: int = 0
    """Seed of embeddings and initialisations."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the networks; references are always float64."""
    memory: float = 2e9
    """Bytes for weights and saved states of the networks trained at once."""
    overwrite: bool = False
    """Write into a directory that is not empty."""
    progress: bool = True
    """Show progress bars."""

    def check_run(self) -> None:
        """Complain about what every command shares."""
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} is not possible; expected a whole number from 0 to {2**32 - 1}.")
        positive_float("memory", self.memory)


@dataclasses.dataclass(frozen=True)
class ProblemOptions(RunOptions):
    """What is learnt, and by which units."""

    problem: Literal["sine", "gaussian", "digits"] = "sine"
    """1-d regression; independent Gaussian inputs and targets; real handwritten digits."""
    dim: int | None = None
    """Embedding dimension D."""
    steps: int | None = None
    """Gradient steps k."""
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

    def make_problem(self, dim: int | float) -> Problem:
        """The chosen problem, embedded."""
        common: dict[str, Any] = {"dim": dim, "key": jax.random.fold_in(jax.random.key(self.seed), 0), "embedding": self.embedding, "loss": self.loss}
        if self.problem == "digits":
            return problems.digits(self.classes, components=self.components, **common)
        if self.loss != "squared":
            raise ValueError(f"loss={self.loss!r} needs class labels and problem={self.problem!r} has none; use --problem digits or --loss squared.")
        return problems.sine(**common) if self.problem == "sine" else problems.gaussian(**common)

    def check_run(self) -> None:
        super().check_run()
        if self.steps is not None:
            positive_int("steps", self.steps)


@dataclasses.dataclass(frozen=True)
class RateOptions(ProblemOptions):
    """The same with learning rates."""

    learning_rate: float = 1.0
    """Normalised learning rate, of order one at every shape."""
    learning_rate_u: float | None = None
    """The rate of the reading weights u alone."""
    learning_rate_v: float | None = None
    """The rate of the writing weights v alone."""
