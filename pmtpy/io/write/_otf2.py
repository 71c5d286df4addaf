"""OTF2 archives (``.otf2``), for Vampir, Score-P's tools and ``otf2-print``: metrics with unit and mode, regions.

The folder that is written holds ``traces.otf2`` and what belongs to it. Written by the package ``otf2`` of the Score-P
team (extra ``otf2``). Modes say what a value is of: a momentary power ABSOLUTE_POINT, a mean since the last sample
ABSOLUTE_LAST, energy since the start ACCUMULATED_START.

The sensors of a POWER9 machine are called as Score-P's plugin ``ibmpowernv`` calls them, with its units and modes
(score-p/scorep_plugin_ibmpowernv, 1635035): whoever has used it finds the same metrics. Two things are better here:
``_energy`` is the firmware's own sum, where the plugin multiplies a mean with the time that passed; and the plugin's
momentary ``occ_power_system`` has no counterpart, because recordings hold means.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pmtpy._extras import extra
from pmtpy.core.rows import Frame
from pmtpy.errors import SinkError
from pmtpy.io.write._trace import Counter, Slice, Story, about, counters, edges, lanes, title, worked
from pmtpy.io.write.base import Ending, Header, Options
from pmtpy.io.write.file import Target

_TICKS = 10**9  # per second
_LEAST_FREE = 1 << 16  # bytes; with less, a disk is full
# The plugin's names by those of the firmware's sensors.
_POWER9 = {
    "PWRSYS": "system", "PWRGPU": "gpu", "PWRPROC": "proc", "PWRVDD": "vdd", "PWRVDN": "vdn", "PWRMEM": "mem",
}  # fmt: skip


class Otf2Sink:
    """Writes an OTF2 archive."""

    def __init__(self, target: Target, header: Header, _how: Options) -> None:
        if not isinstance(target, str) and not hasattr(target, "__fspath__"):
            msg = "an OTF2 archive is a folder, and cannot go to a stream"
            raise SinkError(msg)
        with extra("otf2", "writing OTF2 archives"):
            import otf2
        self._otf2, self._header, self._path = otf2, header, Path(target)
        self._fault: type[Exception] = importlib.import_module("_otf2.ErrorCodes").Error
        self._shown = counters(header)
        self._story = Story(header, self._shown)
        self._attributes: dict[str, Any] = {}
        self._first_ns: int | None = None
        self._last_ns = 0
        self._archive: Any = otf2.writer.Writer(str(target), timer_resolution=_TICKS)
        self._archive.description = about(header, None)
        self._archive.creator = f"pmtpy {header.version}"
        made = self._archive.definitions
        node = made.system_tree_node("machine", class_name="machine")
        self._group = made.location_group(title(header), system_tree_parent=node)
        place = made.location("sensor", group=self._group, type=otf2.LocationType.METRIC)
        self._members = [self._member(made, c) for c in self._shown]
        # Values of one class come together: what is missing alone must be able to stay out.
        self._metrics = [
            made.metric_instance(
                made.metric_class([member], occurrence=otf2.MetricOccurrence.ASYNCHRONOUS), recorder=place, scope=node
            )
            for member in self._members
        ]
        self._events = self._archive.event_writer_from_location(place)

    def _member(self, made: Any, counter: Counter) -> Any:
        name, mode = metric(self._header, counter)
        return made.metric_member(
            name,
            about(self._header, counter),
            unit=counter.unit,
            metric_mode=getattr(self._otf2.MetricMode, mode),
            value_type=self._otf2.Type.DOUBLE,
        )

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``."""
        if not len(frame):
            return
        try:
            self._write(frame)
        except self._fault as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> SinkError:
        """Give the archive up, which else would try again when it is deleted, and say why."""
        self._archive._handle = None  # noqa: SLF001
        full = shutil.disk_usage(self._path.parent).free < _LEAST_FREE
        return SinkError(f"cannot write to {self._path}: {os.strerror(errno.ENOSPC) if full else error}")

    def _write(self, frame: Frame) -> None:
        self._story.take(frame)
        shown = [c.column.of(frame) for c in self._shown]
        values = np.stack(shown, axis=1) if shown else np.empty((len(frame), 0))
        write = self._events.metric
        for t, row in zip(frame.t_ns.tolist(), values.tolist(), strict=True):
            for instance, value in zip(self._metrics, row, strict=True):
                if value == value:  # noqa: PLR0124  (NaN: what is not known has no event)
                    write(t, instance, value)
        self._first_ns = int(frame.t_ns[0]) if self._first_ns is None else self._first_ns
        self._last_ns = int(frame.t_ns[-1])

    def close(self, ending: Ending) -> Ending:
        """Append regions, markers and gaps, and close the archive."""
        try:
            return self._close(ending)
        except self._fault as error:
            raise self._failed(error) from error

    def _attribute(self, name: str) -> Any:
        if name not in self._attributes:
            self._attributes[name] = self._archive.definitions.attribute(
                name=f"pmtpy::{name}", description="of the region, by the recording", type=self._otf2.Type.DOUBLE
            )
        return self._attributes[name]

    def _close(self, ending: Ending) -> Ending:
        made, otf2 = self._archive.definitions, self._otf2
        marks = [Slice(label, t, t) for t, label in self._story.markers()]
        kinds: tuple[tuple[str, Sequence[Slice]], ...] = (
            ("regions", self._story.regions(ending.regions)),
            ("load", worked(ending)),
            ("gaps", self._story.gaps()),
            ("markers", marks),
        )
        regions: dict[tuple[str, str], Any] = {}
        for kind, slices in kinds:
            for number, lane in enumerate(lanes(slices)):
                name = f"{kind} {number + 1}" if number else kind
                place = made.location(name, group=self._group, type=otf2.LocationType.CPU_THREAD)
                events = self._archive.event_writer_from_location(place)
                for t, one, begins in edges(lane):
                    key = (kind, one.label)
                    if key not in regions:
                        regions[key] = made.region(one.label, region_role=otf2.RegionRole.CODE)
                    if begins:
                        known = {self._attribute(name): value for name, value in one.facts}
                        events.enter(t, regions[key], attributes=known or None)
                    else:
                        events.leave(t, regions[key])
        if self._first_ns is not None:
            # The package takes the time of its first call for that of the first event; a recording has its own.
            first = min([self._first_ns, *(one.start_ns for _, slices in kinds for one in slices)])
            anchor = self._header.anchor
            self._archive._realtime_timestamp = anchor.unix_s(first)  # noqa: SLF001
        self._archive.close()
        return ending


def metric(header: Header, counter: Counter) -> tuple[str, str]:
    """Return name and mode of a metric."""
    found = _power9(counter) if header.identity.backend == "occ" else None
    energy = counter.column.array == "joules"
    if found is not None:
        stem, socket = found
        return (
            f"{stem}{'_energy' if energy else '_from_energy'}{socket}",
            "ACCUMULATED_LAST" if energy else "ABSOLUTE_LAST",
        )
    if energy:
        return counter.name, "ACCUMULATED_START"
    return counter.name, "ABSOLUTE_LAST" if counter.mean else "ABSOLUTE_POINT"


def _power9(counter: Counter) -> tuple[str, str] | None:
    """Return the plugin's name of a sensor, and its socket; None: the plugin does not know it."""
    channel = counter.channel
    if channel is None or counter.column.array == "values":
        return None
    sensor = _POWER9.get(channel.label.partition(":")[0])
    if sensor is None:
        return None
    socket = re.match(r"socket(\d+)\.", channel.name)
    return f"occ_power_{sensor}", f".{socket[1]}" if socket and sensor != "system" else ""
