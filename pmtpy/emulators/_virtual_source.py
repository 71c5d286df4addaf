"""The source of a virtual device: the real one, on a far side that is brought up to the present before each reading.

What the real source says of itself is passed on as it is, but for the word ``virtual``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pmtpy.core.rows import Block, Row
from pmtpy.core.source import Remarks, Source
from pmtpy.emulators.world import World
from pmtpy.errors import TargetError


def check_device(backend: str, device: str | None) -> None:
    """Raise TargetError unless ``device`` means the only virtual device of a backend."""
    if device not in {None, "", "virtual"}:
        msg = f"{backend} has one virtual device, {backend}:virtual, and not {device!r}"
        raise TargetError(msg)


def open_on(
    world: World,
    open_real: Callable[[], Source],
    *,
    refresh: Callable[[int], None] | None = None,
    leave: Callable[[], None],
) -> VirtualSource:
    """Open the real backend on a far side; if that fails, the far side is ended. Parameters as of VirtualSource."""
    try:
        if refresh is not None:
            refresh(world.clock.now_ns())
        inner = open_real()
    except BaseException:
        leave()
        raise
    return VirtualSource(inner, world, refresh=refresh, leave=leave)


class VirtualSource(Source):
    """A real source and the emulated world that it reads. Owns both.

    Parameters
    ----------
    inner : Source
        The source of the real backend.
    world : World
        Kept as long as the source is open, so that it lives as long as its sensors.
    refresh : callable, optional
        Brings the far side up to an instant (ns), for what does not move by itself.
    leave : callable, optional
        Ends the far side, when the source is closed. May be called twice.
    """

    def __init__(
        self,
        inner: Source,
        world: World,
        *,
        refresh: Callable[[int], None] | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self._inner = inner
        self._world: World | None = world
        self._clock = world.clock
        self._refresh = refresh
        self._leave = leave
        self.identity = replace(inner.identity, virtual=True)
        self.channels = inner.channels
        self.traits = inner.traits

    def read(self) -> Block:
        """Bring the far side up to the present, then read it as the real source does."""
        taken = self.read_row()
        return Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken

    def read_row(self) -> Block | Row:
        """Do what :meth:`read` does, in the cheapest form."""
        if self._refresh is not None:
            self._refresh(self._clock.now_ns())
        taken = self._inner.read_row()
        self.traits = self._inner.traits  # which may know more by now
        return taken

    @property
    def last_read_failed(self) -> bool:
        """As the real source has it."""
        return self._inner.last_read_failed

    @property
    def has_backlog(self) -> bool:
        """As the real source has it."""
        return self._inner.has_backlog

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """As the real source has it."""
        return self._inner.remarks(begin_ns, end_ns)

    def mark(self, label: str) -> bool:
        """Pass the label on to the device."""
        return self._inner.mark(label)

    def close(self) -> None:
        """Close the source and end the far side. May be called twice."""
        try:
            self._inner.close()
        finally:
            leave, self._refresh, self._leave = self._leave, None, None
            self._world = None  # so that the next virtual sensor may choose another load
            if leave is not None:
                leave()
