"""Blocks by name, as reports and the command line ask for them."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ._blocks.base import AbstractBlock
from ._blocks.features import Bias, Linear, ZeroOut, ZeroOutAttention, ZeroOutConv
from ._blocks.scaled import Antisymmetric, Gate, LayerScale, ZeroIn
from ._features import optimised_features
from ._nets.branch import TwoLayerBranch
from ._norms import AbstractNorm

Family = Literal["bias", "linear", "zero_out", "optimised", "conv", "attention", "zero_in", "gate", "layerscale", "antisym"]
FAMILIES: tuple[Family, ...] = ("bias", "linear", "zero_out", "optimised", "conv", "attention", "zero_in", "gate", "layerscale", "antisym")
#: Neurons of a block whose features are optimised, at most: each takes an ascent of its own.
OPTIMISED = 8


def make_block(
    family: Family,
    u: Float[np.ndarray, "n *positions dim"],
    gradient: Float[np.ndarray, "n *positions dim"],
    *,
    hidden: int,
    activation: str,
    norm: AbstractNorm | None,
    key: Key[Array, ""],
) -> AbstractBlock:
    """A zero-initialised block of a family, for activations like `u`. Only "optimised" looks at the samples.

    **Raises:** `ValueError` for an unknown family, or one that does not fit the shape of u.

    **Example:** `make_block("linear", u, g, hidden=16, activation="relu", norm=None, key=jax.random.key(0))`
    """
    dim, positions = u.shape[-1], u.ndim - 2
    if family not in FAMILIES:
        raise ValueError(f"families={family!r} is not known; expected some of {', '.join(FAMILIES)}.")
    wanted = {"conv": (2, "pixels (height, width, dim)"), "attention": (1, "tokens (tokens, dim)")}
    if family in wanted and positions != wanted[family][0]:
        raise ValueError(f"families={family!r} needs activations that are {wanted[family][1]}; got shape {u.shape[1:]}. Leave it out.")
    if family == "bias":
        block: AbstractBlock = Bias.init(dim)
    elif family == "linear":
        block = Linear.init(dim, norm=norm)
    elif family == "zero_out":
        block = ZeroOut.init(dim, hidden, activation=activation, norm=norm, key=key)
    elif family == "optimised":
        block = optimised_features(gradient, u, min(hidden, OPTIMISED), activation=activation, norm=norm, key=key)
    elif family == "conv":
        block = ZeroOutConv.init(dim, hidden, activation=activation, norm=norm, key=key)
    elif family == "attention":
        block = ZeroOutAttention.init(dim, heads=4 if dim % 4 == 0 else 1, norm=norm, key=key)
    elif family == "zero_in":
        block = ZeroIn.init(dim, hidden, activation=activation, norm=norm, key=key)
    else:
        branch = TwoLayerBranch.init(dim, hidden, activation, 1.0, key=key)
        block = LayerScale.of(branch, dim=dim, norm=norm) if family == "layerscale" else (Gate if family == "gate" else Antisymmetric).of(branch, norm=norm)
    return _as_type(block, u.dtype)


def _as_type(block: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) else x, block)
