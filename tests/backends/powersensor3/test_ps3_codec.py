"""The codec against an encoder that was written apart, whatever the cuts and the damage."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.powersensor3._codec import FRAME_BYTES, Decoder, Frames
from tests.backends.powersensor3.ps3_frames import frame, random_stream, stream

LEVELS, TIMES, BYTES = random_stream(60)
# An open input reads full scale: sensor 7 then looks like the words that end a stream.
OPEN = stream(np.full((60, 8), 1023), TIMES)


def decode(pieces: list[bytes]) -> tuple[Decoder, list[Frames]]:
    decoder = Decoder()
    return decoder, [decoder.feed(piece) for piece in pieces]


def rows(parts: list[Frames]) -> list[tuple[int, ...]]:
    return [(int(t), *map(int, row)) for p in parts for t, row in zip(p.device_us, p.levels, strict=True)]


def expected(indices: range | list[int]) -> list[tuple[int, ...]]:
    return [(int(TIMES[i] % 1024), *map(int, LEVELS[i])) for i in indices]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def test_the_example_of_the_protocol_description_decodes() -> None:
    example = bytes.fromhex("f373 8a3a 9513 aa3a b513 c020 d603 e32a fc29")
    # A first frame counts only when the next time word fits.
    _, parts = decode([example + b"\xf4\x65"])
    assert rows(parts) == [(243, 698, 339, 698, 339, 32, 387, 234, 809)]
    assert not len(parts[0].marked)


@given(st.lists(st.integers(0, len(BYTES)), max_size=12))
def test_frames_do_not_depend_on_where_the_bytes_are_cut(places: list[int]) -> None:
    decoder, parts = decode([*cut(BYTES, places), b"\xf0\x40"])
    assert rows(parts) == expected(range(60))
    assert (decoder.frames, decoder.skipped_bytes, decoder.damaged) == (60, 0, 0)


@given(st.lists(st.integers(0, len(BYTES)), max_size=12))
def test_ends_tell_which_frames_a_piece_completed(places: list[int]) -> None:
    decoder = Decoder()
    decoder.feed(BYTES[:36])  # aligned from here on
    fed, whole = 36, 2
    for piece in cut(BYTES[36:], places):
        part = decoder.feed(piece)
        wanted = [FRAME_BYTES * (whole + 1 + i) - fed for i in range(len(part))]
        if fed > 36:
            assert part.all_ends().tolist() == wanted
            for size in range(len(piece) + 1):
                assert part.complete_by(size) == sum(end <= size for end in wanted)
        fed, whole = fed + len(piece), whole + len(part)


@given(st.integers(40, len(BYTES) - 40), st.lists(st.integers(0, len(BYTES)), max_size=4))
def test_one_missing_byte_costs_one_frame_at_most(at: int, places: list[int]) -> None:
    damaged = BYTES[:at] + BYTES[at + 1 :]
    decoder, parts = decode([*cut(damaged, places), b"\xf0\x40"])
    hit = at // FRAME_BYTES
    assert rows(parts) == expected([i for i in range(60) if i != hit])
    assert (decoder.skipped_bytes, decoder.damaged) == (FRAME_BYTES - 1, 1)


@given(
    st.integers(40, len(BYTES) - 60),
    st.integers(1, 100),
    st.binary(max_size=60),
    st.lists(st.integers(0, len(BYTES)), max_size=4),
)
def test_after_any_damage_frames_come_again_within_two(at: int, gone: int, junk: bytes, places: list[int]) -> None:
    gone = min(gone, len(BYTES) - 60 - at)
    damaged = BYTES[:at] + junk + BYTES[at + gone :]
    _, parts = decode([*cut(damaged, places), b"\xf0\x40"])
    found = rows(parts)
    first_untouched = -(-(at + gone) // FRAME_BYTES)
    assert found[: at // FRAME_BYTES] == expected(range(at // FRAME_BYTES))
    assert found[-(60 - first_untouched - 1) :] == expected(range(first_untouched + 1, 60))


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_any_bytes_are_decoded_or_counted_as_skipped(pieces: list[bytes]) -> None:
    decoder, parts = decode(pieces)
    total = sum(map(len, pieces))
    held = total - decoder.skipped_bytes - FRAME_BYTES * decoder.frames
    assert 0 <= held < FRAME_BYTES + 2
    assert decoder.frames == sum(map(len, parts))


@given(st.lists(st.sampled_from([BYTES[:18], BYTES[18:36], b"\xff\x3f\xff\x3f", b"D", b"\xf1", b"F411-1.6.1\r\n"])))
def test_whole_frames_among_leftovers_are_never_invented(parts: list[bytes]) -> None:
    _, frames = decode(parts)
    assert set(rows(frames)) <= set(expected([0, 1]))


def test_full_scale_on_sensor_seven_does_not_end_the_stream() -> None:
    decoder, parts = decode([OPEN])
    assert sum(map(len, parts)) == 60
    assert decoder.skipped_bytes == 0


def test_a_frame_whose_time_was_cut_in_half_is_not_believed() -> None:
    # The last byte of frame 9 and the first of frame 10: what is left reads as a time of half of each.
    at = 10 * FRAME_BYTES
    damaged = BYTES[: at - 1] + BYTES[at + 1 :]
    assert damaged[at - 2] >= 0xF0
    _, parts = decode([damaged[:100], damaged[100:]])
    assert rows(parts) == expected([i for i in range(60) if i not in {9, 10}])


def test_stop_words_between_frames_are_skipped() -> None:
    decoder, parts = decode([BYTES[:180] + b"\xff\x3f\xff\x3f" + BYTES[180:]])
    assert rows(parts) == expected(range(60))
    assert (decoder.skipped_bytes, decoder.damaged) == (4, 1)


def test_leftovers_before_the_first_frame_are_skipped_but_are_no_damage() -> None:
    decoder, parts = decode([b"F411-1.6.1\r\nD" + BYTES[7:]])
    assert rows(parts) == expected(range(1, 60))
    assert (decoder.skipped_bytes, decoder.damaged) == (13 + 11, 0)


def test_marker_bits_are_found_on_their_rows() -> None:
    _, parts = decode([stream(LEVELS, TIMES, marked=[0, 7, 8, 59])])
    assert parts[0].marked == (0, 7, 8, 59)
    assert rows(parts) == expected(range(60))


def test_a_stream_longer_than_a_batch_decodes_as_one() -> None:
    many = BYTES * 300  # 18 000 frames; times jump every 60 frames, which is not the codec's business
    data = many[: 9000 * 18] + b"\x00" + many[9000 * 18 :]
    decoder, parts = decode([data])
    assert np.array_equal(parts[0].levels, np.tile(LEVELS, (300, 1)))
    assert parts[0].all_ends()[8999] == 9000 * 18
    assert parts[0].all_ends()[9000] == 9001 * 18 + 1
    assert decoder.skipped_bytes == 1
    marked = Decoder()
    tail = marked.feed(many + frame(1, [0] * 8, marked=True))
    assert tail.marked == (18_000,)
