r"""Every power of depth L, width M and embedding dimension D.

The network, its training and its limits are written with quantities of order one; this file alone turns them into raw scales:

    branch multiplier     alpha / (L M)
    initial std           sigma_u = rho_u sqrt(D),  sigma_v = rho_v sqrt(D)      (rho = 1: critical)
    normalised step       z <- z - (eta / alpha) sum_x D_z phi^T b,   b = D times the loss gradient with respect to h
    raw step              the same step on the plain gradient:  eta L M D / alpha^2
    residual scale        branch multiplier times sigma_v:  rho sqrt(D) / (L M)  with  rho = alpha rho_v
    parameters            2 L M D, and D (d_in + d_out) of the embeddings
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ._choices import positive_float, positive_int
from ._types import Depth, Scalar


class InitStd(NamedTuple):
    """Standard deviations of the entries that read a hidden state (`u`) and that write to it (`v`)."""

    u: Scalar
    v: Scalar


class Scaling(eqx.Module):
    r"""How a residual network is scaled: branch multiplier, initial weights, learning rates.

    **Arguments:** `alpha` multiplies the residual branch; `learning_rate_u`, `learning_rate_v` are the normalised rates eta, of order one
    at every shape; `fan_in` draws the writing weights with the standard deviation sqrt(M) of fan-in initialisation
    instead of the critical sqrt(D).

    Source: arXiv 2509.10167, Theorems 1 to 3.
    """

    alpha: Scalar = 1.0
    learning_rate_u: Scalar = 1.0
    learning_rate_v: Scalar = 1.0
    fan_in: bool = eqx.field(static=True, default=False)
    name: str = eqx.field(static=True, default="mlu")

    def __check_init__(self):
        positive_float("alpha", self.alpha)
        positive_float("learning_rate_u", self.learning_rate_u)
        positive_float("learning_rate_v", self.learning_rate_v)

    def traced(self, dtype: Any) -> "Scaling":
        """The same scaling with its numbers as arrays: a compiled function then serves every alpha and every rate, and may be vmapped over them."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)

    def branch(self, depth: Depth) -> Scalar:
        """Multiplier alpha / L of a block's average over its units (the average itself carries the 1/M)."""
        return self.alpha / (depth.astype(jnp.result_type(self.alpha)) if isinstance(depth, jax.Array) else depth)

    def relative_std(self, width: float, dim: float) -> InitStd:
        """(rho_u, rho_v) = (sigma_u, sigma_v) / sqrt(D); finite in the limit D = infinity unless the law depends on M/D."""
        return InitStd(1.0, math.sqrt(width / dim) if self.fan_in else 1.0)

    def init_std(self, width: float, dim: float) -> InitStd:
        """(sigma_u, sigma_v), the standard deviations of the entries of u and v."""
        relative = self.relative_std(width, dim)
        return InitStd(relative.u * math.sqrt(dim), relative.v * math.sqrt(dim))

    def step(self) -> InitStd:
        """(eta_u, eta_v) / alpha, the factors in front of sum_x D_z phi^T b."""
        return InitStd(self.learning_rate_u / self.alpha, self.learning_rate_v / self.alpha)

    def raw_learning_rate(self, depth: int, width: int, dim: int) -> InitStd:
        """eta L M D / alpha^2, the rates that multiply the plain gradient of the loss with respect to u and v."""
        factor = depth * width * dim / self.alpha**2
        return InitStd(self.learning_rate_u * factor, self.learning_rate_v * factor)

    def residual_scale(self, depth: int, width: int, dim: int) -> Scalar:
        """rho sqrt(D) / (L M), the size of one unit's contribution to the residual stream at initialisation."""
        return self.alpha / (depth * width) * self.init_std(width, dim).v

    def at(self, width: int, dim: int) -> "Scaling":
        """The same network and training at one shape, with v of the critical size: `fan_in` becomes a branch multiplied by alpha sqrt(M/D)."""
        rho_v = float(self.relative_std(width, dim).v)
        return Scaling(self.alpha * rho_v, self.learning_rate_u * rho_v**2, self.learning_rate_v, name=self.name)


