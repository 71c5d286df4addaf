"""What one sensor has delivered: single rows as far as they are kept, and all of it in slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats
from pmtpy.live._table import Array, Table
from pmtpy.plotting.decimate import Envelope, envelope

FINE_S, _COARSE_S = 0.01, 1.0
"""Lengths of the slices; of a slower sensor each row is one."""
_FINE_KEPT_S = 7200.0
"""Slices of four pairs take 20 kB a second."""
_AT_ONCE = 200
"""Rows for each slice of a picture: as many as a fast sensor has in a fine one."""
_DIRECT = 1 << 16  # rows in which extremes are looked for one by one


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows: times in seconds, powers and energies with one column per power, total first."""

    t: Floats
    watts: Floats
    joules: Floats


class _Slices:
    """Stretches of equal length: their last instant, the energy then, and the least, mean and greatest values."""

    def __init__(self, lines: int, powers: int, seconds: float) -> None:
        self._seconds = seconds
        values = (lines, np.float32)
        self.table = Table({"t": (1, np.float64), "joules": (powers, np.float64), "low": values, "mean": values,
                            "high": values})  # fmt: skip
        self.merged = False  # whether one was made of more than one row

    def add(self, t: Floats, joules: Array, low: Array, mean: Array, high: Array) -> int:
        """Add rows, or finer slices, that make whole ones; return how many were used: the last may not be whole."""
        starts = np.flatnonzero(np.diff(np.floor(t / self._seconds), prepend=-1.0))
        if len(starts) < 2:
            return 0
        done, edges, ends = int(starts[-1]), starts[:-1], starts[1:] - 1
        with np.errstate(invalid="ignore"):
            self.table.append(
                {
                    "t": t[ends][:, None],
                    "joules": joules[ends],
                    "low": np.fmin.reduceat(low[:done], edges, axis=0),
                    "mean": np.add.reduceat(mean[:done], edges, axis=0) / np.diff(starts)[:, None],
                    "high": np.fmax.reduceat(high[:done], edges, axis=0),
                }
            )
        self.merged |= done > len(edges)
        return done


