r"""The error law over the embedding dimension D, measured term by term, and the joint law that it completes.

depth         a/L                infinitely wide network against Mean ODE, both at D = infinity
fluctuation   b sqrt(S/(LM))     spread of networks with orthogonal embeddings, whose limit does not depend on D; S = D (hidden), 1 (outputs)
bias          c D/(LM)           mean of the same networks minus the infinitely wide network of the same depth
limit         d/sqrt(D)          Mean ODE(D) against Mean ODE(infinity), Gaussian embeddings, no network
"""

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from ._claims import AbstractFit, Claim, claim
from ._depth_fit import fit_depth
from ._dimension_laws import bias_law, calibrated, fit_limit, fluctuation_law
from ._law_fit import Grid, fit_law, variance_of_variance
from ._limit.dimension import DimensionError
from ._limit.infinite_width import DepthError
from ._limit.solution import Limit
from ._observable import _reference_draws
from ._rates import MIN_SEEDS, OBSERVABLES, _doubt, _goodness, depth_curve
from ._shape_law import Ends, ShapeLaw, law_from_claims
from ._statistics import NORMAL_95, CellStatistics, cell_statistics, missing_cell, seed_counts

MAX_WIDTH = {
    "hidden.fluctuation.exponent_dim": 0.05, "output.fluctuation.exponent_dim": 0.1, "hidden.bias.exponent_dim": 0.2, "output.bias.exponent_dim": 0.2,
    "hidden.limit.exponent": 0.05, "output.limit.exponent": 0.05, "hidden.depth.exponent": 0.02, "output.depth.exponent": 0.02,
}  # fmt: skip
THEORY = {
    "hidden.fluctuation.exponent_dim": 0.5, "output.fluctuation.exponent_dim": 0.0, "hidden.bias.exponent_dim": 1.0, "output.bias.exponent_dim": 1.0,
    "hidden.limit.exponent": -0.5, "output.limit.exponent": -0.5, "hidden.depth.exponent": -1.0, "output.depth.exponent": -1.0,
}  # fmt: skip
SOURCE = {"depth": "Theorem 1, 1/L", "fluctuation": "Theorem 1, sqrt(D/(LM))", "bias": "propagation of chaos, D/(LM)", "limit": "large D, 1/sqrt(D)"}

RANGE_RULE = (
    "cells with LM >= 4 D and no divergence; while chi-square rejects at 1 %, the cells with the smallest LM/D are dropped; corrections of first order in "
    "1/L, D/(LM) and (hidden states, bias) r/D free, of second order with priors; Mean ODE(D): r/D free, its square and cube with priors of sizes 16 and 64, "
    "the smallest D dropped while points scatter about the law by more than 1 %, a scatter that intervals contain"
)


class DimensionFit(AbstractFit):
    """Fitted law over D: claims with verdicts, goodness of fit, the dataset that the picture is drawn from.

    `laws` holds the joint law of each observable whose constants were all resolved.
    """

    claims: list[Claim]
    goodness: dict[str, dict[str, Any]]
    data: xr.Dataset
    laws: dict[str, ShapeLaw]


