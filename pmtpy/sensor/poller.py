"""The background thread that reads sensors on a schedule. One thread serves all sensors that are quick to read.

It does the very step that a caller's ``read()`` does, so that counters do not turn over unseen, momentary powers are
integrated, and dumps are fed. Deadlines are absolute and lie on a common lattice, so sensors with the same period are
read in one wake-up. A power that is read more seldom than it is renewed is read at a random instant of each period
instead: readings on a lattice see a load of the same period always at the same phase, and nothing in them tells.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

from pmtpy.core.clock import HOST_CLOCK, Clock

_JOIN_S = 10.0
_Schedule = tuple[int, bool]  # period in nanoseconds, and whether at random instants


class Job:
    """One thing to do again and again. Handed out by :meth:`Pump.add`."""

    __slots__ = ("alive", "schedule", "step")

    def __init__(self, step: Callable[[], None], schedule: _Schedule) -> None:
        self.step = step
        self.schedule = schedule
        self.alive = True


class Pump:
    """A thread that runs jobs when they are due; it lives from the first job to the last.

    ``add`` and ``remove`` may be called from any thread, but not while holding a lock that a job takes.
    """

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = f"pmtpy-pump-{name}"
        self._lock = threading.Condition()  # guards the jobs by period and the thread; told when either changes
        self._busy = threading.Lock()  # held by the thread while jobs run
        self._wake = threading.Event()
        self._jobs: dict[_Schedule, list[Job]] = {}
        self._due: dict[_Schedule, int] = {}  # the next instant of each
        self._random = random.Random(1)  # all it must not do is keep step with a load
        self._thread: threading.Thread | None = None

    def add(self, step: Callable[[], None], period_s: float, *, dither: bool = False) -> Job:
        """Run ``step`` every ``period_s`` seconds from now on; with ``dither`` at a random instant of each period."""
        job = Job(step, (max(1, round(period_s * 1e9)), dither))
        with self._lock:
            self._jobs[job.schedule] = [*self._jobs.get(job.schedule, ()), job]
            self._due.setdefault(job.schedule, self._after_now(job.schedule))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._lock.notify_all()
        self._wake.set()
        return job

    def remove(self, job: Job) -> None:
        """Stop a job; when this returns it is not running (unless it removes itself). The last one ends the thread."""
        with self._lock:
            job.alive = False
            left = [other for other in self._jobs.get(job.schedule, ()) if other is not job]
            if left:
                self._jobs[job.schedule] = left
            else:
                self._jobs.pop(job.schedule, None)
                self._due.pop(job.schedule, None)
            thread, last = self._thread, not self._jobs
        if threading.current_thread() is thread:
            return
        with self._busy:
            pass
        if last and thread is not None:
            self._wake.set()
            with self._lock:  # it goes on if somebody has added a job meanwhile
                over = self._lock.wait_for(lambda: self._thread is not thread or bool(self._jobs), _JOIN_S)
                over = over and self._thread is not thread
            if over:
                thread.join(_JOIN_S)

    def _after_now(self, schedule: _Schedule) -> int:
        """Return the next instant of a schedule, in the period after this one; what is late is not caught up."""
        period_ns, dither = schedule
        begins = (self._clock.now_ns() // period_ns + 1) * period_ns
        return begins + self._random.randrange(period_ns) if dither else begins

    def _run(self) -> None:
        while True:
            self._wake.clear()
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    self._lock.notify_all()
                    return
                first = min(self._due.values())
            self._clock.wait_until(first, self._wake)
            now = self._clock.now_ns()
            with self._lock:
                ready = [schedule for schedule, instant in self._due.items() if instant <= now]
                for schedule in ready:
                    self._due[schedule] = self._after_now(schedule)
                jobs = [job for schedule in ready for job in self._jobs[schedule]]
            self._do(jobs)

    def _do(self, jobs: list[Job]) -> None:
        with self._busy:
            for job in jobs:
                if job.alive:
                    job.step()


class Beat:
    """One step of one owner on a pump: begun, changed and ended from any thread, but not under a lock it takes."""

    def __init__(self, pump: Pump, step: Callable[[], None]) -> None:
        self._pump = pump
        self._step = step
        self._lock = threading.Lock()
        self._job: Job | None = None

    @property
    def going(self) -> bool:
        """Whether the pump takes the step now and then."""
        return self._job is not None

    def every(self, period_s: float | None, *, dither: bool = False) -> None:
        """Let the pump take the step every ``period_s`` seconds from now on; None: not any more."""
        with self._lock:
            self.end()
            if period_s is not None:
                self._job = self._pump.add(self._step, period_s, dither=dither)

    def end(self) -> None:
        """Take the step no more; what a step may call itself."""
        job, self._job = self._job, None
        if job is not None:
            self._pump.remove(job)


_shared: dict[int, Pump] = {}  # by process id: a thread does not survive a fork


def pump_for(clock: Clock, name: str, *, alone: bool) -> Pump:
    """Return the pump of this process that all quick sensors share, or a new one for a sensor that must be alone.

    Sensors on another clock than the host's (tests, rehearsals) are always alone.
    """
    if alone or clock is not HOST_CLOCK:
        return Pump(clock, name)
    return _shared.setdefault(os.getpid(), Pump(clock, "shared"))
