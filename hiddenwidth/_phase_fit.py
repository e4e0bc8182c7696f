r"""Theorem 3 as claims: where the measured boundaries of the phase diagram sit, as powers of L, M and D.

    critical scale   rho = 1             sqrt(D)/(L M)    L^-1   M^-1   D^(1/2)
    blow-up scale    rho = sqrt(LM/D)    1/sqrt(L M)      L^-1/2 M^-1/2 D^0

The theorem fixes the powers and leaves the constants to data and definition. Boundaries are measured as `_phase_boundaries` says, turned
into residual scales by `_scaling`, and fitted over the shapes. Corrections that vanish in the limit are fitted along: 1/L and D/(LM) for the critical
scale and for fluctuations at fixed rho; 1/L and 1/D for the blow-up scale, where rho^2 D/(LM) is of order one by definition.
"""

import math
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from . import _phase_boundaries as boundaries
from ._claims import AbstractFit, Claim, above, claim
from ._depth_fit import Estimate
from ._power_fit import MISSING, PowerFit, fit_powers, mean_of
from ._scaling import blow_up_scale, critical_scale
from ._schemes_fit import scheme_claims
from ._statistics import NORMAL_95
from ._tuned_fit import lazy_power, tuned_claims

SOURCE = "Theorem 3"
MAX_WIDTH = 0.15
MIN_SEEDS = 8
#: A rho is constant to this share on the lazy branch.
LAZY_TOLERANCE = 0.08
CRITICAL = {"depth": -1.0, "width": -1.0, "dim": 0.5}
BLOW_UP = {"depth": -0.5, "width": -0.5, "dim": 0.0}
DEFINITION = {
    "critical": "the rho beyond the maximum of the local update at which it first falls below half of that maximum",
    "blow_up": "rho at which the fluctuation of h_L at initialisation, per coordinate, is 1",
    "training_limit": "first rho at which a seed diverged or fewer than half of the seeds lowered their loss",
    "rule": "eta_v = eta, eta_u = eta / max(1, rho)^2",
}


class PhaseFit(AbstractFit):
    """Fitted phase diagram: claims with verdicts, goodness of fit, and the dataset that the picture is drawn from."""

    claims: list[Claim]
    goodness: dict[str, dict[str, Any]]
    data: xr.Dataset


