"""Cost of one reading of the OCC's memory interface: the whole block, and only the records needed.

    python benchmarks/bench_occ.py [readings]

Reads a still image of one block of 337 sensors, as exported by a two-socket POWER9, from a file in memory. Prints one
JSON document with microseconds per reading, median and spread over rounds. Beside them stand the figures of a C++
reader on the real machine (Troepgen, Bielert, Ilsche, ICPE '23): 10.8 us for the whole block, 3.8 us optimised. There
the kernel copies from memory that the OCC writes, 64 KiB at a time; here from the page cache.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pmtpy.backends.occ import open_source
from pmtpy.backends.occ.file import BlockReader, Export
from pmtpy.backends.occ.layout import BLOCK_BYTES, POWER, Table
from pmtpy.clock import HostClock, ManualClock
from pmtpy.emulators.occ import Machine
from pmtpy.emulators.world import make_world

ROUNDS = 15
MEMORY = "/dev/shm"  # noqa: S108  (a folder of its own is made there)


def cost(call: Callable[[], object], readings: int) -> dict[str, float]:
    """Microseconds per call: median, least and greatest of the rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(readings):
            call()
        rounds.append((time.perf_counter_ns() - begin) / readings / 1000)
    return {
        "median_us": round(statistics.median(rounds), 2),
        "least_us": round(min(rounds), 2),
        "greatest_us": round(max(rounds), 2),
    }


def always_new(reader: BlockReader) -> Callable[[], object]:
    """Let the reader forget what it read last, so that records are decoded every time as if they were new."""

    def read() -> object:
        reader._data = b""  # noqa: SLF001  (a still image never changes)
        return reader.records()

    return read


def measure(path: Path, readings: int) -> dict[str, dict[str, float]]:
    """All ways to read the image at ``path``."""
    clock = HostClock()
    export = Export(str(path))
    names = [e.name for e in Table.parse(export.read(0, BLOCK_BYTES)).entries.values() if e.kind == POWER]
    found = {"copy of the block, nothing decoded": cost(lambda: export.read(0, BLOCK_BYTES), readings)}
    for label, wanted in (("one sensor", ["PWRSYS"]), (f"{len(names)} power sensors", names)):
        whole = BlockReader(export, 0, wanted, clock, whole=True)
        found[f"whole block, {label}"] = cost(always_new(whole), readings)
        found[f"optimised, {label}"] = cost(always_new(BlockReader(export, 0, wanted, clock)), readings)
    found["whole block parsed anew"] = cost(lambda: Table.parse(export.read(0, BLOCK_BYTES)), max(1, readings // 50))
    export.close()
    source = open_source("0", clock=clock, file=path)
    source.read()
    found["Source.take, nothing new (one block)"] = cost(source.take, readings)
    source.close()
    return found


def main() -> None:
    """Run and print the document."""
    readings = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as folder:
        images = {}
        # Within one cycle of 40 ms both buffers are valid for the last fifth.
        for offset_s in (0.0, 0.01, 0.02, 0.03, 0.04):
            manual = ManualClock()
            machine = Machine(make_world("constant:530", clock=manual))
            manual.advance(offset_s)
            machine.advance(manual.now_ns())
            both = machine.occs[0].image[0xDC00] == machine.occs[0].image[0x18C00] == 1
            images["both buffers valid" if both else "one buffer valid"] = bytes(machine.image)
        path = Path(folder) / "occ_inband_sensors"
        results = {}
        for label, image in images.items():
            path.write_bytes(image)
            results[label] = measure(path, readings)
    one = results["one buffer valid"]
    document = {
        "benchmark": "one reading of the OCC memory interface",
        "machine": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "results": results,
        "optimised_over_whole": round(
            one["optimised, one sensor"]["median_us"] / one["whole block, one sensor"]["median_us"], 3
        ),
        "paper_c++_us": {"whole block": 10.8, "optimised": 3.8},
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
