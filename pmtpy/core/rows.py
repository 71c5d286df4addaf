"""Rows: counts as a source delivers them, and the curve of power and energy made of them, in SI.

Everything here is frozen and pure. Arrays that are handed out are not to be written to. Times are integer
nanoseconds on the host's monotonic clock and denote the middle of what was measured, unless a channel says
otherwise (``window_s``, ``lag_s``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pmtpy.core._arrays import Floats as Floats  # noqa: PLC0414  (every user of rows needs them)
from pmtpy.core._arrays import Ints as Ints  # noqa: PLC0414
from pmtpy.core._arrays import median as median  # noqa: PLC0414
from pmtpy.core.channel import TOTAL, Channel, Derivation, outermost


@dataclass(frozen=True, slots=True)
class Block:
    """Counts as delivered by a source; rows in order of time.

    Attributes
    ----------
    t_ns : int64, shape (n,)
        Instant of each row, strictly increasing.
    raw : numeric, shape (n, c)
        One column per DIRECT channel, in the order of the channels. Not scaled, unwrapped or smoothed. NaN: this column
        could not be read in this row, or says nothing (a converter at its end); only what is made of it is uncovered.
    lost : int64, shape (n,), or None
        Rows known to be missing directly before each row; None: none.
    fresh : bool
        The device restarted before the first row, so counters do not continue.
    restarted : tuple of int
        Columns whose counters do not continue at the first row although those of the others do.
    marks : tuple of (row, label)
        Labels that the device's own stream carried.
    """

    t_ns: Ints
    raw: npt.NDArray[np.generic]
    lost: Ints | None = None
    fresh: bool = False
    marks: tuple[tuple[int, str], ...] = ()
    restarted: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.t_ns)

    @staticmethod
    def row(t_ns: int, counts: Sequence[float], *, lost: int = 0, fresh: bool = False) -> Block:
        """Make a Block of one row, as a poll does."""
        return Block(
            np.array([t_ns], np.int64),
            np.array([counts], np.float64),
            np.array([lost], np.int64) if lost else None,
            fresh,
        )

    @staticmethod
    def empty(columns: int) -> Block:
        """Make a Block without rows: nothing has arrived."""
        return Block(np.empty(0, np.int64), np.empty((0, columns)))


class Row(NamedTuple):
    """A Block of one row without arrays: what a poll delivers, at a tenth of the cost.

    Attributes
    ----------
    t_ns : int
        The instant of the row.
    counts : sequence of float
        One per DIRECT channel; NaN as in a Block.
    lost : int
        Rows known to be missing directly before.
    """

    t_ns: int
    counts: Sequence[float]
    lost: int = 0


class Point(NamedTuple):
    """A Frame of one row without arrays. Fields as in Frame."""

    t_ns: int
    watts: tuple[float, ...]
    joules: tuple[float, ...]
    values: tuple[float, ...]
    lost: int
    uncovered_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of the curve, in SI.

    Attributes
    ----------
    t_ns : int64, shape (n,)
        Instant of each row.
    watts, joules : float64, shape (n, k)
        One column per name of the layout, index 0 is the total. Joules are cumulative since opening.
    values : float64, shape (n, m)
        The other channels (volts, amperes, degrees, hertz), in the order of ``Layout.values``.
    lost : int64, shape (n,)
        Rows missing directly before each row.
    uncovered_ns : int64, shape (n, k)
        Time since opening for which no energy is known, for each column of energy: lost rows, restarts, registers that
        rest or fail. It never falls.
    marks : tuple of (row, label)
        Labels, each at the row it belongs to.
    """

    t_ns: Ints
    watts: Floats
    joules: Floats
    values: Floats
    lost: Ints
    uncovered_ns: Ints
    marks: tuple[tuple[int, str], ...] = ()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.t_ns)

    @staticmethod
    def of_points(points: Sequence[Point], marks: tuple[tuple[int, str], ...] = ()) -> Frame:
        """Make arrays of at least one Point."""
        t_ns, watts, joules, values, lost, uncovered = zip(*points, strict=True)
        return Frame(
            np.array(t_ns, np.int64),
            np.array(watts, np.float64),
            np.array(joules, np.float64),
            np.array(values, np.float64),
            np.array(lost, np.int64),
            np.array(uncovered, np.int64),
            marks,
        )

    @staticmethod
    def joined(frames: Sequence[Frame]) -> Frame:
        """Make one Frame of several that follow each other; there is at least one."""
        if len(frames) == 1:
            return frames[0]
        marks: list[tuple[int, str]] = []
        if any(f.marks for f in frames):
            starts = np.cumsum([0, *(len(f) for f in frames)]).tolist()
            marks = [(row + start, label) for f, start in zip(frames, starts, strict=False) for row, label in f.marks]
        return Frame(
            np.concatenate([f.t_ns for f in frames]),
            np.concatenate([f.watts for f in frames]),
            np.concatenate([f.joules for f in frames]),
            np.concatenate([f.values for f in frames]),
            np.concatenate([f.lost for f in frames]),
            np.concatenate([f.uncovered_ns for f in frames]),
            tuple(marks),
        )

    def part(self, start: int, stop: int) -> Frame:
        """Rows ``start`` to ``stop``, with their marks; no copies."""
        if start == 0 and stop >= len(self):
            return self
        rows = slice(start, stop)
        marks = tuple((row - start, label) for row, label in self.marks if start <= row < stop) if self.marks else ()
        return Frame(
            self.t_ns[rows],
            self.watts[rows],
            self.joules[rows],
            self.values[rows],
            self.lost[rows],
            self.uncovered_ns[rows],
            marks,
        )

    def point(self, row: int) -> Point:
        """Return one row as plain numbers."""
        return Point(
            int(self.t_ns[row]),
            tuple(self.watts[row].tolist()),
            tuple(self.joules[row].tolist()),
            tuple(self.values[row].tolist()),
            int(self.lost[row]),
            tuple(self.uncovered_ns[row].tolist()),
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a Frame: which channels have energy, which make the total, which are plain values.

    Attributes
    ----------
    channels : tuple of Channel
        All channels of the source.
    energy : tuple of Channel
        Those with a curve of energy, in order; column i + 1 of ``Frame.watts``.
    in_total : tuple of int
        Columns of ``Frame.watts`` that are summed into column 0.
    values : tuple of Channel
        The others; column j of ``Frame.values``.
    witnesses : tuple of tuple of int
        By place in ``energy``: the readings of one part, where it has several.
    inside : tuple of (int, tuple of int)
        Likewise: parts with those that lie inside them.
    total_apart : bool
        A recording has a total, and does not say of which channels it is made.
    """

    channels: tuple[Channel, ...]
    total_apart: bool = False
    energy: tuple[Channel, ...] = field(init=False)
    in_total: tuple[int, ...] = field(init=False)
    values: tuple[Channel, ...] = field(init=False)
    witnesses: tuple[tuple[int, ...], ...] = field(init=False)
    inside: tuple[tuple[int, tuple[int, ...]], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Sort the channels; derive the total from the domains."""
        names = [c.name for c in self.channels]
        doubled = sorted({n for n in names if names.count(n) > 1 or n == TOTAL})
        if doubled:
            msg = f"channel names must be unique and not {TOTAL!r}: {doubled}"
            raise ValueError(msg)
        missing = [o for c in self.channels for o in c.operands if o not in names]
        if missing:
            msg = f"channels are derived from {missing}, which do not exist"
            raise ValueError(msg)
        energy = tuple(c for c in self.channels if c.measures_energy)
        object.__setattr__(self, "energy", energy)
        object.__setattr__(self, "values", tuple(c for c in self.channels if not c.measures_energy))
        object.__setattr__(self, "in_total", tuple(i + 1 for i in outermost([c.domain for c in energy])))
        placed = [(i, c.domain) for i, c in enumerate(energy) if c.domain]
        same = [tuple(i for i, d in placed if d == domain) for domain in dict.fromkeys(d for _, d in placed)]
        within = [(i, tuple(p for p, d in placed if d.startswith(f"{domain}/"))) for i, domain in placed]
        object.__setattr__(self, "witnesses", tuple(places for places in same if len(places) > 1))
        object.__setattr__(self, "inside", tuple(pair for pair in within if pair[1]))

    def mean_watts(self, joules: Floats, seconds: Floats | float, unknown_s: Floats) -> Floats:
        """Return mean powers over the time that is covered, NaN where none is; the columns of a Frame come last.

        Parts of a total can lack different stretches: its mean is the sum of theirs, each over its own time, while its
        joules are all that are known.
        """
        covered_s = np.asarray(seconds)[..., None] - unknown_s
        watts = np.full(covered_s.shape, np.nan)
        np.divide(joules, covered_s, out=watts, where=covered_s > 0)
        if self.in_total:
            watts[..., 0] = watts[..., self.in_total].sum(axis=-1)
        return watts

    @property
    def has_total(self) -> bool:
        """Whether column 0 of ``Frame.watts`` is known."""
        return bool(self.in_total) or self.total_apart

    @property
    def beside_total(self) -> frozenset[int]:
        """Columns of a Block of which the total is not made, so that it is known without them."""
        direct = {c.name: i for i, c in enumerate(c for c in self.channels if c.derivation is Derivation.DIRECT)}
        made_of = {n for i in self.in_total for n in (self.energy[i - 1].operands or (self.energy[i - 1].name,))}
        return frozenset(i for name, i in direct.items() if name not in made_of)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of ``Frame.watts`` and of a State: total first."""
        return (TOTAL, *(c.name for c in self.energy))
