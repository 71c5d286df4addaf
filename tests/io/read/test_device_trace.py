"""Traces of PyTorch's profiler as stamps of the load, by documents in Kineto's own form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.errors import FileFormatError
from pmtpy.io.read.device_trace import read_work
from pmtpy.lab.recorded import read_stamps
from pmtpy.sensor.sensor import acquisition_of

BASE_NS = 1_704_067_200_000_000_000  # as PyTorch 2.4 and newer: the begin of a year
BEGIN_US = 5e12  # of what was profiled, after that


def event(category: str, start_ms: float, ms: float, **args: object) -> dict[str, Any]:
    """Make a complete event, in microseconds with three decimals."""
    args = {"device": 0, "stream": 7, **args}
    times = {"ts": round(BEGIN_US + 1e3 * start_ms, 3), "dur": round(1e3 * ms, 3)}
    return {"ph": "X", "cat": category, "name": "gemm", "pid": 0, "tid": 7, **times, "args": args}


def document(*events: dict[str, Any]) -> dict[str, Any]:
    """Make a trace of 100 ms."""
    span = {**event("Trace", 0.0, 100.0), "pid": "Spans", "name": "PyTorch Profiler (0)"}
    host = [event("cpu_op", 1.0, 90.0), event("cuda_runtime", 1.0, 0.1), event("gpu_user_annotation", 0.5, 80.0)]
    marks: list[dict[str, Any]] = [
        {"ph": "i", "s": "g", "name": "Iteration Start", "ts": BEGIN_US},
        {"ph": "M", "name": "process_name"},
    ]
    events = (span, *host, *marks, *events)
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(events),
    }


def launched(*times: tuple[float, float | None], by: str = "cudaLaunchKernel") -> dict[str, Any]:
    """Make a trace of kernels by when they were launched, and when they began, if they have a record."""
    calls = [{**event("cuda_runtime", at, 0.01, correlation=1 + i), "name": by} for i, (at, _) in enumerate(times)]
    ran = [event("kernel", at, 1.0, correlation=1 + i) for i, (_, at) in enumerate(times) if at is not None]
    return document(*calls, *ran)


# Two streams that overlap, a rest as between two kernels, and a copy after a longer one.
TWO_STREAMS = document(
    event("kernel", 30.2, 10.0),
    event("kernel", 10.0, 12.0),
    event("kernel", 11.0, 2.0, stream=8),
    event("kernel", 20.0, 10.0, stream=8),
    event("gpu_memcpy", 60.0, 5.5),
    event("gpu_memset", 65.5, 0.5),
)
BUSY_MS = [10.0, 40.2, 60.0, 66.0]


def write(folder: Path, trace: object) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


def ms(edges_ns: Any) -> list[float]:
    found: list[float] = ((np.asarray(edges_ns) - BASE_NS - round(1e3 * BEGIN_US)) / 1e6).tolist()
    return found


def test_kernels_of_all_streams_are_one_load(tmp_path: Path) -> None:
    work = read_work(write(tmp_path, TWO_STREAMS))
    assert ms(work.edges_ns) == BUSY_MS
    assert ms([work.start_ns, work.end_ns]) == [0.0, 100.0]


def test_traces_of_older_versions_count_from_1970(tmp_path: Path) -> None:
    old = {**TWO_STREAMS, "traceEvents": [dict(e) for e in TWO_STREAMS["traceEvents"]]}
    del old["baseTimeNanoseconds"]
    for each in old["traceEvents"]:
        if "ts" in each:
            each["ts"] += BASE_NS / 1e3
    assert ms(read_work(write(tmp_path, old)).edges_ns) == pytest.approx(BUSY_MS, abs=1e-3)  # a float of 16 digits


def test_one_of_several_devices_must_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, document(event("kernel", 10.0, 5.0), event("kernel", 50.0, 5.0, device=1)))
    with pytest.raises(FileFormatError, match=r"devices 0, 1 worked in it: a program says which is meant"):
        read_work(path)
    assert ms(read_work(path, 1).edges_ns) == [50.0, 55.0]
    with pytest.raises(FileFormatError, match="device 2 worked in it"):
        read_work(path, 2)


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (document(), "no device worked in it"),
        ({**TWO_STREAMS, "baseTimeNanoseconds": 0}, "does not say when it was made"),
        ({**TWO_STREAMS, "baseTimeNanoseconds": "?"}, "no numbers"),
        (document({**event("kernel", 1.0, 1.0), "ts": None}), "no numbers"),
        (document({**event("kernel", 1.0, 1.0), "dur": -1.0}), "no numbers"),
        (document({**event("kernel", 1.0, 1.0), "ts": True}), "no numbers"),
        ({**TWO_STREAMS, "traceEvents": None}, "no device worked in it"),
        (document(event("kernel", 1.0, 1.0), {**event("kernel", 1.0, 0.0), "ts": 0}), "outside of what was profiled"),
        (document(event("kernel", 101.0, 5.0)), "outside of what was profiled, by a clock that is not the host's"),
        (document({**event("kernel", 1.0, 1.0), "dur": 1e18}), "no numbers"),
        (document(event("kernel", 1.0, 1.0), event("Trace", 200.0, 5.0)), "profiled several times"),
        (launched((10.0, 7.5), (20.0, 20.2)), r"begin up to 2.5 ms before they were launched"),
        (launched((10.0, 10.1), (20.0, None), (30.0, 30.1)), r"of 3 kernels that were launched 1 are not in it"),
        (launched((10.0, 10.1), (20.0, None), by="cudaGraphLaunch"), r"of 2 kernels that were launched 1"),
        (launched((10.0, 10.1), (20.0, None), by="cuLaunchCooperativeKernel"), r"of 2 kernels that were launched 1"),
    ],
)
def test_what_cannot_be_laid_beside_a_sensor_is_refused(tmp_path: Path, trace: object, why: str) -> None:
    with pytest.raises(FileFormatError, match=why):
        read_work(write(tmp_path, trace))


def test_kernels_behind_their_launches_are_taken_whichever_device_ran_them(tmp_path: Path) -> None:
    trace = launched((10.0, 10.1), (20.0, 40.0), (20.5, 19.9))  # within what clocks are compared to
    trace["traceEvents"][-2]["args"]["device"] = 1
    assert ms(read_work(write(tmp_path, trace), 0).edges_ns) == pytest.approx([10.1, 11.1, 19.9, 20.9])
    assert ms(read_work(write(tmp_path, trace), 1).edges_ns) == pytest.approx([40.0, 41.0])


def test_a_trace_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, TWO_STREAMS)
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    with pytest.raises(FileFormatError, match="as a trace of PyTorch's profiler it cannot be used"):
        pmt.load(path)


def test_a_trace_is_read_as_stamps_of_the_load(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TWO_STREAMS).encode()))
    table = pmt.load(path)
    assert table.attrs["format"] == "PyTorch trace"
    assert table["marker"].tolist() == ["", "on", "off", "on", "off", ""]
    begin_s = (BASE_NS + 1e3 * BEGIN_US) / 1e9
    load = read_stamps(str(path))
    assert (load.edges - begin_s) * 1e3 == pytest.approx(BUSY_MS, abs=1e-3)
    assert load.absolute
    assert ((load.known_s - begin_s) * 1e3).ravel() == pytest.approx([0.0, 100.0], abs=1e-3)  # no word of before


class Profiled:
    """What a torch.profiler.profile that has ended is asked."""

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(json.dumps(TWO_STREAMS), encoding="utf-8")


@pytest.mark.parametrize("as_file", [True, False])
def test_a_sensor_takes_a_finished_profile_as_stamps_of_its_load(tmp_path: Path, *, as_file: bool) -> None:
    clock = ManualClock(unix_ns=BASE_NS + round(1e3 * BEGIN_US))
    begin_ns = clock.now_ns()
    with pmt.create("nvml:virtual", clock=clock, interval=1e6) as sensor:
        clock.advance(3.0)  # profiles are given after their end
        sensor.load(write(tmp_path, TWO_STREAMS) if as_file else Profiled())
        loads = acquisition_of(sensor).loads
        load = loads.about(begin_ns, begin_ns + 100_000_000, 0)
        assert load is not None
        assert load.edges * 1e3 == pytest.approx(BUSY_MS)
        longer = loads.about(begin_ns, begin_ns + 101_000_000, 0)
        assert longer is not None
        assert not longer.knows(0.0, 0.101)  # what came after nobody told
        sensor.load(Profiled())  # once more tells nothing new
        again = loads.about(begin_ns, begin_ns + 100_000_000, 0)
        assert again is not None
        assert again.edges.tolist() == load.edges.tolist()


@pytest.mark.parametrize(
    ("off_s", "why"), [(3600.0, "ends in 3597 s"), (-3600.0, "ended 3603 s ago, before the sensor")]
)
def test_a_trace_of_another_time_is_refused(tmp_path: Path, off_s: float, why: str) -> None:
    clock = ManualClock(unix_ns=BASE_NS + round(1e3 * BEGIN_US - 1e9 * off_s))
    with pmt.create("nvml:virtual", clock=clock, interval=1e6) as sensor:
        clock.advance(3.1)
        with pytest.raises(FileFormatError, match=f"trace.json: what it profiled {why}"):
            sensor.load(write(tmp_path, TWO_STREAMS))
        loads = acquisition_of(sensor).loads
        assert loads.about(clock.now_ns() - 3_000_000_000, clock.now_ns(), 0) is None
