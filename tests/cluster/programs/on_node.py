"""Starts `pmtpy run --mpi` as on the node that MPICH's PMI_HOSTNAME names: its power, and no sensor on a third one."""

from __future__ import annotations

import os
import sys

HOST = os.environ["PMT_NODE"] = os.environ["PMI_HOSTNAME"]
WATTS = {"nodea": 100, "nodeb": 60}

sensor = ["-s", "rapl:virtual", "-o", f"load=constant:{WATTS[HOST]}"]
if os.environ.get("WITHOUT") == HOST:
    os.environ["PMT_SYSFS_ROOT"] = "/proc/nonexistent"
    sensor = ["-s", "rapl"]
where, *command = sys.argv[1:]
words = ["run", "--mpi", "--into", where, "--json", "--output", f"{where}.json", *sensor, "--", *command]
os.execv(sys.executable, [sys.executable, "-m", "pmtpy", *words])  # noqa: S606
