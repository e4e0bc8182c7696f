r"""The directions of one block at one site: steepest in each geometry, tried on samples that chose none of them.

Families h = V a(u) have a matrix C = E[G a^T] and one direction for every geometry. Others have the vector J^T G and its steepest direction alone.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ._blocks.base import AbstractBlock, AbstractFeatureBlock
from ._directions import Geometry, direction
from ._gradients import Loss, over_samples
from ._insert import Expanded
from ._shrinkage import second_moments
from ._step import Step, line_search


class Views(NamedTuple):
    """(G, a) of every sample, such that the signal vector is sum_p G a^T; `matrix`: whether that is C of a feature family."""

    gradient: Float[np.ndarray, "n *positions rows"]
    features: Float[np.ndarray, "n *positions columns"]
    matrix: bool


class Candidate(NamedTuple):
    """A direction in a geometry, with the step that was best on the samples of the search."""

    geometry: Geometry
    v: PyTree[Array]
    step: Step


def views(block: AbstractBlock, u: Float[np.ndarray, "n *positions dim"], gradient: Float[np.ndarray, "n *positions dim"]) -> Views:
    """What signals of a block are measured from.

    **Raises:** `ValueError` for a family that is not linear at first order.
    """
    with jax.default_matmul_precision("highest"):
        if isinstance(block, AbstractFeatureBlock):
            return Views(gradient, np.asarray(over_samples(block.features, jnp.asarray(u))), True)
        z = np.asarray(_signal_vectors(block, jnp.asarray(u), jnp.asarray(gradient)))
    return Views(z, np.ones((len(z), 1), z.dtype), False)


@eqx.filter_jit
def _signal_vectors(block: AbstractBlock, u, gradient):
    return jax.vmap(lambda u, g: ravel_pytree(block.signal_vector(u, g))[0])(u, gradient)


def tangents(block: AbstractBlock, seen: Views, geometries: tuple[Geometry, ...]) -> dict[Geometry, PyTree[Array]]:
    """The direction in every geometry that the family has; none where the signal is exactly 0."""
    g, a = (np.asarray(x, np.float64).reshape(len(x), -1, x.shape[-1]) for x in (seen.gradient, seen.features))
    c = np.einsum("npi,npj->ij", g, a) / len(g)
    if not np.any(c):
        return {}
    kind: Any = jax.tree.leaves(block.params)[0].dtype
    if seen.matrix and isinstance(block, AbstractFeatureBlock):
        gram = second_moments(a) if "function" in geometries else None
        found: dict[Geometry, PyTree[Array]] = {}
        for name in geometries:
            found[name] = block.direction(jnp.asarray(direction(c, name, gram=gram).matrix, kind))
        return found
    unravel = ravel_pytree(block.params)[1]
    return {"frobenius": unravel(jnp.asarray(-c[:, 0] / np.linalg.norm(c), kind))}


def try_directions(expanded: Expanded, directions: dict[Geometry, PyTree[Array]], loss: Loss, x: PyTree, y: PyTree) -> list[Candidate]:
    """Line search along every direction on the same samples, the best first."""
    tried = [Candidate(name, v, line_search(expanded, v, loss, x, y)) for name, v in directions.items()]
    return sorted(tried, key=lambda c: -c.step.seen)
