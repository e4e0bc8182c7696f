r"""Branches F(n) of residual layers, functions of one sample with the channel axis last.

two-layer     F(n) = B sigma(A n + a) + b                        position by position
convolution   F(n) = conv_B(sigma(conv_A(n)))                    3 x 3, pixels
attention     F(n) = O sum_heads softmax(q k^T / sqrt(d_h)) v    tokens
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from .._activation import activation

#: Pixels on each side of a convolution.
KERNEL = 3


class TwoLayerBranch(eqx.Module):
    """B sigma(A n + a) + b, at every position."""

    a: Float[Array, "hidden dim"]
    bias_a: Float[Array, " hidden"]
    b: Float[Array, "dim hidden"]
    bias_b: Float[Array, " dim"]
    activation: str = eqx.field(static=True)

    @classmethod
    def init(cls, dim: int, hidden: int, name: str, out_scale: float, *, key: Key[Array, ""]) -> "TwoLayerBranch":
        """Weights of variance 2/dim and out_scale^2/hidden, no bias."""
        first, second = jax.random.split(key)
        a = jax.random.normal(first, (hidden, dim)) * math.sqrt(2 / dim)
        b = jax.random.normal(second, (dim, hidden)) * (out_scale / math.sqrt(hidden))
        return cls(a, jnp.zeros(hidden, a.dtype), b, jnp.zeros(dim, b.dtype), name)

    def __call__(self, n: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """F(n)."""
        act = activation(self.activation).function(_affine(n, self.a, self.bias_a))
        return _affine(act, self.b, self.bias_b)

    def slope_and_offset(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(s, b) with |F(n)| <= s |n| + b: s = L_sigma |B| |A| in spectral norms."""
        reach = activation(self.activation).lipschitz * jnp.linalg.norm(self.b, 2)
        return reach * jnp.linalg.norm(self.a, 2), reach * jnp.linalg.norm(self.bias_a) + jnp.linalg.norm(self.bias_b)


class ConvBranch(eqx.Module):
    """Two 3 x 3 convolutions with an activation between."""

    a: Float[Array, "3 3 dim hidden"]
    bias_a: Float[Array, " hidden"]
    b: Float[Array, "3 3 hidden dim"]
    bias_b: Float[Array, " dim"]
    activation: str = eqx.field(static=True)

    @classmethod
    def init(cls, dim: int, hidden: int, name: str, out_scale: float, *, key: Key[Array, ""]) -> "ConvBranch":
        """As the two-layer branch, fan-in counted over the kernel."""
        first, second = jax.random.split(key)
        a = jax.random.normal(first, (KERNEL, KERNEL, dim, hidden)) * math.sqrt(2 / (KERNEL**2 * dim))
        b = jax.random.normal(second, (KERNEL, KERNEL, hidden, dim)) * (out_scale / math.sqrt(KERNEL**2 * hidden))
        return cls(a, jnp.zeros(hidden, a.dtype), b, jnp.zeros(dim, b.dtype), name)

    def __call__(self, n: Float[Array, "height width dim"]) -> Float[Array, "height width dim"]:
        """F(n)."""
        return convolve(activation(self.activation).function(convolve(n, self.a, self.bias_a)), self.b, self.bias_b)


class AttentionBranch(eqx.Module):
    """Multi-head self-attention over tokens."""

    query: Float[Array, "heads head dim"]
    key_: Float[Array, "heads head dim"]
    value: Float[Array, "heads head dim"]
    out: Float[Array, "dim heads head"]

    @classmethod
    def init(cls, dim: int, heads: int, out_scale: float, *, key: Key[Array, ""]) -> "AttentionBranch":
        """Queries, keys and values of variance 1/dim."""
        if dim % heads:
            raise ValueError(f"heads={heads} does not divide dim={dim}; expected a divisor.")
        head, keys = dim // heads, jax.random.split(key, 4)
        q, k, v = (jax.random.normal(keys[i], (heads, head, dim)) / math.sqrt(dim) for i in range(3))
        return cls(q, k, v, jax.random.normal(keys[3], (dim, heads, head)) * (out_scale / math.sqrt(dim)))

    def __call__(self, n: Float[Array, "tokens dim"]) -> Float[Array, "tokens dim"]:
        """F(n)."""
        return jnp.einsum("thk,dhk->td", heads(n, self.query, self.key_, self.value), self.out)


def heads(
    n: Float[Array, "tokens dim"], query: Float[Array, "heads head dim"], key: Float[Array, "heads head dim"], value: Float[Array, "heads head dim"]
) -> Float[Array, "tokens heads head"]:
    """What every head reads for every token."""
    q, k, v = (jnp.einsum("td,hkd->htk", n, w) for w in (query, key, value))
    weights = jax.nn.softmax(jnp.einsum("htk,hsk->hts", q, k) / math.sqrt(query.shape[1]), axis=-1)
    return jnp.einsum("hts,hsk->thk", weights, v)


def convolve(
    n: Float[Array, "height width dim"], kernel: Float[Array, "3 3 dim out"], bias: Float[Array, " out"], stride: int = 1
) -> Float[Array, "rows columns out"]:
    """One image, padded with zeros to the same size (divided by the stride)."""
    out = lax.conv_general_dilated(n[None], kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))[0]
    return out + bias[None, None]


def _affine(n, weights, bias):
    return jnp.einsum("...d,hd->...h", n, weights) + bias.reshape((1,) * (n.ndim - 1) + (-1,))
