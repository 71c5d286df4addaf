"""What a verb shows a person, as data: lines that say what they are, and tables. Pure.

As plain text (:func:`plain`) it is the same, byte for byte, wherever it is written; :mod:`pmtpy.cli.terminal` shows it
on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a line is, for its colour."""

    TEXT = "text"
    HEADING = "heading"
    NOTE = "note"
    WARNING = "warning"
    GOOD = "good"
    BAD = "bad"
    COMMAND = "command"


_FIGURES = re.compile(r"[-+]?\d[\d.,e+-]*")
_NAMED = 6  # regions that a text names; there may be thousands
_SAID = {"note": Kind.NOTE, "warning": Kind.WARNING}


@dataclass(frozen=True, slots=True)
class Line:
    """One line; how deep it stands is in its leading blanks."""

    text: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length: words in the first and the last column, numbers with their units between."""

    rows: Sequence[Sequence[str]]
    headed: bool = True  # the first row names the columns


Page = Sequence[Line | Table]


def note(text: str) -> Line:
    """Return a line that a reader of the numbers must know."""
    return Line(f"note: {text}", Kind.NOTE)


def message(text: str) -> list[Line]:
    """Return a message as lines, each as what its first word says that it is."""
    return [Line(line, _SAID.get(line.strip().partition(":")[0], Kind.TEXT)) for line in text.splitlines()]


def notes(texts: Iterable[str]) -> list[Line]:
    """Return each note once, in order."""
    return [note(text) for text in dict.fromkeys(texts)]


def of_each(told: Iterable[tuple[str, str]]) -> list[str]:
    """Return each text once, behind the names of all that it is about: pairs of a name and a text."""
    about: dict[str, list[str]] = {}
    for who, text in told:
        about.setdefault(text, []).append(who)
    return [f"{', '.join(dict.fromkeys(who))}: {text}" for text, who in about.items()]


def of_longest(told: Sequence[tuple[str, str]], *, several: bool) -> list[str]:
    """Return texts that differ from region to region by no more than their figures once, with those of the longest.

    ``told``: names of regions and texts about them, the longest region first. ``several``: whether there are several
    regions, with a text or not; then each says which.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for where, text in told:
        found.setdefault(_FIGURES.sub("", text), []).append((where, text))
    if not several:
        return [alike[0][1] for alike in found.values()]
    return [f"{alike[0][1]} ({_places([where for where, _ in alike])})" for alike in found.values()]


def _places(regions: Sequence[str]) -> str:
    first, *others = dict.fromkeys(regions)
    if len(others) > _NAMED:
        others = [*others[:_NAMED], f"{len(others) - _NAMED} more"]
    return first + (f"; as well, with figures of their own: {', '.join(others)}" if others else "")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns in line: words left, numbers between right."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        numbers = [cell.rjust(w) for cell, w in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip())
    return lines


def plain(page: Page) -> str:
    """Return a page as text, without a line end behind it."""
    lines: list[str] = []
    for part in page:
        lines += aligned(part.rows) if isinstance(part, Table) else [part.text]
    return "\n".join(lines)
