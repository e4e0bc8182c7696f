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
# # The lazy law
#
# Theorem 2 in four pictures: what the network approaches as $\alpha$ grows, how fast, what it costs, and where the best
# $\alpha$ lies.

# %%
import math

import jax
import matplotlib.pyplot as plt
import numpy as np

import hiddenwidth as hw

data = hw.problems.sine(8, dim=math.inf)
problem = data.with_dim(4, key=jax.random.key(0), embedding="orthogonal")
unit, rates, steps = hw.TwoLayer("erf"), hw.mlu(), 5

# %% [markdown]
# ## A limit without sampling
#
# For two-layer units the tangent ODE needs no particles: its kernels are known. The budget lists what is left.

# %%
tangent = hw.tangent_ode(problem, unit, rates, steps=steps)
linearised = hw.linearised_ode(problem, unit, rates, steps=steps)
tangent

# %% [markdown]
# Hidden states move with depth-time although no unit moves. In the linearised network they move along straight lines.

# %%
s = np.linspace(0, 1, 41)
figure, axis = plt.subplots(figsize=(7.5, 4), layout="constrained")
for limit, style, name in (
    (tangent, "-", "tangent ODE"),
    (linearised, "--", "linearised network"),
):
    curve = np.array([limit.hidden(steps, t)[0] for t in s])
    for i in range(2):
        label = name if i == 0 else None
        axis.plot(s, curve[:, i], style, color=f"C{i}", label=label)
axis.set(xlabel="depth-time s", ylabel="two coordinates of h")
_ = axis.legend()

# %% [markdown]
# ## How fast, and why symmetry matters
#
# Mean ODE($\alpha$) minus tangent ODE: order two for a symmetric law, order one for a skewed law with an activation
# that is not odd.

# %%
alphas = [4.0, 8.0, 16.0, 32.0, 64.0]
rule = hw.Sobol(9, 2, symmetric=True)
units = (hw.TwoLayer("erf"), hw.TwoLayer("softplus", law="skewed"))
for one in units:
    shared = {"steps": steps, "quadrature": rule, "budget": False}
    flat = hw.tangent_ode(problem, one, rates, **shared)
    gaps = []
    for alpha in alphas:
        near = hw.mean_ode(problem, one, hw.lazy(alpha), centre=True, **shared)
        gaps.append(np.sqrt(np.mean((near.hidden() - flat.hidden()) ** 2)))
    slope = np.polyfit(np.log(alphas[2:]), np.log(gaps[2:]), 1)[0]
    print(f"{one!r}: expected -{hw.lazy_order(one)}, measured {slope:.3f}")

# %% [markdown]
# ## Networks: the noise grows with $\alpha$
#
# Small networks here, so that the page builds quickly; `hiddenwidth lazy` does the same with a wider grid and intervals.

# %%
grid = [2 ** (i / 2) for i in range(-2, 9)]
shapes = [(32, 64), (32, 512)]
reference = hw.lazy_reference(
    problem,
    unit,
    rates,
    alphas=[*grid, 32.0],
    depths=[8, 16, 32, 64],
    steps=steps,
    quadrature=hw.Sobol(9, 3, symmetric=True),
    depth_quadrature=hw.Sobol(6, 2, symmetric=True),
)
runs = hw.lazy_sweep(
    problem,
    unit,
    rates,
    alphas=grid,
    shapes=shapes,
    seeds=[64, 16],
    steps=steps,
    key=jax.random.key(1),
)
fit = hw.fit_lazy(runs, reference)
for name in ("tangent.exponent", "fluctuation.exponent_alpha", "optimum.exponent"):
    c = fit[f"hidden.{name}"]
    print(f"{c.name:40} {c.value:.3f} in [{c.ci95[0]:.3f}, {c.ci95[1]:.3f}]")

# %%
hidden = fit.data.sel(observable="hidden")
figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for i, (depth, width) in enumerate(shapes):
    cell = hidden.isel(shape=i)
    error, half = np.sqrt(cell.error2), 0.98 * cell.error2_se / np.sqrt(cell.error2)
    label = f"L = {depth}, M = {width}"
    axis.errorbar(grid, error, half, fmt="o", color=f"C{i}", capsize=2, label=label)
    axis.plot(grid, np.sqrt(cell.fitted_error2), "-", color=f"C{i}")
    axis.plot(grid, np.sqrt(cell.linearised2), "x", color=f"C{i}", alpha=0.6)
axis.plot([], [], "x", color="grey", label="error to the linearised network")
axis.plot([], [], "-", color="grey", label="sum of the three terms")
axis.set(xscale="log", yscale="log", xlabel=r"$\alpha$", ylabel="hidden state, rms")
axis.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
axis.minorticks_off()
_ = axis.legend(fontsize=9)

# %% [markdown]
# The error to the tangent ODE has its least value inside the range, further right for the larger network. The error to
# the linearised network stays where it is.
