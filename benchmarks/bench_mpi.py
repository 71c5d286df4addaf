"""What a region of an MPI program costs without barriers, on the rank that reads and on the others; and with them.

Limits: 20 us on the leader, 5 us elsewhere. Run: mpiexec -n 2 python -m benchmarks.bench_mpi  (or plain: one rank; then
the cost elsewhere is measured on a second object that does not read)
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import pmtpy as pmt
from pmtpy.cluster import mpi
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.rapl import Processors
from pmtpy.emulators.world import make_world

ROUNDS = 3000


def main() -> None:
    """Print microseconds, median and least."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    processors = Processors(make_world("constant:100", clock=HOST_CLOCK))
    with pmt.create("rapl", sysfs_root=str(processors.tree.root)) as sensor:
        place = mpi._place_of(comm)  # noqa: SLF001
        elsewhere = replace(place, leaders=None)
        sensors = {sensor.target: sensor}
        show("bare region of the same sensor", lambda: pmt.region("x", sensor))
        show("leader, no barrier", lambda: mpi.MpiRegion("x", place, ("rapl",), sensors, "", barrier=False))
        show("elsewhere, no barrier", lambda: mpi.MpiRegion("x", elsewhere, ("rapl",), {}, "", barrier=False))
        show("making one: pmt.mpi.region()", None, lambda: pmt.mpi.region("x", comm, sensor, barrier=False))
    processors.tree.close()


def show(name: str, make: object, alone: object = None) -> None:
    """Print what entering and leaving costs, or a call alone."""
    took = []
    for _ in range(ROUNDS):
        region = make() if callable(make) else None
        start = time.perf_counter_ns()
        if callable(alone):
            alone()
        else:
            region.__enter__()  # type: ignore[union-attr]
            region.__exit__(None, None, None)  # type: ignore[union-attr]
        took.append((time.perf_counter_ns() - start) / 1e3)
    print(f"{name:32} {statistics.median(took):6.1f} us (least {min(took):.1f})")


if __name__ == "__main__":
    main()
