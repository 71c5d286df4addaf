"""Docstrings of packages name what is in them: the first page that somebody new to a folder opens."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.util
import pydoc
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "pmtpy"
PACKAGES = sorted(p for p in ROOT.rglob("__init__.py") if ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))))


def defined(path: Path, text: str) -> set[str]:
    """Return what a module defines, the arguments of what the text names, and short strings: names of channels."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            if isinstance(node, ast.FunctionDef) and node.name in text:
                names |= {arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 20:
            names.add(node.value)
    return names


@pytest.mark.parametrize("path", PACKAGES, ids=lambda p: ".".join(p.relative_to(ROOT.parent).parts[:-1]))
def test_what_a_package_names_is_in_it(path: Path) -> None:
    folder = path.parent
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    known = {p.stem for p in folder.iterdir()} | set().union(*(defined(p, text) for p in folder.rglob("*.py")))
    named = set(re.findall(r"``\.?([A-Za-z_]{3,})``", text))
    gone = {name for name in named - known if importlib.util.find_spec(name) is None}
    assert not gone, f"the docstring of {path} names what is not in that folder"


REFERENCE = re.compile(r":(?:mod|class|func|meth|attr|data|exc):`~?([\w.]+)`")


@functools.cache
def names_in(path: Path) -> set[str]:
    """Return what a module defines, imports, assigns and has as short strings: names that are loaded when asked for."""
    names = set(dir(builtins))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).rpartition(".")[2])
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
            names.add(node.value)
    return names


def found(reference: str, path: Path) -> bool:
    """Whether what a docstring of a module refers to is there: beside it, in it, or anywhere by its whole name."""
    if reference.startswith("."):
        return any((path.parent / name).exists() for name in (reference[1:], f"{reference[1:]}.py"))
    return reference.rpartition(".")[2] in names_in(path) or pydoc.locate(reference) is not None


def test_what_a_docstring_refers_to_exists() -> None:
    gone = [
        f"{path.relative_to(ROOT.parent)}: {reference}"
        for path in sorted(ROOT.rglob("*.py"))
        for reference in REFERENCE.findall(path.read_text(encoding="utf-8"))
        if not found(reference, path)
    ]
    assert not gone, "\n- ".join(["", *gone])
