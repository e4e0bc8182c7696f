r"""Insertion of a block at a site, and whether the old function is contained in the expanded class.

    f_theta(x) = top(u + h_theta(u))        on a stream, or on the sum before an existing normaliser
    f_theta(x) = top(N(u + h_theta(u)))     with a normaliser of its own: contained only where N(u) = u

A normaliser with eps > 0 is not idempotent: its relative defect is |1/sqrt(1 + eps (1 - 1/rho^2)) - 1|, rho the scale at its first application. One with a gain
is off by as much as the gain is uneven. Both are measured, not assumed.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._blocks.base import AbstractBlock
from ._gradients import over_samples
from ._norms import AbstractNorm
from ._split import Split, containment_defect

#: Defects that count as rounding: absolute in float64, relative to the outputs in float32.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


class Expanded(eqx.Module):
    """f_theta: the old network with a block inserted. `defect`: largest |f_theta0 - f_old| over the probe it was inserted with."""

    split: Split
    block: AbstractBlock
    norm: AbstractNorm | None = None
    defect: float = eqx.field(static=True, default=0.0)

    def __call__(self, x: Any) -> Float[Array, " out"]:
        """f_theta(x)."""
        return self.above(self.split.bottom(x))

    def above(self, u: Float[Array, "*positions dim"]) -> Float[Array, " out"]:
        """f_theta from u."""
        return self.after(u, self.block(u))

    def after(self, u: Float[Array, "*positions dim"], h: Float[Array, "*positions dim"]) -> Float[Array, " out"]:
        """f from u and what the block adds."""
        return self.split.top(u + h if self.norm is None else self.norm(u + h))

    def moved(self, v: PyTree[Array], t: float | Float[Array, ""]) -> "Expanded":
        """f at theta + t v."""
        return eqx.tree_at(lambda f: f.block, self, self.block.moved(v, t))


def insert(
    split: Split,
    block: AbstractBlock,
    probe: PyTree,
    *,
    norm: AbstractNorm | None = None,
    containment: Literal["raise", "report"] = "raise",
    tolerance: float | None = None,
) -> Expanded:
    r"""Insert a zero-initialised block, and check on a probe that nothing has changed.

    **Arguments:** `probe`: inputs x, samples first; `norm`: a normaliser of the block's own after the sum; `containment`: refuse a function that has changed,
    or only report its defect; `tolerance`: largest defect (default 1e-12 in float64, 1e-5 of the largest output in float32).

    **Returns:** an `Expanded` network.

    **Raises:** `ValueError` where the function has changed.

    Source: arXiv 2605.08297, section 2.1.

    **Example:** `insert(net.split("stream:1"), Bias.init(8), x)`
    """
    new = Expanded(split, block, norm)
    with jax.default_matmul_precision("highest"):
        old = np.asarray(over_samples(split, probe))
        defect = containment_defect(split, new, probe)
    if not np.isfinite(old).all():
        raise ValueError(
            "the old network is not finite on the probe; expected finite outputs. Check the weights, and inputs at which a normaliser divides by 0."
        )
    size = float(np.max(np.linalg.norm(old.reshape(len(old), -1), axis=1)))
    allowed = tolerance if tolerance is not None else TOLERANCE["float64"] if old.dtype == np.float64 else TOLERANCE["float32"] * size
    if not defect <= allowed and containment == "raise":
        cause = _cause(split, block, norm, probe)
        raise ValueError(
            f"inserting at {split.name!r} changes the function by up to {defect:.2g} (outputs up to {size:.2g}); expected at most {allowed:.2g}. {cause}"
        )
    return Expanded(split, block, norm, defect)


def _cause(split: Split, block: AbstractBlock, norm: AbstractNorm | None, probe: PyTree) -> str:
    u = over_samples(split.bottom, probe)
    if float(jnp.abs(over_samples(block, u)).max()) > 0:
        return "The block is not zero at its initialisation: zero its outgoing weights."
    if norm is not None:
        return "Its own normaliser is not idempotent here (eps, gain, or inputs that are not normalised): insert before an existing normaliser instead."
    return "The two halves do not repeat the old function: check bottom and top."


def idempotence_defect(norm: AbstractNorm, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions"]:
    """Relative change |N(N(u)) - N(u)| / |N(u)| of a second application."""
    once = norm(u)
    return jnp.linalg.norm(norm(once) - once, axis=-1) / jnp.linalg.norm(once, axis=-1)
