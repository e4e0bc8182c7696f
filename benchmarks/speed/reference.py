"""The Mean ODE: seconds a replicate by collocation and by diffrax, the error of each, and both against their errors' own references.

Scalar regression (10 points), 2^14 particles, 12 nodes, 15 steps, float64, tolerance 1e-10. Errors: of the iteration, against a tolerance of 1e-14 at the same
nodes; of the nodes, against 48 of them on fewer particles. About a minute on 2 cores.
"""

import dataclasses
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import hiddenwidth as hw
from benchmarks.speed import _timing
from hiddenwidth import _record
from hiddenwidth._claims import Claim, above, near
from hiddenwidth._limit.collocation import collocate
from hiddenwidth._limit.integrate import integrate
from hiddenwidth._limit.mean_ode import coordinates_of

#: Seconds a replicate, and the ratio to diffrax, that are claimed.
SECONDS, RATIO = 0.6, 2.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes."""

    log2_points: int = 14
    nodes: int = 12
    steps: int = 15
    tolerance: float = 1e-10
    repeats: int = 7
    node_counts: tuple[int, ...] = (8, 10, 12, 14, 16, 20, 24)


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Time, record, draw."""
    config = Config(log2_points=11, repeats=3, node_counts=(8, 12, 16, 20)) if quick else Config()
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    scaling = hw.mlu()
    where = coordinates_of(hw.problems.sine(10, dim=32, key=jax.random.key(0)), hw.TwoLayer("tanh"), scaling, "auto")
    rule, small = hw.Sobol(config.log2_points, 1), hw.Sobol(9, 1)

    def solve(method, quadrature: hw.Sobol, nodes: int, tolerance: float) -> np.ndarray:
        return method(where, scaling, quadrature, 0, config.steps, nodes, tolerance)[0][:, -1]

    fine = solve(collocate, small, 48, 1e-13)
    rows, seconds, iteration = [], [], []
    for method in (collocate, integrate):
        solve(method, rule, config.nodes, config.tolerance)
        seconds.append(_timing.timing(_timing.repeat(lambda m=method: solve(m, rule, config.nodes, config.tolerance), config.repeats)))
        exact = solve(method, rule, config.nodes, 1e-13)
        iteration.append(float(np.abs(solve(method, rule, config.nodes, config.tolerance) - exact).max()))
        rows.append([float(np.abs(solve(method, small, n, 1e-12) - fine).max()) for n in config.node_counts])
    data = xr.Dataset(
        {"node_error": (("integrator", "nodes"), rows), "iteration_error": (("integrator",), iteration), "seconds": (("integrator", "quantile"), seconds)},
        coords={"integrator": ["collocation", "diffrax"], "nodes": list(config.node_counts), "quantile": ["median", "low", "high"]},
    )
    ours, theirs = seconds
    fast = above("replicate.per_second", 1 / ours.median, 0.0, 0.0, 1 / SECONDS, source="measured")._replace(ci95=(1 / ours.high, 1 / ours.low))
    ratio = above("diffrax_over_collocation", theirs.median / ours.median, 0.0, 0.0, RATIO, source="measured")
    claims = [
        fast,
        ratio._replace(ci95=(theirs.low / ours.high, theirs.high / ours.low)),
        near("collocation.iteration_error", iteration[0], 0.0, 0.0, 10 * config.tolerance, source="tolerance"),
    ]
    _record.write(
        out, "reference", data, claims, reference={}, diverged=0, config=dataclasses.asdict(config), dtype="float64", wall_s=time.perf_counter() - begun
    )
    _draw(out)
    return claims


def _draw(out: Path) -> None:
    data = _record.read(out, "reference").data
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for i, name in enumerate(data.integrator.values):
        left.semilogy(data.nodes, data.node_error.sel(integrator=name), "o-", label=str(name), color=f"C{i}")
        median, low, high = data.seconds.sel(integrator=name).values
        right.bar(str(name), median, yerr=[[median - low], [high - median]], capsize=4, color=f"C{i}")
    left.set(xlabel="nodes", ylabel="largest error of h(1)", title="Error of the nodes")
    left.legend()
    right.set(ylabel="seconds a replicate", title="Time (median; bars: fastest and slowest)")
    figure.savefig(out / "reference.png", dpi=110)
    plt.close(figure)
