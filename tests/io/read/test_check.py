"""What every reader keeps to: one clock that goes on, values that can be, names that differ."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import make_world
from pmtpy.errors import FileFormatError
from pmtpy.io.convert import convert
from pmtpy.io.read import _check, load
from pmtpy.io.read._recording import Recording
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Counter, Gauge, Stream


def _smi(path: Path, rows: list[str], fields: str = "timestamp, power.draw [W]") -> Path:
    path.write_text("\n".join([fields, *rows]) + "\n")
    return path


def _stamp(wall: datetime) -> str:
    return wall.strftime("%Y/%m/%d %H:%M:%S.") + f"{wall.microsecond // 1000:03d}"


@pytest.fixture
def amsterdam() -> Iterator[None]:
    """A machine in a zone with summer time."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Amsterdam"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


_UTC = timezone.utc  # of wall times, whose zone is not written
_END_OF_SUMMER = datetime(2023, 10, 29, 3, tzinfo=_UTC)  # the clock goes back to 2
_BEGINNING = datetime(2023, 3, 26, 2, tzinfo=_UTC)  # the clock goes on to 3


def _over(change: datetime, hours: int, seconds: int = 600) -> list[str]:
    """100 W, one row a second, from five minutes before a change of the clock on."""
    walls = [change + timedelta(seconds=k - 300) for k in range(seconds)]
    return [f"{_stamp(w if w < change else w + timedelta(hours=hours))}, 100.00" for w in walls]


@pytest.mark.parametrize(
    ("change", "hours", "offset"), [(_END_OF_SUMMER, -1, None), (_END_OF_SUMMER, -1, 7200.0), (_BEGINNING, 1, None)]
)
@pytest.mark.usefixtures("amsterdam")
def test_a_log_over_a_change_of_summer_time_has_its_energy(
    tmp_path: Path, change: datetime, hours: int, offset: float | None
) -> None:
    table = load(_smi(tmp_path / "log.csv", _over(change, hours)), utc_offset_s=offset)
    np.testing.assert_allclose(np.diff(table["elapsed"]), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.diff(table["time"]), 1.0, atol=1e-6)
    assert table["total_J"].iloc[-1] == pytest.approx(100.0 * 599)
    assert table.attrs["uncovered_s"] == 0.0
    assert any("summer time" in note for note in table.attrs["notes"]) is (offset is not None)


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_log_of_several_gpus_over_the_end_of_summer_has_its_energy(tmp_path: Path, gpus: int) -> None:
    rows = [f"{row}, {gpu}" for row in _over(_END_OF_SUMMER, -1) for gpu in range(gpus)]
    table = load(_smi(tmp_path / "log.csv", rows, "timestamp, power.draw [W], index"), utc_offset_s=7200.0)
    np.testing.assert_allclose(np.diff(table["time"]), 1.0, atol=1e-6)
    assert table["total_J"].iloc[-1] == pytest.approx(100.0 * 599 * gpus)


@pytest.mark.parametrize("every_s", [1, 60])
@pytest.mark.usefixtures("amsterdam")
def test_a_log_that_begins_in_the_hour_that_comes_twice_and_leaves_it_is_of_the_second(
    tmp_path: Path, every_s: int
) -> None:
    """From 2:50 of winter time on, over 3:00; taken for summer time there would be an hour without rows."""
    walls = [_END_OF_SUMMER + timedelta(seconds=every_s * k - 600) for k in range(1000)]
    table = load(_smi(tmp_path / "log.csv", [f"{_stamp(w)}, 100.00" for w in walls]))
    assert table["time"].iloc[0] == walls[0].timestamp() - 3600
    assert table["total_J"].iloc[-1] == pytest.approx(100.0 * 999 * every_s)
    assert table.attrs["uncovered_s"] == 0.0
    assert not any("comes twice" in note for note in table.attrs["notes"])


@pytest.mark.usefixtures("amsterdam")
def test_a_log_within_the_hour_that_comes_twice_says_that_nothing_tells_which(tmp_path: Path) -> None:
    walls = [_END_OF_SUMMER + timedelta(seconds=k - 1800) for k in range(100)]
    rows = [f"{_stamp(w)}, 100.00" for w in walls]
    table = load(_smi(tmp_path / "log.csv", rows))
    assert table["time"].iloc[0] == walls[0].timestamp() - 7200
    assert any(note.startswith("line 2: this hour comes twice") for note in table.attrs["notes"])
    told = load(tmp_path / "log.csv", utc_offset_s=3600)
    assert told["time"].iloc[0] == walls[0].timestamp() - 3600
    assert not any("comes twice" in note for note in told.attrs["notes"])


