"""What all viewers of one page share: the tracks, one time axis, and the trigger that looks at each new row once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pmtpy.core.markers import Span
from pmtpy.core.rows import Floats
from pmtpy.errors import PmtError
from pmtpy.live._trigger import Condition, Trigger
from pmtpy.live.sensing import LiveTrack
from pmtpy.live.tracks import Selection, Track, select
from pmtpy.plotting.decimate import Envelope

if TYPE_CHECKING:
    import pandas as pd


_APART_S = 1.0  # a recording that begins so long after the others ended does not follow them


class Desk:
    """Tracks below each other on one axis, whose zero is the first row of the earliest.

    Recordings that share no time are laid on each other: those that follow or overlap each other keep their places, and
    the zero of each such group is the first row of its earliest.
    """

    def __init__(self, tracks: Sequence[Track]) -> None:
        self.tracks = list(tracks)
        self.lock = threading.RLock()  # held while rows are taken, and while anything is asked
        self.live = [t for t in tracks if isinstance(t, LiveTrack)]
        for track in self.live:
            track.take()
        self._zeros = self._groups()  # by track: Unix time of the axis' zero; NaN: the track tells no time
        self._triggers: dict[int, tuple[Trigger, Callable[[float], None]]] = {}
        self._seen: dict[int, float] = {}

    def _groups(self) -> list[float]:
        zeros = [math.nan] * len(self.tracks)
        known = sorted((t.start_unix_s, i) for i, t in enumerate(self.tracks) if math.isfinite(t.start_unix_s))
        zero, reached = math.nan, -math.inf
        for start, i in known:
            zero = start if start > reached + _APART_S else zero
            reached = max(reached, start + self.tracks[i].span[1])
            zeros[i] = zero
        return zeros

    def zero(self, track: Track) -> float:
        """Return the Unix time at which a track has the axis' zero; NaN where it tells no time."""
        return self._zeros[self.tracks.index(track)]

    @property
    def one_clock(self) -> bool:
        """Whether what stands below each other happened at the same time."""
        return len(self._zeros) < 2 or all(zero == self._zeros[0] for zero in self._zeros)

    def offset(self, track: Track) -> float:
        """Return where a track's own zero is on the axis."""
        zero = self.zero(track)
        return track.start_unix_s - zero if math.isfinite(zero) else 0.0

    @property
    def span(self) -> tuple[float, float]:
        """First and newest instant of all tracks."""
        spans = [(self.offset(t) + t.span[0], self.offset(t) + t.span[1]) for t in self.tracks]
        return min(a for a, _ in spans), max(b for _, b in spans)

    def draw(self, track: Track, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return a line between two instants of the axis."""
        offset = self.offset(track)
        with self.lock:
            found = track.draw(line, start - offset, stop - offset, slices)
        return Envelope(found.t + offset, found.low, found.mean, found.high)

    def select(self, track: Track, start: float, stop: float) -> Selection:
        """Evaluate a stretch of the axis."""
        offset = self.offset(track)
        with self.lock:
            return select(track, start - offset, stop - offset)

    def marks(self, track: Track, start: float, stop: float) -> list[tuple[float, str]]:
        """Return the labels between two instants of the axis."""
        offset = self.offset(track)
        with self.lock:
            return [(t + offset, text) for t, text in track.marks(start - offset, stop - offset)]

    def regions(self, track: Track, start: float, stop: float) -> list[Span]:
        """Return what a program measured while a track was recorded, and reaches into a stretch of the axis."""
        offset = self.offset(track)
        moved = (Span(r.start + offset, r.end + offset, r.name) for r in track.regions)
        return [r for r in moved if r.end > start and r.start < stop]

    def gaps(self, track: Track, start: float, stop: float) -> list[tuple[float, float, int]]:
        """Return where rows were lost between two instants of the axis."""
        offset = self.offset(track)
        with self.lock:
            return [(a + offset, b + offset, n) for a, b, n in track.gaps(start - offset, stop - offset)]

    def table(self, track: Track, start: float, stop: float) -> pd.DataFrame:
        """Return the rows of a stretch of the axis."""
        offset = self.offset(track)
        with self.lock:
            return track.table(start - offset, stop - offset)

    def mark(self, label: str) -> str:
        """Put a label on the present instant of every sensor; say what went wrong."""
        problems = []
        for track in self.live:
            try:
                track.sensor.mark(label)
            except PmtError as error:  # noqa: PERF203  (the others can be marked)
                problems.append(str(error))
        return "; ".join(problems)

    # -- live ------------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Bring all sensors up to now, and show new rows to the triggers."""
        with self.lock:
            self._take()

    def _take(self) -> None:
        for number, track in enumerate(self.live):
            track.take()
            newest = track.span[1]
            before = self._seen.get(number, -math.inf)
            if newest > before:
                self._seen[number] = newest
                if number == 0 and self._triggers:
                    self._look(track, before)

    def _look(self, track: LiveTrack, before: float) -> None:
        t, watts = track.raw(0, math.nextafter(before, math.inf), math.inf)
        marks = [m for m in track.marks(before, math.inf) if m[0] > before]
        for key, (trigger, tell) in list(self._triggers.items()):
            at = _found(trigger, t, watts, marks)
            if at is not None and self._triggers.get(key, (None,))[0] is trigger:
                tell(at + self.offset(track))

    def arm(self, viewer: int, condition: Condition, tell: Callable[[float], None]) -> None:
        """Watch the first sensor for a viewer, from the next rows on; ``tell`` is given the instant of each event."""
        self._triggers[viewer] = (Trigger(condition), tell)

    def disarm(self, viewer: int) -> None:
        """Watch no more."""
        self._triggers.pop(viewer, None)


def _found(trigger: Trigger, t: Floats, watts: Floats, marks: Sequence[tuple[float, str]]) -> float | None:
    return trigger.find(t, watts, marks)
