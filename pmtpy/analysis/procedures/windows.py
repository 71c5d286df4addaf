"""The energy that a recording has of windows of time: integrated where it was not recorded, not known across holes.

An end of a window that lies between two rows shares the energy of that step by time, which says nothing of a window
shorter than the step. Pure; times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_MAX_STEPS_APART = 10.0  # usual steps without a row, as for every recording
_MAX_OFF_ROWS = 0.5  # of a window: so far, together, may its ends lie from the rows next to them


@dataclass(frozen=True, slots=True)
class EnergyCurve:
    """Cumulative energy over time, and between which rows it is not known."""

    # shape (n,), n >= 2; instants of the rows with an energy, in order, and cumulative energy
    t_s: Floats
    joules: Floats
    unknown: npt.NDArray[np.bool_]  # shape (n - 1,); steps between them of which the energy is not known

    @property
    def watts(self) -> Floats:
        """Mean power between rows, shape (n - 1,)."""
        steps = np.diff(self.t_s)
        return np.asarray(np.diff(self.joules) / np.where(steps > 0.0, steps, np.inf), np.float64)

    @classmethod
    def of(
        cls, t_s: Floats, watts: Floats, joules: Floats, lost: Floats, *, mean: bool = False, whole: bool = False
    ) -> EnergyCurve:
        """Make it of the columns of a recording, each of shape (n,).

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

        Raises DeclinedError: fewer than two rows have an energy.
        """
        recorded = np.isfinite(joules).any()
        later = t_s >= np.maximum.accumulate(t_s)  # a wall clock that was set back says nothing until it is there again
        rows = np.flatnonzero(np.isfinite(joules if recorded else watts) & later)
        if len(rows) < 2:
            msg = f"{len(rows)} rows of the recording have an energy: too few for that of any time"
            raise DeclinedError(msg)
        t, watts = t_s[rows], watts[rows]
        steps = np.diff(t)
        if recorded:
            joules = joules[rows]
        else:
            joules = np.append(0.0, np.cumsum(steps * (watts[1:] if mean else (watts[1:] + watts[:-1]) / 2.0)))
        unknown = (np.diff(rows) > 1) | (np.diff(np.cumsum(np.maximum(lost, 0.0))[rows]) > 0.0)
        unknown |= ~np.isfinite(watts[1:]) & (np.diff(joules) == 0.0)  # no power, and nothing was counted
        if not whole:
            unknown |= steps > _MAX_STEPS_APART * np.median(steps)
        return cls(t, joules, unknown)

    def resolves(self, starts_s: Floats, ends_s: Floats) -> npt.NDArray[np.bool_]:
        """Whether rows are close enough to both ends of windows, each shape (k,)."""
        return np.asarray(self._off(starts_s) + self._off(ends_s) <= _MAX_OFF_ROWS * (ends_s - starts_s), np.bool_)

    def mean_watts(self, starts_s: Floats, ends_s: Floats) -> Floats:
        """Return the mean power of windows; NaN where their energy is."""
        return np.asarray(self.energy(starts_s, ends_s) / (ends_s - starts_s), np.float64)

    def later(self, starts_s: Floats, ends_s: Floats) -> Floats:
        """Return how much more mean power windows have that are a little later, W/s."""
        reach_s = (ends_s - starts_s) / 4.0

        def around(at_s: Floats) -> Floats:
            before, after = (np.interp(at_s + side * reach_s, self.t_s, self.joules) for side in (-1.0, 1.0))
            return np.asarray((after - before) / (2.0 * reach_s), np.float64)

        return np.asarray((around(ends_s) - around(starts_s)) / (ends_s - starts_s), np.float64)

    def known(self, starts_s: Floats, ends_s: Floats) -> npt.NDArray[np.bool_]:
        """Whether windows lie within the recording, and touch no step of which the energy is not known."""
        missing = np.append(0, np.cumsum(self.unknown))
        first = np.clip(np.searchsorted(self.t_s, starts_s, side="right") - 1, 0, len(self.t_s) - 1)
        last = np.clip(np.searchsorted(self.t_s, ends_s, side="left"), 0, len(self.t_s) - 1)
        within = (starts_s >= self.t_s[0]) & (ends_s <= self.t_s[-1]) & (ends_s > starts_s)
        return np.asarray(within & (missing[last] <= missing[first]), np.bool_)

    def energy(self, starts_s: Floats, ends_s: Floats) -> Floats:
        """Return the energy of windows, joules; NaN where it is not known, or rows are too far apart."""
        at = [np.interp(ends, self.t_s, self.joules) for ends in (starts_s, ends_s)]
        told = self.known(starts_s, ends_s) & self.resolves(starts_s, ends_s)
        return np.where(told, at[1] - at[0], np.nan)

    def _off(self, at_s: Floats) -> Floats:
        """How far instants lie from the rows next to them."""
        return np.asarray(np.abs(at_s - nearest(self.t_s, at_s)), np.float64)


def nearest(t_s: Floats, at_s: Floats) -> Floats:
    """Return the time of the row next to each instant."""
    return np.asarray(t_s[np.searchsorted((t_s[1:] + t_s[:-1]) / 2.0, at_s)], np.float64)


def sparsest(curves: Sequence[EnergyCurve]) -> Floats:
    """Return the times of the rows of the curve that has the fewest in its time."""
    return max((curve.t_s for curve in curves), key=lambda t_s: float(np.mean(np.diff(t_s))))


def calm_ends(curves: Sequence[EnergyCurve], earliest_s: Floats, latest_s: Floats, otherwise_s: Floats) -> Floats:
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
        watts = curve.watts - np.mean(curve.watts)
        begin, end = (np.clip(at_s + side * reach_s, *curve.t_s[[0, -1]]) for side in (-1.0, 1.0))
        mean, square = (
            np.subtract(
                *(
                    np.interp(at, curve.t_s, np.append(0.0, np.cumsum(power * np.diff(curve.t_s))))
                    for at in (end, begin)
                )
            )
            / (end - begin)
            for power in (watts, watts**2)
        )
        unrest += (square - mean**2) / max(float(np.var(watts)), 1e-30)
    order = np.lexsort((unrest, of))
    ends_s = np.array(otherwise_s, np.float64)
    chosen, place = np.unique(of[order], return_index=True)
    ends_s[chosen] = at_s[order][place]
    return ends_s
