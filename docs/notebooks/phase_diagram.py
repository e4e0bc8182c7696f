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
# # Walking through the phase diagram
#
# One number decides how a residual network trains: the residual scale
# $\rho\sqrt D/(LM)$. This notebook turns it, at a few small shapes, and looks at what a
# unit does, what the whole network does, and where the two regimes end.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import hiddenwidth as hw

problem = hw.problems.sine(8, dim=8, key=jax.random.key(0))
shapes = [
    (16, 16, 8), (64, 8, 8), (16, 64, 8), (64, 32, 8),
    (16, 64, 32), (128, 8, 32), (32, 64, 32), (32, 32, 16), (128, 16, 16), (64, 16, 16),
]  # fmt: skip
runs = hw.phase_diagram(
    problem, shapes=shapes, seeds=12, reach=4.0, key=jax.random.key(1)
)
fit = hw.fit_phase(runs)

# %% [markdown]
# ## Two curves
#
# Left: how far a step moves a unit's own preactivation. It is of order one up to
# $\rho = 1$ and falls as $1/\rho$ beyond, at every shape. Right: how far networks are
# from each other before training. All shapes lie on one curve once $\rho$ is
# measured in units of $\sqrt{LM/D}$.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
data = fit.data
for i in range(data.sizes["shape"]):
    L, M, D = (int(data[k].values[i]) for k in ("depth", "width", "dim"))
    tame = data.fluctuation.values[i] < 1
    axes[0].loglog(data.rho[tame], data.local_update.values[i, tame], lw=0.9)
    axes[1].loglog(data.rho / np.sqrt(L * M / D), data.fluctuation.values[i], lw=0.9)
axes[0].axvline(1, color="k", lw=0.8)
axes[1].axvline(1, color="k", lw=0.8, ls="--")
axes[0].set(xlabel=r"$\rho$", ylabel="local update $A$")
_ = axes[1].set(xlabel=r"$\rho\,/\sqrt{LM/D}$", ylabel="fluctuation $F$")

# %% [markdown]
# ## Two boundaries
#
# $A$ falls to half of its maximum at the critical scale, $F$ reaches one at the blow-up
# scale. Their powers of $L$, $M$ and $D$ are what the theorem states:

# %%
for name in ("critical", "blow_up"):
    for power in ("depth", "width", "dim"):
        c = fit[f"{name}.exponent_{power}"]
        low, high = c.ci95
        print(
            f"{c.name:25} {c.value:6.3f}  [{low:.3f}, {high:.3f}]  theory {c.theory:g}"
        )

# %% [markdown]
# ## The rates are not to blame
#
# Above the critical scale the rate of $u$ was lowered by a rule. Would another rate have
# given larger updates? Try them all, and keep those with which the loss never rises:

# %%
tuned = hw.tuned_rates(
    problem,
    shapes=[(64, 32, 8)],
    rhos=[0.5, 1.0, 2.0, 4.0, 8.0],
    rates_u=[2.0**i for i in range(6)],
    rates_v=[0.125, 0.5, 1.0, 2.0],
    key=jax.random.key(2),
)
for rho, largest in zip(
    tuned.tuned_rho.values, tuned.tuned_largest.values[0], strict=True
):
    print(
        f"rho = {rho:4.1f}   largest stable A = {largest:.3f}   A rho = {largest * rho:.2f}"
    )

# %% [markdown]
# ## Fan-in is a point that moves
#
# Under fan-in initialisation $\rho = \sqrt{M/D}$. It is MLU when $M = D$, lazy when $M$ is
# larger. Its networks differ from each other by $1/\sqrt L$, however wide they are.

# %%
for i in range(data.sizes["shape"]):
    L, M, D = (int(data[k].values[i]) for k in ("depth", "width", "dim"))
    at = data.scheme_fluctuation.isel(shape=i)
    mlu, fan_in = (float(at.sel(scheme=name)) for name in ("mlu", "fan_in"))
    print(
        f"L = {L:3d}  M = {M:2d}  D = {D:2d}   F sqrt(L): MLU {mlu * L**0.5:.3f}, "
        f"fan-in {fan_in * L**0.5:.3f}"
    )
