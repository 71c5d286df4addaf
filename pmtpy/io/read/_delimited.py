"""Rows of delimited text to columns: a block of lines at once, and line by line where one of them is broken."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.presentation import amount
from pmtpy.core.rows import Ints
from pmtpy.io.read._recording import Recording

Columns = dict[str, npt.NDArray[Any]]
FLOAT, INT, TEXT = np.float64, np.int64, object
Kind = type[np.float64] | type[np.int64] | type[object]

# Bytes of memory for each byte of a file whose fields are kept as text, or are numbers.
_TEXT_COST, _NUMBER_COST = 16, 6


class Delimited:
    """Reads the lines of one recording.

    Parameters
    ----------
    recording : Recording
        Told of broken lines.
    kinds : mapping of name to FLOAT, INT or TEXT
        The columns in order. An empty FLOAT is NaN, an empty TEXT is empty.
    separator : str
        A comma: fields may be quoted. A blank: any number of blanks separates two fields.
    """

    def __init__(self, recording: Recording, kinds: Mapping[str, Kind], separator: str) -> None:
        self._recording = recording
        self._kinds = dict(kinds)
        self._separator = separator
        self._cost = _TEXT_COST if list(self._kinds.values()).count(TEXT) > 1 else _NUMBER_COST

    def rows(self, first: int, block: bytes) -> tuple[Columns, Ints]:
        """Return the columns of a block of lines, the first of which has number ``first``, and each row's number."""
        return self.numbered(block, np.arange(first, first + block.count(b"\n")))

    def numbered(self, block: bytes, numbers: Ints) -> tuple[Columns, Ints]:
        """Do so with lines whose numbers are given."""
        columns = self._at_once(block)
        if columns is not None and len(next(iter(columns.values()))) == len(numbers):  # else blank lines were skipped
            return columns, numbers
        return self._one_by_one(block, numbers)

    def all(self, first: int = 2) -> tuple[Columns, Ints]:
        """Return all rows of the recording from line ``first`` (1 or 2) on."""
        return joined([self.rows(number, block) for number, block in self.blocks(first)], self._kinds)

    def blocks(self, first: int = 2) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from ``first`` (1 or 2) on, block by block, and the number of the first of each block."""
        return self._recording.blocks(first, self._cost)

    def _at_once(self, block: bytes) -> Columns | None:
        """Read with pyarrow. None where that is not installed, or a line is not whole."""
        if b"\r" in block or b"\0" in block:
            return None
        # Pyarrow takes those for numbers. A single letter is looked for so much faster than three.
        if any(x in block and b",0" + x in block for x in (b"x", b"X")):
            return None
        try:
            import pyarrow as pa
            from pyarrow import csv as pa_csv
        except ImportError:
            return None
        types = {FLOAT: pa.float64(), INT: pa.int64(), TEXT: pa.string()}
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(block),
                pa_csv.ReadOptions(column_names=list(self._kinds), block_size=max(len(block), 1), use_threads=False),
                pa_csv.ParseOptions(delimiter=self._separator, quote_char='"' if self._separator == "," else False),
                pa_csv.ConvertOptions(
                    column_types={n: types[k] for n, k in self._kinds.items()}, null_values=["", "nan"]
                ),
            )
        except pa.ArrowInvalid:
            return None
        if any(table.column(n).null_count for n, k in self._kinds.items() if k is INT):
            return None
        return {n: table.column(n).to_numpy(zero_copy_only=False) for n in self._kinds}

    def _one_by_one(self, block: bytes, lines: Ints) -> tuple[Columns, Ints]:
        """Read what can be read, and report what cannot."""
        rows: list[list[bytes]] = []
        numbers: list[int] = []
        for number, line in zip(lines.tolist(), block[:-1].split(b"\n") if block else [], strict=True):
            if not line.strip():
                continue
            fields = self._fields(line.rstrip(b"\r"))
            why = self._fault(fields)
            if why:
                self._recording.broken(number, why)
            else:
                rows.append(fields)
                numbers.append(number)
        columns: Columns = {}
        for (name, kind), texts in zip(self._kinds.items(), _across(rows, len(self._kinds)), strict=True):
            if kind is TEXT:
                columns[name] = np.array([t.decode("utf-8", "replace") for t in texts], object)
            elif kind is FLOAT:
                columns[name] = np.array([float(t) if t else np.nan for t in texts], np.float64)
            else:
                columns[name] = np.array([int(t) for t in texts], np.int64)
        return columns, np.array(numbers, np.int64)

    def _fields(self, line: bytes) -> list[bytes]:
        if self._separator == " ":
            return line.split()
        if b'"' not in line:
            return line.split(b",")
        try:
            return [f.encode() for f in next(csv.reader([line.decode("utf-8", "replace")]), [])]
        except csv.Error:  # a carriage return in it
            return []

    def _fault(self, fields: Sequence[bytes]) -> str:
        """Say what is wrong with a line; empty if nothing is."""
        if len(fields) != len(self._kinds):
            return f"{amount(len(fields), 'field')} where there should be {len(self._kinds)}"
        for text, (name, kind) in zip(fields, self._kinds.items(), strict=True):
            if not _readable(text, kind):
                shown = text[:20].decode("utf-8", "replace")
                return f"not all are numbers: {name} is not a {'whole ' if kind is INT else ''}number ({shown!r})"
        return ""


def _readable(text: bytes, kind: Kind) -> bool:
    if kind is TEXT or (kind is FLOAT and not text):
        return True
    if b"_" in text:  # a number to Python only
        return False
    try:
        if kind is FLOAT:
            float(text)
        else:
            np.int64(int(text))
    except (ValueError, OverflowError):
        return False
    return True


def _across(rows: list[list[bytes]], width: int) -> list[Sequence[bytes]]:
    """Turn rows into columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


