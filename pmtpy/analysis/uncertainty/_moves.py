"""When counters moved, and how old what they show at an instant may be. Pure.

Of a counter in large steps, or one that stands still, what is shown at an edge of an interval may be of any time since
it last moved; docs/uncertainty.md, "Edges".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats

# A counter that has not moved for long before an edge is as old as that, or stands still: of that time nothing
# is known. It may hold up to its power; the mean square of that is twice that of an age which is uniform.
_UNMOVED = math.sqrt(2.0)
_CLEAN = 0.9  # share of the refresh period that two moves of a counter are apart at least


@dataclass(frozen=True, slots=True)
class Moves:
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

        Else they were read at the edge, or are bridged by a row that another register made while these stood: shown is
        what was a while ago.
        """
        rows = self.all_t[max(0, beside - 1) : beside + 1]
        at = np.minimum(self.t.searchsorted(rows), len(self.t) - 1)
        return bool((self.t[at] == rows).all()) and not 0 < gap_s < _CLEAN * self.refresh_s
