"""Data to train a network on and to hold out: real digits, and a teacher whose Bayes risk is known."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ._loss import AbstractLoss, CrossEntropy, SquaredError
from .testbeds import Teacher


class Dataset(NamedTuple):
    """Samples that train a network, samples that do not, and the loss that fits them. `bayes_risk`: the least possible risk, NaN where unknown.

    **Example:** `data = scaffold.datasets.digits(key=jax.random.key(0))`
    """

    name: str
    train: tuple[Float[np.ndarray, "n inputs"], Float[np.ndarray, "n outputs"] | Int[np.ndarray, " n"]]
    held_out: tuple[Float[np.ndarray, "m inputs"], Float[np.ndarray, "m outputs"] | Int[np.ndarray, " m"]]
    loss: AbstractLoss
    outputs: int
    bayes_risk: float


def digits(train: int = 1000, *, key: Key[Array, ""]) -> Dataset:
    """Handwritten digits (scikit-learn, 1797 images of 8 x 8, pixels from 0 to 1), dealt at random; cross-entropy.

    **Raises:** `ValueError` for a share that leaves no samples on either side.

    **Example:** `scaffold.datasets.digits(1000, key=jax.random.key(0)).held_out`
    """
    from sklearn.datasets import load_digits  # slow to import, needed here only

    images, labels = (np.asarray(x) for x in load_digits(return_X_y=True))
    if not 1 <= train < len(images):
        raise ValueError(f"train={train} is not possible; expected 1 to {len(images) - 1} of the {len(images)} images.")
    order = np.asarray(jax.random.permutation(key, len(images)))
    x, y = (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    return Dataset("digits", (x[:train], y[:train]), (x[train:], y[train:]), CrossEntropy(), 10, float("nan"))


def teacher(train: int = 1000, held_out: int = 2000, *, inputs: int = 16, outputs: int = 4, noise: float = 0.3, key: Key[Array, ""]) -> Dataset:
    """Regression on a random residual network (see `testbeds.Teacher`) with noise; squared loss, known Bayes risk.

    **Raises:** `ValueError` for sizes below 1.

    **Example:** `scaffold.datasets.teacher(200, 400, key=jax.random.key(0)).bayes_risk`
    """
    for name, value in (("train", train), ("held_out", held_out)):
        if value < 1:
            raise ValueError(f"{name}={value} is not possible; expected at least 1.")
    first, second = jax.random.split(key)
    law = Teacher.init(inputs, outputs, noise=noise, key=first)
    x, y = (np.asarray(a) for a in law.draw(train + held_out, key=second))
    return Dataset("teacher", (x[:train], y[:train]), (x[train:], y[train:]), SquaredError(), outputs, law.bayes_risk)
