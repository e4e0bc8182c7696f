r"""Blocks that are linear in what is zero: h = V a(u).

    bias        c                                   a = 1
    linear      V n                                 a = n
    features    V a(u)                              a is yours
    zero_out    W2 sigma(W1 n + b1) + b2            a = (sigma(W1 n + b1), 1),   nothing along W1 and b1
    zero_out    conv_B(sigma(conv_A(n))), B = 0     a = 3 x 3 patches of sigma(conv_A(n)), pixel by pixel
    attention   W_O heads(n) + b                    a = (heads(n), 1)

n is N(u) where the block has a normaliser and u where it has none.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from .._activation import activation as find
from .._nets.branch import KERNEL, convolve, heads as read_heads
from .._norms import AbstractNorm
from .base import AbstractFeatureBlock, read


class Bias(AbstractFeatureBlock):
    """h = c, the same for every sample.

    **Example:** `Bias.init(8)`
    """

    params: Float[Array, " dim"]
    family: ClassVar[str] = "bias"

    @classmethod
    def init(cls, dim: int) -> "Bias":
        """c = 0."""
        return cls(jnp.zeros(dim))

    def apply(self, params, u):
        return jnp.broadcast_to(params.reshape((1,) * (u.ndim - 1) + (-1,)), u.shape)

    def features(self, u):
        return jnp.ones((*u.shape[:-1], 1), u.dtype)

    def direction(self, matrix):
        return matrix[:, 0]


class Linear(AbstractFeatureBlock):
    """h = V n.

    **Example:** `Linear.init(8, norm=RMSNorm(8))`
    """

    params: Float[Array, "dim dim"]
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "linear"

    @classmethod
    def init(cls, dim: int, *, norm: AbstractNorm | None = None) -> "Linear":
        """V = 0."""
        return cls(jnp.zeros((dim, dim)), norm)

    def apply(self, params, u):
        return jnp.einsum("...j,ij->...i", read(self.norm, u), params)

    def features(self, u):
        return read(self.norm, u)

    def direction(self, matrix):
        return matrix


class FeatureMap(AbstractFeatureBlock):
    """h = V a(u) with any function a of one sample's u: features of your own.

    **Example:** `FeatureMap.of(lambda u: u[:1] * u[1:2], dim=2, features=1)`
    """

    params: Float[Array, "dim m"]
    function: Callable[[Float[Array, "*positions dim"]], Float[Array, "*positions m"]]
    family: ClassVar[str] = "features"

    @classmethod
    def of(cls, function: Callable[..., Any], *, dim: int, features: int) -> "FeatureMap":
        """V = 0."""
        return cls(jnp.zeros((dim, features)), function)

    def apply(self, params, u):
        return jnp.einsum("...j,ij->...i", self.function(u), params)

    def features(self, u):
        return self.function(u)

    def direction(self, matrix):
        return matrix


class ZeroOut(AbstractFeatureBlock):
    """h = W2 sigma(W1 n + b1) + b2 with W2 = 0 and b2 = 0: new neurons whose outgoing weights are zero.

    **Example:** `ZeroOut.init(8, 16, activation="relu", norm=RMSNorm(8), key=jax.random.key(0))`
    """

    params: dict[str, Array]
    activation: str = eqx.field(static=True)
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "zero_out"

    @classmethod
    def init(cls, dim: int, hidden: int, *, activation: str = "relu", norm: AbstractNorm | None = None, key: Key[Array, ""]) -> "ZeroOut":
        """Random W1 of variance 1/dim and b1 of variance 1: with normalised inputs both matter alike."""
        first, second = jax.random.split(key)
        return cls.of(jax.random.normal(first, (hidden, dim)) / math.sqrt(dim), jax.random.normal(second, (hidden,)), activation, norm)

    @classmethod
    def of(cls, a: Float[Array, "hidden dim"], bias_a: Float[Array, " hidden"], activation: str, norm: AbstractNorm | None = None) -> "ZeroOut":
        """With given W1 and b1."""
        find(activation)
        hidden, dim = a.shape
        params = {"a": a, "bias_a": bias_a, "b": jnp.zeros((dim, hidden), a.dtype), "bias_b": jnp.zeros(dim, a.dtype)}
        return cls(params, activation, norm)

    def apply(self, params, u):
        return jnp.einsum("...h,ih->...i", self._act(params, u), params["b"]) + _spread(params["bias_b"], u.ndim)

    def features(self, u):
        return _with_one(self._act(self.params, u))

    def direction(self, matrix):
        return self.zero_tangent() | {"b": matrix[:, :-1], "bias_b": matrix[:, -1]}

    def _act(self, params, u):
        return find(self.activation).function(jnp.einsum("...i,hi->...h", read(self.norm, u), params["a"]) + _spread(params["bias_a"], u.ndim))


class ZeroOutConv(AbstractFeatureBlock):
    """Two 3 x 3 convolutions with an activation between, the second zero; for pixels (height, width, dim).

    **Example:** `ZeroOutConv.init(8, 16, norm=RMSNorm(8), key=jax.random.key(0))`
    """

    params: dict[str, Array]
    activation: str = eqx.field(static=True)
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "zero_out"

    @classmethod
    def init(cls, dim: int, hidden: int, *, activation: str = "relu", norm: AbstractNorm | None = None, key: Key[Array, ""]) -> "ZeroOutConv":
        """As `ZeroOut`, fan-in counted over the kernel."""
        find(activation)
        first, second = jax.random.split(key)
        a = jax.random.normal(first, (KERNEL, KERNEL, dim, hidden)) / math.sqrt(KERNEL**2 * dim)
        params = {
            "a": a,
            "bias_a": jax.random.normal(second, (hidden,)),
            "b": jnp.zeros((KERNEL, KERNEL, hidden, dim), a.dtype),
            "bias_b": jnp.zeros(dim, a.dtype),
        }
        return cls(params, activation, norm)

    def apply(self, params, u):
        return convolve(self._act(params, u), params["b"], params["bias_b"])

    def features(self, u):
        patches = lax.conv_general_dilated_patches(
            self._act(self.params, u)[None], (KERNEL, KERNEL), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]
        return _with_one(patches)

    def direction(self, matrix):
        hidden = self.params["a"].shape[-1]
        kernel = matrix[:, :-1].reshape(-1, hidden, KERNEL, KERNEL)  # patches come channel by channel
        return self.zero_tangent() | {"b": kernel.transpose(2, 3, 1, 0), "bias_b": matrix[:, -1]}

    def _act(self, params, u):
        return find(self.activation).function(convolve(read(self.norm, u), params["a"], params["bias_a"]))


class ZeroOutAttention(AbstractFeatureBlock):
    """h = W_O heads(n) + b with W_O = 0 and b = 0, for tokens (tokens, dim). Features of a token depend on all tokens.

    **Example:** `ZeroOutAttention.init(8, heads=2, norm=LayerNorm(8), key=jax.random.key(0))`
    """

    params: dict[str, Array]
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "attention"

    @classmethod
    def init(cls, dim: int, *, heads: int = 4, norm: AbstractNorm | None = None, key: Key[Array, ""]) -> "ZeroOutAttention":
        """Queries, keys and values of variance 1/dim."""
        if dim % heads:
            raise ValueError(f"heads={heads} does not divide dim={dim}; expected a divisor.")
        shape = (heads, dim // heads, dim)
        names = ("query", "key", "value")
        drawn = {name: jax.random.normal(k, shape) / math.sqrt(dim) for name, k in zip(names, jax.random.split(key, 3), strict=True)}
        return cls(drawn | {"out": jnp.zeros((dim, dim)), "bias": jnp.zeros(dim)}, norm)

    def apply(self, params, u):
        return jnp.einsum("tj,ij->ti", self._heads(params, u), params["out"]) + params["bias"][None]

    def features(self, u):
        return _with_one(self._heads(self.params, u))

    def direction(self, matrix):
        return self.zero_tangent() | {"out": matrix[:, :-1], "bias": matrix[:, -1]}

    def _heads(self, params, u):
        return read_heads(read(self.norm, u), params["query"], params["key"], params["value"]).reshape(u.shape)


def _with_one(a: Float[Array, "*positions m"]) -> Float[Array, "*positions m_plus_1"]:
    return jnp.concatenate([a, jnp.ones((*a.shape[:-1], 1), a.dtype)], axis=-1)


def _spread(x: Float[Array, " m"], ndim: int) -> Float[Array, "*ones m"]:
    return x.reshape((1,) * (ndim - 1) + (-1,))
