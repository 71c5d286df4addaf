"""What the verbs that analyse recordings share: opening a file, the powers in it, and when a load was on.

A file that cannot be opened, or that is of the wrong kind for its place, is refused before anything is estimated: a
meter taken for a sensor, or stamps for a meter, would only be declined later for a reason that helps nobody.
"""

from __future__ import annotations

import bisect
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.clocking import Polling
from pmtpy.core.clock import NS_PER_S
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span, at_own_instants, paired
from pmtpy.core.presentation import amount, duration
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import FileFormatError, TargetError
from pmtpy.io.read import LOG, METER, STAMPS, TRACE
from pmtpy.io.read import load as load_file
from pmtpy.io.recorded import anchor_of, load_in, regions_in

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)

AS_SHOWN = "record it as the sensor shows it, with -o calibration=none"  # the cure for what was corrected already
_NAMED = 6  # regions that a text names; there may be thousands
_LITTLE = 0.02  # of a region, by which its ends may be off without a word
_MOSTLY = 0.5  # of a recording, that stamps have to tell of


def read_file(
    path: str,
    ends: tuple[float | None, float | None] = (None, None),
    *,
    skip_broken: bool = False,
    report: Callable[[str], None] = _log.warning,
    only: str | None = None,
) -> pd.DataFrame:
    """Read a recording, or what lies between two ``ends`` of it; ``report`` is told what was left out of it.

    With ``only`` one of its powers, as :func:`pmtpy.load` says.

    A last line that its writer did not finish is left out: loggers are ended by a signal. Any other line that cannot
    be read is an error, unless ``skip_broken``.

    Raises TargetError: there is no such file, or it cannot be opened.
    Raises FileFormatError: it is no recording, or has broken lines.
    """
    try:
        table = _read(path, ends, skip_broken=skip_broken, only=only)
    except OSError as error:
        if error.errno is None:
            raise
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    broken = table.attrs["broken_lines"]
    if broken:
        report(
            f"note: {path}: left out {amount(len(broken), 'line')} that cannot be read, the first is line {broken[0]}"
        )
    return table


def _read(path: str, ends: tuple[float | None, float | None], *, skip_broken: bool, only: str | None) -> pd.DataFrame:
    try:
        return load_file(path, *ends, skip_broken=skip_broken, only=only)
    except FileFormatError as error:
        try:
            table = load_file(path, *ends, skip_broken=True, only=only)
        except FileFormatError:
            raise error from None
        broken, cut = table.attrs["broken_lines"], ends != (None, None)
        if len(broken) == 1 and not cut and broken[0] > len(table):  # rows, and mostly a header, come before it
            return table
        raise


def one_run(tables: Sequence[pd.DataFrame]) -> bool:
    """Whether all rows were stamped by one clock: they are of one file, or of files that pmtpy wrote on one host."""
    if len({t.attrs["path"] for t in tables}) == 1:
        return True
    anchors = [anchor_of(t.attrs["metadata"] or {}, "start") for t in tables]
    # Monotonic time starts with the machine: wall less monotonic time is the moment of its start.
    starts = [a.unix_offset_ns for a in anchors if a]
    return len(starts) == len(tables) > 0 and max(starts) - min(starts) < NS_PER_S // 1000


