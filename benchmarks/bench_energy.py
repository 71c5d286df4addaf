"""How far corrected energies can be trusted: simulated sensors and loads that share no code with the emulators.

For each class (sensor, load, with and without the load's stamps): how many 95 % intervals hold the truth, how many of
the wider ones for a load in step (``aliased``) do, root mean square error and median half-width in percent, and the
median of |error| over half-width (0.34 of normal errors where an interval is as wide as it must be), and its 95 %
quantile, by which intervals could be multiplied and still hold 19 of 20. Arguments: how many regions of each class,
then sensors and loads with commas between them, all if left out, then the uncertainty of the sensor's gain: that of
most hides what the rest of an interval is worth where stamps are known.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from pmtpy.analysis import region_energy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats

SENSORS = {  # period, window, time constant
    "full": (0.1, 0.1, 0.0),
    "quarter": (0.1, 0.025, 0.0),
    "eighth-pole": (0.1, 0.0, 0.0125),
    "half": (0.02, 0.01, 0.0),
    "slow-pole": (0.0154, 0.0, 0.0546),
    "slower-pole": (0.1, 0.0, 0.25),
    "wide": (0.1, 1.0, 0.0),
}
WORK = ("levels", "ramps", "warm", "beside", "two")  # blocks and rests of 0.05 to 1.5 s, each as `blocks` says
LOADS = ("rare", "random", "fast", "bursts", "step", "stairs", "around", "trains", "far", "near", "at", *WORK)
LASTS_S = 40.0
GAIN_U = 0.002


@dataclass(frozen=True)
class World:
    """A power that is constant between ``edges_s``, and when the load was on."""

    edges_s: Floats
    watts: Floats
    on_s: Floats
    off_s: Floats

    def at(self, at_s: Floats) -> Floats:
        """Power at instants."""
        return np.asarray(self.watts[np.searchsorted(self.edges_s, at_s, side="right") - 1], np.float64)

    def joules(self, at_s: Floats) -> Floats:
        """Energy since the first edge."""
        return np.asarray(
            np.interp(at_s, self.edges_s, np.append(0.0, np.cumsum(self.watts * np.diff(self.edges_s)))), np.float64
        )

    def shown(self, at_s: Floats, window_s: float, tau_s: float) -> Floats:
        """Mean over a window, or the output of a one-pole."""
        if not tau_s:
            return np.asarray((self.joules(at_s) - self.joules(at_s - window_s)) / window_s, np.float64)
        held = [float(self.watts[0])]
        for watts, length in zip(self.watts, np.diff(self.edges_s), strict=True):
            held.append(watts + (held[-1] - watts) * float(np.exp(-length / tau_s)))
        cell = np.clip(np.searchsorted(self.edges_s, at_s, side="right") - 1, 0, len(self.watts) - 1)
        left = np.exp(-(at_s - self.edges_s[cell]) / tau_s)
        return np.asarray(self.watts[cell] + (np.array(held)[cell] - self.watts[cell]) * left, np.float64)


def switched(on_s: Floats, off_s: Floats, low: float, high: float) -> World:
    """Return a world of two levels."""
    edges = np.concatenate([[0.0], np.stack([on_s, off_s], axis=1).ravel(), [LASTS_S + 60.0]])
    return World(edges, np.append(low, np.tile([high, low], len(on_s))), on_s, off_s)


def divided(*edges_s: Floats) -> tuple[Floats, Floats]:
    """Return all of these edges in order, and the middle between each two."""
    fine = np.unique(np.concatenate(edges_s))
    return fine, (fine[1:] + fine[:-1]) / 2.0


def blocks(load: str, rng: np.random.Generator, low: float, high: float) -> World:
    """Draw a world of blocks that are not one of two levels each."""
    edges = 1.0 + np.cumsum(np.exp(rng.uniform(np.log(0.05), np.log(1.5), int(20.0 * LASTS_S))))
    edges = edges[: 2 * int(np.searchsorted(edges[1::2], LASTS_S))]
    plain, many = switched(edges[::2], edges[1::2], low, high), len(edges) // 2
    swing = high - low
    if load == "levels":  # a block ends at another level than it rose from
        plain.watts[2::2] += swing * rng.uniform(0.0, 0.5, many)
        return plain
    if load == "two":  # two kinds of work in turn
        plain.watts[3::4] = low + swing * rng.uniform(0.2, 0.8)
        return plain
    if load == "ramps":  # power climbs once a block begins, and falls behind it
        rise, fall = np.exp(rng.uniform(np.log(0.005), np.log(0.3), 2))
        at, share = [0.0], [0.0]
        for i, (begins, lasts) in enumerate(zip(edges, np.diff(edges, append=LASTS_S + 60.0), strict=True)):
            by_s, to = (fall, 0.0) if i % 2 else (rise, 1.0)
            takes = min(abs(to - share[-1]) * by_s, lasts)
            at += [begins, begins + takes]
            share += [share[-1], share[-1] + np.sign(to - share[-1]) * takes / by_s]
        fine, middle = divided(np.linspace(at[:-1], at[1:], 24).ravel(), plain.edges_s)
        return World(fine, low + swing * np.interp(middle, at, share), edges[::2], edges[1::2])
    if load == "warm":  # from the first block on, and the rests with it
        fine, middle = divided(plain.edges_s, np.arange(0.0, LASTS_S + 60.0, 0.05))
        warm = rng.uniform(0.02, 0.06) * -np.expm1(-np.maximum(middle - edges[0], 0.0) / rng.uniform(2.0, 10.0))
        return World(fine, plain.at(middle) * (1.0 + warm), edges[::2], edges[1::2])
    beside = np.cumsum(rng.exponential(rng.uniform(0.1, 1.0), int(20.0 * LASTS_S)))  # work that nobody stamps
    beside = beside[: 2 * int(np.searchsorted(beside[1::2], LASTS_S))]
    other = switched(beside[::2], beside[1::2], 0.0, swing * rng.uniform(0.1, 0.6))
    fine, middle = divided(plain.edges_s, other.edges_s)
    return World(fine, plain.at(middle) + other.at(middle), edges[::2], edges[1::2])


def drawn(load: str, rng: np.random.Generator, period_s: float) -> World:
    """Draw a world."""
    low = float(rng.uniform(20.0, 80.0))
    high = low + float(rng.uniform(60.0, 250.0))
    if load in WORK:
        return blocks(load, rng, low, high)
    if load in {"step", "around"}:  # a block that is the region; or that this reaches beyond, or begins or ends with
        on = np.array([rng.uniform(10.0, 20.0)])
        return switched(on, on + (1.0 if load == "step" else period_s) * rng.choice([0.1, 0.3, 1.0, 3.0]), low, high)
    if load == "stairs":  # work that rises and falls in steps; regions begin with it, and end anywhere in it
        steps, begins = int(rng.integers(2, 5)), float(rng.uniform(10.0, 20.0))
        edges = begins + np.cumsum(np.append(0.0, np.exp(rng.uniform(np.log(0.05), np.log(3.0), steps))))
        watts = low + (high - low) * rng.uniform(0.3, 1.0, steps)
        return World(
            np.concatenate([[0.0], edges, [LASTS_S + 60.0]]),
            np.concatenate([[low], watts, [low]]),
            edges[:1],
            edges[-1:],
        )
    if load in {"far", "near", "at"}:
        ratio = float(rng.choice([0.37, 0.71, 1.37, 2.41, 3.7] if load == "far" else [0.5, 1.0, 2.0]))
        ratio *= 1.0 + (rng.uniform(0.01, 0.04) * rng.choice([-1.0, 1.0]) if load == "near" else 0.0)
        length = ratio * period_s
        on = np.arange(rng.uniform(0.0, length), LASTS_S, length)
        on = on + np.minimum(0.02 * length, 3e-4) * rng.standard_normal(len(on)).clip(-3.0, 3.0)
        return switched(np.abs(on), on + rng.uniform(0.3, 0.7) * length, low, high)
    if load == "trains":  # of bursts shorter than a period; regions begin and end with one of them
        at = np.arange(1.0, LASTS_S, 12.0 * period_s)[:, None]
        on = (at + np.cumsum(period_s * rng.uniform(0.3, 1.0, (len(at), 6)), axis=1)).ravel()
        return switched(on, on + period_s * rng.uniform(0.1, 0.28, len(on)), low, high)
    mean = {"rare": (0.5, 3.0), "random": (0.1, 0.4), "fast": (0.01, 0.05), "bursts": (0.3, 1.5)}[load]
    rest = float(rng.uniform(*mean))
    work = float(rng.uniform(0.03, 0.3)) if load == "bursts" else rest
    many = int(2.0 * LASTS_S / (rest + work)) + 20
    edges = np.cumsum(np.stack([rng.exponential(rest, many), rng.exponential(work, many)], axis=1).ravel() + 1e-4)
    edges = edges[: 2 * int(np.searchsorted(edges[1::2], LASTS_S))]
    return switched(edges[::2], edges[1::2], low, high)


def trial(
    sensor: str, load: str, seed: int, *, stamped: bool, gain_u: float = GAIN_U
) -> tuple[float, float, bool, bool]:
    """Return relative error and half-width, and which of the two intervals holds the truth."""
    rng = np.random.default_rng(seed)
    period, window, tau = SENSORS[sensor]
    world = drawn(load, rng, period)
    start = float(world.on_s[0]) if load == "step" else float(rng.uniform(8.0, 25.0))
    end = float(world.off_s[0]) if load == "step" else start + float(np.exp(rng.uniform(np.log(0.3), np.log(6.0))))
    if load == "stairs":
        start = float(world.on_s[0])
        end = start + float(rng.uniform(0.2, 1.0)) * float(world.off_s[0] - start)
    if load == "around":
        lead, tail = period * rng.choice([0.0, 0.5, 3.0], 2)
        start, end = float(world.on_s[0] - lead), float(world.off_s[0] + tail)
    if load in WORK and rng.uniform() < 0.5:  # a region is some blocks, or it is cut anywhere
        first = int(rng.integers(np.searchsorted(world.on_s, 8.0), np.searchsorted(world.on_s, 25.0)))
        start, end = float(world.on_s[first]), float(world.off_s[first + int(rng.integers(0, 5))])
    if load == "trains":
        first = int(rng.integers(np.searchsorted(world.on_s, 8.0), np.searchsorted(world.on_s, 25.0)))
        start, end = float(world.on_s[first]), float(world.off_s[first + int(rng.integers(0, 12))])
    delay, noise = float(rng.uniform(-0.003, 0.003)), float(rng.uniform(0.1, 0.5))
    t = np.arange(4.0 + rng.uniform(0.0, period), 36.0, period)
    watts = world.shown(t - delay, window, tau) + noise * rng.standard_normal(len(t))
    watts = np.round(watts / 0.1) * 0.1 * (1.0 + gain_u * rng.standard_normal())
    response = Response(period, window, tau, delay, gain_u=gain_u, lag_u=2e-4, noise_w=noise, step_w=0.1)
    stamps = None
    if stamped:  # which enclose the work
        off = world.off_s + rng.uniform(2e-4, 8e-4, len(world.off_s))
        on = np.append(world.on_s[:1], np.maximum(world.on_s[1:] - rng.uniform(0.0, 3e-4), off[:-1]))
        stamps = LoadIntervals(on, np.maximum(off, on))
    true = float(np.diff(world.joules(np.array([start, end])))[0])
    found = region_energy(t, watts, response, start_s=start, end_s=end, load=stamps)
    half = (found.high - found.low) / 2.0
    wide = found.aliased[0] <= true <= found.aliased[1]
    return (found.joules - true) / true, half / true, found.low <= true <= found.high, wide


def main() -> None:
    """Print the table."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    sensors = sys.argv[2].split(",") if len(sys.argv) > 2 else list(SENSORS)
    loads = sys.argv[3].split(",") if len(sys.argv) > 3 else list(LOADS)
    gain_u = float(sys.argv[4]) if len(sys.argv) > 4 else GAIN_U
    print("sensor       load    stamps  hold %  aliased %  rms %  half-width %  |error|/half-width  needed")
    for sensor in sensors:
        for load in loads:
            for stamped in (False, True):
                rows = np.array([trial(sensor, load, seed, stamped=stamped, gain_u=gain_u) for seed in range(trials)])
                off, half, held, wide = rows.T
                print(
                    f"{sensor:12} {load:7} {'yes' if stamped else 'no':6} {100 * held.mean():7.1f} "
                    f"{100 * wide.mean():9.1f} {100 * np.sqrt(np.mean(off**2)):7.2f} {100 * np.median(half):10.2f} "
                    f"{np.median(np.abs(off) / half):18.2f} {np.quantile(np.abs(off) / half, 0.95):7.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
