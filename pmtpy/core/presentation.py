"""Numbers as people and JSON take them, and tables of them for notebooks. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

_MOST_PLACES = 6  # a microjoule: nobody reads more
_NAMES_SAID_APART = 2  # names of which the same is said one by one
_NAMES_SHOWN = 4  # names that are shown; of more as few as may be said one by one


def in_same_digits(value: float, uncertainty: float, most_places: int = _MOST_PLACES) -> tuple[str, str]:
    """Return a value and its uncertainty, both to the second digit of the uncertainty: ``45.5`` and ``4.3``.

    Where that is not known (``?``), or nothing, six digits of the value.
    """
    if not (math.isfinite(value) and math.isfinite(uncertainty) and uncertainty > 0.0):
        return f"{value:.6g}", "?" if math.isnan(uncertainty) else f"{uncertainty:.2g}"
    places = max(0, 1 - math.floor(math.log10(uncertainty)))
    if places > most_places:
        return fixed(value, most_places), f"{uncertainty:.2g}"
    return fixed(value, places), f"{uncertainty:.{places}f}"


def fixed(value: float, places: int) -> str:
    """Return a value to so many decimal places; what rounds to nothing has no sign."""
    return f"{round(value, places) + 0.0:.{places}f}"


def duration(seconds: float) -> str:
    """Return a length of time to three digits: ``650 ms``, ``12.3 s``."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{seconds * 1e3:.3g} ms"


def amount(number: int, one: str, several: str = "", *, form: str = "") -> str:
    """Return a number of things in words: ``1 row``, ``2 rows``; ``several`` where that is not ``one`` with an s."""
    return f"{number:{form}} {one if number == 1 else several or f'{one}s'}"


def not_covered(seconds: float, of_s: float) -> str:
    """Say for how much of a stretch no energy is known: ``coverage`` in words."""
    share = seconds / of_s if of_s > 0 else 1.0
    return f"no energy is known for {duration(seconds)} of {duration(of_s)} ({share:.0%}); the joules do not contain it"


def rows_lost(number: int, why: str = "") -> str:
    """Say that rows were lost, and why the last reading failed of those that did."""
    said = f"{amount(number, 'row was', 'rows were')} lost inside the region"
    return f"{said}; the last reading that failed: {why}" if why else said


def said_once(texts: Sequence[str], names: Collection[str]) -> list[str]:
    """Join what is said of many names alike: of ``NAME: text`` with more than two names the text stays once."""
    alike: dict[str, list[str]] = {}
    for text in texts:
        name, _, said = text.partition(": ")
        if name in names:
            alike.setdefault(said, []).append(name)
    shown: dict[str, None] = {}
    for text in texts:
        name, _, said = text.partition(": ")
        of = alike.get(said, []) if name in names else []
        shown[f"{_listed(of)}: {said}" if len(of) > _NAMES_SAID_APART else text] = None
    return list(shown)


def _listed(names: Sequence[str]) -> str:
    shown = names[:-1] if len(names) <= _NAMES_SHOWN else names[:_NAMES_SAID_APART]
    rest = names[-1] if len(names) <= _NAMES_SHOWN else f"{len(names) - _NAMES_SAID_APART} others"
    return f"{', '.join(shown)} and {rest}"


def number_or_none(value: float) -> float | None:
    """Return the number for JSON, which has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of foreign text; ``+-`` becomes the sign of an uncertainty."""
    lines = [_line("th", heads), *(_line("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def html_notes(notes: Iterable[str]) -> str:
    """Return a list of notes, each once; empty where there is none."""
    said = "".join(f"<li>{escaped(note)}</li>" for note in dict.fromkeys(notes))
    return f"<ul>{said}</ul>" if said else ""


def _line(tag: str, cells: Sequence[str]) -> str:
    shown = (escaped(cell).replace("+-", "&plusmn;") for cell in cells)
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in shown) + "</tr>"


def escaped(text: str) -> str:
    """Return text as HTML shows it."""
    from html import escape  # a tenth of what the first region of a program costs

    return escape(text)


def utf8(text: str) -> str:
    r"""Return text that every format can hold: bytes that are no UTF-8, of a path or a command, as ``\udcff``."""
    return text.encode(errors="backslashreplace").decode()
