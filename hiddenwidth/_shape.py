r"""The best shape (L, M, D) for a parameter budget P >= D (2 L M + d_in + d_out), by the joint law

    e^2 = a^2/L^2 + ... + b^2 D/(LM) + d^2/D.

At fixed D the budget buys N = LM units, and the sampling terms depend on N alone while the depth term only falls with L. So the least error has M = 1 (all
depth) and D* = (d^2 P/(4 b^2))^(1/3), where e^2 = 3/2 d^2/D*: sampling holds one third of it, the limit in D two thirds, depth nothing to speak of.

It is also the shape with the least to do at once. The balanced shape of the theory is the shallowest, most parallel one whose error is within a factor
1 + slack of the least: there a^2/L^2 = (2 slack + slack^2) e^2, hence L ~ P^(1/6), M ~ P^(1/2), D ~ P^(1/3), and e ~ P^(-1/6).

The search is over whole numbers and exact. For real N the error is a convex function of D and a lower bound of what whole numbers reach, so only the D for
which that bound is below the best value found can hold the minimum.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from scipy import optimize

from ._choices import positive_int
from ._scaling import parameter_count
from ._shape_law import TERMS, ShapeLaw

#: Below this the shallowest shape is searched for among nearly all depths; 0 is exact and quick.
LEAST_SLACK = 1e-3


class Shape(NamedTuple):
    """A shape with its predicted error (leading orders; with next orders: `refined`), its 95 % interval, the share of every term in the mean square."""

    depth: int
    width: int
    dim: int
    parameters: int
    error: float
    interval: tuple[float, float]
    refined: float
    shares: dict[str, float]

    @property
    def binding(self) -> str:
        """The term with the largest share."""
        return max(self.shares, key=self.shares.__getitem__)


class BestShape(eqx.Module):
    """The shape for a budget: `chosen`, beside it the least error at any depth (`least`) and the shape of the theory with measured constants (`asymptotic`)."""

    budget: int
    slack: float
    chosen: Shape
    least: Shape
    asymptotic: tuple[float, float, float]

    def __repr__(self) -> str:
        return "\n".join([f"BestShape(P={self.budget:.3g}, slack={self.slack:g})", *shape_rows(self)])


def best_shape(params: float, law: ShapeLaw, *, slack: float = 0.05, max_depth: int | None = None) -> BestShape:
    r"""The shallowest whole-number shape (L, M, D) with D (2 L M + d_in + d_out) <= params whose predicted error is within a factor 1 + slack of the least.

    **Arguments:**

    - `params`: parameters of units and embeddings together.
    - `law`: of hidden states, from `DimensionFit.laws["hidden"]` or `ShapeLaw.of`. A negative cosine between depth error and bias counts as 0.
    - `slack`: what parallelism may cost; 0 asks for the least error, which has M = 1.
    - `max_depth`: the deepest network that is acceptable (default: any).

    **Returns:** a `BestShape`. Of several D at the chosen depth it has the one with the least error.

    **Raises:** `ValueError` for a budget below one block in the least D, or a slack that is not 0 or at least 0.001.

    Source: arXiv 2509.10167 and 2603.18168, O(1/L + sqrt(D/(LM)) + 1/sqrt(D)); the search is derived above.

    **Example:** `hw.best_shape(1e6, hw.ShapeLaw.of(a=0.23, b=0.78, c=0.13, d=1.1))`
    """
    budget = check_budget(params, law)
    if isinstance(slack, bool) or not (slack == 0 or LEAST_SLACK <= slack < math.inf):
        raise ValueError(f"slack={slack!r} is not possible; expected 0 (the least error, at any depth) or a number of at least {LEAST_SLACK:g}.")
    if law.observable != "hidden":
        raise ValueError(f"law is that of {law.observable!r}; expected the law of 'hidden', whose terms the theory balances.")
    law = searched(law)
    deepest = (budget // law.reduced - law.ends) // 2
    if max_depth is not None:
        deepest = min(deepest, positive_int("max_depth", max_depth))
    least = _least(law, budget, deepest)
    chosen = least if slack == 0 else _shallowest(law, budget, (1 + slack) ** 2 * law.square(*least), least[0])
    return BestShape(budget, float(slack), describe(law, *chosen), describe(law, *least), asymptotic_shape(budget, law, slack))


def searched(law: ShapeLaw) -> ShapeLaw:
    """The law that is minimised: a negative cosine, which would let depth error and bias cancel, counts as 0, and the error then only falls with depth."""
    return eqx.tree_at(lambda x: x.cosine, law, max(law.cosine, 0.0))


def check_budget(params: float, law: ShapeLaw) -> int:
    """The budget as a whole number, or say how much is needed at least."""
    needed = parameter_count(1, 1, law.reduced, law.ends)
    if isinstance(params, bool) or not isinstance(params, (int, float, np.integer, np.floating)) or not (needed <= params < 1e18):
        raise ValueError(
            f"params={params!r} is not possible; expected at least {needed}, one unit in D={law.reduced} with its embeddings, and less than 1e18. Raise params."
        )
    return int(params)


def describe(law: ShapeLaw, depth: int, width: int, dim: int) -> Shape:
    """A shape with everything the law says of it."""
    terms = {k: float(v) for k, v in law.terms(depth, width, dim).items()}
    total = sum(terms.values())
    return Shape(
        int(depth), int(width), int(dim), parameter_count(int(depth), int(width), int(dim), law.ends), math.sqrt(total),
        law.interval(depth, width, dim), float(law.refined(depth, width, dim)), {k: v / total for k, v in terms.items()},
    )  # fmt: skip


def asymptotic_shape(params: float, law: ShapeLaw, slack: float) -> tuple[float, float, float]:
    """(L, M, D) of the law without bias, embeddings and rounding: P^(1/6), P^(1/2), P^(1/3) with constants, or all depth when slack is 0."""
    a, b, _, d = law.constants
    dim = (d**2 * params / (4 * b**2)) ** (1 / 3)
    depth = params / (2 * dim) if slack == 0 else a / math.sqrt((2 * slack + slack**2) * 1.5 * d**2 / dim)
    return depth, params / (2 * dim * depth), dim


def at_depth(law: ShapeLaw, budget: int, depth: int) -> tuple[int, int, int] | None:
    """The best (L, M, D) of a given depth; None where not even one unit a block fits."""
    last = budget // (2 * depth + law.ends)
    if last < law.reduced:
        return None

    def widest(dim):
        return (budget // dim - law.ends) // (2 * depth)

    return _search(law, last, lambda dim: (depth, _units(law, budget, dim) / depth), lambda dim: (depth, widest(dim)))


def _least(law: ShapeLaw, budget: int, deepest: int) -> tuple[int, int, int]:
    """The least error of all shapes not deeper than `deepest`."""
    last = budget // (2 + law.ends)
    best = _search(law, last, lambda dim: (_units(law, budget, dim), 1.0), lambda dim: ((budget // dim - law.ends) // 2, 1))
    if best[0] <= deepest:
        return best
    found: tuple[int, int, int] | None = None
    for depth in range(deepest, 0, -1):  # at a given number of units deeper is better, so the lower bound rises as the depth falls
        if found is not None and _bound(law, budget, depth) >= law.square(*found):
            break
        here = at_depth(law, budget, depth)
        if here is not None and (found is None or law.square(*here) < law.square(*found)):
            found = here
    assert found is not None
    return found


def _shallowest(law: ShapeLaw, budget: int, target: float, deepest: int) -> tuple[int, int, int]:
    """The least depth at which the target is met. It exists: the shape that set the target meets it."""
    low, high = 1, deepest  # the lower bound falls with depth: bisection for the first depth at which it is below the target
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _bound(law, budget, middle) <= target else (middle + 1, high)
    for depth in range(low, deepest + 1):
        here = at_depth(law, budget, depth)
        if here is not None and law.square(*here) <= target:
            return here
    raise AssertionError("the shape that set the target lies in the range")


def _units(law: ShapeLaw, budget: int, dim: Any) -> Any:
    """N = LM that a budget buys at D, as a real number."""
    return (budget / dim - law.ends) / 2


def _bound(law: ShapeLaw, budget: int, depth: int) -> float:
    """Lower bound of the mean square error at a depth: M and D real, M below 1 allowed. It falls with depth."""
    return _relaxed(law, budget / (2 + law.ends), lambda dim: (depth, _units(law, budget, dim) / depth))[1]


def _relaxed(law: ShapeLaw, last: float, real: Callable[[Any], tuple[Any, Any]]) -> tuple[float, float]:
    """(log D, mean square error) at the minimum over real D; the error is convex in D, so unimodal in log D."""

    def square(log_dim: float) -> float:
        depth, width = real(math.exp(log_dim))
        return float(law.square(depth, width, math.exp(log_dim)))

    low, high = math.log(law.reduced), math.log(last)
    if high <= low:
        return low, square(low)
    found = optimize.minimize_scalar(square, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return min(((x, square(x)) for x in (low, float(found.x), high)), key=lambda pair: pair[1])


def _search(law: ShapeLaw, last: int, real: Callable[[Any], tuple[Any, Any]], whole: Callable[[Any], tuple[Any, Any]]) -> tuple[int, int, int]:
    """Least error over whole D from r to `last`. `real(D)`: (L, M) real, an upper bound of what D affords; `whole(D)`: the whole numbers that it affords."""
    centre, _ = _relaxed(law, last, real)

    def excess(dim: int, best: float) -> bool:
        depth, width = real(float(dim))
        return float(law.square(depth, width, dim)) > best

    start = int(min(max(round(math.exp(centre)), law.reduced), last))

    def reached(dim: int) -> float:
        depth, width = whole(dim)
        return float(law.square(depth, width, dim))

    best = min(reached(dim) for dim in {start, max(start - 1, law.reduced), min(start + 1, last)})
    low, high = law.reduced, start
    while low < high:  # the first D whose bound is below the best value
        middle = (low + high) // 2
        low, high = (middle + 1, high) if excess(middle, best) else (low, middle)
    bottom, low, high = low, start, last
    while low < high:  # the last such D
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if excess(middle, best) else (middle, high)
    dims = np.arange(bottom, low + 1)
    depth, width = (np.broadcast_to(x, dims.shape) for x in whole(dims))
    at = int(np.argmin(law.square(depth, width, dims)))
    return int(depth[at]), int(width[at]), int(dims[at])


def shape_rows(best: BestShape) -> list[str]:
    """The chosen shape, the least error and the asymptotic shape as aligned text."""
    head: tuple[str, ...] = ("", "L", "M", "D", "parameters", "error", "95 % interval", *(f"{k} {v}" for k, v in TERMS.items()), "binding")
    rows: list[tuple[str, ...]] = [head]
    for name, s in (("chosen", best.chosen), ("least error", best.least)):
        interval = f"[{s.interval[0]:.4f}, {s.interval[1]:.4f}]"
        shares = (f"{s.shares[k]:.0%}" for k in TERMS)
        rows.append((name, f"{s.depth}", f"{s.width}", f"{s.dim}", f"{s.parameters}", f"{s.error:.4f}", interval, *shares, s.binding))
    rows.append(("asymptotic", *(f"{x:.1f}" for x in best.asymptotic), *[""] * (len(head) - 4)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
