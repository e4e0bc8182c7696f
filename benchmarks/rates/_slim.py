"""What a committed record keeps: claims and the statistics of every cell, not the members themselves."""

from pathlib import Path

from hiddenwidth import _record
from hiddenwidth._claims import Claim

KEEP = (
    "variance", "variance_se", "bias2", "bias2_se", "below_floor", "error2", "error2_se", "fitted_variance", "fitted_bias2", "fitted_error2",
    "in_fluctuation_fit", "in_bias_fit", "diverged", "depth_error", "fitted_depth_error",
)  # fmt: skip


def claims(out: Path, name: str = "rates") -> list[Claim]:
    """Claims of a record as objects."""
    nan = float("nan")
    found = []
    for c in _record.read(out, name).info["claims"]:
        numbers = {k: nan if c[k] is None else c[k] for k in ("value", "se")}
        interval = tuple(nan if x is None else x for x in c["ci95"])
        found.append(Claim(**(c | numbers | {"ci95": interval})))
    return found


def statistics(source: Path, target: Path, name: str = "rates") -> None:
    """Copy a record without the members."""
    record = _record.read(source, name)
    target.mkdir(parents=True, exist_ok=True)
    record.data[[k for k in KEEP if k in record.data]].to_netcdf(target / f"{name}.nc", engine="h5netcdf")
    for ending in ("json", "png"):
        (target / f"{name}.{ending}").write_bytes((source / f"{name}.{ending}").read_bytes())
