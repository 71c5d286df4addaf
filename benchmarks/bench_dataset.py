"""What a data set costs to write and to ask, from 10 to 1000 nodes: the cost of a node stays what it is.

Run: python -m benchmarks.bench_dataset
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pmtpy.cluster.dataset import dataset
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.write._dataset import DataSetPlace, DataSetSink
from pmtpy.io.write.base import Ending, Header

ROWS = 3600  # an hour at one row a second
BEGIN_S = 1_800_000_000 // 86400 * 86400
CHANNELS = tuple(Channel(n, Quantity.ENERGY, scale=1e-6, domain=f"host/{n}", gain_u=0.02) for n in ("a", "b", "c", "d"))


def main() -> None:
    """Print milliseconds of CPU a node."""
    t = np.arange(ROWS, dtype=np.float64)
    wide = np.full((ROWS, 5), 100.0)
    noise = np.random.default_rng(1).normal(0, 5, (ROWS, 5))
    frame = Frame(
        (t * 1e9).astype(np.int64), wide + noise, np.cumsum(wide + noise, axis=0), np.empty((ROWS, 0)),
        np.zeros(ROWS, np.int64), np.zeros((ROWS, 5), np.int64),
    )  # fmt: skip
    header = Header("rapl", Identity("rapl"), Layout(CHANNELS), Anchor(0, BEGIN_S * 10**9))
    for number in (10, 30, 100, 300, 1000):
        with tempfile.TemporaryDirectory() as place:
            root = Path(place)

            def write(root: Path = root, number: int = number) -> None:
                for i in range(number):
                    sink = DataSetSink(DataSetPlace(root, f"node{i:05d}", "7"), header)
                    sink.write(frame)
                    sink.close(Ending(header.anchor, ROWS, 0, 0, complete=True))

            took = [("write", cpu_ms(write))]
            data = dataset(root)
            took.append(("job", cpu_ms(lambda: data.energies(by=("job",)).fetchall())))  # noqa: B023
            took.append(("minutes", cpu_ms(lambda: data.energies(by=("host",), every=60.0).fetchall())))  # noqa: B023
            size = sum(f.stat().st_size for f in root.rglob("*.parquet"))
        each = ", ".join(f"{name} {ms / number:.2f} ms" for name, ms in took)
        print(f"{number:5} nodes: of each {each} CPU; {size / number / ROWS:.1f} bytes a row")


def cpu_ms(work: Callable[[], object]) -> float:
    """Milliseconds of CPU, of all threads."""
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


if __name__ == "__main__":
    main()
