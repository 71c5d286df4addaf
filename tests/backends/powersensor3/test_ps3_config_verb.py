"""``pmtpy config`` as a user calls it, on a virtual board behind a pseudo-terminal."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pmtpy.backends.powersensor3.config import SensorRecord, calibrated_gain, refuse_unlikely
from pmtpy.cli import config
from pmtpy.emulators.powersensor3 import BoardSpec, Stored, VirtualBoard, parse_pairs
from pmtpy.errors import CalibrationError, FileFormatError, TargetError

SPEC = BoardSpec(parse_pairs("MLX10:12:1:gpu"), boot_s=0.05, flash_s=0.05, stored=Stored.UNCALIBRATED)


@pytest.fixture(scope="module")
def board() -> Iterator[VirtualBoard]:
    with VirtualBoard("constant:0", SPEC) as virtual:
        yield virtual


def call(*words: str) -> int:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return config.run(parser.parse_args(words))


def test_the_configuration_is_shown(board: VirtualBoard, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(f"powersensor3:{board.path}") == 0
    out = capsys.readouterr().out
    assert "firmware F411-1.6.1" in out
    assert "0 0 current MLX10 gpu 1.65000 V 0.12000 V/A yes" in " ".join(out.split())


def test_zero_is_calibrated_and_stored(board: VirtualBoard, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(f"ps3:{board.path}", "--sensor", "0", "--calibrate-zero", "--samples", "4000", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    # The true zero of the virtual sensor less 5/12 of a level of rounding; 60 mA rms are 7.2 mV at the pin.
    bias = SPEC.rounding_volts
    assert shown["sensors"][0]["vref"] == pytest.approx(1.636 - bias, abs=5 * 0.0072 / 4000**0.5)
    assert board.history().records[0].vref == shown["sensors"][0]["vref"]


def test_a_gain_is_calibrated_by_a_known_voltage_and_a_wrong_one_is_refused(
    board: VirtualBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    target, gain = f"ps3:{board.path}", ("--sensor", "1", "--samples", "4000", "--json", "--calibrate-gain")
    assert call(target, *gain, "12") == 0
    stored = json.loads(capsys.readouterr().out)["sensors"][1]["sensitivity"]
    assert stored == pytest.approx(0.091, rel=0.003)  # 5/12 of a level of 338
    with pytest.raises(CalibrationError, match="not what is applied"):
        call(target, *gain, "24")
    assert board.history().records[1].sensitivity == stored


def test_a_zero_is_refused_while_something_flows_or_is_connected() -> None:
    with VirtualBoard("constant:60", SPEC) as loaded:
        for sensor in ("0", "1"):
            before = loaded.history().records[int(sensor)].vref
            with pytest.raises(CalibrationError, match="something flows through it or is connected; nothing was"):
                call(f"ps3:{loaded.path}", "--sensor", sensor, "--calibrate-zero", "--samples", "2000")
            assert loaded.history().records[int(sensor)].vref == before


def test_a_sensor_that_was_never_configured_can_be_calibrated() -> None:
    fresh = SensorRecord("MLX10", "x", 0.0, 0.12, in_use=True)
    refuse_unlikely(0, fresh, replace(fresh, vref=1.62))
    unset = SensorRecord("voltage", "x", 0.0, 1.0, in_use=True)
    refuse_unlikely(1, unset, replace(unset, sensitivity=0.091))


def test_an_erased_sensor_takes_no_zero_while_something_flows_and_no_gain_before_its_zero() -> None:
    erased = SensorRecord("MLX10", "x", math.nan, 0.12, in_use=True)
    refuse_unlikely(0, erased, replace(erased, vref=1.62))
    with pytest.raises(CalibrationError, match="something flows through it"):
        refuse_unlikely(0, erased, replace(erased, vref=1.785))  # 1.25 A
    blank = SensorRecord("voltage", "x", math.nan, math.nan, in_use=True)
    refuse_unlikely(1, blank, replace(blank, vref=0.01))
    with pytest.raises(CalibrationError, match="something flows through it or is connected"):
        refuse_unlikely(1, blank, replace(blank, vref=1.09))  # 12 V
    with pytest.raises(CalibrationError, match="sensor 1 has no zero yet"):
        calibrated_gain((erased, blank), 1, 339.0, 12.0)


def test_fields_are_set_by_name_and_a_dry_run_stores_nothing(
    board: VirtualBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"powersensor3:{board.path}"
    call(target, "--sensor", "2", "--type", "MLX20", "--name", "cpu", "--in-use", "on", "--polarity", "-1", "--dry-run")
    assert "MLX20 cpu 0.00000 V -0.06250 V/A yes" in " ".join(capsys.readouterr().out.split())
    assert board.history().records[2].kind == b""
    call(target, "--sensor", "2", "--sensor", "3", "--name", "cpu", "--in-use", "on")
    assert [r.in_use for r in board.history().records[2:4]] == [True, True]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--sensitivity", "120"), "120 mV/A are 0.12 V/A"),
        (("--type", "MLX15"), "is not known"),
        (("--sensitivity", "nan"), "not a finite number"),
        (("--sensitivity", "0"), "infinite"),
        (("--vref", "inf"), "not a finite number"),
        (("--sensitivity", "1e39"), "single precision"),
        (("--name", "a name that is too long"), "cannot be stored"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_sent(
    board: VirtualBoard, words: tuple[str, ...], says: str
) -> None:
    before, boots = board.history().flash, len(board.history().boots)
    with pytest.raises(TargetError, match=says):
        call(f"ps3:{board.path}", "--sensor", "0", *words)
    assert (board.history().flash, len(board.history().boots)) == (before, boots)


def test_an_unlikely_value_is_stored_when_that_is_insisted_on(board: VirtualBoard) -> None:
    target = f"ps3:{board.path}"
    call(target, "--sensor", "4", "--sensitivity", "1.2", "--force")
    assert board.history().records[4].sensitivity == pytest.approx(1.2)


def test_a_configuration_is_saved_and_restored(
    board: VirtualBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, path = f"powersensor3:{board.path}", str(tmp_path / "board.json")
    call(target, "--export", path)
    before = board.history().flash
    call(target, "--sensor", "0", "--vref", "1.5")
    assert board.history().flash != before
    call(target, "--import", path)
    assert board.history().flash == before
    capsys.readouterr()
    call(target, "--export", "-")
    assert capsys.readouterr().out == Path(path).read_text()


def test_wrong_arguments_are_refused_before_the_board_is_touched(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="say which sensor"):
        call("powersensor3:/dev/null", "--vref", "1.65")
    with pytest.raises(TargetError, match="only powersensor3"):
        call("rapl")
    with pytest.raises(TargetError, match="--averaging, --offset: powersensor3 has nothing of the kind"):
        call("powersensor3:/dev/null", "--averaging", "0", "--offset", "eps1.current=-2")
    with pytest.raises(TargetError, match="--name, --export, --reboot: pmd has nothing of the kind"):
        call("pmd:virtual", "--export", str(tmp_path / "board.json"), "--reboot", "--name", "x")
    with pytest.raises(SystemExit):
        call("powersensor3:/dev/null", "--samples", "0")


def test_a_file_that_is_no_configuration_is_refused(board: VirtualBoard, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"x\.json: not a configuration file"):
        call(f"powersensor3:{board.path}", "--import", str(tmp_path / "x.json"))


def test_the_board_is_rebooted(board: VirtualBoard) -> None:
    boots = len(board.history().boots)
    call(f"powersensor3:{board.path}", "--reboot")
    while len(board.history().boots) == boots:
        pass
