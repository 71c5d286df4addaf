"""What the device itself told of its work, as stamps on the host's clock."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol

from pmtpy.core.clock import Clock
from pmtpy.errors import FileFormatError
from pmtpy.io.read.device_trace import read_work


class Profile(Protocol):
    """What is asked of a ``torch.profiler.profile`` that has ended."""

    def export_chrome_trace(self, path: str) -> object:
        """Write what was traced."""
        ...


Trace = str | os.PathLike[str] | Profile


_LATE_NS = 1_000_000_000  # as far as a wall clock may have been set back since


def stamped_by(trace: Trace, device: int | None, clock: Clock, since_ns: int) -> tuple[list[int], list[int]]:
    """Return when a device worked, and for which time that is known; monotonic ns.

    The wall clock of now is that of the trace: one that was set since moves the stamps by as much.

    Raises FileFormatError: it cannot be used, or is of the future, or of a time before ``since_ns``.
    """
    if isinstance(trace, (str, os.PathLike)):
        work = read_work(Path(trace), device)
    else:
        with tempfile.TemporaryDirectory(prefix="pmtpy-trace-") as folder:
            path = Path(folder) / "trace.json"
            trace.export_chrome_trace(str(path))
            work = read_work(path, device)
    now = clock.anchor()
    known_ns = [work.start_ns - now.unix_offset_ns, work.end_ns - now.unix_offset_ns]
    if not since_ns < known_ns[1] < now.monotonic_ns + _LATE_NS:
        off_s = (known_ns[1] - now.monotonic_ns) / 1e9
        what = f"ends in {off_s:.4g} s" if off_s > 0.0 else f"ended {-off_s:.4g} s ago, before the sensor was opened"
        name = trace if isinstance(trace, (str, os.PathLike)) else "the profile"
        msg = f"{name}: what it profiled {what}: another time is meant, or its clock is not this host's wall clock"
        raise FileFormatError(msg)
    return (work.edges_ns - now.unix_offset_ns).tolist(), known_ns
