"""The analysis from data to report: streams, verdicts where the truth is known, the command line, what is refused."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from sklearn.covariance import ledoit_wolf

import scaffold as sc
from scaffold._analyse import deal
from scaffold._population import check_disjoint
from scaffold.cli import main

LOSS = sc.SquaredError()


def small(n=120, seed=0):
    net = sc.residual_mlp(3, 2, dim=4, hidden=6, depth=1, activation="tanh", key=jax.random.key(seed))
    x, y = (np.asarray(jax.random.normal(jax.random.key(seed + i), (n, size))) for i, size in ((1, 3), (2, 2)))
    return net, x, y


def test_stream_gives_the_sums_of_arrays_at_once():
    """Chunks, batches and groups only change the order of additions."""
    with jax.enable_x64(True):
        net, x, y = small(101)
        x, y = x.astype(np.float64), y.astype(np.float64)
        split = net.split("stream:0")
        block = sc.ZeroOut.init(4, 5, activation="tanh", key=jax.random.key(3))
        u, g, losses = sc.activation_gradients(split, LOSS, x, y)
        a = np.asarray(jax.vmap(block.features)(jnp.asarray(u)))
        whole = sc.moments_of(g, a).total()
        for data, chunk in (((x, y), 512), ((x, y), 3), ([(x[i : i + 10], y[i : i + 10]) for i in range(0, 101, 10)], 4)):
            found = sc.stream(split, LOSS, block.features, data, chunk=chunk)
            assert found.n == 101
            assert found.total().loss[0] == pytest.approx(losses.sum(), rel=1e-12)
            for name in ("gradient", "square", "square2", "trace2", "signal", "signal2", "features", "gram"):
                np.testing.assert_allclose(getattr(found.total(), name), getattr(whole, name), rtol=1e-10, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(whole.square[0], g.T @ g)
        np.testing.assert_allclose(whole.signal2[0], np.sum(np.sum(g**2, 1) * np.sum(a**2, 1)))


def test_moments_of_tokens_treat_a_sequence_as_one_draw():
    rng = np.random.default_rng(0)
    g, a = rng.standard_normal((30, 5, 3)), rng.standard_normal((30, 5, 2))
    m = sc.moments_of(g, a).total()
    z = np.einsum("npi,npj->nij", g, a)
    s = np.einsum("npi,npj->nij", g, g)
    assert (m.n, m.places[0]) == (30, 150)
    np.testing.assert_allclose(m.signal2[0], np.sum(z**2))
    np.testing.assert_allclose(m.square2[0], np.sum(s**2, 0))
    np.testing.assert_allclose(m.trace2[0], np.sum(np.trace(s, axis1=1, axis2=2) ** 2))
    both = sc.moments_of(g, a) + sc.moments_of(g, a)
    np.testing.assert_allclose(both.total().gram, 2 * m.gram)


def test_a_network_at_its_deepest():
    """W = W*: no block helps. At n = 20000 and eta = 0.2 the verdict is deepest; the spread of U is sqrt(1/2)/n."""
    bed = sc.testbeds.LinearGaussian(np.eye(2), np.eye(2), np.eye(2), 0.5)
    found, squares = [], []
    for seed in range(40):
        with jax.enable_x64(True):
            x, y = bed.draw(20_000, key=jax.random.key(seed))
            g, u = np.asarray(x - y), np.asarray(x)
        signal = sc.measure_signal(g, u, delta=0.025, flips=49)
        lower = sc.cross_fit_steepest(g, u, delta=0.025).lower
        found.append(sc.decide(lower=min(max(lower, 0.0), signal.upper), upper=signal.upper, eta=0.2, family="linear").verdict)
        squares.append(signal.squared)
    assert found.count("deepest") >= 38
    assert np.std(squares) == pytest.approx(math.sqrt(0.5) / 20_000, rel=0.5)


def test_tiny_arithmetic():
    z = np.array([[1.0, 0.0], [0.0, 1.0]])
    signal = sc.measure_signal(z, np.ones((2, 1)))
    assert (signal.squared, signal.plug_in**2) == pytest.approx((0.0, 0.5))
    opposed, same = (sc.covariance(sc.moments_of(np.array(g), np.ones((2, 1)))) for g in ([[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [1.0, 1.0]]))
    assert math.isnan(opposed.omega.value)
    assert "not positive" in opposed.omega.why
    assert (same.omega.value, same.participation.value) == pytest.approx((0.5, 1.0))


def test_shrinkage_is_ledoit_and_wolf():
    a = np.random.default_rng(0).standard_normal((40, 12)) @ np.diag(np.linspace(0.2, 2, 12))
    matrix, weight = ledoit_wolf(a)
    found = sc.shrink(a)
    np.testing.assert_allclose(found.matrix, matrix, atol=1e-10)
    assert found.intensity == pytest.approx(weight)


def test_optimised_features_find_the_best_neurons():
    """Target x_2 + (x_1^2 - 1)/sqrt(2): two relu neurons +-x_1 together have the signal 1/sqrt(2 pi) = .3989 at unit function size; random ones see less."""
    x, y = (np.asarray(a, np.float32) for a in sc.testbeds.RidgeFreeTarget.draw(20_000, key=jax.random.key(0), dtype="float32"))
    g = np.stack([np.zeros(len(x), np.float32), x[:, 1] - y[:, 0]], 1)
    block = sc.optimised_features(g[:4000], x[:4000], 2, activation="relu", key=jax.random.key(1))
    a = np.asarray(jax.vmap(block.features)(jnp.asarray(x[4000:])), np.float64)
    g = g[4000:].astype(np.float64)
    found = sc.direction(g.T @ a / len(a), "function", gram=a.T @ a / len(a)).signal
    assert found >= 1 / math.sqrt(2 * math.pi) * 0.97


def test_regression_sees_what_no_linear_block_does():
    """zeta = s^2/E|G|^2 is 1 where G is a function of u, and its interval contains 0 where G is noise."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal((600, 2))
    g = np.stack([np.sin(2 * u[:, 0]), u[:, 0] * u[:, 1]], 1)
    assert sc.regression_signal(g, u).predictability > 0.9
    noise = sc.regression_signal(rng.standard_normal((600, 2)), u)
    assert noise.lower < 0 or noise.predictability < 0.02


