"""Normalisers, networks, blocks, insertion, flax: closed forms, brute force, and what is refused."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax.flatten_util import ravel_pytree

import scaffold as sc
from scaffold._nets.branch import TwoLayerBranch

NORMS = [sc.RMSNorm(5), sc.RMSNorm(5, eps=0.1), sc.LayerNorm(5, eps=0.01), sc.Clamp(5, radius=0.7)]


@pytest.mark.parametrize("norm", NORMS, ids=lambda n: f"{type(n).__name__}-{n.least_scale:.2g}")
def test_lipschitz_bounds_hold_by_brute_force(norm):
    """|N(u) - N(w)| <= |u - w| / sqrt(scale(u) scale(w)), at lengths from 0.01 to 10."""
    with jax.enable_x64(True):
        key = jax.random.key(0)
        u, w = (jax.random.normal(k, (20_000, 5)) * 10 ** jax.random.uniform(k, (20_000, 1), minval=-2.0, maxval=1.0) for k in jax.random.split(key))
        w = jnp.where(jnp.arange(20_000)[:, None] % 2 == 0, w, u + 1e-3 * w)  # far pairs and near ones
        moved, apart = jnp.linalg.norm(norm(u) - norm(w), axis=1), jnp.linalg.norm(norm.centre(u) - norm.centre(w), axis=1)
        ratio = moved / apart * jnp.sqrt(norm.scale(u) * norm.scale(w))
        assert ratio.max() <= 1 + 1e-9
        assert ratio.max() > 0.99  # and is attained
        assert (moved <= norm.lipschitz(float(jnp.minimum(norm.scale(u), norm.scale(w)).min())) * apart * (1 + 1e-9)).all()
        assert float(jnp.linalg.norm(norm(u), axis=1).max()) <= norm.output_bound() * (1 + 1e-12)
        if not isinstance(norm, sc.Clamp):
            assert (moved <= norm.pair_bound(u, w) * (1 + 1e-9)).all()


def test_singular_values_of_the_jacobian():
    with jax.enable_x64(True):
        u = jnp.array([0.3, -1.2, 0.5, 2.0, 0.1])
        norm = sc.RMSNorm(5, eps=0.3)
        values = np.linalg.svd(jax.jacfwd(norm)(u), compute_uv=False)
        tangential, radial = norm.jacobian_singular_values(u)
        np.testing.assert_allclose(values, [tangential] * 4 + [radial], rtol=1e-12)


def test_gradients_are_orthogonal_to_what_normalisers_forget():
    """<G, u> = 0 under RMSNorm with eps = 0, and <G, 1> = 0 besides under LayerNorm."""
    with jax.enable_x64(True):
        head, u = jax.random.normal(jax.random.key(0), (2, 5)), jax.random.normal(jax.random.key(1), (5,))
        for norm in (sc.RMSNorm(5), sc.LayerNorm(5)):
            g = jax.grad(lambda u, norm=norm: jnp.sum(jnp.tanh(head @ norm(u))))(u)
            assert abs(float(norm.centre(u) @ g)) < 1e-14
        assert abs(float(g.sum())) < 1e-14


def test_contraction_keeps_the_stream_away_from_zero():
    np.testing.assert_allclose(sc.contractive_floor(1.0, np.full(8, 0.3), np.zeros(8), dim=8, eps=0.01)[:3], [0.70368, 0.70009, 0.69999], atol=5e-4)
    rng = np.random.default_rng(0)
    for _ in range(100):
        s = rng.uniform(0.1, 0.9)
        matrix = rng.standard_normal((6, 6))
        matrix *= s / np.linalg.norm(matrix, 2)
        u = rng.standard_normal(6)
        u /= np.sqrt(np.mean(u**2))
        floor = sc.contractive_floor(1.0, np.array([s]), np.zeros(1), dim=6)[0]
        assert np.sqrt(np.mean((u + np.tanh(matrix @ u)) ** 2)) >= floor - 1e-12


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda **o: sc.residual_mlp(3, 2, dim=4, hidden=5, depth=3, **o), (3,)),
        (lambda **o: sc.residual_conv(2, 2, dim=4, hidden=5, depth=3, **o), (6, 6, 2)),
        (lambda **o: sc.residual_transformer(3, 2, 2, dim=4, hidden=5, depth=3, heads=2, **o), (3, 2)),
    ],
    ids=["mlp", "conv", "transformer"],
)
def test_every_split_repeats_the_network(make, shape, order):
    with jax.enable_x64(True):
        net = make(order=order, key=jax.random.key(0))
        x = jax.random.normal(jax.random.key(1), (4, *shape))
        whole = jax.vmap(net)(x)
        assert len(net.sites) == (4 if order == "pre" else 3)
        for site in net.sites:
            np.testing.assert_allclose(jax.vmap(net.split(site))(x), whole, atol=1e-14)


def test_a_layer_by_hand():
    """Pre-norm with RMSNorm, eps = 0: u + B tanh(A u/rms)."""
    net = sc.residual_mlp(3, 2, dim=3, hidden=4, depth=2, activation="tanh", eps=0.0, key=jax.random.key(0))
    x = np.array([0.3, -1.0, 2.0], np.float32)
    u = np.asarray(net.stem.weight) @ x
    branch = net.layers.branches[0]
    for level in range(2):
        u = u + np.asarray(branch.b[level]) @ np.tanh(np.asarray(branch.a[level]) @ u / np.sqrt(np.mean(u**2)))
    np.testing.assert_allclose(net(jnp.asarray(x)), np.asarray(net.head.weight) @ u / np.sqrt(np.mean(u**2)), rtol=1e-5)


ORDERS = [
    (lambda k: sc.ZeroOut.init(3, 4, activation="tanh", key=k), "first_order", 1),
    (lambda k: sc.ZeroIn.init(3, 4, activation="tanh", key=k), "first_order", 1),
    (lambda k: sc.Gate.of(TwoLayerBranch.init(3, 4, "tanh", 1.0, key=k)), "first_order", 1),
    (lambda k: sc.ZeroIn.init(3, 4, activation="relu", key=k), "kink", 1),
    (lambda k: sc.DoubleZero.init(3, 4, zeros="in_and_out", activation="tanh", key=k), "degenerate", 2),
    (lambda k: sc.DoubleZero.init(3, 4, zeros="gate_and_out", activation="tanh", key=k), "degenerate", 2),
    (lambda k: sc.DoubleZero.init(3, 4, zeros="all", activation="tanh", key=k), "degenerate", 3),
]


@pytest.mark.parametrize(("make", "kind", "order"), ORDERS)
def test_order_of_initialisations(make, kind, order):
    found = sc.structural_order(make(jax.random.key(1)), jax.random.normal(jax.random.key(2), (6, 3)), key=jax.random.key(3))
    assert (found.kind, found.order) == (kind, order)
    assert ("structurally degenerate" in str(found)) == (kind == "degenerate")


def test_saddle_numbers():
    """h = W2 W1 u on R = |(1 + W2 W1) x - diag(2, 1) x|^2/2: no slope, spectrum of the Hessian {-1, -1, 0, 0, 0, 0, 1, 1}; t -> sqrt(t) has a slope."""
    with jax.enable_x64(True):
        bed = sc.testbeds.LinearGaussian(np.eye(2), np.diag([2.0, 1.0]), np.eye(2), 0.5)

        def risk(both):
            w2, w1 = both.reshape(2, 2, 2)
            e = jnp.asarray(bed.error) + w2 @ w1
            return 0.5 * jnp.sum(e**2) + 0.25

        zero = jnp.zeros(8)
        np.testing.assert_allclose(jax.grad(risk)(zero), 0.0)
        np.testing.assert_allclose(np.linalg.eigvalsh(jax.hessian(risk)(zero)), [-1, -1, 0, 0, 0, 0, 1, 1], atol=1e-12)
        along = jnp.zeros((2, 2, 2)).at[:, 0, 0].set(1.0).reshape(-1)
        np.testing.assert_allclose([risk(math.sqrt(t) * along) for t in (0.1, 0.5, 1.0)], [0.655, 0.375, 0.25], atol=1e-12)


@pytest.mark.parametrize("family", [f for f in sc.FAMILIES if f not in ("conv", "attention", "optimised")])
def test_blocks_start_at_zero_and_their_first_order_map_is_a_difference_quotient(family):
    with jax.enable_x64(True):
        u = jax.random.normal(jax.random.key(0), (5, 4))
        g = np.asarray(jax.random.normal(jax.random.key(1), (5, 4)))
        block = sc.make_block(family, np.asarray(u), g, hidden=6, activation="tanh", norm=sc.RMSNorm(4), key=jax.random.key(2))
        v = block.random_tangent(key=jax.random.key(3))
        assert float(jnp.abs(jax.vmap(block)(u)).max()) < 1e-15
        quotient = (jax.vmap(block.moved(v, 1e-6))(u) - jax.vmap(block.moved(v, -1e-6))(u)) / 2e-6
        np.testing.assert_allclose(jax.vmap(lambda u: block.first_order(u, v))(u), quotient, atol=1e-7)
        inner = jax.vmap(lambda u, g: ravel_pytree(block.signal_vector(u, g))[0] @ ravel_pytree(v)[0])(u, jnp.asarray(g))
        np.testing.assert_allclose(inner, jnp.sum(g * jax.vmap(lambda u: block.first_order(u, v))(u), axis=1), atol=1e-12)


def test_containment():
    """Before an existing normaliser nothing changes; a normaliser of the block's own is another function where it is not idempotent."""
    net = sc.residual_mlp(3, 2, dim=4, hidden=5, depth=2, order="post", gain=True, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (8, 3))
    net = eqx.tree_at(lambda n: n.layers.norms[0].gain, net, net.layers.norms[0].gain * jnp.array([[1.0, 2.0, 0.5, 1.0]]))
    block = sc.Bias.init(4)
    assert sc.insert(net.split("pre_norm_sum:1"), block, x).defect < 1e-6
    after = sc.Split(lambda x: net.layers.norms[0].centre(net.stem(x)), lambda u: net.head(u), name="after the norm")
    with pytest.raises(ValueError, match="Its own normaliser is not idempotent here"):
        sc.insert(after, block, x, norm=sc.RMSNorm(4, gain=jnp.array([1.0, 2.0, 0.5, 1.0])))
    assert sc.insert(after, block, x, norm=sc.RMSNorm(4, eps=0.1), containment="report").defect > 0.01
    with pytest.raises(ValueError, match="The block is not zero at its initialisation"):
        sc.insert(after, block.moved(jnp.ones(4), 1.0), x)


