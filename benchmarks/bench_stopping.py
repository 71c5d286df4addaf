"""Whether the interval at the end of a benchmark holds, although the end was chosen by its width: the rule alone.

    python benchmarks/bench_stopping.py [benchmarks per cell [class ...]]

No sensor and no work: trials are drawn, and :mod:`pmtpy.analysis.repetition.resolve` says when to end and what follows.
Trials scatter by 0.5 to 3 %, wanted are 0.5 to 3 % (16 cells a class), at most 150 blocks of four trials fit into the
time. Half of the comparisons are of the same work twice, half of one that uses as much more as matters. For each class
of scatter, in percent:

``one``           intervals of the mean of one work that hold the truth (trials independent of each other)
``5 to 10``, ``10 to 40``, ``more``   intervals of the difference that hold it, in cells that need so many blocks
``false``         the same work twice called less or more
``found``         one that uses more called more, of those with time enough
``blocks``        mean number of blocks
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import report
from pmtpy.analysis.repetition.resolve import Verdict, compare_blocks, enough, estimate
from pmtpy.core.rows import Floats

SHARES = (0.005, 0.01, 0.02, 0.03)  # of scatter, and wanted
MOST_BLOCKS = 150  # of 4 s, in ten minutes
FORGETS = 0.5  # of what a trial has of the one before
DRIFT = 0.015 / 60.0  # from trial to trial
Draw = Callable[[np.random.Generator, int], Floats]


def alike(rng: np.random.Generator, number: int) -> Floats:
    """Draw trials that have half of the one before."""
    found = rng.standard_normal(number)
    for i in range(1, number):
        found[i] = FORGETS * found[i - 1] + math.sqrt(1.0 - FORGETS**2) * found[i]
    return found


def spikes(rng: np.random.Generator, number: int) -> Floats:
    """Draw trials of which one in twenty is five standard deviations off."""
    found = rng.standard_normal(number) + 5.0 * (rng.random(number) < 0.05)
    return np.asarray((found - 0.25) / math.sqrt(1.0 + 25.0 * 0.05 * 0.95), np.float64)


# Relative deviations of trials in their order, of mean 0 and standard deviation 1.
DRAWS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "drift": lambda rng, n: rng.standard_normal(n),
    "alike": alike,
    "uniform": lambda rng, n: math.sqrt(12.0) * (rng.random(n) - 0.5),
    "two levels": lambda rng, n: np.where(rng.random(n) < 0.5, -1.0, 1.0),
    "Laplace": lambda rng, n: rng.laplace(size=n) / math.sqrt(2.0),
    "Student of 3": lambda rng, n: rng.standard_t(3, n) / math.sqrt(3.0),
    "spikes": spikes,
    "exponential": lambda rng, n: rng.exponential(size=n) - 1.0,
}


def energies(kind: str, scatter: float, number: int, rng: np.random.Generator) -> Floats:
    """Draw the energies of trials, about 1."""
    slope = DRIFT if kind == "drift" else 0.0
    each = (1.0 + scatter * DRAWS[kind](rng, number)) * (1.0 + slope * np.arange(number))
    return np.maximum(each, 0.1)  # none uses nothing or less


def compared(
    kind: str, scatter: float, target: float, change: float, rng: np.random.Generator
) -> tuple[bool, str, int]:
    """Run a comparison; return whether the interval holds the truth, the verdict, and how many blocks it took."""
    drawn = energies(kind, scatter, 4 * MOST_BLOCKS, rng).reshape(-1, 4)
    first_outside = rng.random((MOST_BLOCKS, 1)) < 0.5  # ABBA, BAAB
    of_second = np.where(first_outside, [False, True, True, False], [True, False, False, True])
    first, second = ((drawn * chosen).sum(1) / 2.0 for chosen in (~of_second, of_second * (1.0 + change)))
    ratios, n = np.log(second / first).tolist(), 2
    while n < MOST_BLOCKS and not enough(ratios[:n], target, paired=True):
        n += 1
    found = compare_blocks(first[:n].tolist(), second[:n].tolist(), target, 0.0)
    return found.contains(change), found.verdict.name, n


def alone(kind: str, scatter: float, target: float, rng: np.random.Generator) -> bool:
    """Repeat one work; return whether the interval holds the truth."""
    values, n = energies(kind, scatter, 4 * MOST_BLOCKS, rng).tolist(), 2
    while n < len(values) and not enough(values[:n], target, paired=False):
        n += 1
    return estimate(values[:n], 0.0).contains(1.0)


def row(kind: str, number: int) -> dict[str, Any]:
    """Return the figures of one class."""
    rng = np.random.default_rng(list(DRAWS).index(kind))
    held: dict[str, list[bool]] = {"one": [], "5 to 10": [], "10 to 40": [], "more": []}
    false, found, blocks = [], [], []
    for scatter, target in product(SHARES, SHARES):
        needs = scatter / (target / 2.0)  # about the square of it, by four
        need = "5 to 10" if needs < 1.2 else "10 to 40" if needs < 3.0 else "more"
        for _ in range(number):
            same = compared(kind, scatter, target, 0.0, rng)
            more = compared(kind, scatter, target, target, rng)
            held[need] += [same[0], more[0]]
            blocks += [same[2], more[2]]
            false.append(same[1] in {Verdict.LESS.name, Verdict.MORE.name})
            if need != "more":
                found.append(more[1] == Verdict.MORE.name)
            if kind not in {"drift", "alike"}:
                held["one"].append(alone(kind, scatter, target, rng))
    figures = held | {"false": false, "found": found}
    shares = {name: round(100.0 * float(np.mean(flags)), 1) for name, flags in figures.items() if flags}
    return shares | {"blocks": round(float(np.mean(blocks)), 1)}


def main() -> None:
    """Print the figures."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    figures: dict[str, Any] = {"benchmarks per cell": number}
    for kind in sys.argv[2:] or DRAWS:
        figures[kind] = row(kind, number)
        print(kind, figures[kind], file=sys.stderr, flush=True)
    report(figures)


if __name__ == "__main__":
    main()
