"""Chebyshev-Lobatto nodes on [0, 1] and barycentric interpolation between them."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def nodes(number: int) -> Float[np.ndarray, " node"]:
    """s_i = (1 - cos(pi i / (S-1))) / 2, both ends included."""
    return 0.5 * (1.0 - np.cos(np.pi * np.arange(number) / (number - 1)))


def _barycentric(number: int) -> Float[np.ndarray, " node"]:
    weights = (-1.0) ** np.arange(number)
    weights[[0, -1]] *= 0.5
    return weights


def row(s: Float[Array, ""], number: int) -> Float[Array, " node"]:
    """Interpolation weights at one point s: value(s) = row @ values."""
    gap = s - jnp.asarray(nodes(number))
    hit = gap == 0
    ratio = jnp.asarray(_barycentric(number)) / jnp.where(hit, 1.0, gap)
    return jnp.where(jnp.any(hit), hit.astype(ratio.dtype), ratio / jnp.sum(ratio))


def matrix(s: Float[np.ndarray, " points"], number: int) -> Float[np.ndarray, "points node"]:
    """Interpolation weights at many points (numpy): values(s) = matrix @ values."""
    gap = np.asarray(s, np.float64)[:, None] - nodes(number)[None, :]
    hit = gap == 0
    ratio = _barycentric(number) / np.where(hit, 1.0, gap)
    return np.where(hit.any(1, keepdims=True), hit.astype(np.float64), ratio / ratio.sum(1, keepdims=True))


def integration(number: int) -> Float[np.ndarray, "node node"]:
    """Q with (Q values)_i the integral of the interpolant from 0 to s_i: Gauss quadrature of every Lagrange polynomial, exact to rounding."""
    x, w = np.polynomial.legendre.leggauss(number)
    return np.stack([0.5 * s * w @ matrix(0.5 * s * (x + 1), number) for s in nodes(number)])
