"""Compilation: the default grid of `hiddenwidth rates` in a fresh process, with an empty and with a filled persistent cache; and how often anything compiles.

Seconds are those that XLA reports, summed over threads. Every repetition is a fresh process, with a cache of its own where the cache
is empty. About 4 minutes on 2 cores.
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
#: With an empty cache first: it leaves a filled one.
CACHES = ("empty", "filled")

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
    """Which grid, and how many fresh processes with either cache."""

    grid: str = "default"
    repeats: int = 3


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Time, record, draw."""
    config = Config("quick", 2) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in CACHES}
    for _ in range(config.repeats):
        with tempfile.TemporaryDirectory() as cache:
            for name in CACHES:
                rows[name].append(_child(cache, config.grid))
    data = xr.Dataset(
        {k: (("cache", "repetition"), [[float(r[k]) for r in rows[name]] for name in CACHES]) for k in rows["empty"][0]}, coords={"cache": list(CACHES)}
    )
    again = float(data["again"].max())
    claims = [
        _margin("cold.margin", COLD, data.backend.sel(cache="empty")),
        _margin("warm.margin", WARM, data.backend.sel(cache="filled")),
        claim("compilations.another_learning_rate", again, 0.0, 0.0, theory=0.0, source="rates are arrays"),
    ]
    _record.write(
        out, "compile", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float32", wall_s=time.perf_counter() - begun
    )
    _draw(out)
    for name in CACHES:
        row = data.sel(cache=name)
        middle = row.median("repetition")
        print(
            f"cache {name}: {spread(row.backend)} s of compilation in {int(middle.compilations)} programs ({int(middle.hits)} from the cache), first grid",
            end=" ",
        )
        print(f"{spread(row['first'])} s, again at another learning rate {spread(row.second)} s, import {spread(row['import'])} s")
    return claims


def spread(seconds: xr.DataArray) -> str:
    """Median [least, most]."""
    return f"{float(seconds.median()):.1f} [{float(seconds.min()):.1f}, {float(seconds.max()):.1f}]"


def _margin(name: str, bound: float, seconds: xr.DataArray) -> Claim:
    """Bound over median; the interval reaches to the further of the extremes."""
    ratio = bound / seconds
    value = float(ratio.median())
    half = float(abs(ratio - value).max())
    return above(name, value, half / 2, half, 1.0, source=f"at most {bound:g} s of compilation")


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
        middle = data[key].median("repetition")
        ends = [middle - data[key].min("repetition"), data[key].max("repetition") - middle]
        bars = axes.bar([j + (i - 1) * 0.27 for j in range(2)], middle, 0.27, yerr=ends, capsize=3, label=label)
        axes.bar_label(bars, fmt="%.1f", padding=2)
    axes.set(xticks=[0, 1], xticklabels=["empty cache", "filled cache"], ylabel="seconds", title="Default grid of `hiddenwidth rates` (median; bars: extremes)")
    axes.legend()
    figure.savefig(out / "compile.png", dpi=110)
    plt.close(figure)
