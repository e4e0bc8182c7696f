r"""Features a(u) of new neurons: drawn at random, or chosen so that they see the activation gradients.

    J(w, b) = |E[G sigma(w.n + b)]| / sqrt(E sigma(w.n + b)^2)

is the signal of one neuron at unit function size. It is maximised over the unit sphere of (w, b), from the top right singular vectors of E[G n^T], random
points of the sphere, and inputs n_i. Further neurons are chosen greedily: each feature is first made orthogonal to those chosen before (Gram-Schmidt).
Whatever was chosen on these samples must be judged on others.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from ._activation import activation as find
from ._blocks.base import read
from ._blocks.features import ZeroOut
from ._norms import AbstractNorm

#: Starting points of the ascent, its steps and step size (on the unit sphere).
STARTS, STEPS, RATE = 24, 150, 0.05


def optimised_features(
    gradient: Float[np.ndarray, "n *positions dim"],
    u: Float[np.ndarray, "k *places m"],
    hidden: int,
    *,
    activation: str = "relu",
    norm: AbstractNorm | None = None,
    starts: int = STARTS,
    steps: int = STEPS,
    key: Key[Array, ""],
) -> ZeroOut:
    r"""A block whose neurons were chosen to see the activation gradients of these samples.

    **Arguments:** `gradient`, `u`: G and u, samples first; `hidden`: number of neurons; `norm`: what the block reads u through; `starts`, `steps`: of the
    ascent for each neuron.

    **Returns:** a `ZeroOut` block.

    **Raises:** `ValueError` for G and u of different shapes.

    Source: arXiv 2605.08297, condition 1, for blocks with trainable features.

    **Example:** `optimised_features(g, u, 4, activation="relu", key=jax.random.key(0))`
    """
    if np.shape(gradient) != np.shape(u):
        raise ValueError(f"gradient has shape {np.shape(gradient)} and u {np.shape(u)}; expected the same, samples first.")
    if hidden < 1:
        raise ValueError(f"hidden={hidden} is not possible; expected at least 1.")
    sigma, dim = find(activation).function, u.shape[-1]
    g = jnp.asarray(gradient).reshape(-1, dim)
    n = read(norm, jnp.asarray(u)).reshape(-1, dim)
    inputs = jnp.concatenate([n, jnp.ones((len(n), 1), n.dtype)], axis=1)
    chosen: list[Array] = []
    basis = jnp.zeros((len(n), hidden), n.dtype)
    for number in range(hidden):
        begin = _starts(g, inputs, starts, jax.random.fold_in(key, number))
        with jax.default_matmul_precision("highest"):
            found, values = _ascend(begin, g, inputs, basis, sigma, steps)
        best = found[int(jnp.argmax(values))]
        chosen.append(best)
        basis = basis.at[:, number].set(_unit(_less(sigma(inputs @ best), basis)))
    weights = jnp.stack(chosen)
    return ZeroOut.of(weights[:, :-1], weights[:, -1], activation, norm)


@eqx.filter_jit
def _ascend(begin, g, inputs, basis, sigma, steps: int):
    """Projected ascent from every start: (points, values of J)."""

    def value(w):
        feature = _less(sigma(inputs @ w), basis)
        return jnp.linalg.norm(feature @ g) / jnp.sqrt(jnp.sum(feature**2) * len(g) + 1e-30)

    rule = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def step(carry, _):
        w, state = carry
        slope = jax.vmap(jax.grad(value))(w)
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies its counters of steps into weights
            updates, state = rule.update(-slope, state)
        new = w + updates
        return (new / jnp.linalg.norm(new, axis=1, keepdims=True), state), None

    (w, _), _ = jax.lax.scan(step, (begin, rule.init(begin)), None, length=steps)
    return w, jax.vmap(value)(w)


def _starts(g, inputs, starts: int, key) -> Float[Array, "starts dim_plus_1"]:
    """A third singular vectors with both signs, a third inputs, the rest random."""
    right = jnp.linalg.svd(g.T @ inputs, full_matrices=False)[2][: max(1, starts // 6)]
    first, second = jax.random.split(key)
    own = inputs[jax.random.choice(first, len(inputs), (min(starts // 3, len(inputs)),), replace=False)]
    rest = jax.random.normal(second, (max(starts - 2 * len(right) - len(own), 1), inputs.shape[1]), inputs.dtype)
    points = jnp.concatenate([right, -right, own, rest])
    return points / jnp.linalg.norm(points, axis=1, keepdims=True)


def _less(feature, basis):
    """Without its part in the span of the orthonormal columns (zero columns count for nothing)."""
    return feature - basis @ (basis.T @ feature)


def _unit(feature):
    return feature / jnp.maximum(jnp.linalg.norm(feature), 1e-30)


def neuron_signals(gradient: Float[np.ndarray, "n *positions dim"], features: Float[np.ndarray, "n *positions m"]) -> Float[np.ndarray, " m"]:
    r"""Unbiased estimates of |E[G a_j]|^2, one for every feature; negative where the truth is small.

    **Example:** `neuron_signals(g, a).max()`
    """
    g = np.asarray(gradient, np.float64).reshape(len(gradient), -1, gradient.shape[-1])
    a = np.asarray(features, np.float64).reshape(len(features), -1, features.shape[-1])
    n = len(g)
    z = np.einsum("npi,npj->nji", g, a)
    return (np.sum(z.sum(0) ** 2, axis=-1) - np.sum(z**2, axis=(0, 2))) / (n * (n - 1))


def share_of_neurons(signals2: Float[np.ndarray, " m"], eta: float) -> tuple[float, float]:
    """(p, se): the share of random neurons with a signal of at least eta, and its binomial standard error; no neuron of m has one with probability (1 - p)^m.

    **Example:** `share_of_neurons(neuron_signals(g, a), 0.1)`
    """
    p = float(np.mean(np.asarray(signals2) >= eta**2))
    return p, math.sqrt(p * (1 - p) / len(signals2))
