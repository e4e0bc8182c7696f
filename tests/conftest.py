"""Strict JAX settings for every test, one compilation cache for the whole run, and what is expensive to set up.

Most of the time of the suite goes to compilation, so tests that may choose their sizes freely choose the same ones.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # test workers share the cores; BLAS threads would fight over them
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
# In the environment, so that the interpreters which some tests start find what has been compiled already.
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), "hiddenwidth-test-cache")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
# Solvers call back into Python to raise errors, and before version 0.12 JAX never caches what calls back: let them return NaN, which our own checks catch.
os.environ.setdefault("EQX_ON_ERROR", "nan")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="session", autouse=True)
def small_presets():
    """Commands in this process take their presets with fewer quadrature points, depths and test shapes: what they write and say does not depend on them.

    2^8 points are those of the error budget, so that limit, budget and depth errors share one compiled solver.
    """
    from hiddenwidth import _rates
    from hiddenwidth._commands import _dimension_config, _dimension_measure, _horizon_config, _lazy_config, _rates_config, lazy, rates

    few = {"log2_points": 8, "depth_log2_points": 8}
    ladder = (8, 16, 32, 64)
    with pytest.MonkeyPatch.context() as patch:
        for module, changes in ((_rates_config, few), (_dimension_config, few | {"joint_dims": (32,)}), (_lazy_config, {"log2_points": 8})):
            for name, sizes in module.SIZES.items():
                patch.setitem(module.SIZES, name, dataclasses.replace(sizes, **changes))
        patch.setattr(_horizon_config, "QUICK", dataclasses.replace(_horizon_config.QUICK, log2_points=9, reference_depths=ladder))
        for module, name in ((_rates, "LADDER"), (rates, "LADDER"), (_dimension_measure, "LADDER"), (lazy, "DEPTHS")):
            patch.setattr(module, name, ladder)
        yield


@pytest.fixture
def key():
    return jax.random.key(0)


class Finished(NamedTuple):
    """What a command line left: its exit status and its two streams."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command_line(capfd) -> Callable[..., Finished]:
    """Run `hiddenwidth ARGUMENTS` in this process: an interpreter that only starts up to refuse costs seconds. What escapes `main` fails the test."""
    from hiddenwidth.cli import main  # not at the top: the import hook that checks types is installed after this file is read

    def run(*arguments: str) -> Finished:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        assert isinstance(end.value.code, int)
        return Finished(end.value.code, *capfd.readouterr())

    return run
