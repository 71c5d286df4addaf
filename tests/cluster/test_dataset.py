"""A data set of 200 imagined nodes, read by every engine that we say reads it: the same joules as the truth."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.cli import main
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import FileFormatError, SinkError, TargetError
from pmtpy.io.columns import DATA_SET
from pmtpy.io.write._dataset import DataSetPlace, DataSetSink
from pmtpy.io.write.base import Ending, Header
from tests.support.daemons import descriptors, numbers_of_a_socket

pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra dataset)")

NODES, SECONDS = 200, 60
MIDNIGHT = 1_800_000_000 // 86400 * 86400
CHANNELS = (
    Channel("package0", Quantity.ENERGY, scale=1e-6, domain="host/socket0/package", gain_u=0.02),
    Channel("dram0", Quantity.ENERGY, scale=1e-6, domain="host/socket0/dram", gain_u=0.01),
)


def watts(node: int) -> float:
    return 100.0 + node


def header(begin_s: float, *, virtual: bool = False, target: str = "rapl") -> Header:
    unix_ns = round(begin_s * 1e9)
    return Header(target, Identity("rapl", virtual=virtual), Layout(CHANNELS), Anchor(10**9, unix_ns))


def frame(first: int, last: int, power: float, *, step: float = 1.0, lost: int = 0) -> Frame:
    """Rows from second ``first`` to ``last`` of a run: a total, three quarters and a quarter of it."""
    t = np.arange(first, last, step)
    joules = np.outer(t * power, [1.0, 0.75, 0.25]) + 7.0  # counted since some opening
    gone = np.zeros(len(t), np.int64)
    gone[0] = lost
    rows = len(t)
    return Frame(
        (t * 1e9).astype(np.int64) + 10**9, np.full((rows, 3), power) * [1.0, 0.75, 0.25], joules,
        np.empty((rows, 0)), gone, np.zeros((rows, 3), np.int64),
    )  # fmt: skip


def ending(rows: int = 0) -> Ending:
    return Ending(Anchor(2, 2), rows, 0, 0, complete=True)


def write(place: DataSetPlace, begin_s: float, *frames: Frame, virtual: bool = False, target: str = "rapl") -> Ending:
    sink = DataSetSink(place, header(begin_s, virtual=virtual, target=target))
    for each in frames:
        sink.write(each)
    return sink.close(ending(sum(map(len, frames))))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 nodes of one job, 601 rows each, in two files where midnight falls between."""
    place = tmp_path_factory.mktemp("many") / "energy"
    for node in range(NODES):
        begin = MIDNIGHT - 30 if node % 50 == 0 else MIDNIGHT + 3600
        job = "7.0" if node < NODES - 1 else "8.0"
        write(DataSetPlace(place, f"node{node:03d}", job), begin, frame(0, SECONDS + 1, watts(node)))
    return place


TRUTH = {f"node{n:03d}": watts(n) * SECONDS for n in range(NODES)}


def test_duckdb_gives_the_joules_of_every_node_and_job(root: Path) -> None:
    data = pmt.dataset(root)
    found = {host: joules for host, joules, *_ in data.energies(by=("host",)).fetchall()}
    assert found == pytest.approx(TRUTH)
    jobs = {row[0]: row for row in data.energies(by=["job"]).fetchall()}
    assert jobs["8.0"][1] == pytest.approx(watts(NODES - 1) * SECONDS)
    assert jobs["7.0"][1] == pytest.approx(sum(TRUTH.values()) - jobs["8.0"][1])
    assert jobs["7.0"][2] == pytest.approx(SECONDS)
    gain = np.hypot(0.02 * 0.75, 0.01 * 0.25)  # of both parts, in all nodes alike
    assert jobs["7.0"][5] == pytest.approx(gain * jobs["7.0"][1])
    (parts,) = data.energies(by=("channel",), channel="dram0").fetchall()
    assert parts[1] == pytest.approx(sum(TRUTH.values()) / 4)
    whole = data.energies(by=()).fetchall()
    assert whole[0][0] == pytest.approx(sum(TRUTH.values()))


