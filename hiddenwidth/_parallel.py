"""Independent jobs on the cores of one machine, from threads: XLA compiles and runs outside Python's lock."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import jax

from ._devices import cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """One job a core that this process may use on CPU, one at a time on an accelerator."""
    if jax.default_backend() != "cpu":
        return 1
    return cores()


def each(function: Callable[[Item], Result], items: Iterable[Item], done: Callable[[Item, Result], None], *, workers: int | None = None) -> None:
    """Call `function` on every item, `done(item, result)` in this thread as each finishes.

    An exception, Ctrl-C included, cancels what has not begun; what was running is finished and handed to `done` before it goes on.

    JAX's contexts belong to a thread: `function` enters those it needs (precision, x64). A caller's own, such as `jax.debug_nans` or
    `jax.default_device` used as context managers, do not reach the workers; set them globally, or use `workers=1` from a plain loop.
    """
    pool = ThreadPoolExecutor(workers or default_workers())
    pending: dict[Future[Result], Item] = {pool.submit(function, item): item for item in items}
    try:
        while pending:
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                done(pending.pop(future), future.result())
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        for future, item in pending.items():
            if not future.cancelled() and future.exception() is None:
                done(item, future.result())
        raise
    pool.shutdown()


def collect(function: Callable[[Item], Result], items: Iterable[Item], *, workers: int | None = None) -> list[Result]:
    """The results in the order of the items."""
    items = list(items)
    results: dict[int, Result] = {}
    each(lambda i: function(items[i]), range(len(items)), results.__setitem__, workers=workers)
    return [results[i] for i in range(len(items))]
