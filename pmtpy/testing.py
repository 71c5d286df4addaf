"""The conformance suite that anybody's backend can run: what every source must keep, and whether it tells the truth.

A backend's tests call :func:`check_source` with a function that opens it on an emulated world whose clock the test
moves. Failures are :class:`AssertionError` with a sentence that says which clause was broken.

>>> from pmtpy.testing import check_source
>>> from pmtpy.emulators.rapl import open_virtual
>>> check_source(lambda clock: open_virtual("virtual", clock=clock, load="square:low=30,high=90,hz=1"),
...              load="square:low=30,high=90,hz=1", relative=1e-3)

Each function checks one thing and can be called by itself, for a source that cannot be checked for all of them.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from pmtpy.core.channel import Channel, Derivation, EnergyMethod
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Floats, Layout, Row
from pmtpy.core.source import Source, columns
from pmtpy.emulators.load import Load, parse_load
from pmtpy.errors import SourceLostError
from pmtpy.sensor.sensor import Sensor

Opener = Callable[[ManualClock], Source]

# A reading that waits (sleeps, or for a device) longer than this must say that it is blocking: a user's read() pays.
_PROMPT_S = 0.005
# How long counters are followed: each that says where it turns over, past that; else long enough for 2^32 microjoules
# at a fifth of a watt. And how often they are read meanwhile, at most.
_TURNS_S, _TURNS_READS = 6 * 3600.0, 3000


def _require(condition: bool, clause: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not condition:
        raise AssertionError(clause)


# -- what it says of itself --------------------------------------------------------------------------------------------


def _check_description(source: Source) -> None:
    """Check what a source says of itself: identity, channels, layout, traits."""
    identity = source.identity
    _require(bool(identity.backend), "identity.backend names the backend")
    _require(len(source.channels) > 0, "a source has at least one channel")
    layout = Layout(source.channels)
    _require(len(layout.energy) > 0, "at least one channel measures energy")
    for channel in source.channels:
        _check_channel(channel)
    traits = source.traits
    _require(traits.interval_s > 0, "traits.interval_s is positive")
    _require(traits.deadline_s is None or traits.deadline_s > 0, "traits.deadline_s is positive")


def _check_channel(channel: Channel) -> None:
    name = channel.name
    lowered = name == name.lower() and " " not in name and "," not in name
    _require(lowered, f"channel names are lowercase words without spaces or commas: {name!r}")
    _require(channel.scale != 0 or channel.derivation is not Derivation.DIRECT, f"channel {name} has a scale")
    for what, value in (("refresh_s", channel.refresh_s), ("window_s", channel.window_s), ("wrap", channel.wrap)):
        _require(value is None or value >= 0, f"channel {name}: {what} is not negative")
    if channel.domain:
        parts = channel.domain.split("/")
        clean = all(part and part == part.strip() for part in parts)
        _require(clean, f"channel {name}: a domain is a path such as host/socket0/dram, and not {channel.domain!r}")
        of_energy = channel.measures_energy
        _require(of_energy, f"channel {name}: only what measures energy has a domain, since domains make the total")
    exact = channel.measures_energy and channel.gain_u <= 0
    _require(not exact, f"channel {name}: nothing is exact: gain_u says how far its gain may be off")


# -- how it reads ------------------------------------------------------------------------------------------------------


def _check_block(block: Block, width: int, after_ns: int, now_ns: int) -> int:
    """Check one Block; return the time of its last row."""
    _require(block.raw.shape == (len(block), width), f"a Block has one column per DIRECT channel: {block.raw.shape}")
    _require(block.t_ns.dtype == np.int64, "times are int64 nanoseconds")
    if not len(block):
        return after_ns
    times = np.concatenate([[after_ns], block.t_ns])
    _require(bool(np.all(np.diff(times) > 0)), "times strictly increase, within and across Blocks")
    _require(int(block.t_ns[-1]) <= now_ns, "no row is from the future")
    counts = block.raw.astype(np.float64)
    _require(not bool(np.any(np.isinf(counts))), "counts are finite, or NaN where a column could not be read")
    if block.lost is not None:
        _require(
            block.lost.shape == (len(block),) and bool(np.all(block.lost >= 0)), "lost counts rows before each row"
        )
    _require(all(0 <= row < len(block) for row, _ in block.marks), "marks lie on rows of the Block")
    return int(block.t_ns[-1])


def _block(taken: Block | Row) -> Block:
    return Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken


def _check_reading(source: Source, clock: ManualClock, *, seconds: float = 3.0, step_s: float = 0.05) -> int:
    """Read for a while, as the poller would; check the clauses of ``read``; return the number of rows.

    What was handed out stays as it was: a source that fills one buffer again and again changes rows that others hold.
    """
    last, rows = -1, 0
    held: tuple[Block | Row, Floats] | None = None
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)
        taken = source.read_row()
        if held is not None:
            _check_own(held, taken)
        block = _block(taken)
        last = _check_block(block, columns(source.channels), last, clock.now_ns())
        rows += len(block)
        held = (taken, _content(taken)) if len(block) else held
    _require(rows > 0, f"rows come within {seconds:g} s")
    return rows


def _content(taken: Block | Row) -> Floats:
    """Everything in what was taken, as numbers of its own."""
    parts = (taken.t_ns, taken.raw) if isinstance(taken, Block) else ([taken.t_ns], taken.counts)
    return np.concatenate([np.array(part, np.float64).ravel() for part in parts])


def _check_own(held: tuple[Block | Row, Floats], taken: Block | Row) -> None:
    before, content = held
    clause = "what was read stays as it was: each reading has arrays of its own"
    _require(np.array_equal(_content(before), content, equal_nan=True), clause)
    if isinstance(before, Row) and isinstance(taken, Row):
        _require(before.counts is not taken.counts or isinstance(before.counts, tuple), clause)
    elif isinstance(before, Block) and isinstance(taken, Block) and len(taken):
        shared = np.shares_memory(before.raw, taken.raw) or np.shares_memory(before.t_ns, taken.t_ns)
        _require(not shared, clause)


def check_promptness(source: Source, clock: ManualClock, *, readings: int = 20) -> None:
    """Check that a reading does not wait: neither for something new, nor for the device, unless it is blocking.

    The time that the process did not run is left out as far as it can be: the best of many readings counts, and of five
    times as many where others keep the machine busy.
    """
    best = [math.inf, math.inf]
    for i in range(5 * readings):
        if i >= readings and (source.traits.blocking or max(best) <= _PROMPT_S):
            break
        if i % 2:  # every other time there is something new
            clock.advance(source.traits.interval_s)
        done = threading.Event()
        took: list[float] = []
        thread = threading.Thread(target=_timed, args=(source, took, done), daemon=True, name="check")
        thread.start()
        _require(done.wait(60.0), "a reading returns with what has come; this one still waits after a minute")
        thread.join()
        best[i % 2] = min(best[i % 2], *took)
    waits = max(best) > _PROMPT_S and not source.traits.blocking
    _require(not waits, f"a reading that waits ({max(best) * 1e3:.0f} ms each time) says traits.blocking")


def _timed(source: Source, took: list[float], done: threading.Event) -> None:
    """Read once; note the time that passed without this thread computing."""
    wall, busy = time.perf_counter(), time.thread_time()  # noqa: TID251  (real time: the clock under test stands still)
    try:
        source.read_row()
    finally:
        took.append(time.perf_counter() - wall - (time.thread_time() - busy))  # noqa: TID251
        done.set()


# -- what it tells -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """A stretch of the curve of a source: instants of its first and its last row, joules between them.

    Attributes
    ----------
    start_ns, end_ns : int
    total : float
        NaN where the channels make no total.
    parts : dict of channel to joules
    """

    start_ns: int
    end_ns: int
    total: float
    parts: dict[Channel, float]

    def truth(self, load: Load, epoch_ns: int) -> float:
        """Joules that the load used meanwhile."""
        ends = np.array([self.start_ns - epoch_ns, self.end_ns - epoch_ns]) / 1e9
        start_j, end_j = load.joules(ends)
        return float(end_j - start_j)


def _steps(source: Source, clock: ManualClock, seconds: float, step_s: float) -> Iterator[Block | Row]:
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)
        yield source.read_row()


def _run(source: Source, clock: ManualClock, seconds: float, step_s: float) -> _Run:
    """Integrate a source for a while."""
    layout = Layout(source.channels)
    integrator = Integrator(layout)
    found: list[tuple[int, Floats]] = []
    for taken in _steps(source, clock, seconds, step_s):
        rows = integrator.advance(taken)
        if rows is not None:
            t_ns, joules = np.atleast_1d(rows.t_ns), np.atleast_2d(rows.joules)
            found = [*found[:1], *((int(t_ns[k]), joules[k]) for k in ((0, -1) if not found else (-1,)))]
    if not found:
        msg = f"rows come within {seconds:g} s"
        raise AssertionError(msg)
    (start_ns, first), (end_ns, last) = found[0], found[-1]
    used = last - first
    parts = dict(zip(layout.energy, used[1:].tolist(), strict=True))
    return _Run(start_ns, end_ns, float(used[0]), parts)


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

    The parts must fit the domains that they name: what lies inside another part uses no more than that, and two
    channels of one domain say the same.

    ``epoch_ns`` is the instant of the clock at which the load began (None: now).
    """
    truth = parse_load(load)
    epoch = clock.now_ns() if epoch_ns is None else epoch_ns
    run = _run(source, clock, seconds, step_s)
    _require(math.isfinite(run.total), "the channels make a total")
    true = run.truth(truth, epoch)
    error = run.total - true
    allowed = relative * abs(true) + absolute_joules
    _require(abs(error) <= allowed, f"the total is off by {error:g} J of {true:g} J; allowed are {allowed:g} J")
    _check_domains(run.parts, 2 * allowed)
    return error / true if true else 0.0


