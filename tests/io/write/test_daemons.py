"""Programs that do as they like with descriptors while a dump is running: close all, as a daemon does, or open many."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from pmtpy.errors import SinkError
from pmtpy.io.read import load
from pmtpy.io.write.file import Output
from tests.support.daemons import descriptors, numbers_of_a_socket
from tests.support.many_files import MORE_THAN_SELECT, many_files
from tests.support.worlds import counter_sensor


@pytest.mark.parametrize("suffix", ["csv", "parquet", "pmt"])
def test_a_dump_goes_on_and_what_has_its_number_is_left_alone(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    clock, _, sensor = counter_sensor()
    before = descriptors()
    with sensor:
        sensor.start_dump(path)
        for _ in range(5):
            clock.advance(1.0)
            sensor.read()
        with numbers_of_a_socket(descriptors() - before):
            for _ in range(5):
                clock.advance(1.0)
                sensor.read()
            ending = sensor.stop_dump()
    assert ending.complete
    table = load(path)
    assert len(table) == ending.rows
    assert table["total_J"].iloc[-1] - table["total_J"].iloc[0] == pytest.approx(600.0, abs=1e-3)


def test_another_file_in_its_place_is_not_written_to(tmp_path: Path) -> None:
    output = Output(tmp_path / "a")
    output.write(b"1\n")
    os.close(output._fd)
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_text("theirs")
    for _ in range(2):
        with pytest.raises(SinkError, match=r"cannot write to .*a: the program has closed its descriptor, and another"):
            output.write(b"2\n")
    output.close()
    assert (tmp_path / "a").read_text() == "theirs"


def test_a_pipe_is_not_opened_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    output = Output(tmp_path / "pipe")
    output.write(b"1\n")
    with numbers_of_a_socket([output._fd]):
        with pytest.raises(SinkError, match="the program has closed its descriptor"):
            output.write(b"2\n")
        output.close()
    assert os.read(reader, 9) == b"1\n"
    os.close(reader)


def test_a_full_pipe_is_waited_for_by_a_program_with_thousands_of_files() -> None:
    sent, come = b"0123456789abcdef" * 65_536, bytearray()
    from_them, to_us = os.pipe()

    def take() -> None:
        while part := os.read(from_them, 1 << 16):
            come.extend(part)

    reader = threading.Thread(target=take)
    with many_files(), os.fdopen(fcntl.fcntl(to_us, fcntl.F_DUPFD, MORE_THAN_SELECT), "wb") as pipe:
        os.close(to_us)
        os.set_blocking(pipe.fileno(), False)  # a child that shares a terminal may have made it so
        output = Output(pipe)
        reader.start()
        output.write(sent)
        output.close()
    reader.join()
    os.close(from_them)
    assert bytes(come) == sent
