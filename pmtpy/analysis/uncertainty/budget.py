"""How far a measured energy can be trusted: a standard uncertainty, what it is made of, and plain warnings.

Pure arithmetic in the manner of the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008): each
cause is a part with a standard uncertainty in joules, independent parts add in squares, a 95 % interval is
:data:`COVERAGE_FACTOR` times the result either way. It knows a :class:`~pmtpy.core.rows.Channel` (what the sensor's
maker
or a calibration says) and an :class:`Evidence` (what was seen in one interval), and nothing else. It never changes
the energy. Every formula is derived in docs/uncertainty.md under the name of its part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.uncertainty.interval_statistics import Edge, Evidence, is_power, span_s
from pmtpy.core.channel import Channel, EnergyMethod

COVERAGE_FACTOR = 1.96  # of the normal distribution, 95 %: the sum of several parts of like size
_RECTANGULAR = math.sqrt(12.0)  # width of a rectangular distribution over its standard deviation (JCGM 100, 4.3.7)
_BOUND = math.sqrt(3.0)  # the same for a half-width
_IN_A_GAP = math.sqrt(30.0)  # an edge and a step at the same random place of a gap that is bridged by its mean
# Errors of an edge between cells, in squares of the cell and of the power that is undone from one cell to the next: of
# a load faster than the cells, whose running sum at the cells' ends is random (docs/uncertainty.md, "Edges").
_FAST = 5.0 / 12.0
# The same of a wide window, in squares of the window and of the bend of its readings: fits sines of 0.7 to 2.5 periods
# within the window to within a factor of two.
_HIDDEN = 0.09
_LONGEST = 4.0  # and no more than the same sines hold in an interval that is short beside the window
_OVERDUE_S, _OVERDUE_CELLS = 0.3, 4.0  # pumps and evaluations bring rows within less
_FULL = 0.9  # below this share of time seen a sensor is called part-time (gpu-table of Yang et al., duty)
_DOUBTFUL = 0.1  # edges and lag together above this share of the energy: the region is too short
# Parts that come from the load and the two instants, which all channels share.
_SHARED = frozenset({"edges", "ahead", "lag", "unresolved", "uncovered", "reconstruction", "aliasing", "missing"})
# Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement of one energy.

    Attributes
    ----------
    uncertainty_joules : float
        Standard uncertainty; a 95 % interval is ``COVERAGE_FACTOR`` times it, either way. NaN where nothing at all is
        known of the interval.
    parts : tuple of (name, joules)
        The causes that are not zero, each a standard uncertainty, largest first.
    warnings : tuple of str
        What a reader of the number must know, in whole sentences.
    """

    uncertainty_joules: float
    parts: tuple[tuple[str, float], ...] = ()
    warnings: tuple[str, ...] = ()


def assess(channel: Channel, evidence: Evidence) -> Assessment:
    """Judge one energy: its standard uncertainty in joules, the parts of it, and the warnings."""
    parts = {
        "gain": channel.gain_u * abs(evidence.joules),
        "offset": _offset(channel, evidence),
        "resolution": _resolution(channel, evidence),
        "noise": _noise(channel, evidence),
        "edges": _edges(channel, evidence),
        "ahead": _ahead(channel, evidence),
        "lag": _lag(channel, evidence),
        "inversion": evidence.inverted_joules,
        "sampling": _sampling(channel, evidence),
        "unresolved": _unresolved(channel, evidence),
        "uncovered": _uncovered(channel, evidence),
        "lost": _lost(channel, evidence),
    }
    ranked = sorted(((n, u) for n, u in parts.items() if u != 0), key=lambda p: -p[1])  # NaN is kept: not known
    total = math.sqrt(sum(u * u for _, u in ranked))
    return Assessment(total, tuple(ranked), tuple(_warnings(channel, evidence, parts)))


