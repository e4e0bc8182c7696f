"""The tangent ODE and its kernels against independent integrators, quadrature, networks, and the Mean ODE at large alpha."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import hiddenwidth as hw
from hiddenwidth._depth_fit import fit_depth
from hiddenwidth._lazy import tangent_gap
from hiddenwidth._limit.kernels import moments_of
from hiddenwidth._limit.relative import Centred, Linearised, Pair
from hiddenwidth._unit import AbstractUnit

from .oracles import tangent_erf

ERF = hw.TwoLayer("erf")


def by_plain_sum(sigma, a, b):
    """E sigma(g.a) sigma(g.b) over a fine grid of g in the plane (numpy)."""
    t = np.linspace(-9, 9, 721)
    w = np.exp(-0.5 * t**2)
    w /= w.sum()
    g = np.stack(np.meshgrid(t, t, indexing="ij"), -1)
    return float(np.einsum("i,j,ij,ij->", w, w, sigma(g @ a), sigma(g @ b)))


CASES = {
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "erf": (special.erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-(x**2))),
    "gelu": (lambda x: x * special.ndtr(x), lambda x: special.ndtr(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)),
    "softplus": (lambda x: np.logaddexp(0, x), special.expit),
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
    hw.Polynomial((0.2, 1.0, -0.3, 0.1)): (lambda x: 0.2 + x - 0.3 * x**2 + 0.1 * x**3, lambda x: 1 - 0.6 * x + 0.3 * x**2),
}


@pytest.mark.parametrize("activation", list(CASES))
def test_kernels_against_a_plain_sum_over_the_plane(activation):
    rng = np.random.default_rng(0)
    value, slope = CASES[activation]
    tolerance = 1e-5 if activation == "relu" else 1e-8  # the plain sum is rough at the kink
    with jax.enable_x64(True):
        for _ in range(3):
            a, b = rng.standard_normal((2, 2)) * 0.8
            m = moments_of(hw.TwoLayer(activation), 200)(*(jnp.asarray([x]) for x in (a @ a, b @ b, a @ b)))
            assert abs(float(m.m00[0]) - by_plain_sum(value, a, b)) < tolerance
            assert abs(float(m.m11[0]) - by_plain_sum(slope, a, b)) < (3e-3 if activation == "relu" else 1e-8)


@pytest.mark.parametrize("activation", list(CASES))
def test_gradients_of_kernels_by_finite_differences(activation):
    """grad m_00 = m_11 a' + m_20 a and grad m_11 = m_22 a' + m_31 a."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 2)) * 0.8
    with jax.enable_x64(True):
        f = moments_of(hw.TwoLayer(activation), 200)

        def at(x):
            return f(*(jnp.asarray([y]) for y in (x @ x, b @ b, x @ b)))

        m = at(a)
        for i in range(2):
            step = 1e-5 * np.eye(2)[i]
            for name, expected in (("m00", m.m11 * b[i] + m.m20 * a[i]), ("m11", m.m22 * b[i] + m.m31 * a[i])):
                slope = (getattr(at(a + step), name) - getattr(at(a - step), name)) / 2e-5
                assert abs(float((slope - expected)[0])) < 1e-8


def test_relu_kernels_of_parallel_states_are_finite():
    """x, -x, 2x and 0: the angle is exactly 0 or pi, where the derivatives of arccos are infinite."""
    states = np.array([[1.0, 0.5], [-1.0, -0.5], [2.0, 1.0], [0.0, 0.0]])
    with jax.enable_x64(True):
        square, dot = np.sum(states**2, 1), states @ states.T
        m = jax.jit(moments_of(hw.TwoLayer("relu"), 1))(square[:, None], square[None], jnp.asarray(dot))
    assert all(np.isfinite(np.asarray(x)).all() for x in m)
    assert np.asarray(m.m00)[0, 0] == pytest.approx(0.5 * 1.25, abs=1e-12)
    assert np.asarray(m.m00)[0, 1] == pytest.approx(0.0, abs=1e-8)


