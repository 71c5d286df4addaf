"""Wall times without a zone to Unix times, over the changes between summer and winter time. Pure but for the zone."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints
from pmtpy.io.read._recording import Recording

_QUARTER_S = 900.0  # clocks are changed at quarters of an hour
_HOUR_S = 3600.0
_SLACK_INTERVALS = 3.0  # times the usual interval: how exactly a jump must be an hour
_SLACK_S = 0.5
_ENOUGH_STEPS = 20  # of which one in twenty is then longer than the usual interval


def unix_times(recording: Recording, naive: Floats, at: Ints, utc_offset_s: float | None) -> tuple[Floats, str]:
    """Return Unix seconds and how they were found.

    Parameters
    ----------
    naive : float64, shape (n,)
        Wall times as if they were Unix seconds, in the order in which they were written.
    at : int64, shape (n,)
        The line of each.
    utc_offset_s : float or None
        Seconds that they are ahead of UTC; None: as on this machine, at each of them.
    """
    if utc_offset_s is None:
        times = _local(recording, naive, at)
        offset_h = (naive[0] - times[0]) / 3600
        zone = f"taken for this machine's zone (UTC{offset_h:+g} h at the start); utc_offset_s says otherwise"
    else:
        times, zone = naive - utc_offset_s, f"{utc_offset_s:g} s ahead of UTC, as given"
    return _without_changes(recording, times, at), f"local wall time without a zone, {zone}"


def _local(recording: Recording, naive: Floats, at: Ints) -> Floats:
    """Read the times in this machine's zone; in the hour that comes twice, the second is where time goes back.

    Rows that begin in that hour, and go on behind it as usual, are of the second; else the first is taken, and noted.
    """
    quarters, which = np.unique(np.floor(naive / _QUARTER_S), return_inverse=True)
    first, second = (np.array([_offset(q * _QUARTER_S, fold) for q in quarters.tolist()])[which] for fold in (0, 1))
    times: Floats = naive - first
    twice = second < first  # in the hour that is left out in spring it is the other way round
    for row in np.flatnonzero(np.diff(times) < 0).tolist():
        after = row + 1
        if twice[after] and times[after] < times[row]:
            end = after + int(np.argmin(twice[after:])) if not twice[after:].all() else len(times)
            times[after:end] = naive[after:end] - second[after:end]
    usual_s = _slack_s(np.diff(naive))
    edges = np.flatnonzero(np.diff(np.concatenate([[False], twice, [False]]).astype(np.int64)))
    for start, stop in edges.reshape(-1, 2).tolist():
        goes_back = (np.diff(naive[start:stop]) < 0).any()
        if goes_back or (start > 0 and naive[start] - naive[start - 1] <= usual_s):
            continue
        if stop < len(naive) and naive[stop] - naive[stop - 1] <= usual_s:
            times[start:stop] = naive[start:stop] - second[start:stop]
        else:
            recording.notes.append(
                f"line {at[start]}: this hour comes twice, at the end of summer time, and nothing tells which it is:"
                " the first is taken; utc_offset_s (--utc-offset) says otherwise"
            )
    return times


def _slack_s(steps: Floats) -> float:
    """How exactly a step must be what it is taken for, seconds.

    The usual interval is a long step, not their median: most rows of a log of several GPUs follow within a round.
    """
    if not len(steps):
        return _SLACK_S
    share = 0.95 if len(steps) >= _ENOUGH_STEPS else 0.5
    return max(_SLACK_S, _SLACK_INTERVALS * float(np.quantile(np.abs(steps), share, method="lower")))


def _offset(naive_s: float, fold: int) -> float:
    """Seconds that this machine's zone is ahead of UTC at a wall time."""
    wall = datetime.fromtimestamp(naive_s, timezone.utc).replace(tzinfo=None, fold=fold)
    return naive_s - wall.timestamp()


def _without_changes(recording: Recording, times: Floats, at: Ints) -> Floats:
    """Take out that the clock went back by an hour: summer time ended, and the zone that was taken does not say so.

    That it went on by an hour is not told from an hour without rows, so it stays one.
    """
    steps: npt.NDArray[np.float64] = np.diff(times)
    if not len(steps):
        return times
    rest = steps + _HOUR_S
    slack = _slack_s(steps)
    for row in np.flatnonzero((steps < 0) & (rest >= 0) & (rest <= slack)).tolist():
        steps[row] += _HOUR_S
        recording.notes.append(
            f"line {at[row + 1]}: the clock goes back by an hour, which is taken for the end of summer time"
        )
    return np.concatenate([times[:1], times[0] + np.cumsum(steps)])
