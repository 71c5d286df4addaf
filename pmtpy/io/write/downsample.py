"""Fewer rows than the sensor delivers: one for each interval, with nothing lost from the energy. Pure.

The row of an interval is the last one that falls into it: its time and its joules stay. Its watts become the mean
since the row before (energy over covered time; where its last rows have no energy, the energy of the last row that
has one; of a total the sum over its parts), other values the mean over the interval's rows, losses their sum.

A row with a mark, and the one before it, end an interval too: the mark was set between the two, and on one row for
the whole interval it would stand too late by up to that. For a file whose rows have to be equally far apart, marks
move to the row of their interval.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pmtpy.core.rows import Floats, Frame, Ints, Layout

_NS_PER_S = 1e9


class Thinner:
    """Thins a sequence of Frames that follow each other. The first row of all is kept as it is.

    Parameters
    ----------
    layout : Layout
        Of the rows.
    interval_s : float
        Length of an interval; intervals are counted from the first row. Where rows are further apart than this, each
        is kept.
    even : bool
        Whether only intervals make rows, and not marks.
    """

    def __init__(self, layout: Layout, interval_s: float, *, even: bool = False) -> None:
        if not interval_s > 0:
            msg = f"an interval must be longer than 0 s, not {interval_s} s"
            raise ValueError(msg)
        self._layout, self._even = layout, even
        self._interval_ns = max(1, round(interval_s * _NS_PER_S))
        self._kept: Frame | None = None  # the last row given out
        self._open: Frame | None = None  # rows of the interval that has not ended
        self._origin_ns = 0

    def feed(self, frame: Frame) -> Frame:
        """Take rows; return a row for each interval that has ended, perhaps none."""
        if not len(frame):
            return frame
        first = None
        if self._kept is None:
            self._origin_ns = int(frame.t_ns[0])
            self._kept = first = frame.part(0, 1)
            frame = frame.part(1, len(frame))
        rows = Frame.joined([self._open, frame]) if self._open is not None else frame
        # Row i belongs to the interval (k, k + 1] that its time falls into.
        interval = (rows.t_ns - self._origin_ns - 1) // self._interval_ns
        ends = np.flatnonzero(np.diff(interval)) + 1
        if rows.marks and not self._even:
            marked = np.array([row for row, _ in rows.marks])
            ends = np.union1d(ends, np.concatenate([marked[marked > 0], marked + 1]))
        done = int(ends[-1]) if len(ends) else 0
        self._open = rows.part(done, len(rows))
        thinned = self._thin(rows.part(0, done), ends)
        return Frame.joined([first, thinned]) if first is not None else thinned

    def flush(self) -> Frame | None:
        """Return the row of the interval that has not ended, if it has rows."""
        if self._open is None or not len(self._open):
            return None
        rows, self._open = self._open, None
        return self._thin(rows, np.array([len(rows)]))

    def _thin(self, rows: Frame, ends: Ints) -> Frame:
        """Make one row of each group of ``rows`` that stops before a row of ``ends``."""
        before = self._kept
        if before is None or not len(ends):
            return rows.part(0, 0)
        last, starts = ends - 1, np.concatenate([[0], ends[:-1]])
        t_ns, uncovered = rows.t_ns[last], rows.uncovered_ns[last]
        # What a row without an energy misses is in the next one that has one; until then the last known one stands.
        found = np.where(np.isfinite(rows.joules), np.arange(1, len(rows) + 1)[:, None], 0)
        found = np.maximum.accumulate(found, axis=0)[last]
        joules = np.take_along_axis(np.concatenate([before.joules, rows.joules]), found, axis=0)
        kept = rows.part(len(rows) - 1, len(rows))
        energy: Floats = np.diff(np.concatenate([before.joules, joules]), axis=0)
        seconds = np.diff(np.concatenate([before.t_ns, t_ns])) / _NS_PER_S
        unknown_s = np.diff(np.concatenate([before.uncovered_ns, uncovered]), axis=0) / _NS_PER_S
        watts = self._layout.mean_watts(energy, seconds, unknown_s)
        group = np.searchsorted(ends, [row for row, _ in rows.marks], side="right")
        thinned = Frame(
            t_ns,
            watts,
            np.where(found > starts[:, None], joules, np.nan),  # of an interval that has any
            _means(rows.values, starts),
            np.add.reduceat(rows.lost, starts),
            uncovered,
            tuple((int(g), label) for g, (_, label) in zip(group, rows.marks, strict=True)),
        )
        self._kept = replace(kept, joules=joules[-1:])
        return thinned


def _means(values: Floats, starts: Ints) -> Floats:
    """Mean of the values that there are, of each group of rows."""
    there = np.isfinite(values)
    count = np.add.reduceat(there.astype(np.int64), starts, axis=0)
    means = np.full(count.shape, np.nan)
    np.divide(np.add.reduceat(np.where(there, values, 0.0), starts, axis=0), count, out=means, where=count > 0)
    return means
