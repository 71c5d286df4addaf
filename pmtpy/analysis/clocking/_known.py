"""The updates behind the rows of a live sensor, whose period a profile knows: the same clock, followed the same way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pmtpy.analysis.clocking._intervals import Intervals
from pmtpy.analysis.clocking._phase import ONE_IN_A_THOUSAND, follow
from pmtpy.analysis.clocking._polling import Polling
from pmtpy.analysis.clocking._updates import RATE, clock_of, explained, update_series
from pmtpy.analysis.signal.updates import POLLED, Updates
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_UNSURE_SD = 2.5  # standard deviations either side in which a phase is looked for
# That are followed at once: a phase has wandered meanwhile, and memory is not without end.
_MAX_PERIODS_FOLLOWED = 4000.0


def live_updates(t_s: Floats, watts: Floats, period: Number, aged_s: float) -> Updates:
    """Find the updates behind rows.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Rows in order, those of other registers of the device among them; what brought nothing new need not be there.
    period : Number
        Time between updates, and its standard uncertainty.
    aged_s : float
        How old a value can be at its row: the time between polls; 0 where the device itself says when it was renewed.

    Returns
    -------
    Updates
        Where the rows do not tell of the clock, because they are few, from all over the period, or of another one, each
        new value is an update as old as a value is on average, or as the device says.
    """
    try:
        return _followed(t_s, watts, period, aged_s)
    except DeclinedError:
        return _as_polled(t_s, watts, period.value, aged_s) if aged_s else _as_stamped(t_s, watts, period.value)


def _followed(t_s: Floats, watts: Floats, period: Number, aged_s: float) -> Updates:
    """Follow the clock through rows."""
    if len(t_s) > 1 and t_s[-1] - t_s[0] > _MAX_PERIODS_FOLLOWED * period.value:
        middle = int(np.searchsorted(t_s, (t_s[0] + t_s[-1]) / 2.0))
        parts = (slice(None, middle), slice(middle, None))
        return _joined(*(live_updates(t_s[part], watts[part], period, aged_s) for part in parts))
    new = np.diff(watts) != 0.0
    if not np.any(new):
        msg = "nothing changes, so nothing tells when the register was renewed"
        raise DeclinedError(msg)
    stamped = aged_s == 0.0  # the rows of other registers then are all the polls that are known of
    polls, shown = (t_s, watts) if stamped else Polling(aged_s).polls(t_s, watts)
    origin = float(polls[0] + polls[-1]) / 2.0
    seen = Intervals.between(polls - origin, shown)
    path = follow(seen, period.value, period.u / period.value, 0.0, known=True)
    # Rows of other registers may be at any distance from these: whether the clock is in them says nothing against it.
    clock = clock_of(path, origin, seen, 1.0 if stamped else explained(seen, path, seen.changed))
    if stamped:
        return update_series(polls, shown, clock, t_s[1:][new])
    found, unsure = update_series(polls, shown, clock), clock.phase_s.half_width
    # Of a first or last update that is polled only about its end or its beginning nobody knows which was found.
    return found.between(float(polls[0]) + unsure - period.value, float(polls[-1]) - unsure)


def _joined(first: Updates, second: Updates) -> Updates:
    """Return two stretches as one; an update that both have is the second's, which saw more of it."""
    first = first.between(-math.inf, float(second.t_s[0]) - first.period_s / 2.0)
    t = np.concatenate([first.t_s, second.t_s])
    k = np.round((t - t[0]) / first.period_s).astype(np.int64)
    jitter = max(first.jitter_s, second.jitter_s)
    return Updates(k, t, np.concatenate([first.watts, second.watts]), first.period_s, jitter)


def _as_polled(t_s: Floats, watts: Floats, period_s: float, aged_s: float) -> Updates:
    """Take each new value for an update as old as a value is on average.

    A value that comes again within a period is the same update, polled twice.
    """
    kept, last_t, last_w = [], -math.inf, math.nan
    for i, (at, power) in enumerate(zip(t_s.tolist(), watts.tolist(), strict=True)):
        if power != last_w or at - last_t >= POLLED * period_s:
            kept.append(i)
            last_t, last_w = at, power
    aged = min(aged_s, period_s)
    at = t_s[kept]
    k = np.round((at - at[:1]) / period_s).astype(np.int64)
    return Updates(k, at - aged / 2.0, watts[kept], period_s, aged / math.sqrt(12.0), aged_s=aged)


def _as_stamped(t_s: Floats, watts: Floats, period_s: float) -> Updates:
    """Take each new value for an update at its stamp, and what is shown whole periods later for the next ones.

    Rows of other registers come at any time between.
    """
    row = np.arange(len(t_s))
    new = np.append(False, np.diff(watts) != 0.0)[: len(row)]
    last = np.maximum.accumulate(np.where(new, row, -1))
    since = t_s[
        np.where(last < 0, np.argmax(np.append(new, False)), last)
    ]  # before the first new value the same clock ran
    at = since + period_s * np.floor((t_s - since) / period_s + RATE)
    kept = new | (np.diff(at, prepend=-math.inf) > period_s / 2.0)
    at, watts = at[kept], watts[kept]
    return Updates(np.round((at - at[:1]) / period_s).astype(np.int64), at, watts, period_s, 0.0)


def possible_updates(seen: Updates, unsure_s: float) -> list[tuple[float, Updates]]:
    """Return versions of the updates with their probabilities, or the one there is if it is surer than ``unsure_s``.

    What the polls leave open of the phase is divided into parts, in each of which it is known to ``unsure_s``.
    """
    if seen.jitter_s <= unsure_s:
        return [(1.0, seen)]
    wide = seen.period_s if seen.aged_s else min(2.0 * _UNSURE_SD * seen.jitter_s, seen.period_s)
    parts = math.ceil(wide / (math.sqrt(12.0) * unsure_s))
    each = wide / parts
    middles = each * (np.arange(parts) + 0.5)
    if not seen.aged_s:
        # What polls that keep step leave open is flat, and its edges are as sharp as their stamps.
        moved = [replace(seen.shifted(by), jitter_s=each / math.sqrt(12.0)) for by in (middles - wide / 2.0).tolist()]
        return [(1.0 / parts, one) for one in moved]
    found = [_on_lattice(seen, float(phase), each) for phase in middles]
    odds = np.exp(-ONE_IN_A_THOUSAND * (np.array([against for against, _ in found]) - min(n for n, _ in found)))
    return [(share, one) for share, (_, one) in zip((odds / np.sum(odds)).tolist(), found, strict=True)]


def _on_lattice(seen: Updates, phase_s: float, unsure_s: float) -> tuple[int, Updates]:
    """Date polled values by a clock of this phase; and say how many of them it contradicts.

    Two values in one period, or one that is older than it can be.
    """
    period, polled = seen.period_s, seen.t_s + seen.aged_s / 2.0
    # Counted from where polls that keep step are, so that no part is cut by them.
    polls_s = float(np.angle(np.mean(np.exp(2j * math.pi * polled / period)))) / (2.0 * math.pi) * period
    origin = polls_s + phase_s
    k = np.floor((polled - origin) / period).astype(np.int64)
    at = origin + period * k
    first = np.diff(k, prepend=k[:1] - 1) > 0
    twice = ~first & (np.diff(seen.watts, prepend=seen.watts[:1]) != 0.0)
    against = np.sum(twice) + np.sum(polled - at > seen.aged_s + unsure_s)
    dated = np.asarray(at[first], np.float64)
    return int(against), replace(seen.where(first), k=k[first], t_s=dated, jitter_s=unsure_s / math.sqrt(12.0))
