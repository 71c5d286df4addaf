"""What writing a dump costs: processor seconds for each second of a 20 kHz stream with four pairs, per file format.

Frames of 50 ms go through a Writer into a file in the temporary directory, as fast as the file takes them (CPU of all
threads, by ``time.process_time``), and for CSV also at the pace of the board. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import HostClock
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.write import FORMATS, Header, Writer, open_sink

RATE_HZ, ROWS = 20_000, 1_000
SECONDS, REPEATS = 4, 7


def board() -> Layout:
    """Channels of a board with four pairs: 22 columns of a CSV file."""
    return Layout(
        tuple(
            c
            for i in range(4)
            for c in (
                Channel(f"pair{i}.current", Quantity.CURRENT, scale=3.3 / 1024 / 0.12),
                Channel(f"pair{i}.voltage", Quantity.VOLTAGE, scale=3.3 / 1024 / 0.2),
                Channel(
                    f"pair{i}",
                    Quantity.POWER,
                    derivation=Derivation.PRODUCT,
                    operands=(f"pair{i}.voltage", f"pair{i}.current"),
                    domain=f"r{i}",
                ),
            )
        )
    )


def stream(count: int) -> list[Frame]:
    """``count`` frames of a noisy board, 60 W per pair, an hour into its life."""
    random = np.random.default_rng(1)
    frames = []
    for k in range(count):
        t_ns = (k * ROWS + np.arange(ROWS)) * (1_000_000_000 // RATE_HZ)
        values = random.normal([5.0, 12.0] * 4, [0.2, 0.01] * 4, (ROWS, 8))
        pairs = values[:, ::2] * values[:, 1::2]
        watts = np.concatenate([pairs.sum(axis=1, keepdims=True), pairs], axis=1)
        joules = 240.0 * 3600.0 + np.cumsum(watts, axis=0) / RATE_HZ
        frames.append(Frame(t_ns, watts, joules, values, np.zeros(ROWS, np.int64), np.zeros(watts.shape, np.int64)))
    return frames


def cost(frames: list[Frame], path: Path, file_format: str, *, paced: bool) -> float:
    """Processor seconds for each second of the stream."""
    clock = HostClock()
    header = Header("bench", Identity("bench"), board(), clock.anchor())
    writer = Writer(lambda: open_sink(path, header, format=file_format, overwrite=True), max_rows=10**9)
    cpu, wall = time.process_time(), time.monotonic()
    for k, frame in enumerate(frames):
        writer.put(frame)
        if paced:
            time.sleep(max(0.0, wall + (k + 1) * ROWS / RATE_HZ - time.monotonic()))
    ending = writer.stop(clock.anchor())
    assert ending.complete, ending
    assert ending.rows == len(frames) * ROWS
    return (time.process_time() - cpu) / (len(frames) * ROWS / RATE_HZ)


def main() -> None:
    """Measure, print."""
    frames = stream(SECONDS * RATE_HZ // ROWS)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in (*FORMATS, "csv at pace"):
            file_format, paced = name.split()[0], name.endswith("pace")
            path = Path(folder) / f"dump.{file_format}"
            costs = [cost(frames, path, file_format, paced=paced) for _ in range(REPEATS)]
            results[name] = {
                "cpu_s_per_s": statistics.median(costs),
                "spread": [min(costs), max(costs)],
                "bytes_per_row": path.stat().st_size / (len(frames) * ROWS),
            }
    machine = {"machine": platform.machine(), "system": platform.platform(), "cpus": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps({"benchmark": "dump", **machine, "versions": versions, "repeats": REPEATS, "results": results}))


if __name__ == "__main__":
    main()
