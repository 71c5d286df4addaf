"""What becomes of an opened sensor that nobody closes: dropped, forgotten until the program ends, or left by a fork.

No board may stream into the void, no thread read for nobody, no file end in the middle of a row. A dropped sensor is
released with a :class:`ResourceWarning`, as Python does with files. The garbage collector may drop it in any thread,
under any lock: so what a poller reads is closed by that poller, and only what is a handful of files is closed at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
import weakref
from collections.abc import Callable
from typing import Protocol

from pmtpy.errors import PmtError

_log = logging.getLogger("pmtpy")


class _Closable(Protocol):
    """An opened sensor, as far as its end goes."""

    def close(self) -> None:
        """Release the device."""
        ...


class Lifecycle:
    """The open time of one sensor; holds the sensor itself only while :meth:`keep` says so.

    Parameters
    ----------
    sensor : _Closable
        Closed at the end of the program, if it is still open.
    drop : callable
        Releases the device when the sensor is dropped; must not hold the sensor.
    disown : callable
        Leaves the device to the parent, in a child process, with the reason; must not hold the sensor.
    target : str
        Its name, for messages.
    """

    __slots__ = ("_disown", "_drop", "_finalizer", "_sensor", "_target")

    def __init__(self, sensor: _Closable, drop: Callable[[], None], disown: Callable[[str], None], target: str) -> None:
        self._sensor = weakref.ref(sensor)
        self._drop, self._disown, self._target = drop, disown, target
        self._finalizer = weakref.finalize(sensor, self._dropped)
        self._finalizer.atexit = False  # what is open at the end of the program is closed below, files and all
        _open.add(self)

    def keep(self, *, needed: bool) -> None:
        """Hold the sensor, or no longer: a dump goes on until the program ends, whoever has dropped its sensor."""
        sensor = self._sensor()
        if sensor is not None:
            (_kept.add if needed else _kept.discard)(sensor)

    def end(self) -> None:
        """Forget the sensor: it was closed, or is the parent's."""
        self._finalizer.detach()
        _open.discard(self)
        self.keep(needed=False)

    def disown(self) -> None:
        """Leave the device to the parent of this process."""
        self._disown(f"{self._target} was opened by the parent of this process; open it again here")
        self.end()

    def close(self) -> None:
        """Close the sensor, at the end of the program."""
        sensor = self._sensor()
        if sensor is not None:
            sensor.close()

    def _dropped(self) -> None:
        _open.discard(self)
        self._drop()  # before the warning, which raises where warnings are errors
        why = f"unclosed sensor {self._target}; use it in a with-statement, or close() it"
        warnings.warn(why, ResourceWarning, stacklevel=2)


_INTERRUPTS_TO_GIVE_UP = 5  # of these Ctrl-C the last leaves a file unfinished, for disks that hang

_open: set[Lifecycle] = set()
_kept: set[_Closable] = set()


@atexit.register
def _close_forgotten() -> None:
    for lifecycle in list(_open):
        for _ in range(_INTERRUPTS_TO_GIVE_UP):
            try:
                lifecycle.close()
                break
            except KeyboardInterrupt:
                _log.warning("a file is being finished; press Ctrl-C again and again to leave it as it is")
            except Exception as error:  # noqa: BLE001  (each must be closed, whatever the others do)
                _log.error("%s", error)
                break


def _disown_all() -> None:
    for lifecycle in list(_open):
        lifecycle.disown()


if hasattr(os, "register_at_fork"):  # where processes fork; asking for the process at each reading would cost more
    os.register_at_fork(after_in_child=_disown_all)


def finalise(end: Callable[[], object], error: BaseException | None, what: str) -> None:
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
