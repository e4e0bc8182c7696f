"""The lazy law: estimators on planted laws, the pipeline end to end, its command."""

import math

import jax
import numpy as np
import pytest
import xarray as xr

import hiddenwidth as hw
from hiddenwidth import _record
from hiddenwidth._commands import lazy as command
from hiddenwidth._law_fit import Grid, fit_law, variance_of_variance
from hiddenwidth._lazy_fit import fluctuation_law
from hiddenwidth._lazy_optimum import best_alpha, optimum_claims
from hiddenwidth._statistics import cell_statistics, seed_counts

ERF = hw.TwoLayer("erf")
DRAWS = 150


@pytest.fixture(scope="module")
def measured():
    """Data, points and steps of the command's test: what both need is compiled once."""
    problem = hw.problems.sine(8, dim=4, key=jax.random.key(0), embedding="orthogonal")
    alphas = [*(2 ** (i / 2) for i in range(-4, 5)), 8.0, 16.0]
    shapes = [(8, 128), (32, 32), (32, 128)]
    reference = hw.lazy_reference(
        problem, ERF, hw.mlu(), alphas=[*alphas, 32.0], depths=[8, 16, 32, 64], steps=3,
        quadrature=hw.Sobol(8, 3, symmetric=True), depth_quadrature=hw.Sobol(6, 3, symmetric=True),
    )  # fmt: skip
    runs = hw.lazy_sweep(problem, ERF, hw.mlu(), alphas=alphas, shapes=shapes, seeds=[64, 64, 48], steps=3, key=jax.random.key(1))
    return problem, reference, runs


def test_lazy_law_end_to_end(measured):
    _, reference, runs = measured
    fit = hw.fit_lazy(runs, reference, bootstrap=200)
    assert fit["hidden.tangent.exponent"].verdict == "holds"
    assert abs(fit["hidden.tangent.exponent"].value + 2) < 0.02
    for name in ("exponent_alpha", "exponent_width"):
        c = fit[f"hidden.fluctuation.{name}"]
        assert abs(c.value - c.theory) <= 1.5 * (c.ci95[1] - c.ci95[0]) / 2, c  # 3 standard errors: a test, not a verdict
    # the three terms, measured apart, add up to the whole error wherever alpha^2 D/(LM) is small
    data = fit.data.sel(observable="hidden")
    small = (data.alpha**2 * 4 / (data.depth * data.width) < 0.3).transpose("shape", "alpha")
    ratio = (data.fitted_error2 / data.error2).where(small)
    z = ((data.fitted_error2 - data.error2) / data.error2_se).where(small)
    assert float(np.sqrt((ratio - 1) ** 2).mean()) < 0.1
    assert float(np.abs(z).median()) < 1.5
    assert fit["hidden.optimum.exponent"].value > 0.05
    assert fit["hidden.linearisation.distance_ratio[alpha=32]"].verdict == "holds"
    with pytest.raises(KeyError, match=r"no claim 'x'; the claims are hidden\.tangent"):
        fit["x"]


def test_members_do_not_depend_on_the_grid(measured):
    problem, _, runs = measured
    alone = hw.lazy_sweep(problem, ERF, hw.mlu(), alphas=[4.0], shapes=[(32, 32)], seeds=[3], steps=3, key=jax.random.key(1))
    np.testing.assert_allclose(alone.hidden.values[0, 0], runs.hidden.values[1, 8, :3], atol=1e-5)
    assert np.isnan(runs.hidden.values[2, :, 48:]).all()


