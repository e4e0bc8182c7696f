"""A grid on disk: each cell is kept as it finishes, and a later process continues.

    STORE/runs.zarr/NAME/c.I.J...    one chunk a cell and array, with a crc32c of its own: any reader of zarr sees the data and notices a flipped bit
    STORE/done/I-J...                SHA-256 of the cell, written last: from then on the cell counts
    STORE/claims/I-J...              locked while a process computes the cell
    STORE/config.json                schema, configuration (a second copy is in the attributes of runs.zarr), SHA-256 of every file that describes an array

The digest covers the configuration, the cell's coordinates and the bytes of its arrays. Chunks are flushed to the disk before it is written, so a cell is
whole when its digest fits; one that does not fit is computed again. An empty store is built under another name and renamed; nothing but cells and claims is
written afterwards.
"""

import errno
import hashlib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
import zarr

from ._durable import Claims, flush, uninterrupted, write_file
from ._grid import Arrays, Cell, Layout
from ._store_description import (
    CLAIMS,
    DONE,
    RUNS,
    StoreWarning,
    check_config,
    check_schema,
    create,
    damaged_description,
    describe,
    is_used,
    open_arrays,
    read_identity,
)


class _Content(NamedTuple):
    """The cells of a store, as they are on the disk."""

    path: Path
    arrays: dict[str, zarr.Array]
    config_hash: str
    layout: Layout

    def mark(self, cell: Cell) -> Path:
        """The file whose presence makes a cell count."""
        return self.path / DONE / _name(cell)

    def present(self, cell: Cell) -> bool:
        """Is every chunk there? zarr reads one that is not as if it were filled."""
        return all((self.path / RUNS / name / _chunk(cell, array)).exists() for name, array in self.arrays.items())

    def whole(self, cell: Cell) -> bool:
        """Is every chunk there, and does the digest fit?"""
        if not self.mark(cell).exists() or not self.present(cell):
            return False
        try:
            content = {name: np.asarray(array[cell]) for name, array in self.arrays.items()}
            return self.mark(cell).read_bytes() == self.digest(cell, content)
        except Exception:  # whatever damaged bytes make of the codecs
            return False

    def digest(self, cell: Cell, arrays: dict[str, np.ndarray]) -> bytes:
        """SHA-256 of configuration, coordinates and arrays."""
        mark = hashlib.sha256(f"{self.config_hash} {self.layout.name(cell)}".encode())
        for name, array in sorted(arrays.items()):
            mark.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
            mark.update(array.tobytes())
        return mark.hexdigest().encode()


class Store:
    """A sink on disk (see `_grid.Sink`).

    **Raises:** `ValueError` when the folder holds something else, or a grid of another configuration.
    """

    def __init__(self, path: Path, layout: Layout, config: dict[str, Any], attributes: dict[str, Any]):
        self.path, self.layout = path, layout
        attributes = describe(config, attributes)
        if not is_used(path):
            create(path, layout, attributes)
        check_config(path, attributes)
        self._content = _Content(path, open_arrays(path, layout, attributes), attributes["config_sha256"], layout)
        self._claims = Claims(path / CLAIMS)
        self._verified: set[Cell] = set()
        for cell in layout.cells:  # every finished cell is read once
            there = self._content.mark(cell).exists()
            if not self._good(cell) and there:
                warnings.warn(f"store={str(path)!r}: cell {layout.name(cell)} is damaged and is computed again.", StoreWarning, stacklevel=4)

    def missing(self) -> list[Cell]:
        """Cells without a digest that fits."""
        return [cell for cell in self.layout.cells if not self._good(cell)]

    def claim(self, cell: Cell) -> bool:
        """Lock a cell, unless another process holds it or has finished it since."""
        if not self._claims.take(_name(cell)):
            return False
        if self._good(cell):
            self._claims.release(_name(cell))
            return False
        return True

    def put(self, cell: Cell, arrays: Arrays) -> None:
        """Write a claimed cell: chunks, flushed, then the digest."""
        kept = self.layout.cast(arrays)
        mark = self._content.mark(cell)
        try:
            with uninterrupted():
                mark.unlink(missing_ok=True)  # of a damaged cell
                for name, value in kept.items():
                    self._content.arrays[name][cell] = value
                    flush(self.path / RUNS / name)
                write_file(mark, self._content.digest(cell, kept))
                flush(mark.parent)
                self._verified.add(cell)
        except OSError as error:
            what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
            message = (
                f"store={str(self.path)!r}: {what}, and cell {self.layout.name(cell)} was not kept. {len(self._verified)} of {len(self.layout.cells)} cells "
                "are finished and kept; make room and run the same sweep again to continue."
            )
            raise StoreError(error.errno or errno.EIO, message) from error
        finally:
            self._claims.release(_name(cell))

    def close(self) -> None:
        """Give up all claims."""
        self._claims.release()

    def _good(self, cell: Cell) -> bool:
        """Does the digest fit? What this process has verified once is not read again."""
        if cell not in self._verified and self._content.whole(cell):
            self._verified.add(cell)
        return cell in self._verified


