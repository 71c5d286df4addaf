"""Energies of counters at instants: truth is the energy of a load in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.moves import energies_at, moved
from pmtpy.core.rows import Floats, Layout

COUNTER = Channel("gpu", Quantity.ENERGY, domain="gpu/0", refresh_s=0.1)
SLOWER = Channel("node", Quantity.ENERGY, domain="host", refresh_s=0.25)
POWER = Channel("rail", Quantity.POWER, domain="external/rail")
POLLS_S = np.linspace(0.0, 3.99, 400)


def staircase(refresh_s: float, phase_s: float, watts: float) -> Floats:
    """What a counter of a constant power shows at the polls."""
    return np.asarray(watts * (np.floor((POLLS_S - phase_s) / refresh_s) * refresh_s + phase_s), np.float64)


def test_of_a_constant_power_the_energy_is_out_by_when_a_move_was_seen_and_not_by_a_step() -> None:
    layout = Layout((COUNTER, SLOWER, POWER))
    steps = [staircase(0.1, 0.03, 50.0), staircase(0.25, 0.17, 20.0), 10.0 * POLLS_S]
    joules = np.column_stack([sum(steps[i - 1] for i in layout.in_total), *steps])
    watts = np.ones_like(joules)
    for at in np.linspace(1.0, 3.0, 57):
        found = energies_at(layout, at, POLLS_S, watts, joules)
        # A move is seen up to a poll after it was made; rows would be out by up to 5 J and 5 J.
        assert found[1] == pytest.approx(50.0 * at, abs=50.0 * 0.011)
        assert found[2] == pytest.approx(20.0 * at, abs=20.0 * 0.011)
        assert found[3] == pytest.approx(10.0 * at)
        assert found[0] == pytest.approx(sum(found[i] for i in layout.in_total))


def test_behind_its_last_move_a_counter_has_used_what_it_shows() -> None:
    joules = np.tile(np.array([0.0, 5.0, 5.0, 10.0, 10.0, 10.0])[:, None], 2)
    t = np.arange(6) * 10**9  # times may be whole nanoseconds as well
    at = [float(energies_at(Layout((COUNTER,)), s * 1e9, t, np.ones_like(joules), joules)[1]) for s in (2.0, 3.0, 4.5)]
    assert at == [7.5, 10.0, 10.0]


def test_no_energy_is_laid_into_time_of_which_none_is_known() -> None:
    """It rested from 1 s on, was doubted from 2 s on, and went on at 4 s."""
    joules = np.tile(np.array([0.0, 5.0, 5.0, 5.0, 5.0, 10.0])[:, None], 2)
    watts = np.tile(np.array([5.0, 5.0, math.nan, math.nan, math.nan, 5.0])[:, None], 2)
    t = np.arange(6.0)
    assert [float(energies_at(Layout((COUNTER,)), s, t, watts, joules)[1]) for s in (3.0, 4.5)] == [5.0, 7.5]


def test_the_first_row_counts_as_a_move() -> None:
    assert moved(np.array([3.0, 3.0, 4.0, 4.0])).tolist() == [True, False, True, False]


@pytest.mark.parametrize("began_s", [0.004, 0.037, 0.093])
def test_what_the_first_move_shows_was_used_since_before_anybody_looked(began_s: float) -> None:
    """A counter of a constant power is first read between two of its moves; it has no power until its second one."""
    t = began_s + np.arange(0.0, 0.5, 0.01)
    counts = 80.0 * np.floor(t / 0.1 + 1e-9) * 0.1
    joules = np.column_stack([counts - counts[0]] * 2)
    second = int(np.flatnonzero(moved(joules[:, 1]))[2])
    watts = np.where(np.arange(len(t)) < second, math.nan, 80.0)[:, None] * np.ones(2)
    at = np.linspace(t[0], t[second], 23)
    energies = np.array([energies_at(Layout((COUNTER,)), s, t, watts, joules)[1] for s in at.tolist()])
    # Rows would tell up to 80 W * 0.1 s too much behind an instant before the first move; here a poll is left.
    assert energies[-1] - energies == pytest.approx(80.0 * (at[-1] - at), abs=80.0 * 0.011)
