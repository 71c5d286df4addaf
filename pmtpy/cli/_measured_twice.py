"""Which devices another command of ours measures at the same time: each has the energy that both use.

Who measures a device listens at a socket in the abstract namespace of Linux (unix(7)), named by the machine and the
device, which leaves no file behind and closes however a process ends. Of two, the later finds the socket of the earlier
among those that the kernel shows, and calls it. Where there are no such sockets, as on other systems, or none that are
shared, as between containers, nobody knows of another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pmtpy.io.origin import Machine
from pmtpy.sensor.sensor import Sensor

_FAMILY = "pmtpy-measures"  # what names of the sockets begin with
_SOCKETS = Path("/proc/net/unix")  # those that the kernel knows (proc_pid_net(5))
_MAX_CALLS = 64  # that wait to be accepted; who is told of one knows enough

TWICE = "measured by another pmtpy command at the same time: what was used then is in the energy of both"


class MeasuredTwice:
    """The devices that are measured, and whether others measure them as well."""

    def __init__(self, devices: Sequence[tuple[str, str]], listening: contextlib.ExitStack, sockets: Path) -> None:
        """``devices``: the target of each, and how the names of all sockets end that are for it."""
        self._called: dict[socket.socket, str] = {}
        self._twice: set[str] = set()
        us = f"\0{_FAMILY}/{os.getuid()}/{os.urandom(8).hex()}"
        for number, (target, device) in enumerate(devices):
            listener = listening.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(f"{us}.{number}{device}")
            listener.setblocking(False)
            listener.listen(_MAX_CALLS)
            self._called[listener] = target
        # Of two that begin at once one finds the other, since both listen before they look.
        others = [name for name in _shown(sockets) if not name.startswith(us)]
        for target, device in devices:
            there = [_called(name) for name in others if name.endswith(device)]
            if any(there):
                self._twice.add(target)

    def targets(self) -> set[str]:
        """Return those that another measured as well, so far."""
        for listener, target in self._called.items():
            with contextlib.suppress(OSError):  # nobody calls
                listener.accept()[0].close()
                self._twice.add(target)
        return self._twice


@contextlib.contextmanager
def measured_twice(sensors: Sequence[Sensor], machine: Machine, sockets: Path = _SOCKETS) -> Iterator[MeasuredTwice]:
    """Let others know, while inside, which devices are measured here, and come to know of theirs.

    Each process has a virtual sensor of its own, which is not one of them.
    """
    real = [s for s in sensors if not s.identity.virtual] if sys.platform == "linux" else []
    with contextlib.ExitStack() as listening:
        yield MeasuredTwice([(s.target, _device(s, machine)) for s in real], listening, sockets)


def _device(sensor: Sensor, machine: Machine) -> str:
    """Return how names of sockets end that are for a device."""
    is_it = sensor.identity
    where = machine.node, os.environ.get("PMT_SYSFS_ROOT", "")  # another tree is another machine's
    what = "/".join((*where, is_it.backend, is_it.model, is_it.serial))
    return f"/{zlib.crc32(what.encode(errors='replace')):08x}"


def _shown(sockets: Path) -> list[str]:
    """Return the names of the sockets of all that measure, of whomever, as far as the kernel shows them."""
    try:
        words = sockets.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
    # It shows the name of an abstract socket with @ in the place of its zeros.
    return [f"\0{word[1:]}" for word in words if word.startswith(f"@{_FAMILY}/")]


def _called(name: str) -> bool:
    """Let one know that we measure its device, too; whether it is still there."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
        there.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # more have called than it takes: it knows
            there.connect(name)
        return True
    return False
