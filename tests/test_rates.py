"""From runs to claims: the pipeline end to end at small size, its record, its picture."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import hiddenwidth as hw
from hiddenwidth import _record
from hiddenwidth._claims import claim, table
from hiddenwidth._commands import rates
from hiddenwidth._law_fit import Grid
from hiddenwidth._rates import _split_claim

UNIT, SCALING = hw.TwoLayer("tanh"), hw.mlu()


@pytest.fixture(scope="module")
def measured():
    problem = hw.problems.sine(5, dim=8, key=jax.random.key(0))
    limit = hw.mean_ode(problem, UNIT, SCALING, steps=4, quadrature=hw.Sobol(11, 4), budget=False)
    runs = hw.sweep(problem, UNIT, SCALING, depths=[8, 16, 32, 64], widths=[1, 2, 4], seeds=200, steps=4, key=jax.random.key(1))
    depth = hw.depth_error(problem, UNIT, SCALING, depths=(8, 16, 32, 64), steps=4, quadrature=hw.Sobol(8, 4))
    return problem, limit, runs, depth


def test_error_law_end_to_end(measured):
    _, limit, runs, depth = measured
    fit = hw.fit_rates(runs, limit, depth)
    for name in ("hidden.fluctuation.exponent_width", "hidden.fluctuation.exponent_depth", "hidden.depth.exponent"):
        c = fit[name]
        assert abs(c.value - c.theory) <= 1.5 * (c.ci95[1] - c.ci95[0]) / 2, c  # 3 standard errors: a test, not a verdict
        assert c.ci95[1] - c.ci95[0] < 0.25
    assert {c.name for c in fit.claims} >= {
        f"{o}.{t}"
        for o in ("hidden", "output")
        for t in (
            "depth.constant", "depth.exponent", "fluctuation.constant", "fluctuation.exponent_depth", "fluctuation.exponent_width",
            "bias.constant", "bias.exponent",
        )
    }  # fmt: skip
    # the law predicts the whole error, terms measured apart and added up
    data = fit.data.sel(observable="hidden")
    assert np.all(np.abs(data.error2 / data.fitted_error2 - 1) < 5 * data.error2_se / data.error2)
    assert fit.data.sel(observable="hidden").fitted_error2.notnull().all()


def test_one_unit_a_block_works(measured):
    problem, *_ = measured
    runs = hw.sweep(problem, UNIT, SCALING, depths=[16, 64], widths=[1], seeds=8, steps=4, key=jax.random.key(2))
    assert bool((runs.diverged_at == -1).all())
    assert runs.hidden.shape == (2, 1, 8, 1, 5, 8)


def test_cells_are_independent_of_the_grid(measured):
    problem, _, runs, _ = measured
    alone = hw.sweep(problem, UNIT, SCALING, depths=[16], widths=[2], seeds=5, steps=4, workers=1, key=jax.random.key(1))
    np.testing.assert_allclose(alone.output.values[0, 0], runs.output.sel(depth=16, width=2).values[:5], atol=1e-5)
    gap = runs.output.sel(depth=8, width=2).values[:, -1] - runs.output.sel(depth=16, width=1).values[:, -1]
    assert np.abs(gap[:, 0]).min() > 1e-5  # same LM, same seed number, different networks


def test_cells_with_fewer_seeds_weigh_less(measured):
    """Rows beyond a cell's own seeds are no members, and its standard error is that of the members it has."""
    _, limit, runs, depth = measured
    fewer, few = runs.copy(deep=True), 50
    at = {"width": 4, "seed": slice(few, None)}
    for name in ("hidden", "output", "loss"):
        fewer[name].loc[at] = np.nan
    fewer["seeds"].loc[{"width": 4}] = few
    whole, fit = (hw.fit_rates(r, limit, depth).data.sel(observable="hidden") for r in (runs, fewer))
    members = runs.hidden.sel(recorded=4, width=4).values[:, :few].astype(float)
    np.testing.assert_allclose(fit.variance.sel(width=4), members.var(1, ddof=1).mean((-1, -2)), rtol=1e-6)
    np.testing.assert_allclose(fit.variance.sel(width=[1, 2]), whole.variance.sel(width=[1, 2]), rtol=1e-12)
    ratio = float((fit.variance_se / whole.variance_se).sel(width=4).mean())
    assert 1.5 < ratio < 2.6  # sqrt(200/50), itself uncertain


def test_cell_with_a_diverged_member_is_left_out(measured):
    _, limit, runs, depth = measured
    hurt = runs.copy(deep=True)
    hurt["diverged_at"].loc[{"depth": 16, "width": 2, "seed": 3}] = 2
    hurt["hidden"].loc[{"depth": 16, "width": 2, "seed": 3}] = np.nan
    fit = hw.fit_rates(hurt, limit, depth)
    data = fit.data.sel(observable="hidden", depth=16, width=2)
    assert np.isnan(data.variance)
    assert int(data.diverged) == 1
    assert not bool(data.in_fluctuation_fit)
    assert math.isfinite(fit["hidden.fluctuation.constant"].value)


