"""Parquet, and the text dumps of PMT and PowerSensor3, as their own readers expect them."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import SinkError
from pmtpy.io.write import Ending, Header, open_sink

MakeFrame = Callable[..., Frame]

CLEAN = Ending(Anchor(0, 0), rows=3, lost=0, dropped=0, complete=True)
POLLED = Layout((Channel("gpu instant", Quantity.POWER, domain="gpu/0", refresh_s=0.1),))


def test_parquet_holds_the_columns_of_the_csv_file(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    for name in ("a.csv", "a.parquet"):
        sink = open_sink(tmp_path / name, header)
        sink.write(make_frame(2, first=5, marks=((1, "go"),)))
        sink.write(make_frame(3, first=7))
        sink.close(CLEAN)
    expected = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), expected, check_dtype=False, rtol=1e-12)


def test_parquet_carries_its_metadata(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    sink = open_sink(tmp_path / "a.parquet", header)
    sink.write(make_frame(3))
    sink.close(CLEAN)
    facts = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"pmtpy"])
    assert (facts["complete"], facts["virtual"], facts["rows"]) == (True, True, 3)
    assert not (tmp_path / "a.parquet.json").exists()


def test_a_parquet_file_without_rows_is_readable(tmp_path: Path, header: Header) -> None:
    open_sink(tmp_path / "a.parquet", header).close(CLEAN)
    assert len(pd.read_parquet(tmp_path / "a.parquet")) == 0


def test_a_full_device_is_refused_at_once(header: Header) -> None:
    with pytest.raises(SinkError, match=f"Errno {errno.ENOSPC}|No space"):
        open_sink("/dev/full", header, format="parquet")


def test_pmt_files_are_those_of_the_newer_pmt(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    sink = open_sink(tmp_path / "a.pmt", replace(header, layout=POLLED))
    frame = replace(make_frame(3), watts=np.array([[1.0, 2.0], [3.0004, 4.25], [5.0, np.nan]]))
    sink.write(replace(frame, t_ns=frame.t_ns[0] + np.array([0, 60, 120]) * 1_000_000, marks=((1, "start"), (1, "b"))))
    sink.close(CLEAN)
    assert (tmp_path / "a.pmt").read_text().splitlines() == [
        "timestamp total gpu_instant",
        "1700000000.000 1.000 2.000",
        'M 1700000000.060 "start"',
        'M 1700000000.060 "b"',
        "1700000000.060 3.000 4.250",
        "1700000000.120 5.000 nan",
    ]
    assert json.loads((tmp_path / "a.pmt.json").read_text())["virtual"] is True


def test_pmt_files_can_be_those_of_the_older_pmt(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    sink = open_sink(tmp_path / "a", replace(header, interval_s=0.01), format="pmt", absolute=False)
    frame = make_frame(2, first=200, marks=((1, "go"),))
    sink.write(replace(frame, t_ns=frame.t_ns + np.array([0, 9_950_000])))
    sink.close(CLEAN)
    assert (tmp_path / "a").read_text().splitlines() == [
        "timestamp total pair0 pair1",
        "0.000 36.000 12.000 24.000",
        'M 0.010 0 "go"',
        "0.010 36.000 12.000 24.000",
    ]


def test_times_of_a_fast_sensor_stay_apart_in_a_pmt_file(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    fast = Layout(tuple(c.timed(refresh_s=50e-6) for c in header.layout.channels))
    sink = open_sink(tmp_path / "a.pmt", replace(header, layout=fast))
    sink.write(make_frame(3))
    sink.close(CLEAN)
    times = [line.split()[0] for line in (tmp_path / "a.pmt").read_text().splitlines()[1:]]
    assert times == ["1700000000.000000", "1700000000.000050", "1700000000.000100"]


HEADER3 = "marker time dt_micro device_timestamp current0 voltage0 power0 current1 voltage1 power1 power_total"


def test_powersensor3_files_are_relative_with_six_digits(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    sink = open_sink(tmp_path / "a.ps3", header)
    sink.write(make_frame(2, marks=((1, "xyz"),)))
    sink.write(make_frame(1, first=21))
    sink.close(CLEAN)
    assert (tmp_path / "a.ps3").read_text().splitlines() == [
        HEADER3,
        "S 0 0 0 1 12 12 2 12 24 36",
        "x 5e-05 50 50 1 12 12 2 12 24 36",
        "S 0.00105 1000 26 1 12 12 2 12 24 36",
    ]


def test_powersensor3_files_can_be_absolute_with_six_decimals(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    sink = open_sink(tmp_path / "a", header, format="powersensor3", absolute=True)
    sink.write(make_frame(2, marks=((0, "a"), (0, "b"))))
    sink.close(CLEAN)
    values = "1.000000 12.000000 12.000000 2.000000 12.000000 24.000000 36.000000"
    assert (tmp_path / "a").read_text().splitlines() == [
        HEADER3,
        f"a 1700000000.000000 0 0 {values}",
        f"b 1700000000.000050 50 50 {values}",
    ]


def test_pairs_keep_their_numbers(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    second = Layout(tuple(c for c in header.layout.channels if c.name.startswith("pair1")))
    frame = make_frame(1)
    frame = replace(frame, watts=frame.watts[:, [2, 2]], joules=frame.joules[:, [2, 2]], values=frame.values[:, 2:])
    sink = open_sink(tmp_path / "a.ps3", replace(header, layout=second))
    sink.write(frame)
    sink.close(CLEAN)
    first, row = (tmp_path / "a.ps3").read_text().splitlines()
    assert first == "marker time dt_micro device_timestamp current1 voltage1 power1 power_total"
    assert row == "S 0 0 0 2 12 24 24"


def test_a_sensor_without_volts_cannot_be_written_as_powersensor3(tmp_path: Path, header: Header) -> None:
    with pytest.raises(SinkError, match="use csv or parquet"):
        open_sink(tmp_path / "a.ps3", replace(header, layout=POLLED))
    assert list(tmp_path.iterdir()) == []
