r"""Normalisers of residual networks and the constants by which they enter every bound.

    RMS_eps(u) = u / rho(u),   rho(u) = sqrt(|u|^2/d + eps)
    LN_eps(u)  = RMS_eps(u - mean u)
    CLAMP_r(u) = u / max(|u|/sqrt(d), r)

each followed, where there are any, by a gain and a bias. They act on the last axis.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class AbstractNorm(eqx.Module):
    """A normaliser over the last axis: `u / scale(u)` after centring, then gain and bias."""

    dim: eqx.AbstractVar[int]
    gain: eqx.AbstractVar[Float[Array, " dim"] | None]
    bias: eqx.AbstractVar[Float[Array, " dim"] | None]

    @abc.abstractmethod
    def centre(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """What is divided: u, or u without its mean."""

    @abc.abstractmethod
    def scale(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions"]:
        """What it is divided by."""

    @property
    @abc.abstractmethod
    def least_scale(self) -> float:
        """The smallest value that `scale` can take: sqrt(eps), or the radius of a clamp."""

    def __call__(self, u: Float[Array, "*positions dim"]) -> Float[Array, "*positions dim"]:
        """Normalise."""
        y = self.centre(u) / self.scale(u)[..., None]
        y = y if self.gain is None else y * self.gain.reshape((1,) * (y.ndim - 1) + (-1,)).astype(y.dtype)
        return y if self.bias is None else y + self.bias.reshape((1,) * (y.ndim - 1) + (-1,)).astype(y.dtype)

    def lipschitz(self, least: float = 0.0) -> float:
        r"""Lipschitz constant on any set on which `scale` is at least `least` (default: everywhere); infinite for eps = 0 without such a bound.

        |N(u) - N(w)| <= max|gain| |u - w| / sqrt(scale(u) scale(w)).

        **Example:** `RMSNorm(8, eps=0.01).lipschitz()` is 10.
        """
        floor = max(least, self.least_scale)
        return self._stretch() / floor if floor > 0 else math.inf

    def output_bound(self) -> float:
        """Largest Euclidean norm of an output of one position: sqrt(d) max|gain| + |bias|."""
        return math.sqrt(self.dim) * self._stretch() + (0.0 if self.bias is None else float(jnp.linalg.norm(self.bias)))

    def _stretch(self) -> float:
        return 1.0 if self.gain is None else float(jnp.max(jnp.abs(self.gain)))


class _Root(AbstractNorm):
    """Normalisers by a root mean square with an eps."""

    eps: eqx.AbstractVar[float]

    def scale(self, u):
        return jnp.sqrt(jnp.mean(self.centre(u) ** 2, axis=-1) + self.eps)

    @property
    def least_scale(self) -> float:
        return math.sqrt(self.eps)

    def pair_bound(self, u: Float[Array, "*positions dim"], w: Float[Array, "*positions dim"]) -> Float[Array, "*positions"]:
        """Bound on |N(u) - N(w)| that is sharp for each pair: 2 max|gain| |u - w| / (scale(u) + scale(w))."""
        return 2 * self._stretch() * jnp.linalg.norm(self.centre(u) - self.centre(w), axis=-1) / (self.scale(u) + self.scale(w))

    def jacobian_singular_values(self, u: Float[Array, " dim"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(1/rho, eps/rho^3): tangential and radial singular values of the Jacobian without gain; that of LayerNorm has a 0 besides, along (1, ..., 1)."""
        rho = self.scale(u)
        return 1 / rho, self.eps / rho**3


class RMSNorm(_Root):
    """RMS_eps with optional gain and bias.

    **Arguments:** `dim`: d; `eps`: added to the mean square, 0 or more; `gain`, `bias`: (dim,).

    **Raises:** `ValueError` for dim = 1 with eps = 0, where it is constant on either side of 0.

    **Example:** `RMSNorm(3)(jnp.array([3.0, 0.0, 4.0]))`
    """

    dim: int = eqx.field(static=True)
    eps: float = eqx.field(static=True, default=0.0)
    gain: Float[Array, " dim"] | None = None
    bias: Float[Array, " dim"] | None = None

    def __check_init__(self):
        _check(self, 2)

    def centre(self, u):
        return u


class LayerNorm(_Root):
    """LN_eps with optional gain and bias.

    **Raises:** `ValueError` for dim = 1, where it is 0 or its bias, and for dim = 2 with eps = 0, where it is locally constant.

    **Example:** `LayerNorm(3)(jnp.array([1.0, 2.0, 4.0]))`
    """

    dim: int = eqx.field(static=True)
    eps: float = eqx.field(static=True, default=0.0)
    gain: Float[Array, " dim"] | None = None
    bias: Float[Array, " dim"] | None = None

    def __check_init__(self):
        if self.dim == 1:
            raise ValueError("LayerNorm with dim=1 takes every input to 0; expected dim of at least 2 (3 with eps=0).")
        _check(self, 3)

    def centre(self, u):
        return u - jnp.mean(u, axis=-1, keepdims=True)


