r"""The error law of Theorem 1, measured term by term.

    E|h_L - h(1)|^2 = (a/L + c/(LM))^2 + b^2 D/(LM)

- a/L: infinitely wide network against Mean ODE, no sampling noise;
- b sqrt(D/(LM)): spread of networks over initialisations;
- c/(LM): mean of networks minus infinitely wide network of the same depth.

Outputs obey the same law without the D: their fluctuation is b/sqrt(LM).
"""

import math
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from ._claims import AbstractFit, Claim, claim, doubted, near
from ._depth_fit import DepthFit, Estimate, fit_depth
from ._law_fit import REJECT, Grid, LawFit, bias_law, fit_law, fluctuation_law, variance_of_bias2, variance_of_variance
from ._limit.infinite_width import DepthError, depth_error
from ._limit.solution import Limit
from ._limit.stability import Horizon, horizon
from ._observable import Observable, alignment, observe, statistics
from ._statistics import NORMAL_95

#: Depths at which the depth term is measured, besides those of the runs. It costs no networks.
LADDER = (8, 16, 32, 64, 128)
OBSERVABLES = ("hidden", "output")
MIN_SEEDS = 8
#: By how much splits of one LM may differ: next orders in 1/L at the depths that one can afford.
SPLIT_TOLERANCE = 0.06

#: Widest intervals that still mean something.
MAX_WIDTH = {"depth.exponent": 0.02, "fluctuation.exponent_depth": 0.06, "fluctuation.exponent_width": 0.06, "bias.exponent": 0.2}
THEORY = {"depth.exponent": -1.0, "fluctuation.exponent_depth": -0.5, "fluctuation.exponent_width": -0.5, "bias.exponent": -1.0}
SOURCE = {"depth": "Theorem 1, 1/L", "fluctuation": "Theorem 1, sqrt(D/(LM))", "bias": "propagation of chaos, 1/(LM)"}


class RateFit(AbstractFit):
    """Fitted error law: claims with verdicts, goodness of fit, and the dataset that the picture is drawn from."""

    claims: list[Claim]
    goodness: dict[str, dict[str, Any]]
    data: xr.Dataset


