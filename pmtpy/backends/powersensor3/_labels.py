"""Labels on their way to the board and back, paired with marker bits in order of time. Pure bookkeeping."""

from __future__ import annotations

from collections import deque

from pmtpy.core.clock import NS_PER_S

# A frame that carries a mark leaves within a millisecond of the command; a command waits some ms behind USB, on a busy
# host for as long as nobody hands it on, and on a board that is held up until it sends again. So lateness proves no
# loss: only frames that are missing do, and others behind them that have come without the mark.
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

    def pop(self, t_ns: int, arrived_ns: int, gap_ns: int = 0) -> str:
        """Return the label of a marked frame measured at ``t_ns``; empty when it had arrived before any was sent.

        Marks come in order, and a frame has a mark only because a label was sent: were one frame passed over, all later
        labels would stand on the frame behind their own. So a label is dropped only where a later one fits, frames
        were lost since it was sent, the last of them before ``gap_ns``, and those behind them came without its mark.
        """
        while self._waiting and self._waiting[0][0] <= arrived_ns:
            sent_ns, label = self._waiting.popleft()
            another = bool(self._waiting) and self._waiting[0][0] <= arrived_ns
            missing = gap_ns > sent_ns - _MARK_EARLY_NS
            if not (another and missing and t_ns - max(sent_ns, gap_ns) > _MARK_PROMPT_NS):
                return label
            self.dropped += 1
        return ""

    def forget(self, t_ns: int, gap_ns: int = 0) -> None:
        """Drop labels whose frame can no longer come: frames have come for long, up to ``t_ns``, without their mark."""
        while self._waiting and t_ns - max(self._waiting[0][0], gap_ns) > _MARK_LATEST_NS:
            self._waiting.popleft()
            self.dropped += 1