def of_product(channel: Channel, voltage: Channel, current: Channel, volts: float, amperes: float) -> Channel:
    """Return a power that is formed from a voltage and a current with what follows from the two.

    What the channel says of itself holds for a nominal voltage; it is replaced, not added to. Where nothing is known
    of the two, the channel is left as it is.

    Parameters
    ----------
    volts, amperes : float
        Mean of the two in the interval that is judged.

    Notes
    -----
    With U +- EU and I +- EI the power has Ep = sqrt((U EI)^2 + (I EU)^2 + (EI EU)^2) (ISPASS 2025, PowerSensor3,
    error model). The gains' share is proportional to the power and stays relative; zero, noise and step become watts.
    """
    if not any((voltage.gain_u, voltage.offset_u, current.gain_u, current.offset_u)):
        return channel

    def watts(of_volts: float, of_amperes: float) -> float:
        return math.hypot(volts * of_amperes, amperes * of_volts, of_volts * of_amperes)

    return replace(
        channel,
        gain_u=math.hypot(voltage.gain_u, current.gain_u),
        offset_u=watts(voltage.offset_u, current.offset_u),
        noise=watts(voltage.noise, current.noise),
        resolution=watts(voltage.smallest_step, current.smallest_step),
    )


def combine(assessments: Sequence[Assessment]) -> Assessment:
    """Judge the sum of several energies over one interval.

    Edges, lag and whatever was not seen, or was undone, come from one load and one pair of instants, so they add
    linearly; the sensors' own errors are independent and add in squares. Warnings are kept, each once.
    """
    together: dict[str, float] = {}
    for name in dict.fromkeys(n for a in assessments for n, _ in a.parts):
        each = [dict(a.parts).get(name, 0.0) for a in assessments]
        common = name in _SHARED
        together[name] = sum(each) if common else math.sqrt(sum(u * u for u in each))
    ranked = sorted(together.items(), key=lambda p: -p[1])
    warnings = dict.fromkeys(w for a in assessments for w in a.warnings)
    return Assessment(math.sqrt(sum(u * u for _, u in ranked)), tuple(ranked), tuple(warnings))


