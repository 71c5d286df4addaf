"""Completion as a shell asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pmtpy.cli.completion import SHELLS
from tests.cli.conftest import Pmtpy

ROOT = Path(__file__).parents[2]
pytest.importorskip("argcomplete")


def completions(line: str, tmp_path: Path) -> set[str]:
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "fish",  # which takes words with a colon as they are
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pmtpy"], cwd=tmp_path, env={**os.environ, **asked}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {word.strip().split("\t")[0] for word in answer.read_text().splitlines()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pmtpy re", {"read"}),
        ("pmtpy read rapl:", {"rapl:virtual"}),
        ("pmtpy read powersensor3", {"powersensor3", "powersensor3:virtual"}),
        ("pmtpy dump rapl --format p", {"parquet", "pmt", "powersensor3"}),
        ("pmtpy run -s nvml:v", {"nvml:virtual"}),
        ("pmtpy doctor --ru", {"--rules"}),
        ("pmtpy completion z", {"zsh"}),
    ],
)
def test_a_word_is_completed(line: str, expected: set[str], tmp_path: Path) -> None:
    assert completions(line, tmp_path) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_asks_pmtpy(pmtpy: Pmtpy, shell: str) -> None:
    done = pmtpy("completion", shell)
    assert done.returncode == 0, done.stderr
    assert "_ARGCOMPLETE" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_without_the_extra_it_says_what_to_install(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "argcomplete.py").write_text("raise ImportError('not here')\n")
    done = pmtpy("completion", "bash", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert done.returncode == 3
    assert "pip install 'pmtpy[cli]'" in done.stderr
