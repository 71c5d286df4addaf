"""Stamps of when the device worked, by the host's own clock: what lets a correction know what a sensor did not see.

Two stamps for each stretch, in memory and nothing else.
"""

from __future__ import annotations

import threading
from array import array
from types import TracebackType

import numpy as np

from pmtpy.core.clock import Clock
from pmtpy.core.load_intervals import LoadIntervals

_MOST_STAMPS = 1 << 21  # kept, 16 MB: a loop may make millions


class LoadStamps:
    """A with-statement around what the device does, to be entered any number of times.

    Stretches may nest, and overlap in several threads or coroutines: the load is on while any of them is.
    """

    __slots__ = ("_clock", "_depth", "_edges", "_lock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._depth = 0
        self._edges = array("q")  # on, off, on, ...

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                if len(self._edges) > _MOST_STAMPS:
                    del self._edges[: _MOST_STAMPS // 2]
                self._edges.append(self._clock.now_ns())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now_ns = self._clock.now_ns()
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._edges.append(now_ns)

    def add(self, on_ns: int, off_ns: int) -> None:
        """Add a stretch that ended, by the same clock; what lies before the end of the last one is in it already."""
        with self._lock:
            on_ns = max([on_ns, *self._edges[-1:]])
            if self._depth == 0 and off_ns > on_ns:
                self._edges.extend((on_ns, off_ns))

    def __bool__(self) -> bool:
        return bool(self._edges)

    def intervals(self, clock: Clock, start_ns: int, end_ns: int, *, only_inside: bool) -> LoadIntervals | None:
        """Return when the load was on, in seconds from ``start_ns``; a stretch that has not ended ends at ``end_ns``.

        Parameters
        ----------
        only_inside : bool
            Whether the stamps are complete from ``start_ns`` to ``end_ns`` alone, or since the first of them.

        Returns
        -------
        LoadIntervals or None
            None where nothing was stamped, or by another clock than ``clock``.
        """
        with self._lock:
            edges = np.array(self._edges, np.int64)
        if not len(edges) or clock is not self._clock:
            return None
        if len(edges) % 2:
            edges = np.append(edges, max(end_ns, int(edges[-1])))
        seconds = (edges - start_ns) / 1e9
        since, until = float(seconds[0]), max(float(seconds[-1]), (end_ns - start_ns) / 1e9)
        if only_inside:
            since, until = 0.0, (end_ns - start_ns) / 1e9
            seconds = np.clip(seconds, since, until)
        return LoadIntervals(seconds[::2], seconds[1::2], since, until, absolute=False)
