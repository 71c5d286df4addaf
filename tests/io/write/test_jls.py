"""JLS: what other formats hold is read back, parts are read alone, and no end of the writer leaves a wrong file."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pmtpy import load
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import FileFormatError, SinkError
from pmtpy.io import jls
from pmtpy.io.read.blocks import open_blocks
from pmtpy.io.write import Ending, Header, open_sink
from pmtpy.live.tracks import JlsTrack
from tests.io.write.conftest import PAIRS, START_NS, STEP_NS, UNIX_NS
from tests.support.daemons import descriptors, numbers_of_a_socket

pyjls = pytest.importorskip("pyjls", reason="needs the extra jls: pip install 'pmtpy[jls]'")

MakeFrame = Callable[..., Frame]
HZ = 20_000


def _end(rows: int, dropped: int = 0) -> Ending:
    return Ending(Anchor(9_000_000_000, UNIX_NS), rows, lost=0, dropped=dropped, complete=not dropped)


def _noisy(first: int, n: int, lost: dict[int, int] | None = None) -> Frame:
    """Rows of two pairs with steps, energy by the trapezoidal rule; rows may be lost before some."""
    losses = np.zeros(n, np.int64)
    for row, count in (lost or {}).items():
        losses[row] = count
    k = first + np.arange(n) + np.cumsum(losses)
    amperes = np.stack([1 + 0.5 * (k // 1000 % 2), 2 + 0.01 * (k % 7)], axis=1)
    values = np.stack([amperes[:, 0], np.full(n, 12.0), amperes[:, 1], np.full(n, 12.0)], axis=1)
    parts = amperes * 12.0
    watts = np.column_stack([parts.sum(axis=1), parts])
    pieces = np.diff(k)[:, None] * STEP_NS * 1e-9 * (watts[1:] + watts[:-1]) / 2
    pieces[losses[1:] > 0] = 0.0
    joules = 7.0 + np.vstack([np.zeros(3), np.cumsum(pieces, axis=0)])
    return Frame(START_NS + k * STEP_NS, watts, joules, values, losses, np.zeros((n, 3), np.int64))


def _write(path: Path, header: Header, *frames: Frame) -> Path:
    sink = open_sink(path, header)
    for frame in frames:
        sink.write(frame)
    sink.close(_end(sum(map(len, frames))))
    return path


def _pieces(frame: Frame, *cuts: int) -> list[Frame]:
    return [frame.part(a, b) for a, b in itertools.pairwise([0, *cuts, len(frame)])]


@pytest.fixture
def stream(header: Header) -> Header:
    return replace(header, layout=Layout(tuple(c.timed(refresh_s=50e-6) for c in PAIRS)))


@pytest.mark.parametrize("lost", [{}, {1: 1, 399: 3, 5000: 250, 5001: 1, 12_345: 20_000}])
def test_it_reads_back_as_parquet_does(tmp_path: Path, stream: Header, lost: dict[int, int]) -> None:
    frame = replace(_noisy(0, 15_000, lost), marks=((0, "start"), (5000, "a"), (5000, "b"), (14_999, "end")))
    frames = _pieces(frame, 1, 4999, 5001, 9000)
    table = load(_write(tmp_path / "a.jls", stream, *frames))
    other = load(_write(tmp_path / "a.parquet", stream, *frames))
    assert list(table.columns) == list(other.columns)
    assert (table["marker"] == other["marker"]).all()
    assert (table["lost"] == other["lost"]).all()
    for name in table.columns.drop(["marker", "lost", "time"]):
        # single precision of the samples; time and energy are exact at every checkpoint, and counted on between them
        exact = name.endswith("_J") or name == "elapsed"
        close = {True: (0.0, 1e-6), False: (6e-8, 0.0)}[exact]
        np.testing.assert_allclose(table[name], other[name], rtol=close[0], atol=close[1], err_msg=name)
    np.testing.assert_allclose(table["time"], other["time"], rtol=0, atol=1e-6)
    assert table.attrs["complete"] is True
    assert table.attrs["metadata"]["rows"] == 15_000


@pytest.mark.skipif(sys.platform == "win32", reason="a program there closes no descriptors but its own")
def test_a_program_that_closes_all_descriptors_has_it_whole_where_their_numbers_are_free(
    tmp_path: Path, stream: Header
) -> None:
    path, (first, *others) = tmp_path / "a.jls", _pieces(_noisy(0, 15_000), 5000, 9000)
    before = descriptors()
    sink = open_sink(path, stream)
    sink.write(first)
    sink._file.flush()  # type: ignore[attr-defined]  # what its thread has in hand
    for fd in descriptors() - before:
        os.close(fd)
    sink.write(others[0])
    with pytest.raises(SinkError, match="is being written"):
        open_sink(path, stream, overwrite=True)
    sink.write(others[1])
    assert sink.close(_end(15_000)).complete
    assert descriptors() == before
    table = load(path)
    assert table.attrs["complete"] is True
    pd.testing.assert_frame_equal(table, load(_write(tmp_path / "b.jls", stream, first, *others)))


@pytest.mark.skipif(sys.platform == "win32", reason="a program there closes no descriptors but its own")
def test_what_has_its_number_is_left_alone_and_what_lacks_rows_is_not_whole(tmp_path: Path, stream: Header) -> None:
    path, (first, *others) = tmp_path / "a.jls", _pieces(_noisy(0, 15_000), 5000, 9000)
    before = descriptors()
    sink = open_sink(path, stream)
    sink.write(first)
    sink._file.flush()  # type: ignore[attr-defined]  # what its thread has in hand
    with numbers_of_a_socket(descriptors() - before):
        for frame in others:
            with pytest.raises(SinkError, match=r"cannot write to .*a\.jls: the program has closed its descriptor"):
                sink.write(frame)
        with pytest.raises(SinkError, match=r"cannot finish .*a\.jls: the program has closed its descriptor"):
            sink.close(_end(15_000))
        del sink
        gc.collect()  # nor is anything written when it is forgotten
    table = load(path)
    assert table.attrs["complete"] is False
    assert 0 < len(table) <= 5000


def _slow_register(path: Path) -> tuple[Path, Frame]:
    """Write a counter whose rows come at 8 to 30 ms, where 10 ms are nominal."""
    layout = Layout((Channel("rail", Quantity.ENERGY, scale=1e-6, domain="rail"),))
    header = Header("test", Identity("test"), layout, Anchor(0, UNIX_NS), polled_s=0.01)
    rng = np.random.default_rng(1)
    n = 500
    t_ns = np.cumsum(rng.integers(8_000_000, 30_000_000, n))
    joules = np.cumsum(rng.uniform(0, 1, n))
    watts = np.concatenate([[np.nan], np.diff(joules) / np.diff(t_ns) * 1e9])
    two = np.column_stack([watts, watts]), np.column_stack([joules, joules])
    frame = Frame(t_ns, *two, np.empty((n, 0)), np.zeros(n, np.int64), np.zeros((n, 2), np.int64))
    return _write(path, header, *_pieces(frame, 1, 2, 300)), frame


def _holds(table: pd.DataFrame, frame: Frame) -> None:
    """Hold the rows of a file against the first that were written."""
    n = len(table)
    np.testing.assert_allclose(table["elapsed"], (frame.t_ns[:n] - frame.t_ns[0]) / 1e9, atol=1e-9)
    np.testing.assert_allclose(table["rail_J"], frame.joules[:n, 1] - frame.joules[0, 1], atol=1e-9)
    np.testing.assert_allclose(table["total_W"], frame.watts[:n, 0], rtol=6e-8)


def test_every_row_of_a_slow_register_has_its_own_time_and_energy(tmp_path: Path) -> None:
    path, frame = _slow_register(tmp_path / "a.jls")
    table = load(path)
    _holds(table, frame)
    assert len(table) == len(frame)


@pytest.mark.parametrize("cut", [1, 20, 40, 100, 2500, 10_000, 30_000])
def test_a_file_that_was_cut_short_is_refused_and_left_as_it_is(tmp_path: Path, cut: int) -> None:
    path, _ = _slow_register(tmp_path / "a.jls")
    there = path.read_bytes()[:-cut]
    path.write_bytes(there)
    for read in (load, _in_blocks, _in_a_view):
        with pytest.raises(FileFormatError, match=r"a\.jls: it was cut short: .* copy it again from its source"):
            read(path)
    assert path.read_bytes() == there


def test_rows_of_a_mended_file_whose_times_are_lost_are_left_out_and_it_is_not_complete(tmp_path: Path) -> None:
    path, frame = _slow_register(tmp_path / "a.jls")
    whole, lengths = path.read_bytes(), set()
    for cut in (20, 40, 100, *range(250, 6000, 250)):
        path.write_bytes(whole[:-cut])
        pyjls.Reader(str(path)).close()  # mends it, in place: now its header says that it is whole
        table = load(path)
        _holds(table, frame)
        assert len(table) == len(frame) or table.attrs["complete"] is False
        short = [] if len(table) == len(frame) else ["incomplete"]
        assert JlsTrack("a", path).note == "; ".join([*short, *table.attrs["notes"]])
        lengths.add(len(table))
    assert len(lengths) > 1


def test_whatever_is_wrong_with_a_file_is_an_error_of_the_file_for_all_that_read_it(tmp_path: Path) -> None:
    path, _ = _slow_register(tmp_path / "a.jls")
    whole, refused = path.read_bytes(), 0
    for at in range(24, len(whole), len(whole) // 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        for read in (load, _in_blocks, _in_a_view):
            refused += _refuses(read, path)
    assert refused


def _refuses(read: Callable[[Path], object], path: Path) -> bool:
    """Whether it is refused, by name; anything else that is raised passes through."""
    try:
        read(path)
    except FileFormatError as error:
        return str(path) in str(error)
    return False


def _in_blocks(path: Path) -> None:
    with open_blocks(path) as recording:
        assert sum(len(block.columns["elapsed"]) for block in recording.blocks) >= 0


def _in_a_view(path: Path) -> None:
    track = JlsTrack("a", path)
    for slices in (10, 10_000):
        track.draw(0, *track.span, slices)


@pytest.mark.parametrize(
    ("start", "stop", "most"), [(0.1, 0.3, None), (0.25, None, 100), (None, 0.01, None), (0.7, 9.0, None)]
)
def test_a_part_is_the_same_rows(
    tmp_path: Path, stream: Header, start: float | None, stop: float | None, most: int | None
) -> None:
    path = _write(tmp_path / "a.jls", stream, *_pieces(_noisy(0, 15_000, {3000: 40, 6000: 1}), 7000))
    whole, part = load(path), load(path, start, stop, most)
    inside = (whole["elapsed"] >= (start or 0.0)) & (whole["elapsed"] < (stop or 99.0))
    expected = whole[inside].head(most) if most is not None else whole[inside]
    assert len(part) == len(expected)
    for name in ("elapsed", "total_W", "total_J", "pair1_A", "lost"):
        np.testing.assert_allclose(part[name], expected[name], atol=1e-9, err_msg=name)


def test_a_gap_of_an_hour_takes_no_hour_of_room(tmp_path: Path, stream: Header) -> None:
    frame = _noisy(0, 10_000, {5000: 3600 * HZ})
    path = _write(tmp_path / "a.jls", stream, frame)
    assert path.stat().st_size < 20e6
    table = load(path)
    assert table["lost"].sum() == 3600 * HZ
    np.testing.assert_allclose(table["elapsed"], (frame.t_ns - frame.t_ns[0]) / 1e9, atol=1e-9)
    np.testing.assert_allclose(table["total_J"], frame.joules[:, 0] - 7.0, atol=1e-6)


def test_the_library_alone_reads_it(tmp_path: Path, stream: Header) -> None:
    frame = replace(_noisy(0, 10_000, {4000: 10}), marks=((7000, "kernel"),))
    with pyjls.Reader(str(_write(tmp_path / "a.jls", stream, frame))) as file:
        signal_ = file.signal_lookup("pair1_A")
        assert (signal_.units, signal_.sample_rate, signal_.length) == ("A", HZ, 10_010)
        values = file.fsr(signal_.signal_id, 0, 10_010)
        assert np.isnan(values[4000:4010]).all()
        assert np.isfinite(np.delete(values, range(4000, 4010))).all()
        found: list[tuple[int, str]] = []
        file.annotations(1, 0, lambda t, _y, _k, _g, text: found.append((t, text)))
        assert found == [(4010, "10 lost"), (7010, "kernel")]
        seconds = file.sample_id_to_timestamp(1, 10_009) / 2**30 + 1_514_764_800
        assert seconds == pytest.approx(UNIX_NS / 1e9 + 10_009 * 50e-6, abs=1e-3)


def test_summaries_are_those_of_the_samples(tmp_path: Path, stream: Header) -> None:
    frame = _noisy(0, 60_000)
    path = _write(tmp_path / "a.jls", stream, *_pieces(frame, 20_000))
    with jls.JlsFile(path) as file:
        found = file.statistics("total_W", 0, 10_000, 6)
    whole = frame.watts[:, 0].reshape(6, -1)
    np.testing.assert_allclose(found.low, whole.min(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.high, whole.max(axis=1), rtol=1e-6)
    # inner borders lie on summaries of 104 samples, of which half may be of the next stretch: 1 % of 10,000
    np.testing.assert_allclose(found.mean, whole.mean(axis=1), rtol=0.01)


def test_what_fills_the_memory_is_refused(tmp_path: Path, stream: Header, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "a.jls", stream, _noisy(0, 15_000))
    monkeypatch.setattr("pmtpy.io.read._recording.free_bytes", lambda: 1_000_000)
    with pytest.raises(
        FileFormatError, match=r"15,000 rows of 13 columns would take .* load\(path, start=0, stop=60\)"
    ):
        load(path)
    assert len(load(path, 0.1, 0.2)) == 2000


def test_a_disk_that_is_full_refuses_rows_and_the_file_stays_whole(
    tmp_path: Path, stream: Header, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=1 << 40)
    monkeypatch.setattr("pmtpy.io.write._jls.shutil.disk_usage", lambda _path: free)
    path = tmp_path / "a.jls"
    sink = open_sink(path, stream)
    first, second, third = _pieces(_noisy(0, 9000, {6000: 3000}), 3000, 6000)
    sink.write(first)
    free.free = 1000
    with pytest.raises(SinkError, match="MB are free"):
        sink.write(second)
    free.free = 1 << 40
    sink.write(third)
    sink.close(_end(6000, dropped=3000))
    table = load(path)
    assert len(table) == 6000
    assert table["lost"].sum() == 3000
    assert table.attrs["complete"] is False
    assert any("3000 rows are missing" in note for note in table.attrs["notes"])


def test_a_disk_without_room_is_told_before_anything_is_written(
    tmp_path: Path, stream: Header, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pmtpy.io.write._jls.shutil.disk_usage", lambda _path: SimpleNamespace(free=60_000_000))
    with pytest.raises(SinkError, match=r"60 MB are free, and JLS needs 67 to end; take \.csv"):
        open_sink(tmp_path / "a.jls", stream)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_being_written_is_not_touched(tmp_path: Path, stream: Header) -> None:
    path = tmp_path / "a.jls"
    sink = open_sink(path, stream)
    sink.write(_noisy(0, 5000))
    with pytest.raises(FileFormatError, match="still being written"):
        load(path)
    sink.close(_end(5000))
    assert len(load(path)) == 5000


def test_a_dump_without_rows_says_so(tmp_path: Path, stream: Header) -> None:
    table = load(_write(tmp_path / "a.jls", stream))
    assert len(table) == 0
    assert table.attrs["metadata"]["target"] == "powersensor3:virtual"


@pytest.mark.parametrize("spoilt", [b"jlsfmt\r\n \n \x1a  \xb2\x1c", b"jlsfmt\r\n \n \x1a  \xb2\x1c" + bytes(5000)])
def test_a_file_that_is_damaged_is_an_error_of_the_file(tmp_path: Path, spoilt: bytes) -> None:
    path = tmp_path / "a.jls"
    path.write_bytes(spoilt)
    with pytest.raises(FileFormatError, match=r"a\.jls"):
        load(path)


def test_a_recording_of_somebody_else_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.jls"
    with pyjls.Writer(str(path)) as file:
        file.source_def(1, "a", "b", "c", "d", "e")
        file.signal_def(1, 1, sample_rate=1000, name="current", units="A")
        file.fsr_f32(1, 0, np.ones(2000, np.float32))
    with pytest.raises(FileFormatError, match="not one of pmtpy"):
        load(path)


def test_a_dump_that_was_stopped_before_its_first_rows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jls"
    pyjls.Writer(str(path)).close()
    with pytest.raises(FileFormatError, match="or the dump was stopped before anything of it was on the disk"):
        load(path)


def test_a_stream_takes_none(stream: Header, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SinkError, match="ordinary file"):
        open_sink(sys.stdout, stream, format="jls")


_KILLED = """
    import json, os, sys, time
    import pmtpy as pmt
    sensor = pmt.create("powersensor3", "virtual")
    sensor.start_dump(sys.argv[1])
    start = sensor.read()
    time.sleep(2.0)
    last = sensor.read()
    time.sleep(0.05)
    print(json.dumps(last.timestamp), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_writer_that_is_killed_loses_half_a_second_at_most(tmp_path: Path) -> None:
    path = tmp_path / "a.jls"
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_KILLED), str(path)], stdout=subprocess.PIPE, timeout=120, check=False
    )
    assert ran.returncode == -signal.SIGKILL
    table = load(path)
    assert table.attrs["complete"] is False
    assert sum("was not ended" in note for note in table.attrs["notes"]) == 1
    assert "its writer was stopped" not in "".join(table.attrs["notes"])  # the same once more
    assert table["time"].iloc[-1] > json.loads(ran.stdout) - 0.5
    assert os.access(path, os.R_OK)
    watts, seconds = table["total_W"].to_numpy(), table["elapsed"].to_numpy()
    joules = float(np.sum(np.diff(seconds) * (watts[1:] + watts[:-1]) / 2))
    if not table["lost"].any():
        # Between two values of elapsed (10 ms) rows are dated evenly, which the board's clock is only to some 10 us.
        assert table["total_J"].iloc[-1] == pytest.approx(joules, rel=1e-4)
    assert len(load(path)) == len(table)  # it was given an end, once


