r"""The joint law put to the test: networks with fresh embeddings at some shapes, against what constants that were measured apart predict.

e^2 measured = mean over members of |h_L - lifted h(1)|^2,      e predicted by a `ShapeLaw`, nothing fitted to these networks
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from ._claims import Claim, near
from ._shape_law import ShapeLaw
from ._statistics import NORMAL_95

#: What the expansion may leave out, as a share of the error.
TOLERANCE = 0.1
SOURCE = "joint law 1/L + sqrt(D/(LM)) + 1/sqrt(D)"


class Measured(NamedTuple):
    """Root-mean-square error of every cell, its standard error, and the number of members that diverged; NaN where one did."""

    error: Float[np.ndarray, " cells"]
    se: Float[np.ndarray, " cells"]


def measured_error(runs: xr.Dataset, observable: str) -> Measured:
    """Whole error of the cells of `sweep_shapes`."""
    squares = runs.square.values if observable == "hidden" else np.mean(runs.output_gap.values**2, (-1, -2))
    good = runs.done.values & (runs.diverged_at.values < 0).all(1)
    squares = np.where(good[:, None], squares, np.nan)
    error = np.sqrt(squares.mean(1))
    return Measured(error, squares.std(1, ddof=1) / np.sqrt(squares.shape[1]) / (2 * error))


def joint_table(runs: xr.Dataset, laws: dict[str, ShapeLaw]) -> xr.Dataset:
    """Measured and predicted error of every cell and observable, with standard errors."""
    shapes = list(zip(runs.depth.values.tolist(), runs.width.values.tolist(), runs.dim.values.tolist(), strict=True))
    frames = []
    for name, law in laws.items():
        at = measured_error(runs, name)
        predicted = np.array([law.refined(*shape) for shape in shapes])
        spread = np.array([law.draws(*shape, refined=True).std(ddof=1) for shape in shapes])
        low, high = np.array([law.interval(*shape, refined=True) for shape in shapes]).T
        columns = {"error": at.error, "error_se": at.se, "leading": np.array([law.error(*shape) for shape in shapes])}
        columns |= {"predicted": predicted, "predicted_se": spread, "predicted_low": low, "predicted_high": high}
        columns["z"] = (at.error - predicted) / np.hypot(at.se, spread)
        terms = [law.refined_terms(*shape) for shape in shapes]
        columns |= {f"share_{k}": np.array([t[k] / sum(t.values()) for t in terms]) for k in terms[0]}
        frames.append(xr.Dataset({k: ("cell", v) for k, v in columns.items()}).expand_dims(observable=[name]))
    return xr.concat(frames, "observable").assign_coords({k: ("cell", runs[k].values) for k in ("depth", "width", "dim")})  # pyright: ignore[reportReturnType]


def joint_claim(table: xr.Dataset, observable: str) -> Claim:
    """Measured over predicted error, less 1, at the shape whose interval reaches furthest from 0: within 10 %, what the neglected orders may leave."""
    one = table.sel(observable=observable)
    ratio = one.error.values / one.predicted.values - 1
    half = NORMAL_95 * np.hypot(one.error_se.values, one.predicted_se.values) / one.predicted.values
    reach = np.abs(ratio) + half
    name = f"{observable}.joint.worst"
    if not np.isfinite(reach).any():
        return near(name, np.nan, np.nan, np.nan, TOLERANCE, source=SOURCE, doubt="a member diverged in every shape")
    worst = int(np.nanargmax(reach))
    return near(name, float(ratio[worst]), float(half[worst]) / NORMAL_95, float(half[worst]), TOLERANCE, source=SOURCE)
