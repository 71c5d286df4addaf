from __future__ import annotations

import gc
import itertools
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import pmtpy
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Layout
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.integrations.drop_ins import _pmt_module as pmt_module
from pmtpy.integrations.drop_ins._columns import columns
from pmtpy.sensor.sensor import acquisition_of

NAP_S = 0.3
PACKAGES = 0.85  # share of the load that the emulated server gives to its two packages; the rest is memory


@pytest.mark.parametrize(("target", "within"), [("powersensor3", 0.02), ("nvidia", 0.2), ("nvml", 0.2)])
def test_energy_time_and_power_of_two_states_are_those_of_the_load(pmt: ModuleType, target: str, within: float) -> None:
    opened = time.time()
    pm = pmt.create(target, "virtual", load="constant:60")
    start = pm.read()
    deadline = time.monotonic() + 120
    while pmt.seconds(start, end := pm.read()) < NAP_S:  # a PowerSensor3 shows the newest frame that has come
        assert time.monotonic() < deadline
        time.sleep(0.01)
    seconds = pmt.seconds(start, end)
    assert pmt.joules(start, end) == pytest.approx(60 * seconds, rel=within)
    assert pmt.watts(start, end) == pytest.approx(60, rel=within)
    assert pmt.PMT.joules(start, end) == pytest.approx(pmt.joules(start, end), rel=within)
    assert pm.seconds(start, end) == seconds
    assert opened <= start.timestamp() <= end.timestamp() <= time.time()


def test_powersensor3_shows_all_four_pairs_where_pmt_has_them(pmt: ModuleType) -> None:
    state = pmt.create("powersensor3", "virtual", pairs="MLX10:12:1:slot,MLX10:3.3:0:aux").read()
    names = [state.name(i) for i in range(state.nr_measurements())]
    assert names[0] == "total"
    assert len(names) == 5
    assert names[3:] == ["pair2", "pair3"]
    assert state.watts(0) == pytest.approx(state.watts(1) + state.watts(2))
    assert state.watts(3) == state.joules(index=4) == 0  # as in PMT
    for outside in (5, -1):
        with pytest.raises(IndexError, match="counted from 0"):
            state.watts(outside)


def test_rapl_shows_the_outer_zones_alone_and_its_total_is_their_packages(pmt: ModuleType) -> None:
    pm = pmt.create("rapl", "virtual", load="constant:60")
    start = pm.read()
    time.sleep(NAP_S)
    end = pm.read()
    names = [end.name(i) for i in range(end.nr_measurements())]
    assert names == ["total", "package-0", "package-1"]  # PMT reads no zone inside another
    assert end.watts(0) == pytest.approx(end.watts(1) + end.watts(2))
    assert pmt.watts(start, end) == pytest.approx(60 * PACKAGES, rel=0.05)
    assert end.joules(0) - start.joules(0) == pytest.approx(pmt.joules(start, end), rel=0.05)


def test_rapl_never_adds_what_contains_the_packages(pmt: ModuleType) -> None:
    state = pmt.create("rapl", "virtual", layout="client").read()
    assert [state.name(i) for i in range(state.nr_measurements())] == ["total", "package-0", "psys"]
    assert state.watts(0) == pytest.approx(state.watts(1), nan_ok=True)


def test_nvml_shows_the_registers_that_pmt_reads_first(pmt: ModuleType) -> None:
    pm = pmt.create("nvml", "virtual", load="constant:60")
    first = pm.read()
    time.sleep(NAP_S)
    state = pm.read()
    assert [state.name(i) for i in range(2)] == ["gpu_instant", "gpu_average"]
    assert state.watts(0) == pytest.approx(60, rel=0.02)
    gained = state.joules(0) - first.joules(0)  # of the whole GPU, by its counter
    assert gained == pytest.approx(60 * pmt.seconds(first, state), rel=0.5)


@pytest.mark.parametrize(
    ("name", "shown", "total"),
    [
        ("package0", "package-0", (2,)),
        ("package1.die1", "package-1-die-1", (2,)),
        ("psys", "psys", (0,)),  # no package: the total is ours
        ("package1.die1.dram", None, (0,)),
        ("package0.core", None, (0,)),
    ],
)
def test_a_zone_inside_another_is_not_shown(name: str, shown: str | None, total: tuple[int, ...]) -> None:
    layout = Layout((Channel("package9.dram", Quantity.ENERGY, domain="a"), Channel(name, Quantity.ENERGY, domain="b")))
    found = columns("rapl", layout)
    assert [c.name for c in found] == ["total", *([shown] if shown else [])]
    assert found[0].watts == found[0].joules == total


