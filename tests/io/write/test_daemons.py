"""A program that becomes a daemon while a dump is running: it closes all descriptors, and opens files of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pmtpy.errors import SinkError
from pmtpy.io.read import load
from pmtpy.io.write.file import Output
from tests.support.daemons import descriptors, numbers_of_a_socket
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
