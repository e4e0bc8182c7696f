"""Compilation: the default grid of `hiddenwidth rates` in a fresh process, with an empty and with a filled persistent cache; and how often anything compiles.

Seconds are those that XLA reports, summed over threads. About 2 minutes on 2 cores.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import xarray as xr

from hiddenwidth import _record
from hiddenwidth._claims import Claim, above, claim

#: Seconds that are claimed.
COLD, WARM = 15.0, 2.0

CHILD = """
import json, sys, time, jax
begun = time.perf_counter()
import hiddenwidth as hw
from hiddenwidth._commands._rates_config import SIZES
from hiddenwidth._compile_cache import keep_compiled
hw.use_all_cores(); keep_compiled(sys.argv[1])
found = {"backend": 0.0, "compilations": 0, "hits": 0, "retrieval": 0.0}
def seconds(event, duration, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        found["backend"] += duration; found["compilations"] += 1
    if event == "/jax/compilation_cache/cache_retrieval_time_sec":
        found["retrieval"] += duration
def count(event, **_):
    found["hits"] += event == "/jax/compilation_cache/cache_hits"
jax.monitoring.register_event_duration_secs_listener(seconds)
jax.monitoring.register_event_listener(count)
sizes = SIZES["sine", sys.argv[2] == "quick"]
problem = hw.problems.sine(dim=sizes.dim, key=jax.random.key(0))
def grid(rate):
    start = time.perf_counter()
    hw.sweep(problem, hw.TwoLayer("tanh"), hw.mlu(rate), depths=sizes.depths, widths=sizes.widths, seeds=sizes.seeds, steps=sizes.steps, key=jax.random.key(1))
    return time.perf_counter() - start
imported = time.perf_counter() - begun
first = grid(1.0)
once = dict(found)
second = grid(0.5)
print(json.dumps({"import": imported, "first": first, "second": second, "again": found["compilations"] - once["compilations"], **once}))
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Which grid."""

    grid: str = "default"


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Time, record, draw."""
    config = Config("quick") if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        rows = [_child(cache, config.grid) for _ in ("cold", "warm")]
    cold, warm = rows
    data = xr.Dataset({k: (("cache",), [float(r[k]) for r in rows]) for k in cold}, coords={"cache": ["empty", "filled"]})
    claims = [
        above("cold.margin", COLD / cold["backend"], 0.0, 0.0, 1.0, source=f"at most {COLD:g} s of compilation"),
        above("warm.margin", WARM / warm["backend"], 0.0, 0.0, 1.0, source=f"at most {WARM:g} s of compilation"),
        claim("compilations.another_learning_rate", warm["again"], 0.0, 0.0, theory=0.0, source="rates are arrays"),
    ]
    _record.write(
        out, "compile", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float32", wall_s=time.perf_counter() - begun
    )
    _draw(out)
    for name, row in zip(("empty", "filled"), rows, strict=True):
        print(f"cache {name}: {row['backend']:.1f} s of compilation in {row['compilations']} programs ({row['hits']} from the cache), first grid", end=" ")
        print(f"{row['first']:.1f} s, again at another learning rate {row['second']:.1f} s, import {row['import']:.1f} s")
    return claims


def _child(cache: str, grid: str) -> dict[str, float]:
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", CHILD, cache, grid], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _draw(out: Path) -> None:
    data = _record.read(out, "compile").data
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for i, (key, label) in enumerate((("backend", "compilation (all threads)"), ("first", "first grid"), ("second", "another learning rate"))):
        bars = axes.bar([j + (i - 1) * 0.27 for j in range(2)], data[key], 0.27, label=label)
        axes.bar_label(bars, fmt="%.1f")
    axes.set(xticks=[0, 1], xticklabels=["empty cache", "filled cache"], ylabel="seconds", title="Default grid of `hiddenwidth rates`")
    axes.legend()
    figure.savefig(out / "compile.png", dpi=110)
    plt.close(figure)
