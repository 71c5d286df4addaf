"""Whether ``pmt.bench`` keeps what it promises, on simulated sensors whose truth is known, in simulated time.

    python benchmarks/bench_repetition.py [benchmarks per row [world ...]]

Three sensors (full window, 25 ms of each 100 ms, a low-pass), five worlds (noise; a drift of 5 % over 100 s; one burst
in fifty 8 % off; a gain drawn with 5 %; a power that wanders by 1.5 % and forgets in 20 s where it was), work of 26 to
330 ms. Prints one JSON document, and each row on stderr as soon as it is known. For each row, in percent:

``held``          intervals of the energy of one work that hold the truth, by repeatability alone (with the gain's
                  share in the world ``gain``); demand: 90 to 99
``held diff``     intervals of the difference that hold it; the same demand
``found``         benchmarks of a work that uses 1 % more, wanted to 1 %, that are called more; demand: 80
``false``         benchmarks of the same work twice that are called less or more; demand: at most 5
``error``         median and 95th percentile of the error of one work
``naive``         the same of a single run between two readings, without any of this
``blocks``        median of the blocks used and, for ``planned``, of those foreseen after the first five
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import report
from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS, Verdict, planned
from pmtpy.lab.bench import MAX_TIME_S, Bench
from pmtpy.lab.bench_result import BenchResult, relative_blocks
from pmtpy.regions.region import Region
from tests.support.repeated import PATTERN_W, SENSORS, Task, World

ONCE_S = (0.1, 0.0263, 0.33)
TARGET = 0.01
WORLDS = ("noise", "drift", "outliers", "gain", "wander")
WANDER, FORGETS_S, LONGEST_S = 0.015, 20.0, 20_000


def make_world(sensor: str, kind: str, seed: int) -> World:
    """Make a world of its own."""
    seed += 10_000 * WORLDS.index(kind)
    rng = np.random.default_rng(1000 + seed)
    model = replace(SENSORS[sensor], seed=seed + 1, phase_s=float(rng.random()) * 0.1)
    if kind == "gain":
        model = replace(model, gain=float(1.0 + 0.05 * rng.standard_normal()))
    if kind == "wander":
        keeps = math.exp(-1.0 / FORGETS_S)  # of a second ago
        steps = WANDER * math.sqrt(1.0 - keeps**2) * rng.standard_normal(LONGEST_S)
        power = 1.0 + np.fromiter(accumulate(steps, lambda before, step: keeps * before + step), np.float64)
        return World(model, seed, scatter=0.0, trend=lambda t: float(np.interp(t, np.arange(LONGEST_S), power)))
    slope = 5e-4 if kind == "drift" else 0.0
    spikes = 0.02 if kind == "outliers" else 0.0
    return World(model, seed, scatter=0.006, trend=lambda t: 1.0 + slope * t, outliers=spikes)


def run(sensor: str, kind: str, seed: int, factors: tuple[float, ...]) -> tuple[BenchResult, float]:
    """Run a benchmark; return its result and the true energy of the first work by what really ran."""
    with make_world(sensor, kind, seed) as world:
        works = [Task(world, ONCE_S[seed % len(ONCE_S)], f) for f in factors]
        # A single work whose energy drifts has no end of its own: its time is what is left to a user.
        longest_s = MAX_TIME_S if kind == "drift" and len(works) == 1 else 1e5
        bench = Bench(works, world.sensor, target=TARGET, max_time_s=longest_s, seed=seed)
        result = bench.result(bench.run())
        assert result is not None
        return result, works[0].joules


def naive(sensor: str, seed: int) -> float:
    """Return the relative error of a region around one run."""
    with make_world(sensor, "noise", seed) as world:
        work = Task(world, ONCE_S[seed % len(ONCE_S)])
        world.clock.advance(5.0 + float(world.rng.random()))
        with Region("one", {world.sensor.target: world.sensor}) as region:
            work.run(1)
        world.clock.advance(1.0)
        return region[world.sensor].joules / work.joules - 1.0


def percent(flags: list[bool]) -> float:
    """Share of what is true."""
    return round(100.0 * float(np.mean(flags)), 1)


def spread(errors: list[float]) -> list[float]:
    """Median and 95th percentile of sizes, in percent."""
    return [round(100.0 * float(np.quantile(np.abs(errors), q)), 2) for q in (0.5, 0.95)]


def _holds(result: BenchResult, truth: float) -> bool:
    difference = result.difference
    return difference is not None and difference.low <= truth <= difference.high


def called(results: list[BenchResult], words: set[Verdict]) -> float:
    """Share of comparisons that end with one of the verdicts."""
    return percent([r.difference is not None and r.difference.verdict in words for r in results])


def row(sensor: str, kind: str, number: int) -> dict[str, Any]:
    """Run everything for one sensor in one world."""
    ones = [run(sensor, kind, s, (1.0,)) for s in range(number)]
    same = [run(sensor, kind, s + number, (1.0, 1.0))[0] for s in range(number)]
    more = [run(sensor, kind, s + 2 * number, (1.0, 1.0 + TARGET))[0] for s in range(number)]
    errors = [r.joules / truth - 1.0 for r, truth in ones]
    within = [
        (e.low <= t <= e.high) if kind == "gain" else abs(e.value - t) <= e.repeatability
        for e, t in ((r.sides[0].joules, t) for r, t in ones)
    ]
    held = [_holds(r, truth) for results, truth in ((same, 0.0), (more, TARGET)) for r in results]
    first = [planned(relative_blocks(r.trials, 2)[:LEAST_BLOCKS], TARGET, paired=True) for r in more]
    return {
        **({} if kind == "drift" else {"held": percent(within), "error": spread(errors)}),
        "held diff": percent(held),
        "found": called(more, {Verdict.MORE}),
        "false": called(same, {Verdict.LESS, Verdict.MORE}),
        "unresolved": called([*same, *more], {Verdict.UNRESOLVED}),
        "blocks": float(np.median([r.blocks for r in more])),
        "planned": float(np.median(first)),
        "warned of drift": percent([any("drifts" in w for w in r.warnings) for r, _ in ones]),
        "warned of outliers": percent([any("far from" in w for w in r.warnings) for r in same]),
    }


def main() -> None:
    """Print the figures."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    worlds = sys.argv[2:] or WORLDS
    figures: dict[str, Any] = {"benchmarks per figure": number, "mean power": PATTERN_W}
    for sensor in SENSORS:
        figures[sensor] = {}
        for kind in worlds:
            figures[sensor][kind] = row(sensor, kind, number)
            print(sensor, kind, figures[sensor][kind], file=sys.stderr, flush=True)
        figures[sensor]["naive"] = spread([naive(sensor, s) for s in range(max(60, number))])
    report(figures)


if __name__ == "__main__":
    main()
