"""Constants of the error law over the number of steps, to k = 64, and the step at which the limit loses its stability.

The default run of `hiddenwidth horizon`.
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import horizon


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; its record is in OUT."""
    return _slim.run_command(horizon.run, horizon.HorizonConfig(out=out, overwrite=True, quick=quick), "horizon")
