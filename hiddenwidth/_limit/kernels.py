r"""Gaussian moments of an activation: the kernels of the tangent limit.

For jointly Gaussian (x, y) with mean 0, variances q11, q22 and covariance q12, and derivatives sigma^(p),

    m_pq = E sigma^(p)(x) sigma^(q)(y),      dm_pq/dq12 = m_{p+1,q+1},      dm_pq/dq11 = m_{p+2,q} / 2          (Price)

so the kernels kappa_0 = m_00, kappa_1 = m_11 and their gradients in the first argument need m_00, m_11, m_20, m_22, m_31 alone. Closed forms exist for erf
(arcsine), relu (arc-cosine), linear and polynomial activations; for everything else the integral over the plane is split by Mehler's formula into integrals
over the line, E sigma(x) tau(y) = sum_n a_n b_n c^n with c the correlation and a_n, b_n Hermite coefficients. They are computed by the trapezoidal rule,
which converges geometrically for analytic integrands that decay like a Gaussian (poles of tanh included, at which Gauss-Hermite stalls), once a state instead
of once a pair.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._activation import Polynomial
from .._two_layer import TwoLayer

Pairs = Float[Array, "*#pairs"]

#: The line is cut where e^(-t^2/4), which bounds weight times Hermite polynomial, has fallen below 1e-12.
CUT = 10.6


class Moments(NamedTuple):
    """m_00, m_11 (values of the two kernels) and m_20, m_22, m_31 (their gradients)."""

    m00: Pairs
    m11: Pairs
    m20: Pairs
    m22: Pairs
    m31: Pairs


MomentFunction = Callable[[Pairs, Pairs, Pairs], Moments]


def moments_of(unit: TwoLayer, terms: int) -> MomentFunction:
    """The moments of a unit's activation as a function of (q11, q22, q12); `terms` of Mehler's series where there is no closed form."""
    if isinstance(unit.activation, Polynomial):
        coefficients = unit.activation.coefficients
        return lambda q11, q22, q12: _by_price(*_polynomial(coefficients), q11, q22, q12)
    if unit.activation == "linear":
        return lambda q11, q22, q12: _by_price(*_polynomial((0.0, 1.0)), q11, q22, q12)
    if unit.activation == "erf":
        return lambda q11, q22, q12: _by_price(_arcsine, _arcsine_slope, q11, q22, q12)
    if unit.activation == "relu":
        return _arccosine
    return lambda q11, q22, q12: _mehler(unit.sigma, terms, q11, q22, q12)


def has_closed_form(unit: TwoLayer) -> bool:
    """Are the kernels known without quadrature?"""
    return isinstance(unit.activation, Polynomial) or unit.activation in ("linear", "erf", "relu")


def _by_price(m00, m11, q11: Pairs, q22: Pairs, q12: Pairs) -> Moments:
    """All five moments from closed forms of m_00 and m_11, elementwise in the pairs."""
    one, zero = jnp.ones_like(q12), jnp.zeros_like(q12)
    q11, q22 = jnp.broadcast_to(q11, q12.shape), jnp.broadcast_to(q22, q12.shape)
    value0, d0 = jax.jvp(m00, (q11, q22, q12), (one, zero, zero))
    value1, d1 = jax.jvp(m11, (q11, q22, q12), (one, zero, zero))
    _, across = jax.jvp(m11, (q11, q22, q12), (zero, zero, one))
    return Moments(value0, value1, 2 * d0, across, 2 * d1)


def _arcsine(q11: Pairs, q22: Pairs, q12: Pairs) -> Pairs:
    """E erf(x) erf(y)."""
    return 2 / math.pi * jnp.arcsin(2 * q12 / jnp.sqrt((1 + 2 * q11) * (1 + 2 * q22)))


def _arcsine_slope(q11: Pairs, q22: Pairs, q12: Pairs) -> Pairs:
    """E erf'(x) erf'(y)."""
    return 4 / math.pi / jnp.sqrt((1 + 2 * q11) * (1 + 2 * q22) - 4 * q12**2)


def _arccosine(q11: Pairs, q22: Pairs, q12: Pairs) -> Moments:
    """E relu(x) relu(y) and its kin; m_22 and m_31 are singular where x = +-y, but only m_22 a' + m_31 a is used, which is bounded: there they are set to 0."""
    product = q11 * q22
    det = jnp.maximum(product - q12**2, 0.0)
    root = jnp.sqrt(det)
    angle = jnp.arctan2(root, q12)  # accurate where arccos is not, near 0 and pi
    # Below 1e-7 the angle is rounding. The floor keeps 1/root finite even if a compiler rounds root and the comparison differently.
    inverse = jnp.where(det > 1e-14 * product, 1 / jnp.maximum(root, 1e-8 * jnp.sqrt(product) + 1e-300), 0.0)
    present = q11 > 0
    ratio = jnp.where(present, q12 / jnp.where(present, q11, 1.0), 0.0)
    across = inverse / (2 * math.pi)
    inside = jnp.where(present, root / jnp.where(present, q11, 1.0), 0.0)
    return Moments((root + (math.pi - angle) * q12) / (2 * math.pi), (math.pi - angle) / (2 * math.pi), inside / (2 * math.pi), across, -ratio * across)


