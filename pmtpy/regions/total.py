"""What several sensors measured together, without counting anything twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget
from pmtpy.analysis.uncertainty.components import common_by_kind, joined
from pmtpy.core.channel import TOTAL, Channel, Identity, summable, without
from pmtpy.errors import PmtError
from pmtpy.regions.measurement import Measurement, sum_of, to_be_judged
from pmtpy.sensor.sensor import Sensor, acquisition_of

_Entry = tuple[str, Channel]  # target, and one of its channels
_DISAGREE = 3.0  # standard uncertainties: by chance two of four hundred pairs are further apart


def sum_up(sensors: Sequence[Sensor], measured: Mapping[str, Measurement]) -> Measurement | None:
    """Sum what several sensors measured, each outermost physical part once; None where that cannot be told."""
    entries = _entries(sensors)
    indices, _ = summable(_parts(entries))
    if not indices:
        return None
    chosen = [entries[i] for i in indices]
    parts = [measured[target].channels[c.name] for target, c in chosen]
    by_name = {f"{target}/{c.name}": p for (target, c), p in zip(chosen, parts, strict=True)}
    shown = {target for target, _ in chosen}
    summed = Measurement(
        target=" + ".join(t for t in measured if t in shown),
        name=TOTAL,
        seconds=max(m.seconds for m in measured.values()),
        joules=math.fsum(p.joules for p in parts),
        watts=math.fsum(p.watts for p in parts),
        coverage=min(p.coverage for p in parts),
        lost=max(measured[t].lost for t in shown),
        virtual=any(measured[t].virtual for t in shown),
        channels=by_name,
        **sum_of(by_name),
    )
    brands = {s.target: _brand(s) for s in sensors}
    return to_be_judged(summed, partial(_trust, chosen, entries, brands, dict(measured)))


def sum_of_all(sensors: Sequence[Sensor], outcomes: Mapping[str, Measurement | PmtError]) -> Measurement | None:
    """Sum them where all have measured; None where one has not, or as :func:`sum_up`."""
    measured = {target: m for target, m in outcomes.items() if isinstance(m, Measurement)}
    return sum_up(sensors, measured) if len(measured) == len(outcomes) else None


def why_no_sum(sensors: Sequence[Sensor]) -> str:
    """Say why what several sensors measure cannot be summed; empty where it can."""
    return summable(_parts(_entries(sensors)))[1]


def _entries(sensors: Sequence[Sensor]) -> list[_Entry]:
    return [(s.target, c) for s in sensors for c in acquisition_of(s).layout.energy]


def _parts(entries: Sequence[_Entry]) -> list[tuple[str, str]]:
    return [(target, channel.domain) for target, channel in entries]


def common_parts(sensors: Sequence[Sensor], total: Measurement) -> dict[str, float]:
    """Return the joules of uncertainty of a sum that all sensors of one kind have in common, by kind."""
    parts = [(s, c.kind, total.channels.get(f"{s.target}/{c.name}")) for s in sensors for c in s.channels]
    return common_by_kind([(f"{_brand(s)}/{kind}", p.components) for s, kind, p in parts if p is not None])


def _brand(sensor: Sensor) -> str:
    """Return what sensors have in common that err alike: their model, and by what they were calibrated."""
    return brand(sensor.identity, getattr(acquisition_of(sensor).calibration, "digest", None))


def brand(identity: Identity, digest: str | None) -> str:
    """Return what devices have in common that err alike, for one that was corrected by a profile, or by none."""
    return f"{identity.backend}/{identity.model}/{digest or ''}"


def _trust(
    chosen: Sequence[_Entry],
    entries: Sequence[_Entry],
    brands: Mapping[str, str],
    measured: Mapping[str, Measurement],
) -> UncertaintyBudget:
    shown = {target for target, _ in chosen}
    of_sensors = (w for t in measured if t in shown for w in measured[t].warnings)
    said = dict.fromkeys([*without(_parts(entries)), *_contradictions(chosen, entries, measured), *of_sensors])
    return UncertaintyBudget(_summed_uncertainty(chosen, brands, measured), warnings=tuple(said))


def _contradictions(
    chosen: Sequence[_Entry], entries: Sequence[_Entry], measured: Mapping[str, Measurement]
) -> Iterator[str]:
    """Say where another sensor shows another energy of a part that is summed than the one that was taken."""
    for target, channel in chosen:
        taken = measured[target].channels[channel.name]
        for other, again in entries:
            if other == target or again.domain != channel.domain:
                continue
            beside = measured[other].channels[again.name]
            apart, u = taken.joules - beside.joules, math.hypot(taken.uncertainty_joules, beside.uncertainty_joules)
            if abs(apart) > _DISAGREE * u and taken.coverage == beside.coverage == 1.0:
                yield (
                    f"{other} shows {beside.joules:.4g} J of {channel.domain}, of which {target} shows"
                    f" {taken.joules:.4g} J and is summed: one of the two is wrong, or measures something else"
                )


def _summed_uncertainty(
    chosen: Sequence[_Entry], brands: Mapping[str, str], measured: Mapping[str, Measurement]
) -> float:
    """Uncertainty of the sum of channels of several sensors, joules.

    What a sensor's channels do not know of their edges they do not know together, so a sensor that is summed whole
    keeps the uncertainty of its own total, and of one that is summed in part the channels add linearly (never too
    small). Different sensors refresh at different instants and add in squares, but for what those of one kind share.
    """
    taken: dict[str, list[Channel]] = {}
    for target, channel in chosen:
        taken.setdefault(target, []).append(channel)
    each = []
    for target, channels in taken.items():
        parts = [measured[target].channels[c.name] for c in channels]
        joules, linear = math.fsum(p.joules for p in parts), math.fsum(p.uncertainty_joules for p in parts)
        whole = measured[target]
        same = math.isclose(joules, whole.joules, rel_tol=1e-9, abs_tol=1e-9)
        kinds = [f"{brands[target]}/{c.kind}" for c in channels]
        common = common_by_kind(zip(kinds, [p.components for p in parts], strict=True))
        each.append((whole.uncertainty_joules if same else linear, list(common.items())))
    return joined(each)
