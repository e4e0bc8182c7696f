"""Finite embedding dimension: Mean ODE(D) against D = infinity, networks over D, the joint law, the command."""

import math

import jax
import numpy as np
import pytest

import hiddenwidth as hw
from hiddenwidth import _record
from hiddenwidth._commands import dimension
from hiddenwidth._dimension_fit import _with_rest
from hiddenwidth._dimension_laws import bias_law, fit_limit, fluctuation_law
from hiddenwidth._joint import joint_claim, joint_table
from hiddenwidth._law_fit import Grid, fit_law
from hiddenwidth._limit.dimension import gram_roots
from hiddenwidth._statistics import cell_statistics, seed_counts

UNIT, SCALING, KEY = hw.TwoLayer("tanh"), hw.mlu(), jax.random.key(0)
INFINITE = hw.problems.sine(5, dim=math.inf)


@pytest.fixture(scope="module")
def limit():
    return hw.mean_ode(INFINITE, UNIT, SCALING, steps=3, quadrature=hw.Sobol(10, 4), tolerance=1e-7, budget=False)


@pytest.fixture(scope="module")
def error():
    return hw.dimension_error(INFINITE, UNIT, SCALING, dims=(16, 64, 256, 1024), steps=3, draws=40, tolerance=1e-7)


def test_gram_matrices_have_the_law_of_gaussian_embeddings():
    """Wishart moments: E G = I, Var G_ij = (1 + delta_ij)/D."""
    draws = 4000
    roots = gram_roots(3, (8,), draws, 0, pairs=False)[0]
    gram = roots @ roots
    mean, spread = gram.mean(0), gram.std(0, ddof=1) / np.sqrt(draws)
    assert np.all(np.abs(mean - np.eye(3)) < 4 * spread)
    variance = gram.var(0, ddof=1)
    truth = (1 + np.eye(3)) / 8
    kurtosis = np.mean((gram - mean) ** 4, 0)
    assert np.all(np.abs(variance - truth) < 4 * np.sqrt((kurtosis - variance**2) / draws))


def test_draws_are_coupled_over_dim_and_antithetic():
    """sqrt(D) (G - I) converges draw by draw, and pairs point in opposite directions."""
    roots = gram_roots(2, (10**4, 10**6), 6, 0)
    fluctuation = (roots @ roots - np.eye(2)) * np.sqrt([1e4, 1e6])[:, None, None, None]
    np.testing.assert_allclose(fluctuation[0], fluctuation[1], atol=0.1)
    np.testing.assert_allclose(fluctuation[1, ::2], -fluctuation[1, 1::2], atol=0.02)
    np.testing.assert_array_equal(gram_roots(2, (8,), 3, 0), gram_roots(2, (8,), 4, 0)[:, :3])


def test_dimension_error_equals_two_solutions_in_ambient_terms():
    """One draw by hand: a problem with the same Gram matrix, solved by `mean_ode`, and the lifted solution at D = infinity."""
    dim, root = 16, gram_roots(2, (16,), 2, 0)[0, 0]
    columns = math.sqrt(dim) * np.concatenate([root, np.zeros((dim - 2, 2))])  # [W_E, W_U] with this Gram matrix, d_in = d_out = 1
    problem = hw.Problem(INFINITE.inputs, INFINITE.targets, columns[:, :1], columns[:, 1:])
    rule = hw.Sobol(9, 1)
    common = {"steps": 3, "quadrature": rule, "budget": False}
    finite, infinite = (hw.mean_ode(p, UNIT, SCALING, **common) for p in (problem, INFINITE))
    found = hw.dimension_error(INFINITE, UNIT, SCALING, dims=(dim,), steps=3, draws=2, quadrature=rule)
    # coordinates at D = infinity belong to [input direction, output]; the sign of the first is that of the data's basis
    sign = np.sign(infinite.where.space.start[0, 0] / INFINITE.inputs[0, 0])
    lift = columns * np.array([sign, 1.0])
    for k in range(4):
        gap = finite.hidden(k) - infinite.hidden(k) @ lift.T
        np.testing.assert_allclose(found.output[0, 0, k], np.mean((finite.output(k) - infinite.output(k)) ** 2), rtol=2e-4)
        np.testing.assert_allclose(found.hidden[0, 0, k], np.mean(gap**2), rtol=2e-4, atol=1e-14)


def test_quadrature_error_cancels():
    """Twice the points change the error of D by far less than the limit itself changes."""
    coarse, fine = (hw.dimension_error(INFINITE, UNIT, SCALING, dims=(64,), steps=3, draws=4, quadrature=hw.Sobol(n, 1)).hidden[0, :, 3] for n in (8, 9))
    assert np.abs(np.sqrt(fine) - np.sqrt(coarse)).max() < 0.03 * math.sqrt(fine.mean())


