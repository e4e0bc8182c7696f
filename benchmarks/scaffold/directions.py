"""Which direction lowers the risk most: every geometry and family, at equal norm, at equal function change, and at its own best step.

Networks of several seeds (data, initialisation, training) on the teacher; directions chosen on one part of the held-out samples, steps on another, decreases
measured on a third, as shares of the old risk. Intervals are over seeds. About 6 minutes on 2 cores.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from scipy import stats

import scaffold as sc
from hiddenwidth import _record
from hiddenwidth._claims import Claim, above
from scaffold._activation import activation
from scaffold._analyse import deal
from scaffold._blocks.base import AbstractFeatureBlock
from scaffold._candidates import views
from scaffold._path import sample_gains, unit_step

#: (name, geometry, rank, deflated) of every direction.
DIRECTIONS: tuple[tuple[str, Any, int | None, bool], ...] = (
    ("frobenius", "frobenius", None, False),
    ("frobenius, rank 2", "frobenius", 2, False),
    ("spectral", "spectral", None, False),
    ("function", "function", None, False),
    ("function, rank 2", "function", 2, False),
    ("function, deflated", "function", None, True),
    ("newton", "newton", None, False),
    ("random", None, None, False),
)
FAMILIES = ("linear", "zero_out", "optimised")
COMPARISONS = ("equal norm", "equal function change", "best step")
SITE = "stream:1"


@dataclasses.dataclass(frozen=True)
class Config:
    """Network, data, seeds; `tau`: near-identity size of the steps that are compared."""

    dim: int = 16
    hidden: int = 32
    depth: int = 2
    new_hidden: int = 32
    epochs: int = 10
    train_samples: int = 1000
    held_out_samples: int = 4000
    seeds: int = 10
    tau: float = 0.03


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Measure, record, draw."""
    config = Config(seeds=3, held_out_samples=2000, epochs=4) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    gains = np.stack([_one_seed(config, seed) for seed in range(config.seeds)])
    names = [d[0] for d in DIRECTIONS]
    data = xr.Dataset(
        {"gain": (("seed", "family", "direction", "comparison"), gains)},
        coords={"family": list(FAMILIES), "direction": names, "comparison": list(COMPARISONS)},
    )
    claims = []
    for family in FAMILIES:
        one = data.gain.sel(family=family)
        for better, worse, comparison in (
            ("function", "frobenius", "equal function change"),
            ("function", "random", "equal function change"),
            ("frobenius", "random", "equal norm"),
            ("function", "frobenius", "best step"),
            ("newton", "function", "best step"),
        ):
            at = one.sel(comparison=comparison)
            difference = (at.sel(direction=better) - at.sel(direction=worse)).values
            se = float(difference.std(ddof=1) / np.sqrt(len(difference)))
            half = float(stats.t.ppf(0.975, len(difference) - 1)) * se
            claims.append(above(f"{family}.{better}_beats_{worse}.{comparison.replace(' ', '_')}", difference.mean(), se, half, 0.0, source="condition 1"))
    wall = time.perf_counter() - begun
    _record.write(out, "directions", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float32", wall_s=wall)
    _draw(out)
    print(_table(data))
    return claims


def _one_seed(config: Config, seed: int) -> np.ndarray:
    """Decreases as shares of the old risk, (family, direction, comparison)."""
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(6)]
    data = sc.datasets.teacher(config.train_samples, config.held_out_samples, key=keys[0])
    net = sc.residual_mlp(16, data.outputs, dim=config.dim, hidden=config.hidden, depth=config.depth, activation="gelu", key=keys[1])
    net = sc.train(net, data.loss, data.train, epochs=config.epochs, key=keys[2]).network
    parts = deal(data.held_out, key=keys[3])
    split = net.split(SITE)
    u, g, _ = sc.activation_gradients(split, data.loss, *parts["choose"])
    risk = float(sc.activation_gradients(split, data.loss, *parts["evaluate"])[2].mean())
    hessian = np.asarray(_gauss_newton(split, data.loss, jnp.asarray(u), jnp.asarray(parts["choose"][1])), np.float64)
    hessian = hessian + 1e-2 * np.trace(hessian) / len(hessian) * np.eye(len(hessian))
    deflated = sc.deflate(g, _old_features(net, parts["choose"][0]), ridge=1e-6)
    rows = []
    for family in FAMILIES:
        norm = sc.RMSNorm(config.dim, eps=1e-6)
        block = sc.make_block(family, u, g, hidden=config.new_hidden, activation="gelu", norm=norm, key=keys[4])
        assert isinstance(block, AbstractFeatureBlock)
        expanded = sc.insert(split, block, parts["step"][0][:8])
        a = np.asarray(views(block, u, g).features, np.float64)
        gram = sc.second_moments(a)
        base = None
        row = []
        for _, geometry, rank, less in DIRECTIONS:
            c = np.asarray(deflated if less else g, np.float64).T @ a / len(a)
            if geometry is None:
                matrix = np.random.default_rng(seed).standard_normal(c.shape)
            else:
                matrix = sc.direction(c, geometry, rank=rank, gram=gram, hessian=hessian).matrix
            matrix = matrix / np.linalg.norm(matrix)
            v = block.direction(jnp.asarray(matrix, jnp.float32))
            unit = unit_step(expanded, v, *parts["step"], data.loss)
            base = unit * config.tau if base is None else base
            best = sc.line_search(expanded, v, data.loss, *parts["step"]).t
            row.append([_decrease(expanded, v, t, data.loss, parts["evaluate"]) / risk for t in (base, unit * config.tau, best)])
        rows.append(row)
    return np.array(rows)


