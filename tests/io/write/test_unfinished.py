"""Parquet dumps that come to an end that nobody planned: killed, out of room, interrupted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pmtpy import load
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame
from pmtpy.errors import FileFormatError, SinkError
from pmtpy.io import _unfinished as unfinished
from pmtpy.io.write import Ending, Header, Writer, open_sink

MakeFrame = Callable[..., Frame]

END = Anchor(9_000_000_000, 1_700_000_004_000_000_000)
GROUP = 100_000  # rows of a row group


def _clean(rows: int) -> Ending:
    return Ending(END, rows=rows, lost=0, dropped=0, complete=True)


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def _is_a_beginning(table: pd.DataFrame, rows: int) -> None:
    """36 W from the first row on, 50 us apart, nothing left out."""
    assert len(table) == rows
    np.testing.assert_allclose(table["elapsed"], np.arange(rows) * 50e-6, atol=1e-9)
    np.testing.assert_allclose(table["total_J"], table["elapsed"] * 36.0, atol=1e-9)


@pytest.mark.parametrize("rows", [10, GROUP, GROUP + 10])
def test_what_was_written_can_be_read_before_the_end(
    tmp_path: Path, header: Header, make_frame: MakeFrame, rows: int
) -> None:
    path = tmp_path / "a.parquet"
    sink = open_sink(path, header)
    for first in range(0, rows, 10_000):
        sink.write(make_frame(min(10_000, rows - first), first, marks=((3, "go"),) if first == 0 else ()))
    table = load(path)
    _is_a_beginning(table, rows)
    assert table["marker"].tolist()[:5] == ["", "", "", "go", ""]
    assert (table.attrs["complete"], table.attrs["virtual"]) == (False, True)
    assert [note.split(",")[0] for note in table.attrs["notes"]] == ["it was not ended"]  # one note of one fact
    sink.close(_clean(rows))
    table = load(path)
    _is_a_beginning(table, rows)
    assert table.attrs["complete"] is True
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_row_groups_written_apart_make_one_sound_file(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    path = tmp_path / "a.parquet"
    sink = open_sink(path, header)
    for first in range(0, 250_000, 50_000):
        sink.write(make_frame(50_000, first))
    sink.close(_clean(250_000))
    assert pq.ParquetFile(path).metadata.num_row_groups == 3
    table = pq.read_table(path, page_checksum_verification=True)
    np.testing.assert_allclose(table["elapsed"].to_numpy(), np.arange(250_000) * 50e-6, atol=1e-9)


def test_a_torn_record_ends_what_is_believed(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    path = tmp_path / "a.parquet"
    sink = open_sink(path, header)
    for first in (0, 100, 200):
        sink.write(make_frame(100, first))
    tail = unfinished.folder(path) / unfinished.TAIL
    whole = tail.read_bytes()
    records = unfinished.records(tail)
    tail.write_bytes(whole[:-1])
    _is_a_beginning(load(path), 200)
    spoilt = bytearray(whole)
    spoilt[len(whole) - len(records[-1]) + 5] ^= 1
    tail.write_bytes(spoilt)
    _is_a_beginning(load(path), 200)
    tail.write_bytes(whole)
    _is_a_beginning(load(path), 300)
    sink.close(_clean(300))


def test_without_rows_there_is_nothing_to_read(tmp_path: Path, header: Header) -> None:
    sink = open_sink(tmp_path / "a.parquet", header)
    with pytest.raises(FileFormatError, match="before the first rows"):
        load(tmp_path / "a.parquet")
    sink.close(_clean(0))


def test_what_an_earlier_dump_left_is_not_replaced_unless_asked(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    path = tmp_path / "a.parquet"
    open_sink(path, header).write(make_frame(10))
    path.unlink()
    with pytest.raises(SinkError, match=r"a\.parquet\.unfinished exists already"):
        open_sink(path, header)
    sink = open_sink(path, header, overwrite=True)
    sink.write(make_frame(20))
    sink.close(_clean(20))
    _is_a_beginning(load(path), 20)


def test_a_full_disk_takes_the_rows_again_when_there_is_room(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    path = tmp_path / "a.parquet"
    sink = open_sink(path, header)
    for first in range(0, GROUP, 20_000):
        sink.write(make_frame(20_000, first))
    size = path.stat().st_size
    with _file_size_limit(size + 1000):
        for first in range(GROUP, 2 * GROUP, 20_000):
            sink.write(make_frame(20_000, first))  # they wait in memory
        with pytest.raises(SinkError, match="too large"):
            sink.write(make_frame(10, 2 * GROUP))  # so much may wait
        assert path.stat().st_size == size
        _is_a_beginning(load(path), GROUP)
    sink.write(make_frame(10, 2 * GROUP))
    assert sink.close(_clean(2 * GROUP + 10)).complete
    _is_a_beginning(load(path), 2 * GROUP + 10)


def test_a_disk_that_stays_full_leaves_what_found_room_and_counts_the_rest(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    path = tmp_path / "a.parquet"
    writer = Writer(lambda: open_sink(path, header))
    with _file_size_limit(150_000):
        for first in range(0, 50_000, 10_000):
            writer.put(make_frame(10_000, first))
        ending = writer.stop(END)
    assert not ending.complete
    assert 0 < ending.rows < 50_000
    assert ending.rows + ending.dropped == 50_000
    _is_a_beginning(load(path), ending.rows)


def test_a_file_whose_end_finds_no_room_is_read_by_what_lies_beside_it(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    path = tmp_path / "a.parquet"
    sink = open_sink(path, header)
    for first in range(0, GROUP, 20_000):
        sink.write(make_frame(20_000, first))
    with _file_size_limit(path.stat().st_size + 10), pytest.raises(SinkError, match=r"only pmtpy\.load reads it"):
        sink.close(_clean(GROUP))
    with pytest.raises((OSError, ValueError), match="magic bytes"):
        pq.read_table(path)
    _is_a_beginning(load(path), GROUP)


def test_a_file_with_its_end_is_not_read_by_what_was_left_beside_it(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    path = tmp_path / "a.parquet"
    sink = open_sink(path, header)
    sink.write(make_frame(10))
    sink.close(_clean(10))
    unfinished.folder(path).mkdir()  # killed between the two
    table = load(path)
    _is_a_beginning(table, 10)
    assert table.attrs["complete"] is True


class _Slow:
    """A sink whose end takes until it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.closed = 0

    def write(self, frame: Frame) -> None:
        pass

    def close(self, ending: Ending) -> Ending:
        self.go_on.wait()
        self.closed += 1
        return ending


