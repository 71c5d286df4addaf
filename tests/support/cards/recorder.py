"""Recordings of imagined cards in the formats of the public ones: nvidia-smi log, load stamps, meter's ticks.

Shared by the tests of this folder and by ``benchmarks/bench_cards.py``. Independent of the emulators of the package, so
that a mistake there cannot hide one in the estimators. The classes of cards are those of the published profiles (Yang,
Adamek, Armour, arXiv 2312.02741), with the nuisances seen in the public recordings: clock ramp and boost, thermal
drift, kernels that end before the host knows, rows stamped before they are read, stalled polls, a wandering phase, a
meter with 12-bit codes and a clock of its own, a log in local time. Times are seconds since the recording's epoch.
"""

from __future__ import annotations

import datetime as dt
import gzip
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from pmtpy.core.rows import Floats

_DT = 1e-4  # grid of the power
_BEFORE = 3.0  # seconds of idle power before time 0
_TICKS_PER_MS = 2933.5
_VOLT, _AMPERE = 0.007568, 0.0488  # of one code of the meter
_HEAD = ["timestamp", "utilization.gpu [%]", "pstate", "temperature.gpu", "clocks.current.sm [MHz]"]


@dataclass(frozen=True)
class Card:
    """A card and the momentary channel of its sensor: kernel, gradient and intercept are the truth to be found."""

    name: str
    period_s: float
    window_s: float = 0.0
    tau_s: float = 0.0
    gain: float = 1.0
    offset_w: float = 0.0
    idle_w: float = 60.0
    busy_w: float = 230.0
    poll_s: float = 0.007
    ramp_s: float = 0.03  # of the clocks, after a pause
    step_w: float = 0.01
    fields: tuple[str, ...] = ("power.draw [W]",)

    @property
    def family(self) -> str:
        return "*".join(n for n, width in (("boxcar", self.window_s), ("one-pole", self.tau_s)) if width)

    @property
    def channel(self) -> str:
        """Name of the momentary channel."""
        return self.fields[-1].removesuffix(" [W]")

    @property
    def part_time(self) -> bool:
        return self.window_s + 2.0 * self.tau_s < 0.9 * self.period_s


_THREE = ("power.draw [W]", "power.draw.average [W]", "power.draw.instant [W]")
CARDS = (
    Card("A100", 0.10118, tau_s=0.0125, gain=0.954, offset_w=-1.2, busy_w=193.0, poll_s=0.013),
    Card("A100, boxcar", 0.1012, window_s=0.025, gain=0.96, offset_w=2.2, busy_w=240.0, poll_s=0.013),
    Card("H100", 0.1, tau_s=0.0112, gain=0.97, offset_w=3.0, busy_w=320.0, poll_s=0.009, fields=_THREE),
    Card("GH200", 0.1001, window_s=0.02, gain=1.02, offset_w=60.0, busy_w=500.0, poll_s=0.008, fields=_THREE),
    Card("V100", 0.02004, window_s=0.01, gain=0.98, offset_w=1.0, ramp_s=0.06),
    Card("V100, one-pole", 0.02004, tau_s=0.0052, gain=1.03, offset_w=-2.0, ramp_s=0.06, poll_s=0.0055),
    Card("P100", 0.0206, window_s=0.0103, gain=0.992, offset_w=0.9, idle_w=35.0, busy_w=170.0, poll_s=0.006),
    Card("M40", 0.0312, window_s=0.0141, gain=0.972, offset_w=1.3, busy_w=190.0),
    Card(
        "3090", 0.09997, window_s=0.1, gain=0.948, offset_w=1.4, idle_w=127.0, busy_w=340.0, ramp_s=0.2, fields=_THREE
    ),
    Card("4090", 0.10005, window_s=0.113, gain=1.045, offset_w=-21.9, busy_w=430.0, ramp_s=0.15, fields=_THREE),
    Card("A5000", 0.1, window_s=0.0993, gain=0.908, offset_w=6.3, idle_w=25.0, busy_w=225.0, ramp_s=0.15),
    Card("2080 Ti", 0.1013, window_s=0.1012, gain=0.966, offset_w=-5.7, busy_w=240.0, poll_s=0.008, ramp_s=0.18),
    Card("RTX 8000", 0.1001, window_s=0.0207, gain=0.97, offset_w=-2.0, idle_w=30.0, poll_s=0.008, ramp_s=0.15),
    Card("K20", 0.015, tau_s=0.84, gain=0.95, offset_w=2.0, idle_w=45.0, busy_w=110.0, poll_s=0.005),
    Card("K40", 0.01541, tau_s=0.0546, gain=1.024, offset_w=0.8, busy_w=97.0, poll_s=0.0055),
    Card("K80", 0.1005, tau_s=0.22, gain=0.964, offset_w=-6.3, busy_w=130.0, poll_s=0.009),
    Card("TITAN X", 0.1006, tau_s=0.155, gain=1.01, offset_w=1.3),
    Card("1080 Ti", 0.02002, tau_s=0.0055, gain=0.999, offset_w=-0.3, poll_s=0.006),
    Card("1080", 0.02, window_s=0.01, gain=1.064, offset_w=-5.4, idle_w=40.0, busy_w=160.0, poll_s=0.0055),
    Card("1 W steps", 0.1004, window_s=0.1, gain=0.97, offset_w=-2.0, busy_w=240.0, step_w=1.0, poll_s=0.008),
)


