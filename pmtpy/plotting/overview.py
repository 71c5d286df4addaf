"""What pictures show of a recording: its curves in slices, its marks, what was lost, and what its file says.

A file is read block by block, so its length costs time and no memory; of a JLS file only its own pyramid is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.core.channel import TOTAL
from pmtpy.core.markers import Span
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.columns import counted_among
from pmtpy.io.jls import LONGEST_GAP_S, JlsFile, Statistics
from pmtpy.io.read.blocks import OpenRecording, jls_samples, open_blocks
from pmtpy.io.recorded import marks_in, regions_in
from pmtpy.io.uncovered import Uncovered, UncoveredRows
from pmtpy.plotting.slices import MAX_SLICES, Slicer, Slices

if TYPE_CHECKING:
    import pandas as pd

UNITS = ("W", "V", "A")  # of the columns that are drawn
_JLS_SLICES = 4096
"""Into so many a JLS recording is divided, at most, if not every row is drawn."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A recording in slices."""

    facts: dict[str, Any]  # as ``attrs`` of :func:`pmtpy.load`
    # the curves, named as in a table (``pair0_W``); those that have no value at all are not among them
    columns: tuple[str, ...]
    energies: tuple[str, ...]  # the powers that have an energy, without their unit, in the order of ``slices.joules``
    start_unix_s: float  # of the zero of its times; NaN: not known
    # times of the first and last row, in seconds
    first: float
    last: float
    first_joules: Floats  # shape (p,); energies at the first row
    slices: Slices
    marks: Sequence[tuple[float, str]]  # (time, label)
    gaps: Sequence[tuple[float, float, int]]  # (start, end, rows lost)
    rows: int
    lost: int
    # by power: the stretches of which nothing is known, lost rows or not (starts, ends; the longest, if there are many)
    unknown: Mapping[str, tuple[Floats, Floats]]
    uncovered_s: float | None  # for how long no energy of the total is known, seconds; None: nobody counted it

    @property
    def joules(self) -> float:
        """Energy of the total from the first to the last row; NaN where it is not known."""
        if TOTAL not in self.energies or not len(self.slices):
            return math.nan
        i = self.energies.index(TOTAL)
        return float(self.slices.joules[-1, i] - self.first_joules[i])

    @property
    def powers(self) -> list[str]:
        """Names of the powers that have an energy beside them; other watts (a power limit) are settings."""
        return [n for n in self.energies if f"{n}_W" in self.columns]

    @property
    def regions(self) -> list[Span]:
        """Return what the program measured meanwhile, as far as it lies within the rows."""
        found = regions_in(self.facts.get("metadata"), self.start_unix_s)
        return [r for r in found if r.end > self.first and r.start < self.last]

    def mean(self, column: str) -> float:
        """Return the mean over all rows that have a value; NaN: there is none."""
        if column not in self.columns:
            return math.nan
        i = self.columns.index(column)
        known = float(self.slices.known[:, i].sum())
        return float(self.slices.total[:, i].sum()) / known if known else math.nan


