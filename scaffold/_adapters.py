r"""Splits of networks that were written in flax. Their arrays stay arrays of the split, so that everything can be done again in float64."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
from flax import nnx
from jaxtyping import Array, Float, PyTree

from ._coupling import check_linen, check_uncoupled
from ._split import Split


class _Linen(eqx.Module):
    """One method of a linen module."""

    variables: PyTree[Array]
    module: linen.Module = eqx.field(static=True)
    method: str = eqx.field(static=True)
    arguments: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    batched: bool = eqx.field(static=True)

    def __call__(self, x: Any) -> Float[Array, "..."]:
        return self.write(x, mutable=False)

    def write(self, x: Any, *, mutable: Any) -> Any:
        """What `apply` gives, with the collections it changed where `mutable` allows that."""
        inputs = _lead(x) if self.batched else x
        found = self.module.apply(self.variables, inputs, method=self.method, mutable=mutable, **dict(self.arguments))
        if mutable is False:
            return found[0] if self.batched else found
        return found


class _Nnx(eqx.Module):
    """A function of an nnx module and one sample."""

    state: PyTree[Array]
    graph: Any = eqx.field(static=True)
    function: Callable[[Any, Any], Float[Array, "..."]] = eqx.field(static=True)
    batched: bool = eqx.field(static=True)

    def __call__(self, x: Any) -> Float[Array, "..."]:
        model = nnx.merge(self.graph, self.state)
        return self.function(model, _lead(x))[0] if self.batched else self.function(model, x)


def split_linen(
    module: linen.Module,
    variables: PyTree[Array],
    example: Any,
    *,
    bottom: str,
    top: str,
    batched: bool = False,
    name: str = "site",
    **arguments: Any,
) -> Split:
    r"""Cut a flax linen module between two of its methods.

    **Arguments:** `variables`: as from `init`; `example`: one input x, without a batch axis; `bottom`, `top`: names of methods with f(x) = top(bottom(x));
    `batched`: the methods want a leading axis over samples; `arguments`: of both calls, such as `train=False`.

    **Returns:** a `Split`.

    **Raises:** `ValueError` for a method that the module has not, and for batch normalisation in training mode.

    Source: arXiv 2605.08297, section 2.1.

    **Example:** `split_linen(module, variables, x[0], bottom="encode", top="decode")`
    """
    for role, method in (("bottom", bottom), ("top", top)):
        if not callable(getattr(module, method, None)):
            raise ValueError(f"{role}={method!r} is not a method of {type(module).__name__}; expected the name of one.")
    lower, upper = (_Linen(variables, module, method, tuple(sorted(arguments.items())), batched) for method in (bottom, top))
    u = example
    for part, role in ((lower, "bottom"), (upper, "top")):
        _, updated = part.write(u, mutable=True)
        # Variables that were read are in it as well: only those that are not what they were have been written to.
        changed = {key: value for key, value in updated.items() if not _same(value, variables.get(key))}
        check_linen(module, changed, role)
        u = part(u)
    return Split(lower, upper, name=name)


def split_nnx(
    model: nnx.Module,
    *,
    bottom: Callable[[Any, Any], Float[Array, "..."]],
    top: Callable[[Any, Any], Float[Array, "..."]],
    batched: bool = False,
    name: str = "site",
) -> Split:
    r"""Cut a flax nnx module: f(x) = top(model, bottom(model, x)).

    **Arguments:** `bottom`, `top`: functions of the module and of one sample; `batched`: they want a leading axis over samples.

    **Returns:** a `Split`.

    **Raises:** `ValueError` for batch normalisation in training mode and active dropout; call `model.eval()` first.

    Source: arXiv 2605.08297, section 2.1.

    **Example:** `split_nnx(model, bottom=lambda m, x: m.encode(x), top=lambda m, u: m.decode(u))`
    """
    check_uncoupled(model, type(model).__name__)
    graph, state = nnx.split(model)
    return Split(_Nnx(state, graph, bottom, batched), _Nnx(state, graph, top, batched), name=name)


def _lead(x: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda a: a[None], x)


def _same(new: PyTree[Array], old: PyTree[Array]) -> bool:
    first, second = jax.tree.leaves(new), jax.tree.leaves(old)
    return len(first) == len(second) and all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(first, second, strict=True))
