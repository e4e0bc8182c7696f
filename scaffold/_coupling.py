"""Layers under which no gradient belongs to one sample: found in modules of equinox and flax, and refused."""

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
from flax import nnx

ADVICE = "expected a network in evaluation mode, in which samples do not see each other"


def check_uncoupled(function: Any, name: str) -> None:
    """Refuse batch normalisation in training mode and active dropout anywhere in a module."""
    for layer in _layers(function):
        kind = type(layer).__name__
        if isinstance(layer, (eqx.nn.BatchNorm, eqx.nn.Dropout)) and not layer.inference and not (isinstance(layer, eqx.nn.Dropout) and layer.p == 0):
            raise ValueError(f"{name} holds {kind} in training mode; {ADVICE}. Use eqx.nn.inference_mode(network).")
        if isinstance(layer, nnx.BatchNorm) and not layer.use_running_average:
            raise ValueError(f"{name} holds {kind} with use_running_average=False; {ADVICE}. Call network.eval() first.")
        if isinstance(layer, nnx.Dropout) and not layer.deterministic and layer.rate > 0:
            raise ValueError(f"{name} holds {kind} with deterministic=False; {ADVICE}. Call network.eval() first.")


def check_linen(module: linen.Module, updated: Any, name: str) -> None:
    """Refuse a linen module whose evaluation changed its variables: `updated` is what `apply` with all collections mutable gave back."""
    changed = [str(collection) for collection in updated if collection != "intermediates" and jax.tree.leaves(updated[collection])]
    if changed:
        raise ValueError(
            f"{name} of {type(module).__name__} writes to the collections {', '.join(sorted(changed))}, as batch normalisation in training mode does; "
            f"{ADVICE}. Pass use_running_average=True, or train=False, among the arguments of the call."
        )


def _layers(function: Any) -> list[Any]:
    """All modules inside a pytree or a flax module, the function itself included."""
    if isinstance(function, nnx.Module):
        return [node for _, node in nnx.iter_graph(function)]
    found: list[Any] = []

    def visit(node: Any) -> bool:
        found.append(node)
        return False

    jax.tree.leaves(function, is_leaf=visit)
    return found
