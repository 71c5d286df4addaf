"""A board behind a real pseudo-terminal, for any host program. Runs in a process of its own.

The loop wakes every :data:`_TICK_S` while frames flow, writes what is due, and never falls behind silently: frames are
numbered by time, so a late wake-up sends more of them, and frames that the host leaves unread are missing in the
timestamps, as with the real board.

A pseudo-terminal differs from a USB port in two ways that are bridged here. It holds about 12 KB, a real port up to
640 KB: the server keeps the rest. And it echoes until the host has set it up, which would feed frames back as
commands; so output waits up to :data:`SETTLE_S` after an opening for the echo to be switched off.
"""

from __future__ import annotations

import json
import os
import select
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pmtpy.emulators.load import parse_load
from pmtpy.emulators.powersensor3._board import UPTIME_NS, Board
from pmtpy.emulators.powersensor3._sampler import FAST_CYCLE_BLOCKS
from pmtpy.emulators.powersensor3._spec import BoardSpec
from pmtpy.errors import TargetError

_TICK_S = 0.004
_IDLE_S = 0.05
_CLOSED_S = 0.005  # how soon an opening is noticed
SETTLE_S = 0.05
HOST_BUFFER_BYTES = 640 * 1024  # what the kernel holds for a real port that nobody reads
_FAST_FRAMES = 4096
_PARENT_CHECK_S = 0.5


