"""How long the update period can be, by how soon the readings change after each edge of a load.

A reading that changes was updated. A sensor whose values repeat shows the edges of the load and little else, so
its changes alone tell of no lattice; but that they come soon after *each* edge, nobody but a fast sensor does. Of a
period ``T`` an update lies in the ``D`` that begin at an edge in no more than ``D / T`` of the cases, if the load does
not know of the sensor. If it keeps step with it, all edges are as far from the updates: then they lie on a lattice of
that period themselves, within ``D``. The bound is the longest period for which either may be so.

Nothing is asked of noise, kernel or lag, which make changes come later; nor of the clock of the edges, since instants
that are no edges bring no changes soon. Pure; times are seconds.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.clocking._intervals import MIN_CHANGES
from pmtpy.analysis.clocking._phase import ONE_IN_A_THOUSAND
from pmtpy.analysis.signal.renewal import Bools
from pmtpy.core.rows import Floats

_LATE_SHARES = (0.0, 0.1)  # of the edges, that may be answered late: pollers are starved, and a value may repeat
_MOST_EDGES = 512  # edges that are asked, from all over the recording; more hardly tell more
_GAP = 4.0  # times as long as usual are polls apart where the poller was starved: what an edge in it did nobody saw
_WAYS = 4  # in which a bound is looked for, of which the least counts
_FINENESS = 32.0  # of the time within which edges are answered: so fine are their places on a lattice
_FEWEST_EDGES = 16  # edges that a lattice is held against at first: over the time of more its phase wanders, if it fits
_RATIO = 1.02  # from one period to the next that chance is asked about
_PIECE = 1 << 18  # periods times edges that are held at once


def longest_period(t_s: Floats, values: Floats, edges_s: Floats) -> float | None:
    """Return the longest that the update period can be, seconds; None: the edges do not tell.

    Parameters
    ----------
    t_s, values : float64, shape (n,)
        Polls, in order.
    edges_s : float64, shape (m,)
        When the load was switched, in order, on the clock of the polls.
    """
    edges = edges_s[(edges_s > t_s[0]) & (edges_s < t_s[-1])]
    before = np.unique(np.searchsorted(t_s, edges, side="right") - 1)  # of edges between two polls one counts
    apart = np.diff(t_s)
    before = before[apart[before] < _GAP * float(np.median(apart))]
    before = before[:: math.ceil(len(before) / _MOST_EDGES) or 1]
    if len(before) < MIN_CHANGES:
        return None
    changes = np.append(np.flatnonzero(np.diff(values) != 0.0) + 1, len(t_s))
    found = math.inf
    # The update may have been before the edge, where the poll after it brings the change: it came after the poll before
    # the edge. Or even before that one's stamp, since what is stamped before it is read shows what comes meanwhile.
    for begins in (before, before[before > 0] - 1):
        wait = np.append(t_s, math.inf)[changes[np.searchsorted(changes, begins, side="right")]] - t_s[begins]
        found = min(found, *(_longest(t_s[begins], wait, late) for late in _LATE_SHARES))
    return found if found < len(apart) * float(np.median(apart)) / MIN_CHANGES else None


def in_step(edges_s: Floats, period_s: float, within_s: float) -> bool:
    """Whether most edges of a load, where they are densest, lie on a lattice of a period, within so much."""
    few = min(_FEWEST_EDGES, len(edges_s))
    first = _densest(edges_s, few)
    lie = _lies_on(edges_s[first : first + few], np.array([period_s]), within_s, few - int(max(_LATE_SHARES) * few))
    return bool(lie[0])


def _longest(begin: Floats, wait: Floats, late_share: float) -> float:
    """Return the longest period that is possible if all but a share of the instants are answered so soon."""
    within = float(np.sort(wait)[len(wait) - 1 - int(late_share * len(wait))])
    if not math.isfinite(within):
        return math.inf
    by_chance = _by_chance(begin, wait, late_share, within)
    return max(by_chance, _in_step(begin, wait <= within, within, by_chance))


def _by_chance(begin: Floats, wait: Floats, late_share: float, within: float) -> float:
    """Return the longest period of which chance would see instants answered so soon more than once in a thousand.

    Of ``n`` places in a period the ``k``-th is beyond a share of it as a beta variable is [David and Nagaraja, Order
    Statistics, 3rd ed., 2.1]. Of instants that are nearer to each other than a period one alone counts.
    """
    from scipy.special import betaincinv

    longest, period = within, within
    while period < begin[-1] - begin[0]:
        some = wait[_apart(begin, period)]
        late = int(late_share * len(some))
        share = float(betaincinv(len(some) - late, late + 1.0, math.exp(-ONE_IN_A_THOUSAND) / _WAYS))
        if np.sort(some)[len(some) - 1 - late] > share * period:
            longest = period * _RATIO
        period *= _RATIO
    return longest


def _apart(at: Floats, by: float) -> list[int]:
    """Return which instants are left if of those that are nearer to each other the first is."""
    found, i = list[int](), 0
    while i < len(at):
        found.append(i)
        i = max(int(np.searchsorted(at, at[i] + by)), i + 1)
    return found


def _in_step(begin: Floats, soon: Bools, within: float, least: float) -> float:
    """Return the longest period, above one, on whose lattice as many instants lie as are answered soon.

    Of a few that are next to each other first, which many periods fit, then of more and more, closer and closer.
    """
    fewest = min(_FEWEST_EDGES, len(begin))
    densest = _densest(begin, fewest)
    periods, step = np.empty(0), 0.0
    for most in (fewest, 2 * fewest, 4 * fewest, 8 * fewest):
        many = min(most, len(begin))
        start = min(densest, len(begin) - many)
        at, needed = begin[start : start + many], int(np.sum(soon[start : start + many]))
        fine = within / (_FINENESS * float(at[-1] - at[0]))
        if step:
            parts = math.ceil(step / fine)
            periods = np.outer(periods, 1.0 + step * ((np.arange(parts) + 0.5) / parts - 0.5)).ravel()
        else:
            updates = max(len(_apart(at, within)) - (many - needed) - 1, 1)  # that are as many periods apart
            longest = max((float(at[-1] - at[0]) + within) / updates, least) * (1.0 + fine)
            periods = np.geomspace(least, longest, 2 + int(math.log(longest / least) / fine))
        periods, step = periods[_lies_on(at, periods, within * (1.0 + 1.0 / _FINENESS), needed)], fine
    return float(np.max(periods, initial=least)) * (1.0 + step)


def _densest(at: Floats, many: int) -> int:
    """Return the first of so many instants that are nearest to each other."""
    return int(np.argmin(at[many - 1 :] - at[: len(at) - many + 1]))


def _lies_on(at: Floats, periods: Floats, within: float, needed: int) -> Bools:
    """Of which periods there is a lattice, after some instant of which so many of these lie within a time."""
    if needed < 1:
        return np.ones(len(periods), np.bool_)
    found = [np.empty(0, np.bool_)]
    for part in np.array_split(periods, math.ceil(len(periods) * len(at) / _PIECE) or 1):
        places = np.sort(np.mod(at - at[0], part[:, None]), axis=1)
        again = np.concatenate([places, places + part[:, None]], axis=1)[:, needed - 1 : needed - 1 + len(at)]
        found.append(np.min(again - places, axis=1) <= within)
    return np.concatenate(found)