def test_intervals_take_their_share_of_rows_that_reach_over_their_edges(root: Path) -> None:
    data = pmt.dataset(root)
    begin = MIDNIGHT + 3600
    (part,) = data.energies(by=("job",), start=begin + 10.25, stop=begin + 20.75).fetchall()[:1]
    late = [n for n in range(NODES - 1) if n % 50]
    assert part[1] == pytest.approx(sum(map(watts, late)) * 10.5)
    assert part[2] == pytest.approx(10.5)
    bins = data.energies(by=("host",), every=0.4, start=begin + 30.0, stop=begin + 33.0)
    rows = [r for r in bins.fetchall() if r[0] == "node001"]
    assert len(rows) in {8, 9}
    assert sum(r[2] for r in rows) == pytest.approx(watts(1) * 3.0)
    over_midnight = data.energies(by=("host",), start=MIDNIGHT - 5.5, stop=MIDNIGHT + 4.5).fetchall()
    assert {r[0]: r[1] for r in over_midnight} == pytest.approx(
        {f"node{n:03d}": watts(n) * 10 for n in range(0, 200, 50)}
    )
    hours = data.energies(by=(), every=3600.0).fetchall()
    assert sum(r[1] for r in hours) == pytest.approx(sum(TRUTH.values()))


def test_gains_are_joined_as_in_energies(tmp_path: Path) -> None:
    """Two packages that are off alike, a memory beside them, a second sensor; over any stretch."""
    energy = [
        Channel(name, Quantity.ENERGY, scale=1e-6, domain=f"host/{name}", gain_u=u)
        for name, u in (("package0", 0.03), ("package1", 0.03), ("package0.dram", 0.115))
    ]
    t = np.arange(0.0, 101.0)
    joules = np.outer(t, [210.0, 100.0, 90.0, 20.0])
    t_ns, none = (t * 1e9).astype(np.int64) + 10**9, np.zeros((101, 4), np.int64)
    rows = Frame(t_ns, joules * 0.0, joules, np.empty((101, 0)), none[:, 0].copy(), none)
    for target, host in (("rapl", "n0"), ("rapl", "n1"), ("nvml:0", "n0")):
        told = Header(target, Identity("x"), Layout(tuple(energy)), Anchor(10**9, MIDNIGHT * 10**9))
        sink = DataSetSink(DataSetPlace(tmp_path, host), told)
        sink.write(rows)
        sink.close(ending(101))
    data, gain = pmt.dataset(tmp_path), np.hypot(0.03 * 190.0, 0.115 * 20.0)
    by_host = {row[0]: row[5] for row in data.energies(by=("host",)).fetchall()}
    assert by_host == pytest.approx({"n0": 100.0 * gain * np.sqrt(2.0), "n1": 100.0 * gain})
    (all_of_them,) = data.energies(by=(), start=MIDNIGHT + 10.5, stop=MIDNIGHT + 20.5).fetchall()
    assert all_of_them[4] == pytest.approx(10.0 * gain * np.hypot(2.0, 1.0))


def test_it_is_lazy_and_answers_to_sql(root: Path) -> None:
    data = pmt.dataset(root)
    assert set(data.rows().columns) == {*DATA_SET, "date", "host"}
    assert data.sql("select count(*) from rows where channel = 'total'").fetchall() == [(NODES * (SECONDS + 1),)]
    assert data.sql("select distinct typeof(date) from rows").fetchall() == [("DATE",)]


def by_host(table: Any) -> dict[str, float]:
    """Sum of max - min over hosts, of a table of pandas."""
    return {str(k): float(v) for k, v in table.items()}


def test_pyarrow_reads_the_same(root: Path) -> None:
    ds = pytest.importorskip("pyarrow.dataset")
    table = ds.dataset(root, partitioning="hive").to_table(
        columns=["host", "joules"], filter=ds.field("channel") == "total"
    )
    grouped = table.group_by("host").aggregate([("joules", "max"), ("joules", "min")]).to_pylist()
    assert {r["host"]: r["joules_max"] - r["joules_min"] for r in grouped} == pytest.approx(TRUTH)


def test_polars_reads_the_same(root: Path) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    lazy = pmt.dataset(root).polars().filter(pl.col("channel") == "total")
    found = lazy.group_by("host").agg((pl.col("joules").max() - pl.col("joules").min()).alias("joules")).collect()
    assert dict(found.iter_rows()) == pytest.approx(TRUTH)


