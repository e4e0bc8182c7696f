r"""A residual unit: a function phi(h, z) of the hidden state and of the unit's own parameters, with the law of z at initialisation.

A block of M units adds  sum_j w_j phi(h, z_j)  to the residual stream. The weights w_j are 1/M in a network and quadrature weights in a
limit; everything else is shared, so a unit is written once and feeds both.
"""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._law import AbstractLaw
from ._scaling import InitStd, Scaling


class AbstractUnit(eqx.Module):
    """One unit of a residual block, phi(h, z), and the law of z.

    A subclass gives `__call__`, `laws` and `params`. `block` and `block_vjp` have generic versions here; override both, together, where
    a closed form is faster.
    """

    @abc.abstractmethod
    def __call__(self, h: Float[Array, " dim"], z: PyTree) -> Float[Array, " dim"]:
        """phi(h, z) for one hidden state and one unit."""

    @abc.abstractmethod
    def laws(self, dim: int) -> Sequence[tuple[AbstractLaw, int]]:
        """The independent standard scalars that a unit is built from: (law, how many) in order."""

    @abc.abstractmethod
    def params(self, standard: Sequence[Float[Any, "*units scalars"]], std: InitStd) -> PyTree:
        """Build z from standard scalars (mean 0, variance 1), one array for each entry of `laws`, and the initial standard deviations."""

    @property
    def smooth(self) -> bool:
        """Is phi smooth? Solvers of limits work to tighter tolerances where it is."""
        return True

    def rates(self, scaling: Scaling) -> PyTree:
        """The step eta/alpha of each leaf of z: one number for all, or a tree with numbers for whole parts of z."""
        return scaling.step().u

    def block(self, h: Float[Array, "batch dim"], z: PyTree, weights: Float[Array, " width"]) -> tuple[Float[Array, "batch dim"], PyTree]:
        """sum_j w_j phi(h_x, z_j) for every data point x, and whatever `block_vjp` wants to find again."""
        phi = jax.vmap(jax.vmap(self, in_axes=(None, 0)), in_axes=(0, None))(h, z)
        return jnp.einsum("j,xjc->xc", weights, phi), None

    def block_vjp(
        self, h: Float[Array, "batch dim"], z: PyTree, weights: Float[Array, " width"], cache: PyTree, b: Float[Array, "batch dim"]
    ) -> tuple[Float[Array, "batch dim"], PyTree]:
        """(sum_j w_j D_h phi^T b_x for every x,  sum_x D_z phi(h_x, z_j)^T b_x for every unit j, not weighted)."""
        _, pull = jax.vjp(lambda h, z: jax.vmap(jax.vmap(self, in_axes=(None, 0)), in_axes=(0, None))(h, z), h, z)
        width = jax.tree.leaves(z)[0].shape[0]
        per_unit = jnp.broadcast_to(b[:, None, :], (b.shape[0], width, b.shape[1]))
        _, dz = pull(per_unit)
        dh, _ = pull(per_unit * weights[None, :, None])
        return dh, dz

    def rotation_invariant(self, dim: int) -> bool:
        """May the limit be computed in the span of the data alone? Only units that say so; the proof is theirs."""
        return False