@pytest.mark.parametrize("order", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_fluctuation_exponents_cover(order):
    """Members drawn from b^2 alpha^2 D/(LM) with corrections of both orders, large shapes with few seeds as in the command: 95 % intervals cover 95 %.

    A cell weighs what its own seeds say: were all weighted alike, chi-square would reject this true law and the fit would drop most of the grid.
    """
    alphas = np.geomspace(2, 32, 9)
    shapes = [(16, 128), (32, 64), (128, 16), (32, 512), (256, 64), (128, 1024)]
    depth, width = (np.repeat([s[i] for s in shapes], len(alphas)).astype(float) for i in (0, 1))
    alpha = np.tile(alphas, len(shapes))
    seeds = [number for number in (48, 48, 48, 16, 16, 8) for _ in alphas]
    grid = Grid(depth, width, 4.0)
    spread = alpha**2 * 4 / (depth * width)
    names = ("exponent_alpha", "exponent_depth", "exponent_width")
    hits, rejected = dict.fromkeys(names, 0), 0
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        small = alpha**-order
        logs = rng.normal(0, 1) * small + rng.normal(0, 0.5) * spread + rng.normal(0, 2) / depth
        logs = logs + rng.normal(0, 4) * small**2 * 0.25 + rng.normal(0, 0.25) * spread**2 + rng.normal(0, 4) / depth**2
        variance = 0.3 * alpha**2 * 4 / (depth * width) * np.exp(logs)
        cells = []
        for v, number in zip(variance, seeds, strict=True):
            x = np.sqrt(v / 8) * rng.standard_normal((number, 8))
            cells.append(cell_statistics(x, x, np.zeros(8), 0.0, np.zeros((100, 8)), seed_counts(number, 100, rng)))
        values = np.array([c.variance for c in cells])
        draws = np.stack([c.variance_draws for c in cells], 1)
        fit = fit_law(fluctuation_law(grid, alpha, order, 4.0), grid, values, draws, variance_of_variance(cells), rng)
        rejected += not fit.used[spread <= 0.5].all()
        for name, theory in zip(names, (1.0, -0.5, -0.5), strict=True):
            e = fit.exponents[name]
            hits[name] += abs(e.value - theory) <= e.half_width
    share = {k: v / DRAWS for k, v in hits.items()}
    assert all(0.91 <= s <= 0.99 for s in share.values()), share
    assert rejected <= 0.06 * DRAWS  # at 1 %, with small numbers of seeds that are not quite normal


def test_best_alpha_is_found_and_its_interval_covers():
    """Planted error A^2/alpha^4 + B alpha^2 with noise: the minimum within its interval in about 95 % of the draws."""
    alphas = np.geomspace(0.5, 32, 13)
    product = np.array([2048.0, 16384.0, 131072.0])
    truth = 0.034**2 / alphas**4 + 0.3 * alphas**2 * 4 / product[:, None]
    hits, slopes = [], []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        noisy = truth * np.exp(0.08 * rng.standard_normal(truth.shape))
        draws = noisy * np.exp(0.08 * rng.standard_normal((200, *truth.shape)))
        shape = {"depth": ("shape", [32, 64, 128]), "width": ("shape", [64, 256, 1024])}
        runs = xr.Dataset(coords={"alpha": alphas, **shape}, attrs={"dim": 4})
        claims = optimum_claims("hidden", runs, noisy, draws, truth)
        hits += [c.ci95[0] <= c.theory <= c.ci95[1] for c in claims if "alpha[" in c.name]
        slopes.append(next(c for c in claims if c.name == "hidden.optimum.exponent"))
    assert 0.92 <= np.mean(hits) <= 0.98
    assert 0.9 <= np.mean([c.ci95[0] <= 1 / 6 <= c.ci95[1] for c in slopes]) <= 0.99
    exact = best_alpha(alphas, truth[1], np.abs(np.log2(alphas / 2)) <= 1.0)
    assert float(exact) == pytest.approx((2 * 0.034**2 / (0.3 * 4 / product[1])) ** (1 / 6), rel=0.005)


def test_optimum_at_the_end_of_the_range_is_no_optimum():
    alphas = np.geomspace(2, 64, 11)
    truth = 1e-6 / alphas**4 + 0.3 * alphas**2 * 4 / 2048.0
    runs = xr.Dataset(coords={"alpha": alphas, "depth": ("shape", [32]), "width": ("shape", [64])}, attrs={"dim": 4})
    claims = optimum_claims("hidden", runs, truth[None], np.tile(truth, (50, 1, 1)), truth[None])
    assert all(c.verdict == "undetermined" for c in claims)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, ref, runs: (runs.assign_coords(seeds=("shape", [4, 64, 48])), ref), "seeds=4 is too few for an interval; expected at least 8"),
        (lambda p, ref, runs: (runs.assign_coords(alpha=runs.alpha * 3), ref), r"reference lacks alphas \[.*\] and depths \[\]"),
        (lambda p, ref, runs: (runs.assign_attrs(steps=9), ref), "runs end at step 9 and reference at 3"),
        (lambda p, ref, runs: (runs.assign_attrs(problem_digest="x"), ref), "different problems"),
    ],
)
def test_mismatched_parts_are_refused(change, message, measured):
    problem, reference, runs = measured
    runs, reference = change(problem, reference, runs)
    with pytest.raises(ValueError, match=message):
        hw.fit_lazy(runs, reference)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": ("64by3",)}, "shapes='64by3' is not possible; expected DEPTHxWIDTH"),
        ({"shapes": ("8x8", "8x8")}, "names a shape twice"),
        ({"shapes": ()}, r"shapes=\(\) is empty"),
        ({"shapes": ("8x8",), "seeds": (8, 8)}, "gives 2 numbers for 1 shapes; expected one, or one for each"),
        ({"seeds": (3,)}, "seeds=3 is too few for an interval"),
        ({"alphas": (-1.0,)}, "alphas=-1.0 is not possible"),
        ({"alphas": ()}, r"alphas=\(\) is empty"),
        ({"steps": 0}, "steps=0 is not possible"),
        ({"memory": 1e3}, "memory=1e-06 GB|memory=5e-07 GB"),
    ],
)
def test_command_explains_bad_input(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        command.run(command.LazyConfig(out=tmp_path / "run", progress=False, **options))
    assert not (tmp_path / "run").exists()


def test_command_writes_a_record_that_draws_itself(tmp_path):
    out = tmp_path / "run"
    config = command.LazyConfig(out=out, progress=False, quick=True, steps=3, shapes=("8x16", "16x16"), seeds=(8,), alphas=(0.5, 1.0, 2.0, 4.0, 8.0), seed=3)
    outcome = command.run(config)
    assert outcome.status == 0, outcome.text
    record = _record.read(out, "lazy")
    names = {c["name"] for c in record.info["claims"]}
    assert {"hidden.tangent.exponent", "hidden.tangent[softplus, skewed law].exponent", "hidden.fluctuation.exponent_alpha"} <= names
    assert record.info["config"]["seed"] == 3
    assert record.data.hidden.shape[:3] == (2, 5, 8)
    (out / "lazy.png").unlink()
    command.draw(out)
    assert (out / "lazy.png").stat().st_size > 20_000
    contrast = next(c for c in record.info["claims"] if c["name"] == "hidden.tangent[softplus, skewed law].exponent")
    assert contrast["theory"] == -1.0
    assert math.isfinite(contrast["value"])
