"""Trees whose files live on a clock of their own, made without the project's emulators, opened as a user opens them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.backends._sysfs import content_of
from pmtpy.regions.measurement import Measurement
from tests.support.trees import (
    Constant,
    Ina3221,
    Load,
    Occ,
    Square,
    SteppedClock,
    Tree,
    chip,
    processor,
    register,
    zone,
)

HUNDRED = Constant(100.0)
AMD, INTEL = 2, 0


class Stage:
    """A machine below a temporary root, and how it is measured."""

    def __init__(self, root: Path) -> None:
        self.clock = SteppedClock()
        self.tree = Tree(root, self.clock)

    def open(self, backend: str, **options: Any) -> pmt.Sensor:
        return pmt.create(backend, clock=self.clock, sysfs_root=str(self.tree.root), **options)

    def measure(
        self,
        backend: str,
        seconds: float,
        *,
        polls_s: float = 0.0,
        polled: bool = False,
        before_s: float = 0.05,
        **options: Any,
    ) -> Measurement:
        """Measure a stretch some time after the opening; ``polled`` if a thread of the sensor's own reads."""
        sleepers = int(polled)
        with self.open(backend, **options) as sensor:
            for _ in range(round(before_s / polls_s) if polls_s else 1):
                self.clock.advance(polls_s or before_s, sleepers=sleepers)
                sensor.read()
            with pmt.region("x", sensor) as region:
                for _ in range(round(seconds / polls_s) if polls_s else 0):
                    self.clock.advance(polls_s)
                    sensor.read()
                if not polls_s:
                    self.clock.advance(seconds, sleepers=sleepers)
            self.clock.advance(0.3, sleepers=sleepers)
            return region[sensor.target]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "sys")


def told(measured: Measurement, *words: str) -> bool:
    return any(all(word in warning for word in words) for warning in measured.warnings)


# -- RAPL --------------------------------------------------------------------------------------------------------------


def test_a_counter_that_never_moves_is_no_zero(stage: Stage) -> None:
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", "123456789\n")
    total = stage.measure("rapl", 0.5)
    assert total.coverage == 0.0
    assert abs(total.joules - 50.0) < 2 * total.uncertainty_joules
    assert told(total, "package0", "rests although the part is powered")
    with stage.open("rapl") as sensor:
        a = sensor.read()
        stage.clock.advance(1.0)
        with pytest.raises(pmt.CoverageError, match="rests"):
            pmt.joules(a, sensor.read())


@pytest.mark.parametrize("interval", [None, 2.0])
def test_a_region_beside_a_dump_is_as_good_as_without(stage: Stage, tmp_path: Path, interval: float | None) -> None:
    """The counter is read at both ends: between rows of a dump, 0.1 or 2 s apart, a burst can lie anywhere."""
    load = Square(10.0, 200.0, 0.9, duty=0.2)
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", register(load))
    with stage.open("rapl") as sensor, sensor.dump(tmp_path / "run.csv", interval=interval):
        for length_s in (0.13, 0.37, 0.05, 0.61):
            stage.clock.advance(0.217, sleepers=1)
            begin_s = stage.clock.seconds
            with pmt.region("x", sensor) as region:
                stage.clock.advance(length_s, sleepers=1)
            truth = load.between(begin_s, stage.clock.seconds)
            assert region["rapl"].joules == pytest.approx(truth, abs=2 * 200.0 * 2**-10)
            assert region["rapl"].uncertainty_joules < 0.03 * truth + 0.4
    rows = pmt.load(tmp_path / "run.csv")
    assert not rows.attrs["notes"]
    assert rows["total_J"].iloc[-1] == pytest.approx(load.between(*rows["time"].iloc[[0, -1]] - 1.7e9), abs=0.4)


def test_one_frozen_package_leaves_the_other_known(stage: Stage) -> None:
    processor(stage.tree, INTEL, packages=2)
    zone(stage.tree, "0", "package-0", register(HUNDRED))
    zone(stage.tree, "1", "package-1", "55555\n")
    total = stage.measure("rapl", 0.5)
    assert total.coverage == 0.0
    assert total.channels["package0"].coverage == pytest.approx(1.0, abs=1e-6)  # a row may come a moment late
    assert total.channels["package0"].joules == pytest.approx(50.0, abs=0.2)
    assert told(total, "package1", "rests")


