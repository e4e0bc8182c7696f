r"""Everything about the law of (G, a) that signals and covariances need, as sums over samples: one pass, memory that does not grow with the data.

With S_k = sum_p G_kp G_kp^T and z_k = sum_p G_kp a_kp^T over the positions p of sample k, the sums are of

    1, G, S, S o S, (tr S)^2, z, |z|^2, a, a a^T, loss, loss^2

(o is entrywise). Samples are the independent draws, positions within one are not: every standard error comes from groups of samples. Sample k of arrays
belongs to group k mod `groups`, batch k of an iterable likewise. Leaving out one group at a time gives the jackknife.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ._gradients import Data, Loss, activation_gradient, check_finite, pieces, samples
from ._split import Split

GROUPS = 20


class Moments(NamedTuple):
    """Sums over samples, in float64, with a leading axis over groups; two of them with the same groups add up."""

    size: Float[np.ndarray, " groups"]  # samples
    places: Float[np.ndarray, " groups"]  # positions of all samples
    gradient: Float[np.ndarray, "groups dim"]
    square: Float[np.ndarray, "groups dim dim"]  # S
    square2: Float[np.ndarray, "groups dim dim"]  # S o S
    trace2: Float[np.ndarray, " groups"]
    signal: Float[np.ndarray, "groups dim m"]  # z
    signal2: Float[np.ndarray, " groups"]
    features: Float[np.ndarray, "groups m"]
    gram: Float[np.ndarray, "groups m m"]  # a a^T
    loss: Float[np.ndarray, " groups"]
    loss2: Float[np.ndarray, " groups"]

    def __add__(self, other: Any) -> "Moments":
        """Sums over the samples of both."""
        if not isinstance(other, Moments):
            return NotImplemented
        if self.signal.shape != other.signal.shape:
            raise ValueError(f"moments of shapes {self.signal.shape} and {other.signal.shape} do not add up; expected the same groups, dim and features.")
        return Moments(*(x + y for x, y in zip(self, other, strict=True)))

    @property
    def n(self) -> int:
        """Samples."""
        return int(self.size.sum())

    def total(self) -> "Moments":
        """All groups as one."""
        return Moments(*(np.sum(x, axis=0, keepdims=True) for x in self))

    def without_each(self) -> list["Moments"]:
        """The sums without one group, for each group that has samples."""
        whole = self.total()
        return [Moments(*(w - x[g : g + 1] for x, w in zip(self, whole, strict=True))) for g in range(len(self.size)) if self.size[g] > 0]


def moments_of(gradient: Float[np.ndarray, "samples *positions dim"], features: Float[np.ndarray, "samples *positions m"], *, groups: int = GROUPS) -> Moments:
    """Moments of arrays that are at hand (losses: none)."""
    members = [(gradient[g::groups], features[g::groups]) for g in range(groups)]
    with jax.enable_x64(True):
        parts = [_sums(jnp.asarray(g), jnp.asarray(a), jnp.zeros(len(g), g.dtype)) for g, a in members]
    sums = {name: np.stack([np.asarray(part[name], np.float64) for part in parts]) for name in parts[0]}
    count = np.array([float(len(g)) for g, _ in members])
    return Moments(size=count, places=count * _positions(gradient.shape[1:]), **sums)


def stream(
    split: Split,
    loss: Loss,
    features: Callable[[Float[Array, "*positions dim"]], Float[Array, "*positions m"]],
    data: Data,
    *,
    chunk: int = 512,
    groups: int = GROUPS,
) -> Moments:
    r"""Moments of activation gradients and features over a data set, in one pass.

    **Arguments:** `features`: a(u) of one sample, such as `block.features`; `data`: arrays (x, y), or an iterable of batches; `chunk`: samples on the device at
    once, which bounds the memory; `groups`: of the jackknife.

    **Returns:** `Moments`.

    **Raises:** `ValueError` for losses or gradients that are not finite, and for arrays of different lengths.

    **Example:** `stream(net.split("stream:1"), SquaredError(), block.features, (x, y))`
    """
    found: dict[str, np.ndarray] = {}
    count, positions = np.zeros(groups), 1
    with jax.default_matmul_precision("highest"):
        for group, names, x, y in _work(data, chunk, groups):
            size = len(jax.tree.leaves(y)[0])
            sums, finite = _chunk_sums(split, loss, features, x, y, jnp.arange(size) < len(names))
            value_ok, gradient_ok = (np.where(np.asarray(ok)[: len(names)], 0.0, np.nan) for ok in finite)
            check_finite(value_ok, gradient_ok, names)
            for name, x_sum in sums.items():
                if name not in found:
                    found[name] = np.zeros((groups, *x_sum.shape))
                found[name][group] += np.asarray(x_sum, np.float64)
            if not count.any():
                positions = _positions(jax.eval_shape(split.bottom, jax.tree.map(lambda a: a[0], x)).shape)
            count[group] += len(names)
    if not count.any():
        raise ValueError("data has no batches; expected at least one.")
    return Moments(size=count, places=count * positions, **found)


@eqx.filter_jit
def _chunk_sums(split: Split, loss: Loss, features: Callable[..., Any], x: PyTree, y: PyTree, keep: Bool[Array, " samples"]):
    """(sums, (finite losses, finite gradients)) of a chunk; samples that only fill it up count for nothing."""
    u, gradient, value = jax.vmap(lambda x, y: activation_gradient(split, loss, x, y))(x, y)
    kept = keep.reshape((-1,) + (1,) * (u.ndim - 1))
    a = jnp.where(kept, jax.vmap(features)(u), 0)
    finite = jnp.isfinite(value), jnp.isfinite(gradient.reshape(len(gradient), -1)).all(1)
    return _sums(jnp.where(kept, gradient, 0), a, jnp.where(keep, value, 0)), finite


def _work(data: Data, chunk: int, groups: int) -> Iterator[tuple[int, np.ndarray, PyTree, PyTree]]:
    """(group, numbers of the true samples, x, y): of arrays every `groups`-th sample, of an iterable whole batches in turn."""
    if isinstance(data, tuple):
        x, y = data
        n = samples(x, y)
        for group in range(min(groups, n)):
            begin = group
            for x_part, y_part, count in pieces(*_every(x, y, group, groups), min(chunk, -(-n // groups))):
                yield group, begin + groups * np.arange(count), x_part, y_part
                begin += groups * count
    else:
        begin = 0
        for number, (x, y) in enumerate(data):
            for x_part, y_part, count in pieces(x, y, chunk):
                yield number % groups, begin + np.arange(count), x_part, y_part
                begin += count


def _every(x: PyTree, y: PyTree, first: int, step: int) -> tuple[PyTree, PyTree]:
    return jax.tree.map(lambda a: a[first::step], x), jax.tree.map(lambda a: a[first::step], y)


def _sums(g: Float[Array, "samples *positions dim"], a: Float[Array, "samples *positions m"], value: Float[Array, " samples"]) -> dict[str, Array]:
    """The sums of one group."""
    n, d, m = g.shape[0], g.shape[-1], a.shape[-1]
    positions = _positions(g.shape[1:])
    g, a = g.reshape(n, positions, d), a.reshape(n, positions, m)
    square = jnp.einsum("npi,npj->ij", g, g)
    trace = jnp.sum(g**2, axis=(1, 2))
    if g.shape[1] == 1:  # S has rank one: its entrywise square is an outer product as well
        g2 = g[:, 0] ** 2
        square2, signal2 = g2.T @ g2, jnp.sum(trace * jnp.sum(a**2, axis=(1, 2)))
    else:
        square2 = jnp.sum(jnp.einsum("npi,npj->nij", g, g) ** 2, axis=0)
        signal2 = jnp.sum(jnp.einsum("npi,nqi->npq", g, g) * jnp.einsum("npi,nqi->npq", a, a))
    return {
        "gradient": jnp.sum(g, axis=(0, 1)), "square": square, "square2": square2, "trace2": jnp.sum(trace**2),
        "signal": jnp.einsum("npi,npj->ij", g, a), "signal2": signal2,
        "features": jnp.sum(a, axis=(0, 1)), "gram": jnp.einsum("npi,npj->ij", a, a),
        "loss": jnp.sum(value), "loss2": jnp.sum(value**2),
    }  # fmt: skip


def _positions(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[:-1], dtype=int))
