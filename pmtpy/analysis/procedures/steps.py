"""How a sensor answers steps of a load that is switched between two levels. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.signal.estimate import STRAY, bend_sd, robust_sd
from pmtpy.analysis.signal.updates import tidy
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_MIN_STEPS = 4
_AT_LEVEL = 0.1  # of a step: readings that are so near to a level are at it
_REST_READINGS = 4  # a step rests where so many in a row stay as near to each other
_MOST_OF_THEM = (5.0, 95.0)  # percent: polls that were lost or late make single values last longer or shorter
_BEYOND, _BEYOND_SHARE = 0.25, 0.1  # an overshoot is smaller, or shorter
_LEVELS_APART_SD = 6.0  # the levels must be so many times their own spread apart
# Intervals of the readings: of a step at once one may lie between the levels, and polls add their part of an interval.
_UNRESOLVED = 2.5
_PARTS = 4  # the last three of so many parts of a plateau tell its level
_MAX_CHANGE_AT_LEVEL = 0.005  # of the step: a plateau that moves by less from part to part has come to its level


@dataclass(frozen=True, slots=True)
class Steps:
    """What the steps of a recording look like."""

    # what plateaus tend to: a tail that dies away exponentially is continued
    low_w: float
    high_w: float
    noise_w: float  # standard deviation of one reading at a level
    # steps of either kind
    rising: int
    falling: int
    # shape (n,); of each step: time from the last reading below a tenth of it to the first above nine tenths (falling
    # likewise)
    rise_s: Floats
    interval_s: float  # median time between readings on the way, that repeat nothing: two of these are what can be told
    period_s: float  # median time between steps in the same direction; NaN where there are too few
    rest_w: float  # by how much their last parts fall short of that; NaN: they move, and do not say where to
    # steps that rest on the way for half of their readings and more, or show one renewal of a register without noise
    # there, which looks alike: their times contain that
    resting: int

    @property
    def resolved(self) -> bool:
        """Whether the median step takes longer than the readings resolve."""
        return float(np.median(self.rise_s)) > _UNRESOLVED * self.interval_s

    @property
    def settled(self) -> bool:
        """Whether plateaus come to their levels."""
        return self.rest_w <= _MAX_CHANGE_AT_LEVEL * (self.high_w - self.low_w)


def steps_of(t_s: Floats, watts: Floats) -> Steps:
    """Find the steps between two levels.

    Raises DeclinedError: there are no two levels, or fewer than four steps between them, or a level between the two.
    """
    t, w = tidy(t_s, watts)
    if len(w) < 4 * _MIN_STEPS:
        msg = f"{amount(len(w), 'reading is', 'readings are')} too few to see steps: record longer"
        raise DeclinedError(msg)
    low, high = _two_levels(w)
    size = high - low
    begin, end = _turns(w, low, high)
    low_end, high_end = (_level(w, begin, end, _MAX_CHANGE_AT_LEVEL * size, up=up) for up in (False, True))
    low, high = low_end.watts, high_end.watts
    size, noise = high - low, max(low_end.noise_w, high_end.noise_w)
    begin, end = _turns(w, low, high)
    beyond = float(np.mean((w < low - _BEYOND * size) | (w > high + _BEYOND * size)))
    held = _held(w, begin, end)
    resting = sum(_rests(w[a + 1 : b : held] / size) for a, b in zip(begin.tolist(), end.tolist(), strict=True))
    levels = 4 * resting > 3 * len(begin) and not _of_renewals(w, begin, end)
    if levels or beyond > _BEYOND_SHARE:
        rest = f"of {amount(len(begin), 'step')} {amount(resting, 'rests', 'rest')} between {low:.4g} and {high:.4g} W"
        msg = (
            f"the load has more than two levels: {rest}, and {beyond:.0%} of the readings lie far outside; record a "
            "load that switches between two"
        )
        raise DeclinedError(msg)
    up = w[end] > w[begin]
    same = np.diff(t[end][up])
    return Steps(
        low, high, noise, int(up.sum()), int((~up).sum()), np.asarray(t[end] - t[begin], np.float64),
        _interval(t, w, begin, end), float(np.median(same)) if len(same) else float("nan"),
        float(np.maximum(low_end.rest_w, high_end.rest_w)), resting,
    )  # fmt: skip


def _two_levels(w: Floats) -> tuple[float, float]:
    """Return the medians of the lower and the upper readings, if they are levels.

    Raises DeclinedError: they are not.
    """
    middle = (np.percentile(w, 5) + np.percentile(w, 95)) / 2.0
    if not (w < middle).any():
        msg = f"no steps: all readings are {middle:.4g} W; let the load switch while it is recorded"
        raise DeclinedError(msg)
    low, high = float(np.median(w[w < middle])), float(np.median(w[w >= middle]))
    size = high - low
    noise = max(robust_sd(w[w < middle]), robust_sd(w[w >= middle]))
    if not size > _LEVELS_APART_SD * noise:
        msg = (
            f"no two levels: {low:.4g} and {high:.4g} W are only {size:.3g} W apart, and readings scatter by "
            f"{noise:.3g} W; take a load that switches by more"
        )
        if size > _LEVELS_APART_SD * bend_sd(w):  # it is not their noise by which they do
            msg = (
                f"no two levels: readings lie all over {np.min(w):.4g} to {np.max(w):.4g} W and move from each to the "
                "next: the load has more levels, or the sensor is on its way to one when it switches again; let it "
                "rest longer at each of two"
            )
        raise DeclinedError(msg)
    return low, high


def _interval(t: Floats, w: Floats, begin: Ints, end: Ints) -> float:
    """Return the time between readings: where a register is polled more often than renewed, between its renewals."""
    renewed = np.concatenate([np.diff(t[at]) for at in _renewals(w, begin, end)])
    return max(float(np.median(each)) for each in (np.diff(t), renewed) if len(each))


def _renewals(w: Floats, begin: Ints, end: Ints) -> list[Ints]:
    """Return, of each step, the readings that show another value than the one before."""
    inside = zip(begin.tolist(), end.tolist(), strict=True)
    return [a + 1 + np.flatnonzero(np.diff(w[a : b + 1])) for a, b in inside]


def _of_renewals(w: Floats, begin: Ints, end: Ints) -> bool:
    """Whether what lies between the levels may be single renewals of a register that is polled more often.

    Values on the way are then shown for as long as each other, but for a poll at either end, nothing is shown for less,
    and a plateau holds as many renewals as a rest takes. A load that rests on its way for as long each time looks the
    same.
    """
    on_the_way = np.concatenate([np.diff(at) for at in _renewals(w, begin, end)])
    if not len(on_the_way):
        return False
    held, shown = float(np.median(on_the_way)), np.diff(np.flatnonzero(np.diff(w)))
    fewest, most = np.percentile(on_the_way, _MOST_OF_THEM)
    return bool(
        most - fewest <= 2
        and np.percentile(shown, _MOST_OF_THEM[0]) >= held - 1
        and _REST_READINGS * (held - 1) <= np.median(begin[1:] - end[:-1] + 1)
    )


def _held(w: Floats, begin: Ints, end: Ints) -> int:
    """Return for how many readings a register that is polled more often than renewed shows the same, as a rule.

    One that shows so few values that plateaus hold less than a rest takes does not tell (it has no noise): one.
    """
    values = np.flatnonzero(np.append(np.append(1.0, np.diff(w)), 1.0))
    held = int(np.median(np.diff(values)))
    return max(held, 1) if _REST_READINGS * held <= np.median(begin[1:] - end[:-1] + 1) else 1


def _turns(w: Floats, low: float, high: float) -> tuple[Ints, Ints]:
    """Return the last reading of each plateau that a step ends, and the first of the next.

    Raises DeclinedError: fewer than four steps.
    """
    size = high - low
    side = np.where(w <= low + _AT_LEVEL * size, -1, np.where(w >= high - _AT_LEVEL * size, 1, 0))
    settled = np.flatnonzero(side)
    turns = np.flatnonzero(np.diff(side[settled]) != 0)
    if len(turns) < _MIN_STEPS:
        msg = f"the recording has {amount(len(turns), 'step')}, and a step response takes {_MIN_STEPS}: record longer"
        raise DeclinedError(msg)
    return settled[turns], settled[turns + 1]


class _Level(NamedTuple):
    """What plateaus on one side tend to, by how much they fall short of it, and the scatter of one reading."""

    watts: float
    rest_w: float
    noise_w: float


def _level(w: Floats, begin: Ints, end: Ints, settled_w: float, *, up: bool) -> _Level:
    """Return the level of one side, of its whole plateaus.

    Raises DeclinedError: none has two readings.
    """
    last = list[Floats]()  # of each plateau the last three parts, shape (3, m); of short ones as many as there are
    for a, b in zip(end[:-1].tolist(), begin[1:].tolist(), strict=True):
        if bool(w[a] > w[b + 1]) == up and b > a:
            m, stop = max((b - a) // _PARTS, 1), b + 1 - (b - a) // (2 * _PARTS)  # its very last may be on their way
            last.append(w[max(a, stop - 3 * m) : stop][-(min(3 * m, stop - a) // m) * m :].reshape(-1, m))
    if not last:
        msg = "no plateau has two readings: let the load switch less often, or record faster"
        raise DeclinedError(msg)
    whole = [parts for parts in last if len(parts) == 3]
    if 2 * len(whole) < len(last):
        ends = np.concatenate([parts[-1] for parts in last])
        return _Level(float(np.median(ends)), 0.0, robust_sd(ends))
    means = np.array([parts.mean(axis=1) for parts in whole])
    typical = np.median(means, axis=0)
    noise = robust_sd(np.concatenate([parts[-1] - typical[-1] for parts in whole]))
    moved = np.diff(means, axis=1)
    rest = _rest(moved, settled_w)
    shown = np.diff(np.flatnonzero(np.diff(w)))
    if rest == 0.0 and len(shown) and np.median([parts.shape[1] for parts in whole]) < np.median(shown):
        # The last two parts may be of one renewal of a register, and alike whatever the next would show.
        rest = 0.0 if abs(float(np.median(moved.sum(axis=1)))) <= settled_w else math.nan
    return _Level(float(typical[-1]) + (0.0 if math.isnan(rest) else rest), abs(rest), noise)


def _rest(moved: Floats, settled_w: float) -> float:
    """Return how far it still goes, in W, from how far each plateau went between parts: shape (n, 2).

    What dies away exponentially goes less by the same factor from part to part, and ``d + d q + ...`` is left. 0: it
    moves by less than ``settled_w``, or by chance; NaN: by more, and what is left is not known as closely.
    """
    (before, after), bends = np.median(moved, axis=0), moved[:, 0] - moved[:, 1]
    bend = float(np.median(bends))
    unsure, unsure_bend = (STRAY * robust_sd(each) / len(each) ** 0.5 for each in (moved[:, 1], bends))
    if abs(after) > unsure and before * after > 0.0 and bend * after > 0.0:
        rest = float(after * after / bend)
        if abs(rest) * unsure_bend <= abs(bend) * settled_w:
            return rest
    return 0.0 if abs(after) <= max(unsure, settled_w) else math.nan


def _rests(inner: Floats) -> bool:
    """Whether half of the readings within a step, in shares of its size, stay where they are."""
    need = max(_REST_READINGS, -(-len(inner) // 2))
    if len(inner) < need:
        return False
    runs = np.lib.stride_tricks.sliding_window_view(inner, need)
    return bool((np.ptp(runs, axis=1) < _AT_LEVEL).any())
