"""The conformance suite that anybody's backend can run: what every source must keep, and whether it tells the truth.

A backend's tests call :func:`check_source` with a function that opens it on an emulated world whose clock the test
moves. Failures are :class:`AssertionError` with a sentence that says which clause was broken.

>>> from pmtpy.testing import check_source
>>> from pmtpy.emulators.rapl import open_virtual
>>> check_source(lambda clock: open_virtual("virtual", clock=clock, load="square:low=30,high=90,hz=1"),
...              load="square:low=30,high=90,hz=1", relative=1e-3)

Each function checks one thing and can be called by itself, for a source that cannot be checked for all of them.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Source
from pmtpy.errors import SourceLostError
from pmtpy.sensor.sensor import Sensor
from pmtpy.testing._readings import check_description, check_promptness, check_reading, check_refresh
from pmtpy.testing._require import require
from pmtpy.testing._truth import check_truth, check_turns

__all__ = ["Opener", "check_lost", "check_promptness", "check_refresh", "check_source", "check_truth"]

Opener = Callable[[ManualClock], Source]


def _check_end(source: Source) -> None:
    """Check that a source can be closed twice."""
    source.close()
    source.close()


def _check_leaks(open_source: Opener) -> None:
    """Check that nothing is left of sources after closing: descriptors, threads, processes, memory."""
    _use(open_source)  # what is opened once for good, with the first one, is no leak
    before = _belongings()
    left = [_use(open_source) for _ in range(3)]
    gc.collect()
    for what, (had, have) in {k: (v, _belongings()[k]) for k, v in before.items()}.items():
        require(have <= had, f"after closing, {what} are left: {have - had} of 3 openings")
    require(all(source() is None for source in left), "a closed source that nobody holds is gone from memory")


def _use(open_source: Opener) -> weakref.ref[Source]:
    clock = ManualClock()
    source = open_source(clock)
    for _ in range(3):
        clock.advance(source.traits.interval_s)
        source.read_row()
    source.close()
    return weakref.ref(source)


def _belongings() -> dict[str, int]:
    """Count what this process has; 0 where the system does not tell."""
    fds, tasks = Path("/proc/self/fd"), Path("/proc/self/task")
    children = [word for t in tasks.glob("*/children") for word in t.read_text().split()]
    return {
        "descriptors": len(os.listdir(fds)) if fds.is_dir() else 0,  # noqa: PTH208  (one of them lists)
        "threads": threading.active_count(),
        "processes": len(children),
    }


def check_lost(source: Source, clock: ManualClock, *, limit_s: float = 30.0, step_s: float = 0.1) -> None:
    """Check that a source whose device has just been taken away says so, and goes on saying so."""
    for _ in range(round(limit_s / step_s)):
        clock.advance(step_s)
        try:
            source.read_row()
        except SourceLostError:
            break
    else:
        msg = f"a device that is gone is reported as SourceLostError within {limit_s:g} s"
        raise AssertionError(msg)
    for _ in range(3):
        try:
            source.read_row()
        except SourceLostError:
            continue
        msg = "a lost source goes on raising SourceLostError"
        raise AssertionError(msg)


def _check_sensor(source: Source, clock: ManualClock) -> None:
    """Check that a sensor can be made of the source: states, total, region-like differences."""
    with Sensor(source, "check", clock) as sensor:
        states = []
        for _ in range(20):
            clock.advance(0.1)
            states.append(sensor.read())
        require(states[0].names[0] == "total", "the first name of a state is the total")
        require(all(len(s.names) == len(s.joules) == len(s.watts) for s in states), "a state has one value per name")
        require(all(a.t_ns <= b.t_ns for a, b in pairwise(states)), "states do not go back in time")
        require(math.isfinite(states[-1].joules[0]), "the total is a number")


def check_source(
    open_source: Opener,
    load: str,
    *,
    seconds: float = 20.0,
    step_s: float = 0.02,
    relative: float = 1e-3,
    absolute_joules: float = 0.0,
) -> None:
    """Run everything on a source that ``open_source(clock)`` opens on an emulated world watching ``load``.

    The load must begin when the source is opened on a fresh clock, as ``open_virtual`` does. ``relative`` and
    ``absolute_joules`` are what the sensor's own model allows (quantisation, refresh): derive them, do not tune them.
    """
    clock = ManualClock()
    source = open_source(clock)
    check_description(source)
    check_reading(source, clock)
    check_promptness(source, clock)
    check_refresh(source, clock)
    _check_end(source)
    checks: Sequence[Callable[[Source, ManualClock, int], object]] = (
        lambda source, clock, epoch_ns: check_truth(
            source, clock, load, seconds=seconds, step_s=step_s, relative=relative, absolute_joules=absolute_joules,
            epoch_ns=epoch_ns,
        ),
        lambda source, clock, epoch_ns: check_turns(
            source, clock, load, relative=max(0.01, 2 * relative), epoch_ns=epoch_ns
        ),
    )  # fmt: skip
    for check in checks:
        clock = ManualClock()
        epoch = clock.now_ns()
        source = open_source(clock)
        try:
            check(source, clock, epoch)
        finally:
            _check_end(source)
    clock = ManualClock()
    _check_sensor(open_source(clock), clock)
    _check_leaks(open_source)