def test_against_an_independent_integrator():
    """Plain Runge-Kutta in numpy, arcsine kernel, gradients of the drift by finite differences."""
    x = np.array([[0.9, -0.2], [-0.4, 0.7], [0.3, 0.3]])
    y = np.array([[1.0], [-0.5], [0.4]])
    problem = hw.Problem.embed(x, y, dim=math.inf)
    limit = hw.tangent_ode(problem, ERF, hw.mlu(learning_rate_u=0.7, learning_rate_v=1.3), steps=4, budget=False)
    exact = tangent_erf.outputs(limit.where.space.start, limit.where.space.unembedding, y, rate_u=0.7, rate_v=1.3, steps=4)
    np.testing.assert_allclose([limit.output(k) for k in range(5)], exact, rtol=0, atol=1e-7)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_kernels_and_quadrature_agree(activation):
    problem = hw.problems.gaussian(4, d_in=2, d_out=1, dim=math.inf, key=jax.random.key(0))
    unit = hw.TwoLayer(activation)
    kernels = hw.tangent_ode(problem, unit, hw.mlu(0.5), steps=3, budget=False)
    sampled = hw.tangent_ode(problem, unit, hw.mlu(0.5), steps=3, quadrature=hw.Sobol(11, 6), budget=False)
    gap = np.sqrt(np.mean((kernels.output() - sampled.output()) ** 2))
    assert gap < 3 * sampled.output_error()
    assert 0 < sampled.output_error() < 5e-3
    assert kernels.output_error() == 0


def test_kernels_hold_for_a_skewed_law():
    """Only second moments of v enter: ambient quadrature of the skewed law gives the same limit."""
    problem = hw.problems.gaussian(4, d_in=2, d_out=1, dim=4, key=jax.random.key(0))
    unit = hw.TwoLayer("softplus", law="skewed")
    kernels = hw.tangent_ode(problem, unit, hw.mlu(0.5), steps=3, budget=False)
    sampled = hw.tangent_ode(problem, unit, hw.mlu(0.5), steps=3, quadrature=hw.Sobol(12, 6), coordinates="ambient", budget=False)
    for name in ("hidden", "output"):
        gap = np.sqrt(np.mean((getattr(kernels, name)() - getattr(sampled, name)()) ** 2))
        assert gap < 3 * getattr(sampled, f"{name}_error")()


@pytest.mark.parametrize("activation", ["erf", "tanh"])
def test_self_convergence_in_nodes(activation):
    problem = hw.problems.sine(8, dim=math.inf)
    unit = hw.TwoLayer(activation)
    outputs = {n: hw.tangent_ode(problem, unit, hw.mlu(), steps=10, nodes=n, budget=False).output() for n in (8, 16, 31)}
    assert np.abs(outputs[16] - outputs[31]).max() < 1e-8
    assert np.abs(outputs[8] - outputs[31]).max() < 1e-7
    budget = hw.tangent_ode(problem, unit, hw.mlu(), steps=10).budget
    assert budget is not None
    assert max(budget) < 1e-7


def test_mean_ode_approaches_the_tangent_ode_by_symmetry():
    """Order 2 for a law symmetric in v and for an odd activation, order 1 for a skewed law with an even part; intervals no wider than 0.1."""
    alphas = np.array([4.0, 8.0, 16.0, 32.0, 64.0])
    problem = hw.problems.gaussian(4, d_in=2, d_out=1, dim=3, key=jax.random.key(0), embedding="orthogonal")
    for unit, order in ((ERF, 2), (hw.TwoLayer("softplus"), 2), (hw.TwoLayer("erf", law="skewed"), 2), (hw.TwoLayer("softplus", law="skewed"), 1)):
        assert hw.lazy_order(unit) == order
        hidden, _ = tangent_gap(problem, unit, hw.mlu(0.5), alphas=alphas, steps=3, quadrature=hw.Sobol(9, 3, symmetric=True))
        fit = fit_depth(alphas**order, np.sqrt(np.mean(hidden**2, axis=(-2, -1))).T)
        assert abs(fit.exponent.value + 1) <= fit.exponent.half_width + 1e-3
        assert 2 * order * fit.exponent.half_width < 0.1


def test_a_constant_does_not_break_the_symmetry_of_an_odd_activation():
    assert hw.lazy_order(hw.TwoLayer(hw.Polynomial((1.0, 1.0, 0.0, -0.1)), law="skewed")) == 2
    assert hw.lazy_order(hw.TwoLayer(hw.Polynomial((0.0, 1.0, 0.2)), law="skewed")) == 1