def _decrease(expanded, v, t: float, loss, part) -> float:
    return float(sample_gains(expanded, v, t, loss, *part).mean()) if t > 0 else 0.0


@eqx.filter_jit
def _gauss_newton(split, loss, u, y):
    """E[J^T l'' J], J of f_top in u: the Hessian without the curvature of f_top, positive where the loss is convex."""

    def one(u, y):
        jacobian = jax.jacfwd(split.top)(u)
        return jacobian.T @ jax.hessian(loss)(split.top(u), y) @ jacobian

    return jax.vmap(one)(u, y).mean(0)


def _old_features(net, x) -> np.ndarray:
    """Hidden neurons of the layer below the site: what training its outgoing weights could change at first order."""
    below = jax.vmap(net.split("stream:0").bottom)(jnp.asarray(x))
    branch, norm = net.layers.branches[0], net.layers.norms[0]
    sigma = activation(branch.activation).function
    return np.asarray(jax.vmap(lambda u: sigma(branch.a[0] @ norm(u) + branch.bias_a[0]))(below))


def _interval(gains: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds and half-width of Student's interval."""
    n = gains.sizes["seed"]
    return gains.mean("seed").values, stats.t.ppf(0.975, n - 1) * gains.std("seed", ddof=1).values / np.sqrt(n)


def _table(data: xr.Dataset) -> str:
    lines = [f"decrease in % of the old risk, mean over {data.sizes['seed']} seeds (95 %)"]
    for family in FAMILIES:
        mean, half = _interval(100 * data.gain.sel(family=family))
        lines.append(f"{family:22}" + "".join(f"{c:>24}" for c in COMPARISONS))
        for name, means, halves in zip(data.direction.values, mean, half, strict=True):
            lines.append(f"  {name:20}" + "".join(f"{m:15.2f} +- {h:5.2f}" for m, h in zip(means, halves, strict=True)))
    return "\n".join(lines)


def _draw(out: Path) -> None:
    """Draw OUT/directions.png from the record."""
    record = _record.read(out, "directions")
    data, c = record.data, record.info["config"]
    figure, axes = plt.subplots(1, len(COMPARISONS), figsize=(14, 5), sharey=True, layout="constrained")
    places = np.arange(data.sizes["direction"])
    for axis, comparison in zip(axes, COMPARISONS, strict=True):
        for i, family in enumerate(FAMILIES):
            mean, half = _interval(100 * data.gain.sel(family=family, comparison=comparison))
            axis.errorbar(mean, places + 0.22 * (i - 1), xerr=half, fmt="o", capsize=3, label=family)
        axis.axvline(0, color="grey", lw=0.8)
        axis.set_xlabel("realised decrease, % of the old risk (bars: 95 %)")
        axis.set_title(comparison + (f", rms h / rms u = {c['tau']:g}" if comparison == COMPARISONS[1] else ""), fontsize=10)
        axis.grid(True, axis="x", alpha=0.3)
    axes[0].set_yticks(places, data.direction.values)
    axes[0].invert_yaxis()
    axes[-1].legend(title="family")
    figure.suptitle(f"teacher: L = {c['depth']}, d = {c['dim']}, m = {c['hidden']}, new block at {SITE}, {c['seeds']} seeds")
    figure.savefig(out / "directions.png", dpi=110)
    plt.close(figure)
