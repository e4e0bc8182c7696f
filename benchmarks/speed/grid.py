"""A whole job: the default `hiddenwidth rates`, its compilation, reference and fit included, against the networks of its grid in the plain numpy loop alone.

The command runs in a fresh process with an empty cache of compiled programs. The loop would take a quarter of an hour: every cell is timed on a few seeds and
multiplied. About 3 minutes on 2 cores.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from benchmarks.speed import _timing
from hiddenwidth import _record
from hiddenwidth._claims import Claim, above
from hiddenwidth._commands._rates_config import SIZES

#: How many times faster is claimed.
RATIO = 10.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Seeds on which the loop is timed, and repetitions."""

    loop_seeds: int = 8
    repeats: int = 5
    commands: int = 2


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Time, record, draw."""
    config = Config(4, 3, 1) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun, sizes = time.perf_counter(), SIZES["sine", quick]
    command = _timing.timing([_command(quick) for _ in range(config.commands)])
    loop, spread = np.zeros((len(sizes.depths), len(sizes.widths))), np.zeros((2, len(sizes.depths), len(sizes.widths)))
    for i, depth in enumerate(sizes.depths):
        for j, width in enumerate(sizes.widths):
            seconds = _timing.timing(_timing.numpy_loop((sizes.dim, width, depth, 10, config.loop_seeds), config.repeats, processes=1))
            factor = sizes.steps * sizes.seeds / config.loop_seeds
            loop[i, j], spread[:, i, j] = seconds.median * factor, (seconds.low * factor, seconds.high * factor)
    data = xr.Dataset(
        {"loop_s": (("depth", "width"), loop), "loop_spread_s": (("end", "depth", "width"), spread), "command_s": (("quantile",), list(command))},
        coords={"depth": list(sizes.depths), "width": list(sizes.widths), "quantile": ["median", "low", "high"]},
    )
    low, high = spread[0].sum() / command.high, spread[1].sum() / command.low
    claims = [above("command.over_numpy_grid", loop.sum() / command.median, 0.0, 0.0, RATIO, source="measured")._replace(ci95=(float(low), float(high)))]
    _record.write(
        out, "grid", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float32", wall_s=time.perf_counter() - begun,
        sizes=dataclasses.asdict(sizes),
    )  # fmt: skip
    _draw(out)
    print(f"the command takes {command.median:.0f} s [{command.low:.0f}, {command.high:.0f}], the loop {loop.sum():.0f} s for the networks alone")
    return claims


def _command(quick: bool) -> float:
    """Seconds of the command from start to end."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache", "MPLBACKEND": "Agg"}
        call = [sys.executable, "-m", "hiddenwidth", "rates", "--no-progress", "--out", f"{folder}/out", *(["--quick"] if quick else [])]
        begun = time.perf_counter()
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr)
    return seconds


def _draw(out: Path) -> None:
    data = _record.read(out, "grid").data
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    bottom = 0.0
    for width in data.width.values:
        seconds = float(data.loop_s.sel(width=width).sum())
        axes.bar("numpy loop,\nnetworks only", seconds, bottom=bottom, label=f"M = {width}")
        bottom += seconds
    median, low, high = data.command_s.values
    axes.bar("hiddenwidth rates,\nall of it", median, yerr=[[median - low], [high - median]], capsize=4, color="black")
    axes.annotate(f"{median:.0f} s", (1, median), xytext=(0, 6), textcoords="offset points", ha="center")
    axes.set(ylabel="seconds", title="Default grid of `hiddenwidth rates`")
    axes.legend(title="loop, by width")
    figure.savefig(out / "grid.png", dpi=110)
    plt.close(figure)
