"""The whole procedure of ``pmtpy certify``: one recording of a sensor under a planned load, and what it proves.

After Yang, Adamek and Armour (arXiv 2312.02741): pseudo-random blocks for update period and kernel; steady levels of
the load for linearity and, beside a meter, gain and offset; trials of repeated short blocks at random phases for how
well energies repeat. A virtual device is certified against the load of its own world, which is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.analysis.procedures.certificate import (
    Level,
    Line,
    Trials,
    late_s,
    line_through,
    settled,
    trials_of,
)
from pmtpy.core.channel import Channel, Identity, Quantity, outermost
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import number_or_none
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab._reference import NOTHING, Reference, of_meter, of_world, opened
from pmtpy.lab.certify_plan import Plan, Scheme
from pmtpy.lab.certify_rules import Rules, Ruling, rulings
from pmtpy.lab.conditions import changed, held_back, machine_facts, settings_met
from pmtpy.lab.found import Found
from pmtpy.lab.own_cures import own_cures
from pmtpy.lab.record import Polls, Recorder
from pmtpy.sensor.history import Recent
from pmtpy.sensor.registry import canonical
from pmtpy.sensor.sensor import Sensor

_OF_LEVELS = frozenset({"gradient", "intercept_w", "energy"})  # what steady levels and trials tell instead of the fit
_ITSELF = "{meter} is the sensor that is to be certified, {target}: give another one that measures the same power"


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
        """Return the characterisation, with gain and offset by the steady levels where these are known.

        Those of the characterisation do not say how well the meter itself is calibrated.
        """
        document, line = self.found.document(), self.line
        declined = document["declined"]
        if line is not None:
            declined = {name: why for name, why in declined.items() if name not in _OF_LEVELS}
            document |= {
                "gradient": line.gain.as_dict(),
                "intercept_w": line.offset_w.as_dict(),
                "level": {"at_w": line.level_at_w, "u": line.level_u},
            }
        return document | {"declined": declined}


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
        As of :class:`pmtpy.lab.record.Recorder`. The load of a virtual device is the plan's.
    meter : str, optional
        Another sensor that measures the same power and is to be trusted, ``name[:device]``.

    Raises TargetError, BackendUnavailableError: a sensor cannot be opened, or nothing here makes a load for it; or the
    meter is the sensor itself.
    Raises DeclinedError: it showed nothing that tells anything.
    """
    if "load" in options:
        msg = f"{target}: certify makes the load itself; leave the option load out"
        raise TargetError(msg)
    if meter is not None and canonical(meter) == canonical(target):
        raise TargetError(_ITSELF.format(meter=meter, target=target))
    scheme = plan.scheme()
    at_s = clock.anchor().unix_ns / NS_PER_S

    trusted: list[tuple[Sensor, Recent]] = []

    @contextmanager
    def beside(whose: Identity) -> Iterator[None]:
        if meter is None:
            yield
            return
        with opened(meter, clock, history_s=scheme.seconds + 10.0, interval_s=interval_s) as sensor:
            if _same(sensor.identity, whose):
                raise TargetError(_ITSELF.format(meter=meter, target=target))
            yield
            trusted.append((sensor, sensor.history()))

    recorder = Recorder(scheme.seconds, channel, interval_s, clock, progress, beside)
    (polls,) = recorder.together({target: options}, scheme.edges_s, scheme.shares)
    reference = of_meter(*trusted[0], meter or "", polls.start_ns) if trusted else None
    return judge(target, polls, scheme, rules, meter=reference, unix_s=at_s)


def _same(one: Identity, other: Identity) -> bool:
    """Whether two sensors are one, as far as they say."""
    return (one.backend, one.model, one.serial) == (other.backend, other.model, other.serial)


