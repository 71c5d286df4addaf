"""Commands and configuration, against a virtual board in memory on a clock that the test moves."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest

from pmtpy.backends._serial.transport import Piece
from pmtpy.backends.powersensor3 import device as protocol
from pmtpy.backends.powersensor3 import open_source
from pmtpy.backends.powersensor3.config import (
    OLD_RECORD,
    RECORD,
    SensorRecord,
    calibrated_gain,
    calibrated_zero,
    from_json,
    pack_record,
    pair_of,
    refuse_unsteady,
    set_fields,
    to_json,
    unpack_record,
)
from pmtpy.backends.powersensor3.limits import refuse_implausible
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.load import parse_load
from pmtpy.emulators.powersensor3 import Board, BoardSpec, MemoryTransport, Stored, parse_pairs
from pmtpy.errors import BackendUnavailableError, CalibrationError, FileFormatError, ProtocolError, TargetError

# The example record of the protocol description.
EXAMPLE = bytes.fromhex("4d4c583130" + "00" * 11 + "7061697230" + "00" * 11 + "3333d33f8fc2f53d01")


def far_side(clock: ManualClock, spec: BoardSpec, load: str = "constant:60") -> tuple[Board, MemoryTransport]:
    now_ns = clock.now_ns()
    far = Board(spec, parse_load(load), epoch_ns=now_ns, start_ns=now_ns - 10**9, instant=True)
    return far, MemoryTransport(far, clock)


def connected(spec: BoardSpec | None = None) -> protocol.Board:
    clock = ManualClock()
    board = protocol.Board(far_side(clock, spec or BoardSpec())[1], "virtual board", clock)
    board.connect()
    return board


class Script:
    """A line whose far end says what it is told to, whatever it is asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def receive(self) -> list[Piece]:
        return [(0, self.answers.pop(0))] if self.answers and self.written != b"T" else []

    def wait(self, timeout_s: float) -> bool:
        return bool(self.answers) and self.written != b"T"

    def close(self) -> None:
        self.answers = []


@pytest.mark.parametrize(
    ("line", "mcu", "number", "demo"),
    [
        (b"F411-1.6.1\r\n", "F411", (1, 6, 1), False),
        (b"Firmware version: F401-1.4.0\r\n", "F401", (1, 4, 0), False),
        (b"F407-1.5.12-DEMO\r\n", "F407", (1, 5, 12), True),
        (b"H743-2\r\n", "", (0, 0, 0), False),
        (b"\xff\n", "", (0, 0, 0), False),
    ],
)
def test_version_lines_of_all_ages_are_understood(
    line: bytes,
    mcu: str,
    number: tuple[int, int, int],
    demo: bool,  # noqa: FBT001  (a parameter of the table)
) -> None:
    firmware = protocol.parse_version(line)
    assert (firmware.mcu, firmware.number, firmware.demo) == (mcu, number, demo)
    assert bool(firmware.notes) == (number not in ((1, 6, 1), (1, 4, 0)))


@pytest.mark.parametrize("version", ["1.0.0", "1.2.9", "1.3.0", "1.4.9", "1.5.0", "1.6.1", "1.6.7"])
@pytest.mark.parametrize("variant", ["F401", "F411", "F407"])
def test_every_firmware_is_read(variant: str, version: str) -> None:
    board = connected(BoardSpec(parse_pairs("MLX10:12:0.5:left,MLX20"), variant, version))
    assert [r.type for r in board.records[:4]] == ["MLX10", "voltage", "MLX20", "voltage"]
    assert [r.in_use for r in board.records] == [True] * 4 + [False] * 4
    assert board.records[0].name == ("left" if board.record_bytes == RECORD.size else "")
    assert board.record_bytes == (OLD_RECORD if version < "1.3" else RECORD).size


