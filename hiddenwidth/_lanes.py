r"""Tiny networks with their seeds as the last axis of every array: the lanes of vector instructions.

A network with one unit of five numbers a layer leaves a core waiting for instructions, whichever way its products are written. With R seeds last,

    pre_xjr = sum_d h_xdr u_jdr / D,      h_xdr <- h_xdr + alpha/(LM) sum_j v_jdr sigma(pre_xjr),

everything is elementwise over r and one pass serves R networks. The unit and the state space below speak the language of `_train.descend`, with the
lanes as one axis more.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._problem import StateSpace
from ._scaling import Scaling
from ._two_layer import TwoLayer, TwoLayerParams

#: Seeds abreast.
LANES = 32
#: Numbers in a hidden state, and data points, up to which XLA makes vector instructions of the sums below; beyond, loops, twenty times slower.
FEW_DIM, FEW_BATCH = 12, 20


class LaneUnit(eqx.Module):
    """Blocks of two-layer units in `LANES` networks at once: h (batch, dim, lane), u and v (width, dim, lane)."""

    unit: TwoLayer

    def rates(self, scaling: Scaling) -> TwoLayerParams:
        """As for one network."""
        return self.unit.rates(scaling)

    def block(self, h: Float[Array, "batch dim lane"], z: TwoLayerParams, weights: Float[Array, " width"]):
        """sum_j w_j phi(h_x, z_j) in every lane."""
        act, kept = self.unit.activate(_across(h, z.u) / h.shape[1])
        return jnp.sum((act * weights[None, :, None])[:, :, None] * z.v[None], axis=1), kept

    def block_vjp(self, h: Float[Array, "batch dim lane"], z: TwoLayerParams, weights: Float[Array, " width"], cache, b: Float[Array, "batch dim lane"]):
        """As `TwoLayer.block_vjp` in every lane."""
        act, slope = self.unit.recall(cache)
        back = slope * _across(b, z.v) / h.shape[1]
        dh = jnp.sum((back * weights[None, :, None])[:, :, None] * z.u[None], axis=1)
        return dh, TwoLayerParams(u=jnp.sum(back[:, :, None] * h[:, None], axis=0), v=jnp.sum(act[:, :, None] * b[:, None], axis=0))


def _across(h: Float[Array, "batch dim lane"], w: Float[Array, "width dim lane"]) -> Float[Array, "batch width lane"]:
    return jnp.sum(h[:, None] * w[None], axis=2)


class LaneSpace(eqx.Module):
    """The state space of one problem, seen by `lanes` networks at once."""

    space: StateSpace
    lanes: int = eqx.field(static=True)

    @property
    def start(self) -> Float[Array, "batch dim lane"]:
        """The embedded data, the same in every lane."""
        return jnp.broadcast_to(jnp.asarray(self.space.start)[..., None], (*self.space.start.shape, self.lanes))

    def readout(self, h: Float[Array, "batch dim lane"]) -> Float[Array, "batch out lane"]:
        """f = W_U^T h / D."""
        return jnp.einsum("xdr,do->xor", h, self.space.unembedding) * self.space.inner

    def loss(self, f: Float[Array, "batch out lane"]) -> Float[Array, " lane"]:
        """Mean loss of every network."""
        return jax.vmap(self.space.loss, in_axes=-1)(f)

    def adjoint(self, f: Float[Array, "batch out lane"]) -> Float[Array, "batch dim lane"]:
        """b_L = W_U dLoss/df."""
        return jax.vmap(self.space.adjoint, in_axes=-1, out_axes=-1)(f)


def in_lanes(train: Callable[[LaneUnit, LaneSpace, TwoLayerParams], PyTree], init: Callable[[Array], TwoLayerParams], unit: TwoLayer, space: StateSpace, keys):
    """Train a network for every key, `LANES` at a time: results with the seeds in front, as `vmap` gives them."""
    number = len(keys)
    blocks = -(-number // LANES)
    padded = jnp.concatenate([keys, jnp.broadcast_to(keys[-1:], (blocks * LANES - number,))])  # what is too much repeats the last and is cut off

    def block(keys):
        seen = train(LaneUnit(unit), LaneSpace(space, LANES), jax.vmap(init, out_axes=-1)(keys))
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), seen)

    seen = lax.map(block, padded.reshape(blocks, LANES))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:number], seen)