def test_bias_below_its_floor_is_marked(measured):
    _, limit, runs, depth = measured
    data = hw.fit_rates(runs, limit, depth).data
    below = data.below_floor.sel(observable="hidden")
    assert bool(below.any())  # the large cells: 200 seeds cannot see c/(LM) there
    assert not bool(below.all())
    assert np.all(np.isfinite(data.bias2))  # marked, not removed
    fitted = data.fitted_bias2.sel(observable="hidden")
    assert float(fitted.where(below).max()) < float(fitted.where(~below).max())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r, p, d: (r.isel(seed=slice(5)), p, d), r"seeds=5 is too few for an interval; expected at least 8"),
        (lambda r, p, d: (r.isel(dim=slice(4)), p, d), r"limit has dim=8 and runs have dim=4; expected the same problem"),
        (lambda r, p, d: (r.assign_attrs(unit="TwoLayer('relu')"), p, d), r"limit was computed for unit TwoLayer\(\) and runs for TwoLayer\('relu'\)"),
        (
            lambda r, p, d: (r, p, dataclasses.replace(d, depths=(1, 2, 3, 4))),
            r"depth covers depths \(1, 2, 3, 4\) at step 4; expected all of \(8, 16, 32, 64\)",
        ),
        (lambda r, p, d: (r.assign_attrs(problem_digest="0"), p, d), "runs and limit were computed for different problems"),
        (lambda r, p, d: (r, p, dataclasses.replace(d, problem_digest="0")), "depth was computed for another problem than limit"),
        (
            lambda r, p, d: (r, dataclasses.replace(p, hidden_nodes=p.hidden_nodes[:1], adjoint_nodes=p.adjoint_nodes[:1]), d),
            "replicates=1 in limit or depth leaves the error",
        ),
        (lambda r, p, d: (r.assign_coords(recorded=[9]), p, d), r"limit has steps=4 and runs end at step 9; integrate mean_ode with steps=9"),
    ],
)
def test_mismatched_inputs_are_refused(measured, change, message):
    _, limit, runs, depth = measured
    with pytest.raises(ValueError, match=message):
        hw.fit_rates(*change(runs, limit, depth))


def test_split_claim_can_fail():
    """Fan-in networks fluctuate like 1/sqrt(L): splits of the same LM differ, and the claim says so."""
    depth, width = (x.ravel().astype(float) for x in np.meshgrid([8, 16, 32], [2, 4, 8], indexing="ij"))
    rng, every = np.random.default_rng(0), np.ones(9, bool)
    for values, verdict in ((1 / depth, "fails"), (1 / (depth * width), "holds")):
        draws = values * np.exp(rng.normal(0, 0.01, (200, 9)))
        (found,) = _split_claim("hidden", Grid(depth, width, 4.0), values, draws, every)
        assert found.verdict == verdict


def test_verdicts():
    assert claim("x", -0.5, 0.01, 0.02, source="", theory=-0.5, max_width=0.06).verdict == "holds"
    assert claim("x", -0.6, 0.01, 0.02, source="", theory=-0.5, max_width=0.06).verdict == "fails"
    wide = claim("x", -0.5, 0.1, 0.2, source="", theory=-0.5, max_width=0.06)
    assert (wide.verdict, wide.why) == ("undetermined", "interval width 0.4 above 0.06: more seeds or a wider grid")
    assert claim("x", float("nan"), 0.1, 0.2, source="", theory=-0.5).verdict == "undetermined"
    assert claim("x", 2.0, 0.1, 0.2, source="").verdict == "holds"
    assert claim("x", 2.0, 1.0, 2.0, source="").verdict == "undetermined"
    doubtful = claim("x", -0.5, 0.01, 0.02, source="", theory=-0.5, doubt="chi-square rejects the law")
    assert (doubtful.verdict, doubtful.why) == ("undetermined", "chi-square rejects the law")
    text = table([claim("x", -0.5, 0.01, 0.02, source="", theory=-0.5, max_width=0.06)])
    assert "[-0.520, -0.480]" in text
    assert "holds" in text


SMALL = {"depths": (8, 16), "widths": (1, 2, 4), "seeds": 12, "steps": 2, "dim": 4, "quick": True, "progress": False}


