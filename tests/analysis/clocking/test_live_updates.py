"""When a register was renewed, found from rows that were taken some time after, against the clock that renewed it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pmtpy.analysis.clocking import live_updates
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats


def polled(
    period_s: float, poll_s: float, *, phase_s: float = 0.0, wander_s: float = 0.0, seconds: float = 20.0, seed: int = 0
) -> tuple[Floats, Floats, Floats]:
    """Rows of new values as polls find them: when, what (its number), and when each was published."""
    rng = np.random.default_rng(seed)
    k = np.arange(int(seconds / period_s))
    published = phase_s + period_s * k + wander_s * np.sin(2 * np.pi * period_s * k / 41.0)
    polls = np.arange(0.0, seconds - period_s, poll_s)
    polls += rng.exponential(2e-4, len(polls))
    newest = np.searchsorted(published, polls, side="right") - 1
    rows = np.flatnonzero((np.diff(newest, prepend=-1) > 0) & (newest >= 0))
    return polls[rows], newest[rows].astype(np.float64), published


@given(st.floats(0.015, 0.2), st.floats(0.1, 0.55), st.floats(0.0, 1.0), st.integers(0, 9))
@example(0.015625, 0.17283159321879044, 0.0, 2)
def test_polls_of_a_known_period_tell_when_it_was_renewed(period: float, share: float, phase: float, seed: int) -> None:
    t, number, published = polled(period, share * period, phase_s=phase * period, seed=seed)
    found = live_updates(t, number, Number(period, 1e-5 * period), share * period)
    off = (found.t_s - published[found.watts.astype(int)])[1:]  # what the first row shows may be older
    # Where polls and updates keep in step the phase stays open, evenly over what is left of a poll: 1.73 deviations.
    assert np.max(np.abs(off)) <= 1.8 * found.jitter_s + 0.05 * period + 1e-3


def test_polls_in_step_tell_when_it_was_renewed_if_some_find_it_just_renewed_and_some_just_not_yet() -> None:
    t, number, published = polled(0.03125, 0.015625, phase_s=0.000488, seed=6)
    found = live_updates(t, number, Number(0.03125, 3e-7), 0.015625)
    assert np.max(np.abs(found.t_s - published[found.watts.astype(int)])) < 1.96 * found.jitter_s < 2e-3


def test_every_update_is_there_once() -> None:
    t, number, published = polled(0.1012, 0.02)
    found = live_updates(t, number, Number(0.1012, 1e-5), 0.02)
    assert found.watts[found.watts > number[0]].tolist() == number[1:].tolist()  # of the first row it is not known
    assert np.max(np.abs(found.t_s - published[found.watts.astype(int)])) < 2e-3


def test_the_devices_own_instants_are_taken_as_they_are_also_where_its_clock_wanders() -> None:
    k = np.arange(400)
    t = 3.0 + 0.1012 * k + 0.004 * np.sin(k / 50.0)
    found = live_updates(t, np.asarray(50.0 + k % 7, np.float64), Number(0.1012, 1e-4), 0.0)
    assert found.t_s[1:] == pytest.approx(t[1:], abs=1e-12)  # what the first row shows may be older
    assert found.jitter_s == 0.0


def test_of_exact_stamps_a_few_that_are_a_poll_late_are_put_right() -> None:
    # Where no more than one in forty was late, each was believed: off by 0.15 of the period.
    k = np.arange(200)
    published = 3.0 + 0.1012 * k + 0.001 * np.sin(k / 50.0)
    stamps = published + 0.015 * (k % 100 == 50)
    t = np.sort(np.concatenate([stamps, np.arange(3.05, stamps[-1], 0.0374)]))
    number = np.searchsorted(stamps, t, side="right").astype(np.float64) - 1.0
    found = live_updates(t, number, Number(0.1012, 1e-5), 0.0)
    assert np.max(np.abs(found.t_s[1:] - published[found.watts[1:].astype(int)])) < 3e-4


def test_rows_of_another_register_beside_are_no_updates() -> None:
    own, other = 0.013 + 0.1012 * np.arange(200), 0.02 * np.arange(1, 1000)
    t = np.sort(np.concatenate([own, other]))
    shown = np.searchsorted(own, t, side="right").astype(np.float64)
    found = live_updates(t, shown, Number(0.1012, 1e-5), 0.0)
    kept = found.watts > 1
    assert found.t_s[kept] == pytest.approx(own[found.watts[kept].astype(int) - 1], abs=2e-6)


@pytest.mark.parametrize("apart", [0.4, 0.5, 0.8, 0.95])
def test_values_that_stand_are_renewed_whole_periods_after_they_were_new_whenever_another_register_is(
    apart: float,
) -> None:
    # Each row of the other that was 0.75 periods behind was taken for an update: a sixth too many, up to a period off.
    own = 3.0 + 0.1 * np.arange(40)
    stood = np.asarray(200.0 + 10.0 * (np.arange(40) // 5 * 3 % 7), np.float64)  # so few changes that no clock is found
    first = np.append(True, np.diff(stood) != 0.0)
    other = np.arange(3.03, 6.9, apart * 0.1)
    t = np.sort(np.concatenate([own[first], other]))[2:]
    shown = stood[np.searchsorted(own, t, side="right") - 1]
    found = live_updates(t, shown, Number(0.1, 1e-6), 0.0)
    assert np.all(np.diff(found.k) == 1)
    assert found.t_s == pytest.approx(found.t_s[0] + 0.1 * found.k, abs=1e-9)
    assert (found.t_s[0] - 3.0) / 0.1 == pytest.approx(round((found.t_s[0] - 3.0) / 0.1), abs=1e-6)


def test_no_rows_are_no_updates() -> None:
    assert len(live_updates(np.zeros(0), np.zeros(0), Number(0.1, 1e-6), 0.0).t_s) == 0


def test_a_period_a_little_wrong_is_put_right_by_long_rows() -> None:
    t, number, published = polled(0.1, 0.0307, seconds=100.0)
    found = live_updates(t, number, Number(0.1001, 1e-4), 0.0307)
    assert np.max(np.abs(found.t_s - published[found.watts.astype(int)])) < 3e-3


@pytest.mark.parametrize(
    ("period", "poll"), [(0.0731, 0.02), (0.1, 0.0973), (0.0551, 0.02)], ids=["another", "polls too slow", "another"]
)
def test_updates_of_rows_from_all_over_the_period_are_as_old_as_a_value_is_on_average(
    period: float, poll: float
) -> None:
    t, number, _ = polled(0.1, poll)
    found = live_updates(t, number, Number(period, 1e-6), poll)
    assert found.jitter_s == pytest.approx(poll / np.sqrt(12.0))
    assert np.all(np.isin(np.round(found.t_s + poll / 2.0, 9), np.round(t, 9)))


def test_updates_of_too_few_rows_are_as_old_as_a_value_is_on_average() -> None:
    found = live_updates(np.arange(5.0), np.zeros(5), Number(1.0), 0.1)
    assert found.t_s == pytest.approx(np.arange(5.0) - 0.05)
    assert len(live_updates(np.zeros(0), np.zeros(0), Number(1.0), 0.1)) == 0


def test_rows_of_a_long_region_are_followed_piece_by_piece() -> None:
    t, number, published = polled(0.015, 0.004, seconds=90.0, wander_s=0.001)
    found = live_updates(t, number, Number(0.015, 1e-7), 0.004)
    assert len(np.unique(found.k)) == len(found) > 5980  # of 6,000, in two pieces
    assert np.max(np.abs(found.t_s - published[found.watts.astype(int)])) < 2e-3
