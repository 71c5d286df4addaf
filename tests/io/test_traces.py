"""Traces as their own readers see them: Perfetto's Trace Processor, otf2-print and the reader of the package otf2."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmtpy.cli import main
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import FileFormatError, SinkError, TargetError
from pmtpy.io.convert import convert
from pmtpy.io.write import Ending, Header, Options, RecordedLoad, RecordedMark, RecordedRegion, open_sink
from pmtpy.io.write._trace import Slice, Story, counters, edges, lanes
from pmtpy.regions.region import Region
from tests.support.repeated import FULL, Task, World
from tests.support.trace_processor import ERRORS, ask

S = 10**9
START, UNIX, BOOT = 100 * S, 1_700_000_000 * S, 7_000 * S
STEP = S // 10
ROWS = 100
CHANNELS = (
    Channel("package0", Quantity.ENERGY, domain="host/socket0/package", label="größe", gain_u=0.01),
    Channel("gpu", Quantity.POWER, domain="gpu/0", refresh_s=0.1, offset_u=2.0),
    Channel("gpu.temperature", Quantity.TEMPERATURE),
)
REGIONS = (
    RecordedRegion("Lösung 解", START + 2 * S, START + 4 * S),
    RecordedRegion("innen", START + 2 * S + S // 4, START + 3 * S),
    RecordedRegion("quer", START + 3 * S + S // 2, START + 5 * S),
)
LOAD = RecordedLoad(((START + 6 * S, START + 7 * S),), ((START + 5 * S, START + 8 * S),))


def recording(path: Path, *, stepped_ns: int = 0, slept_ns: int = 0, layout: Layout | None = None) -> Path:
    """Write 10 s of 30 W by a counter and 20 W by a gauge; 4 rows are lost before row 60, one power is not known.

    ``stepped_ns``: by how much the wall clock was set meanwhile; ``slept_ns``: how long the machine slept.
    """
    layout = layout or Layout(CHANNELS)
    header = Header("box:virtual", Identity("box", virtual=True), layout, Anchor(START, UNIX, BOOT), version="1")
    k = np.arange(ROWS)
    t = START + k * STEP + np.where(k >= 60, 4 * STEP, 0)
    seconds = (t - START) / S
    watts = np.tile([50.0, 30.0, 20.0], (ROWS, 1)) + np.sin(seconds)[:, None] * [1, 0, 1]
    watts[30, 2] = np.nan
    known = np.where(k >= 60, seconds - 5 * STEP / S, seconds)  # of the gauge, which does not count
    joules = np.stack([30.0 * seconds + 20.0 * known, 30.0 * seconds, 20.0 * known], axis=1)
    unknown = np.where(k >= 60, 5 * STEP, 0)[:, None] * np.array([1, 0, 1])
    marks = ((10, "solve start"), (20, "solve end"), (25, 'a, "b"'))
    sink = open_sink(path, header)
    sink.write(Frame(t, watts, joules, np.full((ROWS, 1), 40.0), np.where(k == 60, 4, 0), unknown, marks))
    end = Anchor(int(t[-1]), UNIX + int(t[-1]) - START + stepped_ns, BOOT + int(t[-1]) - START + slept_ns)
    sink.close(Ending(end, ROWS, 4, 0, complete=True, regions=REGIONS, load=LOAD))
    return path


# Standard uncertainties in "innen": 0.75 s of 30 W that are known to 1 % and counted in steps, one for each 0.1 s, and
# of 20 W whose zero is known to 2 W.
ZERO_J, GAIN_J = 0.75 * 2.0, 0.01 * 0.75 * 30.0


def times() -> list[int]:
    return [START + k * STEP + (4 * STEP if k >= 60 else 0) for k in range(ROWS)]


# -- Perfetto ------------------------------------------------------------------------------------------------------


def test_the_trace_processor_reads_what_was_recorded(tmp_path: Path) -> None:
    assert main(["convert", str(recording(tmp_path / "a.parquet")), str(tmp_path / "a.pftrace")]) == 0
    errors, tracks, gpu, package, joules, slices, marks, facts, virtual = ask(
        tmp_path / "a.pftrace",
        ERRORS,
        "select name, unit from counter_track order by id",
        "select ts, value from counter join counter_track t on t.id = track_id where t.name = 'gpu' order by ts",
        "select ts, value from counter join counter_track t on t.id = track_id where t.name = 'package0' order by ts",
        "select max(value) from counter join counter_track t on t.id = track_id where t.name = 'gpu energy'",
        "select t.name, s.name, s.ts, s.dur from slice s join track t on t.id = s.track_id"
        " where dur > 0 order by s.ts, s.name",
        "select name, ts from slice where dur = 0",
        "select s.name, a.key, a.display_value from slice s join args a using (arg_set_id)"
        " where a.key like 'debug.gpu%' or a.key like 'debug.package0%' order by s.ts, s.name, a.key",
        "select string_value from track join args on args.arg_set_id = source_arg_set_id where key = 'description'",
    )
    assert errors == []
    assert set(tracks) == {
        *(("total", "W"), ("total energy", "J"), ("package0", "W"), ("package0 energy", "J")),
        *(("gpu", "W"), ("gpu energy", "J"), ("gpu.temperature", "C")),
    }
    shift = BOOT - START  # the axis is the boot clock, as in the system's own traces
    expected = [(t + shift, 20.0 + np.sin((t - START) / S)) for k, t in enumerate(times()) if k != 30]
    assert [t for t, _ in gpu] == [t for t, _ in expected]
    np.testing.assert_allclose([v for _, v in gpu], [v for _, v in expected], rtol=1e-12)
    assert [t for t, _ in package] == [t + shift for t in times()[:-1]]  # a mean stands where its interval begins
    assert joules == [(pytest.approx(20.0 * 9.8),)]
    third = times()[30]
    assert {(track, name, ts - shift, dur) for track, name, ts, dur in slices} == {
        ("regions", "solve", START + S, S),
        ("regions", "Lösung 解", START + 2 * S, 2 * S),
        ("regions", "innen", START + 2 * S + S // 4, 3 * S // 4),
        ("regions 2", "quer", START + 3 * S + S // 2, 3 * S // 2),
        ("gaps", "4 rows lost", times()[59], 5 * STEP),
        ("gaps", "gpu: no value", third, STEP),
        ("load", "load", START + 6 * S, S),
    }
    assert marks == [('a, "b"', times()[25] + shift)]
    costs = {(name, key.removeprefix("debug.")): float(value) for name, key, value in facts}
    assert costs["innen", "gpu joules"] == pytest.approx(20.0 * 0.75)
    assert ZERO_J <= costs["innen", "gpu uncertainty_joules"] <= ZERO_J * 1.1
    assert GAIN_J <= costs["innen", "package0 uncertainty_joules"] <= math.hypot(GAIN_J, 0.1 * 30.0 / 6.0)
    assert costs["Lösung 解", "package0 watts"] == pytest.approx(30.0)
    assert any("größe" in text and "gain +- 1.00%" in text for (text,) in virtual)
    assert all("virtual" in text for (text,) in virtual)


@pytest.mark.parametrize(("stepped", "slept"), [(-5 * S, 0), (3600 * S, 0), (0, 60 * S)])
def test_clocks_that_are_set_or_that_slept_disturb_no_time(tmp_path: Path, stepped: int, slept: int) -> None:
    convert(recording(tmp_path / "a.parquet", stepped_ns=stepped, slept_ns=slept), tmp_path / "a.pftrace")
    errors, ends, clocks = ask(
        tmp_path / "a.pftrace",
        ERRORS,
        "select min(ts), max(ts) from counter",
        "select distinct clock_name from clock_snapshot order by 1",
    )
    assert errors == []
    assert clocks == [("BOOTTIME",), ("MONOTONIC",), ("REALTIME",)]
    first, last = ends[0]
    assert first == BOOT
    assert last - first == times()[-1] - START


def test_many_channels_and_a_recording_on_the_wall_clock(tmp_path: Path) -> None:
    names = [f"gpu{i}" for i in range(23)]
    lines = [" ".join(["timestamp", "total", *names])]
    lines += [" ".join([f"{1_700_000_000 + k}.000", "23.000", *(f"{i}.000" for i in range(23))]) for k in range(5)]
    (tmp_path / "log.pmt").write_text("\n".join(lines) + "\n")
    convert(tmp_path / "log.pmt", tmp_path / "log.pftrace")
    errors, counts, ends = ask(
        tmp_path / "log.pftrace",
        ERRORS,
        "select name, count(*), max(value) from counter join counter_track t on t.id = track_id"
        " where unit = 'W' group by name",
        "select min(ts), max(ts) from counter",
    )
    assert errors == []
    assert {name: (n, value) for name, n, value in counts} == {
        "total": (5, 23.0),
        **{name: (5, float(i)) for i, name in enumerate(names)},
    }
    assert ends == [(UNIX, UNIX + 4 * S)]


def test_a_region_is_as_uncertain_in_a_trace_as_it_was_when_it_was_measured(tmp_path: Path) -> None:
    with World(FULL, 1) as world:
        work = Task(world, 0.33)
        with world.sensor.dump(tmp_path / "a.parquet"):
            world.clock.advance(2.0)
            with Region("solve", {world.sensor.target: world.sensor}) as region:
                work.run(4)
            work.run(0)
            world.clock.advance(2.0)
            measured = region[world.sensor]
    assert main(["convert", str(tmp_path / "a.parquet"), str(tmp_path / "a.json")]) == 0
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    (facts,) = [e["args"] for e in events if e["name"] == "solve"]
    # A live region is corrected by the lag; the recording holds what was shown.
    assert facts["total joules"] == pytest.approx(measured.joules, rel=0.1)
    assert facts["total uncertainty_joules"] == pytest.approx(measured.uncertainty_joules, rel=0.5)


def _constant(path: Path, period_ns: int, rows: int, marks: dict[str, float], *, told: bool = False) -> Path:
    """Write 60 W by a gauge that is exactly right, a row for each period; marks at their seconds, on the row after.

    ``told``: whether the metadata tell when they were set.
    """
    channel = Channel("gpu", Quantity.POWER, domain="gpu/0", refresh_s=period_ns / S)
    header = Header("box:virtual", Identity("box", virtual=True), Layout((channel,)), Anchor(START, UNIX))
    t = START + np.arange(rows) * period_ns
    joules = np.tile((60.0 * (t - START) / S)[:, None], 2)
    labels = tuple((int(np.searchsorted(t, START + round(at * S))), label) for label, at in marks.items())
    nothing, unknown = np.zeros(rows, np.int64), np.zeros((rows, 2), np.int64)
    sink = open_sink(path, header)
    sink.write(Frame(t, np.full((rows, 2), 60.0), joules, np.empty((rows, 0)), nothing, unknown, labels))
    own = tuple(RecordedMark(label, START + round(at * S)) for label, at in marks.items()) if told else ()
    sink.close(Ending(Anchor(int(t[-1]), UNIX + int(t[-1]) - START), rows, 0, 0, complete=True, marks=own))
    return path


def _facts(recording: Path, name: str, *more: str) -> dict[str, float]:
    trace = recording.with_suffix(".json")
    assert main(["convert", str(recording), str(trace), "--overwrite", *more]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    (facts,) = [dict(e["args"]) for e in events if e["name"] == name and "args" in e and e["ph"] == "X"]
    return facts


def test_an_otf2_archive_is_replaced_if_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("otf2", reason="the package otf2 is not installed")
    source, there = str(recording(tmp_path / "a.parquet")), tmp_path / "a.otf2"
    assert main(["convert", source, str(there)]) == 0
    first = (there / "traces" / "0.evt").read_bytes()
    assert main(["convert", source, str(there)]) != 0
    assert "a.otf2 exists already" in capsys.readouterr().err
    assert main(["convert", source, str(there), "--overwrite", "--to", "10ms"]) == 0
    assert len((there / "traces" / "0.evt").read_bytes()) < len(first)
    (there / "profile.cubex").write_text("mine")
    assert main(["convert", source, str(there), "--overwrite"]) != 0
    assert "a.otf2: it is a folder, with other things in it" in capsys.readouterr().err


@pytest.mark.parametrize("told", [False, True])
def test_that_the_regions_are_too_many_for_an_uncertainty_of_each_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, told: bool
) -> None:
    for number, said in ((1990, False), (2010, True)):
        regions = {
            f"r{k} {edge}": 0.001 * (2 * k + at) - 0.0004
            for k in range(number)
            for edge, at in (("start", 1), ("end", 2))
        }
        many = _constant(tmp_path / f"{number}.parquet", S // 1000, 2 * number + 10, regions, told=told)
        assert main(["convert", str(many), str(tmp_path / f"{number}.json")]) == 0
        assert ("the first 4000 of 4020 begins, ends and marks have an uncertainty" in capsys.readouterr().err) is said
        events = json.loads((tmp_path / f"{number}.json").read_text())["traceEvents"]
        sure = sum("total uncertainty_joules" in e["args"] for e in events if e["ph"] == "X")
        assert sure == min(number, 2000)


def test_marks_that_tell_their_instants_take_no_place_of_the_rows_behind_them() -> None:
    """2000 regions between marks, and places for 4000 ends, in blocks of a hundred rows as of a long recording."""
    layout = Layout((Channel("gpu", Quantity.POWER, domain="gpu/0"),))
    marks = tuple(
        RecordedMark(f"r{k // 2} {('start', 'end')[k % 2]}", START + k * STEP + STEP // 2) for k in range(4000)
    )
    header = Header("box", Identity("box"), layout, Anchor(START, UNIX), marks=marks, judge=lambda _: np.ones(2))
    story = Story(header, counters(header))
    for first in range(0, 4001, 100):
        rows = np.arange(first, min(first + 100, 4001))
        joules, zeros = np.tile(6.0 * rows[:, None], 2), np.zeros((len(rows), 2), np.int64)
        labels = tuple((int(k) - first, marks[k - 1].label) for k in rows if k)
        watts, nothing = np.full((len(rows), 2), 60.0), np.empty((len(rows), 0))
        story.take(Frame(START + rows * STEP, watts, joules, nothing, zeros[:, 0], zeros, labels))
    regions = story.regions()
    assert len(regions) == 2000
    assert all(("total uncertainty_joules", 1.0) in region.facts for region in regions)


@pytest.mark.parametrize("told", [True, False])
def test_a_counter_that_stands_for_several_rows_has_not_used_less_meanwhile(tmp_path: Path, *, told: bool) -> None:
    """60 W by a counter that moves each 0.1 s, in rows of 10 ms: read off the rows, energies would be out by 6 J."""
    channel = Channel("gpu", Quantity.ENERGY, domain="gpu/0", refresh_s=0.1)
    header = Header("box", Identity("box"), Layout((channel,)), Anchor(START, UNIX), polled_s=0.01)
    t = START + np.arange(300) * S // 100
    joules = np.tile((6.0 * np.floor((t - START) / (S // 10) + 0.35))[:, None], 2)
    nothing, unknown = np.zeros(300, np.int64), np.zeros((300, 2), np.int64)
    for k in range(10):
        begin, end = 1.004, 1.504 + 0.01 * k
        set_ns = {"work start": START + round(begin * S), "work end": START + round(end * S)}
        labels = tuple((int(np.searchsorted(t, at)), label) for label, at in set_ns.items())
        path = tmp_path / f"{k}.parquet"
        sink = open_sink(path, header)
        sink.write(Frame(t, np.full((300, 2), 60.0), joules, np.empty((300, 0)), nothing, unknown, labels))
        own = tuple(RecordedMark(label, at) for label, at in set_ns.items()) if told else ()
        sink.close(Ending(Anchor(int(t[-1]), UNIX + 3 * S), 300, 0, 0, complete=True, marks=own))
        facts = _facts(path, "work")
        # A move is seen up to a row late, at either end, and a mark that tells no instant stands up to a row late.
        assert facts["total joules"] == pytest.approx(60.0 * (end - begin), abs=0.6 if told else 1.2)
        assert abs(facts["total joules"] - 60.0 * (end - begin)) < 2.0 * facts["total uncertainty_joules"]


def test_fewer_rows_leave_marks_where_they_were_set(tmp_path: Path) -> None:
    """On rows of 0.1 s the marks would be 0.2 s apart, and the work between them 12 J."""
    dense = _constant(tmp_path / "dense.parquet", S // 1000, 2000, {"work start": 0.395, "work end": 0.51})
    facts = _facts(dense, "work", "--interval", "100ms")
    assert facts["total joules"] == pytest.approx(60.0 * 0.115, abs=0.01)
    thinned = tmp_path / "thinned.parquet"
    assert main(["convert", str(dense), str(thinned), "--interval", "100ms"]) == 0
    assert _facts(thinned, "work")["total joules"] == pytest.approx(60.0 * 0.115, abs=0.01)


def test_a_region_of_marks_between_sparse_rows_is_as_uncertain_as_they_leave_it(tmp_path: Path) -> None:
    """Rows are 0.1 s apart and marks 0.25 s, anywhere between them: 15 J are shown as 12 or 18."""
    missed = []
    for k in range(20):
        begin = 0.5 + 0.005 * k + 0.0025
        sparse = _constant(tmp_path / f"{k}.parquet", S // 10, 20, {"work start": begin, "work end": begin + 0.25})
        facts = _facts(sparse, "work")
        missed.append((facts["total joules"] - 60.0 * 0.25) / facts["total uncertainty_joules"])
    assert max(abs(m) for m in missed) < 2.0
    assert max(abs(m) for m in missed) > 0.5  # and not far more


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_mark_whose_instant_is_told_stands_there_and_not_on_the_row_behind_it(tmp_path: Path, suffix: str) -> None:
    """Rows are 1 s apart; work of 1.3 s, which the rows behind its marks would make 2 s of."""
    marks = {"work start": 2.9, "work end": 4.2, "work start again": 4.4, "again": 4.6}
    facts = _facts(_constant(tmp_path / f"a.{suffix}", S, 10, marks, told=True), "work")
    assert facts["total joules"] == pytest.approx(60.0 * 1.3)
    # As of a region between rows; not when since the rows before they were set, which would be sqrt(60 J^2 / 6) = 24 J
    # more (in squares: 32 J in all).
    assert facts["total uncertainty_joules"] < 24.0
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    single = [(e["name"], e["ts"]) for e in events if e["ph"] == "i"]
    assert single == [("work start again", pytest.approx(4.4e6)), ("again", pytest.approx(4.6e6))]


def test_the_mean_of_an_interval_is_missing_in_that_interval(tmp_path: Path) -> None:
    """A counter of which the first row tells no mean, since no interval ends there, and the fourth one lacks it."""
    header = Header(
        "box", Identity("box"), Layout((Channel("node", Quantity.ENERGY, domain="host"),)), Anchor(START, UNIX)
    )
    t, joules = START + np.arange(6) * S, np.tile(30.0 * np.arange(6.0)[:, None], 2)
    watts = np.full((6, 2), 30.0)
    watts[[0, 3]] = np.nan
    sink = open_sink(tmp_path / "a.csv", header)
    sink.write(Frame(t, watts, joules, np.empty((6, 0)), np.zeros(6, np.int64), np.zeros((6, 2), np.int64)))
    sink.close(Ending(Anchor(int(t[-1]), UNIX + 5 * S), 6, 0, 0, complete=True))
    convert(tmp_path / "a.csv", tmp_path / "a.json")
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    gaps = {(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert gaps == {(f"{name}: no value", 2e6, 1e6) for name in ("total", "node")}
    drawn = [e["ts"] for e in events if e["ph"] == "C" and e["name"] == "node [W]"]
    assert drawn == [0.0, 1e6, 3e6, 4e6]


def test_without_knowledge_of_the_sensor_a_region_has_no_uncertainty(tmp_path: Path) -> None:
    recording(tmp_path / "log.csv")
    (tmp_path / "log.csv.json").unlink()
    assert main(["convert", str(tmp_path / "log.csv"), str(tmp_path / "a.json")]) == 0
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    (facts,) = [e["args"] for e in events if e["name"] == "solve"]
    assert "gpu joules" in facts
    assert not any("uncertainty" in name for name in facts)


# -- OTF2 ----------------------------------------------------------------------------------------------------------


def _power9(name: str, label: str, domain: str) -> tuple[Channel, ...]:
    total, number = Channel(f"{name}.sum", Quantity.COUNT), Channel(f"{name}.samples", Quantity.COUNT)
    power = Channel(
        name,
        Quantity.POWER,
        derivation=Derivation.RATIO,
        operands=(total.name, number.name),
        domain=domain,
        label=label,
    )
    return total, number, power


def read_otf2(folder: Path) -> tuple[dict[str, tuple[str, str]], dict[str, list[tuple[int, float]]], list[Any], Any]:
    """Return units and modes of the metrics, their values, the regions and the clock, by the package's own reader."""
    otf2 = pytest.importorskip("otf2", reason="the package otf2 is not installed")
    values: dict[str, list[tuple[int, float]]] = {}
    regions: list[Any] = []
    with otf2.reader.open(str(folder / "traces.otf2")) as trace:
        members = {m.name: (m.unit, str(m.metric_mode).rpartition(".")[2]) for m in trace.definitions.metric_members}
        clock = trace.definitions.clock_properties
        for location, event in trace.events:
            if isinstance(event, otf2.events.Metric):
                values.setdefault(
                    event.metric.member.name if hasattr(event.metric, "member") else event.members[0].name, []
                ).append((event.time, event.values[0]))
            else:
                known = {attribute.name: value for attribute, value in (event.attributes or {}).items()}
                regions.append((type(event).__name__, location.name, event.region.name, event.time, known))
    return members, values, regions, clock


