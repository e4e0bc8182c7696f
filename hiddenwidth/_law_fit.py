r"""Fits of power laws with next orders over cells, with bootstrap intervals and a stated range; first of all the two sampling terms over a grid.

    fluctuation   V(L, M)  = b^2 S L^(2p) M^(2q) exp(corrections)          theory p = q = -1/2; S = D for hidden states, 1 for outputs
    bias          B(L, M)  = c^2 (LM)^(2g)       exp(corrections)          theory g = -1

The error law is the first term of an expansion in 1/L and x = D/(LM), and networks of a size that one can afford are not infinitely far in it:

    corrections = e_1/L + f_1 x + e_2/L^2 + f_2 x^2 + g x/L + third orders

First orders are free. Second and third orders have priors N(0, size^2), the sizes those of the powers of s_L/L + s_x x: s_L and s_x are the usual sizes of
the first orders, fixed beforehand (2 for 1/L, 1/2 for x), or the fitted ones where these are larger (e^2 less its squared standard error, which is
unbiased). Training may lower the leading term while the next orders stay; relative to it they are then large, the later ones with the first. The priors
widen every interval by what a neglected order of that size could do, and most where LM is small; without them a grid with many seeds rejects a true law.

Range rule: start from the cells with LM >= D, x <= 1, in which no member diverged; while chi-square rejects the fit at 1 %,
drop the cells with the smallest LM, as long as three more cells than free coefficients remain.

A law of another kind brings corrections, a range and an order of dropping of its own (`Law`).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from . import _loglinear
from ._depth_fit import Estimate
from ._statistics import NORMAL_95, CellStatistics

REJECT = 0.01
#: Orders of the expansion.
ORDERS = 3
#: Usual sizes of the first orders in 1/L and in x = D/(LM), and the largest square that a prior follows (then no cell near x = 1 counts).
USUAL_DEPTH, USUAL_X, LARGEST = 2.0, 0.5, 1e4
SPARE_CELLS = 3

RANGE_RULE = (
    "cells with LM >= D and no divergence; while chi-square rejects at 1 %, the cells with the smallest LM are dropped; "
    "corrections of first order in 1/L and D/(LM) free, of second and third order with priors of usual sizes (2 to each 1/L, 1/2 to each D/(LM)), "
    "larger where the first orders are"
)


#: Name -> (column over all cells, size of the prior on its coefficient; infinite: free). The free ones first, the most important first.
Corrections = Mapping[str, tuple[Float[np.ndarray, " cells"], float]]


class Grid(NamedTuple):
    """The cells of a sweep, flattened."""

    depth: Float[np.ndarray, " cells"]
    width: Float[np.ndarray, " cells"]
    dim: float | Float[np.ndarray, " cells"]

    @property
    def product(self) -> Float[np.ndarray, " cells"]:
        """L M."""
        return self.depth * self.width


class Law(NamedTuple):
    """Which powers a term has: names of the free exponents, their columns, the theory's exponents of the mean square, the scale S.

    What else it may bring: `corrections`, the next orders (default: the expansion in 1/L and D/(LM)); `usable`, the cells in which the expansion makes sense
    (default: LM >= D); `size`, by which cells are dropped, the smallest first (default: LM/D).
    """

    names: tuple[str, ...]
    columns: Float[np.ndarray, "cells powers"]
    theory: tuple[float, ...]
    scale: float | Float[np.ndarray, " cells"]
    corrections: Corrections | None = None
    usable: Bool[np.ndarray, " cells"] | None = None
    size: Float[np.ndarray, " cells"] | None = None


class LawFit(NamedTuple):
    """A fitted sampling term: constant (at the theory's exponents), free exponents, fitted mean squares, goodness of fit, cells used, next orders.

    `corrections` holds their coefficients at the theory's exponents.

    `p_value` belongs to the fit with the theory's exponents, `p_value_free` to the one with free exponents.
    """

    constant: Estimate
    exponents: dict[str, Estimate]
    mean: Float[np.ndarray, " cells"]
    chi2: float
    dof: int
    p_value: float
    p_value_free: float
    used: Bool[np.ndarray, " cells"]
    corrections: dict[str, float]


def fluctuation_law(grid: Grid, scale: float) -> Law:
    """V ~ S / (L M)."""
    return Law(("exponent_depth", "exponent_width"), np.stack([np.log(grid.depth), np.log(grid.width)], 1), (-1.0, -1.0), scale)


def bias_law(grid: Grid) -> Law:
    """B ~ 1 / (L M)^2."""
    return Law(("exponent",), np.log(grid.product)[:, None], (-2.0,), 1.0)


def fit_law(law: Law, grid: Grid, values, draws, variance, rng: np.random.Generator) -> LawFit:
    """Fit one term.

    **Arguments:** `values` (cells) and `draws` (bootstrap, cells) of the mean square, NaN where a cell is not usable; `variance(mean, used)`: sampling
    variance of the statistic as a function of its mean, for the used cells.
    """
    size = grid.product / grid.dim if law.size is None else law.size
    used = np.isfinite(values) & (size >= 1 if law.usable is None else law.usable)
    power = np.exp(law.columns @ np.asarray(law.theory)) * law.scale
    while True:
        columns = _columns(law, grid, used)
        free = _free(columns)
        if "constant" not in columns or used.sum() < free + 1:
            missing = Estimate(np.nan, np.nan, np.nan)
            return LawFit(missing, dict.fromkeys(law.names, missing), np.full(len(used), np.nan), np.nan, 0, np.nan, np.nan, used, {})
        columns, fitted = _settle(law, grid, columns, used, values / power, variance, power)
        smaller = used & (size > size[used].min())
        if fitted.p_value >= REJECT or smaller.sum() < free + SPARE_CELLS:
            break
        used = smaller
    # Free exponents as departures from the theory's; then the constant, with the theory's exponents imposed.
    exponents = {}
    estimate = _bootstrap(columns, used, fitted, draws / power, variance, power, rng)
    for name, theory in zip(law.names, law.theory, strict=True):
        exponents[name] = estimate(name, lambda beta, theory=theory: (beta + theory) / 2)
    fixed_columns = {name: column for name, column in columns.items() if name not in law.names}
    fixed = _fit(fixed_columns, used, values / power, variance, power)
    estimate = _bootstrap(fixed_columns, used, fixed, draws / power, variance, power, rng)
    constant = estimate("constant", lambda beta: np.exp(beta / 2))
    logs = np.stack([c for c, _ in fixed_columns.values()], 1) @ fixed.beta
    mean = power * np.exp(np.clip(logs, -300, 300))  # cells far outside the range have no meaningful prediction, but must not overflow
    corrections = {name: float(beta) for name, beta in zip(fixed_columns, fixed.beta, strict=True) if name != "constant"}
    return LawFit(constant, exponents, mean, float(fixed.chi2), fixed.dof, fixed.p_value, fitted.p_value, used, corrections)


def _settle(law: Law, grid: Grid, columns, used, values, variance, power):
    """Fit, and let the priors of second orders follow the fitted first orders until they no longer grow: (columns with their priors, fit)."""
    depth2, x2 = USUAL_DEPTH**2, USUAL_X**2
    while True:
        fitted = _fit(columns, used, values, variance, power)
        if law.corrections is not None:
            return columns, fitted
        found = {name: b**2 - s**2 for name, b, s in zip(columns, fitted.beta, fitted.se, strict=True)}
        larger = min(max(depth2, found.get("1/L", 0.0)), LARGEST), min(max(x2, found.get("x", 0.0)), LARGEST)
        if not (larger[0] > 1.01 * depth2 or larger[1] > 1.01 * x2):
            return columns, fitted
        depth2, x2 = larger
        columns = columns | {name: pair for name, pair in expansion(grid, depth2, x2).items() if np.isfinite(pair[1])}


def _columns(law: Law, grid: Grid, used) -> dict[str, tuple[Float[np.ndarray, " cells"], float]]:
    """Name -> (column over all cells, prior size). Free columns are added in this order while they raise the rank and leave a degree of freedom."""
    corrections = expansion(grid) if law.corrections is None else law.corrections
    free = {name: column for name, (column, size) in corrections.items() if size == np.inf}
    wanted = {"constant": np.ones(len(used))} | dict(zip(law.names, law.columns.T, strict=True)) | free
    columns: dict[str, tuple[np.ndarray, float]] = {}
    for name, column in wanted.items():
        trial = np.stack([c[used] for c, _ in columns.values()] + [column[used]], 1)
        unit = trial / np.linalg.norm(trial, axis=0)
        if trial.shape[1] < used.sum() and np.linalg.matrix_rank(unit, tol=1e-6) == trial.shape[1]:
            columns[name] = (column, np.inf)
    return columns | {name: pair for name, pair in corrections.items() if name not in free}


def expansion(grid: Grid, depth2: float = USUAL_DEPTH**2, x2: float = USUAL_X**2, orders: int = ORDERS) -> Corrections:
    """Next orders in 1/L and x = D/(LM): the first free, later ones with the sizes that (s_L/L + s_x x)^n gives them, from s_L^2 and s_x^2."""
    found: dict[str, tuple[np.ndarray, float]] = {}
    for order in range(1, orders + 1):
        for power in range(order + 1):  # of x
            name = "".join((_power("x", power) or "1", _power("/L", order - power)))
            size = np.inf if order == 1 else math.comb(order, power) * x2 ** (power / 2) * depth2 ** ((order - power) / 2)
            found[name] = ((grid.dim / grid.product) ** power / grid.depth ** (order - power), size)
    return found


def _power(name: str, power: int) -> str:
    return "" if power == 0 else name if power == 1 else f"{name}^{power}"


def _free(columns) -> int:
    return sum(size == np.inf for _, size in columns.values())


def _fit(columns, used, values, variance, power) -> _loglinear.LogLinear:
    """Fit values/power; `columns` over all cells."""
    design = np.stack([c[used] for c, _ in columns.values()], 1)
    sizes = np.array([size for _, size in columns.values()])
    return _loglinear.fit(design, values[used], _relative(variance, used, power), prior_scale=sizes)


def _bootstrap(columns, used, fitted: _loglinear.LogLinear, draws, variance, power, rng: np.random.Generator):
    """Refit every draw, with the centres of the priors drawn as well; returns a function (name, transform) -> Estimate."""
    design = np.stack([c[used] for c, _ in columns.values()], 1)
    sizes = np.array([size for _, size in columns.values()])
    centres = rng.standard_normal((len(draws), len(sizes))) * np.where(np.isinf(sizes), 0.0, sizes)
    refit = _loglinear.fit(design, draws[:, used], _relative(variance, used, power), fitted.beta, sizes, centres)

    def estimate(name: str, transform) -> Estimate:
        if name not in columns:
            return Estimate(np.nan, np.nan, np.nan)
        column = list(columns).index(name)
        value = float(transform(fitted.beta[column]))
        if np.mean(refit.converged) < 0.9:  # a tenth of the draws has no fit: no interval worth the name
            return Estimate(value, np.nan, np.nan)
        se = float(transform(refit.beta[refit.converged, column]).std(ddof=1))
        return Estimate(value, se, NORMAL_95 * se)

    return estimate


def _relative(variance, used, power):
    """Variance of values/power as a function of its mean."""
    return lambda mean: variance(mean * power[used], used) / power[used] ** 2


def variance_of_variance(cells: list[CellStatistics]):
    """Sampling variance of V: kappa V^2/R, with kappa pooled over cells (a cell's own estimate is correlated with its V) and R each cell's own seeds."""
    kappa = float(np.mean([c.seeds * c.variance_relative_se2 for c in cells if np.isfinite(c.variance)] or [np.nan]))
    relative = kappa / np.maximum([c.seeds for c in cells], 1)
    return lambda mean, used: relative[used] * mean**2


def variance_of_bias2(cells: list[CellStatistics]):
    """Sampling variance of B: 4 tau B V/R + 2 tau (V/R)^2 with tau the pooled inverse effective dimension, and the reference's share."""
    tau = float(np.mean([c.bias_anisotropy for c in cells if np.isfinite(c.variance)] or [np.nan]))
    noise = np.array([c.bias_variance / max(c.seeds, 1) + c.reference2 for c in cells])
    return lambda mean, used: 4 * tau * mean * noise[used] + 2 * tau * noise[used] ** 2
