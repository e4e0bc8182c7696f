r"""A second look at zero_out blocks without a first-order signal: would other features have one?

The risk in (W1, W2) at W2 = 0 has no curvature in W1 alone, so one non-zero mixed derivative

    d/dW1 of C = E[G sigma(W1 n + b1)^T],     entries E[G_i sigma'(w_j.n + b_j) (n, 1)_k]

makes its Hessian indefinite: there is a direction of negative curvature that moves W1 and W2 together, and W1 should be drawn again or trained.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ._activation import activation as find
from ._blocks.base import read
from ._blocks.features import ZeroOut
from ._signal import Signal, measure_signal


def mixed_derivative_signal(
    block: ZeroOut, gradient: Float[np.ndarray, "n *positions dim"], u: Float[np.ndarray, "n *positions dim"], *, delta: float = 0.05, seed: int = 0
) -> Signal:
    r"""Strength of the mixed derivative d^2 R / dW2 d(W1, b1), tested against 0 as a signal is.

    **Raises:** `ValueError` as `measure_signal`.

    Source: the Hessian of a two-layer block at W2 = 0.

    **Example:** `mixed_derivative_signal(block, g, u).p_value < 0.05`
    """
    slope = jax.vmap(jax.grad(find(block.activation).function))

    def columns(one):
        n = read(block.norm, one).reshape(-1, one.shape[-1])
        pre = n @ block.params["a"].T + block.params["bias_a"][None]
        inputs = jnp.concatenate([n, jnp.ones((len(n), 1), n.dtype)], axis=1)
        return (slope(pre.reshape(-1)).reshape(pre.shape)[:, :, None] * inputs[:, None]).reshape(*one.shape[:-1], -1)

    return measure_signal(gradient, np.asarray(jax.vmap(columns)(jnp.asarray(u))), delta=delta, seed=seed)
