# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Would another block help?
#
# A small residual network is trained on a random teacher, and `scaffold` is asked
# whether a new block would lower its risk: where, how strongly, in which direction,
# and whether what was predicted came true.

# %%
import jax

import scaffold

data = scaffold.datasets.teacher(1000, 3000, key=jax.random.key(0))
net = scaffold.residual_mlp(
    16, 4, dim=16, hidden=32, depth=1, activation="gelu", key=jax.random.key(1)
)
trained = scaffold.train(net, data.loss, data.train, epochs=10, key=jax.random.key(2))
net = trained.network
found = scaffold.analyse(
    net, data.loss, data.held_out, families=("bias", "linear", "zero_out"),
    activation="gelu", key=jax.random.key(3),
)  # fmt: skip
print(found)

# %% [markdown]
# ## The picture
#
# Top left: signals in units of $\eta$, the smallest one whose best step gains one
# percent of the risk. Top right: what each step was predicted to gain and what it did
# gain, on samples that chose neither direction nor step. Bottom: correlations of the
# activation gradient beside one draw of their null.

# %%
axes = scaffold.plot.analysis(found.dataset(), title="teacher, one layer")

# %% [markdown]
# ## One step, by hand
#
# The same in pieces: cut, look, choose a direction in the geometry of function
# change, walk.

# %%
import matplotlib.pyplot as plt
import numpy as np

x, y = data.held_out
split = net.split("stream:1")
u, g, _ = scaffold.activation_gradients(split, data.loss, x[:1500], y[:1500])
block = scaffold.ZeroOut.init(
    16, 32, activation="gelu", norm=scaffold.RMSNorm(16), key=jax.random.key(4)
)
a = np.asarray(jax.vmap(block.features)(u))
signal = scaffold.measure_signal(g, a)
print(f"signal {signal.value:.3f}, floor {signal.floor:.3f}, p = {signal.p_value:.3f}")

figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
c = g.T.astype(np.float64) @ a / len(a)
for geometry in ("frobenius", "function"):
    matrix = scaffold.direction(c, geometry, gram=scaffold.second_moments(a)).matrix
    v = block.direction(jax.numpy.asarray(matrix, "float32"))
    expanded = scaffold.insert(split, block, x[:8])
    walked = scaffold.line_search(expanded, v, data.loss, x[1500:], y[1500:]).walked
    gain = walked.losses[0].mean() - walked.losses.mean(1)
    tau = walked.near_identity()
    (line,) = axis.plot(tau, gain, "o-", label=geometry)
    axis.plot(tau, walked.signal * walked.steps, ":", color=line.get_color())
axis.set_xscale("log")
axis.set_ylim(-0.01, 0.03)
axis.axhline(0, color="grey", lw=0.8)
axis.set_xlabel("rms h / rms u")
axis.set_ylabel("decrease of the risk (dotted: first order)")
axis.legend()
axis.grid(True, alpha=0.3)
