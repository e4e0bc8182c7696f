"""Faults done to running sweeps: what is finished stays, what is wrong is not accepted, and in the end the dataset is that of an undisturbed run.

`benchmarks/engine/faults.py` runs the same at full size.
"""

import dataclasses
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import hiddenwidth as hw
from benchmarks.engine import _campaign, _sweeper, faults
from hiddenwidth import _cluster
from hiddenwidth._commands import sweep
from hiddenwidth._commands._sweep_config import SweepConfig
from hiddenwidth._grid import Field, Layout, Memory, run_grid


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return _sweeper.sweep(tmp_path_factory.mktemp("reference") / "store").load()


def test_kills_lose_nothing(tmp_path, reference):
    """Two kills, and a third of one of two processes on the store: the other takes over what it had claimed."""
    kills, differ = _campaign.kill_campaign(tmp_path, reference, kills=3, seed=1, pair=True)
    assert len(kills) == 3
    assert sum(k.lost + k.wrong for k in kills) == 0
    assert max(k.redone for k in kills) <= _sweeper.WORKERS
    assert differ == 0


def test_damaged_files_are_noticed(tmp_path, reference):
    _sweeper.sweep(tmp_path / "store")
    assert _campaign.damage_campaign(tmp_path / "store", random.Random(2), damages=4) == (0, 0)


LAYOUT = Layout({"i": list(range(8))}, {"x": Field(("n",), (2,), np.dtype(np.float64), np.nan)}, {})


def square(at):
    time.sleep(0.05)
    return {"x": np.array([at["i"], at["i"] ** 2.0])}


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


class Killing(Memory):
    """Kills a worker once three cells are there."""

    def __init__(self, layout, pid):
        super().__init__(layout)
        self.pid = pid

    def put(self, cell, arrays):
        super().put(cell, arrays)
        if self.runs.done.sum() == 3:
            os.kill(self.pid, signal.SIGKILL)


def test_cells_of_a_lost_worker_are_computed_by_another(client):
    before = set(client.run(os.getpid).values())
    sink = Killing(LAYOUT, min(before))
    run_grid(LAYOUT, square, sink, _cluster.on_cluster(client, retries=2), cost=lambda at: at["i"])
    assert sink.runs.done.all()
    np.testing.assert_array_equal(sink.runs.x.values, [[i, i**2] for i in range(8)])
    assert min(before) not in client.run(os.getpid).values()


def test_error_in_a_worker_keeps_the_finished_cells(client):
    def fails_at_five(at):
        if at["i"] == 5:
            raise ArithmeticError("five")
        return square(at)

    sink = Memory(LAYOUT)
    with pytest.raises(ArithmeticError, match="five"):
        run_grid(LAYOUT, fails_at_five, sink, _cluster.on_cluster(client, retries=1), cost=lambda at: at["i"])
    assert sink.runs.done.values[[6, 7]].all()
    assert not sink.runs.done.values[5]


def test_worker_that_lacks_a_module_is_explained(client):
    def missing(at):
        raise ModuleNotFoundError("No module named 'mine'")

    with pytest.raises(ValueError, match=r"workers on which an import fails \(No module named 'mine'\); install the same hiddenwidth, and the unit's own"):
        run_grid(LAYOUT, missing, Memory(LAYOUT), _cluster.on_cluster(client, retries=0), cost=lambda at: 1)


class Interrupting(Memory):
    """Ctrl-C while the third cell is kept."""

    def put(self, cell, arrays):
        super().put(cell, arrays)
        if self.runs.done.sum() == 3:
            raise KeyboardInterrupt


def test_interrupt_on_a_cluster_keeps_what_is_finished_and_frees_the_workers(client):
    sink = Interrupting(LAYOUT)
    with pytest.raises(KeyboardInterrupt):
        run_grid(LAYOUT, square, sink, _cluster.on_cluster(client, retries=1), cost=lambda at: at["i"])
    assert 3 <= sink.runs.done.sum() < 8
    run_grid(LAYOUT, square, sink, _cluster.on_cluster(client, retries=1), cost=lambda at: at["i"])
    assert sink.runs.done.all()


def test_what_cannot_be_sent_or_reached_is_explained(monkeypatch):
    with pytest.raises(ValueError, match=r"cannot be sent to workers .*; expected objects that can be pickled. Define the unit's functions in a module"):
        _cluster.check_sendable(threading.Lock())
    monkeypatch.setattr(_cluster, "PATIENCE", 0.2)
    with pytest.raises(ValueError, match=r"cluster='tcp://127.0.0.1:9' does not answer .*; expected the address that `dask scheduler` prints"):
        _cluster.connect("tcp://127.0.0.1:9")


@pytest.mark.slow
def test_command_over_a_cluster(client, tmp_path):
    config = SweepConfig(depths=(2, 3), widths=(2,), alphas=(1.0, 2.0), seeds=3, steps=2, progress=False, cluster=client.scheduler.address, out=tmp_path / "s")
    assert sweep.run(config).status == 0
    over_cluster = hw.open_sweep(tmp_path / "s", verify=True).load()
    assert sweep.run(dataclasses.replace(config, cluster=None, calibrate=False, out=tmp_path / "t")).status == 0
    here = hw.open_sweep(tmp_path / "t")
    assert over_cluster.done.all()
    np.testing.assert_allclose(over_cluster.loss, here.loss, rtol=3e-6)


@pytest.mark.slow
def test_campaign_at_full_size(tmp_path):
    claims = faults.run(tmp_path)
    assert {c.name: c.verdict for c in claims if c.verdict != "holds"} == {}
    assert len(claims) == 11
