"""From one recording to another format: block by block, with what the new format cannot hold said.

Reads what :func:`pmtpy.load` reads, writes what :data:`pmtpy.io.write.FILE_FORMATS` lists. Neither the clock nor a
sensor is asked for anything.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy._version import __version__
from pmtpy.core.channel import EnergyMethod
from pmtpy.core.clock import LAST_UNIX_S
from pmtpy.core.nearest import nearest
from pmtpy.core.rows import Frame
from pmtpy.errors import FileFormatError, SinkError, TargetError
from pmtpy.io.columns import downsampled
from pmtpy.io.read.blocks import OpenRecording, RowBlock, open_blocks, recording_of
from pmtpy.io.recorded import Frames, RecordedLayout, ending_of, header_of, layout_of, of_part
from pmtpy.io.write import FILE_FORMATS, Ending, FileFormat, Header, Options, RecordedMark, Sink, format_named
from pmtpy.io.write.base import MOST_ENDS, Judge
from pmtpy.io.write.downsample import Thinner
from pmtpy.io.write.file import already_there, left_behind

if TYPE_CHECKING:
    import pandas as pd


_MISSING = 1.5  # usual steps: rows this far apart have others between them, to a reader of an even stream


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written."""

    rows: int
    lost: int  # rows that were missing in the recording
    notes: tuple[str, ...]  # what the reader said of the recording, and what the new format could not take


def format_for(path: str | os.PathLike[str], name: str | None = None) -> FileFormat:
    """Return the format that a name or the suffix of a path means.

    Raises TargetError: there is none.
    """
    if name is not None:
        return format_named(name)
    suffix = Path(path).suffix.lower()
    found = next((f for f in FILE_FORMATS if suffix in f.suffixes), None)
    if found is None:
        known = [s for f in FILE_FORMATS for s in f.suffixes]
        msg = f"{path}: no format has the suffix {suffix or '(none)'}; there are: {', '.join(known)}"
        raise TargetError(msg + nearest(suffix, known))
    return found


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002  (the word of the command line)
    options: Options | None = None,
    part: tuple[float | None, float | None] = (None, None),
    interval_s: float | None = None,
    start_s: float | None = None,
    skip_broken: bool = False,
    utc_offset_s: float | None = None,
    judge: Judge | None = None,
    tell: Callable[[float], None] = lambda _share: None,
) -> Converted:
    """Write a recording in another format.

    Parameters
    ----------
    source, target : path
        ``target`` is new; nothing of it stays if the recording cannot be read to its end.
    format : str, optional
        None: by the suffix of ``target``.
    options : Options, optional
        How the file is written.
    part : pair of float, optional
        Only the rows from the first (included) to the second (not), in seconds since the first row of the recording;
        None: from its beginning, to its end.
    interval_s : float, optional
        One row for each interval, with nothing lost from the energy; None: every row.
    start_s : float, optional
        Unix seconds at which the recording began, for one that does not tell.
    skip_broken, utc_offset_s
        As for :func:`pmtpy.load`.
    judge : callable, optional
        Judges the energies of regions, for traces, which state them.
    tell : callable
        Called with the share that is done, 0 to 1.

    Raises FileFormatError: the recording cannot be read, or its metadata cannot be believed (whether it is virtual).
    Raises SinkError: the file exists or cannot be written, or the format cannot hold what the recording has.
    Raises TargetError: no such format; or nothing says when the recording was made.
    """
    into = format_for(target, format)
    if Path(target).exists() and Path(source).exists() and Path(source).samefile(target):
        msg = f"{target} is the recording itself; name another file"
        raise TargetError(msg)
    how = options or Options()
    if how.into is not None and not into.merges:
        msg = f"a {into.name} file is not merged with another trace; open both side by side, or name a new .json"
        raise TargetError(msg)
    if how.into is not None and how.into.exists() and Path(target).exists() and how.into.samefile(target):
        msg = f"{target} is the trace to merge with, which stays as it is; name another file"
        raise TargetError(msg)
    with (
        open_blocks(source, *part, skip_broken=skip_broken, utc_offset_s=utc_offset_s) as opened,
        _placed(Path(target), into, overwrite=how.overwrite) as draft,
    ):
        if opened.spoilt and not skip_broken:
            msg = f"{source}: {opened.spoilt}; correct that, or convert without metadata by skip_broken (--skip-broken)"
            raise FileFormatError(msg)
        recording = opened if opened.part.whole else replace(opened, facts=of_part(opened.facts))
        return _Conversion(recording, into, draft, how, interval_s=interval_s, start_s=start_s, judge=judge).run(tell)


