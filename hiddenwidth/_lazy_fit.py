r"""The three terms of Theorem 2 measured apart, the best alpha, and what the network approaches.

    error^2 = |A(alpha) + a(alpha)/L|^2 + b(alpha)^2 alpha^2 D/(LM)

At fixed LM the first term falls with alpha and the last one rises: the error to the tangent ODE is least at an alpha* between, which grows as (LM/D)^(1/6)
where A ~ 1/alpha^2 and as (LM/D)^(1/4) where A ~ 1/alpha.
"""

import math
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import stats

from ._claims import AbstractFit, Claim, above, claim
from ._depth_fit import fit_depth
from ._law_fit import REJECT, Corrections, Grid, Law, LawFit, fit_law, variance_of_variance
from ._lazy import LazyReference
from ._lazy_cells import MAX_SPREAD, Cells, flat_grid, fluctuation_curve, lazy_cells, predicted_variance, rms
from ._lazy_optimum import WINDOW, optimum_claims, optimum_curve
from ._rates import MIN_SEEDS
from ._statistics import NORMAL_95

#: From here on A(alpha) and the depth law are expanded in 1/alpha.
ASYMPTOTIC_FROM = 4.0
#: Cells from which the powers of the fluctuation are fitted: 1/alpha small enough to be expanded in (and alpha^2 D/(LM), `MAX_SPREAD`).
MIN_ALPHA = 2.0

MAX_WIDTH = {"tangent": 0.1, "depth": 0.02, "exponent_alpha": 0.08, "exponent_depth": 0.08, "exponent_width": 0.08}
RANGE_RULE = (
    f"fluctuation: cells with alpha >= {MIN_ALPHA:g}, alpha^2 D/(LM) <= {MAX_SPREAD:g} and no divergence; first orders in 1/alpha^p, alpha^2 D/(LM), 1/L "
    "free, second orders with priors of sizes 4, 1/4, 4; while chi-square rejects at 1 %, the cells with the largest corrections are dropped; "
    f"A(alpha): alpha >= {ASYMPTOTIC_FROM:g}; "
    f"best alpha: cubic in log alpha within {WINDOW:g} octaves of the predicted one"
)


class LazyFit(AbstractFit):
    """Claims with verdicts, goodness of fit, and the dataset that the picture is drawn from."""

    claims: list[Claim]
    goodness: dict[str, Any]
    data: xr.Dataset


def fit_lazy(runs: xr.Dataset, reference: LazyReference, *, bootstrap: int = 1000, seed: int = 0) -> LazyFit:
    r"""Measure the three terms, the best alpha with its scaling, and the distances to the three candidates for a limit.

    **Arguments:** `runs`: from `lazy_sweep`; `reference`: `lazy_reference` of the same problem and unit, for at least the alphas and depths of the runs;
    `bootstrap`, `seed`: of the intervals.

    **Returns:** a `LazyFit`.

    **Raises:** `ValueError` for too few seeds or a reference that lacks something.

    Source: arXiv 2509.10167, Theorem 2.

    **Example:**

    ```python
    problem, unit = hw.problems.sine(8, dim=4, key=jax.random.key(0), embedding="orthogonal"), hw.TwoLayer("erf")
    small = hw.Sobol(6, 2, symmetric=True)
    alphas, shapes = [1.0, 2.0, 4.0, 8.0], [(8, 16), (16, 16)]
    common = {"alphas": alphas, "steps": 3}
    reference = hw.lazy_reference(problem, unit, hw.mlu(), depths=[8, 16, 32, 64], quadrature=small, depth_quadrature=small, **common)
    runs = hw.lazy_sweep(problem, unit, hw.mlu(), shapes=shapes, seeds=[8, 8], key=jax.random.key(1), **common)
    hw.fit_lazy(runs, reference)["hidden.fluctuation.exponent_alpha"]
    ```
    """
    _check(runs, reference)
    rng = np.random.default_rng(seed)
    claims: list[Claim] = []
    goodness: dict[str, Any] = {}
    frames, curve = [], xr.Dataset()
    for name in ("hidden", "output"):
        claims += gap_claims(name, reference.alphas, getattr(reference, f"{name}_gap"), reference.order)
        claims += _depth_claims(name, reference)
        cells = lazy_cells(name, runs, reference, bootstrap, rng)
        fluctuation, found, good = _fluctuation(name, runs, cells, reference.order, rng)
        claims += found
        goodness |= good
        b2 = fluctuation_curve(runs, cells, float(runs.attrs["dim"]) if name == "hidden" else 1.0)
        frames.append(_frame(name, runs, reference, cells, fluctuation, b2))
        if name == "hidden":
            curve = optimum_curve(reference, b2)
        if name == "hidden":
            dim = float(runs.attrs["dim"])
            others = [predicted_variance(runs, fluctuation_curve(runs, cells, dim, without=i), dim)[i] for i in range(runs.sizes["shape"])]
            claims += optimum_claims(name, runs, cells.array("error2"), cells.draws("error2_draws"), cells.floor2 + np.stack(others))
            claims += limit_claims(name, runs, reference, cells)
    data: Any = xr.concat(frames, "observable")
    return LazyFit(claims, goodness, xr.merge([data, curve]))


