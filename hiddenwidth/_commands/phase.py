"""`hiddenwidth phase`: the phase diagram of Theorem 3, with a verdict on both boundaries."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr

from .. import _record, plot
from .._claims import table
from .._parallel import default_workers
from .._phase import check_shapes, embedded, phase_diagram
from .._phase_fit import DEFINITION, PhaseFit, fit_phase
from .._sweep import Interrupted
from .._tuned import ladder_u, tuned_rates
from .._two_layer import TwoLayer
from ._outcome import Outcome
from ._phase_config import PhaseConfig as PhaseConfig, PhaseSizes, check


def run(config: PhaseConfig) -> Outcome:
    """Run the command: networks at every residual scale, tuned rates, fit, record, picture."""
    start = time.perf_counter()
    sizes = config.sizes()
    check(config, sizes)
    problem, unit = config.make_problem(), TwoLayer("tanh")
    key_runs, key_tuned = jax.random.split(jax.random.key(config.seed))
    common: dict[str, Any] = {
        "steps": config.steps, "embedding": config.embedding, "dtype": jnp.dtype(config.dtype), "memory": config.memory, "progress": config.progress,
    }  # fmt: skip
    wanted = check_shapes([*sizes.shapes, *(sizes.tuned_shapes if config.tuned else ())])
    embedded(problem, unit, wanted, embedding=config.embedding, dtype=common["dtype"], memory=config.memory / default_workers(), key=key_runs)
    _record.prepare_directory(config.out, config.overwrite)

    def keep(runs: xr.Dataset, **extra: Any) -> None:
        diverged = int((runs.diverged == 1).sum())
        _record.write(
            config.out, "phase", runs, [], reference={"definition": DEFINITION}, diverged=diverged, config=_described(config, sizes), dtype=config.dtype,
            wall_s=time.perf_counter() - start, **extra,
        )  # fmt: skip

    try:
        runs = phase_diagram(
            problem, unit, shapes=sizes.shapes, seeds=sizes.seeds, learning_rate=config.learning_rate, per_octave=config.per_octave, reach=sizes.reach,
            key=key_runs, **common,
        )  # fmt: skip
    except Interrupted as stop:
        finished = int(stop.runs.done.sum())
        keep(stop.runs, interrupted=True)
        return Outcome(130, f"Interrupted: {finished} of {stop.runs.done.size} shapes were finished and kept in {config.out}/phase.nc.")
    keep(runs)
    lost = _lost(runs)
    if lost:
        return Outcome(1, f"{lost} The networks are kept in {config.out}/phase.nc. Lower --learning-rate.")
    try:
        tuned = None
        if config.tuned:
            rates = ladder_u(sizes.rates_per_octave)
            tuned = tuned_rates(problem, unit, shapes=sizes.tuned_shapes, seeds=sizes.tuned_seeds, rates_u=rates, key=key_tuned, **common)
        return _finish(config, sizes, runs, tuned, start)
    except KeyboardInterrupt:
        return Outcome(130, f"Interrupted: all {runs.sizes['shape']} shapes were finished and are kept in {config.out}/phase.nc; the fit was not.")


def _finish(config: PhaseConfig, sizes: PhaseSizes, runs: xr.Dataset, tuned: xr.Dataset | None, start: float) -> Outcome:
    """Fit, write, draw, report."""
    fit = fit_phase(runs, tuned)
    data = xr.merge([runs, fit.data], combine_attrs="drop_conflicts", compat="no_conflicts", join="exact")
    diverged = int((runs.diverged == 1).sum())
    _record.write(
        config.out, "phase", data, fit.claims, reference={"definition": DEFINITION}, diverged=diverged, config=_described(config, sizes), dtype=config.dtype,
        wall_s=time.perf_counter() - start, goodness=fit.goodness,
    )  # fmt: skip
    draw(config.out)
    return Outcome(0, _report(config, runs, fit, diverged, time.perf_counter() - start))


def _described(config: PhaseConfig, sizes: PhaseSizes) -> dict[str, Any]:
    return dataclasses.asdict(config) | dataclasses.asdict(sizes)


def _lost(runs: xr.Dataset) -> str:
    """Name the shapes in which a member of every cell diverged, so that no local update is left to measure."""
    measured = runs.diverged.notnull()
    nothing = (((runs.diverged == 1).any("seed")) | ~measured.any("seed")).all("rho").values
    if not nothing.any():
        return ""
    shapes = [tuple(int(runs[k].values[i]) for k in ("depth", "width", "dim")) for i in range(len(nothing)) if nothing[i]]
    return f"Members diverged at every residual scale in {len(shapes)} of {len(nothing)} shapes, the first being depth, width, dim = {shapes[0]}."


def draw(out: Path) -> None:
    """Draw OUT/phase.png from OUT/phase.json and OUT/phase.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "phase")
    c = record.info["config"]
    title = (
        f"Theorem 3 on {c['problem']} data: {c['steps']} steps, rule $\\eta_v = \\eta$, $\\eta_u = \\eta / \\max(1, \\rho)^2$, "
        f"$\\eta$ = {c['learning_rate']:g}, "
        f"{c['seeds']} initialisations at the largest D, more below (bars: 95 %)"
    )
    axes = plot.phase(record.data, record.info["claims"], title=title)
    figure: Any = next(iter(axes.values())).figure
    figure.savefig(out / "phase.png", dpi=110)
    plt.close(figure)


def _report(config: PhaseConfig, runs: xr.Dataset, fit: PhaseFit, diverged: int, wall: float) -> str:
    regions = fit.data.attrs["regions"].split(",")
    counts = ", ".join(f"{int((fit.data.region == i).sum())} {name}" for i, name in enumerate(regions))
    networks = int(runs.diverged.notnull().sum())
    return "\n".join(
        [
            f"{config.problem}: {runs.sizes['shape']} shapes, steps={config.steps}; rule {DEFINITION['rule']}, eta = {config.learning_rate:g}",
            f"cells: {counts}",
            "",
            table(fit.claims),
            "",
            f"diverged: {diverged} of {networks} networks. {wall:.0f} s. Record in {config.out}/phase.json, .nc, .png",
        ]
    )