def test_a_firmware_from_the_future_is_read_with_a_note() -> None:
    board = connected(BoardSpec(version="7.0.0"))
    assert board.records[0].type == "MLX10"
    assert "newer" in board.notes[0]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (Stored.TAILS, ""),
        (Stored.NO_NUL, "corrupt"),
        (Stored.HALF, "sensor 3 is not"),
        (Stored.UNCALIBRATED, ""),
    ],
)
def test_what_is_wrong_with_the_memory_is_a_note_and_the_rest_works(stored: Stored, words: str) -> None:
    clock = ManualClock()
    _, line = far_side(clock, BoardSpec(stored=stored))
    source = open_source(clock=clock, transport=line)
    assert words in " ".join(source.identity.notes)
    assert bool(words) == bool(source.identity.notes)
    clock.advance(0.1)
    assert len(source.read()) > 1900
    source.close()


@pytest.mark.parametrize(("stored", "why"), [(Stored.ERASED, "its memory is erased"), (Stored.NAN, "not usable")])
def test_a_board_without_a_usable_pair_is_refused_with_the_cure(stored: Stored, why: str) -> None:
    clock = ManualClock()
    _, line = far_side(clock, BoardSpec(stored=stored))
    with pytest.raises(BackendUnavailableError, match=r"(?s)no pair .*pmtpy config") as caught:
        open_source(clock=clock, transport=line)
    assert why in caught.value.reason


def test_a_written_configuration_is_on_the_board() -> None:
    board = connected()
    wanted = set_fields(board.records, 0, name="gpu0", vref=1.625, polarity=-1)
    wanted = set_fields(wanted, 5, type="volts", in_use=True)
    board.write_records(wanted)
    assert board.records[0] == SensorRecord("MLX10", "gpu0", 1.625, -float(np.float32(0.12)), True)
    assert board.records[1].name == "gpu0"
    assert board.records[5] == dataclasses.replace(board.records[5], type="volts", sensitivity=1.0, in_use=True)


def test_an_old_board_is_written_in_its_own_format() -> None:
    board = connected(BoardSpec(version="1.2.0"))
    board.write_records(set_fields(board.records, 2, vref=1.5))
    assert board.records[2].vref == 1.5
    assert board.record_bytes == OLD_RECORD.size


def test_a_board_left_streaming_is_brought_to_rest_first() -> None:
    board = connected(BoardSpec(streaming=True))
    assert board.firmware.mcu == "F411"


def test_a_foreign_device_is_refused_with_what_it_said() -> None:
    board = protocol.Board(Script(b"OK\xff\r\n"), "/dev/ttyACM7", ManualClock())
    with pytest.raises(ProtocolError, match=r"/dev/ttyACM7 answered .*OK"):
        board.connect()


def test_a_device_that_never_stops_is_refused() -> None:
    class Babble(Script):
        def receive(self) -> list[Piece]:
            return [(0, bytes(100_000))]

        def wait(self, timeout_s: float) -> bool:
            return True

    board = protocol.Board(Babble(), "/dev/ttyACM7", ManualClock())
    with pytest.raises(ProtocolError, match="does not stop sending"):
        board.rest()


def test_a_configuration_that_reads_back_differently_is_an_error() -> None:
    board = connected()
    wanted = set_fields(board.records, 0, vref=1.5)
    good = board.transport

    class Stubborn(Script):
        """Accepts everything, and goes on saying what it said."""

        def write(self, data: bytes) -> None:
            if data not in {b"R", b"s", b"T"}:
                self.answers += [b"S"] if len(data) > 1 else []
                self.answers += [b"D"] if len(self.written) == 8 else []
                self.written += data[:1]
                return
            good.write(data)

        def receive(self) -> list[Piece]:
            return [(0, self.answers.pop(0))] if self.answers else good.receive()

        def wait(self, timeout_s: float) -> bool:
            return bool(self.answers) or good.wait(timeout_s)

    board.transport = Stubborn()
    with pytest.raises(ProtocolError, match=r"sensor 0 was to be stored as .*1\.5"):
        board.write_records(wanted)


def test_a_broken_off_transfer_is_an_error_that_says_where() -> None:
    board = protocol.Board(Script(b"", b"F411-1.6.1\r\n", EXAMPLE, EXAMPLE[:30]), "/dev/ttyACM7", ManualClock())
    with pytest.raises(ProtocolError, match="sensor 1 has 30 instead of 41 bytes"):
        board.connect()


