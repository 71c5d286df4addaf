"""What a reading of two RAPL sockets with memory costs, bare, at the waist and as a user pays for it. Prints JSON.

With ``--peers PYTHON`` (an interpreter that has pyRAPL, pyJoules, zeus and codecarbon) the same tree is mounted over
``/sys`` in a private mount namespace, since the peers read fixed paths, and each tool measures the same regions: one
without and one with a wrap of every counter. That needs root and ``unshare``; without them the peers are left out.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install pyRAPL pyJoules zeus codecarbon pyserial
    python -m benchmarks.bench_rapl --peers /tmp/peers/bin/python
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import report, side_by_side, spread
from benchmarks.rapl_tools import ABOUT_TO_BEGIN, TOOLS
from pmtpy.backends import rapl
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.rapl import Processors
from pmtpy.emulators.world import make_world
from pmtpy.sensor.sensor import Sensor

ROUNDS, CALLS = 2000, 20
WATTS = 100.0
SUBTRACTED = (
    "[int(os.pread(fd, 64, 0)) for fd in fds if os.fstat(fd).st_nlink]: the same files through descriptors that stay "
    "open, as numbers, and a look whether they were replaced, which a tree that is not the kernel's needs; that is the "
    "least that a Python program can do to have the counters; of figures taken side by side, the lower quartile"
)


def own_cost() -> dict[str, Any]:
    """Measure the file reads alone, the source and the sensor: counters at rest, and counters that move in between.

    What a reading's counts mean is worked out when somebody asks; what earlier turns left is worked out before a turn,
    so ``sensor_read_us`` is what a program waits for and ``sensor_read_and_joules_us`` all that a reading costs.
    """
    processors = Processors(make_world(f"constant:{WATTS}", clock=HOST_CLOCK), wrap_after_j=1e5)
    root = processors.tree.root
    paths = sorted(root.glob("devices/virtual/powercap/intel-rapl/**/energy_uj"))
    fds = [os.open(path, os.O_RDWR) for path in paths]
    counts = [int(os.pread(fd, 64, 0)) for fd in fds]
    source = rapl.open_source(None, clock=HOST_CLOCK, sysfs_root=root)
    threads = threading.active_count()
    sensor = Sensor(rapl.open_source(None, clock=HOST_CLOCK, sysfs_root=root), "rapl", HOST_CLOCK)
    moved = itertools.count(1)

    def move() -> None:
        """Count on by 61 uJ, one step of a package's counter."""
        further = 61 * next(moved)
        for fd, count in zip(fds, counts, strict=True):
            os.pwrite(fd, b"%d\n" % (count + further), 0)

    def after_move(action: Callable[[], object]) -> Callable[[], object]:
        return lambda: (move(), action())  # type: ignore[func-returns-value]

    actions: dict[str, Callable[[], object]] = {
        "system_calls_us": lambda: [os.pread(fd, 64, 0) for fd in fds],
        "file_reads_us": lambda: [int(os.pread(fd, 64, 0)) for fd in fds if os.fstat(fd).st_nlink],
        "source_take_us": source.read_row,
        "sensor_read_us": sensor.read,
        "sensor_read_and_joules_us": lambda: sensor.read().joules,
    }
    before = dict.fromkeys(("sensor_read_us", "sensor_read_and_joules_us"), lambda: sensor.history(0.0))
    resting = side_by_side(actions, ROUNDS, CALLS, before)
    moving = side_by_side({"moving_us": move} | {n: after_move(a) for n, a in actions.items()}, ROUNDS, CALLS, before)
    figures = {
        "files": len(fds),
        "what_is_subtracted": SUBTRACTED,
        "counters_that_rest_for_seconds_and_are_doubted": {**resting, **_above(resting)},
        "counters_that_move": {**moving, **_above(moving)},
        "threads_started": threading.active_count() - threads,
    }
    sensor.close()
    source.close()
    for fd in fds:
        os.close(fd)
    processors.tree.close()
    return figures


