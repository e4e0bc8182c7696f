"""Sphinx configuration: strict, offline, pages in MyST Markdown, examples executed."""

import re
from importlib import metadata

project = "hiddenwidth and scaffold"
author = "The hiddenwidth and scaffold developers"
version = release = metadata.version("hiddenwidth")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "conf.py"]
html_theme = "furo"
html_title = "hiddenwidth"
templates_path: list[str] = []
default_role = "literal"
nitpicky = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
# Formulas need MathJax, which the browser would fetch; offline they show as TeX.

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}


def markdown_to_rst(app, what, name, obj, options, lines):
    """Docstrings are Markdown: turn fences and display formulas into what Sphinx reads."""
    text = "\n".join(lines)
    # Bars are norms there, and substitutions in reStructuredText: escape those outside code.
    text = re.sub(
        r"(```.*?```|\$\$.*?\$\$|`[^`]*`)|\|",
        lambda m: m[1] or r"\|",
        text,
        flags=re.S,
    )
    text = re.sub(
        r"```python\n(.*?)```",
        lambda m: ".. code-block:: python\n\n" + re.sub("^", "    ", m[1], flags=re.M),
        text,
        flags=re.S,
    )
    text = re.sub(
        r"\$\$(.*?)\$\$",
        lambda m: ".. math::\n\n    " + m[1].strip() + "\n",
        text,
        flags=re.S,
    )
    lines[:] = text.split("\n")


def setup(app):
    """Register the conversion."""
    app.connect("autodoc-process-docstring", markdown_to_rst)
