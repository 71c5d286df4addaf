"""Calibrating a sampling meter (PowerSensor3) from its own samples: zero, gain, error of the power, kind of noise.

The recipe is that of the PowerSensor3 paper (van der Vlugt et al., ISPASS 2025, arXiv 2504.17883): modules unloaded,
a known supply connected, 128 k samples (6.4 s at 20 kHz) averaged. The mean current is the zero of the current sensor,
the mean voltage over the true one its gain. Pure arithmetic: which samples, and where the result goes, is the bench's
business (``calibration/powersensor3_report.py``). docs/corrections.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate, student_95
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

SAMPLES = 131_072  # the paper's 128 k
RATES_HZ = (20_000.0, 10_000.0, 5_000.0, 1_000.0, 500.0)  # of Table II
_MIN_SAMPLES = 1_000
_BLOCKS = 32  # whose means tell the standard error, whether or not the noise is white
_DRIFT = 3.0  # standard error from blocks over that of white noise: more is drift, or a current that flows
_WHITE_UP_TO_S = 0.1  # the Allan deviation must fall as the root of the time up to here
_WHITE_SLACK = 0.05  # of the slope, beside its own interval


@dataclass(frozen=True, slots=True)
class Module:
    """Worst case of a module by Table I of the paper: nominal voltage, error of voltage, of current, of power."""

    volts: float
    volts_error: float
    amps_error: float
    published_w: float


TABLE_I: Mapping[str, Module] = MappingProxyType(
    {
        "12 V / 10 A": Module(12.0, 0.0286, 0.35, 4.2),
        "3.3 V / 10 A": Module(3.3, 0.0199, 0.35, 1.2),
        "USB-C 20 V / 10 A": Module(20.0, 0.0286, 0.35, 7.0),
        "12 V / 20 A": Module(12.0, 0.0286, 0.41, 5.0),
    }
)


def power_error(volts: float, volts_error: float, amps: float, amps_error: float) -> float:
    """Error of a power from those of voltage and current: ``Ep^2 = (U Ei)^2 + (I Eu)^2 + (Ei Eu)^2``, watts."""
    return math.sqrt((volts * amps_error) ** 2 + (amps * volts_error) ** 2 + (amps_error * volts_error) ** 2)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of many samples."""

    # mean and its standard uncertainty, from the means of blocks, so that drift is in it
    value: float
    u: float
    noise: float  # standard deviation of one sample
    samples: int  # how many


def steady_mean(samples: Floats, what: str) -> Mean:
    """Mean of samples of a constant input.

    Raises DeclinedError: fewer than 1000 samples; the input stuck at one value; or a mean that moves far more than the
    noise explains.
    """
    x = np.asarray(samples, np.float64)
    x = x[np.isfinite(x)]
    n = len(x)
    if n < _MIN_SAMPLES:
        msg = f"{what}: {n} samples are too few to calibrate with; take {SAMPLES} (6.4 s at 20 kHz)"
        raise DeclinedError(msg)
    noise = float(np.std(x, ddof=1))
    if noise == 0.0:
        msg = f"{what}: all {n} samples are {x[0]:g}: the input is saturated or not connected"
        raise DeclinedError(msg)
    means = np.array([float(part.mean()) for part in np.array_split(x, _BLOCKS)])
    u = float(np.std(means, ddof=1)) / math.sqrt(_BLOCKS)
    if u > _DRIFT * noise / math.sqrt(n) and u > 1e-3 * noise:
        msg = (
            f"{what}: the mean moves {u * math.sqrt(n) / noise:.1f} times as much as the noise of {n} samples "
            "explains: the input is not constant; switch the load off and wait for the supply to settle"
        )
        raise DeclinedError(msg)
    return Mean(float(x.mean()), max(u, noise / math.sqrt(n)), noise, n)


def zero_vref(amps: Floats, vref_v: float, sensitivity_v_per_a: float, *, largest_a: float = 1.0) -> Estimate:
    """Find the reference voltage at which an unloaded current sensor shows nothing: ``vref + sensitivity mean(amps)``.

    Right for either polarity: both the reading and the sensitivity carry their sign.

    Raises DeclinedError: as :func:`steady_mean`; or the mean is larger than ``largest_a``, which no zero is: a current
    flows.
    """
    mean = steady_mean(amps, "zero of the current")
    if abs(mean.value) > largest_a:
        msg = (
            f"the current is {mean.value:.3g} A, more than a zero is ever off by ({largest_a:g} A): unplug the load; "
            "the zero is taken with no current"
        )
        raise DeclinedError(msg)
    return Estimate.normal(
        vref_v + sensitivity_v_per_a * mean.value, abs(sensitivity_v_per_a) * mean.u, mean.samples - 1
    )


