"""Sweeps over depth, width, embedding dimension and alpha: what a cell depends on, what it costs, and the command."""

import errno
import math
import re

import jax
import numpy as np
import pytest

import hiddenwidth as hw
from hiddenwidth import _cluster, _store, _sweep, cli
from hiddenwidth._commands import sweep as command
from hiddenwidth._commands._sweep_config import SweepConfig
from hiddenwidth._fingerprint import fingerprint
from hiddenwidth._sweep_cells import EMBEDDING_KEY, Cells

KEY = jax.random.key(3)
PROBLEM = hw.problems.sine(4, dim=4, key=jax.random.key(0))
UNIT, SCALING = hw.TwoLayer("tanh"), hw.mlu(0.5, learning_rate_v=0.25)


def sweep(**changes):
    grid = {"depths": [2], "widths": [3], "seeds": 3, "steps": 2, "key": KEY}
    return hw.sweep(PROBLEM, UNIT, SCALING, **(grid | changes))


@pytest.fixture(scope="module")
def full():
    return sweep(depths=[2, 3], dims=[6, 3], alphas=[2.0, 0.5])


def test_cell_depends_on_its_own_coordinates_alone(full):
    assert full.loss.dims == ("depth", "width", "embedding_dim", "alpha", "seed", "step")
    assert full.embedding_dim.values.tolist() == [3, 6]
    assert full.alpha.values.tolist() == [0.5, 2.0]
    one = sweep(dims=[6], alphas=[2.0], seeds=2)
    at = {"depth": 2, "width": 3, "embedding_dim": 6, "alpha": 2.0}
    for name in ("hidden", "output", "loss"):
        np.testing.assert_allclose(one[name].sel(at), full[name].sel(at).isel(seed=slice(2)), rtol=3e-6, atol=1e-6)


def test_cell_is_the_ensemble_with_its_problem_and_scaling(full):
    fold = jax.random.fold_in
    problem = PROBLEM.with_dim(6, key=fold(fold(KEY, EMBEDDING_KEY), 6))
    scaling = hw.lazy(2.0, learning_rate_u=0.5, learning_rate_v=0.25)
    own = fold(fold(fold(fold(KEY, 3), 3), 6), int(np.float32(2.0).view(np.uint32)))
    members = hw.ensemble(problem, UNIT, scaling, depth=3, width=3, seeds=3, steps=2, key=own)
    cell = full.sel(depth=3, width=3, embedding_dim=6, alpha=2.0)
    np.testing.assert_allclose(cell.hidden, members.hidden, rtol=3e-6, atol=1e-6)
    np.testing.assert_allclose(cell.loss, members.loss, rtol=3e-6)


def test_hidden_states_are_padded_with_nan(full):
    small, large = (full.hidden.sel(embedding_dim=d) for d in (3, 6))
    assert full.sizes["dim"] == 6
    assert np.isfinite(large).all()
    assert np.isfinite(small.isel(dim=slice(3))).all()
    assert np.isnan(small.isel(dim=slice(3, None))).all()


def test_every_width_may_have_a_number_of_seeds_of_its_own(tmp_path, full):
    """The members are those of the larger sweep; beyond them the arrays are empty, also from a store."""
    stored = sweep(depths=[2, 3], dims=[6, 3], alphas=[2.0, 0.5], widths=[2, 3], seeds={2: 3, 3: 2}, store=tmp_path / "s")
    assert (stored.seeds.sel(width=2) == 3).all()
    assert (stored.seeds.sel(width=3) == 2).all()
    for name in ("hidden", "output", "loss"):
        assert np.isfinite(stored[name].sel(width=2, embedding_dim=6)).all()
        np.testing.assert_allclose(stored[name].sel(width=3).isel(seed=slice(2)), full[name].sel(width=3).isel(seed=slice(2)), rtol=3e-6, atol=1e-6)
        assert np.isnan(stored[name].sel(width=3).isel(seed=2)).all()


def test_store_gives_the_numbers_of_memory(tmp_path, full, monkeypatch):
    stored = sweep(depths=[2, 3], dims=[6, 3], alphas=[2.0, 0.5], store=tmp_path / "s")
    for name in ("hidden", "output", "loss", "diverged_at", "done"):
        np.testing.assert_array_equal(stored[name], full[name])
        assert stored[name].dims == full[name].dims
    assert list(stored.data_vars) == list(full.data_vars)
    assert stored.attrs.items() >= full.attrs.items()

    def never(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(_sweep, "ensemble", never)
    sweep(depths=[2, 3], dims=[6, 3], alphas=[2.0, 0.5], store=tmp_path / "s")
    with pytest.raises(
        ValueError, match=r"holds a sweep of another configuration.*scaling.learning_rate_u is 0.5 there and 1.0 here; scaling.learning_rate_v is 0.25 there"
    ):
        hw.sweep(PROBLEM, UNIT, hw.mlu(), depths=[2, 3], widths=[3], dims=[3, 6], alphas=[0.5, 2], seeds=3, steps=2, store=tmp_path / "s", key=KEY)


def test_interrupted_sweep_keeps_cells_in_the_store_and_continues(tmp_path, monkeypatch):
    real, calls = _sweep.ensemble, []

    def stop_at_the_third(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    grid = {"alphas": [1, 2, 4, 8], "store": tmp_path / "s", "workers": 1}
    monkeypatch.setattr(_sweep, "ensemble", stop_at_the_third)
    with pytest.raises(hw.Interrupted) as stop:
        sweep(**grid)
    assert 2 <= stop.value.runs.done.sum() < 4  # the fourth may have begun
    assert sweep(**grid).done.all()
    assert len(calls) == 5


def test_fingerprint_is_the_same_in_every_process_and_sees_what_matters():
    scale = 2.0
    first, second = hw.TwoLayer(lambda x: scale * x), hw.TwoLayer(lambda x: x * x)
    assert "0x" not in str(fingerprint(first))
    assert fingerprint(first) != fingerprint(second)
    assert "2.0" in str(fingerprint(first))
    assert fingerprint(hw.TwoLayer("tanh")) == fingerprint(hw.TwoLayer("tanh")) != fingerprint(hw.TwoLayer("erf"))
    assert fingerprint(hw.TwoLayer(hw.Polynomial((0.0, 1.0)))) != fingerprint(hw.TwoLayer(hw.Polynomial((0.0, 2.0))))
    assert fingerprint({"a": np.ones(3)}["a"]) != fingerprint(np.zeros(3))
    assert fingerprint(jax.nn.relu) == fingerprint(jax.nn.relu) != fingerprint(jax.nn.gelu)


def test_costs():
    cost = hw.sweep_cost(PROBLEM, UNIT, SCALING, depths=[2, 8], widths=[3], dims=[4, 8], seeds=3, steps=2, workers=2, key=KEY)
    at = {"depth": 8, "width": 3, "embedding_dim": 8}
    assert float(cost.flops.sel(at)) == 12 * 8 * 3 * 8 * 4 * 2 * 3  # 12 L M D n, steps, seeds
    assert float(cost.bytes.sel(at)) == pytest.approx(3 * 4 * 1.2 * (8 * 3 * 16 + 8 * 4 * (8 + 3)))  # seeds, float32, weights, states and activations
    assert (cost.seconds > 0).all()
    assert cost.total_s == pytest.approx(max(float(cost.seconds.sum()) / 2, float(cost.seconds.max())))
    assert not cost.done.any()


def test_cost_of_what_is_left(tmp_path):
    sweep(store=tmp_path / "s")
    cost = hw.sweep_cost(PROBLEM, UNIT, SCALING, depths=[2], widths=[3], seeds=3, steps=2, store=tmp_path / "s", key=KEY)
    assert cost.done.all()
    assert cost.total_s == 0


SMALL = {"dims": (4,), "depths": (2, 3), "widths": (2,), "seeds": 3, "steps": 2, "progress": False, "calibrate": False}


def test_command_says_what_it_did_and_continues(tmp_path, capsys):
    outcome = command.run(SweepConfig(**SMALL, out=tmp_path / "s"))
    assert outcome.status == 0
    assert re.search(r"L +M +D +loss at step 2 +95 % interval +diverged +seconds", outcome.text)
    runs = hw.open_sweep(tmp_path / "s")
    loss = runs.loss.sel(depth=3).values[0, 0, :, -1].astype(float)
    half = 4.302653 * loss.std(ddof=1) / math.sqrt(3)
    assert re.search(rf"3 +2 +4 +{loss.mean():.4g} +\[{loss.mean() - half:.4g}, {loss.mean() + half:.4g}\] +0/3", outcome.text)
    assert f"hiddenwidth.open_sweep('{tmp_path / 's'}')" in outcome.text
    again = command.run(SweepConfig(**(SMALL | {"calibrate": True}), out=tmp_path / "s"))
    assert again.text == outcome.text
    (tmp_path / "s" / "done" / "0-0-0").write_text("")
    command.run(SweepConfig(**SMALL, out=tmp_path / "s"))
    assert "hiddenwidth sweep: --out" in (said := capsys.readouterr().err)
    assert "cell depth=2 width=2 embedding_dim=4 is damaged and is computed again" in said


def test_command_repairs_a_damaged_description(tmp_path, capsys):
    first = command.run(SweepConfig(**SMALL, out=tmp_path / "s"))
    (tmp_path / "s" / "runs.zarr" / "loss" / "zarr.json").write_text("{")
    again = command.run(SweepConfig(**(SMALL | {"calibrate": True}), out=tmp_path / "s"))
    assert again == first
    assert "runs.zarr/loss/zarr.json, part of its description, is damaged; the description is written anew" in capsys.readouterr().err


def test_command_estimates_and_computes_nothing(tmp_path):
    outcome = command.run(SweepConfig(**(SMALL | {"calibrate": True}), estimate=True, out=tmp_path / "s"))
    assert outcome.status == 0
    assert re.search(r"L +M +D +Gflop +MB +seconds", outcome.text)
    assert "2 cells" in outcome.text
    assert not (tmp_path / "s").exists()


def test_command_counts_divergence(tmp_path):
    outcome = command.run(SweepConfig(**(SMALL | {"steps": 12}), activation="linear", learning_rate=60.0, out=tmp_path / "s"))
    assert outcome.status == 1
    assert "Every member diverged in 2 of 2 cells. Lower --learning-rate" in outcome.text


def test_cells_can_be_sent(full):
    import pickle

    cells = Cells.checked(
        PROBLEM, UNIT, SCALING, depths=[2], widths=[3], dims=[6], alphas=[2.0], seeds=3, steps=2, dtype=np.float32, hidden_steps=None, embedding="gaussian",
        memory=2e9, workers=None, client=None, key=KEY,
    )  # fmt: skip
    there = pickle.loads(pickle.dumps(cells))
    at = {"depth": 2, "width": 3, "embedding_dim": 6, "alpha": 2.0}
    np.testing.assert_array_equal(_sweep.train_cell(there, at)["loss"], full.loss.sel(at))


REFUSED = [
    (["--depths", "8", "-2"], "--depths -2 is not possible"),
    (["--alphas", "0"], "--alphas 0.0 is not possible; expected a finite number above 0"),
    (["--dim", "8", "--dims", "8", "16"], "--dim 8 and --dims (8, 16) were both given; expected one. Add 8 to --dims"),
    (["--seeds", "0"], "--seeds 0 is not possible"),
    (["--estimate", "--no-calibrate"], "--estimate True needs the timed runs that --no-calibrate leaves out"),
    (["--retries", "-1", "--no-calibrate"], "--retries -1 is not possible; expected a whole number of at least 0"),
    (["--widths", "100000000000"], "and --memory"),
    (["--cluster", "nowhere"], "--cluster 'nowhere' does not answer"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_command_line_refuses_in_one_clear_message(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_cluster, "PATIENCE", 0.2)
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", "--out", str(tmp_path / "run"), *arguments])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("hiddenwidth sweep: ")
    assert message in said
    assert not (tmp_path / "run").exists()


def test_command_line_refuses_another_configuration_and_other_folders(tmp_path, capsys):
    command.run(SweepConfig(**SMALL, out=tmp_path / "s"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("")
    for out, message in (("s", "sweep of another configuration; expected the same one, to continue it: "), ("mine", "exists and is not the store of a sweep")):
        with pytest.raises(SystemExit) as stop:
            cli.main(["sweep", "--out", str(tmp_path / out), "--seeds", "5"])
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"hiddenwidth sweep: --out '{tmp_path / out}'")
        assert message in said


def test_command_line_says_that_the_disk_is_full(tmp_path, capsys, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_store, "write_file", full)
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", "--out", str(tmp_path / "s"), "--depths", "2", "--widths", "2", "--dims", "4", "--steps", "2", "--seeds", "3", "--no-calibrate"])
    assert stop.value.code == 1
    assert "the disk is full, and cell depth=2 width=2 embedding_dim=4 was not kept. 0 of 1 cells are finished and kept" in capsys.readouterr().err
