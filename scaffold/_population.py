r"""What "population" means: where R, gains and signals come from, and how sure they are.

FinitePopulation   the uniform law on a data set; samples drawn with replacement make every theorem about i.i.d. data hold exactly, and R is a sum
FreshSampler       a function that draws; every quantity comes with a standard error
HeldOut            data that nothing was chosen on: estimates only
"""

import hashlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from ._gradients import Loss, pieces, samples


class Quantity(NamedTuple):
    """A number about the population: exact (se 0), or estimated with a standard error."""

    value: float
    se: float
    grade: Literal["exact", "estimate"]


@runtime_checkable
class Population(Protocol):
    """Anything that risks and gains can be taken over."""

    def data(self) -> tuple[PyTree, PyTree]:
        """The samples that means are taken over."""
        ...

    @property
    def exact(self) -> bool:
        """Are means over `data()` those of the population?"""
        ...


class FinitePopulation(NamedTuple):
    """The uniform law on a data set.

    **Example:** `FinitePopulation(x, y).draw(100, key=jax.random.key(0))`
    """

    x: PyTree
    y: PyTree

    @property
    def exact(self) -> bool:
        """Means are sums."""
        return True

    def data(self) -> tuple[PyTree, PyTree]:
        """All of it."""
        samples(self.x, self.y)
        return self.x, self.y

    def draw(self, n: int, *, key: Key[Array, ""]) -> tuple[PyTree, PyTree]:
        """n samples, with replacement."""
        index = np.asarray(jax.random.randint(key, (n,), 0, samples(self.x, self.y)))
        return jax.tree.map(lambda a: jnp.asarray(a[index]), (self.x, self.y))


class FreshSampler:
    """A law that can be sampled at will.

    **Arguments:** `draw(n, key)`: n samples (x, y); `n`, `key`: of the sample that means are taken over.

    **Example:** `FreshSampler(teacher.draw, 1000, key=jax.random.key(0))`
    """

    def __init__(self, draw: Callable[..., tuple[PyTree, PyTree]], n: int = 100_000, *, key: Key[Array, ""]):
        if n < 2:
            raise ValueError(f"n={n} samples have no standard error; expected at least 2.")
        self._draw, self._n, self._key = draw, n, key

    @property
    def exact(self) -> bool:
        """Means are estimates."""
        return False

    def data(self) -> tuple[PyTree, PyTree]:
        """The sample that means are taken over, the same at every call."""
        return self._draw(self._n, key=self._key)

    def draw(self, n: int, *, key: Key[Array, ""]) -> tuple[PyTree, PyTree]:
        """n fresh samples."""
        return self._draw(n, key=key)


class HeldOut(NamedTuple):
    """Data that nothing was chosen on.

    **Example:** `risk(HeldOut(x, y), net, SquaredError())`
    """

    x: PyTree
    y: PyTree

    @property
    def exact(self) -> bool:
        """Means are estimates."""
        return False

    def data(self) -> tuple[PyTree, PyTree]:
        """All of it."""
        samples(self.x, self.y)
        return self.x, self.y


def losses(f: Callable[[Any], Array], loss: Loss, x: PyTree, y: PyTree, *, chunk: int = 4096) -> Float[np.ndarray, " n"]:
    """Loss of every sample.

    **Example:** `losses(net, SquaredError(), x, y).mean()`
    """
    one = jax.jit(jax.vmap(lambda x, y: loss(f(x), y)))
    with jax.default_matmul_precision("highest"):
        return np.concatenate([np.asarray(one(x_part, y_part), np.float64)[:count] for x_part, y_part, count in pieces(x, y, chunk)])


def risk(population: Population, f: Callable[[Any], Array], loss: Loss) -> Quantity:
    """R(f) = E loss(f(x), y).

    **Raises:** `ValueError` for inputs and labels of different lengths.

    **Example:** `risk(FinitePopulation(x, y), net, SquaredError()).value`
    """
    return _mean(population, losses(f, loss, *population.data()))


def risk_gain(population: Population, old: Callable[[Any], Array], new: Callable[[Any], Array], loss: Loss) -> Quantity:
    """R(f_old) - R(f_new), sample by sample, so that what both have in common cancels.

    **Example:** `risk_gain(population, split, expanded, SquaredError())`
    """
    x, y = population.data()
    return _mean(population, losses(old, loss, x, y) - losses(new, loss, x, y))


def _mean(population: Population, values: Float[np.ndarray, " n"]) -> Quantity:
    if not np.isfinite(values).all():
        raise ValueError(f"the loss is not finite at {int((~np.isfinite(values)).sum())} of {len(values)} samples; expected finite losses.")
    if population.exact:
        return Quantity(float(values.mean()), 0.0, "exact")
    return Quantity(float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5, "estimate")


def check_disjoint(**splits: tuple[PyTree, PyTree]) -> None:
    """Refuse splits that share a sample, compared bit for bit.

    **Raises:** `ValueError` naming the splits and how many samples they share.

    **Example:** `check_disjoint(direction=(x1, y1), step=(x2, y2))`
    """
    seen: dict[str, set[bytes]] = {}
    for name, (x, y) in splits.items():
        leaves = [np.ascontiguousarray(a) for a in jax.tree.leaves((x, y))]
        seen[name] = {hashlib.blake2b(b"".join(a[i].tobytes() for a in leaves), digest_size=16).digest() for i in range(samples(x, y))}
    names = list(seen)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            if common := len(seen[first] & seen[second]):
                raise ValueError(f"splits {first!r} and {second!r} share {common} samples; expected none. Remove duplicates before splitting.")
