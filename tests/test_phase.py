"""The phase diagram: its measurements against plain loops, its fits on planted laws, the command end to end."""

import json
import math
import re
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import hiddenwidth as hw
from hiddenwidth import _phase, _record
from hiddenwidth._commands import phase
from hiddenwidth._phase import check_shapes, ladder
from hiddenwidth._phase_boundaries import REGIONS, Curves, blow_up_rho, classify, critical_rho, training_limit
from hiddenwidth._phase_cells import Cells, Shape, measure
from hiddenwidth._phase_fit import rejected
from hiddenwidth._power_fit import fit_powers, mean_of
from hiddenwidth._scaling import blow_up_scale, critical_scale
from hiddenwidth._tuned import _summary
from hiddenwidth._tuned_fit import tuned_claims

UNIT = hw.TwoLayer("tanh")
STEPS = 3


def plain_loop(problem, u, v, eta_u, eta_v, steps):
    """The network as it is stated: branch 1/(LM), v of any size, rates for the branch as it is. Returns A, F, C (root mean squares) and the losses."""
    depth, width, dim = u.shape
    u, v, first = u.copy(), v.copy(), u.copy()
    y, losses, start, beginning = problem.targets, [], None, None
    for step in range(steps + 1):
        h = [problem.inputs @ problem.embedding.T]
        for block in range(depth):
            new = h[-1].copy()
            for j in range(width):
                new += np.tanh(h[-1] @ u[block, j] / dim)[:, None] * v[block, j] / (depth * width)
            h.append(new)
        f = h[-1] @ problem.unembedding / dim
        losses.append(np.sum((f - y) ** 2) / (2 * y.size))
        if start is None:
            start, beginning = h, h[-1] - h[0]
        if step == steps:
            break
        b = (f - y) @ problem.unembedding.T / y.size
        for block in reversed(range(depth)):
            before = b.copy()
            for j in range(width):
                act = np.tanh(h[block] @ u[block, j] / dim)
                slope = (1 - act**2) * (before @ v[block, j]) / dim
                b += slope[:, None] * u[block, j] / (depth * width)
                u[block, j] -= eta_u * slope @ h[block]
                v[block, j] -= eta_v * act @ before
    moved = [(u[block, j] - first[block, j]) @ start[block].T / dim for block in range(depth) for j in range(width)]
    return np.sqrt(np.mean(np.square(moved))), np.sqrt(np.mean(beginning**2)), np.sqrt(np.mean((h[-1] - start[-1]) ** 2)), np.array(losses)


@pytest.mark.parametrize(("rho", "rates"), [(0.3, {}), (3.0, {}), (2.0, {"learning_rate_u": 0.7, "learning_rate_v": 1.3})])
def test_cell_is_the_plain_loop(rho, rates, key):
    """A, F, C and losses of `residual(rho)`: the network with sigma_v = rho sqrt(D) and alpha = 1."""
    problem, shape = hw.problems.gaussian(4, d_in=3, d_out=2, dim=6, key=key), Shape(5, 3, 6)
    scaling = hw.residual(rho, **rates)
    cells = measure(problem, UNIT, [hw.mlu(), scaling], shape=shape, seeds=2, steps=STEPS, dtype=jnp.dtype("float64"), memory=1e9, key=key)
    with jax.enable_x64(True):
        net = hw.ResNet.init(UNIT, scaling, depth=5, width=3, dim=6, dtype=jnp.float64, key=jax.random.fold_in(key, 1))
        u, v = np.asarray(net.params.u), np.asarray(net.params.v)
    eta_u = rates.get("learning_rate_u", 1 / max(1, rho) ** 2)
    update, fluctuation, change, losses = plain_loop(problem, u, rho * v, eta_u, rates.get("learning_rate_v", 1.0), STEPS)
    found = [np.sqrt(x[1, 1]) for x in (cells.local_update2, cells.fluctuation2, cells.change2)]
    np.testing.assert_allclose(found, [update, fluctuation, change], rtol=1e-10)
    np.testing.assert_allclose(cells.loss[1, 1], losses, rtol=1e-10)
    assert np.isclose(scaling.residual_scale(*shape), rho * critical_scale(*shape))