def voltage_gain(volts: Floats, gain: float, supply_v: float, supply_u: float = 0.0) -> Estimate:
    """Find the gain of a voltage sensor from a known supply: ``gain mean(volts) / supply``.

    Parameters
    ----------
    volts : float64, shape (n,)
        As shown with the gain now stored.
    supply_v, supply_u : float
        True voltage and its standard uncertainty.

    Raises DeclinedError: as :func:`steady_mean`; or the reading is not within 20 % of the supply: another sensor, or
    not connected.
    """
    mean = steady_mean(volts, "gain of the voltage")
    ratio = mean.value / supply_v
    if not 0.8 < ratio < 1.25:
        msg = f"the sensor shows {mean.value:.4g} V at a supply of {supply_v:.4g} V: another sensor, or not connected"
        raise DeclinedError(msg)
    relative = math.hypot(mean.u / mean.value, supply_u / supply_v)
    return Estimate.normal(gain * ratio, abs(gain) * ratio * relative, mean.samples - 1)


@dataclass(frozen=True, slots=True)
class NoiseAt:
    """Noise of means at one rate, as a row of Table II: ``predicted_std`` is what white noise would give."""

    rate_hz: float
    block: int
    std: float
    low: float
    high: float
    predicted_std: float

    @property
    def peak_to_peak(self) -> float:
        """Largest less smallest."""
        return self.high - self.low


def noise_by_rate(values: Floats, rate_hz: float, rates_hz: Sequence[float] = RATES_HZ) -> list[NoiseAt]:
    """Noise after averaging blocks of samples, for each rate that divides into at least 16 blocks."""
    out: list[NoiseAt] = []
    full = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    for rate in rates_hz:
        block = max(1, round(rate_hz / rate))
        count = len(values) // block
        if count >= 16:
            means = values[: count * block].reshape(count, block).mean(axis=1)
            deviation = float(np.std(means, ddof=1))
            low, high = float(means.min()), float(means.max())
            out.append(NoiseAt(rate_hz / block, block, deviation, low, high, full / math.sqrt(block)))
    return out


@dataclass(frozen=True, slots=True)
class Allan:
    """Overlapping Allan deviation."""

    # shape (n,); averaging times, and the deviation of neighbouring means over the root of two
    tau_s: Floats
    deviation: Floats
    slope: Estimate  # of its logarithm over that of the time, up to 0.1 s: -1/2 for white noise
    white: bool  # whether -1/2 is within the interval, or within 0.05 of it
    floor: float  # the smallest deviation: averaging longer does not help beyond it


def allan(values: Floats, rate_hz: float) -> Allan:
    """Overlapping Allan deviation over octaves of averaging time (IEEE 1139), and the slope that tells white noise.

    Raises DeclinedError: fewer than 1000 samples, or no noise at all.
    """
    x = np.asarray(values, np.float64)
    if len(x) < _MIN_SAMPLES or float(np.std(x)) == 0.0:
        still = "without any noise " if len(x) >= _MIN_SAMPLES else ""
        msg = f"{len(x)} samples {still}tell nothing about noise over time"
        raise DeclinedError(msg)
    total = np.concatenate([[0.0], np.cumsum(x - x.mean())])
    blocks = 2 ** np.arange(int(math.log2(len(x) / 4)) + 1)
    deviation = np.array([_allan_at(total, int(m)) for m in blocks])
    tau = blocks / rate_hz
    use = tau <= _WHITE_UP_TO_S
    slope = _log_slope(tau[use], deviation[use], len(x) / blocks[use])
    off = max(abs(slope.low + 0.5), abs(slope.high + 0.5))
    white = slope.contains(-0.5) or off < _WHITE_SLACK
    return Allan(np.asarray(tau, np.float64), deviation, slope, white, float(deviation.min()))


def _allan_at(total: Floats, m: int) -> float:
    means = (total[m:] - total[:-m]) / m
    steps = means[m:] - means[:-m]
    return math.sqrt(float(np.mean(steps * steps)) / 2.0)


def _log_slope(tau: Floats, deviation: Floats, freedom: Floats) -> Estimate:
    """Slope of a straight line through the logarithms, weighted by the degrees of freedom of each point."""
    x, y = np.log(tau), np.log(deviation)
    weight = 2.0 * freedom  # variance of the logarithm of a deviation: 1 / (2 degrees of freedom)
    x_mean = float(np.sum(weight * x) / np.sum(weight))
    moment = float(np.sum(weight * (x - x_mean) ** 2))
    slope = float(np.sum(weight * (x - x_mean) * y)) / moment
    residual = y - slope * (x - x_mean) - float(np.sum(weight * y) / np.sum(weight))
    # Octaves share their samples, so the scatter about the line is smaller than the weights say: the larger counts.
    inflation = max(1.0, float(np.sum(weight * residual**2)) / max(1, len(x) - 2))
    return Estimate(slope, *(slope + s * student_95(len(x) - 2) * math.sqrt(inflation / moment) for s in (-1.0, 1.0)))
