"""Labels that the host timed, until the row comes that bears them."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

from pmtpy.core.rows import Frame, Point


class WaitingLabels:
    """Labels in the order in which they were put. One owner, which holds its own lock around every call.

    Attributes
    ----------
    waiting : list of (int, str)
        The instants, and what to write there. Looked at by every reading, so without a call.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[int, str]] = []

    def put(self, t_ns: int, text: str) -> None:
        """Label an instant."""
        self.waiting.append((t_ns, text))

    def onto(self, rows: Frame | Point) -> Frame:
        """Give each label to the first row at or after its instant."""
        frame = rows if isinstance(rows, Frame) else Frame.of_points([rows])
        newest = int(frame.t_ns[-1])
        due = [(t, label) for t, label in self.waiting if t <= newest]
        self.waiting = [(t, label) for t, label in self.waiting if t > newest]
        marks = tuple((int(frame.t_ns.searchsorted(t)), label) for t, label in due)
        return replace(
            frame, marks=tuple(sorted((*frame.marks, *marks), key=itemgetter(0)))
        )  # in the order of time within a row
