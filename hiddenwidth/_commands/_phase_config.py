"""Options of `hiddenwidth phase`, and the shapes that it is run with."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro

from .. import problems
from .._choices import positive_float, positive_int
from .._phase import check_reach, check_shapes
from .._phase_fit import MIN_SEEDS
from .._problem import Problem
from ._options import RunOptions

Shapes = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class PhaseSizes:
    """What the command is run with unless the user says otherwise."""

    shapes: Shapes
    tuned_shapes: Shapes
    seeds: int
    tuned_seeds: int
    rates_per_octave: int
    reach: float


#: Depth, width and dimension vary apart from each other, with LM/D from 32 to 1024; some shapes have M = D.
FULL = PhaseSizes(
    shapes=(
        (16, 16, 8), (64, 8, 8), (16, 64, 8), (128, 16, 8), (256, 8, 8), (32, 128, 8), (128, 64, 8),
        (16, 64, 32), (128, 8, 32), (32, 64, 32), (128, 32, 32), (256, 16, 32), (64, 128, 32),
        (32, 128, 128), (128, 32, 128), (64, 64, 128), (64, 128, 128), (128, 64, 128),
    ),
    tuned_shapes=(
        (64, 8, 8), (16, 64, 8), (128, 16, 8), (256, 8, 8), (16, 256, 8), (128, 64, 8), (128, 128, 8),
        (16, 64, 32), (128, 8, 32), (64, 64, 32), (256, 16, 32), (64, 64, 128),
    ),
    seeds=12, tuned_seeds=2, rates_per_octave=4, reach=8.0,
)  # fmt: skip
QUICK = PhaseSizes(
    shapes=(
        (16, 16, 8), (64, 8, 8), (16, 64, 8), (128, 16, 8), (16, 64, 32), (128, 8, 32), (64, 32, 32), (32, 64, 32), (32, 64, 64), (128, 16, 64),
    ),
    tuned_shapes=((64, 8, 8), (16, 64, 8), (128, 16, 8), (16, 64, 32), (128, 8, 32), (64, 16, 32)),
    seeds=12, tuned_seeds=2, rates_per_octave=2, reach=4.0,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PhaseConfig(RunOptions):
    """Measure the phase diagram of Theorem 3: local updates, fluctuation and loss over residual scale and L, M, D, with both boundaries fitted.

    Writes phase.json, phase.nc and phase.png into OUT. Example: hiddenwidth phase --out results/phase
    """

    problem: Literal["sine", "gaussian", "digits"] = "sine"
    """1-d regression; independent Gaussian inputs and targets, three of each; real handwritten digits, 3 against 8."""
    shapes: Shapes | None = None
    """Shapes as triples: depth L, width M, dimension D, one after the other."""
    tuned_shapes: Shapes | None = None
    """Shapes at which the learning rates are tuned."""
    tuned: bool = True
    """Tune the learning rates at every residual scale."""
    seeds: int | None = None
    """Independent initialisations at the largest D; smaller D get more, so that seeds times D is the same."""
    tuned_seeds: int | None = None
    """Independent initialisations of every pair of tuned rates."""
    rates_per_octave: int | None = None
    """Tuned rates of u a factor of two."""
    steps: int = 7
    """Gradient steps k."""
    learning_rate: float = 1.0
    """Normalised learning rate eta of the rule eta_v = eta, eta_u = eta / max(1, rho)^2."""
    per_octave: int = 2
    """Residual scales a factor of two."""
    reach: float | None = None
    """The ladder of residual scales ends at this many times sqrt(LM/D)."""
    embedding: Literal["orthogonal", "gaussian"] = "orthogonal"
    """Embeddings with exactly the limiting Gram matrix, or random ones, which let D act through the draw as well."""
    out: Path = Path("results/phase")
    """Directory for the record."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Fewer and smaller shapes, within 60 s on 2 cores."""

    def sizes(self) -> PhaseSizes:
        """The preset with what the user gave instead."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(PhaseSizes) if getattr(self, f.name) is not None}
        return dataclasses.replace(QUICK if self.quick else FULL, **given)

    def make_problem(self) -> Problem:
        """The chosen data; they are embedded at the dimension of every shape."""
        if self.problem == "digits":
            return problems.digits(dim=float("inf"))
        if self.problem == "gaussian":
            return problems.gaussian(d_in=3, d_out=3, dim=float("inf"), key=jax.random.key(self.seed))
        return problems.sine(dim=float("inf"))


def check(config: PhaseConfig, sizes: PhaseSizes) -> None:
    """Complain before anything is computed."""
    config.check_run()
    check_shapes(sizes.shapes)
    if config.tuned:
        check_shapes(sizes.tuned_shapes, "tuned_shapes")
        positive_int("tuned_seeds", sizes.tuned_seeds)
        positive_int("rates_per_octave", sizes.rates_per_octave)
    if positive_int("seeds", sizes.seeds) < MIN_SEEDS:
        raise ValueError(f"seeds={sizes.seeds} is too few for an interval; expected at least {MIN_SEEDS}.")
    positive_int("steps", config.steps)
    positive_int("per_octave", config.per_octave)
    check_reach(sizes.reach)
    positive_float("learning_rate", config.learning_rate)
