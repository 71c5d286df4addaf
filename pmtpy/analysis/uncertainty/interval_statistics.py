"""What was seen of one channel in and around an interval: how much the power moved, how fast, how late it is shown.

Pure arithmetic on rows. It judges nothing: :mod:`pmtpy.analysis.uncertainty.budget` does. What the numbers are for,
and why these, is derived in docs/uncertainty.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.core.calibration.response import Lateness, invert_one_pole
from pmtpy.core.channel import Channel, EnergyMethod
from pmtpy.core.rows import Floats, Ints

CONTEXT_CELLS = 20  # cells on either side that tell how the power moves where the interval itself has but a few
_HOLE_CELLS = 5.0  # rows further apart than this do not follow each other: what lies between is not known any more
_AGAIN = 0.75  # share of a cell within which a value that comes again is no new reading
_CLEAN = 0.9  # share of the refresh period that two moves of a counter are apart at least
# Lower quartile of the size of a difference of two readings with white noise of one watt: root 2 times 0.3186.
_QUARTILE = 0.4506
_FEW = 4  # differences that a quartile needs


@dataclass(frozen=True, slots=True)
class Edge:
    """The power around one end of an interval.

    Attributes
    ----------
    watts : float
        Of a power: what was shown at the edge, which is what the sensor had seen before it. Of a counter: the mean
        power up to the edge.
    swing_watts : float
        Largest less smallest power shown near the edge: from a cell, or half a window, before it to the lag and as much
        after it.
    gap_s : float
        Time between the rows on either side of the edge; 0 when the register was read at the edge itself.
    old_s : float
        How old what the register showed there may be: a counter between two of its moves.
    """

    watts: float = 0.0
    swing_watts: float = 0.0
    gap_s: float = 0.0
    old_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of one channel in one interval.

    A *cell* is the time for which one reading stands: the refresh period, or the time between rows if that is longer.

    Attributes
    ----------
    seconds, joules : float
        Length of the interval, and the energy found in the part of it that is covered.
    rows : int
        Rows inside the interval.
    start, end : Edge
        The power around its two ends.
    cell_s : float
        Length of a cell.
    rough_watts : float
        Root mean square change of the power from one cell to the next.
    undone_watts : float
        Root of the mean product of successive changes where they are opposite: what one cell adds and the next takes
        away again. As large as ``rough_watts / sqrt(2)`` for a power that changes faster than it is sampled; 0 for
        steps that last.
    hidden_watts : float
        Root mean square bend of the readings over one window, of a window of several cells: faster changes than the
        window, of which it shows but a rest.
    noise_watts : float
        Deviation of single readings, where the channel does not state it: from the smaller changes seen.
    late_joules : float
        By how much the energy would be higher with the readings counted from when they happened.
    ahead_s : float
        How far the end lies beyond the newest row.
    inverted_joules : float
        Standard uncertainty of what the inversion of a slow sensor takes from the readings at the two ends.
    levels : int
        Different values that were shown in the interval: a load of two powers is rounded in two ways, however often.
    peak_watts : float
        Largest power seen in or next to the interval.
    most_joules : float
        What the cells that hold the interval hold in all; infinite where they are not all known.
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
    cell_s: float = 0.0
    rough_watts: float = 0.0
    undone_watts: float = 0.0
    hidden_watts: float = 0.0
    noise_watts: float = 0.0
    late_joules: float = 0.0
    ahead_s: float = 0.0
    levels: int = 1
    inverted_joules: float = 0.0
    peak_watts: float = 0.0
    most_joules: float = math.inf
    uncovered_s: float = 0.0
    lost: int = 0


def is_power(channel: Channel) -> bool:
    """Whether single values are watts (else joules: a counter)."""
    return channel.energy_method is not EnergyMethod.COUNTER


def span_s(channel: Channel) -> float | None:
    """Width of a boxcar that sees as much as a reading does; None where that is not known.

    Of a sensor that is known by its lag alone, a low-pass, twice the lag.
    """
    if channel.window_s is not None:
        return channel.window_s
    return 2.0 * abs(channel.lag_s) if channel.lag_s is not None else None


def lag_s(channel: Channel) -> float:
    """By how much the curve is late: the mean age of what a reading shows, where readings are joined by lines.

    As stated, else half the window, else half the refresh period. An interval mean is counted where it belongs, before
    its row, so that only what the age exceeds half its window is left.
    """
    if channel.lag_s is not None:
        age = channel.lag_s
    elif is_power(channel) and channel.window_s is not None:
        age = channel.window_s / 2.0
    else:
        age = 0.0 if channel.energy_method is EnergyMethod.MEAN else (channel.refresh_s or 0.0) / 2.0
    return age - (channel.window_s or 0.0) / 2.0 if channel.energy_method is EnergyMethod.MEAN else age


def reach_s(channel: Channel) -> float:
    """How long after an instant rows still tell something of it."""
    return abs(lag_s(channel)) + 2.0 * (channel.refresh_s or 0.0)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one channel in seconds from the start of the interval; of a counter those that moved it."""

    t_s: Floats
    watts: Floats
    cell_s: float
    held: bool  # each value is the mean since the row before; else values are joined by straight lines

    def energy(self, a: float, b: float) -> float:
        """Energy between two instants; beyond the rows the nearest power goes on."""
        t, p = self.t_s, self.watts
        inner = t[(t > min(a, b)) & (t < max(a, b))]
        knots = np.concatenate([[min(a, b)], inner, [max(a, b)]])
        if self.held:
            values = p[np.minimum(np.searchsorted(t, knots[1:]), len(p) - 1)]
        else:
            shown = np.interp(knots, t, p)
            values = (shown[1:] + shown[:-1]) / 2.0
        return math.copysign(1.0, b - a) * float(np.sum(values * np.diff(knots)))

    def reaches(self, low: float, high: float) -> bool:
        """Whether rows are known from ``low`` to ``high`` without a hole, or up to the newest one."""
        t = self.t_s
        first = max(0, int(np.searchsorted(t, low, side="right")) - 1)
        last = min(len(t) - 1, int(np.searchsorted(t, high)))
        return t[0] <= low and float(np.max(np.diff(t[first : last + 1]), initial=0.0)) <= _HOLE_CELLS * self.cell_s

    def near(self, low: float, high: float) -> Floats:
        """Powers of the rows from the last one before ``low`` to the first one after ``high``."""
        first = max(0, int(np.searchsorted(self.t_s, low, side="right")) - 1)
        return self.watts[first : int(np.searchsorted(self.t_s, high)) + 1]


