"""How far a measured energy can be trusted: a standard uncertainty, what it is made of, and plain warnings.

Pure arithmetic in the manner of the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008): each
cause is a part with a standard uncertainty in joules, independent parts add in squares, a 95 % interval is
:data:`COVERAGE_FACTOR` times the result either way. It knows a :class:`~pmtpy.model.Channel` (what the sensor's maker
or a calibration says) and an :class:`Evidence` (what was seen in one interval), and nothing else. It never changes
the energy. Every formula is derived in docs/uncertainty.md under the name of its part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.model import Channel, Floats, Ints, Rule

COVERAGE_FACTOR = 1.96  # of the normal distribution, 95 %: the sum of several parts of like size
_RECTANGULAR = math.sqrt(12.0)  # width of a rectangular distribution over its standard deviation (JCGM 100, 4.3.7)
_BOUND = math.sqrt(3.0)  # the same for a half-width
_IN_A_GAP = math.sqrt(30.0)  # an edge and a step at the same random place of a gap that is bridged by its mean
_FULL = 0.9  # below this share of time seen a sensor is called part-time (gpu-table of Yang et al., duty)
_DOUBTFUL = 0.1  # edges and lag together above this share of the energy: the region is too short
# Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True)
class Edge:
    """The power around one end of an interval.

    Attributes
    ----------
    watts : float
        Of a power: what was shown at the edge, which is what the sensor had seen before it. Of a counter: the mean
        power up to the edge.
    swing_watts : float
        Largest less smallest power within one refresh and window of the edge.
    gap_s : float
        Time between the rows on either side of the edge; 0 when the register was read at the edge itself.
    """

    watts: float = 0.0
    swing_watts: float = 0.0
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of one channel in one interval.

    Attributes
    ----------
    seconds, joules : float
        Length of the interval, and the energy found in the part of it that is covered.
    rows : int
        Rows inside the interval.
    start, end : Edge
        The power around its two ends.
    rough_watts : float
        Root mean square difference of successive rows.
    peak_watts : float
        Largest power seen in or next to the interval.
    uncovered_s : float
        Seconds for which no energy is known; they are not in ``joules``.
    lost : int
        Rows lost inside the interval.
    """

    seconds: float
    joules: float
    rows: int
    start: Edge = Edge()
    end: Edge = Edge()
    rough_watts: float = 0.0
    peak_watts: float = 0.0
    uncovered_s: float = 0.0
    lost: int = 0


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


def observe(
    channel: Channel,
    t_ns: Ints,
    watts: Floats,
    *,
    start_ns: int,
    end_ns: int,
    joules: float,
    uncovered_s: float = 0.0,
    lost: int = 0,
) -> Evidence:
    """Gather the evidence from the rows in and around an interval.

    Parameters
    ----------
    t_ns, watts : arrays, shape (n,)
        Rows that are still known, in order: those inside, and a few either side. Of a long interval the middle may
        be missing. None at all is allowed.
    start_ns, end_ns : int
        The interval.
    joules, uncovered_s, lost
        As integrated over the interval.
    """
    seconds = (end_ns - start_ns) / 1e9
    known = np.isfinite(watts)  # the first row of a counter has no power yet
    t_ns, watts = t_ns[known], watts[known]
    if not len(t_ns):
        mean = joules / seconds if seconds > 0 else 0.0
        edge = Edge(mean)
        return Evidence(seconds, joules, 0, edge, edge, 0.0, mean, uncovered_s, lost)
    inside = np.searchsorted(t_ns, [start_ns, end_ns], side="right")
    around = slice(max(0, int(inside[0]) - 1), min(len(t_ns), int(inside[1]) + 1))
    seen = watts[around]
    steps = np.diff(seen)
    return Evidence(
        seconds=seconds,
        joules=joules,
        rows=int(inside[1] - inside[0]),
        start=_edge(channel, t_ns, watts, start_ns),
        end=_edge(channel, t_ns, watts, end_ns),
        rough_watts=float(math.sqrt(np.mean(steps * steps))) if len(steps) else 0.0,
        peak_watts=float(seen.max()) if len(seen) else 0.0,
        uncovered_s=uncovered_s,
        lost=lost,
    )