@pytest.mark.parametrize("hole_s", [59 * 60, 3600, 3600.5, 3601])
@pytest.mark.parametrize("every_s", [1, 60, 300])
def test_an_hour_without_rows_is_no_summer_time(tmp_path: Path, hole_s: float, every_s: int) -> None:
    start = datetime(2026, 12, 9, 10, 13, 7, tzinfo=_UTC)
    walls = [start + timedelta(seconds=every_s * k + (hole_s if k >= 50 else 0)) for k in range(100)]
    table = load(_smi(tmp_path / "log.csv", [f"{_stamp(w)}, 200.00" for w in walls]), utc_offset_s=0)
    assert table["elapsed"].iloc[-1] == pytest.approx(99 * every_s + hole_s)
    assert table.attrs["uncovered_s"] == pytest.approx(hole_s + every_s)
    assert table["total_J"].iloc[-1] == pytest.approx(200.0 * 98 * every_s)


@pytest.mark.parametrize("every_s", [1800, 3600, 7200])
def test_a_row_each_hour_needs_no_explanation(tmp_path: Path, every_s: int) -> None:
    start = datetime(2026, 12, 9, 10, 13, 7, tzinfo=_UTC)
    walls = [start + timedelta(seconds=every_s * k) for k in range(50)]
    table = load(_smi(tmp_path / "log.csv", [f"{_stamp(w)}, 200.00" for w in walls]), utc_offset_s=0)
    assert not any("clock" in note for note in table.attrs["notes"])
    assert table["elapsed"].iloc[-1] == 49 * every_s


@pytest.mark.parametrize("step_s", [-30.0, -1800.0, 120.0, 86400.0])
def test_a_clock_that_was_set_costs_one_interval_and_is_noted(tmp_path: Path, step_s: float) -> None:
    start = datetime(2023, 7, 1, 12, tzinfo=_UTC)
    walls = [start + timedelta(seconds=k + (step_s if k >= 50 else 0)) for k in range(100)]
    table = load(_smi(tmp_path / "log.csv", [f"{_stamp(w)}, 100.00" for w in walls]), utc_offset_s=0)
    assert (np.diff(table["elapsed"]) > 0).all()
    assert table["total_J"].iloc[-1] == pytest.approx(100.0 * 98)
    assert table.attrs["uncovered_s"] == pytest.approx(1.0 if step_s < 0 else 1.0 + step_s)
    assert len(table.attrs["notes"]) == 1
    assert table.attrs["notes"][0].startswith("line 52: ")


def test_the_unix_times_of_a_pmt_dump_may_step_too(tmp_path: Path) -> None:
    rows = [f"{1.7e9 + k * 0.1 - (3600 if k >= 20 else 0):.3f} 50.0" for k in range(40)]
    path = tmp_path / "dump.pmt"
    path.write_text("timestamp total\n" + "\n".join(rows) + "\n")
    table = load(path)
    assert table["total_J"].iloc[-1] == pytest.approx(50.0 * 3.8, rel=1e-6)
    assert "goes back" in table.attrs["notes"][0]


GPUS = [("0", 100.0, 0), ("1", 200.0, 3), ("2", 400.0, 6)]


def _rounds(missing: set[tuple[int, int]], n: int = 20, spread_ms: int = 1, which: str = "index") -> list[str]:
    """Rounds of three GPUs, a second apart, without some (round, GPU)."""
    start = datetime(2023, 7, 1, 12, tzinfo=_UTC)
    return [
        f"{'' if which == 'index' else 'GPU-'}{name}, "
        f"{_stamp(start + timedelta(seconds=k, milliseconds=ms * spread_ms))}, {watts + k:.2f}"
        for k in range(n)
        for g, (name, watts, ms) in enumerate(GPUS)
        if (k, g) not in missing
    ]


