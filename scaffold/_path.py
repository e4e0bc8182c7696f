r"""Losses and slopes along t -> f_{theta0 + t v}, sample by sample.

s(t) = -d/dt R(f_{tv}) by forward-mode derivatives; at t = 0 from the block's own first-order map, which is one-sided where the block has a kink.
Differences of nearly equal losses cancel in float32: there the gain of a sample is the integral of its slopes (Gauss-Legendre).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._gradients import Loss, check_finite, pieces
from ._insert import Expanded

#: Relative size of differences in float32 below which they are integrated instead, and the nodes of that.
CANCELS, NODES = 1e-3, 8


class Path(NamedTuple):
    """Losses and slopes -d loss/dt of every sample at every step; mean squares of u and h per sample."""

    steps: Float[np.ndarray, " steps"]
    losses: Float[np.ndarray, "steps n"]
    slopes: Float[np.ndarray, "steps n"]
    stream2: float
    block2: Float[np.ndarray, " steps"]

    @property
    def signal(self) -> float:
        """s at the first step."""
        return float(self.slopes[0].mean())

    def near_identity(self) -> Float[np.ndarray, " steps"]:
        """tau_id = rms h / rms u at every step."""
        return np.sqrt(self.block2 / max(self.stream2, 1e-300))

    def curvature(self) -> float:
        """The largest secant (s(0) - s(t))/t over the steps: what averaging over kinks curves is in it, as no second derivative of a sample would have it."""
        s = self.slopes.mean(1)
        later = self.steps > 0
        return float(np.max((s[0] - s[later]) / self.steps[later]))


def path(expanded: Expanded, v: PyTree[Array], steps: Sequence[float] | np.ndarray, loss: Loss, x: PyTree, y: PyTree, *, chunk: int = 512) -> Path:
    r"""Walk along a direction.

    **Arguments:** `steps`: t, 0 included or not; `x`, `y`: samples.

    **Returns:** a `Path`, in the order of the steps.

    **Raises:** `ValueError` for losses that are not finite.

    **Example:** `path(expanded, v, [0.0, 0.1], SquaredError(), x, y).curvature()`
    """
    times = np.asarray(steps, np.float64)

    bare = Expanded(expanded.split, expanded.block, expanded.norm)  # the defect is static: with it every network would be compiled anew
    values, slopes, sizes, streams = [], [], [], []
    with jax.default_matmul_precision("highest"):
        for t in times:
            parts = []
            for x_part, y_part, count in pieces(x, y, chunk):
                dtype = jax.eval_shape(expanded.split.bottom, jax.tree.map(lambda a: a[0], x_part)).dtype
                parts.append([np.asarray(a, np.float64)[:count] for a in _along(bare, v, jnp.asarray(t, dtype), loss, x_part, y_part)])
            value, slope, size, stream = (np.concatenate([p[i] for p in parts]) for i in range(4))
            check_finite(value, slope, np.arange(len(value)))
            values.append(value)
            slopes.append(slope)
            sizes.append(size.mean())
            streams.append(stream.mean())
    return Path(times, np.stack(values), np.stack(slopes), float(streams[0]), np.array(sizes))


@eqx.filter_jit
def _along(expanded: Expanded, v: PyTree[Array], t: Float[Array, ""], loss: Loss, x: PyTree, y: PyTree):
    """(loss, slope, |h|^2, |u|^2) of every sample at one step."""

    def one(x, y):
        u = expanded.split.bottom(x)

        def after(h):
            return loss(expanded.after(u, h), y)

        def at(t):
            h = expanded.block.moved(v, t)(u)
            return h, jnp.sum(h**2)

        (h, size), (velocity, _) = jax.jvp(at, (t,), (jnp.ones_like(t),))
        velocity = jnp.where(t == 0, expanded.block.first_order(u, v), velocity)
        value, slope = jax.jvp(after, (h,), (velocity,))
        return value, -slope, size, jnp.sum(u**2)

    return jax.vmap(one)(x, y)


def sample_gains(expanded: Expanded, v: PyTree[Array], t: float, loss: Loss, x: PyTree, y: PyTree, *, chunk: int = 512) -> Float[np.ndarray, " n"]:
    r"""D = loss(f_old) - loss(f_{tv}) of every sample, free of cancellation.

    **Example:** `sample_gains(expanded, v, 0.1, SquaredError(), x, y).mean()`
    """
    ends = path(expanded, v, [0.0, t], loss, x, y, chunk=chunk)
    gains = ends.losses[0] - ends.losses[1]
    kind = jax.tree.leaves(eqx.filter(expanded, eqx.is_inexact_array))[0].dtype
    if kind == np.float64 or not np.sqrt(np.mean(gains**2)) < CANCELS * np.sqrt(np.mean(ends.losses[0] ** 2)):
        return gains
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    inside = path(expanded, v, t * (nodes + 1) / 2, loss, x, y, chunk=chunk)
    return t / 2 * weights @ inside.slopes


def unit_step(expanded: Expanded, v: PyTree[Array], x: PyTree, y: PyTree, loss: Loss, *, chunk: int = 512) -> float:
    """The step at which rms J v = rms u: steps in units of it do not depend on the length of v or the scale of the stream.

    **Raises:** `ValueError` for a direction that moves nothing.
    """
    tiny = 1e-3
    first = path(expanded, v, [tiny], loss, x, y, chunk=chunk)
    tau = float(first.near_identity()[0])
    if not tau > 0:
        raise ValueError("the direction moves nothing on these samples: J v = 0; expected one with a first-order effect.")
    if not math.isfinite(tau):
        raise ValueError("the block is not finite along this direction; expected finite outputs.")
    return tiny / tau
