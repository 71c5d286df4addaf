"""The whole procedure of ``pmtpy certify``: one recording of a sensor under a planned load, and what it proves.

After Yang, Adamek and Armour (arXiv 2312.02741): pseudo-random blocks for update period and kernel; steady levels of
the load for linearity and, beside a meter, gain and offset; trials of repeated short blocks at random phases for how
well energies repeat. A virtual device is certified against the load of its own world, which is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.analysis.correction.energy import held_polls
from pmtpy.analysis.procedures.certificate import (
    Level,
    Line,
    Rules,
    Trials,
    Verdict,
    judged,
    line_through,
    mean_shown,
    settled,
    trials_of,
)
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab.conditions import held_back, machine_facts
from pmtpy.lab.found import Found
from pmtpy.lab.loads import schedule, virtual_watts
from pmtpy.lab.record import Polls, record_all
from pmtpy.regions.region import region
from pmtpy.sensor.history import Recent
from pmtpy.sensor.registry import create

_PAUSE_S = 0.2  # between stretches, and by up to as much again at random: no phase of the sensor is met twice
_ASIDE_S = 0.3  # at rest before and after a trial, so that what the sensor shows at its ends is known
_REST_S = 0.5  # of a repetition's length: what is left between two of them
_DITHER_S = 0.1  # at random, after every few repetitions: the update period of most sensors
_EVERY = 4
_TAIL_S = 1.5  # after the last block, for what the sensor still has to say


@dataclass(frozen=True, slots=True)
class Plan:
    """How long what lasts.

    Attributes
    ----------
    response_s : float
        One long block and then pseudo-random ones, for period and kernel; at least 10.
    shares : tuple of float
        Of the device that are loaded for the steady levels, besides none of it.
    level_s : float
        Each of them, each time; its second half counts.
    rounds : int
        How often all levels are taken, in another order each time.
    trials, repetitions : int
        Trials of how many short blocks.
    block_s : float
        How long one of these is.
    seed : int
    """

    response_s: float = 20.0
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    level_s: float = 4.0
    rounds: int = 2
    trials: int = 4
    repetitions: int = 32
    block_s: float = 0.1
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what makes no procedure."""
        if not (all(0.0 < share <= 1.0 for share in self.shares) and len(set(self.shares)) > 1):
            msg = f"levels {', '.join(f'{s:g}' for s in self.shares)}: give at least two different shares, above 0 to 1"
            raise TargetError(msg)
        if not (self.level_s >= 0.5 and self.rounds >= 1 and self.trials >= 2 and self.repetitions >= 1):
            msg = "a certificate needs levels of 0.5 s or more, taken at least once, and at least two trials"
            raise TargetError(msg)

    def scheme(self) -> Scheme:
        """Return when the load is to be switched, and which stretch is for what."""
        rng = np.random.default_rng(self.seed)
        edges = [float(t) for t in schedule(self.response_s, self.seed)]
        blocks = [1.0] * (len(edges) // 2)
        now, levels, trials = self.response_s, [], []
        for _ in range(self.rounds):
            for share in rng.permutation([0.0, *self.shares]):
                begin = now + _PAUSE_S * (1.0 + rng.uniform())
                now = begin + self.level_s
                levels.append((float(share), begin, now))
                if share:
                    edges += [begin, now]
                    blocks.append(float(share))
        for _ in range(self.trials):
            begin = now + _ASIDE_S
            now += (2.0 + rng.uniform()) * _ASIDE_S
            for i in range(self.repetitions):
                edges += [now, now + self.block_s]
                blocks.append(1.0)
                now += self.block_s * (1.0 + _REST_S) + (_DITHER_S * rng.uniform() if i % _EVERY == 0 else 0.0)
            now += _ASIDE_S
            trials.append((begin, now))
        return Scheme(np.array(edges), tuple(blocks), tuple(levels), tuple(trials), self.response_s, now + _TAIL_S)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A plan in seconds since the start: switches of the load with the share of each block, and what to look at."""

    edges_s: Floats
    shares: tuple[float, ...]
    levels: tuple[tuple[float, float, float], ...]
    trials: tuple[tuple[float, float], ...]
    response_s: float
    seconds: float

    def met(self, edges_s: Floats) -> Scheme:
        """Return the stretches as they really were, by when the load was switched.

        Raises
        ------
        DeclinedError
            The load ended early.
        """
        if len(edges_s) != len(self.edges_s):
            msg = f"the load was switched {len(edges_s)} times instead of {len(self.edges_s)}: it ended early"
            raise DeclinedError(msg)
        by = float(np.median(edges_s - self.edges_s))
        levels = tuple((share, begin + by, end + by) for share, begin, end in self.levels)
        trials = tuple((begin + by, end + by) for begin, end in self.trials)
        return replace(self, levels=levels, trials=trials, response_s=self.response_s + by)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was found of one channel, and which rules it keeps. ``reference`` says what told the true power."""

    found: Found
    channel: Channel
    levels: tuple[Level, ...]
    line: Line | None
    trials: Trials | None
    verdicts: tuple[Verdict, ...]
    reference: str
    conditions: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return all(v.passed is not False for v in self.verdicts)

    def document(self) -> dict[str, Any]:
        """Return the JSON document; ``characterisation`` is what `pmtpy calibrate profile` takes."""
        return {
            "target": self.found.target,
            "virtual": self.found.virtual,
            "identity": self.found.identity,
            "channel": self.channel.name,
            "passed": self.passed,
            "rules": [asdict(v) for v in self.verdicts],
            "reference": self.reference,
            "levels": [asdict(level) | {"reference_w": _known(level.reference_w)} for level in self.levels],
            "line": None if self.line is None else asdict(self.line),
            "trials": None if self.trials is None else asdict(self.trials),
            "conditions": dict(self.conditions),
            "characterisation": self.profiled(),
        }

    def profiled(self) -> dict[str, Any]:
        """Return the characterisation, with gain and offset by the steady levels where nothing else told them."""
        document = self.found.document()
        if document["gradient"] is None and self.line is not None:
            document |= {"gradient": self.line.gain.as_dict(), "intercept_w": self.line.offset_w.as_dict()}
        return document


def certify(
    target: str,
    options: Mapping[str, str],
    plan: Plan,
    rules: Rules,
    *,
    channel: str | None = None,
    meter: str | None = None,
    interval_s: float | None = None,
    clock: Clock = HOST_CLOCK,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Record a sensor under the planned load and judge it.

    Parameters
    ----------
    target, options, channel, interval_s, clock, progress
        As of :func:`pmtpy.lab.record.record`. The load of a virtual device is the plan's.
    meter : str, optional
        Another sensor that measures the same power and is to be trusted, ``name[:device]``.

    Raises
    ------
    TargetError, BackendUnavailableError
        A sensor cannot be opened, or nothing here makes a load for it.
    DeclinedError
        It showed nothing where there should have been steady levels.
    """
    if "load" in options:
        msg = f"{target}: certify makes the load itself; leave the option load out"
        raise TargetError(msg)
    scheme = plan.scheme()
    settings = {"seconds": scheme.seconds, "channel": channel, "interval_s": interval_s}
    at_s = clock.anchor().unix_ns / NS_PER_S

    trusted: list[Recent] = []

    @contextmanager
    def beside() -> Iterator[None]:
        if meter is None:
            yield
            return
        # The region lets a counter be read now and then, which else is read when somebody asks.
        with create(meter, clock=clock, history_s=scheme.seconds + 10.0) as sensor, region("certify", sensor):
            yield
            trusted.append(sensor.history())

    polls = record_all(
        target, options, scheme.edges_s, shares=scheme.shares, clock=clock, progress=progress, beside=beside(),
        **settings,  # type: ignore[arg-type]
    )  # fmt: skip
    metered = None
    for seen in trusted:
        t_s = np.asarray((seen.t_ns - polls.start_ns) / NS_PER_S, np.float64)
        metered = Series(t_s, seen.watts[:, 0], joules=seen.joules[:, 0])
    return judge(target, polls, scheme, rules, meter=metered, meter_name=meter or "", unix_s=at_s)


def judge(
    target: str,
    polls: Polls,
    scheme: Scheme,
    rules: Rules,
    *,
    meter: Series | None = None,
    meter_name: str = "",
    unix_s: float = 0.0,
) -> Certificate:
    """Judge what was recorded under a scheme; errors as of :func:`certify`."""
    t, watts, about = polls.t_s, polls.watts(polls.chosen), polls.channels[polls.chosen]
    scheme = scheme.met(polls.edges_s)
    truth, reference = _reference(polls, scheme, meter, meter_name)
    first = t <= scheme.response_s
    edges = polls.edges_s[polls.edges_s < scheme.response_s]
    load = LoadIntervals.switched(edges[: len(edges) // 2 * 2])
    found = characterise(about.name, Series(t[first], watts[first]), load=load, meter=_until(meter, scheme.response_s))
    levels = tuple(_level(t, watts, truth, level) for level in scheme.levels)
    line, no_line = _tried(lambda: line_through(levels))
    trials, no_trials = _tried(lambda: _trials(polls, scheme, levels, _lag_s(found)))
    limits = held_back(polls.limits)
    verdicts = (
        _period(found, about, rules),
        _kernel(found),
        _coverage(found, rules),
        _linearity(line, no_line, rules),
        _gain(line, no_line, rules),
        *_energies(trials, no_trials, rules),
        _limits(limits),
    )
    conditions = {
        "unix_s": unix_s,
        "machine": machine_facts(),
        "settings": dict(polls.settings),
        "held_back_s": {cause: _known(s) for cause, s in limits.items()},
        "ranges": _ranges(polls),
    }
    made = Found.of(found, target, polls.identity, Series(t, watts))
    return Certificate(made, about, levels, line, trials, verdicts, reference, conditions)


def _until(meter: Series | None, end_s: float) -> Series | None:
    if meter is None:
        return None
    inside = meter.t_s <= end_s + 1.0
    return Series(meter.t_s[inside], meter.watts[inside], joules=None if meter.joules is None else meter.joules[inside])


def _reference(polls: Polls, scheme: Scheme, meter: Series | None, meter_name: str) -> tuple[PowerTrace | None, str]:
    """Return what tells the true power, and its name: a meter, or of a virtual device its world."""
    if meter is not None:
        return meter.curve(), meter_name
    if not polls.identity.virtual or not len(polls.edges_s):
        return None, ""
    shares = np.zeros(len(polls.edges_s))
    shares[::2] = scheme.shares[: len(shares) // 2]
    knots = np.concatenate([[polls.edges_s[0] - 10.0], polls.edges_s, [polls.edges_s[-1] + 10.0]])
    watts = virtual_watts(np.concatenate([[0.0], shares]))
    joules = np.concatenate([[0.0], np.cumsum(watts * np.diff(knots))])
    return PowerTrace.from_energy(knots, joules), "the load of its own world"


def _level(t_s: Floats, watts: Floats, truth: PowerTrace | None, level: tuple[float, float, float]) -> Level:
    share, *stretch = level
    start, end = settled(*stretch)
    shown = mean_shown(t_s, watts, (start, end))
    return Level(share, shown, *([] if truth is None else [truth.energy(start, end) / (end - start)]))


def _tried(estimator: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return estimator(), ""
    except DeclinedError as error:
        return None, str(error)


def _lag_s(found: Characterisation) -> float:
    """How much later held readings show a power: the kernel's lag, and half of the period for which each is held."""
    held_s = found.lattice.period_s.value / 2.0 if found.lattice is not None else 0.0
    return held_s + (found.kernel.best.lag_s.value if found.kernel is not None else 0.0)


def _trials(polls: Polls, scheme: Scheme, levels: tuple[Level, ...], lag_s: float) -> Trials:
    """Compare the energy of each trial, as shown, with what the steady levels at rest and at full load make of it."""
    rest, full = (
        float(np.mean([level.shown_w for level in levels if level.share == share]))
        for share in (0.0, max(level.share for level in levels))
    )
    t, watts = polls.t_s, polls.watts(polls.chosen)
    load = LoadIntervals.switched(polls.edges_s)
    known = np.isfinite(watts)
    ratios = []
    for begin, end in scheme.trials:
        expected = rest * (end - begin) + (full - rest) * load.share(begin, end)
        ratios.append(held_polls(t[known], watts[known], begin + lag_s, end + lag_s) / expected)
    return trials_of(ratios)


# --- the rules ---


def _not_judged(rule: str, demand: str, why: str) -> Verdict:
    return Verdict(rule, demand, f"not judged: {why}", None)


def _period(found: Characterisation, about: Channel, rules: Rules) -> Verdict:
    rule = "update period"
    if about.refresh_s is None:
        return _not_judged(rule, f"within {rules.period:g} % of the stated one", "none is stated of this sensor")
    stated, share = 1e3 * about.refresh_s, rules.period / 100.0
    demand = f"within {rules.period:g} % of the stated {stated:g} ms"
    if found.lattice is None:
        return _not_judged(rule, demand, found.declined.get("update_period_ms", ""))
    limits = (stated * (1.0 - share), stated * (1.0 + share))
    return judged(rule, demand, found.lattice.period_s.scaled(1e3), "ms", limits)


def _kernel(found: Characterisation) -> Verdict:
    rule, demand = "response", "one kernel is named, at odds of 20 to 1"
    if found.kernel is None or found.kernel.family == AMBIGUOUS:
        why = found.declined.get("kernel", "") if found.kernel is None else found.kernel.reason
        return _not_judged(rule, demand, why)
    return Verdict(rule, demand, found.kernel.family, passed=True)


def _coverage(found: Characterisation, rules: Rules) -> Verdict:
    rule, demand = "sees all of the time", f"at least {rules.coverage:g} of each period"
    if found.kernel is None or found.lattice is None:
        return _not_judged(rule, demand, "kernel and update period are not both known")
    # As of Response.span_s: the window, and twice the time constant.
    window, tau = found.kernel.spans("window_s"), found.kernel.spans("tau_s")
    low, mid, high = (
        sum(getattr(e, end) * times for e, times in ((window, 1.0), (tau, 2.0)) if e is not None)
        for end in ("low", "value", "high")
    )
    period = found.lattice.period_s.value
    seen = Estimate(*(min(1.0, max(0.0, span / period)) for span in (mid, low, high)))
    return judged(rule, demand, seen, "of the time", (rules.coverage, 1.0))


def _linearity(line: Line | None, why: str, rules: Rules) -> Verdict:
    rule, demand = "linearity", f"levels within {rules.linearity:g} % of the span of a straight line"
    if line is None:
        return _not_judged(rule, demand, why)
    off = 100.0 * line.deviation
    return Verdict(rule, demand, f"{off:.3g} % at most (R2 {line.r2:.6f})", passed=off <= rules.linearity)


def _gain(line: Line | None, why: str, rules: Rules) -> Verdict:
    rule, demand = "gain", f"within {rules.gain:g} % of 1"
    if line is None:
        return _not_judged(rule, demand, why)
    return judged(rule, demand, line.gain, "", (1.0 - rules.gain / 100.0, 1.0 + rules.gain / 100.0))


def _energies(trials: Trials | None, why: str, rules: Rules) -> tuple[Verdict, Verdict]:
    same = "energies repeat", f"trials differ by {rules.repeat:g} % or less, one standard deviation"
    short = "short loads", f"within {rules.short:g} % of what steady levels make of them"
    if trials is None:
        return _not_judged(*same, why), _not_judged(*short, why)
    sd, off = 100.0 * trials.sd, 100.0 * (trials.mean - 1.0)
    return (
        Verdict(*same, f"{sd:.3g} % in {len(trials.ratios)} trials", passed=sd <= rules.repeat),
        Verdict(*short, f"{off:+.3g} %", passed=abs(off) <= rules.short),
    )


def _limits(limits: Mapping[str, float]) -> Verdict:
    rule, demand = "steady clocks", "nothing holds the device back meanwhile"
    if not limits:
        return Verdict(rule, demand, "nothing did, as far as the device tells", passed=True)
    return Verdict(rule, demand, f"held back by {', '.join(limits)}", passed=False)


def _ranges(polls: Polls) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest of each temperature and clock."""
    found = {}
    for i, channel in enumerate(polls.channels):
        values = polls.values[:, i]
        values = values[np.isfinite(values)]
        if channel.quantity in {Quantity.TEMPERATURE, Quantity.FREQUENCY} and len(values):
            found[f"{channel.name}_{channel.unit}"] = (float(values.min()), float(values.max()))
    return found


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