def test_the_reader_of_otf2_sees_units_modes_values_and_regions(tmp_path: Path) -> None:
    assert main(["convert", str(recording(tmp_path / "a.parquet")), str(tmp_path / "a.otf2")]) == 0
    members, values, regions, clock = read_otf2(tmp_path / "a.otf2")
    known = {(one[2], name): value for one in regions for name, value in one[4].items()}
    assert known["innen", "pmtpy::gpu joules"] == pytest.approx(20.0 * 0.75)
    assert ZERO_J <= known["innen", "pmtpy::gpu uncertainty_joules"] <= ZERO_J * 1.1
    regions = [one[:4] for one in regions]
    assert members["gpu"] == ("W", "ABSOLUTE_POINT")
    assert members["package0"] == ("W", "ABSOLUTE_LAST")
    assert members["package0 energy"] == ("J", "ACCUMULATED_START")
    assert [t for t, _ in values["gpu"]] == [t for k, t in enumerate(times()) if k != 30]
    np.testing.assert_allclose([v for _, v in values["package0 energy"]], [30.0 * (t - START) / S for t in times()])
    assert ("Enter", "regions", "Lösung 解", START + 2 * S) in regions
    assert ("Leave", "regions", "Lösung 解", START + 4 * S) in regions
    assert ("Enter", "regions 2", "quer", START + 3 * S + S // 2) in regions
    assert ("Enter", "load", "load", START + 6 * S) in regions
    assert ("Leave", "load", "load", START + 7 * S) in regions
    assert (clock.timer_resolution, clock.global_offset) == (S, START)
    assert clock.realtime_timestamp == pytest.approx(UNIX, abs=1000)  # not the day of the conversion


def test_a_power9_has_the_metrics_of_score_ps_plugin(tmp_path: Path) -> None:
    channels = (
        *_power9("system", "PWRSYS", "host"),
        *_power9("socket1.gpus", "PWRGPU", "host/socket8/gpus"),
        *_power9("converter.channel1", "PWRAPSSCH1: memory", ""),
    )
    layout = Layout(channels)
    header = Header("occ", Identity("occ"), layout, Anchor(START, UNIX), version="1")
    sink = open_sink(tmp_path / "a.csv", header)
    seconds = np.arange(3.0)
    watts = np.tile([90.0, 90.0, 14.0, 5.0], (3, 1))
    zeros = np.zeros((3, 4), np.int64)
    frame = Frame(START + np.arange(3) * S, watts, seconds[:, None] * watts, np.ones((3, 6)), zeros[:, 0], zeros)
    sink.write(frame)
    sink.close(Ending(Anchor(START + 2 * S, UNIX + 2 * S), 3, 0, 0, complete=True))
    convert(tmp_path / "a.csv", tmp_path / "a.otf2")
    members, values, _, _ = read_otf2(tmp_path / "a.otf2")
    assert members["occ_power_system_from_energy"] == ("W", "ABSOLUTE_LAST")
    assert members["occ_power_system_energy"] == ("J", "ACCUMULATED_LAST")
    assert members["occ_power_gpu_from_energy.1"] == ("W", "ABSOLUTE_LAST")
    assert "converter.channel1" in members
    assert values["occ_power_gpu_energy.1"] == [(START, 0.0), (START + S, 14.0), (START + 2 * S, 28.0)]


def test_otf2_print_reads_it_without_a_complaint(tmp_path: Path) -> None:
    tool = shutil.which("otf2-print")
    if tool is None:
        pytest.skip("no otf2-print here: apt-get install otf2-tools")
    pytest.importorskip("otf2", reason="the package otf2 is not installed")
    convert(recording(tmp_path / "a.parquet"), tmp_path / "a.otf2")
    run = subprocess.run(
        [tool, tmp_path / "a.otf2" / "traces.otf2"], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0
    assert run.stderr == ""
    assert run.stdout.count('Value: ("gpu" <') == ROWS - 1
    assert len(re.findall(r'^ENTER .*"Lösung 解"', run.stdout, re.MULTILINE)) == 1


# -- Chrome's JSON -------------------------------------------------------------------------------------------------

PYTORCH = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": UNIX - 5 * S,
    "displayTimeUnit": "ms",
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 6_000_000.0, "dur": 2_000_000.0},
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python 😀"}},
    ],
}


