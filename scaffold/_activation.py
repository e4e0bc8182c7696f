"""Activations by name with what the theory asks of them: Lipschitz constant, slope at 0, whether they are smooth."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Function = Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]]


class Activation(NamedTuple):
    """A function with sigma(0) = 0, its Lipschitz constant L_sigma, and sigma'(0) where it has one."""

    function: Function
    lipschitz: float
    slope_at_zero: float | None
    smooth: bool


def _gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return jax.nn.gelu(x, approximate=False)


def _linear(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return x


#: The slope of gelu, Phi(x) + x phi(x), is largest at sqrt(2).
GELU_SLOPE = 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)
#: That of silu is largest where x tanh(x/2) = 2.
SILU_SLOPE = 1.0998393194191506

ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(jax.nn.relu, 1.0, None, False),
    "tanh": Activation(jnp.tanh, 1.0, 1.0, True),
    "gelu": Activation(_gelu, GELU_SLOPE, 0.5, True),
    "silu": Activation(jax.nn.silu, SILU_SLOPE, 0.5, True),
    "linear": Activation(_linear, 1.0, 1.0, True),
}


def activation(name: str) -> Activation:
    """Look one up, or say which there are."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation={name!r} is not known; expected one of {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]
