"""The data of pmtpy: what a column means, counts as delivered, and the curve in SI.

Everything here is frozen and pure. Arrays that are handed out are not to be written to. Times are integer
nanoseconds on the host's monotonic clock and denote the middle of what was measured, unless a channel says
otherwise (``window_s``, ``lag_s``).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOTAL = "total"


class Quantity(enum.Enum):
    """What a channel measures; the value is the suffix of its column in a file, which is the SI unit."""

    POWER = "W"
    ENERGY = "J"
    VOLTAGE = "V"
    CURRENT = "A"
    TEMPERATURE = "C"  # degrees Celsius: the one unit that is not SI, because every reader expects it
    FREQUENCY = "Hz"
    COUNT = "count"


class Form(enum.Enum):
    """How the values of a channel come about."""

    DIRECT = "direct"  # a column of the Block, scaled
    PRODUCT = "product"  # of a voltage and a current channel of the same row
    RATIO = "ratio"  # of the increments of a sum and of a count channel: the mean over the interval


class Rule(enum.Enum):
    """How a channel becomes energy: there are three ways and no fourth."""

    COUNTER = "counter"  # difference of a cumulative register, unwrapped
    TRAPEZOID = "integrated"  # samples of a momentary power, joined by straight lines
    MEAN = "interval mean"  # each value is the mean power since the row before


@dataclass(frozen=True, slots=True)
class Channel:
    """The meaning of one column.

    Attributes
    ----------
    name : str
        Lowercase, general to particular, stable across runs: ``package0.dram``, ``gpu``, ``pair1.voltage``.
    quantity : Quantity
        What is measured; fixes the unit.
    scale, offset : float
        SI value = (count + offset) * scale. For a RATIO: SI value = scale * (sum increment / count increment).
    wrap : float or None
        The number of counts after which a counter starts again from zero; None if it never does.
    form : Form
        DIRECT channels are the columns of a Block, in order; the others are derived from channels named in ``of``.
    of : tuple of str
        (voltage, current) for a PRODUCT, (sum, count) for a RATIO.
    rule : Rule or None
        How power or energy is integrated. None: COUNTER for energy, MEAN for a RATIO, else TRAPEZOID.
    domain : str
        Physical part measured, as a path (``host/socket0/package/core``). Only the outermost domain of each tree
        enters a total, once, by the first channel that measures it. Empty: never part of a total.
    label : str
        The device's own name for it, where it has one (the pair name on a board, a rail name).
    refresh_s, window_s, lag_s : float or None
        How often the register changes, over which span it averages, by how much it is late. None: not known.
    resolution : float or None
        One step of the value in SI. None: ``abs(scale)`` for a DIRECT channel.
    gain_u : float
        Standard uncertainty of the gain, relative (0.01 is 1 %).
    offset_u : float
        Standard uncertainty of the zero, in SI.
    noise : float
        Standard deviation of one value at constant input, in SI.
    max_watts : float or None
        More than this cannot be: tells a wrap of a counter from a restart.
    reference : str
        The document that says so.
    """

    name: str
    quantity: Quantity
    scale: float = 1.0
    offset: float = 0.0
    wrap: float | None = None
    form: Form = Form.DIRECT
    of: tuple[str, ...] = ()
    rule: Rule | None = None
    domain: str = ""
    label: str = ""
    refresh_s: float | None = None
    window_s: float | None = None
    lag_s: float | None = None
    resolution: float | None = None
    gain_u: float = 0.0
    offset_u: float = 0.0
    noise: float = 0.0
    max_watts: float | None = None
    reference: str = ""

    def __post_init__(self) -> None:
        """Refuse a meaning that cannot be: a derived channel without its two operands, a scale that is no number."""
        if (self.form is Form.DIRECT) != (not self.of) or len(self.of) not in {0, 2}:
            msg = f"channel {self.name}: a {self.form.value} channel cannot be made of {self.of!r}"
            raise ValueError(msg)
        if not (math.isfinite(self.scale) and math.isfinite(self.offset)):
            msg = f"channel {self.name}: scale {self.scale} and offset {self.offset} must be finite"
            raise ValueError(msg)

    @property
    def unit(self) -> str:
        """Unit of the values, also the suffix of the column in a file."""
        return self.quantity.value

    @property
    def measures_energy(self) -> bool:
        """Whether the channel has a curve of energy."""
        return self.quantity in {Quantity.POWER, Quantity.ENERGY}

    @property
    def how(self) -> Rule:
        """The rule by which the channel becomes energy."""
        if self.rule is not None:
            return self.rule
        if self.quantity is Quantity.ENERGY:
            return Rule.COUNTER
        return Rule.MEAN if self.form is Form.RATIO else Rule.TRAPEZOID

    @property
    def step(self) -> float:
        """One step of the value in SI; 0 where it is not known."""
        if self.resolution is not None:
            return self.resolution
        return abs(self.scale) if self.form is Form.DIRECT else 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What a source says of itself.

    Attributes
    ----------
    backend, model, serial, version : str
        Backend name, device model, serial number or UUID (empty where there is none), driver or firmware version.
    virtual : bool
        True when the far side is emulated. Every result and file carries it.
    notes : tuple of str
        Plain warnings about the device: what was wrong, and what works nevertheless.
    """

    backend: str
    model: str = ""
    serial: str = ""
    version: str = ""
    virtual: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Counts as delivered by a source; rows in order of time.

    Attributes
    ----------
    t_ns : int64, shape (n,)
        Instant of each row, strictly increasing.
    raw : numeric, shape (n, c)
        One column per DIRECT channel, in the order of the channels. Not scaled, unwrapped or smoothed.
    lost : int64, shape (n,), or None
        Rows known to be missing directly before each row; None: none.
    fresh : bool
        The device restarted before the first row, so counters do not continue.
    marks : tuple of (row, label)
        Labels that the device's own stream carried.
    """

    t_ns: Ints
    raw: npt.NDArray[np.generic]
    lost: Ints | None = None
    fresh: bool = False
    marks: tuple[tuple[int, str], ...] = ()

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
        One per DIRECT channel.
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
    uncovered_ns: int


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
    uncovered_ns : int64, shape (n,)
        Cumulative time since opening for which no energy is known (lost rows, restarts).
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

    def point(self, row: int) -> Point:
        """Return one row as plain numbers."""
        return Point(
            int(self.t_ns[row]),
            tuple(self.watts[row].tolist()),
            tuple(self.joules[row].tolist()),
            tuple(self.values[row].tolist()),
            int(self.lost[row]),
            int(self.uncovered_ns[row]),
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
    """

    channels: tuple[Channel, ...]
    energy: tuple[Channel, ...] = field(init=False)
    in_total: tuple[int, ...] = field(init=False)
    values: tuple[Channel, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Sort the channels; derive the total from the domains."""
        names = [c.name for c in self.channels]
        doubled = sorted({n for n in names if names.count(n) > 1 or n == TOTAL})
        if doubled:
            msg = f"channel names must be unique and not {TOTAL!r}: {doubled}"
            raise ValueError(msg)
        missing = [o for c in self.channels for o in c.of if o not in names]
        if missing:
            msg = f"channels are derived from {missing}, which do not exist"
            raise ValueError(msg)
        energy = tuple(c for c in self.channels if c.measures_energy)
        object.__setattr__(self, "energy", energy)
        object.__setattr__(self, "values", tuple(c for c in self.channels if not c.measures_energy))
        object.__setattr__(self, "in_total", tuple(i + 1 for i in outermost([c.domain for c in energy])))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of ``Frame.watts`` and of a State: total first."""
        return (TOTAL, *(c.name for c in self.energy))


def outermost(domains: Sequence[str]) -> tuple[int, ...]:
    """Indices of the entries that make a sum without counting anything twice.

    Of the non-empty ``domains`` (paths of physical parts), each outermost one is taken once, by its first entry; a
    domain inside another that is present is not taken. ``host`` by itself is the whole machine (a node's own meter):
    everything is inside it, graphics cards too, but for what is ``external``.
    """
    taken: dict[str, int] = {}
    present = {d for d in domains if d}
    machine = "host" in present
    for i, domain in enumerate(domains):
        parts = domain.split("/")
        inside = any("/".join(parts[:j]) in present for j in range(1, len(parts)))
        inside = inside or (machine and domain != "host" and parts[0] != "external")
        if domain and not inside and domain not in taken:
            taken[domain] = i
    return tuple(taken.values())
