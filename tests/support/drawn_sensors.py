"""Sensors, loads and polls drawn at random, with the truth beside them: what the estimators are judged by.

Shares no code with ``pmtpy.emulators`` or ``pmtpy.analysis``: a power is a list of steps, and what a sensor shows of it
is the sum of its steps' responses in closed form. Pure; times are seconds, powers watts.

What is drawn, and where it was seen: phases that wander by some ms in minutes, jump, or slide through a whole period
(published GPU recordings, arXiv 2312.02741); noise that lasts (boards that are off their line for as long as they do
one thing); polls at regular intervals near simple fractions of the period, irregular ones, and pollers that were
starved for up to a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

KERNELS = ("boxcar", "one-pole", "boxcar*one-pole", "two-pole", "triangular")
POLLS = ("near a fraction", "regular", "irregular", "starved")
LOADS = ("telegraph", "bursts", "square", "step", "slots in step", "square in step")
IN_STEP = (1.0 / 2.0, 2.0 / 3.0, 3.0 / 4.0, 5.0 / 6.0, 1.0, 6.0 / 5.0, 4.0 / 3.0, 3.0 / 2.0, 2.0)  # of the updates
PHASES = ("steady", "wandering", "jumping", "sliding")


@dataclass(frozen=True)
class Power:
    """Power that is constant between its steps: ``watts[0]`` before the first, ``watts[i + 1]`` after step ``i``."""

    steps_s: Array
    watts: Array

    def at(self, t_s: Array) -> Array:
        """Power at instants, watts."""
        return np.asarray(self.watts[np.searchsorted(self.steps_s, t_s, side="right")], np.float64)

    def joules(self, start_s: float, end_s: float) -> float:
        """Energy between two instants."""
        knots = np.clip(np.concatenate([[start_s], self.steps_s, [end_s]]), start_s, end_s)
        return float(np.sum(np.diff(knots) * self.watts))


@dataclass(frozen=True)
class Kernel:
    """A response of unit area: its family, width of the boxcar (or base of the triangle) and time constant."""

    family: str
    window_s: float = 0.0
    tau_s: float = 0.0

    @property
    def mean_age_s(self) -> float:
        """Mean age of what it shows, from its end."""
        return self.window_s / 2.0 + self.tau_s * (2.0 if self.family == "two-pole" else 1.0)

    @property
    def memory_s(self) -> float:
        """Age beyond which nothing is left."""
        return self.window_s + 40.0 * self.tau_s

    def step(self, t: Array) -> Array:
        """Response to a unit step at 0."""
        t = np.maximum(t, 0.0)
        w, tau = self.window_s, self.tau_s
        if self.family == "boxcar":
            return np.asarray(np.minimum(t / w, 1.0), np.float64)
        if self.family == "one-pole":
            return np.asarray(-np.expm1(-t / tau), np.float64)
        if self.family == "two-pole":
            return np.asarray(1.0 - (1.0 + t / tau) * np.exp(-t / tau), np.float64)
        if self.family == "triangular":
            x = np.minimum(t / w, 1.0)
            return np.asarray(np.where(x < 0.5, 2.0 * x * x, 1.0 - 2.0 * (1.0 - x) ** 2), np.float64)

        def ramp(x: Array) -> Array:
            return np.asarray(x + tau * np.expm1(-x / tau), np.float64)

        return np.asarray((ramp(t) - ramp(np.maximum(t - w, 0.0))) / w, np.float64)

    def seen(self, power: Power, at_s: Array) -> Array:
        """Show a power at instants."""
        out = np.full(len(at_s), float(power.watts[0]))
        jumps = np.diff(power.watts)
        for i in range(0, len(at_s), 500):
            t = at_s[i : i + 500]
            new = int(np.searchsorted(power.steps_s, t[-1], side="right"))
            old = int(np.searchsorted(power.steps_s, t[0] - self.memory_s))
            out[i : i + 500] = power.watts[old] + self.step(t[:, None] - power.steps_s[old:new]) @ jumps[old:new]
        return out


@dataclass(frozen=True)
class Sensor:
    """One channel of a card: its clock of publishing, kernel, scale and noise."""

    period_s: float
    kernel: Kernel
    phase_s: float = 0.0
    delay_s: float = 0.0
    gain: float = 1.0
    offset_w: float = 0.0
    noise_w: float = 0.3
    lasting_w: float = 0.0
    lasting_s: float = 1.0
    resolution_w: float = 0.01
    phase: str = "steady"
    wander_s: float = 0.0
    jump_s: float = 0.0
    jump_at_s: float = 0.0

    def updates(self, seconds: float, rng: np.random.Generator) -> Array:
        """Instants of the updates from a few seconds before 0 to a few after the end."""
        k = np.arange(math.floor(-3.0 / self.period_s), math.ceil((seconds + 3.0) / self.period_s))
        t = np.asarray(self.phase_s + k * self.period_s, np.float64)
        if self.phase == "wandering":
            return np.asarray(t + _lasting(t, self.wander_s, 12.0, rng), np.float64)
        if self.phase == "jumping":
            return np.asarray(t + self.jump_s * (t > self.jump_at_s), np.float64)
        if self.phase == "sliding":  # one whole period in a minute
            return np.asarray(t + self.period_s * np.clip((t - self.jump_at_s) / 60.0, 0.0, 1.0), np.float64)
        return np.asarray(t, np.float64)

    def readings(self, power: Power, updates_s: Array, rng: np.random.Generator) -> Array:
        """What is published at the updates."""
        shown = self.gain * self.kernel.seen(power, updates_s - self.delay_s) + self.offset_w
        shown += self.noise_w * rng.standard_normal(len(updates_s))
        shown += _lasting(updates_s, self.lasting_w, self.lasting_s, rng)
        return np.asarray(np.round(shown / self.resolution_w) * self.resolution_w, np.float64)


@dataclass(frozen=True)
class Polls:
    """How a program asks: ``interval_s`` with a scatter, stamps early by ``lead_s``, stalls, stamps cut off."""

    kind: str
    interval_s: float
    scatter_s: float = 0.0
    lead_s: float = 0.0
    stall_share: float = 0.0
    stall_s: float = 0.0
    stamp_s: float = 0.0

    def reads(self, seconds: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """Instants of the reads, and their stamps."""
        n = int(seconds / self.interval_s) + 1
        if self.kind == "irregular":
            steps = np.maximum(self.interval_s + self.scatter_s * rng.standard_normal(n), 0.1 * self.interval_s)
            t = np.cumsum(steps)
        else:  # on a schedule, late by a little
            t = self.interval_s * np.arange(n) + self.scatter_s * np.abs(rng.standard_normal(n))
        held = np.zeros(n, np.bool_)
        for i in np.flatnonzero(rng.random(n) < self.stall_share):
            held |= (t > t[i]) & (t < t[i] + self.stall_s * rng.exponential())
        t = np.sort(t[~held])
        t = t[t < seconds]
        stamps = t - self.lead_s
        if self.stamp_s:
            stamps = np.floor(stamps / self.stamp_s) * self.stamp_s
        return np.asarray(t, np.float64), np.asarray(stamps, np.float64)


@dataclass(frozen=True)
class Drawn:
    """One recording and its truth."""

    sensor: Sensor
    polls: Polls
    load: str
    power: Power
    seconds: float
    t_s: Array
    watts: Array
    updates_s: Array = field(repr=False)

    @property
    def edges_s(self) -> Array:
        """When the load was switched: on, off, on, ..."""
        return self.power.steps_s

    def meter(self, rng: np.random.Generator, *, rate: float = 0.0, shift_s: float = 0.0) -> tuple[Array, Array]:
        """Return a meter at 5 kHz whose clock is off."""
        t = np.arange(-0.5, self.seconds + 0.5, 2e-4)
        watts = self.power.at(t) + 0.5 * rng.standard_normal(len(t))
        middle = self.seconds / 2.0
        return np.asarray((t - middle) * (1.0 + rate) + middle + shift_s, np.float64), np.asarray(watts, np.float64)


def record(sensor: Sensor, power: Power, polls: Polls, seconds: float, *, seed: int, load: str = "") -> Drawn:
    """Poll a sensor."""
    rng = np.random.default_rng(seed)
    updates = sensor.updates(seconds, rng)
    order = np.argsort(updates, kind="stable")
    updates = updates[order]
    shown = sensor.readings(power, updates, rng)
    t, stamps = polls.reads(seconds, rng)
    return Drawn(sensor, polls, load, power, seconds, stamps, shown[np.searchsorted(updates, t) - 1], updates)


def draw_load(kind: str, period_s: float, seconds: float, rng: np.random.Generator) -> Power:
    """Draw a load between two levels."""
    low, high = rng.uniform(30.0, 80.0), rng.uniform(150.0, 320.0)
    first = rng.uniform(1.0, 1.5)
    if kind == "telegraph":
        steps = first + np.cumsum(period_s * rng.uniform(0.1, 0.6) + rng.exponential(0.5 * period_s, 20_000))
    elif kind == "bursts":
        dwell = rng.uniform(0.2, 1.5) * period_s
        starts = first + np.cumsum(rng.uniform(0.7, 2.5, 2000))
        steps = (starts[:, None] + dwell * np.arange(2 * int(rng.integers(2, 8)))).ravel()
        steps = np.sort(steps[: np.searchsorted(starts, seconds)])
    elif kind == "square":
        period = period_s * rng.uniform(0.4, 5.0)
        steps = np.asarray(first + period / 2.0 * np.arange(int(seconds / period) * 2 + 2), np.float64)
    elif kind == "slots in step":  # on or off at random, switched at a few phases of the updates only
        slot = period_s * rng.choice(IN_STEP)
        steps = first + slot * (1.0 + np.flatnonzero(np.diff(rng.integers(0, 2, int(seconds / slot)))))
    elif kind == "square in step":
        period = period_s * rng.choice(IN_STEP)
        steps = np.asarray(first + period / 2.0 * np.arange(int(seconds / period) * 2 + 2), np.float64)
    else:
        steps = np.array([first + 1.0, first + 1.0 + min(6.0, seconds / 2.0)])
    steps = np.asarray(steps[steps < seconds - 0.7], np.float64)
    steps = steps[: len(steps) // 2 * 2]
    return Power(steps, np.where(np.arange(len(steps) + 1) % 2, high, low))


def draw_polls(kind: str, period_s: float, rng: np.random.Generator) -> Polls:
    """Draw a way to poll a sensor of this period."""
    lead = rng.uniform(0.0, 0.2)
    if kind == "near a fraction":
        share = rng.choice([0.5, 0.6, 2.0 / 3.0, 0.25, 0.2, 1.0 / 3.0]) * (1.0 + rng.uniform(-0.06, 0.0))
        return Polls(kind, share * period_s, rng.choice([0.0005, 0.005]) * period_s, lead * share * period_s)
    share = rng.uniform(0.05, 0.45)
    if kind == "regular":
        return Polls(kind, share * period_s, 0.004 * period_s, lead * share * period_s, stamp_s=rng.choice([0.0, 1e-3]))
    if kind == "irregular":
        return Polls(kind, share * period_s, rng.uniform(0.05, 0.25) * share * period_s, lead * share * period_s)
    interval = share * period_s
    return Polls(kind, interval, 0.02 * interval, 0.0, rng.uniform(0.002, 0.02), rng.uniform(0.1, 0.6))


def draw_kernel(family: str, period_s: float, rng: np.random.Generator) -> Kernel:
    """Draw a kernel, from part-time ones to means over several periods."""
    window = period_s * float(np.exp(rng.uniform(math.log(0.2), math.log(4.0))))
    tau = period_s * float(np.exp(rng.uniform(math.log(0.1), math.log(3.0))))
    return {
        "boxcar": Kernel(family, window),
        "one-pole": Kernel(family, 0.0, tau),
        "boxcar*one-pole": Kernel(family, window, window * rng.uniform(0.3, 1.2)),
        "two-pole": Kernel(family, 0.0, tau / 2.0),
        "triangular": Kernel(family, 2.0 * window),
    }[family]


def draw(
    seed: int,
    *,
    polls: str | None = None,
    load: str | None = None,
    phase: str | None = None,
    family: str | None = None,
    seconds: float | None = None,
) -> Drawn:
    """Draw a recording; what is named is as named."""
    rng = np.random.default_rng(seed)
    period = float(np.exp(rng.uniform(math.log(0.015), math.log(0.2))))
    polls = polls or str(rng.choice(POLLS))
    load = load or str(rng.choice(LOADS[:3]))
    phase = phase or str(rng.choice(PHASES))
    family = family or str(rng.choice(KERNELS[:3]))
    seconds = seconds or max(float(rng.uniform(12.0, 60.0)), 150.0 * period)
    sensor = Sensor(
        period,
        draw_kernel(family, period, rng),
        rng.uniform(0.0, period),
        rng.uniform(-0.05, 0.05) * period,
        rng.uniform(0.85, 1.15),
        rng.uniform(-15.0, 5.0),
        rng.uniform(0.1, 1.0),
        rng.choice([0.0, 0.3, 1.0]),
        float(np.exp(rng.uniform(math.log(0.3), math.log(10.0)))),
        float(rng.choice([0.01, 0.1, 1.0])),
        phase,
        min(rng.uniform(0.0, 0.003), 0.2 * period),
        rng.uniform(0.15, 0.85) * period,
        rng.uniform(0.2, 0.8) * seconds,
    )
    if phase == "sliding":
        sensor = replace(sensor, jump_at_s=rng.uniform(-30.0, seconds / 2.0))
    return record(
        sensor, draw_load(load, period, seconds, rng), draw_polls(polls, period, rng), seconds, seed=seed, load=load
    )


def _lasting(t_s: Array, sd: float, memory_s: float, rng: np.random.Generator) -> Array:
    """Noise that fades from memory (Ornstein and Uhlenbeck), at increasing instants."""
    out = np.zeros(len(t_s))
    if sd == 0.0:
        return out
    kept = np.exp(-np.diff(t_s, prepend=t_s[0]) / memory_s)
    new = sd * np.sqrt(np.maximum(1.0 - kept * kept, 0.0)) * rng.standard_normal(len(t_s))
    new[0] = sd * rng.standard_normal()
    state = 0.0
    for i, (k, n) in enumerate(zip(kept, new, strict=True)):
        state = k * state + n
        out[i] = state
    return out