def power_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns of power that hold anything."""
    return [c for c in table.columns if c.endswith("_W") and table[c].notna().any()]


def times_of(table: pd.DataFrame, *, alone: bool = False) -> str:
    """Return the column of the best times: wall times, where all rows have one, else elapsed ones.

    Of a recording that stands ``alone`` the elapsed ones, which nobody sets.
    """
    return "time" if not alone and bool(table["time"].notna().all()) else "elapsed"


def marked(table: pd.DataFrame, t_s: Floats) -> list[Span]:
    """Return what start and end markers enclose, by when they were set where it tells that, else by times of rows.

    No time passes between two markers of one row, so that nothing can be said of what they enclose.
    """
    return [span for span in paired(_marks(table, t_s))[0] if span.end > span.start]


def regions_of(table: pd.DataFrame, t_s: Floats) -> list[Span]:
    """Return what start and end markers enclose, and what the program measured meanwhile as far as there are rows.

    What it measured as well as marked, under one name, is one region: as measured.
    """
    whole, _ = _measured(table, t_s)
    return sorted([*untold(marked(table, t_s), whole), *whole], key=lambda r: (r.start, -r.end))


def said_of_regions(table: pd.DataFrame) -> list[str]:
    """Return what a reader of the energies of regions must know: which of them are late, and which have none."""
    return [text for text in (late_marks(table), _cut_regions(table)) if text]


def _cut_regions(table: pd.DataFrame) -> str:
    """Say so where regions that the program measured lie in part beyond the rows; empty: there are none."""
    _, cut = _measured(table, table["elapsed"].to_numpy(np.float64))
    if not cut:
        return ""
    names = list(dict.fromkeys(r.name for r in cut))
    named = ", ".join(names[:_NAMED]) + (
        f" and {amount(len(names) - _NAMED, 'more name')}" if len(names) > _NAMED else ""
    )
    return (
        f"{table.attrs['path']}: no energy here of {amount(len(cut), 'region')} ({named}) that began before its first "
        "row or ended after its last"
    )


def _measured(table: pd.DataFrame, t_s: Floats) -> tuple[list[Span], list[Span]]:
    """Return the regions that the program measured meanwhile: those within the rows, and those in part beyond them."""
    if not len(table):
        return [], []
    first, last = float(table["elapsed"].iloc[0]), float(table["elapsed"].iloc[-1])
    found = regions_in(table.attrs["metadata"], _zero_s(table))
    there = [r for r in found if r.start < r.end and r.end > first and r.start < last]
    edges = np.array([(r.start, r.end) for r in there], np.float64).reshape(-1, 2)
    ends = _laid(table, t_s, edges)
    spans = [Span(start, end, r.name) for (start, end), r in zip(ends.tolist(), there, strict=True)]
    whole = ((edges[:, 0] >= first) & (edges[:, 1] <= last)).tolist()
    return list(itertools.compress(spans, whole)), [s for s, inside in zip(spans, whole, strict=True) if not inside]


def _zero_s(table: pd.DataFrame) -> float:
    """Return the wall time at which ``elapsed`` is zero, as recorded: the times may have been laid on other clocks."""
    return float(table.attrs.get("began", table["time"].iloc[0] - table["elapsed"].iloc[0]))


def _laid(table: pd.DataFrame, t_s: Floats, at_s: Floats) -> Floats:
    """Return instants of elapsed time by the times ``t_s`` of the rows; beyond these time goes on as at their ends."""
    elapsed = table["elapsed"].to_numpy(np.float64)
    return np.asarray(np.interp(at_s, elapsed, t_s) + at_s - np.clip(at_s, elapsed[0], elapsed[-1]), np.float64)


def untold(spans: Sequence[Span], others: Iterable[Span]) -> list[Span]:
    """Return the regions that are none of others: no other of their name is for the most part the same time.

    Regions of one name may nest, as those of a function that calls itself.
    """
    named: dict[str, list[Span]] = {}
    for other in sorted(others, key=attrgetter("start")):
        named.setdefault(other.name, []).append(other)
    latest = {name: list(itertools.accumulate((r.end for r in own), max)) for name, own in named.items()}

    def told(span: Span) -> bool:
        middle, own = (span.start + span.end) / 2.0, named.get(span.name, [])
        number = bisect.bisect_right(own, middle, key=attrgetter("start")) - 1
        while number >= 0 and latest[span.name][number] >= middle:
            if _alike(span, own[number]):
                return True
            number -= 1
        return False

    return [span for span in spans if not told(span)]


def _alike(one: Span, other: Span) -> bool:
    """Whether two regions have at least half of the time that they take together in common."""
    both = min(one.end, other.end) - max(one.start, other.start)
    return both >= (max(one.end, other.end) - min(one.start, other.start)) / 2.0


def late_marks(table: pd.DataFrame) -> str:
    """Say so where regions may be off by more than a little, since their marks stand on rows; empty: they are not."""
    t_s = table["elapsed"].to_numpy(np.float64)
    spans, _ = paired(_marks(table, t_s))
    marks = np.array([(span.start, span.end) for span in spans], np.float64).reshape(-1, 2)
    row = np.maximum(t_s.searchsorted(marks, "right") - 1, 0)
    on_row = t_s[row] == marks  # else it is told when it was set
    late_s = float(np.max(marks - t_s[np.maximum(row - 1, 0)], where=on_row, initial=0.0))
    shortest_s = min((span.end - span.start for span in spans), default=0.0)
    if late_s <= _LITTLE * shortest_s:
        return ""
    return (
        f"{table.attrs['path']}: its marks stand on the rows behind them, and it does not tell when they were set: "
        f"what lies between two may have begun or ended up to {duration(late_s)} earlier"
    )


def _marks(table: pd.DataFrame, t_s: Floats) -> list[tuple[float, str]]:
    labels = table["marker"].fillna("")
    rows = np.flatnonzero((labels != "").to_numpy())
    if not len(rows):
        return []
    marks = zip(t_s[rows].tolist(), labels.iloc[rows].to_numpy(str).tolist(), strict=True)
    before = np.where(rows > 0, t_s[rows - 1], math.inf)
    set_s, texts = zip(*table.attrs.get("marks", ()), strict=True) if table.attrs.get("marks") else ((), ())
    own = np.interp(set_s, table["elapsed"].to_numpy(np.float64), t_s)  # the times may have been laid on other clocks
    return at_own_instants(marks, before.tolist(), zip(own.tolist(), texts, strict=True))


def power_column(table: pd.DataFrame, channel: str | None, path: str) -> str:
    """Return the column of a channel, named with or without its unit; without a name, that of the total.

    Raises TargetError: there is no such channel, no power at all, or no total of several.
    """
    powers = power_columns(table)
    if not powers and not len(table):
        msg = f"{path} has no rows, or no rows in the part that was asked for"
        raise TargetError(msg)
    if not powers:
        hint = "; give it with --load" if table.attrs["format"] == STAMPS else ""
        msg = f"{path} has no power in it: it is of the kind {table.attrs['format']!r}{hint}"
        raise TargetError(msg)
    if channel is None and table.attrs["format"] == LOG and " + " in table.attrs["total"]:
        names = ", ".join(p.removesuffix("_W") for p in powers if p != "total_W")
        msg = f"{path} holds several GPUs; name one of these with --channel: {names}"
        raise TargetError(msg)
    if channel is None:
        # A log's total is one of its fields, and has the name of that; a sum of several has none but "total".
        for chosen in (f"{table.attrs.get('total', '')}_W", "total_W"):
            if chosen in powers:
                return chosen
        if len(powers) == 1:
            return powers[0]
        names = ", ".join(p.removesuffix("_W") for p in powers)
        msg = f"{path} has no total; name one of these with --channel: {names}"
        raise TargetError(msg)
    bare = channel.split(" [")[0].removesuffix("_W")
    if f"{bare}_W" in powers:
        return f"{bare}_W"
    msg = f"{path} has no channel {channel!r} with a power; it has: {', '.join(p.removesuffix('_W') for p in powers)}"
    raise TargetError(msg)


def sensor_column(table: pd.DataFrame, channel: str | None, path: str) -> str:
    """Return the column of the sensor to be characterised; a meter's recording is no such thing.

    Raises TargetError: as :func:`power_column`; or the file is a meter's.
    """
    if table.attrs["format"] == METER:
        msg = f"{path} is the recording of a meter: give the sensor's own log as FILE, and this one with --meter"
        raise TargetError(msg)
    return power_column(table, channel or _read_directly(table), path)


def _read_directly(table: pd.DataFrame) -> str | None:
    """Return the first power that the sensor of a recording of ours reads: a counter's is only what its moves make."""
    channels = (table.attrs["metadata"] or {}).get("channels", ())
    powers = (c["name"] for c in channels if c.get("quantity") == "power" and c.get("form") == "direct")
    return next((name for name in powers if f"{name}_W" in table and table[f"{name}_W"].notna().any()), None)


