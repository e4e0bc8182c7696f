"""Options of `hiddenwidth lazy`."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .._choices import positive_float
from ._options import RateOptions


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What the command runs unless the user says otherwise."""

    dim: int
    steps: int
    shapes: tuple[str, ...]
    seeds: tuple[int, ...]
    alphas: tuple[float, ...]
    log2_points: int
    replicates: int
    depth_log2_points: int


#: 0.5 to 32, two to the octave.
ALPHAS = tuple(round(2 ** (i / 2), 4) for i in range(-2, 11))
LARGE = ("16x128", "32x64", "128x16", "32x512", "64x256", "256x64", "128x1024", "256x2048")
SMALL = ("16x64", "64x16", "32x256", "64x512")
SIZES = {
    ("sine", False): Sizes(4, 5, LARGE, (1024, 1024, 1024, 384, 384, 384, 96, 16), ALPHAS, 12, 4, 8),
    ("sine", True): Sizes(4, 5, SMALL, (96, 96, 32, 16), ALPHAS[1:], 10, 3, 6),
    ("gaussian", False): Sizes(12, 5, LARGE[:-1], (192, 192, 192, 64, 64, 64, 12), ALPHAS, 12, 4, 8),
    ("gaussian", True): Sizes(12, 5, SMALL[:-1], (48, 48, 16), ALPHAS[1:], 9, 3, 7),
    ("digits", False): Sizes(8, 5, ("16x32", "32x16", "32x64", "64x128"), (32, 32, 16, 12), ALPHAS[::2], 10, 3, 7),
    ("digits", True): Sizes(8, 3, ("8x16", "16x16", "16x64"), (12, 12, 8), ALPHAS[1:9:2], 8, 2, 6),
}

#: Alphas at which Mean ODE(alpha) is compared with the tangent ODE beyond those of the networks: no networks are trained there.
LADDER = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclasses.dataclass(frozen=True)
class LazyConfig(RateOptions):
    """Measure 1/alpha, 1/L and alpha sqrt(D/(LM)): networks against the tangent ODE, the best alpha, and which limit they approach.

    Writes lazy.json, lazy.nc and lazy.png into OUT. Example: hiddenwidth lazy --activation tanh --out results/lazy-tanh
    """

    activation: Literal["tanh", "erf", "relu", "gelu", "softplus", "linear"] = "erf"
    """Activation of the units."""
    embedding: Literal["gaussian", "orthogonal"] = "orthogonal"
    """Random embeddings, or orthogonalised ones with exactly the limiting Gram matrix."""
    shapes: tuple[str, ...] | None = None
    """Depth x width of the networks, for example 64x256 128x1024."""
    alphas: tuple[float, ...] | None = None
    """Multipliers of the residual branch."""
    seeds: tuple[int, ...] | None = None
    """Independent initialisations: one number for all shapes, or one for each."""
    out: Path = Path("results/lazy")
    """Directory for the record."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Fewer and smaller networks, within 60 s on 2 cores."""

    def sizes(self) -> Sizes:
        """The preset with what the user gave instead."""
        preset = SIZES[self.problem, self.quick]
        given = {k: getattr(self, k) for k in ("dim", "steps", "shapes", "seeds", "alphas") if getattr(self, k) is not None}
        if self.shapes is not None and self.seeds is None:
            given["seeds"] = (32,)
        sizes = dataclasses.replace(preset, **given)
        return dataclasses.replace(sizes, seeds=sizes.seeds * len(sizes.shapes)) if len(sizes.seeds) == 1 else sizes


def check(config: LazyConfig, sizes: Sizes, min_seeds: int) -> list[tuple[int, int]]:
    """Complain before anything is computed; returns the shapes."""
    config.check_run()
    shapes = []
    if not sizes.shapes:
        raise ValueError("shapes=() is empty; expected at least one, for example 64x256.")
    for shape in sizes.shapes:
        found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", shape)
        if not found:
            raise ValueError(f"shapes={shape!r} is not possible; expected DEPTHxWIDTH with whole numbers of at least 1, for example 64x256.")
        shapes.append((int(found[1]), int(found[2])))
    if len(set(shapes)) < len(shapes):
        raise ValueError(f"shapes={sizes.shapes!r} names a shape twice; expected each once.")
    if not sizes.alphas:
        raise ValueError("alphas=() is empty; expected at least one.")
    for alpha in sizes.alphas:
        positive_float("alphas", alpha)
    if len(sizes.seeds) != len(shapes):
        raise ValueError(f"seeds={sizes.seeds!r} gives {len(sizes.seeds)} numbers for {len(shapes)} shapes; expected one, or one for each.")
    for number in sizes.seeds:
        if number < min_seeds:
            raise ValueError(f"seeds={number} is too few for an interval; expected at least {min_seeds}.")
    return shapes
