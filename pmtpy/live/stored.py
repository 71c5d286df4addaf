"""A recording that a page shows without holding it in memory: read once, its rows kept in files without a name.

The files lie where temporary files may be large (``TMPDIR``, else ``/var/tmp``) and are gone when the viewer is,
however it ends. A wide stretch is drawn from slices that were made meanwhile, a narrow one from the rows.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.uncertainty.interval_statistics import CONTEXT_ROWS
from pmtpy.core.channel import TOTAL
from pmtpy.core.closing import Closing
from pmtpy.core.markers import Span, marker_column
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints, Layout
from pmtpy.errors import FileFormatError, SinkError, TargetError
from pmtpy.io.read.blocks import OpenRecording, open_blocks
from pmtpy.io.recorded import marks_in, regions_in
from pmtpy.io.uncovered import Uncovered, UncoveredRows
from pmtpy.live._grown import Rows
from pmtpy.live._roomy import roomy_file
from pmtpy.live.tracks import Line, layout_of, lines_of, said_of
from pmtpy.plotting.decimate import Envelope, envelope, interrupted
from pmtpy.plotting.slices import Slicer

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)
MAX_ROWS = 20_000_000
"""Of one export, which is made in memory."""
_MIN_SLICES = 400  # slices of the summary that a picture must have, else it is drawn from rows


class Column(Closing):
    """Numbers on disk that are looked at like an array. In a with-statement: what was made of it stays readable."""

    def __init__(self) -> None:
        self._file = roomy_file()
        self._rows = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def append(self, values: npt.NDArray[np.floating] | Ints) -> None:
        """Add numbers.

        Raises SinkError: the disk is full.
        """
        try:
            self._file.write(np.ascontiguousarray(values, np.float64).data)
        except OSError as error:
            msg = f"the rows of a long recording do not fit beside it ({error.strerror}); TMPDIR names a larger place"
            raise SinkError(msg) from error
        self._rows += len(values)

    def array(self) -> Floats:
        """Return all numbers; they are read as they are asked for."""
        if not self._rows:
            return np.empty(0)
        self._file.flush()
        return np.memmap(self._file, np.float64, "r", shape=(self._rows,))


class StoredTrack:
    """A recording, whatever wrote it and however long it is."""

    def __init__(self, name: str, recording: OpenRecording) -> None:
        self.name = name
        numbers = [n for n in recording.names if n not in {"time", "elapsed", "lost"}]
        self.lines: Sequence[Line] = lines_of(numbers)
        named = [line.name for line in self.lines if line.unit == "W"]
        shown = [f"{line.name}_{line.unit}" for line in self.lines]
        if not self.lines:
            msg = f"{recording.path} holds nothing that can be drawn: no watts, volts, amperes, C or Hz"
            raise FileFormatError(msg)
        slicer, self.start_unix_s = Slicer(most_gaps=None), math.nan
        rule = UncoveredRows(recording.names, recording.facts, recording.joules, named)
        self._uncovered = Uncovered(len(named))
        with contextlib.ExitStack() as files:
            kept = {n: files.enter_context(Column()) for n in ("elapsed", "lost", *numbers)}
            for block in recording.blocks:
                t = block.columns["elapsed"]
                found = block.columns
                if len(t) and math.isnan(self.start_unix_s):
                    self.start_unix_s = float(found["time"][0]) - float(t[0])
                for column, file in kept.items():
                    file.append(found[column])
                values, joules = (
                    np.column_stack([found[n] for n in names]) if names else np.empty((len(t), 0))
                    for names in (shown, [f"{n}_J" for n in named])
                )
                slicer.add(t, values, joules, found["lost"], block.labels)
                if len(t):
                    self._uncovered.add(t, rule.seconds(found), joules)
            arrays = {n: column.array() for n, column in kept.items()}
        self._arrays, self._t = arrays, arrays["elapsed"]
        self._own_unix_s = self.start_unix_s  # wherever it is shown, its rows go by its own clock, as its facts do
        self._values, self._joules = [arrays[n] for n in shown], [arrays[f"{n}_J"] for n in named]
        self._slices, self._gaps = slicer.slices(), slicer.gaps
        attrs = recording.attrs(slicer.rows)
        facts = attrs.get("metadata") or {}
        self.facts: dict[str, Any] | None = attrs.get("metadata")
        self._marks = slicer.marks(attrs.get("marks") or marks_in(self.facts, self.start_unix_s))
        self.regions: Sequence[Span] = regions_in(self.facts, self.start_unix_s)
        self.target = str(facts.get("target", attrs.get("format", "")))
        self.virtual = bool(attrs.get("virtual"))
        self.note = said_of(attrs)
        layout = layout_of(facts)
        self.layout: Layout | None = (
            layout if layout is not None and [TOTAL, *(c.name for c in layout.energy)] == named else None
        )

    @property
    def rows_from(self) -> float:
        """All rows are kept."""
        return 0.0

    @classmethod
    def of_file(
        cls,
        name: str,
        path: Path,
        *,
        skip_broken: bool = False,
        utc_offset_s: float | None = None,
        report: Callable[[str], None] = _log.warning,
    ) -> StoredTrack:
        """Read a recording; ``report`` is told what was left out. The rest as for :func:`pmtpy.load`."""
        with open_blocks(path, skip_broken=skip_broken, utc_offset_s=utc_offset_s) as recording:
            made = cls(name, recording)
            broken = recording.broken_lines
        if broken:
            report(f"{path}: {amount(len(broken), 'line')} left out, the first is line {broken[0]}")
        return made

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the last row."""
        return (float(self._t[0]), float(self._t[-1])) if len(self._t) else (0.0, 0.0)

    def _part(self, start: float, stop: float, beside: int = 1) -> slice:
        a, b = np.searchsorted(self._t, [start, stop])
        return slice(max(0, int(a) - beside), int(b) + beside)

    def draw(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return a line between two instants, interrupted where nothing is known."""
        curve = self._curve(line, start, stop, slices)
        if line >= len(self._joules):
            return curve
        return interrupted(curve, *self._uncovered.unknown(line, start, stop))

    def _curve(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        if self._slices is not None:
            a, b = np.searchsorted(self._slices.last, [start, stop])
            wide = slice(max(0, int(a) - 1), int(b) + 1)
            if len(self._slices.last[wide]) >= _MIN_SLICES and int(self._slices.rows[wide].sum()) > 2 * slices:
                return self._slices.part(wide).curve(line, slices)
        part = self._part(start, stop)
        return envelope(np.asarray(self._t[part]), np.asarray(self._values[line][part]), slices)

    def marks(self, start: float, stop: float) -> list[tuple[float, str]]:
        """Return the labels between two instants."""
        return [m for m in self._marks if start <= m[0] <= stop]

    def gaps(self, start: float, stop: float) -> list[tuple[float, float, int]]:
        """Return where rows were lost."""
        return [g for g in self._gaps if g[1] > start and g[0] < stop]

    def energy_at(self, t: float) -> Floats:
        """Return the energies at an instant."""
        part = self._part(t, t, 2)
        return np.array([np.interp(t, self._t[part], j[part]) for j in self._joules])

    def uncovered(self, start: float, stop: float) -> Floats:
        """Return for how many seconds between two instants no energy is known."""
        return self._uncovered.between(start, stop)

    def extremes(self, line: int, start: float, stop: float) -> tuple[float, float]:
        """Return the least and the greatest value between two instants."""
        a, b = (int(i) for i in np.searchsorted(self._t, [start, stop]))
        found: list[tuple[Floats, Floats]] = []
        if self._slices is not None:
            first, last = (int(i) for i in np.searchsorted(self._slices.last, [start, stop]))
            if last - first > 1:  # whole slices between the two that the ends lie in
                inner = slice(first + 1, last)
                found.append((self._slices.low[inner, line], self._slices.high[inner, line]))
                borders = np.searchsorted(self._t, self._slices.last[[first, last - 1]], side="right")
                rows = np.concatenate([self._values[line][a : borders[0]], self._values[line][borders[1] : b]])
            else:
                rows = np.asarray(self._values[line][a:b])
            found.append((rows, rows))
        low, high = (np.concatenate([f[i] for f in found] or [np.empty(0)]) for i in (0, 1))
        if not np.isfinite(low).any():
            return math.nan, math.nan
        return float(np.nanmin(low)), float(np.nanmax(high))

    def around(self, t: float) -> Rows:
        """Return the rows around an instant."""
        part = self._part(t, t, CONTEXT_ROWS)
        watts = [self._values[i][part] for i in range(len(self._joules))]
        return Rows(np.array(self._t[part]), np.column_stack(watts), np.column_stack([j[part] for j in self._joules]))

    def table(self, start: float, stop: float) -> pd.DataFrame:
        """Return the rows of a stretch."""
        import pandas as pd

        part = self._part(start, stop, 0)
        if part.stop - part.start > MAX_ROWS:
            much = f"{part.stop - part.start:,} rows are more than a page exports ({MAX_ROWS:,})"
            msg = f"{much}; select less, or use pmtpy convert"
            raise TargetError(msg)
        columns = {n: np.array(values[part]) for n, values in self._arrays.items()}
        lost = columns.pop("lost").astype(np.int64)
        t = columns.pop("elapsed")
        marks = [(int(np.searchsorted(t, at)), text) for at, text in self.marks(start, stop)]
        marker = marker_column(marks, len(t))
        fixed = {"time": t + self._own_unix_s, "elapsed": t, "marker": marker, "lost": lost}
        made: pd.DataFrame = pd.DataFrame(fixed | columns)
        return made
