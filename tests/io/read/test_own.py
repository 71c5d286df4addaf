"""Our own files, as the sinks write them and as accidents leave them."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
import pmtpy.io.read
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor, ManualClock
from pmtpy.core.rows import Frame
from pmtpy.core.source import PolledSource, Traits
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, FileFormatError
from pmtpy.io.convert import convert
from pmtpy.io.read import Reader, load
from pmtpy.io.read._integrated import Integrated
from pmtpy.io.read.blocks import open_blocks
from pmtpy.io.write import Ending, open_sink
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.one_pair import HEADER, START_NS, UNIX_NS
from tests.support.worlds import Counter


def _write(path: Path, n: int = 100, *, complete: bool = True, counted: float = 1.0, **options: bool) -> Path:
    """Write ``n`` rows of 24 W, 50 us apart, whose energy is ``counted`` times theirs.

    Rows 5 and 6 are marked, 3 rows were lost before row 8.
    """
    sink = open_sink(path, HEADER, **options)  # type: ignore[arg-type]
    lost = np.zeros(n, np.int64)
    lost[8:9] = 3
    k = np.arange(n)
    joules = np.stack([24.0 * counted * k * 50e-6] * 2, axis=1)
    values = np.tile([2.0, 12.0, 40.0], (n, 1))
    marks = ((5, "a, b"), (6, "NA")) if n > 6 else ()
    sink.write(
        Frame(START_NS + k * 50_000, np.full((n, 2), 24.0), joules, values, lost, np.zeros((n, 2), np.int64), marks)
    )
    sink.close(Ending(Anchor(0, 0), rows=n, lost=3, dropped=0, complete=complete))
    return path


def test_the_mark_that_a_spreadsheet_puts_before_a_text_is_no_part_of_it(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv")
    table = load(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path).equals(table)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_what_was_written_is_read(tmp_path: Path, name: str) -> None:
    table = load(_write(tmp_path / name))
    assert list(table.columns) == [
        *("time", "elapsed", "marker", "lost", "total_W", "total_J"),
        *("pair0_V", "pair0_A", "pair0_W", "pair0_J", "board.temperature_C"),
    ]
    np.testing.assert_allclose(table["total_J"], 24.0 * table["elapsed"], atol=1e-6)
    np.testing.assert_allclose(table["time"] - 1.7e9, table["elapsed"], atol=1e-6)
    assert table["marker"].tolist()[4:8] == ["", "a, b", "NA", ""]
    assert table["lost"].sum() == 3
    assert table["pair0_V"].dtype == np.float64
    attrs = table.attrs
    assert (attrs["virtual"], attrs["complete"], attrs["joules"], attrs["total"]) == (True, True, "recorded", "pair0")
    assert attrs["metadata"]["target"] == "powersensor3:virtual"


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    plain = _write(tmp_path / "a.csv")
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table = load(packed)
    assert len(table) == 100
    assert table.attrs["virtual"] is True


def test_an_incomplete_file_says_so(tmp_path: Path) -> None:
    assert load(_write(tmp_path / "a.csv", complete=False)).attrs["complete"] is False


@pytest.mark.parametrize("spoil", [lambda lines: lines[:50] + lines[55:], lambda lines: [*lines[:50], *lines[49:]]])
def test_rows_that_were_taken_out_or_stand_there_twice_are_told(tmp_path: Path, spoil: object) -> None:
    path = _write(tmp_path / "a.csv")
    assert callable(spoil)
    path.write_text("\n".join(spoil(path.read_text().split("\n"))))
    table = load(path)
    assert table.attrs["complete"] is False
    (note,) = table.attrs["notes"]
    assert f"{len(table)} rows where 100 were written" in note
    assert "were written" not in str(load(path, start=0.001).attrs["notes"])  # of a part it cannot be known


def test_a_total_that_is_not_the_sum_of_its_parts_is_told(tmp_path: Path) -> None:
    path, was, now = _write(tmp_path / "a.csv"), "24.000000,0.001200,", "24.000000,0.201200,"
    assert path.read_text().count(was) == 2
    path.write_text(path.read_text().replace(was, now, 1))
    (note,) = load(path).attrs["notes"]
    assert note.startswith("line 3: total_J is ")
    assert load(_write(tmp_path / "b.csv")).attrs["notes"] == []


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jls"])
@pytest.mark.parametrize("sidecar", [True, False])
def test_energies_that_contradict_the_powers_in_every_row_are_told(tmp_path: Path, name: str, *, sidecar: bool) -> None:
    if name.endswith("jls"):
        pytest.importorskip("pyjls", reason="pyjls is not installed")
    for counted, told in ((1.0, False), (1.3, sidecar or name != "a.csv"), (1e-3, True)):
        path = _write(tmp_path / f"{counted}{name}", 2000, counted=counted)
        if not sidecar and name == "a.csv":
            path.with_name(f"{path.name}.json").unlink()
        notes = [n for n in load(path).attrs["notes"] if "pair0_W makes" in n]
        assert len(notes) == told
        assert all(n.startswith("pair0_J rises by ") for n in notes)


def test_milliwatts_under_watts_are_told_where_every_row_is_another_power(tmp_path: Path) -> None:
    """30 and 90 W by turns: a thousand times the least that they make is still more than the energy beside them."""
    watts, joules = [30.0, 90.0] * 20, np.cumsum([0.0, *[60.0] * 39])  # joined by lines
    for unit, told in ((1.0, 0), (1000.0, 1)):
        rows = "".join(f"{t},{t},,0,{w * unit},{j}\n" for t, (w, j) in enumerate(zip(watts, joules, strict=True)))
        (tmp_path / "a.csv").write_text(f"time,elapsed,marker,lost,total_W,total_J\n{rows}")
        notes = load(tmp_path / "a.csv").attrs["notes"]
        assert sum("total_J rises by 2340 J where total_W makes" in note for note in notes) == told


def test_a_counter_that_is_polled_while_it_rests_contradicts_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    source = Counter(make_world("square:low=0,high=300,hz=0.7", clock=clock))
    with Sensor(source, "test", clock) as sensor:
        sensor.start_dump(tmp_path / "a.csv", interval=0.05)
        for _ in range(400):
            clock.advance(0.05)
            sensor.read()
    assert not any("makes" in n for n in load(tmp_path / "a.csv").attrs["notes"])


class Stated(PolledSource):
    """A counter of millijoules that is stated to be renewed each 100 ms, as those of NVML are."""

    def __init__(self, world: World, renewed_s: float) -> None:
        super().__init__(world.clock)
        self.world, self.renewed_s = world, renewed_s
        self.traits, self.identity = Traits(), Identity("test", "card", virtual=True)
        self.channels = (Channel("energy", Quantity.ENERGY, scale=1e-3, refresh_s=0.1, max_watts=1000.0),)

    def poll(self) -> list[int]:
        now_s = float(self.world.seconds_since_epoch(self.world.clock.now_ns()).item())
        shown_s = np.array([math.floor(now_s / self.renewed_s + 1e-9) * self.renewed_s])
        return [math.floor(1e3 * float(self.world.load.joules(shown_s)[0]) + 1e7)]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("renewed_s", [0.02, 0.1])
def test_a_counter_that_moves_before_its_stated_refresh_contradicts_nothing(tmp_path: Path, renewed_s: float) -> None:
    """Some boards renew it five times as often as others, and a poller is late now and then: a move comes soon."""
    clock, path = ManualClock(), tmp_path / "a.csv"
    source = Stated(make_world("square:low=60,high=300,hz=0.7", clock=clock), renewed_s)
    with Sensor(source, "test", clock) as sensor:
        sensor.start_dump(path)
        for row in range(400):
            clock.advance(0.05 + 0.045 * (row % 40 == 0) - 0.035 * (row % 40 == 1) + 0.004 * math.sin(row))
            sensor.read()
    table = load(path)
    assert len(table) > 100
    assert table.attrs["notes"] == []


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("total_W", "88574.3", "line 41: total_W is 88574.3, its parts add up to 24"),
        ("pair0_V", "230.0", "line 41: pair0_W is 24 W, pair0_V times pair0_A 460 W"),
        ("pair0_A", "-13.0", "line 41: pair0_W is 24 W, pair0_V times pair0_A -156 W"),
        ("lost", "1000000", "its rows say that 1000003 others were lost, its metadata say 3"),
    ],
)
def test_a_field_that_contradicts_its_row_is_told(tmp_path: Path, column: str, value: str, told: str) -> None:
    path = _write(tmp_path / "a.csv")
    assert load(path).attrs["notes"] == []
    lines = path.read_text().split("\n")
    fields = lines[40].split(",")
    fields[lines[0].split(",").index(column)] = value
    lines[40] = ",".join(fields)
    path.write_text("\n".join(lines))
    assert any(n.startswith(told) for n in load(path).attrs["notes"])


@pytest.mark.parametrize(
    ("wall_s", "slept_s", "told"),
    [
        (100.0, 0.0, ""),
        (101.0, 0.0, ""),
        (3700.0, 0.0, "the wall clock was set by +3600 s"),
        (-7100.0, 0.0, "the wall clock was set by -7200 s"),
        (700.0, 600.0, "the machine slept for 600 s"),
    ],
)
def test_a_wall_clock_that_was_set_meanwhile_is_told(tmp_path: Path, wall_s: float, slept_s: float, told: str) -> None:
    path = _write(tmp_path / "a.csv")
    sidecar = path.with_name("a.csv.json")
    facts = json.loads(sidecar.read_text())
    start = {"monotonic_ns": START_NS, "unix_ns": UNIX_NS, "boottime_ns": START_NS}
    spans = {"monotonic_ns": 100.0, "unix_ns": wall_s, "boottime_ns": 100.0 + slept_s}
    end = {clock: start[clock] + round(span * 1e9) for clock, span in spans.items()}
    sidecar.write_text(json.dumps(facts | {"anchors": {"start": start, "end": end}}))
    notes = load(path).attrs["notes"]
    assert [n for n in notes if told and n.startswith(told)] == notes
    assert len(notes) == bool(told)


@pytest.mark.parametrize(("time_u_s", "told"), [(0.0, 0), (9e-4, 0), (0.21, 1)])
def test_rows_whose_times_are_hardly_known_are_told(tmp_path: Path, time_u_s: float, told: int) -> None:
    sidecar = _write(tmp_path / "a.csv").with_name("a.csv.json")
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"time_u_s": time_u_s}))
    assert sum("is known to +- 0.21 s only" in n for n in load(tmp_path / "a.csv").attrs["notes"]) == told


@pytest.mark.parametrize(
    ("lost", "dropped", "told"), [(3, 0, 0), (0, 3, 0), (1, 2, 0), (0, 9, 0), (0, 2, 1), (4, 0, 1)]
)
def test_rows_that_the_disk_refused_are_lost_as_well(tmp_path: Path, lost: int, dropped: int, told: int) -> None:
    """Three rows are missing in the file."""
    sidecar = _write(tmp_path / "a.csv").with_name("a.csv.json")
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"lost": lost, "dropped": dropped}))
    assert sum("others were lost" in n for n in load(tmp_path / "a.csv").attrs["notes"]) == told


def test_a_number_of_lost_rows_in_hexadecimal_is_none(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv")
    path.write_text(path.read_text().replace(",3,24", ",0x3,24"))
    with pytest.raises(FileFormatError, match="lost is not a whole number"):
        load(path)


def test_a_register_that_has_counted_for_years_is_read(tmp_path: Path) -> None:
    """The sum of a POWER9's samples is 1.4e13 after half a year; as joules that would be no number."""
    path = tmp_path / "occ.csv"
    rows = [
        f"{1_700_000_000 + 0.04 * i:.6f},{0.04 * i:.6f},,0,500,{20 * i},500,{20 * i},{14e12 + 40_000 * i}"
        for i in (0, 1, 2)
    ]
    path.write_text(
        "\n".join(["time,elapsed,marker,lost,total_W,total_J,system_W,system_J,system.sum_count", *rows, ""])
    )
    assert load(path)["system.sum_count"].tolist() == [14e12, 14e12 + 40_000, 14e12 + 80_000]
    path.write_text(path.read_text().replace("system.sum_count", "system.sum_J"))
    with pytest.raises(FileFormatError, match="cannot be"):
        load(path)


