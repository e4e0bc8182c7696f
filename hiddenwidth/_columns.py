r"""Two-layer units with their weights stored as columns, u and v of a layer as (dim, width).

All six products of a step then are of a kind that matrix libraries on a CPU do well, states and activations being rows (batch, dim) and (batch, width):

    h u,    act v^T,    b v,    back u^T,    h^T back,    b^T act

With weights as rows (width, dim) the last two are back^T h and act^T b, which run at two thirds of the rate of the others.
"""

import equinox as eqx
from jaxtyping import Array, Float

from ._scaling import Scaling
from ._two_layer import TwoLayer, TwoLayerParams

#: Units in a layer from which on columns are at least as fast as rows.
MANY = 64


class ColumnUnit(eqx.Module):
    """Blocks of two-layer units whose parameters are columns; in the training of networks it takes the place of the unit.

    All units of a network weigh the same, 1/M, and the sum over them is multiplied by that instead of every term.
    """

    unit: TwoLayer

    def rates(self, scaling: Scaling) -> TwoLayerParams:
        """As for rows."""
        return self.unit.rates(scaling)

    def block(self, h: Float[Array, "batch dim"], z: TwoLayerParams, weights: Float[Array, " width"]):
        """sum_j w_j phi(h_x, z_j)."""
        act, kept = self.unit.activate(h @ z.u / h.shape[1])
        return act @ z.v.T * weights[0], kept

    def block_vjp(self, h: Float[Array, "batch dim"], z: TwoLayerParams, weights: Float[Array, " width"], cache, b: Float[Array, "batch dim"]):
        """As `TwoLayer.block_vjp`."""
        act, slope = self.unit.recall(cache)
        back = slope * (b @ z.v) / h.shape[1]
        return back @ z.u.T * weights[0], TwoLayerParams(u=h.T @ back, v=b.T @ act)
