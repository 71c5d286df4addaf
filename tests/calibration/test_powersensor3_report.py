"""The bench's calibration of a PowerSensor3 pair from dumps: whose they are, and what the board held."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.powersensor3_report import Stored, profiles, recorded
from pmtpy.cli import main

SPEC = ["-o", "load=constant:0", "-o", "pairs=MLX10:12:1:gpu"]


def test_a_dump_tells_the_board_and_what_it_held(tmp_path: Path) -> None:
    path = tmp_path / "idle.csv"
    assert main(["dump", "powersensor3:virtual", *SPEC, "-f", str(path), "--duration", "0.3s"]) == 0
    idle = recorded(str(path), "pair0")
    assert idle.stored.known
    # The virtual module's true zero is 1.636 V; its stored one allows for the firmware's rounding, 5/12 of a level.
    assert idle.stored.vref == pytest.approx(1.636 - 5 / 12 * 3.3 / 1023, abs=1e-5)
    assert (idle.stored.sensitivity, idle.stored.gain) == pytest.approx((0.12, 0.091), rel=1e-6)
    current, voltage = profiles(idle, "pair0", 12.0, 0.01)
    assert current.device.model == voltage.device.model == "PowerSensor3 F411"
    assert current.device.virtual


def test_a_dump_without_the_file_beside_it_is_taken_for_a_common_module(tmp_path: Path) -> None:
    path = tmp_path / "idle.csv"
    assert main(["dump", "powersensor3:virtual", *SPEC, "-f", str(path), "--duration", "0.1s"]) == 0
    (tmp_path / "idle.csv.json").unlink()
    bare = recorded(str(path), "pair0")
    assert bare.stored == Stored()
    assert bare.identity.model == ""
