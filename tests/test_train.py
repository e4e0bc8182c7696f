"""Networks and their training against autodiff, plain numpy loops, and each other."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hiddenwidth as hw
from hiddenwidth import _ensemble, _lanes, _layout
from hiddenwidth._law import AbstractLaw
from hiddenwidth._resnet import loss
from hiddenwidth._train import descend

STEPS = 3


def numpy_run(problem, u, v, alpha, eta_u, eta_v, steps):
    """The training equations as plain loops over blocks and units (tanh, squared loss)."""
    depth, width, dim = u.shape
    u, v = u.copy(), v.copy()
    y = problem.targets
    outputs = []
    for step in range(steps + 1):
        h = [problem.inputs @ problem.embedding.T]
        for block in range(depth):
            new = h[-1].copy()
            for j in range(width):
                new += alpha / (depth * width) * np.tanh(h[-1] @ u[block, j] / dim)[:, None] * v[block, j]
            h.append(new)
        f = h[-1] @ problem.unembedding / dim
        outputs.append(f)
        if step == steps:
            break
        b = (f - y) @ problem.unembedding.T / y.size
        for block in reversed(range(depth)):
            before = b.copy()
            for j in range(width):
                act = np.tanh(h[block] @ u[block, j] / dim)
                slope = (1 - act**2) * (before @ v[block, j]) / dim
                b += alpha / (depth * width) * slope[:, None] * u[block, j]
                u[block, j] -= eta_u / alpha * slope @ h[block]
                v[block, j] -= eta_v / alpha * act @ before
    return np.stack(outputs), h[-1], u, v


@pytest.fixture(params=[1.0, 3.0])
def setting(request, key):
    problem = hw.problems.gaussian(4, d_in=3, d_out=2, dim=6, key=key)
    scaling = hw.lazy(request.param, learning_rate_u=0.7, learning_rate_v=1.3)
    with jax.enable_x64(True):
        net = hw.ResNet.init(hw.TwoLayer("tanh"), scaling, depth=5, width=3, dim=6, dtype=jnp.float64, key=key)
    return problem, scaling, net


def test_training_is_the_plain_loop(setting):
    problem, scaling, net = setting
    with jax.enable_x64(True):
        trained, seen = hw.train(net, problem, steps=STEPS)
    outputs, hidden, u, v = numpy_run(problem, np.asarray(net.params.u), np.asarray(net.params.v), scaling.alpha, 0.7, 1.3, STEPS)
    np.testing.assert_allclose(seen.output, outputs, rtol=0, atol=1e-13)
    np.testing.assert_allclose(seen.hidden[0], hidden, rtol=0, atol=1e-12)
    np.testing.assert_allclose(trained.params.u, u, rtol=0, atol=1e-12)
    np.testing.assert_allclose(trained.params.v, v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["tanh", "erf", "relu", "gelu", "softplus", "linear", jnp.sin])
@pytest.mark.parametrize("loss_name", ["squared", "logistic", "softmax"])
def test_one_step_is_the_raw_rate_times_autodiff(key, activation, loss_name):
    inputs = np.random.default_rng(0).standard_normal((4, 3))
    targets = {"squared": inputs[:, :2], "logistic": np.sign(inputs[:, :2]), "softmax": np.eye(2)[[0, 1, 1, 0]]}[loss_name]
    problem = hw.Problem.embed(inputs, targets, dim=6, loss=loss_name, key=key)
    scaling = hw.lazy(2.0, learning_rate_u=0.3, learning_rate_v=0.5)
    with jax.enable_x64(True):
        net = hw.ResNet.init(hw.TwoLayer(activation), scaling, depth=4, width=3, dim=6, dtype=jnp.float64, key=key)
        gradient = eqx.filter_grad(loss)(net, problem.space().astype(jnp.float64)).params
        trained, _ = hw.train(net, problem, steps=1)
        rate = scaling.raw_learning_rate(4, 3, 6)
        np.testing.assert_allclose(trained.params.u, net.params.u - rate.u * gradient.u, rtol=0, atol=1e-12)
        np.testing.assert_allclose(trained.params.v, net.params.v - rate.v * gradient.v, rtol=0, atol=1e-12)


class Plain(hw.AbstractUnit):
    """A two-layer unit through the generic block: the user's path."""

    def __call__(self, h, z):
        u, v = z
        return v * jnp.tanh(jnp.dot(u, h) / h.shape[0])

    def laws(self, dim):
        return ((hw.Gaussian(), dim), (hw.Gaussian(), dim))

    def params(self, standard, std):
        return (std.u * standard[0], std.v * standard[1])


