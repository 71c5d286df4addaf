"""When a sensor publishes: period, phase and wander of its clock, from polls or from rows. One likelihood for all.

Between two polls ``(a, b]`` the sensor published, or it did not. If it did, the readings differ with the probability
``q`` (a value may repeat), of which two are tried in each block; if it did not they differ almost never. So a poll
*without* a change speaks too: half of the period explains every change as well as the period itself, but promises
changes that nobody saw. An update at ``u`` therefore weighs

    W(u) = q / stray      where the poll after u brought a change,
           1 - q          where it did not,
           1              where nobody looked for about a period (a starved poller is a gap),

blurred by how far stamps are off, where that leaves room for one update alone; the likelihood of a clock is the product
of ``W`` over its updates, against changes at random. The phase is a path: it walks, and once in a long while jumps. It
is followed in blocks on a grid (a hidden Markov model [R89]) for several periods, sizes of the walk and of the blur.
Candidates come from a search with a free phase in each piece, and are weighed by their paths; paths are drawn as often
as the polls make them likely [S02], and every interval is read off the draws.

Pure; times are seconds. The same polls always give the same answer. docs/fit.md explains it.

[R89] Rabiner, Proc. IEEE 77 (1989), 257. [S02] Scott, J. Am. Stat. Assoc. 97 (2002), 337: filter forward, draw
backward. [Y24] Yang, Adamek, Armour, arXiv 2312.02741: recordings in which the wander was measured.
"""

from __future__ import annotations

from pmtpy.analysis.clocking._intervals import BoundedError, FasterThanPollsError
from pmtpy.analysis.clocking._known import live_updates, possible_updates
from pmtpy.analysis.clocking._polling import Polling
from pmtpy.analysis.clocking._updates import PublishingClock, estimate_updates, update_series

__all__ = [
    "BoundedError",
    "FasterThanPollsError",
    "Polling",
    "PublishingClock",
    "estimate_updates",
    "live_updates",
    "possible_updates",
    "update_series",
]
