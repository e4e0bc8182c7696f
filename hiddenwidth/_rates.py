r"""The error law of Theorem 1, measured term by term.

    E|h_L - h(1)|^2 = (a/L + c/(LM))^2 + b^2 D/(LM)

- a/L: infinitely wide network against Mean ODE, no sampling noise;
- b sqrt(D/(LM)): spread of networks over initialisations;
- c/(LM): mean of networks minus infinitely wide network of the same depth.

Outputs obey the same law without the D: their fluctuation is b/sqrt(LM).
"""

import math
from typing import Any

import equinox as eqx
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from ._claims import Claim, claim, table
from ._depth_fit import DepthFit, Estimate, fit_depth
from ._law_fit import NORMAL_95, Grid, LawFit, bias_law, fit_law, fluctuation_law, variance_of_bias2, variance_of_variance
from ._limit.infinite_width import DepthError, depth_error
from ._limit.solution import MeanODE
from ._statistics import CellStatistics, cell_statistics, missing_cell, seed_counts

#: Depths at which the depth term is measured, besides those of the runs. It costs no networks.
LADDER = (8, 16, 32, 64, 128)
OBSERVABLES = ("hidden", "output")
MIN_SEEDS = 8

#: Widest intervals that still mean something.
MAX_WIDTH = {"depth.exponent": 0.02, "fluctuation.exponent_depth": 0.06, "fluctuation.exponent_width": 0.06, "bias.exponent": 0.2}
THEORY = {"depth.exponent": -1.0, "fluctuation.exponent_depth": -0.5, "fluctuation.exponent_width": -0.5, "bias.exponent": -1.0}
SOURCE = {"depth": "Theorem 1, 1/L", "fluctuation": "Theorem 1, sqrt(D/(LM))", "bias": "propagation of chaos, 1/(LM)"}


class RateFit(eqx.Module):
    """Fitted error law: claims with verdicts, goodness of fit, and the dataset that the picture is drawn from."""

    claims: list[Claim]
    goodness: dict[str, dict[str, Any]]
    data: xr.Dataset

    def __getitem__(self, name: str) -> Claim:
        for c in self.claims:
            if c.name == name:
                return c
        raise KeyError(f"no claim {name!r}; the claims are {', '.join(c.name for c in self.claims)}")

    def __repr__(self) -> str:
        return table(self.claims)


