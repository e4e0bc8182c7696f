r"""What the tuned sweep says: with the best of all stable rates, where do maximal local updates end, and how do they fall beyond?

The tuned critical scale is defined as the other one is, with A replaced by the largest A among stable rates. No rule for the rates enters it.
"""

import numpy as np
import xarray as xr

from ._claims import Claim, claim
from ._phase_boundaries import Curves, critical_rho
from ._power_fit import MISSING, fit_powers
from ._scaling import critical_scale

SOURCE = "Theorem 3, rates tuned"
THEORY = {"depth": -1.0, "width": -1.0, "dim": 0.5}
MAX_WIDTH = 0.15
#: Discrete rates make the tuned local update a step function; the slope is held to a wider interval.
MAX_WIDTH_SLOPE = 0.3
#: Beyond this rho, four times the critical one, the tuned branch is taken to be lazy.
LAZY_FROM = 4.0


def tuned_claims(tuned: xr.Dataset) -> list[Claim]:
    """Exponents of the tuned critical scale, and of the tuned local update on the lazy branch."""
    rho = tuned.tuned_rho.values.astype(float)
    depth, width, dim = (tuned[f"tuned_{k}"].values.astype(float) for k in ("depth", "width", "dim"))
    ends = np.array([float(critical_rho(rho, curve)) for curve in _curves(tuned)])
    scale = np.log([critical_scale(*s) for s in zip(depth, width, dim, strict=True)])
    powers = {"depth": np.log(depth), "width": np.log(width), "dim": np.log(dim)}
    fit = fit_powers(np.log(ends) + scale, powers, corrections={"1/L": 1 / depth, "D/(LM)": dim / (depth * width)})
    doubt = "" if np.isfinite(fit.scatter) else "too few shapes, or shapes that cannot tell L, M and D apart"
    claims = [
        claim(f"tuned.critical.exponent_{k}", e.value, e.se, e.half_width, source=SOURCE, theory=THEORY[k], max_width=MAX_WIDTH, doubt=doubt)
        for k, e in fit.exponents.items()
    ]
    claims.append(_slope(tuned, rho, np.sqrt(depth * width / dim) / 2))
    return claims


def _slope(tuned: xr.Dataset, rho, tops) -> Claim:
    """Power of rho over 4 <= rho <= sqrt(LM/D)/2, cells of all shapes together: the constant is the same at every shape."""
    x, y = [], []
    for largest, top in zip(tuned.tuned_largest.values, tops, strict=True):
        inside = (rho >= LAZY_FROM * (1 - 1e-9)) & (rho <= top * (1 + 1e-9)) & np.isfinite(largest)
        x += list(np.log(rho[inside]))
        y += list(np.log(largest[inside]))
    enough = len(set(np.round(x, 6))) >= 3
    e = fit_powers(np.array(y), {"rho": np.array(x)}).exponents["rho"] if enough else MISSING
    return claim("tuned.lazy_branch.exponent", e.value, e.se, e.half_width, source=SOURCE, theory=-1.0, max_width=MAX_WIDTH_SLOPE)


def _curves(tuned: xr.Dataset) -> list[Curves]:
    """The sweep sees rates that are stable, so every cell counts as one below the blow-up."""
    return [Curves(largest, np.zeros_like(largest), largest) for largest in tuned.tuned_largest.values]
