"""An observable of a sweep as plain vectors, and its statistics in every cell.

Vectors are scaled so that a sum of squares is a mean square per data point and coordinate.
"""

import math

import equinox as eqx
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from scipy import stats

from ._limit.infinite_width import DepthError
from ._limit.solution import Limit
from ._statistics import NORMAL_95, CellStatistics, cell_statistics, missing_cell, seed_counts


class Observable(eqx.Module):
    """Members, limit and depth error of hidden states or outputs at one gradient step."""

    name: str
    members: Float[np.ndarray, "depth width seed full"]
    limit: Float[np.ndarray, "replicate full"]
    shift: Float[np.ndarray, "depth_replicate depth full"]  # infinite width minus limit
    basis: Float[np.ndarray, "dim reduced"] | None  # where the mean of the members can differ from the reference; None: anywhere
    batch: int
    fluctuation_scale: float  # S in V ~ b^2 S / (L M)
    depth: Float[np.ndarray, " depth"]
    width: Float[np.ndarray, " width"]
    usable: Bool[np.ndarray, "depth width"]  # run, and no member diverged
    diverged: Int[np.ndarray, "depth width"]
    seeds: Int[np.ndarray, "depth width"]  # members of a cell; rows beyond are empty

    def cell(self, i: int, j: int) -> Float[np.ndarray, "seed full"]:
        """Members of one cell."""
        return self.members[i, j, : self.seeds[i, j]]

    def project(self, x: Float[np.ndarray, "*axes full"]) -> Float[np.ndarray, "*axes small"]:
        """Coordinates in the span of the data: by symmetry the mean over initialisations lies there, and the noise of the rest is left out."""
        if self.basis is None:
            return x
        dim = len(self.basis)
        split = x.reshape(*x.shape[:-1], self.batch, dim) @ self.basis / math.sqrt(dim)
        return split.reshape(*x.shape[:-1], -1)


def observe(name: str, runs: xr.Dataset, limit: Limit, depth: DepthError, steps: int) -> Observable:
    """Line up runs, limit and depth error of `hidden` or `output` after `steps` gradient steps."""
    if name == "hidden":
        members = runs.hidden.sel(recorded=steps).transpose("depth", "width", "seed", "batch", "dim").values
        at, shift, scale = limit.hidden_replicates(steps), depth.hidden, float(runs.sizes["dim"])
        basis = limit.where.basis if limit.where.reduced else None
    else:
        members = runs.output.sel(step=steps).transpose("depth", "width", "seed", "batch", "out").values
        at, shift, scale, basis = limit.output_replicates(steps), depth.output, 1.0, None
    norm = math.sqrt(members.shape[-2] * members.shape[-1])
    rows = [depth.depths.index(int(d)) for d in runs.depth.values]
    diverged = (runs.diverged_at.values >= 0).sum(-1)

    def flat(x):
        return np.asarray(x, np.float64).reshape(*x.shape[:-2], -1) / norm

    return Observable(
        name, flat(members), flat(at), flat(shift[:, rows]), basis, members.shape[-2], scale,
        runs.depth.values.astype(float), runs.width.values.astype(float), (diverged == 0) & runs.done.values, diverged, runs.seeds.values,
    )  # fmt: skip


def statistics(seen: Observable, bootstrap: int, rng: np.random.Generator) -> list[CellStatistics]:
    """Statistics of every cell, depth by depth, with bootstrap draws over seeds and over reference replicates."""
    limit, shift = seen.limit.mean(0), seen.shift.mean(0)
    limit_draws = _reference_draws(seen.project(seen.limit), bootstrap, rng)
    shift_draws = _reference_draws(seen.project(seen.shift), bootstrap, rng)
    limit_noise, shift_noise = (x.var(0, ddof=1) / len(x) for x in (seen.project(seen.limit), seen.project(seen.shift)))
    cells = []
    for i, j in np.ndindex(seen.usable.shape):
        if not seen.usable[i, j]:
            cells.append(missing_cell(bootstrap))
            continue
        deviation = seen.cell(i, j) - limit - shift[i]
        reference2 = float(limit_noise.sum() + shift_noise[i].sum())
        counts = seed_counts(len(deviation), bootstrap, rng)
        cells.append(cell_statistics(deviation, seen.project(deviation), shift[i], reference2, limit_draws + shift_draws[:, i], counts))
    return cells


def _reference_draws(x: Float[np.ndarray, "replicate *axes"], bootstrap: int, rng: np.random.Generator) -> Float[np.ndarray, "draws *axes"]:
    """Bootstrap of the mean over replicates. They are few: draws are stretched to Student's quantile, and for the bootstrap's (R-1)/R."""
    replicates = len(x)
    stretch = math.sqrt(replicates / (replicates - 1)) * stats.t.ppf(0.975, replicates - 1) / NORMAL_95
    pick = seed_counts(replicates, bootstrap, rng) / replicates
    return np.tensordot(pick, x - x.mean(0), axes=1) * stretch


def alignment(seen: Observable, bias2: Float[np.ndarray, " cells"]) -> float:
    """Cosine between the depth error and the sampling bias, pooled over cells: how much of (a/L + c/(LM))^2 is cross term."""
    limit, shift = seen.limit.mean(0), seen.shift.mean(0)
    small = seen.project(shift)
    dot = norm = 0.0
    for (i, j), bias in zip(np.ndindex(seen.usable.shape), bias2, strict=True):
        if bias > 0:  # False for NaN
            mean = seen.project(seen.cell(i, j).mean(0) - limit - shift[i])
            dot += float(mean @ small[i])
            norm += math.sqrt(bias) * float(np.linalg.norm(small[i]))
    return float(np.clip(dot / norm, -1, 1)) if norm > 0 else 0.0
