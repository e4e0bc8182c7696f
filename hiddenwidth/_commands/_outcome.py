"""How a command ends: exit status and what is printed."""

from typing import NamedTuple

import xarray as xr


class Outcome(NamedTuple):
    """Exit status (0: done, 1: nothing to measure, 130: interrupted) and the text for the terminal."""

    status: int
    text: str


def wholly_diverged(runs: xr.Dataset) -> xr.DataArray:
    """Cells of a sweep in which every member diverged."""
    return ((runs.diverged_at >= 0).sum("seed") == runs.seeds) & runs.done


def all_diverged(runs: xr.Dataset) -> str:
    """Name the cells in which every member diverged, or say nothing."""
    lost = wholly_diverged(runs)
    cells = [(int(d), int(w)) for d in runs.depth.values for w in runs.width.values if bool(lost.sel(depth=d, width=w))]
    if not cells:
        return ""
    depth, width = cells[0]
    first = int(runs.diverged_at.sel(depth=depth, width=width).isel(seed=slice(int(runs.seeds.sel(depth=depth, width=width)))).min())
    return f"Every member diverged in {len(cells)} of {lost.size} cells, the first being depth={depth} width={width} (from step {first})."


def all_cells_diverged(runs: xr.Dataset) -> str:
    """The same for a list of cells (L, M, D)."""
    lost = (runs.diverged_at >= 0).all("seed").values
    if not lost.any():
        return ""
    first = int(lost.argmax())
    depth, width, dim = (int(runs[k].values[first]) for k in ("depth", "width", "dim"))
    step = int(runs.diverged_at.values[first].min())
    return f"Every member diverged in {int(lost.sum())} of {lost.size} cells, the first being depth={depth} width={width} dim={dim} (from step {step})."
