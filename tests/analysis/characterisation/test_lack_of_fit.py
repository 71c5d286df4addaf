"""Sensors that do what no family of kernels does, against closed forms."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.rows import Floats
from tests.support.simulated import Bench, pseudo_random_bench

WINDOW_S, NOISE_W = 0.1, 0.3


def boxcar(bench: Bench, at: Floats, window_s: float) -> Floats:
    return np.asarray((bench.load.joules(at) - bench.load.joules(np.asarray(at - window_s))) / window_s, np.float64)


def one_pole(bench: Bench, at: Floats, tau_s: float) -> Floats:
    """Return the output of a filter that began at rest, from the levels between the load's edges."""
    edges = np.asarray(bench.edges_s, np.float64)
    power = np.append(np.diff(bench.load.joules(edges)) / np.diff(edges), bench.load.watts(edges[-1:] + 1e-6))
    rest = float(bench.load.watts(edges[:1] - 1e-6)[0])
    held = [rest]  # at each edge
    for length, watts in zip(np.diff(edges), power, strict=False):
        held.append(watts + (held[-1] - watts) * float(np.exp(-length / tau_s)))
    place = np.searchsorted(edges, at, side="right") - 1
    since, inside = at - edges[np.maximum(place, 0)], place >= 0
    shown = power[place] + (np.array(held)[place] - power[place]) * np.exp(-since / tau_s)
    return np.asarray(np.where(inside, shown, rest), np.float64)


def fitted(share: float, tau_s: float, seed: int, *, wander_w: float = 0.0) -> KernelFit:
    """Fit a sensor that shows ``share`` of the power by a slow filter; ``wander_w`` is of a board's slow error."""
    rng = np.random.default_rng(seed)
    bench = pseudo_random_bench(0.09, seconds=40.0, seed=seed)
    at = np.asarray(np.arange(0.5 + rng.uniform(0.0, 0.1), 39.0, 0.1), np.float64)
    watts = (1.0 - share) * boxcar(bench, at, WINDOW_S) + share * one_pole(bench, at, tau_s)
    slow = [0.0]
    for new in rng.standard_normal(len(at) - 1) * wander_w * np.sqrt(1.0 - np.exp(-2.0 * 0.1)):
        slow.append(slow[-1] * np.exp(-0.1) + new)  # fades within a second
    read = np.asarray(watts + slow + NOISE_W * rng.standard_normal(len(at)), np.float64)
    updates = Updates(np.arange(len(at)), at, read, 0.1, 1e-4)
    return fit_kernel(updates, bench.counted(seed=seed), metered=True)


@pytest.mark.parametrize(("share", "tau_s"), [(0.05, 0.5), (0.2, 0.5), (0.1, 3.0)])
def test_a_slow_part_is_found_and_in_gain_and_lag(share: float, tau_s: float) -> None:
    # Before, a boxcar was named: for a tenth that comes half a second late of a gain of 0.92 +- 0.02, 50 +- 0.3 ms.
    for seed in range(2):
        found = fitted(share, tau_s, seed)
        assert found.family == AMBIGUOUS
        said = re.match(r"none of these kernels: ([\d.]+) % of what is read comes some ([\d.]+) s late", found.reason)
        assert said is not None
        assert [float(part) for part in said.groups()] == pytest.approx([100.0 * share, tau_s], rel=0.1)
        best, lag_s = found.best, (1.0 - share) * WINDOW_S / 2.0 + share * tau_s
        assert best.gain.contains(1.0)
        assert best.gain.half_width < 1.3 * share
        assert best.intercept_w.contains(0.0)
        assert best.lag_s.contains(lag_s)
        assert best.lag_s.half_width < 1.2 * share * tau_s + 0.003
        assert best.window_s is not None
        assert best.window_s.value == pytest.approx(WINDOW_S, rel=0.02)
        # Mean square of the ages of a boxcar is a third of its window's, that of a one-pole twice its time constant's.
        ages2 = (1.0 - share) * WINDOW_S**2 / 3.0 + share * 2.0 * tau_s**2 - lag_s**2
        assert found.spread.contains(float(np.sqrt(ages2)))


def test_errors_of_a_board_that_last_are_no_slow_part() -> None:
    for seed in range(4):
        found = fitted(0.0, 1.0, seed, wander_w=1.5)
        assert found.family == "boxcar"
        assert found.best.gain.contains(1.0)
        assert found.best.lag_s.contains(WINDOW_S / 2.0)


