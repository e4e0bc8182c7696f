r"""Confidence bounds for the mean of independent numbers Z_1, ..., Z_n.

    hoeffding              mean - range sqrt(ln(1/delta) / (2 n))
    empirical_bernstein    mean - sqrt(2 V ln(2/delta)/n) - 7 range ln(2/delta) / (3 (n - 1))          (Maurer and Pontil 2009)
    betting                inf{m: max_t prod_{i<=t} (1 + l_i (x_i - m)) < 1/delta}, l_i predictable bets             (Waudby-Smith and Ramdas 2024)
    t                      mean - t_{1 - delta, n-1} sd/sqrt(n)                                       asymptotic
    bootstrap              studentised, by resampling                                                 asymptotic

The first three hold for every n and need a bound on the numbers that was known beforehand; a number outside of it is an error, never clipped.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

Method = Literal["hoeffding", "empirical_bernstein", "betting", "t", "bootstrap"]
METHODS: tuple[Method, ...] = ("hoeffding", "empirical_bernstein", "betting", "t", "bootstrap")
#: Methods that hold for finite samples.
FINITE = ("hoeffding", "empirical_bernstein", "betting")
#: Largest bet, as a share of what would ruin the bettor; and candidates for the mean that are tried.
MOST, CANDIDATES = 0.75, 2000


class Bound(NamedTuple):
    """A lower confidence bound on a mean, and what it rests on."""

    value: float
    method: Method
    delta: float
    n: int
    grade: Literal["finite_sample", "asymptotic"]


def lower_bound(
    z: Float[np.ndarray, " n"],
    *,
    method: Method = "empirical_bernstein",
    delta: float = 0.05,
    interval: tuple[float, float] | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Bound:
    r"""Number below which E Z lies with probability at most `delta`.

    **Arguments:** `z`: independent numbers; `method`: see the top of this file; `interval`: (least, largest) possible value, which finite-sample methods need;
    `resamples`, `seed`: of the bootstrap.

    **Returns:** a `Bound`.

    **Raises:** `ValueError` for fewer than two numbers, numbers that are not finite, a delta outside (0, 1), a missing interval, and numbers outside of it.

    **Example:** `lower_bound(z, method="hoeffding", interval=(-1.0, 1.0)).value`
    """
    z = np.asarray(z, np.float64)
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known; expected one of {', '.join(METHODS)}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r} is not possible; expected a probability between 0 and 1.")
    if z.ndim != 1 or len(z) < 2:
        raise ValueError(f"z has shape {z.shape}; expected at least 2 numbers in a row.")
    if not np.isfinite(z).all():
        raise ValueError(f"z holds {int((~np.isfinite(z)).sum())} numbers that are not finite; expected none.")
    n, mean, spread = len(z), float(z.mean()), float(z.std(ddof=1))
    if method in FINITE:
        low, high = _checked(interval, z, method)
        if method == "hoeffding":
            value = mean - (high - low) * math.sqrt(math.log(1 / delta) / (2 * n))
        elif method == "empirical_bernstein":
            value = mean - spread * math.sqrt(2 * math.log(2 / delta) / n) - 7 * (high - low) * math.log(2 / delta) / (3 * (n - 1))
        else:
            value = low + (high - low) * _betting((z - low) / (high - low), delta) if high > low else mean
        return Bound(max(value, low), method, delta, n, "finite_sample")
    if method == "t":
        return Bound(mean - float(stats.t.ppf(1 - delta, n - 1)) * spread / math.sqrt(n), method, delta, n, "asymptotic")
    return Bound(_bootstrap(z, delta, resamples, np.random.default_rng(seed)), method, delta, n, "asymptotic")


def _checked(interval: tuple[float, float] | None, z: Float[np.ndarray, " n"], method: str) -> tuple[float, float]:
    if interval is None:
        raise ValueError(f"method={method!r} needs interval=(least, largest) of what Z can be; expected two numbers. Or use method='t', which is asymptotic.")
    low, high = interval
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"interval={interval!r} is not possible; expected two finite numbers, the least first.")
    slack = 1e-9 * max(abs(low), abs(high), 1e-300)
    if z.min() < low - slack or z.max() > high + slack:
        raise ValueError(f"z reaches from {z.min():.6g} to {z.max():.6g}, outside of interval=({low:.6g}, {high:.6g}); expected all numbers inside. Widen it.")
    return low, high


def _betting(x: Float[np.ndarray, " n"], delta: float) -> float:
    """For numbers in [0, 1]. Bets follow the mean and variance seen so far (predictable plug-in), so that each is independent of the number it is placed on."""
    n = len(x)
    t = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    bets = np.sqrt(2 * math.log(1 / delta) / (n * before))

    def refuted(m: float) -> bool:
        wealth = np.cumsum(np.log1p(np.minimum(bets, MOST / m) * (x - m)))
        return bool(wealth.max() >= math.log(1 / delta))

    # Wealth against a mean falls as that mean rises: bisect.
    low, high = 0.0, float(np.clip(x.mean(), 1e-12, 1.0))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and refuted(middle) else (low, middle)
    return low


def _bootstrap(z: Float[np.ndarray, " n"], delta: float, resamples: int, rng: np.random.Generator) -> float:
    n, mean, spread = len(z), z.mean(), z.std(ddof=1)
    if spread == 0:
        return float(mean)
    found = []
    for _ in range(0, resamples, 100):  # a hundred at a time: memory
        picks = z[rng.integers(n, size=(100, n))]
        found.append((picks.mean(1) - mean) / np.maximum(picks.std(1, ddof=1) / math.sqrt(n), 1e-300))
    return float(mean - np.quantile(np.concatenate(found), 1 - delta) * spread / math.sqrt(n))


def samples_needed(mean: float, sd: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """How many samples a one-sided test at level alpha needs to see `mean` with this probability: sd^2 (z_alpha + z_beta)^2 / mean^2.

    **Example:** `samples_needed(1.0, 1.5)`
    """
    if mean == 0:
        return math.inf
    return math.ceil((sd * (stats.norm.ppf(1 - alpha) + stats.norm.ppf(power)) / mean) ** 2)