def test_limit_exponent(error):
    fit, _ = fit_limit(np.array(error.dims, float), error.hidden[:, :, 3], 2, 300, np.random.default_rng(0))
    exponent = fit.exponents["exponent"]
    assert abs(exponent.value + 0.5) < 1.5 * exponent.half_width
    assert 2 * exponent.half_width < 0.05
    assert np.all(error.hidden[:, :, 0] < 1e-5)  # lifted embeddings agree before training, up to the quadrature of a mean that is zero


def test_network_over_lifted_columns_is_a_network(limit):
    """A member of `sweep_shapes` against `train` on a problem whose embeddings are those columns."""
    dim, key = 8, jax.random.key(3)
    runs = hw.sweep_shapes(limit, [(4, 3, dim)], seeds=2, embedding="orthogonal", dtype="float64", key=key)
    sign = float(np.sign(limit.where.space.start[0, 0] / INFINITE.inputs[0, 0]))
    columns = math.sqrt(dim) * np.eye(dim, 2)
    problem = hw.Problem(INFINITE.inputs, INFINITE.targets, columns[:, :1] * sign, columns[:, 1:])
    with jax.enable_x64(True):
        own = key
        for part in (4, 3, dim):
            own = jax.random.fold_in(own, part)
        net = hw.ResNet.init(UNIT, SCALING, depth=4, width=3, dim=dim, dtype="float64", key=jax.random.fold_in(own, 1))
        _, seen = hw.train(net, problem, steps=3)
        hidden, output = np.asarray(seen.hidden[0]), np.asarray(seen.output[-1])
    lifted = limit.hidden(3) @ columns.T
    np.testing.assert_allclose(runs.square.values[0, 1], np.mean((hidden - lifted) ** 2), rtol=1e-9)
    np.testing.assert_allclose(runs.output_gap.values[0, 1], output - limit.output(3), atol=1e-10)
    np.testing.assert_allclose(runs.gap.values[0, 1], (hidden - lifted) @ columns / dim, atol=1e-10)


def test_members_do_not_depend_on_the_others(limit):
    shapes = [(4, 2, 8), (8, 1, 8)]
    both = hw.sweep_shapes(limit, shapes, seeds=3, key=KEY)
    alone = hw.sweep_shapes(limit, shapes[1:], seeds=2, workers=1, key=KEY)
    np.testing.assert_allclose(both.square.values[1, :2], alone.square.values[0], rtol=1e-4)


def test_what_lies_outside_the_span_enters_by_its_mean_square():
    """Against the plain variance of whole vectors."""
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0.3, 1, (400, 3)), rng.normal(0, 1, (400, 20))
    counts = seed_counts(400, 200, rng)
    cell = cell_statistics(inside, inside, np.zeros(3), 0.0, np.zeros((200, 3)), counts)
    whole = cell_statistics(np.concatenate([inside, outside], 1), inside, np.zeros(23), 0.0, np.zeros((200, 3)), counts)
    joined = _with_rest(cell, inside, np.sum(outside**2, 1), counts)
    assert abs(joined.variance / whole.variance - 1) < 0.01
    assert abs(joined.variance_draws.std() / whole.variance_draws.std() - 1) < 0.05
    assert joined.bias2 == whole.bias2


def test_intervals_over_dim_cover():
    """Synthetic V and B with next orders of usual size: 95 % intervals of exponent and constant cover."""
    depth, load, dim = (x.ravel().astype(float) for x in np.meshgrid([8, 16, 32], [4, 8, 16], [8, 16, 32, 64, 128], indexing="ij"))
    grid = Grid(depth, load * dim / depth, dim)
    rng, hits = np.random.default_rng(0), []
    for _ in range(120):
        x, w, u = 1 / load, 2 / dim, 1 / depth
        orders = np.exp(rng.normal(0, 2) * u + rng.normal(0, 0.5) * x + rng.normal(0, 1) * (w + w**2) + rng.normal(0, 4) * u**2 + rng.normal(0, 0.25) * x**2)
        one = []
        for law, truth, power in (
            (fluctuation_law(grid, "hidden", 2), 0.64 * dim / grid.product, 0.5),
            (bias_law(grid, 2), 0.02 * (dim / grid.product) ** 2, 1.0),
        ):
            values = truth * orders * (1 + 0.03 * rng.standard_normal(len(dim)))
            draws = values * (1 + 0.03 * rng.standard_normal((150, len(dim))))
            fit = fit_law(law, grid, values, draws, lambda mean, used: (0.03 * mean) ** 2, rng)
            exponent = fit.exponents["exponent_dim"]
            constant = 0.8 if power == 0.5 else math.sqrt(0.02)
            one += [abs(exponent.value - power) <= exponent.half_width, abs(fit.constant.value - constant) <= fit.constant.half_width]
        hits.append(one)
    share = np.mean(hits, axis=0)
    assert np.all(share >= 0.90), share  # 0.95 less 2.5 standard errors of 120 trials


