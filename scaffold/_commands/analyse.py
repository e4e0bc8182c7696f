"""`scaffold analyse`: would another block help, where, and how sure is that?"""

import dataclasses
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from hiddenwidth import _record
from hiddenwidth._claims import Claim
from hiddenwidth._commands._outcome import Outcome

from .. import datasets, plot
from .._analyse import analyse, deal
from .._analysis import Analysis
from .._gradients import over_samples
from .._nets.build import residual_mlp
from .._realised import order_claim
from .._train import Trained, train
from ._analyse_config import AnalyseConfig as AnalyseConfig


def run(config: AnalyseConfig) -> Outcome:
    """Run the command: data, network, analysis, record, picture."""
    start = time.perf_counter()
    config.check()
    key = jax.random.key(config.seed)
    data_key, net_key, train_key, own_key = (jax.random.fold_in(key, i) for i in range(4))
    data = (
        datasets.digits(config.train_samples, key=data_key)
        if config.data == "digits"
        else datasets.teacher(config.train_samples, config.held_out_samples, key=data_key)
    )
    network = residual_mlp(
        data.train[0].shape[1], data.outputs, dim=config.dim, hidden=config.hidden, depth=config.layers, activation=config.activation,
        norm=config.norm, order=config.order, key=net_key,
    )  # fmt: skip
    deal(data.held_out, key=own_key)  # complains of too few samples before anything is trained
    unknown = [s for s in config.sites if s not in network.sites and s != "all"]
    if unknown:
        raise ValueError(f"sites={unknown[0]!r} is not in this network; expected all, or some of {', '.join(network.sites)}.")
    _record.prepare_directory(config.out, config.overwrite)
    batch = min(50, config.train_samples)
    trained = train(
        network, data.loss, data.train, epochs=config.epochs, batch=batch, learning_rate=config.learning_rate, progress=config.progress, key=train_key
    )
    found = analyse(
        trained.network, data.loss, data.held_out, sites=None if "all" in config.sites else config.sites, families=config.families, hidden=config.new_hidden,
        activation=config.activation, norm=config.norm, least_gain=config.least_gain, delta=config.delta, train=data.train, progress=config.progress,
        key=own_key,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    right = _accuracy(trained.network, data.held_out) if config.data == "digits" else None
    about = {"train_risk": float(trained.losses[-1]), "bayes_risk": data.bayes_risk, "accuracy": right}
    _record.write(
        config.out, "analyse", found.dataset(), claims_of(found), reference=about, diverged=0,
        config=dataclasses.asdict(config), dtype="float32", wall_s=seconds,
    )  # fmt: skip
    draw(config.out)
    return Outcome(0, _report(config, data, trained, found, right, time.perf_counter() - start))


def _accuracy(network, held_out) -> float:
    x, y = held_out
    return float(np.mean(np.argmax(np.asarray(over_samples(network, jnp.asarray(x))), axis=1) == y))


def claims_of(found: Analysis) -> list[Claim]:
    """Realised minus predicted change is of second order in the step, at every site and in every family."""
    return [order_claim(f"{f.site}.{f.family}", f.order) for f in found.findings]


def draw(out: Path) -> None:
    """Draw OUT/analyse.png from OUT/analyse.json and OUT/analyse.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "analyse")
    c = record.info["config"]
    size = f"{c['order']}-norm ({c['norm']}) residual network with L = {1 if c['quick'] else c['depth']}, d = {c['dim']}, m = {c['hidden']}"
    axes = plot.analysis(record.data, title=f"{c['data']}: {size}, {c['activation']}, {c['epochs']} epochs on {c['train_samples']} samples")
    axes[0, 0].figure.savefig(out / "analyse.png", dpi=110)
    plt.close(axes[0, 0].figure)


def _report(config: AnalyseConfig, data: datasets.Dataset, trained: Trained, found: Analysis, right: float | None, wall: float) -> str:
    more = f", accuracy {right:.1%}" if right is not None else f" (Bayes risk {data.bayes_risk:.4f})"
    parts = ", ".join(f"{n} {name}" for name, n in found.parts.items())
    return "\n".join([
        (f"{data.name}: {config.order}-norm network, L={config.layers} d={config.dim} m={config.hidden} {config.activation}, {config.epochs} epochs on "
        f"{config.train_samples} samples: loss {trained.losses[0]:.4f} -> {trained.losses[-1]:.4f}, held-out risk {found.risk:.4f}{more}"),
        f"held-out samples: {parts}. A gain of {found.least_gain:.0%} of the risk is worth having; bounds hold together at {1 - found.delta:.0%}.",
        "",
        str(found),
        "",
        f"{wall:.0f} s. Record in {config.out}/analyse.json, .nc, .png",
    ])  # fmt: skip
