"""Gradient steps: `hw.ensemble` against a contiguous numpy loop in one and in two processes, and against the matrix-product peak; cost over every size.

Six shapes from tiny (one unit of five numbers) to large (products of 512 x 128). The step alone is timed: 9 steps minus 1 step, over 8, drawing and compiling
left out. About 3 minutes on 2 cores; run it on an idle machine.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import hiddenwidth as hw
from benchmarks.speed import _timing
from hiddenwidth import _record
from hiddenwidth._claims import Claim, above, claim

#: (D, M, L, n, seeds) and the ratio to one numpy process that is claimed.
SHAPES = {
    "tiny": ((5, 1, 1000, 10, 64), 240.0),
    "small": ((10, 10, 100, 10, 64), 10.0),
    "deep": ((10, 100, 1000, 10, 8), 2.5),
    "medium": ((32, 32, 64, 32, 16), 3.0),
    "large": ((64, 256, 64, 64, 4), 1.3),
    "wide": ((128, 512, 32, 128, 2), 1.2),
}
#: Of the widest shape, the share of the matrix-product peak that is claimed; of the two largest, the ratio to two numpy processes.
PEAK_SHARE, TWO_PROCESSES = 0.7, 1.0
#: From where each size is multiplied by 1, 2, 4 and 8, the others kept: products large enough that the work, not the waiting for it, is what grows.
BASE = {"dim": 64, "width": 128, "depth": 32, "batch": 64, "seeds": 4}


@dataclasses.dataclass(frozen=True)
class Config:
    """Repetitions of everything that is timed, and the sizes over which cost is fitted."""

    repeats: int = 9
    numpy_repeats: int = 5
    factors: tuple[int, ...] = (1, 2, 4, 8)


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Time, record, draw."""
    hw.use_all_cores()
    config = Config(3, 3, (1, 2, 4)) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    peak = _timing.matmul_peak()
    rows = {name: _row(shape, config) for name, (shape, _) in SHAPES.items()}
    claims = _ratio_claims(rows, peak) + _scaling_claims(config)
    data = xr.Dataset(
        {key: (("shape",), [row[key] for row in rows.values()]) for key in next(iter(rows.values()))}, coords={"shape": list(rows)}, attrs={"peak": peak}
    )
    _record.write(
        out, "step", data, claims, reference={"matmul_peak_gflops": peak / 1e9}, diverged=0, config=dataclasses.asdict(config), dtype="float32",
        wall_s=time.perf_counter() - begun, shapes={name: shape for name, (shape, _) in SHAPES.items()},
    )  # fmt: skip
    _draw(out)
    return claims


def _problem(dim: int, batch: int) -> hw.Problem:
    return hw.problems.sine(batch, dim=dim, key=jax.random.key(0))


def _ours(dim: int, width: int, depth: int, batch: int, seeds: int, repeats: int) -> list[float]:
    """Seconds a step, one for every repetition."""
    problem = _problem(dim, batch)

    def train(steps: int) -> None:
        hw.ensemble(problem, hw.TwoLayer("tanh"), hw.mlu(0.1), depth=depth, width=width, seeds=seeds, steps=steps, key=jax.random.key(1))

    for steps in (1, 9):
        train(steps)
    short, long = _timing.repeat(lambda: train(1), repeats), _timing.repeat(lambda: train(9), repeats)
    return [(x - float(np.median(short))) / 8 for x in long]


def _row(shape: tuple[int, int, int, int, int], config: Config) -> dict[str, float]:
    dim, width, depth, batch, seeds = shape
    flops = 12.0 * dim * width * depth * batch * seeds
    ours = _timing.timing(_ours(*shape, config.repeats))
    one, two = (_timing.timing(_timing.numpy_loop(shape, config.numpy_repeats, processes=p)) for p in (1, 2))
    found: dict[str, float] = {"flops": flops}
    for name, seconds in (("ours", ours), ("numpy_1", one), ("numpy_2", two)):
        found |= {f"{name}_{k}": v for k, v in seconds._asdict().items()}
    return found


def _ratio_claims(rows: dict[str, dict[str, float]], peak: float) -> list[Claim]:
    """Ratios of medians; the interval is from the extremes of both sides, so a claim holds for the slowest of ours against the fastest of theirs."""
    claims = []

    def ratio(name: str, row: dict[str, float], other: str, bound: float) -> Claim:
        value = row[f"{other}_median"] / row["ours_median"]
        low, high = row[f"{other}_low"] / row["ours_high"], row[f"{other}_high"] / row["ours_low"]
        c = above(name, value, (high - low) / 4, 0.0, bound, source="measured")
        return c._replace(ci95=(low, high), why=c.why and f"median below {bound:g}")

    for name, row in rows.items():
        claims.append(ratio(f"{name}.over_numpy", row, "numpy_1", SHAPES[name][1]))
        if name in ("large", "wide"):
            claims.append(ratio(f"{name}.over_two_numpys", row, "numpy_2", TWO_PROCESSES))
    wide = rows["wide"]
    rate = wide["flops"] / peak
    share = above("wide.share_of_peak", rate / wide["ours_median"], 0.0, 0.0, PEAK_SHARE, source="measured")
    return [*claims, share._replace(ci95=(rate / wide["ours_high"], rate / wide["ours_low"]))]


def _scaling_claims(config: Config) -> list[Claim]:
    """Exponents of time in every size."""
    claims = []
    for size in BASE:
        sizes, times = [], []
        for factor in config.factors:
            at: dict[str, Any] = BASE | {size: BASE[size] * factor}
            sizes.append(float(at[size]))
            times.append(_timing.timing(_ours(**at, repeats=config.repeats)).low)
        slope, se, half = _timing.scaling_exponent(sizes, times)
        claims.append(claim(f"scaling.time.{size}", slope, se, half, theory=1.0, max_width=0.5, source="cost 12 L M D n"))
    return claims


def _draw(out: Path) -> None:
    data = _record.read(out, "step").data
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    at, width = np.arange(data.sizes["shape"]), 0.27
    for i, (name, label) in enumerate((("numpy_1", "numpy, one process"), ("numpy_2", "numpy, two processes"), ("ours", "hw.ensemble"))):
        rate = data.flops / data[f"{name}_median"] / 1e9
        low, high = (abs(data.flops / data[f"{name}_{k}"] / 1e9 - rate) for k in ("high", "low"))
        axes.bar(at + (i - 1) * width, rate, width, yerr=[low, high], capsize=3, label=label)
    axes.axhline(data.attrs["peak"] / 1e9, color="black", linestyle="--", linewidth=1, label="matrix product")
    axes.set(yscale="log", xticks=at, xticklabels=[f"{s}\n{_label(s)}" for s in data["shape"].values], ylabel="GFlop/s")
    axes.set_title("Gradient steps (median; bars: slowest and fastest repetition)")
    axes.set_ylim(top=30 * data.attrs["peak"] / 1e9)
    axes.legend(loc="upper left", ncols=2)
    figure.savefig(out / "step.png", dpi=110)
    plt.close(figure)


def _label(shape: str) -> str:
    dim, width, depth, batch, seeds = SHAPES[shape][0]
    return f"D={dim} M={width}\nL={depth} n={batch}\n{seeds} seeds"