def test_linearised_network_is_another_limit():
    """The distance of the Mean ODE to the linearisation does not vanish as alpha grows, and large networks behave the same."""
    problem = hw.problems.sine(6, dim=4, key=jax.random.key(0), embedding="orthogonal")
    tangent, linear = (f(problem, ERF, hw.mlu(), steps=5) for f in (hw.tangent_ode, hw.linearised_ode))
    apart = np.sqrt(np.mean((tangent.hidden() - linear.hidden()) ** 2))
    assert apart > 0.05
    near = hw.mean_ode(problem, ERF, hw.lazy(32.0), steps=5, quadrature=hw.Sobol(10, 1), centre=True, budget=False)
    assert np.sqrt(np.mean((near.hidden() - tangent.hidden()) ** 2)) < 0.02 * apart
    net = hw.ResNet.init(ERF, hw.lazy(4.0), depth=64, width=1024, dim=4, key=jax.random.key(1))
    _, seen = hw.train(net, problem, steps=5)
    own = hw.train_linearised(net, problem, steps=5)
    assert np.sqrt(np.mean((own.hidden[0] - linear.hidden()) ** 2)) < 0.3 * apart
    assert np.sqrt(np.mean((seen.hidden[0] - tangent.hidden()) ** 2)) < 0.3 * apart
    assert np.sqrt(np.mean((seen.hidden[0] - own.hidden[0]) ** 2)) > 0.7 * apart


def test_linearised_training_against_an_explicit_jacobian(key):
    """Kernel gradient descent written out with the whole Jacobian."""
    problem = hw.problems.sine(3, dim=3, key=key)
    scaling = hw.lazy(2.0, learning_rate_u=0.6, learning_rate_v=1.4)
    with jax.enable_x64(True):
        net = hw.ResNet.init(hw.TwoLayer("tanh"), scaling, depth=3, width=2, dim=3, dtype=jnp.float64, key=key)
        seen = hw.train_linearised(net, problem, steps=3)
        space = problem.space().astype(jnp.float64)
        jacobian = jax.jacrev(lambda p: jax.vmap(eqx.tree_at(lambda n: n.params, net, p))(space.start))(net.params)
        start = np.asarray(jax.vmap(net)(space.start))
        rates = scaling.raw_learning_rate(3, 2, 3)
        h = start.copy()
        moved = {k: np.zeros_like(getattr(net.params, k)) for k in ("u", "v")}
        for _ in range(3):
            gradient = np.asarray(jax.grad(lambda h: space.loss(space.readout(h)))(jnp.asarray(h)))
            for k in ("u", "v"):
                moved[k] = moved[k] - getattr(rates, k) * np.einsum("xc,xclmd->lmd", gradient, getattr(jacobian, k))
            h = start + sum(np.einsum("xclmd,lmd->xc", getattr(jacobian, k), moved[k]) for k in ("u", "v"))
    np.testing.assert_allclose(seen.hidden[0], h, atol=1e-12)


@pytest.mark.parametrize("wrap", [Linearised, Centred])
def test_wrapped_units_against_their_generic_blocks(wrap, key):
    """block and block_vjp of the wrappers equal those that vmap and differentiate __call__."""
    with jax.enable_x64(True):
        unit = wrap(hw.TwoLayer("tanh"))
        keys = jax.random.split(key, 7)
        start, now = (hw.TwoLayerParams(*(jax.random.normal(k, (5, 3), jnp.float64) for k in ks)) for ks in (keys[:2], keys[2:4]))
        z, h, b = Pair(start, now), *(jax.random.normal(k, (4, 3), jnp.float64) for k in keys[4:6])
        weights = jax.nn.softmax(jax.random.normal(keys[6], (5,), jnp.float64))
        total, cache = unit.block(h, z, weights)
        generic, _ = AbstractUnit.block(unit, h, z, weights)
        np.testing.assert_allclose(total, generic, atol=1e-12)
        dh, dz = unit.block_vjp(h, z, weights, cache, b)
        dh_generic, dz_generic = AbstractUnit.block_vjp(unit, h, z, weights, None, b)
        np.testing.assert_allclose(dh, dh_generic, atol=1e-12)
        for got, expected in zip(jax.tree.leaves(dz.now), jax.tree.leaves(dz_generic.now), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-12)
        assert all(not np.any(x) for x in jax.tree.leaves(dz.start))


class Biased(AbstractUnit):
    """v tanh(u.h/D) + tilt: E phi = tilt."""

    tilt: float = 0.3

    def __call__(self, h, z):
        u, v = z
        return v * jnp.tanh(u @ h / h.shape[-1]) + self.tilt

    def laws(self, dim):
        return ((hw.Gaussian(), dim), (hw.Gaussian(), dim))

    def params(self, standard, std):
        u, v = standard
        return (std.u * u, std.v * v)


