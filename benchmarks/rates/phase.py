"""Theorem 3: the phase diagram, both boundaries as powers of L, M and D, rates derived and tuned.

The run of `hiddenwidth phase` at its default size (about 4 minutes on 2 cores).
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import phase


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; the record is in OUT."""
    return _slim.run_command(phase.run, phase.PhaseConfig(out=out, overwrite=True, quick=quick), "phase")