class StoreError(OSError):
    """A finished cell could not be written; those before it are kept."""

    def __str__(self) -> str:
        return str(self.args[1])


def open_sweep(path: str | Path, *, verify: bool = False) -> xr.Dataset:
    r"""Open the store of a sweep, finished or not, while it runs or later. Arrays are read from the disk when they are used.

    **Arguments:**

    - `path`: the folder given as `store=` to `sweep`, or as `--out` to `hiddenwidth sweep`.
    - `verify`: read everything once and compare it with the digests. Without, a lost file is noticed here, and a flipped bit or a cut file when the cell is
      read, as a `ValueError` about a checksum.

    **Returns:** the dataset that `sweep` returns. Cells that are not finished are NaN (`diverged_at`: -1) and False in `done`; damaged ones are False
    in `done`, with a warning that names them.

    **Raises:** `ValueError` when there is no store, one of another schema, or one whose description is damaged.

    **Example:**

    ```python
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        hw.sweep(problem, unit, hw.mlu(), depths=[4, 8], widths=[2], seeds=4, steps=2, store=folder, key=jax.random.key(0))
        print(hw.open_sweep(folder).loss.isel(step=-1).mean("seed").values)
    ```
    """
    path, shown = Path(path), f"path={str(path)!r}"
    stored = read_identity(path)
    if stored is None:
        raise ValueError(f"{shown} holds no sweep that can be read; expected the folder that was given as store= to sweep.")
    check_schema(shown, stored)
    if damaged := damaged_description(path):
        raise ValueError(f"{shown}: {damaged}, part of its description, is damaged. Run the same sweep again: it writes the description anew.")
    data = xr.open_zarr(path / RUNS, consolidated=False, chunks=None, mask_and_scale=False)
    axes, fields = data.attrs.pop("axes"), data.attrs.pop("fields")
    data, group = data[fields], zarr.open_group(path / RUNS, mode="r")
    layout = Layout({name: data[name].values.tolist() for name in axes}, {}, {})
    content = _Content(path, {name: array for name, array in group.arrays() if name in fields}, stored["config_sha256"], layout)
    done = np.zeros(layout.shape, bool)
    for cell in layout.cells:
        if not content.mark(cell).exists():
            continue
        done[cell] = content.whole(cell) if verify else content.present(cell)
        if not done[cell]:
            warnings.warn(f"{shown}: cell {layout.name(cell)} is damaged; run the same sweep again to compute it anew.", StoreWarning, stacklevel=2)
    return data.assign(done=(axes, done))


def _name(cell: Cell) -> str:
    return "-".join(map(str, cell))


def _chunk(cell: Cell, array: zarr.Array) -> str:
    return ".".join(["c", *map(str, cell), *("0" for _ in array.shape[len(cell) :])])
