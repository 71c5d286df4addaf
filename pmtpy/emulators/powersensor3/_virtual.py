"""A virtual board for programs in Python: starts the board's process, tells it what to do, asks it for the truth."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pmtpy.core.closing import Closing
from pmtpy.emulators.load import parse_load
from pmtpy.emulators.powersensor3._control_line import ControlLine
from pmtpy.emulators.powersensor3._log import History, Mark, Truth
from pmtpy.emulators.powersensor3._pty_server import HOST_BUFFER_BYTES
from pmtpy.emulators.powersensor3._sampler import FAST_CYCLE_BLOCKS
from pmtpy.emulators.powersensor3._spec import BoardSpec
from pmtpy.emulators.powersensor3.serve import arguments_of
from pmtpy.emulators.world import DEFAULT_LOAD
from pmtpy.errors import BackendUnavailableError, SourceLostError, TargetError

_QUIT_TIMEOUT_S = 5


class VirtualBoard(Closing):
    """A board behind a real pseudo-terminal, in a process of its own. A context manager.

    The process ends with :meth:`close`, and with this process however that ends.

    Parameters
    ----------
    load : str
        Text of the load.
    spec : BoardSpec or None
        The board; None: the default one.
    epoch_ns : int or None
        ``time.monotonic_ns()`` at which the load's time is 0; None: now.
    fast : bool
        Stream as fast as the host reads, in the board's own time; instants then have no meaning for the truth, so
        ask for :meth:`truth` without them.
    buffer_bytes : int
        Bytes held for a host that does not read, beyond the pseudo-terminal's own 12 KB.

    Attributes
    ----------
    path : str
        The port; the same over unplugging and resets, but not there while the board is off the bus.
    pid : int
        The board's process.

    Raises TargetError: the load cannot be understood.
    Raises BackendUnavailableError: the process did not start.
    """

    def __init__(
        self,
        load: str = DEFAULT_LOAD,
        spec: BoardSpec | None = None,
        *,
        epoch_ns: int | None = None,
        fast: bool = False,
        buffer_bytes: int = HOST_BUFFER_BYTES,
    ) -> None:
        self.spec = BoardSpec() if spec is None else spec
        self.epoch_ns = time.monotonic_ns() if epoch_ns is None else epoch_ns
        self._load, self._fast = parse_load(load), fast
        self._lock = threading.Lock()
        self._owner = os.getpid()
        command = [sys.executable, "-m", "pmtpy.emulators.powersensor3", "--control", f"--load={load}"]
        command += [f"--epoch-ns={self.epoch_ns}", f"--buffer={buffer_bytes}", *arguments_of(self.spec)]
        # This very copy of the package, also where it was found by the working directory.
        paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
        near, far = socket.socketpair()
        self._closed, self._line = False, ControlLine(near)
        try:
            self._process = subprocess.Popen(
                command + ["--fast"] * fast,
                stdin=far.fileno(),
                stdout=far.fileno(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # a Ctrl-C on the terminal is for the host program, which still has to say stop
            )
        except BaseException:
            self._line.close()
            raise
        finally:
            far.close()
        self.pid = self._process.pid
        try:
            self.path = str(self._answer()["path"])
        except SourceLostError as error:
            self.close()
            raise BackendUnavailableError("powersensor3", f"the virtual board did not start: {error}") from error
        except BaseException:  # Ctrl-C while it starts: nobody else could end it
            self.close()
            raise

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._line.receive()
        except OSError as error:
            msg = f"its process {self.pid} has ended; its messages are on stderr"
            raise SourceLostError(msg) from error
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise TargetError(answer["error"])
        return answer

    def _ask(self, do: str, **options: float | str) -> dict[str, Any]:
        with self._lock:
            try:
                self._line.send(json.dumps({"do": do, **options}).encode())
            except OSError as error:
                msg = f"the virtual board's process {self.pid} has ended"
                raise SourceLostError(msg) from error
            return self._answer()

    def history(self) -> History:
        """Return everything the board has done up to now."""
        history = History(self.spec, self._load, self.epoch_ns, FAST_CYCLE_BLOCKS if self._fast else 0)
        history.from_json(self._ask("log"))
        return history

    def truth(self, a_ns: int | None = None, b_ns: int | None = None) -> Truth:
        """Energies between two instants of ``time.monotonic_ns()``; without them, over everything ever sent."""
        history = self.history()
        runs = [(history.sampler(i), boot.runs) for i, boot in enumerate(history.boots) if boot.runs]
        starts = [sampler.end_ns(r[0][0] - 1) for sampler, r in runs]
        ends = [sampler.end_ns(r[-1][1] - 1) for sampler, r in runs]
        start = min(starts, default=self.epoch_ns) if a_ns is None else a_ns
        return history.truth(start, max(ends, default=start) if b_ns is None else b_ns)

    @property
    def marks(self) -> list[Mark]:
        """The frames that carried marks, in the order of sending."""
        return self.history().marks

    def inject(self, fault: str, **options: float) -> None:
        """Switch a fault on or off: see :meth:`Board.inject`, and ``hold`` (``seconds``): deliver late, lose nothing.

        Raises TargetError: no such fault, or no such option of it.
        """
        self._ask("inject", fault=fault, **options)

    def unplug(self) -> None:
        """Take the board off the bus: the host's descriptors hang up, the path is gone."""
        self._ask("unplug")

    def plug_in(self) -> None:
        """Plug it in again: it boots; the path is back when this returns."""
        self._ask("plug_in")

    def close(self) -> None:
        """End the board's process. May be called twice; in a forked child it does nothing, the parent still uses it."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed, process = True, self._process
        self._line.close()
        try:
            process.wait(_QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
