"""Counters of GPUs that rest while the GPU works, read by the vendors' own wrappers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.amdsmi import VirtualCard as AmdCard
from pmtpy.emulators.world import World
from pmtpy.sensor.sensor import Sensor
from tests.backends.amdsmi.rig import Rig as AmdRig
from tests.backends.nvml.rig import Rig as NvmlRig

ENERGY = (83, 0)  # field and scope of NVML's counter
UNIT = 15.2587890625e-6  # of AMD's accumulator, joules


@dataclass
class Bench:
    """A GPU that draws 200 W, or a moving load, and a switch that lets its counter stand still."""

    clock: ManualClock
    world: World
    sensor: Sensor
    stop: Callable[[], None]
    go_on: Callable[[bool], None]

    def run(self, seconds: float) -> None:
        """Let time pass, read as the poller does."""
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)
            self.sensor.read()

    def truth(self, seconds: float) -> float:
        now_ns = self.clock.now_ns()
        return float(self.world.joules_between(now_ns - round(seconds * 1e9), now_ns))


def nvml(load: str) -> Bench:
    rig = NvmlRig(load=load)
    sensor = Sensor(rig.open(), "nvml", rig.clock)
    gpu = rig.gpus[0]
    began: list[int] = []

    def shown() -> int:
        return gpu.counter_mj + round(float(rig.world.joules(rig.clock.now_ns())) * 1000)

    def stop() -> None:
        began[:] = [shown()]
        gpu.garbage[ENERGY] = began[0]

    def go_on(catches_up: bool) -> None:  # noqa: FBT001  (one of two ways)
        del gpu.garbage[ENERGY]
        if not catches_up:
            gpu.counter_mj -= shown() - began[0]

    return Bench(rig.clock, rig.world, sensor, stop, go_on)


def amd(load: str) -> Bench:
    rig = AmdRig(load=load)
    sensor = Sensor(rig.open(), "amdsmi", rig.clock)
    card = rig.cards[0]
    began: list[int] = []

    def shown() -> int:
        return card.count + int(float(rig.world.joules(rig.clock.now_ns())) / UNIT)

    def stop() -> None:
        began[:] = [shown()]
        card.shows["energy"] = began[0]

    def go_on(catches_up: bool) -> None:  # noqa: FBT001  (one of two ways)
        del card.shows["energy"]
        if not catches_up:
            card.count -= shown() - began[0]

    return Bench(rig.clock, rig.world, sensor, stop, go_on)


MAKERS = [nvml, amd]
LOADS = ["constant:200", "square:low=100,high=300,hz=3.3"]


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("seconds", [0.4, 0.8])
def test_a_region_inside_a_short_rest_is_not_zero_without_a_word(
    make: Callable[[str], Bench], load: str, seconds: float
) -> None:
    bench = make(load)
    with bench.sensor as sensor:
        bench.run(2.0)
        bench.stop()
        bench.run(0.1)
        with pmt.region("inside", sensor) as r:
            bench.run(seconds)
        truth = bench.truth(seconds)
        for m in (r[sensor.target], r[sensor.target].channels["gpu.energy"]):
            assert m.joules == pytest.approx(0, abs=0.2 * truth)
            # The truth is within two standard deviations, and a sentence says what has happened.
            assert abs(m.joules - truth) < 2 * m.uncertainty_joules
            assert any("the counter says" in w and "gpu." in w for w in m.warnings)


@pytest.mark.parametrize("make", MAKERS)
def test_a_healthy_counter_is_not_contradicted(make: Callable[[str], Bench]) -> None:
    bench = make("square:low=100,high=300,hz=0.7")
    with bench.sensor as sensor:
        bench.run(1.0)
        for seconds in (0.4, 1.0, 3.0):
            with pmt.region("work", sensor) as r:
                bench.run(seconds)
            m = r[sensor.target]
            assert m.coverage == 1.0
            assert not any("the counter says" in w for w in m.warnings)


@pytest.mark.parametrize("catches_up", [True, False])
@pytest.mark.parametrize("make", MAKERS)
def test_the_time_of_a_longer_rest_has_no_known_energy(make: Callable[[str], Bench], *, catches_up: bool) -> None:
    bench = make("constant:200")
    with bench.sensor as sensor:
        bench.run(2.0)
        with pmt.region("around", sensor) as r:
            bench.run(3.0)
            bench.stop()
            bench.run(4.0)
            bench.go_on(catches_up)
            bench.run(3.0)
        m = r[sensor.target]
        # From the last move before the rest to the first behind it, up to a refresh more at either end.
        assert m.coverage == pytest.approx(1 - 4.0 / 10.0, abs=0.03)
        assert m.joules == pytest.approx(200 * 6.0, abs=200 * 0.2)
        assert abs(m.joules - 2000) < 2 * m.uncertainty_joules
        assert any("no energy is known" in w for w in m.warnings)


@pytest.mark.parametrize("make", MAKERS)
def test_plain_readings_inside_a_longer_rest_are_refused(make: Callable[[str], Bench]) -> None:
    bench = make("constant:200")
    with bench.sensor as sensor:
        bench.run(2.0)
        bench.stop()
        bench.run(1.5)
        a = sensor.read()
        bench.run(3.0)
        with pytest.raises(pmt.CoverageError, match="is not known"):
            pmt.joules(a, sensor.read())


def test_an_accumulator_without_a_power_beside_it_is_not_believed_to_rest() -> None:
    rig = AmdRig(AmdCard("X", current=False, average=False), load="constant:200")
    with Sensor(rig.open(), "amdsmi", rig.clock) as sensor:
        rig.cards[0].shows["energy"] = 12_000_000
        a = sensor.read()
        for _ in range(60):
            rig.clock.advance(0.05)
            sensor.read()
        with pytest.raises(pmt.CoverageError, match="is not known"):
            pmt.joules(a, sensor.read())


def test_a_counter_of_nvml_without_a_power_beside_it_is_not_believed_to_rest() -> None:
    rig = NvmlRig(load="constant:200")
    gpu = rig.gpus[0]
    for field in ((185, 0), (186, 0)):
        gpu.codes[field] = 3
    gpu.codes["nvmlDeviceGetPowerUsage"] = 3
    with Sensor(rig.open(), "nvml", rig.clock) as sensor:
        assert [c.name for c in sensor.channels if c.measures_energy] == ["gpu.energy", "memory.average"]
        rig.clock.advance(0.5)
        a = sensor.read()
        gpu.garbage[ENERGY] = 50_123_456
        for _ in range(80):
            rig.clock.advance(0.05)
            sensor.read()
        with pytest.raises(pmt.CoverageError, match="is not known"):
            pmt.joules(a, sensor.read())
