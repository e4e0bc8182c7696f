"""Closed forms of the linear-Gaussian and other testbeds: what estimators of scaffold must return."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaffold._blocks.features import Bias, FeatureMap, Linear, ZeroOut
from scaffold._candidates import views
from scaffold._covariance import covariance, debiased
from scaffold._covariance_null import correlation_null, flat_spectrum_condition, schott
from scaffold._directions import deflate, direction, gain
from scaffold._gradients import activation_gradients
from scaffold._insert import insert
from scaffold._loss import Logistic, SquaredError
from scaffold._moments import moments_of
from scaffold._norms import RMSNorm
from scaffold._path import path
from scaffold.testbeds import LinearGaussian, RidgeFreeTarget, mean_root, parity_population

BED = LinearGaussian(np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.5]]), np.array([[0.5, 1.0, 0.2], [0.3, -0.2, 0.1]]), np.diag([1.0, 2.0, 0.5]), 0.4)


@pytest.fixture(scope="module")
def sample():
    with jax.enable_x64(True):
        x, y = BED.draw(20_000, key=jax.random.key(0))
        return np.asarray(x), np.asarray(y), *activation_gradients(BED.split(), SquaredError(), x, y)[1:2]


def within(values, truth, largest=4.0):
    """Means of samples are within so many standard errors of the truth."""
    se = values.std(0, ddof=1) / math.sqrt(len(values))
    assert np.all(np.abs(values.mean(0) - truth) <= largest * se), (values.mean(0), truth, se)


def test_signal_matrix_and_covariance_of_the_linear_gaussian_bed(sample):
    x, _, g = sample
    within(np.einsum("ni,nj->nij", g, x).reshape(len(g), -1), BED.signal().ravel())
    within(np.einsum("ni,nj->nij", g, g).reshape(len(g), -1), BED.covariance().ravel())


def test_variance_along_a_direction(sample):
    x, _, g = sample
    v = np.random.default_rng(0).standard_normal((3, 3))
    z = np.einsum("ni,ij,nj->n", g, v, x)
    within((z - z.mean()) ** 2, BED.variance(v))


def test_risk_is_a_parabola_along_a_direction():
    v = np.random.default_rng(1).standard_normal((3, 3))
    signal, beta = -np.sum(BED.signal() * v), BED.curvature(v)
    for t in (0.0, 0.3, 2.0):
        assert BED.risk(v, t) == pytest.approx(BED.risk() - signal * t + beta * t**2 / 2, abs=1e-12)


def test_directions_of_a_diagonal_example():
    """W = I, W* = diag(2, 1/2): C = E, so signal and gain of every geometry can be written down."""
    bed = LinearGaussian(np.eye(2), np.diag([2.0, 0.5]), np.eye(2), 0.5)
    c = bed.signal()
    assert np.allclose(c, np.diag([-1.0, 0.5]))
    found = {}
    for name in ("frobenius", "spectral", "function", "newton"):
        d = direction(c, name, gram=np.eye(2), hessian=bed.hessian())
        found[name] = (d.signal, gain(d.signal, bed.curvature(d.matrix)))
        assert bed.risk() - bed.risk(d.matrix, d.signal / bed.curvature(d.matrix)) == pytest.approx(found[name][1], abs=1e-12)
    root = math.sqrt(1.25)
    assert found["frobenius"] == pytest.approx((root, 0.625), abs=1e-12)
    assert found["spectral"] == pytest.approx((1.5, 1.5**2 / 4), abs=1e-12)
    assert found["function"] == pytest.approx((root, 0.625), abs=1e-12)
    assert found["newton"] == pytest.approx((1.25, 0.625), abs=1e-12)  # twice the gain, and all that there is to gain
    assert bed.risk() - 0.25 == pytest.approx(0.625, abs=1e-12)


def test_largest_signal_is_not_the_largest_gain():
    """An ill-conditioned A: the Frobenius direction has the larger signal for its length, the whitened one the larger gain."""
    rng = np.random.default_rng(2)
    c, a = rng.standard_normal((2, 3)), np.diag([10.0, 1.0, 0.1])
    gains = {}
    for name in ("frobenius", "function"):
        d = direction(c, name, gram=a)
        gains[name] = gain(d.signal, float(np.trace(d.matrix @ a @ d.matrix.T)))
    assert gains["function"] == pytest.approx(0.5 * np.trace(c @ np.linalg.inv(a) @ c.T), rel=1e-12)
    assert gains["function"] > gains["frobenius"]


def test_relu_and_normalised_signals(key):
    bed = LinearGaussian(np.array([[1.0, -0.5]]), np.array([[0.2, 0.7]]), np.eye(2), 0.3)
    with jax.enable_x64(True):
        x, y = bed.draw(40_000, key=key)
        _, g, _ = activation_gradients(bed.split(), SquaredError(), x, y)
        x = np.asarray(x)
        w = np.array([0.6, 0.8])
        within(g * np.maximum(x @ w, 0)[:, None], bed.relu_signal(w))
        n = np.asarray(RMSNorm(2)(jnp.asarray(x)))
        within(np.einsum("ni,nj->nij", g, n).reshape(len(g), -1), bed.normalised_signal().ravel())
    assert mean_root(2) == pytest.approx(math.sqrt(math.pi) / 2, abs=1e-12)
    assert mean_root(10_000) == pytest.approx(1 - 1 / 40_000, abs=1e-8)


def test_a_target_without_a_linear_signal(key):
    """Linear and bias signals are 0; one relu neuron along x_1 has 1/(2 sqrt(pi))."""
    with jax.enable_x64(True):
        x, y = RidgeFreeTarget.draw(60_000, key=key)
        u, g, _ = activation_gradients(RidgeFreeTarget.split(), SquaredError(), x, y)
        within(np.einsum("ni,nj->nij", g, u).reshape(len(g), -1), np.zeros(4))
        within(g, np.zeros(2))
        for angle in (0.0, 0.7, math.pi / 2):
            neuron = np.maximum(u @ np.array([math.cos(angle), math.sin(angle)]), 0)
            within(-g[:, 1] * neuron, RidgeFreeTarget.neuron_signal(angle))
    assert RidgeFreeTarget.neuron_signal(0.0) == pytest.approx(0.28209479177387814, abs=1e-15)


def test_parity_needs_the_product_feature():
    """Four points: the bias has no signal, the product of both inputs |w|/2, and linear maps what tanh leaves."""
    split, population = parity_population()
    a, b = math.tanh(0.75), math.tanh(0.25)
    product = FeatureMap.of(lambda u: u[:1] * u[1:], dim=2, features=1)
    expected = ((Bias.init(2), 0.0), (Linear.init(2), math.hypot(1.0, 0.5) * math.hypot(a + b, a - b) / 4), (product, math.hypot(1.0, 0.5) / 2))
    with jax.enable_x64(True):
        u, g, _ = activation_gradients(split, Logistic(), *population.data())
        for block, truth in expected:
            look = views(block, u, g)
            assert np.linalg.norm(np.einsum("ni,nj->ij", look.gradient, look.features) / 4) == pytest.approx(truth, abs=1e-9)


def test_debiased_measures_are_unbiased_under_independent_signs():
    """Heavy scales of samples, independent signs: the squared off-diagonal mass is 0 on average, while its plug-in is not."""
    rng = np.random.default_rng(0)
    off, plug = [], []
    for _ in range(120):
        g = rng.standard_normal((60, 5)) * np.exp(rng.standard_normal((60, 1)))
        m = moments_of(g, np.zeros((60, 1)), groups=10)
        off.append(debiased(m.total())[0])
        square = m.total().square[0] / 60
        plug.append(np.sum(square**2) - np.sum(np.diag(square) ** 2))
    within(np.array(off), 0.0)
    assert np.mean(plug) > 10 * np.std(off) / math.sqrt(120)


def test_align_vanishes_in_a_random_basis():
    rng = np.random.default_rng(3)
    values = []
    for _ in range(60):
        basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
        g = (rng.standard_normal((400, 6)) * np.array([3.0, 1, 1, 0.5, 0.2, 0.1])) @ basis.T
        values.append(covariance(moments_of(g, np.zeros((400, 1)))).align.value)
    within(np.array(values), 0.0)


def test_null_numbers():
    assert correlation_null(10)[1] == pytest.approx(0.2734375, abs=1e-12)
    assert flat_spectrum_condition(400, 100) == pytest.approx(9.0, abs=1e-12)
    z = [schott(np.random.default_rng(s).standard_normal((50, 8))) for s in range(300)]
    within(np.array(z), 0.0)
    # Unequal sizes of samples: the Gaussian null rejects independent coordinates.
    heavy = [schott(r.standard_normal((50, 8)) * np.exp(1.5 * r.standard_normal((50, 1)))) for r in map(np.random.default_rng, range(100))]
    assert np.mean(np.array(heavy) > 1.645) > 0.3


def test_curvature_along_a_path_is_the_parabola(sample):
    x, y, _ = sample
    with jax.enable_x64(True):
        expanded = insert(BED.split(), Linear.init(3), x[:8])
        v = jnp.asarray(np.random.default_rng(4).standard_normal((3, 3)))
        walked = path(expanded, v, [0.0, 0.1, 1.0], SquaredError(), x[:2000], y[:2000], chunk=2000)
    moved = np.einsum("oi,ij,nj->no", BED.w, np.asarray(v), x[:2000])
    assert walked.curvature() == pytest.approx(np.mean(np.sum(moved**2, 1)), rel=1e-10)
    within(np.sum(moved**2, 1), BED.curvature(np.asarray(v)))


def growing_gradmax(c, neurons):
    """GradMax: outgoing weights of new neurons are the largest left singular directions; from the eigenvectors of C C^T."""
    values, vectors = np.linalg.eigh(c @ c.T)
    top = vectors[:, np.argsort(values)[::-1][:neurons]]
    v = -top @ (top.T @ c)
    return v / np.sqrt(np.sum(v**2))


def growing_tiny(g, old, new, neurons):
    """TINY: least squares removes what the old neurons can do, then the best rank-k fit of -G by new features in the norm of their second moments."""
    g = g - old @ np.linalg.pinv(old) @ g
    s = new.T @ new / len(new)
    values, vectors = np.linalg.eigh(s)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    n = g.T @ new / len(new) @ root
    left, size, right = np.linalg.svd(n)
    v = -(left[:, :neurons] * size[:neurons]) @ right[:neurons] @ root
    return v / np.sqrt(np.trace(v @ s @ v.T))


def test_gradmax_and_tiny_are_special_cases():
    rng = np.random.default_rng(5)
    g, new, old = rng.standard_normal((200, 5)), rng.standard_normal((200, 7)), rng.standard_normal((200, 3))
    g = g + new[:, :5] * 0.3 + old @ rng.standard_normal((3, 5))
    c = g.T @ new / 200
    assert np.abs(direction(c, "frobenius", rank=2).matrix - growing_gradmax(c, 2)).max() < 1e-8
    less = deflate(g, old)
    found = direction(less.T @ new / 200, "function", rank=2, gram=new.T @ new / 200).matrix
    assert np.abs(found - growing_tiny(g, old, new, 2)).max() < 1e-8


def test_zero_out_features_are_what_its_jacobian_sees(key):
    """<G, J v(u)> from features and direction is what forward-mode differentiation says."""
    block = ZeroOut.init(4, 6, activation="tanh", norm=RMSNorm(4), key=key)
    u = jax.random.normal(jax.random.key(1), (5, 4))
    matrix = jax.random.normal(jax.random.key(2), (4, 7))
    by_features = jax.vmap(block.features)(u) @ matrix.T
    by_jacobian = jax.vmap(lambda u: block.first_order(u, block.direction(matrix)))(u)
    assert np.allclose(by_features, by_jacobian, atol=1e-6)
