"""Power in cells, and what a sensor shows of it: the rows of the estimator. Pure; seconds, watts.

Two unknowns for each cell: the slow power ``x``, and what a one-pole of the sensor's time constant holds at the cell's
end, ``z``. From two of these follows the power of the cell, exactly for a power that is constant in it,

    p = (z_end - q z_start)/(1 - q)      q = exp(-cell/tau)

so a slow one-pole costs no more than none at all (``tau`` = 0: ``p = z_end``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.energy.blocks import Rows
from pmtpy.analysis.signal.response import Response
from pmtpy.core.rows import Floats, Ints

_IN_A_PERIOD = 4  # cells in a period ...
_IN_A_WINDOW = 20  # ... but no more than this in a window of several
_SEEN = 0.95  # of a period: a window that is shorter has bounds of its own
_FORGOTTEN = 1e-12  # of a one-pole's start at the end of a cell: below it is nothing
_CLOSE = 1e-3  # of a period: bounds this near each other are one
_TAILS = (1.0, 3.0)  # time constants before a reading at which a part-time one-pole has bounds


@dataclass(frozen=True, slots=True)
class Cells:
    """The grid, and its unknowns: number ``2 j`` is ``x`` of cell ``j``, number ``2 j + 1`` is ``z`` at its end.

    Attributes
    ----------
    bounds_s : float64, shape (m + 1,)
    held : float64, shape (m,)
        Share ``q`` that a one-pole keeps over each cell; 0 in the first, before which the power was the same.
    """

    bounds_s: Floats
    held: Floats
    response: Response

    @classmethod
    def over(cls, ends_s: Floats, response: Response, until_s: float) -> Cells:
        """Lay cells between the ends of the readings' kernels, from one kernel before the first to ``until_s``."""
        period, window, tau = response.period_s, response.window_s, response.tau_s
        first = ends_s[0] - max(window + 5.0 * tau, period)
        lead = np.arange(ends_s[0] - period, first - period, -period)[::-1]
        tail = np.arange(ends_s[-1] + period, until_s + period, period)
        marks = [lead, ends_s, tail]
        if 0.0 < window < _SEEN * period:
            marks.append(ends_s - window)
        if tau > 0.0 and window + 2.0 * tau < _SEEN * period:
            marks += [ends_s - window - back * tau for back in _TAILS]
        bounds = np.sort(np.concatenate(marks))
        bounds = bounds[np.diff(bounds, prepend=-np.inf) > _CLOSE * period]
        cell = max(period / _IN_A_PERIOD, min(window / _IN_A_WINDOW, period))
        many = np.maximum(1, np.ceil(np.diff(bounds) / cell - _CLOSE)).astype(np.int64)
        place = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        inner = np.repeat(bounds[:-1], many) + place * np.repeat(np.diff(bounds) / many, many)
        bounds = np.append(inner, bounds[-1])
        held = np.exp(-np.diff(bounds) / tau) if tau > 0.0 else np.zeros(len(bounds) - 1)
        held[held < _FORGOTTEN] = 0.0
        held[0] = 0.0
        return cls(np.asarray(bounds, np.float64), held, response)

    @property
    def lengths_s(self) -> Floats:
        """Length of each cell."""
        return np.asarray(np.diff(self.bounds_s), np.float64)

    @property
    def unknowns(self) -> int:
        """How many unknowns there are."""
        return 2 * len(self.held)

    @property
    def power(self) -> Rows:
        """Rows of the power of each cell."""
        at, after = self._holding(np.arange(len(self.held)))
        return Rows(at, after)

    @property
    def steps(self) -> Rows:
        """Rows of the slow power's step over each inner bound, per root of a second of distance."""
        j, lengths = np.arange(len(self.held) - 1), self.lengths_s
        apart = np.sqrt((lengths[1:] + lengths[:-1]) / 2.0)
        return Rows(np.stack([2 * j, 2 * j + 2], axis=1), np.stack([-1.0 / apart, 1.0 / apart], axis=1))

    @property
    def excess(self) -> Rows:
        """Rows of the power of each cell above the slow power, times the root of the cell's length."""
        at, value = self._holding(np.arange(len(self.held)))
        root = np.sqrt(self.lengths_s)[:, None]
        slow = 2 * np.arange(len(self.held))[:, None]
        return Rows(np.hstack([at, slow]), np.hstack([value * root, -root]))

    def seconds(self, start_s: float, end_s: float) -> Floats:
        """Seconds of each cell inside an interval."""
        inside = np.minimum(self.bounds_s[1:], end_s) - np.maximum(self.bounds_s[:-1], start_s)
        return np.asarray(np.maximum(inside, 0.0), np.float64)

    def cell_of(self, at_s: float) -> int:
        """Return the cell that holds an instant, the nearest one beyond the ends."""
        return int(np.clip(np.searchsorted(self.bounds_s, at_s, side="right") - 1, 0, len(self.held) - 1))

    def _holding(self, cell: Ints) -> tuple[Ints, Floats]:
        """Return the places of ``z`` at the start and the end of cells, and their weights in the cell's power."""
        q = self.held[cell]
        return (
            np.stack([np.maximum(2 * cell - 1, 0), 2 * cell + 1], axis=1),
            np.stack([-q / (1.0 - q), 1.0 / (1.0 - q)], axis=1),
        )

    def shown(self, ends_s: Floats) -> Rows:
        """Rows of readings whose kernels end at ``ends_s``, each of which is a bound."""
        bounds, window = self.bounds_s, self.response.window_s
        last = np.clip(np.searchsorted(bounds, ends_s - _CLOSE * self.response.period_s), 1, len(bounds) - 1)
        if window == 0.0:
            return Rows((2 * last - 1)[:, None], np.ones((len(ends_s), 1)))
        begins = bounds[last] - window
        first = np.clip(np.searchsorted(bounds, begins, side="right") - 1, 0, len(self.held) - 1)
        cells = first[:, None] + np.arange(int(np.max(last - first)))[None, :]
        inside = cells < last[:, None]
        cells = np.minimum(cells, len(self.held) - 1)
        at, value = self._mean(cells, np.maximum(bounds[cells], begins[:, None]))
        value = np.where(inside[:, :, None], value, 0.0) / window
        # A row's places must be near each other: what is not inside has weight 0 at its last place.
        at = np.where(inside[:, :, None], at, (2 * last - 1)[:, None, None])
        return _merged(at, value, 2 * first - 1, 2 * last - 1)

    def _mean(self, cells: Ints, from_s: Floats) -> tuple[Ints, Floats]:
        """Return the integral of a one-pole's output from an instant in each cell to its end, in ``z`` at its ends."""
        at, power = self._holding(cells.ravel())
        at, power = at.reshape(*cells.shape, 2), power.reshape(*cells.shape, 2)
        part, tau = self.bounds_s[cells + 1] - from_s, self.response.tau_s
        whole = part[..., None] * power
        if tau == 0.0:
            return at, whole
        # z(t) = p + (z_start - p) exp(-(t - start)/tau), and the integral of z is that of p less tau times z's rise.
        kept = np.exp(-(from_s - self.bounds_s[cells]) / tau)[..., None]
        begin = np.where(
            (self.held[cells] == 0.0)[..., None], power, (1.0 - kept) * power + kept * np.array([1.0, 0.0])
        )
        return at, np.asarray(whole - tau * (np.array([0.0, 1.0]) - begin), np.float64)


def _merged(at: Ints, value: Floats, first: Ints, last: Ints) -> Rows:
    """Return rows with each place once: every ``z`` from the first to the last."""
    n, wide = len(at), int(np.max(last - first)) // 2 + 1
    slot = np.clip((at - first[:, None, None]) // 2, 0, wide - 1)
    flat = (np.arange(n)[:, None, None] * wide + slot).ravel()
    merged = np.bincount(flat, value.ravel(), n * wide).reshape(n, wide)
    places = np.minimum(first[:, None] + 2 * np.arange(wide)[None, :], last[:, None])
    return Rows(np.maximum(places, 0), np.asarray(merged, np.float64))
