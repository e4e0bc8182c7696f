"""Public names are documented; the examples in docstrings and README run."""

import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hiddenwidth as hw

ROOT = Path(__file__).parent.parent
PUBLIC = [name for name in dir(hw) if not name.startswith("_") and not inspect.ismodule(getattr(hw, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_documented(name):
    assert inspect.getdoc(getattr(hw, name)), name
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert re.search(rf"^\.\. auto(class|function):: {name}$", page, re.MULTILINE), f"{name} is not on docs/api.md"
    if inspect.isfunction(getattr(hw, name)) or inspect.isclass(getattr(hw, name)):
        for member, value in vars(getattr(hw, name)).items() if inspect.isclass(getattr(hw, name)) else ():
            if inspect.isfunction(value) and not member.startswith("_"):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_every_name_on_the_api_page_is_public():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named, pictures = (re.findall(r"^\.\. auto(?:class|function):: (\w+)$", part, re.MULTILINE) for part in page.split("## Pictures"))
    assert sorted(named) == sorted(PUBLIC)
    assert sorted(pictures) == sorted(n for n in dir(hw.plot) if inspect.isfunction(getattr(hw.plot, n)))


def examples():
    """The fenced or one-line examples of every public docstring."""
    for name in PUBLIC:
        doc = inspect.getdoc(getattr(hw, name)) or ""
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


@pytest.mark.parametrize("body", list(examples()))
def test_docstring_example_runs(body, world):
    exec(compile(body, "<example>", "exec"), dict(world))


def test_readme_names_the_real_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", text, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
