"""Constants of the error law over the number of steps, to k = 64, and the step at which the limit loses its stability.

The default run of `hiddenwidth horizon` with more depths and seeds: exponents of the spread of outputs and of the bias need them. About half an hour on
2 cores.
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import horizon

#: Depths of the networks; members of the cells of widths 1, 4 and 16. The bias shows in small networks, the exponents of the spread want large ones.
DEPTHS = (8, 16, 32, 64, 128, 256, 1024)
SEEDS = (16384, 4096, 512)


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; its record is in OUT."""
    more = {} if quick else {"depths": DEPTHS, "seeds": SEEDS}
    return _slim.run_command(horizon.run, horizon.HorizonConfig(out=out, overwrite=True, quick=quick, **more), "horizon")
