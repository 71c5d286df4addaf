"""How often the 95 % intervals of update period and phase hold the truth, over the whole range of what spoils them.

Each round draws a sensor (period 10 ms to 1 s, phase that wanders by up to 4 ms, resolution 0.01 to 1 W), a recording
of 10 to 120 s, and polls: every 1/20 to 6/10 of the period, regular, irregular, or at a divisor of the period or
close to one; stalled, stamped early, rounded, repeated and set back.

``python -m benchmarks.bench_lattice [ROUNDS]`` prints one JSON document with the coverage over all and by what was
drawn, and the errors of the period. Demand: 0.90 to 0.99 over all.
"""

from __future__ import annotations

import collections
import math
import sys
import time

import numpy as np

from benchmarks.common import report
from pmtpy.analysis.clocking import estimate_updates
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import DeclinedError

_START_S = 1.0


class Tally:
    """Intervals that hold the truth, and errors, by group."""

    def __init__(self) -> None:
        self.period: dict[str, list[bool]] = collections.defaultdict(list)
        self.phase: dict[str, list[bool]] = collections.defaultdict(list)
        self.error: dict[str, list[float]] = collections.defaultdict(list)

    def add(self, groups: tuple[str, ...], *, period: bool, phase: bool, error: float) -> None:
        """Count one round in each of its groups."""
        for group in ("all", *groups):
            self.period[group].append(period)
            self.phase[group].append(phase)
            self.error[group].append(error)

    def document(self) -> dict[str, object]:
        """Return the coverage and the errors of each group."""
        return {
            group: {
                "rounds": len(held),
                "period_coverage": round(float(np.mean(held)), 3),
                "phase_coverage": round(float(np.mean(self.phase[group])), 3),
                "period_error_percent": {
                    "median": float(f"{100 * np.median(self.error[group]):.2g}"),
                    "95th": float(f"{100 * np.quantile(self.error[group], 0.95):.2g}"),
                },
            }
            for group, held in sorted(self.period.items())
        }


def _sensor(rng: np.random.Generator, seed: int) -> SensorModel:
    period = float(np.exp(rng.uniform(math.log(0.01), 0.0)))
    wander = float(rng.choice([0.0, 0.0015, 0.003, 0.004, rng.uniform(0.0, 0.004)]))
    boxcar = bool(rng.integers(0, 2))
    return SensorModel(
        period,
        phase_s=rng.uniform(0.0, period),
        wander_s=min(wander, 0.45 * period),
        window_s=period * rng.uniform(0.2, 1.2) if boxcar else 0.0,
        tau_s=0.0 if boxcar else period * rng.uniform(0.12, 3.0),
        noise_w=rng.uniform(0.05, 1.0),
        step_w=float(rng.choice([0.01, 0.1, 1.0])),
        seed=seed,
    )


def _polling(rng: np.random.Generator, period: float) -> tuple[Polling, str]:
    share = float(np.exp(rng.uniform(math.log(0.05), math.log(0.6))))
    kind = str(rng.choice(["irregular", "regular", "in step"], p=[0.5, 0.25, 0.25]))
    if kind == "in step":
        share = (1.0 + float(rng.choice([0.0, rng.uniform(-0.03, 0.03)]))) / max(2, round(1.0 / share))
    poll = share * period
    polling = Polling(
        poll,
        poll * float(rng.uniform(0.02, 0.25) if kind == "irregular" else rng.choice([0.001, 0.02, 0.05])),
        stall_share=float(rng.choice([0.0, 0.01, 0.02])),
        stall_s=min(0.03, 3.0 * poll),
        lead_s=rng.uniform(0.0, 0.3) * poll,
        lead_jitter_s=float(rng.choice([0.0, 0.05, 0.1])) * poll,
        stamp_step_s=float(rng.choice([0.0, 0.001])) if poll > 0.002 else 0.0,
        repeat_share=float(rng.choice([0.0, 0.005, 0.02])),
        backward_share=float(rng.choice([0.0, 0.005])),
    )
    return polling, kind


def _round(tally: Tally, seed: int) -> bool:
    """Judge one recording; False if it was declined."""
    rng = np.random.default_rng(seed)
    model = _sensor(rng, seed)
    polling, kind = _polling(rng, model.update_s)
    seconds = max(float(np.exp(rng.uniform(math.log(10.0), math.log(120.0)))), 40.0 * model.update_s)
    chip = model.update_s * rng.uniform(0.1, 3.0)
    bits = rng.integers(0, 2, int((seconds + 2.0 * _START_S) / chip) + 2)
    load = Table(np.asarray(chip * np.arange(len(bits)), np.float64), np.where(bits, 210.0, 60.0))
    t_ns, watts = model.record(load, seconds, polling, start_s=_START_S, seed=seed)
    try:
        found = estimate_updates(np.asarray(t_ns * 1e-9, np.float64), watts)
    except DeclinedError:
        return False
    stamped = (
        model.tick_times(np.round((found.phase_s.value - model.phase_s) / model.update_s) + np.arange(-1, 2))
        - polling.lead_s
    )
    truth = float(stamped[np.argmin(np.abs(stamped - found.phase_s.value))])
    share = polling.interval_s / model.update_s
    groups = (
        f"wander {'none' if model.wander_s == 0 else 'to 2 ms' if model.wander_s < 0.002 else 'to 4 ms'}",
        f"polls {kind}",
        f"{'polls to T/5' if share <= 0.2 else 'slower polls'}, {'from 60 s' if seconds >= 60.0 else '10 to 60 s'}",
    )
    tally.add(
        groups,
        period=found.period_s.contains(model.update_s),
        phase=found.phase_s.contains(truth),
        error=abs(found.period_s.value / model.update_s - 1.0),
    )
    return True


def main() -> None:
    """Run the rounds named on the command line, or 200."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    tally, start = Tally(), time.process_time()
    declined = sum(not _round(tally, seed) for seed in range(rounds))
    seconds = round((time.process_time() - start) / rounds, 2)
    report({"rounds": rounds, "cpu_seconds_per_round": seconds, "declined": declined} | tally.document())


if __name__ == "__main__":
    main()
