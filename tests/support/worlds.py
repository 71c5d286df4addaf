"""Small sources on an emulated world, for tests of the core: a counter, a momentary power, a stream."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Source, Timestamps, Traits
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import ReadError, SourceLostError
from pmtpy.sensor.sensor import Sensor


class WalkingClock(ManualClock):
    """A clock on which waiting takes no time: it moves to the instant waited for."""

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        self.advance(max(0, t_ns - self.now_ns()) / 1e9)
        return wake.is_set()


class Counter(PolledSource):
    """Two microjoule counters that share the load 2 : 1 and turn over, and a part of the first inside it."""

    def __init__(self, world: World, wrap: float | None = None, deadline_s: float | None = None) -> None:
        super().__init__(world.clock)
        self.world, self.wrap = world, wrap
        self.traits = Traits(deadline_s=deadline_s)
        self.identity = Identity("test", "counter", virtual=True)
        domains = {"package0": "package", "package0.core": "package/core", "dram0": "dram"}
        self.channels = tuple(
            [
                Channel(
                    name,
                    Quantity.ENERGY,
                    scale=1e-6,
                    wrap=wrap,
                    domain=f"host/socket0/{domain}",
                    refresh_s=0.001,
                    max_watts=1000,
                )
                for name, domain in domains.items()
            ]
        )
        self.start = 0.0
        self.gone = False
        self.fail = 0
        self.polls = 0
        self.closed = 0

    def poll(self) -> Sequence[float]:
        self.polls += 1
        if self.gone:
            raise SourceLostError("test counter: pulled out")
        if self.fail:
            self.fail -= 1
            raise ReadError("test counter: busy")
        joules = float(self.world.joules(self.world.clock.now_ns()))
        counts = [joules * share * 1e6 + self.start for share in (2 / 3, 1 / 2, 1 / 3)]
        return [float(np.floor(c % self.wrap if self.wrap else c)) for c in counts]

    def close(self) -> None:
        self.closed += 1


class Gauge(PolledSource):
    """A momentary power in milliwatts."""

    def __init__(self, world: World, interval_s: float = 0.01) -> None:
        super().__init__(world.clock)
        self.world = world
        self.traits = Traits(interval_s=interval_s)
        self.identity = Identity("test", "gauge")
        self.channels = (
            Channel("gpu", Quantity.POWER, scale=1e-3, domain="gpu/0", refresh_s=interval_s),
            Channel("gpu.temperature", Quantity.TEMPERATURE),
        )
        self.gone = False

    def poll(self) -> Sequence[float]:
        if self.gone:
            raise SourceLostError("test gauge: pulled out")
        return [float(self.world.watts(self.world.clock.now_ns())) * 1e3, 40.0]

    def close(self) -> None:
        pass


class Stream(Source):
    """Two voltage and current pairs that share the load equally, one row each millisecond of the clock."""

    traits = Traits(interval_s=0.05, streaming=True, timestamps=Timestamps.DEVICE_UPDATE)

    def __init__(self, world: World) -> None:
        self.world = world
        self.identity = Identity("test", "stream")
        pairs = [
            (
                Channel(f"pair{p}.voltage", Quantity.VOLTAGE, scale=0.5),
                Channel(f"pair{p}.current", Quantity.CURRENT, scale=0.001, offset=-5000),
                Channel(
                    f"pair{p}",
                    Quantity.POWER,
                    derivation=Derivation.PRODUCT,
                    operands=(f"pair{p}.voltage", f"pair{p}.current"),
                    method=EnergyMethod.MEAN,
                    window_s=1e-3,
                    domain=f"external/pair{p}",
                ),
            )
            for p in range(2)
        ]
        self.channels = tuple(c for pair in pairs for c in pair)
        self.sent_ns = (world.clock.now_ns() // 1_000_000) * 1_000_000
        self.drop: set[int] = set()
        self.held_ns: float = math.inf  # of rows later than this, none comes for now
        self.labels: list[str] = []
        self.closed = False

    def read(self) -> Block:
        now = int(min(self.world.clock.now_ns(), self.held_ns))
        t_ns = np.arange(self.sent_ns + 1_000_000, now + 1, 1_000_000, dtype=np.int64)
        self.sent_ns += 1_000_000 * len(t_ns)
        keep = np.array([int(t) not in self.drop for t in t_ns], bool)
        gone = np.cumsum(~keep)
        t_ns, gone = t_ns[keep], gone[keep]
        mean = (self.world.joules(t_ns) - self.world.joules(t_ns - 1_000_000)) / 1e-3
        amperes = mean / 2 / 12
        raw = np.empty((len(t_ns), 4))
        raw[:, 0::2] = 24
        raw[:, 1::2] = (amperes / 0.001 + 5000)[:, None]
        lost = np.diff(gone, prepend=0).astype(np.int64)
        marks = tuple((0, label) for label in self.labels) if len(t_ns) else ()
        if marks:
            self.labels = []
        return Block(t_ns, raw, lost if lost.any() else None, marks=marks)

    def mark(self, label: str) -> bool:
        self.labels.append(label)
        return True

    def close(self) -> None:
        self.closed = True


def counter_sensor(load: str = "constant:60", **options: object) -> tuple[ManualClock, Counter, Sensor]:
    """A sensor on a Counter, with the clock that moves it."""
    clock = ManualClock()
    source = Counter(make_world(load, clock=clock), **options)  # type: ignore[arg-type]
    return clock, source, Sensor(source, "test", clock)
