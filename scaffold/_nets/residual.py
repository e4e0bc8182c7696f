r"""Normalised residual networks as a stem, a stack of layers, and a head; and the sites at which blocks can be inserted.

    pre-norm     u_l = u_{l-1} + F_l(N_l(u_{l-1})),   f = head(N(u_L))      sites "stream:l": u_l, l = 0, ..., L
    post-norm    u_l = N_l(u_{l-1} + F_l(u_{l-1})),   f = head(u_L)         sites "pre_norm_sum:l": what N_l is applied to, l = 1, ..., L

At both kinds of site a block that is 0 leaves the function as it was, whatever the normaliser's eps, gain and bias.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Float

from .._norms import AbstractNorm
from .._split import Split

Order = Literal["pre", "post"]


class Layer(eqx.Module):
    """Residual branches one after the other (attention and a perceptron, say), each with its normaliser."""

    branches: tuple[Callable[..., Any], ...]
    norms: tuple[AbstractNorm, ...]
    order: Order = eqx.field(static=True)

    def __call__(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """The whole layer."""
        if self.order == "post":
            return self.norms[-1](self.before_norm(u))
        for branch, norm in zip(self.branches, self.norms, strict=True):
            u = u + branch(norm(u))
        return u

    def before_norm(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """Post-norm: what the last normaliser is applied to."""
        for branch, norm in zip(self.branches[:-1], self.norms[:-1], strict=True):
            u = norm(u + branch(u))
        return u + self.branches[-1](u)


class ResidualNet(eqx.Module):
    r"""A normalised residual network of one sample.

    **Arguments:** `stem`: x -> u_0; `layers`: one `Layer` whose arrays have a leading axis over depth; `final`: the last normaliser of a pre-norm network;
    `head`: normalised u_L -> f. Built by `residual_mlp`, `residual_conv` and `residual_transformer`.

    **Example:**

    ```python
    net = residual_mlp(4, 2, dim=8, hidden=16, depth=3, key=jax.random.key(0))
    split = net.split("stream:1")
    ```
    """

    stem: Callable[..., Any]
    layers: Layer
    final: AbstractNorm | None
    head: Callable[..., Any]

    def __check_init__(self):
        if (self.final is None) == (self.layers.order == "pre"):
            raise ValueError(
                f"final={type(self.final).__name__} with order={self.layers.order!r}: expected a last normaliser for pre-norm and none for post-norm."
            )

    @property
    def depth(self) -> int:
        """L."""
        return jax.tree.leaves(eqx.filter(self.layers, eqx.is_array))[0].shape[0]

    @property
    def sites(self) -> tuple[str, ...]:
        """All sites, from bottom to top."""
        if self.layers.order == "pre":
            return tuple(f"stream:{level}" for level in range(self.depth + 1))
        return tuple(f"pre_norm_sum:{level}" for level in range(1, self.depth + 1))

    def __call__(self, x: Any) -> Float[Array, " out"]:
        """f(x)."""
        return Top(None, self.layers, self.final, self.head)(self.stem(x))

    def split(self, site: str) -> Split:
        """Cut at a site.

        **Raises:** `ValueError` for a site that this network has not.
        """
        if site not in self.sites:
            raise ValueError(f"site={site!r} is not in this network; expected one of {', '.join(self.sites)}.")
        level = int(site.split(":")[1])
        above = _part(self.layers, slice(level, None))
        if self.layers.order == "pre":
            return Split(Bottom(self.stem, _part(self.layers, slice(level)), None), Top(None, above, self.final, self.head), name=site)
        layer = _part(self.layers, level - 1)
        below = Bottom(self.stem, _part(self.layers, slice(level - 1)), layer)
        return Split(below, Top(layer.norms[-1], above, self.final, self.head), name=site)


class Bottom(eqx.Module):
    """Stem, layers below the site, and the branches below the normaliser that the site precedes."""

    stem: Callable[..., Any]
    layers: Layer
    last: Layer | None

    def __call__(self, x: Any) -> Float[Array, "*positions dim"]:
        """u(x)."""
        u = run(self.layers, self.stem(x))
        return u if self.last is None else self.last.before_norm(u)


class Top(eqx.Module):
    """The normaliser that follows the site, layers above, and the head."""

    norm: AbstractNorm | None
    layers: Layer
    final: AbstractNorm | None
    head: Callable[..., Any]

    def __call__(self, u: Float[Array, "*positions dim"]) -> Float[Array, " out"]:
        """f from u."""
        u = run(self.layers, u if self.norm is None else self.norm(u))
        return self.head(u if self.final is None else self.final(u))


def run(layers: Layer, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
    """All layers of a stack; its program does not grow with their number."""
    arrays, rest = eqx.partition(layers, eqx.is_array)
    return lax.scan(lambda u, one: (eqx.combine(one, rest)(u), None), u, arrays)[0]


def _part(layers: Layer, which: slice | int) -> Layer:
    return jax.tree.map(lambda x: x[which] if eqx.is_array(x) else x, layers)
