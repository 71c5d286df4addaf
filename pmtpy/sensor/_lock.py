"""The lock of one source. Who waits for a reading of another thread that never returns is told so, and goes on."""

from __future__ import annotations

import logging
from _thread import RLock
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pmtpy.errors import ReadError, SourceLostError

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger("pmtpy")
ANSWER_S = 20.0  # for which a reading is waited for: the slowest instruments are given up after ten
_TELL_S = 10.0  # after which whoever waits is told what for
_WAIT_AFTER_VAIN_S = 0.5  # for which one is that was waited for in vain before


class PatientLock(RLock):  # type: ignore[misc]  # only typeshed calls it final: it is made to be a base
    """Held while a source is read and its curve is asked; may be taken again by the thread that has it.

    But not in the midst of a step, where only a signal's handler can ask: half a step is no curve, and a source that is
    read within its own reading brings rows twice or not at all. The with-statement raises ReadError there.

    A driver may hang, or the bus behind it, and whoever reads it has the lock for ever then. So the with-statement
    raises SourceLostError instead of waiting for longer than the slowest instrument needs.

    A signal's handler may raise anywhere in the main thread (Ctrl-C does), and a lock that is kept then would be
    kept for ever, from the poller as well. So ``__exit__`` and ``release`` are those of the interpreter, before whose
    end no handler runs, and what is interrupted while it takes the lock gives it back.

    Parameters
    ----------
    target : str
        The name of the sensor, for the message.

    Attributes
    ----------
    in_step : bool
        Whether the thread that has it is taking rows.
    """

    __slots__ = ("_in_vain", "_target", "in_step")

    def __new__(cls, target: str) -> Self:  # noqa: ARG004  (of ``__init__``)
        """Make the lock beneath, which takes no arguments."""
        return super().__new__(cls)

    def __init__(self, target: str) -> None:
        self._target = target
        self._in_vain = False  # whether the last wait was, since when nobody had it
        self.in_step = False

    def acquire(self, blocking: bool = True, timeout: float = -1.0) -> bool:  # noqa: FBT001, FBT002  (as a lock does)
        """Take the lock, or say that it was not to be had: as a lock of :mod:`threading` does.

        With a timeout it is not waited for that long again where the last wait was in vain.
        """
        if timeout > 0 and self._in_vain:
            timeout = min(timeout, _WAIT_AFTER_VAIN_S)
        try:
            taken = super().acquire(blocking, min(timeout, _TELL_S))
            if not taken and timeout > _TELL_S:
                _log.warning(
                    "%s does not answer; it is waited for %g s longer at most", self._target, timeout - _TELL_S
                )
                taken = super().acquire(blocking, timeout - _TELL_S)
        except BaseException:
            self._give_back()
            raise
        if taken or timeout > 0:
            self._in_vain = not taken
        if taken and self.in_step:
            self.release()
            return False
        return taken

    def _give_back(self) -> None:
        """Let go of what was taken when an exception came, if it was: who has it already cannot fail to take it."""
        with suppress(RuntimeError):  # it is not this thread's
            self.release()

    @contextmanager
    def even_in_vain(self) -> Iterator[SourceLostError | None]:
        """Hold it for what must be done in any case; give why it is not held, where a reading does not return."""
        hangs = None
        try:
            self.__enter__()
        except SourceLostError as error:
            hangs = error
        try:
            yield hangs
        finally:
            if hangs is None:
                self.release()

    def __enter__(self) -> bool:  # type: ignore[override]  # a with-statement gives no arguments
        try:
            taken = super().acquire(False)
        except BaseException:
            self._give_back()
            raise
        if taken:
            self._in_vain = False
            if self.in_step:
                self.release()
                msg = f"{self._target} is just being read by this thread, which a signal interrupted: ask again later"
                raise ReadError(msg)
        elif not self.acquire(timeout=ANSWER_S):
            msg = (
                f"{self._target} has not answered for {ANSWER_S:g} s and is not waited for any longer: its driver, or "
                "the bus behind it, hangs (the log of the kernel may say why: dmesg); it is measured again once it "
                "answers"
            )
            raise SourceLostError(msg)
        return True
