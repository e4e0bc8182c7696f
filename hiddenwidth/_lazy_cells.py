"""What the lazy law is fitted to: statistics of every (shape, alpha) against the tangent ODE, and the noise-free terms beside them."""

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from ._law_fit import Grid
from ._lazy import LazyReference
from ._statistics import CellStatistics, cell_statistics, missing_cell, seed_counts

#: The fluctuation is a power law, and b(alpha) measured, where alpha^2 D/(LM) is at most this.
MAX_SPREAD = 0.5


class Cells(NamedTuple):
    """Statistics of all cells of one observable, axes (shape, alpha), and what theory adds up to."""

    statistics: list[CellStatistics]
    floor2: Float[np.ndarray, "shape alpha"]  # |A + a/L|^2, no noise
    floor2_open: Float[np.ndarray, " alpha"]  # |A|^2
    linearised2: Float[np.ndarray, "shape alpha"]  # mean square distance of networks to the full linearisation

    def array(self, name: str) -> np.ndarray:
        """One statistic as (shape, alpha)."""
        return np.array([getattr(c, name) for c in self.statistics]).reshape(self.floor2.shape)

    def draws(self, name: str) -> Float[np.ndarray, "draws shape alpha"]:
        """Bootstrap draws of one statistic."""
        return np.stack([getattr(c, name) for c in self.statistics], 1).reshape(-1, *self.floor2.shape)


def lazy_cells(name: str, runs: xr.Dataset, reference: LazyReference, bootstrap: int, rng: np.random.Generator) -> Cells:
    members = runs[name].transpose("shape", "alpha", "seed", "batch", ...).values.astype(np.float64)
    norm = math.sqrt(members.shape[-2] * members.shape[-1])
    flat = members.reshape(*members.shape[:3], -1) / norm
    target = getattr(reference.tangent, name)().ravel() / norm
    other = getattr(reference.linearised, name)().ravel() / norm
    rows = [int(np.argmin(np.abs(reference.alphas - a))) for a in runs.alpha.values]
    columns = [reference.depths.index(int(d)) for d in runs.depth.values]
    gap = getattr(reference, f"{name}_gap").mean(1)[rows]
    shift = getattr(reference, f"{name}_shift").mean(1)[rows]
    floor2 = np.stack([np.mean((gap + shift[:, c]) ** 2, axis=(1, 2)) for c in columns])
    found, linearised2 = [], np.full(floor2.shape, np.nan)
    for i, j in np.ndindex(floor2.shape):
        seeds = int(runs.seeds.values[i])
        if not runs.done.values[i, j] or (runs.diverged_at.values[i, j] >= 0).any():
            found.append(missing_cell(bootstrap))
            continue
        x = flat[i, j, :seeds] - target
        found.append(cell_statistics(x, x, np.zeros(x.shape[1]), 0.0, np.zeros((bootstrap, x.shape[1])), seed_counts(seeds, bootstrap, rng)))
        linearised2[i, j] = np.mean(np.sum((flat[i, j, :seeds] - other) ** 2, axis=1))
    return Cells(found, floor2, np.mean(gap**2, axis=(1, 2)), linearised2)


def flat_grid(runs: xr.Dataset) -> tuple[Grid, Float[np.ndarray, " cells"]]:
    """Depth, width and alpha of every cell, flattened."""
    alphas = runs.alpha.values.astype(float)
    depth, width = (np.repeat(runs[k].values.astype(float), len(alphas)) for k in ("depth", "width"))
    return Grid(depth, width, float(runs.attrs["dim"])), np.tile(alphas, runs.sizes["shape"])


def rms(x: np.ndarray, axes: tuple[int, ...] = (-2, -1)) -> Any:
    """Root mean square over data and coordinates."""
    return np.sqrt(np.mean(x**2, axis=axes))


def fluctuation_curve(runs: xr.Dataset, cells: Cells, scale: float, without: int | None = None):
    """log b(alpha)^2 as a cubic in log alpha, from all cells whose spread is small, weighted by their seeds; None when there is none.

    `without`: a shape that is left out, so that a prediction for it owes nothing to its own networks.
    """
    grid, alpha = flat_grid(runs)
    scaled = cells.array("variance").ravel() * grid.product / (alpha**2 * scale)
    seeds = np.repeat(runs.seeds.values.astype(float), runs.sizes["alpha"])
    shape = np.repeat(np.arange(runs.sizes["shape"]), runs.sizes["alpha"])
    good = np.isfinite(scaled) & (alpha**2 * grid.dim / grid.product <= MAX_SPREAD) & (shape != (-1 if without is None else without))
    if not good.any():
        return None
    degree = min(3, len(np.unique(alpha[good])) - 1)
    return np.polynomial.Polynomial.fit(np.log(alpha[good]), np.log(scaled[good]), degree, w=np.sqrt(seeds[good]))


def predicted_variance(runs: xr.Dataset, b2, scale: float) -> Float[np.ndarray, "shape alpha"]:
    """b(alpha)^2 alpha^2 S/(LM)."""
    grid, alpha = flat_grid(runs)
    if b2 is None:
        return np.full((runs.sizes["shape"], runs.sizes["alpha"]), np.nan)
    within = np.clip(np.log(alpha), *b2.domain)  # outside the range that was measured b is taken as constant
    return (np.exp(b2(within)) * alpha**2 * scale / grid.product).reshape(runs.sizes["shape"], -1)
