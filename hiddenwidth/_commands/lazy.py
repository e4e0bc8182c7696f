"""`hiddenwidth lazy`: Theorem 2, term by term, and which limit lazy networks approach."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .. import _record, plot
from .._claims import Claim, doubted, table
from .._ensemble import group_size
from .._lazy import LazyReference, lazy_order, lazy_reference, lazy_sweep, tangent_gap
from .._lazy_cells import rms
from .._lazy_fit import RANGE_RULE, LazyFit, fit_lazy, gap_claims
from .._limit.integrate import DivergedError
from .._limit.stability import Horizon, horizon
from .._parallel import default_workers
from .._quadrature import Sobol
from .._rates import MIN_SEEDS
from .._scaling import mlu
from .._sweep import Interrupted
from .._two_layer import TwoLayer
from ._lazy_config import LADDER, LazyConfig as LazyConfig, Sizes, check
from ._outcome import Outcome

#: Depths of the depth law, besides those of the networks.
DEPTHS = (8, 16, 32, 64, 128)


def run(config: LazyConfig) -> Outcome:
    """Run the command: limits, networks, fit, record, picture."""
    start = time.perf_counter()
    sizes = config.sizes()
    shapes = check(config, sizes, MIN_SEEDS)
    problem = config.make_problem(sizes.dim)
    unit = TwoLayer(config.activation, config.law)
    scaling = mlu(config.learning_rate, learning_rate_u=config.learning_rate_u, learning_rate_v=config.learning_rate_v)
    for depth, width in shapes:
        group_size(problem, unit, depth, width, jnp.dtype(config.dtype).itemsize, config.memory / default_workers())
    _record.prepare_directory(config.out, config.overwrite)
    common = {"config": dataclasses.asdict(config) | dataclasses.asdict(sizes), "dtype": config.dtype}

    def keep(runs: xr.Dataset, **extra: Any) -> None:
        diverged = int((runs.diverged_at >= 0).sum())
        _record.write(config.out, "lazy", runs, [], reference={}, diverged=diverged, wall_s=time.perf_counter() - start, **common, **extra)

    quadrature = Sobol(sizes.log2_points, sizes.replicates, symmetric=True)
    try:
        reference = lazy_reference(
            problem, unit, scaling, alphas=(*sizes.alphas, *LADDER), depths=(*(d for d, _ in shapes), *DEPTHS), steps=sizes.steps,
            quadrature=quadrature, depth_quadrature=Sobol(sizes.depth_log2_points, 4, symmetric=True), progress=config.progress,
        )  # fmt: skip
        other, contrast = _contrast(config, sizes, problem, unit, scaling, quadrature)
    except DivergedError as error:
        return Outcome(1, str(error).replace("learning_rate= is", "--learning-rate is"))
    try:
        runs = lazy_sweep(
            problem, unit, scaling, alphas=sizes.alphas, shapes=shapes, seeds=sizes.seeds, steps=sizes.steps, dtype=jnp.dtype(config.dtype),
            memory=config.memory, progress=config.progress, key=jax.random.fold_in(jax.random.key(config.seed), 1),
        )  # fmt: skip
    except Interrupted as stop:
        keep(stop.runs, interrupted=True)
        return Outcome(130, f"Interrupted: {int(stop.runs.done.sum())} of {stop.runs.done.size} cells were finished and kept in {config.out}/lazy.nc.")
    lost = (runs.diverged_at >= 0).sum("seed") == runs.seeds
    if bool(lost.any()):
        keep(runs)
        i, j = (int(x) for x in np.argwhere(lost.values)[0])
        return Outcome(
            1,
            f"Every member diverged in {int(lost.sum())} of {lost.size} cells, the first being shape {sizes.shapes[i]} at alpha={float(runs.alpha[j]):g}. "
            f"The networks are kept in {config.out}/lazy.nc. Lower --learning-rate or --alphas.",
        )
    keep(runs)
    try:
        return _finish(config, sizes, reference, runs, other, contrast, common, start)
    except KeyboardInterrupt:
        return Outcome(130, f"Interrupted: all networks were finished and are kept in {config.out}/lazy.nc; the fit was not.")


def _finish(config: LazyConfig, sizes: Sizes, reference: LazyReference, runs: xr.Dataset, other, contrast: list[Claim], common, start: float) -> Outcome:
    """Fit, write, draw, report."""
    fit, reach = fit_lazy(runs, reference), horizon(reference.tangent)
    claims = fit.claims + contrast
    if sizes.steps > reach.step:
        claims = [doubted(c, f"step {sizes.steps} is beyond the {reach} of the tangent ODE") for c in claims]
    data = xr.merge([runs, fit.data, other], combine_attrs="drop_conflicts", compat="no_conflicts")
    budget = reference.tangent.budget
    diverged = int((runs.diverged_at >= 0).sum())
    _record.write(
        config.out, "lazy", data, claims, reference={"budget": budget._asdict() if budget else None}, diverged=diverged, wall_s=time.perf_counter() - start,
        range_rule=RANGE_RULE, goodness=fit.goodness, horizon=reach._asdict(), **common,
    )  # fmt: skip
    draw(config.out)
    return Outcome(0, _report(config, sizes, reference, reach, fit, claims, diverged, time.perf_counter() - start))


def _contrast(config: LazyConfig, sizes: Sizes, problem, unit: TwoLayer, scaling, quadrature: Sobol) -> tuple[xr.Dataset, list[Claim]]:
    """The other order of A(alpha): a skewed law with an activation that is not odd where the chosen one is symmetric, and the reverse."""
    other = TwoLayer("softplus", "skewed") if lazy_order(unit) == 2 else TwoLayer(config.activation, "gaussian")
    hidden, _ = tangent_gap(problem, other, scaling, alphas=LADDER, steps=sizes.steps, quadrature=quadrature, progress=config.progress)
    label = f"{other.activation}, {other.law} law"
    data = xr.Dataset(
        {"contrast_gap": (("contrast_alpha", "replicate"), rms(hidden))}, coords={"contrast_alpha": list(LADDER)},
        attrs={"contrast": label, "contrast_order": lazy_order(other)},
    )  # fmt: skip
    return data, gap_claims("hidden", np.asarray(LADDER), hidden, lazy_order(other), f"[{label}]")


def draw(out: Path) -> None:
    """Draw OUT/lazy.png from OUT/lazy.json and OUT/lazy.nc."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    record = _record.read(out, "lazy")
    c = record.info["config"]
    title = f"{c['problem']}: D = {c['dim']}, {c['steps']} steps at learning rate {c['learning_rate']:g}, {c['activation']} units, {c['law']} law (bars: 95 %)"
    axes = plot.lazy(record.data, record.info["claims"], title=title)
    axes[0, 0].figure.savefig(out / "lazy.png", dpi=110)
    plt.close(axes[0, 0].figure)


