"""The one record format: NAME.json (claims and provenance), NAME.nc (raw data), NAME.png (drawn from these two alone)."""

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ._claims import Claim
from ._provenance import provenance


class Record(NamedTuple):
    """A record read back from disk: the json content and the dataset."""

    info: dict[str, Any]
    data: xr.Dataset


def prepare_directory(out: Path, overwrite: bool) -> None:
    """Make the output directory; refuse one that holds anything unless told to overwrite."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={str(out)!r} is a file; expected a directory to write into. Choose another one.")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ValueError(f"out={str(out)!r} exists and is not empty; nothing is overwritten unasked. Choose another directory or pass --overwrite.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out={str(out)!r} cannot be made: {error.strerror or error}. Choose another directory.") from error


def write(
    out: Path,
    name: str,
    data: xr.Dataset,
    claims: list[Claim],
    *,
    reference: dict[str, Any],
    diverged: int,
    config: dict[str, Any],
    dtype: str,
    wall_s: float,
    **extra: Any,
) -> None:
    """Write OUT/NAME.json and OUT/NAME.nc, complete or not at all, and remove a picture that was there before."""
    info = {
        "name": name,
        "claims": [c.to_json() for c in claims],
        "reference": reference,
        "diverged": diverged,
        "config": config,
        **provenance(),
        "dtype": dtype,
        "wall_s": wall_s,
        **extra,
    }
    packed = {k: {"zlib": True, "complevel": 3} for k, v in data.variables.items() if v.ndim > 0 and v.dtype.kind in "fi"}
    text = json.dumps(_plain(info), indent=2, allow_nan=False) + "\n"
    try:
        with tempfile.TemporaryDirectory(dir=out, prefix=f".{name}.") as folder:
            data.to_netcdf(Path(folder) / f"{name}.nc", engine="h5netcdf", encoding=packed)
            (Path(folder) / f"{name}.json").write_text(text, encoding="utf-8")
            (out / f"{name}.png").unlink(missing_ok=True)  # a picture of an earlier run would not belong to this record
            for ending in ("nc", "json"):
                os.replace(Path(folder) / f"{name}.{ending}", out / f"{name}.{ending}")
    except OSError as error:
        raise ValueError(f"out={str(out)!r} cannot be written to: {error.strerror or error}. Free some space or choose another directory.") from error


def read(out: Path, name: str) -> Record:
    """Read a record back."""
    info = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    with xr.open_dataset(out / f"{name}.nc", engine="h5netcdf") as data:
        return Record(info, data.load())


def _plain(value: Any) -> Any:
    """JSON has no NaN and no numpy: not finite becomes null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (np.bool_, bool)):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value
