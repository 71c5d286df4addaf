from __future__ import annotations

import numpy as np
import pytest

from pmtpy.core.rows import Floats
from pmtpy.live._trigger import Condition, Trigger, window

T: Floats = np.arange(10, dtype=np.float64)
RISE: Floats = np.array([1.0, 4.9, 5.1, 4.8, 5.2, 3.0, 5.3, 2.0, 2.0, 6.0])


def _all(condition: Condition, sizes: tuple[int, ...] = (10,)) -> list[float]:
    trigger, found, at = Trigger(condition), [], 0
    for size in sizes:
        hit = trigger.find(T[at : at + size], RISE[at : at + size], [])
        at += size
        found += [hit] if hit is not None else []
    return found


def test_a_level_is_crossed_only_from_beyond_the_hysteresis() -> None:
    assert _all(Condition(5.0, 1.0)) == [2.0]
    assert _all(Condition(5.0, 1.0), (1,) * 10) == [2.0, 6.0, 9.0]
    assert _all(Condition(5.0, 10.0), (1,) * 10) == []


def test_a_falling_edge_is_the_reverse() -> None:
    assert _all(Condition(3.0, 1.0, falling=True), (1,) * 10) == [5.0, 7.0]


def test_a_power_that_is_above_from_the_start_has_not_risen() -> None:
    assert Trigger(Condition(0.5, 0.1)).find(T, RISE, []) is None


def test_a_marker_is_found_by_a_part_of_its_label() -> None:
    marks = [(3.5, "init"), (4.5, "solve start")]
    assert Trigger(Condition(marker="solve")).find(T, RISE, marks) == 4.5
    assert Trigger(Condition(marker="none")).find(T, RISE, marks) is None


def test_the_window_begins_before_the_event() -> None:
    assert window(10.0, 0.25, 2.0) == pytest.approx((9.75, 11.75))
