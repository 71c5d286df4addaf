"""A PowerSensor3 board: host bytes and instants in, device bytes out. No input or output, no time of its own.

Whoever drives it calls :meth:`Board.feed` with what the host wrote, :meth:`Board.advance` with the present instant,
and :meth:`Board.take` for the bytes that are ready. All instants are integer nanoseconds on the host's clock.
"""

from __future__ import annotations

from collections import deque

from pmtpy.emulators.load import Load
from pmtpy.emulators.powersensor3._faults import Damage, Wire
from pmtpy.emulators.powersensor3._firmware import (
    Firmware,
    Hang,
    Idle,
    MarkersGone,
    NextSample,
    Pause,
    Program,
    Reset,
    Take,
    Want,
)
from pmtpy.emulators.powersensor3._log import BootLog, History
from pmtpy.emulators.powersensor3._spec import FRAME_BYTES, BoardSpec, factory_flash
from pmtpy.errors import TargetError

MARKER_BYTE, MARKER_BIT = 3, 0x40  # second byte of sensor 0
_CONVERSIONS_PER_FRAME = 8
UPTIME_NS = 10_000_000_000  # how long a board that is met has been plugged in, so it has booted


class Board:
    """One virtual board on a USB bus.

    Parameters
    ----------
    load : Load
        What flows through its pairs together.
    epoch_ns, start_ns : int
        Host instants at which the load's time is 0, and at which the board is plugged in.
    buffer_bytes : int or None
        How much the line holds for a host that does not read; frames that find it full are never sent.
    cycle_blocks : int
        See :class:`~pmtpy.emulators.powersensor3._sampler.Sampler`.
    instant : bool
        The pauses in the firmware take no time: for a clock that stands still while a host program waits.

    Attributes
    ----------
    attached : bool
        On the bus. Off after a reset until the boot is done, while unplugged, and in the bootloader.
    now_ns : int
        How far the firmware has run.
    listening : bool
        The host has the port open. While it has not, output is discarded; the driver sets this.
    busy : bool
        Something is going on that needs :meth:`advance` soon; otherwise only host bytes matter.
    """

    def __init__(
        self,
        spec: BoardSpec,
        load: Load,
        *,
        epoch_ns: int,
        start_ns: int,
        buffer_bytes: int | None = None,
        cycle_blocks: int = 0,
        instant: bool = False,
    ) -> None:
        self.spec = spec
        self.history = History(spec, load, epoch_ns, cycle_blocks)
        self.history.flash = factory_flash(spec)
        self.wire = Wire(spec.seed)
        self.buffer_bytes = buffer_bytes
        self.listening = True
        self._instant = instant
        self._unsent: int
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._outbox: list[bytes | memoryview] = []
        self._queued = 0
        self._return_ns: int | None = None
        self._boot(start_ns)
        if spec.streaming:  # an earlier user started it and went away, long ago
            self._resume(b"")
            self.firmware.streaming = True

    # What the firmware can do.

    @property
    def flash(self) -> bytes:
        """Contents of the flash, kept over resets."""
        return self.history.flash

    @flash.setter
    def flash(self, data: bytes) -> None:
        self.history.flash = data

    def send(self, data: bytes) -> None:
        """Queue a reply for the host."""
        if self.listening:
            self._outbox.append(data)
            self._queued += len(data)

    def send_latest_frame(self) -> None:
        """Queue the newest complete frame."""
        k = self._sampler.frames_by(self.now_ns) - 1
        if k >= self._unsent:
            self._emit(k, k + 1)
            self._next = k + 1

    def conversions(self) -> int:
        """Conversions since the counter was last cleared: eight per frame sampled, sent or not."""
        return _CONVERSIONS_PER_FRAME * (self._sampler.frames_by(self.now_ns) - self._counted_from)

    def clear_conversions(self) -> None:
        """Start counting conversions from 0."""
        self._counted_from = self._sampler.frames_by(self.now_ns)

    # What the driver does.

    def feed(self, data: bytes, now_ns: int) -> None:
        """Deliver bytes that the host wrote."""
        if self.attached:
            self._inbox.extend((now_ns, data[i : i + 1]) for i in range(len(data)))

    def advance(self, now_ns: int) -> None:
        """Run the firmware up to ``now_ns``."""
        while True:
            if not self.attached:
                if self._return_ns is None or now_ns < self._return_ns:
                    return
                self._boot(self._return_ns)
            if not self._step(now_ns):
                return

    def take(self) -> list[bytes | memoryview]:
        """Return the bytes that have become ready, in order, and forget them."""
        out, self._outbox, self._queued = self._outbox, [], 0
        return out

    @property
    def busy(self) -> bool:
        """Whether something is going on that needs the time."""
        firmware = self.firmware
        return firmware.streaming or firmware.single or not self.attached or not isinstance(self._want, Idle)

    def frames_end_ns(self, frames: int) -> int:
        """Host instant at which so many more frames will be complete."""
        return self._sampler.end_ns(self._next + frames - 1)

    def inject(
        self, fault: str, now_ns: int, *, rate: float = 0.0, burst: float = 1, count: float = 0, seconds: float = 0.0
    ) -> None:
        """Switch a fault on, or off with ``rate=0``.

        Parameters
        ----------
        fault : str
            ``lose`` (bytes of frames vanish), ``garbage`` (random bytes are inserted), ``stall`` (the main loop does
            nothing for ``seconds``; sampling goes on, so frames are lost), ``buffer`` (the line holds only ``count``
            bytes for a host that does not read), ``reset`` (the board resets itself), ``none`` (all bytes arrive).
        now_ns : int
            Present host instant.
        rate, burst : float
            Chance per byte that a loss or an insertion begins there, and its length in bytes.
        count : float
            Once only: so many bytes, in the next frames that go out.

        Raises TargetError: no such fault.
        """
        damage = Damage(rate, int(burst)) if rate else None
        if fault == "lose":
            self.wire.lose, self.wire.lose_once = damage, int(count)
        elif fault == "garbage":
            self.wire.garbage, self.wire.garbage_once = damage, int(count)
        elif fault == "stall":
            self._stalled_until_ns = now_ns + round(seconds * 1e9)
        elif fault == "buffer":
            self.buffer_bytes = int(count)
        elif fault == "reset":
            self._leave(now_ns + self._boot_ns)
        elif fault == "none":
            self.wire.lose = self.wire.garbage = None
        else:
            raise TargetError(f"no fault {fault!r}; there are lose, garbage, stall, hold, buffer, reset, none")

    def unplug(self) -> None:
        """Take the board off the bus, and its power away."""
        self._leave(None)

    def plug_in(self, now_ns: int) -> None:
        """Plug the board in again; it boots."""
        if not self.attached:
            self._return_ns = now_ns

    # How it runs.

    def _boot(self, now_ns: int) -> None:
        self.attached, self._return_ns = True, None
        self._log = BootLog(now_ns)
        self.history.boots.append(self._log)
        self._sampler = self.history.sampler(len(self.history.boots) - 1)
        self.firmware = Firmware(self.spec, self)
        self._inbox.clear()
        self.take()
        self.now_ns, self._stalled_until_ns = now_ns, now_ns
        self._next = 0  # the first frame not yet considered
        self._unsent = 0  # the first frame not yet sent
        self._counted_from = 0
        self._program: Program = self.firmware.main()
        self._want: Want = next(self._program)
        self._since_ns = now_ns

    def _leave(self, return_ns: int | None) -> None:
        self.attached, self._return_ns = False, return_ns
        self._inbox.clear()
        self.take()

    @property
    def _boot_ns(self) -> int:
        return 0 if self._instant else round(self.spec.boot_s * 1e9)

    def _resume(self, byte: bytes) -> None:
        """Go on with the program; it runs to its next wait in no time."""
        self._want = self._program.send(byte)
        self._since_ns = self.now_ns

    def _step(self, now_ns: int) -> bool:
        """Run to the next wait, or say that nothing more happens until ``now_ns``."""
        want = self._want
        if isinstance(want, Idle):
            return self._idle(now_ns)
        if isinstance(want, Take):
            return self._gather(want, now_ns)
        if isinstance(want, MarkersGone):
            return self._send_marked(now_ns)
        if isinstance(want, Reset):
            self._leave(None if want.bootloader else self.now_ns + self._boot_ns)
            return True
        return not isinstance(want, Hang) and self._block(want, now_ns)

    def _block(self, want: Pause | NextSample, now_ns: int) -> bool:
        if self._instant:
            end_ns = self.now_ns
        elif isinstance(want, Pause):
            end_ns = self._since_ns + want.ns
        else:
            end_ns = self._sampler.end_ns(self._sampler.frames_by(self.now_ns))
        if now_ns < end_ns and not self._instant:
            return False
        self._blocked_to(end_ns)
        self._resume(b"")
        return True

    def _send_marked(self, now_ns: int) -> bool:
        self._stream(min(now_ns, self.frames_end_ns(self.firmware.markers)))
        if self.firmware.markers:
            return False
        self.now_ns = max(self.now_ns, self._sampler.end_ns(self._next - 1))
        self._resume(b"")
        return True

    def _idle(self, now_ns: int) -> bool:
        if self._stalled_until_ns > self.now_ns:
            if now_ns < self._stalled_until_ns:
                return False
            self._blocked_to(self._stalled_until_ns)
        if not self._inbox:
            self._stream(now_ns)
            self.now_ns = max(self.now_ns, now_ns)
            return False
        at_ns, byte = self._inbox.popleft()
        self._stream(at_ns)
        self.now_ns = max(self.now_ns, at_ns)
        self._resume(byte)
        return True

    def _blocked_to(self, end_ns: int) -> None:
        """Let time pass in which no frame is sent; the newest one waits in its buffer."""
        self.now_ns = max(self.now_ns, end_ns)
        keep = 1 if self.firmware.streaming else 0
        self._next = max(self._next, self._sampler.frames_by(self.now_ns) - keep)

    def _gather(self, want: Take, now_ns: int) -> bool:
        limit_ns = None if want.limit_ns is None else self._since_ns + want.limit_ns
        if len(self._inbox) >= want.count and (limit_ns is None or self._inbox[want.count - 1][0] <= limit_ns):
            taken = [self._inbox.popleft() for _ in range(want.count)]
            self._blocked_to(taken[-1][0])
            self._resume(b"".join(byte for _, byte in taken))
            return True
        if limit_ns is not None and now_ns > limit_ns:
            self.now_ns, self._want = limit_ns, Reset()
            return True
        return False

    def _stream(self, until_ns: int) -> None:
        """Send the frames that are complete at ``until_ns``, or the one that was asked for."""
        end = self._sampler.frames_by(until_ns)
        if end <= self._next:
            return
        if self.firmware.streaming:
            self._emit(self._next, end)
        elif self.firmware.single:
            self.firmware.single = False
            self._emit(self._next, self._next + 1)
        self._next = end

    def _emit(self, k0: int, k1: int) -> None:
        """Queue frames, marked while markers are pending; those that find no room are lost."""
        self._unsent = k1
        if not self.listening:  # discarded, and the markers with them
            self.firmware.markers -= min(self.firmware.markers, k1 - k0)
            return
        if self.buffer_bytes is not None:
            k1 = min(k1, k0 + max(0, self.buffer_bytes - self._queued) // FRAME_BYTES)
        if k1 <= k0:
            return
        self._log.sent(k0, k1)
        chunks: list[bytes | memoryview] = list(self._sampler.chunks(k0, k1))
        if self.firmware.markers:
            chunks = [self._marked(b"".join(chunks), k0, k1)]
        if not self.wire.clean:
            arrived, damaged = self.wire.pass_through(b"".join(chunks))
            self._log.damaged += [k0 + i for i in damaged]
            chunks = [arrived]
        self._outbox += chunks
        self._queued += sum(map(len, chunks))

    def _marked(self, data: bytes, k0: int, k1: int) -> bytes:
        count = min(self.firmware.markers, k1 - k0)
        out = bytearray(data)
        for i in range(count):
            out[i * FRAME_BYTES + MARKER_BYTE] |= MARKER_BIT
        self._log.marks += range(k0, k0 + count)
        self.firmware.markers -= count
        return bytes(out)
