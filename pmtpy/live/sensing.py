"""An open sensor as a track of a page: it grows, and what memory is too small for lies on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.core.markers import Span, marker_column
from pmtpy.core.rows import Floats, Layout
from pmtpy.errors import PmtError, TargetError
from pmtpy.io.columns import column_names, columns
from pmtpy.io.uncovered import Uncovered
from pmtpy.io.write.base import Header, metadata
from pmtpy.live._grown import Grown, Rows
from pmtpy.live._reopening import Reopening
from pmtpy.live._roomy import free_bytes
from pmtpy.live.tracks import Line, power_lines
from pmtpy.plotting.decimate import Envelope, interrupted
from pmtpy.sensor.sensor import Sensor, acquisition_of

if TYPE_CHECKING:
    import pandas as pd

_KEPT_BYTES = 2 * 10**9
"""Of older rows on disk: four pairs at 20 kHz fill it in a quarter of an hour."""
_OVERLAP_S = 0.5  # asked for beyond what is new: that it is there shows that nothing between was dropped
_MAX_SENT_ROWS = 2_400_000
"""Single rows of one export of a live page: two minutes at 20 kHz. No row is taken while they are copied."""


def room_of_each(sensors: int, asked: int | None = None) -> int:
    """Return how many bytes the older rows of each of some sensors may take on disk; ``asked`` is for all of them.

    Raises TargetError: there is not so much room.
    """
    free = free_bytes()
    if asked is not None and asked > free:
        msg = f"{asked / 1e9:.3g} GB of rows do not fit: {free / 1e9:.3g} GB are free; TMPDIR names a larger place"
        raise TargetError(msg)
    return (min(_KEPT_BYTES, free // 4) if asked is None else asked) // max(1, sensors)


class LiveTrack:
    """An open sensor. :meth:`take` brings it up to now, in a thread that nothing else holds up; others ask.

    Its owner sees to it that both do not happen at once. Single rows stay in memory for ``raw_s``, older ones on disk
    as far as they fit into ``most_bytes``. With ``reopens`` a sensor that was lost is opened again, and the track goes
    on behind a gap.
    """

    def __init__(self, sensor: Sensor, raw_s: float = 60.0, most_bytes: int = 0, *, reopens: bool = False) -> None:
        made = acquisition_of(sensor)
        self._reopening = Reopening(sensor) if reopens else None
        self.sensor = sensor
        self.name = self.target = sensor.target
        self.virtual, self.note = sensor.identity.virtual, ""
        self.layout: Layout | None = made.layout
        # The curves bear the names of a file's columns; in the order of the rows: powers, then the other values.
        called = {c.index: c.name for c in columns(made.layout) if c.array == "values"}
        self._others = [called[j] for j in range(len(made.layout.values))]
        split = [n.rsplit("_", 1) for n in self._others]
        others = [Line(n, "" if unit == "W" else unit) for n, unit in split]  # watts without an energy are a setting
        self.regions: Sequence[Span] = ()  # those of other programs are not told
        self.lines: Sequence[Line] = [*(Line(n, "W") for n in made.layout.names), *others]
        traits = made.intake.source.traits
        header = Header(
            sensor.target,
            sensor.identity,
            made.layout,
            made.clock.anchor(),
            polled_s=None if traits.streaming else made.interval_s,
            aged_s=made.intake.aged_s,
        )
        self.facts: dict[str, Any] | None = metadata(header, column_names(made.layout))
        self._grown = Grown(len(self.lines), len(made.layout.names), raw_s, most_bytes)
        self._uncovered = Uncovered(len(made.layout.names))
        self._start_ns = self._newest_ns = -1
        self._marks: list[tuple[float, str]] = []
        self._gaps: list[tuple[float, float, int]] = []
        self.start_unix_s = math.nan
        self.fresh = 0.0  # time of the first row of the last taking

    def take(self) -> None:
        """Take what has come since the last time."""
        made = acquisition_of(self.sensor)
        self.note = f"lost: {made.intake.failure}" if made.intake.failure is not None else ""
        if made.intake.failure is not None:
            if self._reopening is not None:
                self._reopening.look()
            return
        # Up to now, not up to the newest row: asking for the history lets the source deliver first.
        since = None if self._newest_ns < 0 else (made.clock.now_ns() - self._newest_ns) / 1e9 + _OVERLAP_S
        try:
            recent = self.sensor.history(since)
        except PmtError as error:
            self.note = f"lost: {error}"
            return
        new = recent.t_ns > self._newest_ns
        if not new.any():
            return
        if self._start_ns < 0:
            self._start_ns, self.start_unix_s = int(recent.t_ns[0]), float(recent.timestamp[0])
        before = (self._newest_ns - self._start_ns) / 1e9
        t = (recent.t_ns[new] - self._start_ns) / 1e9
        lost = recent.lost[new]
        starts = np.concatenate([[before], t[:-1]])
        forgotten = bool(new[0]) and self._newest_ns >= 0  # the history has dropped what came in between
        if forgotten:
            self._gaps.append((before, float(t[0]), 0))
        self._gaps += [(float(starts[i]), float(t[i]), int(lost[i])) for i in np.flatnonzero(lost) if starts[i] >= 0]
        offset = len(new) - int(new.sum())
        self._marks += [(float(t[row - offset]), text) for row, text in recent.marks if row >= offset]
        self._uncovered.add(t, recent.uncovered_ns[new] / 1e9, recent.joules[new])
        self._grown.append(t, np.column_stack([recent.watts[new], recent.values[new]]), recent.joules[new])
        self._newest_ns, self.fresh = int(recent.t_ns[-1]), float(t[0])
        if self._grown.problem:
            self.note = f"older rows are not kept: {self._grown.problem}"

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the newest row."""
        return self._grown.span

    @property
    def rows_from(self) -> float:
        """The instant from which on every single row is kept."""
        return self._grown.rows_from

    def draw(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return a line between two instants, interrupted where nothing is known."""
        curve = self._grown.draw(line, start, stop, slices)
        powers = power_lines(self)
        if line not in powers:
            return curve
        return interrupted(curve, *self._uncovered.unknown(powers.index(line), start, stop))

    def marks(self, start: float, stop: float) -> list[tuple[float, str]]:
        """Return the labels between two instants."""
        return [m for m in self._marks if start <= m[0] <= stop]

    def gaps(self, start: float, stop: float) -> list[tuple[float, float, int]]:
        """Return where rows were lost."""
        return [g for g in self._gaps if g[1] > start and g[0] < stop]

    def energy_at(self, t: float) -> Floats:
        """Return the energies at an instant."""
        return self._grown.energy_at(t)

    def uncovered(self, start: float, stop: float) -> Floats:
        """Return for how many seconds between two instants no energy is known, as the sensor says."""
        return self._uncovered.between(start, stop)

    def extremes(self, line: int, start: float, stop: float) -> tuple[float, float]:
        """Return the least and the greatest value between two instants."""
        return self._grown.extremes(line, start, stop)

    def around(self, t: float) -> Rows:
        """Return the rows around an instant."""
        return self._grown.around(t)

    def raw(self, line: int, start: float, stop: float) -> tuple[Floats, Floats]:
        """Return times and values of the rows between two instants, as far as they are kept."""
        return self._grown.raw(line, start, stop)

    def table(self, start: float, stop: float) -> pd.DataFrame:
        """Return the rows of a stretch; means with their energies where single rows are not kept, or are too many.

        ``attrs["interval_s"]`` is then over how long each is one.
        """
        import pandas as pd

        t, values, joules, interval_s = self._grown.rows(start, stop, _MAX_SENT_ROWS)
        found: dict[str, Any] = {"time": t + self.start_unix_s, "elapsed": t, "marker": "", "lost": 0}
        powers = power_lines(self)
        for place, i in enumerate(powers):
            found[f"{self.lines[i].name}_W"] = values[:, i]
            found[f"{self.lines[i].name}_J"] = joules[:, place] - joules[0, place] if len(t) else joules[:, place]
        found |= {n: values[:, len(powers) + j] for j, n in enumerate(self._others)}
        made: pd.DataFrame = pd.DataFrame(found)
        lost = np.zeros(len(t), np.int64)
        for _, end, count in self.gaps(start, stop):
            if (row := int(np.searchsorted(t, end))) < len(t):
                lost[row] += count
        marks = [(int(np.searchsorted(t, at)), text) for at, text in self.marks(start, stop)]
        made["marker"], made["lost"] = marker_column(marks, len(t)), lost
        if interval_s is not None:
            made.attrs["interval_s"] = interval_s
        return made
