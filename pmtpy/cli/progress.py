"""Time and energy so far on the terminal, while a measured command is silent for long.

The command's output is its own: it is not read here. That it is silent is seen from the bytes that its process has
written (Linux, ``/proc/PID/io``); elsewhere nothing is shown.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pmtpy.cli.terminal import StatusLine, is_terminal
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.errors import PmtError
from pmtpy.regions.region import Region

if TYPE_CHECKING:
    from typing_extensions import Self

_SILENT_S = 3.0
_TICK_S = 0.5


class Progress:
    """A line on stderr while the command is silent; nothing where stderr is no terminal."""

    def __init__(self, region: Region, *, enabled: bool, what: str = "") -> None:
        self._region, self._what = region, what
        self._enabled = enabled and is_terminal(sys.stderr) and Path("/proc/self/io").exists()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._line = StatusLine()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        self._line.wipe()

    def watch(self, pid: int) -> None:
        """Begin to watch the command."""
        if self._enabled:
            self._thread = threading.Thread(target=self._run, args=(pid,), name="pmtpy-progress", daemon=True)
            self._thread.start()

    def _run(self, pid: int) -> None:
        start_ns = spoke_ns = HOST_CLOCK.now_ns()
        written = self._written(pid)
        while not HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + round(_TICK_S * 1e9), self._end):
            now_ns, now = HOST_CLOCK.now_ns(), self._written(pid)
            if now != written:
                written, spoke_ns = now, now_ns
                self._line.wipe()
            elif now_ns - spoke_ns > _SILENT_S * 1e9:
                self._show((now_ns - start_ns) / 1e9)

    @staticmethod
    def _written(pid: int) -> str:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
                if line.startswith("wchar"):
                    return line
        return ""

    def _show(self, seconds: float) -> None:
        try:
            joules = ", ".join(f"{target} {energy:.5g} J" for target, energy in self._region.so_far().items())
        except PmtError:
            return  # the end of the run says what is wrong
        self._line.show(f"{self._what}{seconds:.0f} s: {joules}")