def read_series(table: pd.DataFrame, column: str, *, alone: bool = False) -> Series:
    """Return the known powers of a column, and its energies: at wall times where the recording has them.

    Of a recording that stands ``alone``, at times elapsed. Polls that brought nothing new, which a recording of ours
    leaves out, are put back.
    """
    times = times_of(table, alone=alone)
    absolute, t = times == "time", table[times].to_numpy(np.float64)
    watts, lost = table[column].to_numpy(np.float64), table["lost"].to_numpy(np.int64)
    polling = Polling.of(table.attrs["metadata"])
    if polling is not None:
        renewed_s = polling.renewed(t, watts)
        return Series(*polling.polls(t, watts, lost), absolute, uncut=polling.uncut, renewed_s=renewed_s)
    joules, known = table[f"{column[:-1]}J"].to_numpy(np.float64), np.isfinite(t) & np.isfinite(watts)
    if not known.all():  # millions of rows are not held twice where all are
        t, watts, joules, lost = t[known], watts[known], joules[known], lost[known]
    return Series(t, watts, absolute, _bridged(t, watts, joules, lost))


def _bridged(t: Floats, watts: Floats, joules: Floats, lost: Ints) -> Floats | None:
    """Return cumulative energies in which lost rows are bridged by the powers either side; None if none are known."""
    if not np.all(np.isfinite(joules)):
        return None
    after = np.flatnonzero(lost[1:] > 0)
    if not len(after):
        return joules
    spent = np.diff(joules)
    spent[after] = (watts[after + 1] + watts[after]) / 2.0 * (t[after + 1] - t[after])
    total = np.zeros(len(joules))
    np.cumsum(spent, out=total[1:])
    return total


