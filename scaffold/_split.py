r"""A trained network cut at one site: f_old = top o bottom."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._coupling import check_uncoupled


class Split(eqx.Module):
    r"""f_old(x) = top(bottom(x)), both functions of one sample.

    u = bottom(x) has the channel axis last, `(*positions, dim)`: a vector, tokens, or pixels. A sample with all its positions is one independent draw.

    **Arguments:** `bottom`, `top`: any callables; equinox modules carry their parameters along. `name`: of the site, in reports.

    **Raises:** `ValueError` for batch normalisation in training mode and for active dropout: they couple samples or draw noise, so that no gradient belongs to
    one sample.

    Source: arXiv 2605.08297, section 2.1.

    **Example:** `Split(lambda x: jnp.tanh(x), lambda u: u.sum(keepdims=True), name="after tanh")`
    """

    bottom: Callable[[Any], Float[Array, "*positions dim"]]
    top: Callable[[Float[Array, "*positions dim"]], Float[Array, " out"]]
    name: str = eqx.field(static=True, default="site")

    def __check_init__(self):
        for what in ("bottom", "top"):
            check_uncoupled(getattr(self, what), what)

    def __call__(self, x: Any) -> Float[Array, " out"]:
        """f_old(x)."""
        return self.top(self.bottom(x))


class Chain(eqx.Module):
    """Functions applied one after the other."""

    layers: tuple[Callable[..., Any], ...]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def split_sequence(layers: Sequence[Callable[..., Any]] | eqx.nn.Sequential, at: int, *, name: str | None = None) -> Split:
    """Cut a list of layers, or an `eqx.nn.Sequential`, before layer `at`.

    **Raises:** `ValueError` for a cut outside the list.

    **Example:** `split_sequence([jnp.tanh, jnp.sin, jnp.cos], 2)` has the bottom sin(tanh(x)) and the top cos.
    """
    parts = tuple(layers.layers) if isinstance(layers, eqx.nn.Sequential) else tuple(layers)
    if not 0 <= at <= len(parts):
        raise ValueError(f"at={at} is outside of {len(parts)} layers; expected 0 to {len(parts)}.")
    return Split(Chain(parts[:at]), Chain(parts[at:]), name=f"before layer {at}" if name is None else name)


@eqx.filter_jit
def _difference(old, new, probe):
    return jax.vmap(lambda x: new(x) - old(x))(probe)


def containment_defect(old: Callable[[Any], Array], new: Callable[[Any], Array], probe: PyTree) -> float:
    """Largest |f_new(x) - f_old(x)| over the samples of a probe: 0, to rounding, where the old function is a member of the expanded class.

    **Example:** `containment_defect(split, split, x)` is 0.
    """
    difference = _difference(old, new, probe)
    flat = np.asarray(difference).reshape(difference.shape[0], -1)
    return float(np.max(np.linalg.norm(flat, axis=1), initial=0.0))
