"""Cells over the workers of a Dask cluster: the workers compute, this process keeps what they return.

A worker that is lost takes its running cells with it; Dask gives them to another one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ._grid import Arrays, Cell, Compute, Executor, Layout

if TYPE_CHECKING:
    from distributed import Client, Future

#: Cells sent ahead for each thread of the cluster, so that a worker never waits for this process.
AHEAD = 2
#: Seconds to wait for the scheduler, and for the first worker.
PATIENCE, PATIENCE_WORKERS = 10, 60


def connect(address: str) -> "Client":
    """A client of the scheduler at an address.

    **Raises:** `ValueError` when the extra is not installed or nothing answers there.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError(f"cluster={address!r} needs Dask distributed; install hiddenwidth[cluster].") from error
    try:
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        what = str(error) or type(error).__name__
        raise ValueError(
            f"cluster={address!r} does not answer ({what}); expected the address that `dask scheduler` prints, for example tcp://host:8786."
        ) from error


def threads(client: "Client") -> list[int]:
    """Threads of every worker."""
    return list(cast(dict[str, int], client.nthreads()).values())


def threads_per_worker(client: "Client") -> int:
    """Cells that run at once in one worker process, at most.

    **Raises:** `ValueError` when no worker comes.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE_WORKERS)
    except TimeoutError as error:
        raise ValueError("client= has no workers; start some with `dask worker ADDRESS`.") from error
    return max(threads(client))


def check_sendable(compute: object) -> None:
    """Say now what would fail on the way to the first worker."""
    import cloudpickle

    try:
        cloudpickle.dumps(compute)
    except Exception as error:  # whatever its parts make of pickle
        raise ValueError(
            f"problem, unit or scaling cannot be sent to workers ({error}); expected objects that can be pickled. "
            "Define the unit's functions in a module that the workers can import."
        ) from error


def result(future: "Future[Any]") -> Any:
    """What a worker returned, or its error.

    **Raises:** `ValueError` when the worker lacks a module.
    """
    try:
        return future.result()
    except ImportError as error:
        raise ValueError(f"client= has workers on which an import fails ({error}); install the same hiddenwidth, and the unit's own modules, there.") from error


def on_cluster(client: "Client", *, retries: int) -> Executor:
    """Cells over a cluster; a cell is tried `retries` more times when it fails or takes its worker down."""

    def execute(compute: Compute, layout: Layout, cells: Sequence[Cell], claim: Callable[[Cell], bool], done: Callable[[Cell, Arrays], None]) -> None:
        from distributed import KilledWorker, as_completed

        waiting, running, lost = deque(cells), {}, dict.fromkeys(cells, 0)
        finished = as_completed(loop=client.loop)

        def submit(cell: Cell) -> None:
            at = layout.at(cell)
            future = client.submit(compute, at, key=f"{layout.name(cell)}-{id(running)}-{lost[cell]}", pure=False, retries=retries)
            running[future] = cell
            finished.add(future)

        def fill() -> None:
            while waiting and len(running) < AHEAD * max(1, sum(threads(client))):
                if claim(cell := waiting.popleft()):
                    submit(cell)

        def keep(future: "Future[Any]") -> None:
            cell = running.pop(future)
            if future.status == "cancelled":
                raise ConnectionError(
                    f"the cluster lost cell {layout.name(cell)}: its scheduler is gone. A store keeps finished cells, and the same sweep continues it."
                )
            try:
                arrays = result(future)
            except KilledWorker as error:
                lost[cell] += 1
                if lost[cell] > retries:
                    raise OSError(
                        f"cell {layout.name(cell)} took down every worker that tried it; give the workers more memory, or choose smaller sizes."
                    ) from error
                submit(cell)
                return
            done(cell, arrays)

        try:
            fill()
            while running:
                keep(next(finished))
                fill()
        except BaseException:
            ready = [f for f in running if f.status == "finished"]
            client.cancel([f for f in running if f.status != "finished"], force=True)
            for future in ready:
                done(running[future], future.result())
            raise

    return execute
