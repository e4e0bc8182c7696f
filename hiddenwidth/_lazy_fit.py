r"""The three terms of Theorem 2 measured apart, the best alpha, and what the network approaches.

    error^2 = |A(alpha) + a(alpha)/L|^2 + b(alpha)^2 alpha^2 D/(LM)

At fixed LM the first term falls with alpha and the last one rises: the error to the tangent ODE is least at an alpha* between, which grows as (LM/D)^(1/6)
where A ~ 1/alpha^2 and as (LM/D)^(1/4) where A ~ 1/alpha.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import xarray as xr
from jaxtyping import Float

from ._claims import Claim, claim, table
from ._depth_fit import fit_depth
from ._law_fit import NORMAL_95, REJECT, Corrections, Grid, Law, LawFit, fit_law, variance_of_variance
from ._lazy import LazyReference
from ._lazy_optimum import WINDOW, optimum_claims, optimum_curve
from ._rates import MIN_SEEDS
from ._statistics import CellStatistics, cell_statistics, missing_cell, seed_counts

#: From here on A(alpha) and the depth law are expanded in 1/alpha.
ASYMPTOTIC_FROM = 4.0
#: Cells from which the powers of the fluctuation are fitted: 1/alpha and alpha^2 D/(LM) small enough to be expanded in.
MIN_ALPHA, MAX_SPREAD = 2.0, 0.5

MAX_WIDTH = {"tangent": 0.1, "depth": 0.02, "exponent_alpha": 0.08, "exponent_depth": 0.08, "exponent_width": 0.08}
RANGE_RULE = (
    f"fluctuation: cells with alpha >= {MIN_ALPHA:g}, alpha^2 D/(LM) <= {MAX_SPREAD:g} and no divergence; first orders in 1/alpha^p, alpha^2 D/(LM), 1/L "
    "free, second orders with priors of sizes 4, 1/4, 4; while chi-square rejects at 1 %, the cells with the largest corrections are dropped; "
    f"A(alpha): alpha >= {ASYMPTOTIC_FROM:g}; "
    f"best alpha: cubic in log alpha within {WINDOW:g} octaves of the predicted one"
)


class LazyFit(eqx.Module):
    """Claims with verdicts, goodness of fit, and the dataset that the picture is drawn from."""

    claims: list[Claim]
    goodness: dict[str, Any]
    data: xr.Dataset

    def __getitem__(self, name: str) -> Claim:
        for c in self.claims:
            if c.name == name:
                return c
        raise KeyError(f"no claim {name!r}; the claims are {', '.join(c.name for c in self.claims)}")

    def __repr__(self) -> str:
        return table(self.claims)


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


def fit_lazy(runs: xr.Dataset, reference: LazyReference, *, bootstrap: int = 1000, seed: int = 0) -> LazyFit:
    r"""Measure the three terms, the best alpha with its scaling, and the distances to the three candidates for a limit.

    **Arguments:** `runs`: from `lazy_sweep`; `reference`: `lazy_reference` of the same problem and unit, for at least the alphas and depths of the runs;
    `bootstrap`, `seed`: of the intervals.

    **Returns:** a `LazyFit`.

    **Raises:** `ValueError` for too few seeds or a reference that lacks something.

    Source: arXiv 2509.10167, Theorem 2.

    **Example:** `hw.fit_lazy(runs, reference)["hidden.fluctuation.exponent_alpha"]`
    """
    _check(runs, reference)
    rng = np.random.default_rng(seed)
    claims: list[Claim] = []
    goodness: dict[str, Any] = {}
    frames, curve = [], xr.Dataset()
    for name in ("hidden", "output"):
        claims += gap_claims(name, reference.alphas, getattr(reference, f"{name}_gap"), reference.order)
        claims += _depth_claims(name, reference)
        cells = _cells(name, runs, reference, bootstrap, rng)
        fluctuation, b2, found, good = _fluctuation(name, runs, cells, reference.order, rng)
        claims += found
        goodness |= good
        frames.append(_frame(name, runs, reference, cells, fluctuation, b2))
        if name == "hidden":
            curve = optimum_curve(reference, b2)
        if name == "hidden":
            predicted2 = cells.floor2 + predicted_variance(runs, b2, float(runs.attrs["dim"]))
            claims += optimum_claims(name, runs, cells.array("error2"), cells.draws("error2_draws"), predicted2)
            claims += _which_limit(name, runs, reference, cells)
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


def rms(x: np.ndarray, axes: tuple[int, ...] = (-2, -1)) -> Any:
    """Root mean square over data and coordinates."""
    return np.sqrt(np.mean(x**2, axis=axes))


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


def _cells(name: str, runs: xr.Dataset, reference: LazyReference, bootstrap: int, rng: np.random.Generator) -> Cells:
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


def _grid(runs: xr.Dataset) -> tuple[Grid, Float[np.ndarray, " cells"]]:
    """Depth, width and alpha of every cell, flattened."""
    alphas = runs.alpha.values.astype(float)
    depth, width = (np.repeat(runs[k].values.astype(float), len(alphas)) for k in ("depth", "width"))
    return Grid(depth, width, float(runs.attrs["dim"])), np.tile(alphas, runs.sizes["shape"])


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
    """Powers and constant of the spread over seeds, and b(alpha)^2 as a smooth function of alpha."""
    grid, alpha = _grid(runs)
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
    # b(alpha)^2 from all cells whose spread is small, weighted by their seeds: a cubic in log alpha.
    scaled = cells.array("variance").ravel() * grid.product / (alpha**2 * scale)
    seeds = np.repeat(runs.seeds.values.astype(float), runs.sizes["alpha"])
    good = np.isfinite(scaled) & (alpha**2 * grid.dim / grid.product <= MAX_SPREAD)
    degree = min(3, len(np.unique(alpha[good])) - 1)
    b2 = np.polynomial.Polynomial.fit(np.log(alpha[good]), np.log(scaled[good]), degree, w=np.sqrt(seeds[good])) if good.any() else None
    goodness = {
        "chi2": fit.chi2,
        "dof": fit.dof,
        "p_value": fit.p_value,
        "p_value_free": fit.p_value_free,
        "cells_used": int(fit.used.sum()),
        "cells": len(alpha),
    }
    return fit, b2, claims, {f"{name}.fluctuation": goodness}


def _doubt(p_value: float, fit: LawFit) -> str:
    if not fit.used.any():
        return f"no cell has alpha >= {MIN_ALPHA:g} and alpha^2 D/(LM) <= {MAX_SPREAD:g}: larger networks"
    return f"chi-square rejects the law, p = {p_value:.1g}" if p_value < REJECT else ""


def predicted_variance(runs: xr.Dataset, b2, scale: float) -> Float[np.ndarray, "shape alpha"]:
    """b(alpha)^2 alpha^2 S/(LM)."""
    grid, alpha = _grid(runs)
    if b2 is None:
        return np.full((runs.sizes["shape"], runs.sizes["alpha"]), np.nan)
    within = np.clip(np.log(alpha), *b2.domain)  # outside the range that was measured b is taken as constant
    return (np.exp(b2(within)) * alpha**2 * scale / grid.product).reshape(runs.sizes["shape"], -1)


def _which_limit(name: str, runs: xr.Dataset, reference: LazyReference, cells: Cells) -> list[Claim]:
    """Distance of the full linearisation to the tangent ODE, and how much nearer networks are to the latter, at the largest shape and its best alpha."""
    distance = float(rms(getattr(reference.linearised, name)() - getattr(reference.tangent, name)()))
    source = "Theorem 2, the limit is the tangent ODE and not the linearised network"
    claims = [claim(f"{name}.linearisation.distance", distance, 0.0, 0.0, source=source)]
    measured2 = cells.array("error2")
    largest = int(np.argmax((runs.depth * runs.width).values))
    if np.isfinite(measured2[largest]).any():
        j = int(np.nanargmin(measured2[largest]))
        ratio = math.sqrt(cells.linearised2[largest, j] / measured2[largest, j])
        half = NORMAL_95 * float(np.sqrt(cells.draws("error2_draws")[:, largest, j]).std(ddof=1)) / math.sqrt(measured2[largest, j]) * ratio
        label = f"{name}.linearisation.error_ratio[alpha={float(runs.alpha[j]):.3g}, LM={int(runs.depth[largest] * runs.width[largest])}]"
        claims.append(claim(label, ratio, half / NORMAL_95, half, source=source))
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