@pytest.mark.parametrize("which", ["index", "uuid"])
@pytest.mark.parametrize("spread_ms", [1, 100])
@pytest.mark.parametrize(
    "missing", [{(5, 0)}, {(5, 1)}, {(5, 2)}, {(5, 1), (5, 2)}, {(5, 0), (5, 1)}, {(5, 2), (6, 0)}]
)
def test_a_row_that_one_gpu_lacks_shifts_no_other(
    tmp_path: Path, missing: set[tuple[int, int]], spread_ms: int, which: str
) -> None:
    path = _smi(tmp_path / "log.csv", _rounds(missing, 20, spread_ms, which), f"{which}, timestamp, power.draw [W]")
    table = load(path, utc_offset_s=0)
    assert len(table) == 20
    for g, (name, watts, _) in enumerate(GPUS):
        column = table[f"gpu{name}.power.draw_W"]
        there = [(k, g) not in missing for k in range(20)]
        assert column.notna().tolist() == there
        assert column[there].tolist() == [watts + k for k in range(20) if (k, g) not in missing]
    without = sorted({k for k, _ in missing})
    assert table["total_W"].isna().to_numpy().nonzero()[0].tolist() == without
    assert table.attrs["uncovered_s"] == pytest.approx(len(without) + 1, abs=0.7)
    assert "not every GPU has a row" in table.attrs["notes"][0]


def test_several_gpus_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    rows = [row.partition(", ")[2] for row in _rounds(set())]
    with pytest.raises(FileFormatError, match="no field says of which; query it with --query-gpu=index"):
        load(_smi(tmp_path / "log.csv", rows))


@pytest.mark.parametrize(
    ("fields", "row", "message"),
    [
        ("timestamp, power.draw [W]", "60.00 mW", "line 2: a field is neither a number of W"),
        ("timestamp, power.draw [kW]", "0.06 kW", "line 1: power.draw is in 'kW'"),
        ("timestamp, power.draw [W], power.draw [W]", "60.00, 61.00", "line 1: the header names a column twice"),
    ],
)
def test_units_and_names_that_do_not_fit_are_refused(tmp_path: Path, fields: str, row: str, message: str) -> None:
    rows = [f"2023/07/13 18:15:32.{k:03d}, {row}" for k in (351, 361, 371)]
    with pytest.raises(FileFormatError, match=message.replace("[", r"\[")):
        load(_smi(tmp_path / "log.csv", rows, fields))


OWN = "time,elapsed,marker,lost,total_W,total_J\n"


def _own(path: Path, *rows: tuple[float, str]) -> Path:
    path.write_text(OWN + "".join(f"{1.7e9 + t:.6f},{t:.9f},,0,5.0,{rest}\n" for t, rest in rows))
    return path


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([(0, "0"), (1, "5"), (0.5, "7"), (2, "10"), (3, "15")], 4),  # one that goes back
        ([(0, "0"), (1, "5"), (9, "7"), (2, "10"), (3, "15")], 4),  # one that is far ahead
        ([(7, "0"), (1, "5"), (2, "10"), (3, "15"), (4, "20")], 2),
        ([(0, "0"), (1, "5"), (2, "10"), (3, "15"), (1, "20")], 6),
        ([(0, "0"), (1, "5"), (2, "inf"), (3, "15"), (4, "20")], 4),
        ([(0, "0"), (1, "5"), (2, "-1e300"), (3, "15"), (4, "20")], 4),
    ],
)
def test_a_row_of_ours_that_cannot_be_is_a_broken_line(
    tmp_path: Path, rows: list[tuple[float, str]], broken: int
) -> None:
    path = _own(tmp_path / "a.csv", *rows)
    with pytest.raises(FileFormatError, match=rf"a\.csv: line {broken}: .*skip_broken"):
        load(path)
    table = load(path, skip_broken=True)
    assert table.attrs["broken_lines"] == [broken]
    assert len(table) == 4


def test_two_times_of_ours_that_disagree_are_noted(tmp_path: Path) -> None:
    path = _own(tmp_path / "a.csv", (0, "0"), (1, "5"), (2, "10"))
    path.write_text(path.read_text().replace("1700000001", "1700000901"))
    assert any("line 3" in note and "disagree" in note for note in load(path).attrs["notes"])


def test_a_power_that_cannot_be_is_unknown_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "dump.pmt"
    path.write_text("timestamp total core\n0.1 5 4\n0.2 1e300 4\n0.3 5 inf\n0.4 5 4\n0.5 5 4\n")
    table = load(path)
    assert np.isfinite(table["total_J"]).all()
    assert table["total_J"].iloc[-1] == pytest.approx(1.0)
    assert table.attrs["uncovered_s"] == pytest.approx(0.2)
    assert [note.split(":")[0] for note in table.attrs["notes"]] == ["line 3", "line 4"]


