"""What ``start_dump`` refuses, and that it refuses before a file is touched."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.core.markers import paired
from pmtpy.core.rows import Block
from pmtpy.core.source import Remarks
from pmtpy.errors import PmtError, SinkError, TargetError
from pmtpy.io.convert import convert
from pmtpy.io.read import load
from pmtpy.io.write import Ending
from pmtpy.sensor.sensor import acquisition_of
from tests.support.worlds import counter_sensor


@pytest.mark.parametrize("interval", [0, -1, -0.5, math.nan, math.inf, True, "0", "-3ms", "soon", "", object()])
def test_a_bad_interval_is_refused_and_the_file_left_as_it_was(tmp_path: Path, interval: object) -> None:
    path = tmp_path / "a.csv"
    path.write_text("precious")
    _, _, sensor = counter_sensor()
    with sensor:
        with pytest.raises(TargetError, match="is not an interval"):
            sensor.start_dump(path, interval=interval, overwrite=True)  # type: ignore[arg-type]
        with pytest.raises(SinkError, match="is not being dumped"):
            sensor.stop_dump()
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("refused", "why"), [("pmtpy-writer", "files are written"), ("pmtpy-poller", "sensors are read")]
)
def test_where_no_thread_can_write_or_read_the_file_is_left_as_it_was_and_the_next_dump_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, why: str, *, there: bool
) -> None:
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        begin(thread)

    path = tmp_path / "a.csv"
    if there:
        path.write_text("precious")
    clock, _, sensor = counter_sensor()
    with sensor:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(PmtError, match=rf"{why} .*none can be started \(can't start.*ulimit -u"):
                sensor.start_dump(path, overwrite=there)
        assert [p.read_text() for p in tmp_path.iterdir()] == ["precious"] * there
        with pytest.raises(SinkError, match="is not being dumped"):
            sensor.stop_dump()
        assert acquisition_of(sensor).demand.dump_s is None
        with sensor.dump(path, overwrite=there):
            clock.advance(1.0)
    assert load(path).attrs["metadata"]["complete"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "pmt"])
def test_what_the_sensor_remarks_on_the_time_of_a_dump_is_noted_in_the_file(tmp_path: Path, suffix: str) -> None:
    clock, source, sensor = counter_sensor()
    path, again = tmp_path / f"a.{suffix}", tmp_path / "b.csv"

    def remarks(begin_ns: int, end_ns: int) -> Remarks:
        return Remarks(3e-3, (f"test: silent for {(end_ns - begin_ns) // 10**9} s",))

    source.remarks = remarks  # type: ignore[method-assign]
    with sensor:
        clock.advance(5.0)
        with sensor.dump(path):
            for _ in range(3):
                clock.advance(1.0)
                sensor.read()
    table = load(path)
    assert table.attrs["metadata"]["time_u_s"] == 3e-3
    assert "test: silent for 3 s" in table.attrs["notes"]
    convert(path, again)
    assert "test: silent for 3 s" in load(again).attrs["notes"]
    assert load(again).attrs["metadata"]["time_u_s"] == 3e-3


@pytest.mark.parametrize("target", ["powersensor3:virtual", "nvml:virtual", "rapl:virtual", "hwmon:virtual"])
def test_a_mark_that_is_set_just_before_the_end_is_in_the_file(tmp_path: Path, target: str) -> None:
    with pmt.create(target) as sensor:
        for turn in range(2):
            path = tmp_path / f"{turn}.csv"
            with sensor.dump(path):
                sensor.mark("first")
                sensor.mark("last")
            table = load(path)
            assert ";".join(m for m in table["marker"] if m) == "first;last"
            assert not any("no row followed" in note for note in table.attrs["notes"])


def test_counters_have_rows_where_they_are_marked(tmp_path: Path) -> None:
    clock, _, sensor = counter_sensor()
    with sensor:
        with sensor.dump(tmp_path / "a.csv", interval=1000.0):
            clock.advance(1.0)
            sensor.mark("work start")
            clock.advance(0.25)
            sensor.mark("work end")
            clock.advance(1.0)
        table = load(tmp_path / "a.csv")
    marked = table[table["marker"] != ""]
    assert marked["marker"].tolist() == ["work start", "work end"]
    assert marked["elapsed"].tolist() == pytest.approx([1.0, 1.25], abs=1e-3)
    before = table["elapsed"].iloc[marked.index - 1].tolist()
    assert before == pytest.approx([1.0, 1.25], abs=1e-3)


def test_a_label_with_a_semicolon_stays_one_label(tmp_path: Path) -> None:
    clock, _, sensor = counter_sensor()
    with sensor, sensor.dump(tmp_path / "a.csv"):
        for label in ("solve; step 1 start", "solve; step 1 end"):
            clock.advance(0.1)
            sensor.mark(label)
            clock.advance(0.1)
            sensor.read()
    table = load(tmp_path / "a.csv")
    marks = [(t, label) for t, label in zip(table["elapsed"], table["marker"], strict=True) if label]
    assert [span.name for span in paired(marks)[0]] == ["solve, step 1"]
    assert paired(marks)[1] == []


def test_a_mark_that_no_row_follows_is_named_and_not_given_to_the_next_dump(tmp_path: Path) -> None:
    clock, source, sensor = counter_sensor()
    with sensor:
        with sensor.dump(tmp_path / "a.csv"):
            clock.advance(1.0)
            sensor.read()
            clock.advance(1.0)
            source.read_row = lambda: Block.empty(1)  # type: ignore[method-assign]  # it shows nothing new
            sensor.mark("last")
        del source.read_row
        with sensor.dump(tmp_path / "b.csv"):
            clock.advance(1.0)
            sensor.read()
    assert "labels of marks that no row followed before the end: last" in load(tmp_path / "a.csv").attrs["notes"]
    assert not load(tmp_path / "b.csv")["marker"].any()


@pytest.mark.parametrize("path", [None, 3, b"a.csv", object()])
def test_what_is_neither_a_path_nor_a_stream_is_refused(path: object) -> None:
    _, _, sensor = counter_sensor()
    with sensor:
        with pytest.raises(TargetError, match="neither"):
            sensor.start_dump(path)  # type: ignore[arg-type]
        with pytest.raises(SinkError, match="is not being dumped"):
            sensor.stop_dump()


def test_of_several_threads_that_end_a_dump_each_gets_its_ending_or_is_told_that_there_is_none(tmp_path: Path) -> None:
    clock, _, sensor = counter_sensor()
    with sensor:
        for k in range(30):
            sensor.start_dump(tmp_path / f"{k}.csv")
            clock.advance(1.0)
            found: list[Ending | PmtError] = []
            together = threading.Barrier(4)

            def end(found: list[Ending | PmtError] = found, together: threading.Barrier = together) -> None:
                together.wait()
                try:
                    found.append(sensor.stop_dump())
                except PmtError as error:
                    found.append(error)

            threads = [threading.Thread(target=end) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            endings = [e for e in found if isinstance(e, Ending)]
            assert len(found) == 4
            assert endings
            assert all(e == endings[0] and e.complete for e in endings)
            assert all("is not being dumped" in str(e) for e in found if isinstance(e, PmtError))
