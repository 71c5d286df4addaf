"""Counters that go wrong while a region is open, and are sound again at its end: its own two readings see nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.regions.measurement import Measurement
from pmtpy.sensor.sensor import acquisition_of
from tests.support.trees import RANGE_UJ, UNIT_J, Constant, Load, Square, SteppedClock, Tree, processor, zone

BEGIN_S, END_S = 4.0, 6.0  # of the fault, in seconds of the region
_JOULES = Callable[[float, Load], float]  # what a counter has counted after so many seconds


def frozen(t: float, load: Load) -> float:
    """It stands still, and counts on from there."""
    return load.between(0.0, min(t, BEGIN_S)) + (load.between(END_S, t) if t > END_S else 0.0)


def resting(t: float, load: Load) -> float:
    """It stands still, and shows all of it afterwards."""
    return load.between(0.0, min(t, BEGIN_S) if t < END_S else t)


def leaping(t: float, load: Load) -> float:
    """It goes on by what two readings ten seconds apart take for a power."""
    return load.joules(t) + (2000.0 if t > BEGIN_S else 0.0)


def restarted(t: float, load: Load) -> float:
    """It begins at nothing, as a firmware's restart makes it."""
    return load.between(BEGIN_S, t) if t > BEGIN_S else load.joules(t) + 5000.0


class Faulty:
    """A package whose counter has a fault from the fourth second on, and memory without any."""

    def __init__(self, root: Path, fault: _JOULES | None, load: Load) -> None:
        self.clock, self.load, self.fault = SteppedClock(), load, fault
        self.begun_s = self.clock.seconds + 0.05
        tree = Tree(root, self.clock)
        processor(tree, 0)
        zone(tree, "0", "package-0", self._shown)
        self.sensor = pmt.create("rapl", clock=self.clock, sysfs_root=str(root))

    def _shown(self, t: float) -> str:
        tick = math.floor((t - self.begun_s) / 2.0**-10) * 2.0**-10
        joules = 10_000.0 + (self.fault(tick, self.load) if self.fault else self.load.joules(tick))
        return f"{math.floor(joules / UNIT_J) * round(UNIT_J * 1e9) // 1000 % RANGE_UJ}\n"

    def measure(self, seconds: float = 10.0, *, begin_s: float = 0.0) -> Measurement:
        with self.sensor as sensor:
            self.clock.advance(0.05 + begin_s)
            with pmt.region("x", sensor) as region:
                self.clock.advance(seconds, sleepers=1)
            return region[sensor.target]


@pytest.mark.parametrize("load", [Constant(40.0), Square(15.0, 90.0, 0.73)], ids=["steady", "moving"])
@pytest.mark.parametrize("fault", [frozen, resting, leaping, restarted])
def test_a_fault_inside_a_region_is_uncovered_bounded_and_named(tmp_path: Path, fault: _JOULES, load: Load) -> None:
    bench = Faulty(tmp_path / "sys", fault, load)
    measured = bench.measure()
    truth = load.between(0.0, 10.0)
    assert measured.coverage < 1.0
    assert abs(measured.joules - truth) < 2 * measured.uncertainty_joules
    assert any("package0: its counter rest" in w for w in measured.warnings)
    # What is known is no more than was used, and the time that is not known little more than the fault lasted.
    assert measured.joules < truth * 1.001 + 2 * 0.03 * truth
    assert measured.coverage > (0.97 if fault in {leaping, restarted} else 0.76)


@pytest.mark.parametrize("load", [Constant(40.0), Square(15.0, 90.0, 0.73)], ids=["steady", "moving"])
@pytest.mark.parametrize("fault", [frozen, resting])
def test_a_region_that_begins_in_a_fault_has_none_of_the_energy_before_it(
    tmp_path: Path, fault: _JOULES, load: Load
) -> None:
    bench = Faulty(tmp_path / "sys", fault, load)
    measured = bench.measure(begin_s=BEGIN_S + 1.0)
    truth = load.between(END_S - 0.002, BEGIN_S + 11.0)
    assert measured.coverage == pytest.approx(0.9, abs=0.012)
    assert measured.joules == pytest.approx(truth, abs=90 * 0.11)  # which ends within one look at the counter
    assert abs(measured.joules - load.between(BEGIN_S + 1.0, BEGIN_S + 11.0)) < 2 * measured.uncertainty_joules
    assert any("the joules do not contain it" in w for w in measured.warnings)


@pytest.mark.parametrize("seconds", [0.004, 0.01, 0.015])
@pytest.mark.parametrize("fault", [frozen, resting])
def test_a_region_shorter_than_a_rest_is_doubted_is_as_uncertain_as_the_rest(
    tmp_path: Path, fault: _JOULES, seconds: float
) -> None:
    """It has the count of a register that may be slow or may stand still: no joules, and no certainty of that."""
    bench = Faulty(tmp_path / "sys", fault, Constant(40.0))
    with bench.sensor as sensor:
        bench.clock.advance(0.05 + BEGIN_S - 1.0)
        sensor.read()
        bench.clock.advance(1.0005)
        with pmt.region("x", sensor) as region:
            bench.clock.advance(seconds, sleepers=1)
        measured = region[sensor.target]
    assert measured.joules == 0.0
    assert 40.0 * seconds < 2 * measured.uncertainty_joules
    assert any("too short for this sensor" in w for w in measured.warnings)


def test_a_region_of_a_sound_counter_is_covered_and_exact(tmp_path: Path) -> None:
    load = Square(15.0, 90.0, 0.73)
    measured = Faulty(tmp_path / "sys", None, load).measure()
    assert measured.coverage == 1.0
    assert measured.joules == pytest.approx(load.between(0.0, 10.0), abs=0.2)  # two milliseconds of 90 W
    assert not measured.warnings


def test_regions_that_are_shorter_than_the_watch_cost_no_reading_but_their_own(tmp_path: Path) -> None:
    bench = Faulty(tmp_path / "sys", None, Constant(40.0))
    taken = []
    with bench.sensor as sensor:
        made = acquisition_of(sensor)
        read = made.intake.source.read_row
        made.intake.source.read_row = lambda: (taken.append(threading.current_thread()), read())[1]  # type: ignore[method-assign,func-returns-value]
        for _ in range(200):
            with pmt.region("x", sensor):
                bench.clock.advance(0.004, sleepers=1)
            bench.clock.advance(0.001, sleepers=1)
    assert set(taken) == {threading.current_thread()}


def test_the_watch_ends_some_time_after_the_last_region_and_begins_again_with_the_next(tmp_path: Path) -> None:
    bench = Faulty(tmp_path / "sys", None, Constant(40.0))
    with bench.sensor as sensor:
        task = acquisition_of(sensor)._watch

        def watched() -> bool:
            return task.going

        for _ in range(2):
            assert not watched()
            with pmt.region("x", sensor):
                bench.clock.advance(0.5, sleepers=1)
            assert watched()
            while watched():
                bench.clock.advance(0.1)
