"""What polls say of the updates between them; and which changes the load may have made by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

Bools = npt.NDArray[np.bool_]

MIN_CHANGES = 12  # below this, chance alone finds a period among the many candidates
_WHOLE = 0.95  # of a period: polls further apart do not tell how many updates lay between
# What the load may have done by itself: jumps between levels that come back.
_LEVEL_SHARE, _LEVEL_RUNS = 1.0 / 32.0, 3  # of the runs of equal readings, held by one reading
_NOISE_SPAN = 0.1  # share of the readings' span below which a change is noise ...
_FINE = 16.0  # ... if the span has that many steps of the readings' resolution: else the levels are the steps


class FasterThanPollsError(DeclinedError):
    """The sensor publishes faster than it was polled, or nearly; ``bound_s`` is the longest that its period can be."""

    def __init__(self, message: str, bound_s: float) -> None:
        super().__init__(message)
        self.bound_s = bound_s


@dataclass(frozen=True, slots=True)
class Intervals:
    """What polls say: ``(after[i], before[i]]`` brought a change or not; polls that are missing leave a gap."""

    after: Floats
    before: Floats
    changed: Bools

    @property
    def length(self) -> Floats:
        """How long each lasts."""
        return self.before - self.after

    def known(self, period: float) -> Bools:
        """Which of them tell of at most one update."""
        return np.asarray(self.length < _WHOLE * period, np.bool_)


def few_own(own: int, changes: int) -> str:
    """Say that too few changes are the sensor's own."""
    return (
        f"all but {own} of {changes} changes are jumps between a few levels, which may be the load's as "
        "well as the sensor's; use a load that switches irregularly and within the update period"
    )


def own_changes(v: Floats, seen: Intervals) -> Bools:
    """Which intervals hold a change that the load cannot have made by jumping between a few levels.

    A sensor without noise that follows at once shows the load's edges and nothing else, and they may lie on a
    lattice of their own. A level is a reading that comes back again and again.
    """
    at = np.flatnonzero(seen.changed)
    if len(at) < MIN_CHANGES:
        msg = (
            f"the readings change {len(at)} times, too few to find an update period ({MIN_CHANGES} are needed): "
            "the power is constant or the recording too short; use a load that varies"
        )
        raise DeclinedError(msg)
    runs = v[np.append(at, at[-1] + 1)]
    values, which, counts = np.unique(runs, return_inverse=True, return_counts=True)
    levels = (counts >= max(_LEVEL_RUNS, _LEVEL_SHARE * len(runs)))[which]
    jump = levels[:-1] & levels[1:]
    span = float(values[-1] - values[0])
    if span >= _FINE * float(np.min(np.diff(values))):
        jump &= np.abs(np.diff(runs)) > _NOISE_SPAN * span
    if len(at) - np.sum(jump) < MIN_CHANGES:
        raise DeclinedError(few_own(int(len(at) - np.sum(jump)), len(at)))
    own = np.zeros(len(seen.changed), np.bool_)
    own[at] = ~jump
    return own
