"""What a source says of itself, and what its readings hand out: each clause by itself."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import numpy as np

from pmtpy.core.channel import Channel, Derivation, EnergyMethod
from pmtpy.core.clock import NS_PER_S, ManualClock
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Block, Floats, Layout, Row
from pmtpy.core.source import Source, columns
from pmtpy.testing._require import require

# A reading that waits (sleeps, or for a device) longer than this must say that it is blocking: a user's read() pays.
_PROMPT_S = 0.005
_READINGS, _STEP_S = 60, 0.05  # of three seconds, in which whatever is renewed brings a row
_QUICK_READINGS, _READINGS_IN_A_REFRESH = 64, 8  # so that a counter that moves at each of them is found out
_SCHEDULED = Path("/proc/thread-self/schedstat")


# -- what it says of itself --------------------------------------------------------------------------------------------


def check_description(source: Source) -> None:
    """Check what a source says of itself: identity, channels, layout, traits."""
    identity = source.identity
    require(bool(identity.backend), "identity.backend names the backend")
    require(len(source.channels) > 0, "a source has at least one channel")
    layout = Layout(source.channels)
    require(len(layout.energy) > 0, "at least one channel measures energy")
    for channel in source.channels:
        _check_channel(channel)
    traits = source.traits
    require(traits.interval_s > 0, "traits.interval_s is positive")
    require(traits.deadline_s is None or traits.deadline_s > 0, "traits.deadline_s is positive")


def _check_channel(channel: Channel) -> None:
    name = channel.name
    lowered = name == name.lower() and " " not in name and "," not in name
    require(lowered, f"channel names are lowercase words without spaces or commas: {name!r}")
    require(channel.scale != 0 or channel.derivation is not Derivation.DIRECT, f"channel {name} has a scale")
    for what, value in (("refresh_s", channel.refresh_s), ("window_s", channel.window_s), ("wrap", channel.wrap)):
        require(value is None or value >= 0, f"channel {name}: {what} is not negative")
    if channel.domain:
        parts = channel.domain.split("/")
        clean = all(part and part == part.strip() for part in parts)
        require(clean, f"channel {name}: a domain is a path such as host/socket0/dram, and not {channel.domain!r}")
        of_energy = channel.measures_energy
        require(of_energy, f"channel {name}: only what measures energy has a domain, since domains make the total")
    exact = channel.measures_energy and channel.gain_u <= 0
    require(not exact, f"channel {name}: nothing is exact: gain_u says how far its gain may be off")


# -- how it reads ------------------------------------------------------------------------------------------------------


def _check_block(block: Block, width: int, after_ns: int, now_ns: int) -> int:
    """Check one Block; return the time of its last row."""
    require(block.raw.shape == (len(block), width), f"a Block has one column per DIRECT channel: {block.raw.shape}")
    require(block.t_ns.dtype == np.int64, "times are int64 nanoseconds")
    if not len(block):
        return after_ns
    times = np.concatenate([[after_ns], block.t_ns])
    require(bool(np.all(np.diff(times) > 0)), "times strictly increase, within and across Blocks")
    require(int(block.t_ns[-1]) <= now_ns, "no row is from the future")
    counts = block.raw.astype(np.float64)
    require(not bool(np.any(np.isinf(counts))), "counts are finite, or NaN where a column could not be read")
    if block.lost is not None:
        require(block.lost.shape == (len(block),) and bool(np.all(block.lost >= 0)), "lost counts rows before each row")
    require(all(0 <= row < len(block) for row, _ in block.marks), "marks lie on rows of the Block")
    return int(block.t_ns[-1])


def _block(taken: Block | Row) -> Block:
    return Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken


def check_reading(source: Source, clock: ManualClock) -> None:
    """Read for a while, as the poller would; check the clauses of ``read``.

    What was handed out stays as it was: a source that fills one buffer again and again changes rows that others hold.
    """
    last, rows = -1, 0
    held: tuple[Block | Row, Floats] | None = None
    for _ in range(_READINGS):
        clock.advance(_STEP_S)
        taken = source.read_row()
        if held is not None:
            _check_own(held, taken)
        block = _block(taken)
        last = _check_block(block, columns(source.channels), last, clock.now_ns())
        rows += len(block)
        held = (taken, _content(taken)) if len(block) else held
    require(rows > 0, f"rows come within {_READINGS * _STEP_S:g} s")


def check_refresh(source: Source, clock: ManualClock) -> None:
    """Check that no counter is renewed more than twice as often as its ``refresh_s`` says, by quick readings.

    What such a counter moves by from one reading to the next would be taken for the energy of a whole refresh, and the
    power of the moment would come out too small.
    """
    direct = [c for c in source.channels if c.derivation is Derivation.DIRECT]
    for column, channel in enumerate(direct):
        if channel.energy_method is not EnergyMethod.COUNTER or not channel.refresh_s:
            continue
        counts: list[float] = []
        for _ in range(_QUICK_READINGS):
            clock.advance(channel.refresh_s / _READINGS_IN_A_REFRESH)
            counts += np.asarray(_block(source.read_row()).raw, np.float64)[:, column].tolist()
        moves = int(np.count_nonzero(np.diff([c for c in counts if not math.isnan(c)])))
        stated = _QUICK_READINGS // _READINGS_IN_A_REFRESH
        clause = (
            f"channel {channel.name}: moved {amount(moves, 'time')} in {stated} times its refresh_s of "
            f"{channel.refresh_s:g} s"
        )
        require(moves <= 2 * stated + 1, f"{clause}: state how often it is renewed")


def _content(taken: Block | Row) -> Floats:
    """Everything in what was taken, as numbers of its own."""
    parts = (taken.t_ns, taken.raw) if isinstance(taken, Block) else ([taken.t_ns], taken.counts)
    return np.concatenate([np.array(part, np.float64).ravel() for part in parts])


def _check_own(held: tuple[Block | Row, Floats], taken: Block | Row) -> None:
    before, content = held
    clause = "what was read stays as it was: each reading has arrays of its own"
    require(np.array_equal(_content(before), content, equal_nan=True), clause)
    if isinstance(before, Row) and isinstance(taken, Row):
        require(before.counts is not taken.counts or isinstance(before.counts, tuple), clause)
    elif isinstance(before, Block) and isinstance(taken, Block) and len(taken):
        shared = np.shares_memory(before.raw, taken.raw) or np.shares_memory(before.t_ns, taken.t_ns)
        require(not shared, clause)


def check_promptness(source: Source, clock: ManualClock, *, readings: int = 20) -> None:
    """Check that a reading does not wait: neither for something new, nor for the device, unless it is blocking.

    Only the time counts in which its thread neither computes nor is ready to. What it waits for may itself lack a
    processor: the best of many readings counts, of five times as many where others keep the machine busy.
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
        require(done.wait(60.0), "a reading returns with what has come; this one still waits after a minute")
        thread.join()
        best[i % 2] = min(best[i % 2], *took)
    waits = max(best) > _PROMPT_S and not source.traits.blocking
    require(not waits, f"a reading that waits ({max(best) * 1e3:.0f} ms each time) says traits.blocking")


def _timed(source: Source, took: list[float], done: threading.Event) -> None:
    """Read once; note for how long this thread waited for something that is no processor."""
    wall, at_work = time.perf_counter(), _at_work_s()  # noqa: TID251  (the clock under test stands still)
    try:
        source.read_row()
    finally:
        took.append(time.perf_counter() - wall - (_at_work_s() - at_work))  # noqa: TID251
        done.set()


def _at_work_s() -> float:
    """Return how long this thread has computed, and has been ready without a processor to run on.

    The second is known on Linux alone: the run delay of proc(5), /proc/thread-self/schedstat.
    """
    try:
        ready_ns = int(_SCHEDULED.read_text().split()[1])
    except (OSError, IndexError):
        ready_ns = 0
    return time.thread_time() + ready_ns / NS_PER_S
