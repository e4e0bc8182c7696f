r"""A learning problem: data, loss, and the fixed linear maps into and out of the residual stream.

h_0 = W_E x  (hidden state, rms of order one),     f = W_U^T h_L / D,     b_L = D dLoss/dh_L = W_U dLoss/df
"""

import hashlib
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from ._choices import choose, finite_array, positive_int
from ._loss import LOSSES
from ._types import AnyArray

EMBEDDINGS = {"gaussian": None, "orthogonal": None}


class StateSpace(eqx.Module):
    """What the dynamics see of a problem: starting states, readout, loss.

    `inner` is the factor of the inner product, 1/D in the ambient space R^D and 1 in reduced coordinates, where D has been divided out.
    """

    start: Float[AnyArray, "batch dim"]
    unembedding: Float[AnyArray, "dim out"]
    targets: Float[AnyArray, "batch out"]
    loss_name: str = eqx.field(static=True)
    inner: float = eqx.field(static=True)

    def readout(self, h: Float[Array, "batch dim"]) -> Float[Array, "batch out"]:
        """f = W_U^T h / D."""
        return h @ self.unembedding * self.inner

    def loss(self, f: Float[Array, "batch out"]) -> Float[Array, ""]:
        """Mean loss of the outputs."""
        return LOSSES[self.loss_name](f, self.targets)

    def adjoint(self, f: Float[Array, "batch out"]) -> Float[Array, "batch dim"]:
        """b_L = W_U dLoss/df."""
        return jax.grad(self.loss)(f) @ self.unembedding.T

    def astype(self, dtype) -> "StateSpace":
        """The same space with all arrays in `dtype`."""
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)


