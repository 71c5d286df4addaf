"""Commands that measure the same device at one time come to know of each other; of other devices they say nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.cli._measured_twice import measured_twice
from pmtpy.io.origin import Machine
from pmtpy.sensor.sensor import Sensor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs sockets without a file")


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return Machine("here", str(tmp_path), 4)  # where nobody else measures anything


@pytest.fixture
def sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Sensor]]:
    """Two chips, and the first opened once more, as by another process."""
    monkeypatch.setenv("PMT_SYSFS_ROOT", str(tmp_path))
    for number in range(2):
        chip = tmp_path / f"class/hwmon/hwmon{number}"
        chip.mkdir(parents=True)
        (chip / "device").mkdir()
        for name, text in (("name", f"chip{number}"), ("power1_input", "50000000")):
            (chip / name).write_text(f"{text}\n")
    with contextlib.ExitStack() as opened:
        targets = ("hwmon:chip0/0", "hwmon:chip1/0", "hwmon:chip0/0")
        yield [opened.enter_context(pmt.create(target)) for target in targets]


def test_of_two_each_comes_to_know_of_the_other_whichever_was_first(sensors: list[Sensor], here: Machine) -> None:
    first, other, again = sensors
    with measured_twice([first, other], here) as one:
        assert not one.targets()
        with measured_twice([again], here) as two:
            assert two.targets() == {again.target}
        assert one.targets() == {first.target}
    with measured_twice([again], here) as alone:
        assert not alone.targets()


def test_other_devices_and_other_machines_are_none_of_ours(sensors: list[Sensor], here: Machine) -> None:
    first, other, again = sensors
    there = replace(here, node=f"{here.node}/elsewhere")
    with (
        measured_twice([first], here) as one,
        measured_twice([other], here) as two,
        measured_twice([again], there) as elsewhere,
    ):
        assert not one.targets() | two.targets() | elsewhere.targets()


def test_a_device_that_is_named_twice_is_measured_once(sensors: list[Sensor], here: Machine) -> None:
    with measured_twice(sensors, here) as one:
        assert not one.targets()


def test_each_process_has_a_virtual_sensor_of_its_own(here: Machine) -> None:
    with (
        pmt.create("rapl:virtual") as sensor,
        measured_twice([sensor], here) as one,
        measured_twice([sensor], here) as two,
    ):
        assert not one.targets() | two.targets()


def test_who_has_more_callers_than_it_takes_is_called_all_the_same(sensors: list[Sensor], here: Machine) -> None:
    with contextlib.ExitStack() as many, measured_twice(sensors[:1], here) as one:
        later = [many.enter_context(measured_twice(sensors[:1], here)) for _ in range(80)]
        assert all(other.targets() for other in later)
        assert one.targets() == {sensors[0].target}


def test_the_kernel_need_not_show_its_sockets(sensors: list[Sensor], here: Machine, tmp_path: Path) -> None:
    with measured_twice(sensors[:1], here):
        for shown in (b"", b"Num       RefCount Protocol Flags    Type St Inode Path\n\xff: 2 @pmtpy-measures/0/x\n"):
            (tmp_path / "unix").write_bytes(shown)
            with measured_twice(sensors[:1], here, tmp_path / "unix") as other:
                assert not other.targets()
        with measured_twice(sensors[:1], here, tmp_path / "none") as other:
            assert not other.targets()
