from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.jetson import discover, open_source
from pmtpy.backends.jetson._device import Rail, in_turn
from pmtpy.core.channel import Channel, Derivation
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Layout
from pmtpy.core.source import Source
from pmtpy.emulators.jetson import BOARDS, Monitors, open_virtual
from pmtpy.emulators.world import make_world
from pmtpy.errors import BackendUnavailableError, SourceLostError, TargetError
from pmtpy.sensor.registry import create
from pmtpy.testing import check_lost, check_source
from tests.backends.conftest import FailingFiles

KNOWN = [name for name in BOARDS if name != "custom"]
SINE = "sine:low=30,high=90,hz=0.5"


class Bench:
    """An emulated board, its tree, and a source on it."""

    def __init__(self, board: str, load: str = "constant:60", jetpack: int | None = None, samples: int = 1) -> None:
        self.clock = ManualClock()
        self.monitors = Monitors(make_world(load, clock=self.clock), board, jetpack, samples)
        self.root = self.monitors.tree.root
        self._source: Source | None = None

    def open(self, **options: str) -> Source:
        self._source = open_source(None, clock=self.clock, sysfs_root=self.root, **options)
        return self._source

    def path(self, pattern: str) -> Path:
        (found,) = sorted(self.root.glob(pattern))
        return found

    def put(self, pattern: str, content: str) -> None:
        self.path(pattern).write_text(content)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        self.monitors.tree.close()


@pytest.fixture
def orin() -> Iterator[Bench]:
    bench = Bench("agx-orin")
    yield bench
    bench.close()


def watts_of(source: Source) -> dict[str, float]:
    block = source.read()
    assert len(block) == 1
    direct = [c.name for c in source.channels if c.derivation is Derivation.DIRECT]
    si = dict(zip(direct, (block.raw[0].astype(np.float64) * 1e-3).tolist(), strict=True))
    return {
        c.name: si[c.operands[0]] * si[c.operands[1]] for c in source.channels if c.derivation is Derivation.PRODUCT
    }


def channel(source: Source, name: str) -> Channel:
    return next(c for c in source.channels if c.name == name)


@pytest.mark.parametrize("board", KNOWN)
def test_every_board_conforms_and_tells_the_truth(board: str) -> None:
    # Each rail of the total is off by half a step of its converter at most, and twice 7 ms of 60 W are at the ends. The
    # trapezoids of a sine polled every 20 ms lose (2 pi 0.5 Hz 0.02 s)^2 / 12 = 3e-4 of its swing.
    source = open_virtual("virtual", clock=ManualClock(), load=SINE, board=board)
    layout = Layout(source.channels)
    half_steps = sum(layout.energy[i - 1].smallest_step / 2 for i in layout.in_total)
    source.close()
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load=SINE, board=board),
        SINE,
        relative=3e-4 + half_steps / 60,
        absolute_joules=2 * 0.007 * 60,
    )


@pytest.mark.parametrize("jetpack", [4, 5, 6, 7])
@pytest.mark.parametrize("board", ["xavier-nx", "agx-orin"])
def test_the_layout_of_every_jetpack_gives_the_same(board: str, jetpack: int) -> None:
    bench = Bench(board, jetpack=jetpack)
    source = bench.open()
    watts = watts_of(source)
    layout = Layout(source.channels)
    assert sum(watts[layout.names[i]] for i in layout.in_total) == pytest.approx(60, abs=0.5)
    assert [n for n in layout.names if "nc" in n or "null" in n or "sum" in n] == []
    assert len(layout.names) == 1 + (3 if board == "xavier-nx" else 4)
    bench.close()


@pytest.mark.parametrize("samples", [4, 64])
def test_averaging_delays_energy_but_loses_none(samples: int) -> None:
    load = "square:low=30,high=90,hz=0.2"
    # After each edge the average is behind by up to 60 W for one time constant; so at both ends of the interval.
    behind = 60 * 0.0066 * samples
    check_source(
        lambda clock: open_virtual(None, clock=clock, load=load, samples=samples),
        load,
        seconds=40.0,
        relative=5e-3,
        absolute_joules=behind,
    )


def test_window_and_refresh_come_from_the_monitor_and_the_resolution_from_the_shunt(orin: Bench) -> None:
    quick = channel(orin.open(), "vdd_gpu_soc")
    assert quick.refresh_s == pytest.approx(0.007)
    assert quick.window_s == pytest.approx(0.007 / 6)  # shunt and bus of three channels, one after the other
    assert quick.resolution == pytest.approx(0.4)  # 40 uV over 2 mOhm at 20 V
    averaged = Bench("orin-nx", samples=64)
    slow = channel(averaged.open(), "vdd_in")
    assert slow.refresh_s == pytest.approx(0.422)
    assert slow.window_s == pytest.approx(0.844)
    assert slow.response.tau_s == pytest.approx(0.422)
    assert slow.resolution == pytest.approx(0.04)  # 40 uV over 5 mOhm at 5 V
    averaged.close()


