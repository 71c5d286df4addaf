"""CSV files and their sidecars."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pmtpy.core.channel import Channel, Derivation, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.errors import SinkError, TargetError
from pmtpy.io.write import FORMATS, Ending, Header, open_sink

MakeFrame = Callable[..., Frame]

END = Anchor(9_000_000_000, 1_700_000_004_000_000_500)
CLEAN = Ending(END, rows=3, lost=0, dropped=0, complete=True)


def _sidecar(path: Path) -> dict[str, object]:
    facts = json.loads(path.with_name(path.name + ".json").read_text())
    assert isinstance(facts, dict)
    return facts


def test_the_columns_are_those_of_the_interface(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    sink = open_sink(tmp_path / "a.csv", header)
    sink.write(make_frame(3, marks=((1, "go"),)))
    sink.close(CLEAN)
    lines = (tmp_path / "a.csv").read_text().split("\n")
    assert lines[0] == (
        "time,elapsed,marker,lost,total_W,total_J,pair0_V,pair0_A,pair0_W,pair0_J,pair1_V,pair1_A,pair1_W,pair1_J"
    )
    assert lines[1] == (
        "1700000000.000000,0.000000000,,0,36.000000,0.000000,"
        "12.0000,1.000,12.000000,0.000000,12.0000,2.000,24.000000,0.000000"
    )
    assert lines[2].startswith("1700000000.000050,0.000050000,go,0,36.000000,0.001800,")
    assert lines[4:] == [""]


def test_columns_of_every_order_hold_their_own_values(tmp_path: Path, header: Header) -> None:
    """Powers that share a voltage, and one whose channels lie in between, with other numbers of decimals."""
    product = Derivation.PRODUCT
    layout = Layout(
        (
            Channel("a", Quantity.CURRENT, scale=1e-3),
            Channel("b", Quantity.CURRENT, scale=1e-3),
            Channel("v", Quantity.VOLTAGE, scale=1e-3),
            Channel("left", Quantity.POWER, derivation=product, operands=("v", "b"), domain="left"),
            Channel("gpu", Quantity.POWER, scale=1e-1, domain="gpu"),
            Channel("right", Quantity.POWER, derivation=product, operands=("v", "a")),
            Channel("heat", Quantity.TEMPERATURE, scale=1.0),
        )
    )
    n = 5
    ramp = np.arange(float(n))
    watts, values = np.add.outer(ramp, [7.0, 1.0, 2.0, 3.0]), np.add.outer(ramp, [10.0, 20.0, 30.0, 40.0])
    none = np.zeros((n, 4), np.int64)
    sink = open_sink(tmp_path / "a.csv", replace(header, layout=layout))
    sink.write(Frame(np.arange(n) * 1000, watts, 100 * watts, values, none[:, 0], none))
    sink.close(CLEAN)
    read = pd.read_csv(tmp_path / "a.csv")
    first = {"total_W": 7, "left_W": 1, "gpu_W": 2, "right_W": 3, "left_A": 20, "right_A": 10, "heat_C": 40}
    expected = {name: (ramp + value).tolist() for name, value in {**first, "left_V": 30, "right_V": 30}.items()}
    expected |= {f"{name}_J": (100 * ramp).tolist() for name in ("total", "left", "gpu", "right")}
    assert {name: read[name].tolist() for name in read.columns[4:]} == expected


def test_joules_count_from_the_first_row_of_the_file(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    sink = open_sink(tmp_path / "a.csv", header)
    for start in (200, 300):
        sink.write(make_frame(100, first=start))
    sink.close(CLEAN)
    table = pd.read_csv(tmp_path / "a.csv")
    np.testing.assert_allclose(table["total_J"], 36.0 * table["elapsed"], atol=0.5e-6)
    assert table["elapsed"].iloc[-1] == pytest.approx(199 * 50e-6)


def test_the_sidecar_says_incomplete_until_the_end_and_then_everything(tmp_path: Path, header: Header) -> None:
    sink = open_sink(tmp_path / "a.csv", header)
    before = _sidecar(tmp_path / "a.csv")
    assert before["complete"] is False
    assert before["rows"] is None
    assert before["virtual"] is True
    sink.close(Ending(END, rows=7, lost=2, dropped=0, complete=True))
    after = _sidecar(tmp_path / "a.csv")
    assert after["complete"] is True
    assert (after["rows"], after["lost"], after["dropped"]) == (7, 2, 0)
    assert after["anchors"] == {
        "start": {"monotonic_ns": 5_000_000_000, "unix_ns": 1_700_000_000_000_000_000},
        "end": {"monotonic_ns": END.monotonic_ns, "unix_ns": END.unix_ns},
    }
    channels = after["channels"]
    assert isinstance(channels, list)
    assert [c["name"] for c in channels if c["in_total"]] == ["pair0", "pair1"]
    assert not list(tmp_path.glob("*.tmp"))


def test_other_channels_follow_with_their_units(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    gpu = Channel("gpu", Quantity.ENERGY, scale=1e-3, domain="gpu/0")
    layout = Layout((gpu, Channel("gpu.temperature", Quantity.TEMPERATURE), Channel("gpu.clock", Quantity.FREQUENCY)))
    frame = replace(
        make_frame(1), watts=np.full((1, 2), 7.0), joules=np.zeros((1, 2)), values=np.array([[61.0, 1.5e9]])
    )
    sink = open_sink(tmp_path / "a.csv", replace(header, layout=layout))
    sink.write(frame)
    sink.close(CLEAN)
    assert (tmp_path / "a.csv").read_text().splitlines() == [
        "time,elapsed,marker,lost,total_W,total_J,gpu_W,gpu_J,gpu.temperature_C,gpu.clock_Hz",
        "1700000000.000000,0.000000000,,0,7.000000,0.000000,7.000000,0.000000,61.0,1500000000.0",
    ]


def test_a_sensor_without_a_total_leaves_it_empty_and_not_zero(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    layout = Layout((Channel("rail", Quantity.POWER, scale=1e-3),))
    frame = replace(make_frame(1), watts=np.array([[0.0, 7.0]]), joules=np.zeros((1, 2)), values=np.empty((1, 0)))
    sink = open_sink(tmp_path / "a.csv", replace(header, layout=layout))
    sink.write(frame)
    sink.close(CLEAN)
    assert (tmp_path / "a.csv").read_text().splitlines()[1].split(",")[4:] == ["", "", "7.0000", "0.000000"]


def test_labels_survive_commas_quotes_and_line_breaks(tmp_path: Path, header: Header, make_frame: MakeFrame) -> None:
    marks = ((0, 'say "a, b"'), (1, "two\nlines\r\n"), (2, "first"), (2, "second"), (3, "NA"))
    sink = open_sink(tmp_path / "a.csv", header)
    sink.write(make_frame(5, marks=marks))
    sink.close(CLEAN)
    with (tmp_path / "a.csv").open(newline="") as file:
        markers = [row["marker"] for row in csv.DictReader(file)]
    assert markers == ['say "a, b"', "two lines", "first;second", "NA", ""]


def test_an_existing_file_is_not_replaced_unless_asked(tmp_path: Path, header: Header) -> None:
    path = tmp_path / "a.csv"
    path.write_text("precious")
    with pytest.raises(SinkError, match=r"a\.csv exists already.*--overwrite"):
        open_sink(path, header)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    open_sink(path, header, overwrite=True).close(CLEAN)
    assert path.read_text().startswith("time,")


def test_an_existing_sidecar_is_not_replaced_either(tmp_path: Path, header: Header) -> None:
    (tmp_path / "a.csv.json").write_text("precious")
    with pytest.raises(
        SinkError, match=r"a\.csv\.json exists already, beside a recording a\.csv that is gone: remove it"
    ):
        open_sink(tmp_path / "a.csv", header)
    assert (tmp_path / "a.csv.json").read_text() == "precious"
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("where", ["missing/a.csv", "a file/a.csv", ""])
def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path: Path, header: Header, where: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(SinkError, match="cannot write"):
        open_sink(tmp_path / where, header)


def test_a_read_only_directory_is_refused_at_once(tmp_path: Path, header: Header) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(SinkError, match="Permission denied"):
        open_sink(tmp_path / "a.csv", header)


def test_a_full_device_is_refused_at_once(header: Header) -> None:
    with pytest.raises(SinkError, match="No space left"):
        open_sink("/dev/full", header)


def test_an_unknown_format_lists_those_there_are(tmp_path: Path, header: Header) -> None:
    with pytest.raises(TargetError, match=rf"'parket'; there are: {', '.join(FORMATS)}. Did you mean parquet\?"):
        open_sink(tmp_path / "a", header, format="parket")


def test_streams_of_text_and_bytes_get_rows_and_stay_open(header: Header, make_frame: MakeFrame) -> None:
    text, binary = io.StringIO(), io.BytesIO()
    for stream in (text, binary):
        sink = open_sink(stream, header)
        sink.write(make_frame(2))
        sink.close(CLEAN)
    assert text.getvalue().encode() == binary.getvalue()
    assert text.getvalue().count("\n") == 3


def test_a_closed_pipe_is_a_typed_error(header: Header, make_frame: MakeFrame) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stream:
        sink = open_sink(stream, header)
        os.close(reader)
        with pytest.raises(SinkError, match="Broken pipe"):
            sink.write(make_frame(2))


def test_a_full_disk_leaves_whole_rows_and_takes_rows_again_when_there_is_room(
    tmp_path: Path, header: Header, make_frame: MakeFrame
) -> None:
    sink = open_sink(tmp_path / "a.csv", header)
    sink.write(make_frame(10))
    size = (tmp_path / "a.csv").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, hard))
        with pytest.raises(SinkError, match="too large"):
            sink.write(make_frame(100, first=10))
        assert (tmp_path / "a.csv").stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    sink.write(make_frame(5, first=110))
    sink.close(CLEAN)
    assert len(pd.read_csv(tmp_path / "a.csv")) == 15


def test_a_killed_process_leaves_whole_rows_and_an_incomplete_sidecar(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, signal, sys
        import numpy as np
        from pmtpy.core.clock import HostClock
        from pmtpy.core.channel import Channel, Identity, Quantity
        from pmtpy.core.rows import Frame, Layout
        from pmtpy.io.write import Header, open_sink
        n = 1000
        layout = Layout((Channel("rail", Quantity.POWER, domain="rail"),))
        sink = open_sink(sys.argv[1], Header("x", Identity("x"), layout, HostClock().anchor()))
        for i in range(20):
            sink.write(Frame(np.arange(i * n, (i + 1) * n), np.ones((n, 2)), np.ones((n, 2)), np.empty((n, 0)),
                             np.zeros(n, np.int64), np.zeros((n, 2), np.int64)))
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    path = tmp_path / "a.csv"
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes().endswith(b"\n")
    assert len(pd.read_csv(path)) == 20_000
    assert _sidecar(path)["complete"] is False


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("suffix", ["csv", "pmt"])
def test_a_file_that_another_program_cuts_takes_no_more_and_says_so(
    tmp_path: Path, header: Header, make_frame: MakeFrame, suffix: str, *, more: bool
) -> None:
    """As logrotate does by copytruncate; rows behind the cut would stand behind zero bytes, which no reader takes."""
    path = tmp_path / f"a.{suffix}"
    sink = open_sink(path, header)
    sink.write(make_frame(2))
    whole = path.stat().st_size
    os.truncate(path, 0)
    cut = rf"a\.{suffix} was cut to 0 of {whole} bytes by another program"
    if more:
        with pytest.raises(SinkError, match=cut):
            sink.write(make_frame(2))
    with pytest.raises(SinkError, match=cut):
        sink.close(CLEAN)
    assert path.read_bytes() == b""
    facts = json.loads(path.with_name(f"{path.name}.json").read_text())
    assert facts["complete"] is False
    assert "by another program" in facts["error"]
