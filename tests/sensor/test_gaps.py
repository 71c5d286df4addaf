"""A power that must be sampled, and a program that could not sample it for a while."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Timestamps, Traits
from pmtpy.live.stored import StoredTrack
from pmtpy.live.tracks import select
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.clocks import OneThreadClock


class _Supply(PolledSource):
    """A momentary power, renewed every 0.1 s; what is shown can be changed, and be of a device that stamps its rows."""

    identity = Identity("test")
    channels = (Channel("power", Quantity.POWER, refresh_s=0.1, domain="external/supply"),)
    traits = Traits(interval_s=0.1)
    watts = 10.0
    keeps = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.shown_ns = clock.now_ns()

    def poll(self) -> Sequence[float] | Block | None:
        if not self.keeps:
            return [self.watts]
        times = np.arange(self.shown_ns + 100_000_000, self._clock.now_ns() + 1, 100_000_000)
        if not len(times):
            return None
        self.shown_ns = int(times[-1])
        return Block(times, np.full((len(times), 1), self.watts))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("away_s", [0.9, 2.0])
def test_time_in_which_nothing_could_be_read_is_not_covered_and_of_other_regions_nothing_is_said(away_s: float) -> None:
    clock = OneThreadClock()
    supply = _Supply(clock)
    with Sensor(supply, "supply", clock) as sensor:
        regions = pmt.region("stopped", sensor), pmt.region("afterwards", sensor)
        for region, longest_s in zip(regions, (away_s, 0.1), strict=True):
            with region:
                for pause_s in (0.1, longest_s, 0.1):
                    clock.advance(pause_s)
                    acquisition_of(sensor).step()
        stopped, afterwards = (r["supply"] for r in regions)
    told = [any("nothing could be read for 2 s" in w for w in m.warnings) for m in (stopped, afterwards)]
    assert told == [away_s > 1.0, False]
    assert afterwards.coverage == 1.0
    known_s = 0.2 + (away_s if away_s < 1.0 else 0.0)
    assert stopped.coverage == pytest.approx(known_s / stopped.seconds, abs=1e-6)
    assert stopped.joules == pytest.approx(10.0 * known_s, abs=1e-6)
    # A kernel may have come and gone, of which the neighbours show nothing.
    assert stopped.uncertainty_joules >= 10.0 * (stopped.seconds - known_s) * 0.99
    assert stopped.lost == (19 if away_s > 1.0 else 0)


@pytest.mark.parametrize(("away_s", "hidden_w"), [(0.05, 0.0), (0.1, 10.0), (0.5, 10.0), (0.8, 20.0 / 3.0**0.5)])
def test_what_a_hole_may_hide_is_in_the_uncertainty_of_a_region_and_of_its_recording(
    away_s: float, hidden_w: float, tmp_path: Path
) -> None:
    clock = ManualClock()
    supply = _Supply(clock)
    supply.channels = (Channel("power", Quantity.POWER, refresh_s=0.02, domain="external/supply"),)
    with Sensor(supply, "supply", clock, interval_s=1e6) as sensor:  # nobody reads but this test

        def run(*pauses_s: float) -> None:
            for pause_s in pauses_s:
                clock.advance(pause_s)
                acquisition_of(sensor).step()

        run(*[0.02] * 40)
        with sensor.dump(tmp_path / "a.csv"):
            with pmt.region("starved", sensor) as region:
                run(*[0.02] * 15, away_s, *[0.02] * 15)
            run(*[0.02] * 40)
        measured = region["supply"]
    track = StoredTrack.of_file("a", tmp_path / "a.csv")
    recorded = next(p for p in select(track, track.regions[0].start, track.regions[0].end).powers if p.name == "power")
    # A renewal that was missed is told by those around it. In a tenth of the region a piece of work may have come and
    # gone that used as much again as all the rest shows, 10 W; where that is most of the region, any up to twice that.
    for joules, uncertain_j in (
        (measured.joules, measured.uncertainty_joules),
        (recorded.joules, recorded.uncertainty_joules),
    ):
        assert joules == pytest.approx(10.0 * (0.6 + away_s), abs=1e-5)
        # Half a W in the resolution of a power that states none, for as long, is all else.
        assert hidden_w * away_s <= uncertain_j < hidden_w * away_s + 0.4
    assert any(f"no reading came in {away_s * 1e3:.0f} ms of " in w for w in measured.warnings) == (hidden_w > 0.0)


@pytest.mark.parametrize("held_s", [0.2, 0.3])
def test_what_came_while_a_reading_was_due_at_the_end_is_in_the_uncertainty(held_s: float) -> None:
    """A program holds the interpreter until its region ends, so that a slow driver is not read any more."""
    clock = ManualClock()
    supply = _Supply(clock)
    supply.traits = Traits(interval_s=0.1, blocking=True)
    with Sensor(supply, "supply", clock, interval_s=1e6) as sensor:  # nobody reads but this test
        acquisition_of(sensor).intake.period_s = 0.1
        for _ in range(20):
            clock.advance(0.1)
            acquisition_of(sensor).step()
        with pmt.region("starved", sensor) as region:
            for pause_s in [0.1] * 17:
                clock.advance(pause_s)
                acquisition_of(sensor).step()
            clock.advance(held_s)
        early = region["supply"]
    # Nobody saw it use 19 W instead of 10 meanwhile; of a poll that is merely late the readings around tell.
    assert early.joules == pytest.approx(17.0 + 10.0 * held_s, abs=1e-5)
    assert early.uncertainty_joules > 9.0 * held_s if held_s > 0.25 else early.uncertainty_joules < 1.0
    assert any("rows of the last 300 ms have not come yet" in w for w in early.warnings) == (held_s > 0.25)


@pytest.mark.parametrize("age_s", [0.14, 0.3])
def test_a_register_that_is_read_twice_as_often_as_it_is_renewed_is_not_late_for_that(age_s: float) -> None:
    clock = ManualClock()
    supply = _Supply(clock)
    supply.keeps, supply.traits = True, Traits(interval_s=0.05, blocking=True, timestamps=Timestamps.DEVICE_UPDATE)
    with Sensor(supply, "supply", clock, interval_s=1e6) as sensor:  # nobody reads but this test
        acquisition_of(sensor).intake.period_s = 0.05
        region = pmt.region("work", sensor)
        for _ in range(20):
            clock.advance(0.1)
            acquisition_of(sensor).step()
        with region:
            for _ in range(20):
                clock.advance(0.1)
                acquisition_of(sensor).step()
            clock.advance(age_s)
        early = region["supply"]
    assert early.joules == pytest.approx(10.0 * (2.0 + age_s), abs=1e-5)
    assert any("have not come yet" in w for w in early.warnings) == (age_s > 0.2)
    assert early.uncertainty_joules < 1.5 if age_s < 0.2 else early.uncertainty_joules > 10.0 * age_s


class _Counting(PolledSource):
    """A sum of samples and their number, of which a power is made: 10 W, or 90 W from the second second on."""

    identity = Identity("test")
    channels = (
        Channel("sum", Quantity.COUNT),
        Channel("samples", Quantity.COUNT),
        Channel(
            "power",
            Quantity.POWER,
            derivation=Derivation.RATIO,
            operands=("sum", "samples"),
            refresh_s=0.04,
            window_s=0.04,
            domain="host",
            resolution=0.0,
        ),
    )
    traits = Traits(interval_s=0.04)

    def poll(self) -> Sequence[float]:
        seconds = (self._clock.now_ns() - self.begun_ns) * 1e-9
        return [1e3 * (10.0 * seconds + 80.0 * max(0.0, seconds - 2.0)), 1e3 * seconds]

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.begun_ns = clock.now_ns()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("away_s", [0.5, 0.9])
def test_a_mean_that_is_made_of_counters_knows_the_energy_of_a_hole_but_not_where_in_it(away_s: float) -> None:
    clock = ManualClock()
    with Sensor(_Counting(clock), "occ", clock, interval_s=1e6) as sensor:
        whole, ends_inside = pmt.region("whole", sensor), pmt.region("ends inside", sensor)

        def run(*pauses_s: float) -> None:
            for pause_s in pauses_s:
                clock.advance(pause_s)
                acquisition_of(sensor).step()

        run(*[0.04] * 40)
        with whole:
            with ends_inside:
                run(*[0.04] * 5)  # until 1.8 s
                clock.advance(away_s / 2.0)
            clock.advance(away_s / 2.0)
            run(0.0, *[0.04] * 5)
        run(*[0.04] * 40)
        all_of_it, part = whole["occ"], ends_inside["occ"]
    truth = 10.0 * (0.4 + away_s) + 80.0 * (1.8 + away_s + 0.2 - 2.0)
    assert all_of_it.joules == pytest.approx(truth, rel=1e-6)
    assert all_of_it.uncertainty_joules < 5.0  # of the two ends
    assert not any("no reading came" in w for w in all_of_it.warnings)
    truth = 10.0 * (0.2 + away_s / 2.0) + 80.0 * max(0.0, 1.8 + away_s / 2.0 - 2.0)
    assert abs(part.joules - truth) <= 2.0 * part.uncertainty_joules
    assert abs(part.joules - truth) > 3.0


def test_a_device_that_has_kept_its_readings_leaves_no_gap() -> None:
    clock = OneThreadClock()
    supply = _Supply(clock)
    supply.keeps = True
    with Sensor(supply, "supply", clock) as sensor:
        clock.advance(0.1)
        acquisition_of(sensor).step()
        with pmt.region("stopped", sensor) as region:
            for pause_s in (0.1, 2.0, 0.1):
                clock.advance(pause_s)
                acquisition_of(sensor).step()
        measured = region["supply"]
    assert measured.coverage == 1.0
    assert measured.joules == pytest.approx(22.0)
    assert measured.lost == 0


def test_a_region_that_could_not_be_read_may_still_be_asked_for_after_its_sensor_was_closed() -> None:
    clock = ManualClock()
    with Sensor(_Supply(clock), "supply", clock) as sensor, pmt.region("stopped", sensor) as region:
        clock.advance(3.0)
    measured = region["supply"]
    assert measured.coverage == 0.0
    assert measured.joules == 0.0