@pytest.mark.parametrize("scaling", [hw.fan_in(0.7, learning_rate_v=1.2), hw.lazy(3.0, 0.5), hw.mlu()])
def test_scaling_at_a_shape_is_the_same_network(scaling, key):
    problem = hw.problems.sine(4, dim=5, key=key)
    outputs = []
    for one in (scaling, scaling.at(8, 5)):
        with jax.enable_x64(True):
            net = hw.ResNet.init(UNIT, one, depth=4, width=8, dim=5, dtype=jnp.float64, key=key)
            outputs.append(np.asarray(hw.train(net, problem, steps=STEPS)[1].output))
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-10)
    assert np.isclose(scaling.residual_scale(4, 8, 5), scaling.at(8, 5).residual_scale(4, 8, 5))


def test_fan_in_and_complete_p_sit_at_the_root_of_width_over_dim():
    shape = Shape(4, 24, 6)
    for scaling in (hw.fan_in(), hw.complete_p(width=24, dim=6)):
        assert np.isclose(scaling.residual_scale(*shape) / critical_scale(*shape), 2.0)
    assert np.isclose(blow_up_scale(4, 24) / critical_scale(*shape), math.sqrt(shape.ratio))


# Fits on planted laws.

SHAPES = [(16, 16, 8), (64, 8, 8), (16, 64, 8), (128, 16, 8), (16, 64, 32), (128, 8, 32), (64, 32, 32), (32, 128, 128), (128, 32, 128), (64, 64, 128)]
DEPTH, WIDTH, DIM = (np.array(x, float) for x in zip(*SHAPES, strict=True))
POWERS = {"depth": np.log(DEPTH), "width": np.log(WIDTH), "dim": np.log(DIM)}
TRUE = {"depth": -1.0, "width": -1.0, "dim": 0.5}
LAW = sum(TRUE[k] * POWERS[k] for k in TRUE)


def test_planted_exponents_are_recovered_exactly():
    corrections = {"1/L": 1 / DEPTH, "D/(LM)": DIM / (DEPTH * WIDTH)}
    fit = fit_powers(0.3 + LAW + 0.4 / DEPTH - 1.3 * corrections["D/(LM)"], POWERS, corrections=corrections)
    assert {k: round(e.value, 10) for k, e in fit.exponents.items()} == TRUE
    assert fit.dof == 4
    without = fit_powers(np.where(np.arange(10) == 3, np.nan, 0.3 + LAW), POWERS, corrections=corrections)
    assert without.used.sum() == 9
    assert without.dof == 3
    few = fit_powers((0.3 + LAW)[:6], {k: v[:6] for k, v in POWERS.items()}, corrections={k: v[:6] for k, v in corrections.items()})
    assert few.dof == 2  # too few for the corrections, enough for the exponents


@pytest.mark.parametrize(("noise", "scatter"), [(0.05, 0.0), (0.05, 0.05), (0.0, 0.05)], ids=["seeds", "both", "scatter"])
def test_intervals_of_exponents_cover(noise, scatter):
    """Noise of the seeds, known to the bootstrap, and scatter of the law about its powers, unknown to it."""
    rng, trials = np.random.default_rng(1), 400
    inside = np.zeros(3)
    for _ in range(trials):
        seen = LAW + noise * rng.standard_normal(10) + scatter * rng.standard_normal(10)
        draws = seen + noise * rng.standard_normal((60, 10))
        fit = fit_powers(seen, POWERS, draws=draws)
        inside += [abs(fit.exponents[k].value - TRUE[k]) <= fit.exponents[k].half_width for k in TRUE]
    coverage = inside / trials
    assert np.all(coverage >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)), coverage


def test_shapes_that_cannot_tell_depth_from_width_apart_say_nothing():
    fit = fit_powers(LAW, POWERS | {"width": 2 * POWERS["depth"]})
    assert math.isnan(fit.exponents["depth"].value)
    assert math.isnan(mean_of(np.array([1.0])).value)


def test_wrong_candidate_is_rejected_or_not():
    fit = fit_powers(LAW + 0.01 * np.random.default_rng(0).standard_normal(10), POWERS)
    away, at, wrong = rejected("x", fit, "dim", 0.0, 0.5), rejected("x", fit, "dim", 0.5, 0.6), rejected("x", fit, "dim", 1.0, 1.5)
    assert (away.name, away.verdict) == ("x.rejects_dim_0", "holds")
    assert away.ci95[0] > 0
    assert at.verdict == "undetermined"  # the candidate lies in the interval
    assert wrong.verdict == "fails"  # the exponent is on the other side of the candidate
    assert rejected("x", fit_powers(LAW[:3], {k: v[:3] for k, v in POWERS.items()}), "dim", 0.0, 0.5).verdict == "undetermined"


