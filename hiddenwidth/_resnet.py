r"""The finite residual network: L blocks of M units, all parameters stacked along depth, evaluated by a scan."""

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
from ._types import Depth
from ._unit import AbstractUnit

#: Scalars that are drawn at once: as many layers as hold them.
BLOCK = 4096


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
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    depth: int,
    width: int,
    dim: int,
    dtype: Any,
    columns: bool = False,
    used: Depth | None = None,
    key: Key[Array, ""],
) -> PyTree[Float[Array, "depth ..."]]:
    """Parameters of all units of a network; `columns`: the same numbers with the axes of every layer exchanged, for units whose `params` do not mind.

    `used`: so many layers are needed (default: all `depth`), and may be traced; those above them are left undefined.

    Drawn a few layers at a time, into their places: the random bits of a whole stack would take as much memory again. Equal laws share a draw, since
    generators of random numbers take XLA longer to compile than all of training.
    """
    laws = unit.laws(dim)
    together = max(1, BLOCK // (width * sum(count for _, count in laws)))  # layers a block: does not depend on the depth, so neither do the numbers
    blocks = -(-depth // together)
    kinds: list[AbstractLaw] = []
    kind_of = []
    for law, _ in laws:
        same = [j for j, kind in enumerate(kinds) if not jax.tree.leaves(law) and kind == law]  # laws with parameters of their own are drawn apart
        if not same:
            kinds.append(law)
        kind_of.append(same[0] if same else len(kinds) - 1)
    totals = [sum(count for (_, count), k in zip(laws, kind_of, strict=True) if k == j) for j in range(len(kinds))]

    def block(i):
        own = jax.random.fold_in(key, i)
        drawn = [
            law.sample((together, width, total), dtype=dtype, key=jax.random.fold_in(own, j)) for j, (law, total) in enumerate(zip(kinds, totals, strict=True))
        ]
        parts, taken = [], [0] * len(kinds)
        for (_, count), j in zip(laws, kind_of, strict=True):
            part = drawn[j][..., taken[j] : taken[j] + count]
            taken[j] += count
            parts.append(jnp.swapaxes(part, 1, 2) if columns else part)
        return unit.params(parts, scaling.init_std(width, dim))

    def fill(i, stacks):
        return jax.tree.map(lambda stack, part: lax.dynamic_update_slice_in_dim(stack, part, i * together, 0), stacks, block(i))

    stacks = jax.tree.map(lambda x: jnp.zeros((blocks * together, *x.shape[1:]), x.dtype), jax.eval_shape(block, 0))
    stacks = lax.fori_loop(0, blocks if used is None else (used + together - 1) // together, fill, stacks)
    return jax.tree.map(lambda x: x[:depth], stacks)


def loss(net: ResNet, space: StateSpace) -> Float[Array, ""]:
    """Training loss of a network on a problem's state space, as one differentiable function."""
    return space.loss(space.readout(jax.vmap(net)(space.start)))
