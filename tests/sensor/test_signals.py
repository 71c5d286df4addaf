"""A signal's handler that raises, as that of Ctrl-C does, may come at any instruction: no lock is kept by it."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pmtpy.core.clock import HOST_CLOCK, Wake
from pmtpy.sensor._lock import PatientLock
from pmtpy.sensor.poller import Poller
from pmtpy.sensor.sensor import acquisition_of
from tests.support.worlds import counter_sensor

# Where a handler may come: at the beginning of a function of Python's, and when a call of one of C's returns.
_PLACES = ("call", "c_return")


def broken_off_at(place: int, work: Callable[[], None]) -> bool:
    """Do the work, with a KeyboardInterrupt at one of the places where a handler may come; whether it was reached."""
    left = place

    def profiled(_: FrameType, event: str, what: Any) -> None:  # of a function of C's
        nonlocal left
        if event in _PLACES and what is not sys.setprofile:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    # What the search for garbage calls (of other tests, and hypothesis has it call one of its own) is not the work: an
    # exception of that does not come out.
    gc.disable()
    sys.setprofile(profiled)  # an exception of it comes where a handler's would, and ends it
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        gc.enable()
    return False


def free_for_others(lock: PatientLock | threading.RLock) -> bool:
    """Whether another thread could take it."""
    found = list[bool]()

    def take() -> None:
        found.append(lock.acquire(timeout=0.0))
        if found[0]:
            lock.release()

    other = threading.Thread(target=take)
    other.start()
    other.join()
    return found[0]


def _with(lock: PatientLock) -> None:
    with lock:
        len("work")


def _again(lock: PatientLock) -> None:
    with lock, lock:
        len("work")


def _at_once(lock: PatientLock) -> None:
    if not lock.acquire(blocking=False):
        raise AssertionError
    try:
        len("work")
    finally:
        lock.release()


def _patiently(lock: PatientLock) -> None:
    if not lock.acquire(timeout=5.0):
        raise AssertionError
    try:
        len("work")
    finally:
        lock.release()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers come between any two instructions")
@pytest.mark.parametrize("use", [_with, _again, _at_once, _patiently])
def test_a_lock_of_a_sensor_is_kept_by_no_interruption(use: Callable[[PatientLock], None]) -> None:
    places = 1
    while True:
        lock = PatientLock("broken off")
        reached = broken_off_at(places, lambda lock=lock: use(lock))  # type: ignore[misc]
        assert free_for_others(lock), f"kept from place {places} on"
        if not reached:
            break
        places += 1
    assert places > 3


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers come between any two instructions")
@pytest.mark.usefixtures("nobody_else_reads")
def test_a_beginning_that_is_taken_back_keeps_no_lock() -> None:
    place, reached = 1, True
    while reached:
        clock, _, sensor = counter_sensor()
        with sensor:
            made = acquisition_of(sensor)
            stretch = made.begin()
            clock.advance(0.1)
            reached = broken_off_at(place, lambda made=made, stretch=stretch: made.abandon(stretch))  # type: ignore[misc]
            assert free_for_others(made.intake.lock), f"kept from place {place} on"
        place += 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers come between any two instructions")
def test_the_poller_goes_on_after_an_interruption_of_who_schedules_a_task() -> None:
    place = 1
    while True:
        poller = Poller(HOST_CLOCK, "broken off")
        stepped = threading.Event()
        poller.add(stepped.set, 0.001)

        def schedule(poller: Poller = poller) -> None:
            poller.remove(poller.add(len, 1000.0))  # type: ignore[arg-type]  # never due

        reached = broken_off_at(place, schedule)
        stepped.clear()
        assert stepped.wait(10.0), f"the poller waits for ever for an interruption at place {place}"
        for task in [task for tasks in poller._tasks.values() for task in tasks]:
            poller.remove(task)
        if not reached:
            break
        place += 1
    for thread in threading.enumerate():
        if "broken off" in thread.name:
            thread.join(10.0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers come between any two instructions")
def test_what_a_handler_raises_while_a_running_task_is_removed_comes_out_as_itself() -> None:
    place, reached = 1, True
    kept: list[object] = []  # threads that end are collected after the work: of that, exceptions do not come out
    while reached:
        poller, entered, free = Poller(HOST_CLOCK, "removed"), threading.Event(), threading.Event()

        def hold(entered: threading.Event = entered, free: threading.Event = free) -> None:
            entered.set()
            free.wait(240)

        task = poller.add(hold, 0.001)
        assert entered.wait(240)
        timer = threading.Timer(0.01, free.set)  # what it waits for comes while it waits
        kept += [poller._thread, timer]
        timer.start()
        reached = broken_off_at(place, lambda poller=poller, task=task: poller.remove(task))  # type: ignore[misc]
        timer.join()
        assert free_for_others(poller._lock), f"kept from place {place} on"
        poller.remove(task)
        place += 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="handlers come between any two instructions")
def test_an_event_can_be_set_after_an_interruption_of_its_setting() -> None:
    place, reached = 1, True
    while reached:
        wake = Wake()
        reached = broken_off_at(place, wake.set)
        other = threading.Thread(target=wake.set, daemon=True)
        other.start()
        other.join(10.0)
        assert not other.is_alive(), f"it waits for ever for an interruption at place {place}"
        assert wake.wait(0.0)
        assert wake.is_set()
        wake.clear()
        assert not wake.wait(0.0)
        place += 1


def test_a_dump_that_is_broken_off_as_it_begins_leaves_its_file_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, _, sensor = counter_sensor()
    start, begun = threading.Thread.start, list[threading.Thread]()

    def broken_off(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    with sensor:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", broken_off)
            with pytest.raises(KeyboardInterrupt):
                sensor.start_dump(tmp_path / "a.csv")
        for thread in begun:
            thread.join(10.0)
        with sensor.dump(tmp_path / "a.csv", overwrite=True):
            clock.advance(0.1)
            sensor.read()
    assert json.loads((tmp_path / "a.csv.json").read_text())["complete"]
