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
