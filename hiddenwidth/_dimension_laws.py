r"""Laws over the embedding dimension D with their next orders.

Next orders. Networks: besides 1/L and x = D/(LM), as in `_law_fit`, the share w = r/D of coordinates in the span of the data, which move with their
units while the others only collect noise; of first order for hidden states, where they count by their number. Usual size 1, so second orders have priors of
sizes 1 (w^2), 4 (w/L) and 1 (w x); for the bias, whose first order in 1/L is twice as large, 16 (1/L^2), 4 (x/L) and 8 (w/L). Limit: w free, of usual size 4,
hence priors of sizes 16 (w^2) and 64 (w^3).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ._law_fit import Corrections, Grid, Law, LawFit, expansion, fit_law, variance_of_bias2
from ._shape_law import next_orders
from ._statistics import NORMAL_95, CellStatistics, seed_counts

#: Relative scatter of mean squares of Mean ODE(D) about their law: by it the law is judged, small D are dropped and intervals widened. The draws are common
#: to all D, so their spread, common to all points, says nothing of it. After many steps the units are rough in depth-time, responses to the embeddings stop
#: being smooth, and points scatter by up to this much whatever the tolerance.
SCATTER = 0.01

#: Cells with LM >= 4 D: their expansion parameter spans a factor of eight, and stays below 1/4.
LEAST_PRODUCT = 4.0


def _corrections(grid: Grid, reduced: int, *, free: bool) -> Corrections:
    columns = next_orders(grid.depth, grid.width, grid.dim, reduced)
    sizes = {"w^2": 1.0, "w/L": 4.0, "w x": 1.0}
    first = {"w": (columns["w"], np.inf)} if free else {}
    return dict(expansion(grid, orders=2)) | first | {name: (columns[name], size) for name, size in sizes.items()}


def fluctuation_law(grid: Grid, name: str, reduced: int) -> Law:
    """V ~ S D^(2p)/(L M) with S = 1: the power of D is free, theory 2p = 1 for hidden states and 0 for outputs."""
    power = 1.0 if name == "hidden" else 0.0
    usable = grid.product >= LEAST_PRODUCT * grid.dim
    return Law(("exponent_dim",), np.log(grid.dim)[:, None], (power,), 1 / grid.product, _corrections(grid, reduced, free=name == "hidden"), usable)


def bias_law(grid: Grid, reduced: int) -> Law:
    """B ~ D^2/(L M)^2."""
    usable = grid.product >= LEAST_PRODUCT * grid.dim
    corrections = dict(_corrections(grid, reduced, free=True))
    corrections |= {name: (corrections[name][0], size) for name, size in (("1/L^2", 16.0), ("x/L", 4.0), ("w/L", 8.0))}
    return Law(("exponent_dim",), np.log(grid.dim)[:, None], (2.0,), 1 / grid.product**2, corrections, usable)


def calibrated(cells: list[CellStatistics], draws: Float[np.ndarray, "draws cells"]) -> Callable:
    """Sampling variance of B as a function of its mean, with one factor that makes it agree with the bootstrap where B is clear of its noise.

    The formula takes the bias to point nowhere in particular. Where it points along the largest fluctuations it is noisier, and the other way round.
    """
    variance = variance_of_bias2(cells)
    value, seen = np.array([c.bias2 for c in cells]), draws.var(0, ddof=1)
    clear = value > NORMAL_95 * np.sqrt(seen)  # False for NaN
    factor = float(np.median(seen[clear] / variance(value[clear], clear))) if clear.any() else 1.0
    return lambda mean, used: factor * variance(mean, used)


def fit_limit(dims: Float[np.ndarray, " dim"], squares: Float[np.ndarray, "dim draw"], reduced: int, bootstrap: int, rng: np.random.Generator):
    """(fit of d^2/D, standard errors of the mean squares): the same pairs of draws stand at every D, and are resampled together."""
    w, squares = reduced / dims, squares.reshape(len(dims), -1, 2).mean(-1)
    law = Law(("exponent",), np.log(dims)[:, None], (-1.0,), 1.0, {"w": (w, np.inf), "w^2": (w**2, 16.0), "w^3": (w**3, 64.0)}, np.ones(len(dims), bool), dims)
    counts = seed_counts(squares.shape[1], bootstrap, rng) / squares.shape[1]
    grid = Grid(np.ones(len(dims)), np.ones(len(dims)), dims)
    draws = counts @ squares.T * np.exp(SCATTER * rng.standard_normal((bootstrap, len(dims))))
    fit: LawFit = fit_law(law, grid, squares.mean(1), draws, lambda mean, used: (SCATTER * mean) ** 2, rng)
    return fit, squares.std(1, ddof=1) / np.sqrt(squares.shape[1])
