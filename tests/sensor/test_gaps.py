"""A power that must be sampled, and a program that could not sample it for a while."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import PolledSource, Traits
from pmtpy.sensor.sensor import Sensor


class _Supply(PolledSource):
    """A momentary power, renewed every 0.1 s."""

    identity = Identity("test")
    channels = (Channel("power", Quantity.POWER, refresh_s=0.1, domain="external/supply"),)
    traits = Traits(interval_s=0.1)

    def poll(self) -> Sequence[float] | None:
        return [10.0]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("away_s", [0.9, 2.0])
def test_that_nothing_could_be_read_for_long_is_said_of_the_region_and_of_no_other(away_s: float) -> None:
    clock = ManualClock()
    with Sensor(_Supply(clock), "supply", clock) as sensor:
        regions = pmt.region("stopped", sensor), pmt.region("afterwards", sensor)
        for region, longest_s in zip(regions, (away_s, 0.1), strict=True):
            with region:
                for pause_s in (0.1, longest_s, 0.1):
                    clock.advance(pause_s)
                    sensor._acquisition.step()
        told = [any("nothing could be read for 2 s" in w for w in r["supply"].warnings) for r in regions]
        assert told == [away_s > 1.0, False]
