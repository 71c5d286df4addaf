"""What a person sees: on a real terminal of any width, with and without colours, and never a number that is cut."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pmtpy.cli.page import Kind, Line, Table, aligned, plain
from pmtpy.cli.terminal import _table, folded, records
from tests.support.terminals import PAGE, ROOT, TABLE, on_a_terminal

pytest.importorskip("rich", reason="the extra `cli` is not installed")

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3|4|9|10)[0-9]m")
_SHOW = "from tests.support.terminals import PAGE; from pmtpy.cli.terminal import show; show(PAGE)"


def shown(width: int, **environment: str) -> str:
    return on_a_terminal([sys.executable, "-c", _SHOW], width=width, **environment)


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 120, 200])
def test_no_number_is_cut_or_folded_at_any_width(width: int) -> None:
    text = _ESCAPE.sub("", shown(width))
    for number in ("2.0004", "300.019", "149.983", "75.003", "37.4948", "99.12%", "12 rows" if width > 40 else "12"):
        assert number in text, text
    assert all(len(line.rstrip()) <= max(width, 30) for line in text.splitlines()), text
    assert "[not]" in text


def test_no_colour_where_none_is_wanted() -> None:
    assert _COLOUR.search(shown(100))
    assert not _COLOUR.search(shown(100, NO_COLOR="1"))
    assert "\x1b" not in shown(100, TERM="dumb")


def test_a_pipe_gets_plain_lines_whatever_is_installed() -> None:
    hidden = "import sys; sys.modules['rich'] = None; " + _SHOW
    both = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240,
            env={**os.environ, "FORCE_COLOR": "1"},
        ).stdout
        for code in (_SHOW, hidden)
    ]  # fmt: skip
    assert both[0] == both[1] == plain(PAGE) + "\n"


def test_the_same_note_stands_once() -> None:
    assert plain(PAGE).count("a note that is") == 1


def test_a_line_is_folded_between_words_and_a_command_stays_whole() -> None:
    note = Line("note: " + "word " * 30 + "0.123456789", Kind.NOTE)
    parts = folded(note, 50)
    assert all(len(part) <= 50 for part in parts)
    assert all(part.startswith("      ") for part in parts[1:])
    assert " ".join(part.strip() for part in parts) == note.text
    command = Line("    $ sudo " + "long " * 30, Kind.COMMAND)
    assert folded(command, 50) == [command.text]


def test_a_table_that_does_not_fit_names_each_number() -> None:
    lines = records(TABLE, 30)
    assert lines[0] == "powersensor3:virtual"
    assert "joules 300.019" in " ".join(map(str.strip, lines))
    several = Table([("", "mean", "spread (sd)", ""), ("a", "12.3", "0.45", "as it was counted")])
    for width in range(12, 40):
        assert any("spread (sd) 0.45" in line for line in records(several, width)), width


def test_words_in_the_last_column_are_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    rows = Table([("sensor", "J", "how"), ("gpu", "12.3", "counter total_energy_consumption")])
    for width in range(30, 60):
        _table(Console(width=width, file=sys.stdout), rows)
        assert "total_energy_consumption" in capsys.readouterr().out, width


def test_an_empty_table_is_nothing() -> None:
    assert aligned([]) == []
    assert records(Table([]), 40) == []


PMTPY = [sys.executable, "-m", "pmtpy"]


def test_long_work_shows_progress_on_a_terminal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    text = on_a_terminal([*PMTPY, "dump", "rapl:virtual", "-f", str(tmp_path / "a.csv"), "--duration", "2s"])
    assert re.search(r"\d W  [\d,]+ rows  [\d.]+ k?B", text), "watts now, rows and size of the file"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    quiet = on_a_terminal([*PMTPY, "dump", "rapl:virtual", "-f", str(tmp_path / "b.csv"), "--duration", "2s", "-q"])
    assert "logging" not in quiet


@pytest.mark.parametrize("width", [30, 60, 120])
def test_repeated_runs_show_their_spread_as_a_table_on_a_terminal(width: int) -> None:
    words = [*PMTPY, "run", "-s", "rapl:virtual", "--repeat", "3", "--", "true"]
    text = " ".join(_ESCAPE.sub("", on_a_terminal(words, width=width)).split())
    assert "3 runs; the table above is the last of them:" in text
    for word in ("mean", "+- (95 %)", "spread (sd)", "min", "max", "rapl:virtual (J)", "time (s)"):
        assert word in text


def test_help_is_coloured_on_a_terminal_and_the_same_text_elsewhere() -> None:
    coloured = on_a_terminal([*PMTPY, "dump", "--help"], width=100, COLUMNS="100")
    env = {**os.environ, "COLUMNS": "100"}
    piped = subprocess.run([*PMTPY, "dump", "--help"], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert _COLOUR.search(coloured)
    assert _ESCAPE.sub("", coloured).split() == piped.stdout.split()


@pytest.mark.parametrize("verb", ["list", "doctor", "read rapl:virtual", "run -s rapl:virtual -- true"])
def test_a_terminal_shows_each_page(verb: str) -> None:
    text = _ESCAPE.sub("", on_a_terminal([*PMTPY, *verb.split()], width=200))
    assert "rapl" in text
    assert "virtual" in text
    assert "Traceback" not in text
