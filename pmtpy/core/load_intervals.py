"""When the load of a region was on, by the host's own stamps: what lets a correction know what a sensor did not see.

Two stamps for each stretch, in memory and nothing else. Energies are the business of :mod:`pmtpy.regions.measurement`.
"""

from __future__ import annotations

import threading
from array import array
from types import TracebackType

import numpy as np

from pmtpy.core.clock import Clock
from pmtpy.core.rows import Ints


class LoadIntervals:
    """A with-statement around what the device does, to be entered any number of times. Made by ``Region.busy()``.

    Stretches may nest, and overlap in several threads or coroutines: the load is on while any of them is.
    """

    __slots__ = ("_clock", "_depth", "_edges", "_lock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._depth = 0
        self._edges = array("q")  # on, off, on, ...; eight bytes each, since a loop may make millions

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._edges.append(self._clock.now_ns())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now_ns = self._clock.now_ns()
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._edges.append(now_ns)

    def edges(self, clock: Clock, end_ns: int) -> Ints | None:
        """Return when the load was switched on, off, on, ... up to ``end_ns``; a stretch that has not ended ends there.

        None where nothing was stamped, or by another clock than ``clock``.
        """
        with self._lock:
            edges = np.array(self._edges, np.int64)
        if not len(edges) or clock is not self._clock:
            return None
        if len(edges) % 2:
            edges = np.append(edges, max(end_ns, int(edges[-1])))
        return edges