class Linen(linen.Module):
    """Two dense layers; batch normalisation where asked for."""

    batch_norm: bool = False

    def setup(self):
        self.first, self.second = linen.Dense(6), linen.Dense(2)
        self.norm = linen.BatchNorm(use_running_average=False)

    def encode(self, x):
        u = jnp.tanh(self.first(x))
        return self.norm(u) if self.batch_norm else u

    def decode(self, u):
        return self.second(u)

    def __call__(self, x):
        return self.decode(self.encode(x))


class Nnx(nnx.Module):
    def __init__(self, rngs, dropout=0.0):
        self.first, self.second, self.dropout = nnx.Linear(3, 6, rngs=rngs), nnx.Linear(6, 2, rngs=rngs), nnx.Dropout(dropout, rngs=rngs)


def test_flax_and_equinox_give_the_same_report():
    """The same weights in three frameworks."""
    x, y = (np.asarray(jax.random.normal(jax.random.key(i), (80, size))) for i, size in ((0, 3), (1, 2)))
    module = Linen()
    variables = module.init(jax.random.key(2), jnp.asarray(x[0]))
    weights = variables["params"]
    model = Nnx(nnx.Rngs(0))
    first, second = eqx.nn.Linear(3, 6, key=jax.random.key(0)), eqx.nn.Linear(6, 2, key=jax.random.key(0))
    for layer, name in ((first, "first"), (second, "second")):
        kernel, bias = weights[name]["kernel"], weights[name]["bias"]
        getattr(model, name).kernel.set_value(kernel)
        getattr(model, name).bias.set_value(bias)
        made = eqx.tree_at(lambda m: (m.weight, m.bias), layer, (kernel.T, bias))
        first, second = (made, second) if name == "first" else (first, made)
    splits = [
        sc.split_sequence([first, jnp.tanh, second], 2, name="site"),
        sc.split_linen(module, variables, jnp.asarray(x[0]), bottom="encode", top="decode"),
        sc.split_nnx(model, bottom=lambda m, x: jnp.tanh(m.first(x)), top=lambda m, u: m.second(u)),
    ]
    data = [sc.analyse(s, sc.SquaredError(), (x, y), families=("linear",), activation="tanh", key=jax.random.key(3)).dataset() for s in splits]
    for other in data[1:]:
        for name in data[0].variables:
            if data[0][name].dtype.kind in "fi":
                np.testing.assert_allclose(other[name].values, data[0][name].values, rtol=2e-3, atol=1e-6, err_msg=name)


