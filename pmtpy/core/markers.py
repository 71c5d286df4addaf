"""Labels on a curve, and the regions that pairs of them enclose. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_EDGE = re.compile(r"(?:(?P<name>.*?)[\s:._/-]+)?(?P<edge>start|begin|on|end|stop|off)", re.IGNORECASE | re.DOTALL)
_OPENING = {"start", "begin", "on"}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a curve with a name, which may be empty. Times as in the markers."""

    start: float
    end: float
    name: str


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
    return sorted(found, key=lambda r: (r.start, -r.end)), sorted(single)
