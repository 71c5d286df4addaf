"""Perfetto's protobuf trace (``.pftrace``): counter tracks with units, regions as slices, gaps, clocks at both ends.

Message types are those of the package ``perfetto`` (extra ``perfetto``). What is written, and why:

* A counter keeps its value until the next one. So a mean stands at the start of its interval, and where rows are lost
  or a value is missing, a slice on the track "gaps" says so.
* Each counter is a sequence of its own, whose defaults name its track: events of several values ("extra" counters) are
  shorter, but the Trace Processor (v52) reads wrong values for them, and takes eight at most.
* Times are those of the host's monotonic clock, with a snapshot of it, of the wall clock and of the boot clock at both
  ends, so that the trace lines up with the system's own traces, also where the wall clock was set meanwhile.

Source of the meaning of fields: protos/perfetto/trace in the package, and perfetto.dev/docs/reference. The tests read
what is written with Perfetto's own Trace Processor.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np

from pmtpy._extras import extra
from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Floats, Frame, Ints
from pmtpy.io.write._trace import Counter, Slice, Story, about, counters, edges, lanes, title, worked
from pmtpy.io.write.base import Ending, Header, Options
from pmtpy.io.write.file import Output

_REALTIME, _MONOTONIC, _BOOTTIME = 1, 3, 6  # BuiltinClock
_CLEARED, _NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_CLOCKS, _STORY, _FIRST = 1, 2, 3  # sequences, and the first of those of counters; the times of one are in order
_BATCH = 1 << 13  # rows that are messages at the same time


class PerfettoSink:
    """Writes a Perfetto trace."""

    def __init__(self, output: Output, header: Header, _how: Options) -> None:
        with extra("perfetto", "writing Perfetto traces"):
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
        self._new_trace: Any = Trace
        self._output, self._header = output, header
        self._clock = _MONOTONIC if header.host_clock else _REALTIME
        # Traces that are opened together must not have tracks in common.
        name = f"{header.target} {header.converted_from} {header.anchor}"
        first = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=5).digest(), "little") << 20
        self._uuids = itertools.count(first + 1)
        shown = counters(header)
        self._story = Story(header, shown)
        self._before_ns: int | None = None
        output.empty()
        trace = self._new_trace()
        self._snapshot(trace, header.anchor)
        self._root = self._track(trace, title(header), about(header, None))
        self._series = dict(enumerate(shown, start=_FIRST))
        for sequence, counter in self._series.items():
            self._begin(trace, sequence, self._counter_track(trace, counter))
        self._begin(trace, _STORY, None)
        self._write(trace)

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``."""
        if not len(frame):
            return
        self._story.take(frame)
        for sequence, counter in self._series.items():
            values, times = counter.column.of(frame), frame.t_ns
            if counter.mean:  # it holds for the interval that ends with its row, and the first row ends none
                times = frame.t_ns[:-1] if self._before_ns is None else np.insert(frame.t_ns[:-1], 0, self._before_ns)
                values = values[len(values) - len(times) :]
            known = np.isfinite(values)  # what is not known has no event
            self._values(sequence, times[known], values[known])
        self._before_ns = int(frame.t_ns[-1])

    def _values(self, sequence: int, t_ns: Ints, values: Floats) -> None:
        for start in range(0, len(t_ns), _BATCH):
            rows = slice(start, start + _BATCH)
            trace = self._new_trace()
            add = trace.packet.add
            for t, value in zip(t_ns[rows].tolist(), values[rows].tolist(), strict=True):
                packet = add(timestamp=t, trusted_packet_sequence_id=sequence, sequence_flags=_NEEDS_STATE)
                event = packet.track_event
                event.type, event.double_counter_value = _COUNTER, value
            self._write(trace)

    def close(self, ending: Ending) -> Ending:
        """Append regions, markers and gaps, and the clocks of the end."""
        trace = self._new_trace()
        kinds = (
            ("regions", self._story.regions(ending.regions)),
            ("load", worked(ending)),
            ("gaps", self._story.gaps()),
        )
        for name, slices in kinds:
            for number, lane in enumerate(lanes(slices)):
                track = self._track(trace, f"{name} {number + 1}" if number else name, "", self._root)
                for t, one, begins in edges(lane):
                    self._edge(trace, track, t, one, begins=begins)
        markers = self._story.markers()
        track = self._track(trace, "markers", "", self._root) if markers else 0
        for t, label in markers:
            event = self._event(trace, t, track, _INSTANT)
            event.name = label
        self._snapshot(trace, ending.anchor)
        self._write(trace)
        self._output.close()
        return ending

    # -- messages --------------------------------------------------------------------------------------------------

    def _write(self, trace: Any) -> None:
        """Append messages: traces in protobuf that follow each other are one trace."""
        self._output.write(trace.SerializeToString())

    def _snapshot(self, trace: Any, anchor: Anchor) -> None:
        packet = trace.packet.add(trusted_packet_sequence_id=_CLOCKS)
        known = {_REALTIME: anchor.unix_ns}
        if self._header.host_clock:
            known[_MONOTONIC] = anchor.monotonic_ns
        if self._header.host_clock and anchor.boottime_ns is not None:
            known[_BOOTTIME] = anchor.boottime_ns
        for clock, t_ns in known.items():
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=t_ns)
        packet.clock_snapshot.primary_trace_clock = max(known)  # the boot clock, as that of the system's traces

    def _begin(self, trace: Any, sequence: int, track: int | None) -> None:
        """Say what the events of a sequence have in common: their clock, and the track of a counter."""
        packet = trace.packet.add(trusted_packet_sequence_id=sequence, sequence_flags=_CLEARED)
        packet.trace_packet_defaults.timestamp_clock_id = self._clock
        if track is not None:
            packet.trace_packet_defaults.track_event_defaults.track_uuid = track

    def _track(self, trace: Any, name: str, told: str = "", parent: int | None = None) -> int:
        packet = trace.packet.add(trusted_packet_sequence_id=_CLOCKS)
        uuid = next(self._uuids)
        track = packet.track_descriptor
        track.uuid, track.name = uuid, name
        if parent is not None:
            track.parent_uuid = parent
        if told:
            track.description = told
        return uuid

    def _counter_track(self, trace: Any, counter: Counter) -> int:
        uuid = self._track(trace, counter.name, about(self._header, counter), self._root)
        described = trace.packet[-1].track_descriptor.counter
        described.unit_name = counter.unit
        if counter.column.array == "watts":
            described.y_axis_share_key = "watts"  # powers can be told apart by their height
        return uuid

    def _event(self, trace: Any, t_ns: int, track: int, kind: int) -> Any:
        packet = trace.packet.add(timestamp=t_ns, trusted_packet_sequence_id=_STORY, sequence_flags=_NEEDS_STATE)
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        return packet.track_event

    def _edge(self, trace: Any, track: int, t_ns: int, one: Slice, *, begins: bool) -> None:
        event = self._event(trace, t_ns, track, _BEGIN if begins else _END)
        if begins:
            event.name = one.label
            for name, value in one.facts:
                event.debug_annotations.add(name=name, double_value=value)
