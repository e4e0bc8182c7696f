r"""How much of the activation gradient is a function of u? Cross-fitted regression, the widest family that there is.

    g(u) = E[G | u],   s_inf = sqrt(E|g|^2),   zeta = s_inf^2 / E|G|^2

A regression ghat of G on u, fitted on the other folds, gives the direction phi = -ghat/rms(ghat) and, on its own fold, the signal -E<G, phi>: at most s_inf,
whatever the regression. Where it is 0 for a good regression, no block of any family has a first-order direction at this site.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor

from ._crossfit import cross_fit

#: Rows that a kernel regression is fitted to at most; more are thinned out evenly, whole samples at a time.
ROWS = 3000
#: Ridge penalties that are tried on a third of the training rows.
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


class RegressionSignal(NamedTuple):
    """Signal of the direction that a regression of G on u gives: cross-fitted value, standard error, lower bound, and zeta = value^2/E|G|^2."""

    value: float
    se: float
    lower: float
    delta: float
    predictability: float


def regression_signal(
    gradient: Float[np.ndarray, "n *positions dim"],
    u: Float[np.ndarray, "k *places m"],
    *,
    kind: Literal["kernel_ridge", "knn"] = "kernel_ridge",
    folds: int = 2,
    delta: float = 0.05,
    rows: int = ROWS,
    seed: int = 0,
) -> RegressionSignal:
    r"""Cross-fit a regression of G on u.

    **Arguments:** `gradient`, `u`: of samples that did not train the network; `kind`: Gaussian kernel ridge regression, or 15 nearest neighbours; `rows`:
    largest number of rows (positions) fitted to.

    **Returns:** a `RegressionSignal`; its standard error holds for any regression.

    **Raises:** `ValueError` for G and u of different shapes, an unknown kind, or folds of fewer than two samples.

    Source: arXiv 2605.08297, condition 1, over all functions of u.

    **Example:** `regression_signal(g, u).predictability`
    """
    if np.shape(gradient) != np.shape(u):
        raise ValueError(f"gradient has shape {np.shape(gradient)} and u {np.shape(u)}; expected the same, samples first.")
    if kind not in ("kernel_ridge", "knn"):
        raise ValueError(f"kind={kind!r} is not known; expected kernel_ridge or knn.")
    g, x = (np.asarray(a, np.float64).reshape(len(a), -1, a.shape[-1]) for a in (gradient, u))
    scale = max(float(np.sqrt(np.mean((x - x.mean((0, 1))) ** 2))), 1e-300)

    def choose(train):
        kept = train[:: max(1, -(-len(train) * x.shape[1] // rows))]
        inputs, targets = x[kept].reshape(-1, x.shape[-1]) / scale, g[kept].reshape(-1, g.shape[-1])
        if kind == "knn":
            return KNeighborsRegressor(min(15, len(inputs))).fit(inputs, targets)
        third = np.arange(len(inputs)) % 3 == 0
        tried = [_ridge(ridge, x.shape[-1]).fit(inputs[~third], targets[~third]) for ridge in RIDGES]
        errors = [np.mean((model.predict(inputs[third]) - targets[third]) ** 2) for model in tried]
        return _ridge(RIDGES[int(np.argmin(errors))], x.shape[-1]).fit(inputs, targets)

    def evaluate(model, test):
        guess = model.predict(x[test].reshape(-1, x.shape[-1]) / scale).reshape(g[test].shape)
        size = math.sqrt(float(np.mean(np.sum(guess**2, axis=(1, 2)))))
        return np.sum(g[test] * guess, axis=(1, 2)) / max(size, 1e-300)

    found = cross_fit(len(g), choose, evaluate, folds=folds, kind="any", delta=delta, seed=seed)
    whole = float(np.mean(np.sum(g**2, axis=(1, 2))))
    zeta = max(found.value, 0.0) ** 2 / whole if whole > 0 else math.nan
    return RegressionSignal(found.value, found.se, found.lower, delta, zeta)


def _ridge(ridge: float, dim: int) -> KernelRidge:
    return KernelRidge(alpha=ridge, kernel="rbf", gamma=1 / (2 * dim))  # pyright: ignore[reportArgumentType]
