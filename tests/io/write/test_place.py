"""A dump keeps its file: whoever goes elsewhere, or wants the same one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.errors import SinkError
from tests.support.worlds import counter_sensor

WHOLE = ("csv", "parquet", "pmt", "ps3", "jls")


@pytest.mark.parametrize("suffix", WHOLE)
def test_a_dump_ends_where_it_began_though_the_program_goes_to_another_folder(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix == "jls":
        pytest.importorskip("pyjls")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    sensor = pmt.create("powersensor3:virtual") if suffix == "ps3" else counter_sensor()[2]
    with sensor:
        sensor.start_dump(f"a.{suffix}")
        sensor.read()
        monkeypatch.chdir(there)
        sensor.read()
        sensor.stop_dump()
    assert list(there.iterdir()) == []
    assert not (here / f"a.{suffix}.unfinished").exists()
    assert pmt.load(here / f"a.{suffix}").attrs["complete"]


def test_a_file_that_is_being_written_is_not_replaced(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "a.csv"
    clock, _, one = counter_sensor("constant:60")
    _, _, other = counter_sensor("constant:60")
    with one, other:
        one.start_dump(path)
        with pytest.raises(SinkError, match="is being written"):
            other.start_dump(path, overwrite=True)
        clock.advance(1.0)
        one.read()
        one.stop_dump()
        whole = pmt.load(path)
        assert whole.attrs["complete"]
        assert whole["total_J"].iloc[-1] == pytest.approx(60.0)
        other.start_dump(path, overwrite=True)
        other.stop_dump()
        assert pmt.load(path).attrs["complete"]


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs a fork")
def test_a_file_that_is_finished_can_be_replaced_though_a_child_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    _, _, sensor = counter_sensor()
    with sensor:
        sensor.start_dump(path)
        done, tell = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            os.close(tell)
            os.read(done, 1)
            os._exit(0)
        try:
            sensor.stop_dump()
            sensor.start_dump(path, overwrite=True)
            sensor.stop_dump()
        finally:
            os.close(tell)
            os.waitpid(child, 0)
    assert pmt.load(path).attrs["complete"]


def test_a_folder_that_is_gone_is_named_where_a_dump_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    _, _, sensor = counter_sensor()
    with sensor, pytest.raises(SinkError, match=r"cannot write a\.csv"):
        sensor.start_dump("a.csv")
