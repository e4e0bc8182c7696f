r"""What another block would do, site by site and family by family: signal, verdict, best direction, predicted and realised decrease.

Held-out samples are dealt to three parts, each used for one thing only:

    choose     signals, verdicts, covariances and directions ("optimised" features: from its first half, judged on its second)
    step       length of the step, curvature, and which geometry is best
    evaluate   the realised decrease of the loss

so that every number is free of the choices before it. Bounds hold together over all sites and families (Bonferroni).
"""

import math
import zlib
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree
from tqdm import tqdm

from ._analysis import Analysis, Finding, Site
from ._candidates import tangents, try_directions, views
from ._covariance import Estimate
from ._covariance_null import diagonality
from ._crossfit import cross_fit_steepest
from ._directions import Geometry
from ._families import FAMILIES, Family, make_block
from ._gradients import Loss, activation_gradients, samples
from ._insert import insert
from ._nets.build import NormKind, make_norm
from ._nets.residual import ResidualNet
from ._order import structural_order
from ._population import check_disjoint
from ._realised import predicted_against_realised
from ._regime import decide, samples_to_decide, shared_level, threshold
from ._regression import regression_signal
from ._signal import measure_signal
from ._split import Split
from ._step import evaluated_gain

#: Shares of the held-out samples.
SHARES = {"choose": 0.5, "step": 0.2, "evaluate": 0.3}
#: The families and geometries that are looked at unless others are named.
DEFAULT_FAMILIES: tuple[Family, ...] = ("bias", "linear", "zero_out", "optimised")
GEOMETRIES: tuple[Geometry, ...] = ("frobenius", "spectral", "function")
#: Smallest gain worth having, as a share of the old risk; samples and inputs of small checks.
LEAST_GAIN, ORDER_SAMPLES, PROBE = 0.01, 128, 8


def analyse(
    network: ResidualNet | Split | Sequence[Split],
    loss: Loss,
    held_out: tuple[PyTree, PyTree],
    *,
    sites: Sequence[str] | None = None,
    families: Sequence[Family] = DEFAULT_FAMILIES,
    hidden: int = 32,
    activation: str = "relu",
    norm: NormKind | None = "rms",
    least_gain: float = LEAST_GAIN,
    delta: float = 0.05,
    train: tuple[PyTree, PyTree] | None = None,
    progress: bool = False,
    key: Key[Array, ""],
) -> Analysis:
    r"""Look for a first-order descent direction of a new zero-initialised block, at every site and in every family.

    **Arguments:** `network`: a `ResidualNet`, or one or more `Split`s; `loss`: of one sample; `held_out`: (x, y), samples first, that did not train the
    network; `sites`: names (default: all); `families`: see `FAMILIES`; `hidden`, `activation`: of the new blocks; `norm`: what they read u through (None: u
    itself); `least_gain`: the gain worth having, as a share of the old risk, which sets eta; `delta`: error level, shared by all bounds; `train`: the
    training data, to make sure that nothing of it is held out; `progress`: show a bar.

    **Returns:** an `Analysis`.

    **Raises:** `ValueError` for too few samples, samples in two parts, unknown sites or families, families that are not linear at first order, losses that
    are not finite.

    Source: arXiv 2605.08297, conditions 1 and 2.

    **Example:** `analyse(net, SquaredError(), (x, y), sites=["stream:1"], families=["bias"], key=jax.random.key(0)).verdict("bias")`
    """
    splits = _splits(network, sites)
    if not families:
        raise ValueError(f"families={tuple(families)!r} is empty; expected some of {', '.join(FAMILIES)}.")
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"families={family!r} is not known; expected some of {', '.join(FAMILIES)}.")
    if not least_gain > 0:
        raise ValueError(f"least_gain={least_gain!r} is not possible; expected a share of the old risk above 0, declared beforehand.")
    parts = deal(held_out, key=jax.random.fold_in(key, 0))
    check_disjoint(**({} if train is None else {"train": train}), **parts)
    level = shared_level(delta, 2 * len(splits) * len(families))
    findings, about, risk = [], [], math.nan
    bar = tqdm(total=len(splits) * (len(families) + 1), desc="sites and families", disable=not progress, unit="")
    for split in splits:
        seen = {name: activation_gradients(split, loss, *parts[name]) for name in ("choose", "evaluate")}
        u, g, _ = seen["choose"]
        risk = float(np.mean(seen["evaluate"][2], dtype=np.float64))
        about.append(_site(split.name, u, g, _key(key, split.name)))
        bar.update()
        for family in families:
            own = _key(key, f"{split.name}/{family}")
            reads = None if norm is None else make_norm(norm, u.shape[-1])
            half = len(u) // 2 if family == "optimised" else 0
            chosen = slice(half) if half else slice(None)
            block = make_block(family, u[chosen], g[chosen], hidden=hidden, activation=activation, norm=reads, key=own)
            findings.append(_finding(split, block, family, loss, u[half:], g[half:], parts, level, least_gain * risk, own))
            bar.update()
    bar.close()
    return Analysis(findings, about, risk, least_gain, delta, {name: samples(*part) for name, part in parts.items()})


