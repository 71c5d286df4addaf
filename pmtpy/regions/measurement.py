"""What a region cost: energies between two readings of the curve, with uncertainty, coverage, warnings.

Nothing here reads a sensor or asks for the time: it judges what a sensor has kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.analysis.uncertainty.budget import Assessment, assess, combine, of_product
from pmtpy.analysis.uncertainty.interval_statistics import (
    CONTEXT_CELLS,
    Evidence,
    is_power,
    observe,
    observe_corrected,
    reach_s,
)
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import TOTAL, Channel, Derivation, EnergyMethod
from pmtpy.core.rows import Floats, Frame, Ints, Layout
from pmtpy.sensor.history import CurvePoint
from pmtpy.sensor.sensor import Sensor

if TYPE_CHECKING:
    from pmtpy.analysis.correction.correct import Energy

# Standard deviations between a counter and the power of the same part, beyond which they contradict each other: by
# chance once in 370 times (normal distribution).
_CONTRADICTION = 3.0
_AGREEMENT = 1.0  # within which another power of the part takes the counter's side
_STILL = 3.0  # refresh periods: one may pass before a counter moves, and one more if rows come late
_CONTEXT_S = CONTEXT_CELLS * 0.1  # pumps poll every 0.1 s or faster
_STREAM_S = 1e-3 * 0.9  # a period below this is that of a stream: no register is as fast


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one sensor, or one of its channels, says about a region.

    Attributes
    ----------
    target, name : str
        The sensor, and the channel (``"total"`` for the sum).
    seconds : float
        Length of the region.
    joules : float
        Energy in the part of the region for which it is known (``coverage``).
    watts : float
        Mean power over that part; NaN where there is none.
    uncertainty_joules : float
        Standard uncertainty of ``joules`` (about 68 %; twice it is about 95 %).
    method : str
        ``counter``, ``integrated``, ``interval mean``, and what a calibration corrected (``lag corrected``,
        ``one-pole inverted``, ``reconstruction``, ``load-informed``, ...); or several of them for a sum.
    refresh_s, window_s : float or None
        How often the register changes and over which span it averages, where known.
    coverage : float
        Share of the region for which energy is known, 0 to 1.
    lost : int
        Rows lost inside the region.
    warnings : tuple of str
        What a reader of the number must know.
    virtual : bool
        True when the device is emulated.
    channels : mapping of str to Measurement
        The channels of the sensor; empty in a channel.
    peak_watts : float
        Largest power of the rows inside the region; NaN where no row lies inside or sensors are summed.
    settled : bool
        Whether all rows that tell of the region's end have come; until then a later look may know more.
    """

    target: str
    name: str
    seconds: float
    joules: float
    watts: float
    uncertainty_joules: float
    method: str
    refresh_s: float | None
    window_s: float | None
    coverage: float
    lost: int
    warnings: tuple[str, ...]
    virtual: bool
    channels: Mapping[str, Measurement] = field(default_factory=dict)
    peak_watts: float = math.nan
    settled: bool = True


def evaluate(
    sensor: Sensor, a: CurvePoint, b: CurvePoint, peaks: Sequence[float] = (), load: Ints | None = None
) -> Measurement:
    """Measure between two readings of one sensor: the total and every channel.

    Parameters
    ----------
    peaks : sequence of float
        The largest power of the total and each channel, where they were followed.
    load : int64, shape (2 n,), optional
        When the load was switched on, off, on, ... inside the region, on the sensor's clock.
    """
    layout = sensor.layout
    rows = sensor.around(a, b, max((max(_margin_s(c), _reach_s(sensor, c, load)) for c in layout.energy), default=0.0))
    settled = a.extended_ns == b.extended_ns == 0 and _settled(sensor, rows, b, load)
    judged: list[Assessment] = []
    channels: dict[str, Measurement] = {}
    for i, plain in enumerate(layout.energy, 1):
        better = _as_recorded(sensor, plain, i, (a, b), load)
        if better is not None:
            channel, corrected = plain, better.method
            evidence = _known(better.joules, a, b)
            judged.append(_judged(better, channel, evidence))
        else:
            channel, evidence, corrected = _observed(sensor, _informed(plain, layout, rows.values), rows, i, (a, b))
            judged.append(assess(channel, evidence))
        beyond = sensor.calibration.warning(channel, rows.watts[:, i]) if sensor.calibration is not None else ""
        if beyond:
            judged[-1] = replace(judged[-1], warnings=(*judged[-1].warnings, beyond))
        peak = peaks[i] if peaks else math.nan
        found = _measurement(sensor, plain, evidence, judged[-1], peak)
        method = f"{found.method}, {corrected}" if corrected else found.method
        channels[plain.name] = replace(found, method=method, settled=settled)
    for i, judgement in _contradicted(layout.energy, channels, judged).items():
        judged[i], name = judgement, layout.energy[i].name
        warnings = (*_origin(sensor), *judgement.warnings)
        channels[name] = replace(channels[name], uncertainty_joules=judgement.uncertainty_joules, warnings=warnings)
    extent = (b.t_ns - a.t_ns) / 1e9, (b.uncovered_ns - a.uncovered_ns) / 1e9, b.lost - a.lost
    return replace(
        _total(sensor, layout, channels, judged, extent),
        peak_watts=peaks[0] if peaks else math.nan,
        settled=settled,
    )