def _edge(channel: Channel, t_ns: Ints, watts: Floats, at_ns: int) -> Edge:
    """Describe the rows around ``at_ns``."""
    span_ns = max(_refresh_s(channel, t_ns), channel.window_s or 0.0) * 1e9
    after = int(np.searchsorted(t_ns, at_ns))
    on_row = after < len(t_ns) and int(t_ns[after]) == at_ns
    low, high = np.searchsorted(t_ns, [at_ns - span_ns, at_ns + span_ns], side="right")
    near = watts[max(0, min(int(low), after) - 1) : max(int(high), after) + 1]
    swing = float(np.ptp(near))
    if on_row:
        gap_ns = 0
    elif 0 < after < len(t_ns):
        gap_ns = int(t_ns[after]) - int(t_ns[after - 1])
    else:  # nothing on one side yet: the curve is extended from the nearest row, and may move as it did before
        gap_ns = abs(at_ns - int(t_ns[min(after, len(t_ns) - 1)]))
        swing = max(swing, float(np.sqrt(np.mean(np.diff(watts) ** 2))) if len(watts) > 1 else 0.0)
    if _is_power(channel):
        level = float(np.interp(0, t_ns - at_ns, watts))
    else:  # the first row of a counter has no power before it
        level = float(watts[min(max(after, 1), len(watts) - 1)])
    return Edge(level, swing, gap_ns / 1e9)


def _refresh_s(channel: Channel, t_ns: Ints) -> float:
    """Refresh period: as the channel says, or the spacing of the rows."""
    if channel.refresh_s is not None:
        return channel.refresh_s
    return float(np.median(np.diff(t_ns))) / 1e9 if len(t_ns) > 1 else 0.0


def assess(channel: Channel, evidence: Evidence) -> Assessment:
    """Judge one energy: its standard uncertainty in joules, the parts of it, and the warnings."""
    parts = {
        "gain": channel.gain_u * abs(evidence.joules),
        "offset": _offset(channel, evidence),
        "resolution": _resolution(channel, evidence),
        "noise": _noise(channel, evidence),
        "edges": _edges(channel, evidence),
        "lag": _lag(channel, evidence),
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
        resolution=watts(voltage.step, current.step),
    )


def combine(assessments: Sequence[Assessment]) -> Assessment:
    """Judge the sum of several energies over one interval.

    Edges, lag and whatever was not seen come from one load and one pair of instants, so they add linearly; the
    sensors' own errors are independent and add in squares. Warnings are kept, each once.
    """
    together: dict[str, float] = {}
    for name in dict.fromkeys(n for a in assessments for n, _ in a.parts):
        each = [dict(a.parts).get(name, 0.0) for a in assessments]
        common = name in {"edges", "lag", "unresolved", "uncovered"}
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


def _is_power(channel: Channel) -> bool:
    """Whether uncertainties of single values are watts (else joules: a counter)."""
    return channel.how is not Rule.COUNTER


def _offset(channel: Channel, e: Evidence) -> float:
    """A wrong zero is the same in every reading; in a counter's difference it cancels."""
    return channel.offset_u * e.seconds if _is_power(channel) else 0.0


def _updates(channel: Channel, e: Evidence) -> float:
    """Independent readings in the interval, at least one."""
    if channel.refresh_s:
        return max(1.0, min(e.seconds / channel.refresh_s, e.rows or math.inf))
    return max(1.0, e.rows)


def _resolution(channel: Channel, e: Evidence) -> float:
    """Rounding: twice in a counter's difference; of a power, common to all readings that share one value."""
    one = channel.step / _RECTANGULAR
    if not _is_power(channel):
        return one * math.sqrt(2.0)
    alike = e.rough_watts < channel.step
    return one * e.seconds / (1.0 if alike else math.sqrt(_updates(channel, e)))


def _noise(channel: Channel, e: Evidence) -> float:
    """White noise of single readings, averaged over those in the interval; twice in a counter's difference."""
    if not _is_power(channel):
        return channel.noise * math.sqrt(2.0)
    return channel.noise * e.seconds / math.sqrt(_updates(channel, e))


def _swing(channel: Channel, edge: Edge) -> float:
    """Swing of the power at an edge beyond what noise alone shows (four deviations)."""
    return max(0.0, edge.swing_watts - (4.0 * channel.noise if _is_power(channel) else 0.0))


