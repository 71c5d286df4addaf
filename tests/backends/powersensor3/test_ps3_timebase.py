"""Times and losses against boards whose clock and gaps are known exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.powersensor3.timebase import MAX_SLEW, Timebase, choose_wraps

INTERVALS = {"F411": Fraction(50), "F401": Fraction(400, 7), "F407": Fraction(88, 3)}
HOST_START_NS = 5_000_000_000_000
Ints = npt.NDArray[np.int64]


class World:
    """A board whose frames are numbered from 0 and reach the host in pieces of 8 ms, each a little late."""

    def __init__(self, interval_us: Fraction = Fraction(50), ppm: float = 0.0, seed: int = 1) -> None:
        self.interval_us = interval_us
        self.rate = 1 + ppm * 1e-6  # host ns per device ns
        self.rng = np.random.default_rng(seed)
        self.base = Timebase(float(interval_us), 0.0)
        self.t_ns: list[Ints] = []
        self.lost: list[Ints] = []
        self.sent: list[Ints] = []

    def host_ns(self, frames: Ints) -> Ints:
        t_ns: Ints = HOST_START_NS + np.rint(frames * float(self.interval_us) * 1000 * self.rate).astype(np.int64)
        return t_ns

    def deliver(self, frames: Ints, piece_ns: int = 8_000_000, late_ns: int = 1_000_000, hold_ns: int = 0) -> None:
        """Feed frames in one call, with arrivals delayed by up to ``late_ns`` beyond a constant 0.2 ms."""
        stamps = np.array([int(self.interval_us * int(k)) % 1024 for k in frames], np.uint16)
        at = self.host_ns(frames)
        edges = np.flatnonzero(np.diff(at // piece_ns)) + 1
        arrivals = [
            (int(rows), int(at[rows - 1]) + 200_000 + int(self.rng.integers(late_ns)) + hold_ns)
            for rows in [*edges, len(frames)]
        ]
        t_ns, lost = self.base.feed(stamps, arrivals)
        self.t_ns.append(t_ns)
        self.lost.append(np.zeros(len(frames), np.int64) if lost is None else lost)
        self.sent.append(frames)

    def check(self, *, error_ns: float) -> None:
        t_ns, lost, sent = (np.concatenate(x) for x in (self.t_ns, self.lost, self.sent))
        assert (np.diff(t_ns) > 0).all()
        assert (np.abs(t_ns - self.host_ns(sent)) < error_ns).all()
        assert lost.tolist() == [0, *(np.diff(sent) - 1).tolist()]


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("ppm", [0, 40, -40])
def test_times_follow_the_board_and_slew_to_the_host(name: str, ppm: float) -> None:
    world = World(INTERVALS[name], ppm)
    per_call = int(40_000 / INTERVALS[name])
    for i in range(250):  # 10 s in calls of 40 ms
        world.deliver(np.arange(i * per_call, (i + 1) * per_call))
    # 0.2 ms of delay that nobody can know, up to 1 ms more at the start, and what 40 ppm drift off before the slope
    # follows (largest error about 40e-6 * 4 s * 2 / e).
    world.check(error_ns=1_400_000)
    assert world.base.interval_us == pytest.approx(float(INTERVALS[name]), rel=1e-5)
    assert world.base.rate == pytest.approx(ppm * 1e-6, abs=15e-6)


@pytest.mark.parametrize("ppm", [0, 300])
def test_the_mapping_never_changes_an_interval_by_more_than_100_ppm(ppm: float) -> None:
    world = World(ppm=ppm)
    for i in range(100):
        world.deliver(np.arange(i * 800, (i + 1) * 800), late_ns=3_000_000)
    steps = np.diff(np.concatenate(world.t_ns))
    assert (np.abs(steps - 50_000) <= 50_000 * MAX_SLEW + 1).all()  # 1 ns of rounding


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("gap_frames", [1, 2, 19, 20, 21, 22, 40, 41, 60, 100, 200, 1000, 9999])
def test_a_gap_of_any_length_is_counted_and_bridged_exactly(name: str, gap_frames: int) -> None:
    world = World(INTERVALS[name])
    per_call = int(40_000 / INTERVALS[name])
    for i in range(50):
        world.deliver(np.arange(i * per_call, (i + 1) * per_call))
    begin = 50 * per_call + per_call // 3
    world.deliver(
        np.concatenate(
            [np.arange(50 * per_call, begin), np.arange(begin + gap_frames, begin + gap_frames + 2 * per_call // 3)]
        )
    )
    world.check(error_ns=1_400_000)


def test_a_gap_between_two_calls_is_counted_exactly() -> None:
    world = World()
    world.deliver(np.arange(2000))
    world.deliver(np.arange(2000 + 4321, 9000))
    world.check(error_ns=1_400_000)


def test_a_late_delivery_without_loss_is_no_gap() -> None:
    world = World()
    for i in range(50):
        world.deliver(np.arange(i * 800, (i + 1) * 800))
    world.deliver(np.arange(40_000, 60_000), hold_ns=5_000_000_000)
    for i in range(75, 100):
        world.deliver(np.arange(i * 800, (i + 1) * 800))
    world.check(error_ns=1_400_000)


def test_a_gap_that_leaves_no_trace_in_the_stamps_is_found_by_the_delay() -> None:
    world = World()
    for i in range(50):
        world.deliver(np.arange(i * 800, (i + 1) * 800))
    hidden = 512 * 2  # 51.2 ms, a whole number of turns and of intervals: the stamps go on as if nothing were missing
    for i in range(50, 125):
        world.deliver(np.arange(i * 800 + hidden, (i + 1) * 800 + hidden))
    assert sum(int(x.sum()) for x in world.lost) == hidden
    late = world.t_ns[-1] - world.host_ns(world.sent[-1])
    assert (np.abs(late) < 1_400_000).all()


def test_a_source_faster_than_its_clock_only_runs_ahead() -> None:
    base = Timebase(50.0, 0.5)
    frames = 0
    for i in range(100):
        stamps = ((np.arange(frames, frames + 5000) * 50) % 1024).astype(np.uint16)
        frames += 5000
        t_ns, lost = base.feed(stamps, [(5000, HOST_START_NS + i * 1_000_000)])
        assert lost is None
        assert (np.diff(t_ns) > 0).all()


def test_the_stamp_is_moved_to_the_middle_of_the_measurement() -> None:
    stamps = ((np.arange(100) * 50) % 1024).astype(np.uint16)
    end, _ = Timebase(50.0, 0.0).feed(stamps, [(100, HOST_START_NS)])
    middle, _ = Timebase(50.0, 0.5).feed(stamps, [(100, HOST_START_NS)])
    assert (end - middle).tolist() == [25_000] * 100


def test_a_single_first_frame_is_placed() -> None:
    t_ns, lost = Timebase(50.0, 0.0).feed(np.array([1023], np.uint16), [(1, HOST_START_NS)])
    assert t_ns.tolist() == [HOST_START_NS - 50_000]
    assert lost is None


@given(st.lists(st.lists(st.integers(0, 1023), min_size=1, max_size=50), min_size=1, max_size=10), st.data())
def test_any_stamps_give_increasing_times_and_no_negative_loss(calls: list[list[int]], data: st.DataObject) -> None:
    base = Timebase(50.0, 0.5)
    arrival, last = HOST_START_NS, 0
    for stamps in calls:
        arrival += data.draw(st.integers(0, 10**10))
        t_ns, lost = base.feed(np.array(stamps, np.uint16), [(len(stamps), arrival)])
        assert (np.diff(t_ns, prepend=last) > 0).all()
        assert lost is None or (lost >= 0).all()
        last = int(t_ns[-1])


@given(st.integers(1, 3000), st.sampled_from(sorted(INTERVALS)), st.floats(-400, 400))
def test_the_host_within_half_a_turn_and_the_lattice_give_the_exact_gap(
    frames: int, name: str, error_us: float
) -> None:
    begin = 777
    a, b = (int(INTERVALS[name] * k) for k in (begin, begin + frames))
    delta = (b - a) % 1024
    k = choose_wraps(delta, b - a + error_us, float(INTERVALS[name]))
    assert delta + 1024 * k == b - a


@given(st.integers(1, 20))
def test_without_a_host_clock_the_shortest_fitting_gap_is_taken(frames: int) -> None:
    assert choose_wraps(frames * 50 % 1024, math.nan, 50.0) == 0