def test_more_channels_than_a_file_holds_are_refused_before_there_is_one(tmp_path: Path) -> None:
    """Its library ends the process where there is one signal too many."""
    many = Layout(tuple(Channel(f"rail{i}", Quantity.POWER) for i in range(128)))
    header = Header("many", Identity("many"), many, Anchor(START_NS, UNIX_NS))
    with pytest.raises(SinkError, match=r"at most 255 signals, and many would make 257: .* take \.csv or \.parquet"):
        open_sink(tmp_path / "many.jls", header)
    assert not (tmp_path / "many.jls").exists()
    few = replace(header, layout=Layout(many.channels[:127]))
    width = (1, 128)
    frame = Frame(np.array([START_NS]), np.ones(width), np.zeros(width), np.empty((1, 0)), np.zeros(1, np.int64),
                  np.zeros(width, np.int64))  # fmt: skip
    assert load(_write(tmp_path / "few.jls", few, frame))["rail126_W"].tolist() == [1.0]


def test_marks_and_losses_of_one_block_are_found_from_any_place(header: Header, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    frame = _noisy(
        0, 40_000, {int(row): int(rng.integers(1, 900)) for row in rng.choice(39_000, 25, replace=False) + 9}
    )
    rows = np.sort(rng.choice(40_000, 60, replace=False)).tolist()
    frame = replace(frame, marks=tuple((row, f"m{row}") for row in rows))
    path = _write(tmp_path / "a.jls", header, frame)
    whole = load(path)
    assert [label for label in whole["marker"] if label] == [f"m{row}" for row in rows]
    for start in rng.uniform(0.0, whole["elapsed"].iloc[-1], 40):
        part = load(path, start, start + 0.05)
        want = whole[(whole["elapsed"] >= start) & (whole["elapsed"] < start + 0.05)]
        assert part["marker"].tolist() == want["marker"].tolist()
        assert part["lost"].tolist() == want["lost"].tolist()


def test_time_goes_on_over_a_gap_that_is_shorter_than_its_rows_would_be(header: Header, tmp_path: Path) -> None:
    """Rows of uneven times, as of a file that was converted: the nominal rate says little of how long one takes."""
    frame = _noisy(0, 2000, {1000: 250_000})  # ten seconds hold 200,000
    frame = replace(frame, t_ns=START_NS + np.arange(2000) * STEP_NS)  # and here they took one step
    path = _write(tmp_path / "a.jls", header, frame)
    whole = load(path)
    assert whole["elapsed"].to_numpy() == pytest.approx(np.arange(2000) * STEP_NS / 1e9, abs=STEP_NS / 1e9)
    for row in (990, 999, 1000, 1010):
        part = load(path, whole["elapsed"].iloc[row] - 1e-7, whole["elapsed"].iloc[row] + 1e-7)
        assert part["lost"].tolist() == [250_000 if row == 1000 else 0]


def test_a_file_without_signals_of_samples_lacks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = _slow_register(tmp_path / "a.jls")
    metadata = jls.JlsFile._metadata

    def bare(file: jls.JlsFile) -> tuple[dict[str, Any], dict[str, Any]]:
        facts, first = metadata(file)
        return {**facts, "jls": {**facts["jls"], "signals": []}}, first

    monkeypatch.setattr(jls.JlsFile, "_metadata", bare)
    with jls.JlsFile(path) as file:
        assert file.length > 0
        assert file.notes == ()
