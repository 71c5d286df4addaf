"""A program that closes all descriptors, as a daemon does, and has some of its own with their numbers afterwards."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

_SENT = bytes(range(64))


def descriptors() -> set[int]:
    """Return the numbers of what is open."""
    numbers = {int(fd.name) for fd in Path("/proc/self/fd").iterdir()}
    return {fd for fd in numbers if Path(f"/proc/self/fd/{fd}").exists() or _open(fd)}


def _open(fd: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(os.fstat(fd))
    return False


@contextlib.contextmanager
def numbers_of_a_socket(fds: Collection[int]) -> Iterator[None]:
    """Close ``fds`` and give their numbers to a connection; at the end nothing was taken, sent or closed of it."""
    near, far = socket.socketpair()
    far.setblocking(False)
    far.send(_SENT)
    told = os.fstat(near.fileno())
    assert fds, "nothing was open"
    for fd in fds:
        os.dup2(near.fileno(), fd, inheritable=False)
    yield
    for fd in fds:
        assert os.path.samestat(os.fstat(fd), told), "it was closed"
        os.close(fd)
    assert near.recv(1000) == _SENT
    with contextlib.suppress(BlockingIOError):
        assert far.recv(1000) == b"", "it was written to"
    near.close()
    far.close()
