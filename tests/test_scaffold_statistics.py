"""Levels and coverage of the statistics of signals, under heavy scales from sample to sample."""

import math

import numpy as np
import pytest
from scipy import stats

from scaffold._crossfit import cross_fit_steepest
from scaffold._mean_bounds import lower_bound, samples_needed
from scaffold._regime import decide, deepest_network, samples_to_decide, shared_level, threshold
from scaffold._signal import mcdiarmid_upper, measure_signal

DRAWS = 400


def heavy(rng, n, d, m, signal=0.0):
    """Gradients whose sizes differ a hundredfold, symmetric about `signal` along one entry of G a^T."""
    scale = np.exp(rng.standard_normal((n, 1)))
    g, a = scale * rng.standard_normal((n, d)), rng.standard_normal((n, m))
    g[:, 0] += signal * a[:, 0]
    return g, a


def test_sign_flips_hold_their_level():
    p = np.array([measure_signal(*heavy(np.random.default_rng(s), 40, 3, 2), flips=199, seed=s).p_value for s in range(DRAWS)])
    rejected = int((p <= 0.05).sum())
    assert stats.binomtest(rejected, DRAWS, 0.05).pvalue > 0.001, rejected
    assert stats.binomtest(int((p <= 0.5).sum()), DRAWS, 0.5).pvalue > 0.001


@pytest.mark.slow
def test_sign_flips_hold_their_level_over_2000_draws():
    p = np.array([measure_signal(*heavy(np.random.default_rng(s), 60, 4, 3), seed=s).p_value for s in range(2000)])
    assert 0.035 <= np.mean(p <= 0.05) <= 0.065


def test_squared_signal_is_unbiased_and_its_bounds_cover():
    squared, upper, lower = [], [], []
    for s in range(DRAWS):
        g, a = heavy(np.random.default_rng(s), 80, 3, 2, signal=0.5)
        found = measure_signal(g, a, flips=9)
        squared.append(found.squared)
        upper.append(found.upper)
        lower.append(cross_fit_steepest(g, a, seed=s).lower)
    squared = np.array(squared)
    assert abs(squared.mean() - 0.25) < 4 * squared.std() / math.sqrt(DRAWS)
    assert np.mean(np.array(upper) >= 0.5) > 0.9
    assert np.mean(np.array(lower) <= 0.5) > 0.93


def test_cross_fitting_holds_its_level_without_a_signal():
    """A naive standard error would reject about three times as often as it says."""
    rejected = sum(cross_fit_steepest(*heavy(np.random.default_rng(s), 60, 3, 2), seed=s).lower > 0 for s in range(DRAWS))
    assert rejected <= stats.binom.ppf(0.999, DRAWS, 0.065), rejected


def test_gram_and_vectors_give_the_same_statistics(monkeypatch):
    from scaffold import _signal

    g, a = heavy(np.random.default_rng(0), 50, 4, 3, signal=0.3)
    one = measure_signal(g, a, flips=99)
    monkeypatch.setattr(_signal, "_from_vectors", _signal._from_gram)
    assert np.allclose(one, measure_signal(g, a, flips=99), rtol=1e-10, equal_nan=True)


@pytest.mark.parametrize("method", ["hoeffding", "empirical_bernstein", "betting", "t", "bootstrap"])
def test_lower_bounds_cover(method):
    """Skewed numbers in [0, 1]: finite-sample bounds err at most at their level, the t and bootstrap ones nearly."""
    wrong = 0
    for s in range(200):
        z = np.random.default_rng(s).beta(0.5, 2.0, 80)
        wrong += lower_bound(z, method=method, interval=(0.0, 1.0), resamples=400, seed=s).value > 0.2
    assert wrong <= stats.binom.ppf(0.999, 200, 0.05 if method in ("hoeffding", "empirical_bernstein", "betting") else 0.065), wrong


