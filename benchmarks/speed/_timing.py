"""Timing: warm, repeated, medians with the spread of the repetitions, and ratios of what was timed in one run."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Timing(NamedTuple):
    """Median of several repetitions, and their smallest and largest."""

    median: float
    low: float
    high: float


def timing(seconds: list[float]) -> Timing:
    """Of several repetitions."""
    return Timing(float(np.median(seconds)), min(seconds), max(seconds))


def repeat(function: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of every repetition; the function must wait for its results, and have run before."""
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        found.append(time.perf_counter() - begun)
    return found


def numpy_loop(shape: tuple[int, int, int, int, int], repeats: int, *, processes: int) -> list[float]:
    """Seconds a step of the plain loop, its seeds split over processes that begin together; one process has all BLAS threads, several have one each."""
    *sizes, seeds = shape
    share = seeds // processes
    environment = os.environ | ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} if processes > 1 else {})
    command = [sys.executable, "-m", "benchmarks.speed._numpy_loop", *map(str, (*sizes, share, repeats))]
    running = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    columns = [[float(line) for line in one.communicate()[0].splitlines()] for one in running]
    return [max(row) for row in zip(*columns, strict=True)]


def matmul_peak(size: int = 1536, repeats: int = 7) -> float:
    """Floating-point operations a second of a square float32 matrix product on all devices at once, the best of several."""
    import jax
    import jax.numpy as jnp

    devices = jax.devices()
    blocks = [jax.device_put(jnp.ones((size, size), jnp.float32), d) for d in devices]
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready([product(a) for a in blocks])
    best = min(repeat(lambda: jax.block_until_ready([product(a) for a in blocks]), repeats))
    return len(devices) * 2 * size**3 / best


def scaling_exponent(sizes: list[float], values: list[float]) -> tuple[float, float, float]:
    """Slope of log value over log size: (slope, standard error, half-width of the 95 % interval)."""
    from scipy import stats

    fit: Any = stats.linregress(np.log(sizes), np.log(values))
    return float(fit.slope), float(fit.stderr), float(stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr)
