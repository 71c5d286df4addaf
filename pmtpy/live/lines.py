"""A look at the sensors as lines of text of a given width: the number that matters first, units once. Pure."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from pmtpy.core.presentation import fixed
from pmtpy.live.watch import Look, Shown

_BLOCKS = "▁▂▃▄▅▆▇█"
_INDENT = "  "
_NARROWEST = 8  # cells that a name keeps
_FEWEST_SPARKS = 8
_COVERED = 0.9995  # shown as 100 %
_MOST_WATTS_CELLS = 8  # a column of watts has a blank before them
_MOST_WRITTEN = 1e8  # nine digits of joules find room in their column with a blank before them, and not one more
_CUT = "…"


class Order(Enum):
    """How the wholes are sorted; parts stay below them."""

    SENSORS = "as named"
    WATTS = "by watts"
    JOULES = "by joules"


class Tone(Enum):
    """What a line is, for its colour."""

    HEAD = "head"
    PLAIN = "plain"
    PART = "part"
    GONE = "gone"
    TOTAL = "total"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Written:
    """One line of the screen."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    width: int
    cell: Callable[[Shown], str]
    worth: int  # the narrower the screen, the more columns go, the least worth first


def watts(value: float) -> str:
    """Write watts (or joules) with four digits that matter, aligned by the point where that is possible."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= _MOST_WRITTEN:
        return f"{value:.3e}"
    if 0.0 < size < 0.99995:  # as many decimals as find room: to a microwatt
        places = min(3 - math.floor(math.log10(size)), _MOST_WATTS_CELLS - len("-0." if value < 0.0 else "0."))
        return fixed(value, places)
    return f"{value:.3f}" if size < 9.9995 else f"{value:.2f}" if size < 9999.995 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """Write an age or a time: 0.2 s, 12 s, 3:05, 1:02:03."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _now(shown: Shown) -> str:
    return watts(shown.watts) if shown.alive else "lost"


def _coverage(shown: Shown) -> str:
    return f"{100 * shown.coverage:.1f}" if shown.coverage < _COVERED else "100" if shown.coverage > 0 else "-"


_COLUMNS = (
    _Column("W now", 9, _now, 9),
    _Column("mean", 9, lambda s: watts(s.mean), 7),
    _Column("min", 9, lambda s: watts(s.low), 4),
    _Column("max", 9, lambda s: watts(s.high), 5),
    _Column("J", 10, lambda s: watts(s.joules), 8),
    _Column("age", 10, lambda s: duration(s.age_s), 6),
    _Column("% cov", 6, _coverage, 3),
    _Column("lost", 7, lambda s: str(s.lost) if s.lost else "-", 2),
)


def spark(past: Sequence[float], width: int) -> str:
    """Return the last powers as characters from zero to their greatest; a blank where none is known."""
    shown = past[-width:]
    top = max((w for w in shown if math.isfinite(w)), default=0.0)
    if top <= 0:
        return ""
    return "".join(
        _BLOCKS[min(len(_BLOCKS) - 1, max(0, int(w / top * len(_BLOCKS))))] if math.isfinite(w) else " " for w in shown
    )


def ordered(powers: Sequence[Shown], order: Order) -> list[Shown]:
    """Return powers with the greatest whole first, each with its parts below it."""
    if order is Order.SENSORS:
        return list(powers)
    key = {p.node.root: p.mean if order is Order.WATTS else p.joules for p in powers if p.node.depth == 0}
    return sorted(powers, key=lambda p: -key[p.node.root] if math.isfinite(key[p.node.root]) else math.inf)


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes: two for each wide character, none for what is put above one."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fitted_name(text: str, width: int) -> str:
    """Return a text in so many cells: filled up, or cut with a sign that it is."""
    room = width - cells(text)
    if room >= 0:
        return text + " " * room
    while text and cells(text) >= width:
        text = text[:-1]
    return text + _CUT + " " * (width - 1 - cells(text))


def screen(look: Look, width: int, order: Order = Order.SENSORS) -> list[Written]:
    """Return the lines of a screen: heads, powers, the total or why there is none, notes."""
    powers = ordered(look.powers, order)
    names = [_INDENT * p.node.depth + p.node.label for p in powers]
    total = [look.total] if look.total is not None else []
    wide = max(map(cells, [*names, "sensor", *(t.node.label for t in total)]))
    wide = min(wide, max(_NARROWEST, width - _COLUMNS[0].width))  # the power now finds room wherever a name does
    columns = _fitting(width - wide)
    wide = min(wide, width)
    left = width - wide - sum(c.width for c in columns) - 2
    sparks = left if left >= _FEWEST_SPARKS else 0

    def line(name: str, cells: Iterator[str], past: Sequence[float]) -> str:
        numbers = "".join(cell.rjust(c.width) for c, cell in zip(columns, cells, strict=True))
        return f"{_fitted_name(name, wide)}{numbers}  {spark(past, sparks) if sparks else ''}".rstrip()

    made = [Written(line("sensor", (c.head for c in columns), ()), Tone.HEAD)]
    for name, shown in zip(names, powers, strict=True):
        tone = Tone.GONE if not shown.alive else Tone.PART if shown.node.depth else Tone.PLAIN
        made.append(Written(line(name, (c.cell(shown) for c in columns), shown.past), tone))
    made += [Written(line(t.node.label, (c.cell(t) for c in columns), t.past), Tone.TOTAL) for t in total]
    why = f"no total: {look.why}" if look.why and look.total is None else look.why
    made += [Written(part, Tone.NOTE) for part in textwrap.wrap(why, width)]
    return made


def _fitting(width: int) -> list[_Column]:
    """Return the columns that find room beside the names: none of them is ever cut, since 80 is no part of 800."""
    kept = sorted(_COLUMNS, key=lambda c: -c.worth)
    while kept and sum(c.width for c in kept) > width:
        kept.pop()
    return [c for c in _COLUMNS if c in kept]


def plain(look: Look) -> str:
    """Return a look as one line, for a pipe: each sensor's watts and joules."""
    parts = [f"{look.seconds:.1f} s"]
    for shown in look.powers:
        if shown.node.column == 0:
            now = f"{watts(shown.watts)} W" if shown.alive else f"lost {duration(shown.age_s)}"
            parts.append(f"{shown.node.label} {now} {watts(shown.joules)} J")
    if look.total is not None:
        parts.append(f"total {watts(look.total.watts)} W {watts(look.total.joules)} J")
    return "  ".join(parts)
