"""What chips that convert one thing after the other do not see is said once, by every backend that reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtpy.backends import hwmon, iio
from pmtpy.backends._ina import in_turn
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.iio import Chip
from pmtpy.emulators.world import make_world


@pytest.mark.parametrize(
    ("chip", "told"),
    [
        ("ina226", "1.1 ms of every 2.2 ms"),
        ("ina219", "0.532 ms of every 1.06 ms"),
        ("ina238", "1.05 ms of every 3.16"),
    ],
)
def test_a_load_in_step_with_the_cycle_is_warned_of(chip: str, told: str) -> None:
    (note,) = in_turn(chip)
    assert told in note
    assert "in step" in note


def test_of_a_chip_that_is_not_known_nothing_is_said_and_times_of_the_driver_count() -> None:
    assert in_turn("ltc2947") == ()
    assert "0.14 ms of every 8.38 ms" in in_turn("ina226", 140e-6, 8.244e-3)[0]


def test_industrial_io_says_it() -> None:
    clock = ManualClock()
    chip = Chip(make_world("constant:20", clock=clock))
    source = iio.open_source(clock=clock, sysfs_root=chip.tree.root, dev_root=chip.dev_root)
    assert sum("in step" in note for note in source.identity.notes) == 1
    source.close()


def test_hwmon_says_it_once(tmp_path: Path) -> None:
    folder = tmp_path / "class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, content in {
        "name": "ina226",
        "power1_input": 5_000_000,
        "update_interval": 36,
        "shunt_resistor": 2000,
    }.items():
        (folder / name).write_text(f"{content}\n")
    source = hwmon.open_source(None, clock=ManualClock(), sysfs_root=tmp_path)
    assert sum("in step" in note for note in source.identity.notes) == 1
    source.close()
