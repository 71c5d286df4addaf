"""A user's command as a child: its own streams, quoting, signals and exit status.

The command runs in a process group of its own. On a terminal that group is put into the foreground, as a shell does,
so Ctrl-C and Ctrl-Z reach the command and what it started, and its keyboard input is its own. A signal sent to us is
passed on to the group. What the command leaves behind in its group ends with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from pmtpy.cli.common import say

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments at the first ``--``: what is ours, and the command."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def run_command(
    words: Sequence[str], *, divert_stdout: bool = False, started: Callable[[int], None] | None = None
) -> int:
    """Run a command to its end; return its status as a shell gives it (128 + N if signal N ended it).

    Parameters
    ----------
    words : sequence of str
        The program and its arguments as the shell passed them; no shell is put in between.
    divert_stdout : bool
        Send its stdout to our stderr, because our stdout carries a document.
    started : callable, optional
        Called with the process id once the command runs.
    """
    stdout = sys.stderr if divert_stdout else None
    try:
        if sys.version_info >= (3, 11):
            child = subprocess.Popen(words, stdout=stdout, process_group=0)
        else:
            child = subprocess.Popen(words, stdout=stdout, preexec_fn=os.setpgrp)  # noqa: PLW1509
    except FileNotFoundError:
        say(f"pmtpy: {words[0]}: command not found")
        return NOT_FOUND
    except OSError as error:
        say(f"pmtpy: {words[0]}: cannot be run: {error.strerror}")
        return NOT_EXECUTABLE
    if started is not None:
        started(child.pid)
    with _passed_on(child.pid), _foreground(child.pid) as give_terminal:
        status = _wait(child, give_terminal)
    return 128 - status if status < 0 else status


def _wait(child: subprocess.Popen[bytes], give_terminal: _Terminal) -> int:
    """Wait for the end of the command; when it is stopped (Ctrl-Z), stop with it and go on with it."""
    while True:
        _, raw = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(raw):
            break
        give_terminal.back()
        os.kill(os.getpid(), signal.SIGSTOP)
        give_terminal.to(child.pid)
        os.killpg(child.pid, signal.SIGCONT)
    child.returncode = os.waitstatus_to_exitcode(raw)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGTERM)
    return child.returncode


@contextlib.contextmanager
def _passed_on(group: int) -> Iterator[None]:
    """Pass signals that reach us on to the command's process group."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)

    before = {n: signal.signal(n, pass_on) for n in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Terminal:
    """The terminal's foreground process group, if we have a terminal and are in it."""

    def __init__(self) -> None:
        self._fd = -1
        self._own = os.getpgrp()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fd = sys.stdin.fileno()
            if os.isatty(fd) and os.tcgetpgrp(fd) == self._own:
                self._fd = fd

    def to(self, group: int) -> None:
        """Give the terminal to a process group."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._fd, group)

    def back(self) -> None:
        """Take it back."""
        self.to(self._own)


@contextlib.contextmanager
def _foreground(group: int) -> Iterator[_Terminal]:
    """Put the command's group into the foreground while inside."""
    terminal = _Terminal()
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or taking the terminal back would stop us
    terminal.to(group)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGCONT)  # it may have asked for the terminal before it was its own
    try:
        yield terminal
    finally:
        terminal.back()
        signal.signal(signal.SIGTTOU, before)
