"""A board on a line that exists only in memory, on any clock: for unit tests and for a clock that a test moves."""

from __future__ import annotations

from pmtpy.core.clock import Clock
from pmtpy.emulators.powersensor3._board import Board
from pmtpy.errors import SourceLostError

# Frames arrive in bursts of this length, as USB delivers them; each is stamped with the instant of its end.
_BURST_NS = 10_000_000


class MemoryTransport:
    """The host's end of a line to a :class:`Board`. Neither blocks nor starts a thread.

    ``board`` and ``clock`` are there for the test to reach the far side.

    Parameters
    ----------
    clock : Clock
        Gives the host instants.
    """

    def __init__(self, board: Board, clock: Clock) -> None:
        self.board, self.clock = board, clock
        board.listening = False  # what it sent before this line was there went nowhere
        board.advance(clock.now_ns())
        board.listening = True
        self._boot = len(board.history.boots)
        self._run_ns = clock.now_ns()
        self._closed = False
        self._held_until_ns = 0
        self._held: list[tuple[int, bytes]] = []

    def write(self, data: bytes) -> None:
        """Send bytes to the board.

        Raises SourceLostError: the board has left the bus since this line was opened.
        """
        self._check()
        self._run()  # what was made before goes out before
        self.board.feed(data, self.clock.now_ns())

    def receive(self) -> list[tuple[int, bytes]]:
        """Return what has arrived since the last call, each chunk with its instant of arrival; does not wait.

        Raises SourceLostError: the board has left the bus since this line was opened.
        """
        now_ns = self._run()
        self._check()
        if now_ns < self._held_until_ns:
            return []
        out, self._held = self._held, []
        return [(max(t_ns, self._held_until_ns), data) for t_ns, data in out]

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002  (waiting does not move a clock that stands still)
        """Return at once whether anything can be received now."""
        now_ns = self._run()
        return bool(self._held) and now_ns >= self._held_until_ns

    def hold(self, seconds: float) -> None:
        """Deliver nothing for a while, then everything: a late host controller. A fault."""
        self._held_until_ns = self.clock.now_ns() + round(seconds * 1e9)

    def close(self) -> None:
        """Close the port: from now on the board's output is discarded."""
        self._closed = True
        self.board.listening = False

    def _run(self) -> int:
        now_ns = self.clock.now_ns()
        while self._run_ns < now_ns:
            self._run_ns = min(now_ns, self._run_ns + _BURST_NS)
            self._collect(self._run_ns)
        self._collect(now_ns)
        return now_ns

    def _collect(self, t_ns: int) -> None:
        self.board.advance(t_ns)
        data = b"".join(self.board.take())
        if data:
            self._held.append((t_ns, data))

    def _check(self) -> None:
        if self._closed or not self.board.attached or len(self.board.history.boots) != self._boot:
            raise SourceLostError("the virtual board has left its line; open it again when it is back")
