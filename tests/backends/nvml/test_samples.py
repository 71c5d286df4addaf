"""The driver's buffer of samples: every one once, at its time, and none invented."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.emulators.nvml import make_gpu, open_virtual
from pmtpy.errors import BackendUnavailableError, SourceLostError
from pmtpy.testing import check_source

from .rig import LOAD, Rig


def test_samples_keep_the_contract_and_tell_the_truth_of_a_constant() -> None:
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load="constant:250", profile="ideal", samples=True),
        "constant:250",
        relative=1e-6,
    )


def test_a_reader_that_was_held_up_for_ten_seconds_loses_nothing() -> None:
    rig = Rig(load=LOAD)
    source = rig.open(samples=True)
    assert source.traits.deadline_s == pytest.approx(12.0)
    rig.clock.advance(10.0)
    block = source.read()
    assert len(block) == 100
    assert block.lost is not None
    assert not block.lost.any()
    assert set(np.diff(block.t_ns).tolist()) == {100_000_000}
    shown = rig.gpus[0].sensor.readings(rig.world.load, rig.world.seconds_since_epoch(block.t_ns + 1_000_000))
    assert block.raw[:, 0] == pytest.approx(shown * 1000, abs=1)


def test_that_nothing_is_known_of_the_window_is_said() -> None:
    (note,) = Rig().open(samples=True).identity.notes
    assert "over which time a sample of the driver is a mean is not documented" in note


def test_samples_that_the_ring_dropped_are_counted() -> None:
    rig = Rig(load=LOAD)
    source = rig.open(samples=True)
    rig.clock.advance(30.0)
    block = source.read()
    assert len(block) == 120
    assert block.lost is not None
    assert block.lost.tolist() == [180, *[0] * 119]


def test_nothing_new_is_no_row_and_long_silence_is_a_lost_device() -> None:
    rig = Rig()
    source = rig.open(samples=True)
    rig.gpus[0].frozen_ns = rig.clock.now_ns()
    assert rig.rows(source, 5.0, step_s=0.5) == []
    with pytest.raises(SourceLostError):
        rig.rows(source, 6.0, step_s=0.5)


def test_an_impossible_sample_is_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(load="constant:200")
    source = rig.open(samples=True)
    read = rig.driver._samples

    def broken(*arguments: object) -> int:
        code = read(*arguments)  # type: ignore[arg-type]
        if arguments[5] is not None:
            arguments[5][1].sampleValue.uiVal = 2**32 - 1  # type: ignore[index]
        return code

    rig.driver._device["nvmlDeviceGetSamples"] = broken
    rig.clock.advance(0.55)
    block = source.read()
    assert block.raw[:, 0] == pytest.approx([200_000] * 4, rel=0.01)
    assert block.lost is not None
    assert block.lost.tolist() == [0, 1, 0, 0]


def test_stamps_that_begin_anew_are_a_restart() -> None:
    rig = Rig()
    source = rig.open(samples=True)
    rig.rows(source, 1.0)
    stamp = rig.driver._boot_us
    rig.driver._boot_us = lambda t_s: stamp(t_s) - 6_000_000_000  # type: ignore[method-assign]
    assert [b.fresh for b in rig.rows(source, 1.0, step_s=0.2)] == [True, False, False, False]


def test_a_board_without_a_buffer_is_told_so() -> None:
    with pytest.raises(BackendUnavailableError, match="no buffer of power samples"):
        Rig(make_gpu("k40m")).open(samples=True)


def _showing(rig: Rig, milliwatts: list[int]) -> None:
    """Let every sample show the number in the list, where there is one."""
    read = rig.driver._samples

    def shown(*arguments: object) -> int:
        code = read(*arguments)  # type: ignore[arg-type]
        count, samples = arguments[4:6]
        for i in range(count._obj.value if samples is not None and milliwatts else 0):  # type: ignore[attr-defined]
            samples[i].sampleValue.uiVal = milliwatts[0]  # type: ignore[index]
        return code

    rig.driver._device["nvmlDeviceGetSamples"] = shown


def test_fetches_of_which_no_sample_is_possible_leave_a_gap_before_the_next_row() -> None:
    rig = Rig(load="constant:200")
    source = rig.open(samples=True)
    milliwatts: list[int] = []
    _showing(rig, milliwatts)
    rig.rows(source, 1.0, step_s=0.5)
    milliwatts.append(2**32 - 1)
    assert rig.rows(source, 1.0, step_s=0.5) == []
    milliwatts.clear()
    (block,) = rig.rows(source, 0.5, step_s=0.5)
    assert block.lost is not None
    assert block.lost.tolist() == [10, 0, 0, 0, 0]  # a second of 100 ms each


def test_a_gpu_all_of_whose_samples_are_zero_sleeps_and_is_not_lost() -> None:
    rig = Rig(load="constant:200")
    source = rig.open(samples=True)
    milliwatts: list[int] = []
    _showing(rig, milliwatts)
    rig.rows(source, 1.0, step_s=0.5)
    milliwatts.append(0)
    assert rig.rows(source, 20.0, step_s=0.5) == []
    assert "asleep" in source.last_failure
    assert len(source.read()) == 0  # nothing new, which is no silence of 20 s
    milliwatts.clear()
    (block,) = rig.rows(source, 0.5, step_s=0.5)
    assert block.fresh
    assert block.lost is not None
    assert block.lost[0] == 200