def test_an_old_gpu_with_only_an_average_shows_that_with_the_energy_of_the_gpu() -> None:
    only = columns("nvml", Layout((Channel("gpu.average", Quantity.POWER, domain="gpu/0"),)))
    assert [(c.name, c.watts, c.joules) for c in only] == [("gpu_average", (1,), (0,))]
    none = columns("nvml", Layout((Channel("gpu.energy", Quantity.ENERGY, domain="gpu/0"),)))
    assert [c.name for c in none] == ["total"]


@pytest.mark.filterwarnings("ignore:.*is not known")  # a machine so busy that a counter was not moved in time
@pytest.mark.parametrize("target", ["powersensor3", "rapl", "nvml"])
def test_two_readings_in_a_row_never_show_negative_energy_or_no_time(pmt: ModuleType, target: str) -> None:
    pm = pmt.create(target, "virtual", load="constant:60")
    states = [pm.read() for _ in range(40)]
    for a, b in itertools.pairwise(states):
        assert pmt.seconds(a, b) > 0
        assert pmt.joules(a, b) >= 0
        assert math.isfinite(pmt.watts(a, b)) or a._state.uncovered_ns != b._state.uncovered_ns


def test_energy_that_is_not_known_is_warned_of_and_does_not_end_a_program(pmt: ModuleType) -> None:
    pm = pmt.create("rapl", "virtual", load="constant:60")
    first = pm.read()
    size = len(first._state.names)
    for unknown_s, joules, power in ((2, 0.0, math.nan), (1, 60.0, 60.0)):
        a = replace(first._state, place=None, joules=(0.0,) * size, uncovered_ns=(0,) * size)
        b = replace(a, t_ns=a.t_ns + 2 * 10**9, joules=(joules,) * size, uncovered_ns=(unknown_s * 10**9,) * size)
        start, end = type(first)(a, first._columns), type(first)(b, first._columns)
        parts = len(first._columns[0].joules)
        with pytest.warns(UserWarning, match="is not known; the joules do not contain it"):
            assert pmt.joules(start, end) == pytest.approx(parts * joules)
        with pytest.warns(UserWarning, match="of the 2 s between the two states is not known"):
            assert pmt.watts(start, end) == pytest.approx(parts * power, nan_ok=True)


def test_states_stay_valid_when_their_sensor_is_gone(pmt: ModuleType) -> None:
    pm = pmt.create("rapl", "virtual", load="constant:60")
    start = pm.read()
    time.sleep(NAP_S)
    end = pm.read()
    pm.close()
    assert pmt.watts(start, end) == pytest.approx(60 * PACKAGES, rel=0.05)


@pytest.mark.parametrize("name", ["nosuchsensor", "likwid", "xilinx", "dummy"])
def test_a_sensor_that_does_not_exist_raises_where_pmt_measures_nothing(pmt: ModuleType, name: str) -> None:
    with pytest.raises(TargetError, match="no sensor is called"):
        pmt.create(name, 0)


def test_a_sensor_that_is_absent_raises_where_pmt_measures_nothing(pmt: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError):
        pmt.create("rapl", 0, sysfs_root=tmp_path)
    with pytest.raises(BackendUnavailableError):
        pmt.create("powersensor3", "/dev/does-not-exist")
    with pytest.raises(TargetError, match="needs the name of a sensor"):
        pmt.create()


class Opened(list[tuple[str, str | None]]):
    """What was asked to be opened."""

    def __call__(self, name: str, device: str | None = None, **_options: object) -> None:
        self.append((name, device))
        raise BackendUnavailableError(name, "not here")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    calls = Opened()
    monkeypatch.setattr(pmt_module, "open_sensor", calls)
    return calls


BOARD = {"PMT_NAME": "powersensor3", "PMT_DEVICE": "/dev/ttyACM0"}


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (("nvml", None), {}, ("nvml", None)),
        (("nvml", 1), {}, ("nvml", "1")),
        (("nvml", "10"), {}, ("nvml", "10")),  # PMT takes this for 0
        (("nvml", 1), {"PMT_DEVICE": "3"}, ("nvml", "3")),  # as in PMT
        (("nvml", None), BOARD, ("nvml", None)),
        (("powersensor3", None), BOARD, ("powersensor3", "/dev/ttyACM0")),
        (("powersensor3", "/dev/ttyACM1"), BOARD, ("powersensor3", "/dev/ttyACM1")),
        (("rapl", 0), {}, ("rapl", None)),
        (("rapl", None), {"PMT_DEVICE": "2"}, ("rapl", None)),
        (("rapl", ""), {}, ("rapl", None)),
        (("rocm", 0), {}, ("amdsmi", "0")),
        (("tegra", None), {}, ("jetson", None)),
        (("powersensor3:virtual", None), {}, ("powersensor3", "virtual")),
        (("powersensor3", "/dev/ttyACM0"), {"PMT_DEVICE": "virtual"}, ("powersensor3", "virtual")),
        ((None, None), {"PMT_NAME": "rapl"}, ("rapl", None)),
    ],
)
def test_names_devices_and_environment_choose_the_sensor(
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[str | None, str | int | None],
    environment: dict[str, str],
    expected: tuple[str, str | None],
) -> None:
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(BackendUnavailableError):
        pmt_module.create(*asked)
    assert opened == [expected]


