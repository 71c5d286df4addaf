"""The analog side: the paper's noise, exact energies, the same frame whoever asks, and the text of pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.clock import NS_PER_S
from pmtpy.emulators.load import parse_load
from pmtpy.emulators.powersensor3 import Board, BoardSpec, Pair, parse_pairs
from pmtpy.emulators.powersensor3._log import History
from pmtpy.emulators.powersensor3._sampler import Sampler
from pmtpy.emulators.powersensor3._spec import Record, factory_flash
from pmtpy.errors import TargetError

LOADS = ["constant:60", "square:low=30,high=90,hz=7", "sine:low=30,high=90,hz=3", "ramp:low=30,high=90,hz=11"]


def sampler(spec: BoardSpec, load: str, cycle_blocks: int = 0) -> Sampler:
    return Sampler(spec, parse_load(load), epoch_ns=0, boot_ns=0, cycle_blocks=cycle_blocks)


def records(spec: BoardSpec) -> list[Record]:
    flash = factory_flash(spec)
    return [Record.unpack(flash[i : i + 41]) for i in range(0, 328, 41)]


def watts(spec: BoardSpec, load: str, blocks: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Power of pair 0 of every frame, by the formula of the protocol page."""
    one = sampler(spec, load)
    levels = np.concatenate([one.levels(b) for b in range(blocks)])
    current, voltage, *_ = records(spec)
    amps = (3.3 * levels[:, 0] / 1023 - current.vref) / current.sensitivity
    volts = (3.3 * levels[:, 1] / 1023 - voltage.vref) / voltage.sensitivity
    return np.asarray(amps * volts, np.float64)


@pytest.mark.parametrize(("load", "stds"), [("constant:6", (0.718, 0.507, 0.358, 0.160, 0.113)),
                                            ("constant:12", (0.722, 0.511, 0.362, 0.163, 0.117))])  # fmt: skip