def read_stamps(path: str, *, skip_broken: bool = False, report: Callable[[str], None] = _log.warning) -> LoadIntervals:
    """Read when a load was on: from a load stamp file, a trace, or any recording.

    Of a recording by the stamps of its load that the program made meanwhile; else by its start and end markers; else by
    the regions that it measured. Stamp files and markers tell of all time; all else of its own only, ``known_s``.

    Raises TargetError: it cannot be opened, or has no such stamps.
    Raises FileFormatError: it is no recording.
    """
    table = read_file(path, skip_broken=skip_broken, report=report)
    own, times = stamped_load(table), times_of(table)
    if own is not None:
        return own
    t_s = table[times].to_numpy(np.float64)
    marks = marked(table, t_s)
    spans = marks or sorted(itertools.chain(*_measured(table, t_s)), key=attrgetter("start"))
    stamps = _one_after_another(spans, absolute=times == "time")
    if stamps is None:
        hint = "; a log of power goes with --meter" if table.attrs["format"] != STAMPS else ""
        msg = f"{path} has no markers (on/off, start/end) or regions, in turn, that say when the load was on"
        raise TargetError(msg + hint)
    late = late_marks(table) if power_columns(table) else ""
    if late:
        report(f"note: {late}")
    if table.attrs["format"] == TRACE or not marks:  # before and after nobody knows
        stamps = replace(stamps, known_s=np.array([[min(t_s[0], stamps.on_s[0]), max(t_s[-1], stamps.off_s[-1])]]))
    return stamps


def marked_load(table: pd.DataFrame, *, alone: bool = False) -> LoadIntervals | None:
    """Return the blocks of a load that start and end markers enclose, or None; times as of :func:`read_series`."""
    times = times_of(table, alone=alone)
    return _one_after_another(marked(table, table[times].to_numpy(np.float64)), absolute=times == "time")


def stamped_load(table: pd.DataFrame, *, alone: bool = False) -> LoadIntervals | None:
    """Return when the load was on by the stamps that the program made while it was recorded, or None.

    Times as of :func:`read_series`. For which time that is all is in ``known_s``.
    """
    load = load_in(table.attrs["metadata"], _zero_s(table)) if len(table) else None
    if load is None:
        return None
    times = times_of(table, alone=alone)
    t_s = table[times].to_numpy(np.float64)
    on_s, off_s, known_s = (_laid(table, t_s, each) for each in (load.on_s, load.off_s, load.known_s))
    return LoadIntervals(on_s, off_s, known_s, absolute=times == "time")


def used_stamps(
    polls: Series, load: LoadIntervals, path: str, report: Callable[[str], None] = _log.warning
) -> LoadIntervals | None:
    """Return the stamps of a recording's own load if a sensor may be characterised by them, else None.

    That looks at the longest time of which they tell all that the load did, which has to be half of the readings or
    more, unless a user asks for them.
    """
    first, last = float(polls.t_s[0]), float(polls.t_s[-1])
    start, end = load.longest_known(first, last)
    changes = load.switches(start, end) > 0
    if changes and end - start >= _MOSTLY * (last - first):
        return load
    told = f"the load's stamps in {path} tell of {end - start:.3g} of its {last - first:.3g} s in one go"
    why = f": they are not used; with --load {path} that time is" if changes else ", and of no change: they are not"
    report(f"note: {told}{why} looked at")
    return None


def _one_after_another(spans: Sequence[Span], *, absolute: bool) -> LoadIntervals | None:
    """Return regions as blocks of a load; None if there are none, or two overlap."""
    edges = [edge for r in spans for edge in (r.start, r.end)]
    if not edges or any(b <= a for a, b in itertools.pairwise(edges)):
        return None
    return LoadIntervals.switched(np.array(edges), absolute=absolute)
