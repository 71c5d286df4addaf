"""One world for all virtual sensors, and its end."""

from __future__ import annotations

import pytest

import pmtpy as pmt
from pmtpy.errors import TargetError
from pmtpy.sensor.registry import BACKENDS
from pmtpy.sensor.sensor import acquisition_of


@pytest.mark.parametrize("target", ["amdsmi:virtual", "nvml:virtual", "rapl:virtual", "hwmon:virtual"])
def test_the_world_ends_with_its_last_sensor(target: str) -> None:
    with pmt.create(target, load="constant:50"), pytest.raises(TargetError, match="close them before"):
        pmt.create(target, load="constant:60")
    with pmt.create(target, load="constant:60") as sensor:
        assert acquisition_of(sensor).intake.alive


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_closed_sensor_that_is_still_named_lets_the_next_one_choose_its_load(backend: str) -> None:
    held = []
    for watts in (20, 30, 40):
        with pmt.create(f"{backend}:virtual", load=f"constant:{watts}") as sensor:
            held.append(sensor)
            sensor.read()
    assert not any(acquisition_of(sensor).intake.alive for sensor in held)
