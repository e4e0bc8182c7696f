r"""MLU, lazy, fan-in and CompleteP as points of the phase diagram.

Fan-in and CompleteP sit at rho = sqrt(M/D): on MLU exactly when M = D, and off it elsewhere. Their fluctuation at initialisation is then
rho sqrt(D/(LM)) = 1/sqrt(L): under fan-in the effective width is L, not LM.
"""

import math

import numpy as np
from jaxtyping import Float

from ._claims import Claim, claim
from ._phase import SCHEMES
from ._power_fit import fit_powers

FLUCTUATION = {"mlu": {"depth": -0.5, "width": -0.5, "dim": 0.5}, "fan_in": {"depth": -0.5, "width": 0.0, "dim": 0.0}}
MAX_WIDTH = 0.15


def scheme_claims(
    data: dict[str, np.ndarray],
    draws: dict[str, np.ndarray],
    powers: dict[str, Float[np.ndarray, " shape"]],
    corrections: dict[str, Float[np.ndarray, " shape"]],
) -> list[Claim]:
    """Powers of the fluctuation under MLU and fan-in, and the power of M/D with which they part (at M = D they are the same network)."""
    at = {name: i for i, name in enumerate(SCHEMES)}
    claims: list[Claim] = []
    log_f, log_f_draws = np.log(data["scheme_fluctuation"]), np.log(draws["scheme_fluctuation"])
    for name, theory in FLUCTUATION.items():
        fit = fit_powers(log_f[:, at[name]], powers, corrections=corrections, draws=log_f_draws[:, :, at[name]])
        doubt = "" if math.isfinite(fit.scatter) else "too few shapes, or shapes that cannot tell L, M and D apart"
        claims += [
            claim(f"{name}.fluctuation.exponent_{k}", e.value, e.se, e.half_width, source="Theorem 3", theory=theory[k], max_width=MAX_WIDTH, doubt=doubt)
            for k, e in fit.exponents.items()
        ]
    ratio = powers["width"] - powers["dim"]
    claims.append(_parting(data, draws, at, ratio, corrections))
    return claims


def _parting(data: dict[str, np.ndarray], draws: dict[str, np.ndarray], at: dict[str, int], ratio, corrections) -> Claim:
    """Off M = D: F of fan-in over F of MLU as a power of M/D. Next order: F is not quite linear in rho, by rho^2 D/(LM), which is 1/L under fan-in."""
    values, again = data["scheme_fluctuation"], draws["scheme_fluctuation"]
    y = np.log(values[:, at["fan_in"]] / values[:, at["mlu"]])
    d = np.log(again[:, :, at["fan_in"]] / again[:, :, at["mlu"]])
    e = fit_powers(y, {"ratio": ratio}, corrections=corrections, draws=d).exponents["ratio"]
    source = "Theorem 3, rho = sqrt(M/D)"
    return claim("fan_in.fluctuation_over_mlu.exponent", e.value, e.se, e.half_width, source=source, theory=0.5, max_width=MAX_WIDTH)
