r"""Shrunk covariances, for inverses where samples are fewer than about ten times the coordinates.

    Ledoit-Wolf          (1 - rho) S + rho mu I,  mu = tr S/d,  rho = min(1, (n^-1 sum |x_k|^4 - |S|_F^2) / (n |S - mu I|_F^2))
    OAS                  the same with the rho that is best for Gaussian samples (Chen, Wiesel, Eldar and Hero 2010)
    Schaefer-Strimmer    correlations towards 0 with lambda = sum Var(r_ij) / sum r_ij^2, variances kept

S is centred with 1/n.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Kind = Literal["ledoit_wolf", "oas", "schaefer_strimmer"]


class Shrunk(NamedTuple):
    """A shrunk covariance and by how much: 0 not at all, 1 to its target."""

    matrix: Float[np.ndarray, "dim dim"]
    intensity: float


def shrink(x: Float[np.ndarray, "samples dim"], kind: Kind = "ledoit_wolf") -> Shrunk:
    """Shrink the covariance of samples.

    **Raises:** `ValueError` for fewer than two samples or an unknown kind.

    Source: Ledoit and Wolf (2004); Schaefer and Strimmer (2005).

    **Example:** `np.linalg.inv(shrink(a).matrix)`
    """
    x = np.asarray(x, np.float64)
    n, d = x.shape
    if n < 2:
        raise ValueError(f"n={n} samples have no covariance; expected at least 2.")
    x = x - x.mean(0)
    s = x.T @ x / n
    if kind == "schaefer_strimmer":
        return _correlations(x)
    mu = np.trace(s) / d
    away = float(np.sum((s - mu * np.eye(d)) ** 2))
    if away == 0:
        return Shrunk(s, 1.0)
    if kind == "ledoit_wolf":
        noise = (float(np.mean(np.sum(x**2, axis=1) ** 2)) - float(np.sum(s**2))) / n
    elif kind == "oas":
        noise = ((1 - 2 / d) * float(np.sum(s**2)) + np.trace(s) ** 2) / (n + 1 - 2 / d)
    else:
        raise ValueError(f"kind={kind!r} is not known; expected ledoit_wolf, oas or schaefer_strimmer.")
    rho = float(np.clip(noise / away, 0.0, 1.0))
    return Shrunk((1 - rho) * s + rho * mu * np.eye(d), rho)


def second_moments(features: Float[np.ndarray, "samples *positions m"], kind: Kind = "ledoit_wolf") -> Float[np.ndarray, "m m"]:
    """E[a a^T], its centred part shrunk: what `direction(..., "function", gram=...)` inverts.

    **Example:** `second_moments(a)`
    """
    a = np.asarray(features, np.float64).reshape(-1, features.shape[-1])
    return shrink(a, kind).matrix + np.outer(a.mean(0), a.mean(0))


def _correlations(x: Float[np.ndarray, "samples dim"]) -> Shrunk:
    n, d = x.shape
    sd = x.std(0, ddof=1)
    if (sd == 0).any():
        raise ValueError(f"coordinate {int(np.argmin(sd))} is constant and has no correlations; expected none such. Leave it out, or use ledoit_wolf.")
    z = x / sd
    r = z.T @ z / (n - 1)
    products = (z**2).T @ z**2  # sum_k (z_ki z_kj)^2
    variance = n / (n - 1) ** 3 * (products - (n - 1) ** 2 * r**2 / n)
    off = ~np.eye(d, dtype=bool)
    total = float(np.sum(r[off] ** 2))
    intensity = float(np.clip(variance[off].sum() / total, 0.0, 1.0)) if total > 0 else 1.0
    shrunk = (1 - intensity) * r + intensity * np.eye(d)
    return Shrunk(shrunk * np.outer(sd, sd), intensity)
