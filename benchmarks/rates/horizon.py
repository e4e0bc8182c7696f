"""Constants of the error law over the number of steps, to k = 64, and the step at which the limit loses its stability.

The default run of `hiddenwidth horizon` with more seeds: exponents of the spread of outputs and of the bias need them. About 12 minutes on 2 cores.
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import horizon

#: Members of the cells of widths 1, 4 and 16.
SEEDS = (3072, 1536, 1024)


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; its record is in OUT."""
    return _slim.run_command(horizon.run, horizon.HorizonConfig(out=out, overwrite=True, quick=quick, seeds=None if quick else SEEDS), "horizon")
