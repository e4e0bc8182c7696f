"""A grid on disk: whole or absent, recognised, shared, repaired. Cells here are plain arrays; networks come in `test_sweep.py` and `test_faults.py`."""

import itertools
import os
import shutil
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import hiddenwidth as hw
from benchmarks.engine._sweeper import full_after
from hiddenwidth._durable import Claims, uninterrupted, write_file
from hiddenwidth._grid import Field, Layout, Memory, on_threads, run_grid
from hiddenwidth._store import Store, StoreError
from hiddenwidth._store_description import SCHEMA

LAYOUT = Layout(
    {"depth": [2, 4], "width": [1, 3]},
    {"x": Field(("seed", "dim"), (2, 3), np.dtype(np.float32), np.nan), "n": Field(("seed",), (2,), np.dtype(np.int32), -1)},
    {"seed": [0, 1]},
)
CONFIG = {"depths": [2, 4], "steps": 3}


def compute(at):
    rng = np.random.default_rng([at["depth"], at["width"]])
    return {"x": rng.standard_normal((2, at["depth"] // 2 + 1)), "n": rng.integers(0, 9, 2)}  # x is padded at depth 2


def open_store(path, layout=LAYOUT, **changes):
    return Store(path, layout, CONFIG | changes, {"problem": "none"})


def run(path, calls=None):
    def counted(at):
        if calls is not None:
            calls.append((at["depth"], at["width"]))
        return compute(at)

    store = open_store(path)
    try:
        run_grid(LAYOUT, counted, store, on_threads(2), cost=lambda at: at["depth"])
    finally:
        store.close()


@pytest.fixture(scope="module")
def undisturbed():
    memory = Memory(LAYOUT)
    run_grid(LAYOUT, compute, memory, on_threads(1), cost=lambda at: at["depth"])
    return memory.runs


def same(path, undisturbed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hw.open_sweep(path, verify=True)
    assert found.drop_attrs().identical(undisturbed)


def test_store_holds_what_memory_holds_and_is_not_computed_twice(tmp_path, undisturbed):
    calls = []
    run(tmp_path / "s", calls)
    same(tmp_path / "s", undisturbed)
    assert np.isnan(undisturbed.x.sel(depth=2, dim=2)).all()
    assert calls[0][0] == 4  # largest first
    run(tmp_path / "s", calls)
    assert len(calls) == 4


def test_reading_is_lazy_and_sees_a_growing_store(tmp_path):
    store = open_store(tmp_path / "s")
    assert store.claim((1, 0))
    store.put((1, 0), compute({"depth": 4, "width": 1}))
    found = hw.open_sweep(tmp_path / "s")
    assert found.done.values.tolist() == [[False, False], [True, False]]
    assert not found.variables["x"]._in_memory
    assert np.isnan(found.x.values[0]).all()
    assert np.isfinite(found.x.values[1, 0]).all()
    assert (found.n.values[1, 1] == -1).all()
    assert found.attrs["problem"] == "none"


def files_of(path, cell=(1, 1)):
    chunk = ".".join(map(str, cell))
    return [path / "done" / "-".join(map(str, cell)), *sorted(path.glob(f"runs.zarr/*/c.{chunk}.*"))]


def test_flipped_bit_in_any_byte_and_cuts_are_noticed_and_repaired(tmp_path, undisturbed):
    path, rng = tmp_path / "s", np.random.default_rng(0)
    run(path)
    assert len(files_of(path)) == 3
    for file in files_of(path):
        whole = file.read_bytes()
        flips = (whole[:i] + bytes([b ^ (1 << rng.integers(8))]) + whole[i + 1 :] for i, b in enumerate(whole))
        for damaged in itertools.chain(flips, (whole[:n] for n in range(0, len(whole), 5))):
            file.write_bytes(damaged)
            with pytest.warns(UserWarning, match="cell depth=4 width=3 is damaged; run the same sweep again"):
                assert hw.open_sweep(path, verify=True).done.values.tolist() == [[True, True], [True, False]]
        calls = []
        with pytest.warns(UserWarning, match=r"store=.*: cell depth=4 width=3 is damaged and is computed again"):
            run(path, calls)
        assert calls == [(4, 3)]
        same(path, undisturbed)


def test_lost_chunk_is_noticed_without_verification_and_a_flipped_bit_when_it_is_read(tmp_path, undisturbed):
    path = tmp_path / "s"
    run(path)
    chunk = files_of(path)[2]
    content = bytearray(chunk.read_bytes())
    content[3] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        hw.open_sweep(path)["x"].values  # noqa: B018
    chunk.unlink()
    with pytest.warns(UserWarning, match="is damaged"):
        assert not hw.open_sweep(path).done.values[1, 1]
    with pytest.warns(UserWarning, match="computed again"):
        run(path)
    same(path, undisturbed)


def test_lost_chunk_that_holds_nothing_but_fill_is_noticed_and_repaired(tmp_path):
    """zarr reads a chunk that is not there as fill: only its absence tells."""

    def unfinished(at):
        return {"x": np.full((2, 2), np.nan), "n": [-1, -1]}

    path = tmp_path / "s"
    for lost in (None, *range(2)):
        if lost is not None:
            files_of(path)[1 + lost].unlink()
            for verify in (False, True):
                with pytest.warns(UserWarning, match="depth=4 width=3 is damaged"):
                    assert not hw.open_sweep(path, verify=verify).done.values[1, 1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = open_store(path)
        run_grid(LAYOUT, unfinished, store, on_threads(1), cost=lambda at: 1)
        store.close()
        assert hw.open_sweep(path, verify=True).done.all()


def test_cell_of_another_place_or_configuration_is_not_accepted(tmp_path):
    run(tmp_path / "s")
    other = open_store(tmp_path / "other", steps=9)
    assert other.claim((1, 1))
    other.put((1, 1), compute({"depth": 4, "width": 3}))
    for source, cell in ((tmp_path / "s", (1, 0)), (tmp_path / "other", (1, 1))):
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        for theirs, ours in zip(files_of(source, cell), files_of(tmp_path / "copy"), strict=True):
            shutil.copy(theirs, ours)
        with pytest.warns(UserWarning, match="depth=4 width=3 is damaged"):
            assert not hw.open_sweep(tmp_path / "copy", verify=True).done.values[1, 1]
        shutil.rmtree(tmp_path / "copy")


def test_changed_configuration_is_refused(tmp_path):
    run(tmp_path / "s")
    with pytest.raises(
        ValueError, match=r"holds a sweep of another configuration; expected the same one.*: steps is 3 there and 4 here. Ask for what is there, or choose"
    ):
        open_store(tmp_path / "s", steps=4)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"a": 1', None])
def test_damaged_description_is_written_anew(tmp_path, undisturbed, damage):
    path = tmp_path / "s"
    run(path)
    for name in ("config.json", "runs.zarr/zarr.json", "runs.zarr/x/zarr.json", "runs.zarr/depth/c/0"):
        file = path / name
        file.unlink() if damage is None else file.write_bytes(damage)
        with pytest.raises(ValueError, match=f"{name}, part of its description, is damaged. Run the same sweep again"):
            hw.open_sweep(path)
        with pytest.warns(UserWarning, match="is damaged; the description is written anew"):
            run(path, calls := [])
        assert not calls
        same(path, undisturbed)


def test_description_lost_twice_is_refused(tmp_path):
    run(tmp_path / "s")
    for name in ("config.json", "runs.zarr/zarr.json"):
        (tmp_path / "s" / name).write_text("{}")
    with pytest.raises(ValueError, match=r"is damaged: neither config.json nor runs.zarr/zarr.json can be read. Restore one of them"):
        run(tmp_path / "s")
    with pytest.raises(ValueError, match="holds no sweep that can be read"):
        hw.open_sweep(tmp_path / "s")


def test_disk_that_fills_at_any_byte_keeps_the_finished_cells(tmp_path, undisturbed, monkeypatch):
    run(tmp_path / "whole")
    needed = sum(f.stat().st_size for f in [*tmp_path.glob("whole/runs.zarr/*/c.*"), *tmp_path.glob("whole/done/*")])
    for room in range(0, needed, 83):
        path = tmp_path / f"s{room}"
        open_store(path).close()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full_after(room))
            with pytest.raises(
                StoreError, match=r"the disk is full, and cell .* was not kept. [0-3] of 4 cells are finished and kept; make room and run the same"
            ):
                run(path)
        kept = int(hw.open_sweep(path, verify=True).done.sum())
        assert not list(path.rglob("*.partial"))
        run(path, calls := [])
        assert len(calls) == 4 - kept
        same(path, undisturbed)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the names of open files")
def test_digest_is_written_after_everything_else_is_on_the_disk(tmp_path, monkeypatch):
    """What a power cut may leave follows from the order of flushes and renames alone."""
    store, events = open_store(tmp_path / "s"), []
    replace, fsync = os.replace, os.fsync

    def noted_fsync(handle):
        events.append(("flush", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def noted_replace(source, target):
        events.append(("rename", str(target)))
        replace(source, target)

    assert store.claim((0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noted_fsync)
        patch.setattr(os, "replace", noted_replace)
        store.put((0, 0), compute({"depth": 2, "width": 1}))
    mark, *chunks = (str(f) for f in files_of(tmp_path / "s", (0, 0)))
    digest = events.index(("rename", mark))
    for chunk in chunks:
        named = events.index(("rename", chunk))
        assert ("flush", f"{chunk}.partial") in events[:named]
        assert ("flush", str(Path(chunk).parent)) in events[named:digest]
    assert events[digest - 1] == ("flush", f"{mark}.partial")
    assert events[digest + 1 :] == [("flush", str(Path(mark).parent))]


def test_claims_keep_two_apart_and_end_with_their_holder(tmp_path, undisturbed):
    first, second = open_store(tmp_path / "s"), open_store(tmp_path / "s")
    assert first.claim((0, 0))
    assert not second.claim((0, 0))
    assert second.claim((0, 1))
    first.put((0, 0), compute({"depth": 2, "width": 1}))
    assert not second.claim((0, 0))  # finished by the other
    assert (0, 0) not in second.missing()
    assert first.claim((1, 1))
    thread = threading.Thread(target=run, args=(tmp_path / "s",))  # waits for what the two hold
    thread.start()
    second.close()
    first.close()
    thread.join(timeout=60)
    same(tmp_path / "s", undisturbed)


def test_two_that_create_one_store_at_once_share_it(tmp_path, undisturbed):
    errors = []

    def guarded():
        try:
            run(tmp_path / "s")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=60)
    assert not errors
    same(tmp_path / "s", undisturbed)
    assert os.listdir(tmp_path) == ["s"]


def test_written_file_is_old_or_new(tmp_path, monkeypatch):
    file = tmp_path / "f"
    write_file(file, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_after(2))
        with pytest.raises(OSError, match="No space left"):
            write_file(file, b"new content")
    assert file.read_bytes() == b"old"
    write_file(file, memoryview(np.arange(3.0)))
    assert np.frombuffer(file.read_bytes()).tolist() == [0, 1, 2]
    assert os.listdir(tmp_path) == ["f"]


def test_claim_of_this_process_is_given_up_by_name(tmp_path):
    claims, others = Claims(tmp_path), Claims(tmp_path)
    assert claims.take("a")
    assert not others.take("a")
    claims.release("a")
    assert others.take("a")


def test_interrupt_waits_for_the_end_of_a_write():
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    finished = []

    def write():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            finished.append(1)

    try:
        with pytest.raises(KeyboardInterrupt):
            write()
        assert finished
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_folders_that_are_no_store_are_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ValueError, match=r"exists and is not the store of a sweep; nothing in it is touched. Choose another folder"):
        open_store(tmp_path / "mine")
    with pytest.raises(ValueError, match=r"cannot be made: (Not a directory|File exists). Choose another folder"):
        open_store(tmp_path / "mine" / "notes.txt" / "s")
    with pytest.raises(ValueError, match="holds no sweep that can be read; expected the folder that was given as store="):
        hw.open_sweep(tmp_path / "mine")
    run(tmp_path / "s")
    config = tmp_path / "s" / "config.json"
    config.write_text(config.read_text().replace(f'"schema": {SCHEMA}', '"schema": 7'))
    with pytest.raises(ValueError, match=rf"has schema 7; expected {SCHEMA}. Read it with the version of hiddenwidth that wrote it"):
        hw.open_sweep(tmp_path / "s")


def test_other_versions_are_mentioned(tmp_path):
    Store(Path(tmp_path / "s"), LAYOUT, CONFIG, {"versions": "jax 1"}).close()
    with pytest.warns(UserWarning, match="was begun with other versions, jax 1; its cells agree with new ones to rounding only"):
        Store(Path(tmp_path / "s"), LAYOUT, CONFIG, {"versions": "jax 2"}).close()
