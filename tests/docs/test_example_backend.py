"""The package that the page shows is what the page shows; installed, it is found, diagnosed, read and tested."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "docs/examples/pmtpy-meter"


@pytest.mark.parametrize("name", ["pmtpy_meter.py", "pyproject.toml", "test_meter.py"])
def test_the_page_shows_the_package(name: str) -> None:
    page = (ROOT / "docs/write-a-backend.md").read_text(encoding="utf-8")
    shown = (PACKAGE / name).read_text(encoding="utf-8") in page
    assert shown, f"copy docs/examples/pmtpy-meter/{name} as it is into docs/write-a-backend.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder of its own, without asking any index."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("installed")
    copy = shutil.copytree(PACKAGE, folder / "source")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder / "site"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(place / "site"), str(ROOT)])
    return subprocess.run(
        [sys.executable, *words], cwd=place, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_entry_point_is_listed_with_its_reason_and_cure(place: Path) -> None:
    done = run(place, "-m", "pmtpy", "list", "--json")
    (line,) = [line for line in json.loads(done.stdout) if line["backend"] == "meter"]
    assert (line["target"], line["available"]) == ("meter", False)
    assert "/run/meter/energy_uj does not exist" in line["reason"]
    assert line["remedy"] == "sudo systemctl start meterd"


def test_the_doctor_prints_the_finding(place: Path) -> None:
    (found,) = json.loads(run(place, "-m", "pmtpy", "doctor", "meter", "--json").stdout)
    assert (found["verdict"], found["obstacle"]) == ("broken", "driver")
    assert found["cure"] == ["$ sudo systemctl start meterd"]


def test_the_error_carries_the_same(place: Path) -> None:
    done = run(place, "-m", "pmtpy", "read", "meter")
    assert done.returncode == 3
    assert "sudo systemctl start meterd" in done.stderr


def test_it_is_read_with_its_options_and_as_a_virtual_device(place: Path) -> None:
    (place / "counter").write_text("5000000\n")
    done = run(place, "-m", "pmtpy", "read", "meter", "-o", f"path={place / 'counter'}", "--json")
    assert done.returncode == 0, done.stderr
    done = run(place, "-m", "pmtpy", "read", "meter:virtual", "--json")
    assert done.returncode == 0, done.stderr
    assert run(place, "-m", "pmtpy", "read", "meter:virtuall").returncode == 2


def test_its_own_test_passes(place: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(place)]
    done = run(place, *words, str(place / "source" / "test_meter.py"))
    assert done.returncode == 0, done.stdout + done.stderr
