"""What a page shows: sensors and recordings as tracks, each of which draws itself and is asked about stretches.

A track answers from all of its rows, never from what was drawn. Times are seconds since its own first row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pmtpy.analysis.uncertainty.interval import Interval, left_out
from pmtpy.analysis.uncertainty.interval_statistics import CONTEXT_ROWS
from pmtpy.analysis.uncertainty.recorded import recorded_uncertainties
from pmtpy.core.channel import TOTAL, EnergyMethod
from pmtpy.core.markers import Span, at_own_instants
from pmtpy.core.moves import energies_at
from pmtpy.core.rows import Floats, Layout
from pmtpy.errors import TargetError
from pmtpy.io.channels import described_layout
from pmtpy.io.columns import counted_among, downsampled
from pmtpy.io.jls import LONGEST_GAP_S, JlsFile
from pmtpy.io.read.blocks import open_blocks
from pmtpy.io.recorded import UncoveredTime, aged_of, marks_in, regions_in, time_u_of
from pmtpy.live._grown import Rows
from pmtpy.live._unknown import unknown_stretches
from pmtpy.plotting.decimate import Envelope, interrupted
from pmtpy.plotting.style import AXES

if TYPE_CHECKING:
    import pandas as pd

_LONG_GAP = 4  # times from one checkpoint of energy to the next


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: its name, its unit, and whether it is a power with an energy."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Selected:
    """What one power did between two instants."""

    name: str
    # energy of the time that is covered, and its mean; NaN: none is, or it is not known at one end
    joules: float
    watts: float
    coverage: float  # share of the stretch for which its energy is known
    uncertainty_joules: float  # standard uncertainty; NaN: the recording does not say what its sensor knows of itself
    # of the rows inside
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Selection:
    """What a track says of a stretch; ``seconds`` is the part of it that the track reaches over."""

    seconds: float
    lost: int
    powers: Sequence[Selected]


class Track(Protocol):
    """A sensor or a recording."""

    name: str
    target: str
    lines: Sequence[Line]
    start_unix_s: float
    virtual: bool
    layout: Layout | None
    facts: dict[str, Any] | None
    note: str
    regions: Sequence[Span]  # that a program measured while it was recorded; times as those of the rows

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the newest row."""
        ...

    @property
    def rows_from(self) -> float:
        """The instant from which on every single row is kept; before it there are means."""
        ...

    def draw(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return a line between two instants, in at most about so many slices."""
        ...

    def marks(self, start: float, stop: float) -> list[tuple[float, str]]:
        """Return the labels between two instants."""
        ...

    def gaps(self, start: float, stop: float) -> list[tuple[float, float, int]]:
        """Return where rows were lost between two instants, and how many."""
        ...

    def energy_at(self, t: float) -> Floats:
        """Return the energies at an instant, one per power."""
        ...

    def uncovered(self, start: float, stop: float) -> Floats:
        """Return for how many seconds between two instants no energy is known, one per power."""
        ...

    def extremes(self, line: int, start: float, stop: float) -> tuple[float, float]:
        """Return the least and the greatest value between two instants."""
        ...

    def around(self, t: float) -> Rows:
        """Return the rows around an instant."""
        ...

    def table(self, start: float, stop: float) -> pd.DataFrame:
        """Return the rows of a stretch as :func:`pmtpy.load` does."""
        ...


def power_lines(track: Track) -> list[int]:
    """Return the lines of a track that are powers, in the order of its energies."""
    return [i for i, line in enumerate(track.lines) if line.unit == "W"]


def select(track: Track, start: float, stop: float) -> Selection:
    """Evaluate a stretch from all rows: the curve of energy at two instants, never a sum over drawn points."""
    first, last = track.span
    a, b = max(min(start, stop), first), min(max(start, stop), last)
    if not b > a:
        return Selection(0.0, 0, [])
    lost = sum(n for _, _, n in track.gaps(a, b))
    near = track.around(a), track.around(b)
    joules = _energy_at(track, b, near[1]) - _energy_at(track, a, near[0])
    unknown = np.clip(track.uncovered(a, b), 0.0, b - a)
    uncertain = _uncertainties(track, a, near, Interval(b - a, joules.tolist(), unknown.tolist(), lost))
    found = []
    for i, line in enumerate(power_lines(track)):
        low, high = track.extremes(line, a, b)
        covered = float(b - a - unknown[i])
        energy = float(joules[i]) if covered > 0 else math.nan  # of what nothing is known, 0 J is not known either
        share = covered / (b - a)
        watts = energy / covered if covered > 0 else math.nan
        found.append(Selected(track.lines[line].name, energy, watts, share, uncertain[i], low, high))
    return Selection(b - a, lost, found)


def _energy_at(track: Track, t: float, near: Rows) -> Floats:
    """Return the energies at an instant, of counters by their moves where the track says which those are."""
    layout, by_rows = track.layout, track.energy_at(t)
    if layout is None or len(by_rows) != len(layout.names) or not len(near.t) or not near.t[0] <= t <= near.t[-1]:
        return by_rows
    return energies_at(layout, t, near.t, near.watts, near.joules)


def _uncertainties(track: Track, start: float, near: tuple[Rows, Rows], found: Interval) -> list[float]:
    """Judge each energy by what its channel knows of itself and how the power moves at the two ends."""
    layout = track.layout
    if layout is None or not layout.energy:
        return [math.nan] * len(found.joules)
    t = np.concatenate([r.t for r in near])
    t, keep = np.unique(t, return_index=True)
    watts, energy = (np.concatenate([getattr(r, k) for r in near])[keep] for k in ("watts", "joules"))
    interval = found._replace(
        joules=found.joules[1:],
        uncovered_s=found.uncovered_s[1:],
        time_u_s=time_u_of(track.facts),
        aged_s=aged_of(track.facts),
        left_out_s=left_out(near[0].t - start, near[1].t - start),
    )
    return [float(u) for u in recorded_uncertainties(layout, t - start, watts, energy, interval)]


def layout_of(facts: dict[str, Any] | None) -> Layout | None:
    """Return the channels that metadata describe; None where they do not."""
    try:
        return described_layout(facts or {})
    except (KeyError, TypeError, ValueError):
        return None


def lines_of(names: Sequence[str]) -> list[Line]:
    """Return the lines of columns: powers that have an energy first, then volts, amperes and the rest."""
    others = [n for n in names if n.rpartition("_")[2] in AXES.keys() - {"W"}]
    return [Line(n, "W") for n in counted_among(names)] + [Line(*n.rsplit("_", 1)) for n in others]


def _state_of(path: Path) -> tuple[int, int, int, int] | None:
    """Return what changes where a file is written or replaced; None: it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def said_of(attrs: Mapping[str, Any]) -> str:
    """Return what a reader must know of a recording, by ``attrs`` as of :func:`pmtpy.load`."""
    return "; ".join([*(["incomplete"] if attrs.get("complete") is False else []), *attrs["notes"]])


class JlsTrack:
    """A JLS recording, of which only what is looked at is read: its pyramid, and samples where they fit."""

    def __init__(self, name: str, path: Path) -> None:
        self._file, self._path, self._as_opened = JlsFile(path), path, _state_of(path)
        facts = self._file.facts
        self.name, self.target = name, str(facts.get("target", ""))
        self.virtual = bool(facts.get("virtual"))
        with open_blocks(path) as recording:
            self.note = said_of(recording.attrs(self._file.length))
        self.start_unix_s = self._file.start_unix_s
        self.regions: Sequence[Span] = regions_in(facts, self.start_unix_s)
        self.layout: Layout | None = layout_of(facts)
        self.facts: dict[str, Any] | None = facts
        self.lines: Sequence[Line] = lines_of([*self._file.names, *self._file.joules])
        self._known: dict[float, Floats] = {}  # by the end of a gap: how much of it is without a known energy
        self._unknown: list[Floats] | None = None  # stretches of each power of which nothing is known, without a loss
        length = self._file.length
        seconds = self._file.times(np.array([max(0, length - 1)]))
        self._span = (0.0, float(seconds[0])) if length else (0.0, 0.0)

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the last row."""
        return (0.0, 0.0) if self._changed() else self._span

    def _changed(self) -> bool:
        """Whether the file has been written anew: nothing that it says now is of this recording."""
        changed = _state_of(self._path) not in {self._as_opened, None}  # one that was deleted stays readable
        if changed:
            self.note = "the file was changed after it was opened: open it again"
        return changed

    @property
    def rows_from(self) -> float:
        """All rows are kept."""
        return 0.0

    def _column(self, line: int) -> str:
        return f"{self.lines[line].name}_{self.lines[line].unit}"

    def _range(self, start: float, stop: float, beside: int = 1) -> tuple[int, int]:
        a, b = self._file.sample_at(start), self._file.sample_at(stop)
        return max(0, a - beside), min(self._file.length, b + beside)

    def draw(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        """Return a line between two instants, interrupted where nothing is known.

        Of samples where they fit, else from the pyramid.
        """
        if self._changed():
            return Envelope(*(np.empty(0) for _ in range(4)))
        curve = self._curve(line, start, stop, slices)
        powers = power_lines(self)
        if line not in powers or not len(found := self._without()[powers.index(line)]):
            return curve
        return interrupted(curve, *found.T)

    def _curve(self, line: int, start: float, stop: float, slices: int) -> Envelope:
        first, last = self._range(start, stop)
        if last - first <= 2 * slices:
            values = self._file.samples(self._column(line), first, last) if last > first else np.empty(0)
            return Envelope(self._file.times(np.arange(first, last)), values, values, values)
        step = max(1, (last - first) // slices)
        count = (last - first) // step
        found = self._file.statistics(self._column(line), first, step, count)
        # Times at some samples are enough to place slices: between them the rate is nominal to some millionths.
        some = np.unique(np.linspace(first, last - 1, min(count, 64)).astype(np.int64))
        known = np.array([float(self._file.times(np.array([i]))[0]) for i in some])
        return Envelope(
            np.interp(first + (np.arange(count) + 0.5) * step, some, known), found.low, found.mean, found.high
        )

    def marks(self, start: float, stop: float) -> list[tuple[float, str]]:
        """Return the labels between two instants."""
        if self._changed():
            return []
        found, _ = self._file.annotations(*self._range(start, stop))
        rows, texts = np.array([at for at, _ in found], np.int64), [text for _, text in found]
        since = np.where(rows > 0, self._file.times_at(np.maximum(rows - 1, 0)), math.inf)
        own = marks_in(self._file.facts, self.start_unix_s)
        marks = at_own_instants(zip(self._file.times_at(rows).tolist(), texts, strict=True), since.tolist(), own)
        return sorted((mark for mark in marks if start <= mark[0] <= stop), key=itemgetter(0))

    def gaps(self, start: float, stop: float) -> list[tuple[float, float, int]]:
        """Return where rows were lost."""
        if self._changed():
            return []
        first, last = self._range(start, stop)
        _, losses = self._file.annotations(first, last + self._file.rate * LONGEST_GAP_S + 2)  # it stands at the end
        ends = self._file.times_at(np.array([at for at, _ in losses], np.int64)).tolist()
        found = [(end - (n + 1) / self._file.rate, end, n) for end, (_, n) in zip(ends, losses, strict=True)]
        return [gap for gap in found if gap[1] > start and gap[0] < stop]

    def energy_at(self, t: float) -> Floats:
        """Return the energies at an instant."""
        rows = self._rows(t, 4)
        return np.array([np.interp(t, rows.t, rows.joules[:, i]) for i in range(rows.joules.shape[1])])

    def uncovered(self, start: float, stop: float) -> Floats:
        """Return for how many seconds no energy is known: of what was lost, as far as it is not counted on."""
        found = np.array([np.sum(np.clip(np.diff(np.clip(s, start, stop)), 0.0, None)) for s in self._without()])
        for begin, end, n in self.gaps(start, stop):
            if end > begin and (inside := min(end, stop) - max(begin, start)) > 0:
                found += inside / (end - begin) * self._gap(begin, end, n)
        return found

    def _without(self) -> list[Floats]:
        """Return the stretches of each power of which nothing is known though no row is lost; counters count on."""
        if self._unknown is None:
            layout, names = self.layout or Layout(()), [self.lines[i].name for i in power_lines(self)]
            methods = {c.name: c.energy_method for c in layout.energy}
            parts = {layout.energy[i - 1].energy_method for i in layout.in_total}
            methods |= {TOTAL: parts.pop()} if len(parts) == 1 else {}
            nothing, counted = np.empty((0, 2)), [methods.get(n) is EnergyMethod.COUNTER for n in names]
            covered = (self.facts or {}).get("uncovered_s") == 0.0
            asked = [] if covered else [n for n, counts in zip(names, counted, strict=True) if not counts]
            means = [downsampled(self.facts or {}) or methods.get(n) is EnergyMethod.MEAN for n in asked]
            stretches = dict(zip(asked, unknown_stretches(self._file, asked, means), strict=True))
            self._unknown = [stretches.get(n, nothing) for n in names]
        return self._unknown

    def _gap(self, begin: float, end: float, n: int) -> Floats:
        """Return the seconds without a known energy of one gap.

        Energies are exact at checkpoints alone: of a gap that is not much longer than from one to the next, nothing
        but the energy of counters is known.
        """
        if end not in self._known:
            file, t_ns, lost = self._file, np.array([0, round((end - begin) * 1e9)]), np.array([0, n])
            at = file.sample_at(end)
            behind = min(-(-at // file.stride), file.checkpoints - 1) * file.stride
            ids = np.array([self._file.sample_at(begin), at, behind])
            watts = np.array([[self._sample(i, k) for i in power_lines(self)] for k in ids[:2]])
            rule = UncoveredTime.of(self.layout or Layout(()), thinned=downsampled(self.facts or {}))
            joules = np.zeros_like(watts)
            joules[1] = np.where(rule.counters[: watts.shape[1]], 1.0, 0.0)  # whatever they have counted
            if (end - begin) * file.rate > _LONG_GAP * file.stride and behind >= at:
                names = [f"{self.lines[i].name}_J" for i in power_lines(self)]
                before, after = np.array([file.energies(name, ids[[0, 2]]) for name in names]).T
                joules[1] = after - before - watts[1] * float(np.diff(file.times_at(ids[1:]))[0])
            self._known[end] = rule.add(t_ns, watts, joules, lost)[-1] / 1e9
        return self._known[end]

    def _sample(self, line: int, number: int) -> float:
        return float(self._file.samples(self._column(line), number, number + 1)[0])

    def _rows(self, t: float, beside: int) -> Rows:
        within = [t] if not (gap := self.gaps(t, t)) else gap[0][:2]
        near = [self._file.rows(*self._range(at, at, beside))[0] for at in within]
        _, once = np.unique(np.concatenate([rows["elapsed"] for rows in near]), return_index=True)
        found = {name: np.concatenate([rows[name] for rows in near])[once] for name in near[0]}
        named = [line.name for line in self.lines if line.unit == "W"]
        watts, joules = (np.column_stack([found[f"{n}_{u}"] for n in named]) for u in "WJ")
        return Rows(found["elapsed"], watts, joules)

    def extremes(self, line: int, start: float, stop: float) -> tuple[float, float]:
        """Return the least and the greatest sample between two instants."""
        first, last = self._range(start, stop, 0)
        if last <= first:
            return math.nan, math.nan
        found = self._file.statistics(self._column(line), first, last - first, 1)
        return float(found.low[0]), float(found.high[0])

    def around(self, t: float) -> Rows:
        """Return the rows around an instant."""
        return self._rows(t, CONTEXT_ROWS)

    def table(self, start: float, stop: float) -> pd.DataFrame:
        """Return the rows of a stretch."""
        from pmtpy.io.read import load

        if _state_of(self._path) != self._as_opened:
            msg = f"{self._path} was changed or deleted after it was opened; open it again"
            raise TargetError(msg)
        return load(self._path, start, stop)
