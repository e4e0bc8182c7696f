r"""Losses of one sample, with the constants that bounds ask for.

    squared           |f - y|^2 / 2
    cross-entropy     ln sum_j exp f_j - f_y                            sqrt(2)-Lipschitz in f; its Hessian is at most 1/2
    clipped           min(cross-entropy, B)
    Brier             |softmax(f) - e_y|^2, in [0, 2]
    logistic          ln(1 + exp(-y f)), y = +1 or -1                   1-Lipschitz; its second derivative is at most 1/4

Labels of classes are whole numbers.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class AbstractLoss(eqx.Module):
    """A loss l(f, y) of one sample. `lipschitz`: in f (Euclidean); `smoothness`: largest eigenvalue of its Hessian in f; `bound`: largest value; or inf."""

    lipschitz: eqx.AbstractVar[float]
    smoothness: eqx.AbstractVar[float]
    bound: eqx.AbstractVar[float]

    @abc.abstractmethod
    def __call__(self, f: Float[Array, " out"], y: Any) -> Float[Array, ""]:
        """l(f, y)."""


class SquaredError(AbstractLoss):
    """|f - y|^2 / 2.

    **Example:** `SquaredError()(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0]))` is 2.5.
    """

    lipschitz: float = eqx.field(static=True, default=math.inf)
    smoothness: float = eqx.field(static=True, default=1.0)
    bound: float = eqx.field(static=True, default=math.inf)

    def __call__(self, f, y):
        return 0.5 * jnp.sum((f - y) ** 2)


class CrossEntropy(AbstractLoss):
    """ln sum_j exp f_j - f_y.

    **Example:** `CrossEntropy()(jnp.zeros(2), 0)` is ln 2.
    """

    lipschitz: float = eqx.field(static=True, default=math.sqrt(2))
    smoothness: float = eqx.field(static=True, default=0.5)
    bound: float = eqx.field(static=True, default=math.inf)

    def __call__(self, f, y):
        return jax.nn.logsumexp(f) - f[y]


class ClippedCrossEntropy(AbstractLoss):
    """min(cross-entropy, bound): bounded, with a kink.

    **Example:** `ClippedCrossEntropy(4.0)(jnp.zeros(2), 0)`
    """

    bound: float = eqx.field(static=True)
    lipschitz: float = eqx.field(static=True, default=math.sqrt(2))
    smoothness: float = eqx.field(static=True, default=math.inf)

    def __check_init__(self):
        if not 0 < self.bound < math.inf:
            raise ValueError(f"bound={self.bound!r} is not possible; expected a number above 0.")

    def __call__(self, f, y):
        return jnp.minimum(jax.nn.logsumexp(f) - f[y], self.bound)


class Brier(AbstractLoss):
    """|softmax(f) - e_y|^2.

    **Example:** `Brier()(jnp.zeros(2), 0)` is 0.5.
    """

    lipschitz: float = eqx.field(static=True, default=math.sqrt(2))
    smoothness: float = eqx.field(static=True, default=math.inf)
    bound: float = eqx.field(static=True, default=2.0)

    def __call__(self, f, y):
        return jnp.sum((jax.nn.softmax(f) - jax.nn.one_hot(y, f.shape[0], dtype=f.dtype)) ** 2)


class Logistic(AbstractLoss):
    """ln(1 + exp(-y f)) for one output and labels +1, -1.

    **Example:** `Logistic()(jnp.zeros(1), 1.0)` is ln 2.
    """

    lipschitz: float = eqx.field(static=True, default=1.0)
    smoothness: float = eqx.field(static=True, default=0.25)
    bound: float = eqx.field(static=True, default=math.inf)

    def __call__(self, f, y):
        return jnp.logaddexp(jnp.zeros((), f.dtype), -y * f[0])


def path_curvature(loss: AbstractLoss, head: Float[np.ndarray, "out dim"], mean_square: float) -> float:
    """Certified curvature of t -> R(f_{t v}) where f_top is linear with matrix `head` and h is linear in t: smoothness |head|^2 E|J v|^2.

    **Example:** `path_curvature(CrossEntropy(), head, 0.3)`
    """
    return loss.smoothness * float(np.linalg.norm(head, 2)) ** 2 * mean_square


def check_range(values: Float[np.ndarray, " n"], bound: float) -> None:
    """Refuse losses outside of [0, bound]: clipped silently, they would certify another loss."""
    values = np.asarray(values)
    if not np.isfinite(values).all():
        raise ValueError(f"the loss is not finite at {int((~np.isfinite(values)).sum())} samples; expected numbers from 0 to {bound:g}.")
    if values.size and (values.min() < 0 or values.max() > bound * (1 + 1e-12)):
        raise ValueError(f"losses reach from {values.min():.4g} to {values.max():.4g}; expected 0 to {bound:g}. Use a loss that is bounded, such as Brier().")
