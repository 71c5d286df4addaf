"""How often the stated 95 % intervals of the estimators hold the truth, on simulated sensors of every kind.

Each round draws a sensor (update period, kernel, gain, offset, noise, resolution, wander), a way of polling it
(interval, jitter, stalls, rounded, repeated and backward stamps), a load, and a meter with a clock of its own. Like the
boards of published recordings, each is off its line for a while, by as much as steady readings are (an R2 of 0.9999;
Yang, Adamek, Armour, arXiv 2312.02741), and its phase wanders by up to 4 ms in minutes (ibid.).
``python -m benchmarks.bench_coverage [ROUNDS]`` prints one JSON document; demand: 90 to 99 % each.
"""

from __future__ import annotations

import collections
import math
import sys
import time

import numpy as np

from benchmarks.common import report
from pmtpy.analysis.characterisation._families import BOTH, BOXCAR, MINOR, ONE_POLE
from pmtpy.analysis.characterisation._step_response import fit_step
from pmtpy.analysis.characterisation.gain import line_of, points_of
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import DeclinedError

_SECONDS = 12.0
_LOW, _HIGH = 60.0, 210.0
_OFF_LINE_W = 0.0034 * (_HIGH - _LOW)  # standard; R2 = 0.9999 over levels that are even from low to high
_FORGOTTEN_S = (0.3, 1.0, 3.0, 10.0)  # after these times it is off by something else: a boost, a warm-up
_GRAIN_S = 0.01


class Score:
    """Counts of intervals asked for, intervals that hold the truth, and refusals, by estimator."""

    def __init__(self) -> None:
        self.asked: collections.Counter[str] = collections.Counter()
        self.held: collections.Counter[str] = collections.Counter()
        self.squares: collections.Counter[str] = collections.Counter()
        self.declined: collections.Counter[str] = collections.Counter()

    def add(self, name: str, estimate: Estimate | None, truth: float) -> None:
        """Judge one interval."""
        if estimate is not None:
            self.asked[name] += 1
            self.held[name] += estimate.contains(truth)
            self.squares[name] += (estimate.value - truth) ** 2  # type: ignore[assignment]  # (a sum, not a count)

    def document(self) -> dict[str, object]:
        """Return coverage, its standard error and the rms error, by estimator."""
        results: dict[str, object] = {}
        for name, n in self.asked.items():
            share = self.held[name] / n
            results[name] = {
                "intervals": n,
                "coverage": round(share, 4),
                "standard_error": round(math.sqrt(max(share * (1 - share), 1 / n / n) / n), 4),
                "rms_error": float(f"{math.sqrt(self.squares[name] / n):.3g}"),
            }
        return results | {"declined": dict(self.declined)}


def _sensor(rng: np.random.Generator, seed: int) -> tuple[SensorModel, str]:
    period = float(np.exp(rng.uniform(math.log(0.015), math.log(0.12))))
    family = (BOXCAR, ONE_POLE, BOXCAR, ONE_POLE, BOTH)[seed % 5]
    # From part-time sensors (a tenth of the period) to running means of 15 periods and one-poles of ten.
    window = period * float(np.exp(rng.uniform(math.log(0.1), math.log(15.0 if family == BOXCAR else 3.0))))
    tau = period * float(np.exp(rng.uniform(math.log(0.1), math.log(10.0 if family == ONE_POLE else 3.0))))
    model = SensorModel(
        period,
        phase_s=rng.uniform(0.0, period),
        wander_s=min(float(rng.choice([0.0, 0.0015, 0.003, 0.004])), 0.2 * period),
        window_s=window if family != ONE_POLE else 0.0,
        tau_s=tau if family != BOXCAR else 0.0,
        delay_s=period * rng.uniform(-0.08, 0.08),
        gain=rng.uniform(0.9, 1.1),
        offset_w=rng.uniform(-20.0, 5.0),
        noise_w=rng.uniform(0.1, 1.0),
        step_w=float(rng.choice([0.01, 0.1, 1.0])),
        seed=seed,
    )
    return model, family


def _polling(rng: np.random.Generator, period: float) -> Polling:
    return Polling(
        period * rng.uniform(0.06, 0.3),
        0.02 * period,
        stall_share=0.01,
        stamp_step_s=float(rng.choice([0.0, 0.001])) if period > 0.03 else 0.0,
        repeat_share=0.005,
        backward_share=0.005,
    )


