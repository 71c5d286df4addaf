"""How far a measured energy can be trusted: a standard uncertainty, what it is made of, and plain warnings.

Pure arithmetic in the manner of the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008): each
cause (``_causes``) is a component with a standard uncertainty in joules, independent components add in squares, a 95 %
interval is 1.96 times the result either way; ``notices`` say what a reader of it must know. It never changes the
energy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np

from pmtpy.analysis.signal.estimate import Z95, student_95
from pmtpy.analysis.uncertainty._causes import Causes
from pmtpy.analysis.uncertainty.components import COMPONENTS
from pmtpy.analysis.uncertainty.interval import IntervalStatistics
from pmtpy.analysis.uncertainty.notices import notices
from pmtpy.core.channel import Channel, sum_of_kinds


class UncertaintyBudget(NamedTuple):
    """The judgement of one energy."""

    # Standard uncertainty; a 95 % interval is ``Z95`` times it, either way. NaN where nothing at all is
    # known of the interval.
    uncertainty_joules: float
    # (name, joules): the causes that are not zero, each a standard uncertainty, largest first
    components: tuple[tuple[str, float], ...] = ()
    warnings: tuple[str, ...] = ()  # what a reader of the number must know, in whole sentences

    @classmethod
    def of(cls, components: Sequence[tuple[str, float]], warnings: Sequence[str] = ()) -> UncertaintyBudget:
        """Make one of independent components, the largest first; NaN is kept: not known."""
        ranked = sorted([c for c in components if c[1] != 0.0], key=itemgetter(1), reverse=True)
        return cls(math.sqrt(sum([u * u for _, u in ranked])), tuple(ranked), tuple(warnings))


def uncertainty_budget(channel: Channel, seen: IntervalStatistics) -> UncertaintyBudget:
    """Judge one energy: its standard uncertainty in joules, the components of it, and the warnings."""
    causes = Causes(channel, seen)
    components = causes.components()
    budget = UncertaintyBudget.of(list(components.items()))
    if budget.uncertainty_joules > (most := causes.at_most()) > 0.0:
        share = most / budget.uncertainty_joules
        components = {name: u * share for name, u in components.items()}
        budget = UncertaintyBudget.of(list(components.items()))
    return budget._replace(warnings=tuple(notices(causes, components, budget.uncertainty_joules)))


def of_product(channel: Channel, voltage: Channel, current: Channel, volts: float, amperes: float) -> Channel:
    """Return a power that is formed from a voltage and a current with what follows from the two.

    What the channel says of itself holds for a nominal voltage; it is replaced, not added to. Where nothing is known
    of the two, the channel is left as it is.

    Parameters
    ----------
    volts, amperes : float
        Mean of the two in the interval that is judged.

    Notes
    -----
    With U +- EU and I +- EI the power has Ep = sqrt((U EI)^2 + (I EU)^2 + (EI EU)^2) (ISPASS 2025, PowerSensor3,
    error model). The gains' share is proportional to the power and stays relative; zero, noise and step become watts.
    """
    if not any((voltage.gain_u, voltage.offset_u, current.gain_u, current.offset_u)):
        return channel

    def watts(of_volts: float, of_amperes: float) -> float:
        return math.hypot(volts * of_amperes, amperes * of_volts, of_volts * of_amperes)

    return channel.with_uncertainty(
        gain_u=math.hypot(voltage.gain_u, current.gain_u),
        offset_u=watts(voltage.offset_u, current.offset_u),
        noise=watts(voltage.noise, current.noise),
        resolution=watts(voltage.smallest_step, current.smallest_step),
    )


def sum_budgets(budgets: Sequence[UncertaintyBudget], kinds: Sequence[str]) -> UncertaintyBudget:
    """Judge the sum of several energies over one interval; ``kinds`` are those of their channels.

    Edges, lag and whatever was not seen, or was undone, come from one load and one pair of instants, so they add
    linearly. So does what all of one kind have wrong alike, as the gain. The sensors' other errors are independent and
    add in squares. Warnings are kept, each once.
    """
    if len(budgets) == 1:
        return budgets[0]
    errors: dict[str, list[tuple[str, float]]] = {}
    for n, (budget, kind) in enumerate(zip(budgets, kinds, strict=True)):
        for name, u in budget.components:
            how = COMPONENTS[name]
            alike = "all" if how.shared else kind if how.of_kind else str(n)
            errors.setdefault(name, []).append((alike, u))
    components = [(name, sum_of_kinds(each)) for name, each in errors.items()]
    return UncertaintyBudget.of(components, list(dict.fromkeys(w for b in budgets for w in b.warnings)))


def repeated(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, standard deviation and half-width of the 95 % interval of the mean (Student's t) of repeated runs.

    The interval speaks of repeatability alone: what all runs have in common (gain, zero) is not in it;
    :func:`mean_of_runs` has it.

    Raises ValueError: fewer than two values: nothing repeats.
    """
    n = len(values)
    if n < 2:
        msg = f"repeatability needs at least two runs, not {n}"
        raise ValueError(msg)
    deviation = float(np.std(values, ddof=1))
    return float(np.mean(values)), deviation, student_95(n - 1) * deviation / math.sqrt(n)


