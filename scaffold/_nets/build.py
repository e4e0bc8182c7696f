r"""Ready-made networks. Every initial variance stands here: branches write with 1/sqrt(L), so that the stream of a deep network stays of order one."""

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._activation import activation as check_activation
from .._norms import AbstractNorm, Clamp, LayerNorm, RMSNorm
from .branch import KERNEL, AttentionBranch, ConvBranch, TwoLayerBranch, convolve
from .residual import Layer, Order, ResidualNet

NormKind = Literal["rms", "layer", "clamp"]
#: eps of the normalisers unless the caller says otherwise.
EPS = 1e-6


class Affine(eqx.Module):
    """x -> W x + b on the last axis."""

    weight: Float[Array, "out dim"]
    bias: Float[Array, " out"]

    @classmethod
    def init(cls, dim: int, out: int, *, key: Key[Array, ""]) -> "Affine":
        """Variance 1/dim, no bias."""
        weight = jax.random.normal(key, (out, dim)) / math.sqrt(dim)
        return cls(weight, jnp.zeros(out, weight.dtype))

    def __call__(self, x: Float[Array, "*positions dim"]) -> Float[Array, "*positions out"]:
        return jnp.einsum("...d,od->...o", x, self.weight) + self.bias.reshape((1,) * (x.ndim - 1) + (-1,))


class ConvStem(eqx.Module):
    """A 3 x 3 convolution with a stride."""

    kernel: Float[Array, "3 3 channels dim"]
    bias: Float[Array, " dim"]
    stride: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "height width channels"]) -> Float[Array, "rows columns dim"]:
        return convolve(x, self.kernel, self.bias, self.stride)


class TokenStem(eqx.Module):
    """An affine map of every token, and a vector for its position."""

    embed: Affine
    place: Float[Array, "tokens dim"]

    def __call__(self, x: Float[Array, "tokens features"]) -> Float[Array, "tokens dim"]:
        return self.embed(x) + self.place


class PooledHead(eqx.Module):
    """The mean over positions, then an affine map."""

    affine: Affine

    def __call__(self, u: Float[Array, "*positions dim"]) -> Float[Array, " out"]:
        return self.affine(u.reshape(-1, u.shape[-1]).mean(0))


def residual_mlp(
    inputs: int,
    out: int,
    *,
    dim: int,
    hidden: int,
    depth: int,
    activation: str = "relu",
    norm: NormKind = "rms",
    order: Order = "pre",
    eps: float = EPS,
    gain: bool = False,
    key: Key[Array, ""],
) -> ResidualNet:
    r"""Two-layer perceptron layers on a stream of `dim` numbers.

    **Arguments:** `inputs`, `out`: sizes of x and f; `dim`: d; `hidden`: m; `depth`: L; `norm`: "rms", "layer" or "clamp" (radius 1/2); `order`: "pre" or
    "post"; `eps`: of the normalisers; `gain`: with trainable gains and biases.

    **Example:** `residual_mlp(64, 10, dim=32, hidden=64, depth=4, key=jax.random.key(0))`
    """
    check_activation(activation)
    stem_key, layer_key, head_key = jax.random.split(key, 3)

    def branches(key):
        return (TwoLayerBranch.init(dim, hidden, activation, 1 / math.sqrt(depth), key=key),)

    return _assemble(Affine.init(inputs, dim, key=stem_key), branches, Affine.init(dim, out, key=head_key), dim, depth, norm, order, eps, gain, layer_key)


def residual_conv(
    channels: int,
    out: int,
    *,
    dim: int,
    hidden: int,
    depth: int,
    stride: int = 2,
    activation: str = "relu",
    norm: NormKind = "rms",
    order: Order = "pre",
    eps: float = EPS,
    gain: bool = False,
    key: Key[Array, ""],
) -> ResidualNet:
    """Pairs of 3 x 3 convolutions on `dim` channels, which are normalised pixel by pixel; no batch normalisation. `stride`: of the stem.

    **Example:** `residual_conv(3, 10, dim=16, hidden=16, depth=3, key=jax.random.key(0))` for images (32, 32, 3).
    """
    check_activation(activation)
    stem_key, layer_key, head_key = jax.random.split(key, 3)
    kernel = jax.random.normal(stem_key, (KERNEL, KERNEL, channels, dim)) / math.sqrt(KERNEL**2 * channels)
    stem = ConvStem(kernel, jnp.zeros(dim, kernel.dtype), stride)

    def branches(key):
        return (ConvBranch.init(dim, hidden, activation, 1 / math.sqrt(depth), key=key),)

    return _assemble(stem, branches, PooledHead(Affine.init(dim, out, key=head_key)), dim, depth, norm, order, eps, gain, layer_key)


def residual_transformer(
    tokens: int,
    features: int,
    out: int,
    *,
    dim: int,
    hidden: int,
    depth: int,
    heads: int = 4,
    activation: str = "gelu",
    norm: NormKind = "layer",
    order: Order = "pre",
    eps: float = EPS,
    gain: bool = False,
    key: Key[Array, ""],
) -> ResidualNet:
    """Attention and a two-layer perceptron in every layer, for samples (tokens, features); the head reads the mean over tokens.

    **Example:** `residual_transformer(8, 8, 10, dim=32, hidden=64, depth=2, key=jax.random.key(0))`
    """
    check_activation(activation)
    stem_key, place_key, layer_key, head_key = jax.random.split(key, 4)
    stem = TokenStem(Affine.init(features, dim, key=stem_key), jax.random.normal(place_key, (tokens, dim)) / math.sqrt(dim))

    def branches(key):
        first, second = jax.random.split(key)
        scale = 1 / math.sqrt(2 * depth)
        return AttentionBranch.init(dim, heads, scale, key=first), TwoLayerBranch.init(dim, hidden, activation, scale, key=second)

    return _assemble(stem, branches, PooledHead(Affine.init(dim, out, key=head_key)), dim, depth, norm, order, eps, gain, layer_key)


def make_norm(kind: NormKind, dim: int, eps: float = EPS, gain: bool = False) -> AbstractNorm:
    """A normaliser by name; a clamp has radius 1/2."""
    extra: dict[str, Any] = {"gain": jnp.ones(dim), "bias": jnp.zeros(dim)} if gain else {}
    if kind == "rms":
        return RMSNorm(dim, eps=eps, **extra)
    if kind == "layer":
        return LayerNorm(dim, eps=eps, **extra)
    if kind == "clamp":
        return Clamp(dim, radius=0.5, **extra)
    raise ValueError(f"norm={kind!r} is not known; expected rms, layer or clamp.")


def _assemble(stem, branches: Callable, head, dim, depth, norm, order, eps, gain, key) -> ResidualNet:
    if order not in ("pre", "post"):
        raise ValueError(f"order={order!r} is not known; expected pre or post.")
    if depth < 1:
        raise ValueError(f"depth={depth} is not possible; expected at least 1.")

    def layer(key):
        made = branches(key)
        return Layer(made, tuple(make_norm(norm, dim, eps, gain) for _ in made), order)

    final = make_norm(norm, dim, eps, gain) if order == "pre" else None
    return ResidualNet(stem, eqx.filter_vmap(layer)(jax.random.split(key, depth)), final, head)