def _report(config: LazyConfig, sizes: Sizes, reference: LazyReference, reach: Horizon, fit: LazyFit, claims: list[Claim], diverged: int, wall: float) -> str:
    data = fit.data.sel(observable="hidden")
    largest = data.isel(shape=int(np.argmax((data.depth * data.width).values)))
    lines = [
        f"{config.problem}: n={len(reference.tangent.problem.inputs)} D={sizes.dim} steps={sizes.steps} shapes={','.join(sizes.shapes)}",
        f"tangent ODE: loss {reference.tangent.loss(0):.4f} -> {reference.tangent.loss():.4f}",
        f"{reach}",
        f"A(alpha) falls as 1/alpha^{reference.order} by the symmetry of the law",
        "",
        table(claims),
        "",
        f"distances, hidden state, networks of L={int(largest.depth)}, M={int(largest.width)}:",
        "   alpha   Mean ODE to tangent   to linearised   networks to tangent   to linearised",
    ]
    for alpha, e2, l2 in zip(data.alpha.values, largest.error2.values, largest.linearised2.values, strict=True):
        at = int(np.argmin(np.abs(data.reference_alpha.values - alpha)))
        gap, line = (float(data[k].values[at].mean()) for k in ("tangent_gap", "linearisation_gap"))
        lines.append(f"{alpha:8.3g}   {gap:19.5f}   {line:13.4f}   {np.sqrt(e2):19.4f}   {np.sqrt(l2):13.4f}")
    curve = fit.data
    steps = [f"{float(curve.predicted_exponent.sel(product_over_dim=x, method='nearest')):.3f} at LM/D = {x:.0e}" for x in (1e3, 1e5, 1e7, 1e9, 1e11)]
    lines += ["", f"predicted local exponent of the best alpha: {', '.join(steps)}; asymptotically {float(curve.asymptotic_exponent[0]):.4f}"]
    for name, g in fit.goodness.items():
        lines.append(f"{name}: chi2 {g['chi2']:.1f} for {g['dof']} degrees of freedom (p = {g['p_value']:.2f}), {g['cells_used']} of {g['cells']} cells")
    total = sum(sizes.seeds) * len(sizes.alphas)
    lines.append(f"diverged: {diverged} of {total} networks. {wall:.0f} s. Record in {config.out}/lazy.json, .nc, .png")
    return "\n".join(lines)
