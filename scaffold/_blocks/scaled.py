r"""Blocks that are zero by a multiplier, by cancellation, or by their inner weights.

gate         alpha r_W(n), alpha = 0                 J v = alpha' r_W          one direction with two signs, nothing along W
layerscale   gamma * r_W(n), gamma = 0               J v = gamma' * r_W        d directions
antisym      r_W(n) - r_W'(n), W' = W                J v = d_W r_W [V - V']    the whole tangent space of r
zero_in      W2 sigma(W1 n + b1), W1 = 0, b1 = 0     J v = W2 sigma'(0) (V1 n + c1)        linear in n only
             the same with relu                      J v = W2 relu(V1 n + c1)              one-sided; automatic differentiation gives 0
double_zero  two or three of alpha, W1, W2 zero      J v = 0                   a saddle: no first-order signal whatever the data
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from .._activation import activation as find
from .._norms import AbstractNorm
from .base import AbstractBlock, read

Zeros = Literal["gate_and_out", "in_and_out", "all"]


class Gate(AbstractBlock):
    """h = alpha r(n) with a scalar alpha = 0 (ReZero).

    **Example:** `Gate.of(branch, norm=RMSNorm(8))` with any module `branch` of one sample.
    """

    params: dict[str, Any]
    rest: Any
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "gate"

    @classmethod
    def of(cls, branch: Callable[..., Any], *, norm: AbstractNorm | None = None) -> "Gate":
        """Around a branch."""
        arrays, rest = eqx.partition(branch, eqx.is_inexact_array)
        return cls({"alpha": jnp.zeros((), _dtype(arrays)), "branch": arrays}, rest, norm)

    def apply(self, params, u):
        return params["alpha"] * eqx.combine(params["branch"], self.rest)(read(self.norm, u))


class LayerScale(AbstractBlock):
    """h = gamma * r(n) with a vector gamma = 0.

    **Example:** `LayerScale.of(branch, dim=8, norm=RMSNorm(8))`
    """

    params: dict[str, Any]
    rest: Any
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "layerscale"

    @classmethod
    def of(cls, branch: Callable[..., Any], *, dim: int, norm: AbstractNorm | None = None) -> "LayerScale":
        """Around a branch."""
        arrays, rest = eqx.partition(branch, eqx.is_inexact_array)
        return cls({"gamma": jnp.zeros(dim, _dtype(arrays)), "branch": arrays}, rest, norm)

    def apply(self, params, u):
        return params["gamma"].reshape((1,) * (u.ndim - 1) + (-1,)) * eqx.combine(params["branch"], self.rest)(read(self.norm, u))


class Antisymmetric(AbstractBlock):
    """h = r_W(n) - r_W'(n) with W' = W.

    **Example:** `Antisymmetric.of(branch, norm=RMSNorm(8))`
    """

    params: dict[str, Any]
    rest: Any
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "antisym"

    @classmethod
    def of(cls, branch: Callable[..., Any], *, norm: AbstractNorm | None = None) -> "Antisymmetric":
        """Two copies of a branch."""
        arrays, rest = eqx.partition(branch, eqx.is_inexact_array)
        return cls({"plus": arrays, "minus": arrays}, rest, norm)

    def apply(self, params, u):
        n = read(self.norm, u)
        plus, minus = (eqx.combine(params[side], self.rest)(n) for side in ("plus", "minus"))
        return plus - minus


class ZeroIn(AbstractBlock):
    """h = W2 sigma(W1 n + b1) with W1 = 0 and b1 = 0 (GradMax).

    **Example:** `ZeroIn.init(8, 16, activation="tanh", key=jax.random.key(0))`
    """

    params: dict[str, Array]
    activation: str = eqx.field(static=True)
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "zero_in"

    @classmethod
    def init(cls, dim: int, hidden: int, *, activation: str = "tanh", norm: AbstractNorm | None = None, key: Key[Array, ""]) -> "ZeroIn":
        """Random W2 of variance 1/hidden."""
        return cls.of(jax.random.normal(key, (dim, hidden)) / math.sqrt(hidden), activation, norm)

    @classmethod
    def of(cls, b: Float[Array, "dim hidden"], activation: str, norm: AbstractNorm | None = None) -> "ZeroIn":
        """With a given W2."""
        find(activation)
        dim, hidden = b.shape
        return cls({"a": jnp.zeros((hidden, dim), b.dtype), "bias_a": jnp.zeros(hidden, b.dtype), "b": b}, activation, norm)

    @property
    def two_sided(self) -> bool:
        """Where the activation has a slope at 0."""
        return find(self.activation).slope_at_zero is not None

    def apply(self, params, u):
        pre = jnp.einsum("...i,hi->...h", read(self.norm, u), params["a"]) + params["bias_a"].reshape((1,) * (u.ndim - 1) + (-1,))
        return jnp.einsum("...h,ih->...i", find(self.activation).function(pre), params["b"])

    def first_order(self, u: Float[Array, "*positions dim"], v: PyTree[Array]) -> Float[Array, "*positions dim"]:
        if self.two_sided:
            return super().first_order(u, v)
        return self.apply(v | {"b": self.params["b"]}, u)  # relu is positively homogeneous: h at theta0 + t v is t times this


class DoubleZero(AbstractBlock):
    """h = alpha W2 sigma(W1 n) with two or three of its factors zero: a critical point whatever the data, here so that it can be found and named.

    **Example:** `DoubleZero.init(8, 16, zeros="in_and_out", key=jax.random.key(0))`
    """

    params: dict[str, Array]
    activation: str = eqx.field(static=True)
    norm: AbstractNorm | None = None
    family: ClassVar[str] = "double_zero"

    @classmethod
    def init(
        cls, dim: int, hidden: int, *, zeros: Zeros = "in_and_out", activation: str = "tanh", norm: AbstractNorm | None = None, key: Key[Array, ""]
    ) -> "DoubleZero":
        """Which factors are zero: the gate and W2, W1 and W2, or all three."""
        if zeros not in ("gate_and_out", "in_and_out", "all"):
            raise ValueError(f"zeros={zeros!r} is not known; expected gate_and_out, in_and_out or all.")
        find(activation)
        a = jnp.zeros((hidden, dim)) if zeros != "gate_and_out" else jax.random.normal(key, (hidden, dim)) / math.sqrt(dim)
        alpha = jnp.ones(()) if zeros == "in_and_out" else jnp.zeros(())
        return cls({"alpha": alpha, "a": a, "b": jnp.zeros((dim, hidden))}, activation, norm)

    def apply(self, params, u):
        act = find(self.activation).function(jnp.einsum("...i,hi->...h", read(self.norm, u), params["a"]))
        return params["alpha"] * jnp.einsum("...h,ih->...i", act, params["b"])


def _dtype(arrays: PyTree[Array]) -> Any:
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ValueError("branch has no parameters; expected a module with weights, such as TwoLayerBranch.")
    return leaves[0].dtype