def test_a_trace_of_pytorch_keeps_its_events_and_lines_up(tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps(PYTORCH))
    convert(recording(tmp_path / "a.parquet"), tmp_path / "b.json", options=Options(into=tmp_path / "theirs.json"))
    merged = json.loads((tmp_path / "b.json").read_text())
    assert {k: merged[k] for k in PYTORCH if k != "traceEvents"} == {
        k: v for k, v in PYTORCH.items() if k != "traceEvents"
    }
    assert merged["traceEvents"][:2] == PYTORCH["traceEvents"]
    errors, kernel, region, counters = ask(
        tmp_path / "b.json",
        ERRORS,
        "select ts, dur from slice where name = 'gemm'",
        "select ts, dur from slice where name = 'Lösung 解'",
        "select t.name, min(ts), max(value) from counter join counter_track t on t.id = track_id group by 1",
    )
    assert errors == []
    assert kernel == [(6 * S, 2 * S)]  # one second after the recording began
    assert region == [(7 * S, 2 * S)]
    found = {name: (ts, value) for name, ts, value in counters}
    assert found["package0 [W] W"] == (5 * S, pytest.approx(30.0))
    assert found["package0 energy [J] J"][1] == pytest.approx(30.0 * (times()[-1] - START) / S)


def test_a_recording_alone_is_a_trace_of_chrome(tmp_path: Path) -> None:
    convert(recording(tmp_path / "a.parquet"), tmp_path / "a.json")
    errors, slices, count = ask(
        tmp_path / "a.json",
        ERRORS,
        "select name, dur from slice where dur > 0 order by ts",
        "select count(*) from counter join counter_track t on t.id = track_id where t.name = 'gpu [W] W'",
    )
    assert errors == []
    assert {("quer", 3 * S // 2), ("load", S)} <= set(slices)
    assert count == [(ROWS - 1,)]
    assert json.loads((tmp_path / "a.json").read_text())["baseTimeNanoseconds"] == pytest.approx(UNIX, abs=1000)


@pytest.mark.parametrize("zero", [0, UNIX - START], ids=["monotonic", "wall"])
def test_a_trace_that_does_not_tell_its_clock_is_held_against_the_recording(tmp_path: Path, zero: int) -> None:
    event = {"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": (START + S + zero) / 1e3, "dur": 10.0}
    (tmp_path / "theirs.json").write_text(json.dumps([event]))
    convert(recording(tmp_path / "a.parquet"), tmp_path / "b.json", options=Options(into=tmp_path / "theirs.json"))
    events = json.loads((tmp_path / "b.json").read_text())["traceEvents"]
    (region,) = [e for e in events if e["name"] == "Lösung 解"]
    assert region["ts"] - event["ts"] == pytest.approx(1e6, abs=1.0)


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b'{"traceEvents": [{"ph": "X", "ts": 1}, {"ph"', FileFormatError, "not whole"),
        (b"\x1f\x8b\x08broken", FileFormatError, "not whole"),
        (b'{"events": []}', FileFormatError, "no list of traceEvents"),
        (b"[1, 2]", FileFormatError, "no list of traceEvents"),
        (b'[{"ph": "X", "ts": 12.5, "name": "f"}]', SinkError, "fit neither"),
        (b"[]", SinkError, "no event with a time"),
        (b'{"baseTimeNanoseconds": "x", "traceEvents": [{"ph": "X", "ts": 12.5}]}', SinkError, "is no number"),
        (json.dumps(PYTORCH | {"baseTimeNanoseconds": UNIX - 86_400 * S}).encode(), SinkError, "of another time"),
    ],
)
def test_a_trace_that_cannot_be_merged_with_stays_as_it_is(
    tmp_path: Path, content: bytes, error: type[Exception], said: str
) -> None:
    source = recording(tmp_path / "a.parquet")
    theirs = tmp_path / "theirs.json"
    theirs.write_bytes(content)
    with pytest.raises(error, match=said):
        convert(source, tmp_path / "b.json", options=Options(into=theirs))
    assert theirs.read_bytes() == content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "theirs.json"]


