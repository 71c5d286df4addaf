"""Work that is repeated beside a simulated sensor, in simulated time: all else is real.

The power of everything that runs is known, and so is the energy of each repetition. Shared by the tests of benchmarks
and by ``benchmarks/bench_repetition.py``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.core.channel import Channel, EnergyMethod, Identity, Quantity
from pmtpy.core.clock import NS_PER_S, ManualClock
from pmtpy.core.rows import Block, Floats
from pmtpy.core.source import Source, Timestamps, Traits
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.errors import SourceLostError
from pmtpy.sensor.sensor import Sensor

if TYPE_CHECKING:
    from typing_extensions import Self

IDLE_W = 40.0
# A third of the time at 250 W, else 90 W: a naive reading of a part of it is off by tens of percent.
PATTERN = ((0.37, 250.0), (0.63, 90.0))
PATTERN_W = sum(share * watts for share, watts in PATTERN)

FULL = SensorModel(update_s=0.1, window_s=0.1, noise_w=0.5, step_w=0.01)
PART_TIME = SensorModel(update_s=0.1, window_s=0.025, noise_w=0.5, step_w=0.01)
ONE_POLE = SensorModel(update_s=0.015413, window_s=0.0, tau_s=0.0546, noise_w=0.15, step_w=0.01)
SENSORS = {"full": FULL, "part-time 25 %": PART_TIME, "one-pole": ONE_POLE}


class OwnClock(ManualClock):
    """A clock on which the thread that made it waits in no time; other threads wait until they are woken."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        if threading.get_ident() != self._owner:
            return wake.wait()
        self.advance(max(0, t_ns - self.now_ns()) / NS_PER_S)
        return wake.is_set()


class History:
    """A load that grows: idle, but where something ran. Times in seconds since the clock's start."""

    def __init__(self) -> None:
        self._size = 1
        self._starts, self._watts, self._joules = (np.zeros(4096) for _ in range(3))
        self._starts[0], self._watts[0] = -1e6, IDLE_W
        self._joules[0] = -1e6 * IDLE_W

    def add(self, starts: Floats, watts: Floats) -> None:
        """Go on with steps that begin later than all before."""
        end = self._size + len(starts)
        while end > len(self._starts):
            grown = [np.concatenate([a, np.zeros(len(a))]) for a in (self._starts, self._watts, self._joules)]
            self._starts, self._watts, self._joules = grown
        here = slice(self._size, end)
        self._starts[here], self._watts[here] = starts, watts
        before = slice(self._size - 1, end - 1)
        steps = self._watts[before] * (self._starts[here] - self._starts[before])
        self._joules[here] = self._joules[self._size - 1] + np.cumsum(steps)
        self._size = end

    def _place(self, t_s: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.searchsorted(self._starts[: self._size], t_s, side="right") - 1

    def watts(self, t_s: Floats) -> Floats:
        return np.asarray(self._watts[self._place(np.asarray(t_s, np.float64))], np.float64)

    def joules(self, t_s: Floats) -> Floats:
        t = np.asarray(t_s, np.float64)
        i = self._place(t)
        return np.asarray(self._joules[i] + self._watts[i] * (t - self._starts[i]), np.float64)


class Simulated(Source):
    """A power register of which every update arrives by itself."""

    traits = Traits(interval_s=1.0, streaming=True, timestamps=Timestamps.DEVICE_UPDATE)

    def __init__(self, model: SensorModel, load: History, clock: ManualClock, *, states: bool = True) -> None:
        self.model, self.load, self.clock = model, load, clock
        self.identity = Identity("test", "simulated", virtual=True)
        pole = model.tau_s > 0.0
        self.channels = (
            Channel(
                "gpu",
                Quantity.POWER,
                domain="gpu/0",
                refresh_s=model.update_s,
                window_s=None if pole or not states else model.window_s,
                lag_s=model.response.lag_s if states else None,
                method=EnergyMethod.TRAPEZOID,
                resolution=model.step_w,
                gain_u=0.05,
            ),
            Channel("gpu.temperature", Quantity.TEMPERATURE),
        )
        self._begin_ns = clock.now_ns()
        self._tick = int(model.last_tick(0.0)) - 100
        self.gone = False
        self.held_back: dict[str, float] = {}

    def limits(self) -> Mapping[str, float]:
        return dict(self.held_back)

    def read(self) -> Block:
        if self.gone:
            raise SourceLostError("test simulated: pulled out")
        newest = int(self.model.last_tick((self.clock.now_ns() - self._begin_ns) / NS_PER_S))
        ticks = np.arange(self._tick + 1, newest + 1)
        self._tick = max(self._tick, newest)
        t_ns = self._begin_ns + np.round(self.model.tick_times(ticks) * NS_PER_S).astype(np.int64)
        watts = self.model.tick_readings(self.load, ticks) if len(ticks) else np.zeros(0)
        return Block(t_ns, np.column_stack([watts, np.full(len(ticks), 50.0)]))

    def close(self) -> None:
        pass


@dataclass
class World:
    """A sensor, its clock, and what has run beside it."""

    model: SensorModel
    seed: int = 1
    # relative standard deviation of the power from one call of ``run`` to the next: of what is measured in a burst
    scatter: float = 0.004
    trend: Callable[[float], float] = lambda _t: 1.0  # factor of the power at an instant (seconds): drift
    states: bool = True
    outliers: float = 0.0  # share of calls of ``run`` that draw 8 % more
    clock: OwnClock = field(init=False)
    load: History = field(init=False)
    source: Simulated = field(init=False)
    sensor: Sensor = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.clock, self.load = OwnClock(), History()
        self._begin_ns = self.clock.now_ns()
        self.source = Simulated(self.model, self.load, self.clock, states=self.states)
        self.sensor = Sensor(self.source, "test:simulated", self.clock, history_s=30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sensor.close()

    @property
    def now_s(self) -> float:
        return (self.clock.now_ns() - self._begin_ns) / NS_PER_S

    def draw(self, once_s: float, times: int, factor: float) -> None:
        """Let something run that draws the pattern ``times`` times, each of ``once_s``."""
        factor *= self.trend(self.now_s) * (1.0 + self.scatter * float(self.rng.standard_normal()))
        factor *= 1.08 if self.rng.random() < self.outliers else 1.0
        shares = np.array([share for share, _ in PATTERN])
        begins = np.concatenate([[0.0], np.cumsum(shares)[:-1]])
        starts = (self.now_s + once_s * (np.arange(times)[:, None] + begins)).ravel()
        watts = np.tile([factor * w for _, w in PATTERN], times)
        end_s = self.now_s + times * once_s
        self.load.add(np.append(starts, end_s), np.append(watts, IDLE_W))
        self.clock.advance(times * once_s)


class Task:
    """A piece of work in a world: each repetition takes ``once_s`` and ``factor`` times the pattern's power."""

    starts_process = False
    goes_on = False

    def __init__(self, world: World, once_s: float = 0.1, factor: float = 1.0, label: str = "work") -> None:
        self.world, self.once_s, self.factor, self.label = world, once_s, factor, label
        self.calls = 0
        self.fail_at = math.inf

    @property
    def joules(self) -> float:
        """True energy of one repetition, without scatter and drift."""
        return PATTERN_W * self.factor * self.once_s

    def run(self, times: int) -> None:
        self.calls += 1
        if self.calls >= self.fail_at:
            raise RuntimeError("the work failed")
        if times:
            self.world.draw(self.once_s, times, self.factor)
