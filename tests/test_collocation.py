"""The collocation solver against diffrax, and its own parts."""

import math

import jax
import numpy as np
import pytest

import hiddenwidth as hw
from hiddenwidth._limit import chebyshev, collocation
from hiddenwidth._limit.collocation import collocate
from hiddenwidth._limit.integrate import integrate, particle_bytes, standard_points
from hiddenwidth._limit.mean_ode import coordinates_of

KEY = jax.random.key(0)
SINE = hw.problems.sine(5, dim=8, key=KEY)
GAUSSIAN = hw.problems.gaussian(4, d_in=5, dim=12, key=KEY)


def both(problem, unit, scaling, nodes, *, coordinates="auto", steps=3, tolerance=1e-12, points=6):
    where, rule = coordinates_of(problem, unit, scaling, coordinates), hw.Sobol(points, 1)
    return [solve(where, scaling, rule, 0, steps, nodes, tolerance) for solve in (collocate, integrate)]


@pytest.mark.parametrize(
    ("problem", "unit", "scaling", "coordinates"),
    [
        pytest.param(SINE, hw.TwoLayer("tanh"), hw.mlu(), "auto", id="Newton, r = 2"),
        pytest.param(GAUSSIAN, hw.TwoLayer("erf"), hw.mlu(), "auto", id="Picard, r = 9"),
        pytest.param(SINE, hw.TwoLayer("softplus", law="skewed"), hw.mlu(0.5), "ambient", id="ambient, skewed law"),
        pytest.param(SINE.with_dim(math.inf), hw.TwoLayer("gelu"), hw.lazy(3.0), "auto", id="D infinite, alpha = 3"),
    ],
)
def test_the_two_integrators_agree_to_1e_9_where_the_nodes_resolve(problem, unit, scaling, coordinates):
    """They make different errors at the same nodes, and both vanish: h and b, all steps, all depth-times."""
    ours, theirs = both(problem, unit, scaling, 24, coordinates=coordinates)
    for name, a, b in zip("hb", ours, theirs, strict=True):
        assert np.abs(b).max() > 0.01
        np.testing.assert_allclose(a, b, atol=1e-9, err_msg=name)


def test_both_errors_fall_with_the_nodes_and_neither_is_larger_by_far():
    """Convergence is spectral; once units have moved (10 steps), the two make errors of one size."""
    fine = both(SINE, hw.TwoLayer("tanh"), hw.mlu(), 40, steps=10)[0][0][:, -1]
    few, more = ([np.abs(h[:, -1] - fine).max() for h, _ in both(SINE, hw.TwoLayer("tanh"), hw.mlu(), n, steps=10)] for n in (10, 16))
    assert min(f / m for f, m in zip(few, more, strict=True)) > 5
    assert 0.2 < more[0] / more[1] < 5


def test_newton_and_picard_are_one_solution(monkeypatch):
    newton = both(SINE, hw.TwoLayer("tanh"), hw.mlu(), 12)[0][0]
    monkeypatch.setattr(collocation, "NEWTON_DIM", 0)
    where = coordinates_of(SINE, hw.TwoLayer("tanh"), hw.mlu(), "auto")
    picard = collocate(where, hw.mlu(), hw.Sobol(6, 1), 0, 3, 12, 1e-12)[0]
    np.testing.assert_allclose(newton, picard, atol=1e-11)


def test_the_tolerance_is_the_error_of_the_iteration():
    where, rule = coordinates_of(SINE, hw.TwoLayer("tanh"), hw.mlu(), "auto"), hw.Sobol(6, 1)
    exact = collocate(where, hw.mlu(), rule, 0, 8, 12, 1e-14)[0]
    errors = [np.abs(collocate(where, hw.mlu(), rule, 0, 8, 12, t)[0] - exact).max() for t in (1e-4, 1e-8)]
    assert errors[0] < 1e-3
    assert errors[1] < 1e-7


def test_particles_that_do_not_fit_are_computed_anew():
    """The same numbers without storing the particles, in several chunks; diffrax refuses."""
    where, rule = coordinates_of(SINE, hw.TwoLayer("tanh"), hw.mlu(), "auto"), hw.Sobol(11, 1)
    needed = particle_bytes(standard_points(where, rule, 0)[0], 8)
    assert needed == 2 * 8 * 8 * 2**11 * 4  # old and new, 8 bytes, 8 nodes, u and v in two dimensions
    kept, anew = (collocate(where, hw.mlu(), rule, 0, 3, 8, 1e-10, memory=m) for m in (needed, needed - 1))
    np.testing.assert_allclose(kept, anew, atol=1e-13)
    with pytest.raises(ValueError, match=r"particles of one replicate at 8 nodes need .* GB and memory= leaves .*integrator='collocation'"):
        integrate(where, hw.mlu(), rule, 0, 3, 8, 1e-10, memory=needed - 1)


def test_mean_ode_takes_either_and_compares_them():
    common = {"steps": 2, "quadrature": hw.Sobol(6, 2), "nodes": 10}
    limit = hw.mean_ode(SINE, hw.TwoLayer("tanh"), hw.mlu(), integrator="collocation", **common)
    other = hw.mean_ode(SINE, hw.TwoLayer("tanh"), hw.mlu(), budget=False, **common)
    assert limit.integrator == "collocation"
    assert other.integrator == "diffrax"
    assert limit.budget is not None
    gap = np.abs(limit.hidden_nodes - other.hidden_nodes).max()
    assert 0 < limit.budget.integrator < 1e-4  # two integrators, so not equal to the last bit
    assert gap < 10 * limit.budget.integrator + 1e-7
    assert "other integrator" in repr(limit)


def test_a_blow_up_is_reported_as_by_diffrax():
    with pytest.raises(ValueError, match=r"the Mean ODE blew up by step \d+ .*learning_rate= is too large"):
        hw.mean_ode(SINE, hw.TwoLayer("linear"), hw.mlu(60.0), steps=12, quadrature=hw.Sobol(5, 1), integrator="collocation", budget=False)


def test_integration_matrix_is_exact_on_polynomials():
    s, q = chebyshev.nodes(9), chebyshev.integration(9)
    for power in range(9):
        np.testing.assert_allclose(q @ s**power, s ** (power + 1) / (power + 1), atol=1e-14)


def test_extrapolation_continues_polynomials():
    """Through n earlier values a polynomial of degree n - 1 is continued exactly; the newest value comes first."""
    values = np.polynomial.Polynomial([1.0, -2.0, 0.5, 0.25])
    for number in range(1, 5):
        cut = np.polynomial.Polynomial(values.coef[:number])
        past = np.zeros((4, 1))
        past[:number, 0] = [cut(-i) for i in range(1, number + 1)]
        got = collocation._extrapolate(jax.numpy.asarray(past, jax.numpy.float32), jax.numpy.asarray(number))
        np.testing.assert_allclose(np.asarray(got)[0], cut(0.0), rtol=1e-5)
