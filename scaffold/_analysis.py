"""What `analyse` found: findings by site and family, as a table and as a data set that pictures and records are made of."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Array, Float, PyTree

from ._blocks.base import AbstractBlock
from ._covariance import Estimate
from ._covariance_null import Diagonality
from ._crossfit import CrossFit
from ._insert import Expanded
from ._regime import Regime, deepest_network
from ._regression import RegressionSignal
from ._signal import Signal
from ._step import Gain, Step

VERDICTS = ("improvable_material", "improvable", "deepest", "undetermined", "degenerate")
SIZES = ("near_diagonal", "not_near_diagonal", "undetermined")
ALIGNMENTS = ("axis_aligned", "anti_aligned", "as_a_random_basis", "undetermined")


class Finding(NamedTuple):
    """One family at one site. `order`: exponent of realised minus predicted change (2 for smooth networks); `step` and `gain`: None without a direction."""

    site: str
    family: str
    signal: Signal
    crossfit: CrossFit
    regime: Regime
    geometry: str
    step: Step | None
    gain: Gain | None
    order: Estimate
    block: AbstractBlock
    expanded: Expanded
    v: PyTree[Array] | None


class Site(NamedTuple):
    """What does not depend on the family: covariance answers, the widest signal that there is, correlations beside one draw of their null."""

    name: str
    diagonal: Diagonality
    regression: RegressionSignal
    correlations: Float[np.ndarray, "dim dim"]
    null: Float[np.ndarray, "dim dim"]


class Analysis(NamedTuple):
    """Findings about every site and family. `risk`: mean loss of the old network on the samples that evaluate; `delta`: error level shared by all bounds."""

    findings: list[Finding]
    sites: list[Site]
    risk: float
    least_gain: float
    delta: float
    parts: dict[str, int]

    def at(self, site: str, family: str) -> Finding:
        """One finding.

        **Raises:** `ValueError` for a site or family that was not looked at.
        """
        for f in self.findings:
            if f.site == site and f.family == family:
                return f
        raise ValueError(f"site={site!r}, family={family!r} was not looked at; expected one of {', '.join(f'{f.site}/{f.family}' for f in self.findings)}.")

    def verdict(self, family: str) -> str:
        """About all sites together, for one family.

        **Raises:** `ValueError` for a family that was not looked at.
        """
        return deepest_network({f.site: f.regime for f in self.findings if f.family == family})

    def dataset(self) -> xr.Dataset:
        """Every number, over (site, family); correlations over (site, row, column). Verdicts are codes, whose names stand in the attributes."""
        return _dataset(self)

    def __str__(self) -> str:
        return report(self.dataset())


def _dataset(a: Analysis) -> xr.Dataset:
    names, families = [s.name for s in a.sites], list(dict.fromkeys(f.family for f in a.findings))
    found = {(f.site, f.family): _numbers(f) for f in a.findings}
    columns = {key: (("site", "family"), np.array([[found[s, f][key] for f in families] for s in names])) for key in next(iter(found.values()))}
    about = [_site_numbers(s) for s in a.sites]
    columns |= {key: (("site",), np.array([numbers[key] for numbers in about])) for key in about[0]}
    columns |= {
        name: (("site", "row", "column"), np.stack([getattr(s, name) for s in a.sites]).astype(np.float32)) for name in ("correlations", "null")
    }  # fmt: skip
    attributes = {"verdicts": VERDICTS, "sizes": SIZES, "alignments": ALIGNMENTS, "delta": a.delta, "least_gain": a.least_gain, "risk": a.risk}
    parts = {f"n_{name}": n for name, n in a.parts.items()}
    return xr.Dataset(columns, coords={"site": names, "family": families}, attrs=attributes | parts)


def _numbers(f: Finding) -> dict[str, float | str]:
    step, gain = f.step, f.gain
    return {
        "signal": f.signal.value, "floor": f.signal.floor, "p_value": f.signal.p_value, "effective_rank": f.signal.effective_rank,
        "lower": f.regime.lower, "upper": f.regime.upper, "eta": f.regime.eta, "needed": f.regime.needed, "verdict": VERDICTS.index(f.regime.verdict),
        "crossfit": f.crossfit.value, "crossfit_se": f.crossfit.se, "geometry": f.geometry,
        "step": step.t if step else math.nan, "tau": step.tau if step else math.nan, "curvature": step.curvature if step else math.nan,
        "predicted": step.predicted if step else math.nan, "seen": step.seen if step else math.nan,
        "realised": gain.value if gain else math.nan, "realised_se": gain.se if gain else math.nan, "realised_lower": gain.lower if gain else math.nan,
        "order": f.order.value, "order_low": f.order.low, "order_high": f.order.high,
    }  # fmt: skip


def _site_numbers(s: Site) -> dict[str, float]:
    d, m = s.diagonal, s.diagonal.measured
    return {
        "exact_p": d.exact_p, "largest_p": d.largest_p, "size": SIZES.index(d.size), "alignment": ALIGNMENTS.index(d.alignment),
        "omega": m.omega.value, "omega_low": m.omega.low, "omega_high": m.omega.high, "omega0": d.omega0,
        "align": m.align.value, "align_low": m.align.low, "align_high": m.align.high,
        "rms_correlation": m.rms_correlation.value, "rms_correlation_low": m.rms_correlation.low, "rms_correlation_high": m.rms_correlation.high,
        "largest_eigenvalue": m.largest.value, "stable_rank": m.stable_rank, "dim": m.dim,
        "regression": s.regression.value, "regression_lower": s.regression.lower, "predictability": s.regression.predictability,
    }  # fmt: skip


def report(data: xr.Dataset) -> str:
    """The numbers as text: one line for every family at every site, one for every site, one verdict for every family."""
    a = data.attrs
    verdicts, sizes, alignments = (list(a[k]) for k in ("verdicts", "sizes", "alignments"))
    rows = [("site", "family", "signal", "interval", "floor", "p", "eta", "verdict", "direction", "tau", "predicted", "realised (95 %)", "order")]
    for site in data.site.values:
        for family in data.family.values:
            x = data.sel(site=site, family=family)
            half, order = 1.96 * float(x.realised_se), _interval(float(x.order), float(x.order_low), float(x.order_high))
            rows.append((
                str(site), str(family), f"{float(x.signal):.3g}", f"[{float(x.lower):.3g}, {float(x.upper):.3g}]", f"{float(x.floor):.3g}",
                f"{float(x.p_value):.3f}", f"{float(x.eta):.2g}", verdicts[int(x.verdict)], str(x.geometry.item()) or "none", f"{float(x.tau):.2g}",
                f"{float(x.predicted) + 0.0:.2g}", f"{float(x.realised) + 0.0:.2g} +- {half:.1g}", order,
            ))  # fmt: skip
    lines = [_aligned(rows), ""]
    rows = [("site", "correlations", "size of the off-diagonal share", "axes", "signal of any function (lower bound)", "share of |G|^2 it explains")]
    for site in data.site.values:
        x = data.sel(site=site)
        correlated = "present" if float(x.exact_p) < 0.05 else "not shown"
        omega = _interval(float(x.omega), float(x.omega_low), float(x.omega_high))
        rows.append((
            str(site), f"{correlated} (p = {float(x.exact_p):.3f})", f"{sizes[int(x['size'])]}: {omega}",
            alignments[int(x.alignment)], f"{float(x.regression):.3g} ({float(x.regression_lower):.3g})", f"{float(x.predictability):.1%}",
        ))  # fmt: skip
    lines += [_aligned(rows), ""]
    for family in data.family.values:
        found = [verdicts[int(v)] for v in data.verdict.sel(family=family).values]
        needed = data.needed.sel(family=family).values
        more = ""
        if "undetermined" in found and not np.isnan(needed).all():
            most = np.nanmax(needed)
            count = f"{most:,.0f} samples that choose" if np.isfinite(most) else "no number of samples"
            more = f"; {count} would decide the hardest of them, were its signal what was measured"
        counts = ", ".join(f"{name} at {found.count(name)}" for name in verdicts if name in found)
        lines.append(f"{family}: {counts} of {len(found)} sites{more}")
    return "\n".join(lines)


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if math.isfinite(value) else "not measured"


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
