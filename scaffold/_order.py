r"""At which order does a block do anything? Dead and saddle initialisations, and kinks, told from an honest absence of signal.

If h is multilinear in q factors that all vanish at theta0, every derivative of order below q along every straight path is 0, whatever the data, and theta0 is a
saddle of the risk. That is a property of the initialisation: it says nothing about whether the network is as good as it can be.
"""

import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ._blocks.base import AbstractBlock
from ._gradients import over_samples

#: Largest order that is looked for, directions that are tried, and what counts as zero in float64.
HIGHEST, PROBES, ZERO = 4, 3, 1e-12
#: Step of the one-sided difference that finds kinks.
STEP = 1e-6


class StructuralOrder(NamedTuple):
    """What the initialisation of a block allows.

    - "first_order": some direction changes the block at first order.
    - "kink": only one-sided derivatives do, which automatic differentiation does not see (relu with W1 = 0).
    - "degenerate": nothing does before order `order` (None: not up to the highest that was looked for).
    """

    kind: Literal["first_order", "kink", "degenerate"]
    order: int | None

    def __str__(self) -> str:
        if self.kind == "degenerate":
            lowest = f"order {self.order}" if self.order else f"an order above {HIGHEST}"
            return f"structurally degenerate: the block acts at {lowest}, so that no first-order signal exists for any data. Initialise it otherwise."
        return "first order" if self.kind == "first_order" else "first order, one-sided: a kink at the initialisation"


def structural_order(
    block: AbstractBlock, probe: Float[Array, "samples *positions dim"] | Float[np.ndarray, "samples *positions dim"], *, key: Key[Array, ""]
) -> StructuralOrder:
    """Smallest k <= 4 at which d^k/dt^k h_{theta0 + t v} is not 0 for one of a few random v, on a probe of inputs, in float64.

    **Raises:** `ValueError` for a block that is not zero at its initialisation, or a probe that is not finite.

    Source: arXiv 2605.08297, section 2.1 (first-order non-degeneracy of the initialisation).

    **Example:** `structural_order(Bias.init(2), jnp.ones((3, 2)), key=jax.random.key(0)).order` is 1.
    """
    with jax.enable_x64(True):
        u = jnp.asarray(np.asarray(probe), jnp.float64)
        if not bool(jnp.isfinite(u).all()):
            raise ValueError("probe holds numbers that are not finite; expected inputs of the block on which it can be evaluated.")
        block = jax.tree.map(lambda x: x.astype(jnp.float64) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) else x, block)
        start = float(jnp.abs(over_samples(block, u)).max())
        if start > ZERO:
            raise ValueError(f"the block is not zero at its initialisation: |h| reaches {start:.2g}; expected 0. Zero its outgoing weights.")
        directions = [block.random_tangent(key=jax.random.fold_in(key, i)) for i in range(PROBES)]
        sizes = np.array([np.asarray(_derivatives(block, v, u)) for v in directions]).max(0)
        if sizes[0] > ZERO:
            return StructuralOrder("first_order", 1)
        # At a kink autodiff takes one side's slope, or 0; the difference of finite size is what a step would do.
        if max(_difference(block, v, u) for v in directions) > math.sqrt(STEP):
            return StructuralOrder("kink", 1)
        above = np.flatnonzero(sizes > ZERO)
        return StructuralOrder("degenerate", int(above[0]) + 1 if above.size else None)


@eqx.filter_jit
def _derivatives(block: AbstractBlock, v, u) -> list[Array]:
    """Largest absolute value over the probe of the derivatives of order 1 to HIGHEST along v."""

    def path(t):
        return jax.vmap(block.moved(v, t))(u)

    sizes = []
    for _ in range(HIGHEST):
        path = _derivative(path)
        sizes.append(jnp.abs(path(jnp.zeros(()))).max())
    return sizes


def _derivative(path):
    return lambda t: jax.jvp(path, (t,), (jnp.ones_like(t),))[1]


def _difference(block: AbstractBlock, v, u) -> float:
    return float(jnp.abs(over_samples(block.moved(v, STEP), u)).max()) / STEP
