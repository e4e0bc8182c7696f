"""Activation functions by name, each with its derivative from one forward-mode pass."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import erf
from jaxtyping import Array, Float

Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]


def linear(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The identity: units are bilinear and the limit is a closed moment system."""
    return x


def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x times the normal distribution function (the exact form, not the tanh approximation)."""
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS: dict[str, Activation] = {
    "tanh": jnp.tanh,
    "erf": erf,
    "relu": jax.nn.relu,
    "gelu": gelu,
    "softplus": jax.nn.softplus,
    "linear": linear,
}


#: Activations with a kink, at which an ODE solver of high order loses its order.
KINKED = ("relu",)


def value_and_slope(sigma: Activation, x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """sigma(x) and sigma'(x), elementwise."""
    value, slope = jax.jvp(sigma, (x,), (jnp.ones_like(x),))
    return value, slope
