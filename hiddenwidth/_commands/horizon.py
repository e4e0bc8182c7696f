"""`hiddenwidth horizon`: constants over the number of steps, and the stability horizon of the limit."""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .. import _record, plot
from .._claims import Claim, claim, doubted, table
from .._dimension_fit import MAX_WIDTH as DIMENSION_WIDTH
from .._dimension_laws import fit_limit
from .._ensemble import group_size
from .._limit.dimension import DimensionError, check_dims, dimension_error
from .._limit.infinite_width import depth_errors
from .._limit.integrate import DivergedError
from .._limit.mean_ode import mean_ode
from .._limit.stability import Horizon, horizon, stability
from .._over_steps import claims_over_steps, dataset_over_steps, growth_table, jointly
from .._parallel import default_workers
from .._problem import Problem
from .._quadrature import Sobol
from .._rates import OBSERVABLES
from .._scaling import Scaling, mlu
from .._sweep import Interrupted, sweep
from .._two_layer import TwoLayer
from ._horizon_config import HorizonConfig as HorizonConfig, Sizes, check
from ._outcome import Outcome, all_diverged

#: Nodes of Mean ODE(D) minus Mean ODE(infinity): their error is common to both and cancels, so fewer do than for either.
NODES = 20


class Measured(NamedTuple):
    """Everything about one learning rate; `flat` is the horizon at D = infinity."""

    reach: Horizon
    flat: Horizon
    by_step: dict[int, list[Claim]]
    data: xr.Dataset
    diverged: int


def run(config: HorizonConfig) -> Outcome:
    """Run the command: for every learning rate the limit, its stability, networks, fits at every step."""
    start = time.perf_counter()
    sizes = config.sizes()
    check(config, sizes)
    problem = config.make_problem(config.dim)
    unit = TwoLayer(config.activation, config.law)
    check_dims(sizes.dims, problem.inputs.shape[1] + problem.targets.shape[1])
    group_size(problem, unit, max(sizes.depths), max(sizes.widths), jnp.dtype(config.dtype).itemsize, config.memory / default_workers())
    _record.prepare_directory(config.out, config.overwrite)
    found: dict[float, Measured] = {}
    lost, interrupted = "", False
    for rate in sorted(config.learning_rates):
        try:
            found[rate] = _measure(config, sizes, problem, unit, mlu(rate))
        except DivergedError as error:
            lost = f"At learning rate {rate:g}: {str(error).replace('learning_rate= is', 'the rate is')}"
            break
        except (Interrupted, KeyboardInterrupt):
            interrupted = True
            break
    if found:
        claims = _claims(found)
        data: Any = xr.concat([m.data for m in found.values()], "learning_rate", join="outer").assign_coords(learning_rate=list(found))
        _record.write(
            config.out, "horizon", data, claims, reference={"horizon": {f"{rate:g}": m.reach._asdict() for rate, m in found.items()}},
            diverged=sum(m.diverged for m in found.values()), config=dataclasses.asdict(config) | dataclasses.asdict(sizes), dtype=config.dtype,
            wall_s=time.perf_counter() - start, interrupted=interrupted,
            growth={f"{rate:g}": growth_table(m.data, m.reach, m.flat) for rate, m in found.items()},
        )  # fmt: skip
        draw(config.out)
    where = f"{config.out}/horizon.json" if found else "nowhere"
    if interrupted:
        return Outcome(130, f"Interrupted: {len(found)} of {len(config.learning_rates)} learning rates were finished and kept in {where}.")
    if lost:
        return Outcome(1, f"{lost} Smaller rates are kept in {where}. Lower --learning-rates.")
    return Outcome(0, _report(config, found, time.perf_counter() - start))


def _measure(config: HorizonConfig, sizes: Sizes, problem: Problem, unit: TwoLayer, scaling: Scaling) -> Measured:
    key, progress = jax.random.key(config.seed), config.progress
    infinite, tolerance = problem.with_dim(math.inf), 1e-7 if unit.smooth else None
    limit, flat_limit = (
        mean_ode(p, unit, scaling, steps=config.steps, quadrature=rule, tolerance=tolerance, integrator="collocation", budget=False, progress=progress)
        for p, rule in ((problem, Sobol(sizes.log2_points, 4)), (infinite, Sobol(9, 2)))
    )
    reach, flat = horizon(limit), horizon(flat_limit)
    stable = stability(problem, unit, scaling, steps=config.steps, key=jax.random.fold_in(key, 3))
    at = tuple(sorted({k for k in (*sizes.recorded, config.steps, reach.step, flat.step) if 1 <= k <= config.steps}))
    runs = sweep(
        problem, unit, scaling, depths=sizes.depths, widths=sizes.widths, seeds=sizes.seeds_by_width(), steps=config.steps, hidden_steps=at,
        dtype=jnp.dtype(config.dtype), memory=config.memory, progress=progress, key=jax.random.fold_in(key, 1),
    )  # fmt: skip
    everyone = all_diverged(runs)
    if everyone:
        raise DivergedError(f"{everyone} learning_rate= is too large.")
    depth = depth_errors(
        problem,
        unit,
        scaling,
        depths=(*sizes.depths, *sizes.reference_depths),
        at=at,
        quadrature=Sobol(sizes.depth_log2_points, 4, symmetric=True),
        tolerance=1e-9 if unit.smooth else None,
        integrator="collocation",
        progress=progress,
    )
    by_step = claims_over_steps(runs, limit, depth, reach)
    error = dimension_error(infinite, unit, scaling, dims=sizes.dims, steps=config.steps, draws=sizes.draws, nodes=NODES, progress=progress)
    _add_dimension_law(error, at, flat, by_step, np.random.default_rng(config.seed))
    data = dataset_over_steps(by_step, reach, flat).merge(stable.rename({"step": "every_step"}))
    data["horizon"], data["flat_horizon"], data["overshoots_from"] = reach.step, flat.step, reach.overshoots_from
    return Measured(reach, flat, by_step, data, int((runs.diverged_at >= 0).sum()))


