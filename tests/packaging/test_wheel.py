"""The wheel as a user gets it: built from a plain copy, installed into an empty environment without extras, and used.

So a data file that is not packed, and a dependency that only developers have, are found here. It is done on each Python
from 3.10 on that this machine has; the packages numpy and pyserial come from where pip gets packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.interpreters import THIS, interpreters

ROOT = Path(__file__).parents[2]
_SECONDS = 300  # an install on a busy machine with a slow network

_REGION = """
import pmtpy as pmt
with pmt.region("sum", "rapl:virtual") as r:
    sum(i * i for i in range(300_000))
assert r["rapl:virtual"].joules > 0, r["rapl:virtual"]
assert r["rapl:virtual"].virtual
print(pmt.__version__)
"""

# Runs each verb in a process of its own that has imported what they all need: twenty starts cost as much as the rest.
_VERBS = """
import json, os, sys
import numpy, pmtpy.cli
for number, words in enumerate(json.load(sys.stdin)):
    pid = os.fork()
    if pid == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{number}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.exit(pmtpy.cli.main(words))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with nothing but pmtpy and what it requires."""

    python: Path
    folder: Path

    def run(self, *words: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python in an empty folder, with nothing of ours on its path."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMT_", "PYTHON"))}
        return subprocess.run(
            [self.python, *map(str, words)],
            cwd=self.folder, env=clean, input=given, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip

    def verbs(self, *asked: str) -> list[tuple[int, str]]:
        """Run ``pmtpy`` with each line of words; return the exit status of each and what it said on stderr."""
        done = self.run("-c", _VERBS, given=json.dumps([words.split() for words in asked]))
        assert done.returncode == 0, done.stderr
        statuses = [int(line) for line in done.stdout.split()]
        assert len(statuses) == len(asked)
        return [(status, (self.folder / f"{i}.2").read_text("utf-8")) for i, status in enumerate(statuses)]

    def pmtpy(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run ``pmtpy WORDS``."""
        return self.run("-m", "pmtpy", *words)


def _call(*words: object, cwd: Path) -> None:
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a plain copy of the sources: no git, and nothing left of an older build."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "pmtpy", source / "pmtpy", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    _call(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, cwd=folder)
    (built,) = folder.glob("pmtpy-*.whl")
    return built


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(item, id=item[0], marks=() if item[0] == THIS else pytest.mark.slow)
        for item in interpreters().items()
    ],
)
def environment(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the wheel without extras into an empty environment of each Python."""
    name, interpreter = request.param
    place = tmp_path_factory.mktemp(f"python{name}")
    _call(interpreter, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    python = place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    _call(*pip, "install", "--quiet", "--no-compile", wheel, cwd=place)
    work = place / "work"
    work.mkdir()
    return Environment(python, work)


def test_the_wheel_lists_reads_and_measures(environment: Environment, wheel: Path) -> None:
    for words in (("list",), ("read", "rapl:virtual"), ("--version",)):
        done = environment.pmtpy(*words)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    measured = environment.run("-W", "error", "-c", _REGION)
    assert measured.returncode == 0, measured.stderr
    assert wheel.name.startswith(f"pmtpy-{measured.stdout.strip()}-")
    if environment.python.parent.parent.parent.name.startswith(f"python{THIS}") and hasattr(os, "fork"):
        _each_verb_works_or_names_its_extra(environment)


# What each verb is asked here; the first makes the recording that later ones need.
_ASKED = (
    "dump rapl:virtual -f run.csv --duration 200ms",
    "dump rapl:virtual -f run.parquet --duration 200ms",
    "doctor",
    "doctor --rules rapl",
    "read nvml:virtual",
    "read amdsmi:virtual",
    "read powersensor3:virtual hwmon:virtual jetson:virtual occ:virtual cray:virtual",
    "run -s rapl:virtual --json --output report.json -- true",
    "plot run.csv -o run.png",
    "compare run.csv run.csv",
    "config powersensor3:virtual",
    "characterise run.csv",
    "completion bash",
)


def _each_verb_works_or_names_its_extra(environment: Environment) -> None:
    for words, (status, said) in zip(_ASKED, environment.verbs(*_ASKED), strict=True):
        assert "Traceback" not in said, f"{words}\n{said}"
        if status:
            assert re.search(r"pip install 'pmtpy\[\w+\]'", said), f"{words}\n{said}"
    needing = {
        "dump rapl:virtual -f again.parquet --duration 200ms": "parquet",
        "compare run.csv run.csv": "analysis",
        "completion bash": "cli",
        "read nvml:virtual": "nvml",
    }
    for (words, needs), (status, said) in zip(needing.items(), environment.verbs(*needing), strict=True):
        assert status != 0
        assert f"pip install 'pmtpy[{needs}]'" in said, f"{words}\n{said}"
