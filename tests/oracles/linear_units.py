"""Independent solver of the Mean ODE for linear units, sigma(x) = x: closed second moments, scipy, no quadrature, no Chebyshev grid.

Every unit moves linearly, (g, g')_k = A_k(s) (g, g')_0 with (g, g')_0 ~ N(0, I), so E[g' (g.a)] = C_{g'g} a with C = A A^T.
"""

import numpy as np
from scipy.integrate import solve_ivp


def outputs(start, unembedding, targets, learning_rate, steps):
    """Outputs f_k of the squared loss, k = 0, ..., steps. `start` (n, r), `unembedding` (r, out) in reduced coordinates."""
    r = start.shape[1]
    history = []  # (a_i(s), beta_i(s)) of earlier steps

    def moments(s):
        a_matrix = np.eye(2 * r)
        for a_of, b_of in history:
            a, b = a_of(s).reshape(-1, r), b_of(s).reshape(-1, r)
            cross = learning_rate * a.T @ b  # sum_x a_x beta_x^T
            step = np.eye(2 * r)
            step[:r, r:] -= cross
            step[r:, :r] -= cross.T
            a_matrix = step @ a_matrix
        c = a_matrix @ a_matrix.T
        return c[r:, :r]  # E[g' g^T]

    results = []
    for _ in range(steps + 1):
        up = solve_ivp(lambda s, a: (a.reshape(-1, r) @ moments(s).T).ravel(), (0, 1), start.ravel(), rtol=1e-10, atol=1e-12, dense_output=True)
        f = up.y[:, -1].reshape(-1, r) @ unembedding
        results.append(f)
        seed = ((f - targets) / targets.size) @ unembedding.T
        down = solve_ivp(lambda s, b: -(b.reshape(-1, r) @ moments(s)).ravel(), (1, 0), seed.ravel(), rtol=1e-10, atol=1e-12, dense_output=True)
        history.append((up.sol, down.sol))
    return np.stack(results)
