"""`hiddenwidth dimension`: what finite D costs, term by term, and the joint law tested on networks."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import xarray as xr

from .. import _record, plot
from .._claims import table
from .._dimension_fit import RANGE_RULE, DimensionFit, fit_dimension
from .._joint import joint_claim, joint_table
from .._limit.integrate import DivergedError
from .._sweep import Interrupted
from ._dimension_config import DimensionConfig as DimensionConfig, Sizes, check
from ._dimension_measure import NothingLeftError, References, fresh_networks, networks, references, refuse_early
from ._outcome import Outcome, all_cells_diverged


def run(config: DimensionConfig) -> Outcome:
    """Run the command: limits, networks, fit, test of the joint law, record, picture."""
    start = time.perf_counter()
    sizes = config.sizes()
    check(config, sizes)
    refuse_early(config, sizes, [*sizes.cells(), *sizes.joint_shapes()])
    _record.prepare_directory(config.out, config.overwrite)
    common: dict[str, Any] = {"config": dataclasses.asdict(config) | dataclasses.asdict(sizes), "dtype": config.dtype}

    def keep(runs: xr.Dataset, **extra: Any) -> None:
        diverged = int((runs.diverged_at >= 0).sum())
        _record.write(config.out, "dimension", runs, [], reference={}, diverged=diverged, wall_s=time.perf_counter() - start, **common, **extra)

    try:
        found = references(config, sizes)
    except (DivergedError, NothingLeftError) as error:
        return Outcome(1, f"{str(error).replace('learning_rate= is', '--learning-rate is')} No network was trained.")
    try:
        runs = networks(config, sizes, found)
    except Interrupted as stop:
        keep(stop.runs, interrupted=True)
        return Outcome(130, f"Interrupted: {int(stop.runs.done.sum())} of {stop.runs.done.size} cells were finished and kept in {config.out}/dimension.nc.")
    keep(runs)
    lost = all_cells_diverged(runs)
    if lost:
        return Outcome(1, f"{lost} The networks are kept in {config.out}/dimension.nc. Lower --learning-rate.")
    try:
        return _finish(config, sizes, found, runs, common, start)
    except KeyboardInterrupt:
        return Outcome(130, f"Interrupted: the networks over D were finished and are kept in {config.out}/dimension.nc; the rest was not.")


def _finish(config: DimensionConfig, sizes: Sizes, found: References, runs: xr.Dataset, common: dict[str, Any], start: float) -> Outcome:
    """Fit, test, write, draw, report."""
    fit = fit_dimension(runs, found.error, found.limit, found.depth)
    claims, parts = list(fit.claims), [runs, fit.data, raw_limit(found)]
    if fit.laws:
        fresh = fresh_networks(config, sizes.joint_shapes(), sizes.joint_seeds, found.limit, found.steps)
        joint = joint_table(fresh, fit.laws)
        claims += [joint_claim(joint, name) for name in fit.laws]
        parts.append(as_joint(joint))
    data: Any = xr.merge(parts, combine_attrs="drop_conflicts", compat="no_conflicts", join="outer")
    limit = found.limit
    reference = {
        "standard_error": {"hidden": limit.hidden_error(found.steps), "output": limit.output_error(found.steps)},
        "budget": limit.budget._asdict() if limit.budget else None, "step": found.steps,
    }  # fmt: skip
    diverged = int((runs.diverged_at >= 0).sum())
    wall = time.perf_counter() - start
    _record.write(
        config.out,
        "dimension",
        data,
        claims,
        reference=reference,
        diverged=diverged,
        wall_s=wall,
        range_rule=RANGE_RULE,
        goodness=fit.goodness,
        horizon=found.reach._asdict(),
        **common,
    )
    draw(config.out)
    return Outcome(0, _report(config, sizes, found, fit, claims, diverged, time.perf_counter() - start))


def raw_limit(found: References) -> xr.Dataset:
    """Mean squares of Mean ODE(D) minus Mean ODE(infinity) of every draw and step."""
    axes = ("limit_dim", "draw", "step")
    return xr.Dataset(
        {"limit_hidden2": (axes, found.error.hidden), "limit_output2": (axes, found.error.output)},
        coords={"limit_dim": list(found.error.dims), "step": range(found.steps + 1)},
    )


def as_joint(joint: xr.Dataset) -> xr.Dataset:
    """The table of the joint law with names that do not meet those of the networks over D."""
    names = {k: f"joint_{k}" for k in (*joint.data_vars, "depth", "width", "dim")}
    return joint.rename(names | {"cell": "shape"})


def draw(out: Path) -> None:
    """Draw OUT/dimension.png from OUT/dimension.json and OUT/dimension.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "dimension")
    c = record.info["config"]
    steps = record.info["reference"]["step"]
    title = (
        f"{c['problem']}: {steps} steps at learning rate {c['learning_rate']:g}, {c['activation']} units, {c['seeds']} initialisations a point, "
        f"{c['draws']} embeddings a Mean ODE (bars: 95 %)"
    )
    axes = plot.dimension(record.data, record.info["claims"], title=title)
    axes[0, 0].figure.savefig(out / "dimension.png", dpi=110)
    plt.close(axes[0, 0].figure)


def _report(config: DimensionConfig, sizes: Sizes, found: References, fit: DimensionFit, claims, diverged: int, wall: float) -> str:
    limit, steps = found.limit, found.steps
    errors = f"{limit.output_error(steps):.1e} (output), {limit.hidden_error(steps):.1e} (hidden)"
    shapes = (
        f"dims={','.join(map(str, sizes.dims))} seeds={sizes.seeds}; Mean ODE at {len(found.error.dims)} D up to {found.error.dims[-1]}, draws={sizes.draws}"
    )
    lines = [
        f"{config.problem}: n={len(limit.problem.inputs)} steps={steps} {shapes}",
        f"Mean ODE(infinity): loss {limit.loss(0):.4f} -> {limit.loss(steps):.4f}; standard error {errors}",
    ]
    lines.append(f"{found.reach}" + (f": the law is fitted at step {steps}, not {sizes.steps}" if steps < sizes.steps else ""))
    lines += ["", table(claims), ""]
    for name, g in fit.goodness.items():
        if "chi2" in g:
            lines.append(f"{name}: chi2 {g['chi2']:.1f} for {g['dof']} degrees of freedom (p = {g['p_value']:.2f}), {g['cells_used']} of {g['cells']} cells")
    lines.append(f"diverged: {diverged} of {len(sizes.cells()) * sizes.seeds} networks. {wall:.0f} s. Record in {config.out}/dimension.json, .nc, .png")
    return "\n".join(lines)