def _above(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """What the source and the sensor take above the file reads, by the lower quartiles."""
    quartile = {name: row["lower_quartile"] for name, row in figures.items()}
    return {
        f"{name}_above_the_file_reads": quartile[name] - quartile["file_reads_us"]
        for name in ("source_take_us", "sensor_read_us", "sensor_read_and_joules_us")
    }


def _may_mount() -> bool:
    try:
        return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def run_tool(python: str, root: Path, tool: str, seconds: float) -> dict[str, Any]:
    """Run one tool with the tree mounted over /sys; return its figures, or why there are none."""
    script = Path(__file__).with_name("rapl_tools.py")
    inner = 'mount --bind "$1" /sys && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", inner, "sh", str(root), python, str(script), tool, str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[1]), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=120, env=environment, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return {"failed": "took more than 120 s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return dict(json.loads(lines[-1]))


def peers(python: str, seconds: float, repeats: int) -> dict[str, Any]:
    """Let every tool measure the same regions on the same tree."""
    figures: dict[str, Any] = {}
    for case in ("plain", "every counter wraps"):
        runs: dict[str, list[dict[str, Any]]] = {tool: [] for tool in TOOLS}
        for _ in range(repeats):
            for tool, results in runs.items():
                results.append(_on_a_live_tree(python, tool, seconds, wraps=case != "plain"))
        figures[case] = {tool: _summary(results) for tool, results in runs.items()}
    plain = figures["plain"]
    if "reading_cpu_us" in plain["pmtpy"]:
        figures["ratio_to_pmtpy"] = {
            tool: {
                key: row[key]["median"] / plain["pmtpy"][key]["median"]
                for key in ("reading_cpu_us", "empty_region_cpu_us", "first_region_cpu_ms")
            }
            for tool, row in plain.items()
            if "reading_cpu_us" in row
        }
    return figures


def _on_a_live_tree(python: str, tool: str, seconds: float, *, wraps: bool) -> dict[str, Any]:
    """Run a tool on a tree whose files are advanced a hundred times a second, beside it, by a thread of ours."""
    processors = Processors(make_world(f"constant:{WATTS}", clock=HOST_CLOCK), wrap_after_j=1e5)
    for cpu in range(2):
        processors.tree.write(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", cpu)
    processors.tree.write("devices/system/cpu/present", "0-1")
    stop = threading.Event()
    about_to_begin = processors.tree.root / ABOUT_TO_BEGIN

    def advance() -> None:
        waiting = wraps
        while not stop.wait(0.01):
            if waiting and about_to_begin.exists():
                processors.wrap_after(0.6 * seconds * WATTS)
                waiting = False
            processors.refresh(HOST_CLOCK.now_ns())

    thread = threading.Thread(target=advance, name="live-tree")
    thread.start()
    try:
        return run_tool(python, processors.tree.root, tool, seconds)
    finally:
        stop.set()
        thread.join()
        processors.tree.close()


def _summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [r["failed"] for r in results if "failed" in r]
    if failed:
        return {"failed": failed[0]}
    true = statistics.median(r["seconds"] for r in results) * WATTS
    return {
        "reading_cpu_us": spread([r["reading_cpu_us"] for r in results]),
        "empty_region_cpu_us": spread([r["empty_region_cpu_us"] for r in results]),
        "first_region_cpu_ms": spread([r["first_region_cpu_ms"] for r in results]),
        "region_cpu_ms": spread([r["region_cpu_ms"] for r in results]),
        "joules": spread([r["joules"] for r in results]),
        "true_joules_about": true,
    }


def main() -> None:
    """Take the figures and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter that has the peers")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a region")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, Any] = {"two sockets with memory": own_cost()}
    if options.peers and not _may_mount():
        print("peers are left out: private mount namespaces are not permitted here", file=sys.stderr)
    elif options.peers:
        figures["peers"] = peers(options.peers, options.seconds, options.repeats)
    report(figures)


if __name__ == "__main__":
    main()
