"""Old module paths: they lead to what is there now, and say so."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from pmtpy.integrations.old_names import MOVED, RENAMED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_leads_to_the_new_modules_and_warns(old: str) -> None:
    if old == "kernel_tuner":
        pytest.importorskip("kernel_tuner", reason="kernel_tuner is not installed: pip install 'pmtpy[dev]'")
    sys.modules.pop(f"pmtpy.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"pmtpy.{old} has moved to pmtpy.{MOVED[old][0]}"):
        module = importlib.import_module(f"pmtpy.{old}")
    for home in MOVED[old]:
        present = importlib.import_module(f"pmtpy.{home}")
        name = next(n for n in vars(present) if not n.startswith("_") and n != "annotations")
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


@pytest.mark.parametrize(("old", "new"), sorted(RENAMED.items()))
def test_a_renamed_class_is_found_by_its_old_name(old: str, new: str) -> None:
    path, name = old.rsplit(".", 1)
    sys.modules.pop(f"pmtpy.{path}", None)
    with pytest.warns(DeprecationWarning, match="has moved"):
        module = importlib.import_module(f"pmtpy.{path}")
    assert getattr(module, name).__name__ == new


def test_what_never_existed_is_still_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pmtpy.nosuch")


def test_importing_pmtpy_alone_does_not_warn() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", "import pmtpy; pmtpy.create"], check=True)
