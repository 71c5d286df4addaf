"""How far the times and the losses of a PowerSensor3's frames are off, against boards simulated frame by frame.

The simulator is a page of arrays: true instants of an even lattice on a crystal that drifts and wanders; stamps of 10
bits that jitter; frames that go missing singly, in bursts, in stalls, and by numbers that stamps cannot show; a line
that delivers in packets, late, and held back; a reader that is woken late, for a moment or for seconds. It shares no
code with the emulators. Prints, for each world, one line: errors in microseconds of the rows against the true middle
of what they measured, the frames counted as lost against those that were, and how often the stated uncertainty holds.

    python -m benchmarks.bench_board_clock [--frames 1000000] [--seeds 3] [WORLD...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.backends.powersensor3._board_clock import BoardClock

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
INTERVALS_US = {"F411": 50.0, "F401": 400 / 7, "F407": 88 / 3}
START_NS = 3_000_000_000_000


@dataclass(frozen=True)
class World:
    """What happens to frames; rates are events per second, durations are seconds."""

    variant: str = "F411"
    drift_ppm: float = 30.0
    wander_ppm: float = 0.0  # of a temperature that comes and goes within a minute
    jitter_us: float = 0.0  # standard deviation of a stamp
    glitches: float = 0.0  # single stamps that are off by up to 400 us
    singles: float = 0.0  # single frames lost
    bursts: float = 0.0  # 2 to 300 frames lost
    stalls: float = 0.0  # 0.02 to 2 s lost
    unseen: float = 0.0  # exact multiples of what 10 bits show
    packet_s: float = 0.001  # the line delivers what is ready this often
    least_delay_s: float = 75e-6
    holds: float = 0.0  # the line delivers nothing for 5 to 500 ms, then all at once
    look_s: float = 0.008  # the reader reads this often
    late_s: float = 50e-6  # mean of how late it is woken
    busy: float = 0.0  # spells of 0.2 to 3 s, in which it is late by 5 to 200 ms each time
    shifted: float = 0.0  # spells of 0.3 to 2 s, in which all arrivals are late by the same n * 25.6 ms
    turns_s: float = 0.07  # how often frames are decoded
    asleep: float = 0.0  # spells of 0.5 to 3 s in which nothing is decoded


EVERYTHING = World(
    drift_ppm=50, wander_ppm=5, jitter_us=1.2, glitches=2, singles=1, bursts=0.3, stalls=0.03, holds=0.3, late_s=100e-6,
    busy=0.1, asleep=0.03,
)  # fmt: skip
WORLDS = {
    "quiet": World(),
    "quiet F401": World("F401", -60),
    "quiet F407": World("F407", 90),
    "pseudo-terminal": World(packet_s=0.004, look_s=0.025, late_s=200e-6),
    "jitter 1.2 us": World(jitter_us=1.2, singles=1),
    "jitter 3 us": World(jitter_us=3.0, singles=1, bursts=0.2),
    "jitter 1.2 us F407": World("F407", jitter_us=1.2, singles=1),
    "jitter 2 us F401": World("F401", jitter_us=2.0, singles=1, bursts=0.2),
    "glitches": World(jitter_us=0.5, glitches=20, singles=1),
    "drops": World(singles=5, bursts=2),
    "stalls": World(singles=1, bursts=0.5, stalls=0.1),
    "unseen": World(unseen=0.05),
    "holds": World(holds=1),
    "holds and damage": World(holds=2, singles=5, bursts=1),
    "busy": World(busy=0.3),
    "busy and damage": World(busy=0.4, singles=5, bursts=1, packet_s=0.004, look_s=0.025),
    "busy and stalls": World(busy=0.2, singles=1, stalls=0.1),
    "loaded and stalls": World(late_s=0.008, singles=1, stalls=0.1),
    "loaded pseudo-terminal and stalls": World(packet_s=0.004, look_s=0.025, late_s=0.02, singles=0.3, stalls=0.1),
    "shifted": World(shifted=0.2),
    "shifted and damage": World(shifted=0.3, singles=3),
    "asleep": World(asleep=0.1, singles=1),
    "wander": World(drift_ppm=80, wander_ppm=10),
    # Bytes that are lost or wrong at 3e-3, singly and in bursts: a twentieth of the frames, and stamps that are none.
    "damaged": World(singles=1000, glitches=20, jitter_us=0.5),
    "damaged and busy": World(bursts=150, glitches=50, jitter_us=0.6, late_s=0.03, packet_s=0.004, look_s=0.025),
    "damaged F401": World("F401", singles=200, bursts=30, glitches=200, jitter_us=1.2),
    "all": EVERYTHING,
    "all F401": replace(EVERYTHING, variant="F401", drift_ppm=-50),
    "all F407": replace(EVERYTHING, variant="F407", jitter_us=0.8),
}


@dataclass(frozen=True)
class Run:
    """What was simulated: one entry per frame that was sent, one per piece that was read, one per turn of decoding."""

    frame: Ints
    true_ns: Floats
    stamps: npt.NDArray[np.uint16]
    ends: Ints
    arrivals: Ints
    turns: Ints  # pieces that have been read by each turn


def spells(rng: np.random.Generator, rate: float, span_s: float, shortest: float, longest: float) -> Floats:
    """Beginnings and ends of events, shape (n, 2), after the first 0.3 s."""
    begin = np.sort(rng.uniform(0.3, max(0.3, span_s), rng.poisson(rate * span_s)))
    lengths = np.exp(rng.uniform(np.log(shortest), np.log(longest), len(begin)))
    return np.column_stack([begin, begin + lengths])


def inside(times: npt.NDArray[np.floating], events: Floats) -> Ints:
    """Index of the event that holds each time; -1: none."""
    at = np.searchsorted(events[:, 0], times, side="right") - 1
    return (
        np.where((at >= 0) & (times < events[np.maximum(at, 0), 1]), at, -1) if len(events) else np.full(len(times), -1)
    )


def simulate(world: World, frames: int, seed: int) -> Run:
    """Simulate one board and its reader."""
    rng = np.random.default_rng(seed)
    interval_us = INTERVALS_US[world.variant]
    span_s = frames * interval_us * 1e-6
    number = np.arange(frames)
    board_s = number * interval_us * 1e-6
    host_s = board_s * (1 + world.drift_ppm * 1e-6)
    host_s += world.wander_ppm * 1e-6 * 10 * np.sin(2 * np.pi * board_s / 63)
    start_us = rng.uniform(0, 1024)
    off = np.floor(start_us + number * interval_us + world.jitter_us * rng.standard_normal(frames))
    hit = rng.random(frames) < world.glitches * interval_us * 1e-6
    off[hit] += rng.integers(-400, 400, hit.sum())
    stamps = (off % 1024).astype(np.uint16)
    gone = rng.random(frames) < world.singles * interval_us * 1e-6
    for events in (spells(rng, world.bursts, span_s, 2 * interval_us * 1e-6, 300 * interval_us * 1e-6),
                   spells(rng, world.stalls, span_s, 0.02, 2.0)):  # fmt: skip
        for a, b in np.searchsorted(board_s, events):
            gone[a:b] = True
    whole = {"F411": 512, "F401": 448, "F407": 384}[world.variant]
    for a in rng.integers(20_000, frames, rng.poisson(world.unseen * span_s)):
        gone[a : a + whole * int(rng.integers(1, 6))] = True
    gone[:200] = False
    kept = np.flatnonzero(~gone)
    true_s = host_s[kept]
    ready = true_s + world.least_delay_s
    ready = np.ceil(ready / world.packet_s) * world.packet_s if world.packet_s > interval_us * 1e-6 else ready
    holds = spells(rng, world.holds, span_s, 0.005, 0.5)
    held = inside(ready, holds)
    ready = np.where(held >= 0, holds[np.maximum(held, 0), 1] if len(holds) else 0, ready)
    ready = np.maximum.accumulate(ready)
    # The reader looks every millisecond at first, as the relay does.
    looks = np.concatenate([np.arange(0.0, 0.1, 0.001), np.arange(0.1, span_s + 1, world.look_s)])
    looks = looks + rng.exponential(world.late_s, len(looks))
    busy = spells(rng, world.busy, span_s, 0.2, 3.0)
    at = inside(looks, busy)
    looks = np.where(at >= 0, looks + np.exp(rng.uniform(np.log(0.005), np.log(0.2), len(looks))), looks)
    shifted = spells(rng, world.shifted, span_s, 0.3, 2.0)
    at = inside(looks, shifted)
    shift = rng.integers(1, 20, max(1, len(shifted))) * whole * interval_us * 1e-6
    looks = np.maximum.accumulate(looks)
    ends = np.searchsorted(ready, looks, side="right")
    arrive = np.where(at >= 0, looks + shift[np.maximum(at, 0)], looks)
    arrive = np.maximum.accumulate(arrive) + 3e-6
    some = np.diff(ends, prepend=0) > 0
    ends, arrive = ends[some], arrive[some]
    turn_s = np.concatenate([[0.035], np.arange(0.07, span_s + 3, world.turns_s)])
    asleep = spells(rng, world.asleep, span_s, 0.5, 3.0)
    turn_s = turn_s[inside(turn_s, asleep) < 0]
    turns = np.unique(np.searchsorted(arrive, turn_s, side="right"))
    to_ns = START_NS + rng.integers(0, 10**9)
    return Run(
        kept, true_s * 1e9 + to_ns, stamps[kept], ends, (arrive * 1e9).astype(np.int64) + to_ns, turns[turns > 0]
    )


@dataclass(frozen=True)
class Score:
    """What came out, errors in us."""

    rows: int
    median: float
    worst: float
    future: float  # furthest that a row was ahead of its arrival
    lost: int
    truly: int
    dropped: int
    held_95: float  # share of instants whose error is within twice the stated uncertainty
    worst_u: float  # largest error in stated uncertainties
    uncertain: float  # mean of the stated uncertainty
    seconds: float


def score(world: World, run: Run) -> Score:
    """Let the clock place the frames, and compare."""
    clock = BoardClock(INTERVALS_US[world.variant], 0.0)
    begun = time.process_time()
    error: list[Floats] = []
    future: list[Ints] = []
    us: list[Floats] = []
    lost = dropped = done = pieces = 0
    for turn in (*run.turns, len(run.ends)):
        if turn == pieces:
            continue
        first = run.ends[pieces - 1] if pieces else 0
        arrivals = list(zip((run.ends[pieces:turn] - first).tolist(), run.arrivals[pieces:turn].tolist(), strict=True))
        placed = clock.feed(run.stamps[first : run.ends[turn - 1]], arrivals, last=turn == len(run.ends))
        dropped += placed.dropped
        done += placed.dropped
        rows = slice(done, done + len(placed.t_ns))
        done += len(placed.t_ns)
        if len(placed.t_ns):
            error.append(placed.t_ns - run.true_ns[rows])
            by = run.arrivals[np.searchsorted(run.ends, np.arange(rows.start, rows.stop), side="right")]
            future.append(placed.t_ns - by)
            stated_ns = clock.error_ns(int(placed.t_ns[0]), int(placed.t_ns[-1]))
            us.append(np.full(len(placed.t_ns), stated_ns))
        lost += int(placed.lost.sum()) if placed.lost is not None else 0
        pieces = turn
    spent = time.process_time() - begun
    e, u = np.concatenate(error) / 1000, np.concatenate(us) / 1000
    ratio = np.abs(e) / u
    return Score(
        len(e), float(np.median(e)), float(e[np.argmax(np.abs(e))]), float(np.concatenate(future).max()) / 1000, lost,
        int(run.frame[-1] - run.frame[0] + 1 - len(run.frame)), dropped, float((ratio <= 2).mean()), float(ratio.max()),
        float(u.mean()), spent,
    )  # fmt: skip


def main() -> None:
    """Run the worlds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("world", nargs="*")
    args = parser.parse_args()
    print(f"{'world':<20} {'rows':>9} {'median':>7} {'worst us':>9} {'future':>8} {'lost':>8} {'truly':>8} "
          f"{'dropped':>7} {'2u holds':>8} {'worst/u':>8} {'mean u':>7} {'CPU s':>6}")  # fmt: skip
    for name, s in results(args.world, args.frames, args.seeds):
        print(f"{name:<20} {s.rows:>9} {s.median:>7.0f} {s.worst:>9.0f} {s.future:>8.0f} {s.lost:>8} {s.truly:>8} "
              f"{s.dropped:>7} {s.held_95:>8.2%} {s.worst_u:>8.1f} {s.uncertain:>7.0f} {s.seconds:>6.1f}")  # fmt: skip


def results(names: list[str], frames: int, seeds: int) -> Iterator[tuple[str, Score]]:
    """Score each world with each seed."""
    for name in names or WORLDS:
        for seed in range(seeds):
            yield name, score(WORLDS[name], simulate(replace(WORLDS[name]), frames, seed))


if __name__ == "__main__":
    main()