@pytest.mark.parametrize("start_s", [0.0, 1.8e9])
@pytest.mark.parametrize(("hole_ms", "known_ms"), [(0, 1999), (2, 1996), (500, 1498)])
def test_a_hole_is_found_where_rows_come_faster_than_their_times_are_written(
    hole_ms: int, known_ms: int, start_s: float, tmp_path: Path
) -> None:
    """100 W at 20 kHz by times of 1 ms: twenty rows share one, and a step over rows that are missing has no energy."""
    at_ms = [ms for ms in range(2000) if not 1000 <= ms < 1000 + hole_ms for _ in range(20)]
    rows = "".join(f"{start_s + ms / 1000:.3f} 100.000\n" for ms in at_ms)
    path = tmp_path / "fast.pmt"
    path.write_text(f"timestamp total\n{rows}")
    table = load(path)
    assert table["total_J"].iloc[-1] == pytest.approx(known_ms / 10.0, abs=1e-3)
    told = [n for n in table.attrs["notes"] if "no row for" in n]
    assert told == (
        [f"line 20002: no row for {(hole_ms + 1) / 1000:.3f} s, where one comes every 5e-05 s; that time has no energy"]
        if hole_ms
        else []
    )
    convert(path, path.with_suffix(".csv"), start_s=None if start_s else 1.8e9)
    assert load(path.with_suffix(".csv"))["total_J"].iloc[-1] == pytest.approx(known_ms / 10.0, abs=1e-3)


def test_a_hole_in_a_log_has_no_energy(tmp_path: Path) -> None:
    times = [k * 0.1 for k in range(20)] + [3600 + k * 0.1 for k in range(20)]
    path = tmp_path / "dump.pmt"
    path.write_text("timestamp total\n" + "".join(f"{t:.3f} 50.0\n" for t in times))
    table = load(path)
    assert table["total_J"].iloc[-1] == pytest.approx(50.0 * 3.8)
    assert "line 22: no row for" in table.attrs["notes"][0]


def test_zero_bytes_are_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "zeros.bin"
    path.write_bytes(bytes(1800))
    with pytest.raises(FileFormatError, match="not a recording of power"):
        load(path)


def test_a_digit_that_the_total_of_a_pmt_dump_lost_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "dump.pmt"
    rows = [f"{0.1 * i:.1f} {30.25 + i:.6g} {10.125 + i:.6g} {20.125:.6g} {5.5:.6g}" for i in range(40)]
    head = "timestamp total package-0 package-1 psys"
    path.write_text("\n".join([head, *rows]) + "\n")
    assert not load(path).attrs["notes"]
    rows[20] = rows[20].replace("50.25", "5.25")
    path.write_text("\n".join([head, *rows]) + "\n")
    (note,) = load(path).attrs["notes"]
    assert note.startswith("line 22: total is 5.25, its parts add up to 50.25")


@pytest.mark.parametrize("kind", [Counter, Gauge, Stream])
@pytest.mark.parametrize("interval", [None, "40ms"])
def test_one_field_of_ours_that_its_row_contradicts_is_noted(tmp_path: Path, kind: type, interval: str | None) -> None:
    """Powers make the energies: by the rule of each channel, which the metadata tell."""
    clock = ManualClock()
    path = tmp_path / "run.csv"
    sensor = Sensor(kind(make_world("square:low=20,high=90,hz=3", clock=clock)), "test", clock)
    with sensor, sensor.dump(path, interval=interval):
        for _ in range(150):
            clock.advance(0.02)
            sensor.read()
    assert not load(path).attrs["notes"]
    head, *rows = path.read_text().splitlines()
    names = head.split(",")
    channel = next(n.removesuffix("_W") for n in names if n.endswith("_W") and n != "total_W")
    for column in (f"{channel}_W", f"{channel}_J"):
        at = names.index(column)
        for row in (30, 31, 32):  # one of which moved a counter
            fields = rows[row].split(",")
            fields[at] = f"{float(fields[at]) * 10:.6f}"
            path.write_text("\n".join([head, *rows[:row], ",".join(fields), *rows[row + 1 :]]) + "\n")
            found = [n for n in load(path).attrs["notes"] if f"{channel}_W is" in n]
            energy = names.index(f"{channel}_J")
            moved = rows[row].split(",")[energy] != rows[row - 1].split(",")[energy]
            assert bool(found) or not moved


