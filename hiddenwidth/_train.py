r"""Full-batch gradient descent by a layer-wise backward sweep that updates each block as it passes.

    forward    h_l = h_{l-1} + (alpha/L) sum_j w_j phi(h_{l-1}, z_{j,l})                       states stored
    backward   b_{l-1} = b_l + (alpha/L) sum_j w_j D_h phi(h_{l-1}, z_{j,l})^T b_l             b_L = W_U dLoss/df
    update     z_{j,l} <- z_{j,l} - (eta/alpha) sum_x D_z phi(h_{l-1}, z_{j,l})^T b_l          inside the backward sweep

The gradient of the whole stack never exists, and neither does a second stack: layers are read from and written to one, in place. With w_j = 1/M this is
gradient descent on a network with the raw rate eta L M D / alpha^2; with quadrature weights it trains the infinitely wide network of the same depth.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ._choices import positive_int
from ._problem import Problem, StateSpace
from ._resnet import ResNet
from ._scaling import Scaling
from ._types import Depth
from ._unit import AbstractUnit


class Trajectory(eqx.Module):
    """What was seen during training; axis `step` counts gradient steps already taken, step 0 is initialisation.

    `hidden` holds the last hidden state at the recorded steps (`hidden_steps`); `output`, `loss` and `finite` hold every step. `finite` is False from
    the step at which the network left the finite numbers.
    """

    output: Float[Array, "*seed step batch out"]
    loss: Float[Array, "*seed step"]
    hidden: Float[Array, "*seed recorded batch dim"]
    hidden_steps: tuple[int, ...] = eqx.field(static=True)

    @property
    def finite(self) -> Bool[Array, "*seed step"]:
        """Per step: were loss and outputs finite?"""
        return jnp.isfinite(self.loss) & jnp.all(jnp.isfinite(self.output), axis=(-1, -2))


@runtime_checkable
class Blocks(Protocol):
    """What training asks of a unit."""

    def block(self, h: Any, z: Any, weights: Any) -> Any:
        """The average over a block and what its adjoint wants to find again."""
        ...

    def block_vjp(self, h: Any, z: Any, weights: Any, cache: Any, b: Any) -> Any:
        """The adjoint of a block and the gradient of its units."""
        ...

    def rates(self, scaling: Scaling) -> Any:
        """Step sizes."""
        ...


@runtime_checkable
class Space(Protocol):
    """What training asks of a state space."""

    @property
    def start(self) -> Any:
        """h_0."""
        ...

    def readout(self, h: Any) -> Any:
        """Outputs of a last hidden state."""
        ...

    def loss(self, f: Any) -> Any:
        """Loss of outputs."""
        ...

    def adjoint(self, f: Any) -> Any:
        """b_L of outputs."""
        ...


class Seen(NamedTuple):
    """One forward pass: last hidden state, output, loss."""

    hidden: Float[Array, "batch dim"]
    output: Float[Array, "batch out"]
    loss: Float[Array, ""]


def forward(
    unit: Blocks,
    scaling: Scaling,
    params: PyTree,
    weights: Float[Array, " width"],
    space: Space,
    depth: Depth | None = None,
    saved: PyTree | None = None,
) -> tuple[Seen, PyTree]:
    """Forward pass with everything that the backward sweep needs: (seen, (states, caches)), stacked over depth.

    `depth`: how many layers of the stack there are (default: all); it may be traced, so that one compiled program serves networks of many depths.
    `saved`: what an earlier pass saved, to be overwritten.
    """
    depth = _all(params) if depth is None else depth
    branch = scaling.branch(depth)

    def block(layer, carry):
        h, saved = carry
        total, cache = unit.block(h, _layer(params, layer), weights)
        saved = jax.tree.map(lambda x, new: lax.dynamic_update_index_in_dim(x, new, layer, 0), saved, (h, cache))
        return h + branch * total, saved

    h, saved = lax.fori_loop(0, depth, block, (space.start, _room(unit, params, weights, space) if saved is None else saved))
    f = space.readout(h)
    return Seen(h, f, space.loss(f)), saved


def backward(
    unit: Blocks,
    scaling: Scaling,
    params: PyTree,
    weights: Float[Array, " width"],
    space: Space,
    seen: Seen,
    saved: PyTree,
    depth: Depth | None = None,
) -> tuple[PyTree, Float[Array, "batch dim *lane"]]:
    """Backward sweep with the update inside: (new parameters, b_0)."""
    layers = _all(params) if depth is None else depth
    branch, rates = scaling.branch(layers), unit.rates(scaling)

    def block(above, carry):
        params, b = carry
        layer = layers - 1 - above
        z, (h, cache) = _layer(params, layer), _layer(saved, layer)
        dh, dz = unit.block_vjp(h, z, weights, cache, b)
        b = b + branch * dh
        return _write(params, layer, update(z, dz, rates), after=b), b

    return lax.fori_loop(0, layers, block, (params, space.adjoint(seen.output)))


def _room(unit: Blocks, params: PyTree, weights: Float[Array, " width"], space: Space) -> PyTree:
    """Room for what a forward pass saves; the zero that fills it is made of a weight, so that XLA does not take the room before the weights are drawn."""
    _, cache = jax.eval_shape(unit.block, space.start, _layer(params, 0), weights)
    zero = 0 * jax.tree.leaves(params)[0].ravel()[0]
    return jax.tree.map(lambda x: jnp.full((_all(params), *x.shape), zero.astype(x.dtype)), (space.start, cache))


def _all(params: PyTree) -> int:
    return jax.tree.leaves(params)[0].shape[0]


def _layer(params: PyTree, layer: Depth) -> PyTree:
    """One layer of the stack. Indexed rather than scanned over: under `vmap` a scan would move the layers to the front, a copy of all weights."""
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, layer, keepdims=False), params)


def _write(params: PyTree, layer: Depth, z: PyTree, *, after: Float[Array, "batch dim *lane"]) -> PyTree:
    """Replace one layer, in place.

    XLA writes in place only where every read of the stack is known to come before: `after` is the one result of reading this layer that the new weights do not
    depend on, so they are made to, by adding nothing. Otherwise it copies the whole stack at every layer.
    """
    nothing = 0.0 * after[0, 0]
    return jax.tree.map(lambda x, new: lax.dynamic_update_index_in_dim(x, new + jnp.broadcast_to(nothing, new.shape), layer, 0), params, z)


def update(z: PyTree, dz: PyTree, rates: PyTree) -> PyTree:
    """z - rates * dz; `rates` is one number, or a tree whose leaves are numbers for whole parts of z."""
    return jax.tree.map(lambda rate, z, dz: jax.tree.map(lambda z, dz: z - rate * dz, z, dz), rates, z, dz)


def descend(
    unit: AbstractUnit,
    scaling: Scaling,
    params: PyTree,
    weights: Float[Array, " width"],
    space: StateSpace,
    steps: int,
    hidden_steps: tuple[int, ...],
) -> tuple[PyTree, Trajectory]:
    """`steps` steps of gradient descent and the trajectory, the final state included (pure, to be jitted or vmapped by the caller)."""
    params, seen = walk(unit, scaling, params, weights, space, steps, hidden_steps)
    return params, Trajectory(*seen, hidden_steps)


def walk(
    unit: Blocks,
    scaling: Scaling,
    params: PyTree,
    weights: Float[Array, " width"],
    space: Space,
    steps: int,
    hidden_steps: tuple[int, ...],
    depth: Depth | None = None,
):
    """`descend` for anything that acts like a unit and a state space: (parameters, (output and loss of every step, hidden states of the recorded ones))."""

    def step(carry, k):
        params, saved, hidden = carry
        seen, saved = forward(unit, scaling, params, weights, space, depth, saved)
        params, _ = backward(unit, scaling, params, weights, space, seen, saved, depth)
        return (params, saved, _record(hidden, hidden_steps, k, seen.hidden)), (seen.output, seen.loss)

    hidden = jnp.zeros((len(hidden_steps), *space.start.shape), space.start.dtype)
    room = _room(unit, params, weights, space)
    (params, saved, hidden), (output, loss) = lax.scan(step, (params, room, hidden), jnp.arange(steps))
    last, _ = forward(unit, scaling, params, weights, space, depth, saved)
    hidden = _record(hidden, hidden_steps, steps, last.hidden)
    return params, (jnp.concatenate([output, last.output[None]]), jnp.concatenate([loss, last.loss[None]]), hidden)


def _record(hidden, hidden_steps: tuple[int, ...], k, h):
    """Keep h if step k is a recorded one; memory grows with the recorded steps, not with all steps."""
    due = jnp.asarray(hidden_steps) == k
    return jnp.where(due.reshape(-1, *(1,) * h.ndim), h[None], hidden)


def check_hidden_steps(hidden_steps: tuple[int, ...] | None, steps: int) -> tuple[int, ...]:
    """The recorded steps, sorted; default: the last one."""
    chosen = (steps,) if hidden_steps is None else tuple(sorted(set(hidden_steps)))
    if not chosen or not all(isinstance(k, int) and 0 <= k <= steps for k in chosen):
        raise ValueError(f"hidden_steps={hidden_steps!r} is not possible; expected whole numbers between 0 and steps={steps}.")
    return chosen


def train(net: ResNet, problem: Problem, *, steps: int, hidden_steps: tuple[int, ...] | None = None) -> tuple[ResNet, Trajectory]:
    r"""Train one network by full-batch gradient descent.

    **Arguments:** `net`: the network, whose dtype the computation follows; `problem`: data in the network's dimension; `steps`: number of gradient
    steps; `hidden_steps`: at which steps to keep the last hidden state (default: the last step).

    **Returns:** the trained network and its `Trajectory`.

    **Raises:** `ValueError` when the dimensions of network and problem differ.

    **Example:**

    ```python
    problem = hw.problems.sine(8, dim=16, key=jax.random.key(0))
    net = hw.ResNet.init(hw.TwoLayer("tanh"), hw.mlu(), depth=32, width=4, dim=16, key=jax.random.key(1))
    net, seen = hw.train(net, problem, steps=10)
    seen.loss[-1]
    ```
    """
    positive_int("steps", steps)
    dtype = jax.tree.leaves(net.params)[0].dtype
    space = problem.space().astype(dtype)
    _check_dim(net, space)
    params, seen = _train(net.unit, net.scaling.traced(dtype), net.params, space, steps, check_hidden_steps(hidden_steps, steps))
    return eqx.tree_at(lambda n: n.params, net, params), seen


def _check_dim(net: ResNet, space: StateSpace) -> None:
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), net.params)
    dim = space.start.shape[-1]
    try:
        got = jax.eval_shape(net.unit, jax.ShapeDtypeStruct((dim,), space.start.dtype), one).shape
    except TypeError as error:
        got = str(error).splitlines()[0]
    if got != (dim,):
        raise ValueError(f"network and problem do not fit: the problem has dim={dim}, a unit of the network gives {got}. Build both with the same dim.")


@eqx.filter_jit
def _train(unit: AbstractUnit, scaling: Scaling, params: PyTree, space: StateSpace, steps: int, hidden_steps: tuple[int, ...]):
    width = jax.tree.leaves(params)[0].shape[1]
    with jax.default_matmul_precision("highest"):
        return descend(unit, scaling, params, jnp.full((width,), 1.0 / width, space.start.dtype), space, steps, hidden_steps)