def observe(
    channel: Channel,
    t_ns: Ints,
    watts: Floats,
    *,
    start_ns: int,
    end_ns: int,
    joules: float,
    moved: npt.NDArray[np.bool_] | None = None,
    uncovered_s: float = 0.0,
    lost: int = 0,
) -> Evidence:
    """Gather the evidence from the rows in and around an interval.

    Parameters
    ----------
    t_ns, watts : arrays, shape (n,)
        Rows that are still known, in order: those inside, and some either side, which tell how the power moves when
        the interval holds but a few. Of a long interval the middle may be missing. None at all is allowed.
    start_ns, end_ns : int
        The interval.
    moved : bool, shape (n,), optional
        Of a counter: whether it moved since the row before. None: always.
    joules, uncovered_s, lost
        As integrated over the interval.
    """
    seconds = (end_ns - start_ns) / 1e9
    inside = int(np.count_nonzero((t_ns > start_ns) & (t_ns <= end_ns)))
    known = np.isfinite(watts)  # the first row of a counter has no power yet
    all_s = np.asarray(t_ns - start_ns, np.float64) / 1e9
    used = known & moved if moved is not None and np.any(known & moved) else known
    if not np.any(used):
        mean = joules / seconds if seconds > 0 else 0.0
        edge = Edge(mean)
        return Evidence(seconds, joules, 0, edge, edge, peak_watts=mean, uncovered_s=uncovered_s, lost=lost)
    gaps = np.diff(all_s[used])
    cell = max(channel.refresh_s or 0.0, float(np.median(gaps)) if len(gaps) else 0.0)
    rows = _Rows(all_s[used], watts[used], cell, channel.energy_method is not EnergyMethod.TRAPEZOID)
    lag = lag_s(channel)
    rough, undone = _movement(rows, seconds + abs(lag))
    around = rows.near(0.0, seconds)
    return Evidence(
        seconds=seconds,
        joules=joules,
        rows=inside,
        start=_edge(channel, rows, all_s, 0.0),
        end=_edge(channel, rows, all_s, seconds),
        cell_s=cell,
        rough_watts=rough,
        undone_watts=undone,
        hidden_watts=_hidden(rows, channel.window_s or 0.0, seconds),
        noise_watts=_noise(rows) if is_power(channel) and not channel.noise else 0.0,
        late_joules=rows.energy(seconds, seconds + lag) - rows.energy(0.0, lag),
        ahead_s=max(0.0, seconds - float(all_s[-1])),
        levels=max(1, len(np.unique(around))),
        peak_watts=float(around.max()) if len(around) else 0.0,
        most_joules=_most(channel, rows, seconds),
        uncovered_s=uncovered_s,
        lost=lost,
    )


