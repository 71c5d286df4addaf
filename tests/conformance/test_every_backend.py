"""One suite over every backend, and all virtual sensors in one world beside the truth and beside each other."""

from __future__ import annotations

import pytest

from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import shared_world
from pmtpy.sensor.registry import BACKENDS, create, opener
from pmtpy.testing import check_source

LOAD = "square:low=40,high=100,hz=0.25"  # mean 70 W, a step of 60 W every 2 s

# What the model of each virtual device allows, relative to 1400 J in 20 s (ten steps of 60 W):
ALLOWED = {
    "amdsmi": 0.003,  # an energy accumulator that steps every few ms
    "cray": 0.01,  # counters in whole joules at 10 Hz: a joule and 100 ms of 100 W at either end
    "hwmon": 0.02,  # a mean over 35 ms shown up to 35 ms late: each step misplaced by at most 2.1 J
    "jetson": 0.02,  # quantised currents (8 mA at 5 V and more), conversions of some ms
    "nvml": 0.01,  # an energy counter that steps every 100 ms: 10 J at either end
    "occ": 0.02,  # whole watts; 40 ms between buffers
    "powersensor3": 0.002,  # quantisation, dithered by noise
    "rapl": 0.001,  # a counter of microjoules that steps every millisecond
}


def test_every_backend_has_its_allowance() -> None:
    assert set(ALLOWED) == set(BACKENDS)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_a_backend_keeps_the_contract_and_tells_the_truth(name: str) -> None:
    check_source(
        lambda clock: opener(name, "virtual")("virtual", clock=clock, load=LOAD), load=LOAD, relative=ALLOWED[name]
    )


@pytest.mark.parametrize("load", ["constant:70", LOAD, "sine:low=40,high=100,hz=0.2", "ramp:low=40,high=100,hz=0.1"])
def test_all_sensors_of_one_world_agree_with_the_truth_and_each_other(load: str) -> None:
    clock = ManualClock()
    world = shared_world(load, clock=clock)
    sensors = {name: create(name, "virtual", clock=clock) for name in sorted(BACKENDS)}
    try:
        found = {}
        for sensor in sensors.values():
            sensor._curve.step()
        clock.advance(1.0)
        starts = {}
        for name, sensor in sensors.items():
            sensor._curve.step()
            starts[name] = sensor._curve.newest
        for _ in range(1000):
            clock.advance(0.02)
            for sensor in sensors.values():
                sensor._curve.step()
        for name, sensor in sensors.items():
            first, last = starts[name], sensor._curve.newest
            assert first is not None
            assert last is not None
            truth = world.joules_between(first.t_ns, last.t_ns)
            found[name] = (last.joules[0] - first.joules[0]) / truth
            assert found[name] == pytest.approx(1.0, abs=ALLOWED[name]), name
            assert sensor.identity.virtual
    finally:
        for sensor in sensors.values():
            sensor.close()
    for name, ratio in found.items():
        for other, theirs in found.items():
            assert ratio == pytest.approx(theirs, abs=ALLOWED[name] + ALLOWED[other])