class Clamp(AbstractNorm):
    """CLAMP_r: RMSNorm where the root mean square is at least `radius`, and a division by `radius` where it is less. Lipschitz 1/radius everywhere.

    **Example:** `Clamp(3, radius=0.5)(jnp.array([3.0, 0.0, 4.0]))`
    """

    dim: int = eqx.field(static=True)
    radius: float = eqx.field(static=True)
    gain: Float[Array, " dim"] | None = None
    bias: Float[Array, " dim"] | None = None

    def __check_init__(self):
        if not 0 < self.radius < math.inf:
            raise ValueError(f"radius={self.radius!r} is not possible; expected a number above 0.")
        _check_vectors(self)

    def centre(self, u):
        return u

    def scale(self, u):
        return jnp.maximum(jnp.sqrt(jnp.mean(u**2, axis=-1)), self.radius)

    @property
    def least_scale(self) -> float:
        return self.radius


def _check(norm: RMSNorm | LayerNorm, least_dim: int) -> None:
    name = type(norm).__name__
    if not 0 <= norm.eps < math.inf:
        raise ValueError(f"eps={norm.eps!r} is not possible; expected a number of at least 0.")
    if norm.dim < 1 or (norm.eps == 0 and norm.dim < least_dim):
        raise ValueError(f"{name} with dim={norm.dim} and eps={norm.eps} is locally constant; expected dim of at least {least_dim}, or eps above 0.")
    _check_vectors(norm)


def _check_vectors(norm: AbstractNorm) -> None:
    for what in ("gain", "bias"):
        value = getattr(norm, what)
        if value is not None and value.shape[-1:] != (norm.dim,):
            raise ValueError(f"{what} has shape {value.shape}; expected ({norm.dim},) for dim={norm.dim}.")


def check_nondegenerate(norm: AbstractNorm, u: Float[Array, "samples *positions dim"], name: str = "u") -> None:
    """Refuse inputs at which the normaliser divides by 0; its gradient is NaN there.

    **Raises:** `ValueError` naming the first such sample.
    """
    scale = np.asarray(jax.vmap(norm.scale)(u)).reshape(len(u), -1)
    bad = np.flatnonzero((scale <= 0).any(1))
    if bad.size:
        what = "constant" if isinstance(norm, LayerNorm) else "zero"
        raise ValueError(
            f"{name} is a {what} vector at {bad.size} of {len(u)} samples, the first being {bad[0]}, and {type(norm).__name__} with eps=0 divides by 0 there; "
            "expected none. Use eps above 0, or Clamp."
        )


def contractive_floor(
    start: float, slopes: Float[np.ndarray, " depth"], offsets: Float[np.ndarray, " depth"], dim: int, eps: float = 0.0
) -> Float[np.ndarray, " depth"]:
    r"""Smallest scale that any input can reach at the normalisers of a post-norm network whose branches contract.

    If u_l = N(u_{l-1} + F_l(u_{l-1})) and |F_l(u)| <= s_l |u| + b_l with s_l < 1, then with nu_0 = r_0 / sqrt(r_0^2 + eps)

        rho_l = sqrt(((1 - s_l) nu_{l-1} - b_l/sqrt(d))^2 + eps),   nu_l = ((1 - s_l) nu_{l-1} - b_l/sqrt(d)) / rho_l

    and normaliser l is 1/rho_l-Lipschitz on everything that the network can reach, whatever the data.

    **Arguments:** `start`: r_0, smallest root mean square before the stem's normaliser; `slopes`, `offsets`: s_l and b_l; `dim`: d.

    **Raises:** `ValueError` where s_l >= 1, or the offsets use up what the contraction leaves.

    **Example:** `contractive_floor(1.0, np.full(3, 0.3), np.zeros(3), dim=8, eps=0.01)`
    """
    if not start > 0:
        raise ValueError(f"start={start!r} is not possible; expected the smallest root mean square before the first normaliser, above 0.")
    nu, floors = start / math.sqrt(start**2 + eps), []
    for level, (s, b) in enumerate(zip(slopes, offsets, strict=True), 1):
        if not 0 <= s < 1:
            raise ValueError(f"slopes[{level - 1}]={s:g} does not contract; expected 0 <= s < 1. Scale the weights of block {level} down, or use Clamp.")
        left = (1 - s) * nu - b / math.sqrt(dim)
        if left <= 0:
            raise ValueError(f"offsets[{level - 1}]={b:g} can cancel the stream of block {level}; expected less than {(1 - s) * nu * math.sqrt(dim):g}.")
        floors.append(math.sqrt(left**2 + eps))
        nu = left / floors[-1]
    return np.array(floors)