@pytest.fixture(scope="module")
def found():
    net, x, y = small()
    return sc.analyse(net, LOSS, (x, y), families=("bias", "linear"), activation="tanh", key=jax.random.key(5))


def test_analysis_of_a_linear_target_finds_it(found):
    """An untrained network: every family has a signal, and predicted and realised agree to second order."""
    for f in found.findings:
        assert f.order.value == pytest.approx(2, abs=0.05)
        assert f.regime.lower <= f.regime.upper
        assert f.gain is not None
        assert f.step is not None
        assert f.gain.value <= found.risk
    assert found.at("stream:1", "bias").family == "bias"
    assert found.verdict("linear") in ("improvable", "improvable_material", "undetermined")
    assert found.parts == {"choose": 60, "step": 24, "evaluate": 36}


def test_findings_do_not_depend_on_what_else_was_asked_for(found):
    """Every site and family has keys of its own."""
    net, x, y = small()
    one = sc.analyse(net, LOSS, (x, y), sites=["stream:1"], families=("linear",), activation="tanh", key=jax.random.key(5)).findings[0]
    same = found.at("stream:1", "linear")
    assert one.signal._replace(upper=0.0, delta=0.0) == same.signal._replace(upper=0.0, delta=0.0)
    assert one.gain.value == same.gain.value


def test_pictures_and_tables_come_from_the_dataset(found):
    data = found.dataset()
    assert data.sizes == {"site": 2, "family": 2, "row": 4, "column": 4}
    text = str(found)
    assert all(name in text for name in ("stream:0", "linear", "undetermined" if 3 in data.verdict else "improvable"))
    axes = sc.plot.analysis(data)
    assert axes.shape == (2, 2)
    with pytest.raises(ValueError, match="site='x' is not in the data"):
        sc.plot.analysis(data, site="x")
    import matplotlib.pyplot as plt

    plt.close("all")


def test_dead_top_is_degenerate():
    """All activation gradients are zero: that is said, not a depth verdict."""
    _, x, y = small()
    split = sc.Split(lambda x: x, lambda u: jnp.zeros(2), name="dead")
    finding = sc.analyse(split, LOSS, (x, y), families=("linear",), key=jax.random.key(0)).findings[0]
    assert finding.regime.verdict == "degenerate"
    assert "all activation gradients are zero" in finding.regime.why
    assert finding.gain is None


def test_training_lowers_the_loss_and_says_when_it_blows_up():
    data = sc.datasets.teacher(200, 50, key=jax.random.key(0))
    net = sc.residual_mlp(16, 4, dim=8, hidden=8, depth=1, activation="tanh", key=jax.random.key(1))
    trained = sc.train(net, data.loss, data.train, epochs=5, batch=20, key=jax.random.key(2))
    assert trained.losses[-1] < 0.8 * trained.losses[0]
    assert data.bayes_risk == pytest.approx(4 * 0.3**2 / 2)
    poisoned = (data.train[0], np.full_like(data.train[1], np.inf))
    with pytest.raises(ValueError, match=r"the loss is not finite from epoch 1 on with learning_rate=0\.003"):
        sc.train(net, data.loss, poisoned, epochs=2, batch=20, key=jax.random.key(2))