class Judged(Protocol):
    """An energy with its uncertainty, and what that is made of."""

    @property
    def joules(self) -> float:
        """Energy found."""

    @property
    def uncertainty_joules(self) -> float:
        """Standard uncertainty."""

    @property
    def components(self) -> tuple[tuple[str, float], ...]:
        """The causes, each a standard uncertainty in joules."""


class RunsMean(NamedTuple):
    """The mean of what repeated runs of one work say."""

    mean: float
    deviation: float  # standard deviation of single runs; 0 of one
    half: float  # half-width of the interval of 95 % that holds the truth
    apart: float  # the same without what two such means on one sensor have in common; NaN of a single run


def mean_of_runs(runs: Sequence[Judged], scale: Sequence[float]) -> RunsMean:
    """Return the mean of runs, and how far from the truth it may be: what all have wrong alike does not average out.

    That runs agree does not make them right: the same work is seen in the same way each time. Where it is on in the
    region alone, each run has a little too little, of gains and levels too. Only what is new in each run gets less.

    Parameters
    ----------
    scale : sequence of float
        By what the joules of each run are multiplied first (of runs that are not covered as a whole, or for watts).
    """
    n = len(runs)
    values = [m.joules * by for m, by in zip(runs, scale, strict=True)]
    mean, deviation, scatter = repeated(values) if n > 1 else (values[0], 0.0, 0.0)
    in_common, seen_alike, own = (
        math.fsum(part[k] * by for part, by in zip(map(_in_runs, runs), scale, strict=True)) / n for k in range(3)
    )
    half = math.hypot(scatter, Z95 * math.hypot(in_common, seen_alike, own / math.sqrt(n)))
    apart = math.hypot(scatter, Z95 * math.hypot(seen_alike, own) / math.sqrt(n)) if n > 1 else math.nan
    return RunsMean(mean, deviation, half, apart)


def _in_runs(m: Judged) -> tuple[float, float, float]:
    """Return the joules that err alike in each run, that do so as it is the same load, and that are new in each.

    Of an uncertainty that is not known (NaN), or of which it is not known what it is made of, all is common.
    """
    if not m.components or math.isnan(m.uncertainty_joules):
        return m.uncertainty_joules, 0.0, 0.0
    squares = [0.0, 0.0, 0.0]
    for name, u in m.components:
        how = COMPONENTS[name]
        squares[0 if how.repeated else 1 if how.shared else 2] += u * u
    common, alike, own = map(math.sqrt, squares)
    return common, alike, own


def of_another(values: Sequence[float], within_u: Sequence[float]) -> tuple[float, float]:
    """Mean of what several recordings gave of one quantity, and how uncertain it is for yet another recording.

    The spread between them is estimated from them, which few do badly: the interval of 95 % for another one is
    ``t(k - 1) s sqrt(1 + 1/k)`` either way (a prediction interval), given as a standard uncertainty of that interval.
    It is never below what the recordings state of themselves.

    Raises ValueError: fewer than two recordings: nothing is known of a spread.
    """
    mean, deviation, _ = repeated(values)
    k = len(values)
    spread = student_95(k - 1) / Z95 * deviation * math.sqrt(1.0 + 1.0 / k)
    return mean, max(spread, math.sqrt(math.fsum(u * u for u in within_u) / k))
