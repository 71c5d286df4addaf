"""When a register was renewed, from rows that were taken some time after: the readings of a live sensor as updates.

A live sensor keeps rows, not polls, and knows its period from a profile. A row is up to the time between two polls
late, and never early: the rows' places in the period fill an arc, and its beginning is where the register is renewed.
Pure; seconds. Never guesses: rows that fill the whole period, or belong to another one, give nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.core.response import Number
from pmtpy.core.rows import Floats, Ints

_RATE = 3e-4  # by which a register's clock runs wrong for a while, relative: recorded ones wander by 4 ms in a minute
_EMPTY = 0.2  # of the period that no row falls into: less, and its beginning cannot be told
_LEFT = 0.8  # of the arc that rows of their greatest age leave empty: polls do not keep their time exactly
_EXACT = 0.01  # of the period: rows that follow each other to within it bear the instants of the renewals
_TRIED = 41  # periods within the uncertainty of the one that is given ...
_SIGMAS = 3.0  # ... and how many standard uncertainties either way
_TURN = 0.02  # of a period, by which two neighbouring ones differ over all rows
_MIN_ROWS = 4  # rows that a lattice needs
_AGAIN = 0.75  # of the period, within which a value that comes again is no new one
_OFTEN = 0.95  # quantile of how late rows are; the rest were taken by a poller that was kept waiting


@dataclass(frozen=True, slots=True)
class Renewals:
    """Updates of a live sensor."""

    # shape (n,); when the register was renewed, and what it then showed
    t_s: Floats
    watts: Floats
    u_s: float  # standard uncertainty of the instants, shared by all


def renewals(t_s: Floats, watts: Floats, period: Number, aged_s: float) -> Renewals | None:
    """Find the updates behind rows.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Rows in order; values may repeat.
    period : Number
        Time between updates, and its standard uncertainty.
    aged_s : float
        How old a value can be at its row: the time between polls; 0 where the device itself says when it was renewed.

    Returns
    -------
    Renewals or None
        None where the rows do not tell: too few, from all over the period, or of another period.
    """
    new = np.flatnonzero(np.diff(watts)) + 1  # what repeats may be the row of another register
    if len(new) < _MIN_ROWS:
        return None
    found = _lattice(t_s[new], period, aged_s)
    if found is None:
        return None
    step, cut = found
    k = np.floor((t_s - cut) / step).astype(np.int64)
    late = t_s - cut - step * k  # since the empty arc's middle
    lowest, left = _bounds(t_s, late, new, min(aged_s, step))
    if aged_s == 0.0 and float(np.quantile(np.abs(np.diff(late[new])), _OFTEN)) < _EXACT * step:
        lowest[new] = late[new]  # the device's own instants, also where its clock wanders
    kept = np.flatnonzero(late >= lowest - _EXACT * step)  # before it, another register's row shows the update before
    first = kept[np.diff(k[kept], prepend=k[kept[0]] - 1) > 0]
    newest = kept[np.diff(k[kept], append=k[kept[-1]] + 1) > 0]  # a later row of the period may be the first to show it
    instants = cut + step * k + lowest - left / 2.0
    return Renewals(instants[first], watts[newest], float(left.max()) / math.sqrt(12.0))


def as_polled(t_s: Floats, watts: Floats, period_s: float, aged_s: float) -> Renewals:
    """Take rows that do not tell when the register was renewed for updates, each as old as a value is on average.

    A value that comes again within a period is the same update, polled twice.
    """
    kept, last_t, last_w = [], -math.inf, math.nan
    for i, (at, power) in enumerate(zip(t_s.tolist(), watts.tolist(), strict=True)):
        if power != last_w or at - last_t >= _AGAIN * period_s:
            kept.append(i)
            last_t, last_w = at, power
    aged = min(aged_s, period_s)
    return Renewals(t_s[kept] - aged / 2.0, watts[kept], aged / math.sqrt(12.0))


def _lattice(t_s: Floats, period: Number, aged_s: float) -> tuple[float, float] | None:
    """Return the period and an instant in the middle of the arc that no row falls into.

    None where two such arcs are as long as rows of that age leave: polls in step with the register, of which some find
    it just renewed and some just not yet, look alike either way.
    """
    reach = _SIGMAS * period.u
    span = float(t_s[-1] - t_s[0])
    turns = span / period.value * reach / period.value
    tries = int(np.clip(2 * math.ceil(turns / _TURN) + 1, 1, _TRIED))
    best, second = (0.0, 0.0, 0.0), 0.0
    for step in np.linspace(period.value - reach, period.value + reach, tries) if tries > 1 else [period.value]:
        places = np.sort(np.mod(t_s - t_s[0], step))
        gaps = np.diff(places, append=places[0] + step)
        i = int(np.argmax(gaps))
        if gaps[i] / step > best[0]:
            best = (float(gaps[i] / step), float(step), float(places[i] + gaps[i] / 2.0))
            second = float(np.delete(gaps, i).max() / step)
    empty, step, middle = best
    either = second >= _LEFT * (1.0 - aged_s / step)
    return (step, float(t_s[0]) + middle - step) if empty >= _EMPTY and not either else None


def _bounds(t_s: Floats, late: Floats, new: Ints, aged_s: float) -> tuple[Floats, Floats]:
    """Return the latest place at which the register can have been renewed, and how much earlier it may have been.

    No row is early, and none is later than ``aged_s``: each bounds the place from both sides, and those around it but
    for what a clock wanders meanwhile.
    """
    highest = -_envelope(t_s, -late, new)
    excess = late[new] - highest[new]
    usual = new[excess <= np.quantile(excess, _OFTEN)]
    earliest = np.maximum(_envelope(t_s, late - aged_s, usual), highest - aged_s)
    return highest, np.asarray(np.maximum(highest - earliest, 0.0) if aged_s else np.zeros(len(late)), np.float64)


def _envelope(t_s: Floats, places: Floats, rows: Ints) -> Floats:
    """Return the highest of ``places`` at some rows, falling by what a clock wanders in the time to each row."""
    t, p, drift = t_s[rows], places[rows], _RATE * t_s
    before = np.maximum.accumulate(p + _RATE * t)
    after = np.maximum.accumulate((p - _RATE * t)[::-1])[::-1]
    place = np.searchsorted(t, t_s, side="right")
    behind = np.append(-math.inf, before)[place] - drift
    ahead = np.append(after, -math.inf)[place] + drift
    return np.asarray(np.maximum(behind, ahead), np.float64)