def test_a_frozen_package_can_be_left_out(stage: Stage) -> None:
    processor(stage.tree, INTEL, packages=2)
    zone(stage.tree, "0", "package-0", register(HUNDRED))
    zone(stage.tree, "1", "package-1", "55555\n")
    total = stage.measure("rapl", 0.5, without="package1")
    assert total.coverage == pytest.approx(1.0, abs=1e-6)
    assert total.joules == pytest.approx(50.0, abs=0.2)
    assert told(total, "package1 is left out", "PARTIAL")


def test_graphics_that_are_switched_off_rest(stage: Stage) -> None:
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", register(HUNDRED))
    zone(stage.tree, "0:0", "uncore", "1234567\n")
    total = stage.measure("rapl", 0.5)
    assert (total.coverage, total.channels["package0.uncore"].coverage) == (1.0, 1.0)
    assert not total.warnings


@pytest.mark.parametrize("watts", [100.0, 400.0])
def test_a_counter_of_one_step_a_second_loses_nothing(stage: Stage, watts: float) -> None:
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", register(Constant(watts), step_s=1.0))
    total = stage.measure("rapl", 10.0, polls_s=0.02, before_s=1.5)
    assert total.joules == pytest.approx(10 * watts, abs=watts / 100)
    assert total.coverage == 1.0


def test_until_its_first_step_a_slow_counter_may_be_a_frozen_one(stage: Stage) -> None:
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", register(HUNDRED, step_s=1.0))
    total = stage.measure("rapl", 10.0, polls_s=0.02)
    assert total.joules == pytest.approx(900.0, abs=1.0)
    assert total.coverage == pytest.approx(0.9, abs=0.01)
    assert told(total, "rests although the part is powered")


