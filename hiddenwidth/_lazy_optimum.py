r"""The best alpha: where the error to the tangent ODE is least, measured and predicted from the three terms.

At fixed LM the term 1/alpha^p falls and alpha sqrt(D/(LM)) rises, so the least error is at an alpha* between, which grows as (LM/D)^(1/(2p+2)) once both
terms have reached their asymptotic powers.
"""

import math

import numpy as np
import xarray as xr
from jaxtyping import Float

from ._claims import Claim, claim
from ._lazy import LazyReference
from ._statistics import NORMAL_95

#: The best alpha is read off a cubic through the points this many octaves around the predicted one: wider, a cubic no longer follows the bend.
WINDOW = 1.0
MAX_EXPONENT_WIDTH = 0.08
#: alpha* is resolved when its interval is no wider than this share of it.
MAX_RELATIVE_WIDTH = 0.3


def best_alpha(alphas: Float[np.ndarray, " alpha"], error2: Float[np.ndarray, "*draws alpha"], window: np.ndarray) -> Float[np.ndarray, "*draws"]:
    """Minimum of a cubic through log error^2 over log alpha, on the points of the window."""
    at = np.log(alphas[window])
    logs = np.log(np.maximum(error2[..., window], 1e-300))
    centre = at.mean()
    powers = np.stack([(at - centre) ** q for q in range(4)], -1)
    beta = np.linalg.lstsq(powers, logs.reshape(-1, len(at)).T, rcond=None)[0]
    fine = np.linspace(at[0], at[-1], 801)
    curve = np.stack([(fine - centre) ** q for q in range(4)], -1) @ beta
    return np.exp(fine[np.argmin(curve, axis=0)]).reshape(logs.shape[:-1])


def optimum_claims(name: str, runs: xr.Dataset, error2, draws, predicted2) -> list[Claim]:
    """alpha* of every shape beside its prediction from the three terms (`predicted2`, mean squares), which stands as theory, and its scaling in LM/D."""
    alphas = runs.alpha.values.astype(float)
    product = (runs.depth * runs.width).values.astype(float)
    claims, found = [], []
    for i in range(len(product)):
        if not np.isfinite(predicted2[i]).all():
            continue
        rough = alphas[np.argmin(predicted2[i])]
        window = np.abs(np.log2(alphas / rough)) <= WINDOW + 1e-3
        if window.sum() < 5 or not np.isfinite(error2[i, window]).all():
            continue
        value, theory = float(best_alpha(alphas, error2[i], window)), float(best_alpha(alphas, predicted2[i], window))
        logs = np.log(best_alpha(alphas, draws[:, i], window))
        half = NORMAL_95 * value * float(logs.std(ddof=1))
        lowest = int(np.nanargmin(error2[i]))
        inner = alphas[window]
        doubt = "" if 0 < lowest < len(alphas) - 1 else "the least error is at the end of the range of alpha"
        if not inner[0] * 1.001 < value < inner[-1] / 1.001:
            doubt = "the least error is at the end of the window around the predicted one"
        label = f"{name}.optimum.alpha[L={int(runs.depth[i])}, M={int(runs.width[i])}]"
        source = "Theorem 2, predicted from the terms of the other shapes"
        claims.append(claim(label, value, half / NORMAL_95, half, theory=theory, max_width=MAX_RELATIVE_WIDTH * theory, doubt=doubt, source=source))
        found.append((math.log(product[i] / runs.attrs["dim"]), math.log(value), float(logs.std(ddof=1)), math.log(theory)))
    if len({x[0] for x in found}) >= 2:
        at, value, se, theory = np.array(found).T
        centred = at - np.average(at, weights=se**-2)
        weights = se**-2 * centred / np.sum(se**-2 * centred**2)
        error = float(np.sqrt(np.sum((weights * se) ** 2)))
        claims.append(
            claim(
                f"{name}.optimum.exponent", float(weights @ value), error, NORMAL_95 * error,
                theory=float(weights @ theory), max_width=MAX_EXPONENT_WIDTH, source="Theorem 2, local exponent of alpha* in LM/D over these shapes",
            )
        )  # fmt: skip
    return claims


#: LM/D at which the predicted best alpha is listed: from small networks to the asymptotic regime.
PREDICTED_AT = np.geomspace(1e2, 1e14, 49)


def optimum_curve(reference: LazyReference, b2) -> xr.Dataset:
    """alpha* predicted from A(alpha) and b(alpha) at infinite depth, and its local exponent, far beyond the networks that can be trained."""
    gap = np.sqrt(np.mean(reference.hidden_gap**2, axis=(-2, -1))).mean(1)
    first, last = reference.alphas[0], reference.alphas[-1]
    fine = np.geomspace(first, 1e4, 40001)
    inside = np.exp(np.interp(np.log(fine), np.log(reference.alphas), np.log(gap)))
    error_a = np.where(fine <= last, inside, gap[-1] * (last / fine) ** reference.order)
    spread = np.exp(b2(np.clip(np.log(fine), *b2.domain))) * fine**2 if b2 is not None else np.full_like(fine, np.nan)
    best = np.array([fine[np.argmin(error_a**2 + spread / x)] for x in PREDICTED_AT]) if b2 is not None else np.full(len(PREDICTED_AT), np.nan)
    local = np.gradient(np.log(best), np.log(PREDICTED_AT))
    asymptotic = 1.0 / (2 * reference.order + 2)
    names = {"predicted_optimum": best, "predicted_exponent": local, "asymptotic_exponent": np.full_like(local, asymptotic)}
    return xr.Dataset({k: (("product_over_dim",), v) for k, v in names.items()}, coords={"product_over_dim": PREDICTED_AT})
