"""``powersensor3:virtual``: the real backend on the virtual board, on a clock that a test moves and on the host's."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from pmtpy.core.clock import HostClock, ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Layout
from pmtpy.emulators.powersensor3 import Board, BoardSource, Truth, VirtualBoard, open_virtual
from pmtpy.errors import TargetError
from pmtpy.sensor.sensor import Sensor
from pmtpy.testing import check_lost, check_source

LOADS = ["constant:60", "square:low=30,high=90,hz=2", "sine:low=30,high=90,hz=3", "ramp:low=30,high=90,hz=5"]


@pytest.mark.parametrize("load", LOADS)
def test_it_conforms_and_tells_the_truth(load: str) -> None:
    # Of 1200 J in 20 s: noise 0.72 W x 20 s / sqrt(400 000) = 0.02 J per pair; voltage steps not dithered 0.01 %.
    check_source(lambda clock: open_virtual("virtual", clock=clock, load=load), load, relative=2e-4)


def measured(source: BoardSource, clock: ManualClock, seconds: float) -> tuple[dict[str, float], Truth]:
    """Energies that the core makes of the source, by name, and the truth between the same two rows."""
    layout = Layout(source.channels)
    integrator = Integrator(layout)
    rows = []
    for _ in range(round(seconds / 0.02)):
        clock.advance(0.02)
        got = integrator.advance(source.read_row())
        assert got is not None
        rows.append((int(np.max(got.t_ns)), np.atleast_2d(got.joules)[-1].copy()))
    assert isinstance(source.board, Board)
    (a_ns, first), (b_ns, last) = rows[0], rows[-1]
    return dict(zip(layout.names, last - first, strict=True)), source.board.history.truth(a_ns, b_ns)


@pytest.mark.parametrize("variant", ["F411", "F401", "F407"])
@pytest.mark.parametrize("drift_ppm", [-80.0, 0.0, 80.0])
def test_every_variant_and_a_drifting_crystal_give_the_energy_of_the_load(variant: str, drift_ppm: float) -> None:
    clock = ManualClock()
    source = open_virtual(clock=clock, load=LOADS[1], variant=variant, drift_ppm=drift_ppm, pairs="4")
    joules, truth = measured(source, clock, 10.0)
    # 600 J: the times of the two rows are off by up to 0.25 ms while the crystal is being learned (90 W: 0.045 J), the
    # board's second is 80 ppm short (0.048 J), noise of four single-conversion pairs 4 x 1.8 W x 10 s / sqrt(340 000).
    assert joules["total"] == pytest.approx(truth.exact.sum(), abs=0.045 + 0.048 + 3 * 0.062)
    source.close()


def test_joules_equal_those_of_the_frames_sent_per_pair() -> None:
    clock = ManualClock()
    source = open_virtual(clock=clock, load=LOADS[1], pairs="MLX10:12:0.3:slot,off,MLX20:12:0.7:cable")
    joules, truth = measured(source, clock, 10.0)
    assert truth.missing == 0
    # Times are half a frame and the guard of one frame early: at either end 90 W x 75 us, 7 mJ of 600 J.
    for name, true in (("total", truth.sent.sum()), ("pair0", truth.sent[0]), ("pair2", truth.sent[2])):
        assert joules[name] == pytest.approx(true, abs=0.014)
    source.close()


def test_a_board_that_is_unplugged_is_reported_for_good() -> None:
    clock = ManualClock()
    source = open_virtual(clock=clock, load=LOADS[0])
    clock.advance(0.1)
    assert len(source.read()) > 1000
    assert isinstance(source.board, Board)
    source.board.unplug()
    check_lost(source, clock)
    source.close()


@pytest.mark.parametrize("stored", ["tails", "half", "uncalibrated", "no-nul"])
def test_a_damaged_configuration_that_can_be_measured_with_opens(stored: str) -> None:
    source = open_virtual(clock=ManualClock(), load=LOADS[0], stored=stored)
    assert source.identity.virtual
    source.close()


@pytest.mark.parametrize("firmware", ["1.2.0", "1.3.0", "1.4.2", "2.7.0"])
def test_old_and_future_firmware_opens(firmware: str) -> None:
    source = open_virtual(clock=ManualClock(), load=LOADS[0], firmware=firmware)
    assert firmware in source.identity.version
    source.close()


def test_on_the_host_clock_the_board_is_behind_a_real_port_and_marks_lie_on_their_frames() -> None:
    clock = HostClock()
    source = open_virtual(clock=clock, load=LOADS[1])
    assert isinstance(source.board, VirtualBoard)
    with Sensor(source, "powersensor3:virtual", clock) as sensor:
        a = sensor.read()
        assert source.mark("here")
        deadline = time.monotonic() + 240
        seen: list[int] = []
        states = [a]
        while not seen or states[-1].t_ns - a.t_ns < 500_000_000:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            states.append(sensor.read())
            seen = [mark.t_ns for mark in source.board.marks]
        b = states[-1]
        assert all(x.joules[0] <= y.joules[0] for x, y in pairwise(states))
        truth = source.board.truth(a.t_ns, b.t_ns)
        # The host maps the board's time to its own to a fraction of a millisecond at either end: 90 W x 2 ms.
        assert b.joules[0] - a.joules[0] == pytest.approx(truth.exact.sum(), abs=0.18 + 0.02)
        assert truth.missing == 0
        assert a.t_ns < seen[0] < b.t_ns


def test_faults_can_be_asked_for_at_the_opening() -> None:
    clock = ManualClock()
    source = open_virtual(clock=clock, load=LOADS[0], fault="lose:rate=1e-4")
    for _ in range(50):
        clock.advance(0.02)
        source.read()
    assert isinstance(source.board, Board)
    assert source.board.wire.lost_bytes > 10
    source.close()


@pytest.mark.parametrize("wrong", [{"device": "ttyX"}, {"stored": "burnt"}, {"pairs": "9"}, {"variant": "F1"}])
def test_options_that_name_nothing_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(TargetError):
        open_virtual(clock=ManualClock(), **wrong)  # type: ignore[arg-type]
