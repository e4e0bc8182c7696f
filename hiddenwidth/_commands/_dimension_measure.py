"""What `hiddenwidth dimension` measures, step by step; `hiddenwidth shape` takes its constants from the same."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import xarray as xr

from .._ensemble import group_size
from .._lifted import sweep_shapes
from .._limit.dimension import DimensionError, check_dims, dimension_error
from .._limit.infinite_width import DepthError, depth_error
from .._limit.mean_ode import mean_ode
from .._limit.solution import Limit
from .._limit.stability import Horizon, horizon
from .._parallel import default_workers
from .._quadrature import Sobol
from ._dimension_config import DimensionConfig, Sizes

#: Depths at which the depth term is measured, besides those of the networks.
LADDER = (4, 8, 16, 32, 64, 128)


class References(NamedTuple):
    """Everything that needs no network: the limit at D = infinity and its horizon, errors of D and of L alone."""

    limit: Limit
    reach: Horizon
    error: DimensionError
    depth: DepthError

    @property
    def steps(self) -> int:
        """The step at which the law is fitted."""
        return self.reach.step


class NothingLeftError(ValueError):
    """No step lies before the horizon."""


def refuse_early(config: DimensionConfig, sizes: Sizes, shapes: list[tuple[int, int, int]]) -> None:
    """Dims that are too small and networks that do not fit, before anything is computed."""
    problem, unit, _ = config.make()
    rank = problem.inputs.shape[1] + problem.targets.shape[1]
    for what, dims in (("dims", sizes.dims), ("limit_dims", sizes.limit_dims)):
        check_dims(dims, rank, what)
    for depth, width, dim in shapes:
        group_size(problem.with_dim(dim, key=jax.random.key(0)), unit, depth, width, jnp.dtype(config.dtype).itemsize, config.memory / default_workers())


def references(config: DimensionConfig, sizes: Sizes) -> References:
    """Solve the limits. Raises `DivergedError` where training blows up in the limit, `NothingLeftError` where no step is stable."""
    problem, unit, scaling = config.make()
    tolerance = 1e-7 if unit.smooth else None
    limit = mean_ode(
        problem, unit, scaling, steps=sizes.steps, quadrature=Sobol(sizes.log2_points, sizes.replicates), tolerance=tolerance, integrator="collocation",
        progress=config.progress,
    )  # fmt: skip
    reach = horizon(limit)
    if reach.step < 1:
        raise NothingLeftError(f"the law cannot be claimed at any step: {reach}. Lower learning_rate.")
    steps = reach.step
    error = dimension_error(
        problem, unit, scaling, dims=sizes.limit_dims, steps=steps, draws=sizes.draws, tolerance=tolerance, seed=config.seed, progress=config.progress
    )
    depth = depth_error(
        problem, unit, scaling, depths=(*sizes.depths, *LADDER), steps=steps, quadrature=Sobol(sizes.depth_log2_points, 4), integrator="collocation",
        progress=config.progress,
    )  # fmt: skip
    return References(limit, reach, error, depth)


def networks(config: DimensionConfig, sizes: Sizes, found: References) -> xr.Dataset:
    """Networks with orthogonal embeddings over D."""
    return sweep_shapes(
        found.limit, sizes.cells(), seeds=sizes.seeds, embedding="orthogonal", step=found.steps, dtype=jnp.dtype(config.dtype), memory=config.memory,
        progress=config.progress, key=jax.random.fold_in(jax.random.key(config.seed), 1),
    )  # fmt: skip


def fresh_networks(config: DimensionConfig, shapes: list[tuple[int, int, int]], seeds: int, found_limit: Limit, steps: int) -> xr.Dataset:
    """Networks with Gaussian embeddings of their own."""
    return sweep_shapes(
        found_limit, shapes, seeds=seeds, step=steps, dtype=jnp.dtype(config.dtype), memory=config.memory, progress=config.progress,
        key=jax.random.fold_in(jax.random.key(config.seed), 2),
    )  # fmt: skip
