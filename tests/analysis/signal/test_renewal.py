"""Whether readings tell that a register is renewed more seldom than its profile says, and that loads alone do not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bench_energy import LOADS, SENSORS, drawn
from pmtpy.analysis.signal.renewal import renewal
from pmtpy.core.rows import Floats

STATED_S = 0.1


def polled(renewed_s: Floats, shown: Floats, poll_s: float, seed: int) -> tuple[Floats, Floats]:
    """Return the rows of polls of a register, of which each finds what it was renewed with last."""
    rng = np.random.default_rng(seed)
    polls = np.arange(renewed_s[0], renewed_s[-1], poll_s) + rng.exponential(2e-4)
    return polls, shown[np.searchsorted(renewed_s, polls, side="right") - 1]


def seldom(every_s: float, changes: int, seed: int) -> tuple[Floats, Floats]:
    """Return when a register showed other values: at some of its renewals only."""
    rng = np.random.default_rng(seed)
    at = every_s * np.append(0, np.cumsum(rng.integers(1, 6, changes)))
    return np.append(at, at[-1] + every_s), np.append(rng.normal(100.0, 20.0, len(at)), 0.0)


@pytest.mark.parametrize("every_s", [0.5, 1.0, 2.0])
def test_a_register_that_is_renewed_more_seldom_than_its_profile_says_is_found(every_s: float) -> None:
    for seed in range(20):
        found = renewal(*polled(*seldom(every_s, 16, seed), 0.04, seed), STATED_S)
        assert found.another
        assert found.every_s == pytest.approx(every_s, rel=0.03)


def test_rows_of_new_values_alone_tell_as_much_as_polls_would() -> None:
    at, shown = seldom(1.0, 16, 1)
    assert renewal(at, shown, STATED_S, 0.04).another
    assert renewal(at, shown, STATED_S, 0.04).every_s == pytest.approx(1.0, rel=0.03)
    # Polls that are a second apart see one renewal of ten, each at its instant.
    assert not renewal(at, shown, STATED_S, 1.0).share


def test_how_often_a_register_was_renewed_long_ago_tells_nothing_of_now() -> None:
    # As a card at rest does that was under load before: ten times a second, then once.
    rng = np.random.default_rng(2)
    at, shown = seldom(1.0, 80, 2)
    before = STATED_S * np.arange(200)
    at, shown = np.append(before, before[-1] + 1.0 + at), np.append(rng.normal(300.0, 20.0, 200), shown)
    found = renewal(*polled(at, shown, 0.04, 2), STATED_S)
    assert found.another
    assert found.every_s == pytest.approx(1.0, rel=0.03)


def test_many_changes_that_lie_far_apart_have_odds_that_are_a_number() -> None:
    at = np.cumsum(np.random.default_rng(4).integers(1, 4, 2000)).astype(np.float64) * 10.0
    shown = np.random.default_rng(5).normal(100.0, 20.0, len(at))
    found = renewal(at, shown, STATED_S, 0.01)
    assert found.another
    assert np.isfinite(found.odds)


def test_a_few_changes_are_not_enough_to_believe_it_and_leave_it_open() -> None:
    for changes in range(6):
        for seed in range(50):
            found = renewal(*polled(*seldom(1.0, changes, seed), 0.04, seed), STATED_S)
            assert not found.another
            assert bool(found.share) >= (changes > 4), (changes, found)
            assert bool(found.share) <= (changes > 2), (changes, found)


def test_seldom_changes_at_random_are_no_measure() -> None:
    rng = np.random.default_rng(7)
    for seed in range(300):
        at = np.append(0.0, STATED_S * np.sort(rng.choice(np.arange(1, 500), 12, replace=False)))
        assert not renewal(*polled(at, rng.normal(100.0, 20.0, len(at)), 0.05, seed), STATED_S).another


def test_a_load_that_repeats_between_two_powers_is_no_measure() -> None:
    # Five seconds of work and five of rest: of how often a register is renewed that does not slip, nothing tells.
    at = np.arange(0.0, 300.0, 5.0)
    for poll_s in (0.03, 0.05, 0.1):
        found = renewal(*polled(at, np.resize([50.0, 200.0], len(at)), poll_s, 0), STATED_S)
        assert (found.another, found.share) == (False, 0.0)


@pytest.mark.parametrize("noise_w", [0.0, 0.3])
@pytest.mark.parametrize("sensor", sorted(SENSORS))
def test_simulated_sensors_are_renewed_as_often_as_they_are(sensor: str, noise_w: float) -> None:
    period, window, tau = SENSORS[sensor]
    told = 0
    for load in LOADS:
        for seed in range(4):
            rng = np.random.default_rng(seed)
            world = drawn(load, rng, period)
            at = np.arange(4.0 + rng.uniform(0.0, period), 36.0, period)
            shown = world.shown(at, window, tau) + noise_w * rng.standard_normal(len(at))
            rows = polled(at, np.round(shown / 0.1) * 0.1, period / 2.0, seed)
            found = renewal(*rows, period)
            assert (found.another, found.share) == (False, 0.0), (load, seed)
            told += found.every_s == period
    assert told > 2 * len(LOADS)  # most of them show that it is the profile's
