"""A dump tells when the device worked as far as the program said so, whatever became of the program meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import make_world
from pmtpy.io.recorded import load_of
from pmtpy.io.write import RecordedLoad, _writer
from pmtpy.lab.recorded import read_stamps, regions_of, stamped_load
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Gauge

S = 1_000_000_000


class Dumped:
    """Sensors of one clock, which is moved by hand, and what their dumps tell of the load."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.clock, self.folder = ManualClock(100 * S), folder
        world = make_world("constant:100", clock=self.clock)
        self.sensors = {name: Sensor(Gauge(world), name, self.clock, interval_s=1e6) for name in names or ("gpu",)}

    @property
    def gpu(self) -> Sensor:
        return self.sensors["gpu"]

    def start(self) -> None:
        for name, sensor in self.sensors.items():
            sensor.start_dump(self.folder / f"{name}.csv")

    def stop(self) -> None:
        for sensor in self.sensors.values():
            sensor.stop_dump()

    def go_on(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for sensor in self.sensors.values():
            sensor.read()

    def told(self, name: str = "gpu") -> tuple[list[list[float]], list[list[float]]] | None:
        """Return when the load was on and for which time that is known, in seconds of the clock."""
        facts = json.loads((self.folder / f"{name}.csv.json").read_text())
        load = load_of(facts)
        if load is None:
            assert "load" not in facts
            return None
        return (np.array(load.on_ns) / S).reshape(-1, 2).tolist(), (np.array(load.known_ns) / S).tolist()

    def close(self) -> None:
        for sensor in self.sensors.values():
            sensor.close()


def test_stretches_that_nest_and_overlap_are_one_and_what_ran_before_the_dump_is_told(tmp_path: Path) -> None:
    made = Dumped(tmp_path)
    load = made.gpu.load()
    with load:  # at 100 s
        made.go_on(1.0)
    made.start()
    made.go_on(1.0)
    with load:
        made.go_on(1.0)
        with load:
            made.go_on(1.0)
        with pmt.region("work", made.gpu) as region:
            region.load().__enter__()
            made.go_on(1.0)
            load.__exit__(None, None, None)
            made.go_on(0.5)
            region.load().__exit__(None, None, None)
        load.__enter__()
    made.go_on(0.5)
    made.stop()
    made.close()
    assert made.told() == ([[100.0, 101.0], [102.0, 105.5]], [[100.0, 106.0]])


def test_a_dump_that_begins_and_ends_amid_the_work_has_what_there_was_of_it(tmp_path: Path) -> None:
    made = Dumped(tmp_path)
    made.gpu.load().__enter__()
    made.go_on(30.0)
    made.start()
    made.go_on(2.0)
    made.stop()
    first = made.told()
    made.go_on(1.0)
    made.gpu.load().__exit__(None, None, None)
    made.close()
    assert first == ([[120.0, 132.0]], [[120.0, 132.0]])  # ten seconds of before, which readings may show


def test_outside_the_regions_that_were_stamped_nothing_is_known(tmp_path: Path) -> None:
    made = Dumped(tmp_path)
    made.start()
    made.go_on(1.0)
    with pmt.region("plain", made.gpu):
        made.go_on(1.0)
    with pmt.region("stamped", made.gpu) as region:
        made.go_on(1.0)
        with region.load():
            made.go_on(1.0)
    made.go_on(1.0)
    made.stop()
    made.close()
    assert made.told() == ([[103.0, 104.0]], [[102.0, 104.0]])


def test_each_sensor_tells_of_its_own_load_alone(tmp_path: Path) -> None:
    made = Dumped(tmp_path, "gpu", "other", "third")
    made.start()
    with made.gpu.load():
        made.go_on(1.0)
    with pmt.region("both", made.gpu, made.sensors["other"]) as region, region.load():
        made.go_on(1.0)
    made.stop()
    made.close()
    assert made.told() == ([[100.0, 102.0]], [[100.0, 102.0]])
    assert made.told("other") == ([[101.0, 102.0]], [[101.0, 102.0]])
    assert made.told("third") is None


def test_the_first_of_very_many_stretches_are_kept_and_nothing_later_passes_for_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_writer, "_MOST_STRETCHES", 3)
    made = Dumped(tmp_path)
    made.start()
    for _ in range(9):
        with made.gpu.load():
            made.go_on(0.5)
        made.go_on(0.5)
    made.stop()
    made.close()
    assert made.told() == ([[100.0, 100.5], [101.0, 101.5], [102.0, 102.5]], [[100.0, 102.5]])
    assert any(
        "what it did in the last 6.5 s is not known" in note for note in pmt.load(tmp_path / "gpu.csv").attrs["notes"]
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_ends_the_work_ends_it_for_itself_alone(tmp_path: Path) -> None:
    made = Dumped(tmp_path)
    made.start()
    load = made.gpu.load()
    with load:
        child = os.fork()
        if child == 0:
            load.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        made.go_on(1.0)
    made.stop()
    made.close()
    assert made.told() == ([[100.0, 101.0]], [[100.0, 101.0]])


_KILLED = """
import os, signal, sys
import pmtpy as pmt
sensor = pmt.create("rapl:virtual")
sensor.start_dump(sys.argv[1])
with sensor.load():
    while sensor._dump.so_far[0] < 5:
        sensor.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing kills so here")
def test_a_program_that_is_killed_leaves_no_stamps_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(path)], timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    table = pmt.load(path)
    assert stamped_load(table) is None
    assert any("nor which regions and stamps of the load there were" in note for note in table.attrs["notes"])


@pytest.mark.parametrize(
    "spoilt", [{"on_ns": [[5, 3]], "known_ns": [[0, 9]]}, {"on_ns": [], "known_ns": [[0]]}, {"on_ns": [[1, 2.5]]}]
)
def test_stamps_that_cannot_be_are_not_used_and_that_is_said(tmp_path: Path, spoilt: dict[str, object]) -> None:
    made = Dumped(tmp_path)
    made.start()
    made.go_on(1.0)
    made.stop()
    made.close()
    beside = tmp_path / "gpu.csv.json"
    beside.write_text(json.dumps(json.loads(beside.read_text()) | {"load": spoilt}))
    table = pmt.load(tmp_path / "gpu.csv")
    assert stamped_load(table) is None
    assert any("stamps of the load are no stretches of time in order" in note for note in table.attrs["notes"])


def test_stamps_are_by_the_times_of_the_rows_wherever_these_are_laid(tmp_path: Path) -> None:
    made = Dumped(tmp_path)
    made.start()
    made.go_on(1.0)
    with made.gpu.load(), pmt.region("work", made.gpu):
        made.go_on(2.0)
    made.go_on(1.0)
    made.stop()
    made.close()
    table = pmt.load(tmp_path / "gpu.csv", 0.5, 9.0)
    load = stamped_load(table, alone=True)
    assert load is not None
    assert (load.absolute, load.edges.tolist(), load.known_s.tolist()) == (False, [1.0, 3.0], [[1.0, 4.0]])
    began = table.attrs["began"]
    by_the_wall = read_stamps(str(tmp_path / "gpu.csv"))
    assert by_the_wall.absolute
    np.testing.assert_allclose(by_the_wall.edges - began, [1.0, 3.0], atol=2e-6)
    laid = table.assign(time=table["time"] + 3600.0)  # as `compare --clocks` does
    moved = stamped_load(laid)
    assert moved is not None
    np.testing.assert_allclose(moved.edges - began, [3601.0, 3603.0], atol=2e-6)
    (work,) = regions_of(laid, laid["time"].to_numpy())
    assert (work.start - began, work.end - began) == pytest.approx((3601.0, 3603.0), abs=2e-6)


def test_two_arrays_are_a_load_where_something_is_known() -> None:
    nothing = np.empty((0, 2), np.int64)
    assert RecordedLoad.of(nothing, nothing) is None
    assert RecordedLoad.of(nothing, np.array([[1, 2]])) == RecordedLoad((), ((1, 2),))
