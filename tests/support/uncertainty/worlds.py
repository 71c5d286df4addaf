"""Random sensors on random loads, measured as the core measures them. For the tests of coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, uncertainty_budget
from pmtpy.analysis.uncertainty.interval import IntervalStatistics
from pmtpy.analysis.uncertainty.interval_statistics import lag_corrected
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Floats, Ints
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Constant, Load, Sine, Table
from tests.support.uncertainty.one import summarise_one


@dataclass(frozen=True)
class Trial:
    """One region on one random sensor."""

    kind: str
    true_joules: float
    statistics: IntervalStatistics
    assessment: UncertaintyBudget

    @property
    def error(self) -> float:
        """Error in standard uncertainties."""
        return (self.statistics.joules - self.true_joules) / self.assessment.uncertainty_joules


def random_load(rng: np.random.Generator, seconds: float) -> tuple[Load, Floats]:
    """Make a load, and the instants at which it changes (a program's phases begin and end there)."""
    low = rng.uniform(20, 80)
    high = low + rng.uniform(20, 350)
    kind = rng.integers(0, 4)
    if kind == 0:
        return Sine(low, high, float(np.exp(rng.uniform(np.log(0.05), np.log(1.0))))), np.arange(1.0, seconds)
    if kind == 1:
        return Constant(high), np.arange(1.0, seconds)
    mean_s = float(np.exp(rng.uniform(np.log(0.3), np.log(4.0))))
    starts = np.concatenate([[0.0], np.cumsum(rng.exponential(mean_s, round(3 * seconds / mean_s) + 5))])
    levels = rng.uniform(low, high, len(starts)) if kind == 2 else np.where(np.arange(len(starts)) % 2, high, low)
    return Table(starts, levels), starts[(starts > 1) & (starts < seconds)]


def telegraph(rng: np.random.Generator, seconds: float, longest_s: float) -> tuple[Floats, Floats]:
    """Energy of a load that switches between 60 and 200 W at random instants, at the instants at which it does."""
    at = np.concatenate([[0.0], np.cumsum(rng.exponential(10 ** rng.uniform(-1.5, np.log10(longest_s)), 2000))])
    at = np.concatenate([at[at < seconds], [seconds]])
    watts = np.where(np.arange(len(at) - 1) % 2, 200.0, 60.0)
    return at, np.concatenate([[0.0], np.cumsum(watts * np.diff(at))])


def random_region(rng: np.random.Generator, edges: Floats, shortest: float, seconds: float) -> tuple[float, float]:
    """Choose an interval; half of them begin and end where the load changes."""
    length = float(np.exp(rng.uniform(np.log(shortest), np.log(8.0))))
    start = rng.uniform(3.0, seconds - 12.0)
    if rng.random() < 0.5 and len(edges) > 2:
        start = float(edges[np.argmin(np.abs(edges - start))])
        later = edges[edges >= start + shortest]
        if len(later):
            return start, float(later[np.argmin(np.abs(later - start - length))])
    return start, start + length


def gauge_trial(rng: np.random.Generator, kind: str, model: SensorModel, channel: Channel, shortest: float) -> Trial:
    """Measure a region with a polled power register: a row for each update, joined by straight lines."""
    seconds = 30.0
    load, edges = random_load(rng, seconds)
    a, b = random_region(rng, edges, shortest, seconds)
    read, _ = Polling(model.update_s / 7, model.update_s / 70).instants(seconds, seed=int(rng.integers(1 << 30)))
    tick = model.last_tick(read)
    first = np.concatenate([[True], np.diff(tick) > 0])
    t, watts = read[first], model.tick_readings(load, tick[first])
    joules = np.concatenate([[0.0], np.cumsum((watts[1:] + watts[:-1]) / 2 * np.diff(t))])
    found = float(np.interp(b, t, joules) - np.interp(a, t, joules))
    t_ns: Ints = np.round(t * 1e9).astype(np.int64)
    start, end = round(a * 1e9), round(b * 1e9)
    statistics = lag_corrected(summarise_one(channel, t_ns, watts, start_ns=start, end_ns=end, joules=found))
    return Trial(
        kind,
        float(load.joules(np.array(b)) - load.joules(np.array(a))),
        statistics,
        uncertainty_budget(channel, statistics),
    )


def counter_trial(rng: np.random.Generator, model: SensorModel, channel: Channel) -> Trial:
    """Measure a region with an energy counter that is read at its two ends, and a little before."""
    seconds = 30.0
    load, edges = random_load(rng, seconds)
    a, b = random_region(rng, edges, 0.3, seconds)
    t = np.array([a - rng.uniform(0.5, 2.0), a, b])
    joules = model.counter(load, t)
    watts = np.concatenate([[0.0], np.diff(joules) / np.diff(t)])
    watts[0] = watts[1]
    statistics = summarise_one(
        channel,
        np.round(t * 1e9).astype(np.int64),
        watts,
        start_ns=round(a * 1e9),
        end_ns=round(b * 1e9),
        joules=float(joules[2] - joules[1]),
    )
    return Trial(
        "counter",
        float(load.joules(np.array(b)) - load.joules(np.array(a))),
        statistics,
        uncertainty_budget(channel, statistics),
    )


def bridged_trial(rng: np.random.Generator, model: SensorModel, channel: Channel) -> Trial:
    """Measure a region with an energy counter that is polled, a row for each change; its ends fall between rows."""
    seconds = 30.0
    load, edges = random_load(rng, seconds)
    period = model.counter_update_s
    a, b = random_region(rng, edges, 1.5 * period, seconds)
    read, _ = Polling(period / 7, period / 70).instants(seconds, seed=int(rng.integers(1 << 30)))
    shown = model.counter(load, read)
    moved = np.concatenate([[True], np.diff(shown) > 0])
    t, joules = read[moved], shown[moved]
    watts = np.concatenate([[np.nan], np.diff(joules) / np.diff(t)])
    statistics = summarise_one(
        channel,
        np.round(t * 1e9).astype(np.int64),
        watts,
        start_ns=round(a * 1e9),
        end_ns=round(b * 1e9),
        joules=float(np.interp(b, t, joules) - np.interp(a, t, joules)),
    )
    return Trial(
        "bridged",
        float(load.joules(np.array(b)) - load.joules(np.array(a))),
        statistics,
        uncertainty_budget(channel, statistics),
    )


def random_trial(rng: np.random.Generator, kind: str) -> Trial:
    """Draw a sensor of the kind, calibrated to a random uncertainty, and measure one region with it."""
    gain_u, offset_u = float(rng.uniform(0.002, 0.02)), float(rng.uniform(0.1, 1.0))
    noise, step = float(rng.uniform(0.1, 0.5)), float(rng.choice([0.01, 0.1, 1.0]))
    update = float(rng.choice([0.02, 0.1]))
    common = {
        "phase_s": float(rng.uniform(0, update)),
        "gain": 1 + gain_u * rng.standard_normal(),
        "offset_w": offset_u * rng.standard_normal(),
        "noise_w": noise,
        "step_w": step,
    }
    seed = int(rng.integers(1 << 30))
    if kind in {"counter", "bridged"}:
        model = SensorModel(**common | {"offset_w": 0.0}, counter_update_s=update, counter_step_j=step, seed=seed)
        channel = Channel("gpu", Quantity.ENERGY, resolution=step, refresh_s=update, gain_u=gain_u)
        return (counter_trial if kind == "counter" else bridged_trial)(rng, model, channel)
    if kind == "part-time":
        model = SensorModel(update, window_s=0.0, tau_s=update / 8, **common, seed=seed)
    elif kind == "averaged":
        model = SensorModel(update, window_s=1.0, **common, seed=seed)
    else:
        model = SensorModel(update, window_s=update, **common, seed=seed)
    window = model.window_s + 2 * model.tau_s
    channel = Channel(
        "gpu", Quantity.POWER, resolution=step, refresh_s=update, window_s=window, lag_s=model.response.lag_s,
        gain_u=gain_u, offset_u=offset_u, noise=noise,
    )  # fmt: skip
    return gauge_trial(rng, kind, model, channel, 1.5 * (update + window))
