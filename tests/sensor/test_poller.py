"""The thread that reads sensors, started and ended by several others."""

from __future__ import annotations

import threading

import pytest

import pmtpy as pmt
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.emulators.rapl import open_virtual
from pmtpy.sensor.poller import Poller
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.trees import SteppedClock

_HANG_S = 9.0  # less than the time after which it gives up waiting for a thread


def test_ending_the_last_job_does_not_wait_for_a_thread_that_has_been_given_another() -> None:
    poller = Poller(HOST_CLOCK, "test")
    longest: list[float] = []

    def come_and_go() -> None:
        for _ in range(150):
            task = poller.add(lambda: None, 10.0)
            before = HOST_CLOCK.now_ns()
            poller.remove(task)
            longest.append((HOST_CLOCK.now_ns() - before) / 1e9)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(longest) < _HANG_S


def test_ending_a_job_does_not_wait_for_another_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pmtpy.sensor.poller._JOIN_S", 240.0)
    poller, free, hangs = Poller(HOST_CLOCK, "test"), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        free.wait(240)

    hung = poller.add(hang, 0.001)
    quick = poller.add(lambda: None, 0.001)
    assert hangs.wait(240)
    ending = threading.Thread(target=poller.remove, args=(quick,))
    ending.start()
    ending.join(60)
    ended = not ending.is_alive()
    free.set()
    poller.remove(hung)
    ending.join()
    assert ended


def test_dithered_instants_are_one_in_each_period_and_keep_step_with_nothing() -> None:
    clock = SteppedClock()
    poller = Poller(clock, "test")
    instants: list[int] = []
    task = poller.add(lambda: instants.append(clock.now_ns()), 0.05, dither=True)
    clock.advance(20.0, sleepers=1)
    poller.remove(task)
    periods = [t // 50_000_000 for t in instants]
    assert periods == list(range(periods[0], periods[0] + len(instants)))
    assert len(instants) >= 398
    # Of uniform phases a tenth each lies in each tenth of the period; the standard deviation of its count is 6.
    tenths = [t % 50_000_000 // 5_000_000 for t in instants]
    assert all(10 <= tenths.count(tenth) <= 70 for tenth in range(10))


def test_where_no_thread_can_be_started_it_is_said_and_nothing_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock = ManualClock()
    with Sensor(open_virtual(clock=clock), "rapl", clock) as sensor:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with (
                pytest.raises(pmt.PmtError, match=r"none can be started \(can't start new thread\): .*pids.max"),
                pmt.region("work", sensor),
            ):
                pass
        assert acquisition_of(sensor).demand.regions == 0
        with pmt.region("work", sensor) as region:
            clock.advance(1.0)
        assert region["rapl"].seconds == pytest.approx(1.0, abs=0.1)
