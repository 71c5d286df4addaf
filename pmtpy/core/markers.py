"""Labels on a curve, and the regions that pairs of them enclose. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

_EDGE = re.compile(r"(?:(?P<name>.*?)[\s:._/-]+)?(?P<edge>start|begin|on|end|stop|off)", re.IGNORECASE | re.DOTALL)
_ROUNDED_S = 2e-6  # by which times of a text file differ from those of its metadata
_OPENING = {"start", "begin", "on"}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a curve with a name, which may be empty. Times as in the markers."""

    start: float
    end: float
    name: str


def joined(marks: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Return the text of each marked row, by its number: its labels, joined by semicolons."""
    texts: dict[int, str] = {}
    for row, label in marks:
        texts[row] = f"{texts[row]};{label}" if row in texts else label
    return texts


def marker_column(marks: Iterable[tuple[int, str]], rows: int) -> list[str]:
    """Return the text of each of so many rows, of most of them an empty one. Marks behind the last row are left out."""
    texts = joined(marks)
    return [texts.get(row, "") for row in range(rows)]


def paired(marks: Iterable[tuple[float, str]]) -> tuple[list[Span], list[tuple[float, str]]]:
    """Pair marks such as ``start`` ... ``end``, ``solve begin`` ... ``solve end``, ``on`` ... ``off``.

    Returns the regions, in order of their starts, and the marks that belong to none. An end closes the latest open
    start of its name; a start that is never closed stays a mark. Labels of one row of a recording are one text, joined
    by semicolons.
    """
    found: list[Span] = []
    single: list[tuple[float, str]] = []
    opened: dict[str, list[tuple[float, str]]] = {}
    for t, label in ((t, one) for t, labels in marks for one in labels.split(";") if one):
        match = _EDGE.fullmatch(label.strip())
        if match is None:
            single.append((t, label))
            continue
        name, edge = (match["name"] or "").strip(), match["edge"].lower()
        waiting = opened.setdefault(name, [])
        if edge in _OPENING:
            waiting.append((t, label))
        elif waiting:
            found.append(Span(waiting.pop()[0], t, name))
        else:
            single.append((t, label))
    single += [mark for waiting in opened.values() for mark in waiting]
    return sorted(found, key=lambda r: (r.start, -r.end)), sorted(single, key=itemgetter(0))


def at_own_instants(
    marks: Iterable[tuple[float, str]],
    rows: Iterable[float],
    own: Iterable[tuple[float, str]],
    rounded: float = _ROUNDED_S,
) -> list[tuple[float, str]]:
    """Return the marks of rows, each label at the instant at which it was set, where that is known.

    Parameters
    ----------
    marks : iterable of (float, str)
        Times of rows and what is written there, in order; several labels of one row have semicolons between them.
    rows : iterable of float
        The time of the row before each, between which and its own the instant lies; infinite where there is none, since
        nothing is recorded of what was before the first row.
    own : iterable of (float, str)
        The instants, in order.
    rounded : float
        By which times of rows may differ from the instants for having been written down as text.
    """
    left: dict[str, deque[float]] = {}
    for t, text in own:
        for label in text.split(";"):
            left.setdefault(label, deque()).append(t)
    found = []
    for (row, text), before in zip(marks, rows, strict=True):
        for label in text.split(";"):
            waiting = left.get(label, deque())
            while waiting and waiting[0] < before - rounded:
                waiting.popleft()
            inside = bool(waiting) and waiting[0] <= row + rounded
            found.append((min(waiting.popleft(), row) if inside else row, label))
    return found
