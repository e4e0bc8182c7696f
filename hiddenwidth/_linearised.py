r"""Training the linearisation of a whole network in its parameters at initialisation.

    h_L^lin(theta) = h_L(theta_0) + D_theta h_L(theta_0) (theta - theta_0)

Gradient descent on it, with the same rates as the network: what a neural tangent kernel describes at finite size.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from ._choices import positive_int
from ._problem import Problem, StateSpace
from ._resnet import ResNet
from ._scaling import Scaling
from ._train import Trajectory, check_hidden_steps, update
from ._unit import AbstractUnit


def train_linearised(net: ResNet, problem: Problem, *, steps: int, hidden_steps: tuple[int, ...] | None = None) -> Trajectory:
    r"""Train the first-order expansion of a network around its parameters, by full-batch gradient descent.

    $$h^{\mathrm{lin}}_L(\theta) = h_L(\theta_0) + D_\theta h_L(\theta_0)\,(\theta - \theta_0)$$

    **Arguments, raises:** as for `train`.

    **Returns:** its `Trajectory`.

    Source: the comparison object of arXiv 2509.10167, Theorem 2; `linearised_ode` is its limit.

    **Example:**

    ```python
    net = hw.ResNet.init(hw.TwoLayer("erf"), hw.lazy(8.0), depth=32, width=32, dim=4, key=jax.random.key(1))
    hw.train_linearised(net, hw.problems.sine(8, dim=4, key=jax.random.key(0)), steps=5).loss
    ```
    """
    dtype = jax.tree.leaves(net.params)[0].dtype
    recorded = check_hidden_steps(hidden_steps, positive_int("steps", steps))
    return _train(net.unit, net.scaling.traced(dtype), net.params, problem.space().astype(dtype), steps, recorded)


@eqx.filter_jit
def _train(unit: AbstractUnit, scaling: Scaling, params: PyTree, space: StateSpace, steps: int, recorded: tuple[int, ...]) -> Trajectory:
    with jax.default_matmul_precision("highest"):
        return descend_linearised(unit, scaling, params, space, steps, recorded)


def descend_linearised(unit: AbstractUnit, scaling: Scaling, params: PyTree, space: StateSpace, steps: int, recorded: tuple[int, ...]) -> Trajectory:
    """`steps` steps of gradient descent on the linearised network (pure)."""
    depth, width = jax.tree.leaves(params)[0].shape[:2]
    weights = jnp.full((width,), 1.0 / width, space.start.dtype)

    def last_state(params):
        def block(h, z):
            return h + scaling.branch(depth) * unit.block(h, z, weights)[0], None

        return lax.scan(block, space.start, params)[0]

    start, forward = jax.linearize(last_state, params)
    backward = jax.linear_transpose(forward, params)
    # The gradient of a network with branch alpha/L and mean over M units is (alpha / (L M)) times the step's sum_x D_z phi^T b.
    unscale = depth * width / scaling.alpha

    def step(move, _):
        h = start + forward(move)
        f = space.readout(h)
        (gradient,) = backward(space.adjoint(f))
        return update(move, jax.tree.map(lambda g: unscale * g, gradient), unit.rates(scaling)), (h, f, space.loss(f))

    _, (hidden, output, loss) = lax.scan(step, jax.tree.map(jnp.zeros_like, params), None, length=steps + 1)
    return Trajectory(output, loss, hidden[jnp.asarray(recorded)], recorded)
