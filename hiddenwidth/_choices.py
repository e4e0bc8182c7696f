"""Checks of what a user typed, worded in one form: what was got, what was expected, what to change."""

import difflib
import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def choose(what: str, name: object, table: Mapping[str, T]) -> T:
    """Look `name` up in `table`, or say which names exist and which one was probably meant."""
    if isinstance(name, str) and name in table:
        return table[name]
    near = difflib.get_close_matches(str(name), table, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what}={name!r} is unknown; expected one of {', '.join(map(repr, table))}.{hint}")


def positive_int(what: str, value: object, *, at_least: int = 1) -> int:
    """Return `value` as an int, or say that a whole number of at least `at_least` was expected."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise ValueError(f"{what}={value!r} is not possible; expected a whole number of at least {at_least}.")
    return int(value)


def positive_float(what: str, value: object) -> float:
    """Return `value` as a float, or say that a finite number above zero was expected."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)) or not (0 < value < math.inf):
        raise ValueError(f"{what}={value!r} is not possible; expected a finite number above 0.")
    return float(value)


def finite_array(what: str, value: object, *, ndim: int) -> np.ndarray:
    """Return `value` as a float64 array with `ndim` axes and only finite entries, or say where it fails."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} holds {type(value).__name__} that is not numeric or is ragged; expected an array of numbers.") from None
    if array.ndim != ndim:
        raise ValueError(f"{what} has shape {array.shape}; expected {ndim} axes. A single column is written {what}[:, None].")
    if array.size == 0:
        raise ValueError(f"{what} has shape {array.shape} and so holds no number; expected at least one row and one column.")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{what} holds {bad} values that are NaN or infinite, the first at index {first}; clean or drop these rows.")
    return array
