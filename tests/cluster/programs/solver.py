"""A program of four ranks on two nodes, each with virtual processors of a known power. Every rank writes what it saw.

Run by mpiexec; the node comes from MPICH's PMI_HOSTNAME. Its last region is left by no rank: one of them dies in it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

HOST = os.environ["PMT_NODE"] = os.environ["PMI_HOSTNAME"]

import mpi4py

mpi4py.rc.initialize = False

import pmtpy as pmt  # noqa: E402
from pmtpy.core.clock import HOST_CLOCK  # noqa: E402
from pmtpy.emulators import hwmon  # noqa: E402
from pmtpy.emulators.world import shared_world  # noqa: E402
from pmtpy.errors import BackendUnavailableError, SourceLostError  # noqa: E402
from pmtpy.regions.pool import watching  # noqa: E402
from pmtpy.sensor.sensor import acquisition_of  # noqa: E402

assert callable(pmt.mpi.region)
assert "mpi4py.MPI" not in sys.modules, "neither importing pmtpy nor looking at pmt.mpi imports it"

from mpi4py import MPI  # noqa: E402

WATTS = {"nodea": 100, "nodeb": 60}
SENSOR = "rapl:virtual"
HOWS = ("works", "short", "longer", "apart", "without", "raises", "loses", "works again")


def absent(*_: object, **__: object) -> object:
    raise BackendUnavailableError("hwmon", "no counters on this node")


def work(how: str, comm: MPI.Intracomm) -> None:
    """Do what the test wants of the last rank, or of the one of nodeb that reads."""
    last = comm.rank == comm.size - 1
    if how == "longer" and last:
        time.sleep(0.2)
    if how == "raises" and last:
        raise ValueError("no convergence")
    if how == "dies" and last:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "loses" and comm.rank == 2:
        acquisition_of(watching((SENSOR,))[SENSOR]).fail(SourceLostError("pulled out"))


def measure(how: str, comm: MPI.Intracomm) -> dict[str, Any]:
    """Measure the work; return what this rank knows afterwards."""
    raised, targets = "", ["hwmon:virtual" if how == "without" else SENSOR]
    if how == "apart" and comm.rank == 1:
        targets.append("jetson:virtual")
    barrier = how not in {"short", "longer"}
    region = pmt.mpi.region("solve", comm, *targets, barrier=barrier)
    try:
        with region:
            work(how, comm)
    except (ValueError, pmt.WorkFailedError) as error:
        raised = repr(error)
    if not barrier:
        try:
            raised = repr(region.result)
        except pmt.CoverageError as error:
            raised = repr(error)
        region.collect()
    try:
        total: float | str = region.total.joules
    except pmt.CoverageError as error:
        total = str(error)
    joules = {host: region[host].joules for host in region}
    return {"raised": raised, "total": total, **region.result.to_dict(), "text": str(region), "joules_of": joules}


def main(out: Path) -> None:
    """Go through all that can happen."""
    assert not MPI.Is_initialized(), "pmtpy does not initialise MPI"
    MPI.Init()
    comm = MPI.COMM_WORLD
    world = shared_world(f"constant:{WATTS[HOST]}", clock=HOST_CLOCK)
    if HOST == "nodeb":
        hwmon.open_virtual = absent  # type: ignore[assignment]
    with pmt.mpi.clocks(comm, out / "clocks"):
        told = {how: measure(how, comm) for how in HOWS}
    assert world is not None
    (out / f"{comm.rank}.json").write_text(json.dumps(told))
    comm.Barrier()
    measure("dies", comm)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
