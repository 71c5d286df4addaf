"""What the times between moves of a counter leave open, against loads whose energy is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.uncertainty._counter_ends import Cells
from pmtpy.core.rows import Floats

LOW, HIGH = 50.0, 250.0
NO_SWING = np.zeros(1)
MOST_W = np.array([500.0])


def cells(begin_s: float, length_s: float, phase_s: float, until_s: float = 2.0, age_s: float = 0.0) -> Cells:
    """Of a load that is on for a while, and a counter that is renewed each 100 ms and read so long after that."""
    renewed = np.arange(-1.0 + phase_s, until_s - age_s, 0.1)
    joules = LOW * renewed + (HIGH - LOW) * np.clip(renewed - begin_s, 0.0, length_s)
    watts = np.diff(joules, prepend=joules[0] - LOW * 0.1) / 0.1
    return Cells(renewed + age_s, joules[None], watts[None], length_s, goes_on=True)


def by_lines(at: Cells) -> float:
    ends: Floats = np.interp([0.0, at.length], at.t, at.joules[0])
    return float(ends[1] - ends[0])


@pytest.mark.parametrize("length_s", [0.02, 0.09, 0.105, 0.26, 1.0])
@pytest.mark.parametrize("phase_s", [0.003, 0.031, 0.05, 0.088])
def test_of_a_region_that_is_the_load_it_is_what_lines_lose(length_s: float, phase_s: float) -> None:
    at = cells(0.0, length_s, phase_s)
    lost = HIGH * length_s - by_lines(at)
    assert lost > 0.0
    assert at.open_joules((0.0,), NO_SWING, MOST_W)[0] == pytest.approx(lost)


@pytest.mark.parametrize("age_s", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("phase_s", [0.003, 0.05, 0.088])
def test_moves_that_are_seen_late_lose_more_of_it(age_s: float, phase_s: float) -> None:
    at = cells(0.0, 0.26, phase_s, age_s=age_s)
    lost = HIGH * 0.26 - by_lines(at)
    assert at.open_joules((0.0, age_s / 2.0, age_s), NO_SWING, MOST_W)[0] >= lost * (1.0 - 1e-9)


@pytest.mark.parametrize("begin_s", np.linspace(-0.3, 0.05, 8).tolist())
def test_a_load_that_changes_once_elsewhere_is_off_by_no_more(begin_s: float) -> None:
    at = cells(begin_s, 3.0, 0.03)._replace(length=0.5)
    true = LOW * 0.5 + (HIGH - LOW) * (0.5 - max(0.0, begin_s))
    assert abs(true - by_lines(at)) <= at.open_joules((0.0,), NO_SWING, MOST_W)[0] + 1e-9


def test_of_a_steady_load_nothing_is_open_but_what_it_did_before() -> None:
    at = cells(5.0, 1.0, 0.03)._replace(length=0.41)
    assert at.open_joules((0.0, 0.02), NO_SWING, MOST_W)[0] == pytest.approx(0.0, abs=1e-9)
    # A swing at each end: a line errs by the product of its two parts.
    swung = 100.0 * (0.07 * 0.03 + 0.08 * 0.02) / 0.1
    assert at.open_joules((0.0,), np.array([100.0]), MOST_W)[0] == pytest.approx(swung)


@pytest.mark.parametrize("until_s", [0.06, 0.09])
def test_behind_the_last_move_the_power_is_told_by_the_part_of_it_that_is_inside(until_s: float) -> None:
    """The counter has moved once since the load began, and its power was taken to go on: a part of the true one."""
    at = cells(0.0, 0.15, 0.04, until_s=until_s)
    shown = by_lines(at) + at.watts[0, -1] * (0.15 - at.t[-1])
    assert at.open_joules((0.0,), NO_SWING, MOST_W)[0] == pytest.approx(HIGH * 0.15 - shown)
    assert at.told_s(0.0) == pytest.approx(0.04)
    assert np.isinf(at.spanned_joules(0.0)[0])


def test_no_more_is_inside_than_the_times_between_moves_hold() -> None:
    at = cells(0.0, 0.05, 0.02)
    assert at.spanned_joules(0.0)[0] == pytest.approx(LOW * 0.15 + HIGH * 0.05)  # from 0.08 s before to 0.12 s
    assert at.longest_s() == pytest.approx(0.1)


@pytest.mark.parametrize("begin_s", [-0.02, 0.01, 0.03])  # of the load, which lasts until it is asked, or for 20 ms
@pytest.mark.parametrize("until_s", [0.02, 1.0])
@pytest.mark.parametrize("length_s", [0.03, 0.13])
def test_before_a_whole_time_between_moves_has_told_the_power_all_or_none_of_one_may_be_inside(
    begin_s: float, until_s: float, length_s: float
) -> None:
    """A sensor that was opened 40 ms before the region, and has moved once or twice since."""

    def used(t_s: Floats) -> Floats:
        return np.asarray(HIGH * np.clip(t_s - begin_s, 0.0, until_s), np.float64)

    moved = np.array([-0.04, 0.06, 0.16])[: 2 if length_s < 0.06 else 3]
    joules = used(moved)
    watts = np.diff(joules, prepend=0.0) / 0.1
    at = Cells(moved, joules[None], watts[None], length_s, goes_on=False, told_before=False)
    true = float(np.diff(used(np.array([0.0, length_s])))[0])
    opened = at.open_joules((0.0,), NO_SWING, MOST_W)[0]
    assert abs(true - by_lines(at)) <= opened + 1e-9
    assert opened <= at.spanned_joules(0.0)[0]  # nor is more open than there is


@pytest.mark.parametrize("most_w", [500.0, np.inf])
def test_from_the_row_with_which_counting_began_all_that_was_counted_is_inside(most_w: float) -> None:
    at = Cells(np.array([0.0, 0.1]), np.array([[0.0, 20.0]]), np.array([[200.0, 200.0]]), 0.1, False, told_before=False)
    assert at.open_joules((0.0,), NO_SWING, np.array([most_w]))[0] == pytest.approx(0.0)
