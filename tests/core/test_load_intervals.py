"""A program's own stamps of when its load was on."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.errors import TargetError


def test_each_stretch_is_stamped_on_and_off() -> None:
    clock = ManualClock()
    busy = LoadIntervals(clock)
    for _ in range(2):
        clock.advance(1.0)
        with busy:
            clock.advance(0.5)
    edges = busy.edges(clock, clock.now_ns())
    assert edges is not None
    assert np.diff(edges).tolist() == [500_000_000, 1_000_000_000, 500_000_000]


def test_stretches_inside_one_another_are_one() -> None:
    clock = ManualClock()
    busy = LoadIntervals(clock)
    with busy:
        clock.advance(1.0)
        with busy:
            clock.advance(1.0)
        clock.advance(1.0)
    edges = busy.edges(clock, clock.now_ns())
    assert edges is not None
    assert np.diff(edges).tolist() == [3_000_000_000]


def test_the_load_is_on_while_any_thread_is_busy() -> None:
    clock = ManualClock()
    busy, entered, leave = LoadIntervals(clock), threading.Event(), threading.Event()

    def other() -> None:
        with busy:
            entered.set()
            leave.wait(120)

    thread = threading.Thread(target=other, name="pmtpy-test-busy")
    with busy:
        thread.start()
        assert entered.wait(120)
        clock.advance(1.0)
    clock.advance(1.0)
    leave.set()
    thread.join()
    edges = busy.edges(clock, clock.now_ns())
    assert edges is not None
    assert np.diff(edges).tolist() == [2_000_000_000]


def test_a_stretch_that_has_not_ended_ends_with_the_region() -> None:
    clock = ManualClock()
    busy = LoadIntervals(clock)
    busy.__enter__()
    start = clock.now_ns()
    edges = busy.edges(clock, start + 7)
    assert edges is not None
    assert edges.tolist() == [start, start + 7]


def test_stamps_of_another_clock_and_no_stamps_say_nothing() -> None:
    busy = LoadIntervals(HOST_CLOCK)
    assert busy.edges(HOST_CLOCK, 0) is None
    with busy:
        pass
    assert busy.edges(ManualClock(), 0) is None


def test_an_exception_inside_passes_and_is_stamped() -> None:
    clock = ManualClock()
    busy = LoadIntervals(clock)
    with pytest.raises(ZeroDivisionError), busy:
        raise ZeroDivisionError
    edges = busy.edges(clock, 0)
    assert edges is not None
    assert len(edges) == 2


def test_a_region_is_busy_only_while_it_is_open() -> None:
    with pmt.create("rapl:virtual") as sensor:
        region = pmt.region("work", sensor)
        with pytest.raises(TargetError, match="which is not open"):
            region.busy()
        with region, region.busy():
            pass
        with pytest.raises(TargetError, match="which is not open"):
            region.busy()


def test_stamps_change_nothing_for_a_sensor_without_a_profile() -> None:
    clock = ManualClock()
    with pmt.create("nvml:virtual", clock=clock, interval=1e6) as sensor:
        plain, stamped = pmt.region("plain", sensor), pmt.region("stamped", sensor)
        with plain, stamped:
            for _ in range(20):
                with stamped.busy():
                    clock.advance(0.05)
                    sensor.read()
        assert plain[sensor.target] == stamped[sensor.target]
