"""`hiddenwidth shape`: the best depth, width and dimension for a budget, and networks that show it."""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .. import _record, plot
from .._claims import Claim, table
from .._dimension_fit import fit_dimension
from .._joint import joint_table
from .._limit.integrate import DivergedError
from .._limit.mean_ode import mean_ode
from .._limit.solution import Limit
from .._quadrature import Sobol
from .._shape import BestShape, Shape, at_depth, best_shape, check_budget, searched, shape_rows
from .._shape_check import Rival, check_claims, rivals
from .._shape_law import Ends, ShapeLaw, law_from_claims
from .._statistics import NORMAL_95
from .._sweep import Interrupted
from . import _dimension_config
from ._dimension_measure import NothingLeftError, fresh_networks, networks, references, refuse_early
from ._outcome import Outcome, all_cells_diverged
from ._shape_config import ShapeConfig as ShapeConfig, check


def run(config: ShapeConfig) -> Outcome:
    """Run the command: constants, shape, check, record, picture."""
    start = time.perf_counter()
    check(config)
    recorded = None if config.law is None else _read_law(config.law)
    measurement = config.measurement(None if recorded is None else recorded.info["config"])
    problem, _, _ = measurement.make()
    ends = problem.inputs.shape[1] + problem.targets.shape[1]
    # What the budget and the options are worth is known before the constants are.
    best_shape(config.params, ShapeLaw.of(a=1, b=1, c=0, d=1, ends=ends, reduced=ends), slack=config.slack, max_depth=config.max_depth)
    sizes = measurement.sizes()
    _dimension_config.check(measurement, sizes)
    refuse_early(measurement, sizes, [] if recorded else sizes.cells())
    _record.prepare_directory(config.out, config.overwrite)
    try:
        if recorded is None:
            found = references(measurement, sizes)
            fit = fit_dimension(networks(measurement, sizes, found), found.error, found.limit, found.depth)
            laws, limit, steps = fit.laws, found.limit, found.steps
            claims = [c for c in fit.claims if c.name.endswith("constant")]
        else:
            laws, claims = _laws(recorded)
            steps = int(recorded.info["reference"]["step"])
            limit = mean_ode(
                *measurement.make(), steps=steps, quadrature=Sobol(sizes.log2_points, sizes.replicates), tolerance=1e-7, integrator="collocation",
                progress=config.progress,
            )  # fmt: skip
    except (DivergedError, NothingLeftError) as error:
        return Outcome(1, f"{str(error).replace('learning_rate= is', '--learning-rate is')} No network was trained.")
    except Interrupted:
        return Outcome(130, "Interrupted: the constants were not finished; nothing was kept.")
    if "hidden" not in laws:
        return Outcome(1, "The constants of the law of hidden states were not resolved. Take them from a larger run: hiddenwidth dimension, then --law OUT.")
    laws["hidden"] = searched(laws["hidden"])
    best = best_shape(config.params, laws["hidden"], slack=config.slack, max_depth=config.max_depth)
    try:
        return _finish(config, measurement, laws, limit, steps, best, claims, start)
    except Interrupted as stop:
        kept = xr.merge([predictions(best, laws["hidden"]), stop.runs], compat="no_conflicts", join="outer")
        _write(config, kept, claims, best, limit, steps, [], 0, start, interrupted=True)
        done = int(stop.runs.done.sum())
        return Outcome(
            130,
            "\n".join(
                [*shape_rows(best), f"Interrupted: {done} of {stop.runs.done.size} shapes of the check were finished and kept in {config.out}/shape.nc."]
            ),
        )


def _finish(config: ShapeConfig, measurement, laws: dict[str, ShapeLaw], limit: Limit, steps: int, best: BestShape, claims: list[Claim], start: float):
    """Check, write, draw, report."""
    law = laws["hidden"]
    data, lines, diverged = [predictions(best, law)], [*shape_rows(best), ""], 0
    found: list[Rival] = []
    if not config.check:
        lines.append("Not checked on networks (--no-check).")
    elif config.params > config.max_check_params:
        lines.append(f"Not checked on networks: {config.params:.3g} parameters are more than --max-check-params {config.max_check_params:.3g}.")
    else:
        found = rivals(best, law)
        runs = fresh_networks(measurement, [r[1:] for r in found], config.check_seeds(), limit, steps)
        diverged = int((runs.diverged_at >= 0).sum())
        lost = all_cells_diverged(runs)
        measured = joint_table(runs, laws)
        if lost:
            lines.append(lost)
        else:
            claims = claims + check_claims(runs, found, law, config.slack)
        data += [measured, runs]
        lines += [*check_rows(measured, found), ""]
    merged: Any = xr.merge(data, combine_attrs="drop_conflicts", compat="no_conflicts", join="outer")
    _write(config, merged, claims, best, limit, steps, found, diverged, start)
    draw(config.out)
    lines += [table(claims), "", f"diverged: {diverged}. {time.perf_counter() - start:.0f} s. Record in {config.out}/shape.json, .nc, .png"]
    return Outcome(0, "\n".join(lines))


