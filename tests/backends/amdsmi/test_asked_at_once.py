"""A load that begins and ends with a region, on a card that was opened just before it: what is said of it at once."""

from __future__ import annotations

import math

import pytest

from pmtpy.core.clock import NS_PER_S
from pmtpy.emulators.amdsmi import VirtualCard
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.backends.amdsmi.rig import Rig
from tests.support.clocks import OneThreadClock

IDLE, BUSY = 100.0, 700.0
POLL_S = 0.05
OPENED_S = [0.002 * k for k in range(1, 51)]  # before the region: from less than a poll to two of them


def measured(card: VirtualCard, opened_s: float, length_s: float) -> Measurement:
    """Return what is said of a block at once; the accumulator is polled as usual from its opening on."""
    begin_s = 1.0 + opened_s
    rig = Rig(card, load=f"steps:0={IDLE},{begin_s}={BUSY},{begin_s + length_s}={IDLE}", clock=OneThreadClock())
    rig.clock.advance(1.0)
    with Sensor(rig.open(), "card", rig.clock, interval_s=POLL_S) as sensor:

        def until(t_s: float) -> None:
            """Poll as a poller does, which an end of a region does not wait for."""
            end_ns = rig.world.epoch_ns + round(t_s * NS_PER_S)
            while rig.clock.now_ns() < end_ns:
                next_ns = rig.world.epoch_ns + NS_PER_S
                while next_ns <= rig.clock.now_ns():
                    next_ns += round(POLL_S * NS_PER_S)
                rig.clock.advance((min(next_ns, end_ns) - rig.clock.now_ns()) / NS_PER_S)
                if next_ns <= end_ns:
                    acquisition_of(sensor).step()

        until(begin_s)
        with Region("work", {"card": sensor}) as region:
            until(begin_s + length_s)
        return region["card"]


@pytest.mark.parametrize("length_s", [0.005, 0.02, 0.04])
def test_what_an_accumulator_counted_since_its_opening_may_all_be_of_the_region_or_none(length_s: float) -> None:
    """Of 20 ms of 700 W 6.1 +- 1.8 J were said: a line from the opening to the first move, as if it were known."""
    used = BUSY * length_s
    found = [measured(VirtualCard("AMD Instinct MI300X", average=False), opened_s, length_s) for opened_s in OPENED_S]
    held = sum(abs(m.joules - used) <= 1.96 * m.uncertainty_joules for m in found)
    assert held >= 0.93 * len(found), held


@pytest.mark.parametrize("cap", [750, 750_000_000])  # before release 6.1.2, and since
def test_three_times_the_largest_cap_is_the_most_that_a_card_can_draw(cap: int) -> None:
    card = VirtualCard("AMD Instinct MI300X", average=False, cap=cap)
    source = Rig(card).open()
    assert [c.max_watts for c in source.channels[:2]] == [2250.0, 2250.0]
    card.shows["power"] = 2251
    assert math.isnan(source.read().raw[0][1])


@pytest.mark.parametrize("cap", [0, 0xFFFF, 2**64 - 1])  # not supported, and sentinels
def test_a_card_that_states_no_cap_draws_less_than_any(cap: int) -> None:
    source = Rig(VirtualCard("AMD Instinct MI300X", average=False, cap=cap)).open()
    assert [c.max_watts for c in source.channels[:2]] == [5000.0, 5000.0]
