"""How a verb is asked to end: by Ctrl-C, by SIGTERM, or by SIGHUP when its terminal is closed; all do the same."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S

if TYPE_CHECKING:
    from typing_extensions import Self

_SIGNALS = tuple(getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n))
_IMPORTING = "<frozen importlib"
_REMIND_AFTER_S = 0.05  # until a request that nobody has heard is made again
_TELL_S = 0.1  # how often somebody who waits is told how long


class Stopped(BaseException):  # an event, which no handler of errors may swallow
    """Somebody asked the program to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Stop:
    """Turns the signals into :class:`Stopped` while inside, so that sensors and files are closed on the way out.

    What was switched off by whoever started us (``nohup``) stays off. Once an end was asked for, the same is not asked
    again: a terminal that closes sends several signals, and the files must be ended. Only another Ctrl-C is heard.

    An exception can be lost on its way: C code that calls Python back throws it away. So an alarm raises it again
    until it is :meth:`taken` or leaves the block, but for the time in which what is inside handles it. Where it became
    another error (of a class whose module was being imported), :meth:`heard` raises it.
    """

    def __init__(self) -> None:
        self._asked: int | None = None
        self._due, self._later = False, False
        self._before: dict[int, Any] = {}
        self._alarm_before: Any = signal.SIG_DFL

    def __enter__(self) -> Self:
        # The alarm is first here and last when leaving: who asks meanwhile sets it, and it kills where nobody waits for
        # it.
        self._alarm_before = signal.signal(signal.SIGALRM, self._remind)
        self._before = {n: signal.signal(n, self._ask) for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN}
        return self

    def __exit__(self, *_: object) -> None:
        self._due = False
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._settle()
        signal.signal(signal.SIGALRM, self._alarm_before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked is None or number == signal.SIGINT:
            self._later = self._later and self._asked is None  # who asks again does not wait
            self._asked, self._due = number, True
            signal.setitimer(signal.ITIMER_REAL, _REMIND_AFTER_S, _REMIND_AFTER_S)
            self._raise(frame)

    def _remind(self, _number: int, frame: FrameType | None) -> None:
        if self._asked is None or not self._due:
            return
        if signal.getsignal(self._asked) != self._ask:
            self._settle()  # somebody else listens by now, as a command that is to be ended: it hears it, once
            signal.raise_signal(self._asked)
        elif _cause(sys.exc_info()[1]) is None:
            self._raise(frame)

    def _raise(self, frame: FrameType | None) -> None:
        # Some of an import is called from C, and who enters is not inside yet: the alarm goes on behind them.
        where = frame.f_code.co_filename if frame is not None else ""
        if self._asked is not None and not self._later and not where.startswith((_IMPORTING, __file__)):
            raise Stopped(self._asked)

    def _settle(self) -> None:
        self._due = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Raise the request to end again where something inside made another error of it."""
        try:
            yield
        except Exception as error:
            stopped = _cause(error)
            if not self._due or stopped is None:
                raise
            raise stopped from None

    @property
    def asked(self) -> bool:
        """Whether an end was asked for."""
        return self._asked is not None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take the request to end as the end of what is inside, and go on behind it."""
        try:
            yield
        except Stopped:
            self._settle()

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """Let a request to end wait for the end of what is inside, which is short or looks at :attr:`asked`.

        For what must not be lost once it is there. Another Ctrl-C does not wait.
        """
        self._later = True
        try:
            yield
        finally:
            self._later = False
        if self._due:
            self._raise(None)

    def rest(self, seconds: float, tell: Callable[[float], None] | None = None) -> None:
        """Wait; ``tell`` is called now and then with the seconds that have passed.

        Raises Stopped: an end was asked for.
        """
        start_ns, idle = HOST_CLOCK.now_ns(), threading.Event()
        end_ns = start_ns + round(seconds * NS_PER_S)
        while True:
            now_ns = HOST_CLOCK.now_ns()
            if tell is not None:
                tell((now_ns - start_ns) / NS_PER_S)
            if now_ns >= end_ns:
                return
            HOST_CLOCK.wait_until(min(end_ns, now_ns + round(_TELL_S * NS_PER_S)), idle)


def _cause(error: BaseException | None) -> Stopped | None:
    """Return the request to end that ``error`` is, or came of."""
    while error is not None and not isinstance(error, Stopped):
        error = error.__cause__ or error.__context__
    return error
