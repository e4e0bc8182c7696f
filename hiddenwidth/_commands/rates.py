"""`hiddenwidth rates`: the error law of Theorem 1, term by term, with a verdict."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .. import _record, plot
from .._claims import table
from .._ensemble import group_size
from .._law_fit import RANGE_RULE
from .._limit.infinite_width import depth_error
from .._limit.integrate import DivergedError
from .._limit.mean_ode import mean_ode
from .._limit.solution import Limit
from .._limit.stability import Horizon, horizon
from .._parallel import default_workers
from .._quadrature import Sobol
from .._rates import LADDER, RateFit, fit_rates
from .._scaling import mlu
from .._sweep import Interrupted, sweep
from .._two_layer import TwoLayer
from ._outcome import Outcome, all_diverged
from ._rates_config import RatesConfig as RatesConfig, Sizes, check


def run(config: RatesConfig) -> Outcome:
    """Run the command: reference, networks, fit, record, picture."""
    start = time.perf_counter()
    sizes = config.sizes()
    check(config, sizes)
    problem = config.make_problem(sizes.dim)
    unit = TwoLayer(config.activation, config.law)
    scaling = mlu(config.learning_rate, learning_rate_u=config.learning_rate_u, learning_rate_v=config.learning_rate_v)
    group_size(problem, unit, max(sizes.depths), max(sizes.widths), jnp.dtype(config.dtype).itemsize, config.memory / default_workers())
    _record.prepare_directory(config.out, config.overwrite)
    common = {"config": dataclasses.asdict(config) | dataclasses.asdict(sizes), "dtype": config.dtype}

    def keep(runs: xr.Dataset, **extra: Any) -> None:
        diverged = int((runs.diverged_at >= 0).sum())
        _record.write(config.out, "rates", runs, [], reference={}, diverged=diverged, wall_s=time.perf_counter() - start, **common, **extra)

    limit: Limit | None = None
    reach: Horizon | None = None
    blown_up = ""
    try:
        limit = _reference(config, sizes, problem, unit, scaling)
        reach = horizon(limit)
        if reach.step == 0:
            return Outcome(1, f"The law cannot be claimed at any step: {reach}. Lower --learning-rate.")
        sizes = dataclasses.replace(sizes, steps=min(sizes.steps, reach.step))
    except DivergedError as error:  # the networks are still run: how many of them diverge, and where, is what the user needs to see
        blown_up = str(error).replace("learning_rate= is", "--learning-rate is")
    try:
        runs = sweep(
            problem, unit, scaling, depths=sizes.depths, widths=sizes.widths, seeds=sizes.seeds, steps=sizes.steps,
            dtype=jnp.dtype(config.dtype), memory=config.memory, progress=config.progress, key=jax.random.fold_in(jax.random.key(config.seed), 1),
        )  # fmt: skip
    except Interrupted as stop:
        keep(stop.runs, interrupted=True)
        finished = int(stop.runs.done.sum())
        return Outcome(130, f"Interrupted: {finished} of {stop.runs.done.size} cells were finished and kept in {config.out}/rates.nc.")
    keep(runs)
    lost = all_diverged(runs)
    if lost or limit is None or reach is None:
        return Outcome(1, f"{lost or blown_up} The networks are kept in {config.out}/rates.nc. Lower --learning-rate.")
    try:
        return _finish(config, sizes, problem, unit, scaling, runs, limit, reach, common, start)
    except KeyboardInterrupt:
        return Outcome(130, f"Interrupted: all networks were finished and are kept in {config.out}/rates.nc; the fit was not.")


def _finish(config: RatesConfig, sizes: Sizes, problem, unit, scaling, runs: xr.Dataset, limit: Limit, reach: Horizon, common, start: float) -> Outcome:
    """Fit, write, draw, report."""
    depth = depth_error(
        problem, unit, scaling, depths=(*sizes.depths, *LADDER), steps=sizes.steps,
        quadrature=Sobol(sizes.depth_log2_points, 4), integrator="collocation", progress=config.progress,
    )  # fmt: skip
    fit = fit_rates(runs, limit, depth, reach=reach)
    data = xr.merge([runs, fit.data, _reference_data(limit, sizes.steps)], combine_attrs="drop_conflicts", compat="no_conflicts", join="exact")
    reference = {
        "standard_error": {"hidden": limit.hidden_error(sizes.steps), "output": limit.output_error(sizes.steps)},
        "budget": limit.budget._asdict() if limit.budget else None,
        "coordinates": "reduced" if limit.where.reduced else "ambient",
    }
    diverged = int((runs.diverged_at >= 0).sum())
    _record.write(
        config.out, "rates", data, fit.claims, reference=reference, diverged=diverged, wall_s=time.perf_counter() - start,
        range_rule=RANGE_RULE, goodness=fit.goodness, horizon=reach._asdict(), **common,
    )  # fmt: skip
    draw(config.out)
    return Outcome(0, _report(config, sizes, limit, reach, fit, diverged, time.perf_counter() - start))


def _reference(config: RatesConfig, sizes: Sizes, problem, unit: TwoLayer, scaling) -> Limit:
    tolerance = 1e-7 if unit.smooth else None
    quadrature = Sobol(sizes.log2_points, sizes.replicates)
    return mean_ode(problem, unit, scaling, steps=sizes.steps, quadrature=quadrature, tolerance=tolerance, integrator="collocation", progress=config.progress)


def _reference_data(limit, steps: int) -> xr.Dataset:
    return xr.Dataset(
        {
            "limit_hidden": (("limit_replicate", "batch", "dim"), limit.hidden_replicates(steps)),
            "limit_output": (("limit_replicate", "step", "batch", "out"), np.stack([limit.output_replicates(k) for k in range(steps + 1)], 1)),
        }
    )


def draw(out: Path) -> None:
    """Draw OUT/rates.png from OUT/rates.json and OUT/rates.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "rates")
    c = record.info["config"]
    title = (
        f"{c['problem']}: D = {c['dim']}, {record.data.sizes['step'] - 1} steps at learning rate {c['learning_rate']:g}, {c['activation']} units, "
        f"{c['seeds']} initialisations a point (bars: 95 %)"
    )
    axes = plot.rates(record.data, record.info["claims"], title=title)
    axes[0, 0].figure.savefig(out / "rates.png", dpi=110)
    plt.close(axes[0, 0].figure)


