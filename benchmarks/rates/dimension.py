"""Finite D: exponents +1/2 (fluctuation) and -1/2 (limit), and the joint law 1/L + sqrt(D/(LM)) + 1/sqrt(D) on networks.

`hiddenwidth dimension` on one-dimensional regression at its default size (about 3 minutes on 2 cores).
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import dimension


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; record and figure in OUT."""
    return _slim.run_command(dimension.run, dimension.DimensionConfig(out=out, overwrite=True, quick=quick), "dimension")
