"""Mistakes that people make on a command line are answered with what was wrong and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtpy.core.clock import duration_of, seconds_of
from pmtpy.errors import TargetError
from tests.cli.conftest import Pmtpy


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("read rapll", "no sensor is called 'rapll'; there are"),
        ("read rapll", "Did you mean rapl?"),
        ("read PowerSensor3:virtual", "Did you mean powersensor3?"),
        ("lst", "Did you mean list?"),
        ("read rapl:virtual --fro 1s", "--fro 1s: not understood. Did you mean --for?"),
        ("dump rapl:virtual --format cvs", "Did you mean csv?"),
        ("read rapl:virtual -o laod=constant:1", "has no option 'laod'"),
        ("read rapl:virtual -o laod=constant:1", "Did you mean load?"),
        ("read rapl:virtual --for 0", "'0' is not a duration; it has to be more than zero"),
        ("read rapl:virtual --for -1s", "'-1s' is not a duration; it has to be more than zero"),
        ("dump rapl:virtual --duration 1h30", "'1h30' is not a duration; write 500ms, 5s, 1h30m"),
        ("dump rapl:virtual --interval 0", "'0' is not an interval between rows; it has to be more than zero"),
        ("dump rapl:virtual -f run.xlsx", "run.xlsx: no format has the suffix .xlsx"),
        ("dump rapl:virtual -f run.parqet", "Did you mean .parquet?"),
        ("run -s rapl:virtual --dump run.gz -- true", "run.gz: no format has the suffix .gz"),
    ],
)
def test_a_mistake_is_explained_and_does_nothing(pmtpy: Pmtpy, tmp_path: Path, words: str, said: str) -> None:
    done = pmtpy(*words.split())
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_format_that_is_named_needs_no_suffix_that_says_it(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy("dump", "rapl:virtual", "-f", "run.log", "--format", "csv", "--duration", "100ms")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.log").read_text().startswith("time,")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m", 60), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), ("90", 90), ("500ms", 0.5), ("1m 30s", 90)],
)
def test_durations_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert duration_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "1y", "1h30", "100Hz", "nan", "1e999", "5s-1s", "s5", "1" * 5000 + "!"])
def test_what_is_no_duration_is_refused_at_once(text: str) -> None:
    with pytest.raises(TargetError, match="is not a duration"):
        duration_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 0.01), ("100Hz", 0.01), ("2kHz", 5e-4), ("20us", 2e-5), ("1m", 60)]
)
def test_a_bare_interval_is_milliseconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["0", "0Hz", "-1", "-10ms"])
def test_an_interval_is_more_than_zero(text: str) -> None:
    with pytest.raises(TargetError, match="more than zero"):
        seconds_of(text)


def test_the_same_warning_stands_once_for_all_that_it_is_about(pmtpy: Pmtpy) -> None:
    done = pmtpy("run", "-s", "rapl:virtual", "-s", "hwmon:virtual", "-s", "cray:virtual", "--", "true")
    assert done.returncode == 0
    assert done.stderr.count("virtual: their energy is emulated") == 1
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    ends = [note.rpartition(": ")[2] for note in notes]
    assert len(ends) == len(set(ends)), notes
