"""Meters as sources: a PMD-USB that streams its converters, and the others, which are asked for their readings."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from pmtpy.backends._device_clock import Steps
from pmtpy.backends._serial.journal import Journal
from pmtpy.backends._serial.port import is_pseudo_terminal
from pmtpy.backends._serial.transport import Piece, Transport, relayed, taken_back
from pmtpy.backends.pmd import codec
from pmtpy.backends.pmd._channels import pair_channels, rail_channels
from pmtpy.backends.pmd._tick_clock import TickClock
from pmtpy.backends.pmd.codec import AVERAGED, END_CODES, PAIRS, Layout
from pmtpy.backends.pmd.device import BACKEND, Meter, open_meter, part_name
from pmtpy.core.arguments import one_of
from pmtpy.core.channel import Derivation, Identity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block, Floats, Ints
from pmtpy.core.source import PolledSource, Remarks, Source, Timestamps, Traits, columns
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError, SensorClosedError, SourceLostError

_START_S = 2.0
_SILENT_S = 0.5
_ARRIVAL_U_S = 0.5e-3  # a record is seen 0.2 ms (the line) to 1 ms (USB) after it was made
_UNMEASURED = "the 3.3 V of the slot, up to 10 W, go past the meter and are not in its total"
_OFFSETS = "whether the stream holds the stored offsets {} already is not documented; they are added, as its maker does"


class PmdSource(Source):
    """One streaming PMD-USB. Takes over ``meter``, which is connected and at rest."""

    traits = Traits(interval_s=0.14, streaming=True, timestamps=Timestamps.DEVICE_UPDATE)

    def __init__(
        self,
        meter: Meter,
        clock: Clock,
        *,
        stamp_bytes: int,
        slot: str,
        in_total: Sequence[str],
        relay: bool,
    ) -> None:
        self._meter, self._clock = meter, clock
        self._closed = False
        self._lost: SourceLostError | None = None
        config = meter.read_config()
        self._decoder = codec.Decoder(stamp_bytes)
        self._ticks = TickClock(1 << (8 * stamp_bytes))
        self._journal = Journal()
        self._counted = (0, 0, 0)
        self._steps = Steps(8)
        self.channels = pair_channels(part_name(meter.name), config, slot=slot, in_total=in_total)
        self._names = [c.name for c in self.channels if c.derivation is Derivation.DIRECT]
        notes = [
            f"what it displays is averaged over {AVERAGED[config.averaging]} samples; for the stream it is unknown"
        ]
        if any(config.offsets):
            notes.append(_OFFSETS.format(config.offsets))
        if slot:
            notes.append(_UNMEASURED)
        if is_pseudo_terminal(meter.name):
            notes.append(f"{meter.name} is a pseudo-terminal: a program answers for the meter")
        self.identity = Identity(BACKEND, codec.STREAMING, version=f"firmware {meter.firmware}", notes=tuple(notes))
        if relay:
            meter.line.transport = relayed(meter.line.transport, clock, backend=BACKEND, stop=codec.STOP)
        meter.line.write(codec.start_command(stamp_bytes))
        self._heard_ns = clock.now_ns()
        if not meter.line.transport.wait(_START_S) and clock.now_ns() - self._heard_ns >= _START_S * NS_PER_S:
            why = f"{meter.name} answers, but sends nothing after the start command"
            raise BackendUnavailableError(BACKEND, why, "unplug the meter for a moment and try again")

    def read(self) -> Block:
        """Decode what has arrived. Silence is no error: what is missing is counted when records come again."""
        pieces = self._pieces()
        records = self._decoder.feed(b"".join(piece for _, piece in pieces))
        self._note_damage(pieces)
        if not len(records):
            return Block.empty(columns(self.channels))
        if pieces[-1][0] - self._heard_ns > _SILENT_S * NS_PER_S:
            silent_s = (pieces[-1][0] - self._heard_ns) / NS_PER_S
            self._journal.add("silent", self._heard_ns, pieces[-1][0], silent_s)
        self._heard_ns = pieces[-1][0]
        ticks = self._ticks.unwrap(records.ticks, pieces[-1][0])
        ends = np.cumsum([len(piece) for _, piece in pieces])
        rows = np.searchsorted(records.ends, ends, side="right") - 1
        arrivals = [(int(ticks[row]), t_ns) for row, (t_ns, _) in zip(rows.tolist(), pieces, strict=True) if row >= 0]
        t_ns = self._ticks.place(ticks, arrivals)
        return Block(t_ns, self._masked(records.codes, t_ns), self._steps.lost(ticks))

    def _pieces(self) -> list[Piece]:
        if self._lost is not None:
            raise self._lost
        try:
            return self._meter.line.transport.receive()
        except SourceLostError as error:
            self._lost = error
            raise

    def _masked(self, codes: codec.Codes, t_ns: Ints) -> codec.Codes | Floats:
        """Return the codes, those at an end of the converter as NaN."""
        at_end = (codes <= END_CODES[0]) | (codes >= END_CODES[1])
        if not at_end.any():
            return codes
        for column in np.flatnonzero(at_end.any(axis=0)).tolist():
            rows = np.flatnonzero(at_end[:, column])
            begin, end = int(t_ns[rows[0]]), int(t_ns[rows[-1]])
            self._journal.add(f"end {column}", begin, end, len(rows) / 4780, len(rows))
        return np.where(at_end, np.nan, codes)

    def _note_damage(self, pieces: Sequence[Piece]) -> None:
        dropped = getattr(self._meter.line.transport, "dropped_bytes", 0)
        counted = self._decoder.damaged, self._decoder.skipped_bytes, dropped
        if counted != self._counted and pieces:
            for kind, now, before in zip(("damaged", "skipped", "dropped"), counted, self._counted, strict=True):
                if now > before:
                    self._journal.add(kind, self._heard_ns, pieces[-1][0], 0.0, now - before)
            self._counted = counted

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return how far times can be trusted, and what was damaged, silent, or at the end of its range."""
        found = self._journal.between(begin_ns, end_ns)
        said = {
            "silent": "the meter was silent for {0:.3g} s",
            "damaged": "the stream was broken {1:.0f} times: records are missing, or bits of them were damaged on the"
            " line. Damage in a reading cannot be seen, so a few single readings may be wrong too",
            "skipped": "{1:.0f} bytes belonged to no whole record and were skipped",
            "dropped": "{1:.0f} bytes were dropped because the program did not fetch them for minutes",
        }
        name = self._meter.name
        warnings = [f"{name}: {text.format(*found[kind])}" for kind, text in said.items() if kind in found]
        warnings += [
            f"{channel}: at the end of its range in {found[f'end {i}'][1]:.0f} records; its pair is not known there"
            for i, channel in enumerate(self._names)
            if f"end {i}" in found
        ]
        return Remarks(_ARRIVAL_U_S, tuple(warnings))

    def close(self) -> None:
        """Stop the meter, leave it as it was when it was switched on, and release it."""
        if self._closed:
            return
        self._closed = True
        line = self._meter.line
        try:
            with contextlib.suppress(SourceLostError, SensorClosedError, ReadError, ProtocolError):
                line.transport = taken_back(line.transport)
                self._meter.stop()
        finally:
            self._meter.close()


