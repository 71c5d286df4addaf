"""Reader of PMT's text dump, both generations.

Facts: PMT's ``common/PMT.cpp``. Rows ``TIME WATTS...``; the header ``timestamp NAME...`` is missing when dumping began
after the first reading. Newer: Unix seconds, ``M TIME "LABEL"``. PMT 1.3: seconds since the start, and ``M TIME TAG
"LABEL"``. Times of markers may count from another zero than those of rows, so a marker belongs where it stands: on the
row that follows it. The first power is the total, as in PMT's own ``joules()``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pmtpy.io.read._lines import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

_MARK = re.compile(rb'M\s+(\S+)(?:\s+(\d+))?(?:\s+"(.*)")?\s*')
_UNIX_S = 1e8  # a time above this counts from 1970; no log is three years long


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
    lines = recording.lines()
    header = lines[0].decode("utf-8", "replace").split()
    named = header[0] == "timestamp"
    names = _distinct(header[1:]) if named else [f"channel{i}" for i in range(len(header) - 1)]
    rows, at, marks_at = [], [], []
    for number, line in enumerate(lines[int(named) :], start=1 + int(named)):
        mark = _MARK.fullmatch(line) if line.startswith(b"M") else None
        if mark:
            label = (mark.group(3) or mark.group(2) or b"").decode("utf-8", "replace")
            marks_at.append((number, label))
        elif line.strip():
            rows.append(line)
            at.append(number)
    values, kept = recording.numbers(rows, at, len(names) + 1)
    if not len(values):
        recording.judge()
        raise recording.error("there is no row in it")
    time = values[:, 0]
    unix = bool(time[0] > _UNIX_S)
    powers = tuple(Power(name, values[:, i]) for i, name in enumerate(names, start=1) if name != "total")
    total = names.index("total") if "total" in names else 0
    return table(
        recording,
        RecordedCurve(
            time if unix else None, time - time[0], values[:, total + 1], powers, marks=_on_rows(marks_at, kept)
        ),
        kind="PMT dump, " + ("newer: Unix time" if unix else "1.3: seconds since the start"),
        clock="host's wall clock" if unix else "seconds since the start of the dump; when that was is not in the file",
        total=names[total],
    )


def _distinct(names: list[str]) -> list[str]:
    """Number the names that occur more than once."""
    return [n if names.count(n) == 1 else f"{n}#{names[: i + 1].count(n)}" for i, n in enumerate(names)]


def _on_rows(marks: list[tuple[int, str]], rows: list[int]) -> tuple[tuple[int, str], ...]:
    """Put each marker, given by its line, on the next row, given by theirs; at the end, on the last."""
    placed, row = [], 0
    for line, label in marks:
        while row < len(rows) - 1 and rows[row] < line:
            row += 1
        placed.append((row, label))
    return tuple(placed)