def test_the_dies_of_amd_count_once_although_the_opener_is_held_up_between_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 of 300 openings beside four busy processes read the dies 30 ms apart."""
    processor(stage.tree, AMD)
    for die in (0, 1):
        zone(stage.tree, str(die), f"package-0-die-{die}", register(HUNDRED, unit_j=2.0**-16), limits=False)

    def held_up(path: Path) -> bytes:
        content = content_of(path)
        if path.name == "energy_uj":
            stage.clock.advance(0.03)
        return content

    monkeypatch.setattr("pmtpy.backends.rapl._device.content_of", held_up)
    total = stage.measure("rapl", 0.5)
    assert total.joules == pytest.approx(50.0, abs=0.3)
    assert told(total, "counted once per package")


def test_dies_that_prove_to_count_on_their_own_are_added(stage: Stage) -> None:
    processor(stage.tree, AMD)
    for die in (0, 1):
        counter = register(HUNDRED, unit_j=2.0**-16, start_j=500.0 + 77 * die)
        zone(stage.tree, str(die), f"package-0-die-{die}", counter, limits=False)
    assert stage.measure("rapl", 0.5).joules == pytest.approx(100.0, abs=0.5)


@pytest.mark.parametrize("dangling", [True, False])
def test_a_processor_that_no_zone_counts_is_told(stage: Stage, *, dangling: bool) -> None:
    processor(stage.tree, INTEL, packages=2)
    zone(stage.tree, "0", "package-0", register(HUNDRED))
    if dangling:
        stage.tree.link("class/powercap/intel-rapl:1", "devices/virtual/powercap/intel-rapl/intel-rapl:1")
    assert told(stage.measure("rapl", 0.5), "PARTIAL")


def test_a_platform_that_fails_is_lost_by_itself(stage: Stage) -> None:
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", register(HUNDRED))
    fails_at = stage.clock.seconds + 1.0
    platform = register(Constant(150.0))
    zone(stage.tree, "1", "psys", lambda t: "none\n" if t > fails_at else platform(t))
    total = stage.measure("rapl", 10.0, polls_s=0.05)
    assert total.coverage == 1.0
    assert total.joules == pytest.approx(1000.0, abs=0.3)
    assert total.lost == 0
    assert total.channels["psys"].coverage == pytest.approx(0.095, abs=0.015)
    assert any("could not be read" in w for w in total.channels["psys"].warnings)


def test_a_device_that_is_busy_for_a_moment_is_not_lost_to_a_tight_reader(stage: Stage) -> None:
    processor(stage.tree, INTEL)
    busy_s, counter = stage.clock.seconds + 0.3, register(HUNDRED)
    zone(stage.tree, "0", "package-0", lambda t: "" if busy_s < t < busy_s + 0.06 else counter(t))
    total = stage.measure("rapl", 1.0, polls_s=0.001)
    assert total.joules == pytest.approx(100.0, abs=0.3)


# -- boards ------------------------------------------------------------------------------------------------------------


def jetson(stage: Stage, *loads: Load, samples: int = 1, phase_s: float = 0.0) -> None:
    stage.tree.put("firmware/devicetree/base/compatible", "nvidia,p3767-0005\0nvidia,tegra234\0")
    monitor = Ina3221(list(loads), samples=samples, phase_s=phase_s)
    monitor.put(stage.tree, 3, ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])


def test_a_module_at_zero_watts_is_a_fault(stage: Stage) -> None:
    jetson(stage, Constant(0.0), Constant(8.0), Constant(2.0))
    total = stage.measure("jetson", 1.0, polled=True)
    assert total.coverage == 0.0
    assert total.channels["vdd_soc"].joules == pytest.approx(2.0, abs=0.1)
    assert told(total, "vdd_in", "0 W although the part is powered")


@pytest.mark.parametrize("watts", [(0.0, 0.0, 0.0), (0.0, 8.0, 2.0)])
def test_rails_that_make_the_module_are_not_all_at_zero_but_one_may_be(stage: Stage, watts: tuple[float, ...]) -> None:
    stage.tree.put("firmware/devicetree/base/compatible", "nvidia,p3701-0005\0nvidia,tegra234\0")
    monitor = Ina3221([Constant(w) for w in watts])
    monitor.put(stage.tree, 3, ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"])
    total = stage.measure("jetson", 1.0, polled=True)
    assert total.coverage == (1.0 if any(watts) else 0.0)
    assert total.joules == pytest.approx(sum(watts), abs=0.1)
    assert bool(total.uncertainty_joules > 1.0 or math.isnan(total.uncertainty_joules)) == (not any(watts))


@pytest.mark.parametrize("backend", ["rapl", "jetson"])
def test_a_whole_that_its_part_exceeds_is_not_known(stage: Stage, backend: str) -> None:
    processor(stage.tree, INTEL)
    zone(stage.tree, "0", "package-0", register(HUNDRED, share=0.01))
    zone(stage.tree, "0:0", "core", register(HUNDRED))
    jetson(stage, Constant(5.0), Constant(8.0), Constant(2.0))
    total = stage.measure(backend, 1.0, polled=backend == "jetson")
    assert total.coverage == 0.0
    assert told(total, "a part of it")
    assert total.joules + 2 * total.uncertainty_joules > {"rapl": 100.0, "jetson": 8.0}[backend]


def test_an_energy_that_rests_while_a_part_of_it_does_not_is_not_known(stage: Stage) -> None:
    moving = lambda t: f"{int(50e6 * t)}\n"  # noqa: E731
    files: dict[str, Any] = {"energy1_label": "card\n", "energy1_input": "5000000\n"}
    files |= {"energy2_label": "pkg\n", "energy2_input": moving}
    chip(stage.tree, 0, "xe", files, device="pci0000:00/0000:03:00.0")
    total = stage.measure("hwmon", 0.5)
    assert total.coverage == 0.0
    assert total.channels["pkg"].joules == pytest.approx(25.0, abs=0.01)
    assert abs(total.joules - 25.0) < 2 * total.uncertainty_joules


def test_a_meter_that_shows_zero_is_a_fault(stage: Stage) -> None:
    chip(stage.tree, 0, "power_meter", {"power1_average": "0\n", "power1_average_interval": "50\n"})
    total = stage.measure("hwmon", 0.5, polled=True)
    assert total.coverage == 0.0
    assert told(total, "0 W although the part is powered")


@pytest.mark.parametrize("shown", [0, -4_000_000])
def test_a_part_that_shows_nothing_for_a_moment_may_have_been_on(stage: Stage, shown: int) -> None:
    """Of an unknown rail nothing says that it is powered: what would be missing is stated, what was shown is kept."""
    begin = stage.clock.seconds + 1.0
    power = lambda t: f"{shown if begin <= t < begin + 0.3 else 90_000_000}\n"  # noqa: E731
    chip(stage.tree, 0, "ina226", {"power1_input": power}, device="i2c-2/2-0041")
    total = stage.measure("hwmon", 2.0, polled=True)
    assert total.coverage == 1.0
    assert total.joules < 160.0
    assert abs(total.joules - 180.0) < 2 * total.uncertainty_joules
    assert told(total, "no power for a moment", "J are missing")


def test_a_part_that_is_switched_on_and_off_is_believed(stage: Stage) -> None:
    load = Square(0.0, 90.0, 1.0)
    power = lambda t: f"{round(load.watts(t) * 1e6)}\n"  # noqa: E731
    chip(stage.tree, 0, "ina226", {"power1_input": power}, device="i2c-2/2-0041")
    total = stage.measure("hwmon", 6.0, polled=True)
    assert abs(total.joules - 270.0) < 3 * total.uncertainty_joules < 60.0
    assert not told(total, "no power for a moment")


def test_a_machine_that_uses_nothing_is_a_fault(stage: Stage) -> None:
    stops = stage.clock.seconds + 1.0
    sensors: dict[str, tuple[Load, float]] = {
        "PWRSYS": (Square(0.0, 300.0, 1e6, phase=stops - 5e5), 2000.0),
        "PWRPROC": (HUNDRED, 2000.0),
    }
    occ = Occ(sensors)
    stage.tree.put("firmware/opal/exports/occ_inband_sensors", occ.show)
    total = stage.measure("occ", 3.0, polled=True)
    assert total.coverage == pytest.approx(0.33, abs=0.05)
    assert told(total, "system", "0 W although the part is powered")
    assert total.channels["socket0.processor"].coverage == 1.0


def test_labels_that_are_taken_are_made_unique(stage: Stage) -> None:
    chip(stage.tree, 0, "foo", {"power1_input": "5000000\n", "power1_label": "total\n"})
    for i in range(4):
        text = {"power1_average": "5000000\n", "power1_oem_info": "Power\n", "power1_average_interval": "50\n"}
        chip(stage.tree, 1 + i, "power_meter", text, device=f"LNXSYSTM:00/ACPI000D:0{i}")
    with stage.open("hwmon:foo") as sensor:
        assert [c.name for c in sensor.channels] == ["total.power"]
    with stage.open("hwmon:power_meter") as sensor:
        assert [c.name for c in sensor.channels] == ["power", "power.average", "power.power1", "power.2"]


def test_facts_that_cannot_be_are_not_taken_from_files(stage: Stage) -> None:
    jetson(stage, Constant(15.0), Constant(8.0), Constant(2.0))
    folder = "devices/i2c-1/1-0040/hwmon/hwmon3"
    stage.tree.put(f"{folder}/update_interval", "-5\n")
    stage.tree.put(f"{folder}/samples", "-4\n")
    files = {"power1_input": "5000000\n", "update_interval": "-3\n", "shunt_resistor": "-4\n"}
    chip(stage.tree, 0, "ina226", files, device="i2c-2/2-0041")
    for backend, joules in (("jetson", 15.0), ("hwmon:ina226", 5.0)):
        total = stage.measure(backend, 1.0, polled=True)
        assert total.joules == pytest.approx(joules, rel=0.01)
        assert 0 < total.uncertainty_joules < joules
        assert not any(
            "-" in word for w in total.warnings for word in w.split() if word.rstrip("%").lstrip("-").isdigit()
        )


def test_a_load_of_the_period_of_the_polls_is_not_always_met_at_one_phase(stage: Stage) -> None:
    """Readings every 50 or 100 ms on a lattice show 25 W, or 5 W, of a load that switches between them every 50 ms."""
    load = Square(5.0, 25.0, 0.1, duty=0.5)
    jetson(stage, load, Constant(3.0), Constant(2.0))
    total = stage.measure("jetson", 10.0, polled=True)
    # 200 readings at random phases, each 10 W off: 0.7 W.
    assert total.watts == pytest.approx(15.0, abs=3 * 0.7)
    assert abs(total.joules - 150.0) < 2 * total.uncertainty_joules


def test_a_partial_block_of_the_occ_is_told(stage: Stage) -> None:
    occ = Occ({"PWRSYS": (Constant(300.0), 2000.0)})
    stage.tree.put("firmware/opal/exports/occ_inband_sensors", lambda t: occ.show(t) + bytes(70_000))
    assert told(stage.measure("occ", 1.0, polled=True), "70000 bytes", "no whole block")


def test_a_socket_without_the_meter_that_another_has_is_told(stage: Stage) -> None:
    meters = [("Module", 0, 500.0), ("Grace", 0, 300.0), ("Grace", 1, 300.0)]
    for i, (kind, socket, watts) in enumerate(meters):
        text = {"power1_average": f"{int(watts * 1e6)}\n", "power1_average_interval": "50\n"}
        text["power1_oem_info"] = f"{kind} Power Socket {socket}\n"
        chip(stage.tree, i, "power_meter", text, device=f"LNXSYSTM:00/ACPI000D:0{i}")
    assert told(stage.measure("hwmon", 1.0, polled=True), "socket 1 has no module meter")
