"""Scalar laws with mean 0 and variance 1: the raw material of every initialisation.

A unit's initial law mu_0 is the push-forward of independent standard scalars. A finite network draws them, a limit integrates over them
through their quantile function; both therefore see the same law.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy import special


class AbstractLaw(eqx.Module):
    """A scalar law with mean 0 and variance 1."""

    #: Are independent copies jointly rotation invariant? True for the Gaussian only; the exact reduction needs it.
    rotation_invariant: ClassVar[bool]
    #: Do x and -x have the same law?
    symmetric: ClassVar[bool]

    @abc.abstractmethod
    def sample(self, shape: tuple[int, ...], *, dtype=jnp.float32, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Draw independent values. Drawn flat and reshaped: a draw with several axes takes XLA five times as long to compile."""

    @abc.abstractmethod
    def quantile(self, u: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Map uniform points of (0, 1) to the law (numpy, float64)."""


class Gaussian(AbstractLaw):
    """The standard normal law N(0, 1)."""

    rotation_invariant: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def sample(self, shape, *, dtype=jnp.float32, key):
        return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)

    def quantile(self, u):
        return special.ndtri(u)


class Skewed(AbstractLaw):
    """The centred exponential law Exp(1) - 1: mean 0, variance 1, third moment 2.

    It is not symmetric, so terms that vanish by symmetry under a Gaussian law show up.
    """

    rotation_invariant: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False

    def sample(self, shape, *, dtype=jnp.float32, key):
        return jax.random.exponential(key, (math.prod(shape),), dtype).reshape(shape) - 1

    def quantile(self, u):
        return -np.log1p(-u) - 1.0


LAWS: dict[str, AbstractLaw] = {"gaussian": Gaussian(), "skewed": Skewed()}
