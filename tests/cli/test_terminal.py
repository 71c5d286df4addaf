"""What a person sees: on a real terminal of any width, with and without colours, and never a number that is cut."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from pmtpy.cli.page import Kind, Line, Table, aligned, notes, plain
from pmtpy.cli.parser import nearest
from pmtpy.cli.terminal import folded, records

pytest.importorskip("rich", reason="the extra `cli` is not installed")

ROOT = Path(__file__).parents[2]
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3|4|9|10)[0-9]m")
TABLE = Table(
    [
        ("sensor", "seconds", "joules", "watts", "how"),
        ("powersensor3:virtual", "2.0004", "300.019", "149.983", "interval mean, virtual"),
        ("  pair0", "2.0004", "75.003", "37.4948", "interval mean, 99.12% covered, 12 rows lost, virtual"),
    ]
)
PAGE = (Line("a heading", Kind.HEADING), TABLE, *notes(["a note that is [not] markup " + "and long " * 12] * 2))


def on_a_terminal(words: list[str], *, width: int = 80, **environment: str) -> str:
    """Run a command with all its streams on a terminal; return what it wrote there."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PMT_") and k not in {"NO_COLOR", "COLUMNS"}}
    env = {**clean, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment}
    with subprocess.Popen(words, stdin=its, stdout=its, stderr=its, env=env, close_fds=True) as child:
        os.close(its)
        written = b""
        try:
            while piece := os.read(ours, 65536):
                written += piece
        except OSError:  # Linux: nobody has the terminal open any more
            pass
        os.close(ours)
    assert child.returncode == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


def shown(width: int, **environment: str) -> str:
    page = "from tests.cli.test_terminal import PAGE; from pmtpy.cli.terminal import show; show(PAGE)"
    return on_a_terminal([sys.executable, "-c", page], width=width, **environment)


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
    page = "from tests.cli.test_terminal import PAGE; from pmtpy.cli.terminal import show; show(PAGE)"
    hidden = "import sys; sys.modules['rich'] = None; " + page
    both = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
            env={**os.environ, "FORCE_COLOR": "1"},
        ).stdout
        for code in (page, hidden)
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
    assert "joules 300.019" in " ".join(lines)


def test_an_empty_table_is_nothing() -> None:
    assert aligned([]) == []
    assert records(Table([]), 40) == []


@pytest.mark.parametrize(
    ("word", "near"),
    [("rapll", "rapl"), ("lst", "list"), ("PowerSensor3", "powersensor3"), ("--fro", "--for"), ("qqq", "")],
)
def test_the_nearest_name(word: str, near: str) -> None:
    found = nearest(word, ["rapl", "list", "powersensor3", "--for", "--json", "run"])
    assert found == (f"; did you mean {near}?" if near else "")
