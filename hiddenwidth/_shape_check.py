r"""The chosen shape measured: networks with fresh embeddings at it, at its neighbours, and at both extremes, all within one budget.

Neighbours differ by a factor of two in two of L, M, D; the budget is kept to rounding. All depth has M = 1, all width L = 1, each with the D that the law
finds best.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from ._claims import Claim, above, near
from ._joint import measured_error
from ._scaling import parameter_count
from ._shape import BestShape, at_depth
from ._shape_law import ShapeLaw
from ._statistics import NORMAL_95

SOURCE = "joint law at a parameter budget"

#: Share of the error that the expansion may leave out at the chosen shape.
TOLERANCE = 0.1


class Rival(NamedTuple):
    """A shape to be measured and what it is."""

    name: str
    depth: int
    width: int
    dim: int


def rivals(best: BestShape, law: ShapeLaw) -> list[Rival]:
    """The chosen shape, its neighbours, all depth, all width; no shape twice."""
    s, found = best.chosen, []

    def add(name: str, depth: int, width: int, dim: int) -> None:
        fits = depth >= 1 and width >= 1 and dim >= law.reduced and parameter_count(depth, width, dim, law.ends) <= best.budget
        if fits and (depth, width, dim) not in {r[1:] for r in found}:
            found.append(Rival(name, depth, width, dim))

    def fill(depth: int, dim: int) -> int:
        return (best.budget // dim - law.ends) // (2 * depth)

    add("chosen", s.depth, s.width, s.dim)
    if best.least.width == 1:
        add("all depth", best.least.depth, best.least.width, best.least.dim)
    flat = at_depth(law, best.budget, 1)
    if flat is not None:
        add("all width", *flat)
    for name, depth, dim in (
        ("L/2, 2M", s.depth // 2, s.dim), ("2L, M/2", 2 * s.depth, s.dim), ("2M, D/2", s.depth, s.dim // 2), ("M/2, 2D", s.depth, 2 * s.dim),
        ("2L, D/2", 2 * s.depth, s.dim // 2), ("L/2, 2D", s.depth // 2, 2 * s.dim),
    ):  # fmt: skip
        if depth >= 1 and dim >= 1:
            add(name, depth, fill(depth, dim), dim)
    return sorted(found, key=lambda r: r.name.startswith("all"))  # the extremes last, each under its own name


def check_claims(runs: xr.Dataset, found: list[Rival], law: ShapeLaw, slack: float) -> list[Claim]:
    """Is the error at the chosen shape the predicted one, and does no rival do better by more than the slack?"""
    at = measured_error(runs, "hidden")
    chosen = found[0][1:]
    predicted, draws = float(law.refined(*chosen)), law.draws(*chosen, refined=True)
    ratio = at.error[0] / predicted - 1
    se = float(np.hypot(at.se[0], draws.std(ddof=1))) / predicted
    half = NORMAL_95 * se
    claims = [near("hidden.chosen.measured_over_predicted", float(ratio), se, half, TOLERANCE, source=SOURCE)]
    for i, rival in enumerate(found[1:], 1):
        gain = at.error[i] / at.error[0] - 1
        spread = _ratio_se(runs, i) * (1 + gain)
        claims.append(_rival_claim(rival, float(gain), float(spread), slack))
    return claims


def _rival_claim(rival: Rival, gain: float, se: float, slack: float) -> Claim:
    """Error of a rival over that of the chosen shape, less 1: it should not be below -slack."""
    doubt = "" if np.isfinite(gain) else "a member diverged"
    return above(f"hidden.rival[{rival.name}].over_chosen", gain, se, NORMAL_95 * se, -slack, source=SOURCE, doubt=doubt)


def _ratio_se(runs: xr.Dataset, which: int) -> float:
    """Standard error of log(error / error of cell 0); the same draws of the embeddings stand at every shape, so members are compared one by one."""
    squares = runs.square.values[[0, which]]
    relative = squares / squares.mean(1, keepdims=True)
    return float((relative[1] - relative[0]).std(ddof=1) / np.sqrt(squares.shape[1]) / 2)