def test_averaging_reproduces_table_ii_of_the_paper(load: str, stds: tuple[float, ...]) -> None:
    power = watts(BoardSpec(parse_pairs("MLX10"), seed=3), load, 64)  # 131 072 frames, the paper's 128 k
    for block, expected in zip((1, 2, 4, 20, 40), stds, strict=True):
        means = power[: len(power) // block * block].reshape(-1, block).mean(1)
        # The standard deviation of n values is known to 1 / sqrt(2 n): 1.2 % for the 3276 longest blocks; the paper's
        # own last digits and its departure from white noise add 3 %.
        assert means.std() == pytest.approx(expected, rel=0.03 + 3 / np.sqrt(2 * len(means)))


def test_noise_is_white_and_leaves_the_mean_where_it_is() -> None:
    power = watts(BoardSpec(parse_pairs("MLX10")), "constant:60", 64)
    assert abs(np.corrcoef(power[:-1], power[1:])[0, 1]) < 4 / np.sqrt(len(power))
    # 0.72 W / sqrt(131 072) = 2 mW of scatter (three of it), and 0.01 % where the steps of the voltage are not dithered
    assert power.mean() == pytest.approx(60, abs=0.006 + 0.006)


def test_single_conversions_are_noisier_by_the_root_of_six() -> None:
    six = watts(BoardSpec(parse_pairs("MLX10")), "constant:6", 16).std()
    one = watts(BoardSpec(parse_pairs("MLX10"), variant="F407"), "constant:6", 16).std()
    assert one / six == pytest.approx(np.sqrt(6), rel=0.03)


def test_a_mean_of_noisy_scans_is_rounded_down_by_five_twelfths_of_a_level() -> None:
    spec = BoardSpec(parse_pairs("MLX10"))
    quiet = BoardSpec(parse_pairs("MLX10"), noise=False)
    assert sampler(quiet, "constant:60").levels(0)[:, 0].mean() == 693  # 693.16: every scan agrees
    levels = np.concatenate([sampler(spec, "constant:60").levels(b)[:, 0] for b in range(32)])
    true = (1.636 + 5 * 0.12) / 3.3 * 1023
    assert levels.mean() == pytest.approx(true - 5 / 12, abs=4 * levels.std() / np.sqrt(len(levels)))


@pytest.mark.parametrize("load", LOADS)
def test_the_frames_hold_the_energy_of_the_load_exactly(load: str) -> None:
    spec = BoardSpec(parse_pairs("MLX20:12:0.25,MLX20:12:0.75"), noise=False)
    one, world = sampler(spec, load), parse_load(load)
    k0, k1 = 12_345, 212_345  # 10 s
    joules = one.joules(k0, k1)
    assert joules.sum() == pytest.approx(float(world.joules(np.array(k1 * 50e-6)) - world.joules(np.array(k0 * 50e-6))))
    assert joules[:2] / joules.sum() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("load", LOADS)
def test_what_was_sent_agrees_with_the_load_within_noise(load: str) -> None:
    spec = BoardSpec(parse_pairs("2"))
    one = sampler(spec, load)
    # 10 s of 60 W: 600 J; noise 2 x 0.72 W x 10 s / sqrt(200 000) = 0.02 J; voltage steps 0.01 %
    assert one.joules_sent(0, 200_000, records(spec)).sum() == pytest.approx(
        one.joules(0, 200_000).sum(), abs=0.06 + 0.06
    )


def test_a_frame_has_the_same_bytes_whoever_asks_and_whenever() -> None:
    spec = BoardSpec()
    one, two = sampler(spec, LOADS[1]), sampler(spec, LOADS[1])
    whole = b"".join(one.chunks(0, 10_000))
    parts = [b"".join(two.chunks(k, k + 100)) for k in range(9_900, -1, -100)]
    assert whole == b"".join(reversed(parts))


def test_frames_that_repeat_have_timestamps_that_do_not_jump() -> None:
    for variant in ("F411", "F401", "F407"):
        one = sampler(BoardSpec(variant=variant), LOADS[1], cycle_blocks=2)
        data = np.frombuffer(b"".join(one.chunks(0, 3 * one.block)), np.uint8).reshape(-1, 18).astype(int)
        stamps = (data[:, 0] & 15) << 6 | data[:, 1] & 63
        period = float(one.spec.hardware.period_us)
        assert set(np.diff(stamps) % 1024) <= {int(period), int(period) + 1}
        assert np.array_equal(data[: one.block], data[2 * one.block :])


def test_energies_of_frames_that_repeat_are_those_of_the_cycle() -> None:
    spec = BoardSpec()
    one, plain = sampler(spec, LOADS[1], cycle_blocks=2), sampler(spec, LOADS[1])
    n = 2 * one.block
    assert one.joules(0, 5 * n + 7) == pytest.approx(5 * plain.joules(0, n) + plain.joules(0, 7))
    sent = one.joules_sent(0, 5 * n + 7, records(spec))
    assert sent == pytest.approx(5 * plain.joules_sent(0, n, records(spec)) + plain.joules_sent(0, 7, records(spec)))


@given(st.integers(0, 10**13), st.sampled_from(["F411", "F401", "F407"]), st.floats(-200, 200))
def test_the_number_of_frames_by_an_instant_agrees_with_their_ends(t_ns: int, variant: str, ppm: float) -> None:
    one = sampler(BoardSpec(variant=variant, drift_ppm=ppm), LOADS[0])
    n = one.frames_by(t_ns)
    assert one.end_ns(n) > t_ns
    assert n == 0 or one.end_ns(n - 1) <= t_ns


def test_a_fast_crystal_makes_more_frames() -> None:
    one = sampler(BoardSpec(drift_ppm=100), LOADS[0])
    assert one.frames_by(1000 * NS_PER_S) == 20_002_000


def test_the_truth_travels_as_json_and_counts_what_was_not_sent() -> None:
    spec, load = BoardSpec(noise=False), parse_load(LOADS[1])
    board = Board(spec, load, epoch_ns=0, start_ns=0, instant=True)
    board.feed(b"S", 0)
    board.advance(NS_PER_S)
    board.feed(b"MB", NS_PER_S)
    board.inject("stall", NS_PER_S, seconds=0.5)
    board.advance(2 * NS_PER_S)
    other = History(spec, load, 0)
    other.from_json(board.history.as_json())
    truth = other.truth(0, 2 * NS_PER_S)
    assert truth.frames == 40_000 - truth.missing
    assert truth.missing == 9_999
    assert truth.exact.sum() == pytest.approx(load.joules(np.array(2.0)))
    assert truth.exact.sum() - truth.sent_exact.sum() == pytest.approx(
        float(load.joules(np.array(1.49995)) - load.joules(np.array(1.0)))
    )
    assert [m.frame for m in other.marks] == [29_999]
    assert other.marks[0].t_ns == 30_000 * 50_000
    assert other.marks[0].place == 20_000


def test_pairs_are_read_from_text_and_share_what_is_left() -> None:
    assert parse_pairs("2") == (Pair("MLX10", 12, 0.5, "pair0"), Pair("MLX10", 12, 0.5, "pair1"))
    assert parse_pairs("MLX20:20:0.4:usb,off,-MLX50") == (
        Pair("MLX20", 20, 0.4, "usb"), Pair("", 0, 0, ""), Pair("MLX50", 12, 0.6, "pair2", inverted=True),
    )  # fmt: skip


@pytest.mark.parametrize("text", ["0", "5", "MLX11", "MLX10:x", "MLX10:12:0.5", "MLX10:-3", ""])
def test_pairs_that_cannot_be_are_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(TargetError, match="MODULE"):
        parse_pairs(text)


def test_pairs_survive_being_written_and_read() -> None:
    for text in ("1", "4", "-MLX10:3.3:0.125:a,off,MLX75"):
        pairs = parse_pairs(text)
        assert parse_pairs(",".join(map(str, pairs))) == pairs


def test_a_board_that_cannot_be_is_refused() -> None:
    with pytest.raises(TargetError, match="F411"):
        BoardSpec(variant="F103")
    with pytest.raises(TargetError, match="one to four"):
        BoardSpec(())


def test_a_pair_whose_stored_sensitivity_is_zero_has_no_energy() -> None:
    spec = BoardSpec(parse_pairs("2"))
    stored = records(spec)
    broken = [replace(stored[0], sensitivity=0.0), *stored[1:]]  # psconfig stores what it is told
    whole = sampler(spec, "constant:60").joules_sent(0, 100, stored)
    sent = sampler(spec, "constant:60").joules_sent(0, 100, broken)
    assert sent[0] == 0
    assert sent[1] == whole[1] > 0