def _observed(
    sensor: Sensor, channel: Channel, rows: Frame, column: int, ends: tuple[CurvePoint, CurvePoint]
) -> tuple[Channel, Evidence, str]:
    """Gather the evidence for one channel, corrected where a profile knows how; return what was corrected, too."""
    a, b = ends
    t_ns, watts = rows.t_ns, rows.watts[:, column]
    joules = b.joules[column] - a.joules[column]
    uncovered_s, lost = (b.uncovered_ns - a.uncovered_ns) / 1e9, b.lost - a.lost
    late = sensor.calibration.lateness(channel) if sensor.calibration is not None else None
    if late is not None and uncovered_s <= 0:
        found = observe_corrected(
            channel, late, t_ns, watts, start_ns=a.t_ns, end_ns=b.t_ns, joules=joules, lost=lost
        )  # fmt: skip
        if found is not None:
            return *found, "one-pole inverted" if late.tau_s else "lag corrected"
    moved = None if is_power(channel) else np.diff(rows.joules[:, column], prepend=-math.inf) > 0
    evidence = observe(
        channel,
        t_ns,
        watts,
        start_ns=a.t_ns,
        end_ns=b.t_ns,
        joules=joules,
        moved=moved,
        uncovered_s=uncovered_s,
        lost=lost,
    )
    return channel, evidence, ""


def _as_recorded(
    sensor: Sensor, channel: Channel, column: int, ends: tuple[CurvePoint, CurvePoint], load: Ints | None
) -> Energy | None:
    """Correct one channel as a recording would be; None where its profile, or what has come by now, forbids it."""
    profile = _kernel(sensor, channel)
    a, b = ends
    if profile is None or b.uncovered_ns > a.uncovered_ns or not b.t_ns > a.t_ns:
        return None
    from pmtpy.analysis.correction.live import (  # only those who have a profile pay for it
        BEFORE_S,
        after_s,
        live_energy,
    )
    from pmtpy.analysis.signal.response import Activity

    reach_s = after_s(profile, loaded=load is not None)
    if not reach_s:
        return None
    rows = sensor.around(a, b, max(BEFORE_S, 2.0 * reach_s))
    seconds = (b.t_ns - a.t_ns) / 1e9
    edges = None if load is None else np.clip((load - a.t_ns) / 1e9, 0.0, seconds)
    return live_energy(
        profile,
        channel,
        np.asarray(rows.t_ns - a.t_ns, np.float64) / 1e9,
        rows.watts[:, column],
        seconds=seconds,
        aged_s=sensor.aged_s,
        load=None if edges is None else Activity(edges[::2], edges[1::2], 0.0, seconds),
    )


def _kernel(sensor: Sensor, channel: Channel) -> Profile | None:
    """Return the profile of a channel of power if it knows the kernel."""
    profile = sensor.calibration.profiles.get(channel.name) if sensor.calibration is not None else None
    return profile if profile is not None and profile.behaviour.span_s is not None and is_power(channel) else None


def _known(joules: float, a: CurvePoint, b: CurvePoint) -> Evidence:
    return Evidence((b.t_ns - a.t_ns) / 1e9, joules, b.rows - a.rows, lost=b.lost - a.lost)


def _judged(found: Energy, channel: Channel, seen: Evidence) -> Assessment:
    lost = (f"{channel.name}: {seen.lost} rows were lost inside the region",) if seen.lost else ()
    return Assessment(found.uncertainty_joules, found.parts, (*found.warnings, *lost))


def _settled(sensor: Sensor, rows: Frame, b: CurvePoint, load: Ints | None) -> bool:
    """Whether no later row can change the judgement: all that tell of the end have come, or it was read there."""
    read_there = bool(np.any(rows.t_ns == b.t_ns))
    reach = [_reach_s(sensor, c, load) for c in sensor.layout.energy if is_power(c) or not read_there]
    return bool(rows.t_ns[-1] - b.t_ns >= 1e9 * max(reach, default=0.0))


def _reach_s(sensor: Sensor, channel: Channel, load: Ints | None) -> float:
    """How long after an instant rows still tell something of it."""
    profile = _kernel(sensor, channel)
    if profile is None:
        return reach_s(channel)
    from pmtpy.analysis.correction.live import after_s

    return max(reach_s(channel), after_s(profile, loaded=load is not None))


def _margin_s(channel: Channel) -> float:
    """How far around a region rows tell something of it.

    A register may be polled far less often than it refreshes, so that seconds are needed; of a stream, nothing is.
    """
    refresh = channel.refresh_s
    context = CONTEXT_CELLS * refresh if refresh is not None and refresh < _STREAM_S else _CONTEXT_S
    return max(context, CONTEXT_CELLS * (refresh or 0.0), 2.0 * (channel.window_s or 0.0), reach_s(channel))


