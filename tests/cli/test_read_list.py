from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pmtpy.cli import VERBS, main
from pmtpy.sensor.registry import BACKENDS
from tests.cli.conftest import ROOT, Pmtpy, Started


def test_list_has_a_line_for_every_backend_with_a_reason_or_a_device(pmtpy: Pmtpy) -> None:
    done = pmtpy("list", "--json")
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)
    assert {line["backend"] for line in lines} >= set(BACKENDS)
    for line in lines:
        assert set(line) == {"target", "backend", "device", "available", "reason", "remedy"}
        assert line["available"] or line["reason"], line
    assert not any("virtual" in line["target"] for line in lines)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["read", "rapl:virtual", "--for", "10ms"]])
def test_a_stdout_that_is_full_is_told_in_one_line(started: Started, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        child = started(*words, stdout=full)
        _, err = child.communicate(timeout=240)
    assert child.returncode == 2
    assert err.startswith(f"pmtpy {words[0]}: cannot write the result: No space left on device")
    assert err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["list"], 2),
        (["--version"], 2),
        (["read", "--help"], 2),
        (["dump", "rapl:virtual", "--duration", "20ms"], 2),
        (["dump", "rapl:virtual", "--duration", "20ms", "-f", os.devnull, "--overwrite"], 0),  # the result is the file
        (["run", "-s", "rapl:virtual", "--", "true"], 0),  # reports on stderr
        (["run", "-s", "rapl:virtual", "--json", "--", "sh", "-c", "exit 7"], 7),
    ],
)
def test_a_stdout_that_is_closed_takes_no_result(tmp_path: Path, words: list[str], status: int) -> None:
    code = f"import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'pmtpy', *{words!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert ("cannot write the result: stdout is closed" in done.stderr) == (status in {2, 7})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["read", "--help"]])
def test_version_and_help_that_are_lost_are_no_success(started: Started, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        child = started(*words, stdout=full)
        _, err = child.communicate(timeout=240)
    assert child.returncode == 2
    assert "cannot write the result: No space left on device" in err
    assert err.count("\n") == 1, err


def test_list_is_readable(pmtpy: Pmtpy) -> None:
    done = pmtpy("list")
    assert done.returncode == 0
    assert "powersensor3" in done.stdout


def test_read_gives_watts_now_and_joules_since_opening(pmtpy: Pmtpy) -> None:
    done = pmtpy("read", "powersensor3:virtual", "-o", "load=constant:60", "--json")
    assert done.returncode == 0, done.stderr
    (sensor,) = json.loads(done.stdout)
    assert sensor["target"] == "powersensor3:virtual"
    assert sensor["virtual"] is True
    assert sensor["total"]["watts"] == pytest.approx(60, abs=6)  # one noisy sample of 50 us
    assert sensor["total"]["joules"] > 5
    assert "pair0" in sensor["channels"]


def test_what_read_prints_says_how_far_it_can_be_trusted(pmtpy: Pmtpy) -> None:
    done = pmtpy("read", "rapl:virtual")
    assert "since it was opened" in done.stdout
    line = next(text for text in done.stdout.splitlines() if text.startswith("  package0.dram"))
    assert "+-" in line
    assert "counter" in line
    assert "one standard uncertainty" in done.stdout


def test_read_shows_every_channel(pmtpy: Pmtpy) -> None:
    done = pmtpy("read", "rapl:virtual", "powersensor3:virtual")
    assert done.returncode == 0, done.stderr
    for word in ("package0.dram", "pair0.voltage [V]", "virtual"):
        assert word in done.stdout


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_explains_each_verb_with_examples(pmtpy: Pmtpy, verb: str) -> None:
    done = pmtpy(verb, "--help")
    assert done.returncode == 0, done.stderr
    assert "examples" in done.stdout.lower()
    assert re.search(rf"pmtpy {verb}", done.stdout)


def test_verbs_may_be_run_again_in_the_same_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    capsys.readouterr()
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_the_joules_of_a_reading_are_those_of_its_seconds(pmtpy: Pmtpy) -> None:
    # A board is opened some tenths of a second before it is watched; its joules count from its first row.
    done = pmtpy("read", "powersensor3:virtual", "nvml:virtual", "-o", "load=constant:60", "--json")
    for sensor in json.loads(done.stdout):
        total = sensor["total"]
        assert total["joules"] / sensor["seconds"] == pytest.approx(60, rel=0.03)
        assert total["uncertainty_joules"] > 0
