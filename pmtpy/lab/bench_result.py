"""What a benchmark found: a frozen record, made of its trials, and its JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

import numpy as np

from pmtpy.analysis.repetition.plan import Plan, Timing
from pmtpy.analysis.repetition.resolve import (
    LEAST_BLOCKS,
    Difference,
    MeanOfBlocks,
    Verdict,
    compare_blocks,
    drift,
    enough,
    estimate,
    half_width,
    log_ratio,
    outliers,
    planned,
)
from pmtpy.analysis.signal.estimate import Z95
from pmtpy.core.presentation import amount, in_same_digits, number_or_none
from pmtpy.lab.bench_trial import Trial

HEAD: Mapping[str, object] = MappingProxyType({"format": "pmtpy-bench", "version": 1})  # of the JSON
_LAUNCHES_COUNT_S = 0.1  # below it the start of a process, one to three milliseconds, is more than a percent of it
_BROKEN = ("failed", "lost")  # ends to which no advice about repetitions is an answer
_MAX_TARGET = 0.5  # no target beyond it is worth a word
_TIME_MARGIN = 1.1
_TOO_LONG_S = 86_400.0
_ANSWERED = ("too short", "alias")  # warnings about single regions to which the repetitions are the answer


@dataclass(frozen=True, slots=True)
class Side:
    """One of the works."""

    label: str
    # joules, watts, seconds: of one repetition. The intervals of joules and watts include what the sensor is not
    # known better by any number of trials: its gain, zero and resolution.
    joules: MeanOfBlocks
    watts: MeanOfBlocks
    seconds: MeanOfBlocks
    trials: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What a benchmark found.

    Attributes
    ----------
    sides : tuple of Side
        One or two.
    difference : Difference or None
        Of the second against the first, in relative terms.
    resolved : bool
        Whether what was asked is answered: the interval is as narrow as asked for, or the comparison has a verdict.
    target : float
    ended : str
        ``resolved``, ``time`` (max_time passed), ``interrupted``, ``failed``, ``lost``.
    blocks, planned_blocks : int
        Whole blocks, and how many are needed by their scatter.
    order : str
        Of the trials, in blocks: ``ABBA BAAB``.
    method : str
        In one sentence.
    timing : Timing
    sensor, machine : mapping
    trials : tuple of Trial
        All of them, those of a block that was not finished too.
    advice : str
        What would resolve it; empty where it is resolved.
    warnings : tuple of str
    """

    sides: tuple[Side, ...]
    difference: Difference | None
    resolved: bool
    target: float
    ended: str
    blocks: int
    planned_blocks: int
    order: str
    method: str
    timing: Timing
    sensor: Mapping[str, object]
    machine: Mapping[str, str]
    trials: tuple[Trial, ...]
    advice: str
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """``less``, ``more``, ``no difference larger than 1 %``, ``unresolved``; of one work: ``resolved`` or not."""
        if self.difference is None:
            return "resolved" if self.resolved else Verdict.UNRESOLVED.value
        word = self.difference.verdict
        return f"{word.value} {100 * self.difference.limit:g} %" if word is Verdict.SAME else word.value

    @property
    def joules(self) -> float:
        """Energy of one repetition of the first work."""
        return self.sides[0].joules.value

    def to_dict(self) -> dict[str, object]:
        """Return what JSON can hold: numbers that are not known are None."""
        found = asdict(self)
        found["verdict"] = self.verdict
        if self.difference is not None:
            found["difference"]["verdict"] = self.difference.verdict.value
        return {**HEAD, **{name: _known(value) for name, value in found.items()}}

    def __str__(self) -> str:
        """Return the outcome in a few lines."""
        lines = [*(f"{s.label}: {_interval(s.joules, 'J')}" for s in self.sides), self.sentence, self.advice]
        return "\n".join(filter(None, lines))

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        if self.difference is None:
            return f"{self.verdict}: {_interval(self.sides[0].joules, 'J')} each time (95 %)"
        first, second = (side.label for side in self.sides)
        d = self.difference
        if not math.isfinite(d.high):
            return f"{self.verdict}: {amount(self.blocks, 'whole block says', 'whole blocks say')} nothing yet"
        span = f"{100 * d.value:+.3g} % ({100 * d.low:+.3g} to {100 * d.high:+.3g} %, 95 %)"
        return f"{self.verdict}{self.lacking}: {second} against {first}: {span}"

    @property
    def lacking(self) -> str:
        """Why nothing can follow yet, however clear the numbers look; empty where something may."""
        few = self.difference is not None and self.blocks < LEAST_BLOCKS
        return f" (a verdict takes {LEAST_BLOCKS} blocks, not {self.blocks})" if few else ""


def _interval(e: MeanOfBlocks, unit: str) -> str:
    value, half = in_same_digits(e.value, e.half_width)
    return f"{value} {unit} +- {half}" if 0.0 < e.half_width < math.inf else f"{value} {unit}"


def _known(value: object) -> object:
    if isinstance(value, float):
        return number_or_none(value)
    if isinstance(value, Mapping):
        return {k: _known(v) for k, v in value.items()}
    return [_known(v) for v in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, slots=True)