class Grown:
    """Rows of the last minute in memory, older ones on disk, and of all time slices of a hundredth and of one second.

    Parameters
    ----------
    lines : int
        Columns of values: powers, then the others.
    powers : int
        Columns of energies.
    raw_s : float
        For how long rows stay in memory.
    most_bytes : int
        What single rows older than that may take on disk; 0: they are forgotten.
    """

    def __init__(self, lines: int, powers: int, raw_s: float = 60.0, most_bytes: int = 0) -> None:
        self._raw_s, self._powers = raw_s, powers
        kinds: dict[str, tuple[int, npt.DTypeLike]] = {
            "t": (1, np.float64),
            "joules": (powers, np.float64),
            "values": (lines, np.float32),
        }
        self._raw = Table(kinds, most_bytes)
        self._fine = _Slices(lines, powers, FINE_S)
        self._coarse = _Slices(lines, powers, _COARSE_S)
        self._rows_waiting = self._slices_waiting = 0  # at the end, that are in no slice yet

    def append(self, t: Floats, values: Array, joules: Floats) -> None:
        """Add rows in order of time."""
        if not len(t):
            return
        self._raw.append({"t": t[:, None], "values": values, "joules": joules})
        self._rows_waiting += len(t)
        waiting = {name: self._raw.newest(name, self._rows_waiting) for name in ("t", "joules", "values")}
        seen = waiting["values"]
        before = self._fine.table.stop
        self._rows_waiting -= self._fine.add(
            np.asarray(waiting["t"][:, 0], np.float64), waiting["joules"], seen, seen, seen
        )
        self._slices_waiting += self._fine.table.stop - before
        made = {n: self._fine.table.newest(n, self._slices_waiting) for n in ("t", "joules", "low", "mean", "high")}
        times = np.asarray(made.pop("t")[:, 0], np.float64)
        self._slices_waiting -= self._coarse.add(times, **made)
        newest = float(t[-1])
        self._raw.retire(newest - self._raw_s, self._rows_waiting)
        self._fine.table.retire(newest - _FINE_KEPT_S, self._slices_waiting)

    # -- what is kept ----------------------------------------------------------------------------------------------

    @property
    def rows_from(self) -> float:
        """The instant from which on every single row is kept."""
        return self._raw.span[0] if self._raw.stop and self._raw.first else 0.0

    @property
    def problem(self) -> str:
        """Why older rows are not kept; empty: nothing is wrong."""
        return self._raw.problem

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the last row."""
        if not self._raw.stop:
            return 0.0, 0.0
        tables = [t for t in (self._raw, self._fine.table, self._coarse.table) if t.stop]
        return min(t.span[0] for t in tables), self._raw.span[1]

    def _tables(self, since: float) -> list[Table]:
        """Return what reaches back to an instant, or to the beginning if that is later: finest first, never none."""
        since = max(since, self.span[0])
        found = (self._raw, self._fine.table, self._coarse.table)
        return [x for x in found if x.stop and (not x.first or x.span[0] <= since)]

    # -- questions -------------------------------------------------------------------------------------------------

    def draw(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return one line between two instants: single rows where they fit, else slices of least, mean and greatest."""
        if not self._raw.stop:
            return Envelope(*(np.empty(0) for _ in range(4)))
        for table in self._tables(start):
            a, b = max(table.first, table.at(start) - 1), min(table.stop, table.at(stop) + 1)
            if b - a < _AT_ONCE * slices:
                break
        t = table.column("t", a, b)
        if table is self._raw:
            return envelope(t, table.column("values", a, b, line), slices)
        low, mean, high = (table.column(n, a, b, line) for n in ("low", "mean", "high"))
        if b - a <= slices:
            return Envelope(t, low, mean, high)
        cut = np.linspace(0, b - a, slices + 1).astype(np.intp)[:-1]
        count = np.diff(np.append(cut, b - a))
        return Envelope(
            np.add.reduceat(t, cut) / count,
            np.fmin.reduceat(low, cut),
            np.add.reduceat(mean, cut) / count,
            np.fmax.reduceat(high, cut),
        )

    def energy_at(self, t: float) -> Floats:
        """Return the energies at an instant, by straight lines between rows (of what is not kept: between slices)."""
        table = self._tables(t)[0]
        at = table.at(t)
        a, b = max(table.first, at - 1), min(table.stop, at + 1)
        times = table.column("t", a, b)
        return np.array([np.interp(t, times, table.column("joules", a, b, i)) for i in range(self._powers)])

    def extremes(self, line: int, start: float, stop: float) -> tuple[float, float]:
        """Return the least and the greatest value of the rows between two instants; NaN where there are none."""
        found = self._parts(self._tables(start), line, start, stop) if self._raw.stop else []
        low, high = (np.concatenate([pair[i] for pair in found] or [np.empty(0)]) for i in (0, 1))
        if not len(low) or np.isnan(low).all():
            return float("nan"), float("nan")
        return float(np.nanmin(low)), float(np.nanmax(high))

    def _parts(self, tables: Sequence[Table], line: int, start: float, stop: float) -> list[tuple[Floats, Floats]]:
        """Return least and greatest values of a stretch: of whole slices in its middle, of finer rows at its ends."""
        table, *coarser = tables
        behind = float(np.nextafter(stop, np.inf))
        a, b = table.at(start), table.at(behind) if table is self._raw else min(table.stop, table.at(stop) + 1)
        if b - a > _DIRECT and coarser:
            first, last = coarser[0].at(start), coarser[0].at(stop) - 1  # a slice ends at its time
            if last > first:
                ends = coarser[0].column("t", first, last + 1)
                begin = float(np.nextafter(ends[0], np.inf))
                inner = self._parts(coarser, line, begin, float(ends[-1]))
                before = self._direct(table, line, a, table.at(begin))
                return [before, *inner, self._direct(table, line, table.at(float(ends[-1])), b)]
        return [self._direct(table, line, a, b)]

    def _direct(self, table: Table, line: int, first: int, last: int) -> tuple[Floats, Floats]:
        low, high = ("values", "values") if table is self._raw else ("low", "high")
        return table.column(low, first, last, line), table.column(high, first, last, line)

    def around(self, t: float, rows: int = 300) -> Rows:
        """Return the rows around an instant, or the slices where rows are not kept."""
        table = self._tables(t)[0]
        at = table.at(t)
        a, b = max(table.first, at - rows), min(table.stop, at + rows)
        watts = table.part("values" if table is self._raw else "mean", a, b)[:, : self._powers]
        return Rows(table.column("t", a, b), watts.astype(np.float64), np.array(table.part("joules", a, b), np.float64))

    def rows(self, start: float, stop: float, most: int) -> tuple[Floats, Array, Floats, float | None]:
        """Return times, values and energies of the rows between two instants, and over how long each is a mean.

        None: each is a row as it came. Where these are not kept any more, or are more than ``most``, it is one of each
        slice, and its energy at it.
        """
        table, a, b = self._raw, 0, 0
        for table in self._tables(start) if self._raw.stop else ():
            a, b = table.at(start), table.at(stop)
            if b - a <= most:
                break
        fine_s = FINE_S if self._fine.merged else None
        coarse_s = _COARSE_S if self._coarse.merged else fine_s
        seconds = None if table is self._raw else fine_s if table is self._fine.table else coarse_s
        values = table.part("values" if table is self._raw else "mean", a, b)
        return table.column("t", a, b), values, np.asarray(table.part("joules", a, b), np.float64), seconds

    def raw(self, line: int, start: float, stop: float) -> tuple[Floats, Floats]:
        """Return times and values of one line, of the single rows between two instants."""
        a, b = self._raw.at(start), self._raw.at(stop)
        return self._raw.column("t", a, b), self._raw.column("values", a, b, line)
