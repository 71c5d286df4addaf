"""What a built-in power sensor shows of a load: filtered, scaled, published on its own clock, polled late.

Shared by the virtual devices and by the tests of every estimator and correction. Everything is a pure function of
its arguments: the same tick always shows the same value, whoever asks and in whatever order, so a virtual device
needs no state. Nothing here looks at a clock. The model and its nuisances are those found in public recordings
(Yang, Adamek, Armour, arXiv 2312.02741, and the analysis of their data that docs/corrections.md describes):

    y_k = gain * (h * P)(u_k - delay) + offset + noise        u_k = phase + k * update + wander(k)

with ``h`` a boxcar, a one-pole filter, or one after the other. Times are seconds on the load's clock.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from pmtpy.core.arguments import number
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats, Ints
from pmtpy.emulators.load import Load
from pmtpy.errors import TargetError

# Nodes of the one-pole's integral, in time constants into the past: dense where the weight is, 12 * 3 constants deep
# (the rest weighs exp(-36)). A step of the load inside a cell of width x is misplaced by at most x^2 / 8 of its
# height: 2e-5 here, below the 0.01 W that a driver shows of a step of 500 W.
_NODES = -3.0 * np.log1p(-np.linspace(0.0, 1.0 - math.exp(-12.0), 257))
# Weights of exp(-x) against a function that is linear between the nodes (exact product integration), plus the rest.
_DROP = np.exp(-_NODES)
_CELL = (_DROP[:-1] - _DROP[1:]) / np.diff(_NODES)
_WEIGHTS = np.concatenate([_DROP[:-1] - _CELL, [0.0]]) + np.concatenate([[0.0], _CELL - _DROP[1:]])
_WEIGHTS[-1] += _DROP[-1]

_CHUNK = 4096  # ticks per batch of the one-pole's integral: 8 MiB
# Slow, incommensurate periods of the phase's wander, in seconds: minutes, as seen on GA100 and GA102 boards.
_WANDER_PERIODS_S = (41.0, 67.0, 113.0)


def _uniform(seed: int, index: Ints, stream: int) -> Floats:
    """Draw one number in (0, 1) for each index, the same for the same arguments (the splitmix64 finaliser)."""
    with np.errstate(over="ignore"):
        z = np.asarray(index, np.int64).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64((seed * 0xD1B54A32D192ED03 + stream * 0x8CB92BA72F3D8DD7) & (2**64 - 1))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.asarray(((z >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53, np.float64)


def _normal(seed: int, index: Ints, stream: int) -> Floats:
    """Draw one standard normal number for each index (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(_uniform(seed, index, stream)))
    return np.asarray(radius * np.cos(2.0 * math.pi * _uniform(seed, index, stream + 1)), np.float64)


# Between which the numbers of a sensor lie: seconds, watts and joules; a millionth stands for more than nothing.
_ABOVE_ZERO, _LARGEST_NUMBER = 1e-6, 1e6
_BOUNDS: Mapping[str, tuple[float, float]] = types.MappingProxyType(
    dict.fromkeys(("update_s", "counter_update_s", "gain"), (_ABOVE_ZERO, _LARGEST_NUMBER))
    | dict.fromkeys(("window_s", "tau_s", "noise_w", "step_w", "counter_step_j"), (0.0, _LARGEST_NUMBER))
    | dict.fromkeys(("phase_s", "delay_s", "offset_w"), (-_LARGEST_NUMBER, _LARGEST_NUMBER))
    | {"limit_w": (0.0, math.inf)}
)


