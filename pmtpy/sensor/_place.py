"""Where a state lies that was read between two rows, so that it can be told again when later rows have come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pmtpy.core.state import State
from pmtpy.sensor.history import Bookmark


class Place:
    """Where an extended state lies on its curve, which ``settle`` asks for all of several states by the same rows."""

    __slots__ = ("mark", "settle")

    def __init__(self, settle: Callable[[Sequence[State]], list[State]], mark: Bookmark) -> None:
        self.settle = settle
        self.mark = mark

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process, where no later rows come."""
        return type(None), ()
