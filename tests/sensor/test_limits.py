"""What holds the parts of a whole back is told of the whole."""

from __future__ import annotations

import math

import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.emulators._virtual_source import VirtualSource
from pmtpy.sensor._merged import limits_of
from pmtpy.sensor.sensor import acquisition_of
from tests.support.repeated import FULL, History, Simulated


def test_of_several_sources_each_cause_is_told_with_the_longest_time() -> None:
    sources = [Simulated(FULL, History(), ManualClock()) for _ in range(3)]
    assert limits_of(sources) == {}
    sources[0].held_back = {"power": 2.0, "heat": 1.0}
    sources[2].held_back = {"power": 3.0, "heat": math.inf}
    assert limits_of(sources) == {"power": 3.0, "heat": math.inf}


@pytest.mark.parametrize(
    "rails",
    [["hwmon:virtual/ina226/0", "hwmon:virtual/ina226/1"], ["nvml:virtual", "rapl:virtual"]],
    ids=["read together", "on common rows"],
)
def test_what_is_set_on_each_rail_is_told_of_the_whole(rails: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualSource, "settings", lambda self: {"power limit": f"{self.identity.backend} 80 W"})
    with pmt.combine("accelerator", rails) as sensor:
        told = acquisition_of(sensor).intake.source.settings()
    assert told == {f"{rail}: power limit": f"{rail.partition(':')[0]} 80 W" for rail in rails}
