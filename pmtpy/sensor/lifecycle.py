"""What becomes of an opened sensor that nobody closes: dropped, forgotten until the program ends, or left by a fork.

No board may stream into the void, no thread read for nobody, no file end in the middle of a row. A dropped sensor is
let go with a :class:`ResourceWarning`, as Python does with files. The garbage collector may drop it in any thread,
under any lock: so what a pump reads is closed by that pump, and only what is a handful of files is closed at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
import weakref
from collections.abc import Callable
from typing import Protocol

from pmtpy.core.source import Source
from pmtpy.errors import PmtError
from pmtpy.sensor.poller import Beat, Pump

_log = logging.getLogger("pmtpy")


class Held(Protocol):
    """An opened sensor, as far as its end goes."""

    def close(self) -> None:
        """Release the device."""
        ...

    def disown(self) -> None:
        """Leave the device to the parent of this process."""
        ...


_open: weakref.WeakSet[Held] = weakref.WeakSet()
_kept: set[Held] = set()


class Life:
    """The open time of one sensor, and the beat that reads it; holds the sensor itself only while :meth:`keep` says so.

    Parameters
    ----------
    held : Held
        The sensor.
    step : callable
        A method of it, taken by the pump.
    source : Source
        What is closed when the sensor is dropped.
    target : str
        Its name, for the warning.
    """

    __slots__ = ("_end", "_held", "beat")

    def __init__(self, held: Held, step: Callable[[], None], source: Source, target: str, pump: Pump) -> None:
        taken = weakref.WeakMethod(step)

        def weakly() -> None:
            method = taken()
            if method is not None:
                method()
            else:  # dropped since: the thread that reads is the one to end it
                beat.end()
                _close(source, target)

        self.beat = beat = Beat(pump, weakly)
        self._held = weakref.ref(held)
        self._end = weakref.finalize(held, _drop, beat, source, target)
        self._end.atexit = False  # what is open at the end of the program is closed below, files and all
        _open.add(held)

    def keep(self, *, needed: bool) -> None:
        """Hold the sensor, or no longer: a dump goes on until the program ends, whoever has dropped its sensor."""
        held = self._held()
        if held is not None:
            (_kept.add if needed else _kept.discard)(held)

    def over(self) -> None:
        """Forget the sensor: it was closed, or is the parent's."""
        self._end.detach()
        held = self._held()
        if held is not None:
            _open.discard(held)
            _kept.discard(held)


def _drop(beat: Beat, source: Source, target: str) -> None:
    warnings.warn(f"unclosed sensor {target}; use it in a with-statement, or close() it", ResourceWarning, stacklevel=2)
    if not beat.going:
        _close(source, target)


def _close(source: Source, target: str) -> None:
    try:
        source.close()
    except PmtError:
        _log.exception("while closing %s, which was dropped", target)


@atexit.register
def _close_forgotten() -> None:
    for held in list(_open):
        try:
            held.close()
        except PmtError as error:  # noqa: PERF203  (each must be closed, whatever the others do)
            _log.error("%s", error)


def _disown_all() -> None:
    for held in list(_open):
        held.disown()


if hasattr(os, "register_at_fork"):  # where processes fork; asking for the process at each reading would cost more
    os.register_at_fork(after_in_child=_disown_all)


def leave(end: Callable[[], object], error: BaseException | None, what: str) -> None:
    """End something that a with-statement held; if an error leaves the statement, do not put another in its place.

    Parameters
    ----------
    error : BaseException or None
        With which the statement is left.
    what : str
        For the log, where what goes wrong with the end has no other way to be seen.
    """
    try:
        end()
    except PmtError:
        if error is None:
            raise
        _log.exception("while %s", what)
