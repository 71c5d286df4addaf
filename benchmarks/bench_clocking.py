"""What the publishing clock of a sensor is found to be, by class of recording: right, open, declined or wrong.

Recordings are drawn by ``tests/support/drawn_sensors.py``, which shares no code with the package: polls regular near
simple fractions of the period, regular, irregular, of a starved poller; phases steady, wandering, jumping by a part of
the period, or sliding through a whole one in a minute; loads of random switching, bursts and square waves.

``python -m benchmarks.bench_clocking [ROUNDS]`` prints one JSON document: for each class how many answers held the
truth within 1 % of it (``right``), missed it by less than that (``missed``), lay further off (``wrong``) or were
declined; and the median of |error| over half-width, which is 0.34 where intervals are as wide as they need to be. The
phase that slides has two periods, that of the clock and that of the recording; either is the truth, or one between.
"""

from __future__ import annotations

import collections
import sys
import time

import numpy as np

from benchmarks.common import report
from pmtpy.analysis.clocking import estimate_updates
from pmtpy.errors import DeclinedError
from tests.support.drawn_sensors import PHASES, POLLS, Drawn, draw

_FAR = 0.01  # relative, by which an answer is another period


def _judged(drawn: Drawn) -> tuple[str, float]:
    """Judge one answer; and |error| over half-width."""
    try:
        found = estimate_updates(drawn.t_s, drawn.watts).period_s
    except DeclinedError:
        return "declined", np.nan
    low = drawn.sensor.period_s
    high = low * (1.0 + low / 60.0) if drawn.sensor.phase == "sliding" else low
    error = max(low - found.value, found.value - high, 0.0)
    if error > _FAR * low:
        return "wrong", np.nan
    return "right" if found.low <= high and found.high >= low else "missed", error / found.half_width


def main() -> None:
    """Run as many rounds of each pair of phase and polls as the command line says, or 4."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    ratios: dict[str, list[float]] = collections.defaultdict(list)
    start, seed = time.process_time(), 0
    for phase in PHASES:
        for polls in POLLS:
            for _ in range(rounds):
                seed += 1
                drawn = draw(seed, polls=polls, phase=phase)
                verdict, ratio = _judged(drawn)
                for group in ("all", f"phase {phase}", f"polls {polls}", f"load {drawn.load}"):
                    counts[group][verdict] += 1
                    ratios[group].append(ratio)
    found: dict[str, object] = {
        group: dict(count) | {"error_over_half_width": round(float(np.nanmedian(ratios[group])), 3)}
        for group, count in sorted(counts.items())
    }
    report({"recordings": seed, "cpu_seconds_each": round((time.process_time() - start) / seed, 2)} | found)


if __name__ == "__main__":
    main()
