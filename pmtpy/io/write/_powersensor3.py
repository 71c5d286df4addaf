"""The text dump of PowerSensor3's own host library, for programs that read it.

Facts: ``host/src/PowerSensor.cc`` of PowerSensor3 1.6.1. One line per frame, fields separated by one space: a marker
character (``S`` where there is none), the time, whole microseconds since the line before, the board's 10-bit time
stamp, then current, voltage and power of each pair in use, and the total. Relative times are seconds since the start,
with six significant digits in every column; absolute times are Unix seconds, with six decimals in every column.

Two things differ from that library: time is that of the sample, where the library writes the time of arrival; and the
10-bit stamp is made from that time, because the board's own count is not carried this far. Its steps are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.core.channel import Derivation, Quantity
from pmtpy.core.rows import Floats, Frame, Ints, Layout
from pmtpy.errors import SinkError
from pmtpy.io.write._format import Lines, Number, Text, decimals, integers
from pmtpy.io.write._text import TextFile, unbroken
from pmtpy.io.write.base import Ending, Header, Options
from pmtpy.io.write.file import Output

_NO_MARK = "S"
_STAMP_RANGE = 1024  # microseconds until the board's time stamp starts again


class PowerSensor3Sink:
    """Writes PowerSensor3's dump, relative (its default) or absolute."""

    def __init__(self, output: Output, header: Header, how: Options) -> None:
        self._header = header
        self._absolute = bool(how.absolute)
        self._pairs = _pairs(header.layout)
        self._start_ns: int | None = None
        self._last_ns = 0
        self._waiting: list[str] = []  # a line has room for one mark; further ones go to the next lines
        numbers = _numbers([p.name for p in self._pairs])
        names: tuple[str, ...] = ("marker", "time", "dt_micro", "device_timestamp")
        names += tuple(f"{kind}{p}" for p in numbers for kind in ("current", "voltage", "power"))
        names += ("power_total",)
        self._lines = Lines(" ")
        self._file = TextFile(output, replace(header, uncut=False), names, " ".join(names))

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``."""
        if not len(frame):
            return
        if self._start_ns is None:
            self._start_ns = self._last_ns = int(frame.t_ns[0])
        waiting = list(self._waiting)
        marks = _one_each(frame, waiting)
        since_us = (frame.t_ns - self._start_ns + 500) // 1000
        step_us = np.diff(frame.t_ns, prepend=self._last_ns) // 1000
        values = _values(frame, self._pairs)
        make = self._fixed if self._absolute else self._significant
        self._file.write(make(frame.t_ns, marks, (step_us, since_us % _STAMP_RANGE), values))
        self._last_ns, self._waiting = int(frame.t_ns[-1]), waiting

    def _fixed(self, t_ns: Ints, marks: list[str], counts: tuple[Ints, Ints], values: Floats) -> memoryview:
        unix_us = (t_ns + self._header.anchor.unix_offset_ns + 500) // 1000
        fields: list[Number | Text] = [Text([m.encode() for m in marks]), integers(unix_us, 6), *map(integers, counts)]
        fields += [decimals(values[:, i], 6, b"nan") for i in range(values.shape[1])]
        return self._lines.of(fields, len(t_ns))

    def _significant(self, t_ns: Ints, marks: list[str], counts: tuple[Ints, Ints], values: Floats) -> bytes:
        since_s = (t_ns - (self._start_ns or 0)) / 1e9
        line = "%s %.6g %d %d" + " %.6g" * values.shape[1] + "\n"
        rows = zip(marks, since_s.tolist(), *(c.tolist() for c in counts), *values.T.tolist(), strict=True)
        return "".join([line % row for row in rows]).encode()

    def close(self, ending: Ending) -> Ending:
        """Close the file and complete its sidecar."""
        return self._file.close(ending)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Where a pair is in a Frame: columns of ``values`` and of ``watts``."""

    name: str
    current: int
    voltage: int
    power: int


def _pairs(layout: Layout) -> list[_Pair]:
    """Return the powers that are made of a voltage and a current."""
    place = {c.name: j for j, c in enumerate(layout.values)}
    unit = {c.name: c.quantity for c in layout.channels}
    pairs = [
        _Pair(c.name, current=place[c.operands[1]], voltage=place[c.operands[0]], power=i)
        for i, c in enumerate(layout.energy, start=1)
        if c.derivation is Derivation.PRODUCT and [unit[o] for o in c.operands] == [Quantity.VOLTAGE, Quantity.CURRENT]
    ]
    if not pairs:
        msg = "the powersensor3 format holds volts and amperes, which this sensor does not measure; use csv or parquet"
        raise SinkError(msg)
    return pairs


def _numbers(names: list[str]) -> list[int]:
    """Pair numbers: those at the end of the names (``pair2``), else in order."""
    ends = [re.search(r"(\d+)$", name) for name in names]
    numbers = [int(e.group(1)) for e in ends if e]
    return numbers if len(set(numbers)) == len(names) else list(range(len(names)))


def _values(frame: Frame, pairs: list[_Pair]) -> Floats:
    """Columns behind the time stamp, shape (n, 3 * pairs + 1)."""
    parts = [
        x for p in pairs for x in (frame.values[:, p.current], frame.values[:, p.voltage], frame.watts[:, p.power])
    ]
    total = np.sum([frame.watts[:, p.power] for p in pairs], axis=0)
    return np.stack([*parts, total], axis=1)


def _one_each(frame: Frame, waiting: list[str]) -> list[str]:
    """One marker character for each row; what finds no room stays in ``waiting``, which is changed."""
    marks = [_NO_MARK] * len(frame)
    by_row: dict[int, list[str]] = {}
    for row, label in frame.marks:
        by_row.setdefault(row, []).append("".join(unbroken(label).split())[:1] or "?")
    for row in range(len(frame)):
        waiting += by_row.get(row, [])
        if waiting:
            marks[row] = waiting.pop(0)
        elif not by_row:
            break
    return marks
