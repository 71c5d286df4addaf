"""The command line on recordings of cards that it has never seen: what is found, against the demands.

For each of twenty imagined cards (``tests/support/cards/recorder.py``) and each round: one minute of a 20 ms square
wave without a meter; an irregular load and a 6 s step with a meter; a profile from the irregular one; the energies of
another step, and of random 4 s of a square wave that beats with a part-time sensor, corrected by that profile.
Everything goes through files and verbs, as a user would have it.

``python -m benchmarks.bench_cards [ROUNDS [CARD]]`` prints a table: per demand the number of answers, the root mean
square and the greatest error, how many meet the demand, how many intervals hold the truth, and how many were declined
or called ambiguous; then each miss.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.cards.recorder import CARDS, Card, Recording, random_load, record, square_load, step_load
from tests.support.cards.user import characterised, corrected, profiled

# The numbers that a good implementation reaches, in the unit of each row's name.
_DEMANDS = {
    "period, 60 s, %": 0.02,
    "period, 10 s, %": 0.1,
    "family wrong (0 or 1)": 0.5,
    "window, irregular load, ms": 1.0,
    "window, one step, ms": 8.0,
    "time constant, %": 8.0,
    "gradient": 0.012,
    "intercept, W": 2.5,
    "energy 6 s, %": 0.8,
    "energy 1 s, %": 1.5,
    "energy 0.3 s, %": 4.0,
    "energy 4 s, part-time, bias, %": 0.5,
    "energy 4 s, part-time, sd, %": 0.3,
}
_WINDOWS = 12  # random intervals of the periodic load


class Scores:
    """Errors and intervals by demand."""

    def __init__(self) -> None:
        self.errors: defaultdict[str, list[float]] = defaultdict(list)
        self.inside: defaultdict[str, list[bool]] = defaultdict(list)
        self.declined: defaultdict[str, int] = defaultdict(int)
        self.misses: list[str] = []

    def add(self, name: str, card: Card, found: dict[str, float] | None, truth: float, unit: float = 1.0) -> None:
        """Judge an estimate; ``unit`` is what an error of 1 in the row's unit is, in that of the estimate."""
        if found is None:
            self.declined[name] += 1
            return
        error = (found["value"] - truth) / unit
        inside = found["low"] <= truth <= found["high"]
        self.inside[name].append(inside)
        self.error(name, card, error, "" if inside else f", and outside {found['low']:.5g} to {found['high']:.5g}")

    def error(self, name: str, card: Card, error: float, more: str = "") -> None:
        """Judge an error."""
        self.errors[name].append(error)
        if abs(error) > _DEMANDS[name] or more:
            self.misses.append(f"{card.name}: {name}: {error:+.3g}{more}")

    def show(self) -> None:
        """Print the table, and each miss."""
        print(f"{'':32} {'demand':>7} {'n':>4} {'rms':>8} {'worst':>8} {'met':>5} {'held':>6} {'declined':>8}")
        for name, demand in _DEMANDS.items():
            errors, inside = np.array(self.errors[name]), self.inside[name]
            if not len(errors):
                print(f"{name:32} {demand:7g} {0:4}")
                continue
            rms, worst = math.sqrt(float(np.mean(errors**2))), float(np.max(np.abs(errors)))
            met, held = float(np.mean(np.abs(errors) <= demand)), f"{np.mean(inside):6.0%}" if inside else ""
            print(
                f"{name:32} {demand:7g} {len(errors):4} {rms:8.3g} {worst:8.3g} {met:5.0%} {held:>6} "
                f"{self.declined[name]:8}"
            )
        for miss in self.misses:
            print(f"  {miss}")


def _kernel(scores: Scores, card: Card, found: dict[str, Any], window: str) -> None:
    kernel = found["kernel"]
    if kernel["family"] == "ambiguous":
        scores.declined["family wrong (0 or 1)"] += 1
        return
    scores.error("family wrong (0 or 1)", card, float(kernel["family"] != card.family))
    if kernel["family"] == card.family == "boxcar":
        scores.add(window, card, kernel["window_ms"], 1e3 * card.window_s)
    if kernel["family"] == card.family == "one-pole":
        scores.add("time constant, %", card, kernel["tau_ms"], 1e3 * card.tau_s, 10.0 * card.tau_s)


def _line(scores: Scores, card: Card, found: dict[str, Any]) -> None:
    scores.add("gradient", card, found["gradient"], card.gain)
    scores.add("intercept, W", card, found["intercept_w"], card.offset_w)


def _error(energy: dict[str, Any], truth: float) -> dict[str, float]:
    return {"value": energy["joules"] / truth, "low": energy["low"] / truth, "high": energy["high"] / truth}


def one_card(scores: Scores, card: Card, folder: Path, rng: np.random.Generator) -> None:
    """Judge one card."""

    def made(name: str, edges_s: np.ndarray[Any, np.dtype[np.float64]], *, meter: bool = True) -> Recording:
        return record(card, edges_s, folder / name, rng, meter=meter, zone_h=float(rng.choice([1.0, 5.5, -8.0])))

    minute = characterised(made("period", square_load(0.02, 60.0), meter=False), reference=False)
    scores.add("period, 60 s, %", card, minute["update_period_ms"], 1e3 * card.period_s, 10.0 * card.period_s)
    irregular = made("random", random_load(rng, 10.0))
    found = characterised(irregular)
    scores.add("period, 10 s, %", card, found["update_period_ms"], 1e3 * card.period_s, 10.0 * card.period_s)
    _kernel(scores, card, found, "window, irregular load, ms")
    _line(scores, card, found)
    step = characterised(made("step", step_load(rng)))
    _kernel(scores, card, step, "window, one step, ms")
    _line(scores, card, step)
    if found["kernel"]["family"] == "ambiguous" or found["gradient"] is None:
        for name in ("energy 6 s, %", "energy 1 s, %", "energy 0.3 s, %"):
            scores.declined[name] += 1
        return
    profile = profiled(found, irregular)
    another = made("another", step_load(rng), meter=False)
    start, end = float(another.edges_s[0]), float(another.edges_s[1])
    for name, until in (("energy 6 s, %", end), ("energy 1 s, %", start + 1.0), ("energy 0.3 s, %", start + 0.3)):
        energy = _error(corrected(another, profile, start, until), another.energy(start, until))
        scores.add(name, card, energy, 1.0, 0.01)
    if card.part_time:
        _beating(scores, card, profile, made("beating", square_load(1.03 * card.period_s, 30.0), meter=False), rng)


def _beating(scores: Scores, card: Card, profile: Path, made: Recording, rng: np.random.Generator) -> None:
    errors = []
    for start in rng.uniform(2.0, 26.0, _WINDOWS):
        energy = _error(corrected(made, profile, float(start), float(start) + 4.0), made.energy(start, start + 4.0))
        errors.append(100.0 * (energy["value"] - 1.0))
        scores.inside["energy 4 s, part-time, bias, %"].append(energy["low"] <= 1.0 <= energy["high"])
    scores.error("energy 4 s, part-time, bias, %", card, float(np.mean(errors)))
    scores.error("energy 4 s, part-time, sd, %", card, float(np.std(errors)))


def main() -> None:
    """Judge all cards, print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cards = [c for c in CARDS if len(sys.argv) <= 2 or c.name == sys.argv[2]]
    scores, begun = Scores(), time.monotonic()
    for i in range(rounds):
        for j, card in enumerate(cards):
            with tempfile.TemporaryDirectory() as folder:
                one_card(scores, card, Path(folder), np.random.default_rng([i, j]))
    scores.show()
    print(f"{rounds * len(cards)} cards in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
