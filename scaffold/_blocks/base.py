r"""What a zero-initialised block is: h_theta : R^d -> R^d with h_theta0 = 0, and its first-order map.

    J v (u) = d/dt h_{theta0 + t v}(u)  at t = 0+

It decides which functions a first gradient step can add; everything else in this package asks blocks for it and for nothing more.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree


class AbstractBlock(eqx.Module):
    """A block at its zero initialisation, a function of one sample. `params` are what training would change; directions v have their structure.

    Source: arXiv 2605.08297, section 2.1.
    """

    params: eqx.AbstractVar[PyTree[Array]]
    #: Name of the family in reports.
    family: ClassVar[str]

    @property
    def two_sided(self) -> bool:
        """Is J v linear in v? Where it is not (a kink at the initialisation), signals of v and -v say nothing of each other."""
        return True

    @abc.abstractmethod
    def apply(self, params: PyTree[Array], u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """h_theta(u) at any parameters."""

    def __call__(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """h_theta(u) at the block's own parameters."""
        return self.apply(self.params, u)

    def zero_tangent(self) -> PyTree[Array]:
        """The direction v = 0."""
        return jax.tree.map(jnp.zeros_like, self.params)

    def random_tangent(self, *, key: Key[Array, ""]) -> PyTree[Array]:
        """A direction with independent standard normal entries."""
        leaves, structure = jax.tree.flatten(self.params)
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(structure, [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)])

    def moved(self, v: PyTree[Array], t: float | Float[Array, ""]) -> "AbstractBlock":
        """The block at theta0 + t v."""
        return eqx.tree_at(lambda block: block.params, self, jax.tree.map(lambda x, dx: x + t * dx, self.params, v))

    def first_order(self, u: Float[Array, "*positions dim"], v: PyTree[Array]) -> Float[Array, "*positions dim"]:
        """J v (u), by a forward-mode derivative."""
        return jax.jvp(lambda params: self.apply(params, u), (self.params,), (v,))[1]

    def signal_vector(self, u: Float[Array, "*positions dim"], gradient: Float[Array, "*positions dim"]) -> PyTree[Array]:
        """J^T G: <G, J v(u)>, summed over positions, is its inner product with v.

        **Raises:** `ValueError` for a family that is not linear at first order.
        """
        if not self.two_sided:
            raise ValueError(
                f"family {self.family!r} has a kink at its initialisation and no signal vector; expected a smooth one. Give a direction v instead."
            )
        return jax.vjp(lambda params: self.apply(params, u), self.params)[1](gradient)[0]


class AbstractFeatureBlock(AbstractBlock):
    """Families in which h = V a(u) with V = 0 and fixed features a: `bias`, `linear`, `zero_out`, `attention`."""

    @abc.abstractmethod
    def features(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions m"]:
        """a(u) at every position."""

    @abc.abstractmethod
    def direction(self, matrix: Float[Array, "dim m"]) -> PyTree[Array]:
        """The direction v with J v (u) = matrix @ a(u)."""


def inner(first: PyTree[Array], second: PyTree[Array]) -> Float[Array, ""]:
    """Inner product of two directions."""
    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), first, second))))


def norm_of(v: PyTree[Array]) -> Float[Array, ""]:
    """Euclidean length of a direction."""
    return jnp.sqrt(inner(v, v))


def read(norm: Any, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
    """What a block reads: N(u), or u itself."""
    return u if norm is None else norm(u)
