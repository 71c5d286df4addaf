"""What else of a job runs on this node: its processes tell each other by names that vanish with them.

A socket in the abstract namespace of Linux (unix(7)) leaves no file behind, however its process ends. Where there is
none, as on other systems, or none that is shared, as between containers, nobody is known to run; nor in a job without a
name, which could be any.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from pmtpy.io.origin import Launch, Machine

_NAMES = Path("/proc/net/unix")


def _stem(launch: Launch, machine: Machine) -> str:
    """Return what the names of one job on one node begin with; they may have 107 bytes in all."""
    digest = zlib.crc32(f"{launch.scheduler}\0{launch.job}\0{machine.node}".encode())
    return f"pmtpy-run/{os.getuid() if hasattr(os, 'getuid') else 0}/{digest:08x}/"


@contextlib.contextmanager
def known_to_run(launch: Launch, machine: Machine) -> Iterator[None]:
    """Let the others of the job on this node know, while inside, that this process runs its command."""
    with contextlib.ExitStack() as stack:
        if launch.job and sys.platform == "linux":
            here = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            with contextlib.suppress(OSError):
                here.bind(f"\0{_stem(launch, machine)}{os.getpid()}")
        yield


def others_run(launch: Launch, machine: Machine) -> bool:
    """Whether another process of the job on this node is known to run its command."""
    with contextlib.suppress(OSError):
        return bool(launch.job) and f"@{_stem(launch, machine)}" in _NAMES.read_text(encoding="utf-8", errors="replace")
    return False
