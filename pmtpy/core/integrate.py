"""Counts to curves: scale, correct, multiply, integrate. The only module that knows how energy comes about.

Three rules and no fourth: a counter gives energy by difference, with unwrap; samples of a momentary power by
trapezoid; the mean over an interval by mean times interval. A poll delivers one row and a stream many; both give the
same curve, however the rows are cut into Blocks.

What is not known is not invented: where rows were lost, where the device restarted, or where a counter may have
turned over more than once, no energy is added and the interval is counted as uncovered.

An :class:`Integrator` is driven by one owner, the sensor, under its lock. It does no input or output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pmtpy.core._sampled import Matrix, Ordinary, covered_ns
from pmtpy.core.channel import Channel, Derivation, EnergyMethod
from pmtpy.core.counters import Counter, Ratio, Transform, impossible, sure_ns
from pmtpy.core.rows import Block, Floats, Frame, Ints, Layout, Point, Row

_new = tuple.__new__  # what Point(...) does in the end, at half the cost

_UNKNOWN = "it was not measured, or shows an impossible value"

_NEVER_NS = -(1 << 62)
_MAX_SCALAR_ROWS = 8  # below this, plain numbers are faster than arrays


class Integrator:
    """The running curve of one source.

    Parameters
    ----------
    layout : Layout
        The meaning of the columns.
    transforms : mapping of channel name to function
        Calibration: SI in, SI out, before a product is formed and before integration. On a counter it acts on the
        mean power of each interval.

    Attributes
    ----------
    layout : Layout
        As given.
    lost : int
        Rows that are known to be missing.
    doubts : dict of int to (int, str)
        Of each column (as of a Frame) of which energy was not known: at which row last, ns, and why.
    """

    def __init__(self, layout: Layout, transforms: Mapping[str, Transform] | None = None) -> None:
        self.layout = layout
        self._transforms = dict(transforms or {})
        self._plan(layout)
        self._started = False
        self._t_ns = 0
        self._watts = [math.nan] * len(layout.names)  # as the columns of a Frame: the total first
        self._joules = [0.0 if layout.in_total else math.nan] + [0.0] * len(layout.energy)
        self._unknown_ns = [0] * len(layout.names)
        self._uncovered_ns = tuple(self._unknown_ns)
        self._same = Ordinary(self._uncovered_ns, 0)
        self.lost = 0
        self._hole = (_NEVER_NS, _NEVER_NS)  # begin and end of the newest stretch that the total does not know
        self.doubts: dict[int, tuple[int, str]] = {}

    def rested_watts(self, out: int, since_ns: int) -> float:
        """Return the mean power up to the last move of a column's counter, where that was before an instant; else 0.

        NaN: it has not moved since it began to count.
        """
        for column, counter in (*self._plain, *self._counters):
            if column == out and isinstance(counter, Counter) and counter.moved_ns <= since_ns:
                return counter.mean_watts()
        return 0.0

    def _plan(self, layout: Layout) -> None:
        """Sort the channels by how they are computed, once."""
        direct = [c for c in layout.channels if c.derivation is Derivation.DIRECT]
        column = {c.name: i for i, c in enumerate(direct)}
        by_name = {c.name: c for c in layout.channels}
        self._scales, self._offsets = [c.scale for c in direct], [c.offset for c in direct]
        self._scale, self._offset = np.array(self._scales, np.float64), np.array(self._offsets, np.float64)
        self._corrected = [(column[n], t) for n, t in self._transforms.items() if n in column]
        self._plain: list[tuple[int, Counter]] = []  # counters that nothing corrects
        self._counters: list[tuple[int, Counter | Ratio]] = []  # the others: corrected, or a ratio of two
        self._samples: list[tuple[int, Channel, int, int]] = []  # (out, channel, column, second column or -1)
        for out, channel in enumerate(layout.energy, 1):
            correct = self._transforms.get(channel.name)
            if channel.derivation is Derivation.RATIO:
                parts = [Counter(by_name[o], column[o], None) for o in channel.operands]
                self._counters.append((out, Ratio(channel, (parts[0], parts[1]), correct)))
            elif channel.energy_method is EnergyMethod.COUNTER and correct is None:
                self._plain.append((out, Counter(channel, column[channel.name], None)))
            elif channel.energy_method is EnergyMethod.COUNTER:
                self._counters.append((out, Counter(channel, column[channel.name], correct)))
                self._corrected = [(i, t) for i, t in self._corrected if i != column[channel.name]]
            elif channel.derivation is Derivation.PRODUCT:
                self._samples.append((out, channel, column[channel.operands[0]], column[channel.operands[1]]))
            else:
                self._samples.append((out, channel, column[channel.name], -1))
        self._values = [
            (column[c.name], c.scale, c.offset, self._transforms.get(c.name))
            for c in layout.values
            if c.derivation is Derivation.DIRECT
        ]
        self._ordinary = [
            (
                counter,
                out,
                counter.column,
                counter.scale,
                counter.step,
                math.inf if counter.channel.max_watts is None else counter.channel.max_watts,
                2 * (counter.channel.refresh_s or 0.0),
                counter.refresh_ns,
                counter.hold_ns,
                counter.quick_ns,
            )
            for out, counter in self._plain
        ]
        self._sure_ns = min([sure_ns(counter.channel) for _, counter in self._plain], default=0.0)
        self._in_total = layout.in_total
        least = [channel.least_watts or -math.inf for _, channel, *_ in self._samples]
        most = [math.inf if channel.max_watts is None else channel.max_watts for _, channel, *_ in self._samples]
        self._bounds = (np.array(least)[:, None], np.array(most)[:, None])
        self._bounded = any(map(math.isfinite, (*least, *most)))
        self._wide = bool(self._samples) and not self._counters and not self._plain
        self._matrix = Matrix(self._samples, [i for i, *_ in self._values], list(layout.in_total))

    def advance(self, data: Block | Row) -> Frame | Point | None:
        """Take the rows that have come; return the same rows of the curve (None if there were none)."""
        if isinstance(data, Row):
            return self.step(data)
        if not len(data):
            return None
        if self._wide and len(data) >= _MAX_SCALAR_ROWS:
            return self._sweep(data)
        return self._walk(data)

    def _walk(self, block: Block) -> Frame:
        lost = block.lost.tolist() if block.lost is not None else [0] * len(block)
        rows = zip(block.t_ns.tolist(), block.raw.tolist(), lost, strict=True)
        if block.restarted and self._started:
            self._start_anew(int(block.t_ns[0]), block.raw[0].tolist(), block.restarted)
        points = [self.step(Row(*row), fresh=block.fresh and i == 0) for i, row in enumerate(rows)]
        return Frame.of_points(points, block.marks)

    def _start_anew(self, t_ns: int, counts: Sequence[float], columns: Sequence[int]) -> None:
        """Let the counters in some columns begin anew; of the interval before nothing is known of them."""
        unknown_ns = t_ns - self._t_ns
        for out, counter in (*self._plain, *self._counters):
            if not counter.columns.isdisjoint(columns):
                counter.start(counts, t_ns)
                self._watts[out] = math.nan
                self._uncover(t_ns, {out: (unknown_ns, "its counter restarted")})

    # -- one row, plain numbers ------------------------------------------------------------------------------------

    def step(self, row: Row, *, fresh: bool = False) -> Point:
        """Take one row; return it as a row of the curve. ``fresh``: the device restarted before it."""
        t_ns, counts, lost = row
        dt_ns = t_ns - self._t_ns
        if fresh or not self._started:
            lost = max(lost, self._started)  # files know a time without energy by the rows that it lacks
            self._begin(t_ns, counts, dt_ns)
        else:
            self._count(t_ns, counts, dt_ns)
            if self._counters or self._samples:
                self._add(t_ns, counts, dt_ns, gap=lost > 0)
        self._t_ns = t_ns
        if lost:
            self.lost += lost
        watts, joules = self._watts, self._joules
        if self._in_total:
            total_w = total_j = 0.0
            for i in self._in_total:
                total_w += watts[i]
                total_j += joules[i]
            watts[0], joules[0] = total_w, total_j
        values: tuple[float, ...] = ()
        if self._values:
            values = tuple([(counts[i] + o) * s for i, s, o, _ in self._values])
            if self._transforms:
                values = self._correct_values(values)
        return _new(Point, (t_ns, tuple(watts), tuple(joules), values, lost, self._uncovered_ns))

    def _count(self, t_ns: int, counts: Sequence[float], dt_ns: int) -> None:
        """Add what the plain counters have counted in one interval.

        This is what a user's ``read()`` of counters waits for, so the ordinary case is worked out here without a call:
        the time was too short to turn over unseen, and a counter rests or has gone on by a possible amount. All else
        is left to :meth:`Counter.advance`, which says the same of the ordinary case too.
        """
        before_ns = t_ns - dt_ns
        if dt_ns > self._sure_ns:
            for out, counter in self._plain:
                self._advance(out, counter, t_ns, counts, dt_ns)
            return
        watts, joules = self._watts, self._joules
        for counter, out, column, scale, step, max_watts, slack_s, refresh_ns, hold_ns, quick_ns in self._ordinary:
            grown = counts[column] - counter.old
            rest_ns = t_ns - counter.moved_ns
            if counter.odd or (rest_ns > quick_ns and not (grown and counter.moved_ns == before_ns)):
                self._advance(out, counter, t_ns, counts, dt_ns)
            elif not grown:
                if rest_ns > hold_ns and not watts[out] <= step / (rest_ns * 1e-9):
                    watts[out] = counter.watts = step / (rest_ns * 1e-9)
            elif 0 < grown * scale <= max_watts * (rest_ns * 1e-9 + slack_s) + step:
                used = grown * scale
                power = used / (rest_ns * 1e-9) if rest_ns > refresh_ns else counter.power(used, t_ns, dt_ns)
                counter.old, counter.earlier_ns, counter.moved_ns = counts[column], counter.moved_ns, t_ns
                joules[out] += used
                watts[out] = counter.watts = power
            else:
                self._advance(out, counter, t_ns, counts, dt_ns)

    def _advance(self, out: int, counter: Counter | Ratio, t_ns: int, counts: Sequence[float], dt_ns: int) -> None:
        """Add what one counter has counted in one interval, and the time for which that is not known."""
        joules, unknown_ns = counter.advance(counts, t_ns, dt_ns)
        self._watts[out] = counter.watts
        self._joules[out] += joules
        if unknown_ns:
            self._uncover(t_ns, {out: (unknown_ns, counter.doubt)})

    def _uncover(self, t_ns: int, found: Mapping[int, tuple[int, str]]) -> None:
        """Count the time up to now without known energy of some columns.

        Of the total nothing is known while one of its parts is not: their times count once where they overlap.
        """
        unknown = self._unknown_ns
        for out, (unknown_ns, doubt) in found.items():
            unknown[out] += unknown_ns
            if doubt and unknown_ns:
                self.doubts[out] = t_ns, doubt
        parts = self._in_total or range(1, len(unknown))
        longest_ns = max([found[i][0] for i in parts if i in found], default=0)
        if longest_ns:
            begin, (before, end) = t_ns - longest_ns, self._hole
            counted = 0
            if begin <= end:
                begin, counted = min(begin, before), end - before
            unknown[0] += t_ns - begin - counted
            self._hole = begin, t_ns
        self._uncovered_ns = tuple(unknown)

    def _correct_values(self, values: tuple[float, ...]) -> tuple[float, ...]:
        plan = zip(values, self._values, strict=True)
        return tuple([v if t is None else float(t(np.array([v]))[0]) for v, (*_, t) in plan])

    def _sample(self, counts: Sequence[float], channel: Channel, i: int, j: int) -> float:
        a = (counts[i] + self._offsets[i]) * self._scales[i]
        if self._transforms:
            for column, transform in self._corrected:
                if column == i:
                    a = float(transform(np.array([a]))[0])
        if j < 0:
            return a
        watts = a * self._sample(counts, channel, j, -1) * channel.scale
        correct = self._transforms.get(channel.name)
        return watts if correct is None else float(correct(np.array([watts]))[0])

    def _believed(self, out: int, channel: Channel, watts: float, t_ns: int) -> float:
        """Return a power as it was read, or NaN if it cannot be what the part uses."""
        why = impossible(channel, watts)
        if not why:
            return watts
        self.doubts[out] = t_ns, why
        return math.nan

    def _begin(self, t_ns: int, counts: Sequence[float], dt_ns: int) -> None:
        """Begin, or begin anew after a restart: of the time before nothing is known."""
        for out, counter in (*self._plain, *self._counters):
            counter.start(counts, t_ns)
            self._watts[out] = math.nan
        for out, channel, i, j in self._samples:
            self._watts[out] = self._believed(out, channel, self._sample(counts, channel, i, j), t_ns)
        first, self._started = not self._started, True
        if not first:
            self._uncover(t_ns, dict.fromkeys(range(1, len(self._watts)), (dt_ns, "the device restarted")))

    def _add(self, t_ns: int, counts: Sequence[float], dt_ns: int, *, gap: bool) -> None:
        """Add the energy of one interval, of all but plain counters."""
        found: dict[int, tuple[int, str]] = {}
        for out, counter in self._counters:
            self._advance(out, counter, t_ns, counts, dt_ns)
        for out, channel, i, j in self._samples:
            before, now = self._watts[out], self._believed(out, channel, self._sample(counts, channel, i, j), t_ns)
            self._watts[out] = now
            mean = now if channel.energy_method is EnergyMethod.MEAN else (before + now) / 2
            # A momentary power beside the counter that makes the total is bridged by its neighbours: the total knows
            # the energy of that time, so it is not uncovered. The uncertainty of the channel has a part for it.
            lost = gap and (out in self._in_total or not self._in_total)
            known_ns = 0 if math.isnan(mean) else covered_ns(channel, dt_ns) if lost else dt_ns
            if known_ns:
                self._joules[out] += mean * known_ns * 1e-9
            if known_ns < dt_ns:
                found[out] = dt_ns - known_ns, ""
        if found:
            self._uncover(t_ns, found)

    # -- many rows, arrays -----------------------------------------------------------------------------------------

    def _sweep(self, block: Block) -> Frame:
        """Do for all rows at once what :meth:`step` does for one; only sampled channels, which is what streams have.

        Few calls on whole matrices: a caller of ``read()`` waits for them.
        """
        n, t_ns, plan = len(block), block.t_ns, self._matrix
        si = np.empty(block.raw.shape[::-1])  # one row per column, side by side: three times as fast
        np.add(block.raw.T, self._offset[:, None], out=si)
        si *= self._scale[:, None]
        for column, transform in self._corrected:
            si[column] = transform(si[column])
        dt_ns = np.empty(n, np.int64)
        np.subtract(t_ns[1:], t_ns[:-1], out=dt_ns[1:])
        first = not self._started
        dt_ns[0] = 0 if first else t_ns[0] - self._t_ns
        watts, joules = np.empty((plan.rows + 1, n)), np.empty((plan.rows + 1, n))
        self._powers(si, watts)
        energy = joules[1:]
        np.multiply(self._means(watts, first=first), dt_ns * 1e-9, out=energy)
        gaps = self._gaps(block, first=first)
        unknown = None
        # A power that was not read, or cannot be, is no number, and neither is a sum that it is part of.
        if gaps or not math.isfinite(np.add.reduce(energy, axis=None)):
            unknown = self._cut_out(joules, dt_ns, gaps, t_ns)
        energy[:, 0] += self._joules[1:]
        np.add.accumulate(energy, axis=1, out=energy)
        for columns in (watts, joules):
            if plan.total is None:
                columns[0] = math.nan
            else:
                np.add.reduce(columns[plan.total], axis=0, out=columns[0])
        if self._same.rows < n or self._same.uncovered_ns != self._uncovered_ns:
            self._same = Ordinary(self._uncovered_ns, n)
        uncovered = self._same.uncovered[:, :n].T
        if unknown is not None:
            uncovered = uncovered + np.cumsum(unknown, axis=0)
            self._unknown_ns = (np.array(self._unknown_ns) + unknown.sum(axis=0)).tolist()
            self._uncovered_ns = tuple(uncovered[-1].tolist())
        lost = self._same.lost[:n] if block.lost is None else block.lost
        if block.fresh and not first and not lost[0]:
            lost = lost.copy()
            lost[0] = 1
        self.lost += int(lost.sum()) if lost.base is not self._same.lost else 0
        last_ns, last_watts, last_joules = int(t_ns[-1]), watts[:, -1].tolist(), joules[:, -1].tolist()
        # No call between these: Ctrl-C, which comes at calls, finds all of them old or all new.
        self._started, self._t_ns, self._watts, self._joules = True, last_ns, last_watts, last_joules
        values = si[plan.values].T if self._values else np.empty((n, 0))
        return Frame(t_ns, watts.T, joules.T, values, lost, uncovered, block.marks)

    def _powers(self, si: Floats, watts: Floats) -> None:
        """Fill in the power of every channel, one row each; the row of the total is left."""
        plan, power = self._matrix, watts[1:]
        if plan.products is not None:
            np.multiply(si[plan.products[0]], si[plan.products[1]], out=power)
        else:
            for out, _, i, j in self._samples:
                watts[out] = si[i] if j < 0 else si[i] * si[j]
        if plan.scaled:
            power *= plan.scale
        if self._transforms:
            for out, channel, _, j in self._samples:
                if j >= 0 and channel.name in self._transforms:
                    watts[out] = self._transforms[channel.name](watts[out])

        if self._bounded:
            power[(power < self._bounds[0]) | (power > self._bounds[1])] = math.nan

    def _means(self, watts: Floats, *, first: bool) -> Floats:
        """Mean power since the row before: of momentary samples the half-way value, of interval means themselves."""
        halved = self._matrix.halved
        if halved is None:
            return watts[1:]
        mean: Floats = watts.copy()
        some = watts[halved]
        before = some[:, 0] if first else np.array(self._watts)[halved]
        mean[halved, 0] = (before + some[:, 0]) / 2
        mean[halved, 1:] = (some[:, 1:] + some[:, :-1]) / 2
        return mean[1:]

    def _cut_out(self, joules: Floats, dt_ns: Ints, gaps: list[tuple[int, bool]], t_ns: Ints) -> Ints:
        """Take the energy of unknown time out; return that time for each row and column."""
        broken = ~np.isfinite(joules[1:].sum(axis=1))
        unknown = np.zeros((len(dt_ns), len(joules)), np.int64)
        for row, restarted in gaps:
            length = int(dt_ns[row])
            for out, channel, *_ in self._samples:
                if not restarted and self._in_total and out not in self._in_total:
                    continue  # bridged by its neighbours, as in one row
                known = 0 if restarted else covered_ns(channel, length)
                joules[out, row] *= known / max(1, length)
                unknown[row, out] = length - known
        for out in (np.flatnonzero(broken) + 1).tolist():
            rows = ~np.isfinite(joules[out])
            joules[out, rows] = 0.0
            unknown[rows, out] = dt_ns[rows]
            self.doubts[out] = int(t_ns[np.flatnonzero(rows)[-1]]), _UNKNOWN
        unknown[:, 0] = unknown[:, list(self._in_total) or slice(1, None)].max(axis=1, initial=0)
        return unknown

    def _gaps(self, block: Block, *, first: bool) -> list[tuple[int, bool]]:
        """Rows whose interval is not fully known, and whether because of a restart."""
        if block.lost is None and not block.fresh:
            return []
        gaps = {} if block.lost is None else dict.fromkeys(np.flatnonzero(block.lost).tolist(), False)
        if block.fresh:
            gaps[0] = True
        if first:
            gaps.pop(0, None)
        return list(gaps.items())