class PtyServer:
    """Serves one board until told to stop.

    Parameters
    ----------
    load : str
        Text of the load.
    link : Path
        Where the port appears: a symbolic link, gone while the board is off the bus.
    epoch_ns : int or None
        ``time.monotonic_ns()`` at which the load's time is 0; None: now.
    fast : bool
        Stream as fast as the host reads, in the board's own time.
    buffer_bytes : int
        Bytes held for a host that does not read, beyond the pseudo-terminal's own.
    control : tuple of two int, or None
        Descriptors for commands and answers, one JSON object per line; the end of the first ends the server.
    """

    def __init__(
        self,
        spec: BoardSpec,
        load: str,
        link: Path,
        *,
        epoch_ns: int | None = None,
        fast: bool = False,
        buffer_bytes: int = HOST_BUFFER_BYTES,
        control: tuple[int, int] | None = None,
    ) -> None:
        now_ns = time.monotonic_ns()
        self.board = Board(
            spec,
            parse_load(load),
            epoch_ns=now_ns if epoch_ns is None else epoch_ns,
            start_ns=now_ns - UPTIME_NS,
            buffer_bytes=buffer_bytes,
            cycle_blocks=FAST_CYCLE_BLOCKS if fast else 0,
        )
        self.board.listening = False  # nobody has the port open
        self.board.advance(now_ns)
        self._link, self._fast, self._control = link, fast, control
        self._master, self._watched = -1, 0
        self._poller, self._port_poller = select.poll(), select.poll()
        if control is not None:
            self._poller.register(control[0], select.POLLIN)
        self._open, self._settle_ns = False, 0
        self._wire = memoryview(b"")
        self._hold_ns = 0
        self._skew_ns = 0
        self._commands = b""
        self._running = True
        self._parent = os.getppid()
        self._next_parent_check_ns = 0
        self._actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "inject": self._inject,
            "log": lambda _: self._log(),
            "unplug": lambda _: self._unplug(),
            "plug_in": lambda _: self._plug_in(),
            "quit": lambda _: self._quit(),
        }

    def run(self, ready: Callable[[], object] = lambda: None) -> None:
        """Call ``ready`` when the port is there, then serve.

        Returns when the control line ends, ``quit`` is sent, :meth:`stop` is called or the controlling program dies.
        """
        try:
            self._attach()
            self._answer({"path": str(self._link)})
            ready()
            while self._running:
                self._turn()
        finally:
            self._detach()

    def stop(self) -> None:
        """End the serving within a tick; a handler of signals may call it, also before :meth:`run`."""
        self._running = False

    def inject(self, fault: str, options: dict[str, float]) -> None:
        """Switch a fault on or off; see :meth:`Board.inject`. Here, ``hold`` delays what the board has sent."""
        if fault == "hold":
            self._hold_ns = self._now_ns() + round(options.get("seconds", 0.0) * 1e9)
            return
        try:
            self.board.inject(fault, self._now_ns(), **options)
        except TypeError as error:
            msg = f"fault {fault} has options rate, burst, count, seconds, and not {', '.join(options)}"
            raise TargetError(msg) from error

    # The pseudo-terminal.

    def _attach(self) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(os.ttyname(slave))
        os.close(slave)
        self._port_poller = select.poll()
        self._port_poller.register(self._master, 0)

    def _detach(self) -> None:
        if self._master >= 0:
            self._watch(0)
            self._link.unlink(missing_ok=True)
            os.close(self._master)
            self._master, self._wire = -1, memoryview(b"")
        self._open = self.board.listening = False

    def _follow_port(self, now_ns: int, events: int) -> None:
        """Notice that the host opened or closed the port, and that the board left the bus or came back."""
        if self.board.attached and self._master < 0:
            self._attach()
        if not self.board.attached:
            self._detach()
            return
        is_open = not events & select.POLLHUP if self._open else not self._port_poller.poll(0)
        if is_open and not self._open:
            self._settle_ns = now_ns + round(SETTLE_S * 1e9)
        if self._open and not is_open:
            self._discard()
        self._open = self.board.listening = is_open
        if self._settle_ns and (now_ns >= self._settle_ns or not self._echoes()):
            self._settle_ns = 0

    def _echoes(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def _discard(self) -> None:
        """Empty the line after the host closed it, as a real port does."""
        self._wire = memoryview(b"")
        self.board.take()
        with suppress(OSError):
            slave = os.open(self._link, os.O_RDWR | os.O_NOCTTY)
            termios.tcflush(slave, termios.TCIFLUSH)
            os.close(slave)

    # The loop.

    def _now_ns(self) -> int:
        return time.monotonic_ns() + self._skew_ns

    def _turn(self) -> None:
        events = self._wait()
        now_ns = self._now_ns()
        self._follow_port(now_ns, events)
        if self._master >= 0 and (events or not self._open):
            with suppress(OSError):  # nothing there, or the host just closed the port
                self.board.feed(os.read(self._master, 4096), now_ns)
        if self._fast and self.board.firmware.streaming:
            # The board's time moves with what the host takes, and stands still while it takes nothing.
            target_ns = self.board.now_ns if self._wire else self.board.frames_end_ns(_FAST_FRAMES)
            self._skew_ns += target_ns - now_ns
            now_ns = target_ns
        self.board.advance(now_ns)
        self._deliver(now_ns)
        if self._control is not None and now_ns >= self._next_parent_check_ns:
            self._next_parent_check_ns = now_ns + round(_PARENT_CHECK_S * 1e9)
            self._running = self._running and os.getppid() == self._parent

    def _wait(self) -> int:
        """Wait for the host, for the controller or for the next tick; return what happened on the port."""
        writes = self._hold_ns == 0 and (bool(self._wire) or (self._fast and self.board.firmware.streaming))
        if self._master >= 0:
            self._watch((select.POLLIN | (select.POLLOUT if writes else 0)) if self._open else 0)
        wait_s = _CLOSED_S if not self._open else _TICK_S if self.board.busy or self._wire else _IDLE_S
        events = dict(self._poller.poll(wait_s * 1000))
        if self._control is not None and self._control[0] in events:
            self._obey(self._control[0])
        return events.get(self._master, 0)

    def _watch(self, mask: int) -> None:
        """Have the poller look for these events on the port; 0: do not look."""
        if mask == self._watched:
            return
        if mask:
            self._poller.register(self._master, mask)
        else:
            self._poller.unregister(self._master)
        self._watched = mask

    def _deliver(self, now_ns: int) -> None:
        if self._hold_ns:
            if now_ns < self._hold_ns:
                return
            self._hold_ns = 0
        if self._settle_ns or self._master < 0:
            return
        while True:
            if not self._wire:
                self._wire = memoryview(b"".join(self.board.take()))
                if not self._wire:
                    return
            try:
                self._wire = self._wire[os.write(self._master, self._wire) :]
            except OSError:  # full, or just closed
                return

    # Control.

    def _answer(self, answer: dict[str, Any]) -> None:
        if self._control is None:
            return
        try:
            os.write(self._control[1], json.dumps(answer).encode() + b"\n")
        except BrokenPipeError:  # who asked has ended
            self.stop()

    def _obey(self, line: int) -> None:
        data = os.read(line, 65536)
        if not data:
            self._running = False
        *lines, self._commands = (self._commands + data).split(b"\n")
        for text in lines:
            self._answer(self._do(text))

    def _do(self, text: bytes) -> dict[str, Any]:
        try:
            command = json.loads(text)
            return self._actions[command.pop("do")](command)
        except (TargetError, KeyError, TypeError, ValueError) as error:
            return {"error": f"{text.decode(errors='replace')}: {error}"}

    def _log(self) -> dict[str, Any]:
        if not self._fast:
            self.board.advance(self._now_ns())  # so that the log is complete up to the present
        return self.board.history.as_json()

    def _quit(self) -> dict[str, Any]:
        self.stop()
        return {}

    def _unplug(self) -> dict[str, Any]:
        self.board.unplug()
        self._detach()
        return {}

    def _plug_in(self) -> dict[str, Any]:
        now_ns = self._now_ns()
        self.board.plug_in(now_ns)
        self.board.advance(now_ns)
        self._follow_port(now_ns, 0)
        return {"path": str(self._link)}

    def _inject(self, command: dict[str, Any]) -> dict[str, Any]:
        self.inject(str(command.pop("fault")), command)
        return {}
