"""One world for all virtual sensors, and its end."""

from __future__ import annotations

import pytest

import pmtpy as pmt
from pmtpy.errors import TargetError


@pytest.mark.parametrize("target", ["amdsmi:virtual", "nvml:virtual", "rapl:virtual", "hwmon:virtual"])
def test_the_world_ends_with_its_last_sensor(target: str) -> None:
    with pmt.create(target, load="constant:50"), pytest.raises(TargetError, match="close them before"):
        pmt.create(target, load="constant:60")
    with pmt.create(target, load="constant:60") as sensor:
        assert sensor.alive


@pytest.mark.parametrize("target", ["powersensor3:virtual", "hwmon:virtual"])
def test_a_closed_sensor_that_is_still_named_does_not_hold_the_world(target: str) -> None:
    with pmt.create(target, load="constant:50") as closed:
        pass
    with pmt.create("rapl:virtual", load="constant:60") as sensor:
        assert sensor.alive
    assert not closed.alive
