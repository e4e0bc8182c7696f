"""Strict JAX settings for every test, and one compilation cache for the whole run."""

import os
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # test workers share the cores; BLAS threads would fight over them
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", os.path.join(tempfile.gettempdir(), "hiddenwidth-test-cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture
def key():
    return jax.random.key(0)