def _rates(learning_rate: float, learning_rate_u: float | None, learning_rate_v: float | None) -> dict[str, Any]:
    for what, value in (("learning_rate", learning_rate), ("learning_rate_u", learning_rate_u), ("learning_rate_v", learning_rate_v)):
        if value is not None:
            positive_float(what, value)
    return {
        "learning_rate_u": learning_rate if learning_rate_u is None else learning_rate_u,
        "learning_rate_v": learning_rate if learning_rate_v is None else learning_rate_v,
    }


def mlu(learning_rate: float = 1.0, *, learning_rate_u: float | None = None, learning_rate_v: float | None = None) -> Scaling:
    """Maximal local updates: residual scale sqrt(D)/(L M), the critical one (Theorem 1; alpha = 1).

    `learning_rate` sets both normalised rates; `learning_rate_u` and `learning_rate_v` set one each.
    """
    return Scaling(alpha=1.0, **_rates(learning_rate, learning_rate_u, learning_rate_v), name="mlu")


def lazy(alpha: float, learning_rate: float = 1.0, *, learning_rate_u: float | None = None, learning_rate_v: float | None = None) -> Scaling:
    """Residual scale alpha sqrt(D)/(L M): as alpha grows, units move by 1/alpha and the limit is the tangent ODE (Theorem 2)."""
    return Scaling(alpha=alpha, **_rates(learning_rate, learning_rate_u, learning_rate_v), name="lazy")


def fan_in(learning_rate: float = 1.0, *, learning_rate_u: float | None = None, learning_rate_v: float | None = None) -> Scaling:
    """Fan-in initialisation of the writing weights with a 1/L branch: rho = sqrt(M/D), equal to `mlu` exactly when M = D."""
    return Scaling(alpha=1.0, **_rates(learning_rate, learning_rate_u, learning_rate_v), fan_in=True, name="fan_in")


def residual(rho: float, *, learning_rate_u: float | None = None, learning_rate_v: float = 1.0) -> Scaling:
    r"""Residual scale rho sqrt(D)/(L M) with rates given for the branch as it is: u moves by eta_u sum_x D_u phi^T b, v by eta_v sum_x D_v phi^T b.

    The entries of v have standard deviation rho sqrt(D) and the branch multiplier is 1/(L M). The same network is written here as a branch multiplied by
    alpha = rho with v of the critical size, whose normalised rates are rho^2 eta_u and eta_v. Default: `stable_rate_u`.
    """
    positive_float("rho", rho)
    rate = stable_rate_u(rho) * learning_rate_v if learning_rate_u is None else positive_float("learning_rate_u", learning_rate_u)
    return Scaling(alpha=rho, learning_rate_u=rate * rho**2, learning_rate_v=positive_float("learning_rate_v", learning_rate_v), name="residual")


def complete_p(learning_rate: float = 1.0, *, width: int, dim: int) -> Scaling:
    """Fan-in initialisation and a 1/L branch at one shape, with the largest stable rates: rho = sqrt(M/D), equal to `mlu` exactly when M = D.

    CompleteP is stated for widths M proportional to D and tunes its rate there; off that line the rate of u is lowered as stability asks (`stable_rate_u`).
    """
    scaling = residual(math.sqrt(positive_int("width", width) / positive_int("dim", dim)), learning_rate_v=learning_rate)
    return Scaling(scaling.alpha, scaling.learning_rate_u, scaling.learning_rate_v, name="complete_p")


def stable_rate_u(rho: float) -> float:
    """The derived rule eta_u = 1 / max(1, rho)^2: above rho = 1 a step of u moves h by rho^2 eta_u, which must stay of order one."""
    return 1.0 / max(1.0, rho) ** 2


def parameter_count(depth: int, width: int, dim: int, ends: int = 0) -> int:
    """D (2 L M + ends): the parameters of L M two-layer units and of the embeddings, `ends` = d_in + d_out numbers for each dimension."""
    return dim * (2 * depth * width + ends)


def critical_scale(depth: float, width: float, dim: float) -> float:
    """sqrt(D)/(L M): the largest residual scale with maximal local updates, rho = 1 (Theorem 3)."""
    return math.sqrt(dim) / (depth * width)


def blow_up_scale(depth: float, width: float) -> float:
    """1/sqrt(L M): the residual scale at which fluctuations over initialisations reach the size of h itself, rho = sqrt(LM/D) (Theorem 3)."""
    return 1.0 / math.sqrt(depth * width)
