"""The solution of a limit: states over steps and depth-time, with standard errors, and the flow of any unit."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from .._devices import reference_precision
from .._problem import Problem
from .._quadrature import AbstractQuadrature
from .._scaling import Scaling
from .._train import update
from .._unit import AbstractUnit
from . import chebyshev
from .reduction import Coordinates
from .relative import Linearised, Pair


class Budget(NamedTuple):
    """Error of a reference by source, as rms of the last hidden state per coordinate, the worst over steps.

    `nodes`: interpolation in depth-time (nodes against twice as many intervals). `tolerance`: ODE solver (against a hundredth of the tolerance).
    `quadrature`: standard error over the replicates, NaN with one; with kernels, the error of their series (against twice the terms). `integrator`: the other
    integrator at the same nodes, an independent estimate of the error of the nodes; NaN where there is one only.
    """

    nodes: float
    tolerance: float
    quadrature: float
    integrator: float = math.nan


class Limit(eqx.Module):
    r"""Solution of a limit of training: the Neural Mean ODE (`mean_ode`), the tangent ODE (`tangent_ode`) or its full linearisation (`linearised_ode`).

    Numpy float64 throughout. Hidden states are in R^D, rms of order one per coordinate; when D is infinite they are in reduced
    coordinates, whose sum of squares is the mean square of h.
    """

    kind: str
    problem: Problem
    unit: AbstractUnit
    scaling: Scaling
    where: Coordinates
    quadrature: AbstractQuadrature | None  # None: kernels, no sampling
    nodes: Float[np.ndarray, " node"]
    tolerance: float
    hidden_nodes: Float[np.ndarray, "replicate step node batch reduced"]
    adjoint_nodes: Float[np.ndarray, "replicate step node batch reduced"]
    budget: Budget | None
    integrator: str = "diffrax"

    @property
    def steps(self) -> int:
        """Number of gradient steps; states exist for steps 0, ..., `steps`."""
        return self.hidden_nodes.shape[1] - 1

    @property
    def replicates(self) -> int:
        """Independent randomisations of the quadrature."""
        return self.hidden_nodes.shape[0]

    def _step(self, step: int | None) -> int:
        step = self.steps if step is None else step
        if not 0 <= step <= self.steps:
            raise ValueError(f"step={step} is not in this solution; expected 0 to {self.steps}. Integrate with steps={step} or more.")
        return step

    def _se(self, values: Float[np.ndarray, "replicate batch coordinate"]) -> Float[np.ndarray, "batch coordinate"]:
        return np.zeros(values.shape[1:]) if self.quadrature is None else standard_error(values)

    def hidden_replicates(self, step: int | None = None, s: float = 1.0) -> Float[np.ndarray, "replicate batch dim"]:
        """h_step(s) of every replicate."""
        if not 0 <= s <= 1:
            raise ValueError(f"s={s} is not a depth-time; expected a number between 0 and 1, block l of L sits at l/L.")
        row = chebyshev.matrix(np.asarray([s]), len(self.nodes))[0]
        return self.where.to_ambient(np.einsum("i,rinc->rnc", row, self.hidden_nodes[:, self._step(step)]))

    def hidden(self, step: int | None = None, s: float = 1.0) -> Float[np.ndarray, "batch dim"]:
        """h_step(s): hidden state after `step` gradient steps (default: all) at depth-time s in [0, 1]."""
        return self.hidden_replicates(step, s).mean(0)

    def hidden_se(self, step: int | None = None, s: float = 1.0) -> Float[np.ndarray, "batch dim"]:
        """Standard error of every entry of `hidden`; NaN with one replicate of a quadrature, 0 where nothing is sampled."""
        return self._se(self.hidden_replicates(step, s))

    def hidden_error(self, step: int | None = None, s: float = 1.0) -> float:
        """Standard error of `hidden` as one number, root mean square per data point and coordinate of h."""
        return math.sqrt(np.sum(self.hidden_se(step, s) ** 2, axis=-1).mean() / self.where.coordinate_count)

    def output_replicates(self, step: int | None = None) -> Float[np.ndarray, "replicate batch out"]:
        """Outputs of every replicate."""
        space = self.where.space
        return self.hidden_nodes[:, self._step(step), -1] @ space.unembedding * space.inner

    def output(self, step: int | None = None) -> Float[np.ndarray, "batch out"]:
        """f = W_U^T h(1) / D after `step` gradient steps."""
        return self.output_replicates(step).mean(0)

    def output_se(self, step: int | None = None) -> Float[np.ndarray, "batch out"]:
        """Standard error of every output; as `hidden_se`."""
        return self._se(self.output_replicates(step))

    def output_error(self, step: int | None = None) -> float:
        """Standard error of `output` as one number, root mean square over data and outputs."""
        return float(np.sqrt(np.mean(self.output_se(step) ** 2)))

    def loss(self, step: int | None = None) -> float:
        """Training loss after `step` gradient steps."""
        with jax.enable_x64(True):
            return float(self.where.space.astype(jnp.float64).loss(jnp.asarray(self.output(step))))

    def loss_replicates(self) -> Float[np.ndarray, "replicate step"]:
        """Training loss of every replicate at every step."""
        with jax.enable_x64(True):
            outputs = np.stack([self.output_replicates(k) for k in range(self.steps + 1)], 1)
            return np.asarray(jax.vmap(jax.vmap(self.where.space.astype(jnp.float64).loss))(jnp.asarray(outputs)))

    def quadrature_error(self) -> float:
        """The largest standard error of the last hidden state over steps."""
        return max(self.hidden_error(k) for k in range(self.steps + 1))

    def flow(self, z: PyTree[Float[Any, "units ..."]], s: Float[Any, " units"], *, step: int | None = None) -> PyTree[Float[np.ndarray, "units ..."]]:
        r"""Where training carries given units: the McKean-Vlasov copies Z_k(s_j; z_j).

        $$Z_{i+1} = Z_i - \frac{\eta}{\alpha} \sum_x D_z\phi(h_i(s, x), Z_i)^\top b_i(s, x), \qquad i < k$$

        **Arguments:** `z`: initial parameters in R^D, leaves (units, ...); `s`: depth-time of each unit in [0, 1]; `step`: k (default: all steps).

        **Returns:** the parameters after k steps, same structure, float64; of a tangent or linearised limit, alpha times their displacement.

        **Example:** `limit.flow(hw.TwoLayerParams(u0, v0), s=np.array([0.5]))`
        """
        if self.where.reduced and self.where.basis is None:
            raise ValueError("dim=inf has no units in R^D to follow; use problem.with_dim(D, key=...) and integrate again.")
        if not np.all((np.asarray(s) >= 0) & (np.asarray(s) <= 1)):
            raise ValueError("s holds values outside [0, 1]; expected the depth-time l/L of each unit.")
        rows = chebyshev.matrix(np.asarray(s), len(self.nodes))
        tangent = self.kind != "mean_ode"
        unit = Linearised(self.unit) if tangent else self.unit
        with reference_precision():
            z = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), z)
            z = Pair(z, jax.tree.map(jnp.zeros_like, z)) if tangent else z
            for k in range(self._step(step)):
                at = 0 if self.kind == "linearised_ode" else k  # the linearised network reads its units at initialisation, always
                h, b = (self.where.to_ambient(np.einsum("ui,inc->unc", rows, x[:, i].mean(0))) for x, i in ((self.hidden_nodes, at), (self.adjoint_nodes, k)))
                z = _flow_step(unit, self.scaling.traced(jnp.float64), z, jnp.asarray(h), jnp.asarray(b))
            return jax.tree.map(np.asarray, z.now if tangent else z)

    def __repr__(self) -> str:
        where = f"{'reduced' if self.where.reduced else 'ambient'} coordinates in {self.hidden_nodes.shape[-1]} dimensions"
        sampled = f"({self.replicates} replicates of {self.quadrature!r})" if self.quadrature is not None else "(kernels, nothing is sampled)"
        lines = [
            f"{self.kind}({self.problem.name}, {self.unit!r}, {self.scaling.name}, dim={self.problem.dim}, steps={self.steps}, {where})",
            f"  loss      {self.loss(0):.6f} -> {self.loss():.6f}",
            f"  output    standard error {self.output_error():.1e}",
            f"  hidden    standard error {self.hidden_error():.1e}  {sampled}",
        ]
        if self.budget is not None:
            other = f", other integrator {self.budget.integrator:.1e}" if math.isfinite(self.budget.integrator) else ""
            lines.append(f"  budget    nodes {self.budget.nodes:.1e}, tolerance {self.budget.tolerance:.1e}, quadrature {self.budget.quadrature:.1e}{other}")
        return "\n".join(lines)


@eqx.filter_jit
def _flow_step(unit: AbstractUnit, scaling: Scaling, z: PyTree, h, b) -> PyTree:
    """One gradient step of units that each sit at their own depth-time: h, b have shape (units, batch, dim)."""

    def one(z, h, b):
        z = jax.tree.map(lambda x: x[None], z)
        one_unit = jnp.ones((1,), h.dtype)
        _, cache = unit.block(h, z, one_unit)
        _, dz = unit.block_vjp(h, z, one_unit, cache, b)
        return jax.tree.map(lambda x: x[0], update(z, dz, unit.rates(scaling)))

    return jax.vmap(one)(z, h, b)


def standard_error(values: Float[np.ndarray, "replicate batch coordinate"]) -> Float[np.ndarray, "batch coordinate"]:
    """Standard error of the mean over replicates."""
    replicates = len(values)
    if replicates < 2:
        return np.full(values.shape[1:], np.nan)
    return values.std(0, ddof=1) / math.sqrt(replicates)
