"""Comma-separated rows, with their metadata in a JSON file beside them.

One header line, no comment lines, every line whole: any program that reads CSV reads it. See ``docs/file-formats.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmtpy.core.markers import joined
from pmtpy.core.rows import Floats, Frame
from pmtpy.io.columns import Array, Column, arrays_of, column_names, columns
from pmtpy.io.write._format import Lines, Number, Text, integers, several
from pmtpy.io.write._text import TextFile, unbroken
from pmtpy.io.write.base import Ending, Header, Options
from pmtpy.io.write.file import Output

_NS_PER_US = 1000
_EMPTY = Text(())


class CsvSink:
    """Writes a CSV file (and its sidecar, where it is an ordinary file) or a stream."""

    def __init__(self, output: Output, header: Header, _how: Options) -> None:
        self._header = header
        self._body = columns(header.layout)
        self._alike = _alike(self._body)
        self._lines = Lines()
        self._origin: tuple[int, Floats] | None = None  # time and joules of the first row in the file
        names = column_names(header.layout)
        self._file = TextFile(output, header, names, ",".join(map(_quoted, names)))

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``."""
        if not len(frame):
            return
        origin = self._origin or (int(frame.t_ns[0]), frame.joules[0].copy())
        self._file.write(self._lines.of(self._fields(frame, *origin), len(frame)))
        self._origin = origin

    def _fields(self, frame: Frame, start_ns: int, start_joules: Floats) -> Sequence[Number | Text]:
        anchor = self._header.anchor
        unix_ns = frame.t_ns + anchor.unix_offset_ns
        arrays = arrays_of(frame) | {"joules": frame.joules - start_joules}
        body: list[Number | Text] = [_EMPTY] * len(self._body)
        for (array, places), (where, rows) in self._alike.items():
            for i, field in zip(where, several(arrays[array].T[rows], places), strict=True):
                body[i] = field
        return (
            integers((unix_ns + _NS_PER_US // 2) // _NS_PER_US, 6),
            integers(frame.t_ns - start_ns, 9),
            _markers(frame),
            integers(np.asarray(frame.lost, np.int64)),
            *body,
        )

    def close(self, ending: Ending) -> Ending:
        """Close the file and complete its sidecar."""
        return self._file.close(ending)


def _alike(body: Sequence[Column]) -> dict[tuple[Array, int], tuple[list[int], slice | list[int]]]:
    """Sort columns that are made into text together: by array and decimals, their places in a line and in the array."""
    found: dict[tuple[Array, int], list[tuple[int, int]]] = {}
    for i, column in enumerate(body):
        if column.index >= 0:  # else there is no total, and the field stays empty
            found.setdefault((column.array, column.places), []).append((column.index, i))
    return {
        alike: ([i for _, i in sorted(pairs)], _rows(sorted(row for row, _ in pairs))) for alike, pairs in found.items()
    }


def _rows(rows: list[int]) -> slice | list[int]:
    """Return rows that follow each other as a slice, which numpy need not copy."""
    return slice(rows[0], rows[-1] + 1) if rows == list(range(rows[0], rows[-1] + 1)) else rows


def _markers(frame: Frame) -> Text:
    marked = joined(frame.marks)
    if not marked:
        return _EMPTY
    return Text([_quoted(marked[row]).encode() if row in marked else b"" for row in range(len(frame))])


def _quoted(text: str) -> str:
    """Make one field of ``text`` (RFC 4180)."""
    line = unbroken(text)
    return '"' + line.replace('"', '""') + '"' if any(c in line for c in ',"') else line