def fit_dimension(runs: xr.Dataset, error: DimensionError, limit: Limit, depth: DepthError, *, bootstrap: int = 1000, seed: int = 0) -> DimensionFit:
    r"""Fit the exponents in D and the constants of the joint law, for hidden states and outputs.

    **Arguments:**

    - `runs`: from `sweep_shapes` with embedding="orthogonal", several D. `limit`: what they were compared with.
    - `error`: from `dimension_error`, at least three dims.
    - `depth`: from `depth_error` at dim=math.inf, for all depths of the runs and at least four.
    - `bootstrap`: draws over seeds, embeddings and reference replicates. `seed`: of the bootstrap.

    **Returns:** a `DimensionFit`. A cell with a diverged member is left out of every fit.

    **Raises:** `ValueError` for too few seeds, or parts that belong to different problems or steps.

    Source: arXiv 2509.10167, Theorem 1; arXiv 2603.18168.

    **Example:**

    ```python
    infinite = problem.with_dim(math.inf)
    limit = hw.mean_ode(infinite, unit, hw.mlu(), steps=2, quadrature=hw.Sobol(6, 2), budget=False)
    runs = hw.sweep_shapes(limit, [(8, 4, 8), (8, 8, 8), (8, 8, 16), (16, 8, 16)], seeds=8, embedding="orthogonal", key=jax.random.key(0))
    error = hw.dimension_error(infinite, unit, hw.mlu(), dims=(16, 64, 256), steps=2, draws=8)
    depth = hw.depth_error(infinite, unit, hw.mlu(), depths=(4, 8, 16, 32), steps=2, quadrature=hw.Sobol(6, 2))
    hw.fit_dimension(runs, error, limit, depth)["hidden.limit.exponent"]
    ```
    """
    step = int(runs.attrs["step"])
    _check(runs, error, limit, depth, step)
    rng = np.random.default_rng(seed)
    claims: list[Claim] = []
    goodness: dict[str, dict[str, Any]] = {}
    data, laws = [], {}
    for name in OBSERVABLES:
        found, good, frame, ends = _fit_observable(name, runs, error, limit, depth, step, bootstrap, rng)
        claims += found
        goodness |= good
        data.append(frame.expand_dims(observable=[name]))
        goodness[f"{name}.law"] = ends._asdict()
        if all(np.isfinite(c.value) for c in found if c.name.endswith("constant") and ".bias." not in c.name):
            laws[name] = law_from_claims(found, name, ends)
    frame: Any = xr.concat(data, "observable")
    return DimensionFit(claims, goodness, frame, laws)


def _check(runs: xr.Dataset, error: DimensionError, limit: Limit, depth: DepthError, step: int) -> None:
    seeds = runs.sizes["seed"]
    if seeds < MIN_SEEDS:
        raise ValueError(f"seeds={seeds} is too few for an interval; expected at least {MIN_SEEDS}. Run sweep_shapes with more seeds.")
    if runs.attrs.get("embedding") != "orthogonal":
        raise ValueError(f"runs have embedding={runs.attrs.get('embedding')!r}; expected 'orthogonal', whose limit is the same at every D.")
    if len({runs.attrs["problem_digest"], error.problem_digest, limit.problem.digest(), depth.problem_digest}) > 1:
        raise ValueError("runs, error, limit and depth were computed for different problems; expected the same data and loss, at dim=math.inf.")
    if depth.step != step or error.hidden.shape[-1] <= step or limit.steps < step:
        raise ValueError(
            f"runs end at step {step}, depth at {depth.step}, error at {error.hidden.shape[-1] - 1}, limit at {limit.steps}; expected the same steps."
        )
    missing = set(runs.depth.values.tolist()) - set(depth.depths)
    if missing:
        raise ValueError(f"depth covers depths {depth.depths}; expected those of the runs as well: {sorted(missing)} are missing.")
    if len(error.dims) < 3:
        raise ValueError(f"error covers dims {error.dims}; expected at least 3.")
    if min(limit.replicates, len(depth.hidden)) < 2:
        raise ValueError("replicates=1 in limit or depth leaves the error of the reference unknown; expected at least 2.")


