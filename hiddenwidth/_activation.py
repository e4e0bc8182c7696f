"""Activation functions by name, each with its derivative from one forward-mode pass."""

import dataclasses
import math
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


#: Activations whose slope follows from their value, which then is all that has to be kept for the backward sweep.
SLOPE_FROM_VALUE: dict[str, Activation] = {
    "tanh": lambda value: 1 - value * value,
    "linear": jnp.ones_like,
    "relu": lambda value: (value > 0).astype(value.dtype),
}

#: Activations with a kink, at which an ODE solver of high order loses its order.
KINKED = ("relu",)


@dataclasses.dataclass(frozen=True)
class Polynomial:
    """The activation sum_m c_m x^m, lowest order first: its kernels are known in closed form.

    **Example:** `hw.TwoLayer(hw.Polynomial((0.0, 1.0, 0.0, -0.1)))`, x - x^3/10.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self):
        if not self.coefficients or not all(math.isfinite(c) for c in self.coefficients):
            raise ValueError(f"coefficients={self.coefficients!r} is not possible; expected at least one finite number, lowest order first.")

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Horner's scheme."""
        total = jnp.full_like(x, self.coefficients[-1])
        for c in self.coefficients[-2::-1]:
            total = total * x + c
        return total


def value_and_slope(sigma: Activation, x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """sigma(x) and sigma'(x), elementwise."""
    value, slope = jax.jvp(sigma, (x,), (jnp.ones_like(x),))
    return value, slope
