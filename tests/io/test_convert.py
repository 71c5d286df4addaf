"""From one format to another: all that was there is there after, what is broken is not written, memory is bounded."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pmtpy.cli import main
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import FileFormatError, SinkError, TargetError
from pmtpy.io.channels import channel_of, described
from pmtpy.io.convert import convert
from pmtpy.io.read import READERS, load
from pmtpy.io.write import FORMATS, Ending, Header, Options, RecordedRegion, open_sink
from tests.support.one_pair import HEADER, LAYOUT, START_NS, UNIX_NS

STEP_NS = 50_000
REGIONS = (RecordedRegion("Lösung, é", START_NS + 100_000, START_NS + 400_000),)


def recording(path: Path, n: int = 100, block: int = 10_000) -> Path:
    """Write ``n`` rows of 24 W, 50 us apart; rows 5 and 6 are marked, 3 rows were lost before row 8."""
    sink = open_sink(path, HEADER)
    for first in range(0, n, block):
        k = np.arange(first, min(first + block, n))
        lost = np.where(k == 8, 3, 0)
        sink.write(
            Frame(
                START_NS + k * STEP_NS,
                np.full((len(k), 2), 24.0),
                np.stack([24.0 * k * 50e-6] * 2, axis=1),
                np.tile([2.0, 12.0, 40.0], (len(k), 1)),
                lost,
                np.zeros((len(k), 2), np.int64),
                ((5, "a, b"), (6, "größer")) if first == 0 else (),
            )
        )
    end = Anchor(START_NS + n * STEP_NS, UNIX_NS + n * STEP_NS)
    sink.close(Ending(end, rows=n, lost=3, dropped=0, complete=True, regions=REGIONS))
    return path


@pytest.mark.parametrize(("first", "second"), [("a.csv", "b.parquet"), ("a.parquet", "b.csv"), ("a.csv", "b.csv")])
def test_our_own_formats_hold_all_of_each_other(tmp_path: Path, first: str, second: str) -> None:
    made = convert(recording(tmp_path / first), tmp_path / second)
    a, b = load(tmp_path / first), load(tmp_path / second)
    assert made.rows == 100
    assert made.lost == 3
    assert made.notes == ()
    assert list(a.columns) == list(b.columns)
    assert a["marker"].tolist() == b["marker"].tolist()
    for name in a.columns.drop("marker"):
        tolerance = 1.1e-6 if name == "time" else 5e-7  # a microsecond: decimals of time in a CSV file, and of joules
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=tolerance)
    before, after = a.attrs["metadata"], b.attrs["metadata"]
    assert after["converted_from"].startswith(first)
    for key in ("target", "virtual", "identity", "channels", "anchors", "rows", "lost", "complete", "regions"):
        assert after[key] == before[key], key


def test_a_channel_comes_back_from_its_description() -> None:
    for channel in LAYOUT.channels:
        facts = described(channel, in_total=True)
        assert described(channel_of(facts), in_total=True) == facts


def test_thinning_loses_no_energy(tmp_path: Path) -> None:
    convert(recording(tmp_path / "a.csv", 1000), tmp_path / "b.csv", interval_s=1e-3)
    a, b = load(tmp_path / "a.csv"), load(tmp_path / "b.csv")
    assert len(b) < 60
    assert b["total_J"].iloc[-1] == pytest.approx(a["total_J"].iloc[-1], abs=1e-6)
    assert b["lost"].sum() == 3


@pytest.mark.parametrize("kind", ["csv", "pmt", "ps3"])
def test_marks_between_rows_of_intervals_cost_no_energy(tmp_path: Path, kind: str) -> None:
    dense, path = tmp_path / "a.csv", tmp_path / f"b.{kind}"
    marks = tuple((row, "m") for row in range(300, 2000, 150))
    sink = open_sink(dense, HEADER)
    k = np.arange(2000)
    joules, nothing = np.stack([24.0 * k * 50e-6] * 2, axis=1), np.zeros((2000, 2), np.int64)
    values = np.tile([2.0, 12.0, 40.0], (2000, 1))
    sink.write(Frame(START_NS + k * STEP_NS, np.full((2000, 2), 24.0), joules, values, nothing[:, 0], nothing, marks))
    sink.close(Ending(Anchor(START_NS + 1999 * STEP_NS, UNIX_NS + 1999 * STEP_NS), 2000, 0, 0, complete=True))
    convert(dense, path, interval_s=10e-3)
    table = load(path)
    assert table["total_J"].iloc[-1] == pytest.approx(24.0 * 1999 * 50e-6, rel=1e-3)
    assert table["lost"].sum() == 0


@pytest.mark.parametrize(("kind", "package"), [("parquet", "pyarrow"), ("jls", "pyjls")])
@pytest.mark.parametrize("columns", ["total", "total gpu"])
def test_a_log_without_metadata_keeps_its_total_however_often_it_is_converted(
    tmp_path: Path, columns: str, kind: str, package: str
) -> None:
    pytest.importorskip(package)
    log = tmp_path / "log.pmt"
    rows = [" ".join(line.split()[: 2 + columns.count(" ")]) for line in ("0.000 50.000 30.000", "1.000 60.000 40.000")]
    log.write_text(f"timestamp {columns}\n" + "".join(f"170000000{row}\n" for row in rows))
    source, energy = log, load(log)["total_J"].iloc[-1]
    for suffix in ("csv", kind, "csv", kind):
        target = source.with_suffix(f".again.{suffix}")
        convert(source, target)
        table = load(target)
        assert table["total_W"].tolist() == pytest.approx([50.0, 60.0])
        assert table["total_J"].iloc[-1] == pytest.approx(energy)
        assert table["time"].tolist() == pytest.approx([1_700_000_000.0, 1_700_000_001.0])
        assert table.attrs["metadata"]["clock"] == "unix"
        source = target


def test_a_log_without_a_clock_is_asked_for_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log.pmt"
    log.write_text("timestamp total\n0.000 50.000\n1.000 60.000\n")
    with pytest.raises(TargetError, match="--start"):
        convert(log, tmp_path / "log.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["log.pmt"]
    convert(log, tmp_path / "log.csv", start_s=1_700_000_000.0)
    assert load(tmp_path / "log.csv")["time"].tolist() == [1_700_000_000.0, 1_700_000_001.0]


def test_a_beginning_is_not_taken_for_a_recording_that_tells_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log.pmt"
    log.write_text("timestamp total\n1700000000.000 50.000\n1700000001.000 60.000\n")
    made = convert(log, tmp_path / "log.csv", start_s=1_600_000_000.0)
    assert any("says itself when" in note for note in made.notes)
    assert load(tmp_path / "log.csv")["time"].tolist() == [1_700_000_000.0, 1_700_000_001.0]


@pytest.mark.parametrize("source", ["log.csv", "log.ps3"])
def test_rows_of_another_tool_that_come_fast_stay_apart_in_a_pmt_file(tmp_path: Path, source: str) -> None:
    # 20 kHz, and nothing beside it that says so
    rows = [(k * 50e-6, 10.0 + k) for k in range(40)]
    log, n = tmp_path / source, len(rows)
    if source == "log.csv":
        head, line = "time,elapsed,marker,lost,total_W\n", "{0:.6f},{1:.6f},,0,{2}\n"
    else:
        head = "marker time dt_micro device_timestamp current0 voltage0 power0 power_total\n"
        line = "S {1:.6g} 50 {3} 1 {2} {2} {2}\n"
    text = [line.format(1.7e9 + t, t, w, round(t * 1e6) % 1024) for t, w in rows]
    log.write_text(head + "".join(text))
    convert(log, tmp_path / "log.pmt", start_s=None if source == "log.csv" else 1.7e9)
    made = load(tmp_path / "log.pmt")
    assert made["elapsed"].tolist() == pytest.approx([t for t, _ in rows], abs=1e-6)
    # by the trapezoidal rule, as the log itself: from 10 W in steps of 1 W
    assert made["total_J"].iloc[-1] == pytest.approx(50e-6 * (n - 1) * (10.0 + (n - 1) / 2), rel=1e-3)


def test_of_a_broken_recording_nothing_is_written(tmp_path: Path) -> None:
    source = recording(tmp_path / "a.csv")
    lines = source.read_text().splitlines(keepends=True)
    lines[50] = "nonsense\n"
    source.write_text("".join(lines))
    with pytest.raises(FileFormatError, match="line 51"):
        convert(source, tmp_path / "b.parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.csv.json"]
    assert convert(source, tmp_path / "b.parquet", skip_broken=True).rows == 99
    assert load(tmp_path / "b.parquet").attrs["complete"] is False


def test_a_file_is_replaced_only_if_that_is_asked_for(tmp_path: Path) -> None:
    source, there = recording(tmp_path / "a.csv"), tmp_path / "b.pmt"
    there.write_text("mine")
    with pytest.raises(SinkError, match="exists already"):
        convert(source, there)
    assert there.read_text() == "mine"
    convert(source, there, options=Options(overwrite=True))
    assert len(load(there)) == 100
    with pytest.raises(TargetError, match="recording itself"):
        convert(source, source)


def test_no_folder_of_the_users_is_replaced(tmp_path: Path) -> None:
    source, over = recording(tmp_path / "a.csv"), Options(overwrite=True)
    for name in ("b.csv", "b.otf2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
        with pytest.raises(SinkError, match=f"cannot write .*{name}: it is a folder"):
            convert(source, tmp_path / name, options=over)
        assert (tmp_path / name / "mine").read_text() == "mine"
    (tmp_path / "c.csv").mkdir()
    with pytest.raises(SinkError, match=r"c\.csv: it is a folder$"):
        convert(source, tmp_path / "c.csv", options=over)


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    recording(tmp_path / "a.parquet", 300_000, 100_000)
    peaks = []
    for n, name in ((100_000, "part.parquet"), (300_000, "a.parquet")):
        if name != "a.parquet":
            recording(tmp_path / name, n, 100_000)
        tracemalloc.start()
        convert(tmp_path / name, tmp_path / f"{name}.csv")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_the_verb_says_what_it_wrote_and_what_found_no_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = recording(tmp_path / "a.csv")
    assert main(["convert", str(source), str(tmp_path / "a.ps3")]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'a.ps3'}\n"
    assert "100 rows, 3 rows lost in the recording" in err
    assert "the format powersensor3 has no place for energies" in err
    assert main(["convert", str(source), str(tmp_path / "a.xyz")]) == 2
    assert "no format has the suffix .xyz" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "none.csv"), str(tmp_path / "b.csv")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "noon", "nan", "1796048621478", "9999-12-31T00:00:00Z"])
def test_a_beginning_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    log = tmp_path / "log.pmt"
    log.write_text("timestamp total\n0.000 50.000\n1.000 60.000\n")
    assert main(["convert", str(log), str(tmp_path / "log.csv"), "--start", text]) == 2
    assert "Unix seconds" in capsys.readouterr().err


def _table(path: Path, watts: list[float], joules: list[float], lost: list[int] | None = None) -> Path:
    """Write rows 0.1 s apart; NaN: an empty field. Nothing stands beside it."""
    rows = ["time,elapsed,marker,lost,total_W,total_J,cpu_W,cpu_J"]
    for i, (w, j) in enumerate(zip(watts, joules, strict=True)):
        fields = ",".join("" if v != v else f"{v:.6f}" for v in (w, j, w, j))  # noqa: PLR0124
        rows.append(f"{1.7e9 + i / 10:.6f},{i / 10:.9f},,{lost[i] if lost else 0},{fields}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("empty", range(1, 9))
def test_an_interval_over_an_empty_field_has_the_power_that_was_drawn(tmp_path: Path, empty: int) -> None:
    watts, joules = [60.0] * 9, [6.0 * i for i in range(9)]
    watts[empty] = joules[empty] = float("nan")
    convert(_table(tmp_path / "a.csv", watts, joules), tmp_path / "b.csv", interval_s=0.2)
    made = load(tmp_path / "b.csv")
    np.testing.assert_allclose(made["total_W"], 60.0, atol=1e-3)
    np.testing.assert_allclose(made["cpu_W"], 60.0, atol=1e-3)
    np.testing.assert_allclose(made["total_J"].iloc[-1], 42.0 if empty == 8 else 48.0, atol=1e-5)


def test_an_interval_over_lost_rows_has_the_power_of_the_time_that_was_covered(tmp_path: Path) -> None:
    # 60 W; before row 3 are 0.1 s of which the energy of 0.02 s alone is known.
    joules = [0.0, 6.0, 12.0, 13.2, 19.2, 25.2, 31.2]
    source = _table(tmp_path / "a.csv", [60.0] * 7, joules, [0, 0, 0, 4, 0, 0, 0])
    convert(source, tmp_path / "b.csv", interval_s=0.3)
    made = load(tmp_path / "b.csv")
    np.testing.assert_allclose(made["total_W"], 60.0, atol=1e-3)
    np.testing.assert_allclose(made["total_J"].to_numpy(), [0.0, 13.2, 31.2], atol=1e-5)
    assert made["lost"].tolist() == [0, 4, 0]


@pytest.mark.parametrize("target", ["b.csv", "b.parquet"])
def test_what_a_recording_does_not_say_is_not_said_of_its_copy(tmp_path: Path, target: str) -> None:
    convert(_table(tmp_path / "a.csv", [60.0] * 3, [0.0, 6.0, 12.0]), tmp_path / target)
    made = load(tmp_path / target)
    facts = made.attrs["metadata"]
    assert made.attrs["virtual"] is facts["virtual"] is facts["identity"]["virtual"] is None
    assert any("whether it is virtual" in n for n in made.attrs["notes"])
    assert any("whether it is virtual" in n for n in facts["identity"]["notes"])
    # Its times are of the wall alone: each anchor pairs one with itself, and no better clock is claimed.
    start, end = facts["anchors"]["start"], facts["anchors"]["end"]
    assert start["unix_ns"] == start["monotonic_ns"] == pytest.approx(1.7e18, abs=1e6)
    assert end["unix_ns"] - start["unix_ns"] == pytest.approx(2e8, abs=1e6)
    assert "monotonic" not in made.attrs["clock"]
    convert(tmp_path / target, tmp_path / f"again-{target}")
    assert load(tmp_path / f"again-{target}").attrs["virtual"] is None


def test_powers_that_do_not_make_the_energy_are_not_kept_alone(tmp_path: Path) -> None:
    # 12 J were counted; the powers at the rows make 6 J.
    source = _table(tmp_path / "a.csv", [30.0] * 3, [0.0, 6.0, 12.0])
    with pytest.raises(SinkError, match=r"6 J where 12 J were recorded; convert to .csv"):
        convert(source, tmp_path / "b.pmt")
    assert not list(tmp_path.glob("b.pmt*"))
    convert(_table(tmp_path / "c.csv", [60.0] * 3, [0.0, 6.0, 12.0]), tmp_path / "c.pmt")
    assert load(tmp_path / "c.pmt")["total_J"].iloc[-1] == pytest.approx(12.0, abs=1e-3)


def test_an_archive_that_the_library_cannot_finish_is_an_error_of_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    otf2 = pytest.importorskip("otf2")
    fault = pytest.importorskip("_otf2.ErrorCodes").Error

    def fail(_writer: object) -> None:
        raise type("Fault", (fault,), {"__init__": lambda _self: None, "__str__": lambda _self: "full"})

    monkeypatch.setattr(otf2.writer.Writer, "_write_global_definitions", fail)
    with pytest.raises(SinkError, match="cannot write to"):
        convert(recording(tmp_path / "a.csv"), tmp_path / "b.otf2")
    assert not list(tmp_path.glob("*b.otf2*"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jls"])
def test_a_part_is_a_recording_of_its_own(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip({".parquet": "pyarrow", ".jls": "pyjls"}.get(suffix, "pandas"))
    source, into = recording(tmp_path / f"run{suffix}", 40_000), tmp_path / "part.csv"
    assert main(["convert", str(source), str(into), "--from", "0.5", "--to", "1500ms", "--quiet"]) == 0
    found, want = load(into), load(source, 0.5, 1.5)
    assert len(found) == len(want)
    assert found["time"].to_numpy() == pytest.approx(want["time"].to_numpy(), abs=1e-6)
    assert found["elapsed"].iloc[0] == 0.0
    spent = found["total_J"].iloc[-1] - found["total_J"].iloc[0]
    assert spent == pytest.approx(want["total_J"].iloc[-1] - want["total_J"].iloc[0], abs=1e-6)
    assert found.attrs["complete"] is True
    assert found.attrs["virtual"] is True
    assert found.attrs["metadata"]["lost"] == 0  # those of the recording lie before the part
    assert main(["convert", str(source), str(tmp_path / "again.csv"), "--from", "0.5", "--to", "1500ms"]) == 0
    said = "".join(capsys.readouterr())
    assert "a part: from 0.5 s to 1.5 s" in said
    assert "of the recording" not in said  # the new file counts from its own first row
    assert main(["convert", str(source), str(tmp_path / "none.csv"), "--from", "1h"]) == 2
    assert "no rows in the part that was asked for" in capsys.readouterr().err
    assert main(["convert", str(source), str(tmp_path / "none.csv"), "--from", "3", "--to", "2"]) == 2
    assert "does not lie behind" in capsys.readouterr().err


def test_a_pmt_file_has_names_that_its_reader_takes_and_is_not_doubted_for_three_decimals(tmp_path: Path) -> None:
    names = ['a,b "ü" c', "Rail 1", "Rail 2", "Rail 3"]
    t = np.arange(400) / 10.0
    watts = 10.0 + np.random.default_rng(3).random((400, 4))
    joules = np.cumsum(watts / 10.0, axis=0)
    channels = tuple(Channel(name, Quantity.POWER, domain=str(i)) for i, name in enumerate(names))
    sink = open_sink(
        tmp_path / "a.csv", Header("hwmon", Identity("hwmon"), Layout(channels), Anchor(START_NS, UNIX_NS))
    )
    all_watts, all_joules = (np.column_stack([v.sum(axis=1), v]) for v in (watts, joules))
    t_ns, zeros = START_NS + np.rint(t * 1e9).astype(np.int64), np.zeros((400, 5), np.int64)
    sink.write(Frame(t_ns, all_watts, all_joules, np.empty((400, 0)), zeros[:, 0], zeros))
    sink.close(Ending(Anchor(START_NS, UNIX_NS), rows=400, lost=0, dropped=0, complete=True))
    convert(tmp_path / "a.csv", tmp_path / "a.pmt", format="pmt")
    found = load(tmp_path / "a.pmt")
    assert [c for c in found.columns if c.endswith("_W")][1:] == ['a_b_"ü"_c_W', "Rail_1_W", "Rail_2_W", "Rail_3_W"]
    assert not any("add up to" in note for note in found.attrs["notes"])


@pytest.mark.parametrize("even", [True, False])
def test_to_a_text_of_frames_go_only_powers_that_make_the_energies(tmp_path: Path, even: bool) -> None:  # noqa: FBT001
    steps = np.full(2000, 0.01) if even else np.random.default_rng(1).exponential(0.01, 2000)
    elapsed = np.cumsum(steps) - steps[0]
    rows = [f"{1.7e9 + t:.6f},{t:.6f},,0,48,{48 * t:.6f},12,4,48,{48 * t:.6f}\n" for t in elapsed.tolist()]
    source = tmp_path / "a.csv"
    columns = "time,elapsed,marker,lost,total_W,total_J,pair0_V,pair0_A,pair0_W,pair0_J\n"
    source.write_text(columns + "".join(rows))
    if even:
        convert(source, tmp_path / "a.ps3")
        assert load(tmp_path / "a.ps3")["total_J"].iloc[-1] == pytest.approx(48 * elapsed[-1], rel=1e-3)
    else:  # where two rows are far apart its reader finds that others are missing
        with pytest.raises(SinkError, match=r"powersensor3 file keeps powers alone.*energies"):
            convert(source, tmp_path / "a.ps3")
        assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_whatever_a_dump_is_written_in_is_read_again() -> None:
    written = {r.written for r in READERS if r.written}
    assert written == {*FORMATS}, "each format of a dump has a row in the table READERS of pmtpy/io/read"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ({"virtual": "no"}, "virtual must be true or false, not 'no'"),
        ({"virtual": 0}, "virtual must be true or false, not 0"),
        ({"identity": {"backend": "powersensor3", "virtual": 1}}, "virtual is True of the recording and 1 of its dev"),
        ({"identity": {"backend": "powersensor3", "virtual": False}}, "True of the recording and False of its device"),
        ({"identity": {"backend": "powersensor3", "serial": 7}}, "serial of the device must be a text, not 7"),
        ({"identity": {"backend": "powersensor3", "notes": 7}}, "notes of the device must be a row of texts, not 7"),
        ({"identity": {}}, "the identity of the device has no backend"),
        ({"identity": "x"}, "the identity of the device is not an object"),
        ({"channels": 5}, "its channels are not a row of objects with names"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.pmt", "a.ps3"])
def test_metadata_that_cannot_be_believed_are_not_passed_on(
    tmp_path: Path, name: str, spoil: dict[str, object], why: str
) -> None:
    source = recording(tmp_path / name)
    beside = tmp_path / f"{name}.json"
    beside.write_text(json.dumps(json.loads(beside.read_text()) | spoil))
    made = tmp_path / "b.csv"
    with pytest.raises(FileFormatError, match=f"{name}.*{why}.*--skip-broken"):
        convert(source, made, interval_s=0.001)
    assert not made.exists()
    table = load(source)
    assert table.attrs["virtual"] is None
    assert any(why in note for note in table.attrs["notes"])
    start_s = 1_700_000_000.0
    assert any(why in note for note in convert(source, made, skip_broken=True, start_s=start_s).notes)
    assert load(made).attrs["virtual"] is None


def test_a_virtual_recording_that_does_not_name_its_device_stays_virtual(tmp_path: Path) -> None:
    source = recording(tmp_path / "a.csv")
    beside = tmp_path / "a.csv.json"
    facts = json.loads(beside.read_text())
    del facts["identity"]
    beside.write_text(json.dumps(facts))
    convert(source, tmp_path / "b.csv")
    assert load(tmp_path / "b.csv").attrs["virtual"] is True


def test_a_file_that_finds_no_room_is_named_as_it_was_asked_for_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, place = recording(tmp_path / "a.csv"), tmp_path / "there"
    place.mkdir()

    def full(_fd: int, _chunk: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SinkError, match=f"^cannot write to {place}/b.csv: No space left on device"):
        convert(source, place / "b.csv")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jls", "pmt"])
def test_powers_of_which_metadata_say_nothing_stay(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip({"parquet": "pyarrow", "jls": "pyjls"}.get(suffix, "pmtpy"))
    rows = [f"{1.7e9 + k / 10},{k / 10},,0,10,{k}" for k in range(100)]
    (tmp_path / "run.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows, ""]))
    (tmp_path / "run.csv.json").write_text('{"experiment": 5}')
    convert(tmp_path / "run.csv", tmp_path / f"other.{suffix}")
    assert load(tmp_path / f"other.{suffix}")["total_W"].tolist() == [10.0] * 100


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jls"])
@pytest.mark.parametrize(("part", "unknown_s"), [((None, None), 3.0), ((2.0, None), 0.0)])
def test_time_without_a_known_energy_goes_along(
    tmp_path: Path, suffix: str, part: tuple[float | None, float | None], unknown_s: float
) -> None:
    """A log of somebody else: 100 W, a row each 0.1 s, none for 3 s behind the first, so of these nothing is known."""
    if suffix == "jls":
        pytest.importorskip("pyjls")
    seconds = np.append(np.arange(0.0, 1.05, 0.1), np.arange(4.0, 5.05, 0.1))
    rows = [f"{1_700_000_000 + t:.6f},{t:.9f},,0,100.0" for t in seconds.tolist()]
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W", *rows]) + "\n")
    convert(tmp_path / "a.csv", tmp_path / f"b.{suffix}", part=part)
    made = load(tmp_path / f"b.{suffix}")
    assert made.attrs["uncovered_s"] == pytest.approx(unknown_s)
    assert any("no energy is known for" in note for note in made.attrs["notes"]) is (unknown_s > 0)
    convert(tmp_path / "a.csv", tmp_path / f"d.{suffix}", part=part, interval_s=0.3)
    assert not [note for note in load(tmp_path / f"d.{suffix}").attrs["notes"] if "wrong" in note]
    convert(tmp_path / f"b.{suffix}", tmp_path / "c.csv", part=(None, 0.95))
    assert load(tmp_path / "c.csv").attrs["uncovered_s"] == 0.0  # the part before


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_time_without_energy_of_a_dump_that_holds_no_energies_goes_along(tmp_path: Path, suffix: str) -> None:
    """The disk was full for 250 of 500 rows of 24 W: the sensor knew their energy, the file of powers does not."""
    sink, step_ns = open_sink(tmp_path / "a.pmt", HEADER), 10_000_000
    k = np.r_[0:200, 450:500]
    joules = np.stack([24.0 * k * step_ns / 1e9] * 2, axis=1)
    lost, unknown = np.zeros(len(k), np.int64), np.zeros((len(k), 2), np.int64)
    values = np.tile([2.0, 12.0, 40.0], (len(k), 1))
    sink.write(Frame(START_NS + k * step_ns, np.full((len(k), 2), 24.0), joules, values, lost, unknown, ()))
    end = Anchor(START_NS + 500 * step_ns, UNIX_NS + 500 * step_ns)
    sink.close(Ending(end, rows=250, lost=0, dropped=250, complete=False, uncovered_s=0.0))
    assert load(tmp_path / "a.pmt").attrs["uncovered_s"] == pytest.approx(2.51, abs=1e-3)
    convert(tmp_path / "a.pmt", tmp_path / f"b.{suffix}")
    made = load(tmp_path / f"b.{suffix}")
    assert made["total_J"].iloc[-1] == pytest.approx(24.0 * 2.48, rel=1e-4)
    assert made.attrs["uncovered_s"] == pytest.approx(2.51, abs=1e-3)
    assert any("no energy is known for 2.51 s" in note for note in made.attrs["notes"])
    assert not any("one of the two columns is wrong" in note for note in made.attrs["notes"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_was_made_of_a_recording_that_nobody_ended_says_so(tmp_path: Path, suffix: str) -> None:
    path = recording(tmp_path / "a.csv")
    beside = path.with_name("a.csv.json")
    begun = (
        json.loads(beside.read_text()) | dict.fromkeys(("rows", "lost", "dropped")) | {"complete": False, "error": ""}
    )
    beside.write_text(json.dumps(begun))
    convert(path, tmp_path / f"b.{suffix}")
    made = load(tmp_path / f"b.{suffix}")
    assert made.attrs["complete"] is False
    assert any("a.csv was not ended" in note for note in made.attrs["notes"])