def repeated(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, standard deviation and half-width of the 95 % interval of the mean (Student's t) of repeated runs.

    The interval speaks of repeatability alone: what all runs have in common (gain, zero) is not in it.

    Raises
    ------
    ValueError
        Fewer than two values: nothing repeats.
    """
    n = len(values)
    if n < 2:
        msg = f"repeatability needs at least two runs, not {n}"
        raise ValueError(msg)
    deviation = float(np.std(values, ddof=1))
    return float(np.mean(values)), deviation, student_95(n - 1) * deviation / math.sqrt(n)


def of_another(values: Sequence[float], within_u: Sequence[float]) -> tuple[float, float]:
    """Mean of what several recordings gave of one quantity, and how uncertain it is for yet another recording.

    The spread between them is estimated from them, which few do badly: the interval of 95 % for another one is
    ``t(k - 1) s sqrt(1 + 1/k)`` either way (a prediction interval), given as a standard uncertainty of that interval.
    It is never below what the recordings state of themselves.

    Raises
    ------
    ValueError
        Fewer than two recordings: nothing is known of a spread.
    """
    mean, deviation, _ = repeated(values)
    k = len(values)
    spread = student_95(k - 1) / COVERAGE_FACTOR * deviation * math.sqrt(1.0 + 1.0 / k)
    return mean, max(spread, math.sqrt(math.fsum(u * u for u in within_u) / k))


def student_95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t; within 0.001 of the exact one (Hill's expansion above 10 degrees)."""
    if degrees <= len(_STUDENT):
        return _STUDENT[max(1, degrees) - 1]
    z = 1.959964
    g1, g2 = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / degrees + g2 / degrees**2 + g3 / degrees**3


# --- the parts; each section of docs/uncertainty.md derives one ---


def _mean(e: Evidence) -> float:
    covered = e.seconds - e.uncovered_s
    return abs(e.joules) / covered if covered > 0 else e.peak_watts


def _offset(channel: Channel, e: Evidence) -> float:
    """A wrong zero is the same in every reading; in a counter's difference it cancels."""
    return channel.offset_u * e.seconds if is_power(channel) else 0.0


def _cell_s(channel: Channel, e: Evidence) -> float:
    """Time for which one reading stands."""
    return max(e.cell_s, channel.refresh_s or 0.0)


def _updates(channel: Channel, e: Evidence) -> float:
    """Independent readings in the interval, at least one."""
    cell = _cell_s(channel, e)
    return max(1.0, e.seconds / cell) if cell > 0 else max(1.0, e.rows)


def _resolution(channel: Channel, e: Evidence) -> float:
    """Rounding: twice in a counter's difference; of a power, once for each value that was shown.

    A register may as well cut off as round, which is half a step for all values alike; a calibrated zero contains it.
    """
    one = channel.smallest_step / _RECTANGULAR
    if not is_power(channel):
        return one * math.sqrt(2.0)
    cut_off = 0.0 if channel.offset_u else 1.0
    return one * e.seconds * math.sqrt(cut_off + 1.0 / e.levels)


def _noise(channel: Channel, e: Evidence) -> float:
    """White noise of single readings, averaged over those in the interval; twice in a counter's difference."""
    if not is_power(channel):
        return channel.noise * math.sqrt(2.0)
    return (channel.noise or e.noise_watts) * e.seconds / math.sqrt(_updates(channel, e))


def _beyond_noise(channel: Channel, watts: float) -> float:
    """What a root mean square change of the power exceeds that of noise alone."""
    white = 2.0 * channel.noise**2 if is_power(channel) else 0.0
    return math.sqrt(max(0.0, watts * watts - white))


def _swing(channel: Channel, e: Evidence, edge: Edge) -> float:
    """Swing of the power at an edge beyond what noise alone shows (four deviations)."""
    return max(0.0, edge.swing_watts - (4.0 * (channel.noise or e.noise_watts) if is_power(channel) else 0.0))


def _edges(channel: Channel, e: Evidence) -> float:
    """An edge falls between two refreshes, or into a window: the power there is known only by what it changed by."""
    cell = _cell_s(channel, e)
    window = (
        0.0 if channel.energy_method is EnergyMethod.MEAN else channel.window_s or 0.0
    )  # a mean's window is its cell
    seen = _seen(channel, e)  # what lies between the windows is in the part "sampling", the edges' cells included
    squares = smeared = 0.0
    for edge in (e.start, e.end):
        swing = _swing(channel, e, edge)
        gap = cell if is_power(channel) else edge.gap_s
        squares += seen * ((swing * gap / _IN_A_GAP) ** 2 + _FAST * (e.undone_watts * gap) ** 2)
        if is_power(channel):
            squares += _HIDDEN * (e.hidden_watts * min(window, _LONGEST * e.seconds)) ** 2
            smeared += swing * window / 8.0 / _BOUND  # of a region that is the work itself, out of it at both ends
        else:  # what the register showed here was up to a refresh old
            squares += (edge.watts * edge.old_s / _RECTANGULAR) ** 2
    return math.hypot(math.sqrt(squares), smeared)


def _ahead(channel: Channel, e: Evidence) -> float:
    """No row has come for the last part of the interval: the power may have moved there as it did before.

    Beyond a few cells it walks, one step in each: a walk with steps of ``r`` has the variance ``r^2 a^3 / (3 D)`` in
    its integral. Where rows are overdue, the load may also have begun to do something else: as for time that is not
    covered, the energy may be off by as much as there is.
    """
    rough, cell = _beyond_noise(channel, e.rough_watts), _cell_s(channel, e)
    near = rough * math.sqrt(e.ahead_s * (cell + e.ahead_s) / 2.0)
    walked = rough * math.sqrt(e.ahead_s**3 / (3.0 * cell)) if cell > 0.0 else 0.0
    unread_s = min(e.ahead_s, e.seconds)
    anything = _mean(e) * unread_s if _overdue(channel, e) else 0.0
    return math.hypot(max(near, min(walked, e.peak_watts * unread_s)), anything)


def _overdue(channel: Channel, e: Evidence) -> bool:
    """Whether the end lies so far beyond the newest row that rows should have come: a device stalls, or its cable."""
    return e.ahead_s > max(_OVERDUE_S, _OVERDUE_CELLS * _cell_s(channel, e))


def _lag(_channel: Channel, e: Evidence) -> float:
    """A late sensor shows the power of an interval that is earlier by the lag: one end is let in, one left out."""
    return abs(e.late_joules)


def _seen(channel: Channel, e: Evidence) -> float:
    """Share of time that reaches a reading; 0 where the window is not known."""
    cell, span = _cell_s(channel, e), span_s(channel)
    if not is_power(channel) or cell == 0.0:
        return 1.0
    if span is None:
        return 1.0 if channel.energy_method is EnergyMethod.MEAN else 0.0
    # Windows that are joined, but for how exactly their width and their period are known.
    return 1.0 if span >= _FULL * cell else span / cell


def _sampling(channel: Channel, e: Evidence) -> float:
    """What is not seen between the windows: steps that are misplaced there, and changes faster than the cells."""
    cell = _cell_s(channel, e)
    lasting = _beyond_noise(channel, e.rough_watts) ** 2 / 12.0
    fast = max(0.0, e.undone_watts**2 - channel.noise**2) * 5.0 / 6.0
    return math.sqrt((1.0 - _seen(channel, e)) * (lasting + fast) * _updates(channel, e)) * cell


def _needed_s(channel: Channel, e: Evidence) -> float:
    """Shortest interval that is sure to contain one whole reading."""
    between = _cell_s(channel, e) if is_power(channel) else channel.refresh_s or 0.0
    return between + (span_s(channel) or 0.0)


def _unresolved(channel: Channel, e: Evidence) -> float:
    """Less than one reading: the power inside can be anything from nothing to the most it can be."""
    needed = _needed_s(channel, e)
    read_at_both = not is_power(channel) and e.start.gap_s == e.end.gap_s == 0.0
    if read_at_both or e.seconds >= needed or e.uncovered_s >= e.seconds:
        return 0.0
    top = channel.max_watts if channel.max_watts is not None else 2.0 * max(_mean(e), e.peak_watts)
    return (1.0 - e.seconds / needed) * min(top * e.seconds, e.most_joules) / _RECTANGULAR


def _uncovered(channel: Channel, e: Evidence) -> float:
    """Time without known energy may have held as much as the rest; if there is no rest, up to the channel's limit."""
    if e.uncovered_s <= 0.0:
        return 0.0
    if e.seconds > e.uncovered_s:
        return _mean(e) * e.uncovered_s
    return math.nan if channel.max_watts is None else channel.max_watts * e.uncovered_s / _BOUND


def _lost(channel: Channel, e: Evidence) -> float:
    """Lost rows that were bridged by their neighbours."""
    if not e.lost or e.uncovered_s > 0:
        return 0.0
    spacing = channel.refresh_s or e.seconds / max(1, e.rows + e.lost)
    return e.rough_watts * spacing * e.lost / _RECTANGULAR


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _warnings(channel: Channel, e: Evidence, parts: dict[str, float]) -> list[str]:
    out: list[str] = []
    refresh, window = channel.refresh_s or 0.0, channel.window_s or 0.0
    overdue = _overdue(channel, e)
    blurred = math.hypot(parts["edges"], 0.0 if overdue else parts["ahead"], parts["lag"])
    if e.seconds < max(_needed_s(channel, e), refresh) or (e.joules and blurred > _DOUBTFUL * abs(e.joules)):
        averages = f" and averages over {_duration(window)}" if window else ""
        if e.seconds >= max(_needed_s(channel, e), refresh):
            averages += f": what falls between its readings leaves {blurred / abs(e.joules):.0%} of the energy open"
        out.append(
            f"{channel.name}: the region of {_duration(e.seconds)} is too short for this sensor, which refreshes "
            f"every {_duration(refresh)}{averages}; measure longer, or repeat the work inside the region"
            if refresh
            else f"{channel.name}: the region of {_duration(e.seconds)} is too short for the rows that were read"
        )
    if e.rows == 0 and is_power(channel) and not out and not overdue:
        out.append(f"{channel.name}: no reading falls into the region of {_duration(e.seconds)}")
    if overdue:
        out.append(
            f"{channel.name}: nothing has been read of the last {_duration(min(e.ahead_s, e.seconds))} of the region; "
            "the power before was let go on, and the uncertainty is as large as that energy"
        )
    if e.uncovered_s > 0:
        share = e.uncovered_s / e.seconds if e.seconds > 0 else 1.0
        out.append(
            f"{channel.name}: no energy is known for {_duration(e.uncovered_s)} ({share:.0%} of the region); "
            "the joules do not contain it"
        )
    if e.lost:
        out.append(f"{channel.name}: {e.lost} rows were lost inside the region")
    seen, cell = _seen(channel, e), _duration(_cell_s(channel, e))
    if seen < _FULL:
        part = f"sees {seen:.0%} of the time" if seen else "covers an unknown part of the time"
        out.append(
            f"{channel.name}: this sensor {part}; a load with a period near that of its readings, {cell}, "
            "can alias unnoticed, so measure longer, or vary the start over several runs"
        )
    return out
