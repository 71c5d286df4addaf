"""The refresh of counters that nobody states: rows made of ages that are known tell it."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.uncertainty._moves import unstated_refresh_s
from pmtpy.core.rows import Floats


def rows(refresh_s: float, number: int, seed: int, step_watts: float = 0.0) -> tuple[Floats, Floats]:
    """Return instants and the energy of a register of 50 W, more from halfway on, with random ages."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.uniform(0.05, 0.15, number))
    shown = t - refresh_s * rng.random(number)
    return t, 50.0 * shown + step_watts * np.maximum(0.0, shown - t[number // 2])


@pytest.mark.parametrize("step_watts", [0.0, 40.0, -40.0])
@pytest.mark.parametrize("refresh_s", [0.01, 0.04])
def test_readings_off_the_line_of_their_neighbours_tell_the_refresh(refresh_s: float, step_watts: float) -> None:
    found = []
    for seed in range(20):
        t, joules = rows(refresh_s, 40, seed, step_watts)
        found.append(unstated_refresh_s(t, t[1:], (np.diff(joules) / np.diff(t))[None]))
    assert 0.4 * refresh_s < min(found)
    assert max(found) < 1.5 * refresh_s
    assert np.median(found) == pytest.approx(refresh_s, rel=0.35)


def test_two_rows_tell_only_that_it_moved_between_them() -> None:
    t, joules = rows(0.01, 2, 1)
    found = unstated_refresh_s(t, t[1:], (np.diff(joules) / np.diff(t))[None])
    assert found == pytest.approx(t[1] - t[0], rel=0.2)
    assert unstated_refresh_s(t[1:], t[1:], np.array([[50.0]])) == 0.0  # since when it moved is not kept


def test_rows_close_together_that_all_show_moves_are_those_of_a_fast_register() -> None:
    t: Floats = np.linspace(0.0, 0.099, 100)
    watts = np.random.default_rng(1).uniform(20.0, 200.0, (1, 99))  # the load tells nothing
    assert unstated_refresh_s(t, t[1:], watts) < 0.0015


def test_the_slowest_of_several_counters_counts() -> None:
    t, slow = rows(0.04, 40, 3)
    fast = rows(0.001, 40, 3)[1]
    watts = np.diff(np.array([fast, slow])) / np.diff(t)
    assert unstated_refresh_s(t, t[1:], watts) == unstated_refresh_s(t, t[1:], watts[1:])
