"""Predicted and realised change agree to second order, in float64. Each family, normaliser and order once; all together in the slow tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scaffold as sc
from scaffold._candidates import tangents, views

VECTORS = ("bias", "linear", "zero_out", "zero_in", "gate", "layerscale", "antisym")


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def data(shape, outputs=2, n=12):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.standard_normal((n, *shape))), jnp.asarray(rng.standard_normal((n, outputs)))


def orders(net, families, x, y, *, activation="tanh", norm="rms", sites=None, **options):
    """{(site, family): order of the remainder} along the steepest direction of each family, which these samples choose: nothing here is statistical."""
    found, loss = {}, sc.SquaredError()
    for site in net.sites if sites is None else sites:
        split = net.split(site)
        u, g, _ = sc.activation_gradients(split, loss, x, y)
        for number, family in enumerate(families):
            key = jax.random.key(number)
            reads = sc.RMSNorm(u.shape[-1]) if norm == "rms" else None
            block = sc.make_block(family, u, g, hidden=6, activation=activation, norm=reads, key=key)
            v = tangents(block, views(block, u, g), ("frobenius",))["frobenius"]
            found[site, family] = sc.predicted_against_realised(sc.insert(split, block, x), v, loss, x, y, **options).order
    return found


def assert_second(found):
    away = {k: o for k, o in found.items() if not (1.9 < o.low <= o.value <= o.high < 2.1)}
    assert not away, away


def net_of(kind, order, norm):
    if kind == "vectors":
        return sc.residual_mlp(3, 2, dim=6, hidden=6, depth=1, activation="tanh", norm=norm, order=order, key=jax.random.key(1)), data((3,))
    if kind == "tokens":
        return sc.residual_transformer(3, 4, 2, dim=4, hidden=4, heads=2, depth=1, norm=norm, order=order, key=jax.random.key(1)), data((3, 4))
    return sc.residual_conv(2, 2, dim=4, hidden=4, depth=1, activation="tanh", norm=norm, order=order, key=jax.random.key(1)), data((6, 6, 2))


@pytest.mark.parametrize(
    ("kind", "order", "norm", "site", "families"),
    [
        ("vectors", "pre", "rms", "stream:0", VECTORS),
        ("vectors", "pre", "layer", "stream:1", ("linear",)),
        ("vectors", "post", "clamp", "pre_norm_sum:1", ("zero_out",)),
        ("tokens", "post", "layer", "pre_norm_sum:1", ("attention",)),
        ("pixels", "pre", "rms", "stream:1", ("conv",)),
    ],
)
def test_second_order(kind, order, norm, site, families):
    net, (x, y) = net_of(kind, order, norm)
    assert_second(orders(net, families, x, y, sites=[site]))


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["rms", "layer", "clamp"])
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize(
    ("kind", "families"), [("vectors", VECTORS), ("tokens", ("linear", "zero_out", "attention")), ("pixels", ("linear", "zero_out", "conv"))]
)
def test_second_order_everywhere(kind, families, order, norm):
    net, (x, y) = net_of(kind, order, norm)
    assert_second(orders(net, families, x, y))


def test_wrong_gradient_is_first_order():
    """The order can fail: a block whose first-order map is off by a percent leaves a remainder of order 1."""

    class Off(sc.Bias):
        def first_order(self, u, v):
            return 1.01 * super().first_order(u, v)

    net = sc.residual_mlp(3, 2, dim=6, hidden=6, depth=1, activation="tanh", key=jax.random.key(1))
    x, y = data((3,))
    split = net.split("stream:1")
    _, g, _ = sc.activation_gradients(split, sc.SquaredError(), x, y)
    expanded = sc.insert(split, Off(jnp.zeros(6)), x)
    found = sc.predicted_against_realised(expanded, jnp.asarray(-g.mean(0)), sc.SquaredError(), x, y).order
    assert found.high < 1.2


def test_kinks_change_the_order():
    """relu: between kinks the change of a finite sample is polynomial, across them it is not, and the larger steps have no order."""
    found = {}
    for activation in ("tanh", "relu"):
        net = sc.residual_mlp(3, 2, dim=6, hidden=32, depth=2, activation=activation, key=jax.random.key(1))
        for name, taus in (("small", np.geomspace(1e-7, 1e-5, 9)), ("large", np.geomspace(1e-3, 1e-1, 9))):
            (o,) = orders(net, ("linear",), *data((3,), n=200), activation=activation, sites=["stream:0"], taus=tuple(taus)).values()
            found[activation, name] = o.high - o.low
            assert name == "large" or abs(o.value - 2) < 0.01
    assert found["relu", "large"] > 5 * found["tanh", "large"]


def test_too_few_steps_are_refused():
    net = sc.residual_mlp(3, 2, dim=6, hidden=6, depth=1, key=jax.random.key(1))
    x, y = data((3,))
    expanded = sc.insert(net.split("stream:0"), sc.Bias.init(6), x)
    with pytest.raises(ValueError, match="taus has 3 steps; expected at least 4"):
        sc.predicted_against_realised(expanded, jnp.ones(6), sc.SquaredError(), x, y, taus=(0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match="the direction moves nothing on these samples"):
        sc.predicted_against_realised(expanded, jnp.zeros(6), sc.SquaredError(), x, y)