@dataclass(frozen=True)
class Recording:
    """Files of one recording, and its truth."""

    card: Card
    folder: Path
    edges_s: Floats  # the load's stamps: on, off, on, ...
    first_row_s: float
    t_s: Floats  # grid of the power, edges of its cells
    joules: Floats

    @property
    def log(self) -> str:
        return str(self.folder / "gpudata.csv.gz")

    @property
    def load(self) -> str:
        return str(self.folder / "timestamps.csv")

    @property
    def meter(self) -> str:
        return str(self.folder / "PMD_data.bin.gz")

    def energy(self, start_s: float, end_s: float) -> float:
        """Return the true energy between two instants."""
        ends = np.interp([start_s, end_s], self.t_s, self.joules)
        return float(ends[1] - ends[0])

    def between(self, start_s: float, end_s: float) -> str:
        """Return an interval as the command line has it: seconds since the first row."""
        return f"--between={start_s - self.first_row_s:.6f},{end_s - self.first_row_s:.6f}"


# --- loads: switching instants ---


def step_load(rng: np.random.Generator) -> Floats:
    """Return one block of nearly 6 s."""
    return np.array([1.0, 7.0 - rng.uniform(0.01, 0.06)])


def square_load(period_s: float, seconds: float) -> Floats:
    """Return a square wave of half duty."""
    on = 1.0 + period_s * np.arange(int(seconds / period_s))
    return np.stack([on, on + period_s / 2.0], axis=1).ravel()


def random_load(rng: np.random.Generator, seconds: float) -> Floats:
    """Return blocks and pauses of 12 to 90 ms."""
    edges = 1.0 + np.cumsum(rng.uniform(0.012, 0.09, 2 * int(seconds / 0.1)))
    return np.asarray(edges, np.float64)


# --- what happens on the card, and what its sensor and the meter make of it ---


def record(
    card: Card, edges_s: Floats, folder: Path, rng: np.random.Generator, *, zone_h: float = 5.5, meter: bool = True
) -> Recording:
    """Write the files of a recording.

    Parameters
    ----------
    edges_s : float64, shape (2 n,)
        When the load was switched on, off, on, ...
    zone_h : float
        How far the local time of the log is ahead of UTC, hours.
    """
    end = float(edges_s[-1]) + 1.5
    t, power = _power(card, edges_s, end, rng)
    folder.mkdir(parents=True, exist_ok=True)
    epoch = 1.69e9 + float(rng.uniform(0.0, 3e7))
    first = _write_log(card, folder, (t, power, end), (epoch, zone_h), rng)
    stamps = [f"{round((epoch + s) * 1e6)}\n" * 2 for s in (*edges_s, end - 0.2)]
    (folder / "timestamps.csv").write_text("timestamp\n" + "".join(stamps))
    if meter:
        _write_meter(folder, (t, power, end), epoch, rng)
    joules = np.concatenate([[0.0], np.cumsum(power) * _DT])
    return Recording(card, folder, edges_s, first, np.append(t, t[-1] + _DT), joules)


