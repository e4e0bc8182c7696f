r"""Losses: a mean over the data, a function of outputs f and targets y, both (batch, d_out)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Loss = Callable[[Float[Array, "batch out"], Float[Array, "batch out"]], Float[Array, ""]]


def squared(f: Float[Array, "batch out"], y: Float[Array, "batch out"]) -> Float[Array, ""]:
    """1/(2 n d_out) sum |f - y|^2."""
    return 0.5 * jnp.mean((f - y) ** 2)


def logistic(f: Float[Array, "batch out"], y: Float[Array, "batch out"]) -> Float[Array, ""]:
    """1/(n d_out) sum log(1 + exp(-y f)), targets -1 or +1."""
    return jnp.mean(jax.nn.softplus(-y * f))


def softmax(f: Float[Array, "batch out"], y: Float[Array, "batch out"]) -> Float[Array, ""]:
    """1/n sum of the cross-entropies of softmax(f) against one-hot targets."""
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(f, axis=-1), axis=-1))


LOSSES: dict[str, Loss] = {"squared": squared, "logistic": logistic, "softmax": softmax}