def test_the_driver_of_jetpack_4_does_not_tell_so_the_shunt_is_that_of_the_board() -> None:
    bench = Bench("tx1")
    assert channel(bench.open(), "vdd_in").resolution == pytest.approx(40e-6 / 0.02 * 19)
    bench.close()


def test_only_the_pump_pays_for_slow_readings(orin: Bench) -> None:
    assert orin.open().traits.blocking


def test_the_model_and_the_rule_of_the_total_are_told(orin: Bench) -> None:
    identity = orin.open().identity
    assert identity.model == "NVIDIA Jetson AGX Orin Developer Kit"
    assert identity.notes == (
        "the total is the module (Jetson AGX Orin or IGX Orin): VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0",
        in_turn([Rail("", "", 1, Path(), Path(), 0.0, 0.007, 0.001, turn_s=0.007, converted_s=0.007 / 6)])[0],
    )
    assert "converted for 1.17 ms of every 7 ms" in identity.notes[1]


def test_an_unknown_board_shows_its_rails_and_no_total() -> None:
    bench = Bench("custom")
    source = bench.open()
    watts = watts_of(source)
    assert watts["rail_a"] == pytest.approx(36, abs=0.05)
    assert Layout(source.channels).in_total == ()
    assert "no total" in source.identity.notes[0]
    bench.close()


def test_the_input_of_the_kit_makes_the_total_on_request() -> None:
    bench = Bench("thor")
    source = bench.open(total="input")
    layout = Layout(source.channels)
    assert [layout.names[i] for i in layout.in_total] == ["vin"]
    assert watts_of(source)["vin"] == pytest.approx(69, abs=0.3)
    bench.close()


def test_a_kit_without_a_monitor_on_its_input_says_so(orin: Bench) -> None:
    with pytest.raises(TargetError, match="no monitor on the input"):
        orin.open(total="input")
    with pytest.raises(TargetError, match="'module' or 'input'"):
        orin.open(total="wall")


