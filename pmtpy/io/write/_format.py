"""Numbers to text, a column at a time: arrays in, the bytes of delimited rows out.

A stream of 20 000 rows a second with 22 columns must cost a few per cent of a core to write, so no value is touched by
the interpreter: floats become scaled integers, several columns at once, and integers become groups of four digits, the
point among them, through small tables. Each line begins as a copy of one pattern that holds the separators and the
digits which are the same in every row; each group is then put into its place in all lines. Where a value is shorter
than the widest of its column, NULs are left, and one pass deletes them.

Rounding is that of Python's ``format(x, ".3f")``: to the nearest decimal of the exact binary value, ties to even. The
only difference is that nothing is written as minus zero. NaN and infinities become empty fields. This module is pure.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints

_Words = npt.NDArray[np.uint64]
_Texts = npt.NDArray[np.uint64] | npt.NDArray[np.bytes_]

_GROUP = 4  # digits that one look-up writes
_BASE = 10**_GROUP
_FIRST = 1 << 15  # the first group may be as large: most volts and amperes with three decimals are one group
_FIRST_DIGITS = 5
_WORD_TYPE = np.dtype("<u8")  # the first byte is the lowest
_WORD = _WORD_TYPE.itemsize
_AT_ONCE = 1 << 15  # bytes that are freed of NULs at once, in the nearest cache
# Above this a float64 has no fraction left and its scaled product is no longer exact to one unit: repr takes over.
_MAX_EXACT_INTEGER = 2.0**52
_MOST_DECIMALS = 22  # 10**22 is the largest power of ten that float64 holds exactly


@functools.cache
def _table(places: int, least_digits: int) -> _Words:
    """Text of 0 to 9999 with all four digits, then of 0 to 32767 without zeros in front; one word each.

    The point stands before the last ``places`` digits; negative: there is none. So many digits are always shown.
    """
    numbers = np.arange(_FIRST)
    text = np.zeros((_FIRST, _WORD), np.uint8)
    digits = [numbers // 10**power % 10 + ord("0") for power in reversed(range(_FIRST_DIGITS))]
    point = _FIRST_DIGITS - places if places >= 0 else _WORD
    for column, digit in enumerate(digits):
        text[:, column + (column >= point)] = digit
    if places >= 0:
        text[:, point] = ord(".")
    words = text.view(_WORD_TYPE).ravel()
    shown = np.maximum(np.searchsorted(10 ** np.arange(_FIRST_DIGITS), numbers, "right"), least_digits)
    blank = (8 * (_FIRST_DIGITS - shown)).astype(_WORD_TYPE)
    return np.concatenate([words[:_BASE] >> np.uint64(8 * (_FIRST_DIGITS - _GROUP)), words >> blank])


class Part(NamedTuple):
    """A part of a field, other in each row: the first ``width`` bytes of each text."""

    texts: _Texts  # uint64 or bytes, shape (n,)
    width: int
    ragged: bool  # some are shorter, and end with NULs


@dataclass(frozen=True, slots=True)
class Number:
    """A column of fixed-point numbers, ready to be placed: ``magnitude / 10**decimals``."""

    magnitude: Ints  # shape (n,); not negative
    decimals: int  # digits behind the point; 0: no point
    # of the magnitudes, or beyond them; 0 if there are none
    least: int
    largest: int
    # bool, shape (n,),; where there is a minus sign; where there is no number. None: nowhere.
    negative: npt.NDArray[np.bool_] | None = None
    missing: npt.NDArray[np.bool_] | None = None
    instead: bytes = b""  # what stands where there is no number; one word at most

    def parts(self) -> list[bytes | Part]:
        """Return the text, from left to right: what is the same in every row, and what is not."""
        if self.missing is None:
            return self._sign() + self._groups(constant=True)
        if self.missing.all():
            return [self.instead]
        parts: list[bytes | Part] = []
        for part in self._sign() + self._groups(constant=False):
            assert isinstance(part, Part)  # noqa: S101  (nothing was taken for constant)
            parts.append(Part(np.where(self.missing, np.uint64(0), part.texts), part.width, ragged=True))
        if self.instead:
            text = np.frombuffer(self.instead.ljust(_WORD, b"\0"), _WORD_TYPE)[0]
            parts.append(Part(np.where(self.missing, text, np.uint64(0)), len(self.instead), ragged=True))
        return parts

    def _sign(self) -> list[bytes | Part]:
        if self.negative is None:
            return []
        return [Part(np.where(self.negative, np.uint64(ord("-")), np.uint64(0)), 1, ragged=True)]

    def _groups(self, *, constant: bool) -> list[bytes | Part]:
        """Return the digits; ``constant``: as one text where they are the same in every row."""
        parts: list[bytes | Part] = []
        pointed, places = divmod(self.decimals, _GROUP) if self.decimals else (0, -1)
        whole, least, largest = self.magnitude, self.least, self.largest
        group = 0
        while not (constant and least == largest):
            # Behind the point all digits are shown, before it one at least, and in front of others none but its own.
            point = places if group == pointed else -1
            always = point + 1 if point >= 0 else int(group == pointed)
            table, width = _table(point, always), point >= 0
            if group >= pointed and largest < _FIRST:
                longest, shortest = (max(len(str(x)) if x else 0, always) for x in (largest, least))
                parts.insert(0, Part(_look_up(table, whole + _BASE), longest + width, longest > shortest))
                return parts
            rest = whole // _BASE
            digits = whole - rest * _BASE
            stripped = group >= pointed and least < _BASE
            if stripped:
                digits += np.where(rest == 0, _BASE, 0)
            parts.insert(0, Part(_look_up(table, digits), _GROUP + width, stripped))
            whole, least, largest, group = rest, least // _BASE, largest // _BASE, group + 1
        parts.insert(0, _same(least, self.decimals - _GROUP * group if self.decimals else -1))
        return parts


def _same(number: int, places: int) -> bytes:
    """Text of the first digits, which are the same in every row; the point stands before the last ``places``."""
    if places <= 0:
        return b"%d%s" % (number, b"." if places == 0 else b"")
    return b"%d.%0*d" % (number // 10**places, places, number % 10**places)


def _look_up(table: _Words, index: Ints) -> _Words:
    return table.take(index, mode="clip")  # none is out of range, but numpy would look


@dataclass(frozen=True, slots=True)
class Text:
    """A column of short byte strings, which must hold neither separators nor NULs. None at all: empty fields."""

    strings: Sequence[bytes]

    def parts(self) -> list[bytes | Part]:
        """Return the text, which is other in each row."""
        width = max(map(len, self.strings), default=0)
        if not width:
            return []
        return [Part(np.array(self.strings, f"S{width}"), width, ragged=min(map(len, self.strings)) < width)]


def integers(values: Ints, decimals: int = 0) -> Number:
    """Make a column of ``values / 10**decimals``, exactly."""
    least, largest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return _column(values, decimals, least, largest)


def _column(values: Ints, decimals: int, least: int, largest: int) -> Number:
    if least >= 0:
        return Number(values, decimals, least, largest)
    return Number(np.abs(values), decimals, 0, max(-least, largest), values < 0)


def decimals(values: Floats, places: int, instead: bytes = b"") -> Number | Text:
    """Make a column of ``values`` with ``places`` digits behind the point, correctly rounded.

    NaN and infinities become ``instead``. If any value is so large that its last decimal is below the resolution of
    float64, the whole column is written by ``repr``.
    """
    return several(values[None], places, instead)[0]


def several(values: Floats, places: int, instead: bytes = b"") -> Sequence[Number | Text]:
    """Make columns of the rows of ``values``, shape (k, n), as :func:`decimals` does of one."""
    if not 0 <= places <= _MOST_DECIMALS:
        msg = f"{places} decimals: a power of ten above 10**{_MOST_DECIMALS} is not exact"
        raise ValueError(msg)
    if not values.size:
        return [Number(np.empty(0, np.int64), places, 0, 0)] * len(values)
    factor = 10.0**places
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.multiply(values, factor, order="C")
        nearest = np.rint(scaled)
        off = np.abs(np.subtract(scaled, nearest, out=scaled), out=scaled)
        least, largest = nearest.min(axis=1), nearest.max(axis=1)
        most = max(-float(least.min()), float(largest.max()))
    if not most < _MAX_EXACT_INTEGER:  # also true for NaN
        return [_with_gaps(row, factor, places, instead) for row in values]
    # The product is off by half a unit in its last place at most; only so near to a tie can rint have gone wrong.
    doubt = 0.5 - most * 2.0**-52
    if float(off.max()) >= doubt:
        where = np.nonzero(off >= doubt)
        nearest[where] = _settled(values[where], factor, nearest[where])
        least, largest = nearest.min(axis=1), nearest.max(axis=1)
    rows = zip(nearest.astype(np.int64), least.tolist(), largest.tolist(), strict=True)
    return [_column(row, places, int(low), int(high)) for row, low, high in rows]


def _with_gaps(values: Floats, factor: float, places: int, instead: bytes) -> Number | Text:
    """Make a column of values some of which may be no numbers, or too large for fixed places."""
    missing = ~np.isfinite(values)
    known = np.where(missing, 0.0, values)
    with np.errstate(over="ignore"):
        if (np.abs(known * factor) >= _MAX_EXACT_INTEGER).any():
            return Text([repr(v).encode() if np.isfinite(v) else instead for v in values.tolist()])
    made = several(known[None], places)[0]
    return replace(made, missing=missing, instead=instead) if isinstance(made, Number) and missing.any() else made


def _settled(x: Floats, factor: float, rounded: Floats) -> Floats:
    """Round again some products, with the error of the product, so that ties are told from near ties.

    The error of a product is found exactly by splitting both factors into halves of 26 bits (Dekker, "A floating-point
    technique for extending the available precision", Numerische Mathematik 18, 1971).
    """
    product = x * factor
    x_high = x * 134217729.0 - (x * 134217729.0 - x)  # 2**27 + 1
    f_high = factor * 134217729.0 - (factor * 134217729.0 - factor)
    x_low, f_low = x - x_high, factor - f_high
    error = ((x_high * f_high - product) + x_high * f_low + x_low * f_high) + x_low * f_low
    away = product - rounded  # exact: both are near each other
    above, below = (away - 0.5) + error, (away + 0.5) + error
    odd = np.mod(rounded, 2.0) == 1.0
    up = (above > 0.0) | ((above == 0.0) & odd)
    down = (below < 0.0) | ((below == 0.0) & odd)
    settled: Floats = rounded + up - down
    return settled


class Lines:
    """Joins columns to lines, in memory that is used again: fresh memory costs more than what is put there."""

    def __init__(self, separator: str = ",") -> None:
        self._separator = ord(separator)
        self._lines = np.empty(0, np.uint8)  # each as long as the longest
        self._text = bytearray()

    def of(self, columns: Sequence[Number | Text], n: int) -> memoryview:
        """Join columns of ``n`` values to ``n`` lines, each ended by a newline; valid until the next call."""
        pattern, parts, ragged = bytearray(), [], False
        for column in columns:
            for part in column.parts():
                if isinstance(part, Part):
                    parts.append((len(pattern), part))
                    pattern += bytes(part.width)
                    ragged |= part.ragged
                else:
                    pattern += part
            pattern.append(self._separator)
        pattern[-1] = ord("\n")
        length, size = len(pattern), n * len(pattern)
        if len(self._lines) < size:
            self._lines, self._text = np.empty(size, np.uint8), bytearray(size)
        lines = self._lines[:size]
        lines.reshape(n, length)[:] = np.frombuffer(pattern, np.uint8)
        for at, (texts, width, _) in parts:
            kind = f"V{width}"  # as many bytes, whatever they mean
            np.ndarray((n,), kind, lines, at, (length,))[:] = np.ndarray((n,), kind, texts, 0, (texts.itemsize,))
        return self._shortened(lines.data) if ragged else lines.data

    def _shortened(self, lines: memoryview) -> memoryview:
        """Return the lines without their NULs."""
        size = 0
        for at in range(0, len(lines), _AT_ONCE):
            part = bytes(lines[at : at + _AT_ONCE]).replace(b"\0", b"")  # there are few, or translate() were faster
            self._text[size : size + len(part)] = part
            size += len(part)
        return memoryview(self._text)[:size]