def fit_phase(runs: xr.Dataset, tuned: xr.Dataset | None = None, *, bootstrap: int = 400, seed: int = 0) -> PhaseFit:
    r"""Measure the boundaries, classify the cells and fit the powers of L, M and D.

    **Arguments:** `runs`: from `phase_diagram`, at least eight seeds; `tuned`: from `tuned_rates`; `bootstrap`: draws of the seeds; `seed`: of those draws.

    **Returns:** a `PhaseFit`. Its `data` holds

    - per shape and rho: root mean squares `local_update`, `fluctuation`, `change`; `mean_loss_start`, `mean_loss_end`; the share of seeds that `lowered` their
      loss, the number that diverged (`lost`), and the `region`, an index into the attribute `regions` (-1: no cell);
    - per scheme: the same with the prefix `scheme_`, without a region;
    - per shape: `critical_rho`, `blow_up_rho`, `training_limit_rho`. Standard errors have the ending `_se`;
    - everything of `tuned`.

    **Raises:** `ValueError` when there are fewer than eight seeds.

    Source: arXiv 2509.10167, Theorem 3.

    **Example:**

    ```python
    runs = hw.phase_diagram(problem, shapes=[(8, 8, 4), (16, 8, 4)], seeds=8, steps=2, per_octave=1, reach=2.0, key=jax.random.key(0))
    hw.fit_phase(runs).data.critical_rho
    ```
    """
    runs = runs.isel(shape=np.flatnonzero(runs.done.values))
    if runs.sizes["shape"] == 0:
        raise ValueError("runs hold no finished shape; expected at least one. Run phase_diagram again.")
    fewest = min(boundaries.members(runs, i, "fluctuation2").shape[1] for i in range(runs.sizes["shape"]))
    if fewest < MIN_SEEDS:
        raise ValueError(f"seeds={fewest} is too few for an interval; expected at least {MIN_SEEDS}. Run phase_diagram with more seeds.")
    data, draws = _per_shape(runs, bootstrap, np.random.default_rng(seed))
    depth, width, dim = (runs[k].values.astype(float) for k in ("depth", "width", "dim"))
    powers = {"depth": np.log(depth), "width": np.log(width), "dim": np.log(dim)}
    unit_scale = np.log([critical_scale(*s) for s in zip(depth, width, dim, strict=True)])
    blow_up_unit = np.log([blow_up_scale(*s) for s in zip(depth, width, strict=True)])
    corrections = {"1/L": 1 / depth, "D/(LM)": dim / (depth * width)}
    critical = fit_powers(np.log(data["critical_rho"]) + unit_scale, powers, corrections=corrections, draws=np.log(draws["critical_rho"]) + unit_scale)
    blow_up = fit_powers(
        np.log(data["blow_up_rho"]) + unit_scale, powers, corrections={"1/L": 1 / depth, "1/D": 1 / dim}, draws=np.log(draws["blow_up_rho"]) + unit_scale
    )
    claims = exponent_claims("critical", critical, CRITICAL)
    claims += [rejected("critical", critical, "dim", 0.0, CRITICAL["dim"]), rejected("critical", critical, "width", -0.5, CRITICAL["width"])]
    claims.append(constant("critical.constant", np.log(data["critical_rho"]), np.log(draws["critical_rho"])))
    claims += exponent_claims("blow_up", blow_up, BLOW_UP)
    claims.append(rejected("blow_up", blow_up, "dim", 0.5, BLOW_UP["dim"]))
    shift = unit_scale - blow_up_unit
    claims.append(constant("blow_up.constant", np.log(data["blow_up_rho"]) + shift, np.log(draws["blow_up_rho"]) + shift))
    claims += _lazy_branch(runs.rho.values, data, draws["local_update"], depth * width / dim)
    claims += scheme_claims(data, draws, powers, corrections)
    if tuned is not None:
        claims += tuned_claims(tuned)
    fits = {"critical": critical, "blow_up": blow_up}
    goodness = {name: {"scatter": f.scatter, "dof": f.dof, "shapes_used": int(f.used.sum())} for name, f in fits.items()}
    kept = runs[["depth", "width", "dim", "wall_s", "scheme_rho"]].merge(_dataset(data), join="exact").assign_coords(rho=runs.rho)
    kept.attrs |= {"regions": ",".join(boundaries.REGIONS)}
    return PhaseFit(claims, goodness, kept if tuned is None else kept.merge(tuned, join="exact"))