def _fit_observable(name: str, runs: xr.Dataset, error: DimensionError, limit: Limit, depth: DepthError, step: int, bootstrap: int, rng: np.random.Generator):
    """Claims, goodness, dataset of one observable, and what its joint law holds besides the constants."""
    grid = Grid(runs.depth.values.astype(float), runs.width.values.astype(float), runs.dim.values.astype(float))
    shift_all = depth.hidden if name == "hidden" else depth.output
    shift_all = shift_all.reshape(*shift_all.shape[:2], -1) / np.sqrt(_count(shift_all, name))
    shift = shift_all[:, [depth.depths.index(int(d)) for d in grid.depth]]
    cells, means = cell_table(name, runs, limit, shift, step, bootstrap, rng)
    values = {k: np.array([getattr(c, k) for c in cells]) for k in ("variance", "bias2")}
    draws = {k: np.stack([getattr(c, f"{k}_draws") for c in cells], 1) for k in values}
    fluctuation = fit_law(fluctuation_law(grid, name, error.reduced), grid, values["variance"], draws["variance"], variance_of_variance(cells), rng)
    bias = fit_law(bias_law(grid, error.reduced), grid, values["bias2"], draws["bias2"], calibrated(cells, draws["bias2"]), rng)
    squares = getattr(error, name)[:, :, step]
    dims = np.array(error.dims, float)
    at_infinity, limit_se = fit_limit(dims, squares, error.reduced, bootstrap, rng)
    by_step = np.full((step + 1, 2), np.nan)  # nothing to fit for hidden states at step 0: lifted embeddings agree there
    for k in range(1, step + 1):
        exponent = fit_limit(dims, getattr(error, name)[:, :, k], error.reduced, bootstrap // 4, rng)[0].exponents["exponent"]
        by_step[k] = exponent.value, exponent.half_width
    curve = np.sqrt(np.sum(shift_all**2, -1))
    by_depth = fit_depth(np.asarray(depth.depths, float), curve)
    cosine = _cosine(means, shift.mean(0), values["bias2"])

    claims = [_claim(name, "depth.constant", by_depth.constant), _claim(name, "depth.exponent", by_depth.exponent)]
    for term, fit in (("fluctuation", fluctuation), ("bias", bias)):
        claims.append(_claim(name, f"{term}.constant", fit.constant, doubt=_doubt(fit.p_value, fit.used)))
        claims += [_claim(name, f"{term}.{k}", e, doubt=_doubt(fit.p_value_free, fit.used)) for k, e in fit.exponents.items()]
    claims.append(_claim(name, "limit.constant", at_infinity.constant, doubt=_doubt(at_infinity.p_value, at_infinity.used)))
    claims.append(_claim(name, "limit.exponent", at_infinity.exponents["exponent"], doubt=_doubt(at_infinity.p_value_free, at_infinity.used)))
    goodness = {
        f"{name}.fluctuation": _goodness(fluctuation), f"{name}.bias": _goodness(bias),
        f"{name}.limit": _goodness(at_infinity),
    }  # fmt: skip
    se = {k: v.std(0, ddof=1) for k, v in draws.items()}
    columns = {
        "variance": values["variance"], "variance_se": se["variance"], "fitted_variance": fluctuation.mean, "in_fluctuation_fit": fluctuation.used,
        "bias2": values["bias2"], "bias2_se": se["bias2"], "fitted_bias2": bias.mean, "in_bias_fit": bias.used,
        "below_floor": values["bias2"] < NORMAL_95 * se["bias2"],
    }  # fmt: skip
    data = xr.Dataset(
        {k: ("cell", v) for k, v in columns.items()}
        | {
            "limit2": ("limit_dim", squares.mean(1)), "limit2_se": ("limit_dim", limit_se), "fitted_limit2": ("limit_dim", at_infinity.mean),
            "in_limit_fit": ("limit_dim", at_infinity.used),
            "limit_exponent": ("step", by_step[:, 0]), "limit_exponent_half": ("step", by_step[:, 1]),
            "depth_error": (("replicate", "reference_depth"), curve),
            "fitted_depth_error": ("reference_depth", depth_curve(by_depth, np.asarray(depth.depths, float))),
        },
        coords={k: ("cell", runs[k].values) for k in ("depth", "width", "dim")}
        | {"limit_dim": list(error.dims), "reference_depth": list(depth.depths), "step": np.arange(step + 1)},
    )  # fmt: skip
    orders: dict[str, dict[str, float]] = {"depth": dict(zip(("1/L", "1/L^2"), by_depth.corrections.tolist(), strict=False))}
    orders |= {"fluctuation": fluctuation.corrections, "bias": bias.corrections, "limit": at_infinity.corrections}
    ends = limit.problem.inputs.shape[1] + limit.problem.targets.shape[1]
    return claims, goodness, data, Ends(cosine, ends, error.reduced, orders)


def _count(x, name: str) -> int:
    """A sum of squares is a mean square per data point (and output): coordinates with D infinite count as one."""
    return x.shape[-2] * (x.shape[-1] if name == "output" else 1)


def cell_table(
    name: str, runs: xr.Dataset, limit: Limit, shift: Float[np.ndarray, "replicate cells full"], step: int, bootstrap: int, rng: np.random.Generator
) -> tuple[list[CellStatistics], list[Float[np.ndarray, " full"]]]:
    """Statistics of every cell, and the mean deviation of its members from the limit.

    What of a hidden state lies outside the span of the data has mean zero by symmetry: it enters the variance as its mean square.
    """
    at = limit.hidden_replicates(step) if name == "hidden" else limit.output_replicates(step)
    norm = np.sqrt(_count(at, name))
    at = at.reshape(len(at), -1) / norm
    limit_draws, shift_draws = _reference_draws(at, bootstrap, rng), _reference_draws(shift, bootstrap, rng)
    noise = at.var(0, ddof=1).sum() / len(at) + shift.var(0, ddof=1).sum(-1) / len(shift)
    cells, means = [], []
    gaps = (runs.gap if name == "hidden" else runs.output_gap).values.reshape(runs.sizes["cell"], runs.sizes["seed"], -1) / norm
    for i, gap in enumerate(gaps):
        if not runs.done.values[i] or (runs.diverged_at.values[i] >= 0).any():
            cells.append(missing_cell(bootstrap))
            means.append(np.full(gap.shape[1], np.nan))
            continue
        counts = seed_counts(len(gap), bootstrap, rng)
        deviation = gap - shift.mean(0)[i]
        cell = cell_statistics(deviation, deviation, shift.mean(0)[i], float(noise[i]), limit_draws + shift_draws[:, i], counts)
        if name == "hidden":
            cell = _with_rest(cell, deviation, np.maximum(runs.square.values[i] - np.sum(gap**2, 1), 0.0), counts)
        cells.append(cell)
        means.append(deviation.mean(0))
    return cells, means


def _with_rest(cell: CellStatistics, deviation, rest: Float[np.ndarray, " seed"], counts: Float[np.ndarray, "draws seed"]) -> CellStatistics:
    """Add the mean square of a part with mean zero to variance and error."""
    squares = np.sum((deviation - deviation.mean(0)) ** 2, 1) + rest
    more = counts @ rest / len(rest)
    return cell._replace(
        variance=cell.variance + float(rest.mean()), variance_draws=cell.variance_draws + more, error2=cell.error2 + float(rest.mean()),
        error2_draws=cell.error2_draws + more, variance_relative_se2=float(squares.var(ddof=1) / len(squares) / squares.mean() ** 2),
    )  # fmt: skip


def _cosine(means, shift: Float[np.ndarray, "cells full"], bias2: Float[np.ndarray, " cells"]) -> float:
    """Cosine between depth error and sampling bias, pooled over cells with a visible bias."""
    dot = norm = 0.0
    for mean, other, bias in zip(means, shift, bias2, strict=True):
        if bias > 0:  # False for NaN
            dot += float(mean @ other)
            norm += float(np.sqrt(bias) * np.linalg.norm(other))
    return float(np.clip(dot / norm, -1, 1)) if norm > 0 else 0.0


def _claim(observable: str, name: str, estimate, doubt: str = "") -> Claim:
    full = f"{observable}.{name}"
    return claim(
        full, estimate.value, estimate.se, estimate.half_width, source=SOURCE[name.split(".")[0]],
        theory=THEORY.get(full), max_width=MAX_WIDTH.get(full), doubt=doubt,
    )  # fmt: skip
