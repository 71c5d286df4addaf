"""The background thread that reads sensors on a schedule. One thread serves all sensors that are quick to read.

It does the very step that a caller's ``read()`` does, so that counters do not turn over unseen, momentary powers are
integrated, and dumps are fed. Deadlines are absolute and lie on a common lattice, so sensors with the same period are
read in one wake-up.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable

from pmtpy.clock import HOST_CLOCK, Clock

_JOIN_S = 10.0


class Job:
    """One thing to do again and again. Handed out by :meth:`Pump.add`."""

    __slots__ = ("alive", "period_ns", "step")

    def __init__(self, step: Callable[[], None], period_ns: int) -> None:
        self.step = step
        self.period_ns = max(1, period_ns)
        self.alive = True


class Pump:
    """A thread that runs jobs when they are due; it lives from the first job to the last.

    ``add`` and ``remove`` may be called from any thread, but not while holding a lock that a job takes.
    """

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = f"pmtpy-pump-{name}"
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._due: list[tuple[int, int, Job]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._running: Job | None = None
        self._idle = threading.Condition(self._lock)

    def add(self, step: Callable[[], None], period_s: float) -> Job:
        """Run ``step`` every ``period_s`` seconds from now on."""
        job = Job(step, round(period_s * 1e9))
        with self._lock:
            heapq.heappush(self._due, (self._next(job), next(self._order), job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._wake.set()
        return job

    def remove(self, job: Job) -> None:
        """Stop a job; when this returns it is not running (unless it removes itself). The last one ends the thread."""
        thread = self._thread
        with self._lock:
            job.alive = False
            self._due = [entry for entry in self._due if entry[2] is not job]
            heapq.heapify(self._due)
            if threading.current_thread() is thread:
                return
            self._idle.wait_for(lambda: self._running is not job, _JOIN_S)
            last = not self._due
        self._wake.set()
        if last and thread is not None:
            thread.join(_JOIN_S)

    def _next(self, job: Job) -> int:
        return (self._clock.now_ns() // job.period_ns + 1) * job.period_ns

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._thread = None
                    return
                due = self._due[0][0]
                if due <= self._clock.now_ns():
                    _, _, job = heapq.heappop(self._due)
                    self._running = job
                else:
                    job = None
                self._wake.clear()
            if job is None:
                self._clock.wait_until(due, self._wake)
                continue
            try:
                job.step()
            finally:
                with self._lock:
                    self._running = None
                    if job.alive:
                        heapq.heappush(self._due, (self._next(job), next(self._order), job))
                    self._idle.notify_all()


_shared: dict[int, Pump] = {}  # by process id: a thread does not survive a fork


def pump_for(clock: Clock, name: str, *, alone: bool) -> Pump:
    """Return the pump of this process that all quick sensors share, or a new one for a sensor that must be alone.

    Sensors on another clock than the host's (tests, rehearsals) are always alone.
    """
    if alone or clock is not HOST_CLOCK:
        return Pump(clock, name)
    return _shared.setdefault(os.getpid(), Pump(clock, "shared"))
