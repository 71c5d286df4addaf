"""The clocks of nodes against one of them, by exchanges of stamps: so that curves of several nodes lie on one axis.

A stamp is asked for, and comes back between two of our own: the other clock's offset is its stamp less the middle of
ours, off by half the round trip at most; of many exchanges the one with the smallest round trip is kept (F. Cristian,
"Probabilistic clock synchronization", Distributed Computing 3, 1989). One at the begin and one at the end make a line,
which follows the drift of two crystals. A sum of energies needs none of it: each node integrates on its own clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtpy.core.clock import NS_PER_S, Anchor
from pmtpy.core.numbers import real, stated, stated_whole, whole
from pmtpy.errors import CoverageError, FileFormatError, TargetError
from pmtpy.io.recorded import anchor_of
from pmtpy.io.whole import write_whole

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 1
_WANDER = 1e-6  # by which the rate of a crystal changes while it warms up, of the line between two exchanges
_RATE_APART = 1e-4  # by which the rates of two crystals differ at most (50 ppm each): all that is known of one exchange


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a node's clock is ahead of the reference's, at an instant of its own."""

    at_ns: int  # the instant, on the node's monotonic clock
    ahead_ns: float
    error_ns: float  # at most

    @classmethod
    def read(cls, facts: Mapping[str, object]) -> Offset:
        """Return what a file says. Raises KeyError, ValueError: it is no offset."""
        return cls(stated_whole(facts, "at_ns"), stated(facts, "ahead_ns"), stated(facts, "error_ns"))


def best_of(exchanges: Sequence[tuple[int, int, int]]) -> Offset:
    """Return what the exchange with the smallest round trip says; each is (sent, the other's stamp, received)."""
    sent, other, received = min(exchanges, key=lambda e: e[2] - e[0])
    return Offset(other, other - (sent + received) / 2, (received - sent) / 2)


@dataclass(frozen=True, slots=True)
class NodeClock:
    """The clock of one node against the reference."""

    host: str
    offsets: tuple[Offset, ...]  # in order of time; one or more

    def at(self, t_ns: float) -> tuple[float, float]:
        """Return how far the clock is ahead at one of its instants, and by how much that may be off, nanoseconds."""
        first, last = self.offsets[0], self.offsets[-1]
        span = last.at_ns - first.at_ns
        if span <= 0:
            return first.ahead_ns, first.error_ns + _RATE_APART * abs(t_ns - first.at_ns)
        share = (t_ns - first.at_ns) / span
        ahead = first.ahead_ns + share * (last.ahead_ns - first.ahead_ns)
        # Linear in both: between the two no more than the larger, outside as the line swings.
        error = abs(1 - share) * first.error_ns + abs(share) * last.error_ns
        nearer = min(abs(t_ns - first.at_ns), abs(t_ns - last.at_ns))
        return ahead, error + _WANDER * nearer


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a job's nodes."""

    reference: Anchor  # wall and monotonic time of the reference: the axis
    nodes: Mapping[str, NodeClock]  # by what tells nodes from each other; the reference too, with nothing ahead

    def write(self, path: Path) -> None:
        """Write them to a file.

        Raises SinkError: it cannot be written.
        """
        facts = {
            "pmtpy_clocks": _FORMAT,
            "reference": asdict(self.reference),
            "nodes": {
                node: {"host": c.host, "offsets": [asdict(o) for o in c.offsets]} for node, c in self.nodes.items()
            },
        }
        write_whole(path, facts, indent=1)

    @classmethod
    def read(cls, path: Path) -> Clocks:
        """Read what :meth:`write` wrote.

        Raises TargetError: there is no such file, or it cannot be opened.
        Raises FileFormatError: it is something else.
        """
        try:
            text = path.read_bytes()
        except OSError as error:
            msg = f"cannot read {path}: {error.strerror}"
            raise TargetError(msg) from error
        try:
            facts = json.loads(text)
            if real(facts["pmtpy_clocks"]) != _FORMAT:
                msg = f"{path} is of another version of pmtpy"
                raise FileFormatError(msg)
            nodes = {
                node: NodeClock(str(c["host"]), tuple(map(Offset.read, c["offsets"])))
                for node, c in facts["nodes"].items()
            }
            if not all(c.offsets for c in nodes.values()):
                msg = f"{path}: a node has no offset"
                raise FileFormatError(msg)
            told = facts["reference"]
            ends = stated_whole(told, "monotonic_ns"), stated_whole(told, "unix_ns")
            return cls(Anchor(*ends, whole(told.get("boottime_ns"))), nodes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, FileFormatError):
                raise
            msg = f"{path} does not hold the clocks of nodes: {error}"
            raise FileFormatError(msg) from error

    def place(self, recording: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str]:
        """Return a recording on the axis of the reference, and what was done to it in words.

        Raises CoverageError: the recording does not say on which node it was made, or that was not among these.
        """
        clock, shift = self._of(recording.attrs.get("metadata") if len(recording) else None, name)
        own_s = recording["time"].to_numpy() - shift
        ends = [clock.at(t * NS_PER_S) for t in (own_s[0], own_s[-1])]
        slope = (ends[1][0] - ends[0][0]) / NS_PER_S / (own_s[-1] - own_s[0]) if own_s[-1] > own_s[0] else 0.0
        ahead_s = ends[0][0] / NS_PER_S + slope * (own_s - own_s[0])
        axis = self.reference.unix_offset_ns / NS_PER_S
        placed = recording.assign(time=own_s - ahead_s + axis)
        error_s = max(e for _, e in ends) / NS_PER_S
        facts = recording.attrs["metadata"]
        # All rows have it in common; what is off by at most so much has this standard deviation.
        u_s = math.hypot(facts.get("time_u_s") or 0.0, error_s / math.sqrt(3.0))
        placed.attrs = recording.attrs | {"metadata": facts | {"time_u_s": u_s}}
        return placed, _said(name, float(placed["time"].iloc[0] - recording["time"].iloc[0]), error_s)

    def start(self, facts: Any, name: str, unix_s: float, seconds: float) -> tuple[float, str]:
        """Return when a recording of so many seconds began by the clock of the reference, and what that did, in words.

        What its clock drifts meanwhile is part of what is stated. Errors as those of :meth:`place`.
        """
        clock, shift = self._of(facts, name)
        begin, end = (clock.at((unix_s - shift + t) * NS_PER_S) for t in (0.0, seconds))
        axis = self.reference.unix_offset_ns / NS_PER_S
        began_s = unix_s - shift - begin[0] / NS_PER_S + axis
        error_s = (max(begin[1], end[1]) + abs(end[0] - begin[0])) / NS_PER_S
        return began_s, _said(name, began_s - unix_s, error_s)

    def _of(self, facts: Any, name: str) -> tuple[NodeClock, float]:
        """Return the clock of the node that a recording's metadata name, and its wall less its monotonic time."""
        known = facts or {}
        machine, start = known.get("machine") or {}, anchor_of(known, "start")
        clock = self.nodes.get(str(machine.get("node")))
        if clock is None or start is None:
            hosts = ", ".join(c.host for c in self.nodes.values())
            msg = f"{name} does not say that it was made on one of the nodes whose clocks are known: {hosts}"
            raise CoverageError(msg)
        return clock, start.unix_offset_ns / NS_PER_S


def _said(name: str, moved_s: float, error_s: float) -> str:
    return f"{name}: its times were moved by {moved_s:+.6f} s onto the reference's clock, within {error_s:.2g} s"
