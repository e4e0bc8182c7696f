r"""What the tuned sweep says: with the best of all stable rates, where do maximal local updates end, and how do they fall beyond?

The level is the largest local update that the derived rule itself gives at any rho of the shape, an update of order one. The tuned critical scale is the rho
beyond which no stable rates reach that level. Rates larger than those of the grid matter only where the level is exceeded anyway, at small rho: there a
larger rate of u gives a larger update without bound, so a share of the maximum would be a property of the grid.

The sweep knows the largest stable rate of u to one step q of its grid, so the largest stable A lies between the one found and q times it. Every interval holds
that: the fits are repeated with each A multiplied by its own uniform draw of log q.
"""

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from ._claims import Claim, claim
from ._depth_fit import Estimate
from ._phase_boundaries import crossing
from ._power_fit import MISSING, fit_powers
from ._scaling import critical_scale

SOURCE = "Theorem 3, rates tuned"
THEORY = {"depth": -1.0, "width": -1.0, "dim": 0.5}
MAX_WIDTH = 0.15
#: Discrete rates make the tuned local update a step function; the slope is held to a wider interval.
MAX_WIDTH_SLOPE = 0.3
DRAWS = 400
#: Beyond this rho, four times the critical one, the tuned branch is taken to be lazy.
LAZY_FROM = 4.0


def tuned_claims(tuned: xr.Dataset) -> list[Claim]:
    """Exponents of the tuned critical scale, and of the tuned local update on the lazy branch."""
    rho = tuned.tuned_rho.values.astype(float)
    depth, width, dim = (tuned[f"tuned_{k}"].values.astype(float) for k in ("depth", "width", "dim"))
    drawn = _within_a_step(tuned)
    level = tuned.tuned_local_update.sel(rate_u=1.0, rate_v=1.0, method="nearest").max("tuned_rho").values
    ends, ends_drawn = _ends(rho, tuned.tuned_largest.values, level), _ends(rho, drawn, level)
    scale = np.log([critical_scale(*s) for s in zip(depth, width, dim, strict=True)])
    powers = {"depth": np.log(depth), "width": np.log(width), "dim": np.log(dim)}
    fit = fit_powers(np.log(ends) + scale, powers, corrections={"1/L": 1 / depth, "D/(LM)": dim / (depth * width)}, draws=np.log(ends_drawn) + scale)
    doubt = "" if np.isfinite(fit.scatter) else "too few shapes, or shapes that cannot tell L, M and D apart"
    claims = [
        claim(f"tuned.critical.exponent_{k}", e.value, e.se, e.half_width, source=SOURCE, theory=THEORY[k], max_width=MAX_WIDTH, doubt=doubt)
        for k, e in fit.exponents.items()
    ]
    claims.append(_slope(tuned, rho, np.sqrt(depth * width / dim) / 2, drawn))
    return claims


def _slope(tuned: xr.Dataset, rho, tops, drawn) -> Claim:
    """Power of rho over 4 <= rho <= sqrt(LM/D)/2, cells of all shapes together: the constant is the same at every shape."""
    inside = (rho >= LAZY_FROM * (1 - 1e-9)) & (rho <= tops[:, None] * (1 + 1e-9)) & np.isfinite(tuned.tuned_largest.values)
    e = lazy_power(rho, tops**2 * 4, inside, tuned.tuned_largest.values, drawn)
    return claim("tuned.lazy_branch.exponent", e.value, e.se, e.half_width, source=SOURCE, theory=-1.0, max_width=MAX_WIDTH_SLOPE)


def lazy_power(
    rho: Float[np.ndarray, " rho"],
    ratio: Float[np.ndarray, " shape"],
    inside: Bool[np.ndarray, "shape rho"],
    update: Float[np.ndarray, "shape rho"],
    draws: Float[np.ndarray, "draw shape rho"],
) -> Estimate:
    """Power of rho in A over the chosen cells of all shapes, which share one constant.

    Next orders are fitted along: 1/rho^2 towards the lower boundary, rho^2 D/(LM) towards the upper one.
    """
    at, every = np.broadcast_to(rho, inside.shape)[inside], np.broadcast_to(ratio[:, None], inside.shape)[inside]
    if len(np.unique(at)) < 3:
        return MISSING
    corrections = {"1/rho^2": at**-2, "rho^2 D/(LM)": at**2 / every}
    return fit_powers(np.log(update[inside]), {"rho": np.log(at)}, corrections=corrections, draws=np.log(draws[:, inside])).exponents["rho"]


def _ends(rho, largest: Float[np.ndarray, "*draw shape rho"], level: Float[np.ndarray, " shape"]) -> Float[np.ndarray, "*draw shape"]:
    """Tuned critical rho: where the largest stable A falls below the level."""
    return np.asarray(crossing(rho, largest / level[:, None], 1.0, falling=True))


def _within_a_step(tuned: xr.Dataset) -> Float[np.ndarray, "draw shape rho"]:
    """Draws of the largest stable A, each between the one found and that of the next rate."""
    rates = np.sort(tuned.rate_u.values)
    step = float(np.diff(np.log(rates)).max()) if len(rates) > 1 else 0.0
    largest = tuned.tuned_largest.values
    return largest * np.exp(step * np.random.default_rng(0).random((DRAWS, *largest.shape)))
