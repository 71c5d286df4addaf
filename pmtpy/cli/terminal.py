"""Pages, help and progress on a terminal, with rich (extra ``cli``); plain text everywhere else.

The only module that knows rich, which is imported when a person looks: a pipe pays nothing, and gets the same bytes
whether rich is installed or not. Colours follow ``NO_COLOR`` and the kind of terminal, as rich has it. A number is
never cut: a table that does not fit is written as paragraphs.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Literal, TextIO

from pmtpy.cli.page import Kind, Line, Page, Table, aligned, plain
from pmtpy.errors import SinkError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_STYLES = {
    Kind.TEXT: "",
    Kind.HEADING: "bold",
    Kind.NOTE: "yellow",
    Kind.WARNING: "bold yellow",
    Kind.GOOD: "green",
    Kind.BAD: "bold red",
    Kind.COMMAND: "cyan",
}
_LEAST_WORDS = 12  # columns in which words can still be read when they are folded
_LEAST_PROGRESS_S = 2.0  # what is over sooner needs no bar
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"  # a number stays with its name and unit
_COLUMN_GAP = 2  # blanks between the columns of a table
_IN_HELP = (
    (re.compile(r"^(usage|[a-z][a-z ]*):(?=\s)", re.MULTILINE), "bold"),
    (re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*"), "cyan"),
    (re.compile(r"^  pmtpy .*$", re.MULTILINE), "green"),
)


def is_terminal(stream: IO[str] | None) -> bool:
    """Tell whether a person looks at a stream, on a terminal that can do more than a line printer."""
    with contextlib.suppress(ValueError, AttributeError):  # it is closed, or not a stream
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    return False


class ClosedStdout(io.TextIOBase):
    """Stands for stdout where that was closed before we started (``>&-``): a result that goes there is lost.

    Its number is kept, or the next file that is opened would get it.
    """

    def __init__(self) -> None:
        self._kept = open(os.devnull, "rb")  # noqa: SIM115, PTH123  (as long as we run)

    def write(self, _text: str) -> int:
        """Refuse.

        Raises
        ------
        SinkError
            Always.
        """
        raise SinkError("cannot write the result: stdout is closed; open it, or send it to /dev/null if nobody asks")


class StatusLine:
    """One line on stderr, a terminal, which is shown in the place of the one before."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, line: str) -> None:
        """Show a line, as far as it fits: one that is folded could not be wiped."""
        sys.stderr.write("\r\x1b[K" + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
        self._shown = True

    def wipe(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def console_of(stream: TextIO) -> Console | None:
    """Return rich's console for a terminal; None where plain text is wanted."""
    if not is_terminal(stream):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream, highlight=False, emoji=False, markup=False)


def show(page: Page, stream: TextIO | None = None) -> None:
    """Write a page to a stream, stdout unless told otherwise.

    Raises OSError: it does not take it. Of a terminal that was closed (SIGHUP) nobody reads it any more.
    """
    stream = sys.stdout if stream is None else stream
    console = console_of(stream)
    try:
        if console is None:
            print(plain(page), file=stream)
            return
        for part in page:
            _table(console, part) if isinstance(part, Table) else _line(console, part)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        settle(stream)


def settle(stream: TextIO) -> None:
    """Write what a stream still holds, or nowhere if it does not take it: the interpreter must not try at its exit."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _line(console: Console, line: Line) -> None:
    from rich.text import Text

    style = _STYLES[line.kind]
    for number, part in enumerate(folded(line, console.width)):
        text = Text(part)
        label = re.match(r"\s*\w+: ", part) if number == 0 and line.kind in {Kind.NOTE, Kind.WARNING} else None
        if label is not None:
            text.stylize(style, 0, label.end())
        elif line.kind not in {Kind.NOTE, Kind.WARNING}:
            text.stylize(style)
        console.print(text, soft_wrap=True)


def folded(line: Line, width: int) -> list[str]:
    """Return a line in parts of at most ``width`` characters, folded between words, each as deep as the first.

    A command stays whole, because it will be copied. In a window too narrow for that no line is set in.
    """
    if line.kind is Kind.COMMAND or len(line.text) <= width:
        return [line.text]
    label = re.match(r"\s*\w+: ", line.text) if line.kind in {Kind.NOTE, Kind.WARNING} else None
    deep = label.end() if label else len(line.text) - len(line.text.lstrip())
    behind = " " * (deep if width >= deep + 2 * _LEAST_WORDS else 0)
    return textwrap.wrap(
        line.text, width, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True, replace_whitespace=False,
    )  # fmt: skip


def _table(console: Console, table: Table) -> None:
    words = max((len(row[-1]) for row in table.rows), default=0)
    least = max((len(word) for row in table.rows for word in row[-1].split()), default=0)  # words are not broken
    whole = max(map(len, aligned(table.rows)), default=0)
    if whole - max(0, words - max(least, _LEAST_WORDS)) > console.width:
        for line in records(table, console.width):
            console.print(line, soft_wrap=True)
    else:
        console.print(_grid(table))


def records(table: Table, width: int) -> list[str]:
    """Return a table that is too wide as a paragraph for each row: each number behind the name of its column."""
    if not table.rows:
        return []
    head, *rows = table.rows if table.headed else ([""] * len(table.rows[0]), *table.rows)
    lines: list[str] = []
    for row in rows:
        deep = " " * (len(row[0]) - len(row[0].lstrip()) + _COLUMN_GAP)
        cells = [
            f"{n} {cell}".strip().replace(" ", _NO_BREAK_SPACE)
            for n, cell in zip(head[1:-1], row[1:-1], strict=True)
            if cell
        ]
        text = ", ".join([*cells, *([row[-1]] if row[-1] else [])])
        paragraph = textwrap.wrap(
            text, max(width, _LEAST_WORDS), initial_indent=deep, subsequent_indent=deep,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += [row[0], *(part.replace(_NO_BREAK_SPACE, " ") for part in paragraph)]
    return lines


def _grid(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(
        box=None, show_header=table.headed, header_style="bold", padding=(0, _COLUMN_GAP, 0, 0), pad_edge=False
    )
    head, *rows = table.rows if table.headed else ([""] * len(table.rows[0]), *table.rows)
    for place, name in enumerate(head):
        last = place == len(head) - 1
        side: Literal["left", "right"] = "left" if last or place == 0 else "right"
        grid.add_column(Text(name), justify=side, no_wrap=not last, overflow="fold")
    for row in rows:
        part = row[0].startswith(" ")  # a channel below its sensor
        grid.add_row(*map(Text, row), style="dim" if part else None)
    return grid


@contextlib.contextmanager
def progress(what: str, seconds: float | None, *, enabled: bool = True) -> Iterator[Callable[..., None]]:
    """Show on a terminal how long something takes; call what is yielded with the seconds that have passed.

    A text behind them is shown instead of ``what``; in a narrow window it is cut before the times are.

    Parameters
    ----------
    seconds : float or None
        How long it will take; None: until somebody ends it.
    """
    console = console_of(sys.stderr) if enabled and (seconds is None or seconds >= _LEAST_PROGRESS_S) else None
    if console is None:
        yield lambda _seconds, _text="": None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column

    whole = Column(no_wrap=True, min_width=7)
    elapsed = TimeElapsedColumn(table_column=whole)
    left = (BarColumn(20), elapsed, TimeRemainingColumn(table_column=whole.copy())) if seconds else (elapsed,)
    said = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    columns = (SpinnerColumn(), *left, said)
    # Twice a second is enough to see that it lives, and costs a measurement next to nothing.
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as shown:
        task = shown.add_task(what, total=seconds)
        yield lambda passed, text="": shown.update(task, completed=passed, description=text or what)


def help_on(console: Console, text: str) -> None:
    """Write the help of argparse with its headings, options and examples set off."""
    from rich.text import Text

    shown = Text(text.rstrip("\n"))
    for pattern, style in _IN_HELP:
        shown.highlight_regex(pattern, style)
    console.print(shown, soft_wrap=True)