# Boundaries and regions.

RHO = 2.0 ** np.arange(-3, 7.1, 0.5)


def planted(ratio=256.0):
    update = 0.4 * np.minimum(1.0, 1 / RHO) * (0.5 + 0.5 * np.minimum(RHO, 1))
    return Curves(update, 0.5 * RHO / math.sqrt(ratio), update)


def test_boundaries_of_planted_curves():
    seen = planted()
    assert np.isclose(critical_rho(RHO, seen), 2.0)  # A falls as 1/rho from its maximum at rho = 1
    assert np.isclose(blow_up_rho(RHO, seen), 32.0)
    flat = Curves(np.full_like(RHO, 0.3), np.full_like(RHO, 0.1), RHO)
    assert np.isnan(critical_rho(RHO, flat))
    assert np.isnan(blow_up_rho(RHO, flat))
    stacked = Curves(*(np.stack([x, x]) for x in seen))
    np.testing.assert_allclose(critical_rho(RHO, stacked), 2.0)


def test_update_that_rises_again_after_the_blow_up_does_not_count():
    seen = planted()
    update = np.where(RHO >= 40, 5.0, seen.local_update)
    assert np.isclose(critical_rho(RHO, seen._replace(local_update=update)), 2.0)


def test_every_cell_has_its_region():
    seen, share = planted(), np.ones_like(RHO)
    lost = np.zeros(len(RHO), int)
    share[-2:] = [0.4, np.nan]  # the last cell was not measured
    lost[-3] = 1
    regions = classify(RHO, seen, share, lost)
    names = [REGIONS[i] if i >= 0 else "" for i in regions]
    expected = ["maximal" if r <= 2.01 else "lazy" if r < 31.9 else "stochastic" for r in RHO]
    expected[-3:] = ["unstable", "unstable", ""]
    assert names == expected
    assert training_limit(RHO, share, lost) == RHO[-3]
    assert math.isnan(training_limit(RHO, np.ones_like(RHO), np.zeros(len(RHO), int)))


def test_divergence_and_descent():
    loss = np.array([[1.0, 0.5, 0.4], [1.0, 1.2, 0.1], [1.0, np.nan, 0.1], [1.0, 2e4, 0.1], [1.0, np.inf, np.nan]])
    cells = Cells(*(np.ones(5),) * 3, loss)
    assert cells.diverged.tolist() == [False, False, True, True, True]
    assert cells.descended.tolist() == [True, False, False, False, False]


def test_tuned_rates_choose_among_stable_pairs_only():
    loss = np.stack([[[1.0, 0.9], [1.0, 0.5], [1.0, 1.1], [1.0, np.nan]]] * 2)
    update = np.array([[1.0, 4.0, 9.0, 25.0]] * 2)
    found = _summary(Cells(update, update, update, loss), (2, 2, 1))
    np.testing.assert_allclose(found["tuned_largest"], [2.0, np.nan])
    np.testing.assert_allclose(found["tuned_best"], [2.0, np.nan])
    np.testing.assert_allclose(found["tuned_largest_weak"], [2.0, np.nan])
    assert found["tuned_stable"].ravel().tolist() == [True, True, False, False]


def planted_tuned(power=-1.0, dim_power=0.0):
    """Largest stable A = 4 up to a tuned critical rho that may depend on D, and a power of rho beyond, at shapes with wide lazy branches."""
    shapes = [(64, 8, 8), (16, 64, 8), (128, 16, 8), (256, 8, 8), (16, 256, 8), (16, 64, 32), (128, 8, 32), (64, 64, 32), (256, 16, 32), (64, 64, 128)]
    rho = 2.0 ** np.arange(-1, 4.6, 0.5)
    ends = [1.7 * (s[2] / 32) ** dim_power for s in shapes]
    largest = np.stack([4 * np.minimum(1.0, (rho / end) ** power) for end in ends])
    named = {f"tuned_{k}": ("tuned_shape", np.array(x)) for k, x in zip(Shape._fields, zip(*shapes, strict=True), strict=True)}
    return xr.Dataset(
        named
        | {
            "tuned_largest": (("tuned_shape", "tuned_rho"), largest),
            "tuned_local_update": (("tuned_shape", "tuned_rho", "rate_u", "rate_v"), np.tile(0.4 * largest[..., None, None], (1, 1, 9, 1))),
        },
        coords={"tuned_rho": rho, "rate_u": 2.0 ** (np.arange(9) / 8), "rate_v": [1.0]},
    )


