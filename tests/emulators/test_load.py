from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.clock import ManualClock
from pmtpy.emulators.load import parse_load
from pmtpy.emulators.world import make_world, shared_world, work
from pmtpy.errors import TargetError

SPECS = [
    "constant:60",
    "75.5",
    "square:low=30,high=90,hz=2,duty=0.25",
    "square:low=30,high=90,hz=2,duty=0.25,hold=0.1,stay=0.4",
    "square:low=30,high=90,hz=2,duty=0.25,hold=9",
    "sine:low=10,high=50,hz=3",
    "ramp:low=0,high=100,hz=0.7",
    "steps:0=30,1.5=90,2=10",
    "random:low=20,high=80,hz=10,seconds=5,seed=3",
]


@pytest.mark.parametrize("spec", SPECS)
@given(a=st.floats(0, 20), length=st.floats(1e-3, 5))
def test_joules_are_the_integral_of_watts(spec: str, a: float, length: float) -> None:
    load = parse_load(spec)
    n = 20_000
    middles = a + (np.arange(n, dtype=np.float64) + 0.5) * (length / n)
    numeric = float(load.watts(middles).mean() * length)
    exact = float(load.joules(np.float64(a + length)) - load.joules(np.float64(a)))
    # The midpoint rule misplaces each edge by half a cell at most: 100 W x length / n per edge, up to 2 x 5 x 3 edges.
    assert exact == pytest.approx(numeric, abs=100 * length / n * 32 + 1e-9)


@pytest.mark.parametrize("spec", SPECS)
def test_joules_start_at_zero(spec: str) -> None:
    assert float(parse_load(spec).joules(np.float64(0.0))) == pytest.approx(0.0, abs=1e-12)


def test_a_square_wave_may_keep_part_of_its_power_for_a_while() -> None:
    load = parse_load("square:low=20,high=120,hz=1,duty=0.25,hold=0.5,stay=0.3")
    assert load.watts(np.array([0.1, 0.3, 0.7, 0.8, 1.1])).tolist() == [120, 50, 50, 20, 120]
    assert float(load.joules(np.float64(2.0))) == pytest.approx(2 * (0.25 * 120 + 0.5 * 50 + 0.25 * 20))


@pytest.mark.parametrize(
    "spec",
    [
        *("", "cube:1", "square:hz=fast", "square:speed=1", "square:hz=0", "square:duty=5", "square:hold=-1"),
        *("square:stay=nan", "constant:1e300", "steps:", "steps:nan=5", "csv:/none"),
        *("random:hz=0", "random:hz=-1", "random:seconds=0", "random:seconds=1e9,hz=1", "random:seed=-1"),
    ],
)
def test_a_bad_load_is_refused_with_what_was_wrong(spec: str) -> None:
    with pytest.raises(TargetError, match="load"):
        parse_load(spec)


def test_a_recording_becomes_a_load(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("time,marker,total_W\n100.0,,10\n101.0,go,30\n103.0,,20\n")
    load = parse_load(f"csv:{path}")
    assert load.watts(np.array([0.5, 1.5, 9.0])).tolist() == [10, 30, 20]
    assert float(load.joules(np.float64(3.0))) == 70.0


def test_virtual_sensors_of_one_process_share_one_world() -> None:
    clock = ManualClock()
    first = shared_world("constant:50", clock=clock)
    assert shared_world(None, clock=clock) is first
    with pytest.raises(TargetError, match="constant:50"):
        shared_world("constant:70", clock=clock)
    clock.advance(2.0)
    assert first.joules_between(first.epoch_ns, clock.now_ns()) == 100.0
    del first
    assert shared_world("constant:70", clock=clock).spec == "constant:70"


def test_worlds_on_different_clocks_are_different() -> None:
    assert make_world(clock=ManualClock()) is not make_world(clock=ManualClock())


@pytest.mark.parametrize("spec", ["constant:nan", "constant:inf", "steps:0=30,1=nan", "²"])
def test_a_load_of_what_is_no_number_is_refused(spec: str) -> None:
    with pytest.raises(TargetError, match="load"):
        parse_load(spec)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"seconds,watts\n0,x\n", "could not convert"), (b"\xc2(\n", "codec"), (b"a,b\n", "needs columns")],
)
def test_a_recorded_load_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "load.csv").write_bytes(content)
    with pytest.raises(TargetError, match=why):
        parse_load(f"csv:{tmp_path / 'load.csv'}")


def test_a_load_of_work_is_high_while_the_program_works() -> None:
    clock = ManualClock()
    with pytest.raises(TargetError, match="open one with load='work"), work(clock):
        pass
    world = shared_world("work:low=20,high=120", clock=clock)
    start_ns = clock.now_ns()
    clock.advance(1.0)
    with work(clock):
        clock.advance(0.5)
        with work(clock):  # of two at once the load is high until both have ended
            clock.advance(0.25)
        clock.advance(0.25)
    clock.advance(1.0)
    assert world.watts(start_ns + np.array([5, 15, 19, 25]) * 100_000_000).tolist() == [20, 120, 120, 20]
    assert world.joules_between(start_ns, clock.now_ns()) == pytest.approx(3.0 * 20 + 1.0 * 100)
