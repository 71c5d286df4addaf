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
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.analysis.correction.energy import held_polls
from pmtpy.analysis.procedures.certificate import Level, Line, Trials, line_through, mean_shown, settled, trials_of
from pmtpy.analysis.signal.estimate import Z95
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.channel import Channel, Identity, Quantity
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
from pmtpy.sensor.registry import canonical, create
from pmtpy.sensor.sensor import Sensor

_ITSELF = "{meter} is the sensor that is to be certified, {target}: give another one that measures the same power"


@dataclass(frozen=True, slots=True)
class Meter:
    """What a trusted sensor recorded beside the one that is certified."""

    name: str
    series: Series
    slow_s: float = 0.0  # what it shows is of the power up to so long before or after
    gain_u: float = 0.0  # standard uncertainty of its gain, relative
    identity: Identity | None = None

    @classmethod
    def of(cls, name: str, sensor: Sensor) -> Meter:
        """Take what a sensor remembers; times are those of its clock."""
        seen = sensor.history()
        t_s = np.asarray(seen.t_ns / NS_PER_S, np.float64)
        measuring = [c for c in sensor.channels if c.quantity in {Quantity.POWER, Quantity.ENERGY}]
        moved = t_s[np.diff(seen.joules[:, 0], prepend=-1.0) != 0.0]
        spacing = float(np.median(np.diff(moved))) if len(moved) > 1 else 0.0
        slow = [max(c.refresh_s or 0.0, spacing) + (c.window_s or 0.0) + abs(c.lag_s or 0.0) for c in measuring]
        series = Series(t_s, seen.watts[:, 0], joules=seen.joules[:, 0])
        gain_u = max((c.gain_u for c in measuring if np.isfinite(c.gain_u)), default=0.0)
        return cls(name, series, max(slow, default=spacing), gain_u, sensor.identity)

    def since(self, start_ns: int) -> Meter:
        """Return the same, with times that count from an instant."""
        return replace(self, series=replace(self.series, t_s=self.series.t_s - start_ns / NS_PER_S))


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

    Raises TargetError, BackendUnavailableError: a sensor cannot be opened, or nothing here makes a load for it; or the
    meter is the sensor itself.
    Raises DeclinedError: it showed nothing where there should have been steady levels.
    """
    if "load" in options:
        msg = f"{target}: certify makes the load itself; leave the option load out"
        raise TargetError(msg)
    if meter is not None and canonical(meter) == canonical(target):
        raise TargetError(_ITSELF.format(target=target, meter=meter))
    scheme = plan.scheme()
    settings = {"seconds": scheme.seconds, "channel": channel, "interval_s": interval_s}
    at_s = clock.anchor().unix_ns / NS_PER_S

    trusted: list[Meter] = []

    @contextmanager
    def beside() -> Iterator[None]:
        if meter is None:
            yield
            return
        # The region lets a counter be read now and then, which else is read when somebody asks.
        with create(meter, clock=clock, history_s=scheme.seconds + 10.0) as sensor, region("certify", sensor):
            yield
            trusted.append(Meter.of(meter, sensor))

    polls = record_all(
        target, options, scheme.edges_s, shares=scheme.shares, clock=clock, progress=progress, beside=beside(),
        **settings,  # type: ignore[arg-type]
    )  # fmt: skip
    metered = trusted[0].since(polls.start_ns) if trusted else None
    if metered is not None and metered.identity is not None and _same(metered.identity, polls.identity):
        raise TargetError(_ITSELF.format(target=target, meter=meter))
    return judge(target, polls, scheme, rules, meter=metered, unix_s=at_s)


def judge(
    target: str,
    polls: Polls,
    scheme: Scheme,
    rules: Rules,
    *,
    meter: Meter | None = None,
    unix_s: float = 0.0,
) -> Certificate:
    """Judge what was recorded under a scheme; errors as of :func:`certify`."""
    t, watts, about = polls.t_s, polls.watts(polls.chosen), polls.channels[polls.chosen]
    scheme = scheme.met(polls.edges_s)
    truth, reference = _reference(polls, scheme, meter)
    first = t <= scheme.response_s
    edges = polls.edges_s[polls.edges_s < scheme.response_s]
    load = LoadIntervals.switched(edges[: len(edges) // 2 * 2])
    found = characterise(about.name, Series(t[first], watts[first]), load=load, meter=_until(meter, scheme.response_s))
    slow_s = meter.slow_s if meter is not None else 0.0
    levels = tuple(_level(t, watts, truth, level, slow_s) for level in scheme.levels)
    line, no_line = _tried(lambda: line_through(levels))
    if meter is not None and all(np.isnan(level.reference_w) for level in levels):
        no_line = f"{meter.name} follows the power to {slow_s:.3g} s only, too slow for these levels; use --level-time"
    elif meter is not None and line is not None:
        line = replace(line, gain=line.gain.widened(Z95 * meter.gain_u * line.gain.value))
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


def _same(one: Identity, other: Identity) -> bool:
    """Whether two sensors are of one device, as far as they say."""
    return bool(one.serial) and (one.backend, one.model, one.serial) == (other.backend, other.model, other.serial)


def _until(meter: Meter | None, end_s: float) -> Series | None:
    if meter is None:
        return None
    seen = meter.series
    inside = seen.t_s <= end_s + 1.0
    return Series(seen.t_s[inside], seen.watts[inside], joules=None if seen.joules is None else seen.joules[inside])


def _reference(polls: Polls, scheme: Scheme, meter: Meter | None) -> tuple[PowerTrace | None, str]:
    """Return what tells the true power, and its name: a meter, or of a virtual device its world."""
    if meter is not None:
        return meter.series.curve(), meter.name
    if not polls.identity.virtual or not len(polls.edges_s):
        return None, ""
    shares = np.zeros(len(polls.edges_s))
    shares[::2] = scheme.shares[: len(shares) // 2]
    knots = np.concatenate([[polls.edges_s[0] - 10.0], polls.edges_s, [polls.edges_s[-1] + 10.0]])
    watts = virtual_watts(np.concatenate([[0.0], shares]))
    joules = np.concatenate([[0.0], np.cumsum(watts * np.diff(knots))])
    return PowerTrace.from_energy(knots, joules), "the load of its own world"


def _level(
    t_s: Floats, watts: Floats, truth: PowerTrace | None, level: tuple[float, float, float], slow_s: float
) -> Level:
    share, *stretch = level
    start, end = settled(*stretch)
    shown = mean_shown(t_s, watts, (start, end))
    # What a slow meter shows at either end is of the power before or after as well.
    first, last = start + slow_s, end - slow_s
    if truth is None or last - first <= slow_s:
        return Level(share, shown)
    return Level(share, shown, truth.energy(first, last) / (last - first))


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
