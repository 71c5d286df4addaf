"""What an acquisition has kept of an interval: all that its energy and the judgement of it are made of.

Nothing in it changes any more, whatever comes later or is forgotten, and nothing in it holds the device.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.signal.renewal import Renewal, renewal
from pmtpy.analysis.uncertainty.ahead import of_late
from pmtpy.analysis.uncertainty.channel_times import is_power, reach_s, renewed_each
from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.interval_statistics import CONTEXT_AHEAD, CONTEXT_SAMPLES, may_be_lag_corrected
from pmtpy.core.calibration.matching import Calibration
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.counters import UNREAD
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import duration
from pmtpy.core.rows import Floats, Frame, Layout
from pmtpy.core.source import Remarks, Timestamps
from pmtpy.sensor.acquisition import Acquisition
from pmtpy.sensor.history import Around, CurvePoint

_CONTEXT_S = CONTEXT_SAMPLES * 0.1  # pollers read every 0.1 s or faster
_STREAM_S = 1e-3 * 0.9  # a period below this is that of a stream: no register is as fast
_MAX_CONTEXT_ROWS = 500  # at either end of a region: more tell nothing new of how the power moves
_LATELY_S = 1.0  # how far back it is looked what a stream does
_OVERDUE = 2.5  # times between rows: one is as old as that where the next was just about to come, and ran late itself
_ALL_S = 1e9  # of what is kept
# Periods of the poller from one poll to the next, at most: where it is on time, and where it reads at random instants.
_POLLED_LATE, _DITHERED = 1.25, 2.0
_SAID_SELDOM = "its readings change at multiples of {} only"
_SAID_PERHAPS = "its readings have changed at multiples of {} only so far"
# By whether there is a profile, and whether it is not known yet.
_WHAT_IT_MEANS = {
    (True, False): "the profile is probably of another register or setting, so the energy is not corrected for how the "
    "sensor follows time, and the gain may be another too; make a profile of this one (pmtpy characterise). A load "
    "that changes at such times alone looks the same",
    (True, True): "whether the profile is of this register is not known yet, and the uncertainty allows for both; more "
    "changes will tell",
    (False, False): "it is taken to be renewed so seldom, and nothing else is known of how it follows time; make a "
    "profile of it (pmtpy characterise). A load that changes at such times alone looks the same",
    (False, True): "whether it is renewed so seldom is not known yet, and the uncertainty allows for both; more "
    "changes will tell",
}


class Facts(NamedTuple):
    """What all regions of one acquisition have in common."""

    layout: Layout
    calibration: Calibration | None
    kernels: Mapping[str, Profile]  # of the channels of power whose profile knows the kernel
    reach_s: tuple[float, ...]  # how long after an instant rows still tell something of it, for each channel of energy
    margin_s: float  # how far around a region rows tell something of it, or of when the register is renewed
    late: tuple[int, ...]  # channels of energy whose lag is counted back
    # channels that are renewed more seldom than is known of them, which then tells nothing of them in time: how often
    seldom_s: Mapping[str, float]
    known_s: Mapping[str, float]  # time between renewals of registers of power, as far as their profiles or makers say

    @classmethod
    def of(cls, made: Acquisition) -> Facts:
        """Return those of an acquisition, which last as long as it does."""
        found = _facts.get(made)
        if found is None:
            found = _facts[made] = cls._worked_out(made, {})
        return found

    @classmethod
    def seen(cls, made: Acquisition, a: CurvePoint, b: CurvePoint) -> tuple[Facts, dict[str, Renewal]]:
        """Return those of an acquisition after a look at all the rows that it keeps, and what they leave open.

        What was found of a register holds until its readings contradict it: later rows may show nothing of it.
        """
        facts, traits, demand = cls.of(made), made.intake.source.traits, made.demand
        registers = (
            [] if traits.streaming else [(i, c.name) for i, c in enumerate(made.layout.energy, 1) if is_power(c)]
        )
        if not registers:
            return facts, {}
        polled_s = max(demand.interval_s, demand.dump_s or 0.0)
        apart_s = polled_s * (_DITHERED if demand.irregular(traits, polled_s) else _POLLED_LATE)
        frames = made.around(a, b, _ALL_S).frames
        t_s = np.concatenate([f.t_ns for f in frames]) / 1e9
        told: dict[str, Renewal] = {}
        seldom = dict(facts.seldom_s)
        for i, name in registers:
            watts = np.concatenate([f.watts[:, i] for f in frames])
            some, known_s = np.isfinite(watts), facts.known_s.get(name, demand.interval_s)
            found = told[name] = renewal(t_s[some], watts[some], known_s, apart_s)
            if found.another:
                seldom.setdefault(name, found.every_s)
            elif found.every_s == known_s:
                seldom.pop(name, None)
        if seldom != facts.seldom_s:
            facts = _facts[made] = cls._worked_out(made, seldom)
        return facts, {name: found for name, found in told.items() if found.share and name not in seldom}

    @classmethod
    def _worked_out(cls, made: Acquisition, seldom_s: Mapping[str, float]) -> Facts:
        layout, calibration = made.layout, made.calibration
        profiles = _kernels(layout, calibration)
        known = {c.name: c.refresh_s for c in layout.energy} | {n: p.response.period_s for n, p in profiles.items()}
        kernels = {n: p for n, p in profiles.items() if n not in seldom_s}
        if seldom_s:
            channels = [renewed_each(c, seldom_s[c.name]) if c.name in seldom_s else c for c in layout.channels]
            layout = replace(layout, channels=tuple(channels))
        reach = tuple([_reach_s(c, kernels.get(c.name)) for c in layout.energy])
        both = zip(layout.energy, reach, strict=True)
        margin = max([_margin_s(c, r, corrected=c.name in kernels) for c, r in both], default=0.0)
        late = tuple([i for i, c in enumerate(layout.energy) if may_be_lag_corrected(c)])
        known_s = {name: period_s for name, period_s in known.items() if period_s}
        return cls(layout, calibration, kernels, reach, margin, late, seldom_s, known_s)

    def strangers(self) -> dict[int, str]:
        """Say of channels, by their place, that they are renewed more seldom than is known of them."""
        known = [(i, c.name) for i, c in enumerate(self.layout.energy) if c.name in self.seldom_s]
        return {i: self._compared(name, self.seldom_s[name]) for i, name in known if name in self.known_s}

    def perhaps_another(self, name: str, every_s: float) -> str:
        """Say of a channel that it may be renewed more seldom than is known of it."""
        return self._compared(name, every_s, perhaps=True)

    def _compared(self, name: str, every_s: float, *, perhaps: bool = False) -> str:
        profiled = self.calibration is not None and name in self.calibration.profiles
        known_s = self.known_s.get(name, 0.0)
        said = (_SAID_PERHAPS if perhaps else _SAID_SELDOM).format(duration(every_s))
        if known_s:
            whose = "what its profile says" if profiled else "what is stated of it"
            said += f", {every_s / known_s:.3g} times {whose} ({duration(known_s)})"
        return f"{said}: {_WHAT_IT_MEANS[profiled, perhaps]}"


_facts: weakref.WeakKeyDictionary[Acquisition, Facts] = weakref.WeakKeyDictionary()


class Kept(NamedTuple):
    """What is known of an interval: what was integrated over it, the rows around it, and what its source remarks."""

    target: str
    identity: Identity
    facts: Facts
    a: CurvePoint
    b: CurvePoint
    # for each channel of energy: what was integrated, and for how long nothing is known
    joules: tuple[float, ...]
    uncovered_s: tuple[float, ...]
    rows: Around  # the rows, in order; of a long interval the middle may be missing
    remarks: Remarks
    # why energy of a channel is not known, or what is known of it not so, by its place
    doubts: Mapping[int, str]
    # for each channel: mean power of a counter that rests, up to then; NaN: it has rested since it began to count
    rested_watts: tuple[float, ...]
    streaming: bool
    carry_s: float
    lately: tuple[Frame, ...]  # rows of a while before the newest one, where others were due and have not come yet
    load: LoadIntervals | None  # when it was on, in seconds from ``a``, where that is known and of use
    open_renewals: Mapping[str, Renewal]  # of channels that may be renewed more seldom than is known of them

    @classmethod
    def of(cls, made: Acquisition, a: CurvePoint, b: CurvePoint) -> Kept:
        """Take it down."""
        (facts, open_), length_ns, source = Facts.seen(made, a, b), b.t_ns - a.t_ns, made.intake.source
        as_open = [_context_s(renewed_each(c, open_[c.name].every_s)) for c in made.layout.energy if c.name in open_]
        margin = max([facts.margin_s, CONTEXT_AHEAD * (a.extended_ns + b.extended_ns) / 1e9, *as_open])
        both = zip(a.uncovered_ns[1:], b.uncovered_ns[1:], strict=True)
        uncovered_s = tuple([min(y - x, length_ns) / 1e9 for x, y in both])
        unread = made.unread(a.t_ns, b.t_ns)
        whys = [
            (i, _because(made.doubt(i + 1, a.t_ns), made.layout.energy[i], unread))
            for i, unknown in enumerate(uncovered_s)
            if unknown
        ]
        return cls(
            made.target,
            source.identity,
            facts,
            a,
            b,
            tuple([y - x for x, y in zip(a.joules[1:], b.joules[1:], strict=True)]),
            uncovered_s,
            made.around(a, b, margin, most=None if facts.kernels else _MAX_CONTEXT_ROWS),
            made.remarks(a.t_ns, b.t_ns),
            {i: why for i, why in whys if why} | facts.strangers(),
            tuple([made.rested_watts(i, a.t_ns) for i in range(1, len(a.joules))]),
            source.traits.streaming,
            made.carry_s,
            _lately(made, b),
            # Twice as far as rows: the first of them show what was before.
            made.loads.about(a.t_ns, b.t_ns, round(2e9 * margin)) if facts.kernels else None,
            open_,
        )

    @property
    def seconds(self) -> float:
        """Length of the interval."""
        return (self.b.t_ns - self.a.t_ns) / 1e9

    @property
    def lost(self) -> int:
        """Rows lost inside."""
        return self.b.lost - self.a.lost

    def settled(self) -> bool:
        """Whether no later row can change the judgement: all that tell of the end have come, or it was read there."""
        if self.a.extended_ns or self.b.extended_ns:
            return False
        newest_ns = max([int(frame.t_ns[-1]) for frame in self.rows.frames if len(frame)])
        past_s = (newest_ns - self.a.t_ns) / 1e9 - self.seconds
        read_there, facts = self.b.after.t_ns == self.b.t_ns, self.facts
        both = zip(facts.reach_s, facts.layout.energy, strict=True)
        return all(past_s >= r for r, c in both if not read_there or is_power(c))

    def interval(self, rows: Frame, columns: Sequence[int]) -> tuple[Interval, bool]:
        """Return what was integrated of some channels, and whether rows of it are forgotten that would tell more."""
        a, b, came = self.a, self.b, self.b.rows - self.a.rows
        inside = np.count_nonzero((rows.t_ns > a.t_ns) & (rows.t_ns <= b.t_ns))
        forgotten = 2 * inside < min(came, _MAX_CONTEXT_ROWS)
        joules, unknown = ([values[i] for i in columns] for values in (self.joules, self.uncovered_s))
        interval = Interval(
            self.seconds,
            joules,
            unknown,
            self.lost,
            self.remarks.time_u_s,
            self.remarks.missing_s,
            self.remarks.aged_s,
            # Each update of a stream is a row; of a register nobody knows what polls that are forgotten have missed.
            self.seconds / came if forgotten and self.streaming else 0.0,
            self.carry_s,
            of_late(self.lately, columns, *self._carried()) if self.lately else (),
            [self.rested_watts[i] for i in columns],
            self.left_out_s(),
            self.remarks.failure,
        )
        return interval, forgotten

    def _carried(self) -> tuple[int, float]:
        """For how long the newest power was taken to go on, ns, and the length of the interval up to there."""
        carried_ns = min(self.b.extended_ns, round(self.carry_s * 1e9))
        return carried_ns, self.seconds - (self.b.extended_ns - carried_ns) / 1e9

    def left_out_s(self) -> list[tuple[float, float]]:
        """Return from when to when rows are not kept any more, or not needed, from the beginning of the interval."""
        return [((x - self.a.t_ns) / 1e9, (y - self.a.t_ns) / 1e9) for x, y in self.rows.left_out_ns]

    def times_s(self, rows: Frame) -> Floats:
        """Return when rows were, from the beginning of the interval."""
        return np.asarray(rows.t_ns - self.a.t_ns, np.float64) / 1e9


def _lately(made: Acquisition, b: CurvePoint) -> tuple[Frame, ...]:
    """Return the rows that tell what a power does while none has come though it was due; nothing where they have."""
    traits, apart_s = made.intake.source.traits, made.intake.period_s
    if traits.timestamps is Timestamps.DEVICE_UPDATE:  # a row for what is new alone
        apart_s = max([apart_s, *[c.refresh_s or 0.0 for c in made.layout.energy]])
    due_s = 0.0 if traits.streaming else _OVERDUE * apart_s
    if b.extended_ns <= due_s * 1e9:
        return ()
    return made.around(b, b, max(_LATELY_S, CONTEXT_AHEAD * b.extended_ns / 1e9)).frames


def _kernels(layout: Layout, calibration: Calibration | None) -> dict[str, Profile]:
    """Return the profiles of the channels of power that know the kernel."""
    profiles = calibration.profiles if calibration is not None else {}
    powers = [c for c in layout.energy if is_power(c) and c.name in profiles] if profiles else []
    return {c.name: profiles[c.name] for c in powers if profiles[c.name].response.shaped}


def _reach_s(channel: Channel, profile: Profile | None) -> float:
    if profile is None:
        return reach_s(channel)
    from pmtpy.analysis.energy.live import after_s  # only those who have a profile pay for it

    return max(reach_s(channel), after_s(profile.response))


def _margin_s(channel: Channel, reach: float, *, corrected: bool) -> float:
    if not corrected:
        return max(_context_s(channel), reach)
    from pmtpy.analysis.energy.live import ROWS_BEFORE_S

    return max(_context_s(channel), ROWS_BEFORE_S, 2.0 * reach)


def _context_s(channel: Channel) -> float:
    """How far around a region rows tell something of it.

    A register may be polled far less often than it refreshes, so that seconds are needed; of a stream, nothing is.
    """
    refresh = channel.refresh_s
    context = CONTEXT_SAMPLES * refresh if refresh is not None and refresh < _STREAM_S else _CONTEXT_S
    return max(context, CONTEXT_SAMPLES * (refresh or 0.0), 2.0 * (channel.window_s or 0.0), reach_s(channel))


def _because(doubt: str, channel: Channel, unread: Mapping[str, str]) -> str:
    """Return why the energy of a channel is not known, with the reason of the source where it gave one."""
    whys = [unread[name] for name in (channel.name, *channel.operands) if name in unread]
    return f"{doubt}; the last time: {whys[0]}" if doubt == UNREAD and whys else doubt
