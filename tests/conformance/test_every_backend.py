"""One suite over every backend, and all virtual sensors in one world beside the truth and beside each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Timestamps
from pmtpy.emulators._virtual_source import VirtualSource
from pmtpy.emulators.world import shared_world
from pmtpy.errors import TargetError
from pmtpy.sensor.registry import BACKENDS, create, opener
from pmtpy.sensor.sensor import acquisition_of
from pmtpy.testing import check_source

ROOT = Path(__file__).parents[2]
LOAD = "square:low=40,high=100,hz=0.25"  # mean 70 W, a step of 60 W every 2 s

# What the model of each virtual device allows, relative to 1400 J in 20 s (ten steps of 60 W):
ALLOWED = {
    "amdsmi": 0.003,  # an energy accumulator that steps every few ms
    "cray": 0.01,  # counters in whole joules at 10 Hz: a joule and 100 ms of 100 W at either end
    "hwmon": 0.02,  # a mean over 35 ms shown up to 35 ms late: each step misplaced by at most 2.1 J
    "iio": 0.002,  # a step misplaced by at most one conversion of 2.2 ms at either end; rounding is dithered
    "ipmi": 0.05,  # a reading held for a second: 60 W x 0.5 s at either end, and what ten edges leave
    "jetson": 0.02,  # quantised currents (8 mA at 5 V and more), conversions of some ms
    "nvml": 0.01,  # an energy counter that steps every 100 ms: 10 J at either end
    "occ": 0.02,  # whole watts; 40 ms between buffers
    "pmd": 0.002,  # quantisation, dithered by noise; 0.02 % of the voltage's rounding
    "powersensor2": 0.01,  # times from arrivals 5 ms apart: 60 W x 5 ms at ten edges and at the ends; noise of a level
    "powersensor3": 0.002,  # quantisation, dithered by noise
    "rapl": 0.001,  # a counter of microjoules that steps every millisecond
    "redfish": 0.05,  # as ipmi
    # Whole mW; two of five rails are asked every 20 ms: half of 60 W x 20 ms x 0.45 at each of ten edges, of 1400 J.
    "tinkerforge": 0.003,
}


def test_a_backend_is_named_wherever_each_of_them_is() -> None:
    table = (ROOT / "docs/which-sensor.md").read_text(encoding="utf-8")
    stamped = {row for row, *_ in STAMPS}
    missing = []
    for name in BACKENDS:
        places = {
            f"say in ALLOWED by how much the energy of {name}:virtual may be off, and why": name in ALLOWED,
            f"say in STAMPS what the times of the rows of {name}:virtual are": name in stamped,
            f"write its page, docs/backends/{name}.md": (ROOT / f"docs/backends/{name}.md").is_file(),
            f"give {name} a row in the table of docs/which-sensor.md": f"[{name}](backends/{name}.md)" in table,
        }
        missing += [what for what, done in places.items() if not done]
    assert not missing, "\n- ".join(["", *missing])


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_backend_keeps_the_contract_and_tells_the_truth(name: str) -> None:
    check_source(
        lambda clock: opener(name, "virtual")("virtual", clock=clock, load=LOAD), load=LOAD, relative=ALLOWED[name]
    )


@pytest.mark.parametrize("load", ["constant:70", LOAD, "sine:low=40,high=100,hz=0.2", "ramp:low=40,high=100,hz=0.1"])
def test_all_sensors_of_one_world_agree_with_the_truth_and_each_other(load: str) -> None:
    clock = ManualClock()
    world = shared_world(load, clock=clock)
    sensors = {name: create(name, "virtual", clock=clock) for name in sorted(ALLOWED)}
    try:
        found = {}
        for sensor in sensors.values():
            acquisition_of(sensor).step()
        clock.advance(1.0)
        starts = {}
        for name, sensor in sensors.items():
            acquisition_of(sensor).step()
            starts[name] = acquisition_of(sensor).newest
        for _ in range(1000):
            clock.advance(0.02)
            for sensor in sensors.values():
                acquisition_of(sensor).step()
        for name, sensor in sensors.items():
            first, last = starts[name], acquisition_of(sensor).newest
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


# What the times of each virtual device's rows say. NVML's driver stamps what it reads for the call, the momentary power
# of an AMD GPU has no stamp, and no file of sysfs but Cray's has one.
STAMPS = [
    ("amdsmi", {}, Timestamps.DEVICE_UPDATE),
    ("amdsmi", {"total": "power"}, Timestamps.HOST_READ),
    ("cray", {}, Timestamps.DEVICE_UPDATE),
    ("cray", {"stamps": False}, Timestamps.HOST_READ),
    ("hwmon", {}, Timestamps.HOST_READ),
    ("iio", {}, Timestamps.DEVICE_UPDATE),
    ("ipmi", {}, Timestamps.HOST_READ),
    ("jetson", {}, Timestamps.HOST_READ),
    ("nvml", {}, Timestamps.DEVICE_READ),
    ("nvml", {"samples": True}, Timestamps.DEVICE_UPDATE),
    ("occ", {}, Timestamps.DEVICE_UPDATE),
    ("pmd", {}, Timestamps.DEVICE_UPDATE),
    ("powersensor2", {}, Timestamps.HOST_READ),
    ("powersensor3", {}, Timestamps.DEVICE_UPDATE),
    ("rapl", {}, Timestamps.HOST_READ),
    ("redfish", {}, Timestamps.HOST_READ),
    ("tinkerforge", {}, Timestamps.HOST_READ),
]


@pytest.mark.parametrize(("name", "options", "timestamps"), STAMPS)
def test_a_dump_says_whether_its_rows_bear_the_devices_own_times(
    name: str, options: dict[str, Any], timestamps: Timestamps, tmp_path: Path
) -> None:
    clock = ManualClock()
    with create(name, "virtual", clock=clock, **options) as sensor:
        for _ in range(10):
            clock.advance(0.05)
            sensor.read()
        assert acquisition_of(sensor).intake.source.traits.timestamps is timestamps
        sensor.start_dump(tmp_path / "run.csv")
        sensor.stop_dump()
    known = json.loads((tmp_path / "run.csv.json").read_text())
    assert known["stamped"] is (timestamps is not Timestamps.HOST_READ)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_a_virtual_device_that_does_not_exist_is_refused_by_name(name: str) -> None:
    with pytest.raises(TargetError, match="virtual"):
        create(f"{name}:virtuall", clock=ManualClock())


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_a_virtual_source_passes_on_what_the_real_one_says_of_itself(name: str) -> None:
    source = opener(name, "virtual")("virtual", clock=ManualClock())
    assert isinstance(source, VirtualSource)
    real = source.inner
    source.read_row()
    assert source.identity == replace(real.identity, virtual=True)
    assert (source.channels, source.traits) == (real.channels, real.traits)
    assert (source.last_read_failed, source.has_backlog) == (real.last_read_failed, real.has_backlog)
    assert source.last_failure == real.last_failure
    assert source.remarks(0, 2**60) == real.remarks(0, 2**60)
    source.close()
    source.close()
