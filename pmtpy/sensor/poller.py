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

from pmtpy.core import threads
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock, Wake

_JOIN_S = 10.0
_LOOK_S, _MAX_LOOK_S = 5e-5, 5e-3  # between two looks at a step that is to end
_Schedule = tuple[int, bool]  # period in nanoseconds, and whether at random instants


class Task:
    """One thing to do again and again. Handed out by :meth:`Poller.add`."""

    __slots__ = ("alive", "schedule", "step")

    def __init__(self, step: Callable[[], None], schedule: _Schedule) -> None:
        self.step = step
        self.schedule = schedule
        self.alive = True


class Poller:
    """A thread that runs tasks when they are due; it lives from the first task to the last.

    ``add`` and ``remove`` may be called from any thread, but not while holding a lock that a task takes.
    """

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = f"pmtpy-poller-{name}"
        self._lock = threading.RLock()  # guards what follows
        self._running: Task | None = None  # which the thread is at
        self._wake = Wake()
        self._tasks: dict[_Schedule, list[Task]] = {}
        self._due: dict[_Schedule, int] = {}  # the next instant of each
        self._random = random.Random(1)  # all it must not do is keep step with a load
        self._thread: threading.Thread | None = None

    def add(self, step: Callable[[], None], period_s: float, *, dither: bool = False) -> Task:
        """Run ``step`` every ``period_s`` seconds from now on; with ``dither`` at a random instant of each period.

        Raises PmtError: no thread can be started.
        """
        task = Task(step, (max(1, round(period_s * 1e9)), dither))
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                threads.start(thread, "sensors are read")  # it waits for the lock
                self._thread = thread
            self._due.setdefault(task.schedule, self._after_now(task.schedule))  # first: what has tasks is due
            self._tasks[task.schedule] = [*self._tasks.get(task.schedule, ()), task]
        self._wake.set()
        return task

    def remove(self, task: Task) -> None:
        """Stop a task; when this returns it is not running (unless it removes itself). The last one ends the thread.

        A step that does not return, because a driver hangs, is not waited for longer than the thread would be; that of
        another task is not waited for at all.
        """
        with self._lock:
            task.alive = False
            left = [other for other in self._tasks.get(task.schedule, ()) if other is not task]
            if left:
                self._tasks[task.schedule] = left
            else:
                self._tasks.pop(task.schedule, None)
                self._due.pop(task.schedule, None)
            thread, last = self._thread, not self._tasks
        if threading.current_thread() is thread:
            return
        _wait_for(lambda: self._running is not task)
        if last and thread is not None and self._running is None:
            self._wake.set()
            # It goes on if somebody has added a task meanwhile.
            if _wait_for(lambda: self._thread is not thread or bool(self._tasks)) and self._thread is not thread:
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
                if not self._tasks:
                    self._thread = None
                    return
                first = min(self._due.values())
            self._clock.wait_until(first, self._wake)
            now = self._clock.now_ns()
            with self._lock:
                ready = [schedule for schedule, instant in self._due.items() if instant <= now]
                for schedule in ready:
                    self._due[schedule] = self._after_now(schedule)
                tasks = [task for schedule in ready for task in self._tasks.get(schedule, ())]
            self._do(tasks)

    def _do(self, tasks: list[Task]) -> None:
        for task in tasks:
            with self._lock:
                if not task.alive:
                    continue
                self._running = task
            try:
                task.step()
            finally:
                self._running = None


def _wait_for(come: Callable[[], bool]) -> bool:
    """Look whether something has come that the thread does without being asked; not for ever.

    By no condition: its lock is taken and given back by code that a signal's handler may break off in the middle, and
    another exception then stands in the place of the program's own.
    """
    never, pause_s, until_ns = Wake(), _LOOK_S, HOST_CLOCK.now_ns() + round(_JOIN_S * NS_PER_S)
    while not come():
        if HOST_CLOCK.now_ns() > until_ns:
            return False
        never.wait(pause_s)
        pause_s = min(2 * pause_s, _MAX_LOOK_S)
    return True


class RepeatedTask:
    """One step of one owner on a poller: begun, changed and ended from any thread, but not under a lock it takes."""

    def __init__(self, poller: Poller, step: Callable[[], None]) -> None:
        self._poller = poller
        self._step = step
        self._lock = threading.Lock()
        self._task: Task | None = None

    @property
    def going(self) -> bool:
        """Whether the poller takes the step now and then."""
        return self._task is not None

    def every(self, period_s: float | None, *, dither: bool = False) -> None:
        """Let the poller take the step every ``period_s`` seconds from now on; None: not any more."""
        with self._lock:
            before = self._task
            # Added first: what breaks this off, as Ctrl-C does, leaves one that is read.
            self._task = None if period_s is None else self._poller.add(self._step, period_s, dither=dither)
            if before is not None:
                self._poller.remove(before)

    def end(self) -> None:
        """Take the step no more; what a step may call itself."""
        task, self._task = self._task, None
        if task is not None:
            self._poller.remove(task)


_shared: dict[int, Poller] = {}  # by process id: a thread does not survive a fork


def poller_for(clock: Clock, name: str, *, alone: bool) -> Poller:
    """Return the poller of this process that all quick sensors share, or a new one for a sensor that must be alone.

    Sensors on another clock than the host's (tests, rehearsals) are always alone.
    """
    if alone or clock is not HOST_CLOCK:
        return Poller(clock, name)
    return _shared.setdefault(os.getpid(), Poller(clock, "shared"))
