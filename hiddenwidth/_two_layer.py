r"""The two-layer perceptron unit, the reference model: phi(h, (u, v)) = v sigma(u.h / D)."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from ._activation import ACTIVATIONS, KINKED, SLOPE_FROM_VALUE, value_and_slope
from ._choices import choose
from ._law import LAWS, AbstractLaw, Gaussian
from ._scaling import Scaling
from ._types import AnyArray
from ._unit import AbstractUnit


class TwoLayerParams(NamedTuple):
    """Parameters of one two-layer unit, or of a stack of them: `u` reads the hidden state, `v` writes to it. Shapes (..., dim)."""

    u: Float[AnyArray, "*units dim"]
    v: Float[AnyArray, "*units dim"]


class TwoLayer(AbstractUnit):
    r"""Two-layer perceptron unit

    $$\phi(h, (u, v)) = v\, \sigma(u \cdot h / D)$$

    **Arguments:**

    - `activation`: one of `"tanh"`, `"erf"`, `"relu"`, `"gelu"`, `"softplus"`, `"linear"`, or an elementwise function of JAX arrays.
    - `law`: law of the entries of v, `"gaussian"` or `"skewed"` (centred exponential, which breaks the symmetry v -> -v);
      the entries of u are Gaussian.

    **Raises:** `ValueError` for an unknown activation or law.

    Source: arXiv 2509.10167, section on two-layer perceptron blocks (Theorem 3).

    **Example:**

    ```python
    unit = hw.TwoLayer("tanh")
    z = hw.TwoLayerParams(u=jnp.ones(4), v=jnp.arange(4.0))
    unit(jnp.ones(4), z)  # v * tanh(1)
    ```
    """

    activation: str | Callable = eqx.field(static=True, default="tanh")
    law: str = eqx.field(static=True, default="gaussian")
    # None: the inner product u.h is divided by D, as in a network. 1: reduced coordinates, in which D has been divided out already.
    inner: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if not callable(self.activation):
            choose("activation", self.activation, ACTIVATIONS)
        choose("law", self.law, LAWS)

    @property
    def sigma(self) -> Callable:
        """The activation as a function."""
        return self.activation if callable(self.activation) else ACTIVATIONS[self.activation]

    @property
    def smooth(self) -> bool:
        return self.activation not in KINKED

    def _inner(self, dim: int) -> float:
        return 1.0 / dim if self.inner is None else self.inner

    def __call__(self, h, z):
        return z.v * self.sigma(jnp.dot(z.u, h) * self._inner(h.shape[-1]))

    def laws(self, dim):
        law: AbstractLaw = LAWS[self.law]
        return ((Gaussian(), dim), (law, dim))

    def params(self, standard, std):
        u, v = standard
        return TwoLayerParams(u=std.u * u, v=std.v * v)

    def rates(self, scaling: Scaling):
        step = scaling.step()
        return TwoLayerParams(u=step.u, v=step.v)

    def activate(self, pre: Float[AnyArray, "*axes"]) -> tuple[Float[AnyArray, "*axes"], Float[AnyArray, "*axes"]]:
        """sigma(pre), and what `recall` wants to find again."""
        act = self.sigma(pre)
        return act, act if self.activation in SLOPE_FROM_VALUE else pre

    def recall(self, kept: Float[AnyArray, "*axes"]) -> tuple[Float[AnyArray, "*axes"], Float[AnyArray, "*axes"]]:
        """sigma(pre) and sigma'(pre) from what `activate` kept."""
        if self.activation in SLOPE_FROM_VALUE:
            return kept, SLOPE_FROM_VALUE[str(self.activation)](kept)
        return value_and_slope(self.sigma, kept)

    # The block and its adjoint as matrix products: nothing of size batch x width x dim is ever formed.

    def block(self, h, z, weights):
        act, kept = self.activate(h @ z.u.T * self._inner(h.shape[-1]))
        return (act * weights[None, :]) @ z.v, kept

    def block_vjp(self, h, z, weights, cache, b):
        inner = self._inner(h.shape[-1])
        act, slope = self.recall(cache)
        back = slope * (b @ z.v.T) * inner  # sigma'(u.h/D) (v.b)/D
        return (back * weights[None, :]) @ z.u, TwoLayerParams(u=back.T @ h, v=act.T @ b)

    def rotation_invariant(self, dim):
        """u and v independent with rotation-invariant laws: the part of v outside the data's span averages to zero."""
        return all(law.rotation_invariant for law, _ in self.laws(dim))
