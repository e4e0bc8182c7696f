"""The author's Gaussian problem: our fitted constants beside the constants drawn in the published plots.

Problem of the author's notebook: 10 points, d_in = d_out = 5, inputs and targets standard normal, tanh, eta = 1, 14 steps, D varied. Its plots are drawn
against the laws 0.8 sqrt(D/(LM)) for hidden states and 0.15 D/(LM) for outputs, constants set by hand, the error taken to the largest network of the grid. Here
the error is taken to the Mean ODE of the same D, every constant is fitted with an interval, and the D in the output law is tested.
"""

import dataclasses
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from benchmarks import _slim
from hiddenwidth import _record
from hiddenwidth._claims import Claim, claim
from hiddenwidth._commands import rates

HIDDEN, OUTPUT = 0.8, 0.15  # published, set by hand


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes."""

    dims: tuple[int, ...] = (16, 32, 64, 128)
    depths: tuple[int, ...] = (25, 50, 100)
    widths: tuple[int, ...] = (4, 8, 16, 32)
    seeds: int = 128
    steps: int = 14
    learning_rate: float = 1.0


QUICK = Config(dims=(16, 32), depths=(25, 50), widths=(4, 8, 16), seeds=64)


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Fit the constants at every D; record and figure in OUT."""
    start, config = time.perf_counter(), QUICK if quick else Config()
    found: list[Claim] = []
    references, diverged = {}, 0
    for dim in config.dims:
        where = out / f"dim{dim}"
        outcome = rates.run(
            rates.RatesConfig(
                problem="gaussian", dim=dim, depths=config.depths, widths=config.widths, seeds=config.seeds, steps=config.steps,
                learning_rate=config.learning_rate, out=where, overwrite=True,
            )
        )  # fmt: skip
        print(outcome.text, flush=True)
        if outcome.status:
            raise SystemExit(outcome.status)
        info = _record.read(where, "rates").info
        references[f"D={dim}"], diverged = info["reference"], diverged + info["diverged"]
        by_name = {c.name: c for c in _slim.claims(where)}
        b, c = by_name["hidden.fluctuation.constant"], by_name["output.bias.constant"]
        found.append(b._replace(name=f"hidden.fluctuation.constant[D={dim}]"))
        half = (c.ci95[1] - c.ci95[0]) / 2 / dim
        found.append(claim(f"output.bias.constant_over_dim[D={dim}]", c.value / dim, c.se / dim, half, source="propagation of chaos, D/(LM)"))
    at = {k: np.array([[x.value, *x.ci95] for x in found if x.name.startswith(k)]) for k in ("hidden", "output")}
    data = xr.Dataset(
        {k: (("dim", "estimate"), v) for k, v in at.items()},
        coords={"dim": list(config.dims), "estimate": ["value", "low", "high"]},
        attrs={"published_hidden": HIDDEN, "published_output": OUTPUT},
    )
    _record.write(
        out, "published", data, found, reference=references, diverged=diverged, config=dataclasses.asdict(config), dtype=rates.RatesConfig.dtype,
        wall_s=time.perf_counter() - start, published={"hidden": HIDDEN, "output": OUTPUT},
    )  # fmt: skip
    draw(out)
    return found


def draw(out: Path) -> None:
    """Draw OUT/published.png from the record."""
    record = _record.read(out, "published")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, name, law in zip(axes, ("hidden", "output"), (r"hidden: $b$ in $b\sqrt{D/(LM)}$", r"output: $c'$ in $c' D/(LM)$"), strict=True):
        value, low, high = record.data[name].values.T
        axis.errorbar(record.data.dim, value, [value - low, high - value], fmt="o", capsize=3, label="fitted to the Mean ODE (95 %)")
        axis.axhline(record.info["published"][name], color="grey", ls="--", label="published, set by hand")
        axis.set(xscale="log", xlabel="D", title=law, ylim=(0, None))
        axis.set_xticks(record.data.dim.values, [str(d) for d in record.data.dim.values], minor=False)
        axis.minorticks_off()
        axis.legend(fontsize=9)
    figure.savefig(out / "published.png", dpi=110)
    plt.close(figure)
