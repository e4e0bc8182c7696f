"""Ready-made problems: small enough for a laptop, standard enough to compare."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Key

from ._choices import positive_int
from ._problem import Problem


def sine(n: int = 8, *, dim: float = 16, key: Key[Array, ""] | None = None, embedding: str = "gaussian", loss: str = "squared") -> Problem:
    """Regression in one dimension: y = sin(pi x) on n evenly spaced points of [-1, 1].

    **Example:** `hw.problems.sine(8, dim=16, key=jax.random.key(0))`
    """
    grid = np.linspace(-1.0, 1.0, positive_int("n", n, at_least=2))[:, None]
    return Problem.embed(grid, np.sin(np.pi * grid), dim=dim, key=key, loss=loss, embedding=embedding, name="sine")


def gaussian(
    n: int = 10,
    *,
    d_in: int = 5,
    d_out: int = 5,
    dim: float = 32,
    key: Key[Array, ""],
    data_seed: int = 1,
    embedding: str = "gaussian",
    loss: str = "squared",
) -> Problem:
    """Inputs and targets with independent standard normal entries, the problem of Chizat's own experiments (n=10, d_in=d_out=5).

    `data_seed` fixes the data; `key` draws the embeddings.

    **Example:** `hw.problems.gaussian(10, dim=32, key=jax.random.key(0))`
    """
    rng = np.random.default_rng(data_seed)
    shape_in = (positive_int("n", n), positive_int("d_in", d_in))
    inputs, targets = rng.standard_normal(shape_in), rng.standard_normal((n, positive_int("d_out", d_out)))
    return Problem.embed(inputs, targets, dim=dim, key=key, loss=loss, embedding=embedding, name="gaussian")


def digits(
    classes: Sequence[int] = (3, 8),
    *,
    components: int = 4,
    dim: float = 32,
    key: Key[Array, ""] | None = None,
    embedding: str = "gaussian",
    loss: str = "squared",
    limit: int | None = None,
) -> Problem:
    """Real handwritten digits (scikit-learn, 1797 images of 8 x 8): all images of the chosen classes, as whitened principal components.

    With two classes and a squared or logistic loss the target is -1 or +1; otherwise it is one-hot.
    `limit` keeps the first so many images, for tests.

    **Example:** `hw.problems.digits((3, 8), components=4, dim=32, key=jax.random.key(0))`
    """
    from sklearn.datasets import load_digits  # slow to import, needed here only

    unknown = [c for c in classes if c not in range(10)]
    if unknown or len(classes) < 2 or len(set(classes)) < len(classes):
        raise ValueError(f"classes={tuple(classes)!r} is not possible; expected at least two digits from 0 to 9, each named once.")
    if loss == "logistic" and len(classes) > 2:
        raise ValueError(f"loss='logistic' tells two classes apart and classes={tuple(classes)!r} names {len(classes)}; use loss='softmax'.")
    if limit is not None:
        positive_int("limit", limit, at_least=2)
    images, labels = (np.asarray(x) for x in load_digits(return_X_y=True))
    chosen = np.isin(labels, classes)
    images, labels = images[chosen][:limit], labels[chosen][:limit]
    centred = images - images.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    rank = int(np.sum(singular > 1e-10 * singular[0]))
    if positive_int("components", components) > rank:
        raise ValueError(f"components={components} is too many; these {len(images)} images span {rank} dimensions.")
    whitened = left[:, :components] * np.sqrt(len(images))
    one_hot = (labels[:, None] == np.asarray(classes)[None, :]).astype(np.float64)
    targets = one_hot if loss == "softmax" or len(classes) > 2 else one_hot[:, 1:] - one_hot[:, :1]
    return Problem.embed(whitened, targets, dim=dim, key=key, loss=loss, embedding=embedding, name="digits")