def release() -> None:
    """Give back to the system what pyarrow keeps for what it may be asked next: as much as a recording takes itself."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


class Gathering:
    """One column, as its values come: in one array, since pieces would be held beside what is made of them.

    Parameters
    ----------
    room : int
        About how many rows are expected; those that do not come take no memory.
    """

    def __init__(self, kind: npt.DTypeLike, room: int) -> None:
        self._room: npt.NDArray[Any] = np.empty(room, kind)
        self._rows = 0

    def take(self, values: npt.NDArray[Any]) -> None:
        """Take the next values; where there is no room for them, there will be for twice as many."""
        end = self._rows + len(values)
        if end > len(self._room):
            room = np.empty(max(end, 2 * len(self._room)), self._room.dtype)
            room[: self._rows] = self._room[: self._rows]
            self._room = room
        self._room[self._rows : end] = values
        self._rows = end

    def values(self) -> npt.NDArray[Any]:
        """Return those that were taken; no more can be."""
        self._room.resize(self._rows, refcheck=False)
        return self._room


def joined(parts: Sequence[tuple[Columns, Ints]], kinds: Mapping[str, Kind]) -> tuple[Columns, Ints]:
    """Join rows that follow each other."""
    columns: Columns = {n: np.concatenate([c[n] for c, _ in parts] or [np.empty(0, k)]) for n, k in kinds.items()}
    return columns, np.concatenate([at for _, at in parts] or [np.empty(0, np.int64)])


def without_marks(
    recording: Recording, kinds: Mapping[str, Kind], first: int = 2
) -> tuple[Columns, Ints, list[tuple[int, bytes]]]:
    """Return rows of blank-separated fields with their line numbers, and the lines of markers between them.

    Those start with ``M`` and a blank, and have fewer fields than a row.
    """
    lines, parts, marks = Delimited(recording, kinds, " "), [], []
    for number, block in recording.blocks(first, _NUMBER_COST):
        numbers: Ints = np.arange(number, number + block.count(b"\n"))
        rows = block
        if block.startswith(b"M ") or b"\nM " in block:
            each = block[:-1].split(b"\n")
            among = [i for i, x in enumerate(each) if x.startswith(b"M ") and not _is_row(x, kinds)]
            marks += [(number + i, each[i].rstrip(b"\r")) for i in among]
            numbers = np.delete(numbers, among)
            rows = b"".join(each[i - number] + b"\n" for i in numbers.tolist())
        parts.append(lines.numbered(rows, numbers))
    columns, at = joined(parts, kinds)
    return columns, at, marks


def _is_row(line: bytes, kinds: Mapping[str, Kind]) -> bool:
    return next(iter(kinds.values())) is TEXT and len(line.split()) >= len(kinds)