# -- the configuration itself --------------------------------------------------------------------------------------


def test_the_example_record_is_understood() -> None:
    record, warnings = unpack_record(EXAMPLE, 0)
    assert record == SensorRecord("MLX10", "pair0", float(np.float32(1.65)), float(np.float32(0.12)), True)
    assert warnings == ()
    assert pack_record(record) == EXAMPLE


def test_erased_memory_is_called_that() -> None:
    record, warnings = unpack_record(b"\xff" * 41, 3)
    assert (record.type, record.name, record.in_use) == ("INVALID", "INVALID", True)
    assert math.isnan(record.vref)
    assert record.erased
    assert warnings == ("sensor 3: its memory is erased; configure it with `pmtpy config powersensor3`",)


def records() -> tuple[SensorRecord, ...]:
    return tuple(SensorRecord("MLX10", "x", 1.65, 0.12, True) for _ in range(8))


def test_a_known_type_brings_its_sensitivity_and_an_unknown_one_needs_it() -> None:
    assert set_fields(records(), 0, type="MLX50")[0].sensitivity == 0.025
    with pytest.raises(TargetError, match="known are MLX10, MLX20, MLX50, MLX75"):
        set_fields(records(), 0, type="MLX15")
    assert set_fields(records(), 0, type="own", sensitivity=0.3)[0].sensitivity == 0.3


