"""Rows that keep coming, in arrays that are looked at without copying: the newest raw, all of it summarised. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats
from pmtpy.plotting.decimate import Envelope, envelope

_SLICE_S = 0.01
"""Length of a slice of the summary; a slower sensor is summarised row by row."""
_FIRST = 1024  # rows for which there is room at the beginning


class Columns:
    """An array that grows at its end and may be cut at its beginning."""

    def __init__(self, width: int, kind: npt.DTypeLike = np.float64) -> None:
        self._content: npt.NDArray[np.floating] = np.empty((_FIRST, width), kind)
        self._start = self._stop = 0

    @property
    def rows(self) -> npt.NDArray[np.floating]:
        """All rows, shape (n, width); a view."""
        return self._content[self._start : self._stop]

    def append(self, rows: npt.NDArray[np.floating]) -> None:
        """Add rows."""
        if self._stop + len(rows) > len(self._content):
            kept = self.rows
            size = max(_FIRST, 2 * (len(kept) + len(rows)))
            content = np.empty((size, self._content.shape[1]), self._content.dtype)
            content[: len(kept)] = kept
            self._content, self._start, self._stop = content, 0, len(kept)
        self._content[self._stop : self._stop + len(rows)] = rows
        self._stop += len(rows)

    def drop(self, count: int) -> None:
        """Forget the oldest rows."""
        self._start += count


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows: times in seconds, powers and energies with one column per power, total first."""

    t: Floats
    watts: Floats
    joules: Floats


