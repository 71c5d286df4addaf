"""The power behind readings: its most likely course and how far the energy of an interval is known. Pure numpy.

The slow power is a random walk from cell to cell whose pace differs from place to place; above it the power scatters
from cell to cell by an amount that holds for longer stretches (a load faster than the cells). Both are found from the
readings themselves, by MacKay's rule: the square of what moved, over the number of unknowns that the readings really
decide. Readings have Student's t: a running mean now and then holds an update more or less. See docs/corrections.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.energy._blocks import BandedCovariance, Solution
from pmtpy.analysis.energy._cells import Differences, Sources, bounds_of
from pmtpy.analysis.signal.estimate import Z95, mixed, student_95
from pmtpy.analysis.uncertainty.channel_times import SEVERAL_RENEWALS
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats, Ints

_WALK_TAIL = 1.0  # degrees of freedom of the walk's pace about its usual one: loads rest, and step
# Of readings, and of how late all stamps are: the usual robust choice (Lange, Little, Taylor, JASA 84, 1989). Now and
# then a reading is far off, and all stamps of a program are by tens of milliseconds (work that runs on after its launch
# returned, the clock of another host), which the readings of some blocks show; and of what single stamps scatter by.
ROBUST_TAIL = 4.0
ROUNDS, MORE_ROUNDS = 6, 2  # of finding power and pace in turn; and of it once more, with something else in it
_STRETCH = 2.0  # periods either side over which the scatter of the power is one: loads rest between bursts
_UNSEEN_FACTOR = 2.0  # times the mean pace where updates are missing: nothing there tells that it was no faster
_HIDDEN_SHARE = 0.12  # of the highest reading, a period: by which power ramps from a load's start where none are seen
_MIN_NOISE_SHARE = 1e-4  # of the highest reading: noise; of its variance, in a cell: power that moves less is not seen


@dataclass(frozen=True, slots=True)
class Rising:
    """What is not known of the switches behind the first unknown, the rise of a load."""

    # shape (e,) and (2, e); their instants; the variance of each about its stamp, and how much of what the stamps
    # differ by that is
    at_s: Floats
    off2: Floats
    rise2: float  # mean square of the rise: a switch that is off by a while is so much power that is there or is not
    felt: Floats  # shape (k,); by how much each unknown moves what is seen of the load
    times: Ints  # unknowns that stand for so many times the rise: neither need be known

    def crossed(self, felt: Floats, at: Floats, spread: Floats) -> float:
        """Return the variance of products of the rise and what it is multiplied by, of which no straight line tells.

        ``felt``, shape (k,): by how much each unknown moves an energy about ``at``; ``spread`` is their covariance.
        """
        each = felt[self.times] / (at[0] or 1.0)
        with_rise = float(each @ spread[self.times, 0])
        return float(spread[0, 0] * (each @ spread[np.ix_(self.times, self.times)] @ each)) + with_rise**2


@dataclass(frozen=True, slots=True)
class Terms:
    """Unknowns that all readings share, as straight lines about some values of them."""

    # shape (k,); the values, and what is known of the unknowns beforehand
    at: Floats
    mean: Floats
    sd: Floats
    # shape (n + 1,) and (n + 1, k); what readings show there and, last, the energy of the interval; and the derivatives
    shown: Floats
    columns: Floats
    rising: Rising | None = None

    @classmethod
    def none(cls, readings: int) -> Terms:
        """Return no terms at all."""
        nothing = np.zeros(0)
        return cls(nothing, nothing, nothing, np.zeros(readings + 1), np.zeros((readings + 1, 0)))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the power moves, where, and how far each reading is believed."""

    walk: Floats  # shape (m - 1,); square watts per second, of each inner bound
    scatter: Floats  # shape (m,); square watts times seconds, of each cell
    trust: Floats  # shape (n,)
    unstamped2: float  # mean square of the power that ran where nothing was stamped, about its mean
    off2: float  # mean square of what single switches are off by, over what is usual
    # shape (m - 1,) and (m,); how many unknowns walk and scatter were found from at each place: none but what is usual
    decided: tuple[Floats, Floats]

    @classmethod
    def mean(cls, paces: Sequence[Pace], share: Floats) -> Pace:
        """Return the pace whose squares are the mean of those of several."""
        walks, scatters = zip(*(pace.decided for pace in paces), strict=True)
        parts = [[pace.walk for pace in paces], [pace.scatter for pace in paces], [pace.trust for pace in paces]]
        walk, scatter, trust, *decided = (share @ np.stack(each) for each in (*parts, walks, scatters))
        unstamped2, off2 = share @ [(pace.unstamped2, pace.off2) for pace in paces]
        return cls(walk, scatter, trust, float(unstamped2), float(off2), (decided[0], decided[1]))


