"""Sharpness against a dense Jacobian, the horizon of a limit that loses its stability, and that nothing is claimed across it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import hiddenwidth as hw
from hiddenwidth import _record
from hiddenwidth._claims import claim
from hiddenwidth._commands import horizon as command, rates
from hiddenwidth._limit.infinite_width import depth_errors
from hiddenwidth._limit.integrate import standard_points
from hiddenwidth._limit.reduction import reduced
from hiddenwidth._limit.stability import GAIN
from hiddenwidth._over_steps import claims_over_steps, dataset_over_steps, growth, jointly
from hiddenwidth._train import backward, forward

TANH = hw.TwoLayer("tanh")


def test_sharpness_and_amplification_against_a_dense_jacobian():
    """All entries of the Jacobian of a step, eigenvalues and products by numpy."""
    problem = hw.problems.sine(4, dim=math.inf)
    scaling, rule, depth, steps = hw.mlu(0.8), hw.Sobol(3, 1, symmetric=True), 2, 3
    seen = hw.stability(problem, TANH, scaling, steps=steps, depth=depth, quadrature=rule, directions=400, key=jax.random.key(0))
    where = reduced(problem, TANH, scaling)
    with jax.enable_x64(True):
        z, weights = jax.tree.map(jnp.asarray, standard_points(where, rule, 0))
        z = jax.tree.map(lambda x: jnp.broadcast_to(x, (depth, *x.shape)), z)
        flat, unravel = jax.flatten_util.ravel_pytree(z)
        space = where.space.astype(jnp.float64)

        @jax.jit
        def step(flat):
            now, saved = forward(TANH_HERE, scaling, unravel(flat), weights, space)
            return jax.flatten_util.ravel_pytree(backward(TANH_HERE, scaling, unravel(flat), weights, space, now, saved)[0])[0]

        TANH_HERE = where.unit
        jacobian_of, product = jax.jit(jax.jacfwd(step)), np.eye(len(flat))
        for k in range(steps + 1):
            jacobian = np.asarray(jacobian_of(flat))
            eigenvalues = np.linalg.eigvals(np.eye(len(flat)) - jacobian)
            assert np.abs(eigenvalues.imag).max() < 1e-9  # a Hessian in the geometry of the step
            assert seen.sharpness.values[k] == pytest.approx(eigenvalues.real.max(), rel=2e-3)
            expected = math.sqrt(np.sum(product**2) / len(flat))  # rms over random directions
            assert abs(seen.amplification.values[k] - expected) < 5 * seen.amplification_se.values[k] + 1e-12
            product = jacobian @ product
            flat = step(flat)


def test_sharpness_does_not_depend_on_the_key():
    """At initialisation eigenvalues come in pairs of nearly opposite sign, which plain power iteration mixes."""
    problem = hw.problems.sine(8, dim=math.inf)
    seen = [hw.stability(problem, TANH, hw.mlu(4.0), steps=2, key=jax.random.key(i)).sharpness.values for i in range(3)]
    np.testing.assert_allclose(seen[1:], [seen[0]] * 2, rtol=1e-3)
    assert seen[0][0] > 2


@pytest.fixture(scope="module")
def limits():
    problem = hw.problems.sine(8, dim=math.inf)
    return {eta: hw.mean_ode(problem, TANH, hw.mlu(eta), steps=64, quadrature=hw.Sobol(8, 2), budget=False) for eta in (0.5, 1.0)}


def test_horizon_of_the_sine_problem(limits):
    """At eta = 1 stability is lost at about step 41 to 48, at eta = 0.5 not within 64 steps; the sharpness crosses 2/eta before."""
    stable, unstable = (hw.horizon(limits[eta]) for eta in (0.5, 1.0))
    assert (stable.step, stable.cause, stable.overshoots_from) == (64, "", -1)
    assert "no loss of stability up to step 64" in str(stable)
    assert 38 <= unstable.step <= 48
    assert 30 <= unstable.overshoots_from < unstable.step
    assert f"grown more than {GAIN:g} times" in str(unstable)
    seen = hw.stability(limits[1.0].problem, TANH, hw.mlu(), steps=60, key=jax.random.key(0))
    assert seen.sharpness.values[: unstable.overshoots_from].max() < 2
    assert seen.gain.values[unstable.step] <= GAIN < seen.gain.values[unstable.step + 1]
    # two trajectories that differ in rounding-sized quadrature errors agree before the horizon and not beyond it
    one, two = limits[1.0].output_replicates(unstable.step), limits[1.0].output_replicates(64)
    assert np.abs(two[0] - two[1]).max() > 10 * np.abs(one[0] - one[1]).max()


def test_horizon_of_a_tangent_ode():
    problem = hw.problems.sine(6, dim=math.inf)
    assert hw.horizon(hw.tangent_ode(problem, TANH, hw.mlu(), steps=6, budget=False)).cause == ""
    fast = hw.tangent_ode(problem, TANH, hw.mlu(12.0), steps=6, budget=False)
    seen = hw.horizon(fast)
    assert seen.step < 6
    assert 0 <= seen.overshoots_from <= seen.step + 1


def test_linearised_network_has_no_horizon():
    with pytest.raises(ValueError, match="the linearised network has no horizon: it is linear"):
        hw.horizon(hw.linearised_ode(hw.problems.sine(4, dim=math.inf), TANH, hw.mlu(), steps=2))


def test_rising_loss_ends_the_horizon():
    """A rate so large that the loss rises at once: horizon 0."""
    problem = hw.problems.sine(6, dim=math.inf)
    limit = hw.mean_ode(problem, TANH, hw.mlu(25.0), steps=2, quadrature=hw.Sobol(7, 2), budget=False)
    assert limit.loss(1) > limit.loss(0)
    assert hw.horizon(limit).step == 0


def test_nothing_is_claimed_beyond_the_horizon():
    problem = hw.problems.sine(4, dim=4, key=jax.random.key(0))
    rule = hw.Sobol(6, 2)
    limit = hw.mean_ode(problem, TANH, hw.mlu(), steps=4, quadrature=rule, budget=False)
    runs = hw.sweep(problem, TANH, hw.mlu(), depths=[8, 16, 32], widths=[1, 2], seeds=16, steps=4, hidden_steps=(2, 4), key=jax.random.key(1))
    depth = depth_errors(problem, TANH, hw.mlu(), depths=(8, 16, 32, 64), at=(2, 4), quadrature=rule)
    reach = hw.Horizon(3, 4, "a test", 2)
    by_step = claims_over_steps(runs, limit, depth, reach, bootstrap=50)
    assert all(c.verdict == "undetermined" and c.why.startswith("step 4 is beyond the stability horizon at step 3: a test") for c in by_step[4])
    assert any(c.verdict != "undetermined" or "beyond" not in c.why for c in by_step[2])
    data = dataset_over_steps(by_step, reach)
    assert (data.verdict.sel(step=4) == 3).all()
    assert (data.verdict.sel(step=2) < 3).all()
    with pytest.raises(ValueError, match=r"step=3 was not recorded; runs hold hidden states at steps \[2, 4\]"):
        hw.fit_rates(runs, limit, depth[2], step=3)


def test_all_steps_together():
    """The step furthest from theory decides, in an interval wider by z(1 - 0.025/m)/z(0.975)."""
    reach = hw.Horizon(32, 64, "", -1)

    def rows(*values, half=0.02):
        named = ("hidden.fluctuation.exponent_depth", "hidden.fluctuation.constant")
        return {k: [claim(n, v, 0.01, half, theory=-0.5, max_width=0.1, source="") for n in named] for k, v in zip((8, 16, 32, 64), values, strict=True)}

    (found,) = jointly(rows(-0.49, -0.523, -0.5, 3.0), reach)
    assert found.name == "hidden.fluctuation.exponent_depth[all 3 steps to 32]"
    assert (found.value, found.verdict) == (-0.523, "holds")  # outside of its own interval, inside of the joint one
    assert found.ci95[1] - found.ci95[0] == pytest.approx(0.04 * 2.3939797998 / 1.9599639845)
    (found,) = jointly(rows(-0.49, -0.526, -0.5, -0.5), reach)
    assert (found.verdict, found.why) == ("fails", "theory's -0.5 is outside the joint interval at k = 16")
    (found,) = jointly(rows(-0.49, -0.5, -0.5, -0.5, half=0.06), reach)
    assert (found.verdict, found.why) == ("undetermined", "so by itself at k = 8, 16, 32")


def test_joint_level_is_kept():
    """Twelve independent exponents with Gaussian errors: some step is outside of its joint interval in 5 % of draws."""
    rng = np.random.default_rng(0)
    reach, steps = hw.Horizon(64, 64, "", -1), range(1, 13)
    fails = 0
    for errors in rng.standard_normal((2000, 12)):
        rows = {k: [claim("hidden.limit.exponent", -0.5 + e, 1.0, 1.9599639845, theory=-0.5, source="")] for k, e in zip(steps, errors, strict=True)}
        fails += jointly(rows, reach)[0].verdict == "fails"
    assert 0.035 <= fails / 2000 <= 0.065


@pytest.mark.parametrize(("kind", "law"), [("power", lambda k: 0.5 * k**0.25), ("exponential", lambda k: 0.5 * np.exp(0.02 * k))])
def test_growth_law_is_recognised(kind, law):
    steps = np.array([1, 2, 4, 8, 16, 32, 48, 64])
    rows = {int(k): [claim("hidden.fluctuation.constant", float(law(k)), 0.01, 0.02, source="")] for k in steps}
    found = growth(dataset_over_steps(rows, hw.Horizon(64, 64, "", -1)), "hidden.fluctuation.constant", 64)
    assert found is not None
    assert found.kind == kind
    assert found.rate == pytest.approx(0.25 if kind == "power" else 0.02, rel=1e-6)
    assert found.residual < 0.2 * found.residual_other
    short = xr.Dataset({"value": (("claim", "step"), np.ones((1, 3)))}, coords={"claim": ["x"], "step": [4, 8, 16]})
    assert growth(short, "x", 16) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": ()}, r"learning_rates=\(\) is not possible; expected at least one, each once"),
        ({"learning_rates": (1.0, 1.0)}, "expected at least one, each once"),
        ({"learning_rates": (-1.0,)}, "learning_rates=-1.0 is not possible"),
        ({"dims": (16, 32)}, r"dims=\(16, 32\) is too few for an exponent; expected at least 3"),
        ({"seeds": (4,)}, "seeds=4 is too few for an interval"),
        ({"seeds": (16, 16, 16, 16)}, "does not go with widths=.*; expected one number, or one for each width"),
        ({"depths": ()}, r"depths=\(\) is empty"),
        ({"steps": 0}, "steps=0 is not possible"),
        ({"law": "skewed"}, "law='skewed' has no limit at D = infinity"),
        ({"dims": (1, 16, 64)}, "dims=1 is too small for these data; expected at least 2"),
        ({"memory": -1.0}, "memory=-1.0 is not possible"),
    ],
)
def test_command_explains_bad_input(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        command.run(command.HorizonConfig(out=tmp_path / "run", progress=False, **options))
    assert not (tmp_path / "run").exists()


def test_command_writes_a_record_that_draws_itself(tmp_path):
    out = tmp_path / "run"
    config = command.HorizonConfig(
        out=out, progress=False, quick=True, steps=4, dim=4, learning_rates=(0.5, 1.0), depths=(8, 16, 32), widths=(1, 2), seeds=(20, 16), dims=(16, 64, 256)
    )
    outcome = command.run(config)
    assert outcome.status == 0, outcome.text
    assert "eta = 0.5: no loss of stability up to step 4" in outcome.text
    record = _record.read(out, "horizon")
    names = {c["name"] for c in record.info["claims"]}
    assert {"eta=0.5.hidden.fluctuation.exponent_width[k=4]", "eta=1.output.limit.exponent[k=1]"} <= names
    assert record.data.sharpness.sizes == {"learning_rate": 2, "every_step": 5}
    (out / "horizon.png").unlink()
    command.draw(out)
    assert (out / "horizon.png").stat().st_size > 20_000


def test_rates_fits_at_the_horizon_and_says_so(tmp_path):
    """A rate at which stability is lost after a few steps."""
    config = rates.RatesConfig(out=tmp_path / "run", progress=False, quick=True, dim=4, steps=16, learning_rate=3.0, depths=(8, 16), widths=(2, 4), seeds=16)
    outcome = rates.run(config)
    assert outcome.status == 0, outcome.text
    record = _record.read(tmp_path / "run", "rates")
    reach = record.info["horizon"]
    assert 5 < reach["step"] < 16
    assert record.data.sizes["step"] == reach["step"] + 1
    assert f"the law is fitted at step {reach['step']}, not 16" in outcome.text