def _edges(channel: Channel, e: Evidence) -> float:
    """An edge falls between two refreshes, or into a window: the power there is known only by what it changed by."""
    refresh, window = channel.refresh_s or 0.0, channel.window_s or 0.0
    squares = 0.0
    for edge in (e.start, e.end):
        swing = _swing(channel, edge)
        if _is_power(channel):
            squares += (swing * max(edge.gap_s, refresh) / _IN_A_GAP) ** 2 + (swing * window / 8.0 / _BOUND) ** 2
        elif edge.gap_s > 0:
            squares += (swing * edge.gap_s / _IN_A_GAP) ** 2
        else:  # the register was read here: what it shows is up to a refresh old
            squares += (edge.watts * refresh / _RECTANGULAR) ** 2
    return math.sqrt(squares)


def _lag_s(channel: Channel) -> float:
    if channel.lag_s is not None:
        return abs(channel.lag_s)
    if channel.window_s is not None:
        return channel.window_s / 2.0
    return (channel.refresh_s or 0.0) / 2.0


def _lag(channel: Channel, e: Evidence) -> float:
    """A late sensor shows the power of an interval that is earlier by the lag: one end is let in, one left out."""
    between = abs(e.end.watts - e.start.watts)
    if not _is_power(channel):  # half a refresh on average, whatever the age of the register at either end
        return between * (channel.refresh_s or 0.0) / 2.0
    return _lag_s(channel) * max(0.0, between - 4.0 * channel.noise)


def _seen(channel: Channel) -> float:
    """Share of time that reaches a reading; 1 where nothing says otherwise."""
    if not _is_power(channel) or channel.how is Rule.MEAN or not channel.refresh_s or channel.window_s is None:
        return 1.0
    return min(1.0, channel.window_s / channel.refresh_s)


def _sampling(channel: Channel, e: Evidence) -> float:
    """A part-time sensor does not see what happens between its windows: its readings scatter about the mean."""
    white = 2.0 * (channel.noise**2 + channel.step**2 / 12.0)
    scatter = max(0.0, e.rough_watts**2 - white) / 2.0
    return math.sqrt((1.0 - _seen(channel)) * scatter / _updates(channel, e)) * e.seconds


def _needed_s(channel: Channel) -> float:
    """Shortest interval that is sure to contain one whole reading."""
    return (channel.refresh_s or 0.0) + (channel.window_s or 0.0)


def _unresolved(channel: Channel, e: Evidence) -> float:
    """Less than one reading: the power inside can be anything from nothing to the most it can be."""
    needed = _needed_s(channel)
    read_at_both = not _is_power(channel) and e.start.gap_s == e.end.gap_s == 0.0
    if read_at_both or e.seconds >= needed or e.uncovered_s >= e.seconds:
        return 0.0
    top = channel.max_watts if channel.max_watts is not None else 2.0 * max(_mean(e), e.peak_watts)
    return (1.0 - e.seconds / needed) * top * e.seconds / _RECTANGULAR


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
    blurred = math.hypot(parts["edges"], parts["lag"])
    if e.seconds < max(_needed_s(channel), refresh) or (e.joules and blurred > _DOUBTFUL * abs(e.joules)):
        averages = f" and averages over {_duration(window)}" if window else ""
        out.append(
            f"{channel.name}: the region of {_duration(e.seconds)} is too short for this sensor, which refreshes "
            f"every {_duration(refresh)}{averages}; measure longer, or repeat the work inside the region"
            if refresh
            else f"{channel.name}: the region of {_duration(e.seconds)} is too short for the rows that were read"
        )
    if e.rows == 0 and _is_power(channel) and not out:
        out.append(f"{channel.name}: no reading falls into the region of {_duration(e.seconds)}")
    if e.uncovered_s > 0:
        share = e.uncovered_s / e.seconds if e.seconds > 0 else 1.0
        out.append(
            f"{channel.name}: no energy is known for {_duration(e.uncovered_s)} ({share:.2g} of the region); "
            "the joules do not contain it"
        )
    if e.lost:
        out.append(f"{channel.name}: {e.lost} rows were lost inside the region")
    if _seen(channel) < _FULL:
        out.append(
            f"{channel.name}: this sensor sees {_seen(channel):.0%} of the time; a load with a period near its refresh "
            f"of {_duration(refresh)} can alias unnoticed, so measure longer, or vary the start over several runs"
        )
    return out
