"""When counters moved, and how old what they show at an instant may be. Pure.

Of a counter in large steps, or one that stands still, what is shown at an edge of an interval may be of any time since
it last moved; docs/uncertainty.md, "Edges".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.updates import POLLED
from pmtpy.core.rows import Floats, median

# A counter that has not moved for long before an edge is as old as that, or stands still: of that time nothing
# is known. It may hold up to its power; the mean square of that is twice that of an age which is uniform.
_UNMOVED = math.sqrt(2.0)
_PROMPT = 2.0  # refresh periods: a reading may just have missed a move, and the next one may be late
# Periods that are thought of where a refresh is not stated, as shares of the usual time between two moves. Slower ones
# leave rows without a move, of faster ones an edge does not notice.
_PERIODS = np.geomspace(0.02, 4.0, 24)[:, None]


class Moves(NamedTuple):
    """The rows that moved the counters of a group, among all rows."""

    all_t: Floats  # all rows, seconds from the start of the interval
    t: Floats  # those that moved the counters
    refresh_s: float
    anew: tuple[float, ...] = ()  # rows with which counting began, first or again
    rested_s: float = 0.0  # longest time for which one count was seen to stand

    @classmethod
    def of(
        cls, all_t: Floats, t: Floats, refresh_s: float, known: npt.NDArray[np.bool_], rested: npt.NDArray[np.bool_]
    ) -> Moves:
        """Make it of which rows have a known power, and which showed the count of the row before."""
        anew = ~known
        anew[1:] &= known[:-1]
        at, longest_s = all_t[rested], 0.0
        if len(at) and len(t):
            last = t.searchsorted(at, "right") - 1
            longest_s = float((at - np.where(last < 0, all_t[0], t[last])).max())
        return cls(all_t, t, refresh_s, tuple(all_t[anew].tolist()), longest_s)

    def age_s(self, at: float, after: int) -> float:
        """Return how old what is shown at the row ``at`` may be, times ``_UNMOVED``: the counters may stand still.

        ``after`` is the place of the first move at or after the row.
        """
        t = self.t
        following = float(t[after]) if after < len(t) else at
        last = after if after < len(t) and following == at else after - 1  # move that the row shows
        began_s = max([b for b in self.anew if b <= at], default=float(self.all_t[0]))
        if last < 0 or float(t[last]) < began_s:
            # When they moved before nobody saw: of the energy of the next move any part may be from before the row.
            return _UNMOVED * min(following - began_s, self.rested_s)
        # It was between that row and the one before it, where not each row shows a move.
        seen_s = float(t[last] - self.all_t[max(0, int(self.all_t.searchsorted(t[last])) - 1)])
        return _UNMOVED * (at - float(t[last]) + min(seen_s, max(0.0, self.rested_s - self.refresh_s)))

    def clean(self, beside: int, gap_s: float) -> bool:
        """Whether the rows on either side of an edge were moves of the counters, a refresh apart.

        If not, they were read at the edge, or a row that another register made lies between: that shows an older count.
        """
        rows = self.all_t[max(0, beside - 1) : beside + 1]
        at = np.minimum(self.t.searchsorted(rows), len(self.t) - 1)
        return bool((self.t[at] == rows).all()) and not 0 < gap_s < POLLED * self.refresh_s

    def prompt(self, at: float, after: int) -> bool:
        """Whether the last move before ``at`` is no older than a counter that is as quick as stated leaves it.

        Of a slower one each row in between shows the count of that move, so that this is what is shown at ``at``, too.
        """
        longest_s = _PROMPT * self.refresh_s
        return self.rested_s <= longest_s or (after > 0 and at - float(self.t[after - 1]) <= longest_s)


def unstated_refresh_s(all_t: Floats, t: Floats, powers: Floats) -> float:
    """Return how long counters go without a renewal where nobody states it, root mean square of what is likely.

    Each reading is late by an age that is uniform up to the period ``T``. At a steady load the energy at a row is then
    off the line between its neighbours by ``P T sqrt((1 + v^2 + (1 - v)^2) / 12)``, ``v`` being where between them the
    row lies; a change of the load, which is as likely, is off by anything. And of rows ``g`` apart, less than ``T``,
    only ``g/T`` show a move. All periods are as likely before, evenly in their logarithm.

    Parameters
    ----------
    all_t, t : float64
        Seconds: all rows, and those that moved the counters; one at least.
    powers : float64, shape (k, len(t))
        Mean power of each counter up to each of these rows; it is the counter that seems slowest which counts.
    """
    first = int(all_t.searchsorted(t[0]))
    gaps = np.diff(t, prepend=all_t[max(0, first - 1)])
    if not first:  # since when the first power holds is not kept
        gaps, powers = gaps[1:], powers[:, 1:]
    if not len(gaps):
        return 0.0
    periods = _PERIODS * median(gaps)
    moved = np.log(np.minimum(1.0, gaps / periods)).sum(axis=1)
    before, after = gaps[:-1], gaps[1:]
    share = before / (before + after)
    spread = np.sqrt((1.0 + share**2 + (1.0 - share) ** 2) / 12.0) * periods
    longest = 0.0
    for p in powers:
        mean = np.maximum(p[:-1] * share + p[1:] * (1.0 - share), 1e-30)
        off = abs(p[1:] - p[:-1]) / mean * share * after
        steady = np.exp(-0.5 * (off / spread) ** 2) * math.sqrt(2.0 / math.pi) / spread
        likely = moved + np.log(steady + 1.0 / (share * after)).sum(axis=1)
        weight = np.exp(likely - likely.max())
        longest = max(longest, math.sqrt(float(weight @ periods[:, 0] ** 2 / weight.sum())))
    return longest
