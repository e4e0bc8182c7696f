"""A description of a problem, unit or scaling that is the same in every process: what a store is recognised by."""

import dataclasses
import hashlib
import inspect
from typing import Any

import numpy as np


def fingerprint(value: Any) -> Any:
    """Plain JSON: numbers as they are, arrays and the source of functions by their SHA-256, objects by their class and fields."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [fingerprint(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"class": _qualified(type(value))} | {f.name: fingerprint(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if inspect.isroutine(value) or isinstance(value, type):
        return {"function": _qualified(value), "source": _source(value)} | {
            name: fingerprint(cell.cell_contents) for name, cell in zip(_free_names(value), getattr(value, "__closure__", None) or (), strict=True)
        }
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return {"array": list(array.shape), "dtype": str(array.dtype), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
    return f"{_qualified(type(value))} {getattr(value, '__name__', '')}".strip()  # an object of a library, such as a jitted function


def _qualified(what: Any) -> str:
    return f"{what.__module__}.{what.__qualname__}"


def _free_names(function: Any) -> tuple[str, ...]:
    return getattr(getattr(function, "__code__", None), "co_freevars", ())


def _source(function: Any) -> str:
    try:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]
    except (OSError, TypeError):  # typed at a prompt, or written in C
        code = getattr(function, "__code__", None)
        return hashlib.sha256(code.co_code + repr(code.co_consts).encode()).hexdigest()[:16] if code and "0x" not in repr(code.co_consts) else ""
