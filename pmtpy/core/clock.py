"""Time: the host's monotonic clock, a clock that a test moves, and the mapping of a device's clock onto the host's.

This is the only module of the package that asks for the time or sleeps. All times are integer nanoseconds on the
monotonic clock (``time.monotonic_ns``); wall time appears only as an :class:`Anchor`, once at the start of a file
and once at its end.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pmtpy.errors import TargetError

NS_PER_S = 1_000_000_000
LAST_UNIX_S = 2**63 / NS_PER_S  # in the year 2262: beyond, nanoseconds in 64 bits hold no instant

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_PART = re.compile(rf"\s*({_NUMBER})\s*([a-zA-Z]*)\s*")
_RATE = re.compile(rf"\s*({_NUMBER})\s*(k?)Hz\s*", re.IGNORECASE)
_MAX_DURATION_S = 1e9  # what people write is less than thirty years, and calendars can add it
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_INTERVAL = "an interval between rows", "10ms, 0.5s, 100Hz, or a bare number of milliseconds"
_DURATION = "a duration", "500ms, 5s, 1h30m, 2d, or a bare number of seconds"


@dataclass(frozen=True, slots=True)
class Anchor:
    """Wall time and monotonic time of the same instant."""

    monotonic_ns: int  # host monotonic clock, nanoseconds
    unix_ns: int  # Unix time (UTC), nanoseconds
    # the same instant on the clock that also counts while the machine sleeps (Linux), by which other programs' traces
    # go; None where there is none
    boottime_ns: int | None = None

    def slept_s(self, later: Anchor) -> float:
        """Seconds that the machine slept until a later anchor; 0 where no clock tells."""
        if self.boottime_ns is None or later.boottime_ns is None:
            return 0.0
        return (later.boottime_ns - self.boottime_ns - (later.monotonic_ns - self.monotonic_ns)) / NS_PER_S

    @property
    def unix_offset_ns(self) -> int:
        """What added to a monotonic instant gives its Unix time, nanoseconds."""
        return self.unix_ns - self.monotonic_ns

    def unix_s(self, t_ns: int) -> float:
        """Unix time in seconds of the monotonic instant ``t_ns``."""
        return (t_ns + self.unix_offset_ns) / NS_PER_S


class Clock(Protocol):
    """What the package needs of a clock. Real time and hand-cranked time are equals."""

    def now_ns(self) -> int:
        """Return the present instant, nanoseconds on a clock that never goes back."""
        ...

    def anchor(self) -> Anchor:
        """Return wall and monotonic time, taken together."""
        ...

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        """Block until ``t_ns`` or until ``wake`` is set; return whether ``wake`` is set."""
        ...


class Wake(threading.Event):
    """An event whose setting and waiting may be broken off: of an Event's own, Ctrl-C can leave the lock kept.

    A waiting that is broken off may take it as not set, so what it tells of must be seen elsewhere, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Lock()  # open once it is set
        self._gate.acquire()

    def is_set(self) -> bool:
        """Whether it is set."""
        return not self._gate.locked()

    def set(self) -> None:
        """Let go on who waits, and who will."""
        with suppress(RuntimeError):  # it is open already
            self._gate.release()

    def clear(self) -> None:
        """Let wait again. By the one thread that waits."""
        self._gate.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, or for so many seconds; return whether it is."""
        if not self._gate.acquire(timeout=-1.0 if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            return False
        self.set()
        return True


class HostClock:
    """The clock of this machine."""

    now_ns = staticmethod(time.monotonic_ns)  # the very function: a reading asks several times

    def anchor(self) -> Anchor:
        """Return wall and monotonic time, the tightest of three bracketed readings.

        The wall clock is read between two readings of the monotonic clock and paired with their middle, so the
        pair is off by at most half the time between them.
        """
        best: tuple[int, Anchor] | None = None
        for _ in range(3):
            before = time.monotonic_ns()
            unix = time.time_ns()
            boot = time.clock_gettime_ns(_BOOTTIME) if _BOOTTIME is not None else None
            after = time.monotonic_ns()
            if best is None or after - before < best[0]:
                best = (after - before, Anchor((before + after) // 2, unix, boot))
        assert best is not None  # noqa: S101  (three rounds ran)
        return best[1]

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        """Block until ``t_ns`` or until ``wake`` is set; return whether ``wake`` is set."""
        return wake.wait(max(0.0, (t_ns - time.monotonic_ns()) / NS_PER_S))


HOST_CLOCK = HostClock()  # without state: one is enough


class ManualClock:
    """A clock that stands still until :meth:`advance` moves it. Hours of behaviour run in milliseconds.

    Threads that wait on it are woken when the clock passes their instant. Safe to use from several threads.
    """

    def __init__(self, start_ns: int = 1_000 * NS_PER_S, unix_ns: int = 1_700_000_000 * NS_PER_S) -> None:
        self._now_ns = start_ns
        self._unix_offset_ns = unix_ns - start_ns
        self._lock = threading.Lock()
        self._sleepers: list[tuple[int, int, threading.Event]] = []
        self._order = itertools.count()

    def now_ns(self) -> int:
        """Return the instant last moved to."""
        return self._now_ns

    def anchor(self) -> Anchor:
        """Return the present instant beside its wall time, which runs in step."""
        return Anchor(self._now_ns, self._now_ns + self._unix_offset_ns)

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds`` and wake whoever waits for an instant that has come."""
        with self._lock:
            self._now_ns += round(seconds * NS_PER_S)
            while self._sleepers and self._sleepers[0][0] <= self._now_ns:
                heapq.heappop(self._sleepers)[2].set()

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        """Block until another thread moves the clock to ``t_ns``, or until ``wake`` is set."""
        alarm = threading.Event()
        with self._lock:
            if t_ns <= self._now_ns:
                return wake.is_set()
            heapq.heappush(self._sleepers, (t_ns, next(self._order), alarm))
        # Two events cannot be waited for together, so real time is sliced; only tests run this.
        while not alarm.is_set() and not wake.is_set():
            alarm.wait(0.001)
        return wake.is_set()


