"""Spoilt recordings of every format: read or refused by name, never believed where they cannot be, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pmtpy.errors import FileFormatError
from pmtpy.io.read import READERS, _reader_of, device_trace, load
from pmtpy.io.read._recording import Recording
from tests.support.mutants import companions, make_seeds, spoil

_EACH = 25  # mutants of each file; benchmarks/bench_mutants.py tries a million


def _is_possible(table: pd.DataFrame) -> None:
    """Whatever else it says: one clock that goes on, no infinite energy, columns of different names."""
    elapsed = table["elapsed"].to_numpy()
    assert np.isfinite(elapsed).all()
    assert (np.diff(elapsed) >= 0).all()
    assert not np.isinf(table["total_W"]).any()
    assert not np.isinf(table["total_J"]).any()
    assert table.columns.is_unique
    assert list(table.columns[:6]) == ["time", "elapsed", "marker", "lost", "total_W", "total_J"]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    make_seeds(folder)
    return folder


_NAMES = (
    *("bare.pmt", "board.csv", "board.parquet", "board.pmt", "board.ps3", "counter.csv", "counter.pmt", "gpus.csv"),
    *("killed.parquet", "old.pmt", "old.ps3", "packed.csv.gz", "pmd.bin", "smi.csv", "stamps.csv"),
)


def test_every_reader_has_a_recording_that_is_spoilt(seeds: Path) -> None:
    sound = [Recording(seeds / name, skip_broken=False, utc_offset_s=None, ticks_per_ms=None) for name in _NAMES]
    read = {_reader_of(recording).name for recording in sound}
    elsewhere = {"pmtpy JLS", device_trace.TRACE}  # tests/io/write/test_jls.py, tests/io/read/test_device_trace.py
    missing = {reader.name for reader in READERS} - read - elsewhere
    assert not missing, "write a recording for each in make_seeds (tests/support/mutants.py), and name it in _NAMES"


def test_every_kind_is_sound_before_it_is_spoilt(seeds: Path) -> None:
    assert tuple(sorted(p.name for p in seeds.iterdir() if p.is_file() and p.suffix != ".json")) == _NAMES
    for name in _NAMES:
        _is_possible(load(seeds / name))


@pytest.mark.parametrize("name", _NAMES)
def test_a_spoilt_recording_is_read_or_refused_by_name(seeds: Path, name: str) -> None:
    chance = random.Random(name)
    for part in companions(seeds / name):
        whole = part.read_bytes()
        try:
            for k in range(_EACH):
                part.write_bytes(spoil(whole, chance))
                try:
                    _is_possible(load(seeds / name, skip_broken=bool(k % 2)))
                except FileFormatError as error:
                    assert name in str(error)  # noqa: PT017
                    assert part.suffix != ".json" or part.parent != seeds or "newer" in str(error)  # noqa: PT017
        finally:
            part.write_bytes(whole)


def test_an_account_of_a_column_that_cannot_be_is_refused_and_does_not_end_the_program(seeds: Path) -> None:
    whole = (seeds / "board.parquet").read_bytes()
    optional, required = (b"\x25" + kind + b"\x18\x07elapsed" for kind in (b"\x02", b"\x00"))
    assert whole.count(optional) == 1  # of the schema; the sizes of the column are accounted as of an optional one
    spoilt = seeds / "spoilt.parquet"
    try:
        spoilt.write_bytes(whole.replace(optional, required))
        with pytest.raises(FileFormatError, match=r"spoilt\.parquet.*damaged"):
            load(spoilt)
    finally:
        spoilt.unlink()
