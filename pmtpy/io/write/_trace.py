"""What the three kinds of trace have in common: counters with units, regions with their joules, gaps. Pure.

Traces have no place for an uncertainty, so what is known of a channel goes into its description, and what is known of a
region's energy into its annotations.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from pmtpy.core.channel import TOTAL, Channel, EnergyMethod
from pmtpy.core.markers import at_own_instants, paired
from pmtpy.core.moves import energies_at
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Frame, Ints, Layout
from pmtpy.io.columns import Column, columns
from pmtpy.io.write.base import MOST_ENDS, UNKNOWN_VIRTUAL, Ending, Header, Judged, RecordedRegion

_NS = 1e9
_CLOCK_ROUNDED_NS = 2_000  # by which times of a text file differ from those of its metadata
_UNKNOWN = 0.5  # share of the time between two rows from which on more is unknown than known
_CONTEXT_ROWS = 100  # rows on either side of the end of a region that tell how the power moves there


@dataclass(frozen=True, slots=True)
class Counter:
    """One curve of a trace."""

    name: str
    unit: str
    column: Column
    channel: Channel | None  # what it is a value of; None: the total
    mean: bool  # whether each value holds for the interval before its row; else it is of the instant


def counters(header: Header) -> tuple[Counter, ...]:
    """Return what a trace of a recording shows: all columns that the recording has values for."""
    layout = header.layout
    found = []
    for column in columns(layout):
        if column.index < 0:
            continue
        name, _, unit = column.name.rpartition("_")
        channel = _channel(layout, column)
        mean = column.array == "watts" and _mean(header, channel)
        found.append(Counter(f"{name} energy" if column.array == "joules" else name, unit, column, channel, mean=mean))
    return tuple(found)


def _channel(layout: Layout, column: Column) -> Channel | None:
    if column.array == "values":
        return layout.values[column.index]
    return layout.energy[column.index - 1] if column.index else None


def _mean(header: Header, channel: Channel | None) -> bool:
    """Whether a power is the mean since the row before: counters are, and so is whatever was thinned."""
    if header.downsampled:
        return True
    parts = [channel] if channel is not None else [header.layout.energy[i - 1] for i in header.layout.in_total]
    return bool(parts) and all(c.energy_method is not EnergyMethod.TRAPEZOID for c in parts)


def title(header: Header) -> str:
    """Return what a trace calls the sensor."""
    return f"energy of {header.target}" + (" (virtual)" if header.identity.virtual else "")


def about(header: Header, counter: Counter | None) -> str:
    """Say how far the values of a counter, or of all of them, can be trusted."""
    said = ["virtual: its energy is emulated"] if header.identity.virtual else []
    said += [] if header.virtual_known else [UNKNOWN_VIRTUAL]
    channel = counter.channel if counter is not None else None
    if counter is None:
        said += [" ".join(filter(None, (header.identity.model, header.identity.version))), header.converted_from]
        said += [f"one row for each {header.interval_s:g} s"] if header.interval_s else []
        said += [f"calibration {header.calibration}"] if header.calibration else []
        if header.judge is None:
            said.append("joules of regions are those of the recording, without their uncertainty")
        else:
            said.append("joules of regions with standard uncertainties (68 %)")
    elif channel is None:
        parts = [header.layout.energy[i - 1].name for i in header.layout.in_total]
        said.append(f"sum of {', '.join(parts)}" if parts else f"{TOTAL} as recorded")
    else:
        said += [channel.label, channel.energy_method.value if channel.measures_energy else ""]
        facts = (("refresh", channel.refresh_s), ("averages", channel.window_s), ("late by", channel.lag_s))
        said += [f"{what} {seconds:g} s" for what, seconds in facts if seconds]
        said += [f"gain +- {channel.gain_u:.2%}"] if channel.gain_u else []
        said += [f"zero +- {channel.offset_u:g} {channel.unit}"] if channel.offset_u else []
    return "; ".join(filter(None, said))


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of a trace. Times as those of the rows."""

    label: str
    start_ns: int
    end_ns: int
    facts: tuple[tuple[str, float], ...] = ()