class RailSource(PolledSource):
    """A PMD2, PMD2X or WireView, which is asked for its readings."""

    # An answer of 192 bytes takes a millisecond of USB; ten times a second is what its makers' programs ask.
    traits = Traits(interval_s=0.02, blocking=True)

    def __init__(self, meter: Meter, layout: Layout, clock: Clock) -> None:
        super().__init__(clock)
        self._meter, self._layout = meter, layout
        self.channels = rail_channels(part_name(meter.name), layout)
        notes = ("values change once per averaging time of the meter (263 us to 135 ms): equal ones are not new",)
        self.identity = Identity(BACKEND, layout.model, version=f"firmware {meter.firmware}", notes=notes)

    def poll(self) -> Sequence[float]:
        """Ask for one answer."""
        return self._meter.values(self._layout)

    def close(self) -> None:
        """Release the port."""
        self._meter.close()


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    transport: str | Transport = "relay",
    baud: int = 921600,
    stamps: int = 4,
    slot: str = "",
    pairs: str = ",".join(PAIRS),
    timeout_s: float = 2.0,
) -> Source:
    """Open a meter and, if it streams, start its stream.

    Parameters
    ----------
    device : str
        Path of the port, e.g. ``/dev/ttyUSB0``.
    transport : {"relay", "direct"} or Transport
        Who reads the port: a small process of its own, or this process; or a line to a meter that is open already.
    baud : int
        Rate of the line while it streams: 921600 gives 4,780 records a second.
    stamps : {4, 2}
        Bytes of a record's stamp: two turn over every 22 ms, and a longer gap is then told by arrivals alone.
    slot : str
        The pair that feeds the slot through a riser, as ``eps1``; it is labelled so.
    pairs : str
        Those that make the total, e.g. ``pcie1,pcie2`` for the cables of a card.
    timeout_s : float
        How long to wait for a port that another program uses, seconds.

    Raises BackendUnavailableError: no port named, not there, in use, or no such meter at it.
    Raises TargetError: an option that means nothing.
    """
    wanted = [one_of(pair.strip(), PAIRS, "the pair") for pair in pairs.split(",")]
    one_of(baud, codec.BAUDS, "the rate")
    one_of(stamps, (2, 4), "the length of stamps")
    slot = one_of(slot, ("", *PAIRS), "the slot")
    if isinstance(transport, str):
        one_of(transport, ("relay", "direct"), "the transport")
        meter = open_meter(device, clock=clock, timeout_s=timeout_s)
    else:
        meter = Meter(transport, device or "virtual")
    try:
        if not isinstance(transport, str):
            meter.connect()
        if isinstance(meter.kind, Layout):
            return RailSource(meter, meter.kind, clock)
        meter.set_baud(baud)
        return PmdSource(meter, clock, stamp_bytes=stamps, slot=slot, in_total=wanted, relay=transport == "relay")
    except (ReadError, ProtocolError, SourceLostError) as error:
        meter.close()
        raise BackendUnavailableError(BACKEND, str(error), "unplug the meter for a moment and try again") from error
    except BaseException:
        with contextlib.suppress(SourceLostError, ReadError, ProtocolError):
            meter.stop()
        meter.close()
        raise