def test_the_file_is_finished_whatever_becomes_of_those_who_wait_for_it(make_frame: MakeFrame) -> None:
    sink = _Slow()
    writer = Writer(lambda: sink)
    writer.put(make_frame(7))
    found: list[Ending] = []
    waiting = [threading.Thread(target=lambda: found.append(writer.stop(END))) for _ in range(4)]
    for thread in waiting:
        thread.start()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        writer.end(END)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            writer.wait()
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    sink.go_on.set()
    for thread in waiting:
        thread.join()
    assert found == [Ending(END, rows=7, lost=0, dropped=0, complete=True, uncovered_s=0.0)] * 4
    assert (writer.wait(), sink.closed) == (found[0], 1)


_PROGRAM = """
import os, signal, sys, threading
import pmtpy as pmt
sensor = pmt.create("powersensor3", "virtual", transport="direct")
other = pmt.create("rapl", "virtual")
sensor.start_dump(sys.argv[1])
other.start_dump(sys.argv[2])
arrived = threading.Event()
start = sensor.read()
while sensor.read().t_ns < start.t_ns + 50_000_000:
    arrived.wait(0.05)
"""


@pytest.mark.parametrize("end", ["", "raise RuntimeError", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_program_that_forgets_its_dumps_leaves_them_whole(tmp_path: Path, suffix: str, end: str) -> None:
    paths = [tmp_path / f"{name}.{suffix}" for name in ("board", "rapl")]
    wait = "arrived.wait(1.0)\n" if "KILL" in end else ""  # what was read by then is written by then
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM) + wait + end, *map(str, paths)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == (-signal.SIGKILL if "KILL" in end else 1 if end else 0), done.stderr
    tables = [load(path) for path in paths]
    assert all(len(table) for table in tables)
    assert [t.attrs["complete"] for t in tables] == ["KILL" not in end] * 2
    assert "Exception ignored" not in done.stderr


def test_each_row_group_is_on_the_disk_before_its_account_and_the_end_before_the_folder_goes(
    tmp_path: Path, header: Header, make_frame: MakeFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[tuple[str, int, list[int]]] = []
    path = tmp_path / "run.parquet"
    beside = unfinished.folder(path)

    def note(fd: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        accounts = [len(r) for r in unfinished.records(beside / unfinished.GROUPS)] if beside.is_dir() else [-1]
        settled.append((name, os.fstat(fd).st_size, accounts))

    monkeypatch.setattr(os, "fsync", note)
    sink = open_sink(path, header)
    for _ in range(2):
        sink.write(make_frame(GROUP))
    sink.close(_clean(2 * GROUP))
    files = [(name, len(accounts)) for name, _, accounts in settled]
    assert files == [("run.parquet", 0), ("groups", 1), ("run.parquet", 1), ("groups", 2), ("run.parquet", 2)]
    assert settled[-1][1] == path.stat().st_size


def test_a_disk_that_fails_when_it_is_waited_for_keeps_the_rows(
    tmp_path: Path, header: Header, make_frame: MakeFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [OSError(5, "Input/output error")] * 3

    def fail(_fd: int) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(os, "fsync", fail)
    path = tmp_path / "run.parquet"
    sink = open_sink(path, header)
    sink.write(make_frame(GROUP))
    assert not refusals
    assert sink.close(_clean(GROUP)).complete
    _is_a_beginning(load(path), GROUP)


def test_a_file_of_more_than_16_megabytes_is_whole(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    path = tmp_path / "run.parquet"
    noise = np.random.default_rng(1)
    sink = open_sink(path, header)
    for first in range(0, 4 * GROUP, GROUP):
        frame = make_frame(GROUP, first)
        sink.write(replace(frame, values=noise.random(frame.values.shape), watts=noise.random(frame.watts.shape)))
    sink.close(_clean(4 * GROUP))
    assert path.stat().st_size > 1.2 * 2**24
    _is_a_beginning(load(path), 4 * GROUP)


def test_names_of_columns_that_were_exchanged_are_found(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    path = tmp_path / "run.parquet"
    sink = open_sink(path, header)
    sink.write(make_frame(10))
    sink.close(_clean(10))
    names = [n.encode() for n in pq.read_schema(path).names if n.endswith("_J")]
    a, b = next((a, b) for a in names for b in names if a != b and len(a) == len(b))
    whole = path.read_bytes()
    first, second = (whole.index(b"\x18" + bytes([len(n)]) + n) for n in (a, b))  # a text, as Thrift writes it
    swapped = bytearray(whole)
    swapped[first + 2 : first + 2 + len(a)], swapped[second + 2 : second + 2 + len(b)] = b, a
    path.write_bytes(swapped)
    with pytest.raises(FileFormatError, match="not called as those of its row groups"):
        load(path)
