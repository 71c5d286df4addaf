"""What the core costs its user: import, a reading, a region, many polled sensors. Prints one JSON document.

Every figure is taken on sources in memory, so it is the toolkit's own share: devices and files come on top.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import pmtpy as pmt
from benchmarks.common import repeat, report, side_by_side, spread
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.core.source import PolledSource, Traits
from pmtpy.sensor.sensor import Sensor

REPEATS = 7
ROUNDS, CALLS = 500, 20
_BEGIN = """
import time
marks = [time.process_time()]
for step in (
    "import numpy", "import pmtpy", "pmtpy.create", "import benchmarks.bench_core as bench; sensor = bench.opened()",
    "region = bench.one(sensor)", "region.total.uncertainty_joules",
):
    exec(step)
    marks.append(time.process_time())
print(*(1e3 * (b - a) for a, b in zip(marks, marks[1:])))
"""


class Counters(PolledSource):
    """Two packages with dram, from memory."""

    def __init__(self) -> None:
        super().__init__(HOST_CLOCK)
        self.identity = Identity("bench")
        self.channels = tuple(
            Channel(n, Quantity.ENERGY, scale=1e-6, wrap=2.6e11, domain=f"host/{n}", max_watts=1000)
            for n in ("package0", "package0.dram", "package1", "package1.dram")
        )
        self._count = 0.0

    def poll(self) -> Sequence[float]:
        """Count on."""
        self._count += 100.0
        return [self._count] * 4

    def close(self) -> None:
        """Nothing to release."""


class Power(PolledSource):
    """One momentary power, from memory, polled at 100 Hz."""

    traits = Traits(interval_s=0.01)

    def __init__(self) -> None:
        super().__init__(HOST_CLOCK)
        self.identity = Identity("bench")
        self.channels = (Channel("gpu", Quantity.POWER, scale=1e-3, domain="gpu"),)

    def poll(self) -> Sequence[float]:
        """Return always the same."""
        return (60_000.0,)

    def close(self) -> None:
        """Nothing to release."""


def opened() -> Sensor:
    """Return an open sensor of one polled power."""
    return Sensor(Power(), "first", HOST_CLOCK)


def one(sensor: Sensor) -> pmt.Region:
    """Measure a region of five readings or so."""
    with pmt.region("first", sensor) as made:
        time.sleep(0.05)
    return made


def begin_ms() -> dict[str, dict[str, float]]:
    """CPU milliseconds of what a process does for the first time: what it loads, a region, and judging it."""
    run = [sys.executable, "-c", _BEGIN]
    outs = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(REPEATS)]
    rows = [[float(x) for x in out.split()] for out in outs]
    names = ("import_numpy", "import_pmtpy", "load_create", "", "first_region", "first_judgement")
    return {f"{name}_ms": spread([row[i] for row in rows]) for i, name in enumerate(names) if name}


def bytecodes(action: Callable[[], object]) -> int:
    """How many instructions of Python's machine an action takes: the same on a busy machine as on an idle one."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


def waiting() -> dict[str, object]:
    """CPU of what a program waits for, taken in turns, so that one can be compared with the other.

    A reading of counters and a region leave the arithmetic of their rows to whoever asks for the energy, in the end to
    one reading in 64. So each is taken without it, with what earlier turns left worked out before; and with it, as the
    mean over so many that each turn works all of its own out.
    """
    bare = Counters()
    with Sensor(Counters(), "read", HOST_CLOCK) as read, Sensor(Counters(), "regions", HOST_CLOCK) as watched:

        def region() -> None:
            with pmt.region("bench", watched):
                pass

        def evaluated() -> object:
            with pmt.region("bench", read) as made:
                pass
            return made.so_far()

        def all_of(action: Callable[[], object], sensor: Sensor) -> Callable[[], object]:
            def many() -> None:
                for _ in range(CALLS):
                    action()
                sensor.history(0.0)

            return many

        actions: dict[str, Callable[[], object]] = {
            "poll_of_four_counters": bare.poll,
            "read_of_four_counters": read.read,
            "read_and_its_joules": lambda: read.read().joules,
            "region_enter_exit": region,
            "region_and_its_joules": evaluated,
        }
        asked = {"read_of_four_counters": read, "read_and_its_joules": read, "region_enter_exit": watched}
        before = {name: partial(sensor.history, 0.0) for name, sensor in asked.items()}
        figures: dict[str, object] = {f"{k}_us": v for k, v in side_by_side(actions, ROUNDS, CALLS, before).items()}
        whole = {"read_of_four_counters": all_of(read.read, read), "region_enter_exit": all_of(region, watched)}
        for name, row in side_by_side(whole, ROUNDS, 1, before).items():
            figures[f"{name}_with_its_arithmetic_us"] = {k: us / CALLS for k, us in row.items()}
        return figures | {f"{name}_bytecodes": bytecodes(action) for name, action in actions.items()}


def polling_share(sensors: int, seconds: float = 2.0) -> float:
    """CPU seconds per second of polling so many sensors at 100 Hz."""
    opened = [Sensor(Power(), f"bench{i}", HOST_CLOCK) for i in range(sensors)]
    cpu, wall = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    for sensor in opened:
        sensor.close()
    return share


def main() -> None:
    """Take all figures."""
    figures: dict[str, object] = dict(begin_ms())
    figures |= waiting()
    figures["cpu_share_of_64_sensors_at_100_hz"] = repeat(lambda: polling_share(64), 3)
    report(figures)


if __name__ == "__main__":
    main()
