"""What happened to a stream, and when: kept for a while, so that it can be said of any stretch. Pure bookkeeping."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT = 4096
_JOINED_NS = 20_000_000  # events of a kind that follow each other more closely are one


@dataclass(slots=True)
class Entry:
    """One kind of event over a stretch of time; amounts are spread evenly over it."""

    kind: str
    begin_ns: int
    end_ns: int
    seconds: float
    amount: float


class Journal:
    """Events in order of time. Noted by one thread at a time; asked by any."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._newest: dict[str, Entry] = {}

    def add(self, kind: str, begin_ns: int, end_ns: int, seconds: float = 0.0, amount: float = 0.0) -> None:
        """Note an event: how much of the stretch it lasted, and an amount of its own (joules, bytes, frames)."""
        entry = self._newest.get(kind)
        if entry is not None and begin_ns - entry.end_ns < _JOINED_NS:
            entry.end_ns = max(entry.end_ns, end_ns)
            entry.seconds += seconds
            entry.amount += amount
            return
        self._newest[kind] = entry = Entry(kind, begin_ns, end_ns, seconds, amount)
        self._entries.append(entry)

    def between(self, begin_ns: int, end_ns: int) -> dict[str, tuple[float, float]]:
        """Return by kind what falls into a stretch: seconds and amounts, in parts where an event reaches beyond."""
        found: dict[str, tuple[float, float]] = {}
        for entry in tuple(self._entries):  # asked by other threads than the one that notes
            if entry.begin_ns > end_ns or entry.end_ns < begin_ns:
                continue
            whole = max(1, entry.end_ns - entry.begin_ns)
            inside = min(entry.end_ns, end_ns) - max(entry.begin_ns, begin_ns)
            part = 1.0 if entry.end_ns == entry.begin_ns else inside / whole
            seconds, amount = found.get(entry.kind, (0.0, 0.0))
            found[entry.kind] = seconds + part * entry.seconds, amount + part * entry.amount
        return found
