r"""The coupling error: trained units of a real network against their own McKean-Vlasov copies.

Every unit of a network, started at z, has a copy that starts at the same z and moves in the fields of the limit instead of those of the network. How far
the two part is what the propagation-of-chaos proof controls:

    E_{j,l} = |z_{j,l} - Z_k(l/L; z0_{j,l})| / sqrt(number of coordinates)
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from .._choices import positive_int
from .._resnet import ResNet
from .._train import train
from .solution import Limit


class Coupling(NamedTuple):
    """Coupling error of members, in units of the initial standard deviation of a parameter."""

    rms: Float[np.ndarray, " seed"]
    max: Float[np.ndarray, " seed"]


def coupling_error(limit: Limit, *, depth: int, width: int, seeds: int, step: int | None = None, dtype: Any = jnp.float32, key: Key[Array, ""]) -> Coupling:
    r"""Train networks of one shape and compare every unit with its own flow in the limit.

    **Arguments:** `limit`: the Mean ODE, at a finite dim; `depth`, `width`, `seeds`: as in `ensemble` (member i uses `fold_in(key, i)`);
    `step`: gradient steps k (default: all of the limit's).

    **Returns:** a `Coupling`: root mean square and maximum over the units of each member, in units of the initial standard deviation.

    Source: arXiv 2509.10167, proof of Theorem 1.

    **Example:** `hw.coupling_error(limit, depth=32, width=8, seeds=4, key=jax.random.key(0)).rms`
    """
    positive_int("seeds", seeds)
    step = limit.steps if step is None else step
    dim = limit.problem.space().start.shape[1]
    rms, largest = [], []
    for i in range(seeds):
        with jax.enable_x64(jnp.dtype(dtype) == jnp.float64):
            net = ResNet.init(limit.unit, limit.scaling, depth=depth, width=width, dim=dim, dtype=dtype, key=jax.random.fold_in(key, i))
            trained, _ = train(net, limit.problem, steps=step)
        s = np.repeat(np.arange(1, depth + 1) / depth, width)
        start, end = (_units(n) for n in (net, trained))
        copies = limit.flow(start, s, step=step)
        gap2 = sum(np.sum((a - b) ** 2, axis=1) for a, b in zip(jax.tree.leaves(end), jax.tree.leaves(copies), strict=True))
        scale2 = sum(np.mean(np.sum(x**2, axis=1)) for x in jax.tree.leaves(start))
        rms.append(np.sqrt(np.mean(gap2) / scale2))
        largest.append(np.sqrt(np.max(gap2) / scale2))
    return Coupling(np.asarray(rms), np.asarray(largest))


def _units(net: ResNet):
    """All units of a network as float64 rows."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64).reshape(x.shape[0] * x.shape[1], -1), eqx.filter(net.params, eqx.is_array))
