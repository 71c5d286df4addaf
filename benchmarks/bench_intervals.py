"""What stated 95 % intervals are worth, by class of recording: how many hold the truth, and how wide they are.

Recordings are drawn by ``tests/support/drawn_sensors.py``, which shares no code with the package, and given to
``characterise`` against a meter on a clock of its own, beside the load's stamps (``meter``); against a meter on the
readings' clock (``one clock``); or with the stamps alone (``stamps``). Powers follow stamps late, as those of cards do.
For each class and each quantity:

=========  ==========================================================================================
right      the interval holds the truth (of a kernel: and a family is named)
ambiguous  the same, but the family is left open, or the width
declined   no interval
in step    the interval does not hold the truth; the second one does, stated of a load that repeats in step (energies)
wrong      the interval does not hold the truth, or another family is named
ratio      median of |error| over half-width: 0.34 of normal errors where an interval is as wide as it must be
needed     95 % quantile of the same: by what intervals could be multiplied and still hold 19 of 20
=========  ==========================================================================================

Energies are judged as users have them: of regions in a second recording of the same sensor under the same kind of
load, by the response that the first told, or by all that it left open, with the load's stamps where the first had
them. (``fitted`` are those of the recording that the response was fitted to, where its errors cancel in part.)

``python -m benchmarks.bench_intervals [FIRST] [RECORDINGS]`` prints the table, and each wrong interval to stderr.
"""

from __future__ import annotations

import collections
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.characterisation.results import Characterisation, Series, fitted_response
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.energy.estimate import likely_energy
from pmtpy.analysis.signal.clock_fit import EDGE_DELAY_S
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.errors import CoverageError, DeclinedError
from pmtpy.lab.make_profile import candidates
from tests.support.drawn_sensors import KERNELS, LOADS, PHASES, POLLS, Drawn, Kernel, draw, draw_load, record

_REFERENCES = ("meter", "one clock", "stamps")
_MINOR = 0.1  # share of a kernel's variance that a second width may have and be left out
_SECONDS = 20.0
_REGIONS_S, _LEAD_S = (0.5, 2.0, 8.0), 2.0  # of the regions in a second recording; and from its ends
_VERDICTS = ("right", "ambiguous", "declined", "in step", "wrong")


def _family(kernel: Kernel) -> tuple[str, ...]:
    """Families that are right: a second width may be left out if it is minor."""
    parts = kernel.window_s**2 / 12.0, kernel.tau_s**2
    if kernel.family == "boxcar*one-pole" and min(parts) < _MINOR * sum(parts):
        return kernel.family, "boxcar" if parts[0] > parts[1] else "one-pole"
    return (kernel.family,)


def _found(drawn: Drawn, reference: str, seed: int) -> Characterisation:
    rng = np.random.default_rng(seed)
    # A card follows its stamps by some tenths of a millisecond: no reading tells that from a lag of the sensor.
    stamps_s = drawn.edges_s - float(rng.uniform(0.0, EDGE_DELAY_S))
    readings, load = Series(drawn.t_s, drawn.watts), LoadIntervals.switched(stamps_s, drawn.seconds)
    if reference == "stamps":
        return characterise("drawn", readings, load=load)
    if reference == "one clock":
        return characterise("drawn", readings, meter=Series(*drawn.meter(rng)), one_clock=True)
    meter = drawn.meter(rng, rate=float(rng.normal(0.0, 5e-4)), shift_s=float(rng.uniform(-0.3, 0.3)))
    return characterise("drawn", readings, load=load, meter=Series(*meter))


def _judge(estimate: Estimate | None, truth: float, *, open_: bool = False) -> tuple[str, float]:
    if estimate is None:
        return "declined", math.nan
    ratio = abs(estimate.value - truth) / max(estimate.half_width, 1e-300)
    if not estimate.contains(truth):
        return "wrong", ratio
    return "ambiguous" if open_ else "right", ratio


def _judge_energy(interval: Estimate, aliased: tuple[float, float], truth: float) -> tuple[str, float]:
    verdict, ratio = _judge(interval, truth)
    return "in step" if verdict == "wrong" and aliased[0] <= truth <= aliased[1] else verdict, ratio


