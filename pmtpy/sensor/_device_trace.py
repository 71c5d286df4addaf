"""What the device itself told of its work, as stamps on the host's clock."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol

from pmtpy.core.clock import Clock
from pmtpy.io.read.device_trace import read_work


class Profile(Protocol):
    """What is asked of a ``torch.profiler.profile`` that has ended."""

    def export_chrome_trace(self, path: str) -> object:
        """Write what was traced."""
        ...


Trace = str | os.PathLike[str] | Profile


def stamped_by(trace: Trace, device: int | None, clock: Clock) -> tuple[list[int], list[int]]:
    """Return when a device worked, and for which time that is known; monotonic ns.

    The wall clock of now is that of the trace: one that was set since moves the stamps by as much.
    """
    if isinstance(trace, (str, os.PathLike)):
        work = read_work(Path(trace), device)
    else:
        with tempfile.TemporaryDirectory(prefix="pmtpy-trace-") as folder:
            path = Path(folder) / "trace.json"
            trace.export_chrome_trace(str(path))
            work = read_work(path, device)
    offset_ns = clock.anchor().unix_offset_ns
    return (work.edges_ns - offset_ns).tolist(), [work.start_ns - offset_ns, work.end_ns - offset_ns]
