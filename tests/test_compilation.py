"""What compiles, and how often: once for every shape, whatever the numbers."""

import math
import os
import subprocess
import sys

import jax
import pytest

import hiddenwidth as hw
from hiddenwidth._compile_cache import default_folder

SEEN: list[str] = []


@pytest.fixture(scope="module")
def compiled():
    """The programs compiled since the last call."""
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: SEEN.append(event))

    def count() -> int:
        number = SEEN.count("/jax/core/compile/backend_compile_duration")
        SEEN.clear()
        return number

    return count


def train(rate, seed, alpha=1.0):
    problem = hw.problems.sine(4, dim=7, key=jax.random.key(seed))
    scaling = hw.lazy(alpha, learning_rate_u=rate, learning_rate_v=2 * rate)
    return hw.ensemble(problem, hw.TwoLayer("tanh"), scaling, depth=3, width=2, seeds=3, steps=2, key=jax.random.key(seed))


def solve(rate, tolerance, integrator):
    problem = hw.problems.sine(7, dim=math.inf)
    return hw.mean_ode(problem, hw.TwoLayer("tanh"), hw.mlu(rate), steps=2, quadrature=hw.Sobol(5, 2), tolerance=tolerance, integrator=integrator, budget=False)


@pytest.mark.parametrize(
    ("call", "first", "again"),
    [
        pytest.param(train, (0.3, 0), (0.7, 1, 2.5), id="ensemble: rates, alpha, data, key"),
        pytest.param(solve, (0.3, 1e-6, "diffrax"), (0.7, 1e-8, "diffrax"), id="mean_ode by diffrax: rate, tolerance"),
        pytest.param(solve, (0.3, 1e-6, "collocation"), (0.7, 1e-8, "collocation"), id="mean_ode by collocation: rate, tolerance"),
    ],
)
def test_another_call_with_other_numbers_compiles_nothing(compiled, call, first, again):
    compiled()
    call(*first)
    assert compiled() > 0  # the counter counts
    call(*again)
    assert compiled() == 0


def test_a_sweep_compiles_once_for_every_width_and_a_second_one_not_at_all(compiled):
    def sweep(rate):
        problem = hw.problems.sine(4, dim=9, key=jax.random.key(0))
        hw.sweep(problem, hw.TwoLayer("tanh"), hw.mlu(rate), depths=[2, 3], widths=[2, 3], seeds=3, steps=2, alphas=[1.0, 2.0, 4.0], key=jax.random.key(1))

    compiled()
    sweep(0.2)
    first = compiled()
    sweep(0.4)
    assert compiled() == 0
    assert 2 <= first < 2 + 40  # one program for every width, whatever the depths, and small ones (keys, embeddings) that do not grow with the grid


def test_programs_are_kept_where_the_user_says(tmp_path):
    """Command line and notebook: `keep_compiled` chooses a folder unless the user has, and a second process reads what the first has written."""
    program = (
        "import sys, jax, hiddenwidth as hw; hw.keep_compiled(*sys.argv[1:]); print(jax.config.jax_compilation_cache_dir);"
        "jax.jit(lambda k: jax.numpy.sort(jax.random.normal(k, (7, 9, 3)).sum(0)))(jax.random.key(0)).block_until_ready()"
    )
    clean = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {"XDG_CACHE_HOME": str(tmp_path / "xdg")}

    def run(*arguments, **more):
        done = subprocess.run([sys.executable, "-c", program, *arguments], env=clean | more, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run() == str(tmp_path / "xdg" / "hiddenwidth" / "jax")
    assert any((tmp_path / "xdg" / "hiddenwidth" / "jax").iterdir())
    assert run(str(tmp_path / "own")) == str(tmp_path / "own")
    assert run(str(tmp_path / "own"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "user")) == str(tmp_path / "user")


def test_the_default_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "hiddenwidth" / "jax"
