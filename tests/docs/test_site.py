"""The documentation site builds without a warning, and its pictures are those of its commands."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import pmtpy

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    pytest.importorskip("furo", reason="the extra `docs` is not installed")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", out / "trees", "-b", "html", "docs", out],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "api" / "pmtpy.html").read_text(encoding="utf-8")
    assert not [n for n in pmtpy.__all__ if not n.startswith("_") and f'id="pmtpy.{n}"' not in page]


def test_every_picture_of_the_gallery_is_made_by_a_command_above_it() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "make_pictures.py"))
    commands, pictures = script["commands"], script["pictures"]
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    drawn = {word for words in commands(text) for word in words}
    assert pictures(text)
    assert not [name for name in pictures(text) if name not in drawn or not (ROOT / "docs" / "images" / name).is_file()]