def test_lower_bounds_by_hand():
    z = np.array([0.2, 0.4, 0.6, 0.8] * 25)
    sd, log = z.std(ddof=1), math.log(2 / 0.05)
    assert lower_bound(z, method="hoeffding", interval=(0.0, 1.0)).value == pytest.approx(0.5 - math.sqrt(math.log(20) / 200), abs=1e-12)
    assert lower_bound(z, interval=(0.0, 1.0)).value == pytest.approx(0.5 - sd * math.sqrt(2 * log / 100) - 7 * log / 297, abs=1e-12)
    assert samples_needed(1.0, 1.5) == math.ceil((1.5 * (1.6448536269514722 + 0.8416212335729143)) ** 2)
    assert mcdiarmid_upper(0.1, 1.0, 10_000, 0.05) == pytest.approx(0.1 + 0.01 * (1 + math.sqrt(2 * math.log(20))))


def test_three_verdicts():
    eta = threshold(0.01, 2.0)
    assert eta == pytest.approx(0.2)
    made = {name: decide(lower=low, upper=high, eta=eta, family="linear", needed=7.0) for name, low, high in
            (("a", 0.3, 0.4), ("b", 0.1, 0.4), ("c", 0.0, 0.1), ("d", 0.0, 0.4))}  # fmt: skip
    assert [r.verdict for r in made.values()] == ["improvable_material", "improvable", "deepest", "undetermined"]
    assert made["d"].needed == 7.0
    assert deepest_network(made) == "improvable_material"
    assert deepest_network({"c": made["c"]}) == "deepest"
    assert deepest_network({"c": made["c"], "d": made["d"]}) == "undetermined"
    assert shared_level(0.05, 10) == pytest.approx(0.005)


@pytest.mark.parametrize(("strength", "verdict"), [(0.0, "deepest"), (0.3, "improvable")])
def test_samples_to_decide_do_decide(strength, verdict):
    """With as many samples as were asked for, about 80 % of draws decide; with a third of them few do."""
    eta, delta = 0.25, 0.025

    def draw(n, rng):
        g = rng.standard_normal((n, 3))
        g[:, 0] -= strength
        return g, np.ones((n, 1))

    large = measure_signal(*draw(200_000, np.random.default_rng(0)), delta=delta, flips=9)
    needed = int(samples_to_decide(large, eta, delta=delta))
    shares = []
    for n in (needed // 3, needed):
        decided = 0
        for seed in range(200):
            g, a = draw(n, np.random.default_rng(seed))
            upper, lower = measure_signal(g, a, delta=delta, flips=9).upper, cross_fit_steepest(g, a, delta=delta).lower
            decided += (upper < eta) if verdict == "deepest" else (lower > 0)
        shares.append(decided / 200)
    assert 0.7 <= shares[1] <= 0.95
    assert shares[0] < shares[1] - 0.25


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure_signal(np.ones((1, 2)), np.ones((1, 2))), "too few for a standard error"),
        (lambda: measure_signal(np.ones((4, 2)), np.ones((5, 2))), "expected the same samples and positions"),
        (lambda: measure_signal(np.full((4, 2), np.nan), np.ones((4, 2))), "not finite"),
        (lambda: measure_signal(np.ones((4, 2)), np.ones((4, 2)), delta=1.0), "delta=1.0"),
        (lambda: lower_bound(np.array([0.1, 2.0]), interval=(0.0, 1.0)), "outside of interval"),
        (lambda: lower_bound(np.array([0.1, 0.2])), "needs interval="),
        (lambda: threshold(0.0, 1.0), "gain=0.0"),
        (lambda: decide(lower=0.0, upper=1.0, eta=0.0, family="linear"), "declared before looking"),
        (lambda: decide(lower=1.0, upper=0.5, eta=0.1, family="linear"), "bounds of one signal"),
        (lambda: deepest_network({}), "no sites were given"),
        (lambda: shared_level(0.05, 0), "comparisons=0"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
