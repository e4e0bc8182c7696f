r"""The linearisation of the whole network in its parameters at initialisation, in the limit of infinite depth and width.

For a centred law the hidden state at initialisation is constant in depth-time and so is the adjoint; the linearised network then obeys kernel gradient descent
with a kernel that never changes,

    h_k(s) = h_0 - s sum_{i<k} sum_x' K(h_0(x), h_0(x')) b_i(x'),        b_i = W_U dLoss/df(f_i)

It does not depend on alpha, and it is not the limit of training as alpha -> infinity: that is the tangent ODE, which stays nonlinear in h. It is what a
linearisation in function space (a neural tangent kernel) gives.
"""

import jax.numpy as jnp
import numpy as np

from .._choices import positive_int
from .._devices import reference_precision
from .._problem import Problem
from .._scaling import Scaling
from .._two_layer import TwoLayer
from .._unit import AbstractUnit
from . import chebyshev
from .kernels import moments_of
from .reduction import span
from .solution import Limit
from .tangent_ode import TERMS


def linearised_ode(problem: Problem, unit: AbstractUnit, scaling: Scaling, *, steps: int, nodes: int = 3) -> Limit:
    r"""Train the linearisation of the infinitely large network around its initialisation, in closed form.

    $$h_k(s) = h_0 - s \sum_{i<k} \sum_{x'} K(h_0, h_0(x'))\, b_i(x')$$

    **Arguments:** as for `tangent_ode`; two-layer units only. `nodes`: at how many depth-times the states are kept (they are linear in s).

    **Returns:** a `Limit`, free of sampling error.

    **Raises:** `ValueError` for another unit.

    Source: the comparison with linearised networks after arXiv 2509.10167, Theorem 2.

    **Example:** `hw.linearised_ode(problem, hw.TwoLayer("erf"), hw.mlu(), steps=5).output()`
    """
    positive_int("steps", steps)
    positive_int("nodes", nodes, at_least=2)
    if not isinstance(unit, TwoLayer):
        raise ValueError(f"{unit!r} has no kernel in closed form; expected a TwoLayer unit.")
    if scaling.fan_in:
        raise ValueError("scaling 'fan_in' has a law that depends on the width M, so it has no limit; use mlu() or lazy(alpha).")
    where = span(problem, unit, scaling)
    tangent = Scaling(1.0, scaling.learning_rate_u, scaling.learning_rate_v, name="tangent")
    at = chebyshev.nodes(nodes)
    with reference_precision():
        space = where.space.astype(jnp.float64)
        start, std = np.asarray(where.space.start), where.std
        square, dot = np.sum(start**2, axis=1) * std.u**2, start @ start.T
        moments = moments_of(unit, TERMS)(jnp.asarray(square)[:, None], jnp.asarray(square)[None], jnp.asarray(std.u**2 * dot))
        kernel = tangent.learning_rate_v * np.asarray(moments.m00) + tangent.learning_rate_u * std.v**2 * np.asarray(moments.m11) * dot
        last, hidden, adjoint = start, [], []
        for _ in range(steps + 1):
            b = np.asarray(space.adjoint(space.readout(jnp.asarray(last))))
            hidden.append(start + at[:, None, None] * (last - start))
            adjoint.append(np.broadcast_to(b, (nodes, *b.shape)))
            last = last - kernel @ b
    return Limit("linearised_ode", problem, unit, tangent, where, None, at, 0.0, np.stack(hidden)[None], np.stack(adjoint)[None], None)
