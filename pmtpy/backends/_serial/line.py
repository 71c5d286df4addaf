"""Commands and answers over a line that is at rest: what every instrument behind a serial port does at its opening."""

from __future__ import annotations

from pmtpy.backends._serial.transport import Transport
from pmtpy.core.presentation import amount
from pmtpy.errors import ReadError

_LIMIT_BYTES = 1 << 22  # of a device that streams on although it was told to stop


class Line:
    """A transport whose device answers when it is asked. Used by one thread at a time.

    Attributes
    ----------
    transport : Transport
        May be exchanged while the line is at rest.
    name : str
        Of the port, for messages.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self.transport = transport
        self.name = name

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.transport.write(data)

    def rest(self, quiet_s: float, *, limit: int = _LIMIT_BYTES) -> bytes:
        """Read until nothing has come for ``quiet_s``; return what came, of which ``limit`` bytes are too much.

        Raises ReadError: it never ends.
        """
        came = b""
        while self.transport.wait(quiet_s):
            came += b"".join(piece for _, piece in self.transport.receive())
            if len(came) > limit:
                msg = f"{self.name}: it goes on sending"
                raise ReadError(msg)
        return came

    def ask(self, command: bytes, size: int, timeout_s: float) -> bytes:
        """Send a command; return its answer of ``size`` bytes, and what came with it.

        Raises ReadError: fewer bytes came within ``timeout_s``.
        """
        self.write(command)
        answer = b""
        while len(answer) < size:
            if not self.transport.wait(timeout_s):
                msg = (
                    f"{self.name}: {len(answer)} of {amount(size, 'byte')} came in answer to the command "
                    f"{command[:1].hex()}"
                )
                raise ReadError(msg)
            answer += b"".join(piece for _, piece in self.transport.receive())
        return answer