class Story:
    """Collects what a trace shows besides its curves, while rows go by: regions, markers, and what is not known."""

    def __init__(self, header: Header, shown: Sequence[Counter]) -> None:
        self._layout, self._judge, self._dated = header.layout, header.judge, (header.aged_s, header.time_u_s)
        self._near = _Near()
        self._losses: list[tuple[int, int]] = []  # when rows were lost, and how many
        self._regions = header.regions
        self._shown = [c for c in shown if c.column.array != "joules"]
        self._set = sorted(((m.t_ns, m.label) for m in header.marks), key=itemgetter(0))
        self._instants = sorted({t for r in header.regions for t in (r.start_ns, r.end_ns)} | {t for t, _ in self._set})
        self._at: dict[int, tuple[Floats, Floats]] = {}  # by rows, joules and unknown seconds at the ends of regions
        self._marked: list[tuple[int, float, str]] = []  # time of a row, that of the row before, label
        self._since: dict[int, float] = {}  # time of the row before a marked one
        self._before: tuple[int, Floats, Ints] | None = None
        self._powered: npt.NDArray[np.bool_] | None = None  # which powers and energies the last row has
        self._silent: dict[str, int] = {}  # counters without a value, and since when
        self._gaps: list[Slice] = []
        self._end_ns = 0

    def take(self, frame: Frame) -> None:
        """See the next rows, at least one."""
        self._losses += [(int(frame.t_ns[row]), int(frame.lost[row])) for row in np.flatnonzero(frame.lost).tolist()]
        for row, label in frame.marks:
            t = int(frame.t_ns[row])
            self._at.setdefault(t, (frame.joules[row].copy(), frame.uncovered_ns[row] / _NS))
            since = int(frame.t_ns[row - 1]) if row else self._before[0] if self._before else math.inf
            self._since.setdefault(t, since)
            self._marked.append((t, since, label))
        t_ns, joules, unknown = frame.t_ns, frame.joules, frame.uncovered_ns
        if self._before is not None:
            t0, j0, u0 = self._before
            t_ns, joules, unknown = np.append(t0, t_ns), np.vstack([j0, joules]), np.vstack([u0, unknown])
        first = bisect.bisect_left(self._instants, int(t_ns[0]))
        inside = self._instants[first : bisect.bisect_right(self._instants, int(t_ns[-1]))]
        marked = self._marked[len(self._marked) - len(frame.marks) :]
        self._near.take(frame, [*inside, *(t for t, since, _ in marked if not self._is_told(since, t))])
        for t in inside:
            self._at[t] = (_between(t, t_ns, joules), _between(t, t_ns, unknown) / _NS)
        self._find_gaps(frame)
        self._find_unknown(frame)
        self._before = (int(frame.t_ns[-1]), frame.joules[-1].copy(), frame.uncovered_ns[-1].copy())
        self._end_ns = int(frame.t_ns[-1])

    def _find_gaps(self, frame: Frame) -> None:
        for row in np.flatnonzero(frame.lost).tolist():
            start = int(frame.t_ns[row - 1]) if row else self._before[0] if self._before else int(frame.t_ns[0])
            self._gaps.append(Slice(f"{amount(int(frame.lost[row]), 'row')} lost", start, int(frame.t_ns[row])))
        first = self._before[0] if self._before else frame.t_ns[0]
        before = np.append(first, frame.t_ns[:-1])  # where the interval begins that a row tells the mean of
        for counter in self._shown:
            absent = np.isnan(counter.column.of(frame))
            if counter.mean and self._before is None:
                absent[0] = False  # no interval ends with the first row
            if not absent.any() and counter.name not in self._silent:
                continue
            edges = np.flatnonzero(np.diff(absent, prepend=counter.name in self._silent))
            for row in edges.tolist():
                t = int(before[row] if counter.mean else frame.t_ns[row])
                if absent[row]:
                    self._silent[counter.name] = t
                else:
                    self._gaps.append(Slice(f"{counter.name}: no value", self._silent.pop(counter.name), t))

    def _find_unknown(self, frame: Frame) -> None:
        """Find the steps without a known energy from row to row, where no row is lost and no value is missing."""
        has = np.isfinite(frame.watts) & np.isfinite(frame.joules)
        last, before = self._powered, self._before
        self._powered = has[-1]
        if last is None or before is None:
            t_ns, unknown, kept, there = frame.t_ns, frame.uncovered_ns, frame.lost[1:] == 0, has
        else:
            t_ns, unknown = np.append(before[0], frame.t_ns), np.vstack([before[2], frame.uncovered_ns])
            kept, there = frame.lost == 0, np.vstack([last, has])
        step_ns = np.diff(t_ns)[:, None]
        lacks = (np.diff(unknown, axis=0) > _UNKNOWN * step_ns) & there[1:] & there[:-1] & kept[:, None]
        for row in np.flatnonzero(lacks.any(axis=1)).tolist():
            names = [n for n, lack in zip(self._layout.names, lacks[row], strict=True) if lack]
            label, start, end = f"{', '.join(names)}: energy not known", int(t_ns[row]), int(t_ns[row + 1])
            if self._gaps and (self._gaps[-1].label, self._gaps[-1].end_ns) == (label, start):
                start = self._gaps.pop().start_ns
            self._gaps.append(Slice(label, start, end))

    def gaps(self) -> list[Slice]:
        """Return the stretches that lack rows, values or energies, when all rows were seen."""
        silent = [Slice(f"{name}: no value", start, self._end_ns) for name, start in self._silent.items()]
        return sorted([*self._gaps, *silent], key=lambda s: (s.start_ns, -s.end_ns))

    def regions(self, measured: Iterable[RecordedRegion] = ()) -> list[Slice]:
        """Return regions and pairs of markers with what they cost, in order; when all rows were seen."""
        timed = [(r.label, r.start_ns, r.end_ns) for r in self._regions or measured]
        marked = [(s.name or "region", int(s.start), int(s.end)) for s in paired(self._marks())[0]]
        found = [Slice(label, start, end, tuple(self._cost(start, end, 0.0))) for label, start, end in timed]
        for label, start, end in marked:
            found.append(Slice(label, start, end, tuple(self._cost(start, end, self._late(start, end)))))
        return sorted(found, key=lambda s: (s.start_ns, -s.end_ns))

    def markers(self) -> list[tuple[int, str]]:
        """Return the markers that belong to no region."""
        return [(int(t), label) for t, label in paired(self._marks())[1]]

    def _marks(self) -> list[tuple[int, str]]:
        """Return the marks, in order: at the instants at which they were set, else at their rows."""
        marks, since = [(t, label) for t, _, label in self._marked], [before for _, before, _ in self._marked]
        found = at_own_instants(marks, since, self._set, _CLOCK_ROUNDED_NS)
        return sorted(((int(t), label) for t, label in found), key=itemgetter(0))

    def _is_told(self, since: float, t: int) -> bool:
        """Whether an instant of a mark is told between two rows; else it stands on the latter one."""
        at = bisect.bisect_left(self._set, since - _CLOCK_ROUNDED_NS, key=itemgetter(0))
        return at < len(self._set) and self._set[at][0] <= t + _CLOCK_ROUNDED_NS

    def _late(self, start: int, end: int) -> Floats:
        """Variance of the energy between two marks for what rows do not tell: when since the row before they were set.

        With steps of a and b joules up to the two marked rows (none of a mark that tells its instant), and the
        instants anywhere in them alike, that energy is off by a U - b V, U and V uniform on (0, 1). Its mean square is
        this.
        """
        a, b = self._step(start), self._step(end)
        late: Floats = (a * a + b * b) / 3 - a * b / 2
        return late

    def _step(self, t: int) -> Floats:
        """Return the joules from the row before a marked one to it; none of an instant that is no such row."""
        since = self._since.get(t, math.inf)
        return self._joules(t, t) - self._joules(t, since) if since < t else np.zeros(len(self._layout.names))

    def _joules(self, end: int, t: float) -> Floats:
        """Return the energies at an instant near the end of a region: by its rows alone where no others are kept."""
        rows = self._near.beside(end)
        if rows is None or not rows[0][0] <= t <= rows[0][-1]:
            return self._at[end][0]
        return energies_at(self._layout, t, *rows)

    def _cost(self, start: int, end: int, late: Floats | float) -> Iterator[tuple[str, float]]:
        a, b = self._at.get(start), self._at.get(end)
        if a is None or b is None or not end > start:
            return
        seconds = (end - start) / _NS
        used, unknown_s = self._joules(end, end) - self._joules(start, start), b[1] - a[1]
        uncertain = np.sqrt(self._uncertainties(start, end, used, unknown_s) ** 2 + late)
        means = self._layout.mean_watts(used, seconds, unknown_s)
        for i, name in enumerate(self._layout.names):
            joules, unknown = float(used[i]), float(unknown_s[i])
            if np.isfinite(joules):
                yield f"{name} joules", joules
                if np.isfinite(uncertain[i]):
                    yield f"{name} uncertainty_joules", float(uncertain[i])
                if np.isfinite(means[i]):
                    yield f"{name} watts", float(means[i])
                if unknown > 0:
                    yield f"{name} coverage", max(0.0, 1.0 - unknown / seconds)

    def _uncertainties(self, start: int, end: int, joules: Floats, unknown_s: Floats) -> Floats:
        rows = self._near.around(start, end)
        if self._judge is None or rows is None or not np.isfinite(joules[1:]).all():
            return np.full(len(joules), np.nan)
        (t_ns, watts, energies), between_ns = rows
        lost = sum(n for t, n in self._losses if start < t <= end)
        t_s = np.asarray((t_ns - start) / _NS, np.float64)
        seconds = (end - start) / _NS
        between = [((a - start) / _NS, (b - start) / _NS) for a, b in between_ns]
        stretch = Judged(self._layout, seconds, joules, unknown_s, lost, t_s, watts, energies, between, *self._dated)
        return self._judge(stretch)