def observe_corrected(
    channel: Channel,
    late: Lateness,
    t_ns: Ints,
    watts: Floats,
    *,
    start_ns: int,
    end_ns: int,
    joules: float,
    uncovered_s: float = 0.0,
    lost: int = 0,
) -> tuple[Channel, Evidence] | None:
    """Correct the energy of an interval for how late and how slowly the sensor shows the power, and gather evidence.

    The curve is read later by the lag. A one-pole is inverted: its energy is that of its output, and the time constant
    times by how much the output rose.

    Returns
    -------
    (Channel, Evidence) or None
        The channel as it is after the correction, to be judged, and what was seen, with the corrected ``joules``. None
        where the rows after one of the ends are not known any more, or not yet any after the start: no correction.
    """
    known = np.isfinite(watts)
    t_s, shown = np.asarray(t_ns[known] - start_ns, np.float64) / 1e9, watts[known]
    if len(t_s) < _FEW or t_s[0] > 0.0:
        return None
    seconds, shift = (end_ns - start_ns) / 1e9, late.shift_s
    cell = max(channel.refresh_s or 0.0, float(np.median(np.diff(t_s))))
    rows = _Rows(t_s, shown, cell, channel.energy_method is not EnergyMethod.TRAPEZOID)
    for end in (0.0, seconds):
        if not rows.reaches(min(end, end + shift), max(end, end + shift)):
            return None
    found = joules + rows.energy(seconds, seconds + shift) - rows.energy(0.0, shift)
    noise = channel.noise or _noise(rows)
    middle_s = (channel.window_s or 0.0) / 2.0 if channel.energy_method is EnergyMethod.MEAN else 0.0
    after = replace(channel, lag_s=late.u_s + middle_s)
    if late.tau_s:
        ends = np.interp([shift, seconds + shift], t_s, shown)
        found += late.tau_s * float(ends[1] - ends[0])
        once = _readings(rows)
        t_s, shown = t_s[once], invert_one_pole(t_s[once], shown[once], late.tau_s)
        after = replace(channel, method=EnergyMethod.MEAN, window_s=cell, lag_s=late.u_s + cell / 2.0)
    seen = observe(
        after,
        np.asarray(np.round((t_s - shift) * 1e9), np.int64),
        shown,
        start_ns=0,
        end_ns=end_ns - start_ns,
        joules=found,
        uncovered_s=uncovered_s,
        lost=lost,
    )
    if late.tau_s:
        # The output at an end is a reading, read off between two, or not yet known there.
        moved = np.diff(rows.watts[_readings(rows)])
        rough = float(np.sqrt(np.mean(moved * moved)))
        unsure = math.sqrt(2.0 * noise**2 + rough**2 * (1.0 / 15.0 + min(1.0, seen.ahead_s / cell)))
        seen = replace(seen, noise_watts=noise, inverted_joules=late.tau_s * unsure)
    return after, seen


def _movement(rows: _Rows, until_s: float) -> tuple[float, float]:
    """Rough and undone power, of the interval itself or of what surrounds it, whichever moved more."""
    cell = max(rows.cell_s, 1e-9)
    kept = _readings(rows)
    t, p = rows.t_s[kept], rows.watts[kept]
    follows = np.diff(t) <= _HOLE_CELLS * cell
    steps, when = np.where(follows, np.diff(p), 0.0), t[1:]
    products = np.concatenate([[0.0], -steps[1:] * steps[:-1]])[: len(steps)]
    squares, opposite = [0.0], [0.0]
    for low, high in ((0.0, until_s + cell), (-CONTEXT_CELLS * cell, until_s + CONTEXT_CELLS * cell)):
        inside = (when > low) & (when <= high)
        span = float(np.sum(np.minimum(np.diff(np.clip(t, low, high)), _HOLE_CELLS * cell)))
        cells = max(1.0, span / cell)
        squares.append(float(np.sum(steps[inside] ** 2)) / cells)
        opposite.append(float(np.sum(products[inside])) / cells)
    return math.sqrt(max(squares)), math.sqrt(max(opposite))