def _check_domains(parts: dict[Channel, float], allowed: float) -> None:
    placed = [(channel, joules) for channel, joules in parts.items() if channel.domain]
    for channel, joules in placed:
        for other, theirs in placed:
            if channel is not other and channel.domain == other.domain:
                # An average lags behind a momentary power of the same part, so that much is left.
                apart = abs(joules - theirs) - 0.1 * max(joules, theirs)
                clause = f"{channel.name} ({joules:g} J) and {other.name} ({theirs:g} J) name one domain"
                _require(apart <= allowed, f"{clause}, {channel.domain!r}, and so measure the same")
            elif channel.domain.startswith(f"{other.domain}/"):
                clause = f"{channel.name} ({joules:g} J) is a part of {other.name} ({theirs:g} J) by its domain"
                _require(joules <= 1.1 * theirs + allowed, f"{clause}, {channel.domain!r}, and uses no more")


def _check_turns(
    source: Source, clock: ManualClock, load: str, *, relative: float = 0.01, epoch_ns: int | None = None
) -> None:
    """Follow the counters for hours, past where they turn over, read as seldom as ``traits.deadline_s`` allows.

    Each must go on showing the share of the load that it showed at first: a counter whose ``wrap`` is missing or
    wrong, or whose deadline is too long, does not. A source without counters, or that streams, is not followed.
    """
    layout = Layout(source.channels)
    counters = [c for c in layout.energy if c.energy_method is EnergyMethod.COUNTER]
    if not counters or source.traits.streaming:
        return
    truth = parse_load(load)
    epoch = clock.now_ns() if epoch_ns is None else epoch_ns
    longest = max(source.traits.interval_s, *(c.refresh_s or 0.0 for c in counters))
    step_s = min(0.95 * (source.traits.deadline_s or math.inf), 60.0)
    start = _run(source, clock, 200 * longest, longest)
    before = start.truth(truth, epoch)
    watts = {c: start.parts[c] / ((start.end_ns - start.start_ns) / 1e9) for c in counters}
    turns_s = [1.2 * c.wrap * c.scale / watts[c] for c in counters if c.wrap is not None and watts[c] > 0]
    seconds = max(_TURNS_S, *(t for t in turns_s if t <= _TURNS_READS * step_s), 0.0)
    run = _run(source, clock, min(seconds, _TURNS_READS * step_s), step_s)
    after = run.truth(truth, epoch)
    for channel in counters:
        share, then = start.parts[channel] / before, run.parts[channel] / after
        # A counter of whole joules is off by one at either end.
        off = 4 * channel.smallest_step * (1 / before + 1 / after)
        clause = (
            f"{channel.name} shows {share:.4g} of the load at first and {then:.4g} over {seconds / 3600:.1f} h, read "
            f"every {step_s:.3g} s: check its wrap ({channel.wrap}) and the deadline ({source.traits.deadline_s} s)"
        )
        _require(abs(then - share) <= relative * max(share, then) + off, clause)


