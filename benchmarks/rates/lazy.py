"""Theorem 2: A(alpha), a/L and b alpha sqrt(D/(LM)) apart, the best alpha, and which limit networks approach.

The default run of `hiddenwidth lazy`.
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import lazy


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; its record is in OUT."""
    return _slim.run_command(lazy.run, lazy.LazyConfig(out=out, overwrite=True, quick=quick), "lazy")