def test_the_rail_of_the_total_is_read_in_the_middle_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row bears that instant, and of six files each of which waits for a conversion the first was 17 ms before it."""
    bench = Bench("orin-nx")
    source = bench.open()
    read: list[str] = []
    pread = os.pread
    names = {path.stat().st_ino: path.name for path in bench.path("devices/**/1-0040/hwmon/hwmon1").iterdir()}

    def noted(fd: int, size: int, offset: int) -> bytes:
        read.append(names.get(os.fstat(fd).st_ino, ""))
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", noted)
    row = source.read().raw[0].tolist()
    shown = [name for name in read if name.endswith("_input")]
    assert shown == [f"{kind}{n}_input" for n in (2, 1, 3) for kind in ("in", "curr")]
    assert [c.name for c in source.channels][::3] == ["vdd_in.voltage", "vdd_cpu_gpu_cv.voltage", "vdd_soc.voltage"]
    files = [
        bench.path(f"devices/**/1-0040/hwmon/hwmon1/{kind}{n}_input") for n in (1, 2, 3) for kind in ("in", "curr")
    ]
    assert row == [float(path.read_text()) for path in files]
    bench.close()


def test_what_nobody_has_seen_is_bounded_by_the_end_of_the_monitor() -> None:
    """32.76 A at 5 V and a quarter, where 1 kW stood."""
    bench = Bench("orin-nx")
    powers = [c for c in bench.open().channels if c.derivation is Derivation.PRODUCT]
    bench.close()
    assert {round(c.kept_watts or 0.0) for c in powers} == {205}


def test_negative_currents_stay_negative(orin: Bench) -> None:
    source = orin.open()
    orin.put("devices/**/1-0040/hwmon/*/curr1_input", "-20\n")
    assert watts_of(source)["vdd_gpu_soc"] == pytest.approx(-0.4)


@pytest.mark.parametrize("milliamperes", [81_900, -81_900, 90_000])
def test_a_current_at_the_end_of_the_range_is_no_reading(orin: Bench, milliamperes: int) -> None:
    source = orin.open()
    orin.put("devices/**/1-0040/hwmon/*/curr1_input", f"{milliamperes}\n")  # 4095 steps of 40 uV over 2 mOhm
    raw = source.read().raw[0]
    # It may be any larger one: that rail is not known in this row, and the others are.
    assert [i for i, x in enumerate(raw) if math.isnan(x)] == [1]
    assert source.unread == {1: f"{milliamperes} mA is the end of what the monitor can show"}


def test_a_rail_that_fails_by_itself_says_why(failing_files: FailingFiles) -> None:
    bench = Bench("thor")
    source = bench.open(total="input")
    layout = Layout(source.channels)
    column = min(layout.beside_total)
    path = source._files.paths[column]  # type: ignore[attr-defined]
    source.read()
    assert source.unread == {}
    failing_files.fail(path, errno.EIO)
    assert np.isnan(source.read().raw[0, column])
    assert source.unread == {column: f"{path}: the bus or the firmware did not answer"}
    failing_files.heal(path)
    before = path.read_text()
    path.write_text("1 2\n")
    assert np.isnan(source.read().raw[0, column])
    assert source.unread == {column: f"{path}: it holds 2 numbers instead of 1"}
    path.write_text(before)
    assert not np.isnan(source.read().raw[0, column])
    assert source.unread == {}
    bench.close()


def test_the_sum_of_the_channels_is_no_rail(orin: Bench) -> None:
    orin.put("devices/**/1-0040/hwmon/*/curr4_input", "99999\n")
    orin.put("devices/**/1-0040/hwmon/*/in7_input", "99999\n")
    assert max(watts_of(orin.open()).values()) < 60


def test_a_channel_without_data_is_left_out_with_a_note(orin: Bench, failing_files: FailingFiles) -> None:
    failing_files.fail(orin.path("devices/**/1-0041/hwmon/*/curr2_input"), errno.ENODATA)
    source = orin.open()
    assert "vddq_vdd2_1v8ao" not in Layout(source.channels).names
    assert Layout(source.channels).in_total
    assert any("VDDQ_VDD2_1V8AO" in note and "no data" in note for note in source.identity.notes)


def test_a_bus_that_is_busy_at_the_opening_costs_no_rail(orin: Bench, failing_files: FailingFiles) -> None:
    failing_files.fail(orin.path("devices/**/1-0040/hwmon/*/curr1_input"), errno.EAGAIN, 2)
    source = orin.open()
    assert len(Layout(source.channels).in_total) == 3
    assert not any("left out" in note for note in source.identity.notes)


def test_without_one_rail_of_the_total_there_is_no_total(orin: Bench, failing_files: FailingFiles) -> None:
    failing_files.fail(orin.path("devices/**/1-0040/hwmon/*/in3_input"), errno.EIO)
    source = orin.open()
    assert Layout(source.channels).in_total == ()
    assert "no total" in source.identity.notes[0]
    assert "VIN_SYS_5V0 of Jetson AGX Orin or IGX Orin cannot be read" in source.identity.notes[0]
    assert any("in3_input" in note for note in source.identity.notes)


def test_a_module_of_which_nothing_can_be_read_is_unavailable() -> None:
    bench = Bench("orin-nx")
    for path in bench.root.glob("devices/**/curr?_input"):
        path.write_text("")
    with pytest.raises(BackendUnavailableError, match="VDD_IN"):
        bench.open()
    bench.close()


def test_a_failing_bus_loses_rows_and_returns(orin: Bench, failing_files: FailingFiles) -> None:
    source = orin.open()
    path = orin.path("devices/**/1-0040/hwmon/*/curr1_input")
    failing_files.fail(path, errno.EIO)
    assert not len(source.read())
    failing_files.heal(path)
    orin.clock.advance(0.1)
    block = source.read()
    assert block.lost is not None
    assert block.lost.tolist() == [1]


def test_monitors_that_move_to_other_numbers_are_found_again(orin: Bench, failing_files: FailingFiles) -> None:
    source = orin.open()
    before = watts_of(source)
    for old in sorted(orin.root.glob("devices/**/hwmon/hwmon[0-9]")):
        new = old.with_name(f"hwmon{int(old.name[5:]) + 7}")
        content = {path.name: path.read_bytes() for path in old.iterdir() if path.is_file()}
        for path in old.iterdir():
            path.unlink()
        old.rmdir()
        new.mkdir()
        for name, text in content.items():
            (new / name).write_bytes(text)
        (orin.root / "class/hwmon" / old.name).unlink()
        (orin.root / "class/hwmon" / new.name).symlink_to(new)
    orin.clock.advance(0.1)
    assert watts_of(source) == before


def test_monitors_that_vanish_are_lost(orin: Bench, failing_files: FailingFiles) -> None:
    source = orin.open()
    orin.monitors.tree.remove("devices/platform")
    check_lost(source, orin.clock)


def test_another_rail_at_the_same_place_is_not_taken_for_the_old_one(orin: Bench, failing_files: FailingFiles) -> None:
    source = orin.open()
    folder = orin.path("devices/**/1-0040/hwmon/hwmon1")
    content = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    other = folder.with_name("hwmon9")
    other.mkdir()
    for name, text in content.items():
        (other / name).write_bytes(b"RAIL_X\n" if name == "in1_label" else text)
    (orin.root / "class/hwmon/hwmon9").symlink_to(other)
    check_lost(source, orin.clock)


def test_two_monitors_with_the_same_rails_have_different_names_and_no_total() -> None:
    bench = Bench("orin-nx")
    folder = bench.root / "devices/platform/i2c-9/9-0041/hwmon/hwmon9"
    folder.mkdir(parents=True)
    for path in bench.path("devices/**/1-0040/hwmon/hwmon1").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    (bench.root / "class/hwmon/hwmon9").symlink_to(folder)
    source = bench.open()
    layout = Layout(source.channels)
    assert "vdd_in.9-0041.1" in layout.names
    assert layout.in_total == ()
    bench.close()


@given(content=st.one_of(st.binary(max_size=40), st.integers(-(10**6), 10**6).map(lambda n: f"{n}\n".encode())))
def test_no_content_yields_a_silently_wrong_number(content: bytes) -> None:
    bench = Bench("orin-nx")
    source = bench.open()
    bench.path("devices/**/1-0040/hwmon/hwmon1/curr1_input").write_bytes(content)
    block = source.read()
    bench.close()
    column = [c.name for c in source.channels if c.derivation is Derivation.DIRECT].index("vdd_in.current")
    shown = float(block.raw[0, column]) if len(block) else math.nan
    assert math.isnan(shown) or shown == int(content.strip(b" \t\r\n\0"))
    assert not abs(shown) >= 32_760  # 4095 steps of 40 uV over 5 mOhm


@pytest.mark.parametrize("text", ["5000", "5000 12 3", "5000 mA", "", "5_000 12", "null"])
def test_a_broken_pair_of_numbers_is_no_row(text: str) -> None:
    bench = Bench("nano")
    source = bench.open()
    bench.put("devices/**/ui_input_0", text)
    assert not len(source.read())
    bench.close()


def test_failures_that_go_on_are_a_loss() -> None:
    bench = Bench("nano")
    source = bench.open()
    bench.put("devices/**/ui_input_0", "null")
    for _ in range(20):
        assert not len(source.read())
        bench.clock.advance(0.1)
    with pytest.raises(SourceLostError, match="ui_input_0"):
        source.read()
    bench.close()


def test_no_monitor_says_what_was_looked_for_and_how_to_cure_it(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match=r"ina3221(?s:.*)modprobe(?s:.*)PMT_SYSFS_ROOT") as caught:
        open_source(None, clock=ManualClock(), sysfs_root=tmp_path)
    found = discover(sysfs_root=tmp_path)
    assert (found.devices, found.reason, found.remedy) == ((), caught.value.reason, caught.value.remedy)


def test_a_server_with_an_ina238_is_no_jetson(tmp_path: Path) -> None:
    folder = tmp_path / "class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, text in {"name": "ina238", "in1_input": "12000", "curr1_input": "1000"}.items():
        (folder / name).write_text(f"{text}\n")
    assert discover(sysfs_root=tmp_path).devices == ()
    with pytest.raises(BackendUnavailableError):
        open_source(None, clock=ManualClock(), sysfs_root=tmp_path)


def test_a_jetson_is_discovered_as_one_device(orin: Bench) -> None:
    assert discover(sysfs_root=orin.root).devices == ("",)
    with pytest.raises(TargetError, match="one device"):
        open_source("0", clock=ManualClock(), sysfs_root=orin.root)


@pytest.mark.parametrize(
    "options", [{"device": "virtual3"}, {"board": "orin"}, {"jetpack": 3}, {"samples": 2}], ids=str
)
def test_an_emulated_module_that_does_not_exist_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(TargetError):
        open_virtual(clock=ManualClock(), **options)  # type: ignore[arg-type]


def test_pmts_name_works_and_two_readings_give_the_mean() -> None:
    clock = ManualClock()
    with create("tegra:virtual", clock=clock, load="constant:60", board="agx-xavier") as sensor:
        assert sensor.target == "jetson:virtual"
        assert sensor.identity.virtual
        assert sensor.read().names[0] == "total"


def test_a_total_that_does_not_need_the_rail_that_fails_is_known(failing_files: FailingFiles) -> None:
    bench = Bench("orin-nx")
    failing_files.fail(bench.path("devices/**/1-0040/hwmon/*/curr2_input"), errno.EIO)
    source = bench.open()
    assert Layout(source.channels).in_total
    assert "VDD_IN" in source.identity.notes[0]
    assert any("VDD_CPU_GPU_CV" in note and "left out" in note for note in source.identity.notes)
    bench.close()
