"""What a stretch cost, by recordings and by sensors, against the truth of the virtual world."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor, ManualClock
from pmtpy.core.rows import Block, Frame, Layout
from pmtpy.emulators.world import make_world
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.io.convert import convert
from pmtpy.io.read import load
from pmtpy.io.write import Ending, Header, RecordedMark, open_sink
from pmtpy.live._export import KINDS, write_part
from pmtpy.live._grown import Grown
from pmtpy.live._wording import state, title
from pmtpy.live.desk import Desk
from pmtpy.live.sensing import LiveTrack
from pmtpy.live.stored import StoredTrack
from pmtpy.live.tracks import JlsTrack, Track, layout_of, select
from pmtpy.plotting.decimate import Envelope
from pmtpy.plotting.overview import of_file, of_table
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Gauge, Stream

LOAD = "square:low=30,high=90,hz=1"


@contextmanager
def _fed(path: Path | None = None) -> Iterator[tuple[LiveTrack, ManualClock, Stream]]:
    clock = ManualClock()
    source = Stream(make_world(LOAD, clock=clock))
    with Sensor(source, "stream", clock, history_s=30) as sensor:
        if path is not None:
            sensor.start_dump(path)
        track = LiveTrack(sensor)
        for k in range(200):
            clock.advance(0.05)
            if k == 100:
                sensor.mark("solve start")
            if k == 120:
                sensor.mark("solve end")
            track.take()
        yield track, clock, source


@pytest.fixture(params=["live", "csv", "parquet", "jls"])
def track(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Track]:
    kind = request.param
    if kind == "jls":
        pytest.importorskip("pyjls")
    path = tmp_path / f"a.{kind}"
    with _fed(None if kind == "live" else path) as (live, _, _):
        if kind == "live":
            yield live
    if kind == "jls":
        yield JlsTrack("a.jls", path)
    elif kind != "live":
        yield StoredTrack.of_file(path.name, path)


def test_a_selection_is_the_curve_at_two_instants(track: Track) -> None:
    first, last = track.span
    assert last - first == pytest.approx(9.999, abs=0.002)
    found = select(track, 2.0, 8.0)
    assert [p.name for p in found.powers] == ["total", "pair0", "pair1"]
    assert found.seconds == pytest.approx(6.0)
    assert found.powers[0].joules == pytest.approx(360.0, abs=0.2)  # whole periods; a row is a millisecond of 90 W
    assert found.powers[1].watts == pytest.approx(30.0, abs=0.05)
    assert (found.powers[0].low, found.powers[0].high) == pytest.approx((30.0, 90.0), abs=0.1)
    assert found.powers[0].coverage == 1.0
    assert 0 <= found.powers[0].uncertainty_joules < 1.0


def test_of_a_stretch_of_which_nothing_is_known_no_energy_is(tmp_path: Path) -> None:
    rows = "1.0,0.0,,0,10,0\n2.0,1.0,,0,10,10\n9.0,8.0,,7,10,10\n10.0,9.0,,0,10,20\n"
    (tmp_path / "a.csv").write_text("time,elapsed,marker,lost,total_W,total_J\n" + rows)
    track = StoredTrack.of_file("a", tmp_path / "a.csv")
    (inside,) = select(track, 2.0, 7.0).powers
    assert inside.coverage == 0.0
    assert np.isnan(inside.joules)
    assert np.isnan(inside.watts)
    (whole,) = select(track, 0.0, 9.0).powers
    assert (whole.joules, whole.coverage) == pytest.approx((20.0, 2 / 9))


def test_selections_add_up(track: Track) -> None:
    whole = select(track, 3.0, 3.1).powers[0].joules
    parts = sum(select(track, 3.0 + k * 5e-3, 3.0 + (k + 1) * 5e-3).powers[0].joules for k in range(20))
    assert parts == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jls"])
def test_a_track_says_what_a_reader_must_know_of_its_recording(tmp_path: Path, kind: str) -> None:
    pytest.importorskip({"parquet": "pyarrow", "jls": "pyjls"}.get(kind, "pmtpy"))
    rows = "time,elapsed,marker,lost,total_W,total_J\n1.0,0.0,,0,10,0\n1.1,0.1,,0,10,1\n1.2,0.2,,0,10,2\n"
    (tmp_path / "a.csv").write_text(rows)
    facts = {"format": 1, "target": "a", "virtual": False, "complete": False, "rows": 3, "dropped": 5}
    (tmp_path / "a.csv.json").write_text(json.dumps(facts))
    path = tmp_path / f"a.{kind}"
    if kind != "csv":
        convert(tmp_path / "a.csv", path)
    track = JlsTrack("a", path) if kind == "jls" else StoredTrack.of_file("a", path)
    assert track.note.startswith("incomplete; ")
    assert "5 rows are missing" in track.note
    assert track.note == "; ".join(["incomplete", *load(path).attrs["notes"]])
    assert track.note in state(track)
    assert len(title(track)) < 110


def test_a_long_recording_that_is_written_anew_meanwhile_says_so_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("pyjls")
    path, other = tmp_path / "a.jls", tmp_path / "b.jls"
    for each in (path, other):
        with _fed(each):
            pass
    track = JlsTrack("a", path)
    assert select(track, 2.0, 8.0).powers
    path.unlink()
    assert select(track, 2.0, 8.0).powers[0].joules == pytest.approx(360.0, abs=0.2)  # it is open, and still whole
    with pytest.raises(TargetError, match="deleted"):
        track.table(2.0, 3.0)
    other.replace(path)
    assert select(track, 2.0, 8.0).powers == []
    assert "open it again" in track.note
    assert (len(track.draw(0, 0.0, 9.0, 100)), track.marks(0.0, 9.0), track.gaps(0.0, 9.0)) == (0, [], [])


def test_beyond_its_ends_a_track_says_nothing(track: Track) -> None:
    assert select(track, 20.0, 30.0).powers == []
    assert select(track, -5.0, 30.0).seconds == pytest.approx(9.999, abs=0.002)


def test_it_is_drawn_in_slices_that_hold_every_extreme_and_as_single_rows_close_up(track: Track) -> None:
    wide = track.draw(0, 0.0, 10.0, 100)
    assert 90 <= len(wide) <= 220
    assert (np.nanmin(wide.low), np.nanmax(wide.high)) == pytest.approx((30.0, 90.0), abs=0.1)
    close = track.draw(0, 3.0, 3.02, 100)
    assert 19 <= len(close) <= 24
    np.testing.assert_array_equal(close.low, close.high)
    np.testing.assert_allclose(np.diff(close.t), 1e-3, atol=2e-6)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jls"])
def test_regions_that_the_program_measured_stand_where_they_were(kind: str, tmp_path: Path) -> None:
    if kind == "jls":
        pytest.importorskip("pyjls")
    clock, path = ManualClock(), tmp_path / f"a.{kind}"
    with Sensor(Stream(make_world(LOAD, clock=clock)), "stream", clock, history_s=30) as sensor:
        clock.advance(1.0)
        sensor.start_dump(path)
        first_ns = sensor.read().t_ns
        clock.advance(0.5)
        with pmt.region("solve", sensor):
            begun_ns = clock.now_ns()
            clock.advance(0.25)
        clock.advance(0.5)
        sensor.stop_dump()
    track = JlsTrack("a", path) if kind == "jls" else StoredTrack.of_file("a", path)
    desk = Desk([track])
    (found,) = desk.regions(track, *desk.span)
    assert found.name == "solve"
    assert found.start == pytest.approx((begun_ns - first_ns) / 1e9, abs=0.01)
    assert found.end - found.start == pytest.approx(0.25, abs=1e-6)
    assert desk.regions(track, 0.0, 0.1) == []
    (drawn,) = of_file(path).regions
    assert drawn.name == "solve"
    assert drawn.start == pytest.approx(found.start, abs=1e-6)


def test_marks_stand_at_their_instants(track: Track) -> None:
    marks = track.marks(0.0, 10.0)
    assert [text for _, text in marks] == ["solve start", "solve end"]
    assert marks[1][0] - marks[0][0] == pytest.approx(1.0, abs=0.051)
    assert track.marks(*track.span) == marks
    assert track.marks(8.0, 9.0) == []


@pytest.mark.parametrize("kind", ["csv", "parquet", "jls"])
def test_marks_between_the_rows_of_a_slow_sensor_stand_where_they_were_set(kind: str, tmp_path: Path) -> None:
    """Rows are a second apart: what is shown between two marks would be of another second."""
    if kind == "jls":
        pytest.importorskip("pyjls")
    second, path, rows = 10**9, tmp_path / f"a.{kind}", 20
    layout = Layout((Channel("node", Quantity.POWER, refresh_s=1.0, domain="host"),))
    header = Header("box", Identity("box"), layout, Anchor(second, 1000 * second), polled_s=1.0)
    t = second * (1 + np.arange(rows))
    watts, unknown = np.full((rows, 2), 60.0), np.zeros((rows, 2), np.int64)
    frame = Frame(t, watts, watts * np.arange(rows)[:, None], np.empty((rows, 0)), unknown[:, 0], unknown)
    set_s = {"solve start": 3.1, "solve end": 5.1, "solve start again": 5.2}  # the latter two stand on one row
    sink = open_sink(path, header)
    sink.write(dataclasses.replace(frame, marks=tuple(zip((4, 6, 6), set_s, strict=True))))
    marks = tuple(RecordedMark(label, round((1 + at) * second)) for label, at in set_s.items())
    sink.close(Ending(Anchor(int(t[-1]), 1019 * second), rows, 0, 0, complete=True, marks=marks))
    told: list[tuple[Any, str]] = [(pytest.approx(at, abs=1e-5), label) for label, at in set_s.items()]
    track = JlsTrack("a", path) if kind == "jls" else StoredTrack.of_file("a", path)
    assert track.marks(*track.span) == told
    assert track.marks(5.0, 5.15) == told[1:2]
    assert of_file(path).marks == told
    assert of_table(pmt.load(path)).marks == told


def test_a_selection_of_a_counter_that_stands_for_several_rows_is_what_was_used(tmp_path: Path) -> None:
    """60 W by a counter that moves each 0.1 s, in rows of 10 ms: read off the rows, energies would be out by 6 J."""
    second, path, rows = 10**9, tmp_path / "a.csv", 300
    layout = Layout((Channel("gpu", Quantity.ENERGY, refresh_s=0.1, domain="gpu/0"),))
    t = second + np.arange(rows) * second // 100
    joules = np.tile((6.0 * np.floor((t - second) / (second // 10) + 0.35))[:, None], 2)
    watts, unknown = np.full((rows, 2), 60.0), np.zeros((rows, 2), np.int64)
    sink = open_sink(path, Header("box", Identity("box"), layout, Anchor(second, 1000 * second), polled_s=0.01))
    sink.write(Frame(t, watts, joules, np.empty((rows, 0)), unknown[:, 0], unknown))
    sink.close(Ending(Anchor(int(t[-1]), 1003 * second), rows, 0, 0, complete=True))
    track = StoredTrack.of_file("a", path)
    for k in range(10):
        found = select(track, 1.004, 1.504 + 0.01 * k).powers
        for power in found:
            assert power.joules == pytest.approx(60.0 * (0.5 + 0.01 * k), abs=0.6)  # a move is seen up to a row late
            assert abs(power.joules - 60.0 * (0.5 + 0.01 * k)) < 2.0 * power.uncertainty_joules


@pytest.mark.parametrize("kind", KINDS)
def test_a_stretch_is_exported_as_a_recording(track: Track, kind: str, tmp_path: Path) -> None:
    if kind == "jls":
        pytest.importorskip("pyjls")
    path = tmp_path / f"part.{kind}"
    done = write_part(track, track.table(2.0, 7.0), path)
    assert done.rows == pytest.approx(5000, abs=2)
    part = pmt.load(path)
    assert len(part) == done.rows
    assert list(part.columns)[4:] == list(pmt.load(path).attrs["metadata"]["columns"])[4:]
    assert part["total_J"].iloc[-1] - part["total_J"].iloc[0] == pytest.approx(300.0, abs=0.2)
    assert (part["elapsed"].iloc[0], part["total_J"].iloc[0]) == (0.0, 0.0)
    assert "".join(part["marker"]) == "solve startsolve end"
    assert part.attrs["virtual"] is track.virtual
    assert part.attrs["metadata"]["channels"] == json.loads(json.dumps((track.facts or {})["channels"]))


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_live_page_shows_is_exported_though_single_rows_are_gone(kind: str, tmp_path: Path) -> None:
    if kind == "jls":
        pytest.importorskip("pyjls")
    with _fed() as (full, clock, source):
        live = LiveTrack(full.sensor, raw_s=2.0)
        first_ns = source.sent_ns + 1_000_000
        source.drop = {first_ns + k * 1_000_000 for k in (*range(2010, 2013), *range(2015, 2017))}
        for _ in range(200):
            clock.advance(0.05)
            live.take()
        start, stop = live.span
        assert start < stop - 9.9
        path = tmp_path / f"part.{kind}"
        write_part(live, live.table(start, stop), path)
        shown = select(live, start, stop)
        part = pmt.load(path)
    assert len(part) == pytest.approx(100 * (stop - start), abs=20)  # one row for each hundredth of a second
    spent = part["total_J"].iloc[-1] - part["total_J"].iloc[0]
    assert spent == pytest.approx(shown.powers[0].joules, abs=2.0)  # but for what lies beside the first and last row
    assert part["lost"].sum() == shown.lost == 5
    assert "".join(part["marker"]) == "solve startsolve end"
    assert part.attrs["metadata"]["interval_s"] == pytest.approx(0.01)
    assert any("means of 10 ms" in note for note in part.attrs["notes"])
    assert set(np.round(part["total_W"].iloc[2:-2].quantile([0.1, 0.9]))) == {30.0, 90.0}


def test_nothing_is_exported_where_nothing_is(track: Track, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no rows"):
        write_part(track, track.table(50.0, 51.0), tmp_path / "part.csv")


def test_lost_rows_are_gaps_and_lower_the_coverage() -> None:
    with _fed() as (live, clock, source):
        first_ns = source.sent_ns + 1_000_000
        source.drop = {first_ns + k * 1_000_000 for k in range(10, 110)}
        clock.advance(1.0)
        live.take()
        stop = live.span[1]
        found = select(live, stop - 1.0, stop)
    assert found.lost == 100
    assert found.powers[0].coverage == pytest.approx(0.9, abs=0.002)


@pytest.mark.parametrize("counts_on", [True, False])
def test_every_one_of_very_many_gaps_is_judged_by_the_energy_across_it(tmp_path: Path, *, counts_on: bool) -> None:
    t = np.arange(40_000) * 0.1
    lost = np.arange(40_000) % 2
    rows = {
        "time": 1.7e9 + t,
        "elapsed": t,
        "marker": "",
        "lost": lost,
        "total_W": 5.0,
        "total_J": 0.5 * (np.arange(40_000) if counts_on else np.cumsum(1 - lost) - 1),
    }
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    found = select(StoredTrack.of_file("a", tmp_path / "a.csv"), 0.0, 4000.0)
    assert found.lost == 20_000
    assert found.powers[0].coverage == pytest.approx(1.0 if counts_on else 0.5, abs=1e-3)
    assert found.powers[0].watts == pytest.approx(5.0)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jls"])
@pytest.mark.parametrize("counts_on", [True, False])
def test_a_mean_is_that_of_the_covered_time_whether_or_not_the_energy_counted_on(
    tmp_path: Path, kind: str, *, counts_on: bool
) -> None:
    """Sixty seconds of 80 W, 5 s of them lost: either their 400 J are in the joules and covered, or they are not."""
    if kind == "jls":
        pytest.importorskip("pyjls")
    t = np.delete(np.arange(6001) * 0.01, range(2001, 2500))
    gone = np.where(t > 20.005, 0.0 if counts_on else 400.0, 0.0)
    rows = {"time": 1.7e9 + t, "elapsed": t, "marker": "", "lost": 0, "total_W": 80.0, "total_J": 80.0 * t - gone}
    frame = pd.DataFrame(rows)
    frame.loc[2001, "lost"] = 499
    frame.to_csv(tmp_path / "of_others.csv", index=False)
    path = tmp_path / f"a.{kind}"
    convert(tmp_path / "of_others.csv", path)
    track = JlsTrack("a", path) if kind == "jls" else StoredTrack.of_file("a", path)
    for start, stop, known_s in ((15.0, 30.0, 10.0), (22.0, 23.0, 0.0), (10.0, 22.5, 10.0), (0.0, 60.0, 55.0)):
        (found,) = select(track, start, stop).powers
        covered_s = stop - start if counts_on else known_s
        assert found.coverage * (stop - start) == pytest.approx(covered_s, abs=0.03)
        energy = pytest.approx(80.0 * covered_s, abs=3.0) if covered_s else pytest.approx(np.nan, nan_ok=True)
        assert found.joules == energy
        assert found.watts == pytest.approx(80.0, rel=1e-3) or (not covered_s and np.isnan(found.watts))


@pytest.mark.parametrize("kind", ["csv", "parquet", "jls"])
@pytest.mark.parametrize("rate", [100, 2000])
def test_powers_beyond_the_range_are_not_covered_though_no_row_is_lost(tmp_path: Path, kind: str, rate: int) -> None:
    """Sixty seconds of 80 W, of which 5 s and 0.3 s are saturated: rows without a power, over which no energy rises."""
    if kind == "jls":
        pytest.importorskip("pyjls")
    t = np.arange(60 * rate + 1) / rate
    out = ((t > 20.0) & (t < 25.0)) | ((t > 40.0) & (t < 40.3))
    known = ~(out[1:] | out[:-1])
    joules = np.append(0.0, np.cumsum(np.where(known, 80.0 / rate, 0.0)))
    watts = np.where(out, np.nan, 80.0)
    rows = {"time": 1.7e9 + t, "elapsed": t, "marker": "", "lost": 0, "total_W": watts, "total_J": joules}
    pd.DataFrame(rows).to_csv(tmp_path / "of_others.csv", index=False)
    path = tmp_path / f"a.{kind}"
    convert(tmp_path / "of_others.csv", path)
    track = JlsTrack("a", path) if kind == "jls" else StoredTrack.of_file("a", path)
    for start, stop, out_s in (
        (15.0, 30.0, 5.0),
        (22.0, 23.0, 1.0),
        (39.0, 41.0, 0.3),
        (0.0, 60.0, 5.3),
        (1.0, 9.0, 0),
    ):
        (found,) = select(track, start, stop).powers
        assert (1.0 - found.coverage) * (stop - start) == pytest.approx(out_s, abs=0.03)
        if out_s == stop - start:
            assert np.isnan([found.joules, found.watts]).all()
            continue
        assert found.joules == pytest.approx(80.0 * (stop - start - out_s), abs=2.5)
        assert found.watts == pytest.approx(80.0, rel=0.02)
    for slices in (200, 100_000):  # of the whole, and single rows
        _is_interrupted(track.draw(0, 0.0, 60.0, slices), 20.0, 25.0)


def _is_interrupted(curve: Envelope, start: float, stop: float) -> None:
    inside = (curve.t > start) & (curve.t < stop)
    assert np.isnan(curve.mean[inside]).any()  # else a line leads across
    assert np.isfinite(curve.mean[(curve.t < start) | (curve.t > stop)]).sum() > 100


def test_no_line_leads_across_time_without_a_row(tmp_path: Path) -> None:
    rows = [f"{1.7e9 + k / 10:.6f},{k / 10:.6f},,0,50" for k in range(201) if not 80 < k < 140]
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W", *rows]) + "\n")
    track = StoredTrack.of_file("a", tmp_path / "a.csv")
    _is_interrupted(track.draw(0, 0.0, 20.0, 400), 8.0, 14.0)
    (found,) = select(track, 0.0, 20.0).powers
    assert found.coverage == pytest.approx(0.7)


def test_a_live_curve_is_interrupted_where_a_power_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with _fed() as (live, clock, source):
        begin_ns, whole = source.sent_ns + 200_000_000, source.read

        def read() -> Block:
            block = whole()
            block.raw[(block.t_ns > begin_ns) & (block.t_ns < begin_ns + 500_000_000)] = np.nan
            return block

        monkeypatch.setattr(source, "read", read)
        for _ in range(20):
            clock.advance(0.05)
            live.take()
        stop = live.span[1]
        _is_interrupted(live.draw(0, stop - 2.0, stop, 5000), stop - 0.8, stop - 0.3)


def test_rows_that_the_history_has_dropped_are_a_gap_in_the_picture() -> None:
    with _fed() as (live, clock, _):
        for _ in range(120):  # nobody takes anything for a minute, and the history keeps half of it
            clock.advance(0.5)
            live.sensor.read()
        live.take()
        assert next(round(b - a) for a, b, _ in live.gaps(0.0, 100.0)) >= 10


def test_old_rows_are_kept_as_slices_and_their_energy_exactly() -> None:
    grown = Grown(1, 1, raw_s=5.0)
    t = np.arange(0, 60.0, 1e-3)
    for k in range(0, len(t), 700):
        part = t[k : k + 700]
        grown.append(part, (50 + 40 * np.sin(part))[:, None], (50 * part - 40 * np.cos(part))[:, None])
    assert grown.span == pytest.approx((0.009, 59.999), abs=0.01)
    old = grown.energy_at(20.0)[0] - grown.energy_at(10.0)[0]
    assert old == pytest.approx(500 - 40 * (np.cos(20.0) - np.cos(10.0)), abs=2e-3)  # straight lines over 10 ms
    assert grown.extremes(0, 0.0, 60.0) == pytest.approx((10.0, 90.0), abs=1e-3)
    drawn = grown.draw(0, 0.0, 60.0, 200)
    assert len(drawn) == 200
    assert np.nanmax(drawn.high) == pytest.approx(90.0, abs=1e-3)


def _waves(raw_s: float, most_bytes: int, seconds: float = 200.0) -> Grown:
    """Power 50 + 40 sin(t), one row a millisecond, with a spike of 3 ms in each tenth second."""
    grown = Grown(1, 1, raw_s=raw_s, most_bytes=most_bytes)
    t = np.arange(0, seconds, 1e-3)
    watts = np.where(t % 10 < 2.5e-3, 300.0, 50 + 40 * np.sin(t))
    joules = np.cumsum(watts) * 1e-3
    for k in range(0, len(t), 1700):
        part = slice(k, k + 1700)
        grown.append(t[part], watts[part, None], joules[part, None])
    return grown


def test_rows_that_memory_has_no_room_for_are_answered_from_disk_as_if_it_had() -> None:
    held, spilt = _waves(1e9, 0), _waves(5.0, 10**8)
    assert held.rows_from == spilt.rows_from == 0.0
    assert held.span == spilt.span
    random = np.random.default_rng(1)
    for start in (0.0, 9.9995, *random.uniform(0, 200, 30)):
        stop = min(start + 10 ** random.uniform(-2.5, 2.3), 200.0)
        assert held.energy_at(start) == spilt.energy_at(start)
        assert held.extremes(0, start, stop) == spilt.extremes(0, start, stop)
        for mine, its in zip(held.rows(start, stop, 10**6)[:3], spilt.rows(start, stop, 10**6)[:3], strict=True):
            np.testing.assert_array_equal(mine, its)
        drawn = [g.draw(0, start, stop, 300) for g in (held, spilt)]
        np.testing.assert_array_equal(drawn[0].mean, drawn[1].mean)
    np.testing.assert_array_equal(held.around(50.0).joules, spilt.around(50.0).joules)


def test_extremes_of_a_long_stretch_are_those_of_its_rows_alone() -> None:
    grown = _waves(1e9, 0)
    assert grown.extremes(0, 0.003, 189.999) == pytest.approx((10.0, 300.0), abs=1e-3)
    assert grown.extremes(0, 100.003, 109.9995)[1] == pytest.approx(90.0, abs=0.01)  # between two spikes
    low, high = grown.extremes(0, 0.003, 9.9985)
    assert (low, high) == pytest.approx((10.0, 90.0), abs=0.01)


def test_a_ring_of_rows_on_disk_keeps_the_newest_and_says_from_when_on() -> None:
    grown = _waves(5.0, 20 * 30_000)  # a row is 8 + 8 + 4 bytes: half a minute
    assert 34.0 < 200.0 - grown.rows_from < 38.0
    assert grown.span == pytest.approx((0.009, 199.999), abs=0.01)
    t, _, joules, interval_s = grown.rows(grown.rows_from, 200.0, 10**6)
    assert interval_s is None
    np.testing.assert_allclose(np.diff(t), 1e-3, atol=1e-9)
    held = _waves(1e9, 0)
    np.testing.assert_array_equal(joules, held.rows(grown.rows_from, 200.0, 10**6)[2])
    assert grown.rows(20.0, 30.0, 10**6)[3] == pytest.approx(0.01)
    assert grown.draw(0, 180.0, 180.02, 900).t == pytest.approx(held.draw(0, 180.0, 180.02, 900).t)


def test_a_full_disk_leaves_the_rows_in_memory_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pmtpy.live._table._Ring.write", full)
    grown = _waves(5.0, 10**8, 30.0)
    assert grown.problem == "No space left on device"
    assert 4.0 < 30.0 - grown.rows_from < 9.0
    assert grown.energy_at(20.0)[0] - grown.energy_at(10.0)[0] == pytest.approx(
        500 - 40 * (np.cos(20.0) - np.cos(10.0)) + 0.75, abs=0.2
    )


def test_hours_are_drawn_from_slices_of_a_second() -> None:
    grown = Grown(1, 1, raw_s=5.0)
    for start in range(0, 8000, 100):
        t = start + np.arange(0, 100, 5e-3)
        grown.append(t, np.full((len(t), 1), 50.0), 50.0 * t[:, None])
    drawn = grown.draw(0, 0.0, 8000.0, 900)
    assert len(drawn) == 900
    assert drawn.mean == pytest.approx(np.full(900, 50.0))
    assert grown.span[0] < 1.0
    assert grown.energy_at(3.5)[0] == pytest.approx(175.0)  # older than slices of 10 ms are kept
    assert grown.rows(0.0, 7000.0, 10**5)[3] == 1.0


def test_channels_are_read_back_from_metadata(tmp_path: Path) -> None:
    with _fed(tmp_path / "a.csv") as (live, _, _):
        assert live.layout is not None
        channels = live.layout.energy
    layout = layout_of(pmt.load(tmp_path / "a.csv").attrs["metadata"])
    assert layout is not None
    for name in ("name", "domain", "refresh_s", "window_s", "gain_u", "resolution", "energy_method", "operands"):
        assert [getattr(c, name) for c in layout.energy] == [getattr(c, name) for c in channels]
    assert layout_of({"channels": [{"name": "a"}]}) is None
    assert layout_of(None) is None


def _csv(path: Path, start_unix_s: float, columns: str = "total_W,total_J") -> StoredTrack:
    """Write ten seconds of 50 W."""
    rows = (f"{start_unix_s + k / 10:.6f},{k / 10:.6f},,0,50,{5.0 * k}" for k in range(101))
    wide = 4 + len(columns.split(","))
    lines = [",".join(row.split(",")[:wide]) for row in rows]
    path.write_text("\n".join([f"time,elapsed,marker,lost,{columns}", *lines]) + "\n")
    return StoredTrack.of_file(path.name, path)


def test_recordings_of_different_times_say_so_and_those_of_one_time_keep_their_places(tmp_path: Path) -> None:
    a, later, unknown, another_day = (
        _csv(tmp_path / f"{i}.csv", start) for i, start in enumerate([1.7e9, 1.7e9 + 5.0, float("nan"), 1.7e9 + 86_400])
    )
    desk = Desk([unknown, a, another_day, later])
    assert [desk.offset(t) for t in desk.tracks] == [0.0, 0.0, 0.0, 5.0]
    assert not desk.one_clock
    assert "0 s is 2023-11-14 22:13:20.000 UTC" in title(later, desk.zero(later))
    assert "0 s is its first row, of which no time is known" in title(unknown, desk.zero(unknown))
    together = Desk([later, a])
    assert together.one_clock
    assert [together.offset(t) for t in together.tracks] == [5.0, 0.0]
    assert "0 s" not in title(a)


def test_a_power_of_which_nobody_counted_the_energy_is_integrated(tmp_path: Path) -> None:
    track = _csv(tmp_path / "polls.csv", 1.7e9, "total_W")
    assert [(line.name, line.unit) for line in track.lines] == [("total", "W")]
    (found,) = select(track, 2.0, 6.0).powers
    assert found.joules == pytest.approx(200.0)
    assert (found.low, found.high) == (50.0, 50.0)


def test_a_track_of_a_page_goes_on_when_its_lost_sensor_is_back() -> None:
    clock, pulled = ManualClock(), False
    world = make_world("constant:90", clock=clock)
    made = [Gauge(world)]

    def open_again() -> Gauge:
        if pulled:
            raise BackendUnavailableError("gpu", "no device", "plug it in")
        made.append(Gauge(world))
        return made[-1]

    def passed(seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            clock.advance(0.05)
            live.take()
            # By itself: one that ends is not enumerated any more, though it lives on for as long as nobody lets it end.
            if live._reopening is not None and live._reopening.thread is not None:
                live._reopening.thread.join(30)

    with Sensor(made[0], "gpu", clock, open_again=open_again) as sensor:
        live = LiveTrack(sensor, reopens=True)
        passed(2.0)
        made[0].gone = pulled = True
        passed(3.0)
        assert live.note.startswith("lost: ")
        pulled = False
        passed(5.0)  # it is tried every two seconds
        assert live.note == ""
        assert live.span[1] == pytest.approx(10.0, abs=0.1)
        found = select(live, 0.5, 9.5).powers[0]
        assert 9.0 * (1.0 - found.coverage) == pytest.approx(4.0, abs=1.1)  # 3 s, and until the next trial
        assert found.joules == pytest.approx(90.0 * 9.0 * found.coverage, rel=0.02)
