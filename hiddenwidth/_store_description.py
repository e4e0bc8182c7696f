"""What describes a store: its configuration, held twice, and its arrays. Made once, checked by every process, repaired when damaged."""

import errno
import hashlib
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ._durable import Claims, DurableStore, flush, flush_tree, write_file
from ._grid import Layout

#: Version of the layout of `_store.py`.
SCHEMA = 2
RUNS, DONE, CLAIMS, CONFIG = "runs.zarr", "done", "claims", "config.json"
#: What both copies of the configuration hold.
IDENTITY = ("schema", "config", "config_sha256", "versions")
#: Each chunk carries a checksum that any reader of zarr compares.
CODECS = (ZstdCodec(level=1), Crc32cCodec())


class StoreWarning(UserWarning):
    """Something in a store was damaged, or comes from other versions."""


def describe(config: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a store."""
    text = json.dumps(config, sort_keys=True)
    return {"versions": "", **attributes, "schema": SCHEMA, "config": text, "config_sha256": _hash(text.encode())}


def is_used(path: Path) -> bool:
    """Is there anything at a path but an empty folder?"""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def create(path: Path, layout: Layout, attributes: dict[str, Any]) -> None:
    """Build an empty store and rename it; another process that does the same may win."""
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            fresh = Path(folder) / "store"
            _build(fresh, layout, attributes)
            try:
                os.rename(fresh, path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        flush(path.parent)
    except OSError as error:
        raise ValueError(f"store={str(path)!r} cannot be made: {error.strerror or error}. Choose another folder, or make room.") from error


def _build(path: Path, layout: Layout, attributes: dict[str, Any]) -> None:
    for name in (DONE, CLAIMS):
        (path / name).mkdir(parents=True)
    group = zarr.open_group(path / RUNS, mode="w", zarr_format=3, attributes={**attributes, "axes": list(layout.axes), "fields": list(layout.fields)})
    for name, values in {**layout.axes, **layout.coords}.items():
        array = np.asarray(values)
        group.create_array(name, shape=array.shape, chunks=array.shape, dtype=array.dtype, dimension_names=(name,), compressors=CODECS)[:] = array
    for name, field in layout.fields.items():
        group.create_array(
            name, shape=(*layout.shape, *field.shape), chunks=(*(1 for _ in layout.axes), *field.shape), dtype=field.dtype, fill_value=field.fill,
            dimension_names=(*layout.axes, *field.dims), compressors=CODECS,
            chunk_key_encoding={"name": "default", "separator": "."},
        )  # fmt: skip
    files = {str(file.relative_to(path / RUNS)): _file_hash(file) for file in sorted((path / RUNS).rglob("*")) if file.is_file()}
    (path / CONFIG).write_text(json.dumps({k: attributes[k] for k in IDENTITY} | {"files": files}, indent=1) + "\n", encoding="utf-8")
    flush_tree(path)


def check_config(path: Path, attributes: dict[str, Any]) -> None:
    """Refuse what is not a store of this configuration."""
    shown = f"store={str(path)!r}"
    if not path.is_dir() or not all((path / name).is_dir() for name in (RUNS, DONE, CLAIMS)):
        raise ValueError(f"{shown} exists and is not the store of a sweep; nothing in it is touched. Choose another folder.")
    stored, config = read_identity(path), json.loads(attributes["config"])
    if stored is None:
        raise ValueError(f"{shown} is damaged: neither {CONFIG} nor {RUNS}/zarr.json can be read. Restore one of them from a copy, or choose another folder.")
    check_schema(shown, stored)
    there, config = _flat(json.loads(stored["config"])), _flat(config)
    differ = [f"{k} is {_short(there.get(k))} there and {_short(config.get(k))} here" for k in sorted({*there, *config}) if there.get(k) != config.get(k)]
    if differ:
        raise ValueError(
            f"{shown} holds a sweep of another configuration; expected the same one, to continue it: {'; '.join(differ)}. "
            "Ask for what is there, or choose another folder."
        )
    versions = stored.get("versions", "")
    if versions != attributes.get("versions", ""):
        warnings.warn(f"{shown} was begun with other versions, {versions}; its cells agree with new ones to rounding only.", StoreWarning, stacklevel=5)


def check_schema(shown: str, stored: dict[str, Any]) -> None:
    if stored["schema"] != SCHEMA:
        raise ValueError(f"{shown} has schema {stored['schema']}; expected {SCHEMA}. Read it with the version of hiddenwidth that wrote it.")


def read_identity(path: Path) -> dict[str, Any] | None:
    """Schema and configuration from either of the two places that hold them, None when both are damaged or absent."""
    for file, inside in ((path / CONFIG, ()), (path / RUNS / "zarr.json", ("attributes",))):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            for name in inside:
                found = found[name]
            if _hash(found["config"].encode()) == found["config_sha256"]:
                return {k: found[k] for k in IDENTITY}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return None


def damaged_description(path: Path) -> str:
    """Which file is not as it was made, or nothing: all of them are listed with their SHA-256 in the configuration."""
    try:
        found = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        if _hash(found["config"].encode()) != found["config_sha256"]:
            return CONFIG
        return next((f"{RUNS}/{name}" for name, digest in found["files"].items() if _file_hash(path / RUNS / name) != digest), "")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return CONFIG


def open_arrays(path: Path, layout: Layout, attributes: dict[str, Any]) -> dict[str, zarr.Array]:
    """The arrays of a store of this configuration; a description that is damaged is written anew, cells and digests are not touched."""
    claims = Claims(path / CLAIMS)
    while damaged := damaged_description(path):
        if not claims.take("description"):  # another process is at it
            time.sleep(0.1)
            continue
        warnings.warn(f"store={str(path)!r}: {damaged}, part of its description, is damaged; the description is written anew.", StoreWarning, stacklevel=4)
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}.") as folder:
            fresh = Path(folder) / "store"
            _build(fresh, layout, attributes)
            for file in sorted((f for f in fresh.rglob("*") if f.is_file()), key=lambda f: f.name == CONFIG):  # the list of digests last
                target = path / file.relative_to(fresh)
                target.parent.mkdir(parents=True, exist_ok=True)
                write_file(target, file.read_bytes())
                flush(target.parent)
        claims.release()
    with zarr.config.set({"array.write_empty_chunks": True}):  # a cell of NaN is written like any other: its bytes enter the digest
        arrays = {str(name): array for name, array in zarr.open_group(DurableStore(path / RUNS), mode="r+").arrays()}
    return {name: arrays[name] for name in layout.fields}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _file_hash(file: Path) -> str:
    return _hash(file.read_bytes()) if file.is_file() else ""


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names joined by dots, so that a message names what differs and not all that surrounds it."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
