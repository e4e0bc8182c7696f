"""Several devices and several processes: the same numbers as one device, to rounding."""

import os
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import hiddenwidth as hw

PROGRAM = """
import sys, jax, numpy as np
import hiddenwidth as hw
{start}
problem = hw.problems.sine(5, dim=6, key=jax.random.key(0))
found = {{}}
for name, width, seeds in (("vmap", 3, 11), ("lanes", 1, 40 * jax.device_count())):
    runs = hw.ensemble(problem, hw.TwoLayer("tanh"), hw.mlu(), depth=6, width=width, seeds=seeds, steps=4, hidden_steps=(1, 4), key=jax.random.key(1))
    found |= {{f"{{name}}_{{k}}": getattr(runs, k)[:11] for k in ("output", "loss", "hidden")}}
np.savez(sys.argv[1], devices=jax.device_count(), **found)
"""


def start(path, lines: str, **environment: str) -> subprocess.Popen:
    program = PROGRAM.format(start=textwrap.dedent(lines))
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )


def finish(process: subprocess.Popen, path):
    out = process.communicate(timeout=200)[0]
    assert process.returncode == 0, out
    with np.load(path) as found:
        return dict(found)


def assert_equal_to_alone(found, devices: int):
    assert found["devices"] == devices
    problem = hw.problems.sine(5, dim=6, key=jax.random.key(0))
    for name, width in (("vmap", 3), ("lanes", 1)):
        alone = hw.ensemble(problem, hw.TwoLayer("tanh"), hw.mlu(), depth=6, width=width, seeds=11, steps=4, hidden_steps=(1, 4), key=jax.random.key(1))
        for k in ("output", "loss", "hidden"):
            np.testing.assert_allclose(found[f"{name}_{k}"], getattr(alone, k), rtol=2e-5, atol=2e-6, err_msg=f"{name} {k}")


def test_eight_devices_give_the_same_networks(tmp_path):
    """Seeds that do not divide among the devices, both layouts; stated tolerance in float32: 2e-5 relative."""
    path = tmp_path / "eight.npz"
    assert_equal_to_alone(finish(start(path, "hw.use_all_cores(8)"), path), 8)


def test_two_processes_give_the_same_networks(tmp_path):
    """Two hosts on the loopback, two devices each: every process ends with all members."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = [tmp_path / f"{i}.npz" for i in range(2)]
    running = [
        start(path, f'hw.use_all_cores(2)\njax.distributed.initialize("127.0.0.1:{port}", 2, {i})', JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")
        for i, path in enumerate(paths)
    ]
    try:
        found = [finish(process, path) for process, path in zip(running, paths, strict=True)]
    finally:
        for process in running:
            process.kill()
    assert_equal_to_alone(found[0], 4)
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name], err_msg=name)


def test_a_late_request_for_devices_is_refused():
    jax.devices()
    with pytest.raises(RuntimeError, match=r"use_all_cores\(\) came too late: JAX has begun to compute with 1 device\(s\), expected 8"):
        hw.use_all_cores(8)
    hw.use_all_cores(1)  # nothing to change, nothing to refuse


def test_the_chosen_device_is_respected():
    from hiddenwidth._devices import seed_devices

    device = jax.devices()[0]
    with jax.default_device(device):
        assert seed_devices(5) == (device,)
