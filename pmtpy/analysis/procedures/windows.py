"""The energy that a recording has of windows of time: integrated where it was not recorded, not known across holes.

An end of a window that lies between two rows shares the energy of that step by time, which says nothing of a window
shorter than the step. Pure; times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.trace import PowerTrace, stayed_out
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_MAX_OFF_ROWS = 0.5  # of a window: so far, together, may its ends lie from the rows next to them


def recorded(
    t_s: Floats, watts: Floats, joules: Floats, lost: Floats, *, mean: bool = False, whole: bool = False
) -> PowerTrace:
    """Make a curve of the columns of a recording, each of shape (n,).

    Parameters
    ----------
    joules : float64
        Cumulative energy. Where no row has any, it is integrated from the powers, as for every recording.
    lost : float64
        Rows missing before each row.
    mean : bool
        Powers are means since the row before; else they are joined by straight lines.
    whole : bool
        Rows far apart are no hole: the recording has none for what did not change.

    Raises DeclinedError: fewer than three rows have an energy.
    """
    counted = np.isfinite(joules).any()
    later = np.append(True, t_s[1:] > np.maximum.accumulate(t_s)[:-1])  # a wall clock may be set back
    rows = np.flatnonzero(np.isfinite(joules if counted else watts) & later[: len(t_s)])
    if len(rows) < 3:
        msg = f"{amount(len(rows), 'row')} of the recording with an energy: too few for that of any time"
        raise DeclinedError(msg)
    t, watts = t_s[rows], watts[rows]
    if counted:
        joules = joules[rows]
    else:
        joules = np.append(0.0, np.cumsum(np.diff(t) * (watts[1:] if mean else (watts[1:] + watts[:-1]) / 2.0)))
    unknown = (np.diff(rows) > 1) | (np.diff(np.cumsum(np.maximum(lost, 0.0))[rows]) > 0.0)
    unknown |= ~np.isfinite(watts[1:]) & (np.diff(joules) == 0.0)  # no power, and nothing was counted
    return PowerTrace.from_energy(t, joules).without(t, unknown if whole else unknown | stayed_out(t))


def resolves(curve: PowerTrace, starts_s: Floats, ends_s: Floats) -> npt.NDArray[np.bool_]:
    """Whether rows are close enough to both ends of windows, each shape (k,)."""
    off = sum(np.abs(at - nearest(curve.rows_s, at)) for at in (starts_s, ends_s))
    return np.asarray(off <= _MAX_OFF_ROWS * (ends_s - starts_s), np.bool_)


def within(curve: PowerTrace, starts_s: Floats, ends_s: Floats) -> npt.NDArray[np.bool_]:
    """Whether windows lie within the recording, and all of their energy is known."""
    inside = (starts_s >= curve.start_s) & (ends_s <= curve.end_s) & (ends_s > starts_s)
    return np.asarray(inside & curve.known(starts_s, ends_s), np.bool_)


def energies(curve: PowerTrace, starts_s: Floats, ends_s: Floats) -> Floats:
    """Return the energy of windows, joules; NaN where it is not known, or rows are too far apart."""
    told = within(curve, starts_s, ends_s) & resolves(curve, starts_s, ends_s)
    return np.where(told, curve.until(ends_s) - curve.until(starts_s), np.nan)


def mean_watts(curve: PowerTrace, starts_s: Floats, ends_s: Floats) -> Floats:
    """Return the mean power of windows; NaN where their energy is."""
    return np.asarray(energies(curve, starts_s, ends_s) / (ends_s - starts_s), np.float64)


def later_watts(curve: PowerTrace, starts_s: Floats, ends_s: Floats) -> Floats:
    """Return how much more mean power windows have that are a little later, W/s."""
    reach_s = (ends_s - starts_s) / 4.0

    def around(at_s: Floats) -> tuple[Floats, Floats]:
        """Mean power about instants, as far as there are rows, and the middle of these."""
        begin, end = (np.clip(at_s + side * reach_s, curve.start_s, curve.end_s) for side in (-1.0, 1.0))
        return (curve.until(end) - curve.until(begin)) / np.where(end > begin, end - begin, np.inf), (begin + end) / 2.0

    (first, first_s), (last, last_s) = around(starts_s), around(ends_s)
    return np.asarray((last - first) / np.where(last_s > first_s, last_s - first_s, np.inf), np.float64)


def nearest(t_s: Floats, at_s: Floats) -> Floats:
    """Return the time of the row next to each instant."""
    return np.asarray(t_s[np.searchsorted((t_s[1:] + t_s[:-1]) / 2.0, at_s)], np.float64)


def sparsest(curves: Sequence[PowerTrace]) -> Floats:
    """Return the times of the rows of the curve that has the fewest in its time."""
    return max((curve.rows_s for curve in curves), key=lambda t_s: float(np.mean(np.diff(t_s))))


def calm_ends(curves: Sequence[PowerTrace], earliest_s: Floats, latest_s: Floats, otherwise_s: Floats) -> Floats:
    """Choose ends of windows about which the power of all curves rests.

    What a row holds on either side of an end within it, and what one curve is late by, is nothing there.

    Parameters
    ----------
    earliest_s, latest_s, otherwise_s : float64, shape (k,)
        Each end is at a row of the sparsest curve, between two instants, or else where it is said.
    """
    rows = sparsest(curves)
    first = np.searchsorted(rows, earliest_s)
    count = np.maximum(np.searchsorted(rows, latest_s, side="right") - first, 0)
    of = np.repeat(np.arange(len(count)), count)
    at_s = rows[np.arange(len(of)) - (np.cumsum(count) - count - first)[of]]
    reach_s = ((latest_s - earliest_s) / 2.0)[of]
    unrest = np.zeros(len(of))
    for curve in curves:
        between = curve.watts()[1:-1]
        watts = curve.watts() - np.mean(between)
        begin, end = (np.clip(at_s + side * reach_s, curve.start_s, curve.end_s) for side in (-1.0, 1.0))
        once, squared = (PowerTrace.of_levels(curve.rows_s, power) for power in (watts, watts**2))
        mean, square = ((each.until(end) - each.until(begin)) / (end - begin) for each in (once, squared))
        unrest += (square - mean**2) / max(float(np.var(between)), 1e-30)
    order = np.lexsort((unrest, of))
    ends_s = np.array(otherwise_s, np.float64)
    chosen, place = np.unique(of[order], return_index=True)
    ends_s[chosen] = at_s[order][place]
    return ends_s
