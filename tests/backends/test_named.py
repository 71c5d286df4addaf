"""What is said of a device that somebody names, by each backend that must be told which."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtpy.backends import hwmon, pmd, powersensor2, redfish, tinkerforge
from pmtpy.backends.machine import Machine
from pmtpy.core import Obstacle, Verdict


def test_what_is_asked_over_the_network_is_there_once_it_is_named() -> None:
    for discover in (redfish.discover, tinkerforge.discover):
        assert discover().devices == ()
        found = discover("bmc.example")
        assert found.devices == ("bmc.example",)
        assert found.findings[0].usable


@pytest.mark.skipif(not Path("/dev/null").is_char_device(), reason="this system has no /dev/null")
def test_a_device_of_everybody_is_no_port_whose_users_are_to_be_ended(tmp_path: Path) -> None:
    machine = Machine(tmp_path, tmp_path / "sys")
    for discover in (pmd.discover, powersensor2.discover):
        (finding,) = discover("/dev/null", machine=machine).findings
        assert finding.obstacle is Obstacle.SETTING
        assert "not a serial port" in finding.found
        assert "kill" not in finding.remedy


def test_a_chip_that_is_not_there_is_not_said_to_measure(tmp_path: Path) -> None:
    (tmp_path / "sys/class/hwmon").mkdir(parents=True)
    (finding,) = hwmon.discover("foo", machine=Machine(tmp_path, tmp_path / "sys")).findings
    assert finding.verdict is Verdict.ABSENT
    assert "no chip is called foo" in finding.found
