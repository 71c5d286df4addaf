"""The sensors of this machine that are files: ``PMTPY_HARDWARE=rapl,hwmon:amdgpu/0`` (targets of rapl, hwmon, cray).

Each must use a possible power while the machine does something, and count energy forwards.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pytest

import pmtpy as pmt

_ALL = os.environ.get("PMTPY_HARDWARE", "").split(",")
TARGETS = [t for t in _ALL if t.partition(":")[0] in {"rapl", "hwmon", "cray"}]

pytestmark = [
    pytest.mark.hardware,
    pytest.mark.skipif(not TARGETS, reason="needs a machine with such sensors: set PMTPY_HARDWARE=rapl, for example"),
]


@pytest.mark.parametrize("target", TARGETS)
def test_a_real_sensor_shows_a_possible_power_and_counts_forwards(target: str) -> None:
    with pmt.create(target) as sensor:
        assert not sensor.identity.virtual
        states = [sensor.read()]
        for _ in range(20):
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                sum(range(1000))
            states.append(sensor.read())
        assert all(pmt.joules(a, b) >= 0 for a, b in pairwise(states))
        assert 0.1 < pmt.watts(states[0], states[-1]) < 20_000