def fit_rates(
    runs: xr.Dataset,
    limit: MeanODE,
    depth: DepthError | None = None,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> RateFit:
    r"""Fit the three terms of the error law, for hidden states and outputs.

    **Arguments:**

    - `runs`: from `sweep`, the last recorded step is used.
    - `limit`: `mean_ode` of the same problem, unit and scaling with at least as many steps.
    - `depth`: `depth_error` for the depths of the runs (default: computed here).
    - `bootstrap`: draws over seeds and over reference replicates. `seed`: of the bootstrap.

    **Returns:** a `RateFit`. A cell with a diverged member is left out of every fit and counted; means over survivors would be biased.

    **Raises:** `ValueError` for fewer than 8 seeds, or a limit that belongs to something else.

    Source: arXiv 2509.10167, Theorem 1; arXiv 2603.18168 for the two observables.

    **Example:** `hw.fit_rates(runs, limit)["hidden.fluctuation.exponent_width"]`
    """
    steps = int(runs.recorded.values[-1])
    _check(runs, limit, steps)
    depths = tuple(int(d) for d in runs.depth.values)
    if depth is None:
        depth = depth_error(limit.problem, limit.unit, limit.scaling, depths=(*depths, *LADDER), steps=steps, nodes=len(limit.nodes))
    missing = set(depths) - set(depth.depths)
    if missing or depth.step != steps:
        raise ValueError(f"depth covers depths {depth.depths} at step {depth.step}; expected all of {depths} at step {steps}. Leave depth=None.")
    rng = np.random.default_rng(seed)
    claims, goodness, data = [], {}, []
    for name in OBSERVABLES:
        frame = _frame(name, runs, limit, depth, steps)
        one = _fit_observable(name, frame, depth, limit.problem.dim, bootstrap, rng)
        claims += one[0]
        goodness |= one[1]
        data.append(one[2])
    frame: Any = xr.concat(data, "observable")
    return RateFit(claims, goodness, frame)


def _check(runs: xr.Dataset, limit: MeanODE, steps: int) -> None:
    seeds = runs.sizes["seed"]
    if seeds < MIN_SEEDS:
        raise ValueError(f"seeds={seeds} is too few for an interval; expected at least {MIN_SEEDS}. Run the sweep with more seeds.")
    if limit.problem.dim != runs.sizes["dim"]:
        raise ValueError(f"limit has dim={limit.problem.dim} and runs have dim={runs.sizes['dim']}; expected the same problem on both sides.")
    if limit.steps < steps:
        raise ValueError(f"limit has steps={limit.steps} and runs end at step {steps}; integrate mean_ode with steps={steps} or more.")
    for what, value in (("problem", limit.problem.name), ("unit", repr(limit.unit)), ("scaling", repr(limit.scaling))):
        if what in runs.attrs and runs.attrs[what] != value:
            raise ValueError(f"limit was computed for {what} {value} and runs for {runs.attrs[what]}; expected the same on both sides.")


class _Frame(eqx.Module):
    """One observable as vectors whose sum of squares is a mean square per data point and coordinate."""

    members: Float[np.ndarray, "depth width seed full"]
    limit: Float[np.ndarray, "replicate full"]
    shift: Float[np.ndarray, "depth_replicate depth full"]  # infinite width minus limit
    projection: Float[np.ndarray, "dim small"] | None  # where the mean of the members can differ from the reference; None: anywhere
    batch: int
    fluctuation_scale: float
    depth: Float[np.ndarray, " depth"]
    width: Float[np.ndarray, " width"]
    excluded: Bool[np.ndarray, "depth width"]  # not run, or a member diverged
    diverged: Int[np.ndarray, "depth width"]


def _frame(name: str, runs: xr.Dataset, limit: MeanODE, depth: DepthError, steps: int) -> _Frame:
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
    excluded = (diverged > 0) | ~runs.done.values

    def flat(x):
        return np.asarray(x, np.float64).reshape(*x.shape[:-2], -1) / norm

    return _Frame(
        flat(members), flat(at), flat(shift[:, rows]), basis, members.shape[-2], scale,
        runs.depth.values.astype(float), runs.width.values.astype(float), excluded, diverged,
    )  # fmt: skip


def _project(x: Float[np.ndarray, "*axes full"], frame: _Frame) -> Float[np.ndarray, "*axes small"]:
    """Coordinates in the span of the data: by symmetry the mean over initialisations lies there, the noise of the rest is left out."""
    if frame.projection is None:
        return x
    dim = len(frame.projection)
    split = x.reshape(*x.shape[:-1], frame.batch, dim) @ frame.projection / math.sqrt(dim)
    return split.reshape(*x.shape[:-1], -1)


def _cells(frame: _Frame, bootstrap: int, rng: np.random.Generator) -> tuple[list[CellStatistics], int]:
    seeds = frame.members.shape[2]
    limit, shift = frame.limit.mean(0), frame.shift.mean(0)
    small_limit, small_shift = _project(frame.limit, frame), _project(frame.shift, frame)
    pick_limit = seed_counts(len(frame.limit), bootstrap, rng) / len(frame.limit)
    pick_shift = seed_counts(len(frame.shift), bootstrap, rng) / len(frame.shift)

    def noise2(x):
        return float(x.var(0, ddof=1).sum() / len(x)) if len(x) > 1 else 0.0

    def resampled(x, pick):
        grow = math.sqrt(len(x) / (len(x) - 1)) if len(x) > 1 else 1.0  # few replicates: undo the bootstrap's (R-1)/R
        return (pick @ x - x.mean(0)) * grow

    cells = []
    for i in range(len(frame.depth)):
        for j in range(len(frame.width)):
            if frame.excluded[i, j]:
                cells.append(missing_cell(bootstrap))
                continue
            deviation = frame.members[i, j] - limit - shift[i]
            reference_draws = resampled(small_limit, pick_limit) + resampled(small_shift[:, i], pick_shift)
            reference2 = noise2(small_limit) + noise2(small_shift[:, i])
            counts = seed_counts(seeds, bootstrap, rng)
            cells.append(cell_statistics(deviation, _project(deviation, frame), shift[i], reference2, reference_draws, counts))
    return cells, seeds


def _fit_observable(name: str, frame: _Frame, depth: DepthError, dim: float, bootstrap: int, rng: np.random.Generator):
    cells, seeds = _cells(frame, bootstrap, rng)
    shape = (len(frame.depth), len(frame.width))
    at_depth, at_width = np.meshgrid(frame.depth, frame.width, indexing="ij")
    grid = Grid(at_depth.ravel(), at_width.ravel(), dim)
    variance, bias2, error2 = (np.array([getattr(c, k) for c in cells]) for k in ("variance", "bias2", "error2"))
    draws = {k: np.stack([getattr(c, k) for c in cells], 1) for k in ("variance_draws", "bias2_draws", "error2_draws")}
    law = fluctuation_law(grid, frame.fluctuation_scale)
    fluctuation = fit_law(law, grid, variance, draws["variance_draws"], variance_of_variance(cells), rng)
    bias = fit_law(bias_law(grid), grid, bias2, draws["bias2_draws"], variance_of_bias2(cells, seeds), rng)
    shifts = depth.hidden if name == "hidden" else depth.output
    curve = np.sqrt(np.mean(shifts**2, axis=(-1, -2)))
    depth_fit = fit_depth(np.asarray(depth.depths, float), curve)

    claims = [
        _claim(name, "depth.constant", depth_fit.constant),
        _claim(name, "depth.exponent", depth_fit.exponent),
        _claim(name, "fluctuation.constant", fluctuation.constant),
        *(_claim(name, f"fluctuation.{k}", e) for k, e in fluctuation.exponents.items()),
        *_split_claim(name, grid, variance / fluctuation.mean, draws["variance_draws"] / fluctuation.mean, fluctuation.used),
        _claim(name, "bias.constant", bias.constant),
        *(_claim(name, f"bias.{k}", e) for k, e in bias.exponents.items()),
    ]
    goodness = {f"{name}.fluctuation": _goodness(fluctuation), f"{name}.bias": _goodness(bias)}
    alignment = _alignment(frame, bias2, shape)
    depth_mean = depth_curve(depth_fit, grid.depth)
    bias_mean = np.sqrt(bias.mean)
    predicted2 = depth_mean**2 + 2 * alignment * depth_mean * bias_mean + bias_mean**2 + fluctuation.mean
    goodness[f"{name}.depth"] = {"corrections": depth_fit.corrections.tolist(), "alignment_with_bias": alignment}

    def se(key):
        return draws[key].std(0, ddof=1)

    with np.errstate(invalid="ignore"):
        columns = {
            "variance": variance, "variance_se": se("variance_draws"), "bias2": bias2, "bias2_se": se("bias2_draws"),
            "below_floor": bias2 < NORMAL_95 * se("bias2_draws"), "error2": error2, "error2_se": se("error2_draws"),
            "fitted_variance": fluctuation.mean, "fitted_bias2": bias.mean, "fitted_error2": predicted2,
            "in_fluctuation_fit": fluctuation.used, "in_bias_fit": bias.used, "diverged": frame.diverged.ravel(),
        }  # fmt: skip
    data = xr.Dataset(
        {k: (("depth", "width"), v.reshape(shape)) for k, v in columns.items()}
        | {
            "depth_error": (("replicate", "reference_depth"), curve),
            "fitted_depth_error": (("reference_depth",), depth_curve(depth_fit, np.asarray(depth.depths, float))),
        },
        coords={"depth": frame.depth.astype(int), "width": frame.width.astype(int), "reference_depth": list(depth.depths)},
    )
    return claims, goodness, data.expand_dims(observable=[name])


def depth_curve(fit: DepthFit, depth: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """The fitted a/L with its next orders."""
    powers = np.stack([depth ** -float(q) for q in range(1, len(fit.corrections) + 1)], -1)
    return fit.constant.value / depth * np.exp(powers @ fit.corrections)


def _alignment(frame: _Frame, bias2, shape: tuple[int, int]) -> float:
    """Cosine between the depth error and the sampling bias, pooled over cells: how much of (a/L + c/(LM))^2 is cross term."""
    limit, shift = frame.limit.mean(0), frame.shift.mean(0)
    small = _project(shift, frame)
    dot = norm = 0.0
    for i, j in np.ndindex(*shape):
        bias = bias2.reshape(shape)[i, j]
        if np.isfinite(bias) and bias > 0:
            mean = _project(frame.members[i, j].mean(0) - limit - shift[i], frame)
            dot += float(mean @ small[i])
            norm += math.sqrt(bias) * float(np.linalg.norm(small[i]))
    return float(np.clip(dot / norm, -1, 1)) if norm > 0 else 0.0


def _claim(observable: str, name: str, estimate: Estimate) -> Claim:
    return claim(
        f"{observable}.{name}", estimate.value, estimate.se, estimate.half_width,
        source=SOURCE[name.split(".")[0]], theory=THEORY.get(name), max_width=MAX_WIDTH.get(name),
    )  # fmt: skip


def _split_claim(observable: str, grid: Grid, ratio2, draws, used) -> list[Claim]:
    """Depth and width are interchangeable: b is the same for every split of an LM, within 6 % or 3 standard errors. The worst split is reported.

    `ratio2`: measured over fitted mean square, so that b is compared with the fitted next orders in 1/L and D/(LM) taken off.
    """
    worst: tuple[float, float, float] | None = None
    for product in np.unique(grid.product[used]):
        split = used & (grid.product == product)
        if split.sum() < 2:
            continue
        mean = np.sqrt(ratio2[split]).mean()
        for cell in np.flatnonzero(split):
            ratio = math.sqrt(ratio2[cell]) / mean - 1
            se = float(np.sqrt(np.maximum(draws[:, cell], 0)).std(ddof=1)) / mean
            excess = abs(ratio) - max(0.06, 3 * se)
            worst = max(worst or (-math.inf, 0.0, 0.0), (excess, ratio, se))
    if worst is None:
        return []
    excess, ratio, se = worst
    verdict, why = ("holds", "") if excess <= 0 else ("fails", "one split differs by more than 6 % and 3 standard errors")
    interval = (ratio - NORMAL_95 * se, ratio + NORMAL_95 * se)
    return [Claim(f"{observable}.fluctuation.worst_split", ratio, se, interval, 0.0, None, verdict, why, SOURCE["fluctuation"])]


def _goodness(fit: LawFit) -> dict[str, Any]:
    return {"chi2": fit.chi2, "dof": fit.dof, "p_value": fit.p_value, "cells_used": int(fit.used.sum()), "cells": int(fit.used.size)}