@pytest.mark.parametrize("kind", [Counter, Gauge, Stream])
@pytest.mark.parametrize("interval", [None, "40ms"])
def test_without_metadata_a_row_whose_energy_leaps_is_noted(tmp_path: Path, kind: type, interval: str | None) -> None:
    """Which rule makes the energies is told from the rows: it is the one that the fewest of them break."""
    clock, path = ManualClock(), tmp_path / "run.csv"
    sensor = Sensor(kind(make_world("square:low=20,high=90,hz=3", clock=clock)), "test", clock)
    with sensor, sensor.dump(path, interval=interval):
        for _ in range(150):
            clock.advance(0.02)
            sensor.read()
    path.with_name("run.csv.json").unlink()
    (missing,) = load(path).attrs["notes"]
    assert "run.csv.json is missing" in missing
    table = pd.read_csv(path)
    channel = next(n.removesuffix("_W") for n in map(str, table.columns) if n.endswith("_W") and n != "total_W")
    for column, by in (("J", 500.0), ("J", -20.0), ("W", 1e7)):
        spoilt = table.copy()
        rows = slice(30, 31) if column == "W" else slice(30, None)
        for name in (channel, "total"):
            spoilt.loc[spoilt.index[rows], f"{name}_{column}"] += by
        moved = spoilt[f"{channel}_J"].diff()[30] != 0.0
        spoilt.to_csv(path, index=False)
        told = [n for n in load(path).attrs["notes"] if n.startswith(f"line 32: {channel}_W is")]
        assert len(told) == moved


@pytest.mark.parametrize(("row", "noted"), [(-1, True), (20, False)])
def test_an_energy_that_is_not_known_at_the_end_is_noted(tmp_path: Path, row: int, *, noted: bool) -> None:
    clock, path = ManualClock(), tmp_path / "run.csv"
    sensor = Sensor(Gauge(make_world("constant:50", clock=clock)), "test", clock)
    with sensor, sensor.dump(path):
        for _ in range(50):
            clock.advance(0.02)
            sensor.read()
    table = pd.read_csv(path)
    assert not load(path).attrs["notes"]
    table.loc[table.index[row], "total_J"] = np.nan
    table.to_csv(path, index=False)
    notes = load(path).attrs["notes"]  # of a row between others the energy of the next tells enough
    assert notes == (["the last row does not say its total_J: what was used up to there is not known"] if noted else [])


@pytest.mark.parametrize("line", [2, 5, 9])
@pytest.mark.parametrize("instant", ["-inf", "inf", "nan", "-1e400"])
def test_an_instant_that_is_no_number_is_a_broken_line_wherever_it_stands(
    tmp_path: Path, instant: str, line: int
) -> None:
    path = tmp_path / "old.pmt"
    rows = ["timestamp total", *(f"{k / 10:.3f} 10.0" for k in range(8))]
    rows[line - 1] = f"{instant} 10.0"
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(FileFormatError, match=f"line {line}: its time is not a number"):
        load(path)
    table = load(path, skip_broken=True)
    assert np.isfinite(table["elapsed"]).all()
    assert np.isfinite(table["total_J"]).all()


@pytest.mark.parametrize("unknown", [False, True], ids=["all known", "one unknown"])
@pytest.mark.parametrize("off_w", [0.0, 1e-5, 0.003, 0.1])
def test_a_total_is_held_against_its_parts_by_how_they_are_rounded(*, unknown: bool, off_w: float) -> None:
    """Parts of 300 and 10 W: off by at most 2e-5 of 311 W and half a last digit of each of three numbers."""
    parts = [np.full(50, 300.0), np.full(50, -10.0)]
    total = np.full(50, 290.0)
    total[20] += off_w
    if unknown:
        total[10] = np.nan
    for last_digit in (0.0, 1e-3):
        told = np.flatnonzero(_check._apart(total, parts, last_digit)).tolist()
        assert told == ([20] if off_w > 2e-5 * 311 + 1.5 * last_digit else [])


def test_a_block_that_begins_before_the_end_of_the_one_before_is_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("")
    recording = Recording(path, skip_broken=True)
    rows = {"elapsed": np.array([2.0, 3.0, 4.0]), "lost": np.zeros(3, np.int64)}
    at = np.array([5, 6, 7])
    assert _check.own_rows(recording, rows, at, 2.0).tolist() == [True, True, True]
    assert _check.own_rows(recording, rows, at, 2.5).tolist() == [False, True, True]
    assert recording.broken_lines == [5]