_Rows = tuple[Ints, Floats, Floats]  # times, powers, energies


class _Near:
    """Keeps the rows around the ends of regions while rows go by, for so many ends and no more."""

    def __init__(self) -> None:
        self._kept: dict[int, list[_Rows]] = {}
        self._wanted: dict[int, int] = {}  # how many rows are still to come behind an end
        self._before: _Rows | None = None

    def take(self, frame: Frame, instants: Iterable[int]) -> None:
        """See the next rows, and which of the instants lie among them."""
        new: _Rows = (frame.t_ns, frame.watts, frame.joules)
        for t, wanted in list(self._wanted.items()):
            self._kept[t].append(_part(new, 0, wanted))
            self._wanted[t] = wanted - len(frame)
            if self._wanted[t] <= 0:
                del self._wanted[t]
        rows = new if self._before is None else _joined([self._before, new])
        first, last = int(rows[0][0]), int(rows[0][-1])
        for t in instants:
            if first <= t <= last and t not in self._kept and len(self._kept) < MOST_ENDS:
                at = int(np.searchsorted(rows[0], t))
                self._kept[t] = [_part(rows, max(0, at - _CONTEXT_ROWS), at + _CONTEXT_ROWS)]
                if at + _CONTEXT_ROWS > len(rows[0]):
                    self._wanted[t] = at + _CONTEXT_ROWS - len(rows[0])
        self._before = _part(rows, max(0, len(rows[0]) - _CONTEXT_ROWS), len(rows[0]))

    def beside(self, end: int) -> _Rows | None:
        """Return the rows around an end; None where they were not kept."""
        return _joined(self._kept[end]) if end in self._kept else None

    def around(self, start: int, end: int) -> tuple[_Rows, list[tuple[int, int]]] | None:
        """Return the rows around two ends, each once, and from when to when those between are left out.

        None where they were not kept.
        """
        if start not in self._kept or end not in self._kept:
            return None
        rows = _joined([*self._kept[start], *self._kept[end]])
        last, first = int(self._kept[start][-1][0][-1]), int(self._kept[end][0][0][0])
        _, once = np.unique(rows[0], return_index=True)
        return (rows[0][once], rows[1][once], rows[2][once]), [(last, first)] if first > last else []


