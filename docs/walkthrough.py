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
# # Walkthrough: from a law to a plot
#
# Seven steps, each with one printed number. Everything runs in about a minute on two cores.

# %%
import jax
import numpy as np

import hiddenwidth as hw

key_embed, key_net, key_sweep = jax.random.split(jax.random.key(0), 3)

# %% [markdown]
# ## 1. A unit and the law of its parameters
#
# A two-layer perceptron unit, $\phi(h, (u, v)) = v\,\sigma(u \cdot h / D)$.

# %%
unit = hw.TwoLayer("tanh")
scaling = hw.mlu(learning_rate=1.0)  # every power of L, M and D
print(
    f"size of one unit at L = 64, M = 4, D = 16: {scaling.residual_scale(64, 4, 16):.4f}"
)

# %% [markdown]
# ## 2. A problem
#
# Eight points of a sine, embedded in $D = 16$ dimensions by a random matrix.

# %%
problem = hw.problems.sine(8, dim=16, key=key_embed)
start = problem.space().start
print(f"root mean square of the embedded inputs: {np.sqrt(np.mean(start**2)):.3f}")

# %% [markdown]
# ## 3. A network
#
# Sixty-four blocks of one unit each. Ten steps of full-batch gradient descent.

# %%
net = hw.ResNet.init(unit, scaling, depth=64, width=1, dim=16, key=key_net)
trained, seen = hw.train(net, problem, steps=10)
print(f"loss of one network: {seen.loss[0]:.4f} -> {seen.loss[-1]:.4f}")

# %% [markdown]
# ## 4. Its limit
#
# The Neural Mean ODE of the same training: infinitely deep, any width. The solution carries its own error.

# %%
rule = hw.Sobol(log2_points=12, replicates=4)
limit = hw.mean_ode(problem, unit, scaling, steps=10, quadrature=rule)
print(f"loss of the limit: {limit.loss():.4f}, outputs to {limit.output_error():.1e}")

# %% [markdown]
# ## 5. Units against their own flow
#
# Every unit of a network has a copy that starts at the same parameters and moves in the fields of the limit. Over training the two part by
# $O(\sqrt{D/(LM)})$, in units of the initial standard deviation: quadruple $LM$, halve the distance.

# %%
shallow, deep = (
    hw.coupling_error(limit, depth=depth, width=1, seeds=16, key=key_net)
    for depth in (32, 128)
)
ratio = shallow.rms.mean() / deep.rms.mean()
print(f"coupling error at L = 32 over L = 128: {ratio:.2f} (2 expected)")

# %% [markdown]
# ## 6. Many networks
#
# A grid over depth and width, 128 initialisations a cell.

# %%
runs = hw.sweep(
    problem,
    unit,
    scaling,
    depths=[8, 16, 32, 64],
    widths=[1, 2, 4, 8],
    seeds=128,
    steps=10,
    key=key_sweep,
)
diverged = int((runs.diverged_at >= 0).sum())
print(f"networks: {runs.diverged_at.size}, diverged: {diverged}")

# %% [markdown]
# ## 7. The law
#
# Three terms, each measured where it stands alone, with intervals and verdicts. A small grid like this one leaves some exponents undetermined: the
# table says which, and what would help.

# %%
fit = hw.fit_rates(runs, limit)
print(f"hidden fluctuation: b = {fit['hidden.fluctuation.constant'].value:.3f}")
fit

# %%
claims = [c.to_json() for c in fit.claims]
axes = hw.plot.rates(fit.data, claims, title="sine, D = 16, 10 steps")
