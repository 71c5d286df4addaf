"""What a verb writes that took work to make does not take the place of an older file unless that is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pmtpy.cli import main

BEFORE = "of yesterday\n"
Words = Callable[[Path], list[str]]


def _profile(folder: Path) -> list[str]:
    kernel = {"family": "boxcar", "window_ms": _near(100.0), "tau_ms": None, "offset_ms": _near(0.0)}
    found = {
        "channel": "gpu", "update_period_ms": _near(100.0), "kernel": kernel, "gradient": _near(0.95),
        "intercept_w": _near(2.0), "declined": {},
    }  # fmt: skip
    (folder / "found.json").write_text(json.dumps(found))
    return ["calibrate", "profile", str(folder / "found.json"), "--device", "a card", "--range", "20,700", "-o"]


def _near(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def _transfer(folder: Path) -> list[str]:
    lines = ["config,set_clock_mhz,core_freq_mhz,temperature_c,time_ms,power_w"]
    for i in range(5):
        lines += [f"c{i},{mhz},{mhz},50,{1e5 / mhz + i:g},{50 + i + mhz / 10:g}" for mhz in (1200, 1500, 1800)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    table = str(folder / "table.csv")
    return ["calibrate", "transfer", "--train", table, "--measured", table, "--clocks", "1500", "-o"]


def _export(folder: Path) -> list[str]:
    return ["config", "powersensor3:virtual", "--export"]


each = pytest.mark.parametrize("words", [_profile, _transfer, _export])


@each
def test_a_file_is_replaced_only_if_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Words
) -> None:
    there = tmp_path / "there"
    there.write_text(BEFORE)
    line = [*words(tmp_path), str(there)]
    assert main(line) == 2
    asked = f"{there} exists already; name another file, or replace it with overwrite=True (--overwrite)"
    assert asked in capsys.readouterr().err
    assert there.read_text() == BEFORE
    assert main([*line, "--overwrite"]) == 0
    replaced = there.read_text()
    assert BEFORE not in replaced
    there.unlink()
    assert main(line) == 0
    assert there.read_text().count("\n") == replaced.count("\n")


@each
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")  # noqa: PTH110
def test_a_device_is_written_to_without_asking_and_its_failure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Words
) -> None:
    assert main([*words(tmp_path), os.devnull]) == 0
    assert main([*words(tmp_path), "/dev/full"]) == 2
    assert "cannot write to /dev/full: No space left on device" in capsys.readouterr().err
