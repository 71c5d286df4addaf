"""How a verb is asked to end: by Ctrl-C, by SIGTERM, or by SIGHUP when its terminal is closed; all do the same."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S

if TYPE_CHECKING:
    from typing_extensions import Self

_SIGNALS = tuple(getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n))
_IMPORTING = "<frozen importlib"
_RESEND_S = 0.02  # until a signal that came while modules are imported is sent again
_LOOK_S = 0.1  # how often a wait looks whether an end was asked for that nobody heard of


class Stopped(BaseException):  # an event, which no handler of errors may swallow
    """Somebody asked the program to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Stop:
    """Turns the signals into :class:`Stopped` while inside, so that sensors and files are closed on the way out.

    What was switched off by whoever started us (``nohup``) stays off. Once an end was asked for, the same is not asked
    again: a terminal that closes sends several signals, and the files must be ended. Only another Ctrl-C is heard.

    Where the exception is lost on its way (C code that calls Python back throws it away), the next :meth:`rest` raises
    it again; where it became another error (of a class whose module was being imported), :meth:`heard` does.
    """

    def __init__(self) -> None:
        self._asked: int | None = None
        self._due = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {n: signal.signal(n, self._ask) for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename.startswith(_IMPORTING):
            # Some of that is called from C, which throws exceptions away: what was asked for there would be lost.
            main = threading.main_thread().ident
            again = threading.Timer(_RESEND_S, lambda: signal.pthread_kill(main or 0, number))
            again.daemon = True
            again.start()
            return
        if self._asked is None or number == signal.SIGINT:
            self._asked, self._due = number, True
            raise Stopped(number)

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Raise the request to end again where something inside made another error of it."""
        try:
            yield
        except Exception as error:
            reason: BaseException | None = error
            while reason is not None and not isinstance(reason, Stopped):
                reason = reason.__cause__ or reason.__context__
            if not self._due or reason is None:
                raise
            raise reason from None

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
            self._due = False

    def rest(self, seconds: float, tell: Callable[[float], None] | None = None) -> None:
        """Wait; ``tell`` is called now and then with the seconds that have passed.

        Raises Stopped: an end was asked for.
        """
        start_ns, idle = HOST_CLOCK.now_ns(), threading.Event()
        end_ns = start_ns + round(seconds * NS_PER_S)
        while True:
            if self._due and self._asked is not None:
                raise Stopped(self._asked)
            now_ns = HOST_CLOCK.now_ns()
            if tell is not None:
                tell((now_ns - start_ns) / NS_PER_S)
            if now_ns >= end_ns:
                return
            HOST_CLOCK.wait_until(min(end_ns, now_ns + round(_LOOK_S * NS_PER_S)), idle)