def _part(rows: _Rows, start: int, stop: int) -> _Rows:
    return rows[0][start:stop].copy(), rows[1][start:stop].copy(), rows[2][start:stop].copy()


def _joined(parts: Sequence[_Rows]) -> _Rows:
    t_ns, watts, joules = zip(*parts, strict=True)
    return np.concatenate(t_ns), np.concatenate(watts), np.concatenate(joules)


def _between(t: int, t_ns: Ints, values: npt.NDArray[np.float64] | Ints) -> Floats:
    """Values at an instant between rows, on straight lines from row to row."""
    row = int(np.searchsorted(t_ns, t))
    if t_ns[row] == t or row == 0:
        return np.asarray(values[row], np.float64)
    share = (t - int(t_ns[row - 1])) / (int(t_ns[row]) - int(t_ns[row - 1]))
    return np.asarray(values[row - 1] + share * (values[row] - values[row - 1]), np.float64)


def worked(ending: Ending) -> list[Slice]:
    """Return when the device worked, as the program said."""
    return [Slice("load", start, end) for start, end in (ending.load.on_ns if ending.load is not None else ())]


def lanes(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Share slices, in order of their starts, among as few lanes as it takes for those of one lane to nest.

    Viewers draw the slices of a track as a call tree: two that overlap without one being inside the other would be
    drawn wrong.
    """
    made: list[list[Slice]] = []
    open_ends: list[list[int]] = []
    for one in slices:
        for lane, ends in zip(made, open_ends, strict=True):
            while ends and ends[-1] <= one.start_ns:
                ends.pop()
            if not ends or one.end_ns <= ends[-1]:
                lane.append(one)
                ends.append(one.end_ns)
                break
        else:
            made.append([one])
            open_ends.append([one.end_ns])
    return made


def edges(lane: Sequence[Slice]) -> list[tuple[int, Slice, bool]]:
    """Return when the slices of a lane begin (True) and end (False), in an order in which they nest."""
    found: list[tuple[int, Slice, bool]] = []
    waiting: list[Slice] = []
    for one in lane:
        while waiting and waiting[-1].end_ns <= one.start_ns:
            done = waiting.pop()
            found.append((done.end_ns, done, False))
        found.append((one.start_ns, one, True))
        waiting.append(one)
    found += [(done.end_ns, done, False) for done in reversed(waiting)]
    return found
