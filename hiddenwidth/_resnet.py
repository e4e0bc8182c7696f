r"""The finite residual network: L blocks of M units, all parameters stacked along depth, evaluated by a scan."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key, PyTree

from ._choices import positive_int
from ._law import AbstractLaw
from ._problem import StateSpace
from ._scaling import Scaling
from ._unit import AbstractUnit

#: Scalars of one kind in a layer from which on layers are drawn one at a time.
WIDE = 64


class ResNet(eqx.Module):
    r"""Residual network

    $$h_l = h_{l-1} + \frac{\alpha}{L M} \sum_{j=1}^{M} \phi(h_{l-1}, z_{j,l}), \qquad l = 1, \dots, L$$

    **Arguments:**

    - `unit`: the function phi and the law of its parameters.
    - `scaling`: every power of L, M, D.
    - `params`: parameters of all units; every leaf has leading axes (depth, width).

    `ResNet.init` draws the parameters. Calling the network maps one hidden state (dim,) to the last one; use `jax.vmap` for a batch.

    Source: arXiv 2509.10167, equation of the generic ResNet before Theorem 1.

    **Example:**

    ```python
    net = hw.ResNet.init(hw.TwoLayer("tanh"), hw.mlu(), depth=32, width=4, dim=16, key=jax.random.key(0))
    net(jnp.ones(16))
    ```
    """

    unit: AbstractUnit
    scaling: Scaling
    params: PyTree[Float[Array, "depth width ..."]]

    @classmethod
    def init(cls, unit: AbstractUnit, scaling: Scaling, *, depth: int, width: int, dim: int, dtype: Any = jnp.float32, key: Key[Array, ""]) -> "ResNet":
        """Draw all units independently from mu_0.

        **Raises:** `ValueError` for sizes that are not positive whole numbers.
        """
        for what, value in (("depth", depth), ("width", width), ("dim", dim)):
            positive_int(what, value)
        return cls(unit, scaling, draw_params(unit, scaling, depth=depth, width=width, dim=dim, dtype=dtype, key=key))

    @property
    def depth(self) -> int:
        """L, the number of residual blocks."""
        return jax.tree.leaves(self.params)[0].shape[0]

    @property
    def width(self) -> int:
        """M, the number of units in a block."""
        return jax.tree.leaves(self.params)[0].shape[1]

    @jax.named_scope("hiddenwidth.ResNet")
    def __call__(self, h: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.states(h)[-1]

    def states(self, h: Float[Array, " dim"]) -> Float[Array, "depth_and_one dim"]:
        """All hidden states h_0, ..., h_L of one data point."""

        def block(h, z):
            total, _ = self.unit.block(h[None], z, jnp.full((self.width,), 1.0 / self.width, h.dtype))
            h = h + self.scaling.branch(self.depth) * total[0]
            return h, h

        _, after = lax.scan(block, h, self.params)
        return jnp.concatenate([h[None], after])


def draw_params(
    unit: AbstractUnit, scaling: Scaling, *, depth: int, width: int, dim: int, dtype: Any, columns: bool = False, key: Key[Array, ""]
) -> PyTree[Float[Array, "depth ..."]]:
    """Parameters of all units of a network; `columns`: the same numbers with the axes of every layer exchanged, for units whose `params` do not mind."""
    laws = unit.laws(dim)
    keys = jax.random.split(key, len(laws))
    parts = [_draw(law, depth, (width, count), columns, dtype=dtype, key=k) for (law, count), k in zip(laws, keys, strict=True)]
    return unit.params(parts, scaling.init_std(width, dim))


def _draw(law: AbstractLaw, depth: int, layer: tuple[int, int], columns: bool, *, dtype: Any, key: Key[Array, ""]) -> Float[Array, "depth rows columns"]:
    """Every layer from a key of its own. Wide layers one after the other, into their places: the random bits of a whole stack would take as much again."""

    def draw(i):
        drawn = law.sample(layer, dtype=dtype, key=jax.random.fold_in(key, i))
        return drawn.T if columns else drawn

    if math.prod(layer) < WIDE:
        return jax.vmap(draw)(jnp.arange(depth))
    empty = jnp.zeros((depth, *(layer[::-1] if columns else layer)), dtype)
    return lax.fori_loop(0, depth, lambda i, stack: lax.dynamic_update_index_in_dim(stack, draw(i), i, 0), empty)


def loss(net: ResNet, space: StateSpace) -> Float[Array, ""]:
    """Training loss of a network on a problem's state space, as one differentiable function."""
    return space.loss(space.readout(jax.vmap(net)(space.start)))
