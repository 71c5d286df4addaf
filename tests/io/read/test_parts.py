"""Parts of long recordings, what would not fit into memory, and what only looks small."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import FileFormatError, TargetError
from pmtpy.io.read import load
from pmtpy.io.read._memory import free_bytes
from pmtpy.io.write import Ending, Header, open_sink

N = 120_000
LAYOUT = Layout((Channel("rail", Quantity.POWER, scale=1e-3, domain="rail"),))


def _write(path: Path, n: int = N) -> Path:
    """Write ``n`` rows of 20 W, 1 ms apart, with a marker at 90 s."""
    header = Header("test", Identity("test"), LAYOUT, Anchor(0, 1_700_000_000_000_000_000))
    sink = open_sink(path, header)
    for first in range(0, n, 30_000):
        k = np.arange(first, min(first + 30_000, n))
        nothing = np.zeros(len(k), np.int64)
        joules = np.outer(k * 1e-3, [20.0, 20.0])
        marks = ((0, "here"),) if first == 90_000 else ()
        sink.write(
            Frame(k * 1_000_000, np.full((len(k), 2), 20.0), joules, np.empty((len(k), 0)), nothing, nothing, marks)
        )
    sink.close(Ending(Anchor(0, 0), n, 0, 0, complete=True))
    return path


@pytest.fixture(scope="module", params=["a.csv", "a.parquet", "a.csv.gz", "a.pmt"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("long") / request.param
    plain = _write(path.with_name(path.name.removesuffix(".gz")))
    if path != plain:
        path.write_bytes(gzip.compress(plain.read_bytes(), 1))
        plain.unlink()
    return path


# Half-way between rows: the Unix times of PMT's dumps are rounded to a microsecond.
@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ((None, None, None), 0, N),
        ((59.9995, 79.9995, None), 60_000, 80_000),
        ((59.9995, 60.0005, None), 60_000, 60_001),
        ((89.8995, 90.0995, None), 89_900, 90_100),
        ((None, 0.4995, None), 0, 500),
        ((119.8995, None, None), 119_900, N),
        ((None, None, 1000), 0, 1000),
        ((98.9995, None, 2500), 99_000, 101_500),
        ((98.9995, 99.0995, 2500), 99_000, 99_100),
        ((1000.0, None, None), N, N),
        ((None, None, 0), 0, 0),
        ((-5.0, 0.0015, None), 0, 2),
    ],
)
def test_a_part_has_its_rows_and_counts_from_the_first_row_of_the_recording(
    recording: Path, asked: tuple[float | None, float | None, int | None], first: int, last: int
) -> None:
    table = load(recording, *asked)
    assert len(table) == last - first
    np.testing.assert_allclose(table["elapsed"], np.arange(first, last) * 1e-3, atol=1e-6)
    np.testing.assert_allclose(table["total_J"], table["elapsed"] * 20.0, atol=1e-4)
    assert table.index[table["marker"] == "here"].tolist() == ([90_000 - first] if first <= 90_000 < last else [])
    assert any("a part" in note for note in table.attrs["notes"]) is (asked != (None, None, None))


@pytest.mark.parametrize(("start", "stop", "max_rows"), [(2.0, 1.0, None), (1.0, 1.0, None), (None, None, -1)])
def test_what_is_no_part_is_refused(
    tmp_path: Path, start: float | None, stop: float | None, max_rows: int | None
) -> None:
    with pytest.raises(TargetError, match=r"a later stop|is not a number of rows"):
        load(_write(tmp_path / "a.csv", 10), start, stop, max_rows)


def test_what_would_fill_the_memory_is_refused_and_its_parts_are_read(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pmtpy.io.read._recording.free_bytes", lambda: 5_000_000)
    with pytest.raises(FileFormatError, match=r"would take .* GB.*max_rows=1000000"):
        load(recording)
    if recording.suffix != ".pmt":  # foreign formats are read as a whole
        assert len(load(recording, 100.0, 101.0)) == 1000
        assert len(load(recording, max_rows=1000)) == 1000


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    host = tmp_path / "meminfo"
    host.write_text("MemTotal:       16 kB\nMemAvailable:       8 kB\n")
    assert free_bytes(host, tmp_path) == 8192
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert free_bytes(host, tmp_path) == 4000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(host, tmp_path) == 8192


@pytest.mark.parametrize("start", [b"", b"time,elapsed,marker,lost,total_W,total_J\n", b"timestamp total\n"])
def test_a_file_that_unpacks_to_what_no_recording_does_is_refused(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "bomb.gz"
    line = b"0,0,,0,1,0\n" if b"," in start else b"0 1\n" if start else bytes(4)
    part = gzip.compress(line * ((1 << 24) // len(line)))
    path.write_bytes(gzip.compress(start) + 5 * part)
    with pytest.raises(FileFormatError, match=r"bomb\.gz"):
        load(path)


SIDECARS = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"format": "1"}',
    b'{"format": 1, "channels": 5}',
    b'{"format": 1, "channels": [5]}',
    b'{"format": 1, "channels": [{"name": 5}], "target": "x", "virtual": "yes"}',
    b'{"format": 1, "complete": {}}',
    b'{"format": NaN}',
    b'{"format": 1, "target": "x", "virtual": false, "regions": 5}',
    b'{"format": 1, "target": "x", "virtual": false, "marks": {"label": "x"}}',
    b'{"format": 1, "target": "x", "virtual": false, "anchors": [1]}',
    b'{"format": 1, "target": "x", "virtual": false, "load": [1]}',
]


@pytest.mark.parametrize("spoilt", SIDECARS)
@pytest.mark.parametrize("name", ["a.csv", "a.pmt"])
def test_broken_metadata_do_not_make_a_recording_unreadable(tmp_path: Path, name: str, spoilt: bytes) -> None:
    path = _write(tmp_path / name, 100)
    path.with_name(name + ".json").write_bytes(spoilt)
    table = load(path)
    assert len(table) == 100
    assert table.attrs["virtual"] is None
    assert table.attrs["complete"] is None


def _counter(path: Path) -> tuple[Path, pd.DataFrame]:
    """Write a counter under a load that doubles each second, polled ten times a second."""
    layout = Layout((Channel("package0", Quantity.ENERGY, scale=1e-6, domain="host/socket0/package"),))
    header = Header("test", Identity("test"), layout, Anchor(0, 1_700_000_000_000_000_000), polled_s=0.1)
    t = np.arange(60) * 0.1
    joules = 10.0 * np.exp2(t)
    watts = np.diff(joules, prepend=joules[0] - 1.0) / 0.1
    sink = open_sink(path, header)
    nothing = np.zeros(60, np.int64)
    sink.write(
        Frame(
            (t * 1e9).round().astype(np.int64),
            np.stack([watts] * 2, axis=1),
            np.stack([joules] * 2, axis=1),
            np.empty((60, 0)),
            nothing,
            nothing,
        )
    )
    sink.close(Ending(Anchor(0, 0), 60, 0, 0, complete=True))
    return path, load(path)


def test_our_pmt_dump_of_a_counter_has_the_counters_energy(tmp_path: Path) -> None:
    truth = 10.0 * (np.exp2(5.9) - 1)
    path, table = _counter(tmp_path / "a.pmt")
    assert table["total_J"].iloc[-1] == pytest.approx(truth, rel=1e-5)
    assert table["package0_J"].iloc[-1] == pytest.approx(truth, rel=1e-5)
    assert "a mean since the row before" in table.attrs["joules"]
    facts = json.loads(path.with_name("a.pmt.json").read_text())
    facts["channels"][0]["rule"] = "integrated"
    path.with_name("a.pmt.json").write_text(json.dumps(facts))
    assert load(path).attrs["joules"].endswith("by the trapezoidal rule")


def test_of_the_one_power_that_is_asked_for_all_is_as_in_the_whole(tmp_path: Path) -> None:
    rows = [f"{1.7e9 + i},{i},{'on' if i == 2 else ''},{int(i == 3)},{60 + i},20,{40 + i}" for i in range(5)]
    path = tmp_path / "both.csv"
    path.write_text("\n".join(["time,elapsed,marker,lost,total_W,a_W,b_W", *rows, ""]), encoding="utf-8")
    whole, part = load(path), load(path, only="total")
    assert list(part) == ["time", "elapsed", "marker", "lost", "total_W", "total_J"]
    pd.testing.assert_frame_equal(part, whole[list(part)])
    assert part.attrs["uncovered_s"] == whole.attrs["uncovered_s"] == 1.0


def test_a_broken_field_of_a_power_that_is_not_asked_for_is_told(tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    path.write_text("time,elapsed,marker,lost,total_W,a_W\n1,0,,0,60,20\n2,1,,0,60,x\n3,2,,0,60,20\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match="a_W is not a number"):
        load(path, only="total")


def test_of_a_meter_the_total_alone_is_that_of_all_pairs(tmp_path: Path) -> None:
    words = np.zeros((50, 9), "<u2")
    words[:, 0] = np.arange(50) * 600
    words[:, 1::2], words[:, 2::2] = 1586 << 4, np.array([1, 2, 3, 0xFFF]) << 4  # the last is one code below zero
    path = tmp_path / "PMD_data.bin"
    words.tofile(path)
    total = load(path, only="total")
    assert not {"pair1_W", "pair4_J"} & set(total)
    np.testing.assert_allclose(total["total_W"], 1586 * 0.007568 * 5 * 0.0488, rtol=1e-12)
    total["lost"] += 1  # a column is its own: no other changes with it
    assert total["total_W"].std() == 0.0
