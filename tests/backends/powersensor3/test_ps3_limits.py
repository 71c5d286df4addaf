"""What a board cannot measure does not pass as measured: converters at their end, values that no module can have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.backends._serial.journal import Journal
from pmtpy.backends.powersensor3._channels import Sampling, pair_channels
from pmtpy.backends.powersensor3.config import SensorRecord
from pmtpy.backends.powersensor3.limits import Ends, implausible, range_of
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.powersensor3 import open_virtual
from pmtpy.errors import BackendUnavailableError

CURRENT = SensorRecord("MLX10", "p", 1.65, 0.12, True)
VOLTAGE = SensorRecord("voltage", "p", 0.0, 0.091, True)
INTERVAL_S = 50e-6


def ends() -> Ends:
    return Ends([("pair0.current", range_of(0, CURRENT)), ("pair0.voltage", range_of(1, VOLTAGE))])


@pytest.mark.parametrize(
    ("levels", "unknown"),
    [
        ((512, 339), (False, False)),
        ((1023, 339), (True, False)),
        ((0, 339), (True, False)),
        ((512, 1023), (False, True)),
        ((512, 0), (False, False)),  # a supply that is off reads its own zero
        ((1023, 1023), (True, True)),
    ],
)
def test_a_level_at_an_end_of_the_converter_is_not_known(levels: tuple[int, int], unknown: tuple[bool, bool]) -> None:
    rows = np.array([(512, 339), levels, (512, 339)], np.uint16)
    raw = ends().mask(rows, np.arange(3) * 50_000, INTERVAL_S, Journal())
    assert np.isnan(raw.astype(float)).tolist() == [[False, False], list(unknown), [False, False]]


def test_a_current_beyond_the_range_of_its_module_is_not_known_though_the_converter_goes_on() -> None:
    # Its zero at 0.9 V, a module of 120 mV/A could show 20 A, but ends at half its supply: 13.75 A.
    low_zero = SensorRecord("MLX10", "p", 0.9, 0.12, True)
    found = Ends([("pair0.current", range_of(0, low_zero)), ("pair0.voltage", range_of(1, VOLTAGE))])

    def level(amperes: float) -> int:
        return round((0.9 + 0.12 * amperes) * 1023 / 3.3)

    rows = np.array([(level(a), 339) for a in (5.0, 13.5, 14.0, 18.0)], np.uint16)
    raw = found.mask(rows, np.arange(4) * 50_000, INTERVAL_S, Journal())
    assert np.isnan(raw[:, 0].astype(float)).tolist() == [False, False, True, True]


def test_what_is_at_its_end_is_named_with_pair_side_time_and_a_lower_bound() -> None:
    journal, found = Journal(), ends()
    rows = np.array([(1023, 339)] * 2000 + [(512, 339)] * 2000, np.uint16)
    t_ns = np.arange(4000) * 50_000
    found.mask(rows, t_ns, INTERVAL_S, journal)
    (text,) = found.sentences(journal.between(0, 200_000_000))
    # 13.75 A at 12.0 V for 0.1 s.
    assert text.startswith("pair0.current: at the upper end of its range (level 1022, 13.7 A) for 0.1 s")
    assert "at least 16.5" in text
    (half,) = found.sentences(journal.between(50_000_000, 200_000_000))
    assert "for 0.05 s" in half
    assert found.sentences(journal.between(110_000_000, 200_000_000)) == []


def test_beyond_what_a_module_is_rated_for_is_measured_and_said() -> None:
    journal, found = Journal(), ends()
    rows = np.full((100, 2), (512 + round(12 * 0.12 * 310), 339), np.uint16)
    assert found.mask(rows, np.arange(100) * 50_000, INTERVAL_S, journal) is rows
    (text,) = found.sentences(journal.between(-50_000, 5_000_000))
    assert text == ("pair0.current: beyond the 10 A of its module for 0.005 s; how accurate it is there is not stated")


def test_a_load_beyond_the_board_is_not_reported_as_less() -> None:
    clock = ManualClock()
    source = open_virtual(clock=clock, load="constant:360", pairs="MLX10:12:0.5:a,MLX50:12:0.5:b", noise=False)
    begin_ns = clock.now_ns()
    clock.advance(1.0)
    block = source.read()
    raw = np.asarray(block.raw, np.float64)
    # 180 W are 15 A: beyond the first module, and nothing for the second.
    assert np.isnan(raw[:, 0]).all()
    assert np.isfinite(raw[:, 1:]).all()
    (warning,) = source.remarks(begin_ns, clock.now_ns()).warnings
    assert warning.startswith("pair0.current: at the upper end")
    least = float(warning.split("at least ")[1].split()[0])
    assert 160 < least < 180
    source.close()


@pytest.mark.parametrize(
    ("sensor", "record", "says"),
    [
        (0, SensorRecord("MLX10", "p", 1.65, 1e-30, True), "0.06 to 0.24 V/A"),
        (0, SensorRecord("MLX10", "p", 1.65, 120.0, True), "0.06 to 0.24 V/A"),
        (0, SensorRecord("own", "p", 1.65, 1e-30, True), "0.001 to 0.8 V/A"),
        (0, SensorRecord("MLX20", "p", 7e20, 0.0625, True), "vref"),
        (1, SensorRecord("x", "p", 0.0, 3e19, True), "0.003 to 2"),
        (0, SensorRecord("MLX10", "p", 1.65, math.nan, True), "not plausible"),
        (0, CURRENT, ""),
        (0, SensorRecord("MLX10", "p", 1.622, -0.131, True), ""),
        (0, SensorRecord("own", "p", 1.65, 0.3, True), ""),
        (1, VOLTAGE, ""),
        (1, SensorRecord("voltage", "p", 0.0, 1.0, True), ""),
    ],
)
def test_what_no_module_can_have_stored_is_told_with_the_range(sensor: int, record: SensorRecord, says: str) -> None:
    found = implausible(sensor, record)
    assert says in found
    assert bool(says) == bool(found)


def test_random_memory_is_not_measured_unless_that_is_asked_for() -> None:
    rng = np.random.default_rng(4)
    sampling = Sampling(50e-6, 6)
    measured = 0
    for _ in range(200):
        with np.errstate(invalid="ignore"):  # some of them are no numbers
            vrefs, sensitivities = (np.frombuffer(rng.bytes(32), "<f4").astype(float).tolist() for _ in range(2))
        records = [SensorRecord("MLX10", "p", v, s, True) for v, s in zip(vrefs, sensitivities, strict=True)]
        channels, notes = pair_channels(records, "b", sampling)
        measured += len(channels)
        assert len(notes) == 4 - len(channels) // 3
    assert measured == 0  # 2 of 256 exponents are plausible for a zero, 2 for a sensitivity, at both sensors of a pair
    strange = [SensorRecord("MLX10", "p", 1.65, 1e-30, True), VOLTAGE, *[SensorRecord("", "", 0, 1, False)] * 6]
    assert len(pair_channels(strange, "b", sampling, plausible=False)[0]) == 3


def test_a_board_with_erased_memory_says_so_once_and_how_to_restore_it() -> None:
    with pytest.raises(BackendUnavailableError, match=r"no pair of .* can be measured: its memory is erased") as caught:
        open_virtual(clock=ManualClock(), load="constant:60", stored="erased")
    assert "--import FILE" in caught.value.remedy
