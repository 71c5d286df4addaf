"""Repeat until resolved: the energy of a piece of work, or of two against each other.

The plan follows from the sensor (:mod:`pmtpy.analysis.repetition.plan`), the end from the width of the interval
(:mod:`pmtpy.analysis.repetition.resolve`). What was measured stays with the :class:`Bench`, however it ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from pmtpy.analysis.repetition.plan import Plan, plan_trial, timing_of
from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS, enough, half_width, planned
from pmtpy.core import arguments
from pmtpy.core.clock import NS_PER_S
from pmtpy.core.presentation import amount
from pmtpy.errors import BenchStoppedError, CoverageError, SourceLostError, TargetError
from pmtpy.lab.bench_result import BenchResult, Setting, relative_blocks, summarise
from pmtpy.lab.bench_trial import Place, Trial, measure, rest
from pmtpy.lab.bench_work import Work, work_of
from pmtpy.lab.conditions import machine_facts
from pmtpy.sensor.registry import create
from pmtpy.sensor.sensor import Sensor, acquisition_of

MAX_TIME_S = 600.0
WARMUP_S = 2.0
_TIMED_S = 0.05  # a function is timed over at least this
_BLIND = 3  # trials in a row of which the energy is not known, before it is given up
_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))
Tell = Callable[[str], None]


class Bench:
    """A benchmark that runs, and what it has measured so far. For one thread.

    Parameters
    ----------
    works : sequence of Work
        One, or two to compare.
    sensor : Sensor
        Stays open.
    target : float
        How narrow the interval has to be, relative: of one work its half-width at 95 %; of two the difference that
        matters, for which the half-width has to be half as much.
    max_time_s, warmup_s, cooldown_s : float
        When to end at the latest; for how long each work runs before; the pause before each trial.
    seed : int, optional
        Of the order of blocks and the phases of bursts; None: by chance.
    tell : callable, optional
        Called with a line about how it goes on.
    """

    def __init__(
        self,
        works: Sequence[Work],
        sensor: Sensor,
        *,
        target: float = 0.01,
        max_time_s: float = MAX_TIME_S,
        warmup_s: float = WARMUP_S,
        cooldown_s: float = 0.0,
        seed: int | None = None,
        tell: Tell | None = None,
    ) -> None:
        share = "a target of a benchmark: a share of the energy, more than 0 and less than 1; 0.01 is 1 %"
        target = arguments.number(target, share, least=math.ulp(0.0), most=math.nextafter(1.0, 0.0))
        max_time_s, warmup_s, cooldown_s = (
            arguments.number(value, "a time in seconds") for value in (max_time_s, warmup_s, cooldown_s)
        )
        if not max_time_s > 0.0 or not min(warmup_s, cooldown_s) >= 0.0:
            msg = "max_time has to be more than 0 s, warm-up and cool-down at least 0 s"
            raise TargetError(msg)
        self.works, self.sensor, self.target = list(works), sensor, target
        self._max_time_s, self._warmup_s, self._cooldown_s = max_time_s, warmup_s, cooldown_s
        self._random = random.Random(seed)
        self._tell = tell or (lambda _line: None)
        self._acquisition = acquisition_of(sensor)
        energy = self._acquisition.layout.energy
        if not energy:
            msg = f"{sensor.target} has no channel that measures energy"
            raise TargetError(msg)
        streaming = self._acquisition.intake.source.traits.streaming
        profiles = self._acquisition.calibration.profiles if self._acquisition.calibration is not None else {}
        responses = {name: profile.response for name, profile in profiles.items()}
        self.timing = timing_of(energy, 0.0 if streaming else self._acquisition.intake.period_s, responses)
        self.plans: list[Plan] = []
        self.trials: list[Trial] = []
        self._told: list[str] = []
        self._orders: list[Sequence[int]] = []  # of the blocks that come next
        self._begin_ns = 0
        self._warmed_s = self._blocks_s = 0.0  # how long warming up took, and all blocks until now
        self._lengths_s: list[float] = []  # of the last trial of each work; before the first: as planned

    # -- the procedure -------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Measure until there is enough; return why it ended: ``resolved`` or ``time``.

        Raises
        ------
        WorkFailedError, or what the work raises
        SourceLostError
            The sensor is gone.
        CoverageError
            The sensor does not know the energy of trial after trial, or shows none, of which there are no shares.
        """
        self._begin_ns = self._acquisition.clock.now_ns()
        once_s = [self._warm(work) for work in self.works]
        self.plans = [plan_trial(self.timing, once, self.target) for once in once_s]
        offset = self._random.random()
        counts, block, blind = [0] * len(self.works), 0, 0
        self._lengths_s = [
            plan.runs * once + plan.bursts * (plan.rest_s + plan.period_s / 2.0) + self._cooldown_s
            for plan, once in zip(self.plans, once_s, strict=True)
        ]
        self._warmed_s = self._elapsed_s()
        self._foresee()
        while not self._enough():
            order = self._next_order()
            began_s = self._elapsed_s()
            if block and not self._fits(order):  # a part of a block says nothing of a difference
                return "time"
            for side in order:
                if not self._fits((side,)):
                    return "time"
                started_s = self._elapsed_s()
                rest(self._acquisition.clock, self._cooldown_s)
                place = Place(side, block, counts[side], offset, self._begin_ns)
                counts[side] += 1
                try:
                    self.trials.append(measure(self.sensor, self.works[side], self.plans[side], place))
                except CoverageError as error:
                    blind += 1
                    self._told.append(f"a trial of block {block + 1} does not count: {error}")
                    if blind == _BLIND:
                        raise
                else:
                    blind = 0
                self._lengths_s[side] = self._elapsed_s() - started_s
            self._check_shares()
            block += 1
            self._blocks_s += self._elapsed_s() - began_s
            self._report(self._elapsed_s() - began_s)
        return "resolved"

    def result(self, ended: str, told: Sequence[str] = ()) -> BenchResult | None:
        """Return what was measured until now; None where of one of the works there is nothing."""
        if not self.plans:
            return None
        identity, blocks = self.sensor.identity, len(relative_blocks(self.trials, len(self.works)))
        setting = Setting(
            _labels(self.works),
            self.plans,
            any(work.starts_process for work in self.works),
            self.timing,
            self.target,
            {
                "target": self.sensor.target,
                "backend": identity.backend,
                "model": identity.model,
                "serial": identity.serial,
                "version": identity.version,
                "virtual": identity.virtual,
                "channels": [self._acquisition.layout.energy[i - 1].name for i in self._acquisition.layout.in_total],
            },
            machine_facts(),
            self._warmed_s,
            self._blocks_s / blocks if blocks else math.fsum(self._lengths_s) * len(self.works),
        )
        left = [
            f"{label}: not all that it started has ended with it, and what goes on is measured in later trials, of "
            "another command too: let it wait for what it starts"
            for label, work in zip(setting.labels, self.works, strict=True)
            if work.goes_on
        ]
        return summarise(self.trials, setting, ended, (*told, *dict.fromkeys(self._told), *left))

    def shortfall(self) -> str:
        """Say why there is no result although nothing failed, and what to allow."""
        return (
            f"nothing was measured: no trial fits into max_time ({self._max_time_s:g} s): {self._least()}; allow "
            "that (--max-time), or make the work shorter"
        )

    def _least(self) -> str:
        """Say how long the least that decides takes."""
        return f"warming up and {LEAST_BLOCKS} blocks take about {self._least_s():.3g} s"

    def _least_s(self) -> float:
        warm_s = max(self._warmed_s, self._warmup_s * len(self.works))  # warming up may have been cut short
        return warm_s + LEAST_BLOCKS * math.fsum(self._lengths_s) * len(self.works)

    def _fits(self, order: Sequence[int]) -> bool:
        """Whether trials of these works end in time, as far as can be foreseen."""
        return self._elapsed_s() + math.fsum(self._lengths_s[side] for side in order) <= self._max_time_s

    def _elapsed_s(self) -> float:
        return (self._acquisition.clock.now_ns() - self._begin_ns) / NS_PER_S

    def _warm(self, work: Work) -> float:
        """Run a work for a while, unmeasured; return how long it takes each time."""
        clock, times, passed_s = self._acquisition.clock, 1, 0.0
        while True:
            start_ns = clock.now_ns()
            work.run(times)
            took_s = (clock.now_ns() - start_ns) / NS_PER_S
            passed_s += took_s
            spare_s = self._max_time_s - self._elapsed_s()
            if (passed_s >= self._warmup_s and took_s >= _TIMED_S / 2.0) or spare_s <= 0.0:
                return took_s / times
            # As long again as all until now, but no more than what is left, or than what times it well.
            left_s = min(spare_s, max(_TIMED_S, min(passed_s, self._warmup_s - passed_s)))
            times = max(1, min(1000 * times, math.ceil(left_s * times / max(took_s, 1e-9))))

    def _next_order(self) -> Sequence[int]:
        """Return the order of the next block: of two works by chance, but the first neither all alike nor all in turns.

        Five blocks are alike or in turns in one of 8 benchmarks: they would take for a difference, without scatter,
        what swings as slowly as one block lasts, or two.
        """
        if len(self.works) == 1:
            return (0,)
        if not self.trials:
            while len({a == b for a, b in pairwise(self._orders)}) < 2:
                self._orders = self._random.choices(_ORDERS, k=LEAST_BLOCKS)
        return self._orders.pop() if self._orders else self._random.choice(_ORDERS)

    def _check_shares(self) -> None:
        """Refuse to go on where no number of blocks gives an answer: shares of nothing, or of less."""
        if any(map(math.isnan, relative_blocks(self.trials, len(self.works)))):
            used = " and ".join(
                f"{work.label} {np.mean([t.joules for t in self.trials if t.side == side]):.3g} J"
                for side, work in enumerate(self.works)
            )
            msg = f"{self.sensor.target}: {used}: of energies that are not above zero there are no shares to compare"
            raise CoverageError(msg)

    def _enough(self) -> bool:
        return enough(relative_blocks(self.trials, len(self.works)), self.target, paired=len(self.works) == 2)

    # -- what is told --------------------------------------------------------------------------------------------------

    def _foresee(self) -> None:
        """Say what is planned, and whether the time will do."""
        for work, plan, length_s in zip(self.works, self.plans, self._lengths_s, strict=True):
            self._tell(f"{work.label}: {amount(plan.runs, 'run')} in each trial, about {length_s:.3g} s")
        if self._least_s() > self._max_time_s:
            least = f"{self._least()}, and max_time is {self._max_time_s:g} s"
            self._tell(f"warning: {least}: allow more time (--max-time), or make the work shorter")

    def _report(self, block_s: float) -> None:
        relative = relative_blocks(self.trials, len(self.works))
        if len(relative) < LEAST_BLOCKS:
            self._tell(f"block {len(relative)} of at least {LEAST_BLOCKS}")
            return
        paired = len(self.works) == 2
        left = max(0, planned(relative, self.target, paired=paired) - len(relative))
        middle = math.fsum(relative) / len(relative)
        so_far = f"difference {100 * math.expm1(middle):+.2g} %, " if paired else ""
        more = f"; about {amount(left, 'more block')}, {left * block_s:.0f} s" if left else ""
        self._tell(f"block {len(relative)}: {so_far}+-{100 * half_width(relative):.2g} %{more}")


