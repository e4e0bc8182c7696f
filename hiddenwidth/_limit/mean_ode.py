r"""The Neural Mean ODE of training: gradient descent on the infinitely deep, infinitely hidden-wide network.

At step k the units at depth-time s are the push-forward of mu_0 by a map Z_k(s; .), and

    d/ds h_k =  alpha E[phi(h_k, Z_k(s))],                       h_k(0) = h_0
    d/ds b_k = -alpha E[D_h phi(h_k, Z_k(s))^T b_k],             b_k(1) = W_U dLoss/df
    Z_{k+1}(s; z) = Z_k(s; z) - (eta/alpha) sum_x D_z phi(h_k(s, x), Z_k(s; z))^T b_k(s, x),     Z_0(s; z) = z

Representation: quadrature points z_j of mu_0, the same at every s, times Chebyshev nodes in s. Z_k(s; z) is analytic in s for smooth units, so
interpolation between a dozen nodes is exact to about 1e-7, and diffrax integrates both equations on the interpolated parameters.
"""

import equinox as eqx
import numpy as np
from tqdm.auto import tqdm

from .._choices import choose, positive_float, positive_int
from .._parallel import collect, default_workers
from .._problem import Problem
from .._quadrature import AbstractQuadrature, Sobol
from .._scaling import Scaling
from .._unit import AbstractUnit
from . import chebyshev
from .collocation import collocate
from .integrate import FIRST_ODE_STEP, ExhaustedError, integrate
from .reduction import Coordinates, ambient, reduced
from .relative import Centred
from .solution import Budget, Limit

INTEGRATORS = {"diffrax": integrate, "collocation": collocate}


def mean_ode(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    steps: int,
    quadrature: AbstractQuadrature | None = None,
    nodes: int | None = None,
    tolerance: float | None = None,
    coordinates: str = "auto",
    centre: bool = False,
    integrator: str = "diffrax",
    memory: float = 2e9,
    budget: bool = True,
    progress: bool = False,
) -> Limit:
    r"""Integrate the Neural Mean ODE of training over `steps` steps of gradient descent.

    **Arguments:**

    - `problem`, `unit`, `scaling`: what is trained. `problem.dim` may be `math.inf`.
    - `steps`: gradient steps k.
    - `quadrature`: rule for mu_0, by default `Sobol()`; its replicates give the standard errors.
    - `nodes`: Chebyshev nodes in depth-time (default: 12 up to 16 steps, then one more a step, as units grow rougher in s while they train).
    - `tolerance`: relative and absolute tolerance of the ODE solver (default: 1e-8; 1e-5 for an activation with a kink).
    - `coordinates`: `"reduced"` (exact reduction to the span of the data, for Gaussian two-layer units, any D and D infinite), `"ambient"` (R^D, any
      unit) or `"auto"` (reduced where it is proved).
    - `centre`: integrate phi(h, z) - E phi(h, z0). The same limit where E phi(h, z0) = 0, but without the error of the quadrature times alpha: for large alpha.
    - `integrator`: `"diffrax"` (Dopri8 with adaptive steps on interpolated parameters) or `"collocation"` (the nodes as unknowns: the same to the error of
      the nodes, several times faster where units are smooth).
    - `memory`: bytes for the particles of all replicates that run at once. Collocation computes their flow anew from the states when they do not fit.
    - `budget`: also estimate the errors of nodes and tolerance, by refining both on a small quadrature, and compare the two integrators there.
    - `progress`: show a progress bar.

    **Returns:** a `Limit`: states at every step and depth-time with standard errors, the flow of any unit, and the error budget.

    **Raises:** `ValueError` for sizes or names that are not possible, for D infinite in ambient coordinates, when the limit itself
    blows up, and when the solver runs out of steps at this tolerance.

    Works in float64 whatever JAX's precision switch says.

    Source: arXiv 2509.10167, Theorem 1.

    **Example:**

    ```python
    problem = hw.problems.sine(8, dim=math.inf)
    limit = hw.mean_ode(problem, hw.TwoLayer("tanh"), hw.mlu(), steps=10, quadrature=hw.Sobol(8, 4))
    limit.output(10), limit.output_error(10)
    ```
    """
    positive_int("steps", steps)
    nodes = default_nodes(steps) if nodes is None else positive_int("nodes", nodes, at_least=3)
    tolerance = default_tolerance(unit) if tolerance is None else positive_float("tolerance", tolerance)
    solve = choose("integrator", integrator, INTEGRATORS)
    positive_float("memory", memory)
    quadrature = Sobol() if quadrature is None else quadrature
    where = coordinates_of(problem, unit, scaling, coordinates)
    if centre:
        where = where._replace(unit=Centred(where.unit))
    bar = tqdm(total=steps * quadrature.replicates, desc="mean ODE", unit="step", disable=not progress, leave=False)
    share = memory / min(quadrature.replicates, default_workers())
    with bar:
        runs = collect(lambda i: solve(where, scaling, quadrature, i, steps, nodes, tolerance, memory=share, tick=bar.update), range(quadrature.replicates))
    hidden, adjoint = (np.stack(x) for x in zip(*runs, strict=True))
    solution = Limit("mean_ode", problem, unit, scaling, where, quadrature, chebyshev.nodes(nodes), tolerance, hidden, adjoint, None, integrator)
    return refine(solution) if budget else solution


