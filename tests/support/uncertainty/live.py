"""Regions on virtual devices, measured by the real backends under a clock that is moved by hand. For the tests.

What a user does, at the speed of arithmetic: a sensor is read as often as its poller would read it, regions begin and
end at any instant or exactly where the load changes, and are evaluated at once. The truth is the load's integral.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pmtpy.analysis.uncertainty.channel_times import is_power
from pmtpy.core.calibration.matching import calibrate
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import EnergyMethod, Identity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Floats
from pmtpy.core.source import Source
from pmtpy.emulators.world import open_world
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.registry import opener
from pmtpy.sensor.sensor import Sensor, acquisition_of

SETTLE_S = 1.5  # before the first region, so that running means are full
LOADS = ("square", "random", "steps", "square", "constant", "steps", "sine")


@dataclass(frozen=True)
class Device:
    """A virtual device: target, the share of the load in each channel looked at, options, factor on the load."""

    target: str
    shares: Mapping[str, float]
    options: Mapping[str, object] = field(default_factory=dict)
    scale: float = 1.0


# Every kind of reading: momentary, averaged and counted; part-time and full; polled, stamped and streamed.
DEVICES = {
    "nvml, part-time": Device("nvml", {"gpu.energy": 1, "gpu.instant": 1, "gpu.average": 1}, {"profile": "h100"}),
    "nvml, full window": Device("nvml", {"gpu.energy": 1, "gpu.instant": 1}, {"profile": "ideal", "noise_w": 0.3}),
    "nvml, 20 ms": Device(
        "nvml", {"gpu.energy": 1, "gpu.instant": 1}, {"profile": "v100", "gain": 1.0, "offset_w": 0.0}
    ),
    "nvml, low-pass": Device("nvml", {"gpu.instant": 1}, {"profile": "k40m", "gain": 1.0, "offset_w": 0.0}),
    "amdsmi": Device("amdsmi", {"gpu.energy": 1, "gpu.current_power": 1}),
    "rapl": Device("rapl", {"package0": 0.425, "package0.dram": 0.075}),
    "jetson": Device("jetson", {"vdd_in": 1}, {}, 0.08),
    "occ": Device("occ", {"system": 1}, {"sockets": 1}),
    "hwmon": Device("hwmon", {"power1": 1}, {}, 0.25),
    "powersensor3": Device("powersensor3", {"total": 1}),
}


@dataclass(frozen=True)
class Trial:
    """One channel in one region."""

    seconds: float
    error_joules: float
    uncertainty_joules: float
    true_joules: float
    method: str
    warned: bool = False

    @property
    def held(self) -> bool:
        """Whether the stated 95 % interval holds the truth."""
        return abs(self.error_joules) <= 1.96 * self.uncertainty_joules


def random_load(rng: np.random.Generator, kind: str, seconds: float, scale: float) -> tuple[str, Floats]:
    """Make the text of a load, and the instants at which it changes."""
    low = scale * rng.uniform(20, 80)
    high = low + scale * rng.uniform(20, 350)
    levels = f"low={low:.4f},high={high:.4f}"

    def between(shortest: float, longest: float) -> float:
        return float(np.exp(rng.uniform(np.log(shortest), np.log(longest))))

    if kind == "constant":
        return f"constant:{high:.4f}", np.empty(0)
    if kind == "sine":
        return f"sine:{levels},hz={between(0.05, 3.0)!r}", np.empty(0)
    if kind == "fast":
        period, duty = between(1 / 47, 1 / 3), rng.uniform(0.1, 0.9)
        return f"square:{levels},hz={1 / period!r},duty={duty!r}", np.empty(0)
    if kind == "square":
        period, duty = between(0.03, 5.0), rng.uniform(0.1, 0.9)
        starts = np.arange(int(seconds / period)) * period
        both = np.concatenate([starts, starts + duty * period])
        return f"square:{levels},hz={1 / period!r},duty={duty!r}", np.sort(both)
    if kind == "random":
        hz = between(2.0, 100.0)
        seed = int(rng.integers(1 << 30))
        return f"random:{levels},hz={hz!r},seconds={seconds + 5!r},seed={seed}", np.arange(int(seconds * hz)) / hz
    mean = between(0.2, 4.0)
    starts = np.round(np.concatenate([[0.0], np.cumsum(0.02 + rng.exponential(mean, int(3 * seconds / mean) + 5))]), 6)
    two = np.where(np.arange(len(starts)) % 2, high, low)
    watts = two if rng.random() < 0.5 else rng.uniform(low, high, len(starts))
    text = ",".join(f"{t:.6f}={w:.4f}" for t, w in zip(starts, watts, strict=True))
    return f"steps:{text}", np.asarray(starts[1:], np.float64)


def _regions(  # noqa: PLR0917  (all that is known of them)
    rng: np.random.Generator,
    edges: Floats,
    count: int,
    first_s: float,
    seconds: float,
    lengths: tuple[float, float],
) -> list[tuple[float, float]]:
    """Choose intervals; half of them begin and end where the load changes."""
    inner = edges[(edges > first_s) & (edges < seconds)]
    chosen = []
    for _ in range(count):
        length = float(np.exp(rng.uniform(np.log(lengths[0]), np.log(lengths[1]))))
        start = rng.uniform(first_s, seconds - length)
        end = start + length
        if rng.random() < 0.5 and len(inner) > 1:
            a = float(inner[np.argmin(abs(inner - start))])
            b = float(inner[np.argmin(abs(inner - a - length))])
            if b - a > 0.6 * lengths[0]:
                start, end = a, b
        chosen.append((start, end))
    return chosen


def measure(
    device: Device,
    kind: str,
    seed: int,
    *,
    count: int = 30,
    seconds: float = 10.0,
    lengths: tuple[float, float] = (0.05, 7.0),
    profile: Callable[[Identity], Profile] | None = None,
    gain_known: bool = False,
    first_s: float = SETTLE_S,
    starved: bool = False,
) -> dict[str, list[Trial]]:
    """Measure random regions of one world, none before ``first_s``; return the trials of each channel.

    With ``gain_known`` the channels state no uncertainty of their gain, so that all else shows. With ``starved`` the
    poller is held up, after 3 of 100 polls, for 0.3 s in the mean.

    The errors of gain and zero that a channel states are drawn as stated: an emulated device has none of its own, or
    those that the profile takes out.
    """
    rng = np.random.default_rng(seed)
    clock = ManualClock()
    clock.advance(rng.uniform(0, 1))
    load, edges = random_load(rng, kind, seconds, device.scale)
    open_virtual = opener(device.target, "virtual")
    source = open_virtual("virtual", clock=clock, load=load, **dict(device.options))
    if gain_known:
        source.channels = tuple(replace(c, gain_u=0.0) for c in source.channels)
    world = open_world(clock)
    assert world is not None
    source.traits = replace(source.traits, deadline_s=None)
    calibration = calibrate([profile(source.identity)], source.identity, source.channels) if profile else None
    sensor = Sensor(source, device.target, clock, calibration=calibration, interval_s=1e6)  # the poller rests
    found: dict[str, list[Trial]] = {name: [] for name in device.shares}
    try:
        chosen = _regions(rng, edges, count, first_s, seconds, lengths)
        for region, start_ns, end_ns in _run(sensor, source, clock, world.epoch_ns, chosen, rng, starved=starved):
            true = world.joules_between(start_ns, end_ns)
            measured = region[device.target]
            for name, share in device.shares.items():
                found[name].append(_trial(sensor, measured, name, share * true, rng))
    finally:
        sensor.close()
    return found


def measure_first(device: Device, kind: str, seed: int) -> dict[str, list[Trial]]:
    """Measure one region of 0.1 to 3 s of a sensor that was opened 20 to 600 ms before; see :func:`measure`."""
    rng = np.random.default_rng([seed, 5])
    first_s, length_s = (float(np.exp(rng.uniform(*np.log(b)))) for b in ((0.02, 0.6), (0.1, 3.0)))
    seconds, lengths = first_s + 1.01 * length_s + 0.002, (length_s, 1.001 * length_s)
    return measure(device, kind, seed, count=1, seconds=seconds, lengths=lengths, gain_known=True, first_s=first_s)


def _run(  # noqa: PLR0917  (all that takes part)
    sensor: Sensor,
    source: Source,
    clock: ManualClock,
    epoch_ns: int,
    chosen: Sequence[tuple[float, float]],
    rng: np.random.Generator,
    *,
    starved: bool,
) -> Iterator[tuple[Region, int, int]]:
    """Move the clock through all that happens; hand out each region at its end."""
    period_ns = round(source.traits.interval_s * 1e9)
    polls = np.arange(clock.now_ns() // period_ns + 1, (epoch_ns + max(b for _, b in chosen) * 1e9) // period_ns + 1)
    late = np.round(rng.exponential(2e5, len(polls))).astype(np.int64)
    if acquisition_of(sensor).demand.irregular(source.traits, source.traits.interval_s):  # read at random instants
        late = np.round(rng.uniform(0, period_ns, len(polls))).astype(np.int64)
    made = np.ones(len(polls), np.bool_)
    for after in polls[rng.random(len(polls)) < 0.03].tolist() if starved else ():
        made &= (polls <= after) | (polls >= after + rng.exponential(0.3) * 1e9 / period_ns)
    polled = any(c.energy_method is not EnergyMethod.COUNTER for c in acquisition_of(sensor).layout.energy)
    events = [(int(t), "poll", -1) for t in (polls.astype(np.int64) * period_ns + late)[made]] if polled else []
    regions = [Region(str(i), {sensor.target: sensor}) for i in range(len(chosen))]
    for i, (start, end) in enumerate(chosen):
        events += [(epoch_ns + round(start * 1e9), "enter", i), (epoch_ns + round(end * 1e9), "leave", i)]
    entered: dict[int, int] = {}
    for t_ns, what, i in sorted(events):
        clock.advance(max(0, t_ns - clock.now_ns()) / 1e9)
        if what == "poll":
            acquisition_of(sensor).step()  # as the poller does, which alone reads what is slow
        elif what == "enter":
            regions[i].__enter__()
            entered[i] = clock.now_ns()
        else:
            regions[i].__exit__(None, None, None)
            yield regions[i], entered[i], clock.now_ns()


def _trial(sensor: Sensor, measured: Measurement, name: str, true: float, rng: np.random.Generator) -> Trial:
    one = measured if name == "total" else measured.channels[name]
    for channel in (c for c in acquisition_of(sensor).layout.energy if c.name == name):
        true *= 1 + channel.gain_u * rng.standard_normal()
        true += channel.offset_u * rng.standard_normal() * one.seconds if is_power(channel) else 0.0
    warned = any("is virtual" not in w for w in one.warnings)
    return Trial(one.seconds, one.joules - true, one.uncertainty_joules, true, one.method, warned)
