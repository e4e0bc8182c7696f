"""What the pictures have in common."""

from typing import Any

import numpy as np


def log_axes(axis) -> None:
    """Logarithmic axes with few, plain labels: powers of four across, 1-2-5 upwards."""
    from matplotlib.ticker import FuncFormatter, LogFormatterSciNotation, LogLocator, NullFormatter

    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(LogLocator(base=4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    low, high = axis.get_ylim()
    wide = high / low > 100
    axis.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)) if not wide else LogFormatterSciNotation())
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(True, which="major", alpha=0.3)


def constant(by_name: dict[str, Any], observable: str, term: str, letter: str) -> str:
    """A fitted constant with its interval, for a title."""
    c = by_name.get(f"{observable}.{term}.constant")
    if c is None or c["value"] is None or c["se"] is None:
        return f"{letter} not resolved"
    half = (c["ci95"][1] - c["ci95"][0]) / 2
    digits = max(0, min(6, 1 - int(np.floor(np.log10(max(half, 1e-6))))))
    return f"{letter} = {c['value']:.{digits}f} $\\pm$ {half:.{digits}f}"