class Setting:
    """What a result is made from beside its trials."""

    labels: Sequence[str]
    plans: Sequence[Plan]
    starts_process: bool
    timing: Timing
    target: float
    sensor: Mapping[str, object]
    machine: Mapping[str, str]
    # how long it took before the first block, and how long a block takes
    warmed_s: float
    block_s: float


def _block_means(trials: Sequence[Trial], sides: int) -> list[list[Trial]]:
    """Return the trials of whole blocks, by block: those that have as many of each side as the others."""
    by_block: dict[int, list[Trial]] = {}
    for trial in trials:
        by_block.setdefault(trial.block, []).append(trial)
    whole = 1 if sides == 1 else 4
    return [block for block in by_block.values() if len(block) == whole]


def relative_blocks(trials: Sequence[Trial], sides: int) -> list[float]:
    """Return of each whole block what is averaged: its energy over that of all, or the logarithm of the ratio.

    NaN: there is no such share, since all use nothing, or one of two works nothing or less.
    """
    blocks = _block_means(trials, sides)
    means = [[_mean(block, side, "joules") for block in blocks] for side in range(sides)]
    if sides == 2:
        return [log_ratio(a, b) for a, b in zip(*means, strict=True)]
    all_of = float(np.mean(means[0])) if blocks else 0.0
    return [m / all_of if all_of else math.nan for m in means[0]]


def _mean(block: Sequence[Trial], side: int, field: str) -> float:
    return float(np.mean([getattr(t, field) for t in block if t.side == side]))


def summarise(trials: Sequence[Trial], setting: Setting, ended: str, told: Sequence[str] = ()) -> BenchResult | None:
    """Make the result of the trials that there are; None where of one of the works there is none."""
    sides = len(setting.labels)
    if {t.side for t in trials} != set(range(sides)):
        return None
    blocks = _block_means(trials, sides)
    relative = relative_blocks(trials, sides)
    difference = None
    if sides == 2 and blocks:
        means = [[_mean(block, side, "joules") for block in blocks] for side in (0, 1)]
        difference = compare_blocks(means[0], means[1], setting.target, _apart_u(trials))
    narrow = enough(relative, setting.target, paired=sides == 2)
    needed = planned(relative, setting.target, paired=sides == 2)
    resolved = difference.verdict is not Verdict.UNRESOLVED if difference is not None else sides == 1 and narrow
    return BenchResult(
        tuple(_side(trials, blocks, i, setting) for i in range(sides)),
        difference,
        resolved,
        setting.target,
        ended,
        len(blocks),
        needed,
        _order(trials),
        _method(setting),
        setting.timing,
        setting.sensor,
        setting.machine,
        tuple(trials),
        "" if resolved or ended in _BROKEN else _advice(trials, relative, setting, needed),
        (*told, *_warnings(trials, relative, setting)),
    )


def _side(trials: Sequence[Trial], blocks: Sequence[Sequence[Trial]], side: int, setting: Setting) -> Side:
    own = [t for t in trials if t.side == side]
    units = blocks or [own]

    def of(field: str, common: float) -> MeanOfBlocks:
        values = [_mean(block, side, field) for block in units]
        return estimate(values, common * abs(float(np.mean(values))))

    common = math.hypot(*(max(getattr(t, u) for t in own) for u in ("gain_u", "offset_u", "resolution_u", "ends_u")))
    return Side(
        setting.labels[side],
        of("joules", common),
        of("watts", common),
        of("seconds", 0.0),
        len(own),
        setting.plans[side],
    )


def _apart_u(trials: Sequence[Trial]) -> float:
    """Relative uncertainty of a ratio of two works on one sensor: the gain cancels, and of the zero what is alike."""
    a, b = ([t for t in trials if t.side == side] for side in (0, 1))
    means = [[float(np.mean([getattr(t, u) for t in side])) for side in (a, b)] for u in ("offset_u", "ends_u")]
    return math.hypot(*(x - y for x, y in means), *(max(t.resolution_u for t in side) for side in (a, b)))


def _advice(trials: Sequence[Trial], relative: Sequence[float], setting: Setting, needed: int) -> str:
    """Return what would resolve it: more time, a wider target, or, where time is no help, longer work."""
    paired, left = len(setting.labels) == 2, needed - len(relative)
    half = half_width(relative)
    if paired:  # half the target decides
        half = 2.0 * math.hypot(half, Z95 * _apart_u(trials))
    decides = len(relative) >= LEAST_BLOCKS
    wider = f"what is known does for --target {_rounded_up(100 * half)}%" if decides and half < _MAX_TARGET else ""
    if left * setting.block_s > _TOO_LONG_S:
        first = (
            "by the scatter until now it would take more than a day: see what else runs, or let each run do more work"
        )
    elif left > 0:
        longest_s = math.ceil(_TIME_MARGIN * (setting.warmed_s + needed * setting.block_s))
        least = needed == LEAST_BLOCKS
        why = f"a verdict needs {needed} blocks" if least else f"{needed} blocks would do, by the scatter until now"
        more = "1 more takes" if left == 1 else f"{left} more take"
        first = f"{why}; {more} {left * setting.block_s:.3g} s: --max-time {longest_s}"
    else:
        first = (
            f"more blocks do not help: how the sensor rounds, and sees the ends of a run, leaves +-{50 * half:.2g} %"
        )
        first += "; let each run do more work"
    return "; ".join(filter(None, [first, wider]))


