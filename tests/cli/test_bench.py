from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Pmtpy, Started, wait_for

VIRTUAL = ("-s", "rapl:virtual", "-o", "load=constant:60", "--warmup", "0")


def sleeping(seconds: float) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", f"import time; time.sleep({seconds})")


def test_a_command_that_takes_three_times_as_long_uses_more(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy(
        "bench", *VIRTUAL, "--target", "60%", "--json", "--output", "r.json", "--", *sleeping(0.3), "--", *sleeping(1.2)
    )
    assert done.returncode == 11, done.stderr
    assert "more: the second uses +" in done.stderr
    assert done.stdout == ""
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["difference"]["low"] > 0.0
    assert document["sides"][0]["watts"]["value"] == pytest.approx(60.0, rel=0.05)
    assert document["blocks"] >= 5


def test_one_command_is_resolved_with_status_zero(pmtpy: Pmtpy) -> None:
    done = pmtpy("bench", *VIRTUAL, "--target", "90%", "--", *sleeping(0.2))
    assert done.returncode == 0, done.stderr
    assert "resolved: repeats to" in done.stdout


def test_when_the_time_is_over_it_is_unresolved_and_has_a_status_of_its_own(pmtpy: Pmtpy) -> None:
    done = pmtpy("bench", *VIRTUAL, "--target", "1%", "--max-time", "4", "--", *sleeping(0.5))
    assert done.returncode == 13, done.stderr
    assert "unresolved" in done.stdout
    assert "allow more time" in done.stderr


def test_a_command_that_fails_on_the_way_leaves_what_was_measured(pmtpy: Pmtpy, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; p = pathlib.Path('n'); n = len(p.read_text()) if p.exists() else 0\n"
        "p.write_text('x' * (n + 1)); time.sleep(0.3)\n"
        "sys.exit('out of memory' if n > 12 else 0)"
    )
    done = pmtpy("bench", *VIRTUAL, "--json", "--", sys.executable, "-S", "-c", code)
    assert done.returncode == 1
    assert "ended with status 1\n  out of memory" in done.stderr
    document = json.loads(done.stdout)
    assert document["ended"] == "failed"
    assert len(document["trials"]) >= 1
    assert (tmp_path / "n").exists()


def test_ctrl_c_shows_what_was_measured(started: Started, tmp_path: Path) -> None:
    code = "import pathlib, time; time.sleep(0.2); p = pathlib.Path('n'); p.open('a').write('x')"
    child = started("bench", *VIRTUAL, "--target", "0.01%", "--json", "--", sys.executable, "-S", "-c", code)
    ran = tmp_path / "n"
    wait_for(lambda: ran.exists() and ran.stat().st_size > 20)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert json.loads(out)["ended"] == "interrupted"
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--target", "7", "--", "true"), "write a share of the energy"),
        ((), "a command is expected after --"),
        (("--", "true", "--"), "a command is expected after --"),
        (("--", "a", "--", "b", "--", "c"), "one command or two"),
        (("--max-time", "soon", "--", "true"), "is not a duration"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(pmtpy: Pmtpy, words: tuple[str, ...], says: str) -> None:
    done = pmtpy("bench", *VIRTUAL, *words)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_command_that_does_not_exist_is_told_as_a_shell_does(pmtpy: Pmtpy) -> None:
    done = pmtpy("bench", *VIRTUAL, "--", "no-such-command")
    assert done.returncode == 127
    assert "command not found" in done.stderr