def test_command_writes_a_record(tmp_path):
    outcome = rates.run(rates.RatesConfig(**SMALL, out=tmp_path / "run"))
    assert outcome.status == 0
    assert "hidden.depth.exponent" in outcome.text
    record = _record.read(tmp_path / "run", "rates")
    assert {"name", "claims", "reference", "diverged", "config", "versions", "device", "dtype", "wall_s"} <= record.info.keys()
    assert record.info["reference"]["budget"].keys() == {"nodes", "tolerance", "quadrature", "integrator"}
    assert record.info["config"]["depths"] == [8, 16]
    for c in record.info["claims"]:
        assert {"name", "value", "se", "ci95", "theory", "verdict", "source"} <= c.keys()
        assert c["verdict"] in ("holds", "fails", "undetermined")
    assert record.data.hidden.dtype == np.float32
    assert record.data.limit_hidden.dtype == np.float64
    picture = (tmp_path / "run" / "rates.png").read_bytes()
    (tmp_path / "run" / "rates.png").unlink()
    rates.draw(tmp_path / "run")  # from the json and the netCDF alone
    assert (tmp_path / "run" / "rates.png").read_bytes() == picture


def test_existing_directory_is_not_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match=r"exists and is not empty; nothing is overwritten unasked. Choose another directory or pass --overwrite"):
        rates.run(rates.RatesConfig(**SMALL, out=tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; expected a directory"):
        rates.run(rates.RatesConfig(**SMALL, out=tmp_path / "file"))
    assert rates.run(rates.RatesConfig(**SMALL, out=tmp_path, overwrite=True)).status == 0
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_all_members_diverge(tmp_path):
    """At the shapes of the command line's own test, so that both compile once."""
    few = SMALL | {"depths": (8,), "widths": (1, 2), "seeds": 8, "steps": 12}
    outcome = rates.run(rates.RatesConfig(**few, activation="linear", learning_rate=60.0, out=tmp_path / "run"))
    assert outcome.status == 1
    assert "Every member diverged in 2 of 2 cells, the first being depth=8 width=1" in outcome.text
    info = json.loads((tmp_path / "run" / "rates.json").read_text())
    assert info["diverged"] == 2 * 8
    assert info["claims"] == []


def test_interrupt_keeps_what_is_finished(tmp_path, monkeypatch):
    from hiddenwidth import _sweep

    real, calls = _sweep.ensemble, []

    def stop_at_the_fourth(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(_sweep, "ensemble", stop_at_the_fourth)
    outcome = rates.run(rates.RatesConfig(**SMALL, out=tmp_path / "run"))
    assert outcome.status == 130
    record = _record.read(tmp_path / "run", "rates")
    done = record.data.done.values
    assert 1 <= done.sum() < 6
    assert f"{done.sum()} of 6 cells were finished and kept" in outcome.text
    assert record.info["interrupted"] is True
    assert np.isfinite(record.data.output.values[done]).all()
    assert np.isnan(record.data.output.values[~done]).all()


@pytest.mark.parametrize("failing", ["to_netcdf", "write_text"])
def test_record_is_whole_or_absent(tmp_path, monkeypatch, failing):
    """A disk that fills while the first or the second file is written leaves the old record as it was, and no debris."""
    data = xr.Dataset({"x": ("i", np.arange(3.0))})
    common = {"reference": {}, "diverged": 0, "config": {"out": Path("x")}, "dtype": "float32", "wall_s": 1.0}
    _record.write(tmp_path, "rates", data, [], **common)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset if failing == "to_netcdf" else Path, failing, fail)
    with pytest.raises(ValueError, match="cannot be written to: No space left on device"):
        _record.write(tmp_path, "rates", data, [], **common)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert set(before) == {"rates.json", "rates.nc"}


def test_picture_of_an_earlier_run_does_not_stay(tmp_path):
    (tmp_path / "rates.png").write_bytes(b"old")
    _record.write(tmp_path, "rates", xr.Dataset(), [], reference={}, diverged=0, config={}, dtype="float32", wall_s=1.0)
    assert not (tmp_path / "rates.png").exists()


def test_record_has_no_nan(tmp_path):
    unresolved = claim("x", float("nan"), float("nan"), float("inf"), source="")
    _record.write(
        tmp_path, "r", xr.Dataset(), [unresolved], reference={"a": np.float64("nan")}, diverged=0, config={}, dtype="float32", wall_s=1.0,
        flag=np.bool_(True),
    )  # fmt: skip
    text = (tmp_path / "r.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["claims"][0]["ci95"] == [None, None]


def test_sweep_precision_is_asked_for(measured):
    problem, *_ = measured
    runs = hw.sweep(problem, UNIT, SCALING, depths=[4], widths=[1], seeds=2, steps=1, dtype=jnp.float64, key=jax.random.key(0))
    assert runs.hidden.dtype == np.float64
    assert runs.attrs["dtype"] == "float64"