def _rounded_up(percent: float) -> str:
    """Return a little more than this, with two digits."""
    unit = 10.0 ** (math.floor(math.log10(percent)) - 1) if percent > 0.0 else 1.0
    return f"{unit * math.ceil(percent / unit + 0.1):.6g}"


def _order(trials: Sequence[Trial]) -> str:
    words: dict[int, str] = {}
    for t in trials:
        words[t.block] = words.get(t.block, "") + "AB"[t.side]
    return " ".join(words.values())


def _method(setting: Setting) -> str:
    plan, many = setting.plans[0], len(setting.plans) == 2
    blocks = "blocks of four trials in ABBA or BAAB order by chance, ratios within blocks" if many else "trials"
    bursts = f"{plan.bursts} bursts of " if plan.bursts > 1 else ""
    spread = " that begin evenly spread over the sensor's period" if plan.period_s else ""
    ends = f", {plan.lead} before and {plan.tail} after them not taken" if plan.lead or plan.tail else ""
    each = " (of the first work)" if many else ""
    runs = amount(plan.repetitions, "repetition")
    return f"{blocks}; each trial {bursts}{runs}{spread}{ends}{each}; Student's t over the blocks"


def _warnings(trials: Sequence[Trial], relative: Sequence[float], setting: Setting) -> list[str]:
    found = []
    for side, label in enumerate(setting.labels):
        own = [t for t in trials if t.side == side]
        found += _of_side([t.middle_s for t in own], [t.joules for t in own], label, setting.target)
        once_s = float(np.mean([t.seconds for t in own]))
        if setting.starts_process and once_s < _LAUNCHES_COUNT_S:
            found.append(
                f"{label}: one run takes {1e3 * once_s:.3g} ms, and starting the process is a part of what is measured"
            )
    if len(relative) >= LEAST_BLOCKS and all(r == relative[0] for r in relative):
        found.append(
            "all blocks are the same to the last digit: the sensor rounds more than the work varies, or does not move"
        )
    return [*found, *_of_limits(trials, setting.labels), *_of_sensor(trials)]


def _of_limits(trials: Sequence[Trial], labels: Sequence[str]) -> list[str]:
    """Say what held the clocks back: then the work is not what it is on a machine that runs free."""
    found = []
    for cause in dict.fromkeys(cause for t in trials for cause in t.held_back):
        held = [t for t in trials if cause in t.held_back]
        sides = [sum(t.side == side for t in held) for side in range(len(labels))]
        where = (
            f" ({', '.join(f'{n} of {label}' for n, label in zip(sides, labels, strict=True))})" if sides[1:] else ""
        )
        known_s = math.fsum(s for t in held if math.isfinite(s := t.held_back[cause]))
        long = f", for {known_s:.3g} s in all" if known_s else ""
        found.append(f"clocks were held back by {cause} in {len(held)} of {len(trials)} trials{where}{long}")
    return found


def _of_side(t_s: Sequence[float], joules: Sequence[float], label: str, target: float) -> list[str]:
    usual = float(np.median(joules))
    found = []
    far = [i for i in outliers(joules) if abs(joules[i] - usual) > target * abs(usual)]  # a smaller one changes none
    if len(far) == 1:
        found.append(
            f"{label}: trial {far[0] + 1} of {len(joules)} lies far from all others ({joules[far[0]]:.5g} J): "
            "something else ran there; it is kept, and makes the interval wide"
        )
    elif far:
        least, most = min(joules[i] for i in far), max(joules[i] for i in far)
        found.append(
            f"{label}: of {len(joules)} trials {amount(len(far), 'lies', 'lie')} far from most others "
            f"({least:.5g} to {most:.5g} J, where "
            f"{usual:.5g} J is usual): something else ran there, or the work is not the same each time; they are kept, "
            "and make the interval wide"
        )
    change, sure = drift(np.asarray(t_s, np.float64), np.asarray(joules, np.float64))
    if sure and abs(change) > target:
        found.append(
            f"{label}: its energy drifts by {100 * change:+.2g} % over the measurement: warm up for longer (--warmup), "
            "or see what else changes (temperatures and clocks are in the JSON)"
        )
    return found


def _of_sensor(trials: Sequence[Trial]) -> list[str]:
    """Return each kind of warning that the sensor gave once, whatever the figures in it."""
    kinds: dict[str, str] = {}
    for warning in (w for t in trials for w in t.warnings):
        if not any(word in warning for word in _ANSWERED):
            kinds.setdefault(re.sub(r"\d[\d.e+-]*", "#", warning), warning)
    return list(kinds.values())