def test_law_with_a_mean_is_refused_unless_centred():
    problem = hw.problems.sine(4, dim=3, key=jax.random.key(0))
    rule = hw.Sobol(9, 3)
    with pytest.raises(ValueError, match=r"E phi\(h, z\) != 0 \(rms 0.3 at the data.*Pass centre=True"):
        hw.tangent_ode(problem, Biased(), hw.mlu(), steps=2, quadrature=rule)
    centred = hw.tangent_ode(problem, Biased(), hw.mlu(), steps=2, quadrature=rule, centre=True, budget=False)
    plain = hw.tangent_ode(problem, Biased(0.0), hw.mlu(), steps=2, quadrature=rule, budget=False)
    np.testing.assert_allclose(centred.output(), plain.output(), atol=1e-12)
    near = hw.mean_ode(problem, Biased(), hw.lazy(64.0), steps=2, quadrature=rule, centre=True, budget=False)
    assert np.abs(near.output() - centred.output()).max() < 1e-2 * np.abs(centred.output()).max()


def test_flow_of_a_tangent_ode_is_alpha_times_the_displacement():
    problem = hw.problems.sine(4, dim=3, key=jax.random.key(0))
    unit = hw.TwoLayer("tanh")
    z = hw.TwoLayerParams(*np.random.default_rng(0).standard_normal((2, 6, 3)) * math.sqrt(3))
    s = np.linspace(0, 1, 6)
    moved = hw.tangent_ode(problem, unit, hw.mlu(), steps=3, budget=False).flow(z, s)
    alpha = 256.0
    near = hw.mean_ode(problem, unit, hw.lazy(alpha), steps=3, quadrature=hw.Sobol(12, 2), centre=True, budget=False).flow(z, s)
    for d, after, before in zip(moved, near, z, strict=True):
        np.testing.assert_allclose(alpha * (after - before), d, atol=0.02)


def test_flow_of_the_linearised_network_reads_units_at_initialisation():
    """delta v = -eta sum_i sum_x sigma(u.h_0/D) b_i(x), with b_i of the linearised network."""
    problem = hw.problems.sine(4, dim=3, key=jax.random.key(0))
    limit = hw.linearised_ode(problem, ERF, hw.mlu(), steps=3)
    z = hw.TwoLayerParams(*np.random.default_rng(0).standard_normal((2, 6, 3)) * math.sqrt(3))
    moved = limit.flow(z, np.linspace(0, 1, 6))
    start = problem.space().start
    adjoint = sum(limit.where.to_ambient(limit.adjoint_nodes[0, k, 0]) for k in range(3))
    np.testing.assert_allclose(moved.v, -special.erf(z.u @ start.T / 3) @ adjoint, atol=1e-12)


def test_symmetric_points_have_no_odd_moments():
    points, weights = hw.Sobol(7, 1, symmetric=True).points(((hw.Gaussian(), 2), (hw.Gaussian(), 3)), 0)
    assert points.shape == (128, 5)
    for odd in (points[:, 0] ** 3, points[:, 0] ** 2 * points[:, 3], points[:, 4] ** 3, points[:, 1] * points[:, 2]):
        assert abs(weights @ odd) < 1e-14
    np.testing.assert_allclose(points.T @ (weights[:, None] * points), np.eye(5), atol=1e-12)
    skewed, _ = hw.Sobol(7, 1, symmetric=True).points(((hw.Gaussian(), 2), (hw.Skewed(), 3)), 0)
    assert abs(np.mean(skewed[:, 0] ** 3)) < 1e-14
    assert np.mean(skewed[:, 2] ** 3) > 1
    with pytest.raises(ValueError, match="log2_points=2 is too few for symmetric=True; expected at least 3"):
        hw.Sobol(2, 1, symmetric=True).points(((hw.Gaussian(), 2), (hw.Gaussian(), 3)), 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: hw.tangent_ode(p, ERF, hw.fan_in(), steps=2), "scaling 'fan_in' has a law that depends on the width M, so it has no tangent ODE"),
        (lambda p: hw.tangent_ode(p, ERF, hw.mlu(), steps=0), "steps=0 is not possible"),
        (lambda p: hw.tangent_ode(p, ERF, hw.mlu(), steps=2, coordinates="flat"), "coordinates='flat' is unknown; expected one of 'auto', 'reduced'"),
        (lambda p: hw.linearised_ode(p, Biased(), hw.mlu(), steps=2), "has no kernel in closed form; expected a TwoLayer unit"),
        (lambda p: hw.Polynomial(()), r"coefficients=\(\) is not possible; expected at least one finite number"),
        (lambda p: hw.tangent_ode(p, ERF, hw.mlu(3e3), steps=30, budget=False), "(Lower it|lower learning_rate)"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call(hw.problems.sine(4, dim=math.inf))