@dataclass(frozen=True, slots=True)
class Posterior:
    """What is known once the pace is."""

    # of the interval's energy
    joules: float
    variance: float
    # shape (m + 1,) and (m,); the cells, the power of each, the terms left out, and its scatter (:class:`Pace`), with
    # the degrees of freedom of that
    bounds_s: Floats
    watts: Floats
    scatter: Floats
    freedom: Floats
    unknowns: Floats  # shape (k,); of the terms
    spread: Floats  # shape (k, k); covariance of these
    rest: Floats  # shape (n,); what the terms do not show of each reading
    evidence: float  # logarithm of the likelihood of the readings, a constant aside; 0 unless it was asked for
    # (mean, variance): of the steps, of the excess, and of what the readings differ by; none where the evidence was
    # asked for, as of the next: of what ran unstamped, and of switches that are off, the sum of squares over what these
    # were taken for, and how many unknowns decided that
    moments: tuple[tuple[Floats, Floats], ...]
    sums: tuple[tuple[float, float], ...]

    def averaged(self, joules: Floats, variance: Floats, share: Floats) -> Posterior:
        """Return this one with the energy of several explanations, averaged by the shares of belief in them.

        Its standard deviation is that of a normal distribution that reaches as far, in 95 %, as they do together.
        """
        mean, reach = float(share @ joules), Z95 * np.sqrt(np.maximum(variance, 0.0))
        widest = max(abs(end - mean) for end in mixed(share, joules, joules - reach, joules + reach))
        return replace(self, joules=mean, variance=(widest / Z95) ** 2)


class NormalEquations(NamedTuple):
    """What readings tell of terms of which some may be there: of all alike, before anything is known of them."""

    # shape (k, k), (k,), (k,); products of what the terms show with each other and with the readings, weighed by the
    # inverse covariance; and by how much each adds to the energy beyond what the readings would make of it
    products: Floats
    right: Floats
    felt: Floats
    # of the energy, and the logarithm of the likelihood, a constant aside, if there are no terms
    joules: float
    variance: float
    evidence: float


class _Variances(NamedTuple):
    """How much the sources vary: the steps of the walk, what each cell has above it, the noise of each reading."""

    own: Floats  # of each what it is, by the pace
    # of each cell what is in it besides: power that ran unstamped, switches that are off, and for a rise of one watt
    # that part of these by which it is the stamps that are off
    unstamped: Floats
    slid: Floats
    stamped: Floats
    every: Floats  # all of it


@dataclass(frozen=True)
class Explained:
    """Readings and terms held against the sources at one pace, before anything is known of the terms' unknowns."""

    pace: Pace
    of: _Variances
    shown: Floats  # shape (n, 1 + k); of the readings, what no terms explain, and what each term shows
    energies: Floats  # shape (1 + k,); of the interval, the same
    # shape (rows, 1 + k + 1): their differences, and those that the energy feels; and what solves for them
    sides: Floats
    solution: Solution
    covariance: BandedCovariance

    @cached_property
    def seen(self) -> Floats:
        """What readings see of each source (:meth:`BandedCovariance.seen`)."""
        return self.covariance.seen(self.solution)

    def mixed(self, mix: Floats) -> Explained:
        """Return the same of other terms, each of which is a mixture of these, shape (l, k): nothing is solved anew."""
        whole = np.zeros((mix.shape[1] + 2, mix.shape[0] + 2))
        whole[0, 0] = whole[-1, -1] = 1.0
        whole[1:-1, 1:-1] = mix.T
        one = whole[:-1, :-1]
        solution = replace(self.solution, found=self.solution.found @ whole)
        return replace(
            self, shown=self.shown @ one, energies=self.energies @ one, sides=self.sides @ whole, solution=solution
        )


