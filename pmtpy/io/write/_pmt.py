"""The text dump of PMT, the Power Measurement Toolkit, for programs that read it.

Facts: PMT's ``common/PMT.cpp`` (``DumpHeader``, ``Dump``, ``Mark``). A header ``timestamp NAME...``, then a time and
one power in watts per name, all with three decimals; markers are lines of their own, ``M TIME "LABEL"``. Newer PMT
writes Unix seconds; PMT 1.3 wrote seconds since the start and ``M TIME TAG "LABEL"``. The newer kind is the default,
because it can be put beside other logs; the older one is for scripts that expect times from zero.

The format has no room for energy, volts, losses or units: the JSON file beside it says what was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pmtpy.core.rows import Floats, Frame, Ints
from pmtpy.io.columns import one_word
from pmtpy.io.write._format import Lines, decimals, integers
from pmtpy.io.write._text import TextFile, unbroken
from pmtpy.io.write.base import Ending, Header, Options
from pmtpy.io.write.file import Output

_PMT_DECIMALS = 3
_PMT_FINEST_S = 1e-3  # PMT itself never writes rows closer than a millisecond, so three decimals are enough for it
_FINE_DECIMALS = 6


class PmtSink:
    """Writes PMT's dump, absolute (newer PMT) or relative (PMT 1.3)."""

    def __init__(self, output: Output, header: Header, how: Options) -> None:
        self._header = header
        self._absolute = how.absolute is not False
        self._start_ns: int | None = None
        self._places = _FINE_DECIMALS if _row_spacing_s(header) < _PMT_FINEST_S else _PMT_DECIMALS
        own = [(name, (place,)) for place, name in enumerate(header.layout.names)]
        shown = how.columns if how.columns is not None else own if header.layout.has_total else own[1:]
        names = tuple(one_word(unbroken(name)) for name, _ in shown)
        self._sums = [list(places) for _, places in shown]
        self._lines = Lines(" ")
        rounded = replace(header, uncut=False)
        self._file = TextFile(output, rounded, ("timestamp", *names), " ".join(("timestamp", *names)))

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``, and a line for each mark before the row it belongs to."""
        if not len(frame):
            return
        start_ns = int(frame.t_ns[0]) if self._start_ns is None else self._start_ns
        offset_ns = self._header.anchor.unix_offset_ns if self._absolute else -start_ns
        unit_ns = 10 ** (9 - self._places)
        ticks = (frame.t_ns + offset_ns + unit_ns // 2) // unit_ns
        rows = self._rows(ticks, np.stack([frame.watts[:, sums].sum(axis=1) for sums in self._sums], axis=1))
        self._file.write(self._marked(rows, ticks, frame.marks) if frame.marks else rows)
        self._start_ns = start_ns

    def _rows(self, ticks: Ints, watts: Floats) -> memoryview:
        powers = [decimals(watts[:, i], _PMT_DECIMALS, b"nan") for i in range(watts.shape[1])]
        return self._lines.of([integers(ticks, self._places), *powers], len(ticks))

    def _marked(self, rows: memoryview, ticks: Ints, marks: Sequence[tuple[int, str]]) -> bytes:
        before: dict[int, str] = {}
        for row, label in marks:
            time, tag, text = ticks[row] / 10**self._places, "" if self._absolute else "0 ", unbroken(label)
            before[row] = before.get(row, "") + f'M {time:.{self._places}f} {tag}"{text}"\n'
        lines = bytes(rows).splitlines(keepends=True)
        for row, text in before.items():
            lines[row] = text.encode() + lines[row]
        return b"".join(lines)

    def close(self, ending: Ending) -> Ending:
        """Close the file and complete its sidecar."""
        return self._file.close(ending)


def _row_spacing_s(header: Header) -> float:
    """Return how close rows may be; 0 where nothing says it, as in logs of other tools."""
    return header.interval_s or min((c.refresh_s for c in header.layout.channels if c.refresh_s), default=0.0)
