r"""Training a base network: Adam with a cosine schedule, minibatches drawn without replacement, one compiled program an epoch."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Key, PyTree
from tqdm import tqdm

from ._gradients import Loss, samples


class Trained(NamedTuple):
    """The network and the mean loss of every epoch, as it was seen during it."""

    network: Any
    losses: Float[np.ndarray, " epochs"]


def train(
    network: Any,
    loss: Loss,
    data: tuple[PyTree, PyTree],
    *,
    epochs: int = 40,
    batch: int = 50,
    learning_rate: float = 3e-3,
    progress: bool = False,
    key: Key[Array, ""],
) -> Trained:
    r"""Train a network on all samples of `data`, `epochs` times.

    **Arguments:** `network`: a callable of one sample, an equinox module; `data`: (x, y), samples first; `batch`: samples of a step (what is left over of an
    epoch waits for the next, in another order); `learning_rate`: the first; it falls to 0 along a cosine; `progress`: show a bar.

    **Returns:** `Trained`.

    **Raises:** `ValueError` for sizes that are not possible, and where the loss stops being finite.

    **Example:** `train(net, SquaredError(), (x, y), epochs=2, batch=2, key=jax.random.key(0)).network`
    """
    n = samples(*data)
    if epochs < 1 or not learning_rate > 0:
        raise ValueError(f"epochs={epochs} and learning_rate={learning_rate!r}: expected at least one epoch and a rate above 0.")
    if not 1 <= batch <= n:
        raise ValueError(f"batch={batch} is not possible; expected 1 to n={n} samples.")
    steps = n // batch
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, epochs * steps))
    arrays, rest = eqx.partition(network, eqx.is_inexact_array)
    x, y = jax.tree.map(jnp.asarray, data)

    def step(carry, index):
        weights, state = carry

        def mean_loss(weights):
            whole = eqx.combine(weights, rest)
            x_part, y_part = jax.tree.map(lambda a: a[index], (x, y))
            return jnp.mean(jax.vmap(lambda x, y: loss(whole(x), y))(x_part, y_part))

        value, slope = jax.value_and_grad(mean_loss)(weights)
        with jax.numpy_dtype_promotion("standard"):  # optax multiplies its counters of steps into weights
            updates, state = optimiser.update(slope, state)
        return (optax.apply_updates(weights, updates), state), value

    @jax.jit
    def epoch(weights, state, key):
        order = jax.random.permutation(key, n)[: steps * batch].reshape(steps, batch)
        (weights, state), values = lax.scan(step, (weights, state), order)
        return weights, state, values.mean()

    state, losses = optimiser.init(arrays), []
    bar = tqdm(range(epochs), desc="training the network", disable=not progress, unit="epoch")
    for number in bar:
        arrays, state, value = epoch(arrays, state, jax.random.fold_in(key, number))
        losses.append(float(value))
        bar.set_postfix(loss=f"{losses[-1]:.4f}")
        if not np.isfinite(losses[-1]):
            raise ValueError(f"the loss is not finite from epoch {number + 1} on with learning_rate={learning_rate!r}; expected finite ones. Lower it.")
    return Trained(eqx.combine(arrays, rest), np.array(losses))
