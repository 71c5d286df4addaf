"""Labels on their way to the board and back, paired with marker bits in order of time. Pure bookkeeping."""

from __future__ import annotations

from collections import deque

from pmtpy.core.clock import NS_PER_S

# A frame that carries a mark leaves within a millisecond of the command; a command waits some ms behind USB, and on a
# busy host for as long as nobody hands it on. So lateness proves no loss: only frames that are missing do.
_MARK_PROMPT_NS = 5_000_000
_MARK_LATEST_NS = 2 * NS_PER_S
# A frame can be stamped earlier than its command by what the mapping of the clocks does not know.
_MARK_EARLY_NS = 5_000_000


class MarkLabels:
    """The labels whose frames have not come yet. Used by one thread at a time.

    Attributes
    ----------
    dropped : int
        Labels whose frames are taken for lost.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._waiting: deque[tuple[int, str]] = deque()

    def push(self, t_ns: int, label: str) -> None:
        """Note a label whose command was sent at ``t_ns``."""
        self._waiting.append((t_ns, label))

    def waiting_since(self) -> int | None:
        """When the newest label was sent whose frame has not come; None when there is none."""
        return self._waiting[-1][0] if self._waiting else None

    def pop(self, t_ns: int, gap_ns: int = 0) -> str:
        """Return the label of a marked frame measured at ``t_ns``; empty when none fits.

        Marks come in order. So where a later one fits, a label is dropped only if frames were lost since it was sent,
        the last of them before ``gap_ns``.
        """
        while self._waiting:
            sent_ns, label = self._waiting.popleft()
            if sent_ns > t_ns + _MARK_EARLY_NS:
                self._waiting.appendleft((sent_ns, label))
                return ""
            limit_ns = _MARK_LATEST_NS
            if self._waiting and self._waiting[0][0] <= t_ns + _MARK_EARLY_NS:
                limit_ns = _MARK_PROMPT_NS if gap_ns > sent_ns - _MARK_EARLY_NS else _MARK_LATEST_NS
            if t_ns - sent_ns <= limit_ns:
                return label
            self.dropped += 1
        return ""

    def forget(self, t_ns: int) -> None:
        """Drop labels whose frame, at ``t_ns`` of the stream, can no longer come."""
        while self._waiting and t_ns - self._waiting[0][0] > _MARK_LATEST_NS:
            self._waiting.popleft()
            self.dropped += 1