# -- how it ends -------------------------------------------------------------------------------------------------------


def _check_end(source: Source) -> None:
    """Check that a source can be closed twice."""
    source.close()
    source.close()


def _check_leaks(open_source: Opener) -> None:
    """Check that nothing is left of sources after closing: descriptors, threads, processes, memory."""
    _use(open_source)  # what is opened once for good, with the first one, is no leak
    before = _belongings()
    left = [_use(open_source) for _ in range(3)]
    gc.collect()
    for what, (had, have) in {k: (v, _belongings()[k]) for k, v in before.items()}.items():
        _require(have <= had, f"after closing, {what} are left: {have - had} of 3 openings")
    _require(all(source() is None for source in left), "a closed source that nobody holds is gone from memory")


def _use(open_source: Opener) -> weakref.ref[Source]:
    clock = ManualClock()
    source = open_source(clock)
    for _ in range(3):
        clock.advance(source.traits.interval_s)
        source.read_row()
    source.close()
    return weakref.ref(source)


def _belongings() -> dict[str, int]:
    """Count what this process has; 0 where the system does not tell."""
    fds, tasks = Path("/proc/self/fd"), Path("/proc/self/task")
    children = [word for t in tasks.glob("*/children") for word in t.read_text().split()]
    return {
        "descriptors": len(os.listdir(fds)) if fds.is_dir() else 0,  # noqa: PTH208  (one of them lists)
        "threads": threading.active_count(),
        "processes": len(children),
    }


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


def _check_sensor(source: Source, clock: ManualClock) -> None:
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
    _check_description(source)
    _check_reading(source, clock)
    check_promptness(source, clock)
    _check_end(source)
    checks: Sequence[Callable[[Source, ManualClock, int], object]] = (
        lambda source, clock, epoch_ns: check_truth(
            source, clock, load, seconds=seconds, step_s=step_s, relative=relative, absolute_joules=absolute_joules,
            epoch_ns=epoch_ns,
        ),
        lambda source, clock, epoch_ns: _check_turns(
            source, clock, load, relative=max(0.01, 2 * relative), epoch_ns=epoch_ns
        ),
    )  # fmt: skip
    for check in checks:
        clock = ManualClock()
        epoch = clock.now_ns()
        source = open_source(clock)
        try:
            check(source, clock, epoch)
        finally:
            _check_end(source)
    clock = ManualClock()
    _check_sensor(open_source(clock), clock)
    _check_leaks(open_source)
