from __future__ import annotations

import numpy as np

from pmtpy.analysis.uncertainty.counted import counted
from pmtpy.core.channel import Channel, Quantity

NAN = np.nan
COUNTER = Channel("c", Quantity.ENERGY, domain="gpu", refresh_s=0.1)
POWER = Channel("p", Quantity.POWER, domain="rail")
T = np.array([0.0, 0.04, 0.08, 0.12, 0.3, 0.4])


def test_a_first_move_counts_as_the_energy_of_a_refresh_until_the_power_is_known() -> None:
    joules = np.array([[0.0, 0.0, 6.0, 6.0, 18.0, 24.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]])
    watts = np.array([[NAN, NAN, NAN, NAN, 60.0, 60.0], [NAN, 25.0, NAN, 25.0, 25.0, 25.0]])
    shown, moved = counted([COUNTER, POWER], T, watts, joules)
    assert moved is not None
    assert moved.tolist() == [[True, False, True, False, True, True], [True] * 6]
    np.testing.assert_array_equal(shown[0], [NAN, NAN, 60.0, 60.0, 60.0, 60.0])  # 6 J in 0.1 s, not in 0.08 s
    np.testing.assert_array_equal(shown[1], watts[1])  # a power that was not read stays unknown
    assert np.isnan(watts[0, 2])


def test_a_counter_that_began_anew_counts_from_there() -> None:
    joules = np.array([[0.0, 2.0, 4.0, 4.0, 13.0, 18.0]])
    watts = np.array([[50.0, 50.0, 50.0, NAN, NAN, NAN]])  # a restart at 0.12 s
    shown, _ = counted([COUNTER], T, watts, joules)
    np.testing.assert_allclose(shown[0], [50.0, 50.0, 50.0, NAN, 50.0, 50.0])  # 9 J in 0.18 s, 5 J in 0.1 s


def test_powers_alone_are_left_as_they_are() -> None:
    watts = np.array([[NAN, 25.0, NAN, 25.0, 25.0, 25.0]])
    shown, moved = counted([POWER], T, watts, np.zeros((1, 6)))
    assert shown is watts
    assert moved is None