@dataclass(frozen=True, slots=True)
class SensorModel:
    """One channel of a sensor, and the energy counter beside it."""

    # period of the publishing clock, the instant of tick 0, and how far the phase wanders either way in minutes
    update_s: float = 0.1
    phase_s: float = 0.0
    wander_s: float = 0.0
    # Width of the boxcar and time constant of the one-pole; 0: none. Both 0: the momentary power.
    window_s: float = 0.1
    tau_s: float = 0.0
    delay_s: float = 0.0  # age of the kernel's end at the tick; negative where the tick's stamp is early
    # steady-state gradient and intercept
    gain: float = 1.0
    offset_w: float = 0.0
    # standard deviation of one reading before rounding, and the step it is rounded to (0: not rounded)
    noise_w: float = 0.0
    step_w: float = 0.0
    limit_w: float = math.inf  # Readings above it are shown as it. Below zero they are shown as zero.
    # period at which the energy counter moves (its own clock, same phase), and its resolution
    counter_update_s: float = 0.1
    counter_step_j: float = 0.001
    seed: int = 1  # seed of the noise and of the wander

    def __post_init__(self) -> None:
        """Refuse a sensor that cannot be: no period, a negative width, no number, a phase that overtakes itself."""
        for name, (least, most) in _BOUNDS.items():
            what = f"a virtual sensor's {name}, a number from {least:g} to {most:g}"
            number(getattr(self, name), what, least=least, most=most)
        if not 0 <= self.wander_s < self.update_s:
            msg = f"the phase of a sensor cannot wander by {self.wander_s} s when it updates every {self.update_s} s"
            raise TargetError(msg)

    @property
    def response(self) -> Response:
        """How it follows time, as a fit or a profile would have it."""
        return Response(
            self.update_s,
            self.window_s,
            self.tau_s,
            self.delay_s,
            self.gain,
            self.offset_w,
            noise_w=self.noise_w,
            step_w=self.step_w,
        )

    def averaged(self, window_s: float = 1.0) -> SensorModel:
        """Return the running mean beside this channel (NVML's field 185): same clock and gain, noise averaged too."""
        inside = max(1.0, window_s / self.update_s)
        noise = self.noise_w / math.sqrt(inside)
        return replace(self, window_s=window_s, tau_s=0.0, noise_w=noise, seed=self.seed + 1)

    # --- the publishing clock ---

    def tick_times(self, k: npt.ArrayLike) -> Floats:
        """Instants of the ticks ``k`` (integers), in seconds."""
        tick = np.asarray(k, np.float64)
        nominal = self.phase_s + tick * self.update_s
        if self.wander_s == 0.0:
            return np.asarray(nominal, np.float64)
        turn = 2.0 * math.pi * _uniform(self.seed, np.arange(len(_WANDER_PERIODS_S)), 10)
        waves = sum(np.sin(2.0 * math.pi * nominal / p + a) for p, a in zip(_WANDER_PERIODS_S, turn, strict=True))
        return np.asarray(nominal + self.wander_s * waves / len(_WANDER_PERIODS_S), np.float64)

    def last_tick(self, t_s: npt.ArrayLike) -> Ints:
        """Return the number of the newest tick at or before each instant."""
        t = np.asarray(t_s, np.float64)
        k = np.floor((t - self.phase_s + self.wander_s) / self.update_s).astype(np.int64)
        for _ in range(2):  # the wander is less than a period, so the guess is at most two too high
            k = k - (self.tick_times(k) > t)
        return np.asarray(k, np.int64)

    # --- what is published ---

    def filtered(self, load: Load, t_s: npt.ArrayLike) -> Floats:
        """Response of the kernel to the load at instants ``t_s``, before gain, in watts."""
        t = np.asarray(t_s, np.float64) - self.delay_s
        if self.tau_s == 0.0:
            if self.window_s == 0.0:
                return load.watts(t)
            return np.asarray((load.joules(t) - load.joules(t - self.window_s)) / self.window_s, np.float64)
        if self.window_s == 0.0:
            return np.asarray((load.joules(t) - self._smoothed(load, t)) / self.tau_s, np.float64)
        return np.asarray((self._smoothed(load, t) - self._smoothed(load, t - self.window_s)) / self.window_s)

    def _smoothed(self, load: Load, t: Floats) -> Floats:
        """Energy seen through the one-pole: integral of ``exp(-x) J(t - tau x)`` over x."""
        flat = np.atleast_1d(t).ravel()
        out = np.empty(len(flat))
        for i in range(0, len(flat), _CHUNK):
            part = flat[i : i + _CHUNK, None]
            now = load.joules(part)
            out[i : i + _CHUNK] = now[:, 0] + (load.joules(part - self.tau_s * _NODES) - now) @ _WEIGHTS
        return out.reshape(np.shape(t))

    def tick_readings(self, load: Load, k: npt.ArrayLike) -> Floats:
        """Watts that the ticks ``k`` publish: filtered, scaled, noisy, clipped, rounded."""
        tick = np.asarray(k, np.int64)
        watts = self.gain * self.filtered(load, self.tick_times(tick)) + self.offset_w
        if self.noise_w > 0:
            watts = watts + self.noise_w * _normal(self.seed, tick, 20)
        watts = np.clip(watts, 0.0, self.limit_w)
        if self.step_w > 0:
            watts = np.round(watts / self.step_w) * self.step_w
        return np.asarray(watts, np.float64)

    def readings(self, load: Load, t_s: npt.ArrayLike) -> Floats:
        """Watts that the register shows at instants ``t_s``: the newest tick's."""
        tick, inverse = np.unique(self.last_tick(t_s), return_inverse=True)
        return np.asarray(self.tick_readings(load, tick)[inverse].reshape(np.shape(t_s)), np.float64)

    def counter(self, load: Load, t_s: npt.ArrayLike) -> Floats:
        """Joules that the energy counter shows at instants ``t_s``; 0 at the load's epoch.

        It integrates the load with the channel's gain and offset, moves every ``counter_update_s`` and is cut off to
        its resolution. How often it moves is no evidence of how finely it samples, so its kernel is a matter of
        ``delay_s`` alone.
        """
        clock = replace(self, update_s=self.counter_update_s, wander_s=0.0)
        t = clock.tick_times(clock.last_tick(t_s)) - self.delay_s
        joules = self.gain * load.joules(t) + self.offset_w * t
        if self.counter_step_j > 0:
            joules = np.floor(joules / self.counter_step_j) * self.counter_step_j
        return np.asarray(joules, np.float64)

    def record(
        self, load: Load, seconds: float, polling: Polling | None = None, *, start_s: float = 0.0, seed: int = 1
    ) -> tuple[Ints, Floats]:
        """Poll the register for ``seconds`` as a logging program does.

        Returns
        -------
        t_ns : int64, shape (n,)
            The stamps as logged: in order unless ``polling`` says otherwise.
        watts : float64, shape (n,)
            What was read.
        """
        read_s, stamp_s = (polling or Polling()).instants(seconds, start_s=start_s, seed=seed)
        return np.round(stamp_s * 1e9).astype(np.int64), self.readings(load, read_s)


