"""Numbers to text, a column at a time: arrays in, the bytes of delimited rows out.

A stream of 20 000 rows a second with 22 columns must cost a few per cent of a core to write, so no value is touched by
the interpreter: floats become scaled integers, and integers become groups of three digits through a small table. With
the separator or the point in front a group is a word of four bytes. The words of all columns are stored one row each,
turned round once, so that each line of the file lies in one piece, and one pass deletes the NULs that stand where a
value is shorter than the widest of its column.

Rounding is that of Python's ``format(x, ".3f")``: to the nearest decimal of the exact binary value, ties to even. The
only difference is that nothing is written as minus zero. NaN and infinities become empty fields. This module is pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints

_Words = npt.NDArray[np.uint32]

_GROUP = 3  # digits in one word
_BASE = 10**_GROUP
_WORD = 4  # bytes
_AT_ONCE = 1 << 15  # bytes that are freed of NULs at once, in the nearest cache
_WORD_TYPE = np.dtype("<u4")  # the first byte is the lowest
# Above this a float64 has no fraction left and its scaled product is no longer exact to one unit: repr takes over.
_LARGEST = 2.0**52
_MOST_DECIMALS = 22  # 10**22 is the largest power of ten that float64 holds exactly


def _digits(group: int, lead: bytes = b"") -> _Words:
    """Text of all numbers of so many digits, zeros in front, behind ``lead``: one word each."""
    text = b"".join((lead + b"%0*d" % (group, i)).ljust(_WORD, b"\0") for i in range(10**group))
    return np.frombuffer(text, _WORD_TYPE)


def _whole_tables() -> _Words:
    """Text of 0..999, three times over, behind a free byte: with zeros in front, without, and with nothing for 0."""
    text = (_digits(_GROUP, b"\0").view(np.uint8)).reshape(_BASE, _WORD)
    numbers = np.arange(_BASE)
    blank = text.copy()
    for digit, least in enumerate((100, 10, 1), 1):
        blank[numbers < least, digit] = 0
    stripped = blank.copy()
    stripped[0, _GROUP] = ord("0")
    return np.ascontiguousarray(np.concatenate([text, stripped, blank])).view(_WORD_TYPE).ravel()


_WHOLE = _whole_tables()
_STRIPPED, _BLANK = _BASE, 2 * _BASE  # where the second and third table begin
_FRACTION = [_digits(group) for group in range(_GROUP + 1)]
_POINTED = [_digits(group, b".") for group in range(_GROUP + 1)]


@dataclass(frozen=True, slots=True)
class Number:
    """A column of fixed-point numbers, ready to be placed: ``magnitude / 10**decimals``.

    Attributes
    ----------
    magnitude : int64, shape (n,)
        Not negative.
    decimals : int
        Digits behind the point; 0: no point.
    least, largest : int
        Of the magnitudes; 0 if there are none.
    negative, missing : bool, shape (n,), or None
        Where there is a minus sign; where there is no number. None: nowhere.
    instead : bytes
        What stands where there is no number.
    """

    magnitude: Ints
    decimals: int
    least: int
    largest: int
    negative: npt.NDArray[np.bool_] | None = None
    missing: npt.NDArray[np.bool_] | None = None
    instead: bytes = b""

    @property
    def words(self) -> int:
        """Words that the longest value takes, with a separator in front."""
        groups = -(-len(str(self.largest // 10**self.decimals)) // _GROUP) - (-self.decimals // _GROUP)
        return max(groups + (self.negative is not None), _in_words(self.instead))

    def place(self, words: _Words, lead: int) -> None:
        """Write the column into ``words``, shape (words, n), with the byte ``lead`` in front."""
        row, after = len(words), self.decimals
        whole, least, largest = self.magnitude, self.least, self.largest
        while after > 0:  # groups behind the point, from the right
            group = (after - 1) % _GROUP + 1
            base, row, after = 10**group, row - 1, after - group
            rest = whole // base
            _look_up(_FRACTION[group] if after else _POINTED[group], whole - rest * base, words[row])
            whole, least, largest = rest, least // base, largest // base
        table = _STRIPPED  # a value below one still shows the zero before its point
        while largest >= _BASE and least < largest:
            rest, row = whole // _BASE, row - 1
            digits = whole - rest * _BASE
            if least < _BASE:
                digits += np.where(rest == 0, table, 0)
            _look_up(_WHOLE, digits, words[row])
            whole, least, largest, table = rest, least // _BASE, largest // _BASE, _BLANK
        if least < largest:
            row -= 1
            _look_up(_WHOLE, whole + table, words[row])
        else:  # the same in every row, as the first digits of the time are
            row = _place_same(words[:row], largest, table)
        if self.negative is not None:
            row -= 1
            words[row] = np.where(self.negative, ord("-") << 8, 0)
        words[:row] = 0
        words[0] |= np.uint32(lead)
        if self.missing is not None:
            text = (bytes([lead]) + self.instead).ljust(_WORD * len(words), b"\0")
            words[:, self.missing] = np.frombuffer(text, _WORD_TYPE)[:, None]


def _place_same(words: _Words, whole: int, table: int) -> int:
    """Write one number to every row, from the right; return how many words are left in front."""
    row = len(words)
    while True:
        whole, digits = divmod(whole, _BASE)
        row -= 1
        words[row] = _WHOLE[digits + (0 if whole else table)]
        if not whole:
            return row
        table = _BLANK


def _look_up(table: _Words, index: Ints, words: _Words) -> None:
    np.take(table, index, out=words, mode="clip")  # none is out of range, but numpy would look


def _in_words(text: bytes) -> int:
    """Words that a text takes, with a separator in front."""
    return 1 + len(text) // _WORD


@dataclass(frozen=True, slots=True)
class Text:
    """A column of short byte strings, which must hold neither separators nor NULs."""

    strings: Sequence[bytes]

    @property
    def words(self) -> int:
        """Words that the longest value takes, with a separator in front."""
        return max(map(_in_words, self.strings), default=1)

    def place(self, words: _Words, lead: int) -> None:
        """Write the column into ``words``, shape (words, n), with the byte ``lead`` in front."""
        if not self.strings:
            words[:] = lead
            return
        first = bytes([lead])
        column = np.array([first + text for text in self.strings], dtype=f"S{_WORD * len(words)}")
        words[:] = column.view(_WORD_TYPE).reshape(-1, len(words)).T


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
    if not 0 <= places <= _MOST_DECIMALS:
        msg = f"{places} decimals: a power of ten above 10**{_MOST_DECIMALS} is not exact"
        raise ValueError(msg)
    factor = 10.0**places
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * factor
        nearest = np.rint(scaled)
        off = scaled - nearest
    least, largest = (float(nearest.min()), float(nearest.max())) if len(values) else (0.0, 0.0)
    missing = None
    if not max(-least, largest) < _LARGEST:  # also true for NaN
        finite = np.isfinite(values)
        if (np.abs(scaled[finite]) >= _LARGEST).any():
            return Text([repr(v).encode() if np.isfinite(v) else instead for v in values.tolist()])
        missing = ~finite
        nearest[missing] = off[missing] = 0.0
        least, largest = float(nearest.min()), float(nearest.max())
    # The product is off by half a unit in its last place at most; only so near to a tie can rint have gone wrong.
    doubt = 0.5 - max(-least, largest) * 2.0**-52
    if len(off) and (float(off.max()) >= doubt or float(off.min()) <= -doubt):
        _settle(values, factor, scaled, nearest, np.flatnonzero(np.abs(off) >= doubt))
        least, largest = least - 1.0, largest + 1.0
    made = _column(nearest.astype(np.int64), places, int(least), int(largest))
    return made if missing is None else replace(made, missing=missing, instead=instead)


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


class Lines:
    """Joins columns to lines, in memory that is used again: fresh memory costs more than what is put there."""

    def __init__(self, separator: str = ",") -> None:
        self._separator = ord(separator)
        self._words: _Words = np.empty(0, _WORD_TYPE)
        self._wide: _Words = np.empty(0, _WORD_TYPE)  # lines with their NULs
        self._text = bytearray()

    def of(self, columns: Sequence[Number | Text], n: int) -> memoryview:
        """Join columns of ``n`` values to ``n`` lines, each ended by a newline; valid until the next call."""
        ends = list(itertools.accumulate(c.words for c in columns))
        width = ends[-1] + 1
        if len(self._words) < n * width:
            self._words, self._wide = np.empty(n * width, _WORD_TYPE), np.empty(n * width, _WORD_TYPE)
            self._text = bytearray(self._wide.nbytes)
        words = self._words[: n * width].reshape(width, n)
        words[-1] = ord("\n")
        lead, begin = 0, 0
        for column, end in zip(columns, ends, strict=True):
            column.place(words[begin:end], lead)
            lead, begin = self._separator, end
        wide = self._wide[: n * width]
        np.copyto(wide.reshape(n, width), words.T)
        size, octets = 0, wide.view(np.uint8).data
        for at in range(0, len(octets), _AT_ONCE):
            part = bytearray(octets[at : at + _AT_ONCE]).translate(None, b"\0")  # that of bytes is slower
            self._text[size : size + len(part)] = part
            size += len(part)
        return memoryview(self._text)[:size]