def judge(
    target: str,
    polls: Polls,
    scheme: Scheme,
    rules: Rules,
    *,
    meter: Reference | None = None,
    unix_s: float = 0.0,
) -> Certificate:
    """Judge what was recorded under a scheme; errors as of :func:`certify`."""
    whole, about = polls.series, polls.about
    scheme = scheme.met(polls.edges_s)
    known = len(polls.edges_s) and polls.identity.virtual and _shows_all(polls)
    reference = meter or (of_world(polls.edges_s, scheme.shares) if known else NOTHING)
    first = whole.t_s <= scheme.response_s
    edges = polls.edges_s[polls.edges_s < scheme.response_s]
    load = LoadIntervals.switched(edges[: len(edges) // 2 * 2])
    beside = _until(reference.curve, scheme.response_s)
    shown = Series(whole.t_s[first], whole.watts[first], uncut=whole.uncut)
    found = characterise(about.name, shown, load=load, meter=beside)
    if found.kernel is None and beside is not None:  # the stamps of the load may tell what a coarse meter does not
        alone = characterise(about.name, shown, load=load)
        found = found if alone.kernel is None else alone
    found = own_cures(found)
    counter = about.quantity is Quantity.ENERGY
    step_s = _period_s(found, about) if counter else 0.0
    levels, no_line = _levels(polls, scheme, max(_settles_s(found, about), 2.0 * step_s), step_s, reference)
    line, no_line = (None, no_line) if no_line else _tried(lambda: line_through(levels))
    trials, no_trials = _tried(lambda: _trials(polls, scheme, levels, _lag_s(found, counter=counter)))
    if found.lattice is None and found.kernel is None and line is None and trials is None:
        msg = (
            f"{target}: the recording tells nothing of this sensor: {no_line}; {no_trials}; the machine may be too busy"
        )
        raise DeclinedError(msg)
    limits = held_back(polls.limits)
    judged = rulings(
        found,
        rules,
        refresh_s=about.refresh_s,
        line=(line, no_line),
        trials=(trials, no_trials),
        limits=(limits, changed(polls.settings)),
    )
    conditions = {
        "unix_s": unix_s,
        "machine": machine_facts(),
        "settings": settings_met(polls.settings),
        "held_back_s": {cause: number_or_none(s) for cause, s in limits.items()},
        "ranges": _ranges(polls),
    }
    made = Found.of(found, target, polls.identity, whole, channel=about)
    return Certificate(made, about, levels, line, trials, judged, reference.name, conditions)


def _until(meter: Series | None, end_s: float) -> Series | None:
    if meter is None:
        return None
    inside = meter.t_s <= end_s + 1.0
    return Series(meter.t_s[inside], meter.watts[inside], joules=None if meter.joules is None else meter.joules[inside])


def _shows_all(polls: Polls) -> bool:
    """Whether the chosen channel shows the whole load of a virtual device, and not that of one of its parts."""
    domains = [channel.domain for channel in polls.channels if channel.measures_energy]
    return {domains[i] for i in outermost(domains)} <= {polls.about.domain}


def _levels(
    polls: Polls, scheme: Scheme, settles_s: float, step_s: float, reference: Reference
) -> tuple[tuple[Level, ...], str]:
    """Return what was shown and what was there on steady levels; and why that tells of no line, if it does not.

    For ``settles_s`` after a change of the load the sensor still shows what was before; between two moves of a counter,
    ``step_s`` apart, both sides of a change are one.
    """

    def looked_at(reference: Reference) -> tuple[Level, ...]:
        levels = []
        if reference.curve is not None:
            curve = reference.curve
            # The first half of a level is not looked at, so a load that takes a while to come does no harm.
            spared_s = min(end - begin for _, begin, end in scheme.levels) / 4.0
            late = late_s(curve.t_s, curve.watts, scheme.levels, allowed_s=max(reference.reach_s, spared_s))
            if late:
                msg = (
                    f"{reference.name} shows the levels {late:.2g} s later than they were, beyond what it states of "
                    "itself: its clock or its averaging is not known, so what was there is not either"
                )
                raise DeclinedError(msg)
        for share, begin, end in scheme.levels:
            stretch = settled(begin, end, shown_s=settles_s, there_s=max(step_s, reference.reach_s))
            there = reference.mean(*stretch)
            shown = polls.energy(*stretch) / (stretch[1] - stretch[0])
            levels.append(Level(share, shown, there.watts, there.own_u, there.shared_u))
        return tuple(levels)

    levels, why = _tried(lambda: looked_at(reference))
    if levels is None:
        levels = _tried(lambda: looked_at(NOTHING))[0]  # what was shown alone tells of trials
    return levels or (), why


def _settles_s(found: Characterisation, channel: Channel) -> float:
    """For how long after a change of the load a thousandth of it is still to be seen in what is shown."""
    period_s = _period_s(found, channel)
    if found.kernel is None:
        return period_s + (channel.window_s or 0.0)
    widths = [found.kernel.spans(width) for width in ("window_s", "tau_s")]
    window_s, tau_s = (width.value if width is not None else 0.0 for width in widths)
    return period_s + window_s + math.log(1000.0) * tau_s


def _period_s(found: Characterisation, channel: Channel) -> float:
    """Return the time between two updates, as found, else as stated."""
    return found.lattice.period_s.value if found.lattice is not None else channel.refresh_s or 0.0


def _tried(estimator: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return estimator(), ""
    except DeclinedError as error:
        return None, str(error)


def _lag_s(found: Characterisation, *, counter: bool) -> float:
    """How much later readings show an energy: the kernel's lag, and half of the period for which a power is held.

    The kernel of a counter is that of its mean power from one move to the next, the middle of which is half a period
    before the count.
    """
    half_s = found.lattice.period_s.value / 2.0 if found.lattice is not None else 0.0
    return (-half_s if counter and found.kernel is not None else half_s) + (
        found.kernel.best.lag_s.value if found.kernel is not None else 0.0
    )


def _trials(polls: Polls, scheme: Scheme, levels: tuple[Level, ...], lag_s: float) -> Trials:
    """Compare the energy of each trial, as shown, with what the steady levels at rest and at full load make of it."""
    if not levels:
        msg = "there are no steady levels to compare them with"
        raise DeclinedError(msg)
    rest, full = (
        float(np.mean([level.shown_w for level in levels if level.share == share]))
        for share in (0.0, max(level.share for level in levels))
    )
    load = LoadIntervals.switched(polls.edges_s)
    ratios, loaded = [], []
    for begin, end in scheme.trials:
        by_load = (full - rest) * load.share(begin, end)
        expected = rest * (end - begin) + by_load
        ratios.append(polls.energy(begin + lag_s, end + lag_s) / expected)
        loaded.append(by_load / expected)
    return trials_of(ratios, levels, float(np.mean(loaded)) if loaded else 0.0)


def _ranges(polls: Polls) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest of each temperature and clock."""
    found = {}
    for i, channel in enumerate(polls.channels):
        values = polls.values[:, i]
        values = values[np.isfinite(values)]
        if channel.quantity in {Quantity.TEMPERATURE, Quantity.FREQUENCY} and len(values):
            found[f"{channel.name}_{channel.unit}"] = (float(values.min()), float(values.max()))
    return found
