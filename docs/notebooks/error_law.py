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
# # The error law from the inside
#
# Why is a network with one unit a block close to an infinitely wide one? This notebook looks at each term of
#
# $$\mathbb E\,|h_L - h(1)|^2 = \Big(\frac{a}{L} + \frac{c}{LM}\Big)^2 + b^2\,\frac{D}{LM}$$
#
# on data of your own choice. Change the first cell and run it again.

# %%
import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import hiddenwidth as hw

x = np.linspace(-1, 1, 6)[:, None]
y = np.exp(-4 * x**2) - 0.5
inputs = np.hstack([x, np.ones_like(x)])  # the column of ones is a bias
problem = hw.Problem.embed(inputs, y, dim=16, key=jax.random.key(0))
unit, scaling, steps = hw.TwoLayer("gelu"), hw.mlu(0.5), 8

# %% [markdown]
# ## The limit and what it knows about its own error
#
# Two inputs and one output: the dynamics close in $r = 3$ dimensions, whatever $D$ is.

# %%
rule = hw.Sobol(log2_points=12, replicates=4)
limit = hw.mean_ode(problem, unit, scaling, steps=steps, quadrature=rule)
limit

# %% [markdown]
# ## Depth alone
#
# The infinitely wide network of depth $L$ differs from the limit by $a/L$: an Euler scheme. The same quadrature points stand on both sides, so the difference
# has no sampling noise, and its next order is visible to the eye.

# %%
depths = (4, 8, 16, 32, 64)
depth = hw.depth_error(problem, unit, scaling, depths=depths, steps=steps)
error = np.sqrt((depth.hidden**2).mean((-1, -2))).mean(0)
for number, value in zip(depths, error, strict=True):
    print(f"L = {number:3d}   error = {value:.6f}   L x error = {number * value:.5f}")

# %% [markdown]
# ## Hidden states along depth
#
# A network with a single unit a block makes a random walk around the limit. Its spread shrinks as $\sqrt{D/L}$.

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), sharey=True, layout="constrained")
s = np.linspace(0, 1, 60)
curve = np.stack([limit.hidden(steps, t)[0] for t in s])
for axis, number in zip(axes, (16, 128, 1024), strict=True):
    net = hw.ResNet.init(
        unit, scaling, depth=number, width=1, dim=16, key=jax.random.key(3)
    )
    trained, _ = hw.train(net, problem, steps=steps)
    states = trained.states(jnp.asarray(problem.space().start[0], jnp.float32))
    axis.set_prop_cycle(color=["tab:blue", "tab:orange", "tab:green"])
    lines = axis.plot(np.arange(number + 1) / number, states[:, :3], lw=0.9)
    dashed = axis.plot(s, curve[:, :3], "--", lw=1.6)
    axis.set(title=f"L = {number}, M = 1", xlabel="depth-time s")
_ = axes[0].set_ylabel("three coordinates of h")
_ = axes[0].legend([lines[0], dashed[0]], ["network", "Mean ODE"])

# %% [markdown]
# ## Depth is width
#
# The spread over initialisations depends on the product $LM$. Five splits of $LM = 128$:

# %%
for d, w in ((8, 16), (16, 8), (32, 4), (64, 2), (128, 1)):
    shape = {"depth": d, "width": w, "seeds": 200, "steps": steps}
    runs = hw.ensemble(problem, unit, scaling, **shape, key=jax.random.key(d))
    squares = ((runs.hidden[:, 0] - runs.hidden[:, 0].mean(0)) ** 2).mean((1, 2))
    b = math.sqrt(squares.mean() * 200 / 199 * d * w / 16)
    half = 1.96 * b * squares.std(ddof=1) / math.sqrt(200) / (2 * squares.mean())
    print(f"L = {d:3d}  M = {w:2d}   b = {b:.3f} +- {half:.3f}")

# %% [markdown]
# The constants agree up to the next order in $1/L$, which `fit_rates` measures and takes off.
