"""Options of `scaffold analyse`."""

import dataclasses
from pathlib import Path
from typing import Literal

from hiddenwidth._choices import positive_float, positive_int

from .._analyse import DEFAULT_FAMILIES, LEAST_GAIN
from .._families import Family


@dataclasses.dataclass(frozen=True)
class AnalyseConfig:
    """Train a residual network, then look for first-order descent directions of a new block at every site."""

    data: Literal["digits", "teacher"] = "digits"
    """Handwritten digits (classes), or a random residual teacher with noise (regression)."""
    sites: tuple[str, ...] = ("all",)
    """Where blocks are inserted: names such as stream:0 or pre_norm_sum:1, or all."""
    family: tuple[Family, ...] = DEFAULT_FAMILIES
    """Families of blocks."""
    train_samples: int = 1000
    """Samples that train the network; digits has 1797, of which the others are held out."""
    held_out_samples: int = 4000
    """Samples of the teacher that are held out (--data teacher)."""
    depth: int = 3
    """Layers L of the network."""
    dim: int = 16
    """Width d of its stream."""
    hidden: int = 32
    """Hidden width m of its layers."""
    order: Literal["pre", "post"] = "pre"
    """Normalise what layers read (pre), or their sum with the stream (post)."""
    norm: Literal["rms", "layer", "clamp"] = "rms"
    """Normaliser of the network and of the new blocks."""
    activation: Literal["gelu", "tanh", "relu", "silu"] = "gelu"
    """Of the network and of the new blocks. With relu predictions are of first order only between kinks."""
    epochs: int = 10
    """Passes of training (Adam, cosine schedule)."""
    learning_rate: float = 3e-3
    """First learning rate of the training."""
    new_hidden: int = 32
    """Hidden width of the new blocks."""
    least_gain: float = LEAST_GAIN
    """The gain worth having, as a share of the risk: declared before looking, it sets eta."""
    delta: float = 0.05
    """Error level that all bounds share."""
    seed: int = 0
    """Seed of data, initialisation and all choices."""
    out: Path = Path("results/analyse")
    """Directory for analyse.json, analyse.nc and analyse.png."""
    quick: bool = False
    """Depth 1, and the families bias and linear: a look at the report in half a minute."""
    overwrite: bool = False
    """Write into a directory that is not empty."""
    progress: bool = True
    """Show progress bars."""

    def check(self) -> None:
        """Complain before anything is computed."""
        for name in ("train_samples", "held_out_samples", "depth", "dim", "hidden", "epochs", "new_hidden"):
            positive_int(name, getattr(self, name))
        for name in ("learning_rate", "least_gain"):
            positive_float(name, getattr(self, name))
        if not 0 < self.delta < 1:
            raise ValueError(f"delta={self.delta!r} is not possible; expected a probability between 0 and 1.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} is not possible; expected a whole number from 0 to {2**32 - 1}.")
        if not self.family:
            raise ValueError("family=() is empty; expected at least one, such as linear.")
        for family in self.family:
            if family in ("conv", "attention"):
                raise ValueError(f"family={family!r} needs pixels or tokens and --data {self.data} has vectors; leave it out.")

    @property
    def layers(self) -> int:
        """Depth of this run."""
        return 1 if self.quick else self.depth

    @property
    def families(self) -> tuple[Family, ...]:
        """Families of this run."""
        return ("bias", "linear") if self.quick else self.family
