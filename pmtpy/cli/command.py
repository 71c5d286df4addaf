"""A user's command as a child: its own streams, quoting, signals and exit status.

The command runs in a process group of its own. On a terminal that group is put into the foreground, as a shell does,
so Ctrl-C and Ctrl-Z reach the command and what it started, and its keyboard input is its own. A signal sent to us is
passed on to the group, and what is left of the group when the command has ended on it ends, too. Otherwise processes
that a command leaves behind go on, as without us: a compressor behind ``> >(gzip)`` has not written its end yet. Only
in the middle of a pipeline on a terminal does the command stay in our group, because the terminal belongs to the whole
pipeline (``| less``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from pmtpy.cli.common import say
from pmtpy.io.origin import launch_of

if TYPE_CHECKING:
    from typing_extensions import Self

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_NAMED = 5  # processes that a message names; more are counted
_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (*_TO_END, signal.SIGUSR1, signal.SIGUSR2)
_HEARD_S = 0.5  # within which a process has been sent a signal that was sent together with ours
_DIES_S = 10.0  # within which a process that was sent one ends by it, on a busy machine


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int  # as a shell gives it: 128 + N if signal N ended it
    group: int | None = None  # the process group that was its own
    ran: bool = True  # False: there is no such program, or it cannot be run

    def tell_what_goes_on(self) -> None:
        """Say which processes of the command have outlived it: what they use from then on is not measured.

        For after the measurement, since it takes milliseconds. What went into a session of its own is not found.
        """
        left = _running(self.group) if self.group is not None else []
        if left:
            names = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
            say(
                f"pmtpy: the command has ended, but not all that it started: {names} went on; what that used from then"
                " on is not in the numbers (let the command wait for it)"
            )


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments at the first ``--``: what is ours, and the command."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def run_command(
    words: Sequence[str],
    *,
    divert_stdout: bool = False,
    started: Callable[[int], None] | None = None,
    in_our_group: bool = False,
    asked: Callable[[], None] | None = None,
) -> Ended:
    """Run a command to its end.

    Parameters
    ----------
    words : sequence of str
        The program and its arguments as the shell passed them; no shell is put in between.
    divert_stdout : bool
        Send its stdout to our stderr, because our stdout carries a document.
    started : callable, optional
        Called with the process id once the command runs.
    in_our_group : bool
        Leave it in our process group: whoever started us ends the whole group, even if we are killed.
    asked : callable, optional
        Called when it is first asked to end by a signal, which it may have heard by then, or not follow.
    """
    stdout = sys.stderr if divert_stdout else None
    apart = not in_our_group and (not _isatty(sys.stdin) or _isatty(sys.stdout))
    # What we were given is the command's: a launcher of MPI, or make, speaks to it through a descriptor of its own.
    # What we opened ourselves it does not inherit (PEP 446).
    # Before the command exists, or a signal then would end us alone.
    with _PassedOn(asked, _witness_for(apart=apart), to_group=apart) as passed_on:
        try:
            if not apart:
                child = subprocess.Popen(words, stdout=stdout, close_fds=False)
            elif sys.version_info >= (3, 11):
                child = subprocess.Popen(words, stdout=stdout, process_group=0, close_fds=False)
            else:
                child = subprocess.Popen(words, stdout=stdout, preexec_fn=os.setpgrp, close_fds=False)  # noqa: PLW1509
        except FileNotFoundError:
            one = " " in words[0] and len(words) == 1
            say(f"pmtpy: {words[0]}: command not found{'; leave out the quotation marks around it' if one else ''}")
            return Ended(NOT_FOUND, ran=False)
        except OSError as error:
            say(f"pmtpy: {words[0]}: cannot be run: {error.strerror}")
            return Ended(NOT_EXECUTABLE, ran=False)
        with _foreground(child.pid, apart=apart) as terminal:
            passed_on.to(child.pid)
            if started is not None:
                started(child.pid)
            status = _wait(child, terminal, apart=apart)
            if apart and passed_on.any:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGTERM)
    return Ended(128 - status if status < 0 else status, child.pid if apart else None)


def _isatty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it was closed
        return False


def _wait(child: subprocess.Popen[bytes], terminal: _Terminal, *, apart: bool) -> int:
    """Wait for the end of the command; where its terminal stops it (Ctrl-Z), stop with it and go on with it.

    Who stops it otherwise lets it go on, too: a batch system that suspends a job, a tool that limits its share of the
    processor. Nobody would let us go on.
    """
    while True:
        _, raw = os.waitpid(child.pid, os.WUNTRACED if apart else 0)
        if not os.WIFSTOPPED(raw):
            break
        if not terminal.ours and os.WSTOPSIG(raw) not in {signal.SIGTTIN, signal.SIGTTOU}:
            continue
        terminal.back()
        os.kill(os.getpid(), signal.SIGSTOP)
        terminal.to(child.pid)
        os.killpg(child.pid, signal.SIGCONT)
    child.returncode = os.waitstatus_to_exitcode(raw)
    return child.returncode


def _running(group: int) -> list[str]:
    """Return the processes of a group that have not ended, as ``name (pid N)`` (Linux; elsewhere none is known)."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return []
    found: list[tuple[int, str]] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # "PID (NAME) STATE PPID GROUP ...", where NAME may hold anything.
            pid, _, rest = stat.read_text("utf-8", "replace").partition(" (")
            name, _, fields = rest.rpartition(") ")
            state, _, its_group = fields.split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append((int(pid), name))
    return [f"{name} (pid {pid})" for pid, name in sorted(found)]


