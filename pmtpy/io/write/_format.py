"""Numbers to text, a column at a time: arrays in, the bytes of delimited rows out.

A stream of 20 000 rows a second with 22 columns must cost a few per cent of a core to write, so no value is touched by
the interpreter: floats become scaled integers, integers become groups of four digits through a table, and the groups
are stored at their place in a matrix of bytes, one row of the file in each. What a value is shorter than the widest of
its column stays NUL, and one pass over the matrix deletes the NULs.

Rounding is that of Python's ``format(x, ".3f")``: to the nearest decimal of the exact binary value, ties to even. The
only difference is that nothing is written as minus zero. NaN and infinities become empty fields. This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints

Bytes = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint32]

_GROUP = 4  # digits in one table entry
_BASE = 10**_GROUP
# Above this a float64 has no fraction left and its scaled product is no longer exact to one unit: repr takes over.
_LARGEST = 2.0**52
_MOST_DECIMALS = 22  # 10**22 is the largest power of ten that float64 holds exactly


def _digit_tables() -> _Words:
    """Text of 0..9999 as 32-bit words, three times over: with zeros in front, with NULs, and with nothing for 0."""
    numbers = np.arange(_BASE, dtype=np.int64)
    digits = np.stack([numbers // 10**k % 10 for k in reversed(range(_GROUP))], axis=1)
    text = (digits + ord("0")).astype(np.uint8)
    leading = np.cumsum(digits, axis=1) == 0
    blank = np.where(leading, 0, text).astype(np.uint8)
    stripped = blank.copy()
    stripped[0, -1] = ord("0")
    return np.ascontiguousarray(np.concatenate([text, stripped, blank])).view(np.uint32).ravel()


_TEXT = _digit_tables()
_STRIPPED, _BLANK = _BASE, 2 * _BASE  # where the second and third table begin


@dataclass(frozen=True, slots=True)
class Number:
    """A column of fixed-point numbers, ready to be placed: ``magnitude / 10**decimals``.

    Attributes
    ----------
    magnitude : int64, shape (n,)
        Not negative.
    decimals : int
        Digits behind the point; 0: no point.
    negative, missing : bool, shape (n,), or None
        Where there is a minus sign; where there is no number. None: nowhere.
    instead : bytes
        What stands where there is no number.
    """

    magnitude: Ints
    decimals: int
    negative: npt.NDArray[np.bool_] | None = None
    missing: npt.NDArray[np.bool_] | None = None
    instead: bytes = b""

    @property
    def width(self) -> int:
        """Bytes that the longest value takes."""
        whole = int(self.magnitude.max(initial=0)) // 10**self.decimals
        digits = len(str(whole)) + (self.decimals + 1 if self.decimals else 0) + (self.negative is not None)
        return max(digits, len(self.instead))

    def place(self, rows: Bytes, start: int) -> None:
        """Write the column into ``rows`` from byte ``start`` on; may spoil three bytes in front of it."""
        first, end = start, start + self.width
        whole, after = self.magnitude, self.decimals
        while after > 0:  # groups behind the point, from the right
            rest = whole // 10 ** min(_GROUP, after)
            self._store(rows, end, _TEXT[whole - rest * 10 ** min(_GROUP, after)])
            whole, end, after = rest, end - min(_GROUP, after), after - _GROUP
        if self.decimals:
            end -= 1
            rows[:, end] = ord(".")
        self._place_whole(rows, end, whole)
        if self.negative is not None:
            rows[:, first] = np.where(self.negative, ord("-"), 0)
        if self.missing is not None:
            rows[self.missing, first : first + self.width] = 0
            rows[self.missing, first : first + len(self.instead)] = np.frombuffer(self.instead, np.uint8)

    def _place_whole(self, rows: Bytes, end: int, whole: Ints) -> None:
        table = _STRIPPED  # a value below one still shows the zero before its point
        largest = int(whole.max(initial=0))
        while largest >= _BASE:
            rest = whole // _BASE
            self._store(rows, end, _TEXT[whole - rest * _BASE + np.where(rest == 0, table, 0)])
            whole, end, largest, table = rest, end - _GROUP, largest // _BASE, _BLANK
        self._store(rows, end, _TEXT[whole + table])

    @staticmethod
    def _store(rows: Bytes, end: int, words: _Words) -> None:
        place: _Words = np.ndarray(len(rows), np.uint32, rows, end - _GROUP, (rows.strides[0],))
        place[:] = words


@dataclass(frozen=True, slots=True)
class Text:
    """A column of short byte strings, which must hold neither separators nor NULs."""

    strings: Sequence[bytes]

    @property
    def width(self) -> int:
        """Bytes that the longest value takes."""
        return max(map(len, self.strings), default=0)

    def place(self, rows: Bytes, start: int) -> None:
        """Write the column into ``rows`` from byte ``start`` on."""
        if self.width:
            column = np.array(self.strings, dtype=f"S{self.width}")
            rows[:, start : start + self.width] = column.view(np.uint8).reshape(len(rows), self.width)


def integers(values: Ints, decimals: int = 0) -> Number:
    """Make a column of ``values / 10**decimals``, exactly."""
    negative = values < 0
    if not negative.any():
        return Number(values, decimals)
    return Number(np.abs(values), decimals, negative)


def decimals(values: Floats, places: int, instead: bytes = b"") -> Number | Text:
    """Make a column of ``values`` with ``places`` digits behind the point, correctly rounded.

    NaN and infinities become ``instead``. If any value is so large that its last decimal is below the resolution of
    float64, the whole column is written by ``repr``.
    """
    if not 0 <= places <= _MOST_DECIMALS:
        msg = f"{places} decimals: a power of ten above 10**{_MOST_DECIMALS} is not exact"
        raise ValueError(msg)
    factor = 10.0**places
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * factor
        nearest = np.rint(scaled)
        off = np.abs(scaled - nearest)
    largest = max(float(nearest.max(initial=0.0)), -float(nearest.min(initial=0.0)))
    missing = None
    if not largest < _LARGEST:  # also true for NaN
        finite = np.isfinite(values)
        if (np.abs(scaled[finite]) >= _LARGEST).any():
            return Text([repr(v).encode() if np.isfinite(v) else instead for v in values.tolist()])
        missing = ~finite
        nearest[missing] = off[missing] = 0.0
        largest = float(np.abs(nearest).max(initial=0.0))
    # The product is off by half a unit in its last place at most; only so near to a tie can rint have gone wrong.
    doubt = 0.5 - largest * 2.0**-52
    if float(off.max(initial=0.0)) >= doubt:
        _settle(values, factor, scaled, nearest, np.flatnonzero(off >= doubt))
    made = integers(nearest.astype(np.int64), places)
    return made if missing is None else Number(made.magnitude, places, made.negative, missing, instead)


def _settle(values: Floats, factor: float, scaled: Floats, nearest: Floats, where: npt.NDArray[np.intp]) -> None:
    """Round again the products at ``where``, with the error of the product, so that ties are told from near ties.

    The error of a product is found exactly by splitting both factors into halves of 26 bits (Dekker, "A floating-point
    technique for extending the available precision", Numerische Mathematik 18, 1971).
    """
    x, product, rounded = values[where], scaled[where], nearest[where]
    x_high = x * 134217729.0 - (x * 134217729.0 - x)  # 2**27 + 1
    f_high = factor * 134217729.0 - (factor * 134217729.0 - factor)
    x_low, f_low = x - x_high, factor - f_high
    error = ((x_high * f_high - product) + x_high * f_low + x_low * f_high) + x_low * f_low
    away = product - rounded  # exact: both are near each other
    above, below = (away - 0.5) + error, (away + 0.5) + error
    odd = np.mod(rounded, 2.0) == 1.0
    up = (above > 0.0) | ((above == 0.0) & odd)
    down = (below < 0.0) | ((below == 0.0) & odd)
    nearest[where] = rounded + up - down


def delimited(columns: Sequence[Number | Text], n: int, separator: str = ",") -> bytearray:
    """Join columns of ``n`` values to ``n`` lines, each ended by a newline."""
    widths = [c.width for c in columns]
    starts = np.cumsum([_GROUP, *(w + 1 for w in widths)]).tolist()  # a margin, since place() writes whole groups
    buffer = bytearray(n * starts[-1])
    if n == 0:
        return buffer
    rows: Bytes = np.frombuffer(buffer, np.uint8).reshape(n, starts[-1])
    rows[:, -1] = ord("\n")
    for column, start in zip(
        reversed(columns), reversed(starts[:-1]), strict=True
    ):  # each repairs what the next spoilt
        column.place(rows, start)
        if start > _GROUP:
            rows[:, start - 1] = ord(separator)
    rows[:, :_GROUP] = 0
    return buffer.translate(None, b"\0")
