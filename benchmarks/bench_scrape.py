"""What a scrape of ten sensors costs: our reading, the text, and the request with its client around both.

Limit: 2 ms for ten sensors. Run: python -m benchmarks.bench_scrape
"""

from __future__ import annotations

import statistics
import time
import urllib.request
from contextlib import ExitStack

from prometheus_client import CollectorRegistry, generate_latest

import pmtpy as pmt
from pmtpy.cluster.prometheus import Collector, Server
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.rapl import Processors
from pmtpy.emulators.world import make_world

SENSORS, ROUNDS = 10, 300


def main() -> None:
    """Print milliseconds of CPU for each."""
    with ExitStack() as stack:
        sensors = []
        for i in range(SENSORS):
            processors = Processors(make_world("constant:100", clock=HOST_CLOCK))
            stack.callback(processors.tree.close)
            sensor = stack.enter_context(pmt.create("rapl", sysfs_root=str(processors.tree.root)))
            sensor.target = f"rapl:{i}"
            sensors.append(sensor)
        collector = Collector(sensors)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        show("read() of each sensor", lambda: [s.read() for s in sensors])
        show("reading for a scrape", collector._watched.read)  # noqa: SLF001
        with Server(sensors, port=0) as server:
            show("and its text", lambda: server.page(open_metrics=True))
            show("client and server", lambda: urllib.request.urlopen(server.url).read())  # noqa: S310
        show("by the library's registry", lambda: generate_latest(registry))
        collector.close()


def show(name: str, work: object) -> None:
    """Print the median of many rounds, CPU of the whole process."""
    assert callable(work)
    took = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        work()
        took.append((time.process_time_ns() - start) / 1e6)
    print(f"{name:24} {statistics.median(took):.2f} ms CPU (least {min(took):.2f})")


if __name__ == "__main__":
    main()
