"""Where the registers of counters moved among rows, and what was used up to an instant between two moves. Pure.

A register that shows the same for some rows has not used less meanwhile: what its next move shows was used since the
last one. Rows of a slow counter that is polled often are a staircase, and an energy that is read off it is out by up to
a step at either end; lines from move to move are out by how the power changed within one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pmtpy.core.channel import EnergyMethod
from pmtpy.core.rows import Floats, Ints, Layout


def moved(joules: Floats) -> npt.NDArray[np.bool_]:
    """Whether each of some rows in order, at least one, shows another count than the row before; the first does."""
    found = np.ones(len(joules), np.bool_)
    found[1:] = joules[1:] != joules[:-1]
    return found


def energies_at(layout: Layout, t: float, at: Floats | Ints, watts: Floats, joules: Floats) -> Floats:
    """Return the energies up to an instant, total first: of counters by lines from move to move, else from row to row.

    A counter without a power at a row rests there because nothing is known of it: no line passes that row. Behind its
    last move it is taken at what it shows. What its first move shows was used since an instant that nobody saw, which
    may lie before the first row: behind ``t`` lies what the power of the next move makes, at most what lines make.

    Parameters
    ----------
    t : float
        The instant, between the first of the rows and the last.
    at : int64 or float64, shape (n,)
        Times of rows in order, in the unit of ``t``; those some refreshes on either side of it are enough.
    watts, joules : float64, shape (n, 1 + channels)
        Of those rows, total first.
    """
    by_rows = np.array([np.interp(t, at, column) for column in joules.T])
    found: Floats = by_rows.copy()
    for i, channel in enumerate(layout.energy, 1):
        if channel.energy_method is EnergyMethod.COUNTER:
            found[i] = _counted_at(t, at, watts[:, i], joules[:, i])
    for i in layout.in_total:
        found[0] += found[i] - by_rows[i]
    return found


def _counted_at(t: float, at: Floats | Ints, watts: Floats, joules: Floats) -> float:
    """Return the energy of one counter up to an instant."""
    moves, unknown = moved(joules), np.isnan(watts)
    known = np.flatnonzero(~unknown[: int(np.searchsorted(at, t, "right"))])
    begun = int(known[-1]) + 1 if len(known) else 0
    first, second = [*(np.flatnonzero(moves[begun + 1 :])[:2] + begun + 1).tolist(), 0, 0][:2]
    if second and unknown[begun:second].all() and not unknown[second] and at[begun] <= t:
        # It began to count: what its first move shows was used since the row before, or longer.
        likely = (joules[second] - joules[first]) / (at[second] - at[first])
        if t < at[first]:
            likely = min((joules[first] - joules[begun]) / (at[first] - at[begun]), likely)
        return float(joules[first] + likely * (t - at[first]))
    knots = moves | unknown
    knots[-1] = True
    return float(np.interp(t, at[knots], joules[knots]))
