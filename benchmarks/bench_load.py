"""How long a long recording takes to read and to draw: ten million rows of a sensor with one channel (0.8 GB of CSV).

    python benchmarks/bench_load.py [rows]

Prints one JSON document: seconds for writing, ``pmt.load`` and ``pmtpy.plotting.recording.plot``, and the peak memory
of it all.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import HostClock
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.read import load
from pmtpy.io.write import Ending, Header, open_sink
from pmtpy.plotting.recording import plot

STEP_NS, CHUNK, REPEATS = 50_000, 20_000, 3


def write(path: Path, rows: int) -> None:
    """Write a square wave with noise."""
    random = np.random.default_rng(1)
    clock = HostClock()
    layout = Layout((Channel("package0", Quantity.ENERGY, scale=61e-6, domain="host/socket0/package"),))
    sink = open_sink(path, Header("bench", Identity("bench"), layout, clock.anchor()))
    for start in range(0, rows, CHUNK):
        k = np.arange(start, min(start + CHUNK, rows))
        watts = np.where(k // 200_000 % 2, 30.0, 90.0) + random.normal(0, 2, len(k))
        joules = 0.003 * start + np.cumsum(watts) * STEP_NS / 1e9
        none = np.zeros(len(k), np.int64)
        sink.write(
            Frame(
                k * STEP_NS,
                np.stack([watts] * 2, 1),
                np.stack([joules] * 2, 1),
                np.empty((len(k), 0)),
                none,
                np.stack([none] * 2, 1),
            )
        )
    sink.close(Ending(clock.anchor(), rows, 0, 0, complete=True))


def main() -> None:
    """Measure, print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.csv"
        begin = time.perf_counter()
        write(path, rows)
        results: dict[str, object] = {"write_s": time.perf_counter() - begin, "bytes": path.stat().st_size}
        times: dict[str, list[float]] = {"load_s": [], "plot_s": []}
        for _ in range(REPEATS):
            begin = time.perf_counter()
            table = load(path)
            times["load_s"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            plot({"long": table}, path.with_suffix(".png"))
            times["plot_s"].append(time.perf_counter() - begin)
    for name, each in times.items():
        results[name] = {"median": statistics.median(each), "spread": [min(each), max(each)]}
    results["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    machine = {"machine": platform.machine(), "system": platform.platform(), "cpus": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps({"benchmark": "load", **machine, "versions": versions, "rows": rows, "results": results}))


if __name__ == "__main__":
    main()
