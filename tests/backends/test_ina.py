"""What chips that convert one thing after the other do not see is said once, by every backend that reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtpy.backends import hwmon, iio, jetson
from pmtpy.backends._ina import in_turn
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.iio import NAME, Chip
from pmtpy.emulators.jetson import Monitors
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
    chip.close()


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


def _board(folder: Path, **files: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"name": "ina226", "update_interval": 36, "shunt_resistor": 2000} | files
    for name, value in content.items():
        (folder / name).write_text(f"{value}\n")
    return folder


@pytest.mark.parametrize(
    ("files", "gain_u"),
    [
        ({"in1_input": 12_000, "curr1_input": 5_000, "power1_input": 60_000_000}, 0.006),
        ({"in1_input": 12_000, "curr1_input": -5_000, "power1_input": 60_000_000}, 0.006),
        ({"in1_input": 12_000, "curr1_input": 5_000, "power1_input": 600_000_000}, 0.9),
        ({"in1_input": 12_000, "curr1_input": 5_000, "power1_input": 30_000_000}, 1.0),
        ({"in1_input": 12_000, "curr1_input": 5, "power1_input": 31_250}, 0.006),  # a step is half of it
        ({"power1_input": 600_000_000}, 0.006),
    ],
)
def test_a_power_at_odds_with_its_own_factors_says_so_and_spans_both(
    tmp_path: Path, files: dict[str, int], gain_u: float
) -> None:
    _board(tmp_path / "class/hwmon/hwmon0", **files)
    source = hwmon.open_source(None, clock=ManualClock(), sysfs_root=tmp_path)
    (power,) = source.channels
    assert power.gain_u == pytest.approx(gain_u, rel=1e-3)
    told = [note for note in source.identity.notes if "voltage times its current" in note]
    assert len(told) == (gain_u > 0.1)
    source.close()


def test_a_shunt_that_is_another_than_at_the_opening_is_told(tmp_path: Path) -> None:
    folder = _board(tmp_path / "class/hwmon/hwmon0", power1_input=5_000_000)
    source = hwmon.open_source(None, clock=ManualClock(), sysfs_root=tmp_path)
    assert source.remarks(0, 1).warnings == ()
    _board(folder, shunt_resistor=10_000)
    (told,) = source.remarks(0, 1).warnings
    assert "a shunt of 0.01 ohm now, and with 0.002 ohm when" in told
    source.close()


def test_so_it_is_of_each_channel_of_a_chip_of_three(tmp_path: Path) -> None:
    folder = _board(tmp_path / "class/hwmon/hwmon0", in2_input=5_000, curr2_input=2_000, shunt2_resistor=5_000)
    (folder / "shunt_resistor").unlink()
    (folder / "name").write_text("ina3221\n")
    source = hwmon.open_source(None, clock=ManualClock(), sysfs_root=tmp_path)
    assert source.remarks(0, 1).warnings == ()
    (folder / "shunt2_resistor").write_text("2500\n")
    (told,) = source.remarks(0, 1).warnings
    assert told.startswith("ina3221/0 shunt2_resistor: the driver reckons with a shunt of 0.0025 ohm now")
    source.close()


@pytest.mark.parametrize("board", ["orin-nx", "thor"])
def test_so_it_is_of_each_rail_of_a_jetson(board: str) -> None:
    clock = ManualClock()
    monitors = Monitors(make_world("constant:20", clock=clock), board, None, 1)
    source = jetson.open_source(None, clock=clock, sysfs_root=monitors.tree.root)
    assert source.remarks(0, 1).warnings == ()
    shunt = min(monitors.tree.root.glob("**/hwmon*/shunt*_resistor"))
    shunt.write_text(f"{2 * int(shunt.read_text())}\n")
    (told,) = source.remarks(0, 1).warnings
    assert "powers before and after the change are of two scales" in told
    source.close()
    monitors.tree.close()


def test_so_it_is_of_a_chip_of_industrial_io() -> None:
    clock = ManualClock()
    chip = Chip(make_world("constant:20", clock=clock))
    source = iio.open_source(clock=clock, sysfs_root=chip.tree.root, dev_root=chip.dev_root)
    assert source.remarks(0, 1).warnings == ()
    chip.tree.write(f"{iio.DEVICES}/{NAME}/in_shunt_resistor", "0.002000")
    (told,) = source.remarks(0, 1).warnings
    assert "a shunt of 0.002 ohm now, and with 0.004 ohm when" in told
    source.close()
    chip.close()