def _finding(split, block, family, loss, u, g, parts, level, least, key) -> Finding:
    expanded = insert(split, block, jax.tree.map(lambda a: a[:PROBE], parts["step"][0]))
    kind = structural_order(block, u[:PROBE], key=key)
    look = views(block, u, g)
    signal = measure_signal(look.gradient, look.features, delta=level, seed=_seed(key))
    crossfit = cross_fit_steepest(look.gradient, look.features, delta=level, seed=_seed(key))
    directions = tangents(block, look, GEOMETRIES) if np.any(g) else {}
    tried = try_directions(expanded, directions, loss, *parts["step"])
    if not tried:
        none = Estimate(math.nan, math.nan, math.nan, "no direction")
        regime = decide(lower=0.0, upper=0.0, eta=math.inf, family=family, order=kind, dead=True)
        return Finding(split.name, family, signal, crossfit, regime, "", None, None, none, block, expanded, None)
    plain = next(c for c in tried if c.geometry == "frobenius").step
    longest = float(plain.walked.steps[-1])
    eta = threshold(least, plain.curvature, longest)
    # Both bounds hold at the shared level; where they cross, one of them has failed, and neither decides.
    lower, upper = sorted((max(crossfit.lower, 0.0), max(signal.upper, 0.0)))
    regime = decide(lower=lower, upper=upper, eta=eta, family=family, needed=samples_to_decide(signal, eta, delta=level), order=kind)
    best = tried[0]
    gain = evaluated_gain(expanded, best.v, best.step.t, loss, *parts["evaluate"], delta=level)
    few = jax.tree.map(lambda a: a[:ORDER_SAMPLES], parts["evaluate"])
    order = predicted_against_realised(expanded, directions[best.geometry], loss, *few).order
    return Finding(split.name, family, signal, crossfit, regime, best.geometry, best.step, gain, order, block, expanded, best.v)


def _site(name, u, g, key) -> Site:
    flat = np.asarray(g, np.float64).reshape(len(g), -1, g.shape[-1])
    signs = np.random.default_rng(_seed(key)).choice(np.array([-1.0, 1.0]), size=(len(flat), 1, flat.shape[-1]))
    return Site(name, diagonality(g, seed=_seed(key)), regression_signal(g, u, seed=_seed(key)), _correlations(flat), _correlations(signs * flat))


def _correlations(g) -> Float[np.ndarray, "dim dim"]:
    total = np.einsum("npi,npj->ij", g, g)
    size = np.sqrt(np.maximum(np.diag(total), 1e-300))
    return total / np.outer(size, size)


def deal(held_out: tuple[PyTree, PyTree], *, key: Key[Array, ""]) -> dict[str, tuple[PyTree, PyTree]]:
    """Deal samples to the three parts.

    **Raises:** `ValueError` for too few of them.

    **Example:** `deal((x, y), key=jax.random.key(0))["step"]`
    """
    x, y = held_out
    n = samples(x, y)
    if n < 40:
        raise ValueError(f"held_out has n={n} samples; expected at least 40, to choose, to step and to evaluate on different ones.")
    order = np.asarray(jax.random.permutation(key, n))
    ends = np.cumsum([int(n * SHARES["choose"]), int(n * SHARES["step"])])
    return {
        name: jax.tree.map(lambda a, i=index: np.asarray(a)[i], (x, y)) for name, index in zip(SHARES, np.split(order, ends), strict=True)
    }  # fmt: skip


def _splits(network, sites: Sequence[str] | None) -> list[Split]:
    if isinstance(network, ResidualNet):
        if sites is not None and not sites:
            raise ValueError(f"sites={tuple(sites)!r} is empty; expected some of {', '.join(network.sites)}.")
        return [network.split(name) for name in (network.sites if sites is None else sites)]
    splits = [network] if isinstance(network, Split) else list(network)
    names = [s.name for s in splits]
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"network has splits named {names}; expected at least one, each with a name of its own. Use Split(..., name=...).")
    if sites is None:
        return splits
    missing = [s for s in sites if s not in names]
    if missing:
        raise ValueError(f"site={missing[0]!r} is not in this network; expected one of {', '.join(names)}.")
    return [s for s in splits if s.name in sites]


def _key(key: Key[Array, ""], name: str) -> Key[Array, ""]:
    """Of one site or block: it does not depend on which others were asked for."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def _seed(key: Key[Array, ""]) -> int:
    return int(jax.random.bits(key, (), np.uint32))
