"""Best shape for a million parameters: predicted, and measured against its neighbours, all depth and all width.

`hiddenwidth shape --params 1e6` at its default size (about 2 minutes on 2 cores).
"""

from pathlib import Path

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import shape


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the command; record and figure in OUT."""
    return _slim.run_command(shape.run, shape.ShapeConfig(params=1e6, out=out, overwrite=True, quick=quick), "shape")
