r"""The tangent ODE: the limit of training as alpha -> infinity, linear in the parameters and still nonlinear in h.

Units move by 1/alpha, so only the first order of phi in its parameters survives. For a law with E phi(h, z0) = 0,

    d/ds h_k(s, x) = - sum_{i<k} sum_x' K(h_k(s, x), h_i(s, x')) b_i(s, x'),       K(h, h') = E[D_z phi(h, z0) eta D_z phi(h', z0)^T]
    d/ds b_k(s, x) = + sum_{i<k} sum_x' D_h [b_k(s, x)^T K(h_k(s, x), h_i(s, x')) b_i(s, x')]

It is the Mean ODE of the linearised unit, and any unit may be integrated so. For two-layer units the kernel is known,

    K(a, a') = k(a, a') I,      k = eta_v m_00 + eta_u rho_v^2 m_11 (a . a')       (moments of the activation: kernels.py)

whatever the law of v is, as only its second moments enter; then there is no sampling error at all.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tqdm.auto import tqdm

from .._choices import choose, positive_float, positive_int
from .._devices import reference_precision
from .._parallel import collect
from .._problem import Problem, StateSpace
from .._quadrature import AbstractQuadrature, Sobol
from .._scaling import Scaling
from .._two_layer import TwoLayer
from .._unit import AbstractUnit
from . import chebyshev
from .integrate import FIRST_ODE_STEP, DivergedError, ExhaustedError, forward_backward, integrate, standard_points
from .kernels import MomentFunction, has_closed_form, moments_of
from .mean_ode import coordinates_of, default_tolerance, refine
from .reduction import Coordinates, span
from .relative import Linearised
from .solution import Budget, Limit

#: Terms of Mehler's series for kernels without a closed form.
TERMS = 200
#: A law counts as centred when |E phi| at the data stays below this many standard errors, or this share of the size of phi.
CENTRED_SE, CENTRED_SHARE = 5.0, 1e-6


def tangent_ode(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    steps: int,
    quadrature: AbstractQuadrature | None = None,
    nodes: int = 16,
    tolerance: float | None = None,
    coordinates: str = "auto",
    centre: bool = False,
    budget: bool = True,
    progress: bool = False,
) -> Limit:
    r"""Integrate the tangent (lazy) ODE over `steps` steps of gradient descent.

    $$\partial_s h_k(s, x) = -\sum_{i<k} \sum_{x'} K(h_k(s, x), h_i(s, x'))\, b_i(s, x'), \qquad
      K(h, h') = \mathbb E[D_z\phi(h, z_0)\, \eta\, D_z\phi(h', z_0)^\top]$$

    **Arguments:**

    - `problem`, `unit`, `scaling`: as for `mean_ode`; of the scaling only the learning rates matter, alpha has gone to infinity.
    - `quadrature`: rule for the expectation in K. Default: for two-layer units none (kernels in closed form, or by Mehler's series), otherwise `Sobol()`.
    - `nodes`, `tolerance`, `coordinates`, `budget`, `progress`: as for `mean_ode` (default tolerance with kernels: 1e-10).
    - `centre`: for a law with E phi(h, z0) != 0, take the unit phi - E phi instead. Without it such a law is refused: alpha E phi would blow up.

    **Returns:** a `Limit`, as `mean_ode` does; `flow` gives alpha times the displacement of a unit. With kernels there is one replicate and
    the standard errors are 0.

    **Raises:** `ValueError` for a law that is not centred, and as `mean_ode`.

    Source: arXiv 2509.10167, Theorem 2.

    **Example:**

    ```python
    limit = hw.tangent_ode(hw.problems.sine(8, dim=math.inf), hw.TwoLayer("erf"), hw.mlu(), steps=5)
    limit.output()
    ```
    """
    positive_int("steps", steps)
    positive_int("nodes", nodes, at_least=3)
    if isinstance(unit, TwoLayer) and quadrature is None and coordinates != "ambient":
        choose("coordinates", coordinates, {"auto": None, "reduced": None})
        tolerance = (1e-10 if unit.smooth else 1e-6) if tolerance is None else positive_float("tolerance", tolerance)
        return _with_kernels(problem, unit, scaling, steps, nodes, tolerance, budget, progress)
    tolerance = default_tolerance(unit) if tolerance is None else positive_float("tolerance", tolerance)
    quadrature = Sobol() if quadrature is None else quadrature
    here = coordinates_of(problem, unit, scaling, coordinates)
    if not centre:
        _refuse_bias(here, quadrature)
    linearised = here._replace(unit=Linearised(here.unit))
    tangent = Scaling(1.0, scaling.learning_rate_u, scaling.learning_rate_v, name="tangent")
    with tqdm(total=steps * quadrature.replicates, desc="tangent ODE", unit="step", disable=not progress, leave=False) as bar:
        runs = collect(lambda i: integrate(linearised, tangent, quadrature, i, steps, nodes, tolerance, tick=bar.update), range(quadrature.replicates))
    hidden, adjoint = (np.stack(x) for x in zip(*runs, strict=True))
    solution = Limit("tangent_ode", problem, unit, tangent, linearised, quadrature, chebyshev.nodes(nodes), tolerance, hidden, adjoint, None)
    return refine(solution) if budget else solution


def _refuse_bias(where: Coordinates, quadrature: AbstractQuadrature) -> None:
    """Measure E phi(h, z0) at the data, at twice and at minus the data."""
    if isinstance(where.unit, TwoLayer):
        return  # v is independent of u and has mean zero
    with jax.enable_x64(True):
        start = jnp.asarray(where.space.start, jnp.float64)
        h = jnp.concatenate([start, 2 * start, -start])
        means, sizes, points = [], [], 1
        for i in range(quadrature.replicates):
            z, weights = jax.tree.map(jnp.asarray, standard_points(where, quadrature, i))
            means.append(np.asarray(where.unit.block(h, z, weights)[0]))
            points = len(weights)
            phi = jax.vmap(where.unit, in_axes=(None, 0))(h[0], z)
            sizes.append(float(jnp.sqrt(jnp.mean(phi**2))))
    mean, size = np.mean(means, axis=0), float(np.mean(sizes))
    spread = np.std(means, axis=0, ddof=1) if len(means) > 1 else np.full_like(mean, size / math.sqrt(points))
    noise = float(np.sqrt(np.mean(spread**2) / len(means)))
    bias = float(np.sqrt(np.mean(mean**2)))
    if bias > max(CENTRED_SE * noise, CENTRED_SHARE * size):
        raise ValueError(
            f"the law of this unit has E phi(h, z) != 0 (rms {bias:.2g} at the data, phi itself has rms {size:.2g}); expected a centred law, because "
            "alpha E phi grows without bound. Pass centre=True to take phi - E phi, or use a law that is symmetric in the writing weights."
        )


class _Past(eqx.Module):
    """States and adjoints of the steps taken so far, padded with zeros (a zero adjoint contributes nothing)."""

    hidden: Float[Array, "past node batch reduced"]
    adjoint: Float[Array, "past node batch reduced"]

    def at(self, s: Float[Array, ""]) -> tuple[Float[Array, "pairs reduced"], Float[Array, "pairs reduced"]]:
        """(h_i(s, x'), b_i(s, x')) for all i and x', in one row each."""
        row = chebyshev.row(s, self.hidden.shape[1])
        h, b = (jnp.einsum("s,psxc->pxc", row, x) for x in (self.hidden, self.adjoint))
        return h.reshape(-1, h.shape[-1]), b.reshape(-1, b.shape[-1])


@eqx.filter_jit
def _solve(unit: TwoLayer, terms: int, scaling: Scaling, rho_u, rho_v, past: _Past, space: StateSpace, tolerance, first_step):
    """h and b at the nodes after the steps in `past`."""
    moments: MomentFunction = moments_of(unit, terms)
    eta_u, eta_v = scaling.learning_rate_u * rho_v**2, scaling.learning_rate_v

    def pairs(h, past_h):
        q11, q22, dot = rho_u**2 * jnp.sum(h**2, -1)[:, None], rho_u**2 * jnp.sum(past_h**2, -1)[None], h @ past_h.T
        return moments(q11, q22, rho_u**2 * dot), dot

    def field(s, h):
        past_h, past_b = past.at(s)
        m, dot = pairs(h, past_h)
        return -(eta_v * m.m00 + eta_u * m.m11 * dot) @ past_b

    def adjoint_field(s, h, b):
        # grad k = eta_v rho_u^2 (m_11 a' + m_20 a) + eta_u [rho_u^2 (m_22 a' + m_31 a) a.a' + m_11 a']
        past_h, past_b = past.at(s)
        m, dot = pairs(h, past_h)
        common = b @ past_b.T
        along_past = eta_v * rho_u**2 * m.m11 + eta_u * (rho_u**2 * m.m22 * dot + m.m11)
        along_self = rho_u**2 * (eta_v * m.m20 + eta_u * m.m31 * dot)
        return (common * along_past) @ past_h + jnp.sum(common * along_self, axis=1, keepdims=True) * h

    return forward_backward(field, adjoint_field, space, jnp.asarray(chebyshev.nodes(past.hidden.shape[1])), tolerance, first_step)


def _integrate(
    where: Coordinates, scaling: Scaling, steps: int, nodes: int, tolerance: float, terms: int,
    tick: Callable[[], object] = lambda: None, first_step: float = FIRST_ODE_STEP,
):  # fmt: skip
    """(h, b) at all steps and nodes by the kernels."""
    assert isinstance(where.unit, TwoLayer)
    with reference_precision():
        space, traced = where.space.astype(jnp.float64), scaling.traced(jnp.float64)
        rho_u, rho_v, tol, first = (jnp.asarray(x, jnp.float64) for x in (*where.std, tolerance, first_step))
        shape = (nodes, *where.space.start.shape)
        hidden, adjoint = np.zeros((steps + 1, *shape)), np.zeros((steps + 1, *shape))
        for k in range(steps + 1):
            past = _Past(jnp.asarray(hidden[:steps]), jnp.asarray(adjoint[:steps]))  # steps to come are zeros: one shape, compiled once
            h, b = _solve(where.unit, terms, traced, rho_u, rho_v, past, space, tol, first)
            hidden[k], adjoint[k] = np.asarray(h), np.asarray(b)
            if not np.all(np.isfinite(hidden[k])):
                _give_up(k, np.abs(adjoint[:k]).max(initial=0.0), tolerance)
            tick()
    return hidden, adjoint


def _give_up(step: int, size: float, tolerance: float) -> None:
    if not size < 1e3:
        raise DivergedError(f"the tangent ODE blew up by step {step}: learning_rate= is too large for this problem. Lower it or take fewer steps.")
    raise ExhaustedError(f"the ODE solver ran out of steps at tolerance={tolerance:g} (gradient step {step}). Raise tolerance or lower learning_rate.")


def _with_kernels(problem: Problem, unit: TwoLayer, scaling: Scaling, steps: int, nodes: int, tolerance: float, budget: bool, progress: bool) -> Limit:
    if scaling.fan_in:
        raise ValueError("scaling 'fan_in' has a law that depends on the width M, so it has no tangent ODE; use mlu() or lazy(alpha).")
    where = span(problem, unit, scaling)
    tangent = Scaling(1.0, scaling.learning_rate_u, scaling.learning_rate_v, name="tangent")
    with tqdm(total=steps + 1, desc="tangent ODE", unit="step", disable=not progress, leave=False) as bar:
        hidden, adjoint = _integrate(where, tangent, steps, nodes, tolerance, TERMS, bar.update)
    solution = Limit("tangent_ode", problem, unit, tangent, where, None, chebyshev.nodes(nodes), tolerance, hidden[None], adjoint[None], None)
    return _kernel_budget(solution) if budget else solution


def _kernel_budget(solution: Limit) -> Limit:
    """Errors of nodes, tolerance and Mehler's series, each by refinement of the solution itself."""
    nodes, tolerance, where = len(solution.nodes), solution.tolerance, solution.where
    cases: list[dict[str, Any]] = [{"nodes": 2 * nodes - 1}, {"tolerance": tolerance / 100, "first_step": FIRST_ODE_STEP / 3}]
    if not has_closed_form(where.unit):  # pyright: ignore[reportArgumentType]
        cases.append({"terms": 2 * TERMS})
    given = {"nodes": nodes, "tolerance": tolerance, "terms": TERMS}

    def change(case: dict[str, Any]) -> float:
        try:
            finer = _integrate(where, solution.scaling, solution.steps, **(given | case))[0]
        except ExhaustedError:
            return float("nan")
        gap = where.to_ambient(finer[:, -1] - solution.hidden_nodes[0, :, -1])
        return float(np.sqrt((np.sum(gap**2, axis=-1) / where.coordinate_count).mean(1)).max())

    errors = collect(change, cases)
    return eqx.tree_at(lambda s: s.budget, solution, Budget(errors[0], errors[1], errors[2] if len(errors) > 2 else 0.0), is_leaf=lambda x: x is None)