def _add_dimension_law(error: DimensionError, at: tuple[int, ...], reach: Horizon, by_step: dict[int, list[Claim]], rng: np.random.Generator) -> None:
    """1/sqrt(D) of Mean ODE(D) against Mean ODE(infinity), fitted at every step, claimed up to the horizon at D = infinity."""
    source = "large D, 1/sqrt(D)"
    for name in OBSERVABLES:
        squares = getattr(error, name)
        for k in at:
            fit = fit_limit(np.asarray(error.dims, float), squares[:, :, k], error.reduced, 400, rng)[0]
            exponent, constant = fit.exponents["exponent"], fit.constant
            found = [
                claim(f"{name}.limit.constant", constant.value, constant.se, constant.half_width, source=source),
                claim(
                    f"{name}.limit.exponent", exponent.value, exponent.se, exponent.half_width,
                    theory=-0.5, max_width=DIMENSION_WIDTH[f"{name}.limit.exponent"], source=source,
                ),
            ]  # fmt: skip
            by_step[k] += [doubted(c, f"step {k} is beyond the {reach}, D = infinity") for c in found] if k > reach.step else found


def _claims(found: dict[float, Measured]) -> list[Claim]:
    """All claims, with learning rate and step in their names."""
    claims = []
    for rate, m in found.items():
        label = f"eta={rate:g}"
        for k, some in m.by_step.items():
            claims += [c._replace(name=f"{label}.{c.name}[k={k}]") for c in some]
        claims += [c._replace(name=f"{label}.{c.name}") for c in jointly(m.by_step, m.reach, m.flat)]
    return claims


def _at_horizons(m: Measured) -> list[tuple[int, Claim]]:
    """The exponents at the last step at which each is claimed."""
    found = []
    for limit_law, reach in ((False, m.reach), (True, m.flat)):
        last = max((k for k in m.by_step if k <= reach.step), default=0)
        found += [(last, c) for c in m.by_step.get(last, []) if "exponent" in c.name and (".limit." in c.name) == limit_law]
    return found


def draw(out: Path) -> None:
    """Draw OUT/horizon.png from OUT/horizon.json and OUT/horizon.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "horizon")
    c = record.info["config"]
    axes = plot.horizon(record.data, title=f"{c['problem']}: D = {c['dim']}, {c['activation']} units, {_many(c['seeds'])} initialisations a point (bars: 95 %)")
    axes[0, 0].figure.savefig(out / "horizon.png", dpi=110)
    plt.close(axes[0, 0].figure)


def _many(seeds: list[int]) -> str:
    return str(seeds[0]) if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"


def _report(config: HorizonConfig, found: dict[float, Measured], wall: float) -> str:
    lines = [f"{config.problem}: D={config.dim}, {config.steps} steps"]
    for rate, m in found.items():
        last = max((k for k in m.by_step if k <= m.reach.step), default=min(m.by_step))
        lines += ["", f"eta = {rate:g}: {m.reach}", f"           at D = infinity: {m.flat}"]
        lines += ["", "all steps up to the horizon together; value and joint interval of the step furthest from theory:"]
        lines += ["", table(jointly(m.by_step, m.reach, m.flat)), ""]
        for end, c in _at_horizons(m):
            verdicts = [next(x.verdict for x in m.by_step[k] if x.name == c.name) for k in m.by_step if k <= end]
            counts = ", ".join(f"{v} at {verdicts.count(v)}" for v in ("holds", "fails", "undetermined") if v in verdicts)
            lines.append(f"{c.name:36} step by step, each with its own interval: {counts}")
        beyond = [k for k in m.by_step if k > m.reach.step]
        if beyond:
            lines += ["", "beyond the horizon, where nothing is claimed:"]
            for name in ("hidden.fluctuation.constant", "hidden.fluctuation.exponent_depth", "output.limit.constant", "output.limit.exponent"):
                values = [next(c.value for c in m.by_step[k] if c.name == name) for k in (last, *beyond)]
                lines.append(f"{name:36} " + ", ".join(f"{v:.3g} (k={k})" for v, k in zip(values, (last, *beyond), strict=True)))
        lines += ["", "growth of the constants up to the horizon, the better of k^p and e^(qk) (residual rms of the logarithm; of the other law):"]
        for name, g in growth_table(m.data, m.reach, m.flat).items():
            law = f"k^{g['rate']:.3f}" if g["kind"] == "power" else f"e^({g['rate']:.4f} k)"
            lines.append(f"{name:36} {law:16} {g['residual']:.3f}; {g['residual_other']:.3f}")
    lines.append(f"\ndiverged: {sum(m.diverged for m in found.values())} networks. {wall:.0f} s. Record in {config.out}/horizon.json, .nc, .png")
    return "\n".join(lines)
