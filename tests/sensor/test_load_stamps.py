"""A program's own stamps of when its load was on."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.calibration.matching import calibrate
from pmtpy.core.clock import ManualClock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.errors import SensorClosedError, TargetError
from pmtpy.sensor import load_stamps
from pmtpy.sensor.load_stamps import LoadHistory, LoadStamps
from pmtpy.sensor.registry import opener
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.uncertainty.stamped import A100

S = 1_000_000_000


def told(history: LoadHistory, start_s: float, end_s: float, margin_s: float = 100.0) -> LoadIntervals:
    """Return what is known between two instants and around them, in seconds since zero."""
    load = history.about(round(start_s * S), round(end_s * S), round(margin_s * S))
    assert load is not None
    return LoadIntervals(load.on_s + start_s, load.off_s + start_s, load.known_s + start_s, absolute=False)


def stamped(*stretches: tuple[float, float]) -> LoadStamps:
    stamps = LoadStamps(ManualClock())
    for on_s, off_s in stretches:
        stamps.add(round(on_s * S), round(off_s * S))
    return stamps


def passed(history: LoadHistory, since_s: float, until_s: float, *stretches: tuple[float, float]) -> None:
    """Let a region pass in which the device worked for some stretches."""
    stamps = stamped(*stretches)
    history.begin(stamps, round(since_s * S))
    history.end(stamps, round(until_s * S))


def test_each_stretch_is_stamped_on_and_off() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    for _ in range(2):
        clock.advance(1.0)
        with stamps:
            clock.advance(0.5)
    edges = stamps.told(None, 0, clock.now_ns())[0]
    assert np.diff(edges).tolist() == [500_000_000, 1_000_000_000, 500_000_000]


def test_stretches_inside_one_another_are_one() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    with stamps:
        clock.advance(1.0)
        with stamps:
            clock.advance(1.0)
        clock.advance(1.0)
    edges = stamps.told(None, 0, clock.now_ns())[0]
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
    edges = stamps.told(None, 0, clock.now_ns())[0]
    assert np.diff(edges).tolist() == [2_000_000_000]


def test_a_stretch_that_has_not_ended_ends_with_the_region() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    stamps.__enter__()
    start = clock.now_ns()
    edges = stamps.told(None, 0, start + 7)[0]
    assert edges == [start, start + 7]


def test_without_stamps_nothing_is_known() -> None:
    clock = ManualClock()
    history = LoadHistory(clock)
    assert history.about(0, S, S) is None
    with history.own:
        clock.advance(1.0)
    half = history.about(clock.now_ns() - 2 * S, clock.now_ns(), S)
    assert half is not None
    assert not half.knows(0.0, 2.0)  # half of it was before the first stamp
    assert half.longest_known(0.0, 2.0) == pytest.approx((1.0, 2.0))
    whole = history.about(clock.now_ns() - S, clock.now_ns(), S)
    assert whole is not None
    assert whole.knows(0.0, 1.0)


def test_what_a_region_stamped_is_known_to_the_next_one_and_what_ran_between_is_not() -> None:
    history = LoadHistory(ManualClock())
    passed(history, 1.0, 4.0, (1.0, 2.0), (2.5, 3.0))
    passed(history, 6.0, 7.0, (6.5, 7.0))
    load = told(history, 6.0, 7.0)
    assert load.edges == pytest.approx([1.0, 2.0, 2.5, 3.0, 6.5, 7.0])
    assert load.known_s.ravel() == pytest.approx([1.0, 4.0, 6.0, 7.0])
    assert load.unknown(0.0, 9.0).ravel() == pytest.approx([0.0, 1.0, 4.0, 6.0, 7.0, 9.0])
    near = told(history, 6.0, 7.0, 3.25)
    assert near.edges == pytest.approx([2.75, 3.0, 6.5, 7.0])
    assert near.known_s.ravel() == pytest.approx([2.75, 4.0, 6.0, 7.0])
    beyond = history.about(3 * S, 5 * S, S)
    assert beyond is not None
    assert beyond.longest_known(0.0, 2.0) == pytest.approx((0.0, 1.0))
    assert history.about(4 * S, 5 * S, S) is None


def test_of_regions_side_by_side_the_load_is_on_while_any_says_so() -> None:
    history = LoadHistory(ManualClock())
    passed(history, 1.0, 4.0, (1.0, 2.0))
    passed(history, 8.0, 9.0)  # asked for its load, which never was on: no stamps say nothing
    passed(history, 2.0, 6.0, (3.5, 5.0))
    outer, inner = stamped((6.0, 6.5), (7.0, 7.2)), stamped((6.4, 7.1))
    history.begin(outer, round(5.5 * S))
    history.begin(inner, 6 * S)
    history.end(inner, 7 * S)  # a stretch that has not ended then goes on in the other one
    load = told(history, 6.0, 6.5, 1e6)
    assert load.edges == pytest.approx([1.0, 2.0, 3.5, 5.0, 6.0, 7.2])
    assert load.known_s[0, 0] == pytest.approx(1.0)
    assert len(load.known_s) == 1  # the outer one goes on
    history.end(outer, 8 * S)
    assert told(history, 6.0, 6.5).known_s.ravel() == pytest.approx([1.0, 8.0])


def test_stretches_of_any_order_are_the_same_as_in_order() -> None:
    rng, one, other = np.random.default_rng(1), LoadHistory(ManualClock()), LoadHistory(ManualClock())
    begins = np.cumsum(rng.uniform(0.1, 2.0, 40))
    spans = [(a, a + length) for a, length in zip(begins, rng.uniform(0.1, 5.0, 40), strict=True)]
    for a, b in spans:
        passed(one, a, b, (a, (a + b) / 2.0))
    for i in rng.permutation(40):
        a, b = spans[i]
        passed(other, a, b, (a, (a + b) / 2.0))
    found = [told(history, *spans[20]) for history in (one, other)]
    assert found[0].edges == pytest.approx(found[1].edges)
    assert found[0].known_s == pytest.approx(found[1].known_s)
    assert found[0].share(0.0, 99.0) == pytest.approx(
        sum(np.any([(a <= t) & (t < (a + b) / 2.0) for a, b in spans]) for t in np.arange(0.0, 99.0, 1e-3)) * 1e-3,
        abs=0.1,
    )


def test_of_a_load_that_is_switched_very_often_the_nearest_stamps_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_stamps, "MOST_AROUND", 40)
    history = LoadHistory(ManualClock())
    for i in range(100):
        passed(history, float(i), i + 0.75, (i + 0.25, i + 0.5))
    load = told(history, 50.0, 50.75)
    assert 10 <= len(load.edges) <= 40
    assert load.known_s[0, 0] > 30.0
    passed(history, 100.0, 200.0, *((100.0 + i, 100.5 + i) for i in range(100)))
    assert len(told(history, 100.0, 200.0).edges) == 200  # what it has itself is never left out


def test_of_however_many_stamps_those_are_copied_once_that_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_stamps, "MOST_AROUND", 40)
    clock, asked, told = ManualClock(), list[tuple[int, int]](), LoadStamps.told

    def counted(self: LoadStamps, since_ns: int | None, start_ns: int, end_ns: int) -> tuple[list[int], list[int]]:
        asked.append((start_ns, end_ns))
        return told(self, since_ns, start_ns, end_ns)

    monkeypatch.setattr(LoadStamps, "told", counted)
    history, begun_ns = LoadHistory(clock), clock.now_ns()
    for _ in range(500):
        with history.own:
            clock.advance(0.1)
        clock.advance(0.1)
    load = history.about(begun_ns + 50 * S, begun_ns + 51 * S, 100 * S)
    assert load is not None
    assert 10 <= len(load.edges) <= 40
    whole = history.about(begun_ns, clock.now_ns(), 100 * S)  # what it has itself is never left out
    assert whole is not None
    assert len(whole.edges) == 1000
    assert len(asked) == 2


def test_where_the_oldest_stamps_are_forgotten_nothing_passes_for_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_stamps, "_MOST_STAMPS", 8)
    history = LoadHistory(ManualClock())
    for i in range(20):
        passed(history, 2.0 * i, 2.0 * i + 1.0, (2.0 * i + 0.25, 2.0 * i + 0.5), (2.0 * i + 0.75, 2.0 * i + 1.0))
    load = told(history, 38.0, 39.0)
    assert 4 <= len(load.edges) <= 12
    assert load.known_s[0, 0] >= load.edges[0]
    clock = ManualClock()
    long, begun_ns = LoadStamps(clock), clock.now_ns()
    history.begin(long, begun_ns)
    for _ in range(20):
        with long:
            clock.advance(0.5)
        clock.advance(0.5)
    for _ in range(2):
        oftener = history.about(begun_ns, begun_ns + 20 * S, 0)  # a region that switched oftener than is kept
        assert oftener is not None
        assert not oftener.knows(0.0, 20.0)
        assert told(history, begun_ns / S + 18.0, begun_ns / S + 19.0).on_s[-1] == pytest.approx(begun_ns / S + 19.0)
        history.end(long, clock.now_ns())


def test_an_exception_inside_passes_and_is_stamped() -> None:
    clock = ManualClock()
    stamps = LoadStamps(clock)
    with pytest.raises(ZeroDivisionError), stamps:
        raise ZeroDivisionError
    edges = stamps.told(None, 0, clock.now_ns())[0]
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


def calibrated(clock: ManualClock, name: str) -> Sensor:
    """Open a virtual GPU whose profile knows the kernel."""
    source = opener("nvml", "virtual")("virtual", clock=clock, **dict(A100.options))
    calibration = calibrate([A100.profile(source.identity)], source.identity, source.channels)
    return Sensor(source, name, clock, calibration=calibration, interval_s=1e6)


def test_the_regions_of_a_sensor_learn_from_each_other_and_only_they() -> None:
    clock = ManualClock()
    with calibrated(clock, "a") as a, calibrated(clock, "b") as b, calibrated(ManualClock(), "c") as c:
        clock.advance(1.0)
        begun_ns = clock.now_ns()
        with pmt.region("all", a, b, c) as whole:
            clock.advance(1.0)
            with whole.load():
                clock.advance(1.0)
        clock.advance(1.0)
        with pmt.region("one", a) as one:
            clock.advance(1.0)
            with one.load(), pmt.region("inside", a):
                clock.advance(1.0)

        def known(sensor: Sensor) -> tuple[list[float], list[float]]:
            load = told(acquisition_of(sensor).loads, begun_ns / S, begun_ns / S + 2.0)
            return (load.edges - begun_ns / S).tolist(), (load.known_s.ravel() - begun_ns / S).tolist()

        assert known(a) == ([1.0, 2.0, 4.0, 5.0], [0.0, 2.0, 3.0, 5.0])
        assert known(b) == ([1.0, 2.0], [0.0, 2.0])
        assert acquisition_of(c).loads.about(*whole.span_ns, S) is None  # they are by another clock


def test_threads_that_ask_a_region_for_its_load_at_once_get_one() -> None:
    with calibrated(ManualClock(), "a") as sensor:
        for _ in range(20):
            with pmt.region("work", sensor) as region:
                at_once, got = threading.Barrier(4), set[LoadStamps]()

                def ask(
                    region: pmt.Region = region, at_once: threading.Barrier = at_once, got: set[LoadStamps] = got
                ) -> None:
                    at_once.wait(120)
                    got.add(region.load())

                threads = [threading.Thread(target=ask, name="pmtpy-test-load") for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert len(got) == 1
        assert list(acquisition_of(sensor).loads._open) == [acquisition_of(sensor).loads.own]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_stamps_nothing_for_its_parent() -> None:
    clock = ManualClock()
    with calibrated(clock, "a") as sensor, pmt.region("work", sensor) as region:
        start_s = clock.now_ns() / S
        ways = (sensor.load, region.load, region.load().__enter__, sensor.load().__enter__)
        with region.load():
            made = acquisition_of(sensor)
            with made.loads._lock, sensor.load()._lock:  # as a thread may that is not in the child
                child = os.fork()
            if child == 0:
                refused = 0
                for way in ways:
                    try:
                        way()
                    except SensorClosedError as error:  # noqa: PERF203  (each is tried)
                        refused += "opened by the parent" in str(error)
                os._exit(refused)
            clock.advance(1.0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == len(ways)
    load = told(made.loads, start_s, start_s + 1.0)
    assert (load.edges - start_s).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("interrupted", [True, False])
def test_of_a_region_that_never_ended_nothing_passes_for_rest(
    monkeypatch: pytest.MonkeyPatch, *, interrupted: bool
) -> None:
    clock = ManualClock()
    with calibrated(clock, "a") as sensor:
        made, region = acquisition_of(sensor), pmt.region("work", sensor)
        region.__enter__()
        with region.load():
            clock.advance(1.0)
        if interrupted:

            def interrupt(*_: object) -> None:
                raise KeyboardInterrupt

            monkeypatch.setattr(type(made), "end", interrupt)
            with pytest.raises(KeyboardInterrupt):
                region.__exit__(None, None, None)
        else:
            region.abandon()
        clock.advance(5.0)
        assert made.loads.about(clock.now_ns() - S, clock.now_ns(), 10 * S) is None
