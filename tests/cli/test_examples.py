"""The examples in each verb's help are run: those of hardware with the virtual device in its place.

An example that needs files which nobody has made here is at least understood by the verb's own parser.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from pmtpy.cli import VERBS, _parser
from pmtpy.cli.command import split_command
from pmtpy.sensor.registry import BACKENDS
from tests.support.prepared import Prepared

ROOT = Path(__file__).parents[2]
_FILE = re.compile(r"[\w./-]+\.(csv|json|gz|parquet|npz|bin|ps3|pmt)")
_WRITES = {"-f", "--file", "-o", "--output", "--dump", "--export", "--option"}

# Hardware to its rehearsal, and what takes long or does not exist here to something that does.
_INSTEAD = (
    (rf"\b({'|'.join(BACKENDS)})(:(?!virtual)[\w/.]+)?(?![\w:.-])", r"\1:virtual"),
    (r"\./solve( --size 1000)?|python train\.py|\bsleep \d+", "sleep 0.2"),
    (r"\b[1-9]\d*s\b", "300ms"),
    (r"--samples \d+", "--samples 4000"),
    (r"^pmtpy run --", "pmtpy run -s rapl:virtual --"),
    (r" \| sudo tee .*", " > printed"),
)


def examples() -> list[tuple[str, str]]:
    found = []
    for verb in VERBS:
        for parser in _parsers(verb):
            lines = (parser.epilog or "").splitlines()
            # Two blanks and more set a remark off from the command that it is about.
            found += [(verb, re.split(r"\s{3,}", line.strip())[0]) for line in lines if line.startswith("  pmtpy ")]
    return list(dict.fromkeys(found))


def test_the_help_of_a_verb_has_its_examples_before_its_options() -> None:
    for verb in VERBS:
        for parser in _parsers(verb):
            text = parser.format_help()
            assert 0 < text.index("\nexample") < text.index("\noptions:"), verb
            assert len(text.split("\nexample")) == 2, verb


def _parsers(verb: str) -> list[argparse.ArgumentParser]:
    whole = _parser(verb)
    (verbs,) = (a for a in whole._actions if isinstance(a, argparse._SubParsersAction))
    own = verbs.choices[verb]
    inner = [a for a in own._actions if isinstance(a, argparse._SubParsersAction)]
    return [own, *(p for a in inner for p in a.choices.values())]


def rehearsed(line: str) -> str:
    for pattern, instead in _INSTEAD if not line.startswith(("pmtpy sim", "pmtpy doctor --rules")) else _INSTEAD[2:]:
        line = re.sub(pattern, instead, line)
    return line


def missing_files(line: str, folder: Path) -> list[str]:
    words = shlex.split(line.partition(">")[0])
    given = [w for before, w in pairwise(words) if before not in _WRITES]
    return [w for w in given if _FILE.fullmatch(w) and not (folder / w).exists()]


def shell(line: str, folder: Path, prepared: Prepared) -> subprocess.CompletedProcess[str]:
    command = line.replace("pmtpy ", f"{shlex.join(prepared.command)} ", 1)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PMT_")}
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder, env={**clean, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Path:
    """A folder with the recordings that the examples speak of."""
    place = tmp_path_factory.mktemp("examples")
    for target, file in (("powersensor3", "run"), ("rapl", "rapl"), ("nvml", "nvml-0")):
        done = shell(f"pmtpy dump {target}:virtual -f {file}.csv --duration 300ms", place, prepared)
        assert done.returncode == 0, done.stderr
    return place


def test_every_verb_has_an_example() -> None:
    assert {verb for verb, _ in examples()} == set(VERBS)


@pytest.mark.parametrize("line", [line for _, line in examples()], ids=lambda line: line[6:76])
def test_an_example_runs(line: str, folder: Path, prepared: Prepared) -> None:
    line = rehearsed(line)
    verb = line.split()[1]
    # These take ten seconds and more, or end with Ctrl-C: their own tests run them.
    elsewhere = verb in {"bench", "certify", "gather", "serve", "top", "view"} or (
        verb == "characterise" and ":virtual" in line
    )
    if elsewhere or missing_files(line, folder):
        _is_understood(line)
    elif verb == "sim":
        _runs_until_ctrl_c(line, folder)
    else:
        replaces = verb in {"dump", "run", "config"} or line.split()[1:3] == ["calibrate", "profile"]
        line = line + " --overwrite" if replaces and " -- " not in line and "|" not in line else line
        for file in ("report.json", "run.csv" if verb == "dump" else ""):
            (folder / file).unlink(missing_ok=True) if file else None
        done = shell(line, folder, prepared)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def _is_understood(line: str) -> None:
    words, _ = split_command(shlex.split(line.partition(">")[0].partition("|")[0])[1:])
    assert _parser(words[0]).parse_args(words).verb == words[0]


def _runs_until_ctrl_c(line: str, folder: Path) -> None:
    words = shlex.split(line.replace("/tmp/ps3", str(folder / "ps3")))[1:]
    with subprocess.Popen(
        [sys.executable, "-m", "pmtpy", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "/" in process.stdout.readline(), "the path of the port"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
