"""What every recording must keep to, whoever wrote it: one clock that goes on, values that can be, names that differ.

What fails is left out as a broken line, or has no energy and is noted; what cannot be told apart is refused. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.channel import Quantity
from pmtpy.core.clock import LAST_UNIX_S
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.read._recording import Recording

Where = npt.NDArray[np.bool_]

_GREATEST = 1e12
"""No volts, amperes, watts or joules of one recording are more than this."""
_COUNT, _GREATEST_COUNT = f"_{Quantity.COUNT.value}", 2.0**53
"""A register that counts may have done so for years: what float64 holds exactly."""
_LATE_INTERVALS = 10.0  # times the usual interval: a row this late has others missing before it
_MIN_STEPS = 10  # rows; with fewer, none of their intervals is the usual one
_ROUNDED = 2e-5  # relative; six significant digits are off by not more than 5e-6, of the total and of its parts
_OTHERWISE = 0.1  # share of rows in which a total may be something else before it is no sum
_APART_S = 1e-3  # between the two times of our own rows, which are of one clock
UNIX_S = 1e8  # a time above this counts from 1970; no log is three years long


def names(recording: Recording, found: Sequence[str]) -> None:
    """Refuse columns that have one name, or none.

    Raises FileFormatError: which they are.
    """
    twice = sorted({n for n in found if found.count(n) > 1})
    if twice or "" in found or "\N{REPLACEMENT CHARACTER}" in "".join(found):
        what = f"names a column twice: {', '.join(twice)}" if twice and twice != [""] else "has a name that is not text"
        msg = f"line 1: the header {what}; correct the header"
        raise recording.error(msg)


def backward(times: Floats) -> Where:
    """Mark rows that stand at an impossible place: not finite, or before a row that is above them.

    Of a single row that is far ahead, that row is marked rather than all that follow.
    """
    if _ordered(times):
        return np.zeros(len(times), np.bool_)
    bad: Where = ~np.isfinite(times)
    good = np.flatnonzero(~bad)
    t = times[good]
    for i in np.flatnonzero(np.diff(t[:-1]) < 0).tolist():  # one of the rows i and i + 1 is out of place
        if t[i + 2] < t[i] and (i == 0 or t[i + 1] >= t[i - 1]):
            bad[good[i]] = True
    left = np.flatnonzero(~bad)
    if len(left):
        bad[left[times[left] < np.maximum.accumulate(times[left])]] = True
    return bad


def _ordered(times: Floats, last: float = -np.inf) -> bool:
    """Whether times are finite, and neither goes back behind the one before, the first behind ``last``."""
    return not len(times) or bool(
        times[0] >= last and np.isfinite(times[[0, -1]]).all() and (times[1:] >= times[:-1]).all()
    )


def _within(values: Floats, least: float, most: float) -> bool:
    """Whether all values lie between two bounds; a NaN does not. In two passes, without an array of its own."""
    return not len(values) or bool(values.min() >= least and values.max() <= most)


def in_order(recording: Recording, times: Floats, at: Ints) -> Where:
    """Report rows whose time is not after that of the rows before as broken lines; return which rows are left.

    Parameters
    ----------
    times : float64, shape (n,)
        Of a clock that cannot go back.
    at : int64, shape (n,)
        The line of each row.
    """
    bad = backward(times)
    for row in np.flatnonzero(bad).tolist():
        if not np.isfinite(times[row]):
            why = "its time is not a number"
        elif row + 1 < len(times) and times[row + 1] < times[row]:
            why = "it is later than the one behind it"
        else:
            why = "it is earlier than the one before (was the writer stopped while writing it?)"
        recording.broken(int(at[row]), why)
    return ~bad


def wall_clock(recording: Recording, times: Floats, at: Ints) -> tuple[Floats, Where]:
    """Make seconds since the first row of a wall clock, which may have been set while it was recorded.

    Where it goes back, the rows go on after the usual interval. Where it jumps ahead, or rows are missing, it is not
    known what happened in between. Neither interval has energy.

    Parameters
    ----------
    times : float64, shape (n,)
        Seconds, finite.

    Returns
    -------
    elapsed : float64, shape (n,)
    unknown : bool, shape (n,)
        Rows before which the time is not known.
    """
    steps = np.diff(times)
    usual = float(np.median(steps[steps >= 0])) if (steps >= 0).any() else 0.0
    unknown: Where = np.zeros(len(times), np.bool_)
    back = np.flatnonzero(steps < 0)
    unknown[back + 1] = True
    _note(recording, back, lambda i: f"the clock goes back by {-steps[i]:.3f} s", at)
    steps = np.where(steps < 0, usual, steps)
    elapsed: Floats = np.concatenate([[0.0], np.cumsum(steps)])
    return elapsed, unknown | gaps(recording, steps, at)


def gaps(recording: Recording, steps: Floats, at: Ints) -> Where:
    """Mark rows that come so late that others must be missing before them."""
    missing: Where = np.zeros(len(steps) + 1, np.bool_)
    found, usual = late(steps, steps)
    missing[found + 1] = True
    _note(recording, found, lambda i: f"no row for {steps[i]:.3f} s, where one comes every {usual:.3g} s", at)
    return missing


def late(steps: Floats, known: Floats) -> tuple[Ints, float]:
    """Return which intervals between rows are so long that rows are missing, and the usual one of those ``known``.

    Where most rows have the time of the one before, they come faster than their times are written: how many of them
    share one tells how fast, and a time may be off by the step from one to the next.
    """
    usual, tick = float(np.median(known)) if len(known) >= _MIN_STEPS else math.nan, 0.0
    if usual == 0.0:
        moved = known[known > 0.0]
        tick = float(np.median(moved)) if len(moved) else math.nan
        usual = tick * len(moved) / len(known)
    found: Ints = np.flatnonzero(steps > tick + _LATE_INTERVALS * usual)  # NaN: none is
    return found, usual


def possible(recording: Recording, name: str, values: Floats, at: Ints) -> Floats:
    """Return the values with those that cannot be (infinite, or beyond any device) as NaN, and note them."""
    if _within(values, -_GREATEST, _GREATEST):
        return values
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(np.abs(values) > _GREATEST)
    if not len(wrong):
        return values
    more = f" (and in {amount(len(wrong) - 1, 'more line')})" if len(wrong) > 1 else ""
    recording.notes.append(
        f"line {at[wrong[0]]}{more}: {name} is {values[wrong[0]]:g}, which is impossible; treated as unknown"
    )
    kept: Floats = values.copy()
    kept[wrong] = np.nan
    return kept


def blanks(recording: Recording, powers: Iterable[tuple[str, Floats]], at: Ints) -> None:
    """Note the rows in which a power has no value, of those that have one elsewhere; like ones together."""
    alike: dict[bytes, list[str]] = {}
    for name, watts in powers:
        blank = np.isnan(watts)
        if 0 < blank.sum() < len(blank):
            alike.setdefault(blank.tobytes(), []).append(name)
    for mask, names in alike.items():
        rows = np.flatnonzero(np.frombuffer(mask, np.bool_))
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        recording.notes.append(
            f"line {at[rows[0]]}{more}: no value of {', '.join(dict.fromkeys(names))}; the time about it has no energy"
        )


def mostly_sums(total: Floats, parts: Sequence[Floats], last_digit: float = 0.0) -> bool:
    """Whether a total is the sum of these parts in nine of ten rows, so that it is meant to be."""
    return float(np.mean(_apart(total, parts, last_digit))) < _OTHERWISE


def _apart(total: Floats, parts: Sequence[Floats], last_digit: float) -> Where:
    """Mark rows whose total is not the sum of its parts, by more than they are rounded."""
    rounded = (len(parts) + 1) * last_digit / 2
    with np.errstate(invalid="ignore"):
        off: Floats = total - reduce(np.add, parts)
        if _within(off, -_ROUNDED - rounded, _ROUNDED + rounded):  # what parts of 0 W would be allowed
            return np.zeros(len(off), np.bool_)
        apart: Where = np.abs(off) > _ROUNDED * (reduce(np.add, map(np.abs, parts)) + 1) + rounded
    return apart


def sums(
    recording: Recording, name: str, total: Floats, parts: Sequence[Floats], at: Ints, *, last_digit: float = 0.0
) -> bool:
    """Note rows whose total is not the sum of its parts; return whether there are any.

    A digit was lost, or columns changed places.

    Parameters
    ----------
    total : float64, shape (n,)
    parts : sequence of float64, shape (n,)
        Written, like the total, with six significant digits, or six decimals, or more.
    last_digit : float
        What its last digit stands for, in a file that has fewer.
    """
    off = np.flatnonzero(_apart(total, parts, last_digit))
    if not len(off):
        return False
    i, more = off[0], f" (and {len(off) - 1} more)" if len(off) > 1 else ""
    summed = sum(float(part[i]) for part in parts)
    recording.notes.append(
        f"line {at[i]}{more}: {name} is {total[i]:g}, its parts add up to {summed:g}: one of them is wrong;"
        " copy the file again from its source"
    )
    return True


def own_rows(recording: Recording, columns: dict[str, npt.NDArray[Any]], at: Ints, last: float) -> Where:
    """Check rows of our own: the clock goes on, every number is one, losses are counted up. Return which are left.

    Parameters
    ----------
    last : float
        Elapsed seconds of the row before these; minus infinity if there is none.
    """
    elapsed = np.asarray(columns["elapsed"], np.float64)
    if _ordered(elapsed, last):
        left: Where = np.ones(len(elapsed), np.bool_)
    elif np.isfinite(last):
        left = in_order(recording, np.concatenate([[last], elapsed]), np.concatenate([at[:1], at]))[1:]
    else:
        left = in_order(recording, elapsed, at)
    for name, values in columns.items():
        if values.dtype.kind == "f":
            greatest = _GREATEST_COUNT if name.endswith(_COUNT) else _GREATEST
            if _within(values, -greatest, greatest):
                continue
            wrong = ~(np.abs(values) <= greatest) & ~np.isnan(values)  # an empty field is NaN
        elif values.dtype.kind == "i":
            wrong = values < 0
        else:
            continue
        for row in np.flatnonzero(wrong & left).tolist():
            recording.broken(int(at[row]), f"{name} cannot be {values[row]}")
        left &= ~wrong
    return left


def agree(recording: Recording, time: Floats, elapsed: Floats, at: Ints, origin: float) -> None:
    """Note where the two times of our own rows, which are of one clock, come apart."""
    apart = time - elapsed
    apart -= origin
    if _within(apart, -_APART_S, _APART_S):
        return
    off = np.abs(apart) > _APART_S
    if off.any():
        first = int(np.flatnonzero(off)[0])
        recording.notes.append(
            f"line {at[first]} (and {int(off.sum()) - 1} more): time and elapsed disagree; energies go by elapsed"
        )


def unix_time(recording: Recording, time: Floats) -> None:
    """Refuse times that no recording can have.

    Raises FileFormatError: the first of them.
    """
    if _within(time, -LAST_UNIX_S, LAST_UNIX_S):
        return
    wrong = ~(np.abs(time) < LAST_UNIX_S) & ~np.isnan(time)
    if wrong.any():
        raise recording.error(f"the time {time[wrong][0]:g} is no Unix time in seconds; correct or remove its line")


def _note(recording: Recording, rows: Ints | npt.NDArray[np.intp], what: object, at: Ints) -> None:
    if len(rows):
        more = f" (and {amount(len(rows) - 1, 'more time')})" if len(rows) > 1 else ""
        assert callable(what)  # noqa: S101
        recording.notes.append(f"line {at[rows[0] + 1]}{more}: {what(rows[0])}; that time has no energy")