def convert_table(table: pd.DataFrame, attrs: dict[str, Any], target: Path) -> Converted:
    """Write a table that is in memory as a new file, of the format that its suffix means.

    Parameters
    ----------
    table : DataFrame
        As :func:`pmtpy.load` makes it.
    attrs : dict
        What is known of it: ``path``, ``format``, ``metadata`` and ``joules``, as in ``attrs`` there.
    """
    recording = recording_of(table, attrs)
    into = format_for(target)
    with _placed(target, into, overwrite=False) as draft:
        made = _Conversion(recording, into, draft, Options(), interval_s=None, start_s=None, judge=None)
        return made.run(lambda _share: None)


@contextlib.contextmanager
def _placed(target: Path, into: FileFormat, *, overwrite: bool) -> Iterator[Path]:
    """Yield a path in a folder of its own, and put what stands there at the end in its place; after an error, nothing.

    A format may need several files, or a folder: all of it is moved. No folder is replaced but one of that format,
    with nothing else in it.
    """
    if target.is_dir() and (not into.folder or {place.name for place in target.iterdir()} - into.folder):
        msg = f"cannot write {target}: it is a folder{', with other things in it' * bool(into.folder)}"
        raise SinkError(msg)
    beside = target.with_name(target.name + ".json")
    if not overwrite and (target.exists() or beside.exists()):
        raise already_there(target) if target.exists() else left_behind(beside, target)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        msg = f"cannot write {target}: {error.strerror}"
        raise SinkError(msg) from error
    try:
        try:
            yield folder / target.name
        except SinkError as error:
            if type(error) is not SinkError:
                raise
            raise SinkError(str(error).replace(str(folder), str(target.parent))) from error  # where the user sees it
        beside.unlink(missing_ok=True)  # of the file that is replaced
        for made in sorted(folder.iterdir()):
            place = target.with_name(made.name)
            if place.is_dir():
                shutil.rmtree(place)
            made.replace(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Conversion:
    """One recording on its way into one file."""

    def __init__(
        self,
        recording: OpenRecording,
        into: FileFormat,
        draft: Path,
        options: Options,
        *,
        interval_s: float | None,
        start_s: float | None,
        judge: Judge | None,
    ) -> None:
        self._judge = judge
        self._recording, self._into, self._draft, self._options = recording, into, draft, options
        self._interval_s, self._start_s = interval_s, start_s
        self._unused: tuple[str, ...] = ()  # what was asked for and had no use
        self._thinner: Thinner | None = None
        self._header: Header | None = None
        self._frames: Frames | None = None
        self._sink: Sink | None = None
        self._rows = self._lost = self._marks = 0
        self._powers: _Powers | None = None

    def run(self, tell: Callable[[float], None]) -> Converted:
        recording = self._recording
        meaning = layout_of(recording.names, recording.facts, recording.joules)
        try:
            for block in recording.blocks:
                if len(block.columns["elapsed"]):
                    self._take(block, meaning)
                tell(block.share)
            if self._header is None or self._frames is None or self._sink is None:
                where = "" if recording.part.whole else " in the part that was asked for"
                msg = f"{recording.path} has no rows{where}; there is nothing to convert"
                raise TargetError(msg)
            rest = self._thinner.flush() if self._thinner is not None else None
            if rest is not None:
                self._pass_on(rest)
            if self._powers is not None:
                self._powers.judge(recording.path)
            sink, self._sink = self._sink, None
            sink.close(self._ending(self._header, self._frames, self._why_not_whole()))
        finally:
            if (
                self._sink is not None and self._header is not None and self._frames is not None
            ):  # nothing of it will stay; it only has to be closed
                with contextlib.suppress(Exception):
                    self._sink.close(self._ending(self._header, self._frames, "not whole"))
        lacks: tuple[str, ...] = (
            (f"the format {self._into.name} has no place for {self._into.lacks}",) if self._into.lacks else ()
        )
        ends = 2 * len(self._header.regions) + self._marks
        if self._header.judge is not None and not self._into.live and ends > MOST_ENDS:
            lacks += (f"only regions among the first {MOST_ENDS} of {ends} begins, ends and marks have an uncertainty",)
        left = tuple(f"column {n} is left out: its unit is not known" for n in meaning.left_out)
        return Converted(self._rows, self._lost, (*recording.notes, *left, *self._unused, *lacks))

    def _take(self, block: RowBlock, meaning: RecordedLayout) -> None:
        if self._frames is None:
            start_s = self._beginning(block)
            self._header = self._header_of(meaning, start_s)
            facts = self._recording.facts or {}
            if self._interval_s is not None:
                self._thinner = Thinner(meaning.layout, self._interval_s, even=self._into.even)
            self._frames = Frames(meaning, self._header, start_s, thinned=downsampled(facts))
            self._powers = _Powers(self._header, self._into.name) if "energies" in self._into.lacks else None
            self._sink = self._into.open(self._draft, self._header, self._options)
        frame = self._frames.frame(block.columns, block.labels)
        self._lost += int(frame.lost.sum())
        self._marks += len(frame.marks)
        self._pass_on(self._thinner.feed(frame) if self._thinner is not None else frame)

    def _ending(self, header: Header, frames: Frames, why: str) -> Ending:
        return ending_of(self._recording.facts, header, frames, rows=self._rows, lost=self._lost, why=why)

    def _header_of(self, meaning: RecordedLayout, start_s: float) -> Header:
        path = self._recording.path
        header = header_of(
            self._recording.facts,
            meaning.layout,
            name=path.name,
            converted_from=f"{path.name} ({self._recording.format})",
            version=__version__,
            interval_s=self._interval_s,
            start_s=start_s,
        )
        table = self._recording.table
        if not header.marks and not header.host_clock and table is not None:  # another tool's, with wall times alone
            told = table.attrs.get("marks") or ()
            header = replace(header, marks=tuple(RecordedMark(m, round((start_s + t) * 1e9)) for t, m in told))
        # Of a sensor that does not say what it knows of itself, no energy can be judged.
        return header if meaning.layout.total_apart else replace(header, judge=self._judge)

    def _pass_on(self, frame: Frame) -> None:
        if self._sink is not None:
            self._sink.write(frame)
        if self._powers is not None and len(frame):
            self._powers.take(frame)
        self._rows += len(frame)

    def _beginning(self, block: RowBlock) -> float:
        """Unix seconds at which ``elapsed`` is zero."""
        told = float(block.columns["time"][0]) - float(block.columns["elapsed"][0])
        if math.isfinite(told):
            if self._start_s is not None:
                self._unused = ("it says itself when it was recorded, so the start that was given is not used",)
            return told
        if self._start_s is None:
            msg = (
                f"{self._recording.path} does not say when it was recorded (its times count from its own start);"
                " say it with --start TIME (2026-01-31T12:00:00+00:00, or Unix seconds)"
            )
            raise TargetError(msg)
        if not abs(self._start_s) < LAST_UNIX_S:
            msg = (
                f"no recording began at {self._start_s:g} Unix seconds (of these 1,769,860,800 is 2026-01-31T12:00:00Z)"
            )
            raise TargetError(msg)
        return self._start_s

    def _why_not_whole(self) -> str:
        """Say why the recording is not whole; empty where nothing speaks against it."""
        recording = self._recording
        if recording.broken_lines:
            return f"{len(recording.broken_lines)} broken lines of {recording.path.name} are left out"
        if recording.unended:
            return f"{recording.path.name} was not ended, or was still being written: what is missing is not known"
        if recording.own and recording.facts is None:
            return f"the metadata of {recording.path.name} are missing: it is not known whether it is whole"
        return ""


class _Powers:
    """Holds energies against what a reader makes of the powers alone, for a format that keeps no energies."""

    def __init__(self, header: Header, into: str) -> None:
        layout = header.layout
        self._into, self._usual_s = into, math.inf  # beyond which its reader finds rows missing
        means = [header.downsampled or c.energy_method is not EnergyMethod.TRAPEZOID for c in layout.energy]
        parts = [i - 1 for i in layout.in_total]
        self._names = layout.names
        self._means = np.array([bool(parts) and all(means[i] for i in parts), *means])
        self._last: Frame | None = None
        self._recorded = np.zeros(len(means) + 1)
        self._integrated = np.zeros(len(means) + 1)

    def take(self, frame: Frame) -> None:
        """Add the steps that lead to the rows of ``frame``; those over losses are the reader's to find."""
        rows = Frame.joined([self._last, frame]) if self._last is not None else frame
        self._last = rows.part(len(rows) - 1, len(rows))
        dt, energy, watts = np.diff(rows.t_ns)[:, None] / 1e9, np.diff(rows.joules, axis=0), rows.watts
        if self._into == "powersensor3" and len(dt) and math.isinf(self._usual_s):
            self._usual_s = float(np.median(dt))
        made = dt * np.where(self._means, watts[1:], (watts[1:] + watts[:-1]) / 2)
        known = np.isfinite(energy) & np.isfinite(made) & ((rows.lost[1:] == 0)[:, None] | self._means)
        made[dt[:, 0] >= _MISSING * self._usual_s] = 0.0
        self._recorded += np.where(known, energy, 0.0).sum(axis=0)
        self._integrated += np.where(known, made, 0.0).sum(axis=0)

    def judge(self, path: Path) -> None:
        """Refuse powers that do not make the energies."""
        off = np.abs(self._integrated - self._recorded)
        wrong = np.flatnonzero(off > np.maximum(0.01 * np.abs(self._recorded), 1e-3))
        if len(wrong):
            i = int(wrong[0])
            msg = (
                f"{path}: a {self._into} file keeps powers alone, and those of {self._names[i]} make"
                f" {self._integrated[i]:.6g} J where {self._recorded[i]:.6g} J were recorded;"
                " convert to .csv or .parquet, which keep energies"
            )
            raise SinkError(msg)
