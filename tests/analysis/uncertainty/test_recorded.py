"""Energies of recordings: what their counters leave unknown, and by how much their curves are late."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.recorded import recorded_uncertainties
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.integrate import Integrator
from pmtpy.core.moves import energies_at
from pmtpy.core.rows import Layout, Row
from tests.support.uncertainty.worlds import telegraph

COUNTER = Channel("rail", Quantity.ENERGY, scale=1e-6, domain="host/rail", max_watts=20_000, gain_u=0.03)


@pytest.mark.parametrize("watts", [0.0, 100.0])
def test_of_a_recorded_counter_that_never_moved_nothing_is_known(watts: float) -> None:
    t = np.arange(-1.0, 3.0, 0.1)
    joules = np.column_stack([watts * (t + 1.0)] * 2)  # energies of recordings count from their first row
    power = np.full(joules.shape, watts)
    total, own = recorded_uncertainties(Layout((COUNTER,)), t, power, joules, Interval(2.0, [2.0 * watts], [0.0]))
    if watts:
        assert 0.03 * 200.0 <= own == total < 10.0
    else:
        assert math.isnan(own)
        assert math.isnan(total)


@pytest.mark.parametrize("off_s", [-6e-7, -1e-7, 1e-7, 6e-7])
def test_a_row_that_was_read_at_an_end_is_there_though_its_time_was_rounded(off_s: float) -> None:
    """Polls each 0.1 s and a row at either end, of a counter that is renewed each millisecond and a load that steps."""
    t = np.sort(np.append(np.arange(-1.03, 3.0, 0.1), [0.0, 1.0]))
    joules = np.interp(t, [-2.0, 0.05, 1.02, 4.0], [0.0, 205.0, 302.0, 1000.0]).repeat(2).reshape(-1, 2)
    power = np.vstack([[100.0, 100.0], np.diff(joules, axis=0) / np.diff(t)[:, None]])
    layout, used = Layout((COUNTER.timed(refresh_s=0.001),)), float(joules[t == 1.0, 1][0] - joules[t == 0.0, 1][0])
    interval = Interval(1.0, [used], [0.0], aged_s=0.1)
    _, told = recorded_uncertainties(layout, t, power, joules, interval)
    assert told == pytest.approx(0.03 * used, rel=0.02), "its age of a millisecond is little beside the gain"
    _, rounded = recorded_uncertainties(layout, t + off_s, power, joules, interval)
    assert rounded == pytest.approx(told, rel=1e-3)


@pytest.mark.parametrize(("poll_s", "at_most"), [(0.01, 12.0), (0.05, 19.0), (0.3, 45.0)])
@pytest.mark.parametrize(("low", "length_s"), [(50.0, 0.105), (50.0, 1.0), (250.0, 1.0)])
def test_marks_of_a_polled_counter_are_as_uncertain_as_its_moves_leave_them(
    low: float, length_s: float, poll_s: float, at_most: float
) -> None:
    """250 W between the marks, 50 or 250 outside, counted each 0.1 s. By the staircase of its rows +- 30 J."""
    layout, rng = Layout((replace(COUNTER, gain_u=0.0).timed(refresh_s=0.1),)), np.random.default_rng(5)
    found = []
    for _ in range(40):
        t = np.arange(-1.5 + rng.uniform(0.0, poll_s), 3.0, poll_s)
        phase = rng.uniform(0.0, 0.1)
        renewed = np.floor((t - phase) / 0.1) * 0.1 + phase
        joules = low * (renewed + 1.6) + (250.0 - low) * np.clip(renewed, 0.0, length_s)
        integrator, counts = Integrator(layout), np.rint(joules * 1e6).tolist()
        points = [integrator.step(Row(round(at * 1e9), [count], 0)) for at, count in zip(t + 1e3, counts, strict=True)]
        watts, energy = (np.array([getattr(point, name) for point in points]) for name in ("watts", "joules"))
        used = float(np.diff([energies_at(layout, at, t, watts, energy)[1] for at in (0.0, length_s)])[0])
        _, u = recorded_uncertainties(layout, t, watts, energy, Interval(length_s, [used], [0.0], aged_s=poll_s))
        found.append((used - 250.0 * length_s, float(u)))
    off, u = np.array(found).T
    assert np.mean(abs(off) <= 1.96 * u) >= 0.95
    assert 1.96 * math.sqrt(float(np.mean(u**2))) < at_most


@pytest.mark.parametrize("end_s", [0.36, 0.42, 0.5, 0.56])
def test_a_counter_that_stands_still_at_an_end_and_then_shows_a_part_may_have_missed_the_power_before(
    end_s: float,
) -> None:
    """250 W, counted each 20 ms, but for 0.27 s; then it shows a part of what it lacks, and then leaps."""
    layout = Layout((replace(COUNTER, gain_u=0.0, max_watts=300.0).timed(refresh_s=0.02),))
    t = np.arange(-1.0, 1.0, 0.01)
    counted = np.floor((t + 1e-9) / 0.02) * 0.02
    counted[(t > 0.295) & (t < 0.565)] = 0.3
    counted[(t > 0.565) & (t < 0.575)] = 0.302
    integrator = Integrator(layout)
    points = [integrator.step(Row(round((at + 9.0) * 1e9), [c * 250e6], 0)) for at, c in zip(t, counted, strict=True)]
    watts, energy = (np.array([getattr(point, name) for point in points]) for name in ("watts", "joules"))
    used = float(np.diff([energies_at(layout, at, t, watts, energy)[1] for at in (0.151, end_s)])[0])
    interval = Interval(end_s - 0.151, [used], [0.0], aged_s=0.01)
    _, u = recorded_uncertainties(layout, t - 0.151, watts, energy, interval)
    assert abs(used - 250.0 * (end_s - 0.151)) < 1.96 * u


def error(seed: int, window_s: float) -> float:
    """Error of a recorded energy, in standard uncertainties: means over a window, published ten times a second."""
    rng = np.random.default_rng(seed)
    at, joules = telegraph(rng, 30.0, longest_s=3.0)
    t = np.arange(1.2 + rng.uniform(0.0, 0.1), 29.9, 0.1)
    shown = (np.interp(t, at, joules) - np.interp(t - window_s, at, joules)) / window_s
    start = t[round(rng.uniform(60, 90))]
    end = t[np.searchsorted(t, start + rng.uniform(1.0, 8.0))]
    curve = np.concatenate([[0.0], np.cumsum(np.diff(t) * (shown[1:] + shown[:-1]) / 2.0)])
    used, true = (float(np.diff(np.interp([start, end], x, y))[0]) for x, y in ((t, curve), (at, joules)))
    channel = Channel("gpu", Quantity.POWER, domain="gpu/0", refresh_s=0.1, window_s=window_s, lag_s=window_s / 2)
    watts, energy = (np.column_stack([y, y]) for y in (shown, curve))
    _, u = recorded_uncertainties(Layout((channel,)), t - start, watts, energy, Interval(end - start, [used], [0.0]))
    return (used - true) / float(u)


@pytest.mark.parametrize("window_s", [0.1, 1.0])
def test_a_recorded_curve_is_not_moved_so_that_all_of_its_lag_is_uncertain(window_s: float) -> None:
    found = np.abs([error(seed, window_s) for seed in range(100)])
    assert np.mean(found <= 2.0) >= 0.9  # 95 % of a hundred, two standard errors
