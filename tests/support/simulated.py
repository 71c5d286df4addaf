"""Simulated recordings for the tests of the estimators: a pseudo-random load, a sensor, a meter with its own clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table

HIGH, LOW = 210.0, 60.0


@dataclass(frozen=True)
class Bench:
    """A load between two levels, given by its switching instants (on first), and how long the recording lasts."""

    edges_s: Floats
    seconds: float

    @property
    def load(self) -> Table:
        starts = np.concatenate([[-10.0], self.edges_s])
        return Table(starts, np.where(np.arange(len(starts)) % 2, HIGH, LOW))

    def updates(self, model: SensorModel) -> Updates:
        """Return the updates as they were published, so that no finder of them stands between estimator and truth."""
        k = np.arange(int(model.last_tick(0.0)) + 1, int(model.last_tick(self.seconds)) + 1)
        # A meter that samples every 0.2 ms knows no instant better than this.
        return Updates(k, model.tick_times(k), model.tick_readings(self.load, k), model.update_s, jitter_s=1e-4)

    def meter(self, *, shift_s: float = 0.0, rate: float = 0.0, noise_w: float = 0.5, seed: int = 1) -> PowerTrace:
        t = np.arange(-0.5, self.seconds + 0.5, 2e-4)
        watts = self.load.watts(t) + noise_w * np.random.default_rng(seed).standard_normal(len(t))
        middle = self.seconds / 2.0
        return PowerTrace.from_samples(np.asarray((t - middle) * (1.0 + rate) + middle + shift_s, np.float64), watts)

    def counted(self, *, shift_s: float = 0.0, rate: float = 0.0, seed: int = 1) -> PowerTrace:
        """Return a meter that counts, read each millisecond: as exact as :meth:`meter`, with a fifth of its knots."""
        t = np.arange(-0.5, self.seconds + 0.5, 1e-3)
        joules = self.load.joules(t) + np.cumsum(2e-4 * np.random.default_rng(seed).standard_normal(len(t)))
        middle = self.seconds / 2.0
        return PowerTrace.from_energy(np.asarray((t - middle) * (1.0 + rate) + middle + shift_s, np.float64), joules)

    @property
    def intervals(self) -> LoadIntervals:
        return LoadIntervals.switched(self.edges_s, self.seconds)

    def stamps(self) -> PowerTrace:
        return PowerTrace.of_load(self.intervals)


def pseudo_random_bench(chip_s: float, seconds: float = 10.0, seed: int = 1) -> Bench:
    bits = np.random.default_rng(seed).integers(0, 2, int((seconds - 2.0) / chip_s))
    bits[0] = 1
    bits = np.concatenate([[0], bits, [0]])
    return Bench(np.asarray(1.0 + chip_s * np.flatnonzero(np.diff(bits)), np.float64), seconds)


def square_bench(period_s: float, seconds: float = 10.0, duty: float = 0.5) -> Bench:
    on = np.arange(1.0, seconds - 1.0, period_s)
    return Bench(np.sort(np.concatenate([on, on + duty * period_s])), seconds)
