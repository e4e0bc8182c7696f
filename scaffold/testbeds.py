r"""Problems whose every quantity is known: what the estimators of this package are tested on, and what a user tries first.

Linear-Gaussian. x ~ N(0, Sigma), u = x, f_top = W u, y = W* x + xi, xi ~ N(0, tau^2 I), loss |f - y|^2/2. With E = W - W*:

    R = tr(E Sigma E^T)/2 + k tau^2/2         C = E[G u^T] = W^T E Sigma                 M = E[G G^T] = W^T (E Sigma E^T + tau^2 I) W
    R(W + t W V) = R - s t + beta t^2/2       s = -<C, V>,  beta = tr(W V Sigma V^T W^T)
    Var<G, V u> = 2 tr((Q Sigma)^2) + tau^2 beta,  Q the symmetric part of E^T W V
    E[G relu(w.u)] = W^T E w/2  and  E[G N(u)^T] = c_d W^T E  for Sigma = I,   c_d = sqrt(2/d) Gamma((d+1)/2)/Gamma(d/2)
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import gammaln

from ._population import FinitePopulation
from ._split import Split


class LinearGaussian(NamedTuple):
    """A linear network on Gaussian inputs, with a linear teacher and noise; see the top of this file.

    **Arguments:** `w`, `w_star`: W and W*, (outputs, dim); `sigma`: covariance of the inputs, (dim, dim); `tau`: standard deviation of the noise.

    **Example:** `LinearGaussian(np.eye(2), np.diag([2.0, 1.0]), np.eye(2), 0.5).risk()` is 0.75.
    """

    w: Float[np.ndarray, "outputs dim"]
    w_star: Float[np.ndarray, "outputs dim"]
    sigma: Float[np.ndarray, "dim dim"]
    tau: float

    @property
    def error(self) -> Float[np.ndarray, "outputs dim"]:
        """E = W - W*."""
        return self.w - self.w_star

    def risk(self, v: Float[np.ndarray, "dim dim"] | None = None, t: float = 0.0) -> float:
        """R of W (I + t V)."""
        e = self.error if v is None else self.error + t * self.w @ v
        return 0.5 * float(np.trace(e @ self.sigma @ e.T)) + 0.5 * len(self.w) * self.tau**2

    def signal(self) -> Float[np.ndarray, "dim dim"]:
        """C of the family h = V u."""
        return self.w.T @ self.error @ self.sigma

    def curvature(self, v: Float[np.ndarray, "dim dim"]) -> float:
        """beta along V."""
        return float(np.trace(self.w @ v @ self.sigma @ v.T @ self.w.T))

    def hessian(self) -> Float[np.ndarray, "dim dim"]:
        """Of the loss in u: W^T W."""
        return self.w.T @ self.w

    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        """M = E[G G^T]."""
        e = self.error
        return self.w.T @ (e @ self.sigma @ e.T + self.tau**2 * np.eye(len(self.w))) @ self.w

    def variance(self, v: Float[np.ndarray, "dim dim"]) -> float:
        """Of one sample's <G, V u>."""
        q = self.error.T @ self.w @ v
        q = (q + q.T) / 2 @ self.sigma
        return 2 * float(np.trace(q @ q)) + self.tau**2 * self.curvature(v)

    def relu_signal(self, w: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
        """E[G relu(w.u)], for Sigma = I."""
        self._isotropic("relu_signal")
        return 0.5 * self.w.T @ self.error @ w

    def normalised_signal(self) -> Float[np.ndarray, "dim dim"]:
        """E[G N(u)^T] for RMSNorm with eps = 0 and Sigma = I."""
        self._isotropic("normalised_signal")
        return mean_root(self.w.shape[1]) * self.w.T @ self.error

    def split(self, dtype: str = "float64") -> Split:
        """The network, cut before W."""
        weight = jnp.asarray(self.w, dtype)
        return Split(lambda x: x, lambda u: weight @ u, name="inputs")

    def draw(self, n: int, *, key: Key[Array, ""], dtype: str = "float64") -> tuple[Float[Array, "n dim"], Float[Array, "n outputs"]]:
        """n samples (x, y)."""
        first, second = jax.random.split(key)
        root = jnp.asarray(np.linalg.cholesky(self.sigma), dtype)
        x = jax.random.normal(first, (n, len(self.sigma)), dtype) @ root.T
        return x, x @ jnp.asarray(self.w_star, dtype).T + self.tau * jax.random.normal(second, (n, len(self.w)), dtype)

    def _isotropic(self, name: str) -> None:
        if not np.array_equal(self.sigma, np.eye(len(self.sigma))):
            raise ValueError(f"{name} is known for sigma = I alone; expected the identity, got a matrix with eigenvalues {np.linalg.eigvalsh(self.sigma)}.")


def mean_root(dim: int) -> float:
    """c_d = E|x|/sqrt(d) for a standard normal x in d dimensions.

    **Example:** `mean_root(2)` is 0.886226925...
    """
    return math.sqrt(2 / dim) * math.exp(gammaln((dim + 1) / 2) - gammaln(dim / 2))


class RidgeFreeTarget(NamedTuple):
    """f_top(u) = u_2 on x ~ N(0, I_2), y = x_2 + (x_1^2 - 1)/sqrt(2): every linear signal is 0 and one relu neuron on x_1 has 1/(2 sqrt(pi)).

    **Example:** `RidgeFreeTarget().neuron_signal(0.0)` is 0.2820947918...
    """

    @staticmethod
    def neuron_signal(angle: float) -> float:
        """Signal of relu(cos(angle) x_1 + sin(angle) x_2), written into u_2."""
        return math.cos(angle) ** 2 / (2 * math.sqrt(math.pi))

    @staticmethod
    def split() -> Split:
        """The network, cut before its readout."""
        return Split(lambda x: x, lambda u: u[1:], name="inputs")

    @staticmethod
    def draw(n: int, *, key: Key[Array, ""], dtype: str = "float64") -> tuple[Float[Array, "n 2"], Float[Array, "n 1"]]:
        """n samples (x, y)."""
        x = jax.random.normal(key, (n, 2), dtype)
        return x, x[:, 1:] + (x[:, :1] ** 2 - 1) / math.sqrt(2)


def parity_population(weight: tuple[float, float] = (1.0, 0.5)) -> tuple[Split, FinitePopulation]:
    """Four points u in {-1, 1}^2 with label +1 where the signs agree and a linear logistic network: its first-order signal along u_1 u_2 is |w|/2.

    **Example:** `split, population = parity_population()`
    """
    u = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    w = np.asarray(weight)
    return Split(lambda x: x, lambda u: jnp.asarray(w, u.dtype)[None] @ u, name="inputs"), FinitePopulation(u, u[:, 0] * u[:, 1])


class Teacher(NamedTuple):
    """A random residual teacher with noise: y = f*(x) + noise xi, x uniform on the sphere of radius sqrt(inputs). Its Bayes risk is outputs noise^2/2.

    **Example:** `x, y = Teacher.init(8, 4, key=jax.random.key(0)).draw(100, key=jax.random.key(1))`
    """

    into: Float[Array, "inputs dim"]
    first: Float[Array, "blocks dim dim"]
    second: Float[Array, "blocks dim dim"]
    out: Float[Array, "dim outputs"]
    noise: float

    @classmethod
    def init(cls, inputs: int, outputs: int, *, dim: int = 32, blocks: int = 3, noise: float = 0.3, key: Key[Array, ""]) -> "Teacher":
        """Weights of variance 1/fan-in; blocks of relu perceptrons."""
        keys = jax.random.split(key, 4)
        shapes = (inputs, dim), (blocks, dim, dim), (blocks, dim, dim), (dim, outputs)
        into, first, second, out = (jax.random.normal(k, s) / math.sqrt(s[-2]) for k, s in zip(keys, shapes, strict=True))
        return cls(into, first, second, out, noise)

    @property
    def bayes_risk(self) -> float:
        """Risk of f* itself, squared loss."""
        return self.out.shape[1] * self.noise**2 / 2

    def __call__(self, x: Float[Array, "n inputs"]) -> Float[Array, "n outputs"]:
        """f*(x)."""
        u = x @ self.into
        for a, b in zip(self.first, self.second, strict=True):
            u = u + jax.nn.relu(u @ a) @ b
        return u @ self.out / math.sqrt(1 + len(self.first))

    def draw(self, n: int, *, key: Key[Array, ""]) -> tuple[Float[Array, "n inputs"], Float[Array, "n outputs"]]:
        """n samples (x, y)."""
        first, second = jax.random.split(key)
        x = jax.random.normal(first, (n, self.into.shape[0]))
        x = x / jnp.linalg.norm(x, axis=1, keepdims=True) * math.sqrt(x.shape[1])
        y = self(x)
        return x, y + self.noise * jax.random.normal(second, y.shape)
