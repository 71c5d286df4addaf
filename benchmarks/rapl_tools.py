"""One energy tool, run in a process of its own by ``bench_rapl.py``: pmtpy, or one of its peers, on the tree at /sys.

Usage: ``python rapl_tools.py TOOL SECONDS``. Prints one JSON object: the CPU microseconds of one reading of everything
(two packages with memory) and of a region of no length, the CPU milliseconds that the first region and one of SECONDS
cost in all processes, and the joules of the latter.
It imports nothing of the benchmark suite, because it runs under the interpreter that has the peers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Made at the root of the tree when the region is about to begin, so that the counters can be set to wrap within it.
ABOUT_TO_BEGIN = "about-to-begin"

# What a tool offers: a reading of everything, and a region that starts with a call and gives joules when called again.
Reading = Callable[[], object]
Region = Callable[[], Callable[[], float]]


def pmtpy() -> tuple[Reading, Region]:
    """Two readings of a sensor of this toolkit."""
    import pmtpy as pmt

    sensor = pmt.create("rapl")

    def region() -> Callable[[], float]:
        before = sensor.read()
        return lambda: pmt.joules(before, sensor.read())

    return sensor.read, region


def pmtpy_region() -> tuple[Reading, Region]:
    """A region of this toolkit, with uncertainty and warnings."""
    import pmtpy as pmt

    sensor = pmt.create("rapl")

    def region() -> Callable[[], float]:
        inner = pmt.region("bench", sensor)
        entered = inner.__enter__()

        def end() -> float:
            inner.__exit__(None, None, None)
            return float(entered.total.joules)

        return end

    return sensor.read, region


def pyrapl() -> tuple[Reading, Region]:
    """PyRAPL: the sum of its packages and memories."""
    import pyRAPL

    pyRAPL.setup()

    def region() -> Callable[[], float]:
        measurement = pyRAPL.Measurement("bench")
        measurement.begin()

        def end() -> float:
            measurement.end()
            result = measurement.result
            return float(sum(result.pkg or []) + sum(result.dram or [])) * 1e-6

        return end

    meter = pyRAPL.Measurement("reading")

    def reading() -> None:
        meter.begin()

    return reading, region


def pyjoules() -> tuple[Reading, Region]:
    """PyJoules: packages and memories of both sockets."""
    from pyJoules.device import DeviceFactory
    from pyJoules.device.rapl_device import RaplDramDomain, RaplPackageDomain
    from pyJoules.energy_meter import EnergyMeter

    domains = [RaplPackageDomain(0), RaplDramDomain(0), RaplPackageDomain(1), RaplDramDomain(1)]
    devices = DeviceFactory.create_devices(domains)
    meter = EnergyMeter(devices)

    def region() -> Callable[[], float]:
        meter.start(tag="bench")

        def end() -> float:
            meter.stop()
            return float(sum(sum(sample.energy.values()) for sample in meter.get_trace())) * 1e-6

        return end

    return devices[0].get_energy, region


def zeus() -> tuple[Reading, Region]:
    """Zeus: its RAPL devices, packages and memories."""
    from zeus.device.cpu.rapl import RAPLCPUs

    cpus = RAPLCPUs().cpus

    def reading() -> float:
        shown = [cpu.get_total_energy_consumption() for cpu in cpus]
        return float(sum(m.cpu_mj + (m.dram_mj or 0.0) for m in shown)) * 1e-3

    def region() -> Callable[[], float]:
        before = reading()
        return lambda: reading() - before

    return reading, region


def codecarbon() -> tuple[Reading, Region]:
    """CodeCarbon: its tracker with memory asked for; the energy it books to processors."""
    from codecarbon import OfflineEmissionsTracker
    from codecarbon.core.cpu import IntelRAPL
    from codecarbon.core.units import Time

    rapl = IntelRAPL(rapl_include_dram=True)
    rapl.start()
    step = Time.from_seconds(1.0)

    def region() -> Callable[[], float]:
        tracker = OfflineEmissionsTracker(
            country_iso_code="NLD", save_to_file=False, log_level="critical", rapl_include_dram=True
        )
        tracker.start()

        def end() -> float:
            tracker.stop()
            return float(tracker.final_emissions_data.cpu_energy) * 3.6e6

        return end

    return lambda: rapl.get_cpu_details(step), region


TOOLS: dict[str, Callable[[], tuple[Reading, Region]]] = {
    "pmtpy": pmtpy,
    "pmtpy region": pmtpy_region,
    "pyRAPL": pyrapl,
    "pyJoules": pyjoules,
    "Zeus": zeus,
    "CodeCarbon": codecarbon,
}


def tree_cpu_ms() -> float:
    """CPU milliseconds used so far by all threads of this process and its descendants that still live."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    mine = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        if not more:
            break
        mine |= more
    return sum(_ran_ns(path) for pid in mine for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def _ran_ns(schedstat: Path) -> int:
    try:
        return int(schedstat.read_text().split()[0])
    except OSError:  # the thread has ended
        return 0


def cost_of_region(region: Region, seconds: float) -> tuple[float, float, float]:
    """CPU milliseconds in all processes, joules and length of one region; looking at the processes is taken off."""
    before = tree_cpu_ms()
    looking = tree_cpu_ms() - before
    before = tree_cpu_ms()
    end = region()
    begun = time.monotonic()
    time.sleep(seconds)
    joules = end()
    length = time.monotonic() - begun
    return max(0.0, tree_cpu_ms() - before - looking), joules, length


def cost_of_call(call: Callable[[], object]) -> float:
    """CPU microseconds of one call, in this process: the least of five loops of at least 0.1 s."""
    call()
    count, best = 1, float("inf")
    loops = 0
    while loops < 5:
        before = time.process_time()
        for _ in range(count):
            call()
        used = time.process_time() - before
        if used < 0.1:
            count *= 2
            continue
        best = min(best, used / count)
        loops += 1
    return best * 1e6


def main() -> None:
    """Measure one tool."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    result: dict[str, Any] = {"tool": name}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        reading, region = TOOLS[name]()
        time.sleep(0.5)  # threads of numeric libraries spin for a while after they are made
        result["first_region_cpu_ms"] = cost_of_region(region, 1.0)[0]
        Path("/sys", ABOUT_TO_BEGIN).touch()
        time.sleep(0.1)  # the tree is advanced every 10 ms
        result["region_cpu_ms"], result["joules"], result["seconds"] = cost_of_region(region, seconds)
        result["reading_cpu_us"] = cost_of_call(reading)
        result["empty_region_cpu_us"] = cost_of_call(lambda: region()())  # noqa: PLW0108  (each call begins a region of its own)
        os.chdir("/")
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
