r"""Predicted against realised: does the risk change as the first-order map says?

    remainder(t) = R(0) - R(t) - s t        of second order in t for smooth networks

Measured in float64 whatever the network's dtype, at near-identity steps. Its order is the exponent p of |remainder| = c t^p exp(e t), fitted to the smallest
steps whose remainder is not rounding, with Student's interval; 2 says that signal, block and gradients agree, which nothing else in a pipeline does by
accident. A network with kinks is a polynomial between them: steps so small that no sample crosses one have order 2 as well, larger ones have no order.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import stats

from hiddenwidth._claims import Claim, near

from ._covariance import Estimate
from ._gradients import Loss
from ._insert import Expanded
from ._path import path, unit_step

#: Near-identity steps, how many of them the order is fitted to, and the share of the loss from which a remainder is not rounding.
TAUS, FITTED, ROUNDING = tuple(float(t) for t in np.geomspace(1e-6, 1e-2, 17)), 7, 1e-12


class Realised(NamedTuple):
    """Steps (t, tau), predicted gain s t, realised gain, and the order of their difference. `signal`: s; `curvature`: -2 remainder/t^2 at the smallest step."""

    t: Float[np.ndarray, " steps"]
    tau: Float[np.ndarray, " steps"]
    predicted: Float[np.ndarray, " steps"]
    realised: Float[np.ndarray, " steps"]
    order: Estimate
    signal: float
    curvature: float


def predicted_against_realised(
    expanded: Expanded, v: PyTree[Array], loss: Loss, x: PyTree, y: PyTree, *, taus: tuple[float, ...] = TAUS, chunk: int = 512
) -> Realised:
    r"""Compare the first-order prediction with the change of the mean loss on these samples.

    **Arguments:** `taus`: steps in units of rms u / rms J v, at least four.

    **Returns:** a `Realised`. Its order is NaN where the remainder is rounding, as for a loss that is linear along the direction.

    **Raises:** `ValueError` for fewer than four steps, or a direction that moves nothing.

    Source: arXiv 2605.08297, path differentiability.

    **Example:** `predicted_against_realised(expanded, v, SquaredError(), x, y).order`
    """
    if len(taus) < 4:
        raise ValueError(f"taus has {len(taus)} steps; expected at least 4, to fit an order.")
    with jax.enable_x64(True):
        wide, v, x, y = (jax.tree.map(_double, part) for part in (expanded, v, x, y))
        unit = unit_step(wide, v, x, y, loss, chunk=chunk)
        steps = np.concatenate([[0.0], unit * np.asarray(taus)])
        walked = path(wide, v, steps, loss, x, y, chunk=chunk)
    t, signal = steps[1:], walked.signal
    realised = np.mean(walked.losses[0] - walked.losses[1:], axis=1)
    rest = realised - signal * t
    scale = float(np.abs(walked.losses[0]).mean())
    order = _order(t / unit, rest, scale)
    return Realised(t, walked.near_identity()[1:], signal * t, realised, order, signal, float(-2 * rest[0] / t[0] ** 2))


def order_claim(name: str, order: Estimate) -> Claim:
    """Order 2 to within 0.1, the whole interval. (The intervals are those of the fit, far narrower than the model is exact.)"""
    half = (order.high - order.low) / 2
    return near(f"{name}.order_minus_2", order.value - 2, half / 1.96, half, 0.1, source="path differentiability", doubt=order.why)


def _order(tau: Float[np.ndarray, " steps"], rest: Float[np.ndarray, " steps"], scale: float) -> Estimate:
    good = np.flatnonzero(np.abs(rest) > ROUNDING * scale)[:FITTED]
    if len(good) < 4:
        return Estimate(np.nan, np.nan, np.nan, "the remainder is rounding: the loss is linear along this direction, or the steps are too small")
    x = np.stack([np.ones(len(good)), np.log(tau[good]), tau[good] / tau[good].max()], 1)
    logs = np.log(np.abs(rest[good]))
    beta, *_ = np.linalg.lstsq(x, logs, rcond=None)
    dof = len(logs) - 3
    variance = np.sum((logs - x @ beta) ** 2) / dof * np.linalg.inv(x.T @ x)[1, 1]
    half = float(stats.t.ppf(0.975, dof) * np.sqrt(variance))
    return Estimate(float(beta[1]), float(beta[1]) - half, float(beta[1]) + half)


def _double(x):
    if not isinstance(x, (jax.Array, np.ndarray)) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):  # a flax module may carry keys
        return x
    return jnp.asarray(np.asarray(x), jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.asarray(np.asarray(x))
