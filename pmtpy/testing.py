"""The conformance suite that anybody's backend can run: what every source must keep, and whether it tells the truth.

A backend's tests call :func:`check_source` with a function that opens it on an emulated world whose clock the test
moves. Failures are :class:`AssertionError` with a sentence that says which clause was broken.

>>> from pmtpy.testing import check_source
>>> from pmtpy.emulators.rapl import open_virtual
>>> check_source(lambda clock: open_virtual("virtual", clock=clock, load="square:low=30,high=90,hz=1"),
...              load="square:low=30,high=90,hz=1", relative=1e-3)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from pmtpy.core.channel import Derivation
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Layout, Row
from pmtpy.core.source import Source, columns
from pmtpy.emulators.load import parse_load
from pmtpy.errors import SourceLostError
from pmtpy.sensor.sensor import Sensor

Opener = Callable[[ManualClock], Source]


def _require(condition: bool, clause: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not condition:
        raise AssertionError(clause)


def check_description(source: Source) -> None:
    """Check what a source says of itself: identity, channels, layout, intervals."""
    identity = source.identity
    _require(bool(identity.backend), "identity.backend names the backend")
    _require(len(source.channels) > 0, "a source has at least one channel")
    layout = Layout(source.channels)
    _require(len(layout.energy) > 0, "at least one channel measures energy")
    for channel in source.channels:
        lowered = channel.name == channel.name.lower() and " " not in channel.name and "," not in channel.name
        _require(lowered, f"channel names are lowercase words without spaces or commas: {channel.name!r}")
        ok = channel.scale != 0 or channel.derivation is not Derivation.DIRECT
        _require(ok, f"channel {channel.name} has a scale")
        for name, value in (("refresh_s", channel.refresh_s), ("window_s", channel.window_s)):
            _require(value is None or value >= 0, f"channel {channel.name}: {name} is a time")
    traits = source.traits
    _require(traits.interval_s > 0, "interval_s is positive")
    _require(traits.deadline_s is None or traits.deadline_s > 0, "deadline_s is positive")


def _check_block(block: Block, columns: int, after_ns: int, now_ns: int) -> int:
    """Check one Block; return the time of its last row."""
    _require(block.raw.shape == (len(block), columns), f"a Block has one column per DIRECT channel: {block.raw.shape}")
    _require(block.t_ns.dtype == np.int64, "times are int64 nanoseconds")
    if not len(block):
        return after_ns
    times = np.concatenate([[after_ns], block.t_ns])
    _require(bool(np.all(np.diff(times) > 0)), "times strictly increase, within and across Blocks")
    _require(int(block.t_ns[-1]) <= now_ns, "no row is from the future")
    _require(bool(np.all(np.isfinite(block.raw.astype(np.float64)))), "counts are numbers")
    if block.lost is not None:
        _require(
            block.lost.shape == (len(block),) and bool(np.all(block.lost >= 0)), "lost counts rows before each row"
        )
    _require(all(0 <= row < len(block) for row, _ in block.marks), "marks lie on rows of the Block")
    return int(block.t_ns[-1])


def check_reading(source: Source, clock: ManualClock, *, seconds: float = 3.0, step_s: float = 0.05) -> int:
    """Read for a while, as a pump would; check the clauses of ``read``; return the number of rows."""
    last, rows = -1, 0
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)
        taken = source.read_row()
        block = Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken
        last = _check_block(block, columns(source.channels), last, clock.now_ns())
        rows += len(block)
    _require(rows > 0, f"rows come within {seconds:g} s")
    return rows


def check_truth(
    source: Source,
    clock: ManualClock,
    load: str,
    *,
    seconds: float = 20.0,
    step_s: float = 0.02,
    relative: float = 1e-3,
    absolute_joules: float = 0.0,
    epoch_ns: int | None = None,
) -> float:
    """Integrate the source beside its load and compare; return the relative error of the total.

    ``epoch_ns`` is the instant of the clock at which the load began (None: now).
    """
    truth = parse_load(load)
    epoch = clock.now_ns() if epoch_ns is None else epoch_ns
    integrator = Integrator(Layout(source.channels))
    first = last = None
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)
        rows = integrator.advance(source.read_row())
        if rows is None:
            continue
        t_ns, joules = np.atleast_1d(rows.t_ns), np.atleast_2d(rows.joules)
        first = first or (int(t_ns[0]), float(joules[0, 0]))
        last = (int(t_ns[-1]), float(joules[-1, 0]))
    if first is None or last is None:
        msg = f"rows come within {seconds:g} s"
        raise AssertionError(msg)
    _require(math.isfinite(last[1]), "the channels make a total")
    true = float(truth.joules(np.float64((last[0] - epoch) / 1e9)) - truth.joules(np.float64((first[0] - epoch) / 1e9)))
    error = last[1] - first[1] - true
    allowed = relative * abs(true) + absolute_joules
    _require(abs(error) <= allowed, f"the total is off by {error:g} J of {true:g} J; allowed are {allowed:g} J")
    return error / true if true else 0.0


def check_end(source: Source) -> None:
    """Check that a source can be closed twice."""
    source.close()
    source.close()


def check_lost(source: Source, clock: ManualClock, *, limit_s: float = 30.0, step_s: float = 0.1) -> None:
    """Check that a source whose device has just been taken away says so, and goes on saying so."""
    for _ in range(round(limit_s / step_s)):
        clock.advance(step_s)
        try:
            source.read_row()
        except SourceLostError:
            break
    else:
        msg = f"a device that is gone is reported as SourceLostError within {limit_s:g} s"
        raise AssertionError(msg)
    for _ in range(3):
        try:
            source.read_row()
        except SourceLostError:
            continue
        msg = "a lost source goes on raising SourceLostError"
        raise AssertionError(msg)


def check_sensor(source: Source, clock: ManualClock) -> None:
    """Check that a sensor can be made of the source: states, total, region-like differences."""
    with Sensor(source, "check", clock) as sensor:
        states = []
        for _ in range(20):
            clock.advance(0.1)
            states.append(sensor.read())
        _require(states[0].names[0] == "total", "the first name of a state is the total")
        _require(all(len(s.names) == len(s.joules) == len(s.watts) for s in states), "a state has one value per name")
        _require(all(a.t_ns <= b.t_ns for a, b in pairwise(states)), "states do not go back in time")
        _require(math.isfinite(states[-1].joules[0]), "the total is a number")


def check_source(
    open_source: Opener,
    load: str,
    *,
    seconds: float = 20.0,
    step_s: float = 0.02,
    relative: float = 1e-3,
    absolute_joules: float = 0.0,
) -> None:
    """Run everything on a source that ``open_source(clock)`` opens on an emulated world watching ``load``.

    The load must begin when the source is opened on a fresh clock, as ``open_virtual`` does. ``relative`` and
    ``absolute_joules`` are what the sensor's own model allows (quantisation, refresh): derive them, do not tune them.
    """
    clock = ManualClock()
    source = open_source(clock)
    check_description(source)
    check_reading(source, clock)
    check_end(source)
    clock = ManualClock()
    epoch = clock.now_ns()
    source = open_source(clock)
    check_truth(
        source, clock, load, seconds=seconds, step_s=step_s, relative=relative, absolute_joules=absolute_joules,
        epoch_ns=epoch,
    )  # fmt: skip
    check_end(source)
    clock = ManualClock()
    check_sensor(open_source(clock), clock)
