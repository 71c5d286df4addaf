"""The polls behind a recording that has rows for news alone, as pmtpy's own dumps of registers have.

A poll that brings nothing new makes no row. Such polls are put back, unless the poller was held up: a row off the beat
of the others leaves a gap before it. Without those polls a change would seem to have happened at any time since
the row before, where it happened since the poll before; and rows that another register of the same device made would
be taken for the rhythm of the polls. Pure; times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.updates import POLLED, stamp_step
from pmtpy.core.numbers import real
from pmtpy.core.rows import Floats, Ints

_MAX_OFF_BEAT_SHARE = 0.2  # of the rows: if more are off the beat there is none


@dataclass(frozen=True, slots=True)
class Polling:
    """How a recording was made, by its metadata."""

    period_s: float  # how often the device was polled
    stamped: bool = False  # whether rows bear the instants at which the device renewed them; else those of the polls
    uncut: bool = False  # whether times are as their clock told them; else they may have been cut off to a coarse step

    @classmethod
    def of(cls, metadata: Mapping[str, Any] | None) -> Polling | None:
        """Read it from the metadata of a dump; None where they do not tell, or the sensor is a stream."""
        known = metadata or {}
        period_s = real(known.get("polled_s"))
        # A device may stamp when it was read: then a value may be as old at its row as any that is polled.
        stamped = bool(known.get("stamped")) and not real(known.get("aged_s"))
        return cls(period_s, stamped, known.get("uncut") is True) if period_s else None

    def renewed(self, t_s: Floats, values: Floats) -> Floats | None:
        """Return when the device says that it renewed a value, of those rows that brought a new one; None: it does not.

        Parameters as of :meth:`polls`.
        """
        if not self.stamped:
            return None
        rows = np.flatnonzero(np.isfinite(t_s) & np.isfinite(values))
        step = 0.0 if self.uncut else stamp_step(t_s[rows])  # one that was cut off lies half a step early on average
        return np.asarray(t_s[rows[np.diff(values[rows], prepend=math.inf) != 0.0]] + step / 2.0, np.float64)

    def polls(self, t_s: Floats, values: Floats, lost: Ints | Floats | None = None) -> tuple[Floats, Floats]:
        """Return times and values of all polls; rows without a value are none.

        A row that bears the device's own time was found by a poll up to one period later, half of one on average: each
        change is put between two polls half a period either side of it. Rows of which another register is the reason
        bear that one's time, and say nothing of when this value still was as it was: they are left out, but for the
        last, by which a value that does not change has lasted until then.

        Parameters
        ----------
        t_s, values : float64, shape (n,)
            The rows, in order of time.
        lost : int64 or float64, shape (n,), optional
            Rows missing before each row: how it was polled there is not known, so nothing is put back.
        """
        rows = np.flatnonzero(np.isfinite(t_s) & np.isfinite(values))
        if self.stamped:
            new = np.diff(values[rows], prepend=math.inf) != 0.0
            new[-1:] = True
            rows = rows[new]
        missed = np.zeros(len(rows)) if lost is None else np.diff(np.cumsum(lost)[rows], prepend=0)
        t_s, values = t_s[rows], values[rows]
        # A poll that would lie within half a period of the row before is that row.
        missing = np.maximum(0, np.ceil(np.diff(t_s) / self.period_s - 1.5)).astype(np.int64)
        missing[(missed[1:] > 0) | self._held_up(t_s)[1:]] = 0
        row = np.repeat(np.arange(1, len(t_s)), missing)
        back = 1 + np.arange(len(row)) - np.repeat(np.cumsum(missing) - missing, missing)
        t = np.concatenate([t_s, t_s[row] - back * self.period_s])
        order = np.argsort(t, kind="stable")
        late_s = self.period_s / 2.0 if self.stamped else 0.0
        return np.asarray(t[order] + late_s, np.float64), np.concatenate([values, values[row - 1]])[order]

    def _held_up(self, t_s: Floats) -> npt.NDArray[np.bool_]:
        """Which rows are off the beat that the polls keep, if they keep one: before them nobody may have looked."""
        place = np.mod(t_s / self.period_s, 1.0)
        beat = float(np.angle(np.mean(np.exp(2j * np.pi * place)))) / (2.0 * np.pi) if len(place) else 0.0
        off = np.abs(np.mod(place - beat + 0.5, 1.0) - 0.5) > 1.0 - POLLED
        return np.asarray(off & (np.mean(off) < _MAX_OFF_BEAT_SHARE), np.bool_)