def _readings(rows: _Rows) -> npt.NDArray[np.intp]:
    """Pick one row for each reading: a value that comes again within a cell is the same reading, polled twice."""
    t, p = rows.t_s, rows.watts
    gaps = np.diff(t)
    if not len(gaps) or float(gaps.min()) >= _AGAIN * rows.cell_s:
        return np.arange(len(t))
    same = _AGAIN * rows.cell_s
    kept, last_t, last_p = [], -math.inf, math.nan
    for i, (at, power) in enumerate(zip(t.tolist(), p.tolist(), strict=True)):  # plain numbers: three times as fast
        if power != last_p or at - last_t >= same:
            kept.append(i)
            last_t, last_p = at, power
    return np.array(kept)


def _noise(rows: _Rows) -> float:
    """Deviation of single readings from the smaller changes between them; the larger ones are the load's."""
    steps = np.abs(np.diff(rows.watts[_readings(rows)]))
    return float(np.quantile(steps, 0.25)) / _QUARTILE if len(steps) >= _FEW else 0.0


def _hidden(rows: _Rows, window_s: float, seconds: float) -> float:
    """How much the readings bend within one window of several cells, root mean square."""
    if window_s <= 1.5 * rows.cell_s:
        return 0.0
    t, p = rows.t_s, rows.watts
    at = t[(t - window_s >= t[0]) & (t > -2.0 * window_s) & (t < seconds + 2.0 * window_s)]
    if not len(at):
        return 0.0
    bend = np.interp(at, t, p) - 2.0 * np.interp(at - window_s / 2.0, t, p) + np.interp(at - window_s, t, p)
    return float(np.sqrt(np.mean(bend * bend)))


def _edge(channel: Channel, rows: _Rows, all_s: Floats, at: float) -> Edge:
    """Describe the rows around an instant."""
    t, p = rows.t_s, rows.watts
    blur = max(rows.cell_s, (channel.window_s or 0.0) / 2.0)  # a step at the edge is spread over a window about it
    near = rows.near(at - blur, at + lag_s(channel) + blur)
    swing = float(np.ptp(near)) if len(near) else 0.0
    after = int(np.searchsorted(t, at))
    on_row = bool(np.any(all_s == at))
    if on_row:
        gap = 0.0
    elif 0 < after < len(t):
        gap = float(t[after] - t[after - 1])
    else:  # nothing on one side yet: the curve is extended from the nearest row
        gap = abs(at - float(t[min(after, len(t) - 1)]))
    if is_power(channel):
        return Edge(float(np.interp(at, t, p)), swing, gap)
    # Read here, or bridged by a row that another register made while this one stood: shown is what it was a while ago.
    behind = int(np.searchsorted(all_s, at))
    beside = all_s[max(0, behind - 1) : behind + 1]
    clean = not on_row and bool(np.all(np.isin(beside, t))) and not 0 < gap < _CLEAN * (channel.refresh_s or 0.0)
    return Edge(float(p[min(after, len(p) - 1)]), swing, gap, 0.0 if clean else channel.refresh_s or 0.0)


def _most(channel: Channel, rows: _Rows, seconds: float) -> float:
    """Energy of all cells that touch the interval, where rows are known on either side of it.

    Of a part-time sensor it says nothing, and of a wide window too little.
    """
    span = span_s(channel)
    whole = span is not None and 0.9 * rows.cell_s <= span <= 1.5 * rows.cell_s
    low, high = -abs(lag_s(channel)), seconds + abs(lag_s(channel)) + rows.cell_s
    if (is_power(channel) and not whole) or not len(rows.t_s) or low < rows.t_s[0] or high > rows.t_s[-1]:
        return math.inf
    before = float(rows.t_s[max(0, int(np.searchsorted(rows.t_s, low, side="right")) - 1)])
    after = float(rows.t_s[min(len(rows.t_s) - 1, int(np.searchsorted(rows.t_s, high)))])
    return rows.energy(before, after)