def _polynomial(coefficients: tuple[float, ...]):
    """m_00 and m_11 of sum_m c_m x^m, by Isserlis' theorem."""
    slopes = tuple(m * c for m, c in enumerate(coefficients))[1:]

    def expectation(c: tuple[float, ...]):
        def value(q11: Pairs, q22: Pairs, q12: Pairs) -> Pairs:
            total = jnp.zeros_like(q12)
            for p, cp in enumerate(c):
                for q, cq in enumerate(c):
                    if (p + q) % 2 == 0 and cp and cq:
                        total = total + cp * cq * _isserlis(p, q, q11, q22, q12)
            return total

        return value

    return expectation(coefficients), expectation(slopes)


def _isserlis(p: int, q: int, q11: Pairs, q22: Pairs, q12: Pairs) -> Pairs:
    """E x^p y^q: j pairs across, the rest within x and within y."""
    total = jnp.zeros_like(q12)
    for j in range(p % 2, min(p, q) + 1, 2):
        inside_x, inside_y = (p - j) // 2, (q - j) // 2
        ways = math.factorial(p) * math.factorial(q) / (math.factorial(inside_x) * math.factorial(inside_y) * math.factorial(j) * 2 ** (inside_x + inside_y))
        total = total + ways * q11**inside_x * q22**inside_y * q12**j
    return total


def _mehler(sigma, terms: int, q11: Pairs, q22: Pairs, q12: Pairs) -> Moments:
    """m_pq = sum_n a_n^p(q11) a_n^q(q22) c^n with the correlation c and the Hermite coefficients a_n^p(q) = E sigma^(p)(sqrt(q) t) h_n(t)."""
    points, hermite = _weighted_hermite(terms)
    points = jnp.asarray(points).reshape((1,) * q12.ndim + (-1,))
    first = [derivative @ hermite for derivative in _derivatives(sigma, jnp.sqrt(q11)[..., None] * points, 3)]
    second = [derivative @ hermite for derivative in _derivatives(sigma, jnp.sqrt(q22)[..., None] * points, 2)]
    product = q11 * q22
    correlation = jnp.where(product > 0, q12 / jnp.sqrt(jnp.where(product > 0, product, 1.0)), 0.0)

    def add(total: Moments, n):
        a, b = [c[..., n] for c in first], [c[..., n] for c in second]
        new = Moments(a[0] * b[0], a[1] * b[1], a[2] * b[0], a[2] * b[2], a[3] * b[1])
        return jax.tree.map(lambda total, new: total * correlation + new, total, new), None

    start = Moments(*(jnp.zeros_like(q12) for _ in range(5)))
    return jax.lax.scan(add, start, jnp.arange(terms), reverse=True)[0]


def _weighted_hermite(terms: int) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points terms"]]:
    """Trapezoidal points t and the matrix w(t) h_n(t) of orthonormal Hermite polynomials under the normal weight; two points to the shortest wave."""
    number = 2 * math.ceil(2 * CUT * math.sqrt(terms) / math.pi) + 1
    points = np.linspace(-CUT, CUT, number)
    rows = np.empty((terms, number))
    rows[0] = np.exp(-0.5 * points**2) / math.sqrt(2 * math.pi) * (points[1] - points[0])
    for n in range(1, terms):  # sqrt(n) h_n = t h_{n-1} - sqrt(n-1) h_{n-2}
        rows[n] = (points * rows[n - 1] - (math.sqrt(n - 1) * rows[n - 2] if n > 1 else 0.0)) / math.sqrt(n)
    return points, rows.T


def _derivatives(sigma, x: Float[Array, "*points"], order: int) -> list[Float[Array, "*points"]]:
    """sigma and its derivatives up to `order`, elementwise, by nested forward mode."""
    functions = [sigma]
    for _ in range(order):
        functions.append(lambda x, f=functions[-1]: jax.jvp(f, (x,), (jnp.ones_like(x),))[1])
    return [f(x) for f in functions]
