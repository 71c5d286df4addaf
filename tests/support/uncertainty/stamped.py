"""Regions on a virtual GPU whose program says when it is busy, under a clock that is moved by hand. For the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.matching import calibrate
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Identity
from pmtpy.core.clock import ManualClock
from pmtpy.core.response import Number, Response
from pmtpy.core.rows import Floats
from pmtpy.emulators.world import open_world
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.registry import opener
from pmtpy.sensor.sensor import Sensor, acquisition_of

PHASES_S = 2.0  # before the first region, so that running means are full
# Of events at one instant: work ends within its region, and begins within it.
_ORDER = ("off", "leave", "enter", "on", "poll")


@dataclass(frozen=True)
class Gpu:
    """A virtual GPU, the channel looked at, and what its profile says of it."""

    channel: str
    options: Mapping[str, object]
    how: Response

    def profile(self, identity: Identity) -> Profile:
        """Return the profile: gain and zero to 0.3 % and 0.3 W."""
        curve = Affine(Number(1.0, 0.003), Number(0.0, 0.3))
        return Profile(identity, self.channel, curve, 0.0, 2000.0, self.how, (("made", "here"),))


A100 = Gpu(
    "gpu.instant",
    {"profile": "a100", "gain": 1.0, "offset_w": 0.0},
    Response.stated(
        "one-pole",
        refresh_s=Number(0.1012, 1e-5),
        tau_s=Number(0.0125, 2e-4),
        delay_s=Number(0.0, 5e-4),
        noise=Number(0.3),
    ),
)
AVERAGE = Gpu(
    "gpu.average",
    {"profile": "ideal", "noise_w": 0.3},
    Response.stated(
        "boxcar", refresh_s=Number(0.1, 1e-5), window_s=Number(1.0, 0.003), delay_s=Number(0.0, 1e-3), noise=Number(0.1)
    ),
)
FULL = Gpu(
    "gpu.instant",
    {"profile": "ideal", "noise_w": 0.3},
    Response.stated(
        "boxcar", refresh_s=Number(0.1, 1e-5), window_s=Number(0.1, 1e-3), delay_s=Number(0.0, 5e-4), noise=Number(0.3)
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What a region of one channel said, and what was true."""

    measured: Measurement
    true_joules: float

    @property
    def off(self) -> float:
        """Relative error."""
        return self.measured.joules / self.true_joules - 1.0

    @property
    def held(self) -> bool:
        """Whether the stated 95 % interval holds the truth."""
        return abs(self.measured.joules - self.true_joules) <= 1.96 * self.measured.uncertainty_joules


def square(period_s: float, duty: float, seconds: float, jitter: float = 0.0, seed: int = 0) -> Floats:
    """Return when a load is on, shape (n, 2); each period longer or shorter by ``jitter``, relative."""
    rng = np.random.default_rng(seed)
    each = period_s * np.maximum(0.3, 1.0 + jitter * rng.standard_normal(int(seconds / period_s) + 1))
    starts = np.concatenate([[0.0], np.cumsum(each)[:-1]])
    return np.round(np.stack([starts, starts + duty * each], axis=1), 6)