class Grown:
    """What one sensor has delivered: raw rows of the last minute, and slices of a hundredth of a second of all time.

    Parameters
    ----------
    lines : int
        Columns of values: powers, then the others.
    powers : int
        Columns of energies.
    raw_s : float
        How much stays raw.
    """

    def __init__(self, lines: int, powers: int, raw_s: float = 60.0) -> None:
        self._raw_s, self._powers = raw_s, powers
        self._t, self._joules, self._values = Columns(1), Columns(powers), Columns(lines, np.float32)
        self._edge, self._past_joules = Columns(1), Columns(powers)
        self._low, self._mean, self._high = (Columns(lines, np.float32) for _ in range(3))
        self._waiting = 0  # raw rows at the end that are in no slice yet
        self._merged = False  # whether a slice has more rows than one

    def append(self, t: Floats, values: Floats, joules: Floats) -> None:
        """Add rows in order of time."""
        self._t.append(t[:, None])
        self._values.append(values)
        self._joules.append(joules)
        self._waiting += len(t)
        self._summarise()
        times = self._t.rows[:, 0]
        old = int(np.searchsorted(times, times[-1] - self._raw_s)) if len(times) else 0
        old = min(old, len(times) - self._waiting)
        if old > _FIRST:
            for column in (self._t, self._values, self._joules):
                column.drop(old)

    def _summarise(self) -> None:
        times = self._t.rows[-self._waiting :, 0]
        slices = np.floor(times / _SLICE_S)
        starts = np.flatnonzero(np.diff(slices, prepend=-1.0))
        if len(starts) < 2:
            return
        done = int(starts[-1])  # the last slice may not be whole
        values = self._values.rows[-self._waiting :][:done]
        joules = self._joules.rows[-self._waiting :][:done]
        edges, ends = starts[:-1], starts[1:] - 1
        with np.errstate(invalid="ignore"):
            self._low.append(np.fmin.reduceat(values, edges, axis=0))
            self._high.append(np.fmax.reduceat(values, edges, axis=0))
            self._mean.append(np.add.reduceat(values, edges, axis=0) / np.diff(starts)[:, None])
        self._merged |= done > len(edges)
        self._edge.append(times[ends][:, None])
        self._past_joules.append(joules[ends])
        self._waiting -= done

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the last row."""
        times, edges = self._t.rows[:, 0], self._edge.rows[:, 0]
        if not len(times):
            return 0.0, 0.0
        return float(min(times[0], edges[0]) if len(edges) else times[0]), float(times[-1])

    def draw(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return one line between two instants: single rows where they fit, else slices of least, mean and greatest."""
        times = self._t.rows[:, 0]
        if len(times) and (start >= times[0] or len(times) < len(self._edge.rows)):
            a, b = np.searchsorted(times, [start, stop])
            a, b = max(0, int(a) - 1), min(len(times), int(b) + 1)
            if b - a < 200 * slices:
                return envelope(
                    np.asarray(times[a:b], np.float64), self._values.rows[a:b, line].astype(np.float64), slices
                )
        edges = self._edge.rows[:, 0]
        a, b = np.searchsorted(edges, [start, stop])
        a, b = max(0, int(a) - 1), min(len(edges), int(b) + 1)
        t, low, mean, high = edges[a:b], *(c.rows[a:b, line] for c in (self._low, self._mean, self._high))
        if b - a <= slices:
            return Envelope(*(np.asarray(v, np.float64) for v in (t, low, mean, high)))
        cut = np.linspace(0, b - a, slices + 1).astype(np.intp)[:-1]
        count = np.diff(np.append(cut, b - a))
        return Envelope(
            np.add.reduceat(t, cut) / count,
            np.fmin.reduceat(low, cut).astype(np.float64),
            np.add.reduceat(mean, cut) / count,
            np.fmax.reduceat(high, cut).astype(np.float64),
        )

    def energy_at(self, t: float) -> Floats:
        """Return the energies at an instant, by straight lines between rows (of what is not raw: between slices)."""
        times, joules = self._t.rows[:, 0], self._joules.rows
        if not len(times) or t < times[0]:
            times, joules = self._edge.rows[:, 0], self._past_joules.rows
        return np.array([np.interp(t, times, joules[:, i]) for i in range(self._powers)])

    def extremes(self, line: int, start: float, stop: float) -> tuple[float, float]:
        """Return the least and the greatest value of the rows between two instants; NaN where there are none."""
        times = self._t.rows[:, 0]
        if len(times) and start >= times[0]:
            a, b = np.searchsorted(times, [start, stop], side="left")
            low = high = self._values.rows[a : int(b) + 1, line]
        else:
            a, b = np.searchsorted(self._edge.rows[:, 0], [start, stop])
            low, high = self._low.rows[a : int(b) + 1, line], self._high.rows[a : int(b) + 1, line]
        if not len(low) or np.isnan(low).all():
            return float("nan"), float("nan")
        return float(np.nanmin(low)), float(np.nanmax(high))

    def around(self, t: float, rows: int = 300) -> Rows:
        """Return the raw rows around an instant, as far as they are kept."""
        times = self._t.rows[:, 0]
        at = int(np.searchsorted(times, t))
        part = slice(max(0, at - rows), at + rows)
        return self.part(part)

    def part(self, part: slice) -> Rows:
        """Return some raw rows."""
        watts = self._values.rows[part, : self._powers].astype(np.float64)
        return Rows(self._t.rows[part, 0].copy(), watts, np.asarray(self._joules.rows[part], np.float64).copy())

    def rows(self, start: float, stop: float) -> tuple[Floats, npt.NDArray[np.floating], Floats, float | None]:
        """Return times, values and energies of the rows between two instants, and over how long each is a mean.

        None: each is a row as it came. Where these are not kept any more it is one of each slice, and its energy at it.
        """
        times, edges = self._t.rows[:, 0], self._edge.rows[:, 0]
        if len(times) and len(edges) and start < times[0] and edges[0] < times[0]:
            a, b = np.searchsorted(edges, [start, stop])
            mean, joules = self._mean.rows[a:b], np.asarray(self._past_joules.rows[a:b], np.float64)
            return np.array(edges[a:b], np.float64), mean, joules, _SLICE_S if self._merged else None
        return (*self.raw(start, stop), None)

    def raw(self, start: float, stop: float) -> tuple[Floats, npt.NDArray[np.floating], Floats]:
        """Return times, values and energies of the raw rows between two instants."""
        a, b = np.searchsorted(self._t.rows[:, 0], [start, stop])
        return (
            np.asarray(self._t.rows[a:b, 0], np.float64),
            self._values.rows[a:b],
            np.asarray(self._joules.rows[a:b], np.float64),
        )