def refine(solution: Limit) -> Limit:
    """The solution with its error budget."""
    return eqx.tree_at(lambda s: s.budget, solution, _budget(solution), is_leaf=lambda x: x is None)


def default_nodes(steps: int) -> int:
    """Enough for an interpolation error far below that of the quadrature."""
    return 12 + max(0, steps - 16)


def default_tolerance(unit: AbstractUnit) -> float:
    """Of the ODE solver: an adaptive high-order solver cannot go far below 1e-5 when every particle has a kink."""
    return 1e-8 if unit.smooth else 1e-5


def coordinates_of(problem: Problem, unit: AbstractUnit, scaling: Scaling, coordinates: str) -> Coordinates:
    """The coordinates that a user's word stands for."""
    choose("coordinates", coordinates, {"auto": None, "reduced": None, "ambient": None})
    if scaling.fan_in:
        raise ValueError("scaling 'fan_in' has a law that depends on the width M, so it has no Mean ODE; use mlu() or lazy(alpha).")
    if coordinates == "reduced" or (coordinates == "auto" and unit.rotation_invariant(1)):
        return reduced(problem, unit, scaling)
    return ambient(problem, unit, scaling)


def _budget(solution: Limit) -> Budget:
    """Errors of nodes and tolerance by refinement on one small replicate (the same points on both sides, so their own error cancels)."""
    small = Sobol(log2_points=8, replicates=1)
    steps, nodes, tolerance, own = solution.steps, len(solution.nodes), solution.tolerance, solution.integrator

    def last(case: tuple[int, float, float, str]):
        # Few particles: they fit, whatever `memory` was.
        try:
            return INTEGRATORS[case[3]](solution.where, solution.scaling, small, 0, steps, case[0], case[1], first_step=case[2])[0][:, -1]
        except ExhaustedError:  # few points are rougher than many: what they cannot show is not estimated
            return None

    # The tighter run also starts with another step: at loose tolerances both would accept the same steps and agree to the last bit.
    cases = [
        (nodes, tolerance, FIRST_ODE_STEP, own),
        (2 * nodes - 1, tolerance, FIRST_ODE_STEP, own),
        (nodes, tolerance / 100, FIRST_ODE_STEP / 3, own),
        (nodes, tolerance, FIRST_ODE_STEP, next(name for name in INTEGRATORS if name != own)),
    ]
    base, finer, tighter, other = collect(last, cases)

    def rms(changed) -> float:
        if base is None or changed is None:
            return float("nan")
        square = np.sum(solution.where.to_ambient(changed - base) ** 2, axis=-1) / solution.where.coordinate_count
        return float(np.sqrt(square.mean(1)).max())

    return Budget(nodes=rms(finer), tolerance=rms(tighter), quadrature=solution.quadrature_error(), integrator=rms(other))
