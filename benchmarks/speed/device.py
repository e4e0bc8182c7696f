"""On an accelerator, where there is one: its numbers against the host's, the speed of steps, the reference in float64. 5 minutes at most.

Without an accelerator it runs on the CPU's devices and says so: what is checked is then the code path.
"""

import dataclasses
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import hiddenwidth as hw
from benchmarks.speed import _timing
from benchmarks.speed.step import SHAPES
from hiddenwidth import _record
from hiddenwidth._claims import Claim, near

#: Relative rms distance between devices that is accepted in float32 after the steps below, matrix products at full precision.
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared and timed."""

    shapes: tuple[str, ...] = ("small", "medium", "large", "wide")
    steps: int = 5
    repeats: int = 5


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Compare, time, record, draw."""
    hw.use_all_cores()
    config = Config(("small", "medium"), 3, 3) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun, host = time.perf_counter(), jax.devices("cpu")[0]
    rates, gaps = [], []
    for name in config.shapes:
        dim, width, depth, batch, seeds = SHAPES[name][0]
        problem = hw.problems.sine(batch, dim=dim, key=jax.random.key(0))

        def train(steps: int, problem=problem, depth=depth, width=width, seeds=seeds) -> hw.Ensemble:
            return hw.ensemble(problem, hw.TwoLayer("tanh"), hw.mlu(0.1), depth=depth, width=width, seeds=seeds, steps=steps, key=jax.random.key(1))

        ours = train(config.steps)
        with jax.default_device(host):
            theirs = train(config.steps)
        gaps.append(float(np.sqrt(np.mean((ours.hidden - theirs.hidden) ** 2) / np.mean(theirs.hidden**2))))
        train(1)
        seconds = _timing.repeat(lambda t=train: t(config.steps + 1), config.repeats)
        short = float(np.median(_timing.repeat(lambda t=train: t(1), config.repeats)))
        one = _timing.timing([max(s - short, 1e-9) / config.steps for s in seconds])
        rates.append([12.0 * dim * width * depth * batch * seeds / s / 1e9 for s in one])
    reference = hw.mean_ode(hw.problems.sine(8, dim=16, key=jax.random.key(0)), hw.TwoLayer("tanh"), hw.mlu(), steps=3, quadrature=hw.Sobol(8, 2))
    data = xr.Dataset(
        {"gap": (("shape",), gaps), "gflops": (("shape", "quantile"), rates)}, coords={"shape": list(config.shapes), "quantile": ["median", "high", "low"]}
    )
    claims = [near(f"{name}.float32_gap_to_the_host", gap, 0.0, 0.0, TOLERANCE, source="rounding") for name, gap in zip(config.shapes, gaps, strict=True)]
    assert reference.budget is not None
    claims.append(near("reference.budget_nodes", reference.budget.nodes, 0.0, 0.0, 1e-7, source="float64 whatever the device"))
    _record.write(
        out, "device", data, claims, reference={"budget": reference.budget._asdict()}, diverged=0, config=dataclasses.asdict(config), dtype="float32",
        wall_s=time.perf_counter() - begun, backend=jax.default_backend(), devices=len(jax.devices()),
    )  # fmt: skip
    _draw(out)
    print(f"{len(jax.devices())} x {jax.devices()[0].device_kind} ({jax.default_backend()})")
    return claims


def _draw(out: Path) -> None:
    record = _record.read(out, "device")
    rate, figure_size = record.data.gflops, (6.4, 3.6)
    figure, axes = plt.subplots(figsize=figure_size, layout="constrained")
    median, high, low = (rate.sel(quantile=q).values for q in ("median", "high", "low"))
    axes.bar(record.data["shape"].values, median, yerr=[abs(median - low), abs(high - median)], capsize=4)
    axes.set(yscale="log", ylabel="GFlop/s", title=f"Gradient steps on {record.info['device']} (median; bars: slowest and fastest)")
    figure.savefig(out / "device.png", dpi=110)
    plt.close(figure)
