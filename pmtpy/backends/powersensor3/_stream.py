"""Pieces of a stream to rows with times, losses and marks: the codec and the clock of the board together. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.backends._serial.transport import Piece
from pmtpy.backends.powersensor3._board_clock import BoardClock
from pmtpy.backends.powersensor3._codec import SENSORS, Decoder, Levels
from pmtpy.core.rows import Ints


@dataclass(frozen=True, slots=True)
class Rows:
    """Frames in the order in which they were measured."""

    t_ns: Ints  # shape (n,); middle of what each frame measured, on the host's monotonic clock
    levels: Levels  # uint16, shape (n, 8); level of each sensor
    lost: Ints | None = None  # shape (n,),; frames missing directly before each one
    marked: tuple[tuple[int, int], ...] = ()  # rows that carry the marker bit, and when they arrived

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.t_ns)


class FrameStream:
    """Takes a stream apart, piece by piece. Used by one thread at a time.

    Parameters
    ----------
    nominal_us, stamp_lag, floor_ns
        As of :class:`BoardClock`.

    Attributes
    ----------
    decoder : Decoder
        Counts what was skipped and damaged.
    clock : BoardClock
        Knows how far times can be trusted.
    """

    def __init__(self, nominal_us: float, stamp_lag: float, floor_ns: int = -(1 << 62)) -> None:
        self.decoder = Decoder()
        self.clock = BoardClock(nominal_us, stamp_lag, floor_ns)
        self._levels: Levels = np.empty((0, SENSORS), np.uint16)  # of frames whose times are not settled
        self._marked: list[tuple[int, int]] = []

    def feed(self, pieces: Sequence[Piece], *, last: bool = False) -> Rows:
        """Decode the next pieces; what is not settled yet waits for later ones, unless these are the last."""
        frames = self.decoder.feed(pieces[0][1] if len(pieces) == 1 else b"".join(piece for _, piece in pieces))
        arrivals: list[tuple[int, int]] = []
        if len(frames):
            ends = itertools.accumulate(len(piece) for _, piece in pieces)
            arrivals = [(frames.complete_by(end), t_ns) for end, (t_ns, _) in zip(ends, pieces, strict=True)]
            arrivals[-1] = (len(frames), pieces[-1][0])
        held = len(self._levels)
        placed = self.clock.feed(frames.device_us, arrivals, last=last)
        levels = np.concatenate([self._levels, frames.levels]) if held else frames.levels
        when = ((row, next(t_ns for rows, t_ns in arrivals if rows > row)) for row in frames.marked)
        marked = [*self._marked, *((row + held, t_ns) for row, t_ns in when)]
        first, end = placed.dropped, placed.dropped + len(placed.t_ns)
        self._levels = levels[end:].copy() if end < len(levels) else levels[:0]
        self._marked = [(row - end, t_ns) for row, t_ns in marked if row >= end]
        shown = tuple((row - first, t_ns) for row, t_ns in marked if first <= row < end)
        return Rows(placed.t_ns, levels[first:end], placed.lost, shown)