@pytest.mark.filterwarnings("ignore")  # of Dask, about what pandas will change
def test_dask_reads_the_same_with_two_workers(root: Path) -> None:
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    distributed = pytest.importorskip("distributed", reason="dask's distributed scheduler is not installed")
    config = pytest.importorskip("dask.config")
    with (
        config.set({"distributed.diagnostics.nvml": False}),  # GPUs here may be those of another test's stand-in
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        table = dd.read_parquet(
            str(root), columns=["host", "channel", "joules"], aggregate_files=True, blocksize="64MB"
        )
        table = table[table.channel == "total"].astype({"host": "string[pyarrow]"})
        grouped = table.groupby("host").joules
        found = (grouped.max() - grouped.min()).compute()
    assert by_host(found) == pytest.approx(TRUTH)


# -- writing -----------------------------------------------------------------------------------------------------------


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_a_run_in_several_files_loses_nothing_between_them(tmp_path: Path) -> None:
    place = DataSetPlace(tmp_path, "n0", "7/../x", every_s=3600)
    write(place, MIDNIGHT - 7200, frame(0, 10801, 50.0, step=10.0))
    names = files(tmp_path)
    assert len(names) == 4
    assert names[0].startswith("host=n0/date=")
    assert all("/7-x.rapl." in n and n.endswith(".parquet") for n in names), names
    (row,) = pmt.dataset(tmp_path).energies(by=("job", "host")).fetchall()
    assert row[:3] == ("7/../x", "n0", pytest.approx(50.0 * 10800))


def test_a_file_that_is_large_enough_is_ended(tmp_path: Path) -> None:
    sink = DataSetSink(DataSetPlace(tmp_path, "n0", most_bytes=1000), header(MIDNIGHT))
    for i in range(3):
        sink.write(frame(i * 20_000, (i + 1) * 20_000, 50.0, step=0.5))
        assert len(files(tmp_path)) == i + 1
        hidden = [f for f in files(tmp_path) if f.endswith(".tmp")]
        assert len(hidden) == 1, "nobody reads what is not whole"
    sink.close(ending())
    assert not [f for f in files(tmp_path) if f.endswith(".tmp")]
    (row,) = pmt.dataset(tmp_path).energies().fetchall()
    assert row[3] == pytest.approx(50.0 * (60_000 - 0.5))


def test_a_file_is_ended_at_even_times_of_each_day(tmp_path: Path) -> None:
    place = DataSetPlace(tmp_path, "n0", every_s=50_000)  # does not divide a day: the second file is shorter
    write(place, MIDNIGHT, frame(0, 2 * 86400 + 1, 50.0, step=100.0))
    pattern = pmt.dataset(tmp_path).pattern
    each = duckdb.read_parquet(pattern, filename=True).aggregate("min(time)", "filename").fetchall()
    firsts = sorted(row[0] for row in each)
    assert firsts == [MIDNIGHT + s for s in (0.0, 50_000.0, 86_400.0, 136_400.0, 172_800.0)]


def test_a_file_that_was_cut_short_is_named_and_left_out_if_asked(tmp_path: Path) -> None:
    for node in ("n0", "n1"):
        write(DataSetPlace(tmp_path, node, "7"), MIDNIGHT, frame(0, 11, 10.0))
    first, second = sorted(tmp_path.rglob("*.parquet"))
    second.write_bytes(second.read_bytes()[:-40])
    with pytest.raises(duckdb.Error, match=second.name):
        pmt.dataset(tmp_path).energies().fetchall()
    data = pmt.dataset(tmp_path, skip_broken=True)
    assert data.broken == (second,)
    assert [row[0] for row in data.energies(by=("host",)).fetchall()] == ["n0"]
    first.write_bytes(b"")
    with pytest.raises(FileFormatError, match="skip_broken=True"):
        pmt.dataset(tmp_path)
    with pytest.raises(FileFormatError, match="none of its files is whole"):
        pmt.dataset(tmp_path, skip_broken=True)


def test_rows_that_wait_count_to_the_size_of_a_file(tmp_path: Path) -> None:
    sink = DataSetSink(DataSetPlace(tmp_path, "n0", most_bytes=10_000), header(MIDNIGHT))
    for i in range(100):
        sink.write(frame(i * 20, (i + 1) * 20, 50.0))
    assert len([f for f in files(tmp_path) if not f.endswith(".tmp")]) >= 2, "a logger that is killed loses the last"
    sink.close(ending())
    assert max(p.stat().st_size for p in tmp_path.rglob("*.parquet")) <= 10_000
    assert pmt.dataset(tmp_path).energies().fetchall()[0][3] == pytest.approx(50.0 * (2000 - 1))


def test_two_runs_of_one_job_are_added_not_spanned(tmp_path: Path) -> None:
    place = DataSetPlace(tmp_path, "n0", "7")
    write(place, MIDNIGHT, frame(0, 101, 10.0, lost=2))
    write(place, MIDNIGHT + 5000, frame(0, 101, 10.0), virtual=True)
    (row,) = pmt.dataset(tmp_path).energies(by=("job",)).fetchall()
    assert row == (
        "7",
        pytest.approx(2000.0),
        pytest.approx(200.0),
        0.0,
        2,
        pytest.approx(2000.0 * np.hypot(0.015, 0.0025)),
        True,
    )


@pytest.mark.parametrize("jobs", [("7", "7"), ("7", "8")])
def test_what_two_loggers_of_one_host_saw_together_is_counted_once(tmp_path: Path, jobs: tuple[str, str]) -> None:
    for (begin, end), job, lost in (((0, 101), jobs[0], 2), ((60, 161), jobs[1], 3), ((20, 31), jobs[0], 5)):
        run = frame(0, end - begin, 10.0, lost=lost)  # rows a second apart; the third lies within the first
        write(DataSetPlace(tmp_path, "n0", job), MIDNIGHT + begin + 0.25 * (begin == 60), run)
    write(DataSetPlace(tmp_path, "n1", jobs[0]), MIDNIGHT, frame(0, 101, 10.0))
    data = pmt.dataset(tmp_path)
    whole = {row[0]: row[1:5] for row in data.energies(by=("host",)).fetchall()}
    assert whole["n0"] == pytest.approx((1602.5, 160.25, 0.0, 2))
    assert whole["n1"] == pytest.approx((1000.0, 100.0, 0.0, 0))
    (part,) = (r for r in data.energies(by=("host",), start=MIDNIGHT + 50.0).fetchall() if r[0] == "n0")
    assert part[1:3] == pytest.approx((1102.5, 110.25))
    shares = [r for r in data.energies(by=("host",), every=40.0).fetchall() if r[0] == "n0"]
    assert [r[2] for r in shares] == pytest.approx([400.0] * 4 + [2.5])
    each = {row[0]: row[1:3] for row in data.energies(by=("job",)).fetchall()}
    if jobs[0] == jobs[1]:
        assert each == {"7": pytest.approx((2602.5, 160.25))}
    else:  # a job used what its own runs saw, whatever others saw beside it
        assert each == {"7": pytest.approx((2000.0, 100.0)), "8": pytest.approx((1000.0, 100.0))}


U = MIDNIGHT + 7200.0


@pytest.mark.parametrize(
    ("runs", "truth"),
    [
        # (boot, monotonic and wall time at the begin, seconds); truth: joules, seconds
        pytest.param([("b", 1000, U, 100), ("b", 1110, U - 40, 100)], (2000.0, 200.0), id="set back between two runs"),
        pytest.param([("b", 1000, U, 100), ("c", 20, U + 50, 100)], (2000.0, 200.0), id="set back by a start"),
        pytest.param(
            [("b", 1000, U, 100), ("b", 1010, U + 3610, 50)], (1000.0, 100.0), id="set on, and a second beside"
        ),
        pytest.param([("b", 1000, U, 100), ("b", 1040, U - 560, 100)], (1400.0, 140.0), id="set back, second beside"),
        pytest.param([("b", 1000, U, 100), ("b", 1040, U + 40, 100)], (1400.0, 140.0), id="not set, second beside"),
        pytest.param(
            [("n0", 1000, U, 100), ("n0", 20, U + 5000, 100)], (2000.0, 200.0), id="boots that nobody tells apart"
        ),
        pytest.param([("b", 1000, U, 100), ("", 1040, U + 40, 100)], (2000.0, 200.0), id="another clock"),
    ],
)
def test_what_was_seen_together_is_told_by_the_clock_that_is_never_set(
    tmp_path: Path, runs: list[tuple[str, float, float, int]], truth: tuple[float, float]
) -> None:
    for boot, monotonic_s, unix_s, seconds in runs:
        rows = frame(0, seconds + 1, 10.0)
        rows = replace(rows, t_ns=rows.t_ns - 10**9 + round(monotonic_s * 1e9))
        anchor = Anchor(round(monotonic_s * 1e9), round(unix_s * 1e9))
        origin = {"machine": {"host": "n0", "node": boot}} if boot else {}
        sink = DataSetSink(DataSetPlace(tmp_path, "n0", "7"), replace(header(unix_s), anchor=anchor, origin=origin))
        sink.write(rows)
        sink.close(ending(len(rows)))
    data = pmt.dataset(tmp_path)
    assert data.energies().fetchall()[0][3:5] == pytest.approx(truth)
    assert data.energies(start=U - 86400.0).fetchall()[0][3:5] == pytest.approx(truth)
    assert sum(row[4] for row in data.energies(every=30.0).fetchall()) == pytest.approx(truth[0])


@pytest.mark.parametrize("boot", ["b", "n0"])
def test_two_devices_of_one_name_are_two(tmp_path: Path, boot: str) -> None:
    """Jobs of one node that each have a GPU of their own, which each calls nvml:0; and two loggers of one of them."""
    for job, serial in (("7", "GPU-1"), ("8", "GPU-2"), ("9", "GPU-2")):
        told = replace(
            header(U, target="nvml:0"),
            identity=Identity("nvml", serial=serial),
            origin={"machine": {"host": "n0", "node": boot}},
        )
        sink = DataSetSink(DataSetPlace(tmp_path, "n0", job), told)
        sink.write(frame(0, 101, 10.0))
        sink.close(ending(101))
    data = pmt.dataset(tmp_path)
    assert data.energies(by=("host",)).fetchall()[0][1:3] == pytest.approx((2000.0, 100.0))
    assert [row[2:4] for row in data.energies(by=("host",), every=50.0).fetchall()] == [
        pytest.approx((1000.0, 50.0))
    ] * 2
    assert {row[0]: row[1] for row in data.energies(by=("job",)).fetchall()} == pytest.approx(
        {"7": 1000.0, "8": 1000.0, "9": 1000.0}
    )


def test_a_daemon_writes_on_where_it_began_and_leaves_alone_what_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes all descriptors and goes to another folder, with a file of its set at hand and others to come."""
    monkeypatch.chdir(tmp_path)
    before = descriptors()
    sink = DataSetSink(DataSetPlace(Path("energy"), "n0", every_s=100), header(MIDNIGHT))
    sink.write(frame(0, 50, 10.0))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with numbers_of_a_socket(descriptors() - before):
        sink.write(frame(50, 250, 10.0))
        told = sink.close(ending(250))
    assert told.complete
    assert list(tmp_path.glob("elsewhere/*")) == []
    assert len(files(tmp_path / "energy")) == 3
    (row,) = pmt.dataset(tmp_path / "energy").energies().fetchall()
    assert row[3] == pytest.approx(2490.0)


class _Disk:
    """A disk that is full at times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        monkeypatch.setattr("pmtpy.io.write.file._write_all", self._write)

    def _write(self, fd: int, chunk: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.write(fd, chunk)


def test_on_a_full_disk_no_half_file_stays_and_the_loss_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    sink = DataSetSink(DataSetPlace(tmp_path, "n0"), header(MIDNIGHT))
    sink.write(frame(0, 40_000, 50.0))
    disk.full = True
    with pytest.raises(
        SinkError, match=r"cannot write .*-0000.parquet: No space left on device; the 40000 rows of that file are miss"
    ):
        sink.write(frame(40_000, 60_000, 50.0))
    with pytest.raises(SinkError, match="No space left"):  # nor can the next one be begun
        sink.write(frame(60_000, 80_000, 50.0))
    assert files(tmp_path) == []
    disk.full = False
    sink.write(frame(80_000, 120_000, 50.0, lost=40_000))  # by whoever was refused 40,000 rows
    told = sink.close(ending(80_000))
    assert (told.rows, told.dropped) == (40_000, 40_000)
    assert not told.complete
    assert "found no room" in told.error
    (row,) = pmt.dataset(tmp_path).energies().fetchall()
    assert row[3] == pytest.approx(50.0 * 119_999), "the run's first row is there again, from which its joules count"
    assert row[6] == 80_000


@pytest.mark.parametrize("full", [(3, 5), (0, 2), (8, 9), (4, 5)])
def test_each_row_of_a_full_disk_is_kept_or_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: tuple[int, int]
) -> None:
    """Frames of 100 rows over files of 150 s: some frames are of two files."""
    disk = _Disk(monkeypatch)
    sink = DataSetSink(DataSetPlace(tmp_path, "n0", every_s=150), header(MIDNIGHT))
    refused, missing = 0, 0
    for nth in range(10):
        disk.full = full[0] <= nth < full[1]
        rows = frame(nth * 100, (nth + 1) * 100, 50.0, lost=missing + (nth == 4))
        try:
            sink.write(rows)
        except SinkError:
            refused, missing = refused + 100, missing + 100 + (nth == 4)
        else:
            missing = 0
    disk.full = False
    told = sink.close(ending(1000 - refused))
    data = pmt.dataset(tmp_path)
    (rows_there, last, begun) = data.sql(
        "select count(distinct time), max(time), bool_or(joules = 0) from rows where channel = 'total'"
    ).fetchall()[0]
    assert last == MIDNIGHT + 999
    assert begun
    again = full[0] == 0  # the first row, of which it was said that it is missing
    assert told.rows == rows_there - again
    assert told.dropped + refused == 1000 - told.rows
    (row,) = data.energies().fetchall()
    assert row[3:5] == pytest.approx((50.0 * 999, 999.0))
    assert row[6] == 1000 - told.rows + 1


@pytest.mark.parametrize("rows", [1, 10])
@pytest.mark.parametrize("most", [10_000, 64_000])
@pytest.mark.parametrize("noisy", [False, True])
def test_no_file_is_larger_than_its_size_says_however_far_its_rows_compress(
    tmp_path: Path, *, noisy: bool, most: int, rows: int
) -> None:
    rng, frames = np.random.default_rng(1), []
    for i in range(3000 // rows):
        made = frame(i * rows, (i + 1) * rows, 10.0)
        if noisy:
            more = rng.random((rows, 3))
            made = replace(
                made,
                watts=made.watts + more,
                joules=made.joules + more,
                t_ns=made.t_ns + rng.integers(0, 10**6, rows),
                uncovered_ns=rng.integers(0, 10**6, (rows, 3)),
            )
        frames.append(made)
    told = write(DataSetPlace(tmp_path, "n0", "a job", most_bytes=most), MIDNIGHT + 3600, *frames)
    sizes = [path.stat().st_size for path in sorted(tmp_path.rglob("*.parquet"))]
    assert max(sizes) <= most
    assert min(sizes[:-1]) > most / 2
    assert told.rows == len(pmt.dataset(tmp_path).rows().filter("channel = 'total'").fetchall()) == 3000


def test_a_folder_that_is_no_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no folder"):
        pmt.dataset(tmp_path / "x")
    with pytest.raises(TargetError, match="is no data set"):
        pmt.dataset(tmp_path)
    write(DataSetPlace(tmp_path, "it's", "a'b"), MIDNIGHT, frame(0, 3, 10.0))
    data = pmt.dataset(tmp_path)
    assert data.energies(by=("host", "job")).fetchall()[0][:2] == ("it-s", "a'b")
    with pytest.raises(TargetError, match="no column to group by"):
        data.energies(by=("date",))
    with pytest.raises(TargetError, match="do not add up"):
        data.energies(channel=None)
    with pytest.raises(TargetError, match="no row is of a channel \"x' or '1'='1\"; there are: dram0, package0, total"):
        data.energies(channel="x' or '1'='1")
    with pytest.raises(TargetError, match="Did you mean dram0"):
        data.energies(channel="dram")
    with pytest.raises(TargetError, match="Unix seconds"):
        data.energies(start="now")  # type: ignore[arg-type]
    for stop in (MIDNIGHT, MIDNIGHT - 1.0):  # no rows would pass for no energy
        with pytest.raises(TargetError, match="no time lies between them"):
            data.energies(start=float(MIDNIGHT), stop=stop)


def test_a_part_of_it_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(DataSetPlace(tmp_path, "n0"), MIDNIGHT, frame(0, 3, 10.0))
    (part,) = tmp_path.rglob("*.parquet")
    with pytest.raises(FileFormatError, match=r"it is a part of a data set; pmtpy\.dataset\(ROOT\) reads all of that"):
        pmt.load(part)
    assert main(["convert", str(part), str(tmp_path / "x.csv")]) == 1
    assert "it is a part of a data set" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()


def test_a_sensor_grows_it(tmp_path: Path) -> None:
    with pmt.create("rapl:virtual", load="constant:80") as sensor:
        a = sensor.read()
        sensor.start_dump(DataSetPlace(tmp_path, "n0", "7"), interval=0.01)
        while pmt.seconds(a, sensor.read()) < 0.1:
            pass
        sensor.stop_dump()
    (row,) = pmt.dataset(tmp_path).energies().fetchall()
    assert row[3] / row[4] == pytest.approx(80.0, rel=0.1)
    assert row[8] is True