@pytest.mark.parametrize("scatter", [0.0, 0.01], ids=["smooth", "rough"])
def test_limit_interval_covers(scatter):
    """Pairs of draws with a common random direction: d^2/D with next orders in 1/D; and points that scatter about it in a way common to the draws."""
    dims, rng, hits = 2.0 ** np.arange(4, 11), np.random.default_rng(1), []
    for _ in range(120):
        z, slope = rng.standard_normal((3, 24)), rng.normal(0, 1)
        even = np.sum(z**2, 0) / 3 / dims[:, None] * (1 + slope * 2 / dims[:, None] + 0.5 * z[0] ** 2 / dims[:, None])
        odd = 0.5 * z[0] ** 3 / dims[:, None] ** 1.5
        squares = np.stack([even + odd, even - odd], -1).reshape(len(dims), -1) * np.exp(scatter * rng.standard_normal((len(dims), 1)))
        fit, _ = fit_limit(dims, squares, 2, 150, rng)
        exponent = fit.exponents["exponent"]
        hits.append((abs(exponent.value + 0.5) <= exponent.half_width, abs(fit.constant.value - 1) <= fit.constant.half_width))
    share = np.mean(hits, axis=0)
    assert np.all(share >= 0.88), share


def test_fit_and_joint_law_end_to_end(limit, error):
    shapes = [(depth, load * dim // depth, dim) for dim in (8, 16, 32) for depth in (8, 16) for load in (4, 8)]
    runs = hw.sweep_shapes(limit, shapes, seeds=96, embedding="orthogonal", key=jax.random.key(1))
    depth = hw.depth_error(INFINITE, UNIT, SCALING, depths=(4, 8, 16, 32), steps=3, quadrature=hw.Sobol(8, 2))
    fit = hw.fit_dimension(runs, error, limit, depth, bootstrap=300)
    for name, truth in (("hidden.fluctuation.exponent_dim", 0.5), ("output.fluctuation.exponent_dim", 0.0), ("hidden.limit.exponent", -0.5)):
        c = fit[name]
        assert c.theory == truth
        assert abs(c.value - truth) <= 1.5 * (c.ci95[1] - c.ci95[0]) / 2, c
    assert "hidden.limit.constant" in repr(fit)
    fresh = hw.sweep_shapes(limit, [(8, 16, 16), (16, 16, 32)], seeds=96, key=jax.random.key(2))
    table = joint_table(fresh, fit.laws)
    assert joint_claim(table, "hidden").verdict != "fails", table.sel(observable="hidden")
    assert joint_claim(table.assign(error=2 * table.error), "hidden").verdict == "fails"
    with pytest.raises(ValueError, match="runs have embedding='gaussian'; expected 'orthogonal'"):
        hw.fit_dimension(fresh, error, limit, depth)
    with pytest.raises(ValueError, match="seeds=4 is too few for an interval; expected at least 8"):
        hw.fit_dimension(runs.isel(seed=slice(4)), error, limit, depth)
    short = hw.DepthError(depth.problem_digest, (4, 16), depth.step, depth.hidden[:, [0, 2]], depth.output[:, [0, 2]])
    with pytest.raises(ValueError, match=r"depth covers depths \(4, 16\); expected those of the runs as well: \[8\] are missing"):
        hw.fit_dimension(runs, error, limit, short)
    with pytest.raises(ValueError, match="were computed for different problems"):
        hw.fit_dimension(runs, error._replace(problem_digest="0"), limit, depth)


REFUSED = [
    (lambda limit: hw.dimension_error(INFINITE, UNIT, SCALING, dims=(16,), steps=1, draws=3), "draws=3 is odd; expected an even number"),
    (lambda limit: hw.dimension_error(INFINITE, UNIT, SCALING, dims=(1, 16), steps=1), "dims=1 is too small for these data; expected at least 2"),
    (lambda limit: hw.dimension_error(INFINITE, UNIT, SCALING, dims=(), steps=1), r"dims=\(\) is empty; expected at least one"),
    (lambda limit: hw.dimension_error(INFINITE, hw.TwoLayer(law="skewed"), SCALING, dims=(16,), steps=1), "has no reduced coordinates"),
    (lambda limit: hw.sweep_shapes(limit, [(4, 2, 1)], seeds=2, key=KEY), "dim=1 is too small for these data; expected at least 2"),
    (lambda limit: hw.sweep_shapes(limit, [(0, 2, 8)], seeds=2, key=KEY), "depth=0 is not possible"),
    (lambda limit: hw.sweep_shapes(limit, [(4, 2, 8)], seeds=2, embedding="sparse", key=KEY), "embedding='sparse' is unknown"),
    (lambda limit: hw.sweep_shapes(limit, [(64, 64, 64)], seeds=2, memory=1e5, key=KEY), "one network with depth=64 width=64 dim=64 needs"),
]


@pytest.mark.parametrize(("action", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(action, message, limit):
    with pytest.raises(ValueError, match=message):
        action(limit)


def test_limit_at_finite_dim_is_refused(limit):
    """At the sizes of the limit at D = infinity, whose solver is compiled already."""
    finite = hw.mean_ode(limit.problem.with_dim(8, key=KEY), UNIT, SCALING, steps=1, quadrature=hw.Sobol(10, 1), tolerance=1e-7, budget=False)
    with pytest.raises(ValueError, match=r"limit has dim=8; expected the limit at dim=math\.inf"):
        hw.sweep_shapes(finite, [(4, 2, 8)], seeds=2, key=KEY)


SMALL = {"dims": (8, 16), "depths": (8,), "seeds": 10, "limit_dims": (16, 64, 256), "draws": 16, "steps": 2, "quick": True, "progress": False}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("dimension") / "run"
    return dimension.run(dimension.DimensionConfig(**SMALL, out=out)), out


def test_command_writes_a_record(record):
    outcome, out = record
    assert outcome.status == 0
    assert "hidden.limit.exponent" in outcome.text
    info, data = _record.read(out, "dimension")
    assert {c["name"] for c in info["claims"]} >= {"hidden.fluctuation.exponent_dim", "output.limit.exponent", "hidden.limit.constant"}
    assert info["reference"]["step"] == 2
    assert data.limit_hidden2.shape == (3, 16, 3)
    picture = (out / "dimension.png").read_bytes()
    (out / "dimension.png").unlink()
    dimension.draw(out)  # from the json and the netCDF alone
    assert (out / "dimension.png").read_bytes() == picture


def test_existing_directory_is_not_overwritten(record):
    _, out = record
    before = (out / "dimension.json").read_bytes()
    with pytest.raises(ValueError, match="exists and is not empty; nothing is overwritten unasked"):
        dimension.run(dimension.DimensionConfig(**SMALL, out=out))
    assert (out / "dimension.json").read_bytes() == before


def test_limit_that_blows_up_or_rises_at_once_ends_with_status_1(tmp_path):
    outcome = dimension.run(dimension.DimensionConfig(**(SMALL | {"steps": 9}), activation="linear", learning_rate=1e4, out=tmp_path / "a"))
    assert outcome.status == 1
    assert "--learning-rate is too large" in outcome.text
    outcome = dimension.run(dimension.DimensionConfig(**(SMALL | {"steps": 1}), learning_rate=100.0, out=tmp_path / "b"))
    assert outcome.status == 1
    assert "the law cannot be claimed at any step: stability horizon at step 0" in outcome.text


def test_interrupt_keeps_what_is_finished(tmp_path, monkeypatch):
    from hiddenwidth import _lifted

    real, calls = _lifted._members, []

    def stop_at_the_third(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(_lifted, "_members", stop_at_the_third)
    outcome = dimension.run(dimension.DimensionConfig(**SMALL, out=tmp_path / "run"))
    assert outcome.status == 130
    info, data = _record.read(tmp_path / "run", "dimension")
    done = data.done.values
    assert 1 <= done.sum() < done.size
    assert f"{done.sum()} of {done.size} cells were finished and kept" in outcome.text
    assert info["interrupted"] is True
    assert np.isfinite(data.square.values[done]).all()


BAD = [
    ({"dims": (8,)}, r"dims=\(8,\) is too few; expected at least 2"),
    ({"dims": (1, 8)}, "dims=1 is too small for these data; expected at least 2"),
    ({"limit_dims": (16, 64)}, r"limit_dims=\(16, 64\) is too few; expected at least 3"),
    ({"draws": 17}, "draws=17 is too few or odd; expected an even number of at least 16"),
    ({"seeds": 4}, "seeds=4 is too few for an interval; expected at least 8"),
    ({"steps": 0}, "steps=0 is not possible"),
    ({"seed": -1}, "seed=-1 is not possible; expected a whole number from 0"),
    ({"learning_rate": -1.0}, "learning_rate=-1.0 is not possible"),
    ({"memory": 1e3}, "expected it to fit. Raise memory or choose a smaller shape"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[next(iter(c)) for c, _ in BAD])
def test_command_refuses(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        dimension.run(dimension.DimensionConfig(**(SMALL | change), out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
