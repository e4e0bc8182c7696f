r"""The infinitely wide network of finite depth L, and the pure depth error a/L that it isolates.

Every block holds the same quadrature points of mu_0 at initialisation and trains its own copy: this is the limit M -> infinity at fixed L, an Euler
scheme of step 1/L for the Mean ODE. Run with the same points as a `Limit`, its distance to it is free of sampling noise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from tqdm.auto import tqdm

from .._choices import positive_int
from .._devices import reference_precision
from .._parallel import collect
from .._problem import Problem
from .._quadrature import AbstractQuadrature, Sobol
from .._scaling import Scaling
from .._train import check_hidden_steps, descend
from .._unit import AbstractUnit
from .integrate import DivergedError, standard_points
from .mean_ode import coordinates_of, default_nodes, mean_ode
from .reduction import Coordinates
from .relative import Centred
from .solution import standard_error

#: After many steps the depth error is measured with this many times the usual nodes. The particles are few, so it costs little.
NODE_FACTOR = 5


class InfiniteWidth(eqx.Module):
    """Last hidden states and outputs of the infinitely wide network of depth `depth`; one row a replicate of the quadrature."""

    depth: int
    where: Coordinates
    hidden_steps: tuple[int, ...]
    hidden_replicates: Float[np.ndarray, "replicate recorded batch reduced"]
    output_replicates: Float[np.ndarray, "replicate step batch out"]

    def _recorded(self, step: int | None) -> Float[np.ndarray, "replicate batch dim"]:
        step = self.hidden_steps[-1] if step is None else step
        if step not in self.hidden_steps:
            raise ValueError(f"step={step} was not recorded; hidden states exist at steps {self.hidden_steps}. Pass hidden_steps=({step},).")
        return self.where.to_ambient(self.hidden_replicates[:, self.hidden_steps.index(step)])

    def _seen(self, step: int | None) -> Float[np.ndarray, "replicate batch out"]:
        last = self.output_replicates.shape[1] - 1
        chosen = last if step is None else step
        if not 0 <= chosen <= last:
            raise ValueError(f"step={step} is not in this solution; expected 0 to {last}.")
        return self.output_replicates[:, chosen]

    def hidden(self, step: int | None = None) -> Float[np.ndarray, "batch dim"]:
        """h_L after `step` gradient steps (default: the last recorded one), averaged over replicates."""
        return self._recorded(step).mean(0)

    def hidden_se(self, step: int | None = None) -> Float[np.ndarray, "batch dim"]:
        """Standard error of every entry of `hidden`; NaN with one replicate."""
        return standard_error(self._recorded(step))

    def output(self, step: int | None = None) -> Float[np.ndarray, "batch out"]:
        """Outputs after `step` gradient steps (default: all), averaged over replicates."""
        return self._seen(step).mean(0)

    def output_se(self, step: int | None = None) -> Float[np.ndarray, "batch out"]:
        """Standard error of every output; NaN with one replicate."""
        return standard_error(self._seen(step))


def infinite_width(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    depth: int,
    steps: int,
    quadrature: AbstractQuadrature | None = None,
    coordinates: str = "auto",
    centre: bool = False,
    hidden_steps: tuple[int, ...] | None = None,
) -> InfiniteWidth:
    r"""Train the infinitely wide network of finite depth.

    **Arguments:** as for `mean_ode`, and `depth`: number of blocks L; `hidden_steps`: steps at which the last hidden state is kept (default: the last).

    **Returns:** an `InfiniteWidth`.

    Works in float64. Memory: L x points x (2 r + batch) numbers, a few times over.

    Source: arXiv 2509.10167, the intermediate system of the proof of Theorem 1.

    **Example:** `hw.infinite_width(problem, unit, hw.mlu(), depth=32, steps=10).output()`
    """
    positive_int("depth", depth)
    positive_int("steps", steps)
    quadrature = Sobol() if quadrature is None else quadrature
    where = coordinates_of(problem, unit, scaling, coordinates)
    if centre:
        where = where._replace(unit=Centred(where.unit))
    recorded = check_hidden_steps(hidden_steps, steps)
    runs = collect(lambda i: _run(where, scaling, depth, steps, recorded, quadrature, i), range(quadrature.replicates))
    hidden, output = (np.stack(x) for x in zip(*runs, strict=True))
    if not np.all(np.isfinite(output)):
        raise DivergedError(f"the infinitely wide network of depth={depth} left the finite numbers: learning_rate= is too large for this problem. Lower it.")
    return InfiniteWidth(depth, where, recorded, hidden, output)


def _run(where: Coordinates, scaling: Scaling, depth: int, steps: int, recorded: tuple[int, ...], quadrature: AbstractQuadrature, replicate: int):
    with reference_precision():
        z, weights = jax.tree.map(jnp.asarray, standard_points(where, quadrature, replicate))
        seen = _descend(where.unit, scaling.traced(jnp.float64), z, weights, where.space.astype(jnp.float64), depth, steps, recorded)
        return np.asarray(seen.hidden), np.asarray(seen.output)


@eqx.filter_jit
def _descend(unit, scaling, z, weights, space, depth: int, steps: int, recorded: tuple[int, ...]):
    stack = jax.tree.map(lambda x: jnp.broadcast_to(x, (depth, *x.shape)), z)
    return descend(unit, scaling, stack, weights, space, steps, recorded)[1]


class DepthError(eqx.Module):
    """Infinite-width network minus Mean ODE, with the same quadrature points on both sides: the error of finite depth alone."""

    problem_digest: str
    depths: tuple[int, ...]
    step: int
    hidden: Float[np.ndarray, "replicate depth batch dim"]
    output: Float[np.ndarray, "replicate depth batch out"]


def depth_error(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    depths: tuple[int, ...],
    steps: int,
    quadrature: AbstractQuadrature | None = None,
    coordinates: str = "auto",
    centre: bool = False,
    nodes: int | None = None,
    tolerance: float | None = None,
    integrator: str = "diffrax",
    progress: bool = False,
) -> DepthError:
    r"""Measure  h_L^{M = infinity} - h(1)  after `steps` gradient steps, for several depths.

    The points are shared, so the difference needs far fewer of them than either side (default: 2^11 points, 4 replicates).

    **Arguments:** as for `mean_ode`, and `depths`.

    **Returns:** a `DepthError`, hidden states in R^D (in reduced coordinates when D is infinite).

    **Example:** `hw.depth_error(problem, unit, hw.mlu(), depths=(8, 16, 32), steps=10).output`
    """
    return depth_errors(
        problem, unit, scaling, depths=depths, at=(steps,), quadrature=quadrature, coordinates=coordinates, centre=centre, nodes=nodes,
        tolerance=tolerance, integrator=integrator, progress=progress,
    )[steps]  # fmt: skip


def depth_errors(
    problem: Problem,
    unit: AbstractUnit,
    scaling: Scaling,
    *,
    depths: tuple[int, ...],
    at: tuple[int, ...],
    quadrature: AbstractQuadrature | None = None,
    coordinates: str = "auto",
    centre: bool = False,
    nodes: int | None = None,
    tolerance: float | None = None,
    integrator: str = "diffrax",
    progress: bool = False,
) -> dict[int, DepthError]:
    """`depth_error` at several numbers of gradient steps `at`, from one integration."""
    quadrature = Sobol(log2_points=11, replicates=4) if quadrature is None else quadrature
    depths = tuple(sorted({positive_int("depths", d) for d in depths}))
    steps = max(at)
    # The interpolation error of the Mean ODE does not cancel, and must be small beside a/L of the deepest network.
    nodes = NODE_FACTOR * default_nodes(steps) if nodes is None and steps > 16 else nodes
    limit = mean_ode(
        problem, unit, scaling, steps=steps, quadrature=quadrature, coordinates=coordinates, centre=centre, nodes=nodes, tolerance=tolerance,
        integrator=integrator, budget=False, progress=progress,
    )  # fmt: skip
    hidden, output = {k: [] for k in at}, {k: [] for k in at}
    for depth in tqdm(depths, desc="infinite width", unit="depth", disable=not progress, leave=False):
        net = infinite_width(problem, unit, scaling, depth=depth, steps=steps, quadrature=quadrature, coordinates=coordinates, centre=centre, hidden_steps=at)
        for i, k in enumerate(net.hidden_steps):
            hidden[k].append(net.where.to_ambient(net.hidden_replicates[:, i]) - limit.hidden_replicates(k))
            output[k].append(net.output_replicates[:, k] - limit.output_replicates(k))
    return {k: DepthError(problem.digest(), depths, k, np.stack(hidden[k], 1), np.stack(output[k], 1)) for k in at}