def _judged(found: Characterisation, drawn: Drawn, reference: str, seed: int) -> Iterator[tuple[str, str, float]]:
    """Yield quantity, verdict and |error| over half-width."""
    sensor, fit = drawn.sensor, found.kernel
    kernel, period = sensor.kernel, found.lattice.period_s if found.lattice else None
    slides = sensor.period_s * (1.0 + sensor.period_s / 60.0) if sensor.phase == "sliding" else sensor.period_s
    near = sensor.period_s if period is None else min(max(period.value, sensor.period_s), slides)
    yield ("period", *_judge(period, near))
    if fit is None:
        for name in ("family", "width", "lag"):
            yield name, "declined", math.nan
    else:
        named = fit.family != AMBIGUOUS
        right = fit.family in _family(kernel)
        yield "family", ("right" if right else "wrong") if named else "ambiguous", math.nan
        if kernel.family in ("boxcar", "one-pole"):
            boxcar = kernel.family == "boxcar"
            width = fit.spans("window_s" if boxcar else "tau_s")
            yield ("width", *_judge(width, kernel.window_s if boxcar else kernel.tau_s, open_=not named))
        if reference != "meter":  # there the clocks' offset is in it
            lag = kernel.mean_age_s + sensor.delay_s - drawn.polls.lead_s  # stamps are early
            yield ("lag", *_judge(fit.best.lag_s, lag, open_=not named))
    if reference == "stamps":
        return
    transfer = found.transfer
    yield ("gain", *_judge(transfer.gain if transfer else None, sensor.gain))
    yield ("offset", *_judge(transfer.intercept_w if transfer else None, sensor.offset_w))
    for comparison in found.energy.values():
        true, aliased = drawn.power.joules(comparison.start_s, comparison.end_s), comparison.aliased_j
        yield ("fitted", *_judge_energy(comparison.corrected_j, (aliased.low, aliased.high), true))
    yield from _elsewhere(found, drawn, reference, seed)


def _elsewhere(found: Characterisation, drawn: Drawn, reference: str, seed: int) -> Iterator[tuple[str, str, float]]:
    """Yield what energies are worth by what ``found`` says of the sensor, in another recording of it."""
    if found.lattice is None or found.kernel is None or found.transfer is None:
        yield "energy", "declined", math.nan
        return
    rng = np.random.default_rng([seed, 8])
    power = draw_load(drawn.load, drawn.sensor.period_s, _SECONDS, rng)
    other = record(drawn.sensor, power, drawn.polls, _SECONDS, seed=seed + 1_000_000, load=drawn.load)
    try:
        updates = update_series(other.t_s, other.watts, estimate_updates(other.t_s, other.watts))
    except DeclinedError:
        yield "energy", "declined", math.nan
        return
    responses = _responses(found, updates.period_s)
    load = LoadIntervals.switched(other.edges_s, _SECONDS) if reference == "meter" else None
    updates = updates if load is None else updates.dated()
    for seconds in _REGIONS_S:
        start = float(rng.uniform(_LEAD_S, _SECONDS - _LEAD_S - seconds))
        try:
            energy = likely_energy(
                updates.t_s, updates.watts, responses, start_s=start, end_s=start + seconds, load=load
            )
        except CoverageError:
            yield "energy", "declined", math.nan
            continue
        estimate = Estimate(energy.joules, energy.low, energy.high)
        yield ("energy", *_judge_energy(estimate, energy.aliased, power.joules(start, start + seconds)))


def _responses(found: Characterisation, period_s: float) -> list[tuple[float, Response]]:
    """Return the responses that a profile of what was found has, with the share of belief in each."""
    assert found.lattice is not None
    assert found.kernel is not None
    assert found.transfer is not None
    best = replace(fitted_response(found.lattice, found.kernel, found.transfer), period_s=period_s)
    left_open = [
        (
            share,
            replace(
                best, **{name: getattr(kernel, name) for name in ("family", "window_s", "tau_s", "delay_s", "lag_u")}
            ),
        )
        for share, kernel in candidates([found.document()])
    ]
    return left_open or [(1.0, best)]


def main() -> None:
    """Judge as many recordings as the command line says, or 40, from a seed on, or 0."""
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    many = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    counts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    ratios: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    start = time.process_time()
    for seed in range(first, first + many):
        rng = np.random.default_rng([seed, 7])
        family, load, polls, phase, reference = (
            str(rng.choice(names)) for names in (KERNELS, LOADS, POLLS, PHASES, _REFERENCES)
        )
        drawn = draw(seed, family=family, load=load, polls=polls, phase=phase, seconds=_SECONDS)
        found = _found(drawn, reference, seed)
        for quantity, verdict, ratio in _judged(found, drawn, reference, seed):
            for group in ("all", f"kernel {family}", f"load {load}", f"polls {polls}", f"phase {phase}", reference):
                counts[group, quantity][verdict] += 1
                ratios[group, quantity].append(ratio)
            if verdict == "wrong":
                what = f"{family}, {load}, {polls}, {phase}, {reference}"
                print(f"{seed}: {quantity} {ratio:.2f} half-widths off; {what}", file=sys.stderr, flush=True)
    print(f"{many} recordings, {(time.process_time() - start) / many:.1f} CPU s each")
    print(f"{'class':24}{'quantity':14}" + "".join(f"{v:>10}" for v in _VERDICTS) + f"{'ratio':>8}{'needed':>8}")
    for (group, quantity), count in sorted(counts.items()):
        known = [r for r in ratios[group, quantity] if math.isfinite(r)]
        middle = "".join(f"{q:8.2f}" for q in np.quantile(known, [0.5, 0.95])) if known else 2 * f"{'-':>8}"
        print(f"{group:24}{quantity:14}" + "".join(f"{count[v]:10}" for v in _VERDICTS) + middle)


if __name__ == "__main__":
    main()