def _per_shape(runs: xr.Dataset, bootstrap: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Everything that is measured at one shape, stacked over shapes, and its bootstrap draws (draw, shape, ...)."""
    rho = runs.rho.values
    rows: list[dict[str, Any]] = []
    drawn: list[dict[str, np.ndarray]] = []
    for i in range(runs.sizes["shape"]):
        row: dict[str, Any] = {}
        for prefix in ("", "scheme_"):
            seen = boundaries.curves(runs, i, prefix)
            lost = np.nan_to_num(boundaries.members(runs, i, f"{prefix}diverged")).sum(1).astype(int)
            row |= {f"{prefix}local_update": seen.local_update, f"{prefix}fluctuation": seen.fluctuation, f"{prefix}change": seen.change}
            row |= {f"{prefix}mean_loss_{k}": boundaries.members(runs, i, f"{prefix}loss_{k}").mean(1) for k in ("start", "end")}
            row |= {f"{prefix}lost": lost, f"{prefix}lowered": boundaries.lowered(runs, i, prefix)}
        seen = boundaries.Curves(row["local_update"], row["fluctuation"], row["change"])
        row["region"] = boundaries.classify(rho, seen, row["lowered"], row["lost"])
        row["training_limit_rho"] = boundaries.training_limit(rho, row["lowered"], row["lost"])
        row |= {"critical_rho": boundaries.critical_rho(rho, seen), "blow_up_rho": boundaries.blow_up_rho(rho, seen)}
        weights = boundaries.resampling(boundaries.members(runs, i, "fluctuation2").shape[1], bootstrap, rng)
        again, schemes = boundaries.curves(runs, i, weights=weights), boundaries.curves(runs, i, "scheme_", weights)
        drawn.append(
            {
                "critical_rho": boundaries.critical_rho(rho, again), "blow_up_rho": boundaries.blow_up_rho(rho, again),
                "local_update": again.local_update, "fluctuation": again.fluctuation,
                "scheme_fluctuation": schemes.fluctuation, "scheme_local_update": schemes.local_update,
            }
        )  # fmt: skip
        rows.append(row)
    data = {k: np.array([r[k] for r in rows]) for k in rows[0]}
    draws = {k: np.stack([d[k] for d in drawn], 1) for k in drawn[0]}
    for name in ("critical_rho", "blow_up_rho", "local_update", "fluctuation"):
        data[f"{name}_se"] = draws[name].std(0, ddof=1)
    return data, draws


def _dataset(data: dict[str, np.ndarray]) -> xr.Dataset:
    return xr.Dataset({k: (("shape", "scheme" if k.startswith("scheme_") else "rho")[: v.ndim], v) for k, v in data.items()})


def exponent_claims(name: str, fit: PowerFit, theory: dict[str, float], max_width: float = MAX_WIDTH) -> list[Claim]:
    """One claim an exponent."""
    doubt = "" if math.isfinite(fit.scatter) else "too few shapes, or shapes that cannot tell L, M and D apart"
    return [
        claim(f"{name}.exponent_{k}", e.value, e.se, e.half_width, source=SOURCE, theory=theory[k], max_width=max_width, doubt=doubt)
        for k, e in fit.exponents.items()
    ]


def rejected(name: str, fit: PowerFit, power: str, candidate: float, theory: float) -> Claim:
    """A wrong exponent is rejected when the whole interval lies on the theory's side of it: the claim is about the distance to it in that direction."""
    e = fit.exponents.get(power, MISSING)
    sign = math.copysign(1.0, theory - candidate)
    label = f"{name}.rejects_{power}_{candidate:g}"
    doubt = "" if math.isfinite(e.half_width) else "the exponent was not measured"
    return above(label, sign * (e.value - candidate), e.se, e.half_width, 0.0, source=SOURCE, doubt=doubt)


def constant(name: str, log_values: Float[np.ndarray, " shape"], draws: Float[np.ndarray, "draw shape"]) -> Claim:
    """The O(1) constant of a boundary, geometric mean over shapes, in units of the predicted scale."""
    e = mean_of(log_values, draws)
    value = math.exp(e.value) if math.isfinite(e.value) else math.nan
    return claim(name, value, value * e.se, value * e.half_width, source=f"{SOURCE}; depends on data and definition")


def _lazy_branch(rho, data: dict[str, np.ndarray], draws, ratio) -> list[Claim]:
    """A rho over 2 <= rho <= sqrt(LM/D)/2: worst departure from its mean at one shape, and the power of rho over the cells of all shapes."""
    inside = (rho >= 2 * (1 - 1e-9)) & (rho <= np.sqrt(ratio)[:, None] / 2 * (1 + 1e-9)) & np.isfinite(data["local_update"])
    worst: Estimate | None = None
    for i in np.flatnonzero(inside.sum(1) >= 2):
        product, again = (data["local_update"][i] * rho)[inside[i]], (draws[:, i] * rho)[:, inside[i]]
        departure, spread = np.abs(product / product.mean() - 1), (again / again.mean(-1, keepdims=True)).std(0, ddof=1)
        at = int(departure.argmax())
        if worst is None or departure[at] > worst.value:
            worst = Estimate(float(departure[at]), float(spread[at]), NORMAL_95 * float(spread[at]))
    claims = [_constancy(worst)] if worst is not None else []
    e = lazy_power(rho, ratio, inside, data["local_update"], draws)
    return [*claims, claim("lazy_branch.exponent", e.value, e.se, e.half_width, source=f"{SOURCE}, A = Theta(1/rho)", theory=-1.0, max_width=MAX_WIDTH)]


def _constancy(e: Estimate) -> Claim:
    low, high = e.value - e.half_width, e.value + e.half_width
    verdict = "holds" if high <= LAZY_TOLERANCE else "fails" if low > LAZY_TOLERANCE else "undetermined"
    why = "" if verdict == "holds" else f"A rho departs from its mean by up to {high:.1%}; expected at most {LAZY_TOLERANCE:.0%}"
    return Claim("lazy_branch.worst_deviation", e.value, e.se, (low, high), 0.0, LAZY_TOLERANCE, verdict, why, f"{SOURCE}, A = Theta(1/rho)")
