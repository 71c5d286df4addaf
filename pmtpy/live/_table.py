"""Rows that keep coming, as arrays of the same length: the newest in memory, older ones on disk, the oldest forgotten.

Rows are numbered from the first that ever came, so a number means the same row for as long as it is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats
from pmtpy.live._roomy import roomy_file

_FIRST = 1024  # rows for which there is room at the beginning
Array = npt.NDArray[np.floating]
Fields = Mapping[str, tuple[int, npt.DTypeLike]]
"""Width and kind of each array; one is ``t``, of width 1, and rises."""


class _Memory:
    """An array that grows at its end and may be cut at its beginning."""

    def __init__(self, width: int, kind: npt.DTypeLike) -> None:
        self._content: Array = np.empty((_FIRST, width), kind)
        self._start = self._stop = 0

    @property
    def rows(self) -> Array:
        """All rows, shape (n, width); a view."""
        return self._content[self._start : self._stop]

    def append(self, rows: Array) -> None:
        """Add rows."""
        if self._stop + len(rows) > len(self._content):
            kept = self.rows
            size = max(_FIRST, 2 * (len(kept) + len(rows)))
            content = np.empty((size, self._content.shape[1]), self._content.dtype)
            content[: len(kept)] = kept
            self._content, self._start, self._stop = content, 0, len(kept)
        self._content[self._stop : self._stop + len(rows)] = rows
        self._stop += len(rows)

    def drop(self, count: int) -> None:
        """Forget the oldest rows."""
        self._start += count


class _Ring:
    """The newest ``most`` rows of an array, on disk: the place of a row is its number modulo ``most``."""

    def __init__(self, most: int, width: int, kind: npt.DTypeLike) -> None:
        self._file, self._most = roomy_file(buffering=0), most
        weakref.finalize(self, self._file.close)
        self._kind, self._row = np.dtype(kind), width * np.dtype(kind).itemsize
        self._file.truncate(most * self._row)  # takes no room before something is written there
        self._content: Array = np.memmap(self._file, self._kind, "r", shape=(most, width))

    def write(self, number: int, rows: Array) -> None:
        """Put rows into their places; OSError: the disk is full."""
        while len(rows):
            at = number % self._most
            fit = min(len(rows), self._most - at)
            self._file.seek(at * self._row)
            rest = memoryview(np.ascontiguousarray(rows[:fit], self._kind).data).cast("B")
            while rest:
                rest = rest[self._file.write(rest) :]
            rows, number = rows[fit:], number + fit

    def pieces(self, first: int, last: int) -> list[Array]:
        """Return rows by their numbers, in one piece or two; views."""
        begin, length = first % self._most, last - first
        fit = min(length, self._most - begin)
        return [self._content[begin : begin + fit], self._content[: length - fit]]


class Table:
    """Arrays of the same rows.

    Parameters
    ----------
    fields : mapping
        The arrays.
    most_bytes : int
        What the rows on disk may take there; 0: none are kept there.

    Attributes
    ----------
    problem : str
        Why no rows are kept on disk any more; empty: nothing is wrong.
    """

    def __init__(self, fields: Fields, most_bytes: int = 0) -> None:
        self.problem = ""
        self._fields = fields
        self._memory = {name: _Memory(width, kind) for name, (width, kind) in fields.items()}
        self._most = most_bytes // sum(width * np.dtype(kind).itemsize for width, kind in fields.values())
        self._rings: dict[str, _Ring] = {}
        self._left = 0  # number of the first row in memory: so many have left it

    @property
    def first(self) -> int:
        """Number of the oldest row that is kept."""
        return max(0, self._left - self._most) if self._rings else self._left

    @property
    def stop(self) -> int:
        """Number of the row that comes next."""
        return self._left + len(self._memory["t"].rows)

    @property
    def span(self) -> tuple[float, float]:
        """Times of the oldest and the newest row that are kept; there is one."""
        return float(self.column("t", self.first, self.first + 1)[0]), float(self._memory["t"].rows[-1, 0])

    def newest(self, name: str, count: int) -> Array:
        """Return the last rows of an array, which are in memory; a view."""
        rows = self._memory[name].rows
        return rows[len(rows) - count :]

    def append(self, rows: Mapping[str, Array]) -> None:
        """Add rows."""
        for name, column in self._memory.items():
            column.append(rows[name])

    def retire(self, before: float, keep: int) -> None:
        """Take rows older than an instant out of memory, many at once, but for the newest ``keep``."""
        times = self._memory["t"].rows[:, 0]
        old = min(int(np.searchsorted(times, before)), len(times) - keep)
        if old <= _FIRST:
            return
        if self._most:
            self._store({name: column.rows[:old] for name, column in self._memory.items()})
        for column in self._memory.values():
            column.drop(old)
        self._left += old

    def _store(self, rows: Mapping[str, Array]) -> None:
        try:
            if not self._rings:
                self._rings = {name: _Ring(self._most, *kind) for name, kind in self._fields.items()}
            for name, ring in self._rings.items():
                ring.write(self._left, rows[name])
        except OSError as error:
            self.problem = str(error.strerror or error)
            self._rings, self._most = {}, 0

    def _pieces(self, name: str, first: int, last: int) -> Sequence[Array]:
        """Return rows by their numbers, which are kept; views."""
        in_memory = self._memory[name].rows[max(0, first - self._left) : max(0, last - self._left)]
        if first >= self._left or not self._rings:
            return [in_memory]
        return [*self._rings[name].pieces(first, min(last, self._left)), in_memory]

    def part(self, name: str, first: int, last: int) -> Array:
        """Return rows ``first`` to ``last`` (not included) of an array, shape (n, width)."""
        pieces = self._pieces(name, first, last)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def column(self, name: str, first: int, last: int, which: int = 0) -> Floats:
        """Return one column of them as 64-bit numbers, shape (n,)."""
        pieces = [piece[:, which] for piece in self._pieces(name, first, last)]
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return whole.astype(np.float64, copy=False)

    def at(self, t: float) -> int:
        """Return the number of the first row at or after an instant, of those that are kept; :attr:`stop` if none."""
        number = self.first
        for piece in self._pieces("t", self.first, self.stop):
            behind = int(np.searchsorted(piece[:, 0], t))
            number += behind
            if behind < len(piece):
                break
        return number
