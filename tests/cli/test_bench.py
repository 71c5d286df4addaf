"""The verb ``bench``: in this process on a simulated sensor, and as a user runs it where processes matter."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pmtpy.cli import bench as verb
from pmtpy.cli import main
from pmtpy.errors import WorkFailedError
from tests.cli.conftest import Pmtpy, Started, wait_for
from tests.support.repeated import FULL, Task, World

VIRTUAL = ("-s", "rapl:virtual", "-o", "load=constant:60", "--warmup", "0")


class Command(Task):
    """``work FACTOR [fails|gone AFTER]``: a command that draws so many times the power of the pattern."""

    def __init__(self, world: World, words: list[str]) -> None:
        super().__init__(world, factor=float(words[1]), label=" ".join(words))
        self._what, self._after = words[2:4] if words[2:] else ("", "0")

    def run(self, times: int) -> None:
        super().run(times)
        if self._what and self.calls > int(self._after):
            if self._what == "fails":
                raise WorkFailedError("work ended with status 1\n  out of memory")
            self.world.source.gone = True


Bench = Callable[..., int]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Run the verb on a simulated sensor, in simulated time; return its status."""
    with World(FULL, 3) as world:

        @contextlib.contextmanager
        def opened(_targets: object, _options: object) -> Iterator[list[object]]:
            yield [world.sensor]

        monkeypatch.setattr(verb, "opened", opened)
        monkeypatch.setattr(verb, "CommandWork", lambda words, **_: Command(world, words))
        yield lambda *words: main(["bench", "-s", "rapl:virtual", "--seed", "1", *words])


@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        ("1.1", (11, "more: the second uses +")),
        ("0.9", (10, "less: the second uses -")),
        ("1", (12, "no difference larger")),
    ],
)
def test_each_verdict_has_a_status_of_its_own(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path, second: str, outcome: tuple[int, str]
) -> None:
    (status, says), path = outcome, tmp_path / "r.json"
    code = bench("--target", "3%", "--json", "--output", str(path), "--", "work", "1", "--", "work", second)
    out, err = capsys.readouterr()
    assert code == status, err
    assert says in err
    assert out == ""
    document = json.loads(path.read_text())
    assert document["difference"]["low"] <= float(second) - 1.0 <= document["difference"]["high"]
    assert document["advice"] == ""
    assert document["blocks"] >= 5


def test_one_command_is_resolved_with_status_zero(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--", "work", "1") == 0
    assert "resolved: repeats to" in capsys.readouterr().out


def test_when_the_time_is_over_it_is_unresolved_and_says_what_would_resolve_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--target", "0.05%", "--max-time", "60", "--", "work", "1") == 13
    out, err = capsys.readouterr()
    assert "unresolved: repeats to" in out
    advised = re.search(r"blocks would do, by the scatter until now; .*: --max-time \d+; .* --target [\d.]+%", out)
    assert advised is not None
    assert bench("--max-time", "4", "--", "work", "1", "--", "work", "1") == 13
    out, err = capsys.readouterr()
    assert out == ""
    why = "no trial fits into max_time (4 s): warming up and 5 blocks take about"
    assert why in err
    assert bench("--max-time", "4", "--json", "--", "work", "1", "--", "work", "1") == 13
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["format"], document["ended"], document["trials"]) == ("pmtpy-bench", "time", [])
    assert why in document["error"]
    assert why in err


@pytest.mark.parametrize(("what", "status", "ended"), [("fails", 1, "failed"), ("gone", 4, "lost")])
def test_what_breaks_on_the_way_leaves_what_was_measured(
    bench: Bench, capsys: pytest.CaptureFixture[str], what: str, status: int, ended: str
) -> None:
    assert bench("--target", "0.01%", "--format", "json", "--", "work", "1", what, "20") == status
    out, err = capsys.readouterr()
    assert ("out of memory" if what == "fails" else "pulled out") in err
    document = json.loads(out)
    assert document["ended"] == ended
    assert len(document["trials"]) >= 3
    assert document["advice"] == ""


def test_a_real_command_that_fails_on_the_way_leaves_what_was_measured(pmtpy: Pmtpy, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; p = pathlib.Path('n'); n = len(p.read_text()) if p.exists() else 0\n"
        "p.write_text('x' * (n + 1)); time.sleep(0.2)\n"
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
def test_what_makes_no_sense_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    try:
        assert main(["bench", *VIRTUAL, *words]) == 2
    except SystemExit as refused:  # by the parser
        assert refused.code == 2  # noqa: PT017
    assert says in capsys.readouterr().err


def test_a_command_that_does_not_exist_is_told_as_a_shell_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *VIRTUAL, "--", "no-such-command"]) == 127
    assert "command not found" in capsys.readouterr().err
