"""Faults done to a sweep, each counted against an undisturbed run."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import NamedTuple, cast

import jax
import numpy as np
import xarray as xr

import hiddenwidth as hw
from benchmarks.engine import _sweeper

#: What must be the same; wall times are not.
VARIABLES = ("hidden", "output", "loss", "diverged_at")
ROOT = Path(__file__).parent.parent.parent
#: Seconds after which a process is given up.
PATIENCE = 240


class Kill(NamedTuple):
    """One kill: seconds after the sweep began, cells in the store before and after, cells begun that are not there and so must be computed again, cells once
    kept and now lost, cells there but wrong, cells half written."""

    delay: float
    before: int
    after: int
    redone: int
    lost: int
    wrong: int
    torn: int


def command(store: Path, log: Path, *options: str) -> list[str]:
    """How a sweep is started."""
    return [sys.executable, "-m", "benchmarks.engine._sweeper", str(store), "--log", str(log), *options]


def environment() -> dict[str, str]:
    """This process's environment, with its compilation cache if it has one: restarts are then quick."""
    cache = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    extra = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}
    return dict(os.environ) | (extra if cache else {})


def start(store: Path, log: Path, *options: str) -> "subprocess.Popen[str]":
    """Start a sweep and wait until it begins."""
    process = subprocess.Popen(
        command(store, log, *options), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("the sweep did not begin")
    return process


def finish(store: Path, log: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a sweep to its end."""
    return subprocess.run(command(store, log, *options), cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE)


def opened(store: Path) -> tuple[xr.Dataset, int]:
    """A store with every digest verified, and how many damaged cells that found."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = hw.open_sweep(store, verify=True)
    return data, sum("is damaged" in str(w.message) for w in caught)


def wrong_cells(data: xr.Dataset, reference: xr.Dataset) -> int:
    """Cells that count as done and differ from the undisturbed run in a single bit."""
    wrong = 0
    for cell in np.argwhere(data.done.values):
        wrong += any(data[v].values[tuple(cell)].tobytes() != reference[v].values[tuple(cell)].tobytes() for v in VARIABLES)
    return wrong


def missing_cells(data: xr.Dataset) -> int:
    """Cells that are not done."""
    return int((~data.done).sum())


def torn_cells(store: Path) -> int:
    """Cells of which some files are there, or parts of some, but no digest."""
    if not store.exists():
        return 0
    marks = {p.name for p in (store / "done").iterdir()}
    files = [p.name for v in (*VARIABLES, "wall_s") for p in (store / "runs.zarr" / v).glob("c.*")]
    return len({"-".join(name.removesuffix(".partial").split(".")[1:4]) for name in files} - marks)


def noted(log: Path, what: str, pid: int | None = None) -> list[str]:
    """Cells that the log says were begun or kept, by all processes or one."""
    lines = [line.split(" ", 2) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return [cell for word, number, cell in lines if word == what and pid in (None, int(number))]


def kill_campaign(folder: Path, reference: xr.Dataset, *, kills: int, seed: int, slow: float = 0.03, pair: bool = False) -> tuple[list[Kill], int]:
    """Kill sweeps with SIGKILL at random times: (kills, cells that differ in the finished stores).

    The time is random in the sweep's own pace, so that kills spread over it on a machine of any speed: after 0 to 7 cells begun or kept, and up to 0.4 s more.
    A store that is finished before the next kill is compared and replaced by a new one, and so is the last. `pair`: the last kill hits one of two processes
    on a store, and the other one must finish it.
    """
    rng, found, differ = random.Random(seed), [], 0
    store, log = folder / "store", folder / "log"
    options, before = ("--slow", str(slow)), 0
    while len(found) < kills:
        other = start(store, log, *options) if pair and len(found) == kills - 1 else None
        process = start(store, log, *options)
        began = time.perf_counter()
        _wait_for_lines(log, rng.randrange(8), process)
        time.sleep(rng.uniform(0, 0.4))
        delay = time.perf_counter() - began
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        torn, there = torn_cells(store), done_names(opened(store)[0]) if store.exists() else set()
        redone = len(set(noted(log, "begin", process.pid)) - there)
        if other is not None:
            other.communicate(timeout=PATIENCE)
            if other.returncode:
                raise RuntimeError(f"the process that was left alone ended with {other.returncode}")
        if process.returncode != -signal.SIGKILL:  # the sweep was faster than the kill
            differ, before = differ + _finish(store, log, reference), 0
            continue
        if store.exists():
            data, damaged = opened(store)
            lost = len(set(noted(log, "kept")) - done_names(data)) + damaged
            found.append(Kill(delay, before, int(data.done.sum()), redone, lost, wrong_cells(data, reference), torn))
        else:  # killed before there was a store
            found.append(Kill(delay, before, 0, redone, before, 0, 0))
        before = found[-1].after
    return found, differ + _finish(store, log, reference)


def _wait_for_lines(log: Path, more: int, process: "subprocess.Popen[str]") -> None:
    def lines() -> int:
        return log.read_text(encoding="utf-8").count("\n") if log.exists() else 0

    begun = lines()
    while lines() < begun + more and process.poll() is None:
        time.sleep(0.01)


def _finish(store: Path, log: Path, reference: xr.Dataset) -> int:
    """Finish a store undisturbed, compare it, take it away: how many cells are missing or wrong."""
    ended = finish(store, log)
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    data = opened(store)[0].load()
    shutil.rmtree(store)
    log.unlink()
    return missing_cells(data) + wrong_cells(data, reference)


def done_names(data: xr.Dataset) -> set[str]:
    """Names of the cells that are done."""
    axes = list(data.done.dims)
    return {" ".join(f"{a}={data[a].values[i].item()}" for a, i in zip(axes, cell, strict=True)) for cell in np.argwhere(data.done.values)}


def damage_campaign(store: Path, rng: random.Random, *, damages: int) -> tuple[int, int]:
    """Cut, flip a bit of, or remove files of finished cells of copies of a store, at random: (damages not noticed, cells missing or wrong after repair)."""
    accepted = missed = 0
    reference = opened(store)[0].load()
    for _ in range(damages):
        copy = store.parent / "damaged"
        shutil.copytree(store, copy)
        files = sorted([*copy.glob("runs.zarr/*/c.*"), *copy.glob("done/*")])
        break_file(rng.choice(files), rng)
        accepted += opened(copy)[1] + (missing_cells(opened(copy)[0]) > 0) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = _sweeper.sweep(copy)
        missed += missing_cells(again) + wrong_cells(again, reference)
        shutil.rmtree(copy)
    return accepted, missed


def break_file(file: Path, rng: random.Random) -> None:
    """Cut a file, flip one of its bits, or remove it."""
    content, how = bytearray(file.read_bytes()), rng.choice(("cut", "flip", "remove"))
    if how == "remove":
        file.unlink()
    elif how == "cut":
        file.write_bytes(content[: rng.randrange(len(content))])
    else:
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)


def full_disk(folder: Path, room: int) -> tuple[str, "subprocess.CompletedProcess[str]", int]:
    """Run a sweep on a disk that fills, make room, and run it again: (kind of disk, the first run, cells it had kept). The store is then `folder/store`.

    The disk is a small tmpfs in a name space of its own where the machine allows it, else a stand-in for `os.write`.
    """
    store, log = folder / "store", folder / "log"
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    size = f"size={room}"
    allowed = shutil.which("unshare") and not subprocess.run([*mount, f"mount -t tmpfs -o {size} none '{folder}'"], capture_output=True, check=False).returncode
    if not allowed:
        first = finish(store, log, "--room", str(room))
        kept = int(opened(store)[0].done.sum())
        return "os.write that fails", first, kept
    disk = folder / "disk"
    disk.mkdir()
    sweeper = " ".join(f"'{word}'" for word in command(disk / "store", folder / "log"))
    script = (
        f"mount -t tmpfs -o {size} none '{disk}' && {{ {sweeper}; code=$?; ls '{disk}/store/done' | wc -l > '{folder}/kept'; "
        f"mount -o remount,size=64m '{disk}' && {sweeper} >/dev/null && cp -r '{disk}/store' '{store}'; exit $code; }}"
    )
    first = subprocess.run([*mount, script], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=2 * PATIENCE)
    return "tmpfs", first, int((folder / "kept").read_text())


def writers(folder: Path, reference: xr.Dataset, *, number: int = 2) -> tuple[int, int]:
    """Several processes on one store from the start: (cells that more than one computed, cells missing or wrong)."""
    store, log = folder / "store", folder / "log"
    processes = [start(store, log, "--slow", "0.03") for _ in range(number)]
    for process in processes:
        process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise RuntimeError(f"one of {number} processes ended with {process.returncode}")
    begun = noted(log, "begin")
    return len(begun) - len(set(begun)), _finish(store, log, reference)


def lost_worker(store: Path, *, at: int = 3) -> int:
    """Run the sweep over two worker processes and kill one with SIGKILL when some cells are kept: how many were kept then."""
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster, Client(cluster) as client:
        victim = sorted(cast(dict[str, int], client.run(os.getpid)).values())[0]
        kept = []

        def kill() -> None:
            while not (store / "done").exists() or len(list((store / "done").iterdir())) < at:
                time.sleep(0.01)
            kept.append(len(list((store / "done").iterdir())))
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        _sweeper.sweep(store, client=client)
        killer.join(timeout=PATIENCE)
    return kept[0]