def _contradicted(
    layout: Sequence[Channel], found: Mapping[str, Measurement], judged: Sequence[Assessment]
) -> dict[int, Assessment]:
    """Judge anew the counters that the power of the same part contradicts (docs/uncertainty.md, "Witness")."""
    anew: dict[int, Assessment] = {}
    for i, channel in enumerate(layout):
        powers = [
            j
            for j, c in enumerate(layout)
            if c.domain == channel.domain and c.energy_method is not EnergyMethod.COUNTER
        ]
        if channel.energy_method is not EnergyMethod.COUNTER or not channel.domain or not powers:
            continue
        own, counted = judged[i], found[channel.name].joules
        apart = [abs(counted - found[layout[j].name].joules) for j in powers]
        allowed = [math.hypot(own.uncertainty_joules, judged[j].uncertainty_joules) for j in powers]
        # A part-time power may miss the load; then the average, which sees all of it, is on the counter's side.
        agreed = any(a <= _AGREEMENT * u for a, u in zip(apart, allowed, strict=True))
        power = layout[powers[0]].name
        # However uncertain the power is: a counter that has not moved for several refreshes has not counted it.
        still = counted < channel.smallest_step and found[channel.name].seconds >= _STILL * (
            channel.refresh_s or math.inf
        )
        still = still and found[power].joules > 10 * channel.smallest_step
        if still or (apart[0] > _CONTRADICTION * allowed[0] and not agreed):
            warning = (
                f"{channel.name}: the counter says {counted:.4g} J and {power} {found[power].joules:.4g} J, further"
                " apart than their uncertainties allow; one of them is wrong here (a counter that rested, a power that"
                " missed the load), and the uncertainty of the counter now spans both"
            )
            parts = (("contradiction", math.hypot(apart[0], judged[powers[0]].uncertainty_joules)), *own.parts)
            anew[i] = Assessment(math.hypot(allowed[0], apart[0]), parts, (*own.warnings, warning))
    return anew


def _informed(channel: Channel, layout: Layout, values: Floats) -> Channel:
    """Return a product with what follows from the voltage and the current that were seen."""
    if channel.derivation is not Derivation.PRODUCT or not len(values):
        return channel
    names = [c.name for c in layout.values]
    at = [names.index(operand) for operand in channel.operands]
    means = values[:, at].mean(axis=0)
    return of_product(channel, layout.values[at[0]], layout.values[at[1]], float(means[0]), float(means[1]))


def _measurement(sensor: Sensor, channel: Channel, seen: Evidence, judged: Assessment, peak: float) -> Measurement:
    return Measurement(
        sensor.target,
        channel.name,
        seen.seconds,
        seen.joules,
        _mean(seen.joules, seen.seconds, seen.uncovered_s),
        judged.uncertainty_joules,
        channel.energy_method.value,
        channel.refresh_s,
        channel.window_s,
        _coverage(seen.seconds, seen.uncovered_s),
        seen.lost,
        (*_origin(sensor), *judged.warnings),
        sensor.identity.virtual,
        peak_watts=peak,
    )


def _total(
    sensor: Sensor,
    layout: Layout,
    channels: Mapping[str, Measurement],
    judged: Sequence[Assessment],
    extent: tuple[float, float, int],
) -> Measurement:
    seconds, uncovered_s, lost = extent
    parts = [layout.energy[i - 1] for i in layout.in_total]
    summed = combine([judged[i - 1] for i in layout.in_total])
    joules = sum(channels[c.name].joules for c in parts) if parts else math.nan
    notes: tuple[str, ...] = ()
    if not parts:
        notes = (f"{sensor.target}: which channels make a total is not known for this device; read the channels",)
    return Measurement(
        sensor.target,
        TOTAL,
        seconds,
        joules,
        _mean(joules, seconds, uncovered_s),
        summed.uncertainty_joules if parts else math.nan,
        " + ".join(dict.fromkeys(channels[c.name].method for c in parts)),
        widest([c.refresh_s for c in parts]),
        widest([c.window_s for c in parts]),
        _coverage(seconds, uncovered_s),
        lost,
        (*_origin(sensor), *sensor.identity.notes, *notes, *summed.warnings),
        sensor.identity.virtual,
        channels,
    )


def _origin(sensor: Sensor) -> tuple[str, ...]:
    return (f"{sensor.target} is virtual: its energy is emulated",) if sensor.identity.virtual else ()


def _mean(joules: float, seconds: float, uncovered_s: float) -> float:
    known = seconds - uncovered_s
    return joules / known if known > 0 else math.nan


def _coverage(seconds: float, uncovered_s: float) -> float:
    return min(1.0, max(0.0, 1.0 - uncovered_s / seconds)) if seconds > 0 else 1.0


def widest(values: Sequence[float | None]) -> float | None:
    """Return the largest of what is known; None where nothing is."""
    known = [v for v in values if v is not None]
    return max(known) if known else None
