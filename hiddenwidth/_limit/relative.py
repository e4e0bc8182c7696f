r"""Units seen relative to their own start: the linearised unit of the tangent limit, and the centred unit.

Both carry a pair of parameters and wrap any other unit; network, training and limits run on them unchanged.

    linearised   phi(h, (z0, d)) = D_z phi(h, z0) d           linear in d, still nonlinear in h; its Mean ODE is the tangent ODE
    centred      phi(h, (z0, z)) = phi(h, z) - phi(h, z0)     in a limit: the unit with E phi(h, z0) subtracted
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._scaling import Scaling
from .._unit import AbstractUnit


class Pair(NamedTuple):
    """Parameters of a unit that remembers where it started: `start` is never moved."""

    start: PyTree
    now: PyTree


def _zeros(z: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, z)


class Linearised(AbstractUnit):
    """First order of another unit in its parameters; `now` holds alpha times the displacement."""

    unit: AbstractUnit

    def __call__(self, h, z):
        return jax.jvp(lambda p: self.unit(h, p), (z.start,), (z.now,))[1]

    def laws(self, dim):
        return self.unit.laws(dim)

    def params(self, standard, std):
        start = self.unit.params(standard, std)
        return Pair(start, jax.tree.map(lambda x: 0 * x, start))

    @property
    def smooth(self) -> bool:
        return self.unit.smooth

    def rates(self, scaling: Scaling):
        return Pair(0.0, self.unit.rates(scaling))

    def block(self, h, z, weights):
        return jax.jvp(lambda p: self.unit.block(h, p, weights)[0], (z.start,), (z.now,))[1], None

    def block_vjp(self, h, z, weights, cache, b):
        _, pull = jax.vjp(lambda h: self.block(h, z, weights)[0], h)
        _, saved = self.unit.block(h, z.start, weights)
        _, dz = self.unit.block_vjp(h, z.start, weights, saved, b)
        return pull(b)[0], Pair(_zeros(z.start), dz)


class Centred(AbstractUnit):
    """Another unit minus its value at its own initial parameters."""

    unit: AbstractUnit

    def __call__(self, h, z):
        return self.unit(h, z.now) - self.unit(h, z.start)

    def laws(self, dim):
        return self.unit.laws(dim)

    def params(self, standard, std):
        start = self.unit.params(standard, std)
        return Pair(start, start)

    @property
    def smooth(self) -> bool:
        return self.unit.smooth

    def rates(self, scaling: Scaling):
        return Pair(0.0, self.unit.rates(scaling))

    def block(self, h, z, weights):
        (now, cache), (start, start_cache) = (self.unit.block(h, p, weights) for p in (z.now, z.start))
        return now - start, Pair(start_cache, cache)

    def block_vjp(self, h, z, weights, cache, b):
        (dh, dz), (dh_start, _) = (self.unit.block_vjp(h, p, weights, c, b) for p, c in ((z.now, cache.now), (z.start, cache.start)))
        return dh - dh_start, Pair(_zeros(z.start), dz)