class _PassedOn:
    """Passes signals that reach us on to the command's process group; those that come too early wait for it."""

    def __init__(self, asked: Callable[[], None] | None, witness: _Witness | None, *, to_group: bool) -> None:
        self._kill = os.killpg if to_group else os.kill
        self._witness = witness  # of what the command has heard by itself, and must not hear twice
        self._asked = asked  # called once, by the first that asks to end
        self.any = False  # whether there was one that the command did not get by itself
        self._group: int | None = None
        self._came: list[int] = []  # signals that nobody has seen to
        self._busy = True  # while the command does not run yet, or one of them is seen to
        self._before: dict[int, Any] = {}

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number not in self._came:  # as the kernel has it: of many that wait one comes
            self._came.append(number)
        self._see_to_all()

    def _see_to_all(self) -> None:
        # A signal comes at any line: one by one, since for each the witness must be the one that listened then.
        while self._came and not self._busy:
            self._busy = True
            while self._came:
                number = self._came.pop(0)
                # Whoever tells us without a pause must not keep us from the command's end.
                witness = None if self._is_over() else self._witness
                self._see_to(number, heard=witness is not None and witness.heard(number))
            self._busy = False

    def _is_over(self) -> bool:
        """Whether the command has ended, which hears nothing any more."""
        if self._group is None:
            return False
        try:
            return os.waitid(os.P_PID, self._group, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # and was waited for
            return True

    def _see_to(self, number: int, *, heard: bool) -> None:
        if not heard and self._group is not None:
            self.any = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._kill(self._group, number)
        if number in _TO_END and self._asked is not None:
            asked, self._asked = self._asked, None
            asked()

    def to(self, group: int) -> None:
        """Name the group; it gets what came before."""
        self._group = group
        early, self._came = self._came, []
        for number in early:
            self._see_to(number, heard=False)
        if self._witness is not None:
            self._witness.begin()
        self._busy = False
        self._see_to_all()

    def __enter__(self) -> Self:
        # What is switched off (nohup) stays so, and the command inherits it.
        self._before = {
            n: signal.signal(n, self._on_signal) for n in _PASSED_ON if signal.getsignal(n) is not signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._witness is not None:
            self._witness.close()


def _witness_for(*, apart: bool) -> _Witness | None:
    """Return who hears what the command hears besides us.

    In our own group that is what the group is told. Apart from us it is nothing, but where the whole job is told: there
    it may be passed on late, since whoever does that waits before he kills (``KillWait`` of Slurm, 30 s).
    """
    return _Witness(apart=apart) if not apart or launch_of(os.environ).tells_all else None


class _Witness:
    """A process that does nothing and hears what the command hears by itself: it is ended by a signal that ends.

    A terminal, Slurm, the daemons of MPICH and Open MPI, and torchrun tell a signal to each process of a group or a
    step, while ``kill``, and older versions of torchrun, tell it to us alone; the signal itself does not say which.
    """

    def __init__(self, *, apart: bool) -> None:
        self._apart = apart  # from our group, and from that of the command, which we tell what we pass on
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Let it listen."""
        self._process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes] | None:
        with contextlib.suppress(OSError):  # there is no such program, or no room for it: then nobody is known to hear
            # It waits for the end of its input, which comes however we end.
            return subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                start_new_session=self._apart,
            )  # fmt: skip
        return None

    def heard(self, number: int) -> bool:
        """Whether it has heard a signal that has just reached us."""
        process, status = self._process, None
        if process is None:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(_HEARD_S)
        with contextlib.suppress(subprocess.TimeoutExpired):  # somebody stopped it
            if status is None and _is_told(process.pid):
                status = process.wait(_DIES_S)
        # One that has heard nothing so far may hear it yet: by that it must not seem to have heard the next one.
        self._dismiss(process)
        self._process = self._begun()
        return status == -number

    @staticmethod
    def _dismiss(process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()
        process.kill()  # it may have been stopped
        process.wait()

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._dismiss(self._process)


def _is_told(pid: int) -> bool:
    """Whether a signal waits for a process, which has not run since (proc_pid_status(5))."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
            name, _, waits = line.partition(":")
            if name in {"SigPnd", "ShdPnd"} and int(waits, 16):
                return True
    return False


class _Terminal:
    """The terminal's foreground process group, if we have a terminal and are in it."""

    def __init__(self) -> None:
        self._fd = -1
        self._own = os.getpgrp()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fd = sys.stdin.fileno()
            if os.isatty(fd) and os.tcgetpgrp(fd) == self._own:
                self._fd = fd

    @property
    def ours(self) -> bool:
        """Whether there is one that was ours to give."""
        return self._fd >= 0

    def to(self, group: int) -> None:
        """Give the terminal to a process group."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._fd, group)

    def back(self) -> None:
        """Take it back."""
        self.to(self._own)


@contextlib.contextmanager
def _foreground(group: int, *, apart: bool) -> Iterator[_Terminal]:
    """Put the command's group into the foreground while inside."""
    terminal = _Terminal()
    if not apart:
        yield terminal
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or taking the terminal back would stop us
    terminal.to(group)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGCONT)  # it may have asked for the terminal before it was its own
    try:
        yield terminal
    finally:
        terminal.back()
        signal.signal(signal.SIGTTOU, before)
