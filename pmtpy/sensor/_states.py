"""What a sensor shows at the moment of a call, and how a state that was read between two rows learns of later ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Point
from pmtpy.core.state import Origin, State, fill_in
from pmtpy.sensor._demand import Demand
from pmtpy.sensor._intake import Intake
from pmtpy.sensor.history import Bookmark

# Where nothing of a stream has come for so long, time goes on without it, or a pair of states would tell of no time
# and no energy. Rows that are late wait for 0.3 s at most.
_SILENT_NS = NS_PER_S


class _Place:
    """Where an extended state lies on its curve, which ``settle`` asks for all of several states by the same rows."""

    __slots__ = ("mark", "settle")

    def __init__(self, settle: Callable[[Sequence[State]], list[State]], mark: Bookmark) -> None:
        self.settle = settle
        self.mark = mark

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process, where no later rows come."""
        return type(None), ()


class States:
    """Makes the states of one sensor, and knows the energy of those that were made before it was worked out."""

    def __init__(self, intake: Intake, demand: Demand, clock: Clock, origin: Origin) -> None:
        self._intake, self._curve, self._demand, self._clock = intake, intake.curve, demand, clock
        self._origin = origin

    def now(self) -> State:
        """Return the curve at the moment of the call; of a stream that is not silent, at its newest row."""
        intake, curve = self._intake, self._curve
        with intake.lock:
            asked_ns = self._clock.now_ns()
            if self._demand.always or intake.source.traits.blocking:
                intake.refresh()
            elif (row := intake.row(asked_ns)) is not None:
                state = self._origin.at_instant(row.t_ns, self)
                curve.note(row, state)
                return state
            newest = curve.history.newest
            late_ns = _SILENT_NS if intake.source.traits.streaming else 0
            if newest is None or asked_ns - newest.t_ns > late_ns:
                return self._extended(self._clock.now_ns())
            return self._origin.at_row(newest, curve.lost)

    def _extended(self, t_ns: int) -> State:
        """Let the last power go on: the register has not refreshed, or a reading takes too long to wait for it."""
        history = self._curve.history
        mark = history.bookmark(t_ns)
        if history.newest is None:  # of the time until the first row nothing will be known, which says so then
            size = len(self._origin.names)
            row = Point(t_ns, (math.nan,) * size, (0.0,) * size, (), 0, (0,) * size)
            return replace(self._origin.at_row(row, 0), place=_Place(self.settle, mark))
        now = history.reading(mark)
        row = Point(t_ns, now.after.watts, now.joules, (), 0, now.uncovered_ns)
        place = _Place(self.settle, mark)
        return replace(self._origin.at_row(row, now.lost), extended_ns=now.extended_ns, place=place)

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return states of this sensor as the rows that have come by now show them, without reading the source."""
        with self._intake.lock:
            self._curve.settle()
            return [state if state.place is None else self._settled(state, state.place) for state in states]

    def _settled(self, state: State, place: object) -> State:
        history = self._curve.history
        if isinstance(place, _Place):
            known = history.reading(place.mark)
            return replace(state, joules=known.joules, uncovered_ns=known.uncovered_ns, lost=known.lost)
        # Ctrl-C or a fork came while its row was being worked out, or a signal's handler asks meanwhile.
        known = history.at(state.t_ns)
        both = zip(known.uncovered_ns, known.before.uncovered_ns, strict=True)
        unknown_ns = tuple([max(beyond, ns + known.extended_ns) for beyond, ns in both])
        fill_in(state, Point(state.t_ns, known.after.watts, known.joules, (), 0, unknown_ns), known.lost)
        return state

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process."""
        return type(None), ()
