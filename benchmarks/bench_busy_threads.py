"""Regions of counters beside threads that keep the interpreter busy: how far off, and how often the interval holds.

Four counters of 25 W each are read as the files of a kernel are, one system call each, and what they show is the time
of that call: the truth is known, and whatever delays a call delays the reading.
``python -m benchmarks.bench_busy_threads [REGIONS]`` prints one JSON document; demand: 90 % held or more.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

import numpy as np

import pmtpy as pmt
from benchmarks.common import report
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.core.source import PolledSource
from pmtpy.sensor.sensor import Sensor

_COUNTERS, _WATTS = 4, 25.0
_REGION_S = 0.02


class _Counters(PolledSource):
    """Counters in microjoules; each shows the instant before the system call that reads it."""

    def __init__(self) -> None:
        super().__init__(HOST_CLOCK)
        self.identity = Identity("bench", "counters")
        self.channels = tuple(
            Channel(f"package{i}", Quantity.ENERGY, scale=1e-6, domain=f"host/socket{i}/package", refresh_s=1e-3)
            for i in range(_COUNTERS)
        )
        self._files = [tempfile.TemporaryFile() for _ in range(_COUNTERS)]  # noqa: SIM115  (closed with the source)

    def poll(self) -> Sequence[float]:
        """Read all of them."""
        counts = []
        for file in self._files:
            now_ns = time.monotonic_ns()
            os.pread(file.fileno(), 64, 0)
            counts.append(float(int(now_ns * _WATTS * 1e-3)))
        return counts

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _beside(sensor: Sensor, threads: int, regions: int) -> dict[str, float]:
    """Measure regions while so many threads run plain Python."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            sum(range(1000))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    found = []
    for _ in range(regions):
        with pmt.region("slept", sensor) as r:
            time.sleep(_REGION_S)
        found.append(r[sensor])
    ended.set()
    for worker in workers:
        worker.join()
    errors = np.array([m.joules - _COUNTERS * _WATTS * m.seconds for m in found])
    u = np.array([m.uncertainty_joules for m in found])
    return {
        "regions": regions,
        "rms_error_j": float(f"{np.sqrt(np.mean(errors**2)):.3g}"),
        "worst_j": float(f"{np.max(np.abs(errors)):.3g}"),
        "median_uncertainty_j": float(f"{np.median(u):.3g}"),
        "held": float(np.mean(np.abs(errors) <= 2.0 * u)),
    }


def main() -> None:
    """Measure beside none, one and two threads."""
    regions = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with Sensor(_Counters(), "counters", HOST_CLOCK) as sensor:
        report({f"{n} threads": _beside(sensor, n, regions) for n in range(3)})


if __name__ == "__main__":
    main()
