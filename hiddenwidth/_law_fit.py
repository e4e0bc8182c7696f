r"""Fits of the two sampling terms over the cells of a grid, with bootstrap intervals and a stated range.

    fluctuation   V(L, M)  = b^2 S L^(2p) M^(2q) exp(e/L + f/(LM))          theory p = q = -1/2; S = D for hidden states, 1 for outputs
    bias          B(L, M)  = c^2 (LM)^(2g)       exp(e/L + f/(LM))          theory g = -1

The factor exp(...) is the next order of the expansion in 1/L and 1/(LM), fitted, so that small shapes may stay in the range.

Range rule: start from all cells in which no member diverged; while chi-square rejects the fit at 1 %, drop the cells with the smallest LM, as long as
three more cells than coefficients remain.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from . import _loglinear
from ._depth_fit import Estimate
from ._statistics import CellStatistics

REJECT = 0.01
SPARE_CELLS = 3
NORMAL_95 = 1.959963984540054


class LawFit(NamedTuple):
    """A fitted sampling term: constant (at the theory's exponents), free exponents, goodness of fit, range."""

    constant: Estimate
    exponents: dict[str, Estimate]
    mean: Float[np.ndarray, " cells"]  # fitted value in every cell, the theory's exponents
    chi2: float
    dof: int
    p_value: float
    used: Float[np.ndarray, " cells"]  # bool


class Law(NamedTuple):
    """Which powers a term has: names of the free exponents, their columns, the theory's exponent of the mean square in each."""

    names: tuple[str, ...]
    columns: Float[np.ndarray, "cells powers"]
    theory: tuple[float, ...]
    scale: float  # S


def fluctuation_law(depth, width, scale: float) -> Law:
    """V ~ S / (L M)."""
    return Law(("exponent_depth", "exponent_width"), np.stack([np.log(depth), np.log(width)], 1), (-1.0, -1.0), scale)


def bias_law(depth, width) -> Law:
    """B ~ 1 / (L M)^2."""
    return Law(("exponent",), np.log(depth * width)[:, None], (-2.0,), 1.0)


def fit_law(law: Law, depth, width, values, draws, variance) -> LawFit:
    """Fit one term.

    **Arguments:** `values` (cells) and `draws` (bootstrap, cells) of the mean square, NaN where a cell is not usable; `variance(mean, cells)`: sampling
    variance of the statistic as a function of its mean, for the chosen cells.
    """
    nuisance = np.stack([1.0 / depth, 1.0 / (depth * width)], 1)
    used = np.isfinite(values)
    while True:
        design, kept = _design(law, nuisance, used)
        if used.sum() < design.shape[1] + 1:
            return _nothing(law, used)
        free = _loglinear.fit(design, values[used] / law.scale, _scaled(variance, used, law.scale))
        smaller = used & (depth * width > (depth * width)[used].min())
        if free.p_value >= REJECT or smaller.sum() < design.shape[1] + SPARE_CELLS:
            break
        used = smaller
    free_draws = _loglinear.fit(design, draws[:, used] / law.scale, _scaled(variance, used, law.scale), free.beta)
    exponents = {}
    for name in law.names:
        if name in kept:
            column = kept.index(name)
            exponents[name] = _estimate(free.beta[column] / 2, free_draws.beta[:, column] / 2, free_draws.converged)
        else:
            exponents[name] = Estimate(np.nan, np.nan, np.nan)
    # Constant: the theory's exponents imposed.
    power = np.exp(law.columns @ np.asarray(law.theory)) * law.scale
    fixed_design, fixed_kept = _design(law._replace(names=(), columns=law.columns[:, :0], theory=()), nuisance, used)
    var = _scaled(variance, used, power[used])
    fixed = _loglinear.fit(fixed_design, values[used] / power[used], var)
    fixed_draws = _loglinear.fit(fixed_design, draws[:, used] / power[used], var, fixed.beta)
    constant = _estimate(np.exp(fixed.beta[0] / 2), np.exp(fixed_draws.beta[:, 0] / 2), fixed_draws.converged)
    every = {"constant": np.ones(len(depth)), "1/L": nuisance[:, 0], "1/(LM)": nuisance[:, 1]}
    mean = power * np.exp(np.stack([every[name] for name in fixed_kept], 1) @ fixed.beta)
    return LawFit(constant, exponents, mean, float(fixed.chi2), fixed.dof, fixed.p_value, used)


def _design(law: Law, nuisance, used):
    """Constant, powers, next orders: columns are added in this order while they raise the rank and leave a degree of freedom."""
    chosen, kept = [np.ones(used.sum())], ["constant"]
    for name, column in [*zip(law.names, law.columns.T, strict=True), ("1/L", nuisance[:, 0]), ("1/(LM)", nuisance[:, 1])]:
        trial = np.stack([*chosen, column[used]], 1)
        unit = trial / np.linalg.norm(trial, axis=0)
        if np.linalg.matrix_rank(unit, tol=1e-6) == trial.shape[1] and trial.shape[1] < used.sum():
            chosen.append(column[used])
            kept.append(name)
    return np.stack(chosen, 1), kept


def _scaled(variance, used, scale):
    return lambda mean: variance(mean * scale, used) / np.asarray(scale) ** 2


def _estimate(value: float, draws: Float[np.ndarray, " draws"], converged) -> Estimate:
    """Normal interval with the bootstrap standard error; none when a tenth of the draws has no fit."""
    if np.mean(converged) < 0.9:
        return Estimate(float(value), np.nan, np.nan)
    se = float(draws[converged].std(ddof=1))
    return Estimate(float(value), se, NORMAL_95 * se)


def _nothing(law: Law, used) -> LawFit:
    missing = Estimate(np.nan, np.nan, np.nan)
    return LawFit(missing, dict.fromkeys(law.names, missing), np.full(len(used), np.nan), np.nan, 0, np.nan, used)


def variance_of_variance(cells: list[CellStatistics]):
    """Sampling variance of V: proportional to its square, with the factor pooled over cells (a cell's own factor is correlated with its V)."""
    pooled = float(np.mean([c.variance_relative_se2 for c in cells if np.isfinite(c.variance)] or [np.nan]))
    return lambda mean, used: pooled * mean**2


def variance_of_bias2(cells: list[CellStatistics], seeds: int):
    """Sampling variance of B: 4 tau B V/R + 2 tau (V/R)^2 with tau the pooled inverse effective dimension, and the reference's share."""
    tau = float(np.mean([c.bias_anisotropy for c in cells if np.isfinite(c.variance)] or [np.nan]))
    noise = np.array([c.bias_variance / seeds + c.reference2 for c in cells])
    return lambda mean, used: 4 * tau * mean * noise[used] + 2 * tau * noise[used] ** 2
