"""Caches of Kernel Tuner as tables of tuning results. Shape: ``process_cache`` and ``store_cache``, version 1.5."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pmtpy.cli import main
from pmtpy.errors import FileFormatError
from pmtpy.lab.tuning_table import read_table

CLOCKS = (1200, 1500, 1800)


def entry(block: int, clock: int) -> dict[str, float | str]:
    """One configuration: time falls and power rises with the clock."""
    watts = 50.0 + block + clock / 10.0
    return {
        "block_size_x": block, "nvml_gr_clock": clock, "time": 1e5 / clock + block, "both_powersensor3_power": watts,
        "both_powersensor3_power_uncertainty": 0.5, "both_nvml_0_power": 0.95 * watts,
        "both_nvml_0_power_uncertainty": 3.0, "both_temperature": 50.0, "both_core_freq": clock - 15.0,
    }  # fmt: skip


def cache(folder: Path, *, whole: bool = True, blocks: tuple[int, ...] = (32, 64, 128, 256, 512)) -> Path:
    entries = {f"{b},{c}": entry(b, c) for b in blocks for c in CLOCKS}
    failed = {**entry(1024, 1200), "time": "RuntimeFailedConfig"}
    spoilt = {**entry(1024, 1500), "both_powersensor3_power": True}
    document = {
        "device_name": "GPU", "kernel_name": "k", "tune_params_keys": ["block_size_x", "nvml_gr_clock"],
        "cache": {**entries, "1024,1200": failed, "1024,1500": spoilt},
    }  # fmt: skip
    text = json.dumps(document)
    path = folder / "cache.json"
    path.write_text(text if whole else text.removesuffix("}}") + ",")
    return path


@pytest.mark.parametrize("whole", [True, False])
def test_a_cache_is_a_table_and_what_failed_is_left_out(tmp_path: Path, *, whole: bool) -> None:
    table = read_table(cache(tmp_path, whole=whole), "both_powersensor3_power")
    assert len(table.config) == 15
    assert set(table.config) == {f"block_size_x={b}" for b in (32, 64, 128, 256, 512)}
    assert table.power_w[0] == 50.0 + 32 + 120.0
    assert table.time_s[0] == pytest.approx((1e5 / 1200 + 32) / 1e3)
    np.testing.assert_array_equal(table.core_mhz[:3], np.array(CLOCKS) - 15.0)
    assert table.temperature_c[0] == 50.0


def test_of_two_powers_one_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"--power.*both_powersensor3_power, both_nvml_0_power"):
        read_table(cache(tmp_path))


def test_a_file_that_is_no_cache_or_has_no_clocks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}')
    with pytest.raises(FileFormatError, match="a cache of Kernel Tuner was expected"):
        read_table(path)
    path.write_text('{"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 2.0}}}')
    with pytest.raises(FileFormatError, match="no parameter nvml_gr_clock"):
        read_table(path)


def test_the_transfer_is_fed_from_a_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = cache(tmp_path), tmp_path / "out.csv"
    words = ["--train", path, "--measured", path, "--power", "both_powersensor3_power", "--clocks", "1500", "-o", out]
    assert main(["calibrate", "transfer", *map(str, words)]) == 0, capsys.readouterr().err
    first = out.read_text().splitlines()[1].split(",")
    assert first[0] == "block_size_x=32"
    assert float(first[2]) == pytest.approx(50.0 + 32 + 150.0, rel=0.02)