def _power(card: Card, edges_s: Floats, end: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    t = np.arange(-_BEFORE, end, _DT)
    power, swing = np.full(len(t), card.idle_w), card.busy_w - card.idle_w
    last_off = -math.inf
    for on, off in zip(edges_s[::2], edges_s[1::2], strict=True):
        long = off - on > 0.5
        # Blocks of a long kernel end unevenly: power falls 14 to 37 ms before the host knows; of a short one within 1.
        falls = off - (rng.uniform(0.014, 0.037) if long else rng.uniform(4e-4, 1e-3))
        i, j, k = np.searchsorted(t, [on + rng.uniform(1e-4, 4e-4), falls, off - 3e-4])
        since = t[i:j] - t[i]
        shape = 1.0 + 0.02 * (1.0 - np.exp(-since / 4.0))  # thermal drift
        if on - last_off > 0.5:
            after = np.maximum(since - card.ramp_s, 0.0)
            boost = np.where(since > card.ramp_s, 1.0 + 0.05 * np.exp(-after / 0.25), 1.0)
            shape *= boost * np.minimum(0.55 + 0.45 * since / max(card.ramp_s, _DT), 1.0)
        power[i:j] += swing * shape
        power[j:k] += swing * np.linspace(0.8, 0.1, k - j)
        if long:  # the clocks are held for a while
            tail = slice(k, int(np.searchsorted(t, off + rng.uniform(3.0, 6.0))))
            power[tail] += swing * (0.04 + 0.06 * np.exp(-(t[tail] - t[k]) / 2.5))
        last_off = float(off)
    coarse = np.arange(0, len(t), 7)
    power += np.interp(np.arange(len(t)), coarse, 1.2 * rng.standard_normal(len(coarse)))
    return t, np.maximum(power, 1.0)


def _filtered(t: Floats, power: Floats, window_s: float, tau_s: float) -> Floats:
    y = power
    if tau_s > 0.0:
        q = math.exp(-_DT / tau_s)
        y, _ = lfilter([1.0 - q], [1.0, -q], y, zi=[q * y[0]])
    if window_s > 0.0:
        edges = np.append(t, t[-1] + _DT)
        total = np.concatenate([[0.0], np.cumsum(y) * _DT])
        early = np.where(t - window_s < t[0], (t - window_s - t[0]) * y[0], np.interp(t - window_s, edges, total))
        y = (np.interp(t, edges, total) - early) / window_s
    return np.asarray(y, np.float64)


def _write_log(
    card: Card,
    folder: Path,
    happened: tuple[Floats, Floats, float],
    clock: tuple[float, float],
    rng: np.random.Generator,
) -> float:
    """Write what a poller logs; return when it stamped the first row."""
    t, power, end = happened
    epoch, zone_h = clock
    k = np.arange(math.ceil(t[0] / card.period_s) + 1, int(end / card.period_s) + 1)
    wander = 5e-4 * np.sin(2.0 * math.pi * k * card.period_s / rng.uniform(60.0, 140.0) + rng.uniform(0.0, 6.0))
    ticks = rng.uniform(0.0, card.period_s) + k * card.period_s + wander
    shown = {}
    for field in card.fields:
        averaged = len(card.fields) > 1 and field != card.fields[-1]
        kernel = (1.05, 0.0) if averaged else (card.window_s, card.tau_s)
        y = card.gain * np.interp(ticks, t, _filtered(t, power, *kernel)) + card.offset_w
        y += (0.03 if averaged else 0.15) * (card.step_w < 1.0) * rng.standard_normal(len(y))
        shown[field] = np.round(y / card.step_w) * card.step_w
    n = int((end + 0.3) / card.poll_s) + 1
    gaps = card.poll_s * (1.0 + 0.05 * rng.standard_normal(n) + rng.exponential(0.04, n))
    gaps += np.where(rng.random(n) < 0.004, rng.uniform(0.01, 0.05, n), 0.0)
    rows = -0.25 + np.cumsum(np.maximum(gaps, 0.002))
    rows = rows[rows < end - 0.05]
    lead = rng.uniform(0.002, 0.004)  # a row is stamped first and read then, field after field
    columns = [
        [f"{v:.2f}" for v in shown[field][np.searchsorted(ticks, rows + lead + 6e-4 * i, side="right") - 1]]
        for i, field in enumerate(card.fields)
    ]
    start = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=epoch + 3600.0 * zone_h)
    lines = [", ".join([*_HEAD, *card.fields])]
    for at, *powers in zip(rows, *columns, strict=True):
        stamp = (start + dt.timedelta(seconds=float(at))).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        lines.append(", ".join([stamp, "100", "P0", "54", "1410", *powers]))
    with gzip.open(folder / "gpudata.csv.gz", "wt", compresslevel=1) as file:
        file.write("\n".join(lines) + "\n")
    return math.floor((epoch + float(rows[0])) * 1e3) / 1e3 - epoch


def _write_meter(folder: Path, happened: tuple[Floats, Floats, float], epoch: float, rng: np.random.Generator) -> None:
    t, power, end = happened
    rate = _TICKS_PER_MS * 1e3 * (1.0 + rng.uniform(-2e-3, 2e-3))
    start = -rng.uniform(1.0, 1.04)
    steps = np.full(int((end + 0.6 - start) * rate / 602), 602)
    steps[716::716] = 1010  # a stretched gap every 147 ms
    ticks = np.concatenate([[0], np.cumsum(steps)])
    watts = np.interp(start + ticks / rate, t, power)
    words = np.zeros((len(ticks), 9), np.int64)
    words[:, 0] = (ticks + rng.integers(0, 2**16)) % 2**16
    for pair, share in enumerate((0.3, 0.3, 0.2, 0.2)):
        volts = np.rint((12.15 - 6e-4 * share * watts) / _VOLT + rng.standard_normal(len(ticks)))
        amperes = np.rint(share * watts / (volts * _VOLT) / _AMPERE + rng.standard_normal(len(ticks)))
        words[:, 1 + 2 * pair], words[:, 2 + 2 * pair] = volts * 16, np.mod(amperes, 4096) * 16
    with gzip.open(folder / "PMD_data.bin.gz", "wb", compresslevel=1) as file:
        file.write(words.astype("<u2").tobytes())
    (folder / "PMD_start_ts.txt").write_text(f"{round((epoch + start + 0.05 + rng.uniform(-8e-4, 8e-4)) * 1e6)}")
