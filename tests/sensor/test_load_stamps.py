"""A program's own stamps of when its load was on."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.clock import HOST_CLOCK, Clock, ManualClock
from pmtpy.errors import TargetError
from pmtpy.sensor.load_stamps import LoadStamps


def edges_of(stamps: LoadStamps, clock: Clock, end_ns: int) -> list[int]:
    """Return when the load was switched on, off, on, ..., in nanoseconds."""
    load = stamps.intervals(clock, 0, end_ns, only_inside=False)
    assert load is not None
    return [round(1e9 * edge) for edge in load.edges.tolist()]


def test_each_stretch_is_stamped_on_and_off() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    for _ in range(2):
        clock.advance(1.0)
        with stamps:
            clock.advance(0.5)
    edges = edges_of(stamps, clock, clock.now_ns())
    assert np.diff(edges).tolist() == [500_000_000, 1_000_000_000, 500_000_000]


def test_stretches_inside_one_another_are_one() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    with stamps:
        clock.advance(1.0)
        with stamps:
            clock.advance(1.0)
        clock.advance(1.0)
    edges = edges_of(stamps, clock, clock.now_ns())
    assert np.diff(edges).tolist() == [3_000_000_000]


def test_the_load_is_on_while_any_thread_is_stamps() -> None:
    clock = ManualClock()
    stamps, entered, leave = LoadStamps(clock), threading.Event(), threading.Event()

    def other() -> None:
        with stamps:
            entered.set()
            leave.wait(120)

    thread = threading.Thread(target=other, name="pmtpy-test-stamps")
    with stamps:
        thread.start()
        assert entered.wait(120)
        clock.advance(1.0)
    clock.advance(1.0)
    leave.set()
    thread.join()
    edges = edges_of(stamps, clock, clock.now_ns())
    assert np.diff(edges).tolist() == [2_000_000_000]


def test_a_stretch_that_has_not_ended_ends_with_the_region() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    stamps.__enter__()
    start = clock.now_ns()
    edges = edges_of(stamps, clock, start + 7)
    assert edges == [start, start + 7]


def test_stamps_of_another_clock_and_no_stamps_say_nothing() -> None:
    stamps = LoadStamps(HOST_CLOCK)
    assert stamps.intervals(HOST_CLOCK, 0, 1, only_inside=False) is None
    with stamps:
        pass
    assert stamps.intervals(ManualClock(), 0, 1, only_inside=False) is None


def test_an_exception_inside_passes_and_is_stamped() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    with pytest.raises(ZeroDivisionError), stamps:
        raise ZeroDivisionError
    edges = edges_of(stamps, clock, 0)
    assert len(edges) == 2


def test_a_region_has_a_load_only_while_it_is_open() -> None:
    with pmt.create("rapl:virtual") as sensor:
        region = pmt.region("work", sensor)
        with pytest.raises(TargetError, match="which is not open"):
            region.load()
        with region, region.load():
            pass
        with pytest.raises(TargetError, match="which is not open"):
            region.load()


def test_stamps_change_nothing_for_a_sensor_without_a_profile() -> None:
    clock = ManualClock()
    with pmt.create("nvml:virtual", clock=clock, interval=1e6) as sensor:
        plain, stamped = pmt.region("plain", sensor), pmt.region("stamped", sensor)
        with plain, stamped:
            for _ in range(20):
                with stamped.load():
                    clock.advance(0.05)
                    sensor.read()
        assert plain[sensor.target] == stamped[sensor.target]
