"""A sweep that is killed, runs out of disk, is damaged, shared and loses workers: nothing lost, nothing wrong accepted.

Twelve small cells; every fault is counted in cells against an undisturbed run, bit for bit. 30 kills with SIGKILL at random times (quick: 5), each file slowed
by 30 ms so that kills land inside writes; a tmpfs that fills, where name spaces are allowed; files of finished cells cut, flipped in one bit or removed, 200
times (quick: 20); two processes on one store; a Dask worker killed. About 4 minutes on 2 cores.
"""

import dataclasses
import random
import shutil
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from benchmarks.engine import _campaign, _sweeper
from hiddenwidth import _record
from hiddenwidth._claims import Claim, above, claim


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes."""

    kills: int = 30
    damages: int = 200
    rooms: tuple[int, ...] = (100_000, 200_000, 300_000)
    seed: int = 0


QUICK = Config(kills=5, damages=20, rooms=(200_000,))


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run the campaign; record and figure in OUT."""
    begun, config = time.perf_counter(), QUICK if quick else Config()
    shutil.rmtree(work := out / "work", ignore_errors=True)
    work.mkdir(parents=True)
    jax.config.update("jax_compilation_cache_dir", str((work / "cache").absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    reference = _sweeper.sweep(work / "reference").load()
    kills, differ = _campaign.kill_campaign(work, reference, kills=config.kills, seed=config.seed)
    found = [
        above("kills.inside_a_write", sum(k.torn > 0 for k in kills), 0.0, 0.0, config.kills / 3, source="the campaign's power"),
        _count("kills.cells_lost_beyond_the_running_ones", sum(max(0, k.redone - _sweeper.WORKERS) for k in kills)),
        _count("kills.finished_cells_lost", sum(k.lost for k in kills)),
        _count("kills.wrong_cells_accepted", sum(k.wrong for k in kills)),
        _count("kills.cells_that_differ_in_the_end", differ),
    ]
    print(f"{len(kills)} kills, {sum(k.torn > 0 for k in kills)} of them inside a write", flush=True)
    kept_full, disk, differ = 0, "", 0
    for room in config.rooms:
        (folder := work / f"disk{room}").mkdir()
        disk, first, kept = _campaign.full_disk(folder, room)
        if first.returncode != 1 or "the disk is full" not in first.stderr:
            raise RuntimeError(f"a disk of {room} bytes did not stop the sweep: {first.stderr}")
        data = _campaign.opened(folder / "store")[0].load()
        kept_full, differ = kept_full + kept, differ + _campaign.missing_cells(data) + _campaign.wrong_cells(data, reference)
    found.append(_count("full_disk.cells_that_differ_in_the_end", differ))
    print(f"disks that filled: {disk}, {kept_full} cells kept", flush=True)
    accepted, missed = _campaign.damage_campaign(work / "reference", random.Random(config.seed), damages=config.damages)
    found += [_count("damage.not_noticed", accepted), _count("damage.cells_that_differ_in_the_end", missed)]
    (folder := work / "writers").mkdir()
    twice, differ = _campaign.writers(folder, reference)
    found += [_count("writers.cells_computed_twice", twice), _count("writers.cells_that_differ_in_the_end", differ)]
    _campaign.lost_worker(work / "worker")
    data = _campaign.opened(work / "worker")[0].load()
    found.append(_count("lost_worker.cells_that_differ_in_the_end", _campaign.missing_cells(data) + _campaign.wrong_cells(data, reference)))
    shutil.rmtree(work)
    record = xr.Dataset({name: ("kill", np.array([getattr(k, name) for k in kills])) for name in _campaign.Kill._fields})
    about = {"cells": int(reference.done.size), "disk": disk}
    _record.write(
        out, "faults", record, found, reference=about, diverged=0, config=dataclasses.asdict(config), dtype="float32",
        wall_s=time.perf_counter() - begun,
    )  # fmt: skip
    draw(out)
    return found


def _count(name: str, value: int, theory: int = 0) -> Claim:
    """A number that has no spread: it is the theory's or it is not."""
    return claim(name, value, 0.0, 0.0, theory=theory, max_width=1.0, source="counted, bit for bit")


def draw(out: Path) -> None:
    """Draw OUT/faults.png from the record."""
    record = _record.read(out, "faults")
    data, cells = record.data, record.info["reference"]["cells"]
    figure, axis = plt.subplots(figsize=(9, 3.5), layout="constrained")
    number = np.arange(1, data.sizes["kill"] + 1)
    axis.bar(number, data.before, color="tab:blue", label="in the store before")
    axis.bar(number, np.maximum(data.after - data.before, 0), bottom=data.before, color="tab:orange", label="added before the kill")
    torn = data.torn.values > 0
    axis.plot(number[torn], data.after.values[torn] + 0.4, "kv", ms=5, label="killed inside a write")
    axis.axhline(cells, color="grey", ls="--")
    axis.set(
        xlabel="kill",
        ylabel="cells",
        ylim=(0, cells + 3),
        title=f"{len(number)} kills of a sweep of {cells} cells: {int(data.lost.sum())} finished cells lost, {int(data.wrong.sum())} wrong accepted",
    )
    axis.legend(fontsize=8, ncols=3, loc="upper left")
    figure.savefig(out / "faults.png", dpi=110)
    plt.close(figure)
