"""Benchmarks that are a command at a stated size, and what a committed record keeps: claims and statistics of every cell, not the members."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hiddenwidth import _record
from hiddenwidth._claims import Claim
from hiddenwidth._commands._outcome import Outcome
from hiddenwidth._phase import MEMBERS as PHASE

#: Variables with one entry a member, or of the reference's states.
MEMBERS = (
    "hidden", "output", "loss", "diverged_at", "limit_hidden", "limit_output", "gap", "square", "output_gap", "limit_hidden2", "limit_output2", *PHASE,
    *(f"scheme_{name}" for name in PHASE),
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


def run_command(command: Callable[[Any], Outcome], config: Any, name: str) -> list[Claim]:
    """Run one command of the command line, print its report, give the claims of its record."""
    outcome = command(config)
    print(outcome.text, flush=True)
    if outcome.status:
        raise SystemExit(outcome.status)
    return claims(config.out, name)


def copy_records(out: Path, target: Path) -> None:
    """Copy the records of a benchmark, those of OUT itself or else those of its folders, without the members."""
    for info in sorted(out.glob("*.json")) or sorted(out.glob("*/*.json")):
        _copy(info.parent, target / info.parent.relative_to(out), info.stem)


def _copy(source: Path, target: Path, name: str) -> None:
    info, data = _record.read(source, name)
    kept = data[[k for k in data.data_vars if str(k) not in MEMBERS]]
    target.mkdir(parents=True, exist_ok=True)
    kept.drop_vars([c for c in kept.coords if not kept[c].dims]).to_netcdf(target / f"{name}.nc", engine="h5netcdf")
    info["config"].pop("out", None)  # where it was written on that machine is nobody's business
    (target / f"{name}.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
    (target / f"{name}.png").write_bytes((source / f"{name}.png").read_bytes())