class Readings:
    """Readings of one sensor about one interval, ready to be explained."""

    __slots__ = (
        "_apart",
        "_beside",
        "_bounded",
        "_covariance",
        "_differences",
        "_hidden",
        "_highest2",
        "_length",
        "_near",
        "_noise2",
        "_rest",
        "_root",
        "_sources",
        "_stretch",
        "_unseen",
        "_unstamped",
        "bounds_s",
        "ends_s",
        "response",
        "y",
    )

    def __init__(
        self,
        t_s: Floats,
        power: Floats,
        response: Response,
        interval: tuple[float, float],
        unstamped_s: Floats | None = None,
    ) -> None:
        self.ends_s = ends = t_s - response.delay_s
        self.response, self.y = response, power
        stamped = unstamped_s is not None
        edges = unstamped_s.ravel() if unstamped_s is not None else np.zeros(0)
        self.bounds_s = bounds = bounds_of(ends, response, interval[1], edges)
        lengths = np.diff(bounds)
        self._apart, self._root = np.sqrt((lengths[1:] + lengths[:-1]) / 2.0), np.sqrt(lengths)
        self._differences = Differences.over(ends, response.tau_s, interval[0] + response.window_s / 2.0)
        self._sources = sources = Sources.of(bounds, self._differences, response)
        self._covariance = BandedCovariance(sources.rows, sources.first, sources.columns)
        # The energy is its length times the shown level, and what each source adds that the level does not show.
        self._length = interval[1] - interval[0]
        seconds = np.diff(np.clip(bounds, *interval))
        after = np.cumsum(seconds[::-1])[::-1]
        adds = np.concatenate([after[1:] * self._apart, seconds / self._root, np.zeros(len(ends))])
        self._rest = adds - self._length * sources.level
        highest = float(np.max(np.abs(power)))
        self._noise2 = max(response.noise_in_s, _MIN_NOISE_SHARE * highest, 1e-6) ** 2
        # What ran where nothing was stamped is new in each cell; beside the interval it may be in any phase of a load
        # of which readings show no more than the mean.
        gone = np.cumsum(np.diff(edges, prepend=edges[:1]) * (np.arange(len(edges)) % 2))
        unstamped = np.diff(np.interp(bounds, edges, gone)) if len(edges) else np.zeros(sources.cells)
        unstamped, self._highest2 = unstamped**2 / lengths, highest**2
        near = slice(*np.searchsorted(bounds, (interval[0] - response.period_s, interval[1] + response.period_s)))
        self._beside, self._unstamped = np.zeros_like(unstamped), unstamped
        self._beside[near] = unstamped[near] * highest**2
        self._unstamped[near] = 0.0
        apart = np.concatenate([[0.0], np.diff(ends), [np.inf]])
        self._hidden = (_HIDDEN_SHARE * highest) ** 2 / response.period_s if stamped else 0.0
        self._near = _Neighbours.within(bounds[1:-1], response.period_s)
        self._stretch = _Neighbours.within((bounds[1:] + bounds[:-1]) / 2.0, _STRETCH * response.period_s)
        gap = apart[np.searchsorted(ends, bounds[1:-1])]
        self._unseen = gap > SEVERAL_RENEWALS * response.period_s
        # A walk between two readings strays by q gap / 4 in the middle: power in a gap keeps within what was shown.
        spread = max((float(np.ptp(power)) / 2.0) ** 2, self._noise2, self._hidden * response.period_s)
        self._bounded = np.where(np.isfinite(gap), 4.0 * spread / np.maximum(gap, response.period_s), np.inf)

    def first(self) -> Pace:
        """Begin with power that moves everywhere as much as the readings do on the whole."""
        period = self.response.period_s
        moved = max(float(np.mean(np.diff(self.y) ** 2)) if len(self.y) > 1 else 0.0, self._noise2)
        walk = np.full(self._sources.steps, moved / period)
        scatter = np.full(len(walk) + 1, moved * period / 16.0)
        nothing = np.zeros_like(walk), np.zeros_like(scatter)
        return Pace(walk, scatter, np.ones(len(self.y)), self._highest2, 1.0, nothing)

    def next(self, pace: Pace, found: Posterior) -> Pace:
        """Find the pace anew from what moved."""
        (moved, moved_v), (rose, rose_v), (missed, missed_v) = found.moments
        (ran, ran_decided), (slid, slid_decided) = found.sums
        period = self.response.period_s
        decided = np.clip(1.0 - moved_v / pace.walk, 0.0, 1.0)
        usual = 1.0 / float(np.mean(1.0 / pace.walk))
        walk = (_WALK_TAIL * usual + self._near.sums(moved**2)) / (_WALK_TAIL + self._near.sums(decided))
        least = _MIN_NOISE_SHARE * self._noise2 * period / 4.0
        scattered = np.clip(1.0 - rose_v / pace.scatter, 0.0, 1.0)
        scatter = self._stretch.sums(rose**2) / (self._stretch.sums(scattered) + _MIN_NOISE_SHARE)
        off = (missed**2 + missed_v) / self._noise2
        trust = (ROBUST_TAIL + 1.0) / (ROBUST_TAIL + off)
        unstamped2 = (_WALK_TAIL * self._highest2 + pace.unstamped2 * ran) / (_WALK_TAIL + ran_decided)
        off2 = max(1.0, (ROBUST_TAIL + pace.off2 * slid) / (ROBUST_TAIL + slid_decided))
        walk = np.maximum(walk, _MIN_NOISE_SHARE * self._noise2 / period)
        by = (decided, scattered)
        return Pace(walk, np.maximum(scatter, least), np.asarray(trust), unstamped2, off2, by)

    def calm(self, pace: Pace, about: Sequence[float], reach_s: float) -> Pace:
        """Return the pace with a walk about some instants that is no faster than usual: steps there are explained."""
        usual, inner = 1.0 / float(np.mean(1.0 / pace.walk)), self.bounds_s[1:-1]
        near = np.any([np.abs(inner - at) < reach_s for at in about], axis=0)
        return replace(pace, walk=np.where(near, np.minimum(pace.walk, usual), pace.walk))

    def stated(self, pace: Pace) -> Pace:
        """Return the pace by which an interval is stated: the mean one where nothing was seen."""
        hidden = max(_UNSEEN_FACTOR * float(np.mean(pace.walk)), self._hidden)
        walk = np.where(self._unseen, np.minimum(np.maximum(pace.walk, hidden), self._bounded), pace.walk)
        return replace(pace, walk=walk)

    def _widened(self, pace: Pace, left: Floats, variance: float) -> float:
        """Return by how much a variance is wider since the pace is known from few unknowns.

        ``left``: what of it each source leaves open. A variance that is a sum over found ones has the degrees of
        freedom of Welch and Satterthwaite (JCGM 100, G.4); half of an interval is that many deviations by Student's t.
        """
        steps, squares = self._sources.steps, 0.0
        walked = np.where(self._unseen, 0.0, left[:steps]), self._near, _WALK_TAIL
        scattered = left[steps:], self._stretch, _MIN_NOISE_SHARE
        for (part, near, usual), decided in zip((walked, scattered), pace.decided, strict=True):
            each = part / (usual + near.sums(decided))
            squares += float(np.sum(near.sums(each) ** 2 * decided)) + usual * float(np.sum(each)) ** 2
        return (student_95(variance**2 / max(squares, 1e-300)) / Z95) ** 2 if variance > 0.0 else 1.0

    def _variances(self, pace: Pace, rising: Rising | None, cells: slice[int, int, None]) -> _Variances:
        """Return how much the sources vary."""
        own = np.concatenate([pace.walk, pace.scatter, self._noise2 / pace.trust])
        unstamped, slid, stamped = pace.unstamped2 * self._unstamped, np.zeros(self._sources.cells), np.zeros(0)
        if rising:
            # How much switches that are off scatter the power of each cell, for a rise of one watt.
            cell = np.clip(np.searchsorted(self.bounds_s, rising.at_s) - 1, 0, len(self._root) - 1)
            off, stamped = (np.bincount(cell, off2, len(self._root)) / self._root**2 for off2 in rising.off2)
            slid = rising.rise2 * pace.off2 * off
        every = own.copy()
        every[cells] += unstamped + self._beside + slid
        return _Variances(own, unstamped, slid, stamped, every)

    def explained(self, pace: Pace, terms: Terms) -> Explained:
        """Hold the readings, and what each of some terms shows of them, against sources that move at a given pace."""
        sources = self._sources
        cells = slice(sources.steps, sources.steps + sources.cells)
        of = self._variances(pace, terms.rising, cells)
        straight = terms.shown - terms.columns @ terms.at
        shown = np.column_stack([self.y - straight[:-1], terms.columns[:-1]])
        sides = np.zeros((sources.rows, shown.shape[1] + 1))
        sides[: len(shown) - 1, :-1] = self._differences(shown)
        sides[:, -1] = sources.sums(of.every * self._rest)
        solution = self._covariance.solve(of.every, sides)
        energies = np.append(straight[-1], terms.columns[-1])
        return Explained(pace, of, shown, energies, sides, solution, self._covariance)

    def solve(self, pace: Pace, terms: Terms, *, judged: bool = False) -> Posterior:
        """Find the power, the terms' unknowns and the energy for a given pace, and the evidence if it is ``judged``."""
        return self.posterior(self.explained(pace, terms), terms, judged=judged)

    def posterior(self, by: Explained, terms: Terms, *, judged: bool = False) -> Posterior:
        """Find the same from readings and terms that are held against the sources at a pace."""
        sources, steps, of, shown, sides = self._sources, self._sources.steps, by.of, by.shown, by.sides
        walk, cells, noise = slice(0, steps), slice(steps, steps + sources.cells), slice(steps + sources.cells, None)
        variance, solved = of.every, by.solution.found
        within = sources.times(solved)
        alone, moved = variance * within[:, 0], variance[:, None] * within[:, 1:-1]
        # The terms' unknowns border the banded system: eliminate them last.
        precision = np.diag(1.0 / terms.sd**2)
        left = sides[:, 1:-1].T @ solved[:, 1:-1] + precision
        right = sides[:, 1:-1].T @ solved[:, 0] + precision @ terms.mean
        if terms.rising:
            scattered = float(of.stamped @ by.seen[cells])
            left, right = _drawn_out(left, right, terms, terms.rising.felt, scattered)
        spread = np.linalg.inv(left)
        unknowns = spread @ right
        # Of the sources and of the level that no difference tells, the power and its sum over the interval.
        found = alone - moved @ unknowns
        level = self._differences.level(shown)
        joules = self._length * float(level[0] - level[1:] @ unknowns) + float(self._rest @ found)
        felt = by.energies[1:] - self._length * level[1:] - sides[:, 1:-1].T @ solved[:, -1]
        missing = self._rest - within[:, -1]  # what the readings leave of each source in the energy
        begins = float(level[0] - level[1:] @ unknowns - sources.level @ found)
        walked = np.cumsum(np.append(begins, found[:steps] * self._apart))
        crossed = terms.rising.crossed(felt, terms.at, spread) if terms.rising else 0.0
        known = float(variance @ missing**2) + float(felt @ spread @ felt) + crossed
        evidence, moments = 0.0, tuple[tuple[Floats, Floats], ...]()
        sums = tuple[tuple[float, float], ...]()
        if judged:
            left_over = float(sides[:, 0] @ solved[:, 0] + terms.mean @ precision @ terms.mean)
            left_over -= float(right @ spread @ right)
            evidence = -2.0 * float(np.sum(np.log(terms.sd))) - by.solution.log_determinant
            evidence = (evidence - float(np.linalg.slogdet(left)[1]) - left_over) / 2.0
            known *= self._widened(by.pace, (of.own * missing**2)[: cells.stop], known)
        else:
            told = _Told(variance, found, by.seen, np.sum((moved @ spread) * moved, 1) / variance**2)
            moments = tuple(told.of(of.own[where], where) for where in (walk, cells, noise))
            sums = told.summed(of.unstamped, cells), told.summed(of.slid, cells)
        return Posterior(
            joules + float(by.energies[0] + by.energies[1:] @ unknowns),
            known,
            self.bounds_s,
            np.asarray(walked + found[cells] / self._root, np.float64),
            by.pace.scatter,
            self._stretch.sums(by.pace.decided[1]),
            np.asarray(unknowns, np.float64),
            np.asarray(spread, np.float64),
            np.asarray(shown[:, 0] - shown[:, 1:] @ unknowns, np.float64),
            evidence,
            moments,
            sums,
        )

    def normal(self, by: Explained) -> NormalEquations:
        """Return what the readings tell of terms any of which may be there."""
        sources, of, solved = self._sources, by.of, by.solution.found
        y, moved, energy = by.sides[:, 0], by.sides[:, 1:-1], solved[:, -1]
        within, level = sources.times(solved[:, [0, -1]]), self._differences.level(by.shown)
        missing = self._rest - within[:, 1]
        known = float(of.every @ missing**2)
        left = (of.own * missing**2)[: sources.steps + sources.cells]
        return NormalEquations(
            moved.T @ solved[:, 1:-1],
            solved[:, 0] @ moved,
            by.energies[1:] - self._length * level[1:] - energy @ moved,
            float(self._length * level[0] + self._rest @ (of.every * within[:, 0])),
            known * self._widened(by.pace, left, known),
            -(by.solution.log_determinant + float(y @ solved[:, 0])) / 2.0,
        )


