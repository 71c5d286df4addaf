"""Reader of the traces of PyTorch's profiler: when a GPU worked, by its own account of each kernel (CUPTI, ROCm).

Facts: Kineto, ``libkineto/src/output_json.cpp`` (schema version 1) and ``ActivityType.cpp``. Complete events (``ph`` X)
of the categories kernel, gpu_memcpy and gpu_memset have ``ts`` and ``dur`` in microseconds, ``args.device`` as the
program numbers its devices. ``ts`` counts from ``baseTimeNanoseconds``, which is Unix time (PyTorch 2.4 and newer),
before that from 1970 itself. An event of the category Trace spans what was profiled. What was launched and what ran
then have the same ``args.correlation``. Known faults: kernels with a time of zero (kineto 109), kernels before their
launch (ROCm's clock; kineto 991, 1082), records that are dropped (pytorch 192021).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pmtpy.core.numbers import real, stated, whole
from pmtpy.core.rows import Ints
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

TRACE = "PyTorch trace"
_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})  # also of HIP
# What of CUDA and HIP starts kernels. All kernels of a CUDA graph have the correlation of its launch (CUPTI); of a HIP
# graph that is not known.
_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|^cudaGraphLaunch")
_COST = 20  # bytes of memory per byte of the text, once it is objects
_FIRST_UNIX_US, _LAST_UNIX_US = 1e15, 3e15  # 2001 and 2065: times before or after are not those of a wall clock
# Shorter rests are those between one kernel and the next. No sensor resolves them (the shortest window of any GPU's is
# 10 ms), and the power with the kernels is the mean with them.
_MIN_REST_NS = 1_000_000
_MOST_MISSING = 0.01  # share of the kernels that were launched; as many as power is known to, by any sensor


class DeviceWork(NamedTuple):
    """When a device worked, in Unix nanoseconds."""

    edges_ns: Ints  # shape (2n,): on, off, on, ...
    # what was profiled: the device did nothing else meanwhile that this program started
    start_ns: int
    end_ns: int


def work_of(document: Mapping[str, Any], device: int | None = None) -> DeviceWork:
    """Return when a device worked, by a trace that was parsed: what ran at the same time is one stretch.

    Parameters
    ----------
    device : int, optional
        As the program numbers its devices. None: the only one that worked.

    Raises
    ------
    ValueError
        It is no such trace, no device worked in it, or it does not say which is meant.
    """
    events = document.get("traceEvents")
    whole = [e for e in (events if isinstance(events, list) else []) if isinstance(e, dict) and e.get("ph") == "X"]
    spans = [e for e in whole if e.get("cat") == "Trace"]
    work = [e for e in whole if e.get("cat") in _WORK]
    launches = [e for e in whole if e.get("cat") in _LAUNCHES and _LAUNCH.search(str(e.get("name")))]
    launched = {known: _us(e) for e in launches if (known := _correlation(e)) is not None}
    ran = frozenset(map(_correlation, work))
    devices = sorted({_device(e) for e in work})
    if device is None and len(devices) > 1:
        msg = (
            f"devices {', '.join(map(str, devices))} worked in it: a program says which is meant by"
            " sensor.load(trace, device=...); else keep the events of one of them"
        )
        raise ValueError(msg)
    work = [e for e in work if device is None or _device(e) == device]
    if not work:
        which = "no device" if device is None else f"device {device}"
        msg = f"{which} worked in it; profile with ProfilerActivity.CUDA (also on ROCm), or take the device that worked"
        raise ValueError(msg)
    _check_whole(launched, ran)
    base = document.get("baseTimeNanoseconds", 0)
    edges, span = _unix_ns(work, base), _unix_ns(spans, base)
    _check_clock(work, edges, span, launched)
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    until = np.maximum.accumulate(edges[:, 1])
    new = np.flatnonzero(edges[1:, 0] - until[:-1] >= _MIN_REST_NS) + 1
    joined = np.stack([edges[np.append(0, new), 0], until[np.append(new - 1, len(edges) - 1)]], axis=1)
    both = np.concatenate([span, joined])
    return DeviceWork(joined.ravel(), int(both.min()), int(both.max()))


def _check_clock(work: list[dict[str, Any]], edges: Ints, span: Ints, launched: Mapping[object, float]) -> None:
    """Refuse a trace in which the device was on another clock than the program."""
    if len(span) and not (span.min() - _MIN_REST_NS <= edges.min() and edges.max() <= span.max() + _MIN_REST_NS):
        msg = "the device worked at times outside of what was profiled, by a clock that is not the host's"
        raise ValueError(msg)
    span = span[np.argsort(span[:, 0])]
    if (span[1:, 0] - np.maximum.accumulate(span[:, 1])[:-1] > _MIN_REST_NS).any():
        msg = "it was profiled several times, and what ran between is not known: export each time by itself"
        raise ValueError(msg)
    early_us = max([launched.get(_correlation(e), -math.inf) - _us(e) for e in work])
    if 1e3 * early_us > _MIN_REST_NS:
        msg = f"kernels begin up to {early_us / 1e3:.3g} ms before they were launched: the device's clock is off"
        raise ValueError(msg)


def _check_whole(launched: Mapping[object, float], ran: frozenset[object]) -> None:
    """Refuse a trace that lacks what was launched: it would pass for rest."""
    missing = len(launched.keys() - ran)
    if missing > _MOST_MISSING * len(launched):
        msg = (
            f"of {len(launched)} kernels that were launched {missing} are not in it, which would pass for rest; "
            "synchronise before the profile ends, and capture graphs before it begins"
        )
        raise ValueError(msg)


def _correlation(event: Mapping[str, Any]) -> object:
    """What a launch and its kernel have in common; None where nobody knows."""
    args = event.get("args")
    return whole(args.get("correlation") if isinstance(args, dict) else None) or None


def _us(event: Mapping[str, Any]) -> float:
    at = real(event.get("ts"))
    return -math.inf if at is None else at


def _device(event: Mapping[str, Any]) -> int:
    args = event.get("args")
    number = whole(args.get("device", event.get("pid")) if isinstance(args, dict) else event.get("pid"))
    return -1 if number is None else number


def _unix_ns(events: list[dict[str, Any]], base: object) -> Ints:
    """Return begin and end of events, shape (n, 2)."""
    try:
        times = np.array([(stated(e, "ts"), stated(e, "dur")) for e in events], np.float64).reshape(-1, 2)
    except (KeyError, ValueError):
        times = np.array([[np.nan, 0.0]])
    zero_ns = whole(base)
    if zero_ns is None or not ((times >= 0.0) & (times < _LAST_UNIX_US)).all():
        msg = "its times are no numbers of microseconds, or cannot be any"
        raise ValueError(msg)
    if len(times) and zero_ns / 1e3 + float(times[:, 0].min()) < _FIRST_UNIX_US:
        msg = "it does not say when it was made (baseTimeNanoseconds): its times cannot be laid beside a sensor's"
        raise ValueError(msg)
    ns = np.rint(times * 1e3).astype(np.int64)
    return np.stack([zero_ns + ns[:, 0], zero_ns + ns[:, 0] + ns[:, 1]], axis=1)


def read_work(path: Path, device: int | None = None) -> DeviceWork:
    """Return when a device worked, by a trace file; gzip is undone.

    Raises
    ------
    FileFormatError
        It is no such trace, or does not tell.
    """
    return _work(Recording(path, skip_broken=False), device)


def _work(recording: Recording, device: int | None) -> DeviceWork:
    try:
        return work_of(json.loads(recording.content(_COST)), device)
    except ValueError as error:
        raise recording.error(f"as a trace of PyTorch's profiler it cannot be used: {error}") from error


def recognises(recording: Recording) -> bool:
    """Whether it is such a trace: a JSON object with a schema version, and devices or events."""
    head = recording.head
    known = b'"schemaVersion"' in head and (b'"deviceProperties"' in head or b'"traceEvents"' in head)
    return head.lstrip()[:1] == b"{" and known


def read(recording: Recording) -> pd.DataFrame:
    """Read when the device worked: rows without power, markers ``on`` and ``off``; first and last what was profiled."""
    recording.unit = "event"
    work = _work(recording, None)
    ns = np.concatenate([[work.start_ns], work.edges_ns, [work.end_ns]])
    labels = ["on", "off"] * (len(work.edges_ns) // 2)
    curve = RecordedCurve(
        ns / 1e9,
        (ns - ns[0]) / 1e9,
        np.arange(1, len(ns) + 1),
        Power("total", np.full(len(ns), np.nan)),
        marks=tuple(enumerate(labels, 1)),
    )
    clock = "host's wall clock (UTC)"
    return table(recording, curve, kind=TRACE, clock=clock, total="none: there is no power in this file")
