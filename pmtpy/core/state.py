"""The curve at one instant, and what lies between two of them.

A :class:`State` is frozen: it says for ever what was known when it was read. What the counts mean that it was read with
is worked out when somebody asks, from all rows in their order, so it is the same whenever that is. Where a state had to
let the last power go on beyond the newest row, later rows know better; :func:`joules` and :func:`watts` ask them, so
that a counter that moves after a state was read does not show its correction as somebody's energy. Nothing here reads
a device.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pmtpy.core import arguments
from pmtpy.core.rows import Point
from pmtpy.errors import CoverageError, TargetError


class Place(Protocol):
    """Where a state lies on its curve: of one whose row is not worked out, or that was extended beyond the newest."""

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return the states of one sensor as the rows that have come by now show them, all by the same rows.

        A state at a row is the same one, filled in.
        """
        ...


@dataclass(frozen=True, slots=True)
class State:
    """The curve of one sensor at one instant.

    Attributes
    ----------
    target : str
        The sensor, e.g. ``rapl`` or ``powersensor3:/dev/ttyACM0``.
    t_ns : int
        The instant, on the host's monotonic clock (``time.monotonic_ns``).
    timestamp : float
        The same instant as Unix seconds, by the anchor that the sensor took when it was opened.
    names : tuple of str
        ``"total"``, then the channels that measure energy.
    joules : tuple of float
        Energy since the sensor was opened, per name, as it was known at the call. For the energy between two states
        use :func:`joules`: the difference of these would contain what the sensor corrected meanwhile.
    watts : tuple of float
        Power at the instant, per name. For a counter: the mean since it last moved, or before that where it moved too
        soon to say since when; NaN until it has moved twice, or once after more than a refresh.
    uncovered_ns : tuple of int
        Time without known energy since opening, per name.
    lost : int
        Rows lost since opening.
    extended_ns : int
        How far the instant lies beyond the newest reading of the device, for the first part of which the last power was
        assumed to go on; 0 if it is the instant of a reading.
    opening : int
        Which opening of the sensor it belongs to: counting begins anew with each, and their states do not subtract.
    parts : tuple of int
        Which of the names make the total.
    place : Place or None
        Knows the energy, or knows it better once the device has been read again; None where all is known for good.
    """

    target: str
    t_ns: int
    timestamp: float
    names: tuple[str, ...]
    joules: tuple[float, ...]
    watts: tuple[float, ...]
    uncovered_ns: tuple[int, ...] = ()
    lost: int = 0
    extended_ns: int = 0
    opening: int = 0
    parts: tuple[int, ...] = field(default=(), repr=False, compare=False)
    place: Place | None = field(default=None, repr=False, compare=False)

    if not TYPE_CHECKING:  # for a type checker every field is there

        def __getattr__(self, name: str) -> object:
            """Work out what the row of this state means: Python asks here for what is not filled in."""
            if name in _FROM_THE_ROW:
                place = self.place
                if place is not None:
                    place.settle((self,))
            return object.__getattribute__(self, name)


_FROM_THE_ROW = frozenset({"joules", "watts", "uncovered_ns", "lost"})
_put_joules, _put_watts, _put_uncovered_ns, _put_lost, _put_place = (
    State.__dict__[name].__set__ for name in ("joules", "watts", "uncovered_ns", "lost", "place")
)  # twice as fast as object.__setattr__


def fill_in(state: State, row: Point, lost: int) -> None:
    """Give a state of :meth:`Origin.at_instant` what its row turned out to mean; several threads may do so at once."""
    _put_joules(state, row.joules)
    _put_watts(state, row.watts)
    _put_uncovered_ns(state, row.uncovered_ns)
    _put_lost(state, lost)
    _put_place(state, None)  # in the end: who finds no place finds the rest


class _Draft:
    """A :class:`State` that is not frozen yet.

    A frozen dataclass is filled through ``object.__setattr__``, which for a State takes 0.9 us, a tenth of the reading
    that it is made for. Assignments take 0.1 us, and the language lets an object change to a class of the same slots.
    """

    __slots__ = State.__slots__

    target: str
    t_ns: int
    timestamp: float
    names: tuple[str, ...]
    joules: tuple[float, ...]
    watts: tuple[float, ...]
    uncovered_ns: tuple[int, ...]
    lost: int
    extended_ns: int
    opening: int
    parts: tuple[int, ...]
    place: Place | None


@dataclass(frozen=True, slots=True)
class Origin:
    """What all states of one sensor share."""

    target: str
    names: tuple[str, ...]  # as of the states
    unix_ns: int  # Unix time less monotonic time
    opening: int = 0
    parts: tuple[int, ...] = ()  # as of the states

    def at_row(self, row: Point, lost: int) -> State:
        """Return the state at the instant of a row, up to which ``lost`` rows were lost."""
        state = self.at_instant(row.t_ns, None)
        fill_in(state, row, lost)
        return state

    def at_instant(self, t_ns: int, place: Place | None) -> State:
        """Return the state at a row that ``place`` works out when somebody asks, by :func:`fill_in`."""
        draft = _Draft()
        draft.target = self.target
        draft.t_ns = t_ns
        draft.timestamp = (t_ns + self.unix_ns) / 1e9
        draft.names = self.names
        draft.extended_ns = 0
        draft.opening = self.opening
        draft.parts = self.parts
        draft.place = place
        draft.__class__ = State  # type: ignore[assignment]  # Python checks that the slots are the same
        return draft  # type: ignore[return-value]


