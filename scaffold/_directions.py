r"""Directions V of a family h = V a(u), from the signal matrix C = E[G a^T] and the second moments A = E[a a^T] of the features.

    geometry     constraint          V                                   signal
    frobenius    |V|_F = 1           -C/|C|_F                            |C|_F
    spectral     |V| = 1             -U V^T of the SVD of C              |C|_*
    function     E|V a|^2 = 1        -C A^-1 / sqrt(tr C A^-1 C^T)       sqrt(tr C A^-1 C^T)
    newton       none                -H^-1 C A^-1                        twice the gain, for a quadratic loss with Hessian H

A rank r keeps the r largest singular directions, of C for frobenius and spectral and of C A^(-1/2) for function and newton: r new neurons. Rank r with
frobenius is GradMax; function with deflated gradients is TINY. The larger signal is not the larger gain: compare s^2/(2 beta).
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Geometry = Literal["frobenius", "spectral", "function", "newton"]
GEOMETRIES: tuple[Geometry, ...] = ("frobenius", "spectral", "function", "newton")


class Direction(NamedTuple):
    """A direction V in its geometry, and the signal s = -<C, V> that the samples which chose it promise; others will see less."""

    matrix: Float[np.ndarray, "dim m"]
    geometry: Geometry
    rank: int | None
    signal: float


def direction(
    signal: Float[np.ndarray, "dim m"],
    geometry: Geometry = "frobenius",
    *,
    rank: int | None = None,
    gram: Float[np.ndarray, "m m"] | None = None,
    hessian: Float[np.ndarray, "dim dim"] | None = None,
) -> Direction:
    r"""The steepest direction in a geometry.

    **Arguments:** `signal`: C; `rank`: at most so many neurons; `gram`: A, which function and newton invert (shrink it where samples are few); `hessian`: H, of
    the loss in u, for newton.

    **Returns:** a `Direction`; V = 0 where C = 0.

    **Raises:** `ValueError` for a missing or singular `gram` or `hessian`, or a rank that is not possible.

    Source: arXiv 2605.08297, condition 1; Evci et al. 2022 (GradMax); Verbockhaven et al. 2024 (TINY).

    **Example:** `direction(c, "function", gram=a2).signal`
    """
    c = np.asarray(signal, np.float64)
    if geometry not in GEOMETRIES:
        raise ValueError(f"geometry={geometry!r} is not known; expected one of {', '.join(GEOMETRIES)}.")
    if rank is not None and not 1 <= rank <= min(c.shape):
        raise ValueError(f"rank={rank} is not possible for C of shape {c.shape}; expected 1 to {min(c.shape)}.")
    if geometry in ("function", "newton"):
        root = _inverse_root(gram, c.shape[1], "gram")
        outer = _inverse_root(hessian, c.shape[0], "hessian") if geometry == "newton" else np.eye(c.shape[0])
        whitened = _truncated(outer @ c @ root, rank)
        v = -outer @ whitened @ root
        size = float(np.linalg.norm(whitened)) if geometry == "function" else 1.0
        v = v / size if size > 0 else np.zeros_like(c)
    elif geometry == "frobenius":
        kept = _truncated(c, rank)
        size = float(np.linalg.norm(kept))
        v = -kept / size if size > 0 else np.zeros_like(c)
    else:
        left, values, right = np.linalg.svd(c, full_matrices=False)
        keep = values > 1e-12 * max(values[0], 1e-300)
        keep[slice(rank, None) if rank is not None else slice(0)] = False
        v = -left[:, keep] @ right[keep]
    return Direction(v, geometry, rank, float(-np.sum(c * v)))


def gain(signal: float, curvature: float, longest: float = math.inf) -> float:
    """s t - beta t^2/2 at the best step t = min(s/beta, longest): s^2/(2 beta) where that is allowed.

    **Example:** `gain(1.0, 2.0)` is 0.25.
    """
    if signal <= 0:
        return 0.0
    t = min(signal / curvature if curvature > 0 else math.inf, longest)
    if not math.isfinite(t):
        raise ValueError(f"curvature={curvature!r} bounds no step; expected a number above 0, or a longest step.")
    return signal * t - curvature * t**2 / 2


def deflate(
    gradient: Float[np.ndarray, "n *positions dim"], old: Float[np.ndarray, "n *positions k"], *, ridge: float = 0.0
) -> Float[np.ndarray, "n *positions dim"]:
    """G less its regression on the features of the old block: what the insertion adds beyond training the old weights further.

    **Example:** `deflate(g, old_features)`
    """
    g = np.asarray(gradient, np.float64).reshape(-1, gradient.shape[-1])
    a = np.asarray(old, np.float64).reshape(-1, old.shape[-1])
    coefficients = np.linalg.lstsq(a, g, rcond=None)[0] if ridge == 0 else np.linalg.solve(a.T @ a + ridge * len(a) * np.eye(a.shape[1]), a.T @ g)
    return (g - a @ coefficients).reshape(np.shape(gradient))


def _truncated(matrix: Float[np.ndarray, "dim m"], rank: int | None) -> Float[np.ndarray, "dim m"]:
    if rank is None:
        return matrix
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return (left[:, :rank] * values[:rank]) @ right[:rank]


def _inverse_root(matrix: np.ndarray | None, size: int, name: str) -> np.ndarray:
    """M^(-1/2)."""
    if matrix is None:
        raise ValueError(f"{name}=None: this geometry needs it; expected a ({size}, {size}) matrix.")
    matrix = np.asarray(matrix, np.float64)
    if matrix.shape != (size, size):
        raise ValueError(f"{name} has shape {matrix.shape}; expected ({size}, {size}).")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if not values[0] > 1e-12 * values[-1]:
        what = "constant or dead features, or fewer samples than features" if name == "gram" else "flat directions of the loss"
        raise ValueError(
            f"{name} is singular (eigenvalues from {values[0]:.2g} to {values[-1]:.2g}): {what}; expected a positive matrix. Shrink it: shrink(...)."
        )
    return (vectors / np.sqrt(values)) @ vectors.T