def test_a_trace_that_is_not_there_is_a_mistake_and_no_damage(tmp_path: Path) -> None:
    source = recording(tmp_path / "a.parquet")
    with pytest.raises(TargetError, match=r"cannot read .*theirs\.json: No such file or directory"):
        convert(source, tmp_path / "b.json", options=Options(into=tmp_path / "theirs.json"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_two_recordings_in_one_trace_are_two_processes(tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps(PYTORCH | {"baseTimeNanoseconds": str(UNIX - 5 * S)}))
    source, into = recording(tmp_path / "a.parquet"), tmp_path / "theirs.json"
    for name in ("first", "second"):
        convert(source, tmp_path / f"{name}.json", options=Options(into=into))
        into = tmp_path / f"{name}.json"
    counts = "select count(*) from counter join counter_track t on t.id = track_id where t.name = 'gpu [W] W'"
    pids = "select count(distinct upid) from process_counter_track"
    errors, once, tracks = ask(into, ERRORS, counts, pids)
    assert errors == []
    assert (once, tracks) == ([(2 * (ROWS - 1),)], [(2,)])
    events = json.loads(into.read_text())["traceEvents"]
    values: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("name") == "gpu [W]":
            values.setdefault(event["pid"], []).append((event["ts"], event["args"]["W"]))
    first, second = values.values()
    assert first == second


def test_merging_is_asked_only_of_chromes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = recording(tmp_path / "a.parquet")
    theirs = tmp_path / "theirs.json"
    theirs.write_text("[]")
    with pytest.raises(TargetError, match="stays as it is"):
        convert(source, theirs, options=Options(into=theirs, overwrite=True))
    assert main(["convert", str(source), str(tmp_path / "b.pftrace"), "--merge", str(theirs)]) == 2
    assert "not merged" in capsys.readouterr().err


# -- what they share -----------------------------------------------------------------------------------------------


def test_slices_of_one_lane_nest() -> None:
    slices = [Slice("a", 0, 10), Slice("b", 2, 8), Slice("c", 5, 12), Slice("d", 8, 10), Slice("e", 10, 11)]
    made = lanes(slices)
    assert [[s.label for s in lane] for lane in made] == [["a", "b", "d", "e"], ["c"]]
    assert [(t, s.label, begins) for t, s, begins in edges(made[0])] == [
        *((0, "a", True), (2, "b", True), (8, "b", False), (8, "d", True)),
        *((10, "d", False), (10, "a", False), (10, "e", True), (11, "e", False)),
    ]


def test_a_missing_package_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = recording(tmp_path / "a.parquet")
    for package, suffix in (("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "pftrace"), ("otf2", "otf2")):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(SinkError, match=r"pip install 'pmtpy\[") as held:
            convert(source, tmp_path / f"b.{suffix}")
        assert held.tb is not None  # the frames are held, with the reader in them: its thread has ended all the same
        assert not [t.name for t in threading.enumerate() if t.name.startswith("pmtpy-read")]
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_time_without_a_row_is_a_gap_though_nobody_counted_lost_rows(tmp_path: Path) -> None:
    """A log of somebody else: 100 W, a row each 0.1 s, none for 3 s behind the first, so of these nothing is known."""
    seconds = np.append(np.arange(0.0, 1.05, 0.1), np.arange(4.0, 5.05, 0.1))
    rows = [f"{1_700_000_000 + t:.6f},{t:.9f},,0,100.0" for t in seconds.tolist()]
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W", *rows]) + "\n")
    convert(tmp_path / "a.csv", tmp_path / "a.json")
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["total: energy not known"]
    assert [(e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [pytest.approx((1e6, 3e6))]
