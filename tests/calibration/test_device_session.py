"""The session that records a device, and its report, on a virtual GPU whose sensor is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
from calibration import device_report, record_device
from tests.support.worlds import WalkingClock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("device")
    done = record_device.record_device(
        "nvml:virtual", {}, place, wanted=("step", "random"), factor=0.4, clock=WalkingClock()
    )
    assert done == ["step", "random"]
    return place


def test_a_recording_is_read_back_with_everything_that_was_shown(folder: Path) -> None:
    table = pmt.load(folder / "step.csv.gz")
    assert table.attrs["virtual"] is True
    assert table.attrs["metadata"]["chosen"] == "gpu.instant"
    assert {"total_W", "gpu.instant_W", "gpu.average_W", "gpu.energy_J", "gpu.temperature_C"} <= set(table.columns)
    assert np.all(np.diff(table["gpu.energy_J"]) >= 0.0)
    t = table["elapsed"].to_numpy()
    assert table["gpu.instant_W"].to_numpy()[(t > 4.0) & (t < 9.0)] == pytest.approx(140.0, rel=0.02)
    stamps = pmt.load(folder / "step-load.csv")["time"].to_numpy()
    assert stamps[1] - stamps[0] == pytest.approx(6.0, abs=2e-6)
    assert stamps[0] - table["time"].iloc[0] == pytest.approx(3.0 - t[0], abs=1e-5)


def test_the_report_finds_the_sensor_that_was_emulated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["device_report.py", str(folder)])
    device_report.main()
    found = json.loads((folder / "found.json").read_text())["random"]
    assert found["gpu.instant"]["kernel"]["family"] == "one-pole"
    assert found["gpu.instant"]["kernel"]["tau_ms"]["value"] == pytest.approx(12.5, rel=0.08)
    assert found["gpu.average"]["kernel"]["window_ms"]["value"] == pytest.approx(1000.0, abs=10.0)
    assert found["gpu.energy"]["update_period_ms"]["value"] == pytest.approx(100.0, rel=0.001)
    text = (folder / "report.md").read_text()
    assert "an emulated device" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| step | gpu.energy |") and "gpu.instant" in line)
    moves_ms, ratio = row.split("|")[3], row.split("gpu.instant ")[1].split(",")[0]
    assert float(moves_ms.split()[0]) == pytest.approx(100.0, abs=3.0)  # within a poll of 3 ms
    assert float(ratio) == pytest.approx(1.0, abs=0.02)
    assert (folder / "load.png").stat().st_size > 10_000


def test_a_folder_without_recordings_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"record_device\.py"):
        device_report.read(tmp_path)
