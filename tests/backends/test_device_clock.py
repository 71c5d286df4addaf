"""A device's stamps on the host's clock: near the truth, never in the future, however the two clocks drift apart."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends._device_clock import DRIFT, DeviceClock

CYCLE_NS, AGE_NS = 40_076_000, 24_046_000
EPOCH_NS = -7_000_000_000_000


@pytest.mark.parametrize("ppm", [-50, 0, 50])
def test_rows_stay_within_the_delay_of_their_arrival_for_hours(ppm: float) -> None:
    clock, rng = DeviceClock(), random.Random(1)
    for second in range(36_000):
        true_ns = second * 1_000_000_000
        delay_ns = round(rng.uniform(1e6, 21e6))
        stamp_ns = round(true_ns * (1 + ppm * 1e-6)) - EPOCH_NS
        placed = clock.place(stamp_ns, true_ns + delay_ns)
        # Never in the future. The edge rises by up to 0.15 ms a second over the true one until an arrival falls below:
        # that none of 60 does, with delays spread over 20 ms, has a chance of exp(-0.15 60^2 / 40), one in 10^6.
        assert placed <= true_ns + delay_ns
        if second > 10:
            assert -1e5 <= placed - (true_ns + 1e6) <= 60 * 0.15e6 + 1e6, second


def test_a_stamp_seen_before_its_own_time_steps_the_clock_back_at_once() -> None:
    clock = DeviceClock()
    assert clock.place(0, 800_000_000) == 800_000_000
    assert clock.place(1_000_000_000, 1_010_000_000) == 1_010_000_000
    assert clock.offset_ns == 10_000_000


def test_a_clock_that_began_anew_is_placed_anew() -> None:
    clock = DeviceClock()
    clock.place(5_000_000_000, 6_000_000_000)
    clock.forget()
    assert clock.place(10, 7_000_000_000) == 7_000_000_000


@given(phase=st.floats(0, 0.04), ppm=st.floats(-50, 50), poll_s=st.sampled_from([0.02, 0.011, 1.3]))
def test_stamps_shown_in_cycles_are_placed_near_the_truth_and_keep_their_durations(
    phase: float, ppm: float, poll_s: float
) -> None:
    clock = DeviceClock(age_ns=AGE_NS, cycle_ns=CYCLE_NS)
    last: tuple[int, int] | None = None
    for i in range(1, 400):
        now_ns = round(i * poll_s * 1e9)
        # The newest valid buffer holds samples of an instant on a lattice, at least AGE_NS old.
        n = (now_ns - AGE_NS - round(phase * 1e9)) // CYCLE_NS
        true_ns = n * CYCLE_NS + round(phase * 1e9)
        stamp_ns = round(true_ns * (1 + ppm * 1e-6)) - EPOCH_NS
        assert clock.ahead_ns(stamp_ns, now_ns) < 100_000_000
        if last is not None and stamp_ns == last[0]:
            continue
        placed = clock.place(stamp_ns, now_ns)
        assert abs(placed - true_ns) <= CYCLE_NS / 2 + 1000 + DRIFT * i * poll_s * 1e9 * 0.5
        if last is not None:
            duration = stamp_ns - last[0]
            assert abs((placed - last[1]) - duration) <= 1.001 * DRIFT * duration + 2
        last = stamp_ns, placed


def test_a_stamp_from_the_future_is_known_as_such() -> None:
    clock = DeviceClock(age_ns=AGE_NS, cycle_ns=CYCLE_NS)
    clock.place(1_000_000_000_000, 10_000_000_000)
    assert clock.ahead_ns(1_001_000_000_000, 10_100_000_000) > 800_000_000
    assert clock.ahead_ns(1_001_000_000_000, 11_000_000_000) <= 0
    clock.forget()
    assert clock.ahead_ns(1_001_000_000_000, 10_100_000_000) == 0