class _Unknown:
    """Collects where nothing is known of the powers of a recording, while its rows are read."""

    def __init__(self, rule: UncoveredRows, powers: Sequence[str]) -> None:
        self._rule, self.powers = rule, powers
        self._stretches = [(np.empty(0), np.empty(0)) for _ in powers]
        self._newest: tuple[Floats, Floats, Floats] | None = None  # of the last row: its time, unknown time, energies
        self._seconds = np.zeros(len(powers))

    def add(self, columns: Mapping[str, Any], joules: Floats) -> None:
        """Take the next rows."""
        t = columns["elapsed"]
        if not (len(t) and self.powers):
            return
        self._seconds = self._rule.seconds(columns)
        rows = t, self._seconds, joules
        part = Uncovered(len(self.powers))
        part.add(*(rows if self._newest is None else [np.concatenate(p) for p in zip(self._newest, rows, strict=True)]))
        self._newest = t[-1:], self._seconds[-1:], joules[-1:]
        self._seconds = self._seconds[-1]
        for i, have in enumerate(self._stretches):
            starts, ends = (np.concatenate(p) for p in zip(have, part.unknown(i), strict=True))
            if len(starts) > MAX_SLICES:
                longest = np.sort(np.argsort(starts - ends)[: MAX_SLICES // 2])
                starts, ends = starts[longest], ends[longest]
            self._stretches[i] = starts, ends

    def found(self) -> dict[str, tuple[Floats, Floats]]:
        """Return the stretches by power."""
        return dict(zip(self.powers, self._stretches, strict=True))

    def of_total(self) -> float | None:
        """Return the seconds of which no energy of the total is known; None where there is none."""
        return float(self._seconds[self.powers.index(TOTAL)]) if TOTAL in self.powers else None


def _wanted(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns to draw, and the powers that have an energy."""
    drawn = [n for n in names if n.rpartition("_")[2] in UNITS and "_" in n]
    return drawn, counted_among(names)


def of_table(table: pd.DataFrame, most: int | None = None) -> Overview:
    """Make an overview of a table as :func:`pmtpy.load` makes it; ``most``: how many slices it has."""
    drawn, energies = _wanted(list(table.columns))
    slicer = Slicer() if most is None else Slicer(most)
    marker = table["marker"].to_numpy()
    rows = np.flatnonzero((table["marker"] != "").to_numpy())
    labels = [(int(r), str(marker[r])) for r in rows]
    t = table["elapsed"].to_numpy(np.float64)
    values = table[drawn].to_numpy(np.float64).reshape(len(t), len(drawn))
    joules = table[[f"{n}_J" for n in energies]].to_numpy(np.float64).reshape(len(t), len(energies))
    lost = table["lost"].to_numpy(np.int64)
    slicer.add(t, values, joules, lost, labels)
    unix = float(table["time"].iloc[0]) - t[0] if len(t) else math.nan
    facts = {str(k): v for k, v in table.attrs.items()}
    names = [str(n) for n in table.columns if n != "marker"]
    unknown = _Unknown(UncoveredRows(names, facts.get("metadata"), str(facts.get("joules")), energies), energies)
    parts = [(drawn, values), ([f"{n}_J" for n in energies], joules)]
    columns = {name: found[:, i] for names, found in parts for i, name in enumerate(names)}
    unknown.add(columns | {"elapsed": t, "lost": lost}, joules)
    return _finished(slicer, facts, drawn, unix, unknown)


def of_file(
    path: str | os.PathLike[str],
    start: float | None = None,
    stop: float | None = None,
    *,
    most: int | None = None,
    skip_broken: bool = False,
    utc_offset_s: float | None = None,
) -> Overview:
    """Make an overview of a recording of any kind and length, or of a part of it, in at most about ``most`` slices.

    Other arguments and errors as :func:`pmtpy.load` has them.
    """
    with open_blocks(path, start, stop, skip_broken=skip_broken, utc_offset_s=utc_offset_s) as recording:
        if recording.table is not None:
            return of_table(recording.table, most)
        if recording.jls is not None:
            return _of_jls(recording, recording.jls, most)
        return _of_blocks(recording, most)


def _of_blocks(recording: OpenRecording, most: int | None) -> Overview:
    drawn, energies = _wanted(recording.names)
    slicer, unix = Slicer() if most is None else Slicer(most), math.nan
    rule = UncoveredRows(recording.names, recording.facts, recording.joules, energies)
    unknown = _Unknown(rule, energies)
    for block in recording.blocks:
        found, t = block.columns, block.columns["elapsed"]
        if len(t) and math.isnan(unix):
            unix = float(found["time"][0]) - float(t[0])
        values, joules = (
            np.column_stack([found[n] for n in names]) if names else np.empty((len(t), 0))
            for names in (drawn, [f"{n}_J" for n in energies])
        )
        slicer.add(t, values, joules, found["lost"], block.labels)
        unknown.add(found, joules)
    return _finished(slicer, recording.attrs(int(slicer.rows)), drawn, unix, unknown)


def _of_jls(recording: OpenRecording, file: JlsFile, most: int | None) -> Overview:
    """Take what the file's own pyramid says: mean, least and greatest value of stretches of samples.

    Rows are taken where there are no more samples than slices may be.
    """
    begin, end = jls_samples(file, recording.part)
    if end - begin <= (most or _JLS_SLICES):
        return _of_blocks(recording, most)
    drawn, energies = _wanted(recording.names)
    step = -(-(end - begin) // _JLS_SLICES)
    last = np.minimum(np.arange(begin, end, step) + step, end) - 1  # the last stretch may be shorter
    first = np.concatenate([[begin], last[:-1] + 1])
    found = [_stretches(file, name, range(begin, end, step), end) for name in drawn]
    shape = len(last), len(drawn)
    mean, low, high = (np.column_stack([getattr(f, k) for f in found]).reshape(shape) for k in ("mean", "low", "high"))
    marks, losses = file.annotations(begin, end)
    losses = [(at, n) for at, n in losses if at > begin]  # what was lost before the first row is no gap
    seconds = _seconds(
        file, np.unique(np.concatenate([first, last, [at for at, _ in marks + losses]]).astype(np.int64))
    )
    lost, missing = np.zeros(len(last), np.int64), np.zeros(len(last), np.int64)
    for at, n in losses:
        lost[np.searchsorted(last, at)] += n
        missing[np.searchsorted(last, at)] += min(n, file.rate * LONGEST_GAP_S)
    rows = np.maximum(last - first + 1 - missing, 1)
    known = np.isfinite(mean) * rows[:, None]
    middle = (seconds(first) + seconds(last)) / 2
    joules = np.column_stack([file.energies(f"{n}_J", last) for n in energies]).reshape(len(last), len(energies))
    made = Slices(rows, lost, middle * rows, seconds(last), known, np.nan_to_num(mean) * known, low, high, joules)
    gaps = [(t - (n + 1) / file.rate, t, n) for t, n in ((float(seconds(at)), n) for at, n in losses)]
    return Overview(
        recording.attrs(int(file.facts.get("rows") or 0)),
        tuple(drawn),
        tuple(energies),
        file.start_unix_s,
        float(seconds(begin)),
        float(seconds(end - 1)),
        np.array([float(file.energies(f"{n}_J", np.array([begin]))[0]) for n in energies]),
        made,
        [(float(seconds(at)), text) for at, text in marks],
        gaps,
        int((recording.part.whole and file.facts.get("rows")) or end - begin - missing.sum()),
        int(lost.sum()),
        _of_pyramid(energies, [mean[:, drawn.index(f"{n}_W")] for n in energies], made, seconds(first)),
        recording.facts.get("uncovered_s") if recording.facts else None,
    )


def _of_pyramid(
    energies: Sequence[str], means: Sequence[Floats], made: Slices, starts: Floats
) -> dict[str, tuple[Floats, Floats]]:
    """Return the slices of each power that hold no value, and over which its energy does not rise."""
    found = {}
    for i, (name, mean) in enumerate(zip(energies, means, strict=True)):
        still = np.diff(made.joules[:, i], prepend=np.nan) == 0.0
        at = np.flatnonzero(~np.isfinite(mean) & still)
        found[name] = starts[at], made.last[at]
    return found


def _stretches(file: JlsFile, name: str, firsts: range, end: int) -> Statistics:
    """Return the statistics of stretches, and of the samples behind the last whole one where there are some."""
    whole = (end - firsts.start) // firsts.step
    parts = [file.statistics(name, firsts.start, firsts.step, whole)] if whole else []
    rest = end - firsts.start - whole * firsts.step
    parts += [file.statistics(name, end - rest, rest, 1)] if rest else []
    return Statistics(*(np.concatenate([getattr(p, k) for p in parts] or [np.empty(0)]) for k in Statistics._fields))


def _seconds(file: JlsFile, ids: Ints) -> Callable[[Any], Floats]:
    """Return what gives the times of some sample numbers."""
    known = file.times_at(ids)
    return lambda wanted: np.asarray(np.interp(wanted, ids, known))


def _finished(slicer: Slicer, facts: dict[str, Any], drawn: list[str], unix: float, unknown: _Unknown) -> Overview:
    made, energies = slicer.slices(), unknown.powers
    if made is None:
        nothing = np.empty((0, len(drawn)))
        made = Slices.of_rows(np.empty(0), nothing, np.empty((0, len(energies))), np.empty(0, np.int64))
    return Overview(
        facts,
        tuple(drawn),
        tuple(energies),
        unix,
        slicer.first_t,
        slicer.newest,
        slicer.first_joules,
        made,
        slicer.marks(facts.get("marks") or marks_in(facts.get("metadata"), unix)),
        slicer.gaps,
        int(made.rows.sum()),
        int(made.lost.sum()),
        unknown.found(),
        unknown.of_total(),
    )
