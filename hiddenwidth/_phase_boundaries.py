r"""Where the regions of the phase diagram end, shape by shape, and the region of every cell: from measurements alone.

    critical scale   largest rho at which A is at least half of its maximum over rho           on the branch that falls from the maximum
    blow-up scale    rho at which F = 1: states differ between initialisations by their own size
    training limit   first rho at which a seed diverged or fewer than half of the seeds lowered their loss

Both boundaries are interpolated between cells, linearly in logarithms. The maximum is taken over cells with F below 1.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Integer

HALF = 0.5
REGIONS = ("maximal", "lazy", "stochastic", "unstable")
MISSING = -1


class Curves(NamedTuple):
    """Root mean squares over seeds, units and data along rho; NaN where a member diverged or no cell was measured. Leading axes: resampled seeds."""

    local_update: Float[np.ndarray, "*draw rho"]
    fluctuation: Float[np.ndarray, "*draw rho"]
    change: Float[np.ndarray, "*draw rho"]


def curves(runs: xr.Dataset, shape: int, prefix: str = "", weights: Float[np.ndarray, "draw seed"] | None = None) -> Curves:
    """Curves of one shape; `weights` (draw, seed) with rows that sum to 1 resample its seeds."""

    def rms(name: str):
        square = members(runs, shape, prefix + name)
        lost = np.nan_to_num(members(runs, shape, f"{prefix}diverged"), nan=1.0).any(1)
        with np.errstate(invalid="ignore"):
            mean = square.mean(1) if weights is None else weights @ square.T
            return np.where(lost, np.nan, np.sqrt(mean))

    return Curves(rms("local_update2"), rms("fluctuation2"), rms("change2"))


def members(runs: xr.Dataset, shape: int, name: str) -> Float[np.ndarray, "cell seed"]:
    """Values of the seeds that this shape has."""
    values = runs[name].values[shape].astype(np.float64)
    count = int(np.isfinite(runs["fluctuation2"].values[shape, 0]).sum())
    return values[:, :count]


def resampling(count: int, draws: int, rng: np.random.Generator) -> Float[np.ndarray, "draw seed"]:
    """Weights of bootstrap draws of `count` seeds."""
    return rng.multinomial(count, np.full(count, 1.0 / count), size=draws) / count


def critical_rho(rho: Float[np.ndarray, " rho"], seen: Curves) -> Float[np.ndarray, "*draw"]:
    """The rho beyond the maximum of A at which A first falls below half of it; NaN when it does not fall so far."""
    with np.errstate(invalid="ignore"):
        allowed = np.where(seen.fluctuation < 1, seen.local_update, -np.inf)
    allowed = np.where(np.isfinite(seen.local_update), allowed, -np.inf)
    peak = allowed.argmax(-1)
    after = np.arange(len(rho)) >= peak[..., None]
    relative = np.where(after, seen.local_update / np.take_along_axis(allowed, peak[..., None], -1), np.inf)
    return crossing(rho, relative, HALF, falling=True)


def blow_up_rho(rho: Float[np.ndarray, " rho"], seen: Curves) -> Float[np.ndarray, "*draw"]:
    """The rho at which F = 1; NaN when it is not reached."""
    return crossing(rho, seen.fluctuation, 1.0, falling=False)


def crossing(rho, values, level: float, *, falling: bool):
    """First crossing of a level along rho, interpolated linearly in logarithms."""
    flat = values.reshape(-1, len(rho))
    with np.errstate(invalid="ignore"):
        beyond = flat < level if falling else flat >= level
    at = beyond.argmax(1)
    row = np.arange(len(flat))
    found = beyond.any(1) & (at > 0)
    before = np.maximum(at - 1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        y0, y1 = np.log(flat[row, before] / level), np.log(flat[row, at] / level)
        x0, x1 = np.log(rho[before]), np.log(rho[at])
        x = np.where(np.isfinite(y0), x0 - y0 * (x1 - x0) / (y1 - y0), np.nan)
    result = np.where(found, np.exp(x), np.nan)
    return result.reshape(values.shape[:-1])


def lowered(runs: xr.Dataset, shape: int, prefix: str = "") -> Float[np.ndarray, " rho"]:
    """Share of seeds whose last loss is finite and below the first; NaN where there is no cell."""
    start, end = members(runs, shape, f"{prefix}loss_start"), members(runs, shape, f"{prefix}loss_end")
    with np.errstate(invalid="ignore"):
        share = (end < start).mean(1)
    return np.where(np.isnan(members(runs, shape, f"{prefix}diverged")).all(1), np.nan, share)


def training_limit(rho: Float[np.ndarray, " rho"], share: Float[np.ndarray, " rho"], lost: Integer[np.ndarray, " rho"]) -> float:
    """First rho at which a seed diverged or fewer than half of the seeds lowered their loss; NaN when there is none."""
    with np.errstate(invalid="ignore"):
        bad = (share < HALF) | (lost > 0)
    return float(rho[bad.argmax()]) if bad.any() else float("nan")


def classify(rho: Float[np.ndarray, " rho"], seen: Curves, share: Float[np.ndarray, " rho"], lost: Integer[np.ndarray, " rho"]) -> Integer[np.ndarray, " rho"]:
    """Index into `REGIONS` of every cell, -1 where there is none.

    **unstable**: a seed diverged, or fewer than half of the seeds lowered their loss. Else **stochastic**: F of at least 1. Else **lazy**: A below half of its
    maximum, beyond that maximum. Else **maximal**.
    """
    measured = ~np.isnan(share)
    with np.errstate(invalid="ignore"):
        allowed = np.where((seen.fluctuation < 1) & np.isfinite(seen.local_update), seen.local_update, -np.inf)
        peak = int(allowed.argmax())
        lazy = (np.arange(len(rho)) > peak) & (seen.local_update < HALF * allowed[peak])
        region = np.select([(share < HALF) | (lost > 0), seen.fluctuation >= 1, lazy], [3, 2, 1], default=0)
    return np.where(measured, region, MISSING).astype(np.int64)
