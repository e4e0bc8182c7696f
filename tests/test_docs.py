"""Public names are documented; the examples in docstrings and README run."""

import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import hiddenwidth as hw
import scaffold as sc
from scaffold._nets.branch import TwoLayerBranch

ROOT = Path(__file__).parent.parent
PACKAGES = {"hiddenwidth": (hw, "api.md"), "scaffold": (sc, "api_scaffold.md")}
PUBLIC = {package: [name for name in dir(p) if not name.startswith("_") and not inspect.ismodule(getattr(p, name))] for package, (p, _) in PACKAGES.items()}
NAMES = [(package, name) for package in PACKAGES for name in PUBLIC[package]]


def page_of(package):
    return (ROOT / "docs" / PACKAGES[package][1]).read_text(encoding="utf-8")


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_public_name_is_documented(package, name):
    public = getattr(PACKAGES[package][0], name)
    assert inspect.getdoc(public), name
    assert re.search(rf"^\.\. auto(class|function|data):: {name}$", page_of(package), re.MULTILINE), f"{name} is not on docs/{PACKAGES[package][1]}"
    for member, value in vars(public).items() if inspect.isclass(public) else ():
        if inspect.isfunction(value) and not member.startswith("_"):
            assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize("package", list(PACKAGES))
def test_every_name_on_the_api_page_is_public(package):
    named, pictures = (re.findall(r"^\.\. auto(?:class|function|data):: (\w+)$", part, re.MULTILINE) for part in page_of(package).split("## Pictures"))
    plot = PACKAGES[package][0].plot
    assert sorted(named) == sorted(PUBLIC[package])
    assert sorted(pictures) == sorted(n for n in dir(plot) if inspect.isfunction(getattr(plot, n)) and not n.startswith("_"))


def examples(package):
    """The fenced or one-line examples of every public docstring."""
    for name in PUBLIC[package]:
        doc = inspect.getdoc(getattr(PACKAGES[package][0], name)) or ""
        for body in re.findall(r"```python\n(.*?)```", doc, flags=re.DOTALL):
            yield pytest.param(body, id=name)
        for line in re.findall(r"\*\*Example:\*\* `([^`]+)`", doc):
            yield pytest.param(line, id=name)


@pytest.fixture(scope="module")
def world():
    """What a reader has at hand when an example is not self-contained."""
    problem, unit = hw.problems.sine(4, dim=4, key=jax.random.key(0)), hw.TwoLayer("tanh")
    limit = hw.mean_ode(problem, unit, hw.mlu(), steps=10, quadrature=hw.Sobol(6, 2), budget=False)
    runs = hw.sweep(problem, unit, hw.mlu(), depths=[8, 16, 32], widths=[1, 4], seeds=16, steps=10, key=jax.random.key(1))
    return {"hw": hw, "jax": jax, "jnp": jnp, "np": np, "math": __import__("math"), "problem": problem, "unit": unit, "limit": limit, "runs": runs}


@pytest.mark.parametrize("body", list(examples("hiddenwidth")))
def test_docstring_example_runs(body, world):
    exec(compile(body, "<example>", "exec"), dict(world))


class Encoder(linen.Module):
    """A small flax network in two halves."""

    def setup(self):
        self.first, self.second = linen.Dense(8), linen.Dense(2)

    def encode(self, x):
        return jnp.tanh(self.first(x))

    def decode(self, u):
        return self.second(u)

    def __call__(self, x):
        return self.decode(self.encode(x))


class Model(nnx.Module):
    """The same in the other interface."""

    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)

    def encode(self, x):
        return jnp.tanh(self.first(x))

    def decode(self, u):
        return self.second(u)


@pytest.fixture(scope="module")
def scaffold_world():
    """A small network with data, its activations and gradients at one site, and a block there."""
    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(8)]
    net = sc.residual_mlp(4, 2, dim=8, hidden=16, depth=3, activation="tanh", key=keys[0])
    teacher = sc.testbeds.Teacher.init(4, 2, key=keys[1])
    x, y = teacher.draw(48, key=keys[2])
    split = net.split("stream:1")
    u, g, _ = sc.activation_gradients(split, sc.SquaredError(), x, y)
    block = sc.ZeroOut.init(8, 16, norm=sc.RMSNorm(8), activation="tanh", key=keys[3])
    a = np.asarray(jax.vmap(block.features)(u))
    module = Encoder()
    here = {
        "net": net, "teacher": teacher, "x": x, "y": y, "split": split, "u": u, "g": g, "a": a, "block": block,
        "expanded": sc.insert(split, block, x), "v": block.random_tangent(key=keys[4]), "branch": TwoLayerBranch.init(8, 16, "tanh", 1.0, key=keys[5]),
        "c": g.T @ a / 48, "a2": a.T @ a / 48 + np.eye(a.shape[1]), "z": np.linspace(-0.5, 0.5, 48), "old_features": u, "population": sc.HeldOut(x, y),
        "module": module, "variables": module.init(keys[6], x[0]), "model": Model(nnx.Rngs(0)),
        "steepest": lambda g, a: g.T @ a, "signals": lambda v, g, a: np.einsum("ni,ij,nj->n", g, v, a),
    }  # fmt: skip
    return {name: getattr(sc, name) for name in dir(sc) if not name.startswith("_")} | {"scaffold": sc, "jax": jax, "jnp": jnp, "np": np} | here


@pytest.mark.parametrize("body", list(examples("scaffold")))
def test_scaffold_example_runs(body, scaffold_world):
    exec(compile(body, "<example>", "exec"), dict(scaffold_world))


def test_readme_names_the_real_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", text, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
