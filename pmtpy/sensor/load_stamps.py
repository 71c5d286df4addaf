"""Stamps of when the device worked, by the host's own clock: what lets a correction know what a sensor did not see.

Two stamps for each stretch, in memory and nothing else. Whoever stamps says so for a while: a region from its entry to
its end, a program that stamps by the sensor itself from the first stamp on. What is not stamped then was at rest; at
other times it is not known.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from types import TracebackType

import numpy as np

from pmtpy.core.clock import Clock
from pmtpy.core.load_intervals import MOST_AROUND, LoadIntervals
from pmtpy.core.rows import Ints
from pmtpy.errors import SensorClosedError

_MOST_STAMPS = 1 << 21  # kept, 16 MB: a loop may make millions


class LoadStamps:
    """A with-statement around what the device does, to be entered any number of times.

    Stretches may nest, and overlap in several threads or coroutines: the load is on while any of them is.
    """

    __slots__ = ("_clock", "_depth", "_edges_ns", "_lock", "_unusable", "_whole_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unusable = ""
        self._lock = threading.Lock()
        self._depth = 0
        self._edges_ns = array("q")  # on, off, on, ...
        self._whole_ns: int | None = None  # since when nothing is forgotten, where something was

    def __enter__(self) -> None:
        if self._unusable:
            raise SensorClosedError(self._unusable)
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                if len(self._edges_ns) > _MOST_STAMPS:
                    self._whole_ns = _halved(self._edges_ns)
                self._edges_ns.append(self._clock.now_ns())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now_ns = self._clock.now_ns()
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._edges_ns.append(now_ns)

    def disown(self, why: str) -> None:
        """Take no stamps in a child process, where nobody would look at them; a thread that is not here may lock it."""
        self._unusable, self._lock = why, threading.Lock()

    def add(self, on_ns: int, off_ns: int) -> None:
        """Add a stretch that ended, by the same clock; what lies before the end of the last one is in it already."""
        with self._lock:
            on_ns = max([on_ns, *self._edges_ns[-1:]])
            if self._depth == 0 and off_ns > on_ns:
                self._edges_ns.extend((on_ns, off_ns))

    def number(self, start_ns: int, end_ns: int) -> int:
        """Return how often the load was switched between two instants."""
        with self._lock:
            return bisect_right(self._edges_ns, end_ns) - bisect_left(self._edges_ns, start_ns)

    def told(self, since_ns: int | None, start_ns: int, end_ns: int) -> tuple[list[int], list[int]]:
        """Return when the load was on, off, on, ... between two instants, and for which stretch of that this is known.

        All that there is was stamped since ``since_ns``; None: since the first stamp. Without stamps nothing is known.
        """
        with self._lock:
            if not self._edges_ns:
                return [], []
            known = [ns for ns in (since_ns, self._whole_ns) if ns is not None]
            start_ns = max(start_ns, *known) if known else max(start_ns, self._edges_ns[0])
            return (_between(self._edges_ns, start_ns, end_ns), [start_ns, end_ns]) if start_ns <= end_ns else ([], [])


class LoadHistory:
    """All that is known of when the device of one sensor worked. May be used from any thread.

    Attributes
    ----------
    own : LoadStamps
        Those of the sensor itself: all that its device does, from the first on.
    """

    __slots__ = ("_known_ns", "_lock", "_on_ns", "_open", "_whole_ns", "own")

    def __init__(self, clock: Clock) -> None:
        self.own = LoadStamps(clock)
        self._lock = threading.Lock()
        self._open: dict[LoadStamps, int | None] = {self.own: None}  # who stamps now, and since when
        # Of those who have done so: stretches in order, none of which touch.
        self._on_ns, self._known_ns = array("q"), array("q")
        self._whole_ns: int | None = None  # since when nothing of these is forgotten, where something was

    def begin(self, stamps: LoadStamps, since_ns: int) -> None:
        """Take what is stamped from now on as well, which is all since an instant."""
        with self._lock:
            self._open[stamps] = since_ns

    def end(self, stamps: LoadStamps, until_ns: int | None) -> None:
        """Keep what was stamped until an instant; nothing where they were not begun, or nobody knows until when."""
        with self._lock:
            since_ns = self._open.pop(stamps, None)
            if since_ns is None or until_ns is None:
                return
            on_ns, known_ns = stamps.told(since_ns, since_ns, until_ns)
            if len(self._on_ns) > _MOST_STAMPS:
                self._whole_ns = _halved(self._on_ns)
                del self._known_ns[: bisect_left(self._known_ns, self._whole_ns) // 2 * 2]
            _join(self._on_ns, on_ns)
            _join(self._known_ns, known_ns)

    def disown(self, why: str) -> None:
        """Leave all stamps to the parent, in a child process."""
        self._lock = threading.Lock()
        for stamps in list(self._open):
            stamps.disown(why)

    def take(self, on_ns: list[int], known_ns: list[int]) -> None:
        """Keep stretches in which the device worked, of which something else kept account for some others; in order."""
        with self._lock:
            _join(self._on_ns, on_ns)
            _join(self._known_ns, known_ns)

    def about(self, start_ns: int, end_ns: int, margin_ns: int) -> LoadIntervals | None:
        """Return when the load was on between two instants and around them, in seconds from the first.

        None where nothing is known of the time between them. Of a load that is switched very often less is told of the
        time around.
        """
        with self._lock:
            stamping = list(self._open.items())
            kept = self._on_ns
            while (
                margin_ns
                and sum(
                    [s.number(start_ns - margin_ns, end_ns + margin_ns) for s, _ in stamping],
                    bisect_right(kept, end_ns + margin_ns) - bisect_left(kept, start_ns - margin_ns),
                )
                > MOST_AROUND
            ):
                margin_ns //= 2
        told = self.between(start_ns - margin_ns, end_ns + margin_ns)
        on_s, known_s = ((ns - start_ns) / 1e9 for ns in told)
        load = LoadIntervals(on_s[:, 0], on_s[:, 1], known_s, absolute=False)
        first, last = load.longest_known(0.0, (end_ns - start_ns) / 1e9)
        return load if last > first or end_ns == start_ns else None

    def between(self, start_ns: int, end_ns: int) -> tuple[Ints, Ints]:
        """Return when the load was on between two instants, and for which time that is known; each of shape (n, 2).

        Stretches come in order and do not touch. One that has not ended is on until the second instant.
        """
        with self._lock:
            stamping = list(self._open.items())
            # Of what was at rest before, nobody remembers whether it was.
            whole_ns = max(start_ns, self._whole_ns) if self._whole_ns is not None else start_ns
            on_ns, known_ns = (_between(each, whole_ns, end_ns) for each in (self._on_ns, self._known_ns))
        for stamps, since_ns in stamping:
            on, known = stamps.told(since_ns, start_ns, end_ns)
            on_ns += on
            known_ns += known
        return _united(on_ns).reshape(-1, 2), _united(known_ns).reshape(-1, 2)


def _halved(edges_ns: array[int]) -> int:
    """Forget the older half; return when the newer one begins."""
    del edges_ns[: len(edges_ns) // 4 * 2]
    return edges_ns[0]


def _between(edges_ns: array[int], start_ns: int, end_ns: int) -> list[int]:
    """Return what there is of stretches between two instants; one that has not ended goes on."""
    first, last = bisect_left(edges_ns, start_ns), bisect_right(edges_ns, end_ns)
    return [start_ns] * (first % 2) + edges_ns[first:last].tolist() + [end_ns] * (last % 2)


def _join(edges_ns: array[int], more_ns: list[int]) -> None:
    """Add stretches wherever they lie."""
    if more_ns and edges_ns and more_ns[0] <= edges_ns[-1]:
        at = bisect_left(edges_ns, more_ns[0]) // 2 * 2
        more_ns = _united([*edges_ns[at:], *more_ns]).tolist()
        del edges_ns[at:]
    edges_ns.extend(more_ns)


def _united(edges_ns: list[int]) -> Ints:
    """Return stretches in order, those that overlap or touch as one."""
    pairs = np.array(edges_ns, np.int64).reshape(-1, 2)
    if not len(pairs):
        return pairs.ravel()
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    until = np.maximum.accumulate(pairs[:, 1])
    new = np.flatnonzero(pairs[1:, 0] > until[:-1]) + 1
    return np.stack([pairs[np.append(0, new), 0], until[np.append(new - 1, len(pairs) - 1)]], axis=1).ravel()
