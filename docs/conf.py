"""The documentation site: ``make docs`` builds it into build/docs; a warning is an error there."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = "pmtpy"
author = "the pmtpy developers"
copyright = author  # noqa: A001  (Sphinx gives the name)
release = metadata.version("pmtpy")
version = release.split("+", maxsplit=1)[0]

extensions = [
    "myst_parser",  # the pages are Markdown, so that they can be read where the repository is shown
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # docstrings in numpy's style
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["examples/**"]
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # else attributes of records would be described twice
suppress_warnings = ["ref.python"]  # a bare `seconds` in a signature may be one of several
intersphinx_mapping: dict[str, tuple[str, str | None]] = {}  # the site builds without a network

html_theme = "furo"
html_title = f"pmtpy {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_prompt_text = "$ "


def one_by_one(*heard: list[str]) -> None:
    """Describe attributes that share a description (``low, high : float``) each by itself: napoleon takes one name."""
    lines = heard[-1]
    i = lines.index("Attributes") if "Attributes" in lines else len(lines)
    while i < len(lines):
        shared = re.fullmatch(r"(\w+(?:, \w+)+) : (.*)", lines[i])
        if shared:
            end = next((j for j in range(i + 1, len(lines)) if not lines[j].startswith(" ")), len(lines))
            described = lines[i + 1 : end]
            lines[i:end] = [line for name in shared[1].split(", ") for line in (f"{name} : {shared[2]}", *described)]
        i += 1


def setup(app: Sphinx) -> None:
    """Have docstrings put in order before napoleon reads them."""
    app.connect("autodoc-process-docstring", one_by_one, priority=400)