def test_command_writes_a_record_and_a_picture(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "analyse",
                "--quick",
                "--out",
                str(tmp_path / "run"),
                *["--epochs", "1", "--dim", "6", "--hidden", "6", "--no-progress", "--data", "teacher", "--held-out-samples", "200"],
            ]
        )
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "stream:1" in text
    assert "Bayes risk" in text
    info = json.loads((tmp_path / "run" / "analyse.json").read_text())
    assert {c["name"] for c in info["claims"]} == {f"stream:{i}.{f}.order_minus_2" for i in (0, 1) for f in ("bias", "linear")}
    assert all(c["verdict"] == "holds" for c in info["claims"])
    assert (tmp_path / "run" / "analyse.png").stat().st_size > 10_000
    with xr.open_dataset(tmp_path / "run" / "analyse.nc") as data:
        assert data.attrs["n_choose"] == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--depth", "0"], "--depth 0"),
        (["--sites", "stream:9"], "--sites 'stream:9' is not in this network; expected all, or some of stream:0"),
        (["--delta", "1.5"], "--delta 1.5 is not possible"),
        (["--family", "conv"], "--family 'conv' needs pixels or tokens and --data digits has vectors"),
        (["--train-samples", "1797"], "expected 1 to 1796 of the 1797 images"),
        (["--train-samples", "1780"], "n=17 samples; expected at least 40"),
    ],
)
def test_command_refuses_in_the_words_that_were_typed(options, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["analyse", "--out", str(tmp_path / "run"), "--no-progress", "--epochs", "1", *options])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_command_overwrites_nothing_unasked(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["analyse", "--out", str(tmp_path), "--no-progress"])
    assert stop.value.code == 2
    assert "nothing is overwritten unasked" in capsys.readouterr().err


def analysed(**options):
    net, x, y = small(60)
    return sc.analyse(net, LOSS, options.pop("held_out", (x, y)), key=jax.random.key(0), **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analysed(sites=["stream:9"]), "site='stream:9' is not in this network; expected one of stream:0, stream:1"),
        (lambda: analysed(sites=[]), r"sites=\(\) is empty"),
        (lambda: analysed(families=[]), r"families=\(\) is empty"),
        (lambda: analysed(families=["conv"]), "families='conv' needs activations that are pixels"),
        (lambda: analysed(least_gain=0.0), "least_gain=0.0 is not possible"),
        (lambda: analysed(held_out=(np.ones((30, 3), np.float32), np.ones((30, 2), np.float32))), "held_out has n=30 samples; expected at least 40"),
        (lambda: analysed(held_out=(np.ones((60, 3), np.float32), np.ones((59, 2), np.float32))), r"x has \[60\] samples and y has \[59\]"),
        (lambda: analysed(held_out=(np.ones((60, 3), np.float32), np.ones((60, 2), np.float32))), "share 1 samples; expected none"),
        (lambda: analysed(train=tuple(a[:5] for a in small(60)[1:])), "splits 'train' and 'choose' share"),
        (lambda: analysed(held_out=(small(60)[1], np.full((60, 2), np.nan, np.float32))), "the loss is not finite at 30 samples"),
        (lambda: check_disjoint(a=(np.ones((2, 1)), np.ones(2)), b=(np.ones((1, 1)), np.ones(1))), "splits 'a' and 'b' share 1 samples"),
        (lambda: deal((np.ones((3, 1)), np.ones(3)), key=jax.random.key(0)), "n=3 samples"),
        (lambda: sc.covariance(sc.moments_of(np.ones((1, 2)), np.ones((1, 1)))), "n=1 samples have no covariance"),
        (lambda: sc.diagonality(np.ones((9, 1))), "one coordinate is diagonal by itself"),
        (lambda: sc.direction(np.ones((2, 2)), "function", gram=np.ones((2, 2))), "gram is singular"),
        (lambda: sc.direction(np.ones((2, 2)), "function"), "gram=None: this geometry needs it"),
        (lambda: sc.direction(np.ones((2, 2)), rank=3), "rank=3 is not possible"),
        (lambda: sc.armijo(lambda t: t, -1.0), "signal=-1.0 is not above 0"),
        (lambda: sc.difference_bound(LOSS, 1.0, 0.1, 1.0), "SquaredError has no bound"),
        (lambda: sc.exact_gain(sc.HeldOut(np.ones((2, 1)), np.ones((2, 1))), lambda x: x, lambda x: x, LOSS), "population has no exact means"),
        (lambda: sc.regression_signal(np.ones((9, 2)), np.ones((9, 3))), "expected the same, samples first"),
        (lambda: sc.optimised_features(np.ones((9, 2)), np.ones((8, 2)), 2, key=jax.random.key(0)), "expected the same, samples first"),
        (lambda: sc.train(small()[0], LOSS, small()[1:], batch=500, key=jax.random.key(0)), "batch=500 is not possible; expected 1 to n=120"),
        (lambda: sc.datasets.digits(0, key=jax.random.key(0)), "train=0 is not possible"),
        (lambda: sc.datasets.teacher(10, 0, key=jax.random.key(0)), "held_out=0 is not possible"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
