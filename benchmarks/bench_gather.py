"""What `pmtpy gather` costs for 10, 100, 1000 and 10,000 nodes, and how large their exchange under MPI is.

Limit: 1000 nodes in 2 s. Run: python -m benchmarks.bench_gather
"""

from __future__ import annotations

import pickle
import tempfile
import time
from pathlib import Path

from pmtpy.cluster.gather import ResultFolder, gather
from pmtpy.cluster.mpi import _interned
from pmtpy.cluster.node import NodeEnergy, NodeFile
from pmtpy.io.origin import Launch, Machine

WARNINGS = tuple(f"package{i}: a warning of usual length, which tells what a reader must know of it" for i in range(4))


def main() -> None:
    """Print seconds of CPU and bytes."""
    for number in (10, 100, 1000, 10_000):
        nodes = [
            NodeEnergy(
                f"node{i:05d}", f"boot{i}", 1e9, 1e9 + 60, 60.0, 18e3 + i, 300.0,
                (("rapl/2 sockets//package0", 200.0), ("rapl/2 sockets//package1", 200.0)),
                coverage=1.0, warnings=WARNINGS,
            )
            for i in range(number)
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as place:
            for i, node in enumerate(nodes):
                launch = Launch("slurm", "7.0", i, number, 0, 1, number, f"node[00000-{number - 1:05d}]")
                NodeFile(Path(place), Machine(node.host, node.node, 64), launch, "./solve", 1e9).finish(node, 0)
            start, cpu = time.perf_counter(), time.process_time()
            job = gather(Path(place))
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
            folder = ResultFolder(Path(place))
            folder.look()
            again = time.process_time()
            folder.look()
            again = time.process_time() - again
        assert job.complete
        size = len(pickle.dumps([_interned(pickle.loads(pickle.dumps(n))) for n in nodes]))  # noqa: S301
        each = f"{1e6 * cpu / number:.0f} us a node"
        told = f"{wall:.3f} s, {cpu:.3f} s CPU, {each}; looked at again {again:.4f} s CPU"
        print(f"{number:6} nodes: {told}; MPI result {size / number:.0f} bytes a node")


if __name__ == "__main__":
    main()
