"""Where a state lies that was read between two rows, so that it can be told again when later rows have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pmtpy.core.state import State
from pmtpy.sensor.history import Bookmark

if TYPE_CHECKING:
    from pmtpy.sensor.acquisition import Acquisition


class Place:
    """Where an extended state lies on its curve."""

    __slots__ = ("_acquisition", "_mark")

    def __init__(self, acquisition: Acquisition, mark: Bookmark) -> None:
        self._acquisition = acquisition
        self._mark = mark

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return the states of one sensor as the rows that have come by now show them, all by the same rows."""
        with self._acquisition.lock:
            return [state.place.settled(state) if isinstance(state.place, Place) else state for state in states]

    def settled(self, state: State) -> State:
        """Return the state that this is the place of, as the rows that have come by now show it."""
        (reading,) = self._acquisition.as_known(self._mark)
        return replace(state, joules=reading.joules, uncovered_ns=reading.uncovered_ns, lost=reading.lost)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process, where no later rows come."""
        return type(None), ()
