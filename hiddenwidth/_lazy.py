r"""The lazy limit (Theorem 2): what is known without networks, and the networks.

    error to the tangent ODE after k steps = A(alpha) + a(alpha)/L + b(alpha) alpha sqrt(D/(LM))

- A: Mean ODE(alpha) minus tangent ODE, no network and no noise: of order 1/alpha^2 when the law of phi is symmetric under phi -> -phi to the order that
  matters (v -> -v, or u -> -u with an odd activation), of order 1/alpha otherwise;
- a/L: infinitely wide network minus Mean ODE(alpha);
- b alpha sqrt(D/(LM)): spread of networks over initialisations.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from tqdm.auto import tqdm

from ._choices import positive_float, positive_int
from ._ensemble import Ensemble, check_dtype, ensemble, group_size
from ._limit.infinite_width import depth_error
from ._limit.linearised_ode import linearised_ode
from ._limit.mean_ode import mean_ode
from ._limit.solution import Limit
from ._limit.tangent_ode import tangent_ode
from ._parallel import collect, default_workers, each
from ._problem import Problem
from ._provenance import provenance
from ._quadrature import AbstractQuadrature, Sobol
from ._scaling import Scaling, lazy
from ._sweep import Interrupted
from ._two_layer import TwoLayer

#: Tolerance and nodes of the noise-free curves: at alpha = 128 they must resolve 1e-6.
TOLERANCE, NODES = 1e-10, 16


class LazyReference(eqx.Module):
    """Limits of a lazy sweep: tangent ODE, full linearisation, and the vectors A(alpha) and a(alpha)/L, one row a quadrature replicate.

    `hidden_gap`, `output_gap`: Mean ODE(alpha) minus tangent ODE. `hidden_shift`, `output_shift`: infinitely wide network of depth L minus Mean ODE(alpha).
    """

    tangent: Limit
    linearised: Limit
    order: int
    alphas: Float[np.ndarray, " alpha"]
    depths: tuple[int, ...]
    hidden_gap: Float[np.ndarray, "alpha replicate batch dim"]
    output_gap: Float[np.ndarray, "alpha replicate batch out"]
    hidden_shift: Float[np.ndarray, "alpha shift_replicate depth batch dim"]
    output_shift: Float[np.ndarray, "alpha shift_replicate depth batch out"]


def lazy_order(unit: TwoLayer) -> int:
    r"""The power p of 1/alpha^p in Mean ODE(alpha) minus tangent ODE, from symmetry.

    Let d_1, d_2 be the first and second orders of a unit's displacement. The term of order 1/alpha is E[D_z phi d_2 + D_z^2 phi (d_1, d_1) / 2]. Under v -> -v
    it changes sign, so a symmetric law of v makes it vanish. It is also odd under u -> -u when the activation is odd up to a constant, as only its
    derivatives and its product with a mean-zero v enter. Without either symmetry p = 1.

    **Example:** `hw.lazy_order(hw.TwoLayer("softplus", law="skewed"))`, 1.
    """
    if all(law.symmetric for law, _ in unit.laws(1)):
        return 2
    at = np.linspace(0.1, 4.0, 16)
    with jax.enable_x64(True):
        even = np.asarray(unit.sigma(jnp.asarray(at)) + unit.sigma(jnp.asarray(-at)) - 2 * unit.sigma(jnp.zeros_like(at)))
    return 2 if np.abs(even).max() < 1e-12 else 1


def tangent_gap(
    problem: Problem, unit: TwoLayer, scaling: Scaling, *, alphas: Iterable[float], steps: int, quadrature: AbstractQuadrature, progress: bool = False
) -> tuple[Float[np.ndarray, "alpha replicate batch dim"], Float[np.ndarray, "alpha replicate batch out"]]:
    """Mean ODE(alpha) minus tangent ODE, hidden states and outputs, with the same (symmetric) quadrature points on both sides."""
    common: dict[str, Any] = {"steps": steps, "quadrature": quadrature, "nodes": NODES, "tolerance": TOLERANCE, "budget": False}
    flat = tangent_ode(problem, unit, scaling, **common)
    hidden, output = [], []
    for alpha in tqdm(alphas, desc="Mean ODE(alpha)", unit="alpha", disable=not progress, leave=False):
        at = mean_ode(problem, unit, _at(scaling, alpha), centre=True, **common)
        hidden.append(at.hidden_replicates() - flat.hidden_replicates())
        output.append(at.output_replicates() - flat.output_replicates())
    return np.stack(hidden), np.stack(output)


def _at(scaling: Scaling, alpha: float) -> Scaling:
    return lazy(float(alpha), learning_rate_u=scaling.learning_rate_u, learning_rate_v=scaling.learning_rate_v)


def lazy_reference(
    problem: Problem,
    unit: TwoLayer,
    scaling: Scaling,
    *,
    alphas: Iterable[float],
    depths: Sequence[int],
    steps: int,
    quadrature: AbstractQuadrature | None = None,
    depth_quadrature: AbstractQuadrature | None = None,
    progress: bool = False,
) -> LazyReference:
    r"""Everything about the lazy limit that needs no network.

    **Arguments:** `problem`, `unit`, `steps`: as for `mean_ode`; `scaling`: its learning rates; `alphas`: branch multipliers; `depths`: at which the depth
    error is wanted; `quadrature`: default `Sobol(12, 4, symmetric=True)`; `depth_quadrature`: default `Sobol(8, 4, symmetric=True)`, enough because it
    cancels.

    **Returns:** a `LazyReference`.

    Source: arXiv 2509.10167, Theorem 2.

    **Example:**

    ```python
    problem = hw.problems.sine(8, dim=4, key=jax.random.key(0), embedding="orthogonal")
    small = hw.Sobol(6, 2, symmetric=True)
    reference = hw.lazy_reference(problem, hw.TwoLayer("erf"), hw.mlu(), alphas=[4, 8], depths=[16], steps=3, quadrature=small, depth_quadrature=small)
    ```
    """
    alphas = sorted({positive_float("alphas", a) for a in alphas})
    depths = tuple(sorted({positive_int("depths", d) for d in depths}))
    quadrature = Sobol(12, 4, symmetric=True) if quadrature is None else quadrature
    depth_quadrature = Sobol(8, 4, symmetric=True) if depth_quadrature is None else depth_quadrature
    tangent = tangent_ode(problem, unit, scaling, steps=steps)
    linearised = linearised_ode(problem, unit, scaling, steps=steps)
    hidden, output = tangent_gap(problem, unit, scaling, alphas=alphas, steps=steps, quadrature=quadrature, progress=progress)

    def shift(alpha: float):
        errors = depth_error(problem, unit, _at(scaling, alpha), depths=depths, steps=steps, quadrature=depth_quadrature, centre=True)
        return errors.hidden, errors.output

    hidden_shift, output_shift = (np.stack(x) for x in zip(*collect(shift, alphas), strict=True))
    return LazyReference(tangent, linearised, lazy_order(unit), np.asarray(alphas), depths, hidden, output, hidden_shift, output_shift)


def lazy_sweep(
    problem: Problem,
    unit: TwoLayer,
    scaling: Scaling,
    *,
    alphas: Iterable[float],
    shapes: Sequence[tuple[int, int]],
    seeds: Sequence[int],
    steps: int,
    dtype: Any = jnp.float32,
    memory: float = 2e9,
    progress: bool = False,
    key: Key[Array, ""],
) -> xr.Dataset:
    r"""Train networks at every shape and every alpha.

    **Arguments:** `shapes`: pairs (depth, width); `seeds`: members for each shape (large networks need fewer); `key`: every cell has its own networks; the
    rest as for `sweep`.

    **Returns:** a dataset over (shape, alpha, seed): `hidden`, `output` at the last step (NaN where a shape has fewer seeds), `diverged_at`, `done`.

    **Raises:** `Interrupted` on Ctrl-C, with the finished cells.

    **Example:**

    ```python
    runs = hw.lazy_sweep(problem, unit, hw.mlu(), alphas=[1, 4], shapes=[(8, 8)], seeds=[8], steps=3, key=jax.random.key(0))
    ```
    """
    alphas = sorted({positive_float("alphas", a) for a in alphas})
    shapes = [(positive_int("depth", d), positive_int("width", w)) for d, w in shapes]
    if len(seeds) != len(shapes):
        raise ValueError(f"seeds={tuple(seeds)} and shapes={tuple(shapes)}: expected one number of seeds for each shape.")
    most, dtype, workers = max(positive_int("seeds", s) for s in seeds), check_dtype(dtype), default_workers()
    for depth, width in shapes:
        group_size(problem, unit, depth, width, dtype.itemsize, memory / workers)
    (batch, out), dim = problem.targets.shape, int(problem.dim)
    cell = (len(shapes), len(alphas))
    runs = xr.Dataset(
        {
            "hidden": (("shape", "alpha", "seed", "batch", "dim"), np.full((*cell, most, batch, dim), np.nan, dtype)),
            "output": (("shape", "alpha", "seed", "batch", "out"), np.full((*cell, most, batch, out), np.nan, dtype)),
            "diverged_at": (("shape", "alpha", "seed"), np.full((*cell, most), -1, np.int32)),
            "done": (("shape", "alpha"), np.zeros(cell, bool)),
        },
        coords={
            "alpha": list(alphas), "depth": ("shape", [d for d, _ in shapes]), "width": ("shape", [w for _, w in shapes]),
            "seeds": ("shape", list(seeds)),
        },
        attrs={"problem_digest": problem.digest(), "dim": dim, "unit": repr(unit), "steps": steps, "device": provenance()["device"]},
    )  # fmt: skip

    def run(at: tuple[int, int]) -> Ensemble:
        (depth, width), alpha = shapes[at[0]], alphas[at[1]]
        own = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, depth), width), int(np.float32(alpha).view(np.uint32)))
        return ensemble(
            problem, unit, _at(scaling, alpha), depth=depth, width=width, seeds=seeds[at[0]], steps=steps, dtype=dtype, memory=memory / workers, key=own
        )

    cells = sorted(np.ndindex(cell), key=lambda c: -shapes[c[0]][0] * shapes[c[0]][1] * seeds[c[0]])
    with tqdm(total=len(cells), desc="networks", unit="cell", disable=not progress, leave=False) as bar:

        def store(at: tuple[int, int], members: Ensemble) -> None:
            number = seeds[at[0]]
            runs["hidden"][*at, :number], runs["output"][*at, :number] = members.hidden[:, 0], members.output[:, -1]
            runs["diverged_at"][*at, :number], runs["done"][at] = members.diverged_at, True
            bar.update()

        try:
            each(run, cells, store)
        except KeyboardInterrupt:
            runs.attrs["interrupted"] = 1
            raise Interrupted(runs) from None
    return runs