def _load(rng: np.random.Generator, seed: int, period: float) -> tuple[str, Floats]:
    """Return a kind of load and its switching instants: mostly pseudo-random, also square waves and one long step."""
    kind = ("random", "random", "random", "square", "step")[seed // 5 % 5]
    if kind == "step":
        return kind, np.array([2.0, 8.0]) + rng.uniform(0.0, 0.5, 2)
    if kind == "square":
        on = np.arange(0.6, _SECONDS - 1.5, period * rng.uniform(0.5, 8.0))
        return kind, np.asarray(np.stack([on, on + rng.uniform(0.25, 0.45) * (on[1] - on[0])], axis=1).ravel())
    chip = period * rng.uniform(0.1, 0.6)
    bits = rng.integers(0, 2, int(_SECONDS / chip) + 1)
    bits[: int(0.5 / chip)] = 0
    return kind, np.asarray(chip * (np.flatnonzero(np.diff(bits)) + 1.0), np.float64)


def _off_line(rng: np.random.Generator, load: Table, starts: Floats, *, by_state: bool) -> Table:
    """Return the load as a sensor that is off its line takes it: in each state by another amount, or for a while."""
    if by_state:
        return Table(starts, load.watts(starts) + _OFF_LINE_W * rng.standard_normal(len(starts)))
    at = np.arange(0.0, _SECONDS, _GRAIN_S)
    kept = math.exp(-_GRAIN_S / float(rng.choice(_FORGOTTEN_S)))
    off = [float(rng.standard_normal())]
    for new in math.sqrt(1.0 - kept**2) * rng.standard_normal(len(at) - 1):
        off.append(kept * off[-1] + float(new))  # Ornstein and Uhlenbeck
    both = np.union1d(at, starts)
    return Table(both, np.asarray(load.watts(both) + _OFF_LINE_W * np.interp(both, at, off), np.float64))


def _round(score: Score, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, family = _sensor(rng, seed)
    kind, edges = _load(rng, seed, model.update_s)
    starts: Floats = np.append(0.0, edges)
    load = Table(starts, np.where(np.arange(len(starts)) % 2, _HIGH, _LOW))
    seen = _off_line(np.random.default_rng([seed, 1]), load, starts, by_state=kind == "step")
    t_ns, watts = model.record(seen, _SECONDS - 1.0, _polling(rng, model.update_s), start_s=0.2, seed=seed)
    t: Floats = np.asarray(t_ns * 1e-9, np.float64)
    try:
        lattice = estimate_updates(t, watts)
    except DeclinedError:
        score.declined["update period"] += 1
        return
    score.add("update period, ms", lattice.period_s.scaled(1e3), 1e3 * model.update_s)
    k = np.round((lattice.phase_s.value - model.phase_s) / model.update_s)
    score.add("phase, ms", lattice.phase_s.scaled(1e3), 1e3 * float(model.tick_times(k)))
    updates = update_series(t, watts, lattice)
    stamps = PowerTrace.of_load(LoadIntervals.switched(edges, _SECONDS))
    _kernel(score, "load", updates, stamps, (model, family, 0.0, kind))
    rate = 1e-3 * float(rng.standard_normal())
    at = np.arange(0.0, _SECONDS, 2e-4)
    truth = load.watts(at) + 0.5 * rng.standard_normal(len(at))
    middle = _SECONDS / 2.0
    meter = PowerTrace.from_samples(np.asarray((at - middle) * (1.0 + rate) + middle, np.float64), truth)
    _kernel(score, "meter", updates, meter, (model, family, rate, kind))
    _step(score, model, load_at=float(rng.uniform(1.0, 1.2)))


def _kernel(
    score: Score, what: str, updates: Updates, reference: PowerTrace, truth: tuple[SensorModel, str, float, str]
) -> None:
    model, family, rate, kind = truth
    metered, middle = what == "meter", _SECONDS / 2.0
    try:
        fit = fit_kernel(updates, reference, metered=metered, pivot_s=middle)
    except DeclinedError:
        score.declined[f"kernel, {kind} load, against a {what}"] += 1
        return
    named = "ambiguous" if fit.family == "ambiguous" else "right" if fit.family in _names(model) else "wrong"
    score.declined[f"family {named}, {kind} load, against a {what}"] += 1
    if fit.family != family:
        return
    best, period = fit.best, model.update_s
    score.add(f"window, {what}, periods", best.window_s and best.window_s.scaled(1 / period), model.window_s / period)
    score.add(f"time constant, {what}, periods", best.tau_s and best.tau_s.scaled(1 / period), model.tau_s / period)
    score.add(f"offset, {what}, ms", best.offset_s.scaled(1e3), 1e3 * model.delay_s)
    if metered:
        score.add("meter rate, 1e-6", best.rate and best.rate.scaled(1e6), 1e6 * rate)
        transfer = line_of(points_of(updates, reference, fit, middle))
        score.add("gradient", transfer.gain, model.gain)
        score.add("intercept, W", transfer.intercept_w, model.offset_w)


def _names(model: SensorModel) -> tuple[str, ...]:
    """Return the families that are right: of two widths the one alone too, if it has nine tenths of the variance."""
    parts = model.window_s**2 / 12.0, model.tau_s**2
    minor = min(parts) / sum(parts)
    return (
        *((BOTH,) if minor > 0.0 else ()),
        *((BOXCAR if parts[0] > parts[1] else ONE_POLE,) if minor <= MINOR else ()),
    )


def _step(score: Score, model: SensorModel, *, load_at: float) -> None:
    load = Table(np.array([-10.0, load_at]), np.array([_LOW, _HIGH]))
    k = np.arange(1, int(6.0 / model.update_s))
    updates = Updates(k, model.tick_times(k), model.tick_readings(load, k), model.update_s)
    try:
        found = fit_step(updates, load_at, 5.0)
    except DeclinedError:
        score.declined["step"] += 1
        return
    width, tau = model.window_s, model.tau_s
    score.add("rise, ms", found.rise_s.scaled(1e3), 1e3 * (0.8 * width + math.log(9.0) * tau))
    half = 0.5 * width + math.log(2.0) * tau + model.delay_s
    score.add("delay, ms", found.delay_s and found.delay_s.scaled(1e3), 1e3 * max(half, 0.0))


def main() -> None:
    """Run the rounds named on the command line, or 100."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    score, start = Score(), time.perf_counter()
    for seed in range(rounds):
        _round(score, seed)
    report({"rounds": rounds, "seconds": round(time.perf_counter() - start, 1)} | score.document())


if __name__ == "__main__":
    main()
