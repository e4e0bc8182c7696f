"""One pass over activation gradients and their moments: throughput beside plain passes, and peak memory against the number of samples.

Three passes over the same samples in the same chunks, one after the other in every repetition: `stream`; the gradients at the site alone; and loss with its
gradient in all weights, as a training step needs them. Peak memory is that of fresh processes, to which the samples come in batches. About 4 minutes on 2
cores.
"""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from scipy import stats

import scaffold as sc
from hiddenwidth import _record
from hiddenwidth._claims import Claim, above, near
from scaffold._gradients import activation_gradient, pieces

PASSES = ("stream", "gradients at the site", "loss and gradient in all weights")

CHILD = """
import json, resource, sys
from benchmarks.scaffold.stream import Config, world, stream_pass
config = Config(**json.loads(sys.argv[1]))
net, split, block, x, y = world(config, config.chunk)
found = stream_pass(config, split, block, ((x, y) for _ in range(int(sys.argv[2]) // config.chunk)))
print(json.dumps({"samples": found.n, "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes: d, m, layers of the network, samples, samples at once, repetitions; samples of the memory measurement."""

    dim: int = 256
    hidden: int = 512
    depth: int = 8
    samples: int = 50_000
    chunk: int = 512
    repeats: int = 5
    memory_samples: tuple[int, ...] = (5_120, 12_800, 25_600, 51_200)
    processes: int = 3


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Time, measure, record, draw."""
    config = Config(samples=4_000, repeats=3, memory_samples=(2_560, 5_120), processes=2) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    net, split, block, x, y = world(config, config.samples)
    passes = (
        lambda: stream_pass(config, split, block, (x, y)),
        lambda: _plain(config, lambda x, y: _site_gradients(split, x, y), x, y),
        lambda: _plain(config, lambda x, y: _weight_gradients(net, x, y), x, y),
    )
    for one in passes:
        one()
    seconds = np.array([[_timed(one) for one in passes] for _ in range(config.repeats)])
    peak = np.array([[_child(config, n)["peak"] / 1e6 for n in config.memory_samples] for _ in range(config.processes)])
    data = xr.Dataset(
        {"seconds": (("repetition", "pass"), seconds), "peak_megabytes": (("process", "samples"), peak)},
        coords={"pass": list(PASSES), "samples": list(config.memory_samples)},
    )
    growth = peak[:, -1] / peak[:, 0] - 1
    claims = [
        *(
            _ratio(f"throughput.share_of.{name.split()[0]}", seconds[:, i] / seconds[:, 0], bound)
            for i, name, bound in ((2, PASSES[2], 0.8), (1, PASSES[1], 0.8))
        ),
        near("memory.growth_of_the_peak", growth.mean(), growth.std(ddof=1), float(np.abs(growth - growth.mean()).max()), 0.05, source="sums, not samples"),
    ]
    wall = time.perf_counter() - begun
    _record.write(out, "stream", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float32", wall_s=wall)
    _draw(out)
    return claims


def world(config: Config, samples: int):
    """Network, split in its middle, block, and random data: the numbers do not matter here."""
    keys = [jax.random.key(i) for i in range(4)]
    net = sc.residual_mlp(config.dim, 10, dim=config.dim, hidden=config.hidden, depth=config.depth, activation="gelu", key=keys[0])
    block = sc.ZeroOut.init(config.dim, config.hidden, activation="gelu", norm=sc.RMSNorm(config.dim, eps=1e-6), key=keys[1])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, config.dim), np.float32)
    y = rng.integers(10, size=samples).astype(np.int32)
    return net, net.split("stream:0"), block, x, y


def stream_pass(config: Config, split, block, data) -> sc.Moments:
    """All sums of activation gradients and features."""
    return sc.stream(split, sc.CrossEntropy(), block.features, data, chunk=config.chunk)


@eqx.filter_jit
def _site_gradients(split, x, y):
    _, gradient, value = jax.vmap(lambda x, y: activation_gradient(split, sc.CrossEntropy(), x, y))(x, y)
    return gradient.sum(), value.sum()


@eqx.filter_jit
def _weight_gradients(net, x, y):
    return eqx.filter_value_and_grad(lambda net: jnp.mean(jax.vmap(lambda x, y: sc.CrossEntropy()(net(x), y))(x, y)))(net)


def _plain(config: Config, one, x, y) -> None:
    with jax.default_matmul_precision("highest"):
        for x_part, y_part, _ in pieces(x, y, config.chunk):
            jax.block_until_ready(one(x_part, y_part))


def _timed(one) -> float:
    start = time.perf_counter()
    one()
    return time.perf_counter() - start


def _ratio(name: str, ratios: np.ndarray, bound: float) -> Claim:
    """Mean of ratios, each of two passes of one repetition, with Student's interval."""
    se = float(ratios.std(ddof=1) / np.sqrt(len(ratios)))
    return above(name, float(ratios.mean()), se, float(stats.t.ppf(0.975, len(ratios) - 1)) * se, bound, source="one pass in chunks")


def _child(config: Config, samples: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", CHILD, json.dumps(dataclasses.asdict(config)), str(samples)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _draw(out: Path) -> None:
    """Draw OUT/stream.png from the record."""
    record = _record.read(out, "stream")
    data, c = record.data, record.info["config"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for i, name in enumerate(PASSES):
        rates = c["samples"] / data.seconds.sel({"pass": name}).values / 1000
        left.errorbar(i, np.median(rates), yerr=[[np.median(rates) - rates.min()], [rates.max() - np.median(rates)]], fmt="o", capsize=4, color=f"C{i}")
    left.set_xticks(range(len(PASSES)), ["stream", "gradients\nat the site", "loss and gradient\nin all weights"])
    left.set_xlim(-0.5, 2.5)
    left.set_ylim(0)
    left.set_ylabel("thousand samples a second (bars: least, most)")
    left.set_title(f"d = {c['dim']}, m = {c['hidden']}, L = {c['depth']}, {c['samples']} samples", fontsize=10)
    for number, process in enumerate(data.peak_megabytes.values):
        right.plot(data.samples, process, "o", mfc="none", color="C0", label=None if number else "peak of a fresh process")
    right.plot(data.samples, data.samples * (c["dim"] + 1) * 4 / 1e6, "s--", color="C1", label="the samples, were they kept")
    right.set_xlabel("samples")
    right.set_ylabel("megabytes")
    right.set_ylim(0)
    right.set_title("Peak memory", fontsize=10)
    right.legend()
    for axis in (left, right):
        axis.grid(True, alpha=0.3)
    figure.savefig(out / "stream.png", dpi=110)
    plt.close(figure)