def test_without_its_sidecar_nothing_is_claimed(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv")
    (tmp_path / "a.csv.json").unlink()
    table = load(path)
    assert table.attrs["complete"] is None
    assert table.attrs["virtual"] is None
    assert "a.csv.json is missing" in table.attrs["notes"][0]


def test_a_broken_sidecar_is_told_and_the_rows_are_read(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv")
    (tmp_path / "a.csv.json").write_text("{")
    table = load(path)
    assert len(table) == 100
    assert "cannot be read" in table.attrs["notes"][0]


@pytest.mark.parametrize("name", ["a.csv", "a.pmt", "a.ps3"])
def test_a_dump_that_was_not_ended_says_so(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path / name)
    beside = tmp_path / f"{name}.json"
    facts = json.loads(beside.read_text())
    # As written at the start, of a writer that was killed or found no room for the end.
    unknown = dict.fromkeys(("rows", "lost", "dropped", "time_u_s", "uncovered_s"))
    beside.write_text(json.dumps(facts | unknown | {"complete": False}))
    table = load(path)
    assert table.attrs["complete"] is False
    assert sum("was not ended, or is still being written" in note for note in table.attrs["notes"]) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_cannot_be_read_twice_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with pytest.raises(FileFormatError, match=f"{name} is no ordinary file.*write it into a file first"):
            load(tmp_path / name)
        with pytest.raises(FileFormatError, match="no ordinary file"):
            convert(tmp_path / name, tmp_path / "made.csv")
    path = _write(tmp_path / "a.csv")
    (tmp_path / "a.csv.json").unlink()
    os.mkfifo(tmp_path / "a.csv.json")
    assert "a.csv.json is no ordinary file" in load(path).attrs["notes"][0]


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv")
    (tmp_path / "a.csv.json").write_text('{"format": 99}')
    with pytest.raises(FileFormatError, match="newer pmtpy"):
        load(path)


@pytest.mark.parametrize(
    ("spoil", "line", "why"),
    [
        (lambda text: text[:-10], 101, "no end"),
        (lambda text: text[:-100], 100, "no end"),
        (lambda text: text.replace(b",24.", b",2x.", 1), 2, "not a number"),
        (lambda text: text.replace(b"\n1700000000.000050,", b"\n", 1), 3, "10 fields where there should be 11"),
        (lambda text: text.replace(b"\n1700000000.000050,", b"\n\n1700000000.000050,,", 1), 4, "12 fields"),
    ],
)
def test_a_broken_line_is_named_and_left_out_only_if_asked(
    tmp_path: Path, spoil: object, line: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "a.csv")
    assert callable(spoil)
    path.write_bytes(spoil(path.read_bytes()))
    for with_pyarrow in (True, False):
        if not with_pyarrow:
            monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(FileFormatError, match=f"line {line}: .*{why}.*skip_broken=True"):
            load(path)
        table = load(path, skip_broken=True)
        assert table.attrs["broken_lines"] == [line]
        assert len(table) >= 98
        assert table["total_W"].eq(24.0).all()


def test_a_last_line_that_lacks_only_its_end_is_taken(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.csv")
    path.write_bytes(path.read_bytes()[:-1])
    assert len(load(path)) == 100


def test_reading_without_pyarrow_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "a.csv")
    table = load(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    other = load(path)
    assert table["marker"].tolist() == other["marker"].tolist()
    np.testing.assert_array_equal(table.drop(columns="marker"), other.drop(columns="marker"))


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_files_with_hardly_any_rows_are_read(tmp_path: Path, name: str, n: int) -> None:
    assert len(load(_write(tmp_path / name, n))) == n


def test_a_parquet_file_without_its_end_is_a_typed_error(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(FileFormatError, match="not whole"):
        load(path)


def test_a_compressed_file_without_its_end_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    with pytest.raises(FileFormatError, match="not whole"):
        load(path)


def test_missing_pandas_names_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BackendUnavailableError, match=r"pmtpy\[analysis\]"):
        load(_write(tmp_path / "a.csv"))


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.csv")


def test_energies_that_are_not_recorded_are_integrated_and_said_to_be(tmp_path: Path) -> None:
    """100 W for 4 s, 300 W from then on; a second of it was lost."""
    path, t = tmp_path / "polls.csv", np.arange(101) * 0.1
    t = t[(t < 6.05) | (t > 6.95)]
    lost = np.where(np.diff(t, prepend=0.0) > 0.5, 9, 0)
    watts = np.where(t < 4.05, 100.0, 300.0)
    body = "\n".join(f"{1e9 + at:.6f},{at:.9f},,{n},{w},{w}" for at, n, w in zip(t, lost, watts, strict=True))
    path.write_text(f"time,elapsed,marker,lost,total_W,rail_W\n{body}\n")
    table = pmt.load(path)
    assert [*table.columns][4:] == ["total_W", "total_J", "rail_W", "rail_J"]
    assert table["total_J"].iloc[-1] == pytest.approx(4.0 * 100.0 + 0.1 * 200.0 + (1.9 + 3.0) * 300.0)
    assert table["total_J"].equals(table["rail_J"])
    assert table.attrs["joules"] == "integrated from the watts, by the trapezoidal rule"
    assert table.attrs["uncovered_s"] == pytest.approx(1.0)
    with open_blocks(path) as recording:
        (block,) = recording.blocks
    assert recording.names == [n for n in table.columns if n != "marker"]
    np.testing.assert_array_equal(block.columns["total_J"], table["total_J"])
    whole = Integrated(["elapsed", "lost", "total_W"], None)
    columns = {n: table[n].to_numpy() for n in ("elapsed", "lost", "total_W")}
    parts = [whole.add({n: c[i : i + 7] for n, c in columns.items()})["total_J"] for i in range(0, len(t), 7)]
    np.testing.assert_allclose(np.concatenate(parts), table["total_J"])
    part = pmt.load(path, start=2.0)
    assert part["total_J"].iloc[0] == 0.0
    assert any("count from the first row read" in note for note in part.attrs["notes"])
    convert(path, tmp_path / "whole.csv")
    assert pmt.load(tmp_path / "whole.csv")["total_J"].iloc[-1] == pytest.approx(table["total_J"].iloc[-1])


def _logged(path: Path, t: np.ndarray, watts: np.ndarray, *, empty: bool) -> Path:
    """Write a log with our columns by another program: powers, and energies that are missing or empty."""
    end = "," if empty else ""
    rows = [f"{1e9 + at:.6f},{at:.9f},,0,{w}{end}" for at, w in zip(t, watts, strict=True)]
    path.write_text("\n".join(["time,elapsed,marker,lost,total_W" + ",total_J" * empty, *rows]) + "\n")
    return path


@pytest.mark.parametrize("empty", [False, True])
def test_a_hole_in_a_log_with_our_columns_has_no_energy_and_is_noted(tmp_path: Path, *, empty: bool) -> None:
    """60 W for 20 s, a day without rows, 200 W for 20 s."""
    t = np.arange(4000) * 0.01
    path = _logged(tmp_path / "a.csv", t + 86400.0 * (t > 19.995), np.where(t < 19.995, 60.0, 200.0), empty=empty)
    table = pmt.load(path)
    assert table["total_J"].iloc[-1] == pytest.approx(19.99 * (60.0 + 200.0))
    assert table.attrs["joules"] == "integrated from the watts, by the trapezoidal rule"
    assert table.attrs["uncovered_s"] == pytest.approx(86400.01)
    told = [n for n in table.attrs["notes"] if "no row for" in n]
    assert told == ["behind 19.99 s: no row for 86400.010 s, where one comes every 0.01 s; that time has no energy"]
    made = convert(path, tmp_path / "b.csv")
    assert told[0] in made.notes
    assert pmt.load(tmp_path / "b.csv")["total_J"].iloc[-1] == pytest.approx(19.99 * 260.0)
    whole, columns = Integrated(["elapsed", "lost", "total_W"], None), dict(table[["elapsed", "lost", "total_W"]])
    columns = {n: c.to_numpy() for n, c in columns.items()}
    parts = [whole.add({n: c[i : i + 500] for n, c in columns.items()})["total_J"] for i in range(0, len(t), 500)]
    np.testing.assert_allclose(np.concatenate(parts), table["total_J"])
    assert whole.notes() == told


def test_a_log_of_which_no_energy_is_known_has_none(tmp_path: Path) -> None:
    """Of any two rows that follow each other one has no power."""
    t = np.arange(100) * 0.1
    table = pmt.load(_logged(tmp_path / "a.csv", t, np.where(np.arange(100) % 2, np.nan, 50.0), empty=False))
    assert table["total_J"].isna().all()
    assert table.attrs["uncovered_s"] == pytest.approx(9.9)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_labels_stand_at_their_rows_however_long_the_recording(tmp_path: Path, name: str) -> None:
    n, labelled = 200_000, {0: "first", 65_535: "a", 65_536: "b", 131_072: "a", 199_999: "last"}
    sink = open_sink(tmp_path / name, HEADER)
    k, none = np.arange(n), np.zeros((n, 2), np.int64)
    joules, values = np.stack([24.0 * k * 50e-6] * 2, axis=1), np.tile([2.0, 12.0, 40.0], (n, 1))
    marks = tuple(labelled.items())
    sink.write(Frame(START_NS + k * 50_000, np.full((n, 2), 24.0), joules, values, none[:, 0], none, marks))
    sink.close(Ending(Anchor(0, 0), rows=n, lost=0, dropped=0, complete=True))
    marker = load(tmp_path / name)["marker"]
    assert {row: marker[row] for row in np.flatnonzero((marker != "").to_numpy())} == labelled
    assert load(tmp_path / name, start=65_534.5 * 50e-6, max_rows=2)["marker"].tolist() == ["a", "b"]


def test_parquet_of_another_program_is_told_apart_by_all_readers(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pmt.load(_write(tmp_path / "b.parquet"))[["time", "total_W"]].to_parquet(path)
    told = r"a\.parquet: it is a Parquet file, but not one of pmtpy: its columns are time, total_W"
    with pytest.raises(FileFormatError, match=told):
        load(path)
    with pytest.raises(FileFormatError, match=told):
        convert(path, tmp_path / "c.csv")
    with pytest.raises(FileFormatError, match=told), open_blocks(path):
        pass


def test_rows_that_pandas_has_picked_out_and_written_are_read(tmp_path: Path) -> None:
    table = load(_write(tmp_path / "a.parquet"))
    table["total_W"] = table["total_W"].astype(np.int64)  # whole watts
    table["marker"] = table["marker"].astype("category")
    picked = table[table["pair0_W"] > 0].iloc[3:50:2]
    picked.to_parquet(tmp_path / "b.parquet")
    found = load(tmp_path / "b.parquet")
    assert list(found.columns) == list(table.columns)
    assert found["total_W"].dtype == np.float64
    assert found["lost"].dtype == np.int64
    np.testing.assert_array_equal(found["total_J"], picked["total_J"])
    assert found["marker"].tolist() == picked["marker"].tolist()
    assert found.attrs["complete"] is None


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jls", "a.pmt"])
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(FileFormatError, match="is empty: its writer was stopped"):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_time_of_which_no_energy_is_known_is_said_by_the_file(tmp_path: Path, name: str) -> None:
    clock = ManualClock()
    source = Counter(make_world("constant:60", clock=clock))
    # Nobody but the test reads: a poller would use up some of the five readings that fail.
    with Sensor(source, "counter", clock, interval_s=1e6) as sensor, sensor.dump(tmp_path / name):
        for i in range(40):
            clock.advance(0.1)
            if i == 20:  # it begins anew while it cannot be read
                source.fail, source.start = 5, -1e8
            acquisition_of(sensor).step()
    table = load(tmp_path / name)
    assert table.attrs["uncovered_s"] == pytest.approx(0.6)  # from the row before to that behind
    assert table.attrs["notes"] == ["no energy is known for 600 ms of 4 s (15%); the joules do not contain it"]
    assert load(tmp_path / name, 0.0, 1.0).attrs["uncovered_s"] is None


def test_what_a_reader_did_not_foresee_is_not_laid_on_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,elapsed,marker,lost,total_W,total_J\n1,0,,0,1,0\n2,1,,0,1,1\n")

    def fails(error: Exception) -> None:
        def read(*_: object) -> None:
            raise error

        monkeypatch.setattr(pmtpy.io.read, "READERS", (Reader("own", lambda _: True, read),))  # type: ignore[arg-type]

    fails(AttributeError("no such thing"))
    with pytest.raises(
        FileFormatError, match=r"AttributeError: no such thing.*damaged, or pmtpy is at fault"
    ) as raised:
        pmt.load(path)
    assert isinstance(raised.value.__cause__, AttributeError)
    fails(OSError("Couldn't deserialize"))
    with pytest.raises(FileFormatError, match="deserialize"):
        pmt.load(path)
    fails(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        pmt.load(path)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("wrong", ["one of the two columns is wrong", "the last row does not say its total_J", ""])
def test_rows_that_are_passed_on_are_held_against_each_other_as_those_of_a_table(
    name: str, wrong: str, tmp_path: Path
) -> None:
    path = _write(tmp_path / name, counted=1e-3 if "columns" in wrong else 1.0)
    if "last" in wrong:
        table = pmt.load(path)
        table.loc[len(table) - 1, "total_J"] = math.nan
        (table.to_csv if name.endswith(".csv") else table.to_parquet)(path, index=False)
    notes = load(path).attrs["notes"]
    assert not wrong or any(wrong in note for note in notes)
    with open_blocks(path) as recording:
        rows = sum(len(block.columns["elapsed"]) for block in recording.blocks)
        assert recording.attrs(rows)["notes"] == notes
