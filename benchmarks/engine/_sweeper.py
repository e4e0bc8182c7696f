"""The process that faults are done to: `python -m benchmarks.engine._sweeper STORE`, a sweep of twelve small cells.

`LOG` gets a line `begin PID CELL` before each cell and `kept PID CELL` when it is in the store. `--slow` sleeps before every file is given its name, so that
kills land inside writes. `--room` makes the disk full after so many bytes.
"""

import argparse
import errno
import os
import time
from pathlib import Path
from typing import Any

import jax

import hiddenwidth as hw
from hiddenwidth import _store, _sweep

#: 4 shapes and 3 alphas: 12 cells from 4 programs.
GRID: dict[str, Any] = {"depths": [2, 3], "widths": [1, 2], "alphas": [1.0, 2.0, 4.0], "seeds": 4, "steps": 2}

#: Cells at once.
WORKERS = 2


def arguments() -> tuple[Any, Any, Any]:
    """Problem, unit and scaling of the sweep."""
    return hw.problems.sine(4, dim=4, key=jax.random.key(0)), hw.TwoLayer("tanh"), hw.mlu()


def sweep(store: Path | None, **options: Any) -> Any:
    """The sweep."""
    return hw.sweep(*arguments(), **GRID, store=store, key=jax.random.key(1), **options)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--room", type=int)
    options = parser.parse_args()
    train, put, replace = _sweep.train_cell, _store.Store.put, os.replace

    def note(text: str) -> None:
        with options.log.open("a") as file:
            file.write(f"{text}\n")

    def noted_train(cells: Any, at: dict[str, Any]) -> Any:
        note(f"begin {os.getpid()} " + " ".join(f"{k}={v}" for k, v in at.items()))
        return train(cells, at)

    def noted_put(self: _store.Store, cell: tuple[int, ...], arrays: Any) -> None:
        put(self, cell, arrays)
        note(f"kept {os.getpid()} {self.layout.name(cell)}")

    def slow_replace(*names: Any) -> None:
        time.sleep(options.slow)
        replace(*names)

    _sweep.train_cell, _store.Store.put, os.replace = noted_train, noted_put, slow_replace
    if options.room is not None:
        os.write = full_after(options.room)
    print("ready", flush=True)
    try:
        sweep(options.store, workers=WORKERS)
    except OSError as error:
        raise SystemExit(str(error)) from None


def full_after(room: int) -> Any:
    """A stand-in for `os.write` on a disk with so many bytes left: writes what fits, then fails as a full disk does."""
    write, left = os.write, [room]

    def limited(handle: int, data: Any) -> int:
        number = min(len(data), left[0])
        left[0] -= number
        if len(data) and not number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data[:number])

    return limited


if __name__ == "__main__":
    main()