def _labels(works: Sequence[Work]) -> list[str]:
    """Return what the works are called; one that is held against itself has two names."""
    labels = [work.label for work in works]
    return labels if len(set(labels)) == len(labels) else [f"{x} ({i})" for i, x in enumerate(labels, start=1)]


def bench(
    a: Callable[[], object] | Sequence[str],
    b: Callable[[], object] | Sequence[str] | None = None,
    *,
    sensor: str | Sensor,
    target: float = 0.01,
    max_time: float | None = None,
    warmup: float = WARMUP_S,
    cooldown: float = 0.0,
    seed: int | None = None,
    tell: Tell | None = None,
) -> BenchResult:
    """Repeat a piece of work, or two in turns, until its energy is known well enough.

    How often, in which order and at which instants follows from the sensor; it ends when the interval is narrow enough,
    not when a difference shows. A function has to return when its work is done, on a GPU too (synchronise in it).

    Parameters
    ----------
    a, b : callable without arguments, or list of words
        Functions, or commands (no shell in between). With ``b`` the two are compared.
    sensor : str or Sensor
        A target, opened for this, or an open sensor.
    target : float
        Of one work: the half-width of the 95 % interval, relative. Of two: the difference that matters.
    max_time : float, optional
        Seconds after which it ends in any case; None: ten minutes.
    warmup, cooldown : float
        Seconds for which each work runs unmeasured, and of rest before each trial.
    seed : int, optional
        Of the order of blocks and the phases of bursts.
    tell : callable, optional
        Called with a line about how it goes on.

    Returns
    -------
    BenchResult
        After Ctrl-C, what was measured until then, with ``ended == "interrupted"``.

    Raises
    ------
    TargetError
        A sensor, work, target or time that makes no sense.
    BackendUnavailableError
        The sensor cannot be used.
    BenchStoppedError
        The work failed or the sensor was lost on the way; ``result`` is what was measured until then.

    Examples
    --------
    >>> import pmtpy as pmt
    >>> found = pmt.bench(lambda: sum(range(1000)), sensor="rapl:virtual", target=0.05, warmup=0.1)
    >>> found.resolved
    True
    """
    works = [work_of(work) for work in ((a,) if b is None else (a, b))]
    opened = create(sensor) if isinstance(sensor, str) else sensor
    running = None
    try:
        running = Bench(
            works, opened, target=target, max_time_s=MAX_TIME_S if max_time is None else max_time, warmup_s=warmup,
            cooldown_s=cooldown, seed=seed, tell=tell,
        )  # fmt: skip
        ended = running.run()
        found = running.result(ended)
    except (Exception, KeyboardInterrupt) as error:
        found = running.result(ending_of(error), [f"ended early: {error or type(error).__name__}"]) if running else None
        if found is None:
            raise
        if isinstance(error, KeyboardInterrupt):
            return found
        msg = f"the benchmark ended early, after {amount(found.blocks, 'block')}: {error}"
        raise BenchStoppedError(msg, found) from error
    finally:
        if opened is not sensor:
            opened.close()
    if found is None:
        raise CoverageError(running.shortfall())
    return found


def ending_of(error: BaseException) -> str:
    """Return the word of a result for what ended a benchmark early."""
    if isinstance(error, SourceLostError):
        return "lost"
    return "failed" if isinstance(error, Exception) else "interrupted"
