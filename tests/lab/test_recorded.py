"""What the verbs read of a recording: its powers, and the energies between its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor, ManualClock
from pmtpy.core.rows import Frame, Layout
from pmtpy.emulators.world import make_world
from pmtpy.io.convert import convert
from pmtpy.io.write import open_sink
from pmtpy.io.write.base import Ending, Header
from pmtpy.lab import two_clocks
from pmtpy.lab.procedures import energy_curve, windows_of
from pmtpy.lab.recorded import (
    late_marks,
    marked,
    marked_load,
    read_file,
    read_series,
    read_stamps,
    regions_of,
)
from pmtpy.lab.traces import side_by_side
from pmtpy.regions.region import region
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Gauge

START_NS = 5_000_000_000


def test_energy_over_lost_rows_is_bridged_by_the_powers_either_side(tmp_path: Path) -> None:
    rows = ["time,elapsed,marker,lost,total_W,total_J", "1.0,0.0,,0,10,0", "1.1,0.1,,0,20,2", "1.4,0.4,,9,40,2"]
    path = tmp_path / "meter.csv"
    path.write_text("\n".join([*rows, "1.5,0.5,,0,40,6", ""]))
    series = read_series(read_file(str(path)), "total_W")
    assert series.joules is not None
    np.testing.assert_allclose(series.joules, [0.0, 2.0, 2.0 + 0.3 * 30.0, 11.0 + 4.0])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jls"])
def test_stamps_that_lie_on_whole_milliseconds_were_not_cut_off_where_the_recording_says_so(
    tmp_path: Path, suffix: str
) -> None:
    """A register that stamps its renewals itself, each 40.000 ms exactly, polled each 20 ms: dated 5 ms late."""
    if suffix == "jls":
        pytest.importorskip("pyjls", reason="pyjls is not installed (extra jls)")
    t_ns = START_NS + 40_000_000 * np.arange(300, dtype=np.int64)
    watts = np.repeat(np.random.default_rng(3).normal(150.0, 30.0, 300)[:, None], 2, axis=1)
    joules = np.cumsum(0.04 * watts, axis=0) - 0.04 * watts[0]
    gauge = Channel("gpu", Quantity.POWER, refresh_s=0.04, resolution=0.0)
    header = Header("nvml:0", Identity("nvml", "card"), Layout((gauge,)), Anchor(START_NS, START_NS + 10**18),
                    polled_s=0.02, stamped=True, uncut=True)  # fmt: skip
    path = tmp_path / f"run.{suffix}"
    sink = open_sink(path, header)
    nothing = np.zeros((300, 2), np.int64)
    sink.write(Frame(t_ns, watts, joules, np.empty((300, 0)), nothing[:, 0], nothing, ()))
    sink.close(Ending(Anchor(START_NS + 12 * 10**9, START_NS + 12 * 10**9 + 10**18), 300, 0, 0, complete=True))

    polls = read_series(read_file(str(path)), "gpu_W", alone=True)
    updates = update_series(polls.t_s, polls.watts, estimate_updates(polls.t_s, polls.watts, uncut=polls.uncut))
    late_s = np.mod(updates.t_s + 0.02, 0.04) - 0.02
    assert np.max(np.abs(late_s)) < 1e-3
    np.testing.assert_allclose(updates.watts, watts[np.round(updates.t_s / 0.04).astype(np.int64), 0], rtol=1e-6)


def test_marks_without_power_belong_to_the_recording_before_them_or_else_to_the_next(tmp_path: Path) -> None:
    def write(name: str, *rows: str, power: str = "10") -> str:
        lines = ["time,elapsed,marker,lost,total_W,total_J,gpu_W,gpu_J"]
        lines += [f"{row},0,{power},0,{power},0" for row in rows]
        (tmp_path / name).write_text("\n".join([*lines, ""]))
        return str(tmp_path / name)

    marks = write("marks.csv", "1.0,0.0,solve start", "1.3,0.3,solve end", power="")
    one = write("one.csv", "1.0,0.0,", "1.1,0.1,", "1.4,0.4,")
    other = write("other.csv", "1.0,0.0,", "1.2,0.2,", "1.4,0.4,")
    first = side_by_side([marks, one, f"{other}#gpu"])
    assert [(t.name, [r.name for r in t.regions]) for t in first.traces] == [
        ("one.csv", ["solve"]),
        ("other.csv#gpu", []),
    ]
    assert not first.one_clock
    last = side_by_side([one, other, marks], ["gpu", "total"], one_clock=True)
    assert [(t.name, len(t.regions)) for t in last.traces] == [
        ("one.csv#gpu", 0),
        ("one.csv#total", 0),
        ("other.csv#gpu", 0),
        ("other.csv#total", 1),
    ]
    assert last.one_clock


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.jls"])
def test_a_stretch_between_marks_of_a_slow_sensor_has_their_own_instants(tmp_path: Path, name: str) -> None:
    pytest.importorskip({"rows.parquet": "pyarrow", "rows.jls": "pyjls"}.get(name, "pmtpy"))
    clock = ManualClock()
    sensor = Sensor(Gauge(make_world("constant:100", clock=clock)), "test", clock, interval_s=1e6)

    def go_on(seconds: float) -> None:
        clock.advance(seconds)
        sensor.read()

    sensor.start_dump(tmp_path / name)
    go_on(1.0)
    go_on(1.0)
    clock.advance(0.1)
    sensor.mark("solve start")
    go_on(0.9)
    clock.advance(0.5)
    sensor.mark("solve end")
    go_on(0.5)
    go_on(1.0)
    sensor.stop_dump()
    sensor.close()
    converted = tmp_path / "other.csv"
    convert(tmp_path / name, converted)
    for path in (tmp_path / name, converted):
        table = read_file(str(path), (0.5, 4.5))
        at = table["elapsed"].to_numpy()
        assert at[table["marker"].to_numpy() != ""] == pytest.approx([3.0, 4.0])  # on the next row, as ever
        (span,) = marked(table, at)
        assert (span.start, span.end) == pytest.approx((2.1, 3.5))
        load = marked_load(table)
        assert load is not None
        assert load.off_s - load.on_s == pytest.approx([1.4])
        assert not late_marks(table)
        table.attrs["marks"] = []  # as others write it
        assert [(s.start, s.end) for s in marked(table, at)] == [pytest.approx((3.0, 4.0))]
        assert "may have begun or ended up to 1 s earlier" in late_marks(table)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jls"])
def test_what_a_program_measured_is_a_region_of_each_recording_and_told_once(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip({"parquet": "pyarrow", "jls": "pyjls"}.get(suffix, "pmtpy"))
    clock = ManualClock()
    world = make_world("constant:100", clock=clock)
    sensors = [Sensor(Gauge(world), name, clock, interval_s=1e6) for name in ("gpu", "meter")]
    files = [str(tmp_path / f"{s.target}.{suffix}") for s in sensors]

    def go_on(seconds: float) -> None:
        clock.advance(seconds)
        for sensor in sensors:
            sensor.read()

    for sensor, file in zip(sensors, files, strict=True):
        sensor.start_dump(file)
    go_on(1.0)
    for seconds in (0.5, 0.75):
        with region("work", *sensors):
            sensors[0].mark("work start")
            clock.advance(seconds)
            sensors[0].mark("work end")
        go_on(1.0)
    sensors[0].mark("other start")
    go_on(1.0)
    sensors[0].mark("other end")
    go_on(1.0)
    for sensor in sensors:
        sensor.stop_dump()
        sensor.close()
    wanted = [(1.0, 1.5, "work"), (2.5, 3.25, "work")]
    for file, also in zip(files, ([(4.25, 5.25, "other")], []), strict=True):
        table = read_file(file)
        at = table["elapsed"].to_numpy() - table["elapsed"].iloc[0]
        zero = 1.0 - regions_of(table, at)[0].start  # the first row may be that of the first second
        found = [(r.start + zero, r.end + zero, r.name) for r in regions_of(table, at)]
        assert [r[2] for r in found] == [r[2] for r in (*wanted, *also)]
        np.testing.assert_allclose([r[:2] for r in found], [r[:2] for r in (*wanted, *also)], atol=2e-6)
        part = read_file(file, (at[-1] - 3.0, None))
        assert "work" not in [r.name for r in regions_of(part, part["elapsed"].to_numpy())]
    both = side_by_side(files)
    assert [[r.name for r in trace.regions] for trace in both.traces] == [["work", "work", "other"], []]
    assert read_stamps(files[1]).off_s - read_stamps(files[1]).on_s == pytest.approx([0.5, 0.75], abs=2e-6)


def _log(
    path: Path,
    regions: Sequence[tuple[float, float, str]],
    *,
    zero_ns: int = 0,
    more: Mapping[str, object] | None = None,
) -> str:
    """Write 20 s of 100 W, a row each 10 ms, with regions in its metadata; ``zero_ns``: monotonic time at its begin."""
    t = np.arange(0.0, 20.0, 0.01)
    rows = [f"{1.7e9 + a:.6f},{a:.6f},,0,100,{100.0 * a:.6f}" for a in t.tolist()]
    path.write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows, ""]))
    facts = {
        "format": 1,
        "target": path.stem,
        "virtual": False,
        "anchors": {"start": {"monotonic_ns": zero_ns, "unix_ns": 1_700_000_000 * 10**9}},
        "regions": [{"label": name, "start_ns": round(a * 1e9), "end_ns": round(b * 1e9)} for a, b, name in regions],
    }
    path.with_name(path.name + ".json").write_text(json.dumps(facts | dict(more or {})))
    return str(path)


def test_a_region_of_two_sensors_is_told_once_where_one_of_its_name_nests_in_it(tmp_path: Path) -> None:
    regions = [(1.0, 9.0, "work"), (2.0, 3.0, "work"), (5.0, 5.0, "nothing")]
    files = [_log(tmp_path / f"{zero_ns}.csv", regions, zero_ns=zero_ns) for zero_ns in (0, 20_000)]
    both = side_by_side(files)
    assert [[r.name for r in trace.regions] for trace in both.traces] == [["work", "work"], []]
    assert not both.warnings


def test_a_marked_region_stays_beside_a_longer_one_of_its_name(tmp_path: Path) -> None:
    table = read_file(_log(tmp_path / "run.csv", [(1.0, 9.0, "work")]))
    table.loc[400, "marker"], table.loc[600, "marker"] = "work start", "work end"
    found = [(r.start, r.end) for r in regions_of(table, table["elapsed"].to_numpy())]
    np.testing.assert_allclose(found, [(1.0, 9.0), (4.0, 6.0)], atol=1e-5)


def test_a_region_that_goes_on_beyond_the_rows_has_no_energy_and_is_no_rest(tmp_path: Path) -> None:
    said: list[str] = []
    file = _log(
        tmp_path / "run.csv", [(-1.0, 4.0, "early"), (6.0, 8.0, "in"), (15.0, 25.0, "late"), (30.0, 31.0, "no")]
    )
    both = side_by_side([file, _log(tmp_path / "other.csv", [])])
    assert [r.name for r in both.traces[0].regions] == ["in"]
    (cut,) = both.warnings
    assert "2 regions (early, late) that began before its first row or ended after its last" in cut
    stamps = read_stamps(file, report=said.append)
    np.testing.assert_allclose(stamps.on_s - 1.7e9, [-1.0, 6.0, 15.0], atol=1e-6)
    np.testing.assert_allclose(stamps.off_s - 1.7e9, [4.0, 8.0, 25.0], atol=1e-6)
    np.testing.assert_allclose(stamps.known_s - 1.7e9, [[-1.0, 25.0]], atol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"anchors": {"start": 5}},
        {"anchors": {"start": {"unix_ns": 5}}},
        {"anchors": {"start": {"monotonic_ns": 10**400, "unix_ns": 5}}},
        {"regions": [{"label": "a", "start_ns": 10**400, "end_ns": 10**401}, 5]},
    ],
)
def test_instants_that_no_clock_shows_are_none(tmp_path: Path, more: dict[str, object]) -> None:
    files = [_log(tmp_path / "a.csv", [], more=more), _log(tmp_path / "b.csv", [(1.0, 2.0, "work")])]
    assert [[r.name for r in trace.regions] for trace in side_by_side(files).traces] == [[], ["work"]]


def test_a_recording_without_a_row_has_no_regions_and_no_marks_that_are_late(tmp_path: Path) -> None:
    """It ended in a traceback of numpy."""
    path = tmp_path / "empty.csv"
    path.write_text("time,elapsed,marker,lost,total_W\n")
    table = read_file(str(path))
    assert regions_of(table, np.empty(0)) == []
    assert late_marks(table) == ""


def test_marks_of_one_row_enclose_nothing_that_could_be_measured_and_the_others_stay(tmp_path: Path) -> None:
    rows = ["1.0,0.0,,0,10,0", "1.1,0.1,a start;a end;b start,0,10,1", "1.2,0.2,,0,10,2", "1.3,0.3,b end,0,10,3"]
    (tmp_path / "run.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows, ""]))
    table = read_file(str(tmp_path / "run.csv"))
    assert [r.name for r in regions_of(table, table["elapsed"].to_numpy())] == ["b"]
    assert "up to 100 ms earlier" in late_marks(table)


def test_a_recording_that_is_put_on_another_clock_keeps_its_powers(monkeypatch: pytest.MonkeyPatch) -> None:
    t, rate = 1.7e9 + np.arange(0.0, 10.0, 0.1), 0.004
    table = pd.DataFrame({"time": t, "elapsed": t - t[0], "total_W": 100.0, "total_J": 100.0 * (t - t[0]), "lost": 0.0})
    other = table.copy()
    for path, each in (("one.csv", table), ("other.csv", other)):
        each.attrs |= {"metadata": None, "path": path, "format": "made", "joules": "recorded"}
    lag = Estimate(0.2, 0.19, 0.21)
    known = SimpleNamespace(
        lag_s=lag,
        rate=Estimate(rate, 0.0, 0.008),
        note="",
        on_reference=lambda t: t[0] + (t - t[0] - 0.2) / (1.0 + rate),
    )
    monkeypatch.setattr(two_clocks, "_aligned", lambda *_: known)
    moved, _ = two_clocks.together(table, other, ("total_W", "total_W")).tables
    curve, (start, end) = energy_curve(moved, "total_W", "time"), moved["time"].iloc[[10, 90]]
    assert curve.energy(start, end) / (end - start) == pytest.approx(100.0, rel=1e-6)


def test_workloads_are_the_regions_that_hold_no_others_or_windows_where_they_are_few(tmp_path: Path) -> None:
    each = [(1.0 + 3.0 * i, 2.5 + 3.0 * i, f"work {i}") for i in range(6)]
    for many, marked_ in ((6, True), (4, False)):  # a comparison takes five
        regions = [(0.5, 19.5, "dump"), *each[:many]]
        table = read_file(_log(tmp_path / f"{many}.csv", regions))
        windows = windows_of([table], [energy_curve(table, "total_W", "elapsed")], 1.0)
        assert windows.marked == marked_
        if marked_:  # of a power that rests always the ends are moved by a quarter at most
            np.testing.assert_allclose(windows.starts_s, [a for a, _, _ in each], atol=0.375 + 1e-6)
            np.testing.assert_allclose(windows.ends_s, [b for _, b, _ in each], atol=0.375 + 1e-6)
