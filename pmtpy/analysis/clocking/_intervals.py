"""What polls say of the updates between them; and which changes the load may have made by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import STANDS_OUT
from pmtpy.analysis.signal.renewal import Bools, not_the_loads
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_RUN = 16  # changes one after another that are kept together where there are more than can be weighed
# Polls to a period, of more of which neighbours are joined: a phase is looked for on 400 cells at most, and a poll that
# is shorter than they are is missed by it. No whole number, nor near one, or bounds would keep step with the updates.
MOST_POLLS = 64.382
MIN_CHANGES = 12  # below this, chance alone finds a period among the many candidates


class BoundedError(DeclinedError):
    """The period is not known but bounded: ``bound_s`` is the longest that it can be."""

    def __init__(self, why: str, bound_s: float, *, polls: str = "", load: str = "") -> None:
        super().__init__(why, polls=polls, load=load)
        self.bound_s = bound_s


class FasterThanPollsError(BoundedError):
    """The sensor publishes faster than it was polled, or nearly."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """What polls say: ``(after[i], before[i]]`` brought a change or not; polls that are missing leave a gap."""

    after: Floats
    before: Floats
    changed: Bools

    @classmethod
    def between(cls, polls_s: Floats, values: Floats) -> Intervals:
        """Make them of polls."""
        return cls(polls_s[:-1], polls_s[1:], np.asarray(np.diff(values) != 0.0, np.bool_))

    def part(self, rows: slice) -> Intervals:
        """Return some of them."""
        return Intervals(self.after[rows], self.before[rows], self.changed[rows])

    def densest(self, most: int) -> Intervals:
        """Return the part of the recording that has most changes, if it has more than ``most``; so many of them.

        Times from the middle of that part: one period tells the phase of all the others nowhere else.
        """
        at = np.flatnonzero(self.changed)
        if len(at) <= most:
            return self
        ends = self.before[at]
        first = int(np.argmin(ends[most - 1 :] - ends[: len(ends) - most + 1]))
        part = self.part(slice(at[first], at[first + most - 1] + 1))
        middle = float(part.after[0] + part.before[-1]) / 2.0
        return Intervals(part.after - middle, part.before - middle, part.changed)

    def coarse(self, step_s: float) -> Intervals:
        """Return what polls say that are no nearer to each other than so."""
        return self.joined(self.starts(step_s))

    def starts(self, step_s: float) -> Ints:
        """Return from which on they are joined to be as long as that."""
        if step_s <= float(np.median(self.length)):
            return np.arange(len(self.after))
        return np.flatnonzero(np.diff(np.floor((self.before - self.after[0]) / step_s), prepend=-1.0))

    def joined(self, starts: Ints) -> Intervals:
        """Join those from each start to the next."""
        if len(starts) == len(self.after):
            return self
        ends = np.append(starts[1:], len(self.after)) - 1
        return Intervals(self.after[starts], self.before[ends], np.logical_or.reduceat(self.changed, starts))

    def thinned(self, most: int) -> Intervals:
        """Return about ``most`` of the changes, from all over the recording, with the polls between them.

        Of what is left out nothing is known, as where polls are missing.
        """
        every = math.ceil(np.count_nonzero(self.changed) / most)
        if every <= 1:
            return self
        run = (np.cumsum(self.changed) - self.changed) // _RUN
        kept = np.asarray(run % every == 0, np.bool_)
        starts = np.flatnonzero(kept | np.concatenate([[True], kept[:-1]]))
        ends = np.append(starts[1:], len(kept)) - 1
        return Intervals(self.after[starts], self.before[ends], (self.changed & kept)[starts])

    @property
    def length(self) -> Floats:
        """How long each lasts."""
        return self.before - self.after

    def known(self, period: float, soft_s: float) -> Bools:
        """Which of them tell of at most one update: one change must not speak for two where stamps are off."""
        return np.asarray(self.length + STANDS_OUT * soft_s < period, np.bool_)


def few_own(own: int, changes: int) -> DeclinedError:
    """Say that too few changes are the sensor's own."""
    return DeclinedError(
        f"of {changes} changes {amount(changes - own, 'is a jump', 'are jumps')} between a few levels, which may "
        "be the load's as "
        "well as the sensor's",
        load="use a load that switches irregularly and within the update period",
    )


def own_changes(v: Floats) -> Bools:
    """Which differences of readings the load cannot have made by jumping between a few levels.

    Raises DeclinedError: there are too few of them to find a period.
    """
    many = int(np.count_nonzero(np.diff(v)))
    if many < MIN_CHANGES:
        msg = (
            f"the readings change {amount(many, 'time')}, too few to find an update period ({MIN_CHANGES} are needed): "
            "the power is constant or the recording too short"
        )
        raise DeclinedError(msg, load="use a load that varies")
    own = not_the_loads(v)
    if np.sum(own) < MIN_CHANGES:
        raise few_own(int(np.sum(own)), many)
    return own