def test_tuned_claims_on_planted_curves():
    found = {c.name: c for c in tuned_claims(planted_tuned())}
    assert {c.verdict for c in found.values()} == {"holds"}, found
    moved = {c.name: c for c in tuned_claims(planted_tuned(dim_power=-0.5))}  # a critical scale without D
    assert moved["tuned.critical.exponent_dim"].verdict == "fails"
    assert abs(moved["tuned.critical.exponent_dim"].value) < 0.1
    steep = {c.name: c for c in tuned_claims(planted_tuned(power=-2.0))}
    assert steep["tuned.lazy_branch.exponent"].verdict == "fails"


# The diagram end to end.

SMALL = ((8, 8, 4), (16, 16, 4), (32, 8, 4), (16, 16, 8), (32, 8, 8), (8, 16, 8))


@pytest.fixture(scope="module")
def runs():
    problem = hw.problems.sine(5, dim=4, key=jax.random.key(0))
    return hw.phase_diagram(problem, shapes=SMALL, seeds=12, steps=4, reach=4.0, key=jax.random.key(1))


def test_diagram_finds_both_boundaries(runs):
    fit = hw.fit_phase(runs)
    assert np.all(np.abs(fit.data.critical_rho - 1.9) < 0.4)
    assert np.all(fit.data.blow_up_rho / np.sqrt(fit.data.depth * fit.data.width / fit.data.dim) < 3)
    for name, theory in (("critical.exponent_depth", -1.0), ("critical.exponent_width", -1.0), ("critical.exponent_dim", 0.5), ("blow_up.exponent_dim", 0.0)):
        c = fit[name]
        assert abs(c.value - theory) <= 1.5 * (c.ci95[1] - c.ci95[0]) / 2, c  # 3 standard errors: a test, not a verdict
    assert fit["critical.rejects_dim_0"].verdict == "holds"
    assert abs(fit["fan_in.fluctuation_over_mlu.exponent"].value - 0.5) < 0.05
    assert {"maximal", "lazy", "stochastic"} <= {REGIONS[i] for i in np.unique(fit.data.region) if i >= 0}
    with pytest.raises(KeyError, match=r"no claim 'x'; the claims are critical\.exponent_depth"):
        fit["x"]


def test_schemes_are_one_network_at_width_equals_dim_and_part_off_it():
    """Fan-in and CompleteP train exactly like MLU at M = D; at M = 4 D they do not."""
    problem = hw.problems.sine(4, dim=4, key=jax.random.key(0))

    def losses(scaling, width):
        net = hw.ResNet.init(hw.TwoLayer("tanh"), scaling, depth=4, width=width, dim=4, key=jax.random.key(1))
        return np.asarray(hw.train(net, problem, steps=3)[1].loss)

    for width, agree in ((4, True), (16, False)):
        for other in (hw.fan_in(), hw.complete_p(width=width, dim=4)):
            assert np.allclose(losses(other, width), losses(hw.mlu(), width), rtol=1e-5) == agree


def test_cells_do_not_depend_on_other_shapes_or_seeds(runs):
    problem = hw.problems.sine(5, dim=4, key=jax.random.key(0))
    alone = hw.phase_diagram(problem, shapes=[(16, 16, 8)], seeds=3, steps=4, reach=2.0, workers=1, key=jax.random.key(1))
    at = check_shapes(SMALL).index(Shape(16, 16, 8))
    cells = alone.sizes["rho"]
    np.testing.assert_allclose(alone.local_update2.values[0], runs.local_update2.values[at, :cells, :3], rtol=2e-3, atol=1e-6)
    assert runs.local_update2.values[at, 0, :12].std() > 0
    assert np.isnan(runs.local_update2.values[at, 0, 12:]).all()  # twice the seeds at half the D
    first = [s.dim for s in check_shapes(SMALL)].index(4)
    assert np.isfinite(runs.local_update2.values[first, 0]).all()


def test_too_few_seeds_or_no_shape_are_refused(runs):
    with pytest.raises(ValueError, match="seeds=3 is too few for an interval; expected at least 8"):
        hw.fit_phase(runs.isel(seed=slice(3)))
    nothing = runs.assign(done=("shape", np.zeros(runs.sizes["shape"], bool)))
    with pytest.raises(ValueError, match="runs hold no finished shape"):
        hw.fit_phase(nothing)