@dataclass(frozen=True, slots=True)
class _Told:
    """What is known of sources: their variances, found amounts, what readings see of each, and what they share."""

    variance: Floats
    found: Floats
    seen: Floats
    shared: Floats

    def of(self, part: Floats, where: slice) -> tuple[Floats, Floats]:
        """Return mean and variance of what a ``part`` of the variance of each did."""
        mean = part / self.variance[where] * self.found[where]
        return mean, part * (1.0 - part * self.seen[where]) + part**2 * self.shared[where]

    def summed(self, part: Floats, where: slice) -> tuple[float, float]:
        """Return the sum of squares of the same over ``part``, and how many unknowns readings decide of them."""
        at = part > 0.0
        mean, left = (moment[at] / part[at] for moment in self.of(part, where))
        return float(mean @ (mean * part[at])), float(np.sum(np.clip(1.0 - left, 0.0, 1.0)))


def _drawn_out(left: Floats, right: Floats, terms: Terms, felt: Floats, scattered: float) -> tuple[Floats, Floats]:
    """Return the normal equations with a rise that is not drawn to nothing by stamps that scatter.

    Of what readings tell of the rise, up to ``scattered`` is told by what stamps scatter by about a load that is
    regular, which no power follows: errors in variables (Fuller, Measurement Error Models, 1987, 1.2). So much less is
    known, all of it where a load keeps step and readings show nothing else; where they show its blocks it is little.
    """
    spread = np.linalg.inv(left)
    known, before = 1.0 / float(felt @ spread @ felt), 1.0 / float(felt**2 @ terms.sd**2)
    told = known - before
    rise = float(felt @ spread @ right) * known - before * float(felt @ terms.mean)
    share = min(scattered / told, 1.0 - 1e-9) if told > 0.0 else 0.0
    return left - share * told * np.outer(felt, felt), right - share * rise * felt


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """For each place the places near it."""

    first: Ints
    last: Ints

    @classmethod
    def within(cls, places: Floats, reach: float) -> _Neighbours:
        """Return those within ``reach`` of each."""
        reach *= 1.0 + 1e-6  # a bound exactly so far away is one of them, whatever its last digit
        return cls(np.searchsorted(places, places - reach), np.searchsorted(places, places + reach, side="right"))

    def sums(self, of: Floats) -> Floats:
        """Return the sum over each place's neighbours."""
        sums = np.concatenate([[0.0], np.cumsum(of)])
        return np.asarray(sums[self.last] - sums[self.first], np.float64)