def _index(a: State, b: State, channel: str | int | None) -> int:
    for state in (a, b):
        arguments.instance(state, State, "a state, which sensor.read() returns")
    if a.target != b.target or a.names != b.names:
        msg = f"the two states belong to different sensors: {a.target} and {b.target}"
        raise TargetError(msg)
    if a.opening != b.opening:
        msg = (
            f"{a.target} was closed and opened again between the two states, or they are of two sensors of that name:"
            " each counts its joules from zero; take both states from one opening"
        )
        raise TargetError(msg)
    if channel is None:
        return 0
    if isinstance(channel, int) and not isinstance(channel, bool):
        if 0 <= channel < len(a.names):
            return channel
    elif isinstance(channel, str) and channel in a.names:
        return a.names.index(channel)
    msg = f"{a.target} has no channel {channel!r}; it has: {', '.join(a.names)}"
    raise TargetError(msg)


def seconds(a: State, b: State) -> float:
    """Seconds from state ``a`` to state ``b``; negative if ``b`` is the earlier one."""
    _index(a, b, None)
    return (b.t_ns - a.t_ns) / 1e9


_WORTH_A_WARNING = 1e-3  # share of an interval without known energy that a user should hear of
LEAST_COVERAGE = 0.95
"""Share of a time whose energy must be known: with less, its joules would pass for something that they are not."""


@dataclass(frozen=True, slots=True)
class KnownEnergy:
    """What is known of the energy between two states."""

    joules: float  # of the time that is covered
    covered_s: float  # how much that is, seconds; negative between states in reverse order
    doubt: str = ""  # what is not known, in a sentence; empty where all is
    too_little: bool = False  # the joules would pass for something that they are not


def known_energy(a: State, b: State, channel: str | int | None = None) -> KnownEnergy:
    """Return what is known of the energy from ``a`` to ``b``, by the rows that have come by now. Refuses no gap.

    Raises TargetError: the states belong to different sensors, or there is no such channel.
    """
    i = _index(a, b, channel)
    place = a.place or b.place
    if place is not None:
        a, b = place.settle((a, b))
    span = b.t_ns - a.t_ns
    length = abs(span)
    unknown = min(abs(b.uncovered_ns[i] - a.uncovered_ns[i]), length) if a.uncovered_ns and b.uncovered_ns else 0
    energy, covered_s = b.joules[i] - a.joules[i], (length - unknown) / (1e9 if span >= 0 else -1e9)
    if unknown <= _WORTH_A_WARNING * length:
        return KnownEnergy(energy, covered_s)
    msg = f"{a.target}: the energy of {unknown / 1e9:g} s of the {length / 1e9:g} s between the two states is not known"
    return KnownEnergy(energy, covered_s, msg, unknown > (1.0 - LEAST_COVERAGE) * length)


def _energy(a: State, b: State, channel: str | int | None) -> float:
    """Joules from ``a`` to ``b`` of one name, refused where too little of them is known."""
    known = known_energy(a, b, channel)
    if known.too_little:
        msg = (
            f"{known.doubt} (lost rows, a restart, a counter that rests although its part is powered, or counters that"
            " were not read in time; a region keeps them read)"
        )
        raise CoverageError(msg)
    if known.doubt:
        warnings.warn(known.doubt, stacklevel=3)
    return known.joules


def joules(a: State, b: State, channel: str | int | None = None) -> float:
    """Energy from state ``a`` to state ``b`` in joules; of the total, or of the channel named or numbered.

    Evaluated with the rows that have come by now: where a state had to be extended beyond the newest reading of the
    device, a later call can give a better value. Warns when more than 0.1 % of the time between them has no known
    energy.

    Raises
    ------
    TargetError
        The states belong to different sensors, or there is no such channel.
    CoverageError
        More than 5 % of the time between them has no known energy.
    """
    return _energy(a, b, channel)


def watts(a: State, b: State, channel: str | int | None = None) -> float:
    """Mean power from state ``a`` to state ``b`` in watts; the power at ``b`` if both denote the same instant.

    Where energy is not known for a while, it is the mean over the rest; of a total the sum of the means of its parts.

    Raises
    ------
    TargetError
        The states belong to different sensors, or there is no such channel.
    CoverageError
        More than 5 % of the time between them has no known energy.
    """
    i = _index(a, b, channel)
    if a.t_ns == b.t_ns:
        return b.watts[i]
    _energy(a, b, channel)  # refuses, and warns
    parts = [known_energy(a, b, part) for part in ((not i and a.parts) or (i,))]
    return sum([part.joules / part.covered_s if part.covered_s else math.nan for part in parts])