def _check(runs: xr.Dataset, reference: LazyReference) -> None:
    fewest = int(runs.seeds.min())
    if fewest < MIN_SEEDS:
        raise ValueError(f"seeds={fewest} is too few for an interval; expected at least {MIN_SEEDS} at every shape. Run the sweep with more seeds.")
    missing = [a for a in runs.alpha.values if not np.isclose(reference.alphas, a).any()]
    absent = set(runs.depth.values.tolist()) - set(reference.depths)
    if missing or absent:
        raise ValueError(f"reference lacks alphas {missing} and depths {sorted(absent)} of the runs; call lazy_reference with all of them.")
    if runs.attrs["problem_digest"] != reference.tangent.problem.digest():
        raise ValueError("runs and reference were computed for different problems (data, embeddings or loss differ); expected the same on both sides.")
    if runs.attrs["steps"] != reference.tangent.steps:
        raise ValueError(f"runs end at step {runs.attrs['steps']} and reference at {reference.tangent.steps}; expected the same number of steps.")


def gap_claims(
    name: str, alphas: Float[np.ndarray, " alpha"], gap: Float[np.ndarray, "alpha replicate batch coordinate"], order: int, label: str = ""
) -> list[Claim]:
    """Exponent and constant of A(alpha), from the alphas at which it may be expanded."""
    asymptotic = alphas >= ASYMPTOTIC_FROM
    if asymptotic.sum() < 4:
        return []
    fit = fit_depth(alphas[asymptotic] ** order, rms(gap[asymptotic]).T)
    exponent, constant, source = fit.exponent, fit.constant, f"Theorem 2, 1/alpha^{order}"
    return [
        claim(
            f"{name}.tangent{label}.exponent", order * exponent.value, order * exponent.se, order * exponent.half_width,
            theory=-float(order), max_width=MAX_WIDTH["tangent"], source=source,
        ),
        claim(f"{name}.tangent{label}.constant", constant.value, constant.se, constant.half_width, source=source),
    ]  # fmt: skip


