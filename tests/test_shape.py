"""The best shape for a budget: exact search, exponents of the theory, intervals, the command."""

import json
import math

import numpy as np
import pytest

import hiddenwidth as hw
from hiddenwidth import _record
from hiddenwidth._commands import shape
from hiddenwidth._depth_fit import Estimate
from hiddenwidth._scaling import parameter_count
from hiddenwidth._shape_check import Rival, _rival_claim, rivals

A, B, C, D = 0.225, 0.79, 0.14, 1.1
LAW = hw.ShapeLaw.of(a=A, b=B, c=C, d=D, cosine=0.2)


def square(law, depth, width, dim):
    """The joint law written out once more."""
    a, b, c, d = law.constants
    load = dim / (depth * width)
    return (a / depth) ** 2 + 2 * law.cosine * a / depth * c * load + (c * load) ** 2 + b**2 * load + d**2 / dim


def brute(budget, law, slack, deepest):
    """Every shape that fits: the least error, and the shallowest shape within the slack."""
    every = []
    for dim in range(law.reduced, budget // (2 + law.ends) + 1):
        units = (budget // dim - law.ends) // 2
        every += [(square(law, depth, units // depth, dim), depth, units // depth, dim) for depth in range(1, min(units, deepest) + 1)]
    least = min(every)
    good = [x for x in every if x[0] <= (1 + slack) ** 2 * least[0]]
    depth = min(x[1] for x in good)
    return least[0], min(x for x in good if x[1] == depth)[1:]


@pytest.mark.parametrize("seed", range(24))
def test_search_is_exact(seed):
    rng = np.random.default_rng(seed)
    law = hw.ShapeLaw.of(
        a=rng.uniform(0.05, 3), b=rng.uniform(0.1, 2), c=rng.uniform(0, 2), d=rng.uniform(0.1, 3), cosine=rng.uniform(), ends=int(rng.integers(2, 6))
    )
    budget, slack, deepest = int(rng.integers(20, 900)), float(rng.choice([0.01, 0.05, 0.3])), [10**9, 3, 10][seed % 3]
    best = hw.best_shape(budget, law, slack=slack, max_depth=deepest)
    least, chosen = brute(budget, law, slack, deepest)
    assert math.isclose(best.least.error**2, least, rel_tol=1e-12)
    assert best.chosen[:3] == chosen
    for s in (best.chosen, best.least):
        assert s.parameters == s.dim * (2 * s.depth * s.width + law.ends) <= budget
        assert math.isclose(s.error**2, square(law, *s[:3]), rel_tol=1e-12)


def test_exponents_of_the_theory():
    """L ~ P^(1/6), M ~ P^(1/2), D ~ P^(1/3) and e ~ P^(-1/6) over nine decades, and the constants of the formula."""
    budgets = np.array([1e6, 1e9, 1e12, 1e15])
    found = [hw.best_shape(p, LAW) for p in budgets]
    shapes = np.array([b.chosen[:3] for b in found], float)
    slopes = np.polyfit(np.log(budgets), np.log(shapes), 1)[0]
    np.testing.assert_allclose(slopes, [1 / 6, 1 / 2, 1 / 3], atol=0.01)
    assert abs(np.polyfit(np.log(budgets), np.log([b.chosen.error for b in found]), 1)[0] + 1 / 6) < 0.003
    np.testing.assert_allclose(shapes[-1], found[-1].asymptotic, rtol=0.02)
    dim = (D**2 * 1e15 / (4 * B**2)) ** (1 / 3)
    np.testing.assert_allclose(found[-1].asymptotic, [A / math.sqrt(0.1025 * 1.5 * D**2 / dim), found[-1].asymptotic[1], dim])


def test_least_error_is_all_depth():
    for budget in (1e4, 1e8, 1e12):
        best = hw.best_shape(budget, LAW, slack=0)
        assert best.chosen == best.least
        assert best.chosen.width == 1
        np.testing.assert_allclose(best.chosen.dim, (D**2 * budget / (4 * B**2)) ** (1 / 3), rtol=0.05)


def test_slack_is_kept_and_binding_term_is_named():
    for slack in (0.01, 0.05, 0.5):
        best = hw.best_shape(1e7, LAW, slack=slack)
        assert best.chosen.error <= (1 + slack) * best.least.error
        assert best.chosen.binding == ("limit" if slack < 0.5 else "depth")
        assert math.isclose(sum(best.chosen.shares.values()), 1)
    assert hw.best_shape(1e7, hw.ShapeLaw.of(a=50, b=B, c=0, d=D), max_depth=4).chosen.binding == "depth"
    assert "chosen" in repr(best)
    assert "asymptotic" in repr(best)


def test_interval_of_a_prediction_covers():
    """Constants measured with known errors: the interval around the prediction holds the truth in about 95 %."""
    rng, truth, se = np.random.default_rng(0), np.array([A, B, C, D]), np.array([0.02, 0.03, 0.02, 0.1])
    hits = []
    for _ in range(300):
        a, b, c, d = (Estimate(float(x), float(s), 1.96 * float(s)) for x, s in zip(truth + se * rng.standard_normal(4), se, strict=True))
        low, high = hw.ShapeLaw("hidden", a, b, c, d).interval(8, 64, 64)
        hits.append(low <= hw.ShapeLaw.of(a=A, b=B, c=C, d=D).error(8, 64, 64) <= high)
    assert 0.91 <= np.mean(hits) <= 0.99


def test_next_orders_are_put_back():
    law = hw.ShapeLaw(
        "hidden",
        *(Estimate(x, 0.0, 0.0) for x in (A, B, C, D)),
        0.0,
        2,
        2,
        {"depth": {"1/L": -0.3}, "fluctuation": {"x": 0.5, "w/L": 1.0}, "limit": {"w": 2.0}},
    )
    terms, refined = law.terms(4, 8, 16), law.refined_terms(4, 8, 16)
    assert math.isclose(refined["depth"], terms["depth"] * math.exp(-0.15))
    assert math.isclose(refined["fluctuation"], terms["fluctuation"] * math.exp(0.5 * 16 / 32 + 2 / 16 / 4))
    assert math.isclose(refined["limit"], terms["limit"] * math.exp(2 * 2 / 16))
    assert law.refined(10**6, 10**6, 10**4) == pytest.approx(law.error(10**6, 10**6, 10**4), rel=1e-3)


def test_rivals_fit_the_budget():
    best = hw.best_shape(1e6, LAW)
    found = rivals(best, LAW)
    assert found[0] == Rival("chosen", *best.chosen[:3])
    assert {"all depth", "all width"} <= {r.name for r in found}
    assert len({r[1:] for r in found}) == len(found) >= 8
    assert all(0.9e6 < parameter_count(*r[1:], 2) <= 1e6 for r in found)


def test_verdict_on_a_rival():
    rival = Rival("2L, M/2", 2, 1, 8)
    assert _rival_claim(rival, 0.1, 0.01, 0.05).verdict == "holds"
    assert _rival_claim(rival, -0.02, 0.01, 0.05).verdict == "holds"
    assert _rival_claim(rival, -0.04, 0.01, 0.05).verdict == "undetermined"
    assert _rival_claim(rival, -0.1, 0.01, 0.05).verdict == "fails"
    assert _rival_claim(rival, 0.0, 0.1, 0.05).verdict == "undetermined"
    assert _rival_claim(rival, float("nan"), 0.1, 0.05).verdict == "undetermined"


REFUSED = [
    (lambda: hw.best_shape(5, LAW), "params=5 is not possible; expected at least 8, one unit in D=2 with its embeddings"),
    (lambda: hw.best_shape(float("nan"), LAW), "params=nan is not possible"),
    (lambda: hw.best_shape(1e6, LAW, slack=-0.1), "slack=-0.1 is not possible; expected 0"),
    (lambda: hw.best_shape(1e6, LAW, slack=1e-9), "slack=1e-09 is not possible; expected 0"),
    (lambda: hw.best_shape(1e6, LAW, max_depth=0), "max_depth=0 is not possible"),
    (lambda: hw.best_shape(1e6, hw.ShapeLaw.of(a=A, b=B, c=C, d=D, observable="output")), "law is that of 'output'; expected the law of 'hidden'"),
    (lambda: hw.ShapeLaw.of(a=0, b=B, c=C, d=D), "the law of hidden has no depth constant"),
    (lambda: hw.ShapeLaw.of(a=A, b=B, c=C, d=D, observable="loss"), "observable='loss' is unknown; expected 'hidden' or 'output'"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(action, message):
    with pytest.raises(ValueError, match=message):
        action()


@pytest.fixture(scope="module")
def law_record(tmp_path_factory):
    """A record of `hiddenwidth dimension` as far as `--law` reads it, written by hand."""
    import xarray as xr

    from hiddenwidth._claims import claim

    out = tmp_path_factory.mktemp("law")
    values = {"hidden": (A, B, C, D), "output": (0.1, 0.13, 0.12, 0.19)}
    terms = ("depth", "fluctuation", "bias", "limit")
    claims = [claim(f"{o}.{t}.constant", x, 0.01 * x, 0.02 * x, source="test") for o, row in values.items() for t, x in zip(terms, row, strict=True)]
    extra = {"goodness": {f"{o}.law": {"cosine": 0.1, "ends": 2, "reduced": 2, "orders": {}} for o in values}}
    config = {"problem": "sine", "steps": 2, "learning_rate": 1.0, "activation": "tanh", "seed": 0}
    _record.write(out, "dimension", xr.Dataset(), claims, reference={"step": 2}, diverged=0, config=config, dtype="float32", wall_s=0.0, **extra)
    return out


def test_command_with_a_recorded_law(law_record, tmp_path):
    config = shape.ShapeConfig(params=2e3, law=law_record, seeds=8, quick=True, progress=False, out=tmp_path / "run")
    outcome = shape.run(config)
    assert outcome.status == 0, outcome.text
    for word in ("chosen", "least error", "asymptotic", "all depth", "all width", "hidden.rival[all width].over_chosen"):
        assert word in outcome.text
    info, data = _record.read(tmp_path / "run", "shape")
    chosen = info["shape"]["chosen"]
    assert chosen["parameters"] <= 2000
    assert next(r["name"] for r in info["checked"]) == "chosen"
    assert data.error.sel(observable="hidden").notnull().all()
    picture = (tmp_path / "run" / "shape.png").read_bytes()
    (tmp_path / "run" / "shape.png").unlink()
    shape.draw(tmp_path / "run")
    assert (tmp_path / "run" / "shape.png").read_bytes() == picture
    with pytest.raises(ValueError, match="exists and is not empty; nothing is overwritten unasked"):
        shape.run(config)


@pytest.mark.parametrize(("change", "words"), [({"check": False}, "Not checked on networks (--no-check)"), ({}, "more than --max-check-params 1e+06")])
def test_large_budgets_are_not_trained(law_record, tmp_path, change, words):
    config = shape.ShapeConfig(params=1e12, max_check_params=1e6, law=law_record, quick=True, progress=False, out=tmp_path / "run", **change)
    outcome = shape.run(config)
    assert outcome.status == 0
    assert words in outcome.text
    assert json.loads((tmp_path / "run" / "shape.json").read_text())["checked"] == []
    assert (tmp_path / "run" / "shape.png").exists()


def test_unfinished_or_foreign_law_is_refused(law_record, tmp_path):
    with pytest.raises(ValueError, match="holds no record of `hiddenwidth dimension`"):
        shape.run(shape.ShapeConfig(law=tmp_path, out=tmp_path / "run"))
    info = json.loads((law_record / "dimension.json").read_text())
    (tmp_path / "dimension.json").write_text(json.dumps(info | {"claims": []}))
    (tmp_path / "dimension.nc").write_bytes((law_record / "dimension.nc").read_bytes())
    with pytest.raises(ValueError, match="is the record of a run that was not finished"):
        shape.run(shape.ShapeConfig(law=tmp_path, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


BAD = [
    ({"params": 3.0}, "params=3.0 is not possible; expected at least 8"),
    ({"slack": -1.0}, "slack=-1.0 is not possible"),
    ({"max_depth": 0}, "max_depth=0 is not possible"),
    ({"seeds": 2}, "seeds=2 is too few for an interval"),
    ({"seed": -1}, "seed=-1 is not possible"),
    ({"max_check_params": 0.0}, "max_check_params=0.0 is not possible"),
    ({"steps": 0}, "steps=0 is not possible"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[next(iter(c)) for c, _ in BAD])
def test_command_refuses(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        shape.run(shape.ShapeConfig(**change, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
