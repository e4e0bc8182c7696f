"""A claim: a number with its interval, what theory says, and a verdict."""

import math
from typing import Any, Literal, NamedTuple

import equinox as eqx

Verdict = Literal["holds", "fails", "undetermined"]

#: A constant has no value in the theory: it is resolved when its interval is no wider than this share of it.
CONSTANT_RELATIVE_WIDTH = 0.5


class Claim(NamedTuple):
    """One line of the table and of the record.

    The verdict is "holds" when the theory's value lies in the 95 % interval and the interval is no wider than `max_width`, "fails" when the value lies
    outside, "undetermined" otherwise; `why` says what was missing. `near` and `above` make claims about a tolerance and about a bound, which stand in
    `theory`. A constant, which theory only claims to exist, "holds" when it is resolved: interval clear of 0 and no wider than half of it.
    """

    name: str
    value: float
    se: float
    ci95: tuple[float, float]
    theory: float | None
    max_width: float | None
    verdict: Verdict
    why: str
    source: str

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary; what is not finite becomes None."""
        plain = {k: v for k, v in self._asdict().items() if k != "ci95"}
        plain = {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in plain.items()}
        return plain | {"ci95": [x if math.isfinite(x) else None for x in self.ci95]}


def claim(
    name: str,
    value: float,
    se: float,
    half_width: float,
    *,
    source: str,
    theory: float | None = None,
    max_width: float | None = None,
    doubt: str = "",
) -> Claim:
    """Make a claim and judge it; `doubt` says why the number may not be relied on whatever its interval, and makes it undetermined."""
    interval = (value - half_width, value + half_width)
    width = 2 * half_width
    verdict: Verdict
    if not (math.isfinite(value) and math.isfinite(half_width)):
        verdict, why = "undetermined", doubt or "too few cells or seeds, or all below the noise floor"
    elif doubt:
        verdict, why = "undetermined", doubt
    elif theory is None:
        limit = CONSTANT_RELATIVE_WIDTH * abs(value)
        resolved = width <= limit
        verdict, why = ("holds", "") if resolved else ("undetermined", f"interval width {width:.3g} above {limit:.3g}")
    elif max_width is not None and width > max_width:
        verdict, why = "undetermined", f"interval width {width:.3g} above {max_width:.3g}: more seeds or a wider grid"
    elif interval[0] <= theory <= interval[1]:
        verdict, why = "holds", ""
    else:
        verdict, why = "fails", f"theory's {theory:g} is outside the interval"
    return Claim(name, float(value), float(se), (float(interval[0]), float(interval[1])), theory, max_width, verdict, why, source)


def near(name: str, value: float, se: float, half_width: float, tolerance: float, *, source: str, doubt: str = "") -> Claim:
    """A deviation that should be 0 within a tolerance: "holds" when the whole interval is inside, "fails" when the whole interval is outside."""
    value, low, high = float(value), float(value - half_width), float(value + half_width)
    return _bounded(name, value, se, (low, high), -tolerance <= low and high <= tolerance, low > tolerance or high < -tolerance, 0.0, tolerance, source, doubt)


def above(name: str, value: float, se: float, half_width: float, bound: float, *, source: str, doubt: str = "") -> Claim:
    """A number that should exceed a bound: "holds" when the whole interval does, "fails" when none of it does."""
    value, low, high = float(value), float(value - half_width), float(value + half_width)
    return _bounded(name, value, se, (low, high), low > bound, high <= bound, bound, None, source, doubt)


def _bounded(name, value, se, interval, inside: bool, outside: bool, theory: float, max_width: float | None, source: str, doubt: str) -> Claim:
    limit = f"tolerance of {max_width:g}" if max_width is not None else f"bound of {theory:g}"
    verdict: Verdict = "undetermined"
    why = doubt or f"the interval reaches across the {limit}"
    if not (math.isfinite(value) and math.isfinite(interval[0]) and math.isfinite(interval[1])):
        why = doubt or "not measured"
    elif not doubt and inside:
        verdict, why = "holds", ""
    elif not doubt and outside:
        verdict, why = "fails", f"the whole interval is on the wrong side of the {limit}"
    return Claim(name, float(value), float(se), (float(interval[0]), float(interval[1])), theory, max_width, verdict, why, source)


def doubted(c: Claim, why: str) -> Claim:
    """The same number with no verdict, and why."""
    return c._replace(verdict="undetermined", why=why)


def decimals(c: Claim) -> int:
    """Decimals that show two figures of the half-width of the interval."""
    half = (c.ci95[1] - c.ci95[0]) / 2
    return min(6, max(0, 1 - math.floor(math.log10(half)))) if math.isfinite(half) and half > 0 else 4


def table(claims: list[Claim]) -> str:
    """Claims as aligned text: term, value, interval, theory, verdict."""
    rows = [("claim", "value", "95 % interval", "theory", "verdict")]
    for c in claims:
        digits = decimals(c)
        interval = f"[{c.ci95[0]:.{digits}f}, {c.ci95[1]:.{digits}f}]"
        rows.append((c.name, f"{c.value:.{digits}f}", interval, "" if c.theory is None else f"{c.theory:g}", c.verdict + (f" ({c.why})" if c.why else "")))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


class AbstractFit(eqx.Module):
    """What every fit is: claims with verdicts, found by name, printed as their table."""

    claims: eqx.AbstractVar[list[Claim]]

    def __getitem__(self, name: str) -> Claim:
        for c in self.claims:
            if c.name == name:
                return c
        raise KeyError(f"no claim {name!r}; the claims are {', '.join(c.name for c in self.claims)}")

    def __repr__(self) -> str:
        return table(self.claims)
