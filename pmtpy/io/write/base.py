"""What every file format needs to know, and what it must offer: Header, Ending, and the Sink they are given to.

Pure data. Facts about the columns themselves are in :mod:`pmtpy.io.columns`.
"""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np

from pmtpy.core.channel import Channel, Identity
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame, Layout

FORMAT_VERSION = 1
"""Of the metadata written beside or inside a file; a reader refuses a greater one."""


@dataclass(frozen=True, slots=True)
class Header:
    """What is known when a dump starts.

    Attributes
    ----------
    target : str
        The sensor, as it was named.
    identity : Identity
    layout : Layout
    anchor : Anchor
        Wall and monotonic time at the start; turns the rows' monotonic times into Unix times.
    interval_s : float or None
        Seconds from row to row, if the dump is thinned; None: every row of the sensor.
    calibration : str or None
        Digest of the calibration profile that was applied.
    version : str
        Version of pmtpy.
    polled_s : float or None
        Seconds between two readings of a register, of which those that brought nothing new make no row; None: a stream.
    stamped : bool
        Whether rows bear the device's own times; else those of the readings, or of a stream's arrival.
    """

    target: str
    identity: Identity
    layout: Layout
    anchor: Anchor
    interval_s: float | None = None
    calibration: str | None = None
    version: str = ""
    polled_s: float | None = None
    stamped: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when a dump ends.

    Attributes
    ----------
    anchor : Anchor
        Wall and monotonic time at the end, so that the drift between the two shows.
    rows : int
        Rows in the file.
    lost : int
        Rows that the sensor lost: they never reached the writer.
    dropped : int
        Rows that the sensor delivered and the file misses: the writer fell behind, or the disk refused them.
    complete : bool
        True only after a clean end with nothing dropped.
    error : str
        What went wrong; empty if nothing did.
    """

    anchor: Anchor
    rows: int
    lost: int
    dropped: int
    complete: bool
    error: str = ""


class Sink(Protocol):
    """A place that rows are written to. Used by one thread at a time."""

    def write(self, frame: Frame) -> None:
        """Write all rows of ``frame``, or none of them and raise :class:`~pmtpy.errors.SinkError`."""
        ...

    def close(self, ending: Ending) -> Ending:
        """Write what is known now and close the file. Called once, whatever happened before.

        Returns
        -------
        Ending
            As it stands in the file: a sink that kept rows back may have found no room for them.

        Raises
        ------
        SinkError
            The end could not be written. The file is closed all the same.
        """
        ...


# What the fields of a channel are called in files.
_KEYS = {"derivation": "form", "operands": "of", "method": "rule"}


def _channel(channel: Channel, *, in_total: bool) -> dict[str, object]:
    facts = asdict(channel)
    del facts["energy_method"], facts["response"]  # the one as "rule" below, the other in short
    facts |= {"refresh_s": channel.refresh_s, "window_s": channel.window_s, "lag_s": channel.lag_s}
    known = {_KEYS.get(k, k): v for k, v in facts.items() if v not in {None, "", (), math.inf}}
    return known | {
        "quantity": channel.quantity.name.lower(),
        "unit": channel.unit,
        "form": channel.derivation.value,
        "rule": channel.energy_method.value if channel.measures_energy else None,
        "in_total": in_total,
    }


def metadata(header: Header, columns: tuple[str, ...], ending: Ending | None = None) -> dict[str, object]:
    """Everything about a dump that is not a row, ready for JSON. Without an ending it is marked incomplete."""
    in_total = {header.layout.energy[i - 1].name for i in header.layout.in_total}
    return {
        "format": FORMAT_VERSION,
        "target": header.target,
        "virtual": header.identity.virtual,
        "identity": asdict(header.identity),
        "columns": columns,
        "channels": [_channel(c, in_total=c.name in in_total) for c in header.layout.channels],
        "interval_s": header.interval_s,
        "polled_s": header.polled_s,
        "stamped": header.stamped,
        "calibration": header.calibration,
        "anchors": {"start": asdict(header.anchor), "end": asdict(ending.anchor) if ending else None},
        "versions": {"pmtpy": header.version, "python": platform.python_version(), "numpy": np.__version__},
        "rows": ending.rows if ending else None,
        "lost": ending.lost if ending else None,
        "dropped": ending.dropped if ending else None,
        "complete": ending.complete if ending else False,
        "error": ending.error if ending else "",
    }
