"""Where a state lies that was read between two rows, so that it can be told again when later rows have come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pmtpy.core.state import State
from pmtpy.sensor.history import Bookmark, CurvePoint


class Place:
    """Where an extended state lies on its curve, which ``as_known`` asks, at several bookmarks by the same rows."""

    __slots__ = ("_as_known", "mark")

    def __init__(self, as_known: Callable[..., list[CurvePoint]], mark: Bookmark) -> None:
        self._as_known = as_known
        self.mark = mark

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return the states of one sensor as the rows that have come by now show them, all by the same rows."""
        marks = [state.place.mark for state in states if isinstance(state.place, Place)]
        readings = iter(self._as_known(*marks))
        return [_at(s, next(readings)) if isinstance(s.place, Place) else s for s in states]

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process, where no later rows come."""
        return type(None), ()


def _at(state: State, reading: CurvePoint) -> State:
    return replace(state, joules=reading.joules, uncovered_ns=reading.uncovered_ns, lost=reading.lost)
