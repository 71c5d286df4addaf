"""The rules of a certificate, and whether what was found of a sensor keeps them: each judged by its interval.

Pure: records in, records out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.characterisation.results import Characterisation
from pmtpy.analysis.procedures.certificate import Line, Trials
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.presentation import amount


@dataclass(frozen=True, slots=True)
class Rules:
    """What a sensor must keep to pass; percent, but for ``coverage``."""

    period: float = 5.0  # how far the update period may be from the stated one
    # The least share of the time that its readings must see (window over period). Below 0.9 it is called part-time.
    coverage: float = 0.9
    linearity: float = 1.0  # how far a level may be from the straight line through all of them, of their span
    # How far the gain may be from 1, and what is shown under load from what is there. NVML states +-5 % of the power;
    # Yang, Adamek and Armour (arXiv 2312.02741) found cards within it and beyond.
    gain: float = 5.0
    repeat: float = 1.0  # Standard deviation of the energies of the trials. 0.25 % was reached there by good practice.
    # How far the energy of short loads may be from what the steady levels make of them. Some 5 % remain there.
    short: float = 5.0

    def but(self, changes: dict[str, float]) -> Rules:
        """Return the rules with some of them changed.

        Raises KeyError: there is no such rule.
        """
        unknown = changes.keys() - {f.name for f in fields(self)}
        if unknown:
            raise KeyError(min(unknown))
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Ruling:
    """One rule, and what became of it: ``passed`` is None where it could not be judged, ``found`` says why."""

    rule: str
    demand: str
    found: str
    passed: bool | None


def rulings(
    found: Characterisation,
    rules: Rules,
    *,
    refresh_s: float | None,
    line: tuple[Line | None, str],
    trials: tuple[Trials | None, str],
    limits: tuple[Mapping[str, float], Sequence[str]],
) -> tuple[Ruling, ...]:
    """Judge all rules.

    Parameters
    ----------
    refresh_s : float, optional
        The update period that the sensor's channel states.
    line, trials : tuple
        What steady levels and short loads showed; or None, and why it is not known.
    limits : tuple
        What held the device's clocks back, and for how long; and what was set anew on it meanwhile.
    """
    return (
        _period(found, refresh_s, rules),
        _kernel(found),
        _coverage(found, rules),
        _linearity(*line, rules),
        *_gain(*line, rules),
        *_energies(*trials, rules),
        _limits(*limits),
    )


def judged(
    rule: str, demand: str, found: Estimate, unit: str, limits: tuple[float, float], *, cure: str = ""
) -> Ruling:
    """Judge a value by its interval: inside the limits passes, outside fails, across one of them is not decided."""
    low, high = limits
    text = f"{found.value:.4g}{unit and f' {unit}'} ({found.low:.4g} to {found.high:.4g})"
    if low <= found.low and found.high <= high:
        return Ruling(rule, demand, text, passed=True)
    if found.high < low or found.low > high:
        return Ruling(rule, demand, text, passed=False)
    return Ruling(rule, demand, f"{text}: too uncertain to decide{cure and f'; {cure}'}", passed=None)


def _not_judged(rule: str, demand: str, why: str) -> Ruling:
    told = why.partition(": ")[0] if why.startswith("needs the ") else why  # what is needed has a rule of its own
    return Ruling(rule, demand, f"not judged: {told}", None)


def _period(found: Characterisation, refresh_s: float | None, rules: Rules) -> Ruling:
    rule = "update period"
    if refresh_s is None:
        return _not_judged(rule, f"within {rules.period:g} % of the stated one", "none is stated of this sensor")
    stated, share = 1e3 * refresh_s, rules.period / 100.0
    demand = f"within {rules.period:g} % of the stated {stated:g} ms"
    if found.lattice is None:
        return _not_judged(rule, demand, found.declined.get("update_period_ms", ""))
    limits = (stated * (1.0 - share), stated * (1.0 + share))
    return judged(rule, demand, found.lattice.period_s.scaled(1e3), "ms", limits)


def _kernel(found: Characterisation) -> Ruling:
    rule, demand = "response", "one kernel is named, at odds of 20 to 1"
    if found.kernel is None or found.kernel.family == AMBIGUOUS:
        why = found.declined.get("kernel", "") if found.kernel is None else found.kernel.reason
        return _not_judged(rule, demand, why)
    return Ruling(rule, demand, found.kernel.family, passed=True)


def _coverage(found: Characterisation, rules: Rules) -> Ruling:
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


def _linearity(line: Line | None, why: str, rules: Rules) -> Ruling:
    rule, demand = "linearity", f"levels within {rules.linearity:g} % of the span of a straight line"
    if line is None:
        return _not_judged(rule, demand, why)
    cure = "more --rounds, or a longer --level-time"
    return judged(rule, demand, line.deviation.scaled(100.0), "% at most", (0.0, rules.linearity), cure=cure)


def _gain(line: Line | None, why: str, rules: Rules) -> tuple[Ruling, Ruling]:
    gain = "gain", f"within {rules.gain:g} % of 1"
    shown = "power shown", f"within {rules.gain:g} % of what is there, of levels under load"
    if line is None:
        return _not_judged(*gain, why), _not_judged(*shown, why)
    limits = (1.0 - rules.gain / 100.0, 1.0 + rules.gain / 100.0)
    return judged(*gain, line.gain, "", limits), judged(*shown, line.shown, "of it", limits)


def _energies(trials: Trials | None, why: str, rules: Rules) -> tuple[Ruling, Ruling]:
    same = "energies repeat", f"trials differ by {rules.repeat:g} % or less, one standard deviation"
    short = "short loads", f"within {rules.short:g} % of what steady levels make of them"
    if trials is None:
        return _not_judged(*same, why), _not_judged(*short, why)
    away, cure = trials.mean.moved(-1.0).scaled(100.0), "more --trials"
    among = f"% in {amount(len(trials.ratios), 'trial')}"
    percent = 100.0 * trials.loaded
    unseen = (
        f"under load it shows only {max(percent, 0.0):.2f} % more than at rest, so the rule would be kept with no load "
        "at all: see that the load runs on the device that is measured"
    )
    return (
        judged(*same, trials.sd.scaled(100.0), among, (0.0, rules.repeat), cure=cure)
        if percent > rules.repeat
        else _not_judged(*same, unseen),
        judged(*short, away, "%", (-rules.short, rules.short), cure=cure)
        if percent > rules.short
        else _not_judged(*short, unseen),
    )


def _limits(limits: Mapping[str, float], changed: Sequence[str]) -> Ruling:
    rule, demand = "steady clocks", "nothing holds the device back meanwhile"
    if changed:
        return Ruling(rule, demand, f"it was set anew meanwhile: {'; '.join(changed)}", passed=False)
    if not limits:
        return Ruling(rule, demand, "nothing did, as far as the device tells", passed=True)
    return Ruling(rule, demand, f"held back by {', '.join(limits)}", passed=False)
