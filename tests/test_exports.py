from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pmtpy
from pmtpy._extras import EXTRAS


def test_every_public_name_is_there_sorted_and_documented() -> None:
    assert list(pmtpy.__all__) == sorted(pmtpy.__all__)
    for name in pmtpy.__all__:
        value = getattr(pmtpy, name)
        assert name == "__version__" or value.__doc__, name
    assert set(pmtpy.__all__) <= set(dir(pmtpy))


def test_static_tools_see_the_names_that_exist_at_run_time() -> None:
    tree = ast.parse(Path(pmtpy.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pmtpy.")
        for alias in node.names
    }
    del imported["old_names"], imported["LOADING"]  # which make old module paths work, and forks wait
    where = "a public name stands in three places of pmtpy/__init__.py: its import for static tools, _HOME and __all__"
    assert set(imported) == set(pmtpy.__all__), where
    assert imported == pmtpy._HOME, where


def test_each_extra_that_a_message_names_exists() -> None:
    unknown = set(EXTRAS.values()) - set(metadata.metadata("pmtpy").get_all("Provides-Extra") or ())
    assert not unknown, "add the extra to pyproject.toml, then install anew: make setup"


def test_importing_and_using_the_core_loads_nothing_foreign_but_numpy() -> None:
    code = (
        "import sys, pmtpy; pmtpy.create, pmtpy.region\n"
        "names = {'pandas', 'scipy', 'matplotlib', 'pyarrow', 'serial', 'pynvml', 'amdsmi', 'rich'}\n"
        "print(sorted(names & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