def fit_rates(
    runs: xr.Dataset,
    limit: Limit,
    depth: DepthError | None = None,
    *,
    step: int | None = None,
    reach: Horizon | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> RateFit:
    r"""Fit the three terms of the error law, for hidden states and outputs.

    **Arguments:**

    - `runs`: from `sweep`. `step`: the recorded step to be fitted (default: the last).
    - `limit`: `mean_ode` of the same problem, unit and scaling with at least as many steps.
    - `depth`: `depth_error` for the depths of the runs (default: computed here).
    - `reach`: `horizon` of the limit (default: computed here). Beyond it nothing is claimed: every verdict is "undetermined".
    - `bootstrap`: draws over seeds and over reference replicates. `seed`: of the bootstrap.

    **Returns:** a `RateFit`. A cell with a diverged member is left out of every fit and counted; means over survivors would be biased.

    **Raises:** `ValueError` for fewer than 8 seeds, or a limit that belongs to something else.

    Source: arXiv 2509.10167, Theorem 1; arXiv 2603.18168 for the two observables.

    **Example:** `hw.fit_rates(runs, limit)["hidden.fluctuation.exponent_width"]`
    """
    steps = int(runs.recorded.values[-1]) if step is None else step
    if steps not in runs.recorded.values:
        raise ValueError(f"step={steps} was not recorded; runs hold hidden states at steps {runs.recorded.values.tolist()}. Pass hidden_steps to sweep.")
    _check(runs, limit, steps)
    reach = horizon(limit) if reach is None else reach
    depths = tuple(int(d) for d in runs.depth.values)
    if depth is None:
        depth = depth_error(limit.problem, limit.unit, limit.scaling, depths=(*depths, *LADDER), steps=steps)
    missing = set(depths) - set(depth.depths)
    if missing or depth.step != steps:
        raise ValueError(f"depth covers depths {depth.depths} at step {depth.step}; expected all of {depths} at step {steps}. Leave depth=None.")
    if min(limit.replicates, len(depth.hidden)) < 2:
        raise ValueError("replicates=1 in limit or depth leaves the error of the reference unknown; expected at least 2. Use Sobol(replicates=4) or more.")
    if depth.problem_digest != limit.problem.digest():
        raise ValueError("depth was computed for another problem than limit (data, embeddings or loss differ); leave depth=None.")
    rng = np.random.default_rng(seed)
    claims, goodness, data = [], {}, []
    for name in OBSERVABLES:
        seen = observe(name, runs, limit, depth, steps)
        one = _fit_observable(seen, depth, limit.problem.dim, bootstrap, rng)
        claims += one[0]
        goodness |= one[1]
        data.append(one[2])
    if steps > reach.step:
        claims = [doubted(c, f"step {steps} is beyond the {reach}") for c in claims]
    frame: Any = xr.concat(data, "observable")
    return RateFit(claims, goodness, frame)


def _check(runs: xr.Dataset, limit: Limit, steps: int) -> None:
    seeds = int(runs.seeds.values[runs.done.values].min(initial=runs.sizes["seed"]))
    if seeds < MIN_SEEDS:
        raise ValueError(f"seeds={seeds} is too few for an interval; expected at least {MIN_SEEDS}. Run the sweep with more seeds.")
    if limit.problem.dim != runs.sizes["dim"]:
        raise ValueError(f"limit has dim={limit.problem.dim} and runs have dim={runs.sizes['dim']}; expected the same problem on both sides.")
    if limit.steps < steps:
        raise ValueError(f"limit has steps={limit.steps} and runs end at step {steps}; integrate mean_ode with steps={steps} or more.")
    digest = limit.problem.digest()
    if runs.attrs.get("problem_digest", digest) != digest:
        raise ValueError("runs and limit were computed for different problems (data, embeddings or loss differ); expected the same on both sides.")
    for what, value in (("problem", limit.problem.name), ("unit", repr(limit.unit)), ("scaling", repr(limit.scaling))):
        if what in runs.attrs and runs.attrs[what] != value:
            raise ValueError(f"limit was computed for {what} {value} and runs for {runs.attrs[what]}; expected the same on both sides.")


def _fit_observable(seen: Observable, depth: DepthError, dim: float, bootstrap: int, rng: np.random.Generator):
    """Claims, goodness of fit and dataset of one observable."""
    name, shape = seen.name, seen.usable.shape
    cells = statistics(seen, bootstrap, rng)
    at_depth, at_width = np.meshgrid(seen.depth, seen.width, indexing="ij")
    grid = Grid(at_depth.ravel(), at_width.ravel(), dim)
    variance, bias2, error2 = (np.array([getattr(c, k) for c in cells]) for k in ("variance", "bias2", "error2"))
    draws = {k: np.stack([getattr(c, f"{k}_draws") for c in cells], 1) for k in ("variance", "bias2", "error2")}
    law = fluctuation_law(grid, seen.fluctuation_scale)
    fluctuation = fit_law(law, grid, variance, draws["variance"], variance_of_variance(cells), rng)
    bias = fit_law(bias_law(grid), grid, bias2, draws["bias2"], variance_of_bias2(cells), rng)
    curve = np.sqrt(np.mean((depth.hidden if name == "hidden" else depth.output) ** 2, axis=(-1, -2)))
    depth_fit = fit_depth(np.asarray(depth.depths, float), curve)

    claims = [_claim(name, "depth.constant", depth_fit.constant), _claim(name, "depth.exponent", depth_fit.exponent)]
    for term, fit in (("fluctuation", fluctuation), ("bias", bias)):
        claims.append(_claim(name, f"{term}.constant", fit.constant, doubt=_doubt(fit.p_value, fit.used)))
        claims += [_claim(name, f"{term}.{k}", e, doubt=_doubt(fit.p_value_free, fit.used)) for k, e in fit.exponents.items()]
    if name == "hidden":
        claims += _split_claim(name, grid, variance, draws["variance"], fluctuation.used)

    # The whole error, put together from its three terms.
    cosine = alignment(seen, bias2)
    depth_mean, bias_mean = depth_curve(depth_fit, grid.depth), np.sqrt(bias.mean)
    predicted2 = depth_mean**2 + 2 * cosine * depth_mean * bias_mean + bias.mean + fluctuation.mean
    goodness = {
        f"{name}.fluctuation": _goodness(fluctuation),
        f"{name}.bias": _goodness(bias),
        f"{name}.depth": {"corrections": depth_fit.corrections.tolist(), "alignment_with_bias": cosine},
    }
    se = {k: v.std(0, ddof=1) for k, v in draws.items()}
    columns = {
        "variance": variance, "variance_se": se["variance"], "bias2": bias2, "bias2_se": se["bias2"],
        "below_floor": bias2 < NORMAL_95 * se["bias2"], "error2": error2, "error2_se": se["error2"],
        "fitted_variance": fluctuation.mean, "fitted_bias2": bias.mean, "fitted_error2": predicted2,
        "in_fluctuation_fit": fluctuation.used, "in_bias_fit": bias.used, "diverged": seen.diverged.ravel(),
    }  # fmt: skip
    data = xr.Dataset(
        {k: (("depth", "width"), v.reshape(shape)) for k, v in columns.items()}
        | {
            "depth_error": (("replicate", "reference_depth"), curve),
            "fitted_depth_error": (("reference_depth",), depth_curve(depth_fit, np.asarray(depth.depths, float))),
        },
        coords={"depth": seen.depth.astype(int), "width": seen.width.astype(int), "reference_depth": list(depth.depths)},
    )
    return claims, goodness, data.expand_dims(observable=[name])


def depth_curve(fit: DepthFit, depth: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """The fitted a/L with its next orders."""
    powers = np.stack([depth ** -float(q) for q in range(1, len(fit.corrections) + 1)], -1)
    return fit.constant.value / depth * np.exp(np.clip(powers @ fit.corrections, -100, 100))  # beyond the horizon corrections may be absurd


def _doubt(p_value: float, used: Bool[np.ndarray, " cells"]) -> str:
    """Why a number is not to be relied on, whatever its interval."""
    if not used.any():
        return "no cell has LM >= D and no divergence: deeper, wider, or a smaller D"
    return f"chi-square rejects the law, p = {p_value:.1g}" if p_value < REJECT else ""


def _claim(observable: str, name: str, estimate: Estimate, doubt: str = "") -> Claim:
    return claim(
        f"{observable}.{name}", estimate.value, estimate.se, estimate.half_width,
        source=SOURCE[name.split(".")[0]], theory=THEORY.get(name), max_width=MAX_WIDTH.get(name), doubt=doubt,
    )  # fmt: skip


def _split_claim(observable: str, grid: Grid, variance, draws, used) -> list[Claim]:
    """Depth and width are interchangeable: b = sqrt(V LM/D) is the same for every split of an LM, within 6 %.

    No next order is taken off. The split whose interval reaches furthest from 0 is reported with the interval of that one split.
    """
    found = []
    for product in np.unique(grid.product[used]):
        split = np.flatnonzero(used & (grid.product == product))
        if len(split) < 2:
            continue
        mean = np.sqrt(variance[split]).mean()
        for cell in split:
            ratio = math.sqrt(variance[cell]) / mean - 1
            se = float(np.sqrt(np.maximum(draws[:, cell], 0)).std(ddof=1)) / mean
            found.append((abs(ratio) + NORMAL_95 * se, ratio, se))
    if not found:
        return []
    _, ratio, se = max(found)
    return [near(f"{observable}.fluctuation.worst_split", ratio, se, NORMAL_95 * se, SPLIT_TOLERANCE, source=SOURCE["fluctuation"])]


def _goodness(fit: LawFit) -> dict[str, Any]:
    return {
        "chi2": fit.chi2,
        "dof": fit.dof,
        "p_value": fit.p_value,
        "p_value_free": fit.p_value_free,
        "cells_used": int(fit.used.sum()),
        "cells": int(fit.used.size),
    }
