"""Which devices the seeds of an ensemble are spread over.

Seeds need nothing from each other, so every device trains its share and none waits for another: one code path for one CPU, several forced host devices, several
GPUs or a slice of a TPU, on one host or many.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores(devices: int | None = None) -> None:
    """Let JAX see every core of this machine as a device, so that the seeds of one ensemble are spread over them.

    Without it one ensemble of small networks uses one core; grids use all of them anyway. The command line does it for itself. It has no effect on
    GPUs and TPUs.

    Call it first of all, directly after `import hiddenwidth as hw`.

    **Arguments:** `devices`: how many host devices (default: the cores that this process may use).

    **Raises:** `RuntimeError` when JAX has begun to compute with another number of devices: it is fixed then.

    **Example:** `hw.use_all_cores(devices=1)`, JAX's own choice; without an argument, as many as there are cores.
    """
    wanted = cores() if devices is None else devices
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError as error:
        if jax.local_device_count() == wanted:
            return
        raise RuntimeError(
            f"use_all_cores() came too late: JAX has begun to compute with {jax.local_device_count()} device(s), expected {wanted}. "
            "Call it directly after the imports."
        ) from error


@contextlib.contextmanager
def reference_precision() -> Iterator[None]:
    """float64 and full matrix products whatever the user's switches say; on the host where the accelerator has no float64 of its own."""
    on_host = jax.default_device(jax.devices("cpu")[0]) if jax.default_backend() == "tpu" else contextlib.nullcontext()
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), on_host:
        yield


def seed_devices(seeds: int) -> tuple[Any, ...]:
    """The devices that `seeds` members are spread over: all of them, or the one that the user chose by `jax.default_device`."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    devices = jax.devices(chosen) if chosen is None or isinstance(chosen, str) else [chosen]
    return tuple(devices[: max(1, seeds)])


def over_seeds(function: Callable[..., Any], devices: tuple[Any, ...]) -> Callable[..., Any]:
    """function(keys, *shared) with the leading axis of keys and results spread over `devices`, no communication between them."""
    if len(devices) == 1:
        return function
    mesh, spread = Mesh(np.asarray(devices), ("seed",)), PartitionSpec("seed")

    def run(keys, *shared):
        wrapped = partial(jax.shard_map, mesh=mesh, in_specs=(spread, *([PartitionSpec()] * len(shared))), out_specs=spread, check_vma=False)
        return wrapped(function)(keys, *shared)

    return run


def to_host(tree: Any) -> Any:
    """Results as numpy arrays, those of other hosts included."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)
