"""Compiled programs kept between runs of the command line."""

import os
from pathlib import Path

import jax


def default_folder() -> Path:
    """Where the user's caches live: XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hiddenwidth" / "jax"


def keep_compiled(folder: str | Path | None = None) -> None:
    """Keep compiled programs in `folder` (default: `default_folder()`), unless the user has chosen one by JAX_COMPILATION_CACHE_DIR or in JAX's configuration.

    JAX checks what it reads back, and compiles again what it cannot read or write.

    **Example:** `hw.keep_compiled()` at the top of a notebook.
    """
    if jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    chosen = default_folder() if folder is None else Path(folder)
    jax.config.update("jax_compilation_cache_dir", str(chosen.absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # they put the folder's name into the key
