"""The source of a virtual device: the real one, on a far side that is brought up to the present as it is read.

What the real source says of itself is passed on as it is, but for the word ``virtual``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from pmtpy.core.clock import Anchor, Clock
from pmtpy.core.rows import Block, Row
from pmtpy.core.source import Remarks, Source
from pmtpy.emulators.world import World
from pmtpy.errors import TargetError

VIRTUAL = "virtual"
_CARDS = 16  # of the largest nodes
_PHASE = 0.381966  # of a period, from each card to the next: by the golden section no two of them come close


def card_of(backend: str, device: str | None) -> int:
    """Return which card of a virtual node is meant: 0 of ``virtual``, 1 of ``virtual1``, and so on.

    Raises TargetError: none of them.
    """
    number = (device or VIRTUAL).removeprefix(VIRTUAL) or "0"
    if (device or VIRTUAL).startswith(VIRTUAL) and number.isdecimal() and int(number) < _CARDS:
        return int(number)
    msg = f"{backend} has the virtual devices {backend}:virtual, {backend}:virtual1, ... {_CARDS - 1}, not {device!r}"
    raise TargetError(msg)


def phase_of(card: int, update_s: float) -> float:
    """Return the instant of a card's tick 0, seconds: each keeps its own time."""
    return (card * _PHASE % 1.0) * update_s


def check_device(backend: str, device: str | None) -> None:
    """Raise TargetError unless ``device`` means the only virtual device of a backend."""
    if device not in {None, "", "virtual"}:
        msg = f"{backend} has one virtual device, {backend}:virtual, and not {device!r}"
        raise TargetError(msg)


class _FarClock:
    """The host's clock, for a source whose far side does not move by itself: who asks for the time is about to read it.

    So what is read is of the instant that the source takes for its reading, however long a busy machine holds it up
    between the two; a source that then reads again reads what has become of it meanwhile.
    """

    def __init__(self, clock: Clock, refresh: Callable[[int], None]) -> None:
        self._clock = clock
        self._refresh: Callable[[int], None] | None = refresh
        self._before = True

    def begin(self) -> None:
        """A reading begins: the next question for the time is that before it."""
        self._before = True

    def end(self) -> None:
        """Let the far side go: the world lives as long as its sensors are open."""
        self._refresh = None

    def now_ns(self) -> int:
        """Return the present instant, to which the far side is brought; but not by the question after a reading."""
        now_ns = self._clock.now_ns()
        if self._before and self._refresh is not None:
            self._refresh(now_ns)
        self._before = not self._before
        return now_ns

    def anchor(self) -> Anchor:
        """As the host's clock has it."""
        return self._clock.anchor()

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        """As the host's clock does."""
        return self._clock.wait_until(t_ns, wake)


def open_on(
    world: World,
    open_real: Callable[[Clock], Source],
    *,
    refresh: Callable[[int], None] | None = None,
    leave: Callable[[], None],
) -> VirtualSource:
    """Open the real backend on a far side; if that fails, the far side is ended.

    Parameters
    ----------
    open_real : callable
        Opens the source on the clock that it is given.
    refresh : callable, optional
        Brings the far side up to an instant (ns), for what does not move by itself.
    leave : callable
        Ends the far side, when the source is closed. May be called twice.
    """
    far = None if refresh is None else _FarClock(world.clock, refresh)
    try:
        if refresh is not None:
            refresh(world.clock.now_ns())
        inner = open_real(far or world.clock)
    except BaseException:
        leave()
        raise
    return VirtualSource(inner, world, far=far, leave=leave)


class VirtualSource(Source):
    """A real source and the emulated world that it reads. Owns both.

    Parameters
    ----------
    inner : Source
        The source of the real backend.
    world : World
        Kept as long as the source is open, so that it lives as long as its sensors.
    far : clock, optional
        On which the real source was opened, where the far side does not move by itself.
    leave : callable, optional
        Ends the far side, when the source is closed. May be called twice.
    """

    def __init__(
        self,
        inner: Source,
        world: World,
        *,
        far: _FarClock | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self.inner = inner
        self._world: World | None = world
        self._far = far
        self._leave = leave
        self.identity = replace(inner.identity, virtual=True)
        self.channels = inner.channels
        self.traits = inner.traits

    def read(self) -> Block:
        """Read the far side, as it is now, as the real source does."""
        taken = self.read_row()
        return Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken

    def read_row(self) -> Block | Row:
        """Do what :meth:`read` does, in the cheapest form."""
        if self._far is not None:
            self._far.begin()
        taken = self.inner.read_row()
        self.traits = self.inner.traits  # which may know more by now
        return taken

    @property
    def last_read_failed(self) -> bool:
        """As the real source has it."""
        return self.inner.last_read_failed

    @property
    def last_failure(self) -> str:
        """Why the last reading failed; empty: it did not."""
        return self.inner.last_failure

    @property
    def unread(self) -> Mapping[int, str]:
        """As the real source has it."""
        return self.inner.unread

    @property
    def has_backlog(self) -> bool:
        """As the real source has it."""
        return self.inner.has_backlog

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """As the real source has it."""
        return self.inner.remarks(begin_ns, end_ns)

    def limits(self) -> Mapping[str, float]:
        """As the real source has it."""
        return self.inner.limits()

    def settings(self) -> Mapping[str, str]:
        """As the real source has it."""
        return self.inner.settings()

    def mark(self, label: str) -> bool:
        """Pass the label on to the device."""
        return self.inner.mark(label)

    def close(self) -> None:
        """Close the source and end the far side. May be called twice."""
        try:
            self.inner.close()
        finally:
            leave, self._leave = self._leave, None
            if self._far is not None:
                self._far.end()
            self._world = None  # so that the next virtual sensor may choose another load
            if leave is not None:
                leave()
