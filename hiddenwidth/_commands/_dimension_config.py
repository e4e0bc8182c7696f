"""Options of `hiddenwidth dimension`, and the sizes that each problem is run with."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro

from .. import problems
from .._choices import positive_int
from .._dimension_laws import LEAST_PRODUCT
from .._problem import Problem
from .._rates import MIN_SEEDS
from .._scaling import Scaling, mlu
from .._two_layer import TwoLayer
from ._options import RunOptions

ProblemName = Literal["sine", "gaussian"]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a problem is run with unless the user says otherwise; `loads` are the ratios LM/D of the networks that the law is fitted to."""

    steps: int
    dims: tuple[int, ...]
    depths: tuple[int, ...]
    seeds: int
    limit_dims: tuple[int, ...]
    draws: int
    log2_points: int
    replicates: int
    depth_log2_points: int
    joint_seeds: int
    joint_dims: tuple[int, ...]
    loads: tuple[int, ...] = (4, 8, 16)

    def cells(self) -> list[tuple[int, int, int]]:
        """(L, M, D) of the networks that the exponents in D are fitted to: the same ratios LM/D at every D."""
        return sorted({(depth, max(1, load * dim // depth), dim) for dim in self.dims for depth in self.depths for load in self.loads})

    def joint_shapes(self) -> list[tuple[int, int, int]]:
        """(L, M, D) of the networks that the joint law is tested on."""
        return sorted({(depth, max(1, load * dim // depth), dim) for dim in self.joint_dims for depth, load in ((4, 16), (16, 8), (32, 32))})


POWERS = tuple(2**k for k in range(4, 13))
SIZES = {
    ("sine", False): Sizes(10, (8, 16, 32, 64, 128), (8, 16, 32), 192, POWERS, 256, 13, 6, 10, 96, (32, 64, 128)),
    ("sine", True): Sizes(10, (8, 16, 32, 64), (8, 16), 160, POWERS[:7], 64, 12, 4, 9, 32, (32, 64), (4, 16)),
    ("gaussian", False): Sizes(10, (16, 32, 64, 128), (8, 16, 32), 96, POWERS[2:], 32, 12, 6, 9, 48, (32, 64, 128)),
    ("gaussian", True): Sizes(10, (16, 32, 64), (8, 16), 48, POWERS[2:7], 16, 10, 4, 8, 16, (32, 64), (4, 16)),
}


@dataclasses.dataclass(frozen=True)
class DimensionConfig(RunOptions):
    """Measure how errors depend on the embedding dimension D, and the joint law 1/L + sqrt(D/(LM)) + 1/sqrt(D).

    Writes dimension.json, dimension.nc and dimension.png into OUT. Example: hiddenwidth dimension --out results/dimension
    """

    problem: ProblemName = "sine"
    """1-d regression; independent Gaussian inputs and targets."""
    dims: tuple[int, ...] | None = None
    """Embedding dimensions D of the networks."""
    depths: tuple[int, ...] | None = None
    """Depths L of the networks; widths follow from LM/D = 4 to 16."""
    seeds: int | None = None
    """Independent initialisations of every shape."""
    limit_dims: tuple[int, ...] | None = None
    """Embedding dimensions at which Mean ODEs are compared, at least 3."""
    draws: int | None = None
    """Embeddings of the Mean ODE at every D, an even number: they come in antithetic pairs."""
    steps: int | None = None
    """Gradient steps k; taken back to the stability horizon of the limit."""
    learning_rate: float = 1.0
    """Normalised learning rate, of order one at every shape."""
    activation: Literal["tanh", "erf", "gelu", "softplus", "linear"] = "tanh"
    """Activation of the units."""
    out: Path = Path("results/dimension")
    """Directory for the record."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Fewer and smaller networks, within 60 s on 2 cores."""

    def sizes(self) -> Sizes:
        """The preset of the problem with what the user gave instead."""
        names = ("dims", "depths", "seeds", "limit_dims", "draws", "steps")
        return dataclasses.replace(SIZES[self.problem, self.quick], **{k: getattr(self, k) for k in names if getattr(self, k) is not None})

    def make(self) -> tuple[Problem, TwoLayer, Scaling]:
        """Problem at D = infinity, unit, scaling."""
        key = jax.random.key(self.seed)
        problem = problems.sine(dim=math.inf) if self.problem == "sine" else problems.gaussian(dim=math.inf, key=key)
        return problem, TwoLayer(self.activation), mlu(self.learning_rate)


def check(config: DimensionConfig, sizes: Sizes) -> None:
    """Complain before anything is computed."""
    config.check_run()
    for what, least in (("dims", 2), ("depths", 1), ("limit_dims", 3)):
        values = {positive_int(what, x) for x in getattr(sizes, what)}
        if len(values) < least:
            raise ValueError(f"{what}={getattr(sizes, what)} is too few; expected at least {least}.")
    positive_int("steps", sizes.steps)
    if positive_int("seeds", sizes.seeds) < MIN_SEEDS:
        raise ValueError(f"seeds={sizes.seeds} is too few for an interval; expected at least {MIN_SEEDS}.")
    if positive_int("draws", sizes.draws) < 2 * MIN_SEEDS or sizes.draws % 2:
        raise ValueError(f"draws={sizes.draws} is too few or odd; expected an even number of at least {2 * MIN_SEEDS}, as draws come in antithetic pairs.")
    if not any(depth * width >= LEAST_PRODUCT * dim for depth, width, dim in sizes.cells()):
        raise ValueError(f"depths={sizes.depths} leave no shape with LM >= {LEAST_PRODUCT:g} D.")
