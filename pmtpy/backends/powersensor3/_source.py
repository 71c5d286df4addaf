"""A streaming board as a :class:`~pmtpy.core.source.Source`: rows of levels with times, losses and marks.

The levels are handed on as they came; what they mean is in the channels, computed from the board's own configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from pmtpy.backends._serial.journal import Journal
from pmtpy.backends._serial.port import is_pseudo_terminal, serial_of
from pmtpy.backends._serial.transport import Piece, Transport, relayed, taken_back
from pmtpy.backends.powersensor3._board_clock import ALL_OR_NOTHING
from pmtpy.backends.powersensor3._channels import Sampling, pair_channels
from pmtpy.backends.powersensor3._codec import Decoder
from pmtpy.backends.powersensor3._labels import MarkLabels
from pmtpy.backends.powersensor3._port import BACKEND
from pmtpy.backends.powersensor3._stream import FrameStream, Rows
from pmtpy.backends.powersensor3.config import PAIRS
from pmtpy.backends.powersensor3.device import MARKER_S, STOP, STREAM_S, Board, open_board
from pmtpy.backends.powersensor3.limits import Ends, range_of
from pmtpy.core.channel import Channel, Derivation, Identity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Block
from pmtpy.core.source import Remarks, Source, Timestamps, Traits, columns
from pmtpy.errors import (
    BackendUnavailableError,
    ProtocolError,
    ReadError,
    SensorClosedError,
    SourceLostError,
    TargetError,
)

# The first pieces fix the board's clock on the host's and the interval: the fastest of some 30 arrivals, which on a
# busy machine take longer.
_SETTLE_NS = 30_000_000
_SETTLE_PIECES = 20
_SETTLE_LIMIT_NS = 250_000_000
_SETTLE_BYTES = 64 * 18
# After a program held the interpreter for minutes much has arrived; arrays of all of it would take hundreds of MB.
_AT_ONCE_BYTES = 1 << 20
_WORTH_A_WARNING_S = 1e-3
# What is said of a stretch, by the kind of event.
_DAMAGE = ("damaged", "skipped", "dropped", "returned")
_SENTENCES = {
    "silent": "the board was silent for {seconds:.3g} s",
    "damaged": "the stream was damaged {amount:.0f} times on the line",
    "skipped": "{amount:.0f} bytes belonged to no whole frame and were skipped",
    "dropped": "{amount:.0f} bytes were dropped because the program did not fetch them for minutes",
    "unlabelled": "{amount:.0f} labels of marks were dropped, whose frames must have been lost",
    "returned": "{amount:.0f} frames were counted as lost, arrived late and were dropped",
}


class PowerSensor3Source(Source):
    """One streaming board. Takes over ``board``, which is connected and at rest.

    Raises BackendUnavailableError: no pair can be measured, or the board answers but sends no frames.
    """

    # The poller's period. A wake costs most of a millisecond on an idle machine, nearly whatever has come (its
    # caches are cold by then), so few are best; but what has come since is what a read() has to decode, and 2800 frames
    # take it half as long again as 1400.
    traits = Traits(interval_s=0.14, streaming=True, timestamps=Timestamps.DEVICE_UPDATE)

    def __init__(
        self,
        board: Board,
        clock: Clock,
        *,
        serial: str = "",
        virtual: bool = False,
        silence_s: float | None = None,
        plausible: bool = True,
    ) -> None:
        self._board = board
        self._clock = clock
        self._closed = False
        self._marks = MarkLabels()
        self._gap_ns = 0
        self._heard_ns = clock.now_ns()
        self._silence_s = silence_s
        self._lost: SourceLostError | None = None
        variant = board.firmware.variant
        self._stream = FrameStream(variant.interval_us, variant.stamp_lag)
        self._newest_ns = -(1 << 62)  # the newest row
        self._decoding = False  # still so at the next call: an exception, as of Ctrl-C, came in the midst of it
        self._journal = Journal()
        self._counted = (0, 0, 0, 0)  # damaged, skipped, dropped, returned: as far as they are in the journal
        # With its port, which one board has at a time: two boards may bear one serial number, and are two parts.
        part = "-".join([*([serial] if serial else []), board.name.strip("/")]).replace("/", "-")
        sampling = Sampling(variant.interval_us * 1e-6, variant.scans)
        channels, notes = pair_channels(board.records, part, sampling, plausible=plausible)
        if not channels:
            raise BackendUnavailableError(
                BACKEND,
                f"no pair of {board.name} can be measured: {_why_none(board, notes)}",
                _remedy(board),
            )
        self._pending = self._begin()
        seen = Decoder().feed(b"".join(piece for _, piece in self._pending)).levels
        if len(seen):
            levels = seen.mean(axis=0).tolist()
            channels, notes = pair_channels(board.records, part, sampling, levels, plausible=plausible)
        self.channels = tuple(channels)
        if not virtual and is_pseudo_terminal(board.name):
            where = f"{board.name} is a pseudo-terminal: a program answers for the board (a virtual one, or a bridge)"
            notes = [*notes, where]
        pairs = [p for p in range(PAIRS) if any(c.name == f"pair{p}" for c in channels)]
        columns = [i for p in pairs for i in (2 * p, 2 * p + 1)]
        side_by_side = columns == list(range(columns[0], columns[-1] + 1))
        self._columns = slice(columns[0], columns[-1] + 1) if side_by_side else np.array(columns)
        self._ends = Ends([(c, range_of(i, board.records[i])) for i, c in zip(columns, _direct(channels), strict=True)])
        self.identity = Identity(
            BACKEND,
            f"PowerSensor3 {board.firmware.mcu}".strip(),
            serial,
            board.firmware.text,
            virtual,
            (*board.notes, *notes),
        )

    def _begin(self) -> list[Piece]:
        """Start the stream; return its first pieces, enough to place it in time."""
        self._board.start()
        transport = self._board.transport
        begin_ns = self._clock.now_ns()
        first_ns: int | None = None
        begun: list[Piece] = []
        size = 0
        while not _settled(size, len(begun), self._clock.now_ns() - (first_ns or begin_ns)):
            if self._clock.now_ns() - begin_ns > STREAM_S * NS_PER_S or not transport.wait(STREAM_S):
                break
            pieces = transport.receive()
            begun += pieces
            size += sum(len(piece) for _, piece in pieces)
            first_ns = first_ns or self._clock.now_ns()
        # On a clock that stands still nothing can have come, and that says nothing about the board.
        if size < _SETTLE_BYTES and self._clock.now_ns() - begin_ns >= STREAM_S * NS_PER_S:
            raise BackendUnavailableError(
                BACKEND,
                f"{self._board.name} answers but sent only {amount(size, 'byte')} in {STREAM_S:g} s after the "
                "start command",
                "press the reset button of the board and try again",
            )
        return begun

    @property
    def skipped_bytes(self) -> int:
        """Bytes of the stream that belonged to no whole frame."""
        return self._stream.decoder.skipped_bytes

    @property
    def damaged(self) -> int:
        """How often the sequence of frames was broken."""
        return self._stream.decoder.damaged

    def read(self) -> Block:
        """Decode what has arrived. Silence is no error: what is missing is counted when frames come again.

        Raises SourceLostError: the line was hung up, or the board has sent nothing for ``silence_s``, where that was
        asked for.
        """
        if self._decoding:
            self._begin_anew()
        pieces = self._next_pieces()
        self._decoding = True
        rows = self._stream.feed(pieces, last=self._lost is not None and not self._pending) if pieces else None
        self._decoding = False
        if rows is None or not len(rows):
            self._check_silence()
            if self._lost is not None and not self._pending:
                raise self._lost
            return Block.empty(columns(self.channels))
        # Between arrivals, and not between readings: a program that does not read for a while makes no silence.
        for arrived_ns, _ in pieces:
            if arrived_ns - self._heard_ns > STREAM_S * NS_PER_S:
                silent_s = (arrived_ns - self._heard_ns) / NS_PER_S
                self._journal.add("silent", self._heard_ns, arrived_ns, silent_s)
            self._heard_ns = arrived_ns
        self._newest_ns = int(rows.t_ns[-1])
        return self._block(rows)

    def _begin_anew(self) -> None:
        """Drop what waited to be placed in time: frames and their times may not be of one another any more."""
        variant = self._board.firmware.variant
        self._stream = FrameStream(variant.interval_us, variant.stamp_lag, self._newest_ns)
        self._counted = (0, 0, self._counted[2], 0)

    @property
    def has_backlog(self) -> bool:
        """Whether a part of what has arrived is still to be delivered."""
        return bool(self._pending)

    def _next_pieces(self) -> list[Piece]:
        """Return what has arrived, or the part of it that is decoded at once; the rest waits for the next call."""
        if not self._pending and self._lost is not None:
            raise self._lost
        pieces = self._pending
        if sum(len(piece) for _, piece in pieces) < _AT_ONCE_BYTES and self._lost is None:
            try:
                pieces = pieces + self._board.transport.receive()
            except SourceLostError as error:
                self._lost = error
                if not pieces:
                    pieces = [(self._heard_ns, b"")]  # so that frames that wait for later ones are delivered
        size = 0
        for i, (_, piece) in enumerate(pieces, 1):
            size += len(piece)
            if size >= _AT_ONCE_BYTES:
                self._pending = pieces[i:]
                return pieces[:i]
        self._pending = []
        return pieces

    def _block(self, rows: Rows) -> Block:
        t_ns, lost = rows.t_ns, rows.lost
        gaps = t_ns[lost > 0].tolist() if lost is not None else []
        marks, dropped = [], self._marks.dropped
        for row, arrived_ns in rows.marked:
            at_ns = int(t_ns[row])
            before = [gap for gap in (self._gap_ns, *gaps) if gap <= at_ns]
            marks.append((row, self._marks.pop(at_ns, arrived_ns, before[-1])))
        self._marks.forget(int(t_ns[-1]), gaps[-1] if gaps else self._gap_ns)
        if self._marks.dropped > dropped:
            self._journal.add("unlabelled", int(t_ns[0]), int(t_ns[-1]), 0.0, self._marks.dropped - dropped)
        self._gap_ns = gaps[-1] if gaps else self._gap_ns
        self._note_damage(int(t_ns[0]), int(t_ns[-1]))
        levels = rows.levels[:, self._columns]
        raw = self._ends.mask(levels, t_ns, self._stream.clock.interval_us * 1e-6, self._journal)
        return Block(t_ns, raw, lost, marks=tuple(marks))

    def _note_damage(self, begin_ns: int, end_ns: int) -> None:
        """Note what the codec skipped and what the relay or the clock dropped since the last rows."""
        decoder = self._stream.decoder
        dropped = getattr(self._board.transport, "dropped_bytes", 0)
        counted = decoder.damaged, decoder.skipped_bytes, dropped, self._stream.clock.returned
        if counted != self._counted:
            for kind, now, before in zip(_DAMAGE, counted, self._counted, strict=True):
                if now > before:
                    self._journal.add(kind, begin_ns, end_ns, 0.0, now - before)
            self._counted = counted

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return how far times can be trusted, and what was damaged, silent, or at the end of its range."""
        found = self._journal.between(begin_ns, end_ns)
        silent_ns = self._clock.now_ns() - self._heard_ns
        if not self._closed and silent_ns > STREAM_S * NS_PER_S and end_ns > self._heard_ns:
            seconds, amount = found.get("silent", (0.0, 0.0))
            found["silent"] = seconds + (end_ns - max(begin_ns, self._heard_ns)) / NS_PER_S, amount
        warnings = [
            f"{self._board.name}: {text.format(seconds=found[kind][0], amount=found[kind][1])}"
            for kind, text in _SENTENCES.items()
            if kind in found
        ]
        warnings += self._ends.sentences(found)
        clock = self._stream.clock
        missing_s = clock.missing_ns(begin_ns, end_ns) / NS_PER_S
        if missing_s > _WORTH_A_WARNING_S and not found.keys().isdisjoint(_DAMAGE):
            warnings.append(
                f"{self._board.name}: so much was damaged that frames of up to {missing_s * 1e3:.3g} ms may be missing"
                " which nothing counts; rows may be early by as much"
            )
        return Remarks(clock.error_ns(begin_ns, end_ns) / NS_PER_S, tuple(warnings), missing_s * ALL_OR_NOTHING)

    def _check_silence(self) -> None:
        if self._silence_s is None or self._lost is not None:
            return
        silent_s = (self._clock.now_ns() - self._heard_ns) / NS_PER_S
        if silent_s > self._silence_s:
            self._lost = SourceLostError(
                f"{self._board.name}: the board has sent no frame for {silent_s:.1f} s (silence_s="
                f"{self._silence_s:g}); reset it and open it again"
            )

    def mark(self, label: str) -> bool:
        """Have the board mark its next frame; the label appears on that row."""
        if self._lost is not None:
            raise self._lost
        self._marks.push(self._clock.now_ns(), label)
        self._board.mark()
        return True

    def close(self) -> None:
        """Stop the board and release it."""
        if self._closed:
            return
        self._closed = True
        try:
            self._stop()
        finally:
            self._board.close()

    def _stop(self) -> None:
        # The firmware hangs for good when it is stopped while a marker waits for its frame.
        sent_ns = self._marks.waiting_since()
        with contextlib.suppress(SourceLostError, SensorClosedError, ReadError, ProtocolError):
            while sent_ns is not None and self._clock.now_ns() - sent_ns < MARKER_S * NS_PER_S:
                if not self._board.transport.wait(MARKER_S):
                    break
                self._board.transport.receive()
        with contextlib.suppress(SourceLostError, SensorClosedError, ReadError, ProtocolError):
            self._board.transport = taken_back(self._board.transport)  # the relay may have been killed
            self._board.rest()  # the next program finds a quiet line


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    transport: str | Transport = "relay",
    timeout_s: float = 2.0,
    serial: str = "",
    virtual: bool = False,
    silence_s: float | None = None,
    plausible: bool = True,
) -> PowerSensor3Source:
    """Open a board and start its stream.

    Parameters
    ----------
    device : str or None
        Path of the port; None: the only board that is connected.
    clock : Clock
        The host's clock.
    transport : {"relay", "direct"} or Transport
        Who reads the port: a small process of its own, so that a busy program loses nothing, or this process. Or a line
        to a board that is open already; ``device`` then only names it.
    timeout_s : float
        How long to wait for a port that another program uses, seconds.
    serial : str
        Serial number of the board, where the USB does not tell it.
    virtual : bool
        The board is emulated; everything measured with it says so.
    silence_s : float or None
        After how many seconds without a frame the board is given up. None: never, only a hang-up is final.
    plausible : bool
        Measure only pairs whose stored sensitivity and zero a module of their type can have
        (:mod:`pmtpy.backends.powersensor3.limits` states the ranges). False: whatever is stored.

    Raises BackendUnavailableError: no board, several, in use, not permitted, not answering, or with no pair that can be
    measured.
    Raises TargetError: ``transport`` is an unknown word.
    """
    if not isinstance(transport, str):
        board = Board(transport, device or "virtual board", clock)
        try:
            board.connect()
        except (ProtocolError, ReadError, SourceLostError) as error:
            board.close()
            raise BackendUnavailableError(BACKEND, str(error), "check what is at the other end of the line") from error
    elif transport in {"relay", "direct"}:
        board = open_board(device, clock=clock, timeout_s=timeout_s)
        serial = serial or serial_of(board.name)
    else:
        msg = f"transport {transport!r} is unknown; it is 'relay' or 'direct'"
        raise TargetError(msg)
    try:
        if transport == "relay":
            board.transport = relayed(board.transport, clock, backend=BACKEND, stop=STOP)
        return PowerSensor3Source(
            board, clock, serial=serial, virtual=virtual, silence_s=silence_s, plausible=plausible
        )
    except BaseException:
        with contextlib.suppress(SourceLostError):
            board.stop()
        board.close()
        raise


def _direct(channels: Sequence[Channel]) -> list[str]:
    return [c.name for c in channels if c.derivation is Derivation.DIRECT]


def _why_none(board: Board, notes: Sequence[str]) -> str:
    if all(record.erased for record in board.records):
        return "its memory is erased, no sensor is configured"
    return "; ".join(notes) or "all sensors are switched off"


def _remedy(board: Board) -> str:
    show = f"pmtpy config {BACKEND}:{board.name}"
    if all(record.erased for record in board.records):
        return f"restore its configuration: {show} --import FILE; or set it up sensor by sensor: {show} --help"
    return f"set its sensors up: {show} shows them; --sensor 0 --in-use on switches one on (its pair needs 1, too)"


def _settled(size: int, pieces: int, elapsed_ns: int) -> bool:
    """Whether enough of the stream has come to place it in time."""
    if size < _SETTLE_BYTES or elapsed_ns < _SETTLE_NS:
        return False
    return pieces >= _SETTLE_PIECES or elapsed_ns > _SETTLE_LIMIT_NS
