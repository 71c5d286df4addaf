"""The board answers every command as the firmware does, byte by byte. Expected bytes are from the protocol page."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.emulators.powersensor3 import BoardSpec, MemoryTransport, Stored, parse_pairs
from pmtpy.errors import SourceLostError, TargetError

from .conftest import Bench, frames

ONE = parse_pairs("MLX10")
RECORD = struct.Struct("<16s16sff?")


def quiet(**options: object) -> BoardSpec:
    return BoardSpec(ONE, noise=False, **options)  # type: ignore[arg-type]


def read_configuration(bench: Bench, size: int = 41) -> bytes:
    got = bench.ask(b"R")
    for sensor in range(8):
        assert len(got) == (sensor + 1) * size
        got += bench.ask(b"s")
    assert got[-1:] == b"D"
    return got[:-1]


def test_the_version_line_ends_in_cr_lf(bench: Bench) -> None:
    assert bench.ask(b"V") == b"F411-1.6.1\r\n"


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (BoardSpec(variant="F401"), b"F401-1.6.1\r\n"),
        (BoardSpec(version="1.4.2"), b"Firmware version: F411-1.4.2\r\n"),
        (BoardSpec(demo=True), b"F411-1.6.1-DEMO\r\n"),
        (BoardSpec(version="2.0.0-rc"), b"F411-2.0.0-rc\r\n"),
    ],
)
def test_each_version_says_who_it_is(spec: BoardSpec, line: bytes) -> None:
    assert Bench(spec, "constant:60").ask(b"V") == line


def test_the_configuration_is_eight_records_of_41_bytes_each_asked_for_by_a_byte_and_a_d(bench: Bench) -> None:
    data = read_configuration(bench)
    assert len(data) == 328
    kind, name, vref, sensitivity, in_use = RECORD.unpack_from(data)
    assert (kind.rstrip(b"\0"), name.rstrip(b"\0"), in_use) == (b"MLX10", b"pair0", True)
    assert (vref, sensitivity) == (pytest.approx(1.636), pytest.approx(0.12))
    assert RECORD.unpack_from(data, 41)[3] == pytest.approx(0.091)
    assert not any(RECORD.unpack_from(data, i * 41)[4] for i in range(2, 8))


def test_a_host_that_breaks_off_the_configuration_finds_the_board_rebooted(bench: Bench) -> None:
    bench.send(b"Rss")
    assert len(bench.after(1.9)) == 3 * 41
    with pytest.raises(SourceLostError):
        bench.after(0.2)
    assert len(bench.board.history.boots) == 1  # gone, not yet back
    bench.clock.advance(bench.board.spec.boot_s)
    bench.board.advance(bench.clock.now_ns())
    assert len(bench.board.history.boots) == 2
    with pytest.raises(SourceLostError):  # the line that was open is another one
        bench.line.receive()


def test_firmware_before_1_3_4_waits_for_ever_in_the_configuration() -> None:
    bench = Bench(quiet(version="1.3.3"), "constant:60")
    bench.ask(b"R")
    assert bench.after(60) == b""
    assert len(bench.ask(b"s")) == 41


def test_a_written_configuration_is_acknowledged_stored_and_read_back(bench: Bench) -> None:
    new = [RECORD.pack(b"T%d" % i, b"pair", 1.0 + i, -0.5, True) for i in range(8)]
    assert bench.ask(b"W") == b""
    for record in new:
        assert bench.ask(record[:40]) == b""  # the whole record has to be there
        assert bench.ask(record[40:]) == b"S"
    assert bench.after(bench.board.spec.flash_s + 0.001) == b"D"
    assert read_configuration(bench) == b"".join(new)
    bench.board.inject("reset", bench.clock.now_ns())
    bench.clock.advance(2)
    bench.board.advance(bench.clock.now_ns())
    assert bytes(bench.board.firmware.ram) == b"".join(new)


def test_a_configuration_that_is_broken_off_never_reaches_the_flash(bench: Bench) -> None:
    before = bench.board.flash
    bench.ask(b"W" + bytes(41))
    bench.clock.advance(5)
    bench.board.advance(bench.clock.now_ns())
    bench.board.advance(bench.clock.now_ns() + 1)
    assert bench.board.flash == before
    assert len(bench.board.history.boots) == 2


def test_firmware_1_2_has_records_of_25_bytes() -> None:
    bench = Bench(quiet(version="1.2.0"), "constant:60")
    data = read_configuration(bench, 25)
    kind, vref, _, in_use = struct.unpack_from("<16sff?", data)
    assert (kind.rstrip(b"\0"), vref, in_use) == (b"MLX10", pytest.approx(1.636), True)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (Stored.NO_NUL, lambda d: b"\0" not in d[:32] and struct.unpack_from("<f", d, 36)[0] == pytest.approx(0.12)),
        (Stored.ERASED, lambda d: d == b"\xff" * 328),
        (Stored.NAN, lambda d: struct.unpack_from("<f", d, 36)[0] != struct.unpack_from("<f", d, 36)[0]),
        (Stored.TAILS, lambda d: d[:16] == b"MLX10\0" + b"\xa5" * 10),
        (Stored.HALF, lambda d: (d[40], d[81]) == (1, 0)),
        (Stored.UNCALIBRATED, lambda d: struct.unpack_from("<f", d, 32)[0] == pytest.approx(1.65)),
    ],
)
def test_damaged_flash_is_sent_as_it_is(stored: Stored, expected: object) -> None:
    assert callable(expected)
    assert expected(read_configuration(Bench(quiet(stored=stored), "constant:60")))


def test_streaming_sends_18_bytes_every_50_us_with_timestamps_that_wrap_at_1024(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    got = frames(bench.after(0.1))
    assert len(got) == 2000
    steps = [(b[0].value - a[0].value) % 1024 for a, b in itertools.pairwise(got)]
    assert set(steps) == {50}


@pytest.mark.parametrize(("variant", "count", "steps"), [("F401", 17500, {57, 58}), ("F407", 34090, {29, 30})])
def test_other_variants_have_their_own_rate(variant: str, count: int, steps: set[int]) -> None:
    bench = Bench(quiet(variant=variant), "constant:60")
    bench.ask(b"S", 0.01)
    got = frames(bench.after(1.0))
    assert abs(len(got) - count) <= 1
    assert {(b[0].value - a[0].value) % 1024 for a, b in itertools.pairwise(got)} == steps


def test_without_noise_the_levels_are_those_of_the_formula(bench: Bench) -> None:
    # 60 W at 12 V are 5 A: 1.636 V + 5 A x 0.12 V/A = 2.236 V, level 693.16; 12 V x 0.091 is level 338.52.
    bench.ask(b"S", 0.01)
    assert {(f[1].value, f[2].value) for f in frames(bench.after(0.01))} == {(693, 339)}


def test_a_module_built_in_backwards_reads_the_same_current_with_the_other_sign() -> None:
    bench = Bench(BoardSpec(parse_pairs("-MLX10"), noise=False), "constant:60")
    assert RECORD.unpack_from(bench.board.flash)[3] == pytest.approx(-0.12)
    bench.ask(b"S", 0.01)
    assert frames(bench.after(0.001))[0][1].value == round((1.636 - 0.6) / 3.3 * 1023)


def test_a_silent_stop_sends_one_more_frame_and_nothing_else(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    assert len(frames(bench.ask(b"T", 0.1))) == 1
    assert bench.after(1) == b""


def test_a_stop_sends_its_words_twice_after_100_ms_and_then_one_more_frame(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    last = frames(bench.after(0.01))[-1]
    got = bench.ask(b"X", 0.05)
    assert got == b""
    got = bench.after(0.1)
    assert got[:4] == b"\xff\x3f\xff\x3f"
    (frame,) = frames(got[4:])
    # stopped 50 us after the last frame, then 3 ms for the display and 100 ms of delay: 103.05 ms
    assert (frame[0].value - last[0].value) % 1024 == 103_050 % 1024
    assert bench.after(1) == b""


def test_a_stop_while_not_streaming_sends_only_its_words(bench: Bench) -> None:
    assert bench.ask(b"X", 0.2) == b"\xff\x3f\xff\x3f"


def test_starting_twice_only_clears_the_counter(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.1)
    assert len(frames(bench.ask(b"S", 0.1))) == 2000


def test_the_conversion_counter_is_eight_per_frame_since_the_start(bench: Bench) -> None:
    bench.ask(b"S", 0.003)  # the start itself takes 3 ms
    bench.after(0.05)
    bench.send(b"Q")
    got = bench.after(0.0001)
    at = len(got) % 18
    assert at == 4
    assert int.from_bytes(got[:4], "little") == 8 * 1000


def test_one_frame_can_be_asked_for_while_not_streaming(bench: Bench) -> None:
    assert len(frames(bench.ask(b"I", 0.01))) == 1
    bench.ask(b"S", 0.01)
    assert len(frames(bench.ask(b"I", 0.01))) == 200
    bench.ask(b"T", 0.2)
    assert bench.after(0.1) == b""


def test_markers_sit_on_the_frames_sent_next_one_each(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    before = len(bench.after(0.01)) // 18
    assert before == 200
    got = frames(bench.ask(b"MMM", 0.01))
    assert [f[1].marker for f in got] == [1, 1, 1] + [0] * 197
    assert [m.place for m in bench.board.history.marks] == [bench.board.history.frames - 200 + i for i in range(3)]


def test_a_marker_before_the_start_waits_for_the_first_frame(bench: Bench) -> None:
    assert bench.ask(b"M", 1.0) == b""
    assert [f[1].marker for f in frames(bench.ask(b"S", 0.004))][:2] == [1, 0]


def test_before_1_5_several_quick_markers_are_one() -> None:
    bench = Bench(quiet(version="1.4.0"), "constant:60")
    bench.ask(b"S", 0.01)
    assert sum(f[1].marker for f in frames(bench.ask(b"MMM", 0.01))) == 1


def test_a_stop_with_a_marker_pending_sends_the_marked_frame_first(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    got = bench.ask(b"MMT", 0.1)
    assert [f[1].marker for f in frames(got)] == [1, 1, 0]


@pytest.mark.parametrize("stop", [b"T", b"X"])
def test_a_stop_with_a_marker_pending_hangs_the_real_firmware(stop: bytes) -> None:
    bench = Bench(quiet(hang_on_marker=True), "constant:60")
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    assert bench.ask(b"M" + stop, 10) == b""
    assert bench.ask(b"V", 10) == b""
    bench.board.unplug()
    bench.board.plug_in(bench.clock.now_ns())
    bench.board.advance(bench.clock.now_ns() + 1_000_000_000)
    assert bench.board.attached


def test_blinking_stops_the_stream_for_half_a_second_and_the_frames_are_gone(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    got = frames(bench.ask(b"B", 1.0))
    assert len(got) == 10_001  # the one that was waiting in its buffer, and those of the other half second
    assert bench.board.history.truth(0, bench.clock.now_ns()).missing == 9_999


def test_unknown_bytes_are_ignored(bench: Bench) -> None:
    assert bench.ask(b"\x00\xffDLz?", 1.0) == b""
    assert bench.ask(b"V") == b"F411-1.6.1\r\n"


def test_up_to_1_1_a_d_toggles_the_display() -> None:
    assert Bench(quiet(version="1.1.0"), "constant:60").ask(b"DD") == b"lL"


def test_a_reset_takes_the_board_off_the_bus_and_clears_its_clock(bench: Bench) -> None:
    bench.send(b"Z")
    with pytest.raises(SourceLostError):
        bench.after(0.001)
    bench.clock.advance(1)
    bench.board.advance(bench.clock.now_ns())
    assert bench.board.attached


def test_firmware_before_1_4_knows_no_reset() -> None:
    assert Bench(quiet(version="1.3.4"), "constant:60").ask(b"ZV") == b"Firmware version: F411-1.3.4\r\n"


def test_the_bootloader_stays_away_until_the_board_is_plugged_in_again(bench: Bench) -> None:
    bench.send(b"Y")
    with pytest.raises(SourceLostError):
        bench.after(0.001)
    bench.board.advance(bench.clock.now_ns() + 10**12)
    assert not bench.board.attached
    bench.board.plug_in(bench.clock.now_ns())
    bench.board.advance(bench.clock.now_ns())
    assert bench.board.attached


def test_a_board_left_streaming_streams_at_once() -> None:
    assert len(frames(Bench(quiet(streaming=True), "constant:60").after(0.1))) == 2000


def test_sensor_7_at_full_scale_sends_the_bytes_of_the_stop_word() -> None:
    bench = Bench(quiet(open_level=1023), "constant:60")
    bench.ask(b"S", 0.01)
    got = bench.after(0.01)
    assert all(got[i + 16 : i + 18] == b"\xff\x3f" for i in range(0, len(got), 18))


def test_a_stall_loses_frames_and_a_late_delivery_does_not(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    bench.board.inject("stall", bench.clock.now_ns(), seconds=0.25)
    assert len(frames(bench.after(0.5))) == 5001
    bench.line.hold(0.25)
    assert bench.after(0.2) == b""
    assert len(frames(bench.after(0.1))) == 6000


def test_frames_that_find_the_line_full_are_never_sent() -> None:
    bench = Bench(quiet(), "constant:60", buffer_bytes=384)
    bench.send(b"S")
    bench.board.advance(bench.clock.now_ns() + 1_000_000_000)
    assert len(frames(b"".join(bench.board.take()))) == 384 // 18


def test_while_the_port_is_closed_output_is_discarded(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.line.close()
    bench.board.advance(bench.clock.now_ns() + 1_000_000_000)
    assert bench.board.take() == []


def test_lost_and_inserted_bytes_are_counted_and_their_frames_named(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    bench.board.inject("lose", bench.clock.now_ns(), rate=1e-3, burst=3)
    bench.board.inject("garbage", bench.clock.now_ns(), rate=1e-3)
    got, wire = bench.after(1.0), bench.board.wire
    assert wire.lost_bytes > 300
    assert wire.inserted_bytes > 100
    assert len(got) == 20_000 * 18 - wire.lost_bytes + wire.inserted_bytes
    damaged = bench.board.history.boots[-1].damaged
    assert damaged == sorted(set(damaged))
    assert wire.lost_bytes / 3 < len(damaged) + 100
    bench.board.inject("none", bench.clock.now_ns())
    assert len(frames(bench.after(0.1))) == 2000


def test_a_single_loss_happens_once(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.after(0.01)
    bench.board.inject("lose", bench.clock.now_ns(), count=2)
    assert len(bench.after(0.1)) == 36_000 - 2
    assert len(bench.after(0.1)) == 36_000


def test_an_unknown_fault_says_which_there_are(bench: Bench) -> None:
    with pytest.raises(TargetError, match="lose, garbage, stall"):
        bench.board.inject("smoke", 0)


def test_on_a_clock_that_stands_still_an_instant_board_answers_at_once() -> None:
    bench = Bench(quiet(), "constant:60", instant=True)
    bench.send(b"X")
    assert bench.line.wait(1.0)
    assert bench.after(0) == b"\xff\x3f\xff\x3f"
    bench.send(b"S")
    assert not bench.line.wait(1.0)
    assert len(frames(bench.after(0.01))) == 200
    assert bench.ask(b"X", 0) == b"\xff\x3f\xff\x3f"  # there is no newer frame to follow


@given(
    st.lists(st.tuples(st.binary(max_size=60), st.sampled_from([0.0, 40e-6, 0.003, 0.11, 0.6, 2.1])), max_size=8),
    st.sampled_from(["1.0.0", "1.2.0", "1.3.3", "1.4.0", "1.6.1", "2.0"]),
    st.sampled_from([{}, {"hang_on_marker": True}]),
)
def test_no_host_can_break_the_board(talk: list[tuple[bytes, float]], version: str, quirk: dict[str, bool]) -> None:
    board = Bench(quiet(version=version, **quirk), "constant:60").board
    now_ns = board.now_ns
    for data, seconds in talk:
        board.feed(data, now_ns)
        now_ns += round(seconds * 1e9)
        board.advance(now_ns)
        assert board.now_ns <= now_ns
    board.unplug()
    board.plug_in(now_ns)
    board.advance(now_ns + 1_000_000_000)
    board.feed(b"V", now_ns + 1_000_000_000)
    board.take()
    board.advance(now_ns + 1_000_000_000)
    assert b"".join(board.take()) == board.spec.version_line
    for boot in board.history.boots:
        assert all(a < b for a, b in boot.runs)
        assert all(one[1] < two[0] for one, two in itertools.pairwise(boot.runs))


def test_the_order_of_the_public_host_library_gives_clean_replies(bench: Bench) -> None:
    # Stop, wait for the stop words, 10 ms, discard, command, reply, start: so it reads the version while measuring.
    bench.ask(b"S", 0.5)
    got = bench.ask(b"X", 0.104)
    assert got.count(b"\xff\x3f\xff\x3f") == 1
    bench.after(0.010)
    assert bench.ask(b"V") == b"F411-1.6.1\r\n"
    assert len(frames(bench.ask(b"S", 0.1))) > 1900


def test_what_was_streamed_before_the_line_was_opened_is_not_in_it() -> None:
    bench = Bench(quiet(streaming=True), "constant:60")
    bench.line.close()
    bench.clock.advance(5)
    bench.line = MemoryTransport(bench.board, bench.clock)
    assert bench.after(0) == b""
    assert len(frames(bench.after(0.01))) == 200


def test_a_marker_whose_frame_is_discarded_does_not_stand_in_the_way_of_a_stop(bench: Bench) -> None:
    bench.ask(b"S", 0.01)
    bench.line.close()
    bench.board.feed(b"MT", bench.clock.now_ns())
    bench.board.advance(bench.clock.now_ns() + 100_000_000)
    assert not bench.board.busy
