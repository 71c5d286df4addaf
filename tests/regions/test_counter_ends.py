"""Regions of a counter that is polled about as often as it is renewed: what their intervals hold.

The truth is the integral of a load that changes at known instants, often those at which the region begins and ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import NS_PER_S, ManualClock
from pmtpy.core.source import PolledSource, Traits
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.clocks import OneThreadClock

LOW, HIGH = 50.0, 250.0
RENEWED_S = 0.1
SENSORS, REGIONS = 6, 8


class Load(NamedTuple):
    """A power that changes at instants."""

    at_s: Sequence[float]
    watts: Sequence[float]  # one more than instants

    def joules(self, t_s: float) -> float:
        edges = np.array([-10.0, *self.at_s, 1e4])
        return float(np.interp(t_s, edges, np.concatenate([[0.0], np.cumsum(np.diff(edges) * self.watts)])))


class Board(PolledSource):
    """A counter of millijoules, and a power beside it, each renewed each 100 ms on a phase of its own."""

    def __init__(self, clock: ManualClock, load: Load, poll_s: float, rng: np.random.Generator) -> None:
        super().__init__(clock)
        self.clock, self.load, self.start_ns = clock, load, clock.now_ns()
        self.phase_s, self.power_phase_s = rng.uniform(0, RENEWED_S, 2).tolist()
        self.traits, self.identity = Traits(interval_s=poll_s), Identity("test", "board")
        self.channels = (
            Channel("energy", Quantity.ENERGY, scale=1e-3, domain="gpu/0", refresh_s=RENEWED_S, max_watts=1000.0),
            Channel("power", Quantity.POWER, domain="gpu/0", refresh_s=RENEWED_S, window_s=RENEWED_S),
        )
        self.last: list[float] = []

    @property
    def now_s(self) -> float:
        return (self.clock.now_ns() - self.start_ns) / NS_PER_S

    def poll(self) -> Sequence[float] | None:
        counted, shown = (
            math.floor((self.now_s - phase) / RENEWED_S) * RENEWED_S + phase
            for phase in (self.phase_s, self.power_phase_s)
        )
        mean = (self.load.joules(shown) - self.load.joules(shown - RENEWED_S)) / RENEWED_S
        new = [math.floor(1e3 * self.load.joules(counted) + 1e7), mean]
        if new == self.last:
            return None
        self.last = new
        return new

    def close(self) -> None:
        pass


class Trial(NamedTuple):
    """One region: by how much its energy is off, and its standard uncertainty."""

    off_joules: float
    uncertainty_joules: float

    @property
    def held(self) -> bool:
        return abs(self.off_joules) <= 1.96 * self.uncertainty_joules


def planned(kind: str, length_s: float, rng: np.random.Generator) -> tuple[list[tuple[float, float]], Load]:
    """Make regions, and a load that is on in all of them alone, off in them alone, or on all the time."""
    regions, end = list[tuple[float, float]](), 1.5
    for _ in range(REGIONS):
        start = end + rng.uniform(0.7, 1.2)
        end = start + length_s
        regions.append((start, end))
    outside, inside = {"block": (LOW, HIGH), "pause": (HIGH, LOW), "steady": (HIGH, HIGH)}[kind]
    return regions, Load(list(itertools.chain(*regions)), [outside, *[inside, outside] * REGIONS])


class Bench:
    """A sensor that is read as its poller would: a moment late, or at uneven times where it may keep step."""

    def __init__(self, load: Load, poll_s: float, rng: np.random.Generator) -> None:
        self.board = Board(OneThreadClock(), load, poll_s, rng)
        self.sensor = Sensor(self.board, "test", self.board.clock, interval_s=poll_s)
        uneven = acquisition_of(self.sensor).demand.irregular(self.board.traits, poll_s)
        phase = rng.uniform(0.0, poll_s)
        late_s = (rng.uniform(0.0, poll_s) if uneven else rng.exponential(1e-3) for _ in itertools.count())
        self.due = (phase + n * poll_s + late for n, late in enumerate(late_s, 1))
        self.next_s = next(self.due)

    def until(self, t_s: float) -> None:
        """Let time pass."""
        while self.next_s <= t_s:
            self.board.clock.advance(max(0.0, self.next_s - self.board.now_s))
            acquisition_of(self.sensor).step()
            self.next_s = next(self.due)
        self.board.clock.advance(max(0.0, t_s - self.board.now_s))


def tried(kind: str, length_s: float, poll_s: float) -> tuple[list[Trial], list[Trial]]:
    """Measure regions of several boards; ask at once, and when the counter has moved behind them."""
    at_once, later = list[Trial](), list[Trial]()
    for seed in range(SENSORS):
        rng = np.random.default_rng([seed, 7])
        regions, load = planned(kind, length_s, rng)
        bench = Bench(load, poll_s, rng)
        with bench.sensor:
            for start, end in regions:
                region = Region("work", {"test": bench.sensor})
                bench.until(start)
                region.__enter__()
                bench.until(end)
                region.__exit__(None, None, None)
                for asked_s, trials in ((end + 3e-5, at_once), (end + 0.61, later)):
                    bench.until(asked_s)
                    one = region["test"].channels["energy"]
                    off = one.joules - (load.joules(end) - load.joules(start))
                    trials.append(Trial(off, one.uncertainty_joules))
    return at_once, later


def held(trials: Sequence[Trial]) -> float:
    return float(np.mean([t.held for t in trials]))


def half_width(trials: Sequence[Trial]) -> float:
    return 1.96 * float(np.sqrt(np.mean([t.uncertainty_joules**2 for t in trials])))


@pytest.mark.parametrize("poll_s", [0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize(("kind", "length_s"), [("block", 0.105), ("block", 0.21), ("pause", 0.105)])
def test_regions_that_are_the_load_hold_the_truth(kind: str, length_s: float, poll_s: float) -> None:
    """Lines from move to move lose some of it at both ends, always in the same sense."""
    at_once, later = tried(kind, length_s, poll_s)
    assert held(later) >= 0.95
    assert held(at_once) >= 0.9  # of a load that has begun since the last move nothing is shown


@pytest.mark.parametrize(("poll_s", "at_most"), [(0.02, 12.0), (0.05, 20.0)])
def test_a_long_region_of_a_steady_load_is_no_more_uncertain_than_polls_leave_it(poll_s: float, at_most: float) -> None:
    """Of 250 W for a second: up to a poll is open at both ends, and a load that hides within a time between moves."""
    _, later = tried("steady", 1.0, poll_s)
    assert held(later) >= 0.95
    assert half_width(later) < at_most  # by the staircase of the rows it was 20 and 25 J
