"""What every file format needs to know, and what it must offer: Header, Ending, and the Sink they are given to.

Pure data. Facts about the columns themselves are in :mod:`pmtpy.io.columns`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pmtpy.core.channel import Identity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Floats, Frame, Ints, Layout
from pmtpy.io.channels import described

_FORMAT_VERSION = 1
"""Of the metadata written beside or inside a file; a reader refuses a greater one."""

WORTH_A_REMARK = 1e-3  # of a recording: time without known energy
MOST_ENDS = 4_000
"""Ends of regions whose energies are judged by the rows around them: of a hundred rows of ten channels each, 120 MB."""

UNKNOWN_VIRTUAL = "it is not known whether it is virtual (whether its energy was emulated)"


@dataclass(frozen=True, slots=True)
class RecordedRegion:
    """A stretch of the program that a region measured while a dump ran; times as those of the rows."""

    label: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class RecordedMark:
    """When the host set a mark, which stands on the next row; time as those of the rows."""

    label: str
    t_ns: int


Stretches = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """When a program said that the device worked, from and to; times as those of the rows, stretches in order."""

    on_ns: Stretches
    known_ns: Stretches  # the time for which that is all: it rested there otherwise; of other times nothing is known

    @classmethod
    def of(cls, on_ns: Ints, known_ns: Ints) -> RecordedLoad | None:
        """Make it of two arrays of shape (n, 2); None where nothing is known."""
        on, known = (tuple([(a, b) for a, b in each.tolist()]) for each in (on_ns, known_ns))
        return cls(on, known) if known else None


@dataclass(frozen=True, slots=True)
class Judged:
    """A stretch of a recording whose energies are to be judged. Arrays have a column for the total first."""

    layout: Layout
    seconds: float  # its length
    # shape (1 + channels,); energies found in it, and the seconds for which none is known
    joules: Floats
    unknown_s: Floats
    lost: int  # rows lost in it
    t_s: Floats  # shape (n,); times of the rows around both of its ends, from its begin
    # shape (n, 1 + channels); of those rows
    around_watts: Floats
    around_joules: Floats
    left_out_s: Sequence[tuple[float, float]]  # from when to when rows between these are left out
    # of the recording, as in :class:`Ending`
    aged_s: float = 0.0
    time_u_s: float = 0.0


Judge = Callable[[Judged], Floats]  # standard uncertainties in joules, the total first; NaN: nothing is known


@dataclass(frozen=True, slots=True)
class Header:
    """What is known when a dump starts."""

    target: str  # the sensor, as it was named
    identity: Identity
    layout: Layout
    anchor: Anchor  # wall and monotonic time at the start; turns the rows' monotonic times into Unix times
    interval_s: float | None = None  # seconds from row to row, if the dump is thinned; None: every row of the sensor
    calibration: str | None = None  # digest of the calibration profile that was applied
    version: str = ""  # version of pmtpy
    # seconds between two readings of a register, of which those that brought nothing new make no row; None: a stream
    polled_s: float | None = None
    # whether rows bear the device's own times; else those of the readings, or of a stream's arrival
    stamped: bool = False
    # whether times of rows are as a clock told them, to the microsecond; else they may be cut off, or rounded
    uncut: bool = False
    # as in :class:`Ending`, as far as they are known by now
    aged_s: float = 0.0
    time_u_s: float = 0.0
    # whether the times of rows are of the host's monotonic clock; else they are Unix times, as a recording that
    # somebody else made has them, and ``anchor`` pairs each with itself
    host_clock: bool = True
    converted_from: str = ""  # the recording that this one is made of, and its format; empty: of a sensor
    # Of a recording, those that it tells of. What is measured now ends with them instead (:class:`Ending`).
    regions: tuple[RecordedRegion, ...] = ()
    marks: tuple[RecordedMark, ...] = ()
    virtual_known: bool = True  # whether it is known if the far side is emulated; a recording may not say
    judge: Judge | None = None  # judges the energies of regions, for formats that state them
    # where it is measured and which job it belongs to, as :func:`pmtpy.io.origin.origin_of` says it
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def downsampled(self) -> bool:
        """Whether each row stands for an interval of a stream."""
        return self.interval_s is not None and self.polled_s is None


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when a dump ends."""

    anchor: Anchor  # wall and monotonic time at the end, so that the drift between the two shows
    rows: int  # rows in the file
    lost: int  # rows that the sensor lost: they never reached the writer
    dropped: int  # rows that the sensor delivered and the file misses: the writer fell behind, or the disk refused them
    complete: bool  # true only after a clean end with nothing dropped
    error: str = ""  # what went wrong; empty if nothing did
    regions: tuple[RecordedRegion, ...] = ()  # regions that the program measured meanwhile
    remarks: tuple[str, ...] = ()  # what the sensor knows of the dump beyond its rows, in whole sentences
    time_u_s: float = 0.0  # standard uncertainty of the times of the rows, common to all of them, seconds
    # how old a value may be at its row, seconds: the time between two polls; 0 where rows bear the instant of renewal
    aged_s: float = 0.0
    # seconds for which the energy of the total, or of the channel that lacks most, is not known; None: nobody counted
    uncovered_s: float | None = None
    short_s: float = 0.0  # of it: how long before the end, because nothing that shows it has come
    marks: tuple[RecordedMark, ...] = ()  # in order; without those of the device's own stream, which are rows of it
    load: RecordedLoad | None = None  # None: nothing is known


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is written. Fields as the arguments of :func:`pmtpy.io.write.open_sink`."""

    overwrite: bool = False
    absolute: bool | None = None
    columns: Sequence[tuple[str, Sequence[int]]] | None = None
    into: Path | None = None  # a trace to merge with, where a format can


class Sink(Protocol):
    """A place that rows are written to. Used by one thread at a time.

    Made of an output (of a path, where the format is a folder), a header and options. Rows bear the total first; their
    times rise, on the clock of ``header.anchor``; their joules count from when the sensor was opened.
    """

    def write(self, frame: Frame) -> None:
        """Write all rows of ``frame``, or none of them and raise :class:`~pmtpy.errors.SinkError`."""
        ...

    def close(self, ending: Ending) -> Ending:
        """Write what is known now and close the file. Called once, whatever happened before.

        Returns
        -------
        Ending
            As it stands in the file: a sink that kept rows back may have found no room for them.

        Raises SinkError: the end could not be written. The file is closed all the same.
        """
        ...


def _known(anchor: Anchor) -> dict[str, int]:
    return {k: v for k, v in asdict(anchor).items() if v is not None}


def _identity(header: Header) -> dict[str, object]:
    known = asdict(header.identity)
    if header.virtual_known:
        return known
    notes = [n for n in header.identity.notes if n != UNKNOWN_VIRTUAL]
    return known | {"virtual": None, "notes": (*notes, UNKNOWN_VIRTUAL)}


def metadata(header: Header, columns: tuple[str, ...], ending: Ending | None = None) -> dict[str, object]:
    """Everything about a dump that is not a row, ready for JSON. Without an ending it is marked incomplete."""
    in_total = {header.layout.energy[i - 1].name for i in header.layout.in_total}
    facts: dict[str, object] = {
        "format": _FORMAT_VERSION,
        "target": header.target,
        "virtual": header.identity.virtual if header.virtual_known else None,
        "identity": _identity(header),
        "columns": columns,
        "channels": [described(c, in_total=c.name in in_total) for c in header.layout.channels],
        "interval_s": header.interval_s,
        "polled_s": header.polled_s,
        "stamped": header.stamped,
        "uncut": header.uncut,
        "aged_s": ending.aged_s if ending else header.aged_s,
        "calibration": header.calibration,
        "anchors": {"start": _known(header.anchor), "end": _known(ending.anchor) if ending else None},
        "versions": {"pmtpy": header.version, "python": platform.python_version(), "numpy": np.__version__},
        "rows": ending.rows if ending else None,
        "lost": ending.lost if ending else None,
        "dropped": ending.dropped if ending else None,
        "complete": ending.complete if ending else False,
        "error": ending.error if ending else "",
        "remarks": ending.remarks if ending else (),
        "time_u_s": ending.time_u_s if ending else None,
        "uncovered_s": ending.uncovered_s if ending else None,
    }
    if header.layout.total_apart:
        facts["total_apart"] = True  # a total was recorded, and not of which channels it is made
    facts |= dict(header.origin)
    if ending is not None and ending.regions:
        facts["regions"] = [asdict(r) for r in ending.regions]
    if ending is not None and ending.marks:
        facts["marks"] = [asdict(m) for m in ending.marks]
    if ending is not None and ending.load is not None:
        facts["load"] = asdict(ending.load)
    if header.converted_from:
        facts |= {"converted_from": header.converted_from, "clock": "host" if header.host_clock else "unix"}
    return facts