def _depth_claims(name: str, reference: LazyReference) -> list[Claim]:
    """Exponent and constant of a(alpha)/L at the smallest, the middle and the largest alpha."""
    if len(reference.depths) < 4:
        return []
    shift, last, claims = rms(getattr(reference, f"{name}_shift")), len(reference.alphas) - 1, []
    for i in sorted({0, last // 2, last}):
        fit = fit_depth(np.asarray(reference.depths, float), shift[i])
        at, exponent, constant = f"[alpha={reference.alphas[i]:.3g}]", fit.exponent, fit.constant
        claims += [
            claim(
                f"{name}.depth.exponent{at}", exponent.value, exponent.se, exponent.half_width,
                theory=-1.0, max_width=MAX_WIDTH["depth"], source="Theorem 2, 1/L",
            ),
            claim(f"{name}.depth.constant{at}", constant.value, constant.se, constant.half_width, source="Theorem 2, 1/L"),
        ]  # fmt: skip
    return claims


def fluctuation_law(grid: Grid, alpha: Float[np.ndarray, " cells"], order: int, scale: float) -> Law:
    """V ~ S alpha^2 / (L M), expanded in 1/alpha^p, alpha^2 D/(LM) and 1/L."""
    spread = alpha**2 * grid.dim / grid.product
    small, shallow = alpha**-order, 1.0 / grid.depth
    corrections: Corrections = {
        "1/alpha^p": (small, np.inf), "spread": (spread, np.inf), "1/L": (shallow, np.inf),
        "1/alpha^2p": (small**2, 4.0), "spread^2": (spread**2, 0.25), "1/L^2": (shallow**2, 4.0),
    }  # fmt: skip
    names = ("exponent_alpha", "exponent_depth", "exponent_width")
    columns = np.stack([np.log(alpha), np.log(grid.depth), np.log(grid.width)], 1)
    usable = (alpha >= MIN_ALPHA) & (spread <= MAX_SPREAD)
    return Law(names, columns, (2.0, -1.0, -1.0), scale, corrections, usable, 1.0 / (spread + small))


def _fluctuation(name: str, runs: xr.Dataset, cells: Cells, order: int, rng: np.random.Generator):
    """Powers and constant of the spread over seeds."""
    grid, alpha = flat_grid(runs)
    scale = float(runs.attrs["dim"]) if name == "hidden" else 1.0
    law = fluctuation_law(grid, alpha, order, scale)
    fit: LawFit = fit_law(
        law, grid, cells.array("variance").ravel(), cells.draws("variance_draws").reshape(-1, len(alpha)), variance_of_variance(cells.statistics), rng
    )
    doubt = _doubt(fit.p_value, fit)
    source = "Theorem 2, alpha sqrt(D/(LM))"
    claims = [claim(f"{name}.fluctuation.constant", fit.constant.value, fit.constant.se, fit.constant.half_width, source=source, doubt=doubt)]
    for key, theory in (("exponent_alpha", 1.0), ("exponent_depth", -0.5), ("exponent_width", -0.5)):
        e = fit.exponents[key]
        doubt = _doubt(fit.p_value_free, fit)
        claims.append(claim(f"{name}.fluctuation.{key}", e.value, e.se, e.half_width, theory=theory, max_width=MAX_WIDTH[key], source=source, doubt=doubt))
    goodness = {
        "chi2": fit.chi2,
        "dof": fit.dof,
        "p_value": fit.p_value,
        "p_value_free": fit.p_value_free,
        "cells_used": int(fit.used.sum()),
        "cells": len(alpha),
    }
    return fit, claims, {f"{name}.fluctuation": goodness}


def _doubt(p_value: float, fit: LawFit) -> str:
    if not fit.used.any():
        return f"no cell has alpha >= {MIN_ALPHA:g} and alpha^2 D/(LM) <= {MAX_SPREAD:g}: larger networks"
    return f"chi-square rejects the law, p = {p_value:.1g}" if p_value < REJECT else ""


def limit_claims(name: str, runs: xr.Dataset, reference: LazyReference, cells: Cells) -> list[Claim]:
    """Which limit? Ratios of distances, to the linearised network over to the tangent ODE, that should exceed 1.

    Without networks: of Mean ODE(alpha) at the largest alpha, where it should be large. With networks: of the largest shape at its best alpha.
    """
    source = "Theorem 2, the limit is the tangent ODE and not the linearised network"
    apart = getattr(reference.linearised, name)() - getattr(reference.tangent, name)()
    gap = getattr(reference, f"{name}_gap")[-1]
    logs = np.log(rms(gap - apart) / rms(gap))
    value, half = math.exp(float(logs.mean())), math.nan
    if len(logs) > 1:  # the lower end of the interval of the logarithm, which is what the verdict is about
        half = value * -math.expm1(-float(stats.t.ppf(0.975, len(logs) - 1)) * float(logs.std(ddof=1)) / math.sqrt(len(logs)))
    label = f"{name}.linearisation.distance_ratio[alpha={reference.alphas[-1]:.3g}]"
    claims = [above(label, value, half / NORMAL_95, half, 10.0, source=source)]
    measured2, draws = cells.array("error2"), cells.draws("error2_draws")
    largest = int(np.argmax((runs.depth * runs.width).values))
    if np.isfinite(measured2[largest]).any():
        j = int(np.nanargmin(measured2[largest]))
        ratio = math.sqrt(cells.linearised2[largest, j] / measured2[largest, j])
        half = NORMAL_95 * float(np.sqrt(draws[:, largest, j]).std(ddof=1)) / math.sqrt(measured2[largest, j]) * ratio
        label = f"{name}.linearisation.error_ratio[alpha={float(runs.alpha[j]):.3g}, LM={int(runs.depth[largest] * runs.width[largest])}]"
        claims.append(above(label, ratio, half / NORMAL_95, half, 1.0, source=source))
    return claims


def _frame(name: str, runs: xr.Dataset, reference: LazyReference, cells: Cells, fit: LawFit, b2) -> xr.Dataset:
    """What the picture is drawn from."""
    scale = float(runs.attrs["dim"]) if name == "hidden" else 1.0
    both = ("shape", "alpha")
    predicted = predicted_variance(runs, b2, scale)
    columns = {
        "variance": cells.array("variance"), "variance_se": cells.draws("variance_draws").std(0, ddof=1),
        "error2": cells.array("error2"), "error2_se": cells.draws("error2_draws").std(0, ddof=1),
        "fitted_variance": predicted, "fitted_error2": cells.floor2 + predicted, "floor2": cells.floor2, "linearised2": cells.linearised2,
        "in_fluctuation_fit": fit.used.reshape(cells.floor2.shape), "diverged": (runs.diverged_at.values >= 0).sum(-1),
    }  # fmt: skip
    gap, shift = (rms(getattr(reference, f"{name}_{k}")) for k in ("gap", "shift"))
    line = getattr(reference.linearised, name)() - getattr(reference.tangent, name)()
    to_line = rms(getattr(reference, f"{name}_gap") - line)
    data = xr.Dataset(
        {k: (both, v) for k, v in columns.items()}
        | {
            "tangent_gap": (("reference_alpha", "replicate"), gap),
            "linearisation_gap": (("reference_alpha", "replicate"), to_line),
            "depth_error": (("reference_alpha", "shift_replicate", "reference_depth"), shift),
        },
        coords={k: runs[k] for k in ("alpha", "depth", "width", "seeds")} | {"reference_alpha": reference.alphas, "reference_depth": list(reference.depths)},
    )
    return data.expand_dims(observable=[name])