class Problem(eqx.Module):
    r"""Data, loss and embeddings. Use `Problem.embed` to make one from your own arrays, or a ready-made one from `hiddenwidth.problems`.

    Arrays are numpy float64, whatever JAX's precision switch says; the computations cast them to the precision they work in.
    `embedding` and `unembedding` are `None` when `dim` is infinite: then only their limiting Gram matrix exists.
    """

    inputs: Float[np.ndarray, "batch features"]
    targets: Float[np.ndarray, "batch out"]
    embedding: Float[np.ndarray, "dim features"] | None
    unembedding: Float[np.ndarray, "dim out"] | None
    loss: str = eqx.field(static=True, default="squared")
    name: str = eqx.field(static=True, default="data")

    def __check_init__(self):
        for what in ("inputs", "targets"):
            finite_array(what, getattr(self, what), ndim=2)
        choose("loss", self.loss, LOSSES)
        if self.loss == "logistic" and not np.all(np.abs(self.targets) == 1):
            raise ValueError("loss='logistic' expects targets of -1 and +1; recode the labels, or use loss='squared'.")
        if self.loss == "softmax" and not (np.all(self.targets >= 0) and np.allclose(self.targets.sum(1), 1)):
            raise ValueError("loss='softmax' expects one-hot targets, rows that sum to 1; pass np.eye(classes)[labels].")

    @classmethod
    def embed(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        dim: float,
        key: Key[Array, ""] | None = None,
        loss: str = "squared",
        embedding: str = "gaussian",
        name: str = "data",
    ) -> "Problem":
        r"""Make a problem from arrays.

        **Arguments:**

        - `inputs`: (n, d_in); `targets`: (n, d_out).
        - `dim`: embedding dimension D, or `math.inf`.
        - `key`: draws the embeddings; not needed when `dim` is infinite.
        - `loss`: `"squared"`, `"logistic"` (targets -1/+1) or `"softmax"` (one-hot targets).
        - `embedding`: `"gaussian"`: W_E entries N(0, 1/d_in), W_U entries N(0, d_out). `"orthogonal"`: the same, orthogonalised so that the
          Gram matrix of [W_E, W_U] is exactly its large-D limit; then the Mean ODE is the same at every D.

        **Raises:** `ValueError` for mismatched shapes, NaN or infinite values, unknown names, or a `dim` too small for the data.

        **Example:**

        ```python
        x = np.linspace(-1, 1, 8)[:, None]
        problem = hw.Problem.embed(x, np.sin(3 * x), dim=16, key=jax.random.key(0))
        ```
        """
        inputs = finite_array("inputs", inputs, ndim=2)
        targets = finite_array("targets", targets, ndim=2)
        if len(inputs) != len(targets):
            raise ValueError(f"inputs has {len(inputs)} rows and targets has {len(targets)}; expected one target row for each input row.")
        choose("embedding", embedding, EMBEDDINGS)
        if dim == math.inf:
            return cls(inputs, targets, None, None, loss, name)
        dim = positive_int("dim", dim)
        rank = int(np.linalg.matrix_rank(inputs))
        needed = rank + targets.shape[1] if embedding == "orthogonal" else rank
        if dim < needed:
            raise ValueError(
                f"dim={dim} is too small for these data; expected at least {needed}: the inputs span {rank} dimensions"
                + (f" and orthogonal embeddings need {targets.shape[1]} more for the outputs" if embedding == "orthogonal" else "")
                + ". Raise dim or reduce the inputs (for example to fewer principal components)."
            )
        if key is None:
            raise ValueError("key=None but random embeddings need one; pass key=jax.random.key(0), or dim=math.inf.")
        embedding_, unembedding = _draw_embeddings(inputs, targets.shape[1], dim, embedding == "orthogonal", key=key)
        return cls(inputs, targets, embedding_, unembedding, loss, name)

    @property
    def dim(self) -> float:
        """Embedding dimension D, possibly `math.inf`."""
        return math.inf if self.embedding is None else self.embedding.shape[0]

    def digest(self) -> str:
        """A fingerprint of data, embeddings and loss: two problems with the same one are the same problem."""
        arrays = (self.inputs, self.targets, self.embedding, self.unembedding)
        mark = hashlib.sha256(self.loss.encode())
        for array in arrays:
            mark.update(b"-" if array is None else repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        return mark.hexdigest()[:16]

    def with_dim(self, dim: float, *, key: Key[Array, ""] | None = None, embedding: str = "gaussian") -> "Problem":
        """The same data embedded anew in `dim` dimensions."""
        return Problem.embed(self.inputs, self.targets, dim=dim, key=key, loss=self.loss, embedding=embedding, name=self.name)

    def space(self) -> StateSpace:
        """The ambient state space R^D, in float64 numpy arrays; `ValueError` when D is infinite."""
        if self.embedding is None or self.unembedding is None:
            raise ValueError("dim=inf has no ambient state space: networks and ambient quadrature need a finite dim. Use problem.with_dim(D, key=...).")
        return StateSpace(self.inputs @ self.embedding.T, self.unembedding, self.targets, self.loss, 1.0 / self.dim)


def _draw_embeddings(
    inputs: Float[np.ndarray, "batch features"], d_out: int, dim: int, orthogonal: bool, *, key: Key[Array, ""]
) -> tuple[Float[np.ndarray, "dim features"], Float[np.ndarray, "dim out"]]:
    d_in = inputs.shape[1]
    # Orthogonal embeddings keep the row space of the inputs only: what the inputs never point at needs no room.
    rows = _row_space(inputs) if orthogonal else np.eye(d_in)
    with jax.enable_x64(True):  # the same problem whatever the caller's precision switch says
        key_in, key_out = jax.random.split(key)
        embed = np.asarray(jax.random.normal(key_in, (dim, len(rows)), jnp.float64))
        unembed = np.asarray(jax.random.normal(key_out, (dim, d_out), jnp.float64))
    if orthogonal:
        q, r = np.linalg.qr(np.concatenate([embed, unembed], axis=1))
        q = q * np.sign(np.diag(r)) * math.sqrt(dim)  # Q^T Q = D I, signs fixed so that the draw is unique
        embed, unembed = q[:, : len(rows)], q[:, len(rows) :]
    return embed @ rows / math.sqrt(d_in), unembed * math.sqrt(d_out)


def _row_space(inputs: Float[np.ndarray, "batch features"]) -> Float[np.ndarray, "rank features"]:
    """Orthonormal rows that span the inputs."""
    _, _, right = np.linalg.svd(inputs, full_matrices=False)
    return right[: int(np.linalg.matrix_rank(inputs))]
