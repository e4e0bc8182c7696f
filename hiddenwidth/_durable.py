"""Files that are whole or absent after a crash, and claims that a process loses when it dies."""

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from zarr.abc.buffer import Buffer
from zarr.storage import LocalStore

#: Ending of a file that is being written. One name a file, so that the next writer overwrites what a killed one left.
PARTIAL = ".partial"


def write_file(path: Path, content: bytes | memoryview) -> None:
    """Write and flush to the disk under another name, then rename: after a power cut the old file or the new one is there, never a part of it.

    The name itself is safe after `flush` of its folder.
    """
    partial = path.with_name(path.name + PARTIAL)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        left = memoryview(content).cast("B")
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError:  # a full disk: give back what was taken
        os.close(handle)
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    os.close(handle)
    os.replace(partial, path)


def flush(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class DurableStore(LocalStore):
    """A local zarr store that writes each chunk with `write_file` into folders that exist."""

    async def set(self, key: str, value: Buffer) -> None:
        """Write one chunk."""
        self.set_sync(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Write one chunk."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, memoryview(value.as_buffer_like()))


def flush_tree(path: Path) -> None:
    """Flush every file and folder below: zarr's own writer does not."""
    for folder, _, names in os.walk(path, topdown=False):
        for name in [*names, ""]:
            flush(Path(folder) / name)


class Claims:
    """One lock a name, held by this process until it is released or the process ends, kill -9 included: the kernel drops it then.

    The lock files are empty and stay: removing one that another process has just opened would let two hold the same name.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._held: dict[str, int] = {}
        self._guard = threading.Lock()

    def take(self, name: str) -> bool:
        """Take a name without waiting; False when another process, or another thread of this one, has it."""
        handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return False
            raise
        with self._guard:
            self._held[name] = handle
        return True

    def release(self, name: str | None = None) -> None:
        """Give up one name, or all."""
        with self._guard:
            handles = [self._held.pop(n) for n in ([name] if name is not None else list(self._held)) if n in self._held]
        for handle in handles:
            os.close(handle)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C until the block is done, in the main thread: a finished cell is then kept, not half written."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt
