"""One meter and its commands: found at whatever rate it was left at, brought to rest, configured, started.

A PMD-USB remembers the rate of its line until it loses power, and goes on streaming after a program has died. So each
rate is tried: stop, wait until the line is quiet, and ask who is there. What is at the other end is told by its answer
alone: the USB identities of these meters are those of a million other things.
"""

from __future__ import annotations

import contextlib
import os
import re

from pmtpy.backends._serial.line import Line
from pmtpy.backends._serial.port import list_ports, open_port, usb_of
from pmtpy.backends._serial.transport import DirectTransport, Transport
from pmtpy.backends.pmd import codec
from pmtpy.backends.pmd.codec import Config, Layout
from pmtpy.core.clock import Clock
from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError, SourceLostError

BACKEND = "pmd"
# WCH CH340 (PMD-USB) and the virtual COM port of STMicroelectronics (the others): generic, so they are hints at most.
CDC = (0x0483, 0x5740)
USB = {(0x1A86, 0x7523): "PMD-USB", CDC: "PMD2, PMD2X or WireView Pro II"}
QUIET_S = 0.06  # a record takes 2 ms at the slowest rate, its pauses 0.4 ms; USB adapters hold bytes back for 16 ms
_ANSWER_S = 0.5
_AT_MOST = 1 << 15  # bytes of a stream that goes on, before another rate is tried


class Meter:
    """One meter at rest. Used by one thread at a time.

    Attributes
    ----------
    line : Line
    baud : int
        Rate at which it was found, or to which it was set.
    kind : str or Layout
        :data:`~pmtpy.backends.pmd.codec.STREAMING`, or the layout of a polled meter.
    firmware : int
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self.line = Line(transport, name)
        self.kind: str | Layout = codec.STREAMING
        self.baud = 0
        self.firmware = 0
        self._late = False  # whether something of an answer may still come

    @property
    def name(self) -> str:
        """Port, for messages."""
        return self.line.name

    def connect(self) -> None:
        """Find it at the rate it was left at, stop its stream, learn what it is.

        Raises BackendUnavailableError: nothing at the other end introduces itself as one of these meters, at any rate.
        """
        heard = b""
        for baud in codec.BAUDS:
            self._tune(baud)
            for stop in self._stops():
                if stop:
                    self.line.write(codec.STOP)
                    with contextlib.suppress(ReadError):  # at another rate it does not hear, and goes on
                        heard += self.line.rest(QUIET_S, limit=_AT_MOST)[:64]
                heard += (text := self._asked())[:64]
                kind = codec.introduced(text)
                if kind is not None:
                    self.kind, self.baud = kind, baud
                    self.firmware = self.line.ask(codec.READ_ID, 3, _ANSWER_S)[2]
                    return
        said = (
            f"it sent {amount(len(heard), 'byte')} with which no such meter begins" if heard else "it answers nothing"
        )
        rates = ", ".join(map(str, codec.BAUDS))
        raise BackendUnavailableError(
            BACKEND,
            f"{self.name} is no ElmorLabs PMD-USB, PMD2, PMD2X or WireView Pro II: {said} (tried at {rates} baud)",
            "name the port of the meter; if this is it, unplug it from USB and from its supply for a moment",
        )

    def _stops(self) -> tuple[bool, ...]:
        """Whether to send the command that stops a stream before asking who is there, try by try.

        The same bytes begin a new calibration of a PMD2 and a new configuration of a PMD2X. So all are asked first, and
        nothing else is sent to a port of theirs. Twice to others, because the first may be taken for the rest of a
        command that another program broke off.
        """
        return (False,) if usb_of(self.name) == CDC else (False, True, True)

    def _asked(self) -> bytes:
        """Ask who is there; return what came."""
        with contextlib.suppress(ReadError):
            return self.line.ask(codec.WELCOME, codec.MIN_NAME_BYTES, _ANSWER_S) + self.line.rest(QUIET_S, limit=1024)
        return b""

    def _tune(self, baud: int) -> None:
        tune = getattr(self.line.transport, "set_baud", None)
        if tune is not None:
            tune(baud)

    def set_baud(self, baud: int) -> None:
        """Have meter and port go on at another rate, and make sure that they understand each other."""
        if baud == self.baud:
            return
        self.line.write(codec.baud_command(baud))
        self.line.rest(QUIET_S)
        self._tune(baud)
        self.line.rest(QUIET_S)
        if codec.introduced(self._asked()) is None:
            msg = f"{self.name}: it does not answer after having been set to {baud} baud"
            raise ProtocolError(msg)
        self.baud = baud

    def read_config(self) -> Config:
        """Read the stored configuration of a PMD-USB."""
        size = codec.config_size(self.firmware)
        return codec.parse_config(self.line.ask(codec.READ_CONFIG, size, _ANSWER_S)[:size])

    def write_config(self, config: Config, *, store: bool) -> None:
        """Set the configuration, until power is lost or (``store``) for good, and verify it by reading it back.

        Raises ProtocolError: it has not taken it.
        """
        self.line.write(codec.WRITE_CONFIG)
        self.line.rest(QUIET_S)  # the maker's program waits 10 ms before and after
        self.line.write(codec.pack_config(config, store=store))
        self.line.rest(QUIET_S)
        found = self.read_config()
        if found != config:
            msg = f"{self.name}: the configuration was sent, but reading it back gives {found}"
            raise ProtocolError(msg)

    def values(self, layout: Layout) -> list[float]:
        """Ask a polled meter for its readings.

        An answer bears neither a number nor a checksum, and a packet of USB is a third of one: the rest of an answer
        that was not waited for passes for the beginning of the next. So a question is put to a line at rest, and after
        one that failed an answer counts if nothing follows it.
        """
        late, self._late = self._late, True
        self.line.rest(QUIET_S if late else 0.0)
        answer = self.line.ask(codec.READ_VALUES, layout.size, _ANSWER_S)
        if late:
            answer += self.line.rest(QUIET_S)
        if len(answer) != layout.size:
            msg = f"{self.name}: {amount(len(answer), 'byte')} came where an answer has {layout.size}"
            raise ReadError(msg)
        self._late = False
        return layout.counts(answer)

    def stop(self) -> None:
        """End the stream; leave a quiet line at the rate of a meter that was just switched on."""
        self.line.write(codec.STOP)
        self.line.rest(QUIET_S)
        if self.kind == codec.STREAMING:
            self.set_baud(codec.BAUDS[0])

    def close(self) -> None:
        """Release the port."""
        self.line.transport.close()


def open_meter(device: str | None, *, clock: Clock, timeout_s: float = 2.0) -> Meter:
    """Open the meter at a port, at rest.

    Raises BackendUnavailableError: no port named, not there, in use, or no such meter at it.
    """
    if device is None:
        raise BackendUnavailableError(BACKEND, *unnamed())
    fd = open_port(BACKEND, device, clock=clock, timeout_s=timeout_s, baud=codec.BAUDS[0])
    meter = Meter(DirectTransport(fd, device, clock), device)
    try:
        meter.connect()
    except (ReadError, ProtocolError, SourceLostError) as error:
        meter.close()
        raise BackendUnavailableError(BACKEND, str(error), "unplug the meter for a moment and try again") from error
    except BaseException:
        meter.close()
        raise
    return meter


def unnamed() -> tuple[str, str]:
    """Say which ports could be a meter's, and that one must be named: why, and the cure."""
    could = [f"{p.path} (if it is a {USB[p.usb]})" for p in list_ports() if p.usb in USB]
    first = could[0].split()[0] if could else "/dev/ttyUSB0"
    why = "no serial port could be that of a meter"
    if could:
        why = f"it is known by its answer alone, and only a port that is named is asked; there are: {', '.join(could)}"
    return why, f"name its port: {BACKEND}:{first}; to try without one: {BACKEND}:virtual"


def part_name(port: str) -> str:
    """Return a name of the port for a domain: ``/dev/ttyUSB0`` gives ``ttyUSB0``."""
    return re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(port)).strip("-") or "meter"  # noqa: PTH119  (a device path)
