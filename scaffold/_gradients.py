r"""Activation gradients G(x, y) = grad_u loss(f_top(u), y) at u = f_bot(x), one for every sample.

The change of the risk along any first-order direction is E<G, J v(u)>, summed over the positions of a sample: everything that a new block can do at first order
is in the joint law of (u, G).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._split import Split

Loss = Callable[[Array, Any], Float[Array, ""]]
#: Arrays (x, y) with samples first, or an iterable of such batches.
Data = tuple[PyTree, PyTree] | Iterable[tuple[PyTree, PyTree]]


def activation_gradient(split: Split, loss: Loss, x: Any, y: Any) -> tuple[Float[Array, "*positions dim"], Float[Array, "*positions dim"], Float[Array, ""]]:
    """(u, G, loss) of one sample.

    Source: arXiv 2605.08297, section 2.2.

    **Example:** `jax.vmap(lambda x, y: activation_gradient(split, loss, x, y))(inputs, labels)`
    """
    u = split.bottom(x)
    value, gradient = jax.value_and_grad(lambda u: loss(split.top(u), y))(u)
    return u, gradient, value


def activation_gradients(
    split: Split, loss: Loss, x: PyTree, y: PyTree, *, chunk: int = 512
) -> tuple[Float[np.ndarray, "samples *positions dim"], Float[np.ndarray, "samples *positions dim"], Float[np.ndarray, " samples"]]:
    """(u, G, loss) of every sample, as arrays.

    **Raises:** `ValueError` for inputs and labels of different lengths, and for a loss or gradient that is not finite, naming the sample.

    **Example:** `u, g, losses = activation_gradients(split, SquaredError(), x, y)`
    """
    parts, begin = [], 0
    with jax.default_matmul_precision("highest"):
        for x_part, y_part, count in pieces(x, y, chunk):
            part = [np.asarray(a)[:count] for a in _gradients(split, loss, x_part, y_part)]
            check_finite(part[2], part[1], np.arange(begin, begin + count))
            parts.append(part)
            begin += count
    u, gradient, value = (np.concatenate([p[i] for p in parts]) for i in range(3))
    return u, gradient, value


@eqx.filter_jit
def _gradients(split: Split, loss: Loss, x: PyTree, y: PyTree):
    return jax.vmap(lambda x, y: activation_gradient(split, loss, x, y))(x, y)


@eqx.filter_jit
def over_samples(function: Callable[..., Any], *arguments: PyTree) -> Any:
    """A function of one sample over the first axis. Modules with the same structure share one program."""
    return jax.vmap(function)(*arguments)


def pieces(x: PyTree, y: PyTree, chunk: int) -> Iterator[tuple[PyTree, PyTree, int]]:
    """Pieces of one size, so that one program serves all: the last is filled up with its own first sample. With the number of true samples in each.

    Data shorter than `chunk` are filled up to a power of two: parts of a data set then share their programs as well.
    """
    n = samples(x, y)
    size = min(1 << (n - 1).bit_length(), chunk)
    for begin in range(0, n, size):
        index = np.arange(begin, begin + size)
        count = int((index < n).sum())
        index = np.where(index < n, index, begin)
        x_part, y_part = jax.tree.map(lambda a, i=index: jnp.asarray(a[i]), (x, y))
        yield x_part, y_part, count


def samples(x: PyTree, y: PyTree) -> int:
    """Number of samples; inputs and labels must agree on it."""
    lengths = [len(a) for a in jax.tree.leaves(x)], [len(a) for a in jax.tree.leaves(y)]
    if len({*lengths[0], *lengths[1]}) != 1:
        raise ValueError(f"x has {lengths[0]} samples and y has {lengths[1]}; expected the same number. The first axis of both is over samples.")
    if lengths[0][0] == 0:
        raise ValueError("x has no samples; expected at least one.")
    return lengths[0][0]


def check_finite(value: Float[np.ndarray, " samples"], gradient: Float[np.ndarray, "samples ..."], names: np.ndarray) -> None:
    """Refuse losses and gradients that are not finite."""
    for what, x in (("loss", value), ("activation gradient", gradient)):
        bad = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))
        if bad.size:
            raise ValueError(
                f"the {what} is not finite at {bad.size} samples, the first being sample {names[bad[0]]}; expected finite ones. "
                "Check inputs and labels there, and whether a normaliser with eps=0 divides by 0."
            )