def _report(config: RatesConfig, sizes: Sizes, limit, reach: Horizon, fit: RateFit, diverged: int, wall: float) -> str:
    grid = f"depths={','.join(map(str, sizes.depths))} widths={','.join(map(str, sizes.widths))}"
    errors = f"{limit.output_error(sizes.steps):.1e} (output), {limit.hidden_error(sizes.steps):.1e} (hidden)"
    lines = [
        f"{config.problem}: n={len(limit.problem.inputs)} D={sizes.dim} steps={sizes.steps} seeds={sizes.seeds} {grid}",
        f"Mean ODE: loss {limit.loss(0):.4f} -> {limit.loss(sizes.steps):.4f}; standard error {errors}",
        f"{reach}" + (f": the law is fitted at step {sizes.steps}, not {reach.last}" if sizes.steps < reach.last else ""),
        "",
        table(fit.claims),
        "",
    ]
    for name, g in fit.goodness.items():
        if "chi2" in g:
            lines.append(f"{name}: chi2 {g['chi2']:.1f} for {g['dof']} degrees of freedom (p = {g['p_value']:.2f}), {g['cells_used']} of {g['cells']} cells")
    lines.append(f"diverged: {diverged} of {runs_count(sizes)} networks. {wall:.0f} s. Record in {config.out}/rates.json, .nc, .png")
    return "\n".join(lines)


def runs_count(sizes: Sizes) -> int:
    """How many networks the grid holds."""
    return len(set(sizes.depths)) * len(set(sizes.widths)) * sizes.seeds
