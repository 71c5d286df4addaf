"""The line to the process of a virtual board: lines of text either way."""

from __future__ import annotations

import contextlib
import os
import socket

_READ_BYTES = 1 << 16


class ControlLine:
    """One end of it. A program that closes all descriptors closes this one; its number may then be another's."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._told, self._held = end, os.fstat(end.fileno()), b""

    def _check(self) -> None:
        with contextlib.suppress(OSError):  # bad, or -1
            if os.path.samestat(os.fstat(self._end.fileno()), self._told):
                return
        self._end.detach()
        msg = "the program has closed its descriptor"
        raise ConnectionError(msg)

    def send(self, line: bytes) -> None:
        """Send a line; OSError where it has ended."""
        self._check()
        self._end.sendall(line + b"\n")

    def receive(self) -> bytes:
        """Return the next line without its end; OSError where it has ended."""
        self._check()
        parts = [self._held]
        while b"\n" not in parts[-1]:
            parts.append(self._end.recv(_READ_BYTES))
            if not parts[-1]:
                msg = "the other end was closed"
                raise ConnectionError(msg)
        line, self._held = b"".join(parts).split(b"\n", 1)
        return line

    def close(self) -> None:
        """Close this end, which tells the other one to end. May be called twice."""
        with contextlib.suppress(OSError):
            self._check()
            self._end.close()