def norm_input(value):
    return jnp.full((2, 4), value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sc.RMSNorm(1), "RMSNorm with dim=1 and eps=0.0 is locally constant"),
        (lambda: sc.LayerNorm(2), "LayerNorm with dim=2 and eps=0.0 is locally constant"),
        (lambda: sc.LayerNorm(1, eps=0.1), "LayerNorm with dim=1 takes every input to 0"),
        (lambda: sc.RMSNorm(3, eps=-1.0), "eps=-1.0 is not possible"),
        (lambda: sc.Clamp(3, radius=0.0), "radius=0.0 is not possible"),
        (lambda: sc.RMSNorm(3, gain=jnp.ones(2)), r"gain has shape \(2,\); expected \(3,\)"),
        (lambda: sc.check_nondegenerate(sc.RMSNorm(4), norm_input(0.0)), "u is a zero vector at 2 of 2 samples, the first being 0"),
        (lambda: sc.check_nondegenerate(sc.LayerNorm(4), norm_input(1.0)), "u is a constant vector at 2 of 2 samples"),
        (lambda: sc.contractive_floor(1.0, np.ones(2), np.zeros(2), dim=4), r"slopes\[0\]=1 does not contract"),
        (lambda: sc.contractive_floor(1.0, np.full(2, 0.5), np.full(2, 9.0), dim=4), r"offsets\[0\]=9 can cancel the stream"),
        (lambda: sc.residual_mlp(3, 2, dim=4, hidden=5, depth=0, key=jax.random.key(0)), "depth=0 is not possible"),
        (lambda: sc.residual_mlp(3, 2, dim=4, hidden=5, depth=1, activation="sine", key=jax.random.key(0)), "activation='sine' is not known"),
        (lambda: sc.residual_mlp(3, 2, dim=4, hidden=5, depth=1, key=jax.random.key(0)).split("stream:7"), "site='stream:7' is not in this network"),
        (lambda: sc.split_sequence([jnp.tanh], 3), "at=3 is outside of 1 layers"),
        (lambda: sc.Split(eqx.nn.Dropout(0.5), jnp.tanh), "bottom holds Dropout in training mode"),
        (lambda: sc.Split(eqx.nn.BatchNorm(3, "batch", mode="batch"), jnp.tanh), "bottom holds BatchNorm in training mode"),
        (lambda: sc.split_nnx(Nnx(nnx.Rngs(0), 0.5), bottom=lambda m, x: m.first(x), top=lambda m, u: m.second(u)), "holds Dropout with deterministic=False"),
        (lambda: linen_split(batch_norm=True), "writes to the collections batch_stats"),
        (lambda: linen_split(bottom="missing"), "bottom='missing' is not a method of Linen"),
        (lambda: sc.ZeroIn.init(3, 4, activation="relu", key=jax.random.key(0)).signal_vector(jnp.ones(3), jnp.ones(3)), "has a kink at its initialisation"),
        (lambda: sc.structural_order(sc.Bias(jnp.ones(2)), jnp.ones((3, 2)), key=jax.random.key(0)), "the block is not zero at its initialisation"),
        (lambda: sc.ClippedCrossEntropy(0.0), "bound=0.0 is not possible"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def linen_split(bottom="encode", **options):
    module = Linen(**options)
    x = jnp.ones((5, 3))
    variables = module.init(jax.random.key(0), x)
    return sc.split_linen(module, variables, x[0], bottom=bottom, top="decode", batched=True)
