"""A command that uses MPI itself, as `pmtpy run --mpi` starts it; the last rank can be told to die."""

from __future__ import annotations

import os
import signal
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank)
if comm.rank == 0:
    print(f"{total} of {comm.size}", flush=True)
comm.Barrier()
if "dies" in sys.argv and comm.rank == comm.size - 2:  # the one of its node whose energy is measured
    os.kill(os.getpid(), signal.SIGKILL)
