"""What `pmtpy gather` costs for 10, 100, 1000 and 10,000 nodes, and how large their exchange under MPI is.

Limit: 1000 nodes in 2 s. Run: python -m benchmarks.bench_gather
"""

from __future__ import annotations

import pickle
import tempfile
import time
import tracemalloc
from pathlib import Path

from pmtpy.cluster.gather import ResultFolder, gather
from pmtpy.cluster.job import JobEnergy
from pmtpy.cluster.mpi import _interned
from pmtpy.cluster.node import NodeEnergy, NodeFile
from pmtpy.io.origin import Launch, Machine

WARNINGS = tuple(f"package{i}: a warning of usual length, which tells what a reader must know of it" for i in range(4))


def in_memory(nodes: list[NodeEnergy]) -> str:
    """Return what the first rank does with the messages of an MPI region, and then every rank: CPU and bytes a node."""
    messages = [pickle.dumps((node, [])) for node in nodes]
    begin = time.process_time()
    told = [_interned(pickle.loads(message)[0]) for message in messages]  # noqa: S301
    sent = pickle.dumps((told, []))
    first = time.process_time()
    job = JobEnergy("solve", pickle.loads(sent)[0])  # noqa: S301
    text = f"{job} {job.total.joules}"
    every = time.process_time()
    assert text
    del told, job
    tracemalloc.start()
    kept = JobEnergy("solve", pickle.loads(sent)[0])  # noqa: S301
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept) == len(nodes)
    each = 1e6 / len(nodes)
    return (
        f"MPI result {len(sent) / len(nodes):.0f} bytes a node, made in {each * (first - begin):.0f} us of CPU on the"
        f" first rank, read and added up in {each * (every - first):.0f} us on every rank,"
        f" {held / len(nodes):.0f} bytes kept"
    )


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
        each = f"{1e6 * cpu / number:.0f} us a node"
        told = f"{wall:.3f} s, {cpu:.3f} s CPU, {each}; looked at again {again:.4f} s CPU"
        print(f"{number:6} nodes: {told}; {in_memory(nodes)}")


if __name__ == "__main__":
    main()
