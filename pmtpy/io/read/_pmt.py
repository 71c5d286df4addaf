"""Reader of PMT's text dump, both generations.

Facts: PMT's ``common/PMT.cpp``. Rows ``TIME WATTS...``; the header ``timestamp NAME...`` is missing when dumping began
after the first reading. Newer: Unix seconds, ``M TIME "LABEL"``. PMT 1.3: seconds since the start, and ``M TIME TAG
"LABEL"``. The times of markers of 1.3 may count from another zero than those of rows, so a marker belongs where it
stands: on the row that follows it. The first power is the total, as in PMT's own ``joules()``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.columns import mean_columns, one_word
from pmtpy.io.read import _check
from pmtpy.io.read._delimited import FLOAT, without_marks
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

_MARK = re.compile(rb'M\s+(\S+)(?:\s+(\d+))?(?:\s+"(.*)")?\s*')
_LAST_DIGIT = 1e-3  # of its powers, in watts


def recognises(recording: Recording) -> bool:
    """Whether this is a header of PMT, or a first row without one."""
    fields = recording.first_line().split()
    if len(fields) > 1 and fields[0] == "timestamp" and not any("," in f for f in fields):
        return True
    try:
        return len([float(f) for f in fields]) > 1
    except ValueError:
        return False


def read(recording: Recording) -> pd.DataFrame:
    """Read a dump whose first line was recognised."""
    header = recording.first_line().split()
    named = header[0] == "timestamp"
    names = _distinct(header[1:]) if named else [f"channel{i}" for i in range(len(header) - 1)]
    kinds = dict.fromkeys(["timestamp", *(f"W {n}" for n in names)], FLOAT)
    columns, at, marked = without_marks(recording, kinds, first=2 if named else 1)
    time = columns["timestamp"]
    unix = bool(len(time) and np.nanmedian(time) > _check.UNIX_S)
    left = np.isfinite(time) if unix else _check.in_order(recording, time, at)
    for number in at[~left].tolist() if unix else []:
        recording.broken(number, "its time is not a number")
    time, at = time[left], at[left]
    if not len(time):
        raise recording.empty("there is no row in it; was anything measured?")
    elapsed, unknown = _check.wall_clock(recording, time, at) if unix else _steady(recording, time, at)
    on_rows = _on_rows([(n, _label(line)) for n, line in marked], at.tolist())
    means = {one_word(n) for n in mean_columns(recording.facts or {})}
    powers = [Power(n, columns[f"W {n}"][left], mean=n in means) for n in names]
    main = next((p for p in powers if p.name == "total"), powers[0])
    _hold_to_sum(recording, main, [p for p in powers if p is not main], at)
    if lost := (recording.facts or {}).get("lost"):
        recording.notes.append(
            f"{amount(lost, 'row was', 'rows were')} lost while it was recorded, and this format does not tell"
            " where: what no other note names counts as known"
        )
    return table(
        recording,
        RecordedCurve(
            time if unix else None,
            elapsed,
            at,
            main,
            tuple(p for p in powers if p.name != "total"),
            marks=on_rows,
            set_s=_set(on_rows, [_time(line) for _, line in marked], time, elapsed) if unix else (),
            unknown=unknown,
        ),
        kind="PMT dump, " + ("newer: Unix time" if unix else "1.3: seconds since the start"),
        clock="host's wall clock" if unix else "seconds since the start of the dump; when that was is not in the file",
        total=main.name,
    )


def _hold_to_sum(recording: Recording, total: Power, others: list[Power], at: Ints) -> None:
    """Note rows whose total is not the sum that it is in nearly all others: of RAPL's packages, or of all columns."""
    if total.name != "total":
        return
    for parts in (others, [p for p in others if p.name.startswith("package")]):
        watts = [p.watts for p in parts]
        if watts and _check.mostly_sums(total.watts, watts, _LAST_DIGIT):
            _check.sums(recording, "total", total.watts, watts, at, last_digit=_LAST_DIGIT)
            return


def _steady(recording: Recording, time: Floats, at: Ints) -> tuple[Floats, _check.Where]:
    """Seconds since the first row of a clock that cannot go back, and rows that others are missing before."""
    elapsed: Floats = time - time[0]
    return elapsed, _check.gaps(recording, np.diff(elapsed), at)


def _distinct(names: list[str]) -> list[str]:
    """Number the names that occur more than once."""
    return [n if names.count(n) == 1 else f"{n}#{names[: i + 1].count(n)}" for i, n in enumerate(names)]


def _label(line: bytes) -> str:
    mark = _MARK.fullmatch(line)
    text = (mark.group(3) or mark.group(2) or b"") if mark else line[1:].strip()
    return text.decode("utf-8", "replace")


def _time(line: bytes) -> float:
    mark = _MARK.fullmatch(line)
    try:
        return float(mark.group(1)) if mark else math.nan
    except ValueError:
        return math.nan


def _set(
    marks: tuple[tuple[int, str], ...], times: list[float], time: Floats, elapsed: Floats
) -> tuple[tuple[float, str], ...]:
    """Return when marks were set, in seconds since the first row, of those whose line tells another time than its row.

    Where both are one, the writer knew no more than the row.
    """
    told = ((row, label, t) for (row, label), t in zip(marks, times, strict=True) if t < time[row])
    return tuple((float(elapsed[row] - time[row]) + t, label) for row, label, t in told)


def _on_rows(marks: list[tuple[int, str]], rows: list[int]) -> tuple[tuple[int, str], ...]:
    """Put each marker, given by its line, on the next row, given by theirs; at the end, on the last."""
    placed, row = [], 0
    for line, label in marks:
        while row < len(rows) - 1 and rows[row] < line:
            row += 1
        placed.append((row, label))
    return tuple(placed)