@dataclass(frozen=True, slots=True)
class Polling:
    """How a program asks a register and stamps the answers."""

    # mean time between polls and its standard deviation
    interval_s: float = 0.007
    jitter_s: float = 0.0007
    # share of polls that are held up, and the mean of how long (exponential)
    stall_share: float = 0.0
    stall_s: float = 0.03
    # the stamp is earlier than the read by this much, with this standard deviation
    lead_s: float = 0.0
    lead_jitter_s: float = 0.0
    stamp_step_s: float = 0.0  # resolution of the stamps (0: full)
    rate: float = 1.0  # seconds of the stamping clock in one second of the load: 1.001 runs fast by 0.1 %
    shift_s: float = 0.0  # the stamping clock's reading at the load's epoch
    # share of rows whose stamp repeats the one before, or lies behind it
    repeat_share: float = 0.0
    backward_share: float = 0.0

    def instants(self, seconds: float, *, start_s: float = 0.0, seed: int = 1) -> tuple[Floats, Floats]:
        """Return when each poll reads, on the load's clock, and what it is stamped with, both in seconds."""
        rng = np.random.default_rng(seed)
        n = max(1, math.ceil(1.5 * seconds / self.interval_s) + 10)
        gaps = np.maximum(self.interval_s + self.jitter_s * rng.standard_normal(n), 0.1 * self.interval_s)
        gaps += (rng.random(n) < self.stall_share) * rng.exponential(self.stall_s, n)
        read = start_s + np.cumsum(gaps) - gaps[0] * rng.random()
        read = read[read < start_s + seconds]
        lead = self.lead_s + self.lead_jitter_s * rng.standard_normal(len(read))
        stamp = self.shift_s + self.rate * (read - lead)
        stamp = np.maximum.accumulate(stamp) if len(stamp) else stamp
        if self.stamp_step_s > 0:
            stamp = np.floor(stamp / self.stamp_step_s) * self.stamp_step_s
        repeat, back = rng.random(len(read)) < self.repeat_share, rng.random(len(read)) < self.backward_share
        repeat[:1] = back[:1] = False
        rows = np.arange(len(read))
        stamp = np.where(back, stamp[rows - 1] - self.interval_s / 2, np.where(repeat, stamp[rows - 1], stamp))
        return read, stamp


# Boards whose sensors were measured: update, kernel and gradient from docs/corrections.md, noise and step as logged.
_MODELS: dict[str, SensorModel] = {
    "ideal": SensorModel(update_s=0.02, window_s=0.02),
    "rtx3090": SensorModel(update_s=0.09997, window_s=0.0999, gain=0.948, offset_w=1.4, noise_w=0.3, step_w=0.01),
    "rtx4090": SensorModel(update_s=0.1, window_s=0.1, gain=1.045, offset_w=-21.9, noise_w=0.5, step_w=0.01),
    "a100": SensorModel(
        update_s=0.1012, window_s=0.0, tau_s=0.0125, gain=0.954, offset_w=-1.2, noise_w=0.3, step_w=0.01
    ),
    "h100": SensorModel(update_s=0.1, window_s=0.0, tau_s=0.0125, noise_w=0.3, step_w=0.001),
    "v100": SensorModel(update_s=0.02004, window_s=0.01, noise_w=0.3, step_w=0.001, counter_update_s=0.02),
    "k40m": SensorModel(
        update_s=0.015413, window_s=0.0, tau_s=0.0546, gain=1.024, offset_w=0.8, noise_w=0.15, step_w=0.01
    ),
}


def parse_sensor_model(spec: str) -> SensorModel:
    """Make a model from its text: ``NAME``, ``NAME:key=value,...`` or ``key=value,...`` over the defaults.

    Raises TargetError: unknown name or field, or a value that is not a number. The message lists what there is.
    """
    name, colon, rest = spec.partition(":")
    if not colon and "=" in spec:
        name, rest = "", spec
    known = {f.name for f in fields(SensorModel)}
    changes: dict[str, float] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        try:
            changes[key] = float(value)
        except ValueError:
            changes[""] = 0.0
    if (name and name not in _MODELS) or changes.keys() - known:
        msg = (
            f"no sensor model {spec!r}; write one of {', '.join(_MODELS)}, and after a colon any of "
            f"{', '.join(sorted(known))} as key=number"
        )
        raise TargetError(msg)
    seed = int(changes.pop("seed", _MODELS[name].seed if name else 1))
    return replace(_MODELS[name] if name else SensorModel(), seed=seed, **changes)