def test_ladder_holds_one_and_ends_at_the_reach():
    rhos = ladder(Shape(16, 64, 16), 2, 8.0)
    assert rhos[0] == 1 / 16
    assert 1.0 in rhos
    assert np.isclose(rhos[-1], 64.0)
    assert check_shapes([(8, 8, 4), (8, 8, 4)]) == [Shape(8, 8, 4)]


def problem4():
    return hw.problems.sine(4, dim=4, key=jax.random.key(0))


REFUSED = [
    ({"shapes": []}, r"shapes=\(\) is empty; expected at least one \(depth, width, dim\)"),
    ({"shapes": [(8, 8)]}, r"shapes=\(8, 8\) is not a shape; expected three whole numbers"),
    ({"shapes": [(8, 0, 4)]}, "shapes=0 is not possible; expected a whole number of at least 1"),
    ({"shapes": [(2, 2, 8)]}, r"shapes=\(2, 2, 8\) has LM/D below 1, where no residual scale is lazy"),
    ({"shapes": [(8, 8, 1)]}, "dim=1 is too small for these data"),
    ({"seeds": 0}, "seeds=0 is not possible"),
    ({"steps": 0}, "steps=0 is not possible"),
    ({"per_octave": 0}, "per_octave=0 is not possible"),
    ({"reach": 0.5}, "reach=0.5 ends the ladder below the blow-up scale; expected at least 1"),
    ({"reach": math.nan}, "reach=nan is not possible"),
    ({"learning_rate": -1.0}, "learning_rate=-1.0 is not possible"),
    ({"memory": 10.0}, "one network with depth=8 width=8 dim=4 needs .* GB and memory="),
    ({"dtype": "int32"}, "dtype='int32' is not possible"),
    ({"embedding": "sparse"}, "embedding='sparse' is unknown"),
    ({"workers": 0}, "workers=0 is not possible"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(change, message):
    with pytest.raises(ValueError, match=message):
        hw.phase_diagram(problem4(), **({"shapes": [(8, 8, 4)], "seeds": 8, "key": jax.random.key(0)} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shapes": [(2, 2, 8)]}, r"tuned_shapes=\(2, 2, 8\) has LM/D below 1"),
        ({"rates_u": [0.0]}, "rate_u=0.0 is not possible"),
        ({"rhos": [-1.0]}, "tuned_rho=-1.0 is not possible"),
        ({"seeds": 0}, "seeds=0 is not possible"),
    ],
)
def test_tuned_refused(change, message):
    with pytest.raises(ValueError, match=message):
        hw.tuned_rates(problem4(), **({"shapes": [(8, 8, 4)], "key": jax.random.key(0)} | change))


def test_fan_in_has_to_be_written_at_its_shape():
    with pytest.raises(ValueError, match=r"fan_in=True draws v of another size; expected one with critical v. Use scaling.at\(width, dim\)"):
        measure(problem4(), UNIT, [hw.fan_in()], shape=Shape(4, 4, 4), seeds=1, steps=1, dtype=jnp.dtype("float32"), memory=1e9, key=jax.random.key(0))


# The command.

QUICK = {"shapes": SMALL[:2], "tuned_shapes": SMALL[:1], "seeds": 8, "steps": 2, "per_octave": 1, "reach": 2.0, "quick": True, "progress": False}


def test_command_writes_a_record(tmp_path):
    outcome = phase.run(phase.PhaseConfig(**QUICK, out=tmp_path / "run"))
    assert outcome.status == 0
    assert "critical.exponent_depth" in outcome.text
    record = _record.read(tmp_path / "run", "phase")
    assert {"name", "claims", "reference", "diverged", "config", "versions", "device", "dtype", "wall_s", "goodness"} <= record.info.keys()
    assert record.info["config"]["shapes"] == [list(s) for s in SMALL[:2]]
    assert record.info["reference"]["definition"].keys() >= {"critical", "blow_up", "rule"}
    for c in record.info["claims"]:
        assert c["verdict"] in ("holds", "fails", "undetermined")
    by_name = {c["name"]: c for c in record.info["claims"]}
    assert by_name["critical.exponent_depth"]["verdict"] == "undetermined"  # two shapes
    assert record.data.local_update2.dims == ("shape", "rho", "seed")
    assert record.data.tuned_largest.dims == ("tuned_shape", "tuned_rho")
    picture = (tmp_path / "run" / "phase.png").read_bytes()
    (tmp_path / "run" / "phase.png").unlink()
    phase.draw(tmp_path / "run")  # from the json and the netCDF alone
    assert (tmp_path / "run" / "phase.png").read_bytes() == picture


def test_slim_record_draws_the_same_picture(tmp_path):
    from benchmarks import _slim

    assert phase.run(phase.PhaseConfig(**QUICK, tuned=False, out=tmp_path / "run")).status == 0
    _slim.copy_records(tmp_path / "run", tmp_path / "slim")
    assert not set(_slim.MEMBERS) & set(xr.load_dataset(tmp_path / "slim" / "phase.nc", engine="h5netcdf").data_vars)
    phase.draw(tmp_path / "slim")
    assert (tmp_path / "slim" / "phase.png").read_bytes() == (tmp_path / "run" / "phase.png").read_bytes()


def test_interrupt_keeps_what_is_finished(tmp_path, monkeypatch):
    real, calls = _phase.measure, []

    def stop_at_the_second(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(_phase, "measure", stop_at_the_second)
    outcome = phase.run(phase.PhaseConfig(**(QUICK | {"shapes": SMALL[:3]}), out=tmp_path / "run"))
    assert outcome.status == 130
    record = _record.read(tmp_path / "run", "phase")
    done = record.data.done.values
    assert 1 <= done.sum() < 3
    assert f"{done.sum()} of 3 shapes were finished and kept" in outcome.text
    assert record.info["interrupted"] is True
    assert np.isfinite(record.data.local_update2.values[done, 0, :8]).all()
    assert np.isnan(record.data.local_update2.values[~done]).all()


def test_interrupt_after_the_shapes_keeps_them(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(phase, "tuned_rates", stop)
    outcome = phase.run(phase.PhaseConfig(**QUICK, out=tmp_path / "run"))
    assert outcome.status == 130
    assert "all 2 shapes were finished and are kept" in outcome.text
    assert _record.read(tmp_path / "run", "phase").data.done.values.all()


def test_divergence_is_counted_and_fails(tmp_path):
    outcome = phase.run(phase.PhaseConfig(**(QUICK | {"steps": 6}), learning_rate=1e6, out=tmp_path / "run"))
    assert outcome.status == 1
    assert "Members diverged at every residual scale in 2 of 2 shapes, the first being depth, width, dim = (8, 8, 4)." in outcome.text
    info = json.loads((tmp_path / "run" / "phase.json").read_text())
    assert info["diverged"] > 0
    assert info["claims"] == []


COMMANDS = [
    (["--shapes", "8", "8"], "shapes"),
    (["--shapes", "8", "-2", "4"], "--shapes -2 is not possible; expected a whole number of at least 1"),
    (["--shapes", "2", "2", "64"], "--shapes (2, 2, 64) has LM/D below 1"),
    (["--tuned-shapes", "2", "2", "64"], "--tuned-shapes (2, 2, 64) has LM/D below 1"),
    (["--seeds", "4"], "--seeds 4 is too few for an interval; expected at least 8"),
    (["--learning-rate", "nan"], "--learning-rate nan is not possible"),
    (["--reach", "0.5"], "--reach 0.5 ends the ladder below the blow-up scale"),
    (["--memory", "1000"], "GB and --memory"),
    (["--problem", "digits", "--shapes", "16", "16", "3"], "dim=3 is too small for these data"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMANDS, ids=[" ".join(a) for a, _ in COMMANDS])
def test_command_line_refuses_in_one_clear_message(arguments, message, tmp_path, command_line):
    done = command_line("phase", "--out", str(tmp_path / "run"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_command_line_does_not_touch_an_existing_directory(tmp_path, command_line):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "phase.json").write_text("{}")
    done = command_line("phase", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "exists and is not empty" in done.stderr
    assert (tmp_path / "run" / "phase.json").read_text() == "{}"


def test_interrupt_from_the_keyboard(tmp_path):
    """A real SIGINT once the progress bar shows a finished shape."""
    shapes = [str(x) for depth in range(8, 40) for x in (depth, 8, 4)]
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from hiddenwidth.cli import main; main()"
    arguments = [sys.executable, "-c", script, "phase", "--out", str(tmp_path / "run"), "--quick", "--steps", "2", "--seeds", "8", "--shapes", *shapes]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = ""
        while not re.search(r" [1-9][0-9]*/32 ", seen):
            letter = process.stderr.read(1)
            assert letter, f"ended before any shape was finished: {seen}"
            seen += letter
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait(timeout=120)
    assert process.returncode == 130, rest
    assert "of 32 shapes were finished and kept in" in rest
    assert "Traceback" not in rest
