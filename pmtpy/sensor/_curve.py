"""Rows to a curve that can be asked: integrated at once, or when somebody looks.

A reading of counters, and a region at each of its ends, needs nothing but their counts then: what the rows mean is
worked out when somebody asks, or when a row comes that is needed at once. So the measured program waits for the reading
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from pmtpy.core.counters import Transform
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Frame, Layout, Point, Row
from pmtpy.core.state import State, fill_in
from pmtpy.sensor.history import Bookmark, History

_MOST_WAITING = 64  # integrating so many is a quarter of a millisecond


class Curve:
    """What the rows of one source mean, and which are kept. One owner, which holds its own lock around every call.

    Attributes
    ----------
    kept : History
        The rows that are integrated; for calls behind :meth:`advance`, when none wait.
    newest_ns : int or None
        The instant of the newest row; None before the first. Needs no lock.
    """

    __slots__ = ("_integrator", "_settling", "_waiting", "kept", "newest_ns")

    def __init__(self, layout: Layout, transforms: Mapping[str, Transform], seconds: float) -> None:
        self._integrator = Integrator(layout, transforms)
        self._waiting: deque[tuple[Row, Bookmark | State]] = deque()
        self._settling = False
        self.kept = History(layout, seconds)
        self.newest_ns: int | None = None

    @property
    def waiting(self) -> bool:
        """Whether rows wait to be integrated."""
        return bool(self._waiting)

    @property
    def history(self) -> History:
        """The rows, all of them integrated."""
        if self._waiting:
            self.settle()
        return self.kept

    @property
    def lost(self) -> int:
        """Rows lost since the beginning, up to the newest that is integrated."""
        return self._integrator.lost

    def doubt(self, column: int) -> tuple[int, str]:
        """When energy of a column was last not known, and why; (0, "") if it always was."""
        return self._integrator.doubts.get(column, (0, ""))

    def explain(self, why: str) -> None:
        """Say why no energy of any column is known before the newest rows."""
        columns = range(1, len(self._integrator.layout.names))
        self._integrator.doubts |= dict.fromkeys(columns, (self.newest_ns or 0, why))

    def rested_watts(self, column: int, since_ns: int) -> float:
        """The mean power up to the last move of a counter, where that was before an instant; else 0."""
        return self._integrator.rested_watts(column, since_ns)

    def note(self, row: Row, whose: Bookmark | State) -> None:
        """Take a row that is to be integrated later, and told then to the bookmark or the state at its instant."""
        waiting = self._waiting
        if len(waiting) == _MOST_WAITING:
            self.settle()
        self.newest_ns = row.t_ns
        waiting.append((row, whose))

    def advance(self, taken: Block | Row) -> Frame | Point | None:
        """Integrate rows; return them as rows of the curve, which the caller appends to :attr:`kept`."""
        if self._waiting:
            self.settle()
        if isinstance(taken, Row):
            self.newest_ns = taken.t_ns
            return self._integrator.step(taken)
        if len(taken):
            self.newest_ns = int(taken.t_ns[-1])
        return self._integrator.advance(taken)

    def relieve(self) -> None:
        """Integrate the rows that wait if they are many: behind a region, so that no later one has to within itself."""
        if 2 * len(self._waiting) >= _MOST_WAITING:
            self.settle()

    def settle(self) -> None:
        """Integrate the rows that wait; but not from within, where a signal's handler asks in the midst of it."""
        if self._settling:
            return
        waiting, kept, step = self._waiting, self.kept, self._integrator.step
        self._settling = True
        try:
            while waiting:
                row, whose = waiting.popleft()
                point = step(row)
                kept.append(point)
                if isinstance(whose, State):
                    fill_in(whose, point, self._integrator.lost)
                else:
                    whose.reading = kept.at_row(point)
        finally:
            self._settling = False
