"""What a number was made with: versions, device, precision."""

import platform
from importlib import metadata
from typing import Any

import jax

PACKAGES = ("hiddenwidth", "jax", "jaxlib", "equinox", "diffrax", "numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Versions of the packages that numbers depend on, the device, and the matrix-product precision."""
    device = jax.devices()[0]
    return {
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
        "device": f"{jax.device_count()} x {device.device_kind} ({device.platform})",
        "matmul_precision": "highest",
    }