def test_the_type_of_a_voltage_is_a_label_that_leaves_its_gain() -> None:
    before = (records()[0], SensorRecord("voltage", "x", 0.0, -0.091, True), *records()[2:])
    assert set_fields(before, 1, type="12 V")[1] == SensorRecord("12 V", "x", 0.0, 0.091, True)
    assert set_fields(before, 1, type="12 V", polarity=-1)[1].sensitivity == -0.091
    assert set_fields(before, 1, type="5 V", sensitivity=0.2)[1].sensitivity == 0.2
    erased = (records()[0], replace(before[1], vref=math.nan, sensitivity=math.nan), *records()[2:])
    assert set_fields(erased, 1, type="own")[1].sensitivity == 1.0
    with pytest.raises(TargetError, match="MLX10 measures a current: it is for sensor 0"):
        set_fields(before, 1, type="MLX10")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "sixteen letters!"},
        {"type": "tab\t"},
        {"name": "\u20ac" * 6},
        {"vref": math.nan},
        {"vref": 1e39},
        {"sensitivity": 1e-40},
        {"sensitivity": -1e300},
        {"sensitivity": 0.0},
        {"sensitivity": math.inf},
        {"polarity": 2},
    ],
)
def test_what_cannot_be_stored_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(TargetError):
        set_fields(records(), 0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Größe 5 µm", "sérial", "日本語"])
def test_a_name_is_stored_as_the_public_tools_store_what_is_typed(name: str) -> None:
    (changed, *_) = set_fields(records(), 0, name=name)
    raw = pack_record(changed)
    assert raw[16:32].rstrip(b"\0") == name.encode()
    assert unpack_record(raw, 0)[0].name == name


def test_a_name_of_an_older_host_in_latin_1_is_shown() -> None:
    raw = bytearray(EXAMPLE)
    raw[16:32] = "Größe".encode("latin-1").ljust(16, b"\0")
    record, warnings = unpack_record(bytes(raw), 0)
    assert (record.name, warnings) == ("Größe", ())


def test_what_cannot_be_stored_does_not_leave_the_board_in_a_transfer() -> None:
    clock = ManualClock()
    far, line = far_side(clock, BoardSpec())
    board = protocol.Board(line, "virtual board", clock)
    board.connect()
    before = far.history.flash
    for wrong in (1e39, 120.0, 1e-40):
        changed = (replace(board.records[0], sensitivity=wrong), *board.records[1:])
        with pytest.raises(TargetError):
            board.write_records(changed)
        clock.advance(3.0)
        board.rest()
        assert far.history.flash == before
        assert len(far.history.boots) == 1
    board.write_records((replace(board.records[0], sensitivity=0.5), *board.records[1:]), plausible=False)
    assert board.records[0].sensitivity == 0.5


def test_a_sensitivity_in_millivolts_is_told_as_that() -> None:
    before = records()
    with pytest.raises(TargetError, match=r"0\.06 to 0\.24 V/A; nothing was stored\. 120 mV/A are 0\.12 V/A"):
        refuse_implausible(before, set_fields(before, 0, sensitivity=120.0))
    with pytest.raises(TargetError, match="zero"):
        refuse_implausible(before, set_fields(before, 0, vref=3.2))
    refuse_implausible(before, set_fields(before, 0, sensitivity=0.13, vref=1.61))
    refuse_implausible(before, set_fields(before, 0, type="MLX75"))


def test_a_calibration_of_an_open_input_is_refused() -> None:
    refuse_unsteady(0, 5.5)
    with pytest.raises(CalibrationError, match=r"scatter by 289 .*nothing is connected"):
        refuse_unsteady(0, 289.0)


def test_there_are_eight_sensors() -> None:
    assert pair_of(7) == 3
    with pytest.raises(TargetError, match="0 to 7"):
        pair_of(8)


@pytest.mark.parametrize("sensitivity", [0.12, -0.12])
def test_zero_calibration_is_right_for_both_polarities(sensitivity: float) -> None:
    before = (SensorRecord("MLX10", "x", 1.65, sensitivity, True), *records()[1:])
    level = 1.623 * 1023 / 3.3  # the pin voltage at no current
    assert calibrated_zero(before, 0, level)[0].vref == pytest.approx(1.623, abs=1e-12)
    assert calibrated_zero(before, 0, level)[0].sensitivity == sensitivity


def test_gain_calibration_finds_the_gain_and_declines_a_small_input() -> None:
    before = (records()[0], SensorRecord("voltage", "x", 0.0, 1.0, True), *records()[2:])
    level = 12.0 * 0.0911 * 1023 / 3.3
    assert calibrated_gain(before, 1, level, 12.0)[1].sensitivity == pytest.approx(0.0911, rel=1e-12)
    with pytest.raises(CalibrationError, match="larger input"):
        calibrated_gain(before, 1, 3.0, 12.0)


def test_a_configuration_survives_its_file() -> None:
    board = connected()
    assert from_json(to_json(board.records, board.firmware.text)) == board.records


BROKEN = {
    '"vref": 1.65': '"vref": "1.65"',
    '"in_use": true': '"in_use": 1',
    '"sensitivity": 0.12': '"sensitivity": NaN',
    '"vref": 1.65,': '"vref": 1e400,',
    '"name": "x",': '"name": "' + "é" * 8 + '",',
    '"name": "x"': '"name": "sixteen letters!"',
    '"type": "MLX10",': "",
}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"sensors": []}', '{"sensors": [1, 2, 3, 4, 5, 6, 7, 8]}']
    + [to_json(records(), "F411-1.6.1").replace(good, bad) for good, bad in BROKEN.items()],
)
def test_a_broken_configuration_file_is_refused(text: str) -> None:
    with pytest.raises((FileFormatError, TargetError)):
        from_json(text)


def test_collecting_gives_so_many_frames_and_leaves_the_board_at_rest() -> None:
    clock = ManualClock()
    far, line = far_side(clock, BoardSpec(parse_pairs("MLX10"), noise=False))

    class Moving:
        """The line, on which time passes while somebody waits."""

        write, receive, close = line.write, line.receive, line.close

        @staticmethod
        def wait(timeout_s: float) -> bool:
            clock.advance(0.01)
            return line.wait(timeout_s)

    board = protocol.Board(Moving(), "virtual board", clock)
    board.connect()
    levels = board.collect(5000)
    assert levels.shape == (5000, 8)
    zero = calibrated_zero(board.records, 0, float(levels[:, 0].mean()))[0].vref
    # 60 W at 12 V are 5 A, which is 0.6 V at the pin above the zero; noiseless levels are rounded down by up to one.
    assert zero == pytest.approx(board.records[0].vref + 0.6, abs=3.3 / 1023)
    assert not far.firmware.streaming
