r"""The pure error of a finite embedding dimension: Mean ODE at D against Mean ODE at D = infinity, without a single network.

In the polar coordinates of `reduction` the embeddings enter through P = G^(1/2) alone, G the Gram matrix of r = rank X + d_out columns of D standard
normals, divided by D: the problem at D is the one at D = infinity with start a_0 P^T and readout P W. G is drawn by Bartlett's decomposition,
G = T T^T / D with

    T_ij ~ N(0, 1) below the diagonal,      T_ii^2 ~ chi-square with D - i + 1 degrees of freedom,

which costs the same at every D. Draw i uses the same uniform numbers at every D, so that E = sqrt(D) (G - I) converges draw by draw: the noise of the draws
is common to all D and nearly leaves the exponent. Draws come in pairs from u and 1 - u, which have E and -E to leading order: the mean square of a pair is
an expansion in 1/D, like its expectation, while that of one draw goes on with an odd term in 1/sqrt(D). The uniform numbers are scrambled Sobol points, more
even than independent ones; intervals treat pairs as independent and so are too wide rather than too narrow. The quadrature points are shared as well; their
error leaves differences, too.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special, stats
from scipy.stats import qmc
from tqdm.auto import tqdm

from .._choices import positive_float, positive_int
from .._devices import reference_precision
from .._parallel import each
from .._problem import Problem
from .._quadrature import AbstractQuadrature, Sobol
from .._scaling import Scaling
from .._unit import AbstractUnit
from .collocation import Fixed, Walk, advance, begin
from .integrate import DivergedError, standard_points
from .mean_ode import default_tolerance
from .reduction import Coordinates, reduced


class DimensionError(NamedTuple):
    """Mean squares of Mean ODE(D) minus Mean ODE(infinity) for every draw of the embeddings and every step.

    `hidden`: per data point and coordinate, the solution at D = infinity lifted through the same embeddings. `output`: per data point and output.
    """

    problem_digest: str
    reduced: int
    dims: tuple[int, ...]
    hidden: Float[np.ndarray, "dim draw step"]
    output: Float[np.ndarray, "dim draw step"]


def dimension_error(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    dims: tuple[int, ...],
    steps: int,
    draws: int = 64,
    quadrature: AbstractQuadrature | None = None,
    nodes: int = 12,
    tolerance: float | None = None,
    seed: int = 0,
    progress: bool = False,
) -> DimensionError:
    r"""Measure Mean ODE(D) minus Mean ODE(infinity) over Gaussian embeddings, for several D.

    $$\frac1D\,|h_D(1) - \sqrt D\,C\,a_\infty(1)|^2 = |a_D(1) - P\,a_\infty(1)|^2, \qquad C = [W_E, W_U]/\sqrt D\ \text{in units of its limit}$$

    **Arguments:** as for `mean_ode`, with the data of `problem` at any D, and

    - `dims`: embedding dimensions, each at least r = rank X + d_out.
    - `draws`: embeddings, an even number: draws 2i and 2i + 1 are antithetic. `seed`: of the draws.
    - `quadrature`: shared by all solutions, so few points do (default: 2^9 points; the first replicate is used).

    **Returns:** a `DimensionError`.

    **Raises:** `ValueError` for a dim below r, a unit without reduced coordinates, or a limit that blows up.

    Source: arXiv 2603.18168, the limit of large D.

    **Example:** `hw.dimension_error(problem, unit, hw.mlu(), dims=(16, 64), steps=2, draws=8).output.mean(1)`
    """
    positive_int("steps", steps)
    if positive_int("draws", draws, at_least=2) % 2:
        raise ValueError(f"draws={draws} is odd; expected an even number, as draws come in antithetic pairs. Use draws={draws + 1}.")
    positive_int("nodes", nodes, at_least=3)
    tolerance = default_tolerance(unit) if tolerance is None else positive_float("tolerance", tolerance)
    quadrature = Sobol(log2_points=9, replicates=1) if quadrature is None else quadrature
    where = reduced(problem.with_dim(math.inf), unit, scaling)
    rank = where.space.start.shape[1]
    dims = check_dims(dims, rank)
    factors = gram_roots(rank, dims, draws, seed)
    points = standard_points(where, quadrature, 0)
    reference = _trajectory(where, scaling, points, np.eye(rank), steps, nodes, tolerance)
    hidden, output = (np.empty((len(dims), draws, steps + 1)) for _ in range(2))
    with tqdm(total=len(dims) * draws, desc="Mean ODE over D", unit="draw", disable=not progress, leave=False) as bar:

        def solve(item: tuple[int, int]):
            return _trajectory(where, scaling, points, factors[item], steps, nodes, tolerance)

        def store(item: tuple[int, int], states: Float[np.ndarray, "step batch reduced"]) -> None:
            readout = np.asarray(where.space.unembedding)
            hidden[item] = np.mean(np.sum((states - reference @ factors[item].T) ** 2, -1), -1)
            output[item] = np.mean((states @ factors[item] @ readout - reference @ readout) ** 2, (-1, -2))
            bar.update()

        each(solve, list(np.ndindex(len(dims), draws)), store)
    return DimensionError(problem.with_dim(math.inf).digest(), rank, dims, hidden, output)


def check_dims(dims: tuple[int, ...], rank: int, what: str = "dims") -> tuple[int, ...]:
    """Sorted dims, each with room for the span of the data."""
    found = tuple(sorted({positive_int(what, d) for d in dims}))
    if not found:
        raise ValueError(f"{what}=() is empty; expected at least one.")
    if found[0] < rank:
        raise ValueError(f"{what}={found[0]} is too small for these data; expected at least {rank}, the dimension of the span of inputs and outputs.")
    return found


def gram_roots(rank: int, dims: tuple[int, ...], draws: int, seed: int | Sequence[int], *, pairs: bool = True) -> Float[np.ndarray, "dim draw reduced reduced"]:
    """P = G^(1/2), symmetric, for every D; draw i does not depend on their number. `pairs`: draws 2i and 2i + 1 are antithetic."""
    lower = np.tril_indices(rank)
    rng = np.random.default_rng([seed] if isinstance(seed, int) else list(seed))
    number = (draws + 1) // 2 if pairs else draws
    points = qmc.Sobol(len(lower[0]), scramble=True, bits=30, rng=rng).random_base2(math.ceil(math.log2(max(number, 2))))[:number] + 2.0**-31
    uniform = np.stack([points, 1 - points], 1).reshape(2 * number, -1)[:draws] if pairs else points
    roots = np.empty((len(dims), draws, rank, rank))
    for which, dim in enumerate(dims):
        factor = np.zeros((draws, rank, rank))
        factor[:, *lower] = special.ndtri(uniform)
        for i in range(rank):
            at = int(np.flatnonzero((lower[0] == i) & (lower[1] == i))[0])
            factor[:, i, i] = np.sqrt(stats.chi2.ppf(uniform[:, at], dim - i))
        value, vector = np.linalg.eigh(factor @ factor.transpose(0, 2, 1) / dim)
        roots[which] = (vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]) @ vector.transpose(0, 2, 1)
    return roots


def _trajectory(where: Coordinates, scaling: Scaling, points, root: Float[np.ndarray, "reduced reduced"], steps: int, nodes: int, tolerance: float):
    """h(1) at all steps in the coordinates of one draw."""
    with reference_precision():
        z, weights = points
        space = where.space.astype(jnp.float64)
        turned = eqx.tree_at(lambda s: (s.start, s.unembedding), space, (space.start @ root.T, root @ space.unembedding))
        fixed, walk = begin(Fixed(where.unit, scaling.traced(jnp.float64), jnp.asarray(weights), turned, jnp.asarray(tolerance)), z, nodes)
        states = np.asarray(_states(fixed, walk, steps))
    if not np.all(np.isfinite(states)):
        raise DivergedError(
            "the Mean ODE at one of the dims left the finite numbers: learning_rate= is too large for this problem. Lower it or take fewer steps."
        )
    return states


@eqx.filter_jit
def _states(fixed: Fixed, walk: Walk, steps: int) -> Float[jax.Array, "step batch reduced"]:
    def step(walk, _):
        walk, h, _ = advance(fixed, walk)
        return walk, h[-1]

    return jax.lax.scan(step, walk, None, length=steps + 1)[1]
