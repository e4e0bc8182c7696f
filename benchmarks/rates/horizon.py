"""Constants of the error law over the number of steps, to k = 64, and the step at which the limit loses its stability.

The default run of `hiddenwidth horizon`.
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import horizon


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; its record is in OUT."""
    outcome = horizon.run(horizon.HorizonConfig(out=out, overwrite=True, quick=quick))
    print(outcome.text, flush=True)
    if outcome.status:
        raise SystemExit(outcome.status)
    return _slim.claims(out, "horizon")
