"""Chrome's JSON trace (``.json``): counters and regions, alone or merged into a trace that a program wrote before.

The format has one axis, in microseconds, and no clocks: where its zero is depends on who wrote the trace. PyTorch says
so by ``baseTimeNanoseconds`` (Unix). Other traces (VizTracer's go by the monotonic clock) are held against the times of
the recording, on the wall clock and on the monotonic one, and refused where they fit neither. The events of a user's
trace are passed on as they are. Units have no field, and stand in the names.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pmtpy.core.rows import Frame
from pmtpy.errors import FileFormatError, SinkError, TargetError
from pmtpy.io.write._trace import Slice, Story, about, counters, lanes, title, worked
from pmtpy.io.write.base import Ending, Header, Options
from pmtpy.io.write.file import Output

_BASE = "baseTimeNanoseconds"
_NS_PER_US = 1e3
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_PID = 2**22 + 7  # above what Linux gives to processes, so that it is no process of the user's trace; or the next free


class ChromeSink:
    """Writes a trace in Chrome's JSON. A trace to merge with is read, and not changed."""

    def __init__(self, output: Output, header: Header, how: Options) -> None:
        self._output, self._header, self._into = output, header, how.into
        self._theirs = _read_trace(how.into) if how.into is not None else None
        self._shown = counters(header)
        self._story = Story(header, self._shown)
        self._offset_ns: int | None = None  # of the axis, from the times of rows
        self._before_ns: int | None = None
        self._comma = ""
        self._pid = _PID
        self._stretch_ns: tuple[float, float] | None = None  # of the other trace, on the clock of the rows
        self._first_ns = 0  # time of the first row
        output.empty()

    def _begin(self, frame: Frame) -> int:
        anchor = self._header.anchor
        unix_ns = anchor.unix_offset_ns  # Unix time of the rows' zero
        if self._theirs is None:
            offset_ns = -int(frame.t_ns[0])
            beginning: dict[str, Any] = {"displayTimeUnit": "ns", _BASE: unix_ns - offset_ns}
            events: Iterable[Any] = ()
        else:
            stamps = _stamps(self._theirs)
            clocks = {"wall": unix_ns, **({"monotonic": 0} if self._header.host_clock else {})}
            offset_ns = _zero(self._theirs, stamps, int(frame.t_ns[0]), clocks, str(self._into))
            if stamps:
                self._stretch_ns = stamps[0] - offset_ns, stamps[1] - offset_ns
            beginning = {k: v for k, v in self._theirs.items() if k != "traceEvents"}
            events = self._theirs["traceEvents"]
            taken = {event.get("pid") for event in events if isinstance(event.get("pid"), (int, str))}
            self._pid = next(pid for pid in itertools.count(_PID) if pid not in taken)
        self._first_ns = int(frame.t_ns[0])
        own = {"target": self._header.target, "about": about(self._header, None), "pid": self._pid}
        # A trace may have been merged with another recording before.
        beginning["pmtpy"] = own | ({"before": beginning["pmtpy"]} if "pmtpy" in beginning else {})
        text = json.dumps(beginning, ensure_ascii=False)
        self._output.write((text[:-1] + ', "traceEvents": [').encode("utf-8", "backslashreplace"))
        self._events(events)
        self._theirs = None
        names = [("process_name", {"name": title(self._header)}), ("process_sort_index", {"sort_index": -1})]
        self._events({"ph": "M", "pid": self._pid, "name": name, "args": args} for name, args in names)
        return offset_ns

    def _events(self, events: Iterable[Any]) -> None:
        """Append events."""
        self._texts(map(_ENCODER.encode, events))

    def _texts(self, texts: Iterable[str]) -> None:
        parts, size = [], 0
        for text in texts:
            parts.append(f"{self._comma}\n{text}")
            self._comma = ","
            size += len(text)
            if size > 1 << 20:
                self._output.write("".join(parts).encode("utf-8", "backslashreplace"))
                parts, size = [], 0
        self._output.write("".join(parts).encode("utf-8", "backslashreplace"))

    def write(self, frame: Frame) -> None:
        """Append the rows of ``frame``."""
        if not len(frame):
            return
        if self._offset_ns is None:
            self._offset_ns = self._begin(frame)
        self._story.take(frame)
        self._texts(self._counters(frame))
        self._before_ns = int(frame.t_ns[-1])

    def _counters(self, frame: Frame) -> Iterator[str]:
        """Yield an event for each value as text: there are millions, which differ in two numbers."""
        starts = np.append(-1 if self._before_ns is None else self._before_ns, frame.t_ns[:-1]).tolist()
        times = frame.t_ns.tolist()
        for counter in self._shown:
            unit = _ENCODER.encode(counter.unit)
            event = _ENCODER.encode({"ph": "C", "pid": self._pid, "name": f"{counter.name} [{counter.unit}]"})
            values = counter.column.of(frame).tolist()
            # A mean holds for the interval that ends with its row, and the first row ends none.
            for t, value in zip(starts if counter.mean else times, values, strict=True):
                if math.isfinite(value) and t != -1:
                    yield f'{event[:-1]},"ts":{self._us(t)!r},"args":{{{unit}:{value!r}}}}}'

    def _us(self, t_ns: int) -> float:
        return (t_ns + (self._offset_ns or 0)) / _NS_PER_US

    def close(self, ending: Ending) -> Ending:
        """Append regions, markers and gaps, and the end.

        Raises SinkError: the trace that it was merged with is of another time.
        """
        self._require_overlap()
        tid = 1
        kinds = (
            ("regions", self._story.regions(ending.regions)),
            ("load", worked(ending)),
            ("gaps", self._story.gaps()),
        )
        for kind, slices in kinds:
            for number, lane in enumerate(lanes(slices)):
                self._events(self._lane(tid, f"{kind} {number + 1}" if number else kind, lane))
                tid += 1
        marks = self._story.markers()
        self._events(
            {"ph": "i", "s": "p", "pid": self._pid, "tid": tid, "name": m, "ts": self._us(t)} for t, m in marks
        )
        self._output.write(b"\n]}\n")
        self._output.close()
        return ending

    def _require_overlap(self) -> None:
        if self._stretch_ns is None or self._before_ns is None:
            return
        begin, end = self._stretch_ns
        apart_s = max(begin - self._before_ns, self._first_ns - end) / 1e9
        if apart_s > _MAX_LEAD_NS / 1e9:
            when = "before the recording" if end < self._first_ns else "after it"
            msg = (
                f"{self._into} is of another time: by its {_BASE} it lies {apart_s:,.0f} s {when}; nothing was merged."
                " Name the trace of the run that was recorded, or convert to .pftrace and open both side by side"
            )
            raise SinkError(msg)

    def _lane(self, tid: int, name: str, lane: Iterable[Slice]) -> Iterator[dict[str, Any]]:
        yield {"ph": "M", "pid": self._pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for one in lane:
            event: dict[str, Any] = {
                "ph": "X",
                "pid": self._pid,
                "tid": tid,
                "name": one.label,
                "ts": self._us(one.start_ns),
            }
            event["dur"] = (one.end_ns - one.start_ns) / _NS_PER_US
            yield event | ({"args": dict(one.facts)} if one.facts else {})


def _read_trace(path: Path) -> dict[str, Any]:
    """Read a trace in Chrome's JSON, which may be packed by gzip.

    Raises TargetError: it cannot be read.
    Raises FileFormatError: it is none, or not whole.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        found: Any = json.loads(content)
    except (OSError, ValueError, EOFError, zlib.error, RecursionError) as error:
        msg = f"{path} is no trace in Chrome's JSON, or not whole: {error}; nothing was merged, and it is as it was"
        raise FileFormatError(msg) from error
    if isinstance(found, list):
        found = {"traceEvents": found}
    events = found.get("traceEvents") if isinstance(found, dict) else None
    if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
        msg = f"{path} has no list of traceEvents: it is no trace in Chrome's JSON; nothing was merged"
        raise FileFormatError(msg)
    trace: dict[str, Any] = found
    return trace


def _stamps(theirs: dict[str, Any]) -> tuple[float, float] | None:
    """Return the first and the last time in a trace, in nanoseconds since its zero; None: it has none."""
    timed = [e for e in theirs["traceEvents"] if type(e.get("ts")) in {int, float} and e.get("ph") != "M"]
    starts = [e["ts"] for e in timed if math.isfinite(e["ts"])]
    ends = [
        e["ts"] + e["dur"] for e in timed if type(e.get("dur")) in {int, float} and math.isfinite(e["ts"] + e["dur"])
    ]
    return (min(starts) * _NS_PER_US, max(starts + ends) * _NS_PER_US) if starts else None


def _zero(
    theirs: dict[str, Any], stamps: tuple[float, float] | None, start: int, clocks: dict[str, int], path: str
) -> int:
    """Return what to add to the times of rows for those of a trace that somebody else wrote, nanoseconds.

    ``start`` is the time of the first row, and ``clocks`` what makes others of it.

    Raises SinkError: the trace does not tell, and its times fit no clock of the recording.
    """
    base = theirs.get(_BASE)
    if isinstance(base, str) and base.strip().lstrip("-").isdecimal():  # of tools to whose numbers it is too large
        base = int(base)
    if isinstance(base, (int, float)) and not isinstance(base, bool) and math.isfinite(base):
        return clocks["wall"] - int(base)
    side = "convert to .pftrace and open both files side by side"
    if stamps is None:
        msg = f"{path} has no event with a time, by which it could be merged; {side}"
        raise SinkError(msg)
    begin, end = stamps
    fitting = [name for name, zero in clocks.items() if begin - _MAX_LEAD_NS <= start + zero <= end]
    if begin < _MAX_LEAD_NS or not fitting:  # the first: its zero is its own beginning
        has = f"its {_BASE} is no number" if _BASE in theirs else f"it has no {_BASE}"
        msg = (
            f"{path} does not say of which clock its times are ({has}), and they fit neither the wall clock"
            f" nor the monotonic clock of the recording; {side}, or record both at the same time on one machine"
        )
        raise SinkError(msg)
    return clocks[fitting[0]]


_MAX_LEAD_NS = 60e9  # a recording begins within a trace that it belongs to, or not long before it
