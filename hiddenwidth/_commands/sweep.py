"""`hiddenwidth sweep`: a grid of ensembles, kept cell by cell, continued by the same command."""

import itertools
import logging
import math
import sys
import warnings
from collections.abc import Hashable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import stats

from .._cluster import connect
from .._cost import sweep_cost
from .._scaling import mlu
from .._store import open_sweep
from .._store_description import StoreWarning
from .._sweep import Interrupted, sweep
from .._two_layer import TwoLayer
from ._outcome import Outcome, wholly_diverged
from ._sweep_config import DIMS, SweepConfig as SweepConfig

#: Rows of a table on the terminal.
ROWS = 48


def run(config: SweepConfig) -> Outcome:
    """Run the command: estimate, networks, table."""
    config.check()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = _say_warning
        warnings.simplefilter("always", StoreWarning)
        client = stack.enter_context(connect(config.cluster)) if config.cluster is not None else None
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # of a scheduler that is gone: the command says it in one line
        problem = config.make_problem(config.dim or min(config.dims or (DIMS[config.problem],)))
        unit = TwoLayer(config.activation, config.law)
        scaling = mlu(config.learning_rate, learning_rate_u=config.learning_rate_u, learning_rate_v=config.learning_rate_v)
        arguments: dict[str, Any] = config.grid() | {
            "seeds": config.seeds, "steps": config.steps or 10, "dtype": jnp.dtype(config.dtype), "memory": config.memory, "embedding": config.embedding,
            "client": client, "key": jax.random.fold_in(jax.random.key(config.seed), 1),
        }  # fmt: skip
        try:
            if config.calibrate and (config.estimate or not _finished(config.out)):
                cost = sweep_cost(problem, unit, scaling, store=config.out, **arguments)
                if config.estimate:
                    return Outcome(0, _cost_table(cost))
                _say(_cost_line(cost))
            runs = sweep(problem, unit, scaling, store=config.out, retries=config.retries, progress=config.progress, **arguments)
        except Interrupted as stop:
            return Outcome(130, f"Interrupted: {_progress(stop.runs)} are finished and kept in {config.out}. The same command continues.")
        except ValueError as error:
            raise ValueError(str(error).replace("store=", "out=").replace("client= has", "cluster= has")) from error
        except OSError as error:
            return Outcome(1, str(error).replace("store=", "--out "))
        return _outcome(config, runs)


def _finished(out: Path) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(open_sweep(out).done.all())
    except ValueError:
        return False


def _outcome(config: SweepConfig, runs: xr.Dataset) -> Outcome:
    lost = wholly_diverged(runs)
    text = (
        f"{_cell_table(runs)}\n{_progress(runs)} in {config.out}, which hiddenwidth.open_sweep({str(config.out)!r}) opens as an xarray.Dataset: "
        "hidden, output, loss of every member."
    )
    if not bool(lost.any()):
        return Outcome(0, text)
    return Outcome(1, f"{text}\nEvery member diverged in {int(lost.sum())} of {lost.size} cells. Lower --learning-rate.")


def _cell_table(runs: xr.Dataset) -> str:
    """Loss after the last step: mean and 95 % interval (Student) over the members that did not diverge."""
    axes = list(runs.done.dims)
    rows = [(*_headings(axes), f"loss at step {int(runs.step[-1])}", "95 % interval", "diverged", "seconds")]
    for at in itertools.islice(itertools.product(*(runs[a].values for a in axes)), ROWS):
        cell = runs[["loss", "diverged_at", "wall_s"]].sel(dict(zip(axes, at, strict=True)))
        diverged = cell.diverged_at.values >= 0
        loss = cell.loss.values[~diverged, -1].astype(float)
        half = stats.t.ppf(0.975, loss.size - 1) * loss.std(ddof=1) / math.sqrt(loss.size) if loss.size > 1 else math.nan
        mean = loss.mean() if loss.size else math.nan
        interval = f"[{mean - half:.4g}, {mean + half:.4g}]" if math.isfinite(half) else ""
        rows.append((*(f"{x:g}" for x in at), f"{mean:.4g}", interval, f"{int(diverged.sum())}/{diverged.size}", f"{float(cell.wall_s):.1f}"))
    return _table(rows, runs.done.size)


def _cost_table(cost: xr.Dataset) -> str:
    axes = list(cost.flops.dims)
    cells = sorted(itertools.product(*(cost[a].values for a in axes)), key=lambda at: -float(cost.flops.sel(dict(zip(axes, at, strict=True)))))
    rows = [(*_headings(axes), "Gflop", "MB", "seconds")]
    for at in cells[:ROWS]:
        cell = cost.sel(dict(zip(axes, at, strict=True)))
        rows.append((*(f"{x:g}" for x in at), f"{float(cell.flops) / 1e9:.3g}", f"{float(cell.bytes) / 1e6:.3g}", f"{float(cell.seconds):.3g}"))
    return f"{_table(rows, cost.flops.size)}\n{_cost_line(cost)}"


def _cost_line(cost: xr.Dataset) -> str:
    left = cost.seconds.where(~cost.done, 0.0)
    done = f"{int(cost.done.sum())} of them finished, " if bool(cost.done.any()) else ""
    return (
        f"{cost.flops.size} cells, {done}{float(cost.flops.sum()) / 1e9:.3g} Gflop, at most {float(cost.bytes.max()) / 1e6:.3g} MB a cell; "
        f"about {cost.total_s:.0f} s with {cost.parallel} at once (largest {float(left.max()):.3g} s, of which {cost.compile_s:.2g} s compilation)"
    )


def _headings(axes: list[Hashable]) -> list[str]:
    return [{"depth": "L", "width": "M", "embedding_dim": "D"}.get(str(a), str(a)) for a in axes]


def _table(rows: list[tuple[str, ...]], cells: int) -> str:
    widths = np.array([[len(x) for x in row] for row in rows]).max(0)
    lines = ["  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True)) for row in rows]
    more = [f"... and {cells - ROWS} more cells"] if cells > ROWS else []
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *more])


def _progress(runs: xr.Dataset) -> str:
    return f"{int(runs.done.sum())} of {runs.done.size} cells"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _say_warning(message: Warning | str, *_: Any) -> None:
    _say(f"hiddenwidth sweep: {message}".replace("store=", "--out "))
