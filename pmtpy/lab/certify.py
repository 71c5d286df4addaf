"""The whole procedure of ``pmtpy certify``: one recording of a sensor under a planned load, and what it proves.

After Yang, Adamek and Armour (arXiv 2312.02741): pseudo-random blocks for update period and kernel; steady levels of
the load for linearity and, beside a meter, gain and offset; trials of repeated short blocks at random phases for how
well energies repeat. A virtual device is certified against the load of its own world, which is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.analysis.correction.energy import held_polls
from pmtpy.analysis.procedures.certificate import Level, Line, Trials, line_through, mean_shown, settled, trials_of
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import number_or_none
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab.certify_plan import Plan, Scheme
from pmtpy.lab.certify_rules import Rules, Ruling, rulings
from pmtpy.lab.conditions import held_back, machine_facts
from pmtpy.lab.found import Found
from pmtpy.lab.loads import virtual_watts
from pmtpy.lab.record import Polls, record_all
from pmtpy.regions.region import region
from pmtpy.sensor.history import Recent
from pmtpy.sensor.registry import create


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was found of one channel, and which rules it keeps. ``reference`` says what told the true power."""

    found: Found
    channel: Channel
    levels: tuple[Level, ...]
    line: Line | None
    trials: Trials | None
    verdicts: tuple[Ruling, ...]
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
            "levels": [asdict(level) | {"reference_w": number_or_none(level.reference_w)} for level in self.levels],
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

    Raises TargetError, BackendUnavailableError: a sensor cannot be opened, or nothing here makes a load for it.
    Raises DeclinedError: it showed nothing where there should have been steady levels.
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
    judged = rulings(
        found, rules, refresh_s=about.refresh_s, line=(line, no_line), trials=(trials, no_trials), limits=limits
    )
    conditions = {
        "unix_s": unix_s,
        "machine": machine_facts(),
        "settings": dict(polls.settings),
        "held_back_s": {cause: number_or_none(s) for cause, s in limits.items()},
        "ranges": _ranges(polls),
    }
    made = Found.of(found, target, polls.identity, Series(t, watts))
    return Certificate(made, about, levels, line, trials, judged, reference, conditions)


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


def _ranges(polls: Polls) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest of each temperature and clock."""
    found = {}
    for i, channel in enumerate(polls.channels):
        values = polls.values[:, i]
        values = values[np.isfinite(values)]
        if channel.quantity in {Quantity.TEMPERATURE, Quantity.FREQUENCY} and len(values):
            found[f"{channel.name}_{channel.unit}"] = (float(values.min()), float(values.max()))
    return found
