"""Predicted and realised change over a matrix of families, normalisers, orders and sites: is their difference of second order in the step?

Smooth activations in float64, the steepest direction of every family; beside them relu networks, where larger steps cross kinks and have no order. About 3
minutes on 2 cores.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import scaffold as sc
from hiddenwidth import _record
from hiddenwidth._claims import Claim
from scaffold._candidates import tangents, views
from scaffold._realised import order_claim

#: Families that fit vectors, tokens (token, channel) and pixels.
FAMILIES: dict[str, tuple[Any, ...]] = {
    "vectors": ("bias", "linear", "zero_out", "zero_in", "gate", "layerscale", "antisym"),
    "tokens": ("linear", "zero_out", "attention"),
    "pixels": ("linear", "zero_out", "conv"),
}
SHAPES = {"vectors": (3,), "tokens": (3, 4), "pixels": (6, 6, 2)}
NORMS, ORDERS = ("rms", "layer", "clamp"), ("pre", "post")
#: Steps that cross kinks.
LARGE = tuple(float(t) for t in np.geomspace(1e-3, 1e-1, 9))


@dataclasses.dataclass(frozen=True)
class Config:
    """What is looked at: kinds of samples, and relu networks on vectors."""

    kinds: tuple[str, ...] = tuple(FAMILIES)
    samples: int = 12
    kinked_samples: int = 200


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Measure, record, draw."""
    config = Config(kinds=("vectors",)) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    found: dict[str, sc.Realised] = {}
    with jax.enable_x64(True):
        for kind in config.kinds:
            for order in ORDERS:
                for norm in NORMS:
                    net = network(kind, order, norm)
                    for (site, family), seen in remainders(net, FAMILIES[kind], *samples(kind, config.samples)).items():
                        found[f"{kind}.{order}.{norm}.{site}.{family}"] = seen
        kinked = {}
        for activation in ("tanh", "relu"):
            net = sc.residual_mlp(3, 2, dim=6, hidden=32, depth=2, activation=activation, key=jax.random.key(1))
            (kinked[activation],) = remainders(
                net, ("linear",), *samples("vectors", config.kinked_samples), activation=activation, sites=["stream:0"], taus=LARGE
            ).values()
    claims = [order_claim(name, seen.order) for name, seen in found.items()]
    data = xr.Dataset(
        {
            "remainder": (("case", "step"), np.stack([s.realised - s.predicted for s in found.values()])),
            "tau": (("case", "step"), np.stack([s.tau for s in found.values()])),
            "order": ("case", [s.order.value for s in found.values()]),
            "order_low": ("case", [s.order.low for s in found.values()]),
            "order_high": ("case", [s.order.high for s in found.values()]),
            "kinked_remainder": (("activation", "large_step"), np.stack([s.realised - s.predicted for s in kinked.values()])),
            "kinked_tau": (("activation", "large_step"), np.stack([s.tau for s in kinked.values()])),
        },
        coords={"case": list(found), "activation": list(kinked)},
    )
    wall = time.perf_counter() - begun
    _record.write(out, "orders", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float64", wall_s=wall)
    _draw(out)
    return claims


def network(kind: str, order: Any, norm: Any) -> sc.ResidualNet:
    """A small smooth network."""
    key = jax.random.key(1)
    if kind == "vectors":
        return sc.residual_mlp(3, 2, dim=6, hidden=6, depth=1, activation="tanh", norm=norm, order=order, key=key)
    if kind == "tokens":
        return sc.residual_transformer(3, 4, 2, dim=4, hidden=4, heads=2, depth=1, norm=norm, order=order, key=key)
    return sc.residual_conv(2, 2, dim=4, hidden=4, depth=1, activation="tanh", norm=norm, order=order, key=key)


def samples(kind: str, n: int = 12):
    """Gaussian inputs and targets."""
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.standard_normal((n, *SHAPES[kind]))), jnp.asarray(rng.standard_normal((n, 2)))


def remainders(net: sc.ResidualNet, families, x, y, *, activation: str = "tanh", sites=None, **options: Any) -> dict[tuple[str, str], sc.Realised]:
    """Along the steepest direction of each family at each site, chosen on the same samples: nothing here is statistical."""
    found, loss = {}, sc.SquaredError()
    for site in net.sites if sites is None else sites:
        split = net.split(site)
        u, g, _ = sc.activation_gradients(split, loss, x, y)
        for number, family in enumerate(families):
            block = sc.make_block(family, u, g, hidden=6, activation=activation, norm=sc.RMSNorm(u.shape[-1]), key=jax.random.key(number))
            v = tangents(block, views(block, u, g), ("frobenius",))["frobenius"]
            found[site, family] = sc.predicted_against_realised(sc.insert(split, block, x), v, loss, x, y, **options)
    return found


def _draw(out: Path) -> None:
    """Draw OUT/orders.png from the record."""
    data = _record.read(out, "orders").data
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for i, kind in enumerate(FAMILIES):
        here = [c for c in data.case.values if str(c).startswith(kind)]
        for number, case in enumerate(here):
            one = data.sel(case=case)
            left.loglog(one.tau, abs(one.remainder), color=f"C{i}", lw=0.7, alpha=0.6, label=None if number else f"{kind}: {len(here)} cases")
    grid = np.geomspace(1e-6, 1e-2, 5)
    left.loglog(grid, grid**2, "k--", lw=1.5, label=r"slope 2")
    left.set_xlabel("step (rms h / rms u)")
    left.set_ylabel("|realised - predicted change of the risk|")
    left.set_title("Smooth networks, float64", fontsize=10)
    for activation in data.activation.values:
        one = data.sel(activation=activation)
        right.semilogx(one.kinked_tau, one.kinked_remainder / one.kinked_tau**2, "o-", label=str(activation))
    right.set_xlabel("step (rms h / rms u)")
    right.set_ylabel("(realised - predicted) / step$^2$")
    right.set_title("Larger steps cross the kinks of relu", fontsize=10)
    for axis in (left, right):
        axis.legend(fontsize=9)
        axis.grid(True, alpha=0.3)
    figure.savefig(out / "orders.png", dpi=110)
    plt.close(figure)