def _write(config: ShapeConfig, data: xr.Dataset, claims, best: BestShape, limit: Limit, steps: int, found: list[Rival], diverged: int, start: float, **extra):
    reference = {"standard_error": {"hidden": limit.hidden_error(steps), "output": limit.output_error(steps)}, "step": steps}
    _record.write(
        config.out, "shape", data, claims, reference=reference, diverged=diverged, config=dataclasses.asdict(config), dtype=config.dtype,
        wall_s=time.perf_counter() - start, shape=as_json(best), checked=[r._asdict() for r in found], **extra,
    )  # fmt: skip


def as_json(best: BestShape) -> dict[str, Any]:
    """The chosen shape and what stands beside it."""

    def one(s: Shape) -> dict[str, Any]:
        return s._asdict() | {"binding": s.binding}

    asymptotic = dict(zip(("depth", "width", "dim"), best.asymptotic, strict=True))
    return {"budget": best.budget, "slack": best.slack, "chosen": one(best.chosen), "least": one(best.least), "asymptotic": asymptotic}


def predictions(best: BestShape, law: ShapeLaw) -> xr.Dataset:
    """The best error at every depth of this budget, and the best shape of every budget, for the picture."""
    last = best.least.depth if best.least.width == 1 else (best.budget // best.least.dim - law.ends) // 2
    depths = np.unique(np.round(np.geomspace(1, max(last, 2), 60)).astype(int))
    along = [at_depth(law, best.budget, int(d)) for d in depths]
    error = [np.nan if s is None else float(law.error(*s)) for s in along]
    least = float(check_budget(float((law.reduced) * (2 + law.ends)), law))
    budgets = np.geomspace(max(1e3, 2 * least), 1e12, 28)
    shapes = [best_shape(p, law, slack=best.slack).chosen for p in budgets]
    return xr.Dataset(
        {"error_at_depth": ("at_depth", error), "shape_of_budget": (("budget", "size"), np.array([s[:3] for s in shapes]))},
        coords={"at_depth": depths, "budget": budgets, "size": ["depth", "width", "dim"]},
    )


def check_rows(measured: xr.Dataset, found: list[Rival]) -> list[str]:
    """Measured beside predicted errors as aligned text."""
    rows: list[tuple[str, ...]] = [("shape", "L", "M", "D", "hidden", "95 %", "predicted", "95 %", "output", "95 %", "predicted", "95 %")]
    for i, r in enumerate(found):
        row = [r.name, *(str(x) for x in r[1:])]
        for name in ("hidden", "output"):
            if name not in measured.observable.values:
                row += [""] * 4
                continue
            one = measured.sel(observable=name).isel(cell=i)
            half = NORMAL_95 * float(one.error_se)
            row += [
                f"{float(one.error):.4f}",
                f"+-{half:.4f}",
                f"{float(one.predicted):.4f}",
                f"[{float(one.predicted_low):.4f}, {float(one.predicted_high):.4f}]",
            ]
        rows.append(tuple(row))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _read_law(path: Path) -> _record.Record:
    """The record that --law names."""
    try:
        record = _record.read(path, "dimension")
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"law={str(path)!r} holds no record of `hiddenwidth dimension` ({error}); expected a directory with dimension.json and .nc.") from None
    if not record.info.get("claims"):
        raise ValueError(f"law={str(path)!r} is the record of a run that was not finished; expected one with claims. Run `hiddenwidth dimension` again.")
    return record


def _laws(record: _record.Record) -> tuple[dict[str, ShapeLaw], list[Claim]]:
    laws = {}
    for name in ("hidden", "output"):
        try:
            laws[name] = law_from_claims(record.info["claims"], name, Ends(**record.info["goodness"][f"{name}.law"]))
        except (ValueError, KeyError, TypeError):  # not resolved in that run, or the record of an older version
            continue
    nan = float("nan")
    claims = []
    for c in record.info["claims"]:
        if c["name"].endswith("constant"):
            numbers = {k: nan if c[k] is None else c[k] for k in ("value", "se")}
            claims.append(Claim(**(c | numbers | {"ci95": tuple(nan if x is None else x for x in c["ci95"])})))
    return laws, claims


def draw(out: Path) -> None:
    """Draw OUT/shape.png from OUT/shape.json and OUT/shape.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "shape")
    chosen, c = record.info["shape"]["chosen"], record.info["config"]
    title = f"{c['params']:.3g} parameters, slack {c['slack']:g}: L = {chosen['depth']}, M = {chosen['width']}, D = {chosen['dim']} (bars: 95 %)"
    axes = plot.shape(record.data, record.info, title=title)
    axes[0].figure.savefig(out / "shape.png", dpi=110)
    plt.close(axes[0].figure)
