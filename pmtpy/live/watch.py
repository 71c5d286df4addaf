"""What several sensors say now and said of late, gathered a few times a second from their histories.

A look takes what has come since the look before; of a register it is the one reading that a look costs. A sensor that
was lost is opened again.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pmtpy.core.channel import Quantity, summable, without
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.rows import Floats, Ints, Layout, Point
from pmtpy.errors import PmtError
from pmtpy.live._hierarchy import Node, hierarchy
from pmtpy.live._reopening import Reopening
from pmtpy.sensor.acquisition import Acquisition
from pmtpy.sensor.history import CurvePoint
from pmtpy.sensor.sensor import Sensor, acquisition_of

_SPARKS = 60
_SLICES_PER_WINDOW = 100  # of a window: where it begins is known that finely, whatever the time between looks
_MIN_COUNTER_STEPS = 10  # of a counter between two readings whose power is held for a least or greatest one
_FEWEST_STEPS = 2  # of a counter, for its power now
_REMARKS_S = 5.0  # between questions to the source of what it knows beyond its rows


@dataclass(frozen=True, slots=True)
class Shown:
    """One power, as it is now. NaN: not known."""

    node: Node
    watts: float  # of the newest row, unless that is too old to tell of now
    # over the window: energy over the time that is covered, least and greatest row
    mean: float
    low: float
    high: float
    joules: float  # since the start, or the last reset
    age_s: float  # of the newest row
    coverage: float  # share of the time since the start for which energy is known
    lost: int  # rows lost since the start
    alive: bool  # false: the sensor is lost, and the values are its last
    past: tuple[float, ...]  # mean watts between looks, the newest last


@dataclass(frozen=True, slots=True)
class Look:
    """All powers at one instant."""

    seconds: float  # since the start, or the last reset
    powers: Sequence[Shown]
    total: Shown | None  # the sum of what can be summed; None where that cannot be told
    why: str  # why there is no total, or what it lacks
    notes: tuple[str, ...]  # what a reader of the numbers must know
    was_reset: bool = False  # seconds, joules, losses and coverage count from a reset


class _Piece(NamedTuple):
    """A part of the window: where it begins, and its least and greatest powers. It ends where the next one begins."""

    begin: Point | CurvePoint
    low: list[float]
    high: list[float]


@dataclass(slots=True)
class _Past:
    """What was seen of one sensor. Of the watching thread."""

    reopening: Reopening
    start: Point | None = None
    newest: Point | None = None
    step_ns: int = 0  # from the row before the newest one to that
    lost: int = 0
    window: deque[_Piece] = field(default_factory=deque)
    means: deque[list[float]] = field(default_factory=lambda: deque(maxlen=_SPARKS))
    alive: bool = True
    remarks: tuple[str, ...] = ()
    remarked_ns: int = 0


class Watch:
    """Watches sensors. Used by one thread at a time.

    Parameters
    ----------
    sensors : sequence of Sensor
        Open; they stay so.
    window_s : float
        Over which mean, least and greatest power are taken.
    """

    def __init__(self, sensors: Sequence[Sensor], window_s: float = 10.0, clock: Clock = HOST_CLOCK) -> None:
        self.sensors = list(sensors)
        self.window_s = window_s
        self._clock = clock
        self._layouts = [acquisition_of(s).layout for s in sensors]
        self.nodes = hierarchy([(s.target, layout) for s, layout in zip(sensors, self._layouts, strict=True)])
        parts = [
            (sensors[i].target, c.domain, i, column)
            for i, layout in enumerate(self._layouts)
            for column, c in enumerate(layout.energy, start=1)
        ]
        named = [(target, domain) for target, domain, _, _ in parts]
        chosen, self._no_total = summable(named)
        self._lacks = "; ".join(without(named))
        self._summed = [parts[i][2:] for i in chosen]
        self._past = [_Past(Reopening(s)) for s in sensors]
        self._start_ns = clock.now_ns()
        self._looked = self._was_reset = False

    def reset(self) -> None:
        """Count joules, seconds, losses and coverage from now on: what has come until now is taken first."""
        self._start_ns, self._was_reset = self._taken(), True
        for past in self._past:
            past.start, past.lost = past.newest, 0

    def look(self) -> Look:
        """Take what has come, and say how things stand."""
        now_ns = self._taken()
        if not self._looked:
            self._start_ns, self._looked = now_ns, True
        powers = [self._shown(node, now_ns) for node in self.nodes]
        total, why = self._total(now_ns)
        virtual = [s.target for s in self.sensors if s.identity.virtual]
        notes = [
            *([f"virtual, the energy is emulated: {', '.join(virtual)}"] if virtual else []),
            *(f"{s.target}: {text}" for s, p in zip(self.sensors, self._past, strict=True) for text in p.remarks),
        ]
        seconds = (now_ns - self._start_ns) / NS_PER_S
        return Look(seconds, powers, total, why, tuple(dict.fromkeys(notes)), self._was_reset)

    def opening(self, sensor: Sensor) -> threading.Thread | None:
        """Return the thread that last tried to open a lost sensor again; None: none has."""
        return self._past[self.sensors.index(sensor)].reopening.thread

    # -- taking ----------------------------------------------------------------------------------------------------

    def _taken(self) -> int:
        """Take what has come of every sensor, and return the instant that it reaches to."""
        now_ns = self._clock.now_ns()
        for sensor, past in zip(self.sensors, self._past, strict=True):
            self._take(sensor, past, now_ns)
        return self._clock.now_ns()

    def _take(self, sensor: Sensor, past: _Past, now_ns: int) -> None:
        made = acquisition_of(sensor)
        if past.reopening.look():
            past.alive = False
            return
        since_s = self.window_s if past.newest is None else (now_ns - past.newest.t_ns) / NS_PER_S
        try:
            recent = sensor.history(max(since_s, 0.0))
        except PmtError:
            past.alive = False
            return
        past.alive = True
        if not len(recent) or (past.newest is not None and recent.t_ns[-1] <= past.newest.t_ns):
            return
        newest = made.as_known(made.bookmark(int(recent.t_ns[-1])))[0].after
        before = recent.t_ns[-2:-1].tolist() or ([past.newest.t_ns] if past.newest is not None else [newest.t_ns])
        past.step_ns = newest.t_ns - before[0]
        if past.start is None:
            past.start = newest
        if past.newest is not None:
            new = recent.t_ns > past.newest.t_ns
            past.lost += int(recent.lost[new].sum())
            past.means.append(_means(made.layout, past.newest, newest))
            past.window.extend(self._pieces(made, past.newest, recent.t_ns[new], recent.watts[new]))
        _shorten(past.window, newest, newest.t_ns - round(self.window_s * NS_PER_S))
        past.newest = newest
        if now_ns - past.remarked_ns > _REMARKS_S * NS_PER_S:
            past.remarks = (*sensor.identity.notes, *made.remarks(past.remarked_ns or self._start_ns, now_ns).warnings)
            past.remarked_ns = now_ns

    def _pieces(self, made: Acquisition, since: Point, t_ns: Ints, watts: Floats) -> list[_Piece]:
        """Cut new rows into parts of a hundredth of the window, which therefore begins where it should."""
        steps_ns = _settled_ns(made.layout)
        step_ns = max(round(self.window_s * NS_PER_S), int(t_ns[-1]) - since.t_ns) // _SLICES_PER_WINDOW + 1
        cuts = np.searchsorted(t_ns, np.arange(since.t_ns + step_ns, t_ns[-1], step_ns))
        starts = np.unique(np.concatenate(([0], cuts)))
        # Two readings of a counter that follow each other by a few of its steps tell little of its power.
        settled = np.diff(t_ns, prepend=since.t_ns)[:, None] >= steps_ns
        watts = np.where(settled, watts, np.nan)
        low, high = np.fmin.reduceat(watts, starts).tolist(), np.fmax.reduceat(watts, starts).tolist()
        begins: list[Point | CurvePoint] = [since]
        begins += made.as_known(*(made.bookmark(int(t_ns[row - 1])) for row in starts[1:]))
        return [_Piece(*piece) for piece in zip(begins, low, high, strict=True)]

    # -- saying ----------------------------------------------------------------------------------------------------

    def _shown(self, node: Node, now_ns: int) -> Shown:
        past, i = self._past[node.sensor], node.column
        newest, start = past.newest, past.start
        without = i == 0 and not self._layouts[node.sensor].in_total  # a zero would pass for a measurement
        if newest is None or start is None or without:
            nothing = (math.nan,) * 5
            age_s = math.nan if newest is None else (now_ns - newest.t_ns) / NS_PER_S
            return Shown(node, *nothing, age_s, math.nan, past.lost, past.alive, ())
        age_s = (now_ns - newest.t_ns) / NS_PER_S
        fresh = past.alive and not acquisition_of(self.sensors[node.sensor]).is_stale(newest.t_ns)
        passed_ns = newest.t_ns - start.t_ns
        unknown_ns = min(abs(newest.uncovered_ns[i] - start.uncovered_ns[i]), passed_ns)
        if not past.alive:
            passed_ns, unknown_ns = now_ns - start.t_ns, unknown_ns + now_ns - newest.t_ns
        return Shown(
            node,
            self._watts_now(past, newest, node) if fresh else math.nan,
            _means(self._layouts[node.sensor], past.window[0].begin, newest)[i] if past.window else math.nan,
            float(np.fmin.reduce([p.low[i] for p in past.window], initial=math.nan)),
            float(np.fmax.reduce([p.high[i] for p in past.window], initial=math.nan)),
            newest.joules[i] - start.joules[i],
            age_s,
            1.0 - unknown_ns / passed_ns if passed_ns else math.nan,
            past.lost,
            past.alive,
            tuple(m[i] for m in past.means),
        )

    def _watts_now(self, past: _Past, newest: Point, node: Node) -> float:
        """Return the power at the newest row: of a counter its mean over as many of its steps as tell it to a tenth.

        Over as many as the window has, where these are fewer, and two at least.
        """
        layout = self._layouts[node.sensor]
        needed_ns = _settled_ns(layout)[node.column]
        if past.step_ns >= needed_ns:
            return newest.watts[node.column]
        begins = [piece.begin for piece in past.window]
        reaching = (begin for begin in reversed(begins) if newest.t_ns - begin.t_ns >= needed_ns)
        far = next(reaching, begins[0] if begins else newest)
        if newest.t_ns - far.t_ns < needed_ns * _FEWEST_STEPS / _MIN_COUNTER_STEPS:
            return math.nan
        return _means(layout, far, newest)[node.column]

    def _total(self, now_ns: int) -> tuple[Shown | None, str]:
        if not self._summed:
            return None, self._no_total
        gone = sorted({self.sensors[i].target for i, _ in self._summed if not self._past[i].alive})
        if gone:
            return None, f"{', '.join(gone)} is lost"
        parts = [self._shown(Node(i, column, "", 0, 0), now_ns) for i, column in self._summed]
        if len(self.sensors) == 1:
            return None, ""  # its own line is the total
        node = Node(-1, 0, "total", 0, -1)
        watts, mean, joules = (math.fsum(getattr(p, k) for p in parts) for k in ("watts", "mean", "joules"))
        past = tuple(map(math.fsum, zip(*(p.past for p in parts), strict=False)))
        ages = max(p.age_s for p in parts)
        lost = sum(self._past[i].lost for i in {i for i, _ in self._summed})
        # The least and greatest power of a sum are not those of its parts: they need not fall together.
        coverage = min(p.coverage for p in parts)
        return Shown(
            node, watts, mean, math.nan, math.nan, joules, ages, coverage, lost, alive=True, past=past
        ), self._lacks


def _settled_ns(layout: Layout) -> Floats:
    """How long after a reading the next one tells the power of a counter to a tenth, per column; 0: at once."""
    each = [
        _MIN_COUNTER_STEPS * (c.refresh_s or 0.0) * NS_PER_S if c.quantity is Quantity.ENERGY else 0.0
        for c in layout.energy
    ]
    return np.array([max((each[i - 1] for i in layout.in_total), default=0.0), *each])


def _shorten(window: deque[_Piece], newest: Point, start_ns: int) -> None:
    """Let the window begin at an instant, where it reaches further back. In its oldest piece power counts as even."""
    while len(window) > 1 and window[1].begin.t_ns <= start_ns:
        window.popleft()
    if window and window[0].begin.t_ns < start_ns:
        a, b = window[0].begin, window[1].begin if len(window) > 1 else newest
        part = (start_ns - a.t_ns) / (b.t_ns - a.t_ns)
        joules = tuple(x + (y - x) * part for x, y in zip(a.joules, b.joules, strict=True))
        unknown = tuple(u + round((v - u) * part) for u, v in zip(a.uncovered_ns, b.uncovered_ns, strict=True))
        window[0] = window[0]._replace(begin=newest._replace(t_ns=start_ns, joules=joules, uncovered_ns=unknown))


def _means(layout: Layout, a: Point | CurvePoint, b: Point) -> list[float]:
    """Mean watts between two rows, per column."""
    seconds, unknown_ns = (b.t_ns - a.t_ns) / NS_PER_S, np.subtract(b.uncovered_ns, a.uncovered_ns)
    watts: list[float] = layout.mean_watts(np.subtract(b.joules, a.joules), seconds, unknown_ns / NS_PER_S).tolist()
    return watts