def test_nvidia_means_the_module_on_a_jetson_and_else_says_why_there_is_no_gpu(opened: Opened) -> None:
    with pytest.raises(BackendUnavailableError, match="nvml"):
        pmt_module.create("nvidia", 0)
    assert opened == [("nvml", "0"), ("jetson", None)]


def test_measure_gives_pmts_list_with_numbers_as_text(pmt: ModuleType) -> None:
    def something(x: int) -> int:
        return x + 1

    (measured,) = pmt.measure("rapl", "virtual")(time.sleep)(0.05)
    assert list(measured) == ["platform", "joules", "seconds", "watt"]
    assert measured["platform"] == "rapl"
    assert all(re.fullmatch(r"\d+\.\d{3}", measured[k]) for k in ("joules", "seconds", "watt"))
    assert float(measured["seconds"]) >= 0.05
    measured_too = pmt.measure("rapl", device_id="virtual")(something)
    result, measured = measured_too(1)
    assert result == 2
    assert set(measured) == {"platform", "joules", "seconds", "watt"}
    assert measured_too.__name__ == "something"


def test_measure_refuses_what_it_would_measure_while_it_does_nothing(pmt: ModuleType) -> None:
    async def coroutine() -> None:
        """Never awaited."""

    with pytest.raises(TypeError, match=r"use pmtpy\.measure"):
        pmt.measure("rapl")(coroutine)
    with pytest.raises(TypeError, match=r"use pmtpy\.dump"):
        pmt.dump("rapl")(lambda: (yield))


DUMP_LINE = re.compile(r"\d{10}\.\d{3}( -?\d+\.\d{3})+")


def check_dump(text: str, names: list[str]) -> None:
    header, *rows = text.splitlines()
    assert header == " ".join(["timestamp", *names])
    assert text.endswith("\n")
    assert rows
    assert all(DUMP_LINE.fullmatch(row) for row in rows), rows[:3]
    assert all(row.count(" ") == len(names) for row in rows)


def test_a_dump_is_pmts_text(pmt: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "run.out"
    path.write_text("an older file, which PMT replaces\n")
    pm = pmt.create("powersensor3", "virtual", load="constant:60")
    pm.stopDump()  # nothing to stop, as in PMT
    pm.startDump(str(path))
    time.sleep(NAP_S)
    pm.stopDump()
    check_dump(path.read_text(), ["total", "slot", "ext12v", "pair2", "pair3"])
    rows = pmtpy.load(path)
    assert rows["time"].diff().median() == pytest.approx(1e-3, abs=1e-4)  # PMT's interval
    assert rows["total_W"].mean() == pytest.approx(60, rel=0.02)


def test_the_environment_names_the_file_and_the_interval_of_a_dump(
    pmt: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_DUMP_FILE", str(tmp_path / "named.out"))
    monkeypatch.setenv("PMT_DUMP_INTERVAL", "20")
    pm = pmt.create("powersensor3", "virtual")
    pm.startDump(tmp_path / "not.out")
    time.sleep(NAP_S)
    pm.stopDump()
    assert not (tmp_path / "not.out").exists()
    times = pmtpy.load(tmp_path / "named.out")["time"]
    assert times.diff().dropna().median() == pytest.approx(0.020, abs=0.002)


def test_the_dump_decorator_works_and_returns_the_result(pmt: ModuleType, tmp_path: Path) -> None:
    def work() -> str:
        time.sleep(NAP_S)
        return "done"

    dumped = pmt.dump("rapl", filename=str(tmp_path / "d.out"), device_id="virtual")(work)
    assert dumped() == "done"
    check_dump((tmp_path / "d.out").read_text(), ["total", "package-0", "package-1"])


def test_a_sensor_is_released_with_the_object_that_holds_it(pmt: ModuleType) -> None:
    pm = pmt.create("powersensor3", "virtual")
    sensor = pm._held.sensor
    assert acquisition_of(sensor).intake.alive
    del pm
    gc.collect()
    assert not acquisition_of(sensor).intake.alive


@pytest.mark.parametrize(("device", "is_tty"), [("/dev/ttyACM0", True), ("0", False), (0, False), (None, False)])
def test_serial_ports_are_told_from_numbers(pmt: ModuleType, device: object, is_tty: bool) -> None:  # noqa: FBT001
    assert pmt.is_tty_device(device) is is_tty