def test_generic_unit_trains_like_the_closed_form(key):
    problem = hw.problems.sine(5, dim=6, key=key)
    with jax.enable_x64(True):
        sizes = {"depth": 4, "width": 3, "dim": 6, "dtype": jnp.float64, "key": key}
        ours = hw.train(hw.ResNet.init(hw.TwoLayer("tanh"), hw.mlu(), **sizes), problem, steps=STEPS)[1]
        plain = hw.train(hw.ResNet.init(Plain(), hw.mlu(), **sizes), problem, steps=STEPS)[1]
    np.testing.assert_allclose(plain.output, ours.output, rtol=0, atol=1e-13)


def test_states_of_one_point_are_the_trajectory(setting):
    problem, _, net = setting
    with jax.enable_x64(True):
        _, seen = hw.train(net, problem, steps=STEPS, hidden_steps=(0, STEPS))
        start = jnp.asarray(problem.space().start)
        np.testing.assert_allclose(jax.vmap(net)(start), seen.hidden[0], rtol=0, atol=1e-13)
        states = net.states(start[0])
    assert states.shape == (6, 6)
    np.testing.assert_array_equal(states[0], start[0])


def test_orthogonal_embeddings_have_the_limiting_gram_matrix(key):
    """Also when the inputs span less than they have columns: only what they span needs room."""
    inputs = np.random.default_rng(0).standard_normal((6, 2)) @ np.random.default_rng(1).standard_normal((2, 5))
    problem = hw.Problem.embed(inputs, np.ones((6, 2)), dim=4, embedding="orthogonal", key=key)
    h, w = problem.space().start, problem.unembedding
    np.testing.assert_allclose(h @ h.T / 4, inputs @ inputs.T / 5, atol=1e-12)
    np.testing.assert_allclose(w.T @ w / 4, 2 * np.eye(2), atol=1e-12)
    np.testing.assert_allclose(h @ w, 0, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_member_equals_the_lone_run(key, dtype):
    problem = hw.problems.sine(5, dim=4, key=key)
    unit, scaling = hw.TwoLayer("tanh"), hw.mlu()
    shape = {"depth": 6, "width": 2, "dtype": dtype}
    few = hw.ensemble(problem, unit, scaling, **shape, seeds=3, steps=STEPS, key=key)
    many = hw.ensemble(problem, unit, scaling, **shape, seeds=7, steps=STEPS, key=key)
    split = hw.ensemble(problem, unit, scaling, **shape, seeds=7, steps=STEPS, memory=3e3, key=key)
    tolerance = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(many.output[:3], few.output, rtol=0, atol=tolerance)
    np.testing.assert_allclose(split.hidden, many.hidden, rtol=0, atol=tolerance)
    for i in range(3):
        with jax.enable_x64(dtype == jnp.float64):
            net = hw.ResNet.init(unit, scaling, **shape, dim=4, key=jax.random.fold_in(key, i))
            _, alone = hw.train(net, problem, steps=STEPS)
        assert alone.output.dtype == dtype
        np.testing.assert_allclose(few.output[i], alone.output, rtol=0, atol=tolerance)


def test_gradient_of_the_whole_stack_is_never_stored(key):
    """The step's temporaries stay below one more copy of the weights: a stored gradient would be a copy by itself."""
    problem = hw.problems.sine(2, dim=8, key=key)
    unit, scaling = hw.TwoLayer("tanh"), hw.mlu()
    net = hw.ResNet.init(unit, scaling, depth=64, width=256, dim=8, key=key)
    space = problem.space().astype(jnp.float32)

    def step(params):
        return descend(unit, scaling, params, jnp.full((256,), 1 / 256, jnp.float32), space, 1, (1,))[0]

    analysis = jax.jit(step, donate_argnums=0).lower(net.params).compile().memory_analysis()
    weights = sum(x.nbytes for x in jax.tree.leaves(net.params))
    saved = 64 * 2 * (8 + 256) * 4  # states and pre-activations of both points
    assert analysis.temp_size_in_bytes < weights + 2 * saved


def test_divergence_is_counted_not_hidden(key):
    problem = hw.problems.sine(5, dim=4, key=key)
    runs = hw.ensemble(problem, hw.TwoLayer("linear"), hw.mlu(50.0), depth=4, width=2, seeds=6, steps=12, key=key)
    assert runs.diverged.all()
    assert np.all(runs.diverged_at > 0)
    calm = hw.ensemble(problem, hw.TwoLayer("linear"), hw.mlu(0.1), depth=4, width=2, seeds=6, steps=12, key=key)
    assert not calm.diverged.any()


def test_skewed_law_draws_the_law_it_integrates(key):
    law = hw.Skewed()
    draws = np.sort(np.asarray(law.sample((20000,), key=key)))
    uniform = (np.arange(20000) + 0.5) / 20000
    # Kolmogorov-Smirnov distance: 1.63/sqrt(n) at the 1 % level
    assert np.max(np.abs(np.interp(draws, law.quantile(uniform), uniform) - uniform)) < 1.63 / np.sqrt(20000)
    z = law.quantile((np.arange(10**6) + 0.5) / 10**6)
    np.testing.assert_allclose([z.mean(), (z**2).mean(), (z**3).mean()], [0, 1, 2], atol=2e-3)


@pytest.mark.parametrize(("dim", "width", "depth", "batch", "seeds"), [(64, 128, 16, 32, 2), (10, 50, 100, 10, 4), (32, 8, 64, 8, 8), (5, 1, 1000, 10, 16)])
def test_training_takes_no_second_stack_of_weights(dim, width, depth, batch, seeds):
    """Peak memory of a whole ensemble, drawing included, as XLA plans it: at most 1.25 times weights and saved states. The forecast covers it."""
    problem, unit, dtype = hw.problems.gaussian(batch, dim=dim, key=jax.random.key(0)), hw.TwoLayer("tanh"), jnp.dtype("float32")
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(1), i))(jnp.arange(seeds))
    scaling, space = hw.mlu().traced(dtype), problem.space().astype(dtype)
    compiled = _ensemble._members.lower(unit, scaling, space, keys, jnp.int32(depth), depth, width, 4, (4,), seeds, dtype, (jax.devices()[0],)).compile()
    plan = compiled.compiled.memory_analysis()
    peak = plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes
    kept = 4 * seeds * (2 * depth * width * dim + depth * batch * (dim + width))
    assert 1.0 < peak / kept < 1.25
    assert seeds <= _ensemble.group_size(problem, unit, depth, width, 4, memory=1.25 * peak)
    assert _ensemble.group_size(problem, unit, depth, width, 4, memory=0.8 * peak) < seeds


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_seeds_as_lanes_are_the_same_networks(activation):
    """One unit a layer and many seeds: another layout, the same numbers as every network alone; a number of seeds that fills no block."""
    problem, unit, key = hw.problems.gaussian(5, d_in=2, d_out=2, dim=6, key=jax.random.key(0)), hw.TwoLayer(activation), jax.random.key(1)
    sizes, seeds = {"depth": 7, "width": 1}, _lanes.LANES + 3
    assert _layout.choose_layout(unit, 1, 6, 5, seeds) == "lanes"
    assert _layout.choose_layout(unit, 2, 6, 5, seeds) == "rows"
    runs = hw.ensemble(problem, unit, hw.mlu(0.7, learning_rate_u=0.4), **sizes, seeds=seeds, steps=4, hidden_steps=(0, 4), dtype=jnp.float64, key=key)
    for i in (0, 5, seeds - 1):
        with jax.enable_x64(True):
            net = hw.ResNet.init(unit, hw.mlu(0.7, learning_rate_u=0.4), **sizes, dim=6, dtype=jnp.float64, key=jax.random.fold_in(key, i))
            _, seen = hw.train(net, problem, steps=4, hidden_steps=(0, 4))
        for name in ("output", "loss", "hidden"):
            np.testing.assert_allclose(getattr(runs, name)[i], getattr(seen, name), rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("seeds", [1, 3])
def test_weights_as_columns_are_the_same_networks(seeds):
    """Wide layers are stored the other way round; every member is the network that its key gives alone, one seed (no batch) and several."""
    problem, unit, key = hw.problems.gaussian(5, d_in=2, d_out=2, dim=6, key=jax.random.key(0)), hw.TwoLayer("erf", law="skewed"), jax.random.key(1)
    scaling, sizes = hw.lazy(2.0, learning_rate_u=0.4), {"depth": 4, "width": 64}
    assert _layout.choose_layout(unit, 64, 6, 5, seeds) == "columns"
    runs = hw.ensemble(problem, unit, scaling, **sizes, seeds=seeds, steps=3, dtype=jnp.float64, key=key)
    for i in range(seeds):
        with jax.enable_x64(True):
            net = hw.ResNet.init(unit, scaling, **sizes, dim=6, dtype=jnp.float64, key=jax.random.fold_in(key, i))
            _, seen = hw.train(net, problem, steps=3)
        np.testing.assert_allclose(runs.hidden[i], seen.hidden, rtol=1e-12)
        np.testing.assert_allclose(runs.output[i], seen.output, rtol=1e-12)


class Scaled(AbstractLaw):
    """A Gaussian of another size: a law with a parameter."""

    rotation_invariant: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True
    size: float

    def sample(self, shape, *, dtype=jnp.float32, key):
        return self.size * hw.Gaussian().sample(shape, dtype=dtype, key=key)

    def quantile(self, u):
        return self.size * hw.Gaussian().quantile(u)


class Uneven(hw.TwoLayer):
    def laws(self, dim):
        return ((Scaled(1.0), dim), (Scaled(100.0), dim))


def test_draws_keep_every_law_and_do_not_depend_on_the_depth(key):
    """Two laws of one class that differ in a parameter are drawn as they are; shallow networks are the first layers of deep ones."""
    shape = {"width": 40, "dim": 8, "key": key}
    u, v = hw.ResNet.init(Uneven(), hw.mlu(), depth=20, **shape).params
    assert float(jnp.std(v) / jnp.std(u)) == pytest.approx(100, rel=0.1)
    deep, shallow = (hw.ResNet.init(hw.TwoLayer(), hw.mlu(), depth=d, **shape).params for d in (20, 3))
    np.testing.assert_array_equal(deep.u[:3], shallow.u)
    np.testing.assert_array_equal(deep.v[:3], shallow.v)
    assert abs(float(jnp.corrcoef(deep.u.ravel(), deep.v.ravel())[0, 1])) < 0.05


@pytest.mark.parametrize(("width", "seeds"), [(1, 20), (3, 4), (64, 2)])
def test_room_for_more_layers_changes_nothing(width, seeds):
    """`deepest` lets depths share a program; in every layout the networks stay the same."""
    problem = hw.problems.gaussian(5, dim=6, key=jax.random.key(0))
    args = {"width": width, "seeds": seeds, "steps": 3, "dtype": jnp.float64, "key": jax.random.key(1)}
    for depth in (2, 5):
        alone = hw.ensemble(problem, hw.TwoLayer("tanh"), hw.mlu(0.5), depth=depth, **args)
        roomy = hw.ensemble(problem, hw.TwoLayer("tanh"), hw.mlu(0.5), depth=depth, deepest=8, **args)
        np.testing.assert_allclose(roomy.hidden, alone.hidden, rtol=1e-13)
        np.testing.assert_allclose(roomy.loss, alone.loss, rtol=1e-13)
