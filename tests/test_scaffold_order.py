"""Predicted and realised change agree to second order, in float64. Each family, normaliser and order once; all together in the slow tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scaffold as sc
from benchmarks.scaffold.orders import FAMILIES, LARGE, NORMS, ORDERS, network, remainders, samples


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def assert_second(found):
    away = {k: x.order for k, x in found.items() if not (1.9 < x.order.low <= x.order.value <= x.order.high < 2.1)}
    assert not away, away


@pytest.mark.parametrize(
    ("kind", "order", "norm", "site", "families"),
    [
        ("vectors", "pre", "rms", "stream:0", FAMILIES["vectors"]),
        ("vectors", "pre", "layer", "stream:1", ("linear",)),
        ("vectors", "post", "clamp", "pre_norm_sum:1", ("zero_out",)),
        ("tokens", "post", "layer", "pre_norm_sum:1", ("attention",)),
        ("pixels", "pre", "rms", "stream:1", ("conv",)),
    ],
)
def test_second_order(kind, order, norm, site, families):
    assert_second(remainders(network(kind, order, norm), families, *samples(kind), sites=[site]))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", list(FAMILIES))
def test_second_order_everywhere(kind, order, norm):
    assert_second(remainders(network(kind, order, norm), FAMILIES[kind], *samples(kind)))


def test_wrong_gradient_is_first_order():
    """The order can fail: a block whose first-order map is off by a percent leaves a remainder of order 1."""

    class Off(sc.Bias):
        def first_order(self, u, v):
            return 1.01 * super().first_order(u, v)

    net = sc.residual_mlp(3, 2, dim=6, hidden=6, depth=1, activation="tanh", key=jax.random.key(1))
    x, y = samples("vectors")
    split = net.split("stream:1")
    _, g, _ = sc.activation_gradients(split, sc.SquaredError(), x, y)
    expanded = sc.insert(split, Off(jnp.zeros(6)), x)
    found = sc.predicted_against_realised(expanded, jnp.asarray(-g.mean(0)), sc.SquaredError(), x, y).order
    assert found.high < 1.2


def test_kinks_change_the_order():
    """relu: between kinks the change of a finite sample is polynomial, across them it is not, and the larger steps have no order."""
    widths = {}
    for activation in ("tanh", "relu"):
        net = sc.residual_mlp(3, 2, dim=6, hidden=32, depth=2, activation=activation, key=jax.random.key(1))
        for name, taus in (("small", tuple(np.geomspace(1e-7, 1e-5, 9))), ("large", LARGE)):
            (seen,) = remainders(net, ("linear",), *samples("vectors", 200), activation=activation, sites=["stream:0"], taus=taus).values()
            widths[activation, name] = seen.order.high - seen.order.low
            assert name == "large" or abs(seen.order.value - 2) < 0.01
    assert widths["relu", "large"] > 5 * widths["tanh", "large"]


def test_too_few_steps_are_refused():
    net = sc.residual_mlp(3, 2, dim=6, hidden=6, depth=1, key=jax.random.key(1))
    x, y = samples("vectors")
    expanded = sc.insert(net.split("stream:0"), sc.Bias.init(6), x)
    with pytest.raises(ValueError, match="taus has 3 steps; expected at least 4"):
        sc.predicted_against_realised(expanded, jnp.ones(6), sc.SquaredError(), x, y, taus=(0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match="the direction moves nothing on these samples"):
        sc.predicted_against_realised(expanded, jnp.zeros(6), sc.SquaredError(), x, y)