def seconds_of(text: str) -> float:
    """Return the seconds of an interval written ``10ms``, ``0.5s``, ``20us``, ``100Hz``, or as a bare number.

    A bare number is milliseconds, as PMT has it.

    Raises
    ------
    TargetError
        The text is none of these, or not more than zero.
    """
    rate = _RATE.fullmatch(text)
    if rate is not None:
        hertz = float(rate[1]) * (1e3 if rate[2] else 1.0)
        return _positive(text, 1.0 / hertz if hertz else 0.0, _INTERVAL)
    return _positive(text, _sum_of_units(text, bare_s=1e-3), _INTERVAL)


def interval_seconds(interval: float | str | None) -> float | None:
    """Return the seconds of an interval that an option gave as a number of seconds or as text; None stays None.

    Raises TargetError: it is neither, or not a positive length of time.
    """
    if interval is None:
        return None
    if isinstance(interval, str):
        return seconds_of(interval)
    try:
        seconds = math.nan if isinstance(interval, bool) else float(interval)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        msg = f"{interval!r} is not an interval: it is a positive number of seconds, or text such as 10ms or 100Hz"
        raise TargetError(msg)
    return seconds


def duration_of(text: str) -> float:
    """Return the seconds of a duration written ``500ms``, ``5s``, ``1m``, ``1h30m``, ``2d``, or as bare seconds.

    Raises TargetError: the text is none of these, or not more than zero.
    """
    return _positive(text, _sum_of_units(text, bare_s=1.0), _DURATION)


def _sum_of_units(text: str, *, bare_s: float) -> float | None:
    """Add up ``1h30m``; None where a part is not understood."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text):
        return None
    units = {**_UNITS_S, "": bare_s} if len(parts) == 1 else _UNITS_S  # 1h30 could mean minutes, or seconds
    known = [units.get(unit.lower()) for _, unit in parts]
    values = [float(number) for number, _ in parts]
    if any(value < 0 for value in values[1:]):
        return None
    return math.fsum(v * u for v, u in zip(values, known, strict=True) if u) if all(known) else None


def _positive(text: str, seconds: float | None, what: tuple[str, str]) -> float:
    if seconds is not None and 0 < seconds <= _MAX_DURATION_S:
        return seconds
    why = "" if seconds is None or math.isnan(seconds) else "; it has to be more than zero"
    if seconds is not None and seconds > _MAX_DURATION_S:
        why = "; it is longer than thirty years"
    msg = f"{text!r} is not {what[0]}{why}; write {what[1]}"
    raise TargetError(msg)