def shown(readings: Callable[[Bench, Floats], Floats], seed: int) -> KernelFit:
    """Fit a sensor that publishes what ``readings`` make of the bench every 100 ms."""
    rng = np.random.default_rng(seed)
    bench = pseudo_random_bench(0.09, seconds=40.0, seed=seed)
    at = np.asarray(np.arange(0.5 + rng.uniform(0.0, 0.1), 39.0, 0.1), np.float64)
    read = np.asarray(readings(bench, at) + NOISE_W * rng.standard_normal(len(at)), np.float64)
    return fit_kernel(Updates(np.arange(len(at)), at, read, 0.1, 1e-4), bench.counted(seed=seed), metered=True)


def limited(bench: Bench, at: Floats) -> Floats:
    """Return means of a sensor that shows no more than 180 W of 210."""
    return np.minimum(boxcar(bench, at, WINDOW_S), 180.0)


def idle(bench: Bench, at: Floats) -> Floats:
    """Return means of a sensor that shows its idle power for all that is less than 100 W."""
    watts = boxcar(bench, at, WINDOW_S)
    return np.asarray(np.where(watts < 100.0, 60.0, watts), np.float64)


@pytest.mark.parametrize("readings", [limited, idle])
def test_a_sensor_that_rises_otherwise_than_it_falls_is_of_no_family(
    readings: Callable[[Bench, Floats], Floats],
) -> None:
    # Before, they were named: a boxcar * one-pole of 72 +- 11 ms, a boxcar of 89 +- 3 ms.
    for seed in range(2):
        found = shown(readings, seed)
        assert found.family == AMBIGUOUS
        assert "than its falls" in found.reason
        assert found.best.lag_s.contains(WINDOW_S / 2.0)


def test_a_sensor_that_only_bends_keeps_the_name_of_its_kernel() -> None:
    found = shown(lambda bench, at: np.asarray(60.0 + (w := boxcar(bench, at, WINDOW_S) - 60.0) * (1.0 + w / 3e3)), 0)
    assert found.family == "boxcar"
    assert found.best.window_s is not None
    assert found.best.window_s.contains(WINDOW_S)


def slewing(bench: Bench, at: Floats) -> Floats:
    """Return readings of a sensor that follows the power by 500 W/s at most."""
    t = np.arange(0.0, bench.seconds, 1e-3)
    power = np.diff(bench.load.joules(t)) / 1e-3
    held = [float(power[0])]
    for watts in power.tolist():
        held.append(held[-1] + min(max(watts - held[-1], -0.5), 0.5))
    return np.asarray(np.interp(at, t, held), np.float64)


def test_readings_that_follow_no_kernel_are_of_no_family_and_show_no_gain() -> None:
    found = shown(slewing, 0)
    assert found.family == AMBIGUOUS
    assert not found.best.gain.contains(1.0)  # of such a load it is the gain; of the sensor it is none
    assert "% of what changes in the readings follows no kernel" in found.no_gain
    assert "follows no kernel: unless that is noise" in found.note
    right = shown(lambda bench, at: boxcar(bench, at, WINDOW_S), 0)
    assert (right.note, right.no_gain) == ("", "")


def test_noise_is_no_lack_of_fit() -> None:
    # 25 W of it in a swing of 150 leave a seventh of the variance.
    rng = np.random.default_rng(3)
    found = shown(lambda bench, at: np.asarray(boxcar(bench, at, WINDOW_S) + 25.0 * rng.standard_normal(len(at))), 0)
    assert (found.no_gain, found.best.gain.contains(1.0)) == ("", True)
    assert "unless that is noise" in found.note


def test_a_characterisation_declines_the_gain_of_readings_that_follow_no_kernel() -> None:
    # Before, it was 1.40 +- 0.13 for a sensor that shows the power as it is wherever it rests.
    bench = pseudo_random_bench(0.09, seconds=40.0, seed=0)
    at, t = np.arange(0.5, 39.0, 0.02), np.arange(0.0, 40.0, 1e-3)
    shown_at = np.asarray(np.floor(at / 0.1) * 0.1, np.float64)
    noise = NOISE_W * np.random.default_rng(0).standard_normal(500)
    polls = Series(np.asarray(at, np.float64), slewing(bench, shown_at) + noise[np.round(shown_at / 0.1).astype(int)])
    found = characterise("power", polls, load=bench.intervals, meter=Series(t, bench.load.watts(t)))
    assert found.lattice is not None
    assert found.lattice.period_s.value == pytest.approx(0.1, rel=1e-3)
    assert found.transfer is None
    assert found.kernel is not None
    assert {found.declined[name] for name in ("kernel", "gradient", "intercept_w")} == {found.kernel.reason}
    assert not any("unless that is noise" in note for note in found.notes)