def measure(  # noqa: C901  (a clock, and all that may happen at it)
    gpu: Gpu,
    on: Floats,
    levels: tuple[float, float],
    regions: Sequence[tuple[float, float]],
    *,
    stamped: bool,
    later: bool = False,
    poll_s: float | None = None,
    seed: int = 0,
    dump: Path | None = None,
    each: Callable[[Region], None] = lambda _: None,
) -> list[Outcome]:
    """Measure regions of a load of two levels that is on from ``on[i, 0]`` to ``on[i, 1]``.

    ``stamped``: the program says when it is busy; ``later``: regions are evaluated at the very end, not at once;
    ``dump``: where all of it is recorded as well.
    """
    clock = ManualClock()
    rng = np.random.default_rng(seed)
    clock.advance(rng.uniform(0, 1))
    sensor, epoch, true = _open(gpu, clock, on.ravel() + PHASES_S, levels, poll_s)
    made = [Region(str(i), {"nvml": sensor}) for i in range(len(regions))]
    ends: dict[int, tuple[int, int]] = {}
    found: dict[int, Outcome] = {}
    inside: set[int] = set()
    busy = False

    def outcome(i: int) -> Outcome:
        each(made[i])
        return Outcome(made[i]["nvml"].channels[gpu.channel], true(*ends[i]))

    def stamp(what: str, i: int) -> None:
        """Say that the work goes on or ends; a region that begins or ends amid it is busy from there, or to there."""
        for j in (i,) if what in {"enter", "leave"} and busy else inside if what in {"on", "off"} else ():
            load = made[j].busy()
            load.__enter__() if what in {"on", "enter"} else load.__exit__(None, None, None)

    try:
        if dump is not None:
            record(sensor, dump)
        for t_ns, what, i in _events(sensor, epoch, on.ravel() + PHASES_S, regions, rng):
            clock.advance(max(0, t_ns - clock.now_ns()) / 1e9)
            busy = what == "on" or (busy and what != "off")
            if what == "poll":
                acquisition_of(sensor).step()
            elif what == "enter":
                made[i].__enter__()
                inside.add(i)
            if what in {"enter", "leave"}:
                ends[i] = (ends.get(i, (clock.now_ns(), 0))[0], clock.now_ns())
            if stamped:
                stamp(what, i)
            if what == "leave":
                made[i].__exit__(None, None, None)
                inside.remove(i)
                if not later:
                    found[i] = outcome(i)
        return [found[i] if i in found else outcome(i) for i in range(len(regions))]
    finally:
        sensor.close()


def record(sensor: Sensor, path: Path) -> None:
    """Let a sensor be dumped whose polls come from the test alone."""
    made = acquisition_of(sensor)
    rests_s, period_s = made.demand.interval_s, made.intake.period_s
    made.demand.interval_s = period_s
    sensor.start_dump(path)
    made.demand.interval_s = made.demand.dump_s = rests_s
    made.schedule()
    made.intake.period_s = period_s


def _open(
    gpu: Gpu, clock: ManualClock, edges: Floats, levels: tuple[float, float], poll_s: float | None
) -> tuple[Sensor, int, Callable[[int, int], float]]:
    """Open the GPU under its load; return it, the load's epoch, and the true energy between two instants."""
    low, high = levels
    steps = ",".join(f"{t:.6f}={high if i % 2 == 0 else low:.4f}" for i, t in enumerate(edges))
    source = opener("nvml", "virtual")("virtual", clock=clock, load=f"steps:0={low:.4f},{steps}", **dict(gpu.options))
    source.traits = replace(source.traits, deadline_s=None)
    world = open_world(clock)
    assert world is not None
    calibration = calibrate([gpu.profile(source.identity)], source.identity, source.channels)
    sensor = Sensor(source, "nvml", clock, calibration=calibration, interval_s=1e6)  # the poller rests
    acquisition_of(sensor).intake.period_s = poll_s or source.traits.interval_s  # what is done here in its place
    return sensor, world.epoch_ns, world.joules_between


def _events(
    sensor: Sensor, epoch_ns: int, edges: Floats, regions: Sequence[tuple[float, float]], rng: np.random.Generator
) -> list[tuple[int, str, int]]:
    """Return all that happens, in order: polls, ends of regions, and when the load is switched."""
    period = round(acquisition_of(sensor).intake.period_s * 1e9)
    last = epoch_ns + round((max(b for _, b in regions) + PHASES_S + 3.0) * 1e9)
    polls = range((acquisition_of(sensor).clock.now_ns() // period + 1) * period, last, period)
    events = [(t + int(rng.exponential(2e5)), "poll", -1) for t in polls]
    for i, (a, b) in enumerate(regions):
        events += [(epoch_ns + round((t + PHASES_S) * 1e9), what, i) for t, what in ((a, "enter"), (b, "leave"))]
    events += [(epoch_ns + round(t * 1e9), "off" if i % 2 else "on", -1) for i, t in enumerate(edges)]
    return sorted(events, key=lambda e: (e[0], _ORDER.index(e[1])))
