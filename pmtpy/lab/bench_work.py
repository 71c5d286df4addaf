"""What a benchmark repeats: a function, or a command as a child process."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Protocol

from pmtpy.errors import TargetError, WorkFailedError

if TYPE_CHECKING:
    from typing_extensions import Self

_LAST_LINES = 5  # of what a command that failed has said on stderr
_MOST_KEPT = 4096
_ASYNC = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)


class Work(Protocol):
    """A piece of work that can be done again and again."""

    label: str  # its name for people
    starts_process: bool  # whether the start of a process is a part of it
    goes_on: bool  # whether something that it started went on when it had ended, and ran beside what came then

    def run(self, times: int) -> None:
        """Do it so many times, one after the other.

        Raises WorkFailedError: it failed; the message says how.
        """
        ...


class FunctionWork:
    """Calls a function without arguments; its exceptions are its own.

    Raises TargetError: calling it only makes something to be awaited; also from the first :meth:`run`, where only its
    result tells.
    """

    starts_process = False
    goes_on = False  # nothing is known of its threads

    def __init__(self, function: Callable[[], object]) -> None:
        self.label: str = getattr(function, "__qualname__", None) or repr(function)
        self._function = function
        self._seen = False
        called = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
        if any(is_async(f) for f in (function, called) for is_async in _ASYNC):
            raise self._not_done()

    def run(self, times: int) -> None:
        """Call it."""
        function = self._function
        if times and not self._seen:  # once: looking takes as long as a short function
            made = function()
            if inspect.isawaitable(made) or inspect.isasyncgen(made):
                if inspect.iscoroutine(made):
                    made.close()
                raise self._not_done()
            self._seen = True
            times -= 1
        for _ in range(times):
            function()

    def _not_done(self) -> TargetError:
        return TargetError(
            f"{self.label} is asynchronous: calling it does not do its work, but makes something to be awaited;"
            " wrap it: lambda: asyncio.run(f())"
        )


class CommandWork:
    """Runs a command: no shell in between, no input, and no output unless it is asked for.

    Parameters
    ----------
    words : sequence of str
        The program and its arguments.
    show : bool
        Let its output through, to stderr.
    """

    starts_process = True

    def __init__(self, words: Sequence[str], *, show: bool = False) -> None:
        if not words:
            msg = "a command is a list of words, such as ['./solve', '--size', '100'], and not empty"
            raise TargetError(msg)
        self.label, self.goes_on = " ".join(map(str, words)), False
        self._words, self._show = [os.fspath(w) for w in words], show

    def run(self, times: int) -> None:
        """Run it; the first run that fails ends this."""
        with tempfile.TemporaryFile() as said, _Held() as held:
            for _ in range(times):
                self._once(said, held)
            self.goes_on |= held.by_others()

    def _once(self, said: IO[bytes], held: _Held) -> None:
        out = None if self._show else subprocess.DEVNULL
        err = None if self._show else said
        said.seek(0)
        try:
            to = 2 if self._show else out
            child = subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stdout=to, stderr=err, pass_fds=held.passed)
        except OSError as error:
            why = "command not found" if isinstance(error, FileNotFoundError) else f"cannot be run: {error.strerror}"
            msg = f"{self._words[0]}: {why}"
            raise WorkFailedError(msg) from error
        try:
            status = child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise
        if status:
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            msg = f"{self.label} {how}{_tail(said)}"
            raise WorkFailedError(msg)


class _Held:
    """A pipe that commands inherit: while one of them runs, or what it started, its end has not come.

    Not found is what closes all descriptors, as daemons do. On Windows nothing is inherited, and nothing found.
    """

    def __enter__(self) -> Self:
        self._ours, theirs = os.pipe()
        self.passed = (theirs,) if os.name == "posix" else ()
        self._theirs: int | None = theirs
        return self

    def by_others(self) -> bool:
        """Whether somebody has it still. After it, it is passed to nobody any more."""
        self._let_go()
        if os.name != "posix":
            return False
        os.set_blocking(self._ours, False)
        try:
            os.read(self._ours, 1)
        except BlockingIOError:
            return True
        return False

    def _let_go(self) -> None:
        theirs, self._theirs = self._theirs, None
        if theirs is not None:
            os.close(theirs)

    def __exit__(self, *_: object) -> None:
        self._let_go()
        os.close(self._ours)


def _tail(said: IO[bytes]) -> str:
    """Return the last lines that a command said, below a message."""
    end = said.tell()
    said.seek(max(0, end - _MOST_KEPT))
    lines = said.read(end).decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
    return "".join(f"\n  {line}" for line in lines)


def work_of(given: object) -> Work:
    """Return a function, or a command as a list of words, as what is repeated.

    Raises TargetError: it is neither.
    """
    if callable(given):
        return FunctionWork(given)
    if isinstance(given, str) or not isinstance(given, Sequence):
        msg = f"what is repeated is a function without arguments, or a list of words such as ['./solve'], not {given!r}"
        raise TargetError(msg)
    return CommandWork(given)
