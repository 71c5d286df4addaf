"""Whether a source tells the truth: its energy beside that of the load that it watches, for seconds and for hours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pmtpy.core.channel import Channel, EnergyMethod
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Floats, Layout, Row
from pmtpy.core.source import Source
from pmtpy.emulators.load import Load, parse_load
from pmtpy.testing._require import require

# How long counters are followed: each that says where it turns over, past that; else long enough for 2^32 microjoules
# at a fifth of a watt. And how often they are read meanwhile, at most.
_TURNS_S, _TURNS_READS = 6 * 3600.0, 3000


@dataclass(frozen=True, slots=True)
class _Run:
    """A stretch of the curve of a source: instants of its first and its last row, joules between them.

    Attributes
    ----------
    start_ns, end_ns : int
    total : float
        NaN where the channels make no total.
    parts : dict of channel to joules
    doubts : str
        Why some of what channels showed was not believed, and so is not in the joules; as the end of a sentence.
    """

    start_ns: int
    end_ns: int
    total: float
    parts: dict[Channel, float]
    doubts: str

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
    doubts = [f"; {layout.names[i]}: {why}" for i, (_, why) in sorted(integrator.doubts.items())]
    return _Run(start_ns, end_ns, float(used[0]), parts, "".join(doubts))


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
    require(math.isfinite(run.total), "the channels make a total")
    true = run.truth(truth, epoch)
    error = run.total - true
    allowed = relative * abs(true) + absolute_joules
    clause = f"the total is off by {error:g} J of {true:g} J; allowed are {allowed:g} J"
    require(abs(error) <= allowed, clause + run.doubts)
    _check_domains(run, 2 * allowed)
    return error / true if true else 0.0


def _check_domains(run: _Run, allowed: float) -> None:
    placed = [(channel, joules) for channel, joules in run.parts.items() if channel.domain]
    for channel, joules in placed:
        for other, theirs in placed:
            one, two = f"{channel.name} ({joules:g} J)", f"{other.name} ({theirs:g} J)"
            # A counter is off by up to a step at either end.
            steps = [c.smallest_step for c in (channel, other) if c.energy_method is EnergyMethod.COUNTER]
            apart = allowed + 2 * sum(steps)
            if channel is not other and channel.domain == other.domain:
                # An average lags behind a momentary power of the same part, so that much is left.
                clause = f"{one} and {two} name one domain, {channel.domain!r}, and so measure the same"
                require(abs(joules - theirs) - 0.1 * max(joules, theirs) <= apart, clause + run.doubts)
            elif channel.domain.startswith(f"{other.domain}/"):
                clause = f"{one} is a part of {two} by its domain, {channel.domain!r}, and uses no more"
                require(joules <= 1.1 * theirs + apart, clause + run.doubts)


def check_turns(
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
        require(abs(then - share) <= relative * max(share, then) + off, clause + run.doubts)
