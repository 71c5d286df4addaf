"""Mistakes that people make on a command line are answered with what was wrong and what to write instead."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import pytest

from pmtpy.cli import VERBS, _parser, main
from pmtpy.core.clock import duration_of, seconds_of
from pmtpy.errors import TargetError
from pmtpy.regions.region import region
from tests.cli.conftest import Pmtpy


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("read rapll", "no sensor is called 'rapll'; there are"),
        ("read rapl,nvml:0", "rapl,nvml:0 is 2 sensors, and one is meant: name each by itself, as in rapl nvml:0"),
        ("read rapll", "Did you mean rapl?"),
        ("read PowerSensor3:virtual", "Did you mean powersensor3?"),
        ("read /dev/ttyACM0", "a device stands behind the name of its sensor, as in powersensor3:/dev/ttyACM0"),
        ("lst", "Did you mean list?"),
        ("dump rapl:virtual -f nowhere/run.csv", "cannot write nowhere/run.csv: there is no folder nowhere"),
        ("calibrate energy run.csv --profile gpu.json", "profile gpu.json cannot be read: No such file or directory\n"),
        ("calibrate transfer --train a.csv --measured b.csv --clocks 1485 -o c.csv", "cannot read a.csv: No such file"),
        ("config powersensor3:virtual --import a.json", "cannot read a.json: No such file or directory\n"),
        ("view .", ". is a folder; give the recordings in it"),
        ("read rapl:virtual --fro 1s", "--fro 1s: not understood. Did you mean --for?"),
        ("dump rapl:virtual --format cvs", "Did you mean csv?"),
        ("read rapl:virtual -o laod=constant:1", "has no option 'laod'"),
        ("read rapl:virtual -o laod=constant:1", "Did you mean load?"),
        ("read rapl:virtual nvml:virtual -o period_ms=x", "nvml:virtual: option period_ms takes a number, not 'x'"),
        ("read rapl:virtual --for 0", "'0' is not a duration; it has to be more than zero"),
        ("read rapl:virtual --for -1s", "'-1s' is not a duration; it has to be more than zero"),
        ("dump rapl:virtual --duration 1h30", "'1h30' is not a duration; write 500ms, 5s, 1h30m"),
        ("dump rapl:virtual --interval 0", "'0' is not an interval between rows; it has to be more than zero"),
        ("dump rapl:virtual -f run.xlsx", "run.xlsx: no format has the suffix .xlsx"),
        ("dump rapl:virtual -f run.parqet", "Did you mean .parquet?"),
        ("dump rapl:virtual -f run.cvs", "Did you mean .csv?"),
        ("dump rapl:virtual -f run.csv --rotate 1h --duration 1s", "--rotate goes with --dataset alone"),
        ("dump rapl:virtual -f run.csv --job 7 --duration 1s", "--job goes with --dataset alone"),
        ("dump rapl:virtual -f run.csv --dataset energy --duration 1s", "-f does not go with --dataset"),
        ("run -s rapl:virtual --dump run.gz -- true", "run.gz: no format has the suffix .gz"),
    ],
)
def test_a_mistake_is_explained_and_does_nothing(pmtpy: Pmtpy, tmp_path: Path, words: str, said: str) -> None:
    done = pmtpy(*words.split())
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_suffix_like_none_of_ours_gets_no_guess(pmtpy: Pmtpy) -> None:
    assert "Did you mean" not in pmtpy("dump", "rapl:virtual", "-f", "run.xlsx").stderr


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


@cache
def _options() -> list[tuple[str, str, argparse.Action]]:
    """Every option of every verb that takes a value, with the words before it."""
    found = []
    for verb in VERBS:
        (top,) = (a for a in _parser(verb)._actions if isinstance(a, argparse._SubParsersAction))
        waiting: list[tuple[str, argparse.ArgumentParser]] = [(verb, top.choices[verb])]
        while waiting:
            words, parser = waiting.pop()
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    waiting += [(f"{words} {name}", sub) for name, sub in action.choices.items()]
                elif action.option_strings and action.nargs is None:
                    found.append((words, action.option_strings[-1], action))
    return found


def _refused(words: str, option: str, value: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        _parser(words.split(maxsplit=1)[0]).parse_known_args([*words.split(), f"{option}={value}"])
    assert ended.value.code == 2, (words, option, value)
    return capsys.readouterr().err


def test_no_option_takes_an_empty_value(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script's unset variable makes of ``--duration=$SECONDS``."""
    found = _options()
    assert len(found) > 80
    for words, option, _ in found:
        assert "needs a value" in _refused(words, option, "", capsys)


def test_an_option_that_takes_a_number_refuses_all_else_before_anything_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed = [(words, option, action) for words, option, action in _options() if action.type not in {None, Path}]
    assert len(typed) > 30
    for words, option, action in typed:
        wrong = ["abc", "1 2 x"] if action.type is float else ["abc", "nan", "1e999", "1.5.2"]
        for value in wrong:
            said = _refused(words, option, value, capsys)
            assert option in said
            assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --repeat 0 -- true", "'0' is not a whole number from 1"),
        ("run --warmup -1 -- true", "'-1' is not a whole number from 0"),
        ("characterise rapl:virtual --updates --reads 0", "'0' is not a whole number from 1"),
        ("characterise a.csv --window -1s", "'-1s' is not a duration; it has to be more than zero"),
        ("characterise a.csv --frequencies 1,2", "give three frequencies"),
        ("characterise rapl:virtual --parts", "is a sensor, this procedure needs a recording"),
        ("characterise rapl:virtual --parts", "pmtpy dump rapl:virtual -f run.csv -- COMMAND"),
        ("plot a.csv --utc-offset nan", "'nan' is not a number of seconds ahead of UTC"),
        ("plot a.csv --smooth -o a.html", "leave --smooth out"),
        ("read rapl:virtual --for 1e20", "it is longer than thirty years"),
        ("dump rapl:virtual --interval 1e20", "it is longer than thirty years"),
        ("sim powersensor3 --seed -1", "-1 is not a seed"),
        ("sim powersensor3 --drift-ppm nan", "nan is not a drift"),
        ("sim powersensor3 --jitter-us -1", "-1.0 is not a jitter"),
        ("sim powersensor3 --open-level 1024", "1024 is not a level"),
        ("sim powersensor3 --boot-s inf", "inf is not a time"),
        ("sim powersensor3 --firmware abc", "'abc' is not the version of a firmware"),
        ("sim powersensor3 --buffer 0", "0 is not a number of bytes"),
        ("sim powersensor3 --pairs 99999999999999999999", "pairs '99999999999999999999'"),
        ("config powersensor3:virtual --samples 0", "'0' is not a whole number from 1"),
        ("serve rapl:virtual --port 22x", "'22x' is not a port, a whole number from 0 to 65535"),
        ("view a.csv --port 65536", "'65536' is not a port, a whole number from 0 to 65535"),
        ("certify rapl:virtual --rounds two", "'two' is not a whole number"),
    ],
)
def test_a_value_that_cannot_be_is_explained(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words.split())
    except SystemExit as ended:  # the parser's own
        code = int(ended.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_recordings_that_hold_nothing_of_what_was_asked_say_so(pmtpy: Pmtpy, tmp_path: Path) -> None:
    rows = "".join(f"{t},{t},,0,50\n" for t in range(3))
    (tmp_path / "other.csv").write_text("time,CPU Watt\n1,50\n")
    (tmp_path / "own.csv").write_text("time,elapsed,marker,lost,total_W\n" + rows)
    (tmp_path / "none.csv").write_text("time,elapsed,marker,lost,total_W\n")
    for words, said in {
        "plot other.csv": "total_W (time in Unix seconds, elapsed in seconds, marker empty, lost 0)",
        "plot own.csv --from 10s": "no power over time in own.csv, or in the part that was asked for",
        "characterise own.csv --from 10s": "own.csv has no rows, or no rows in the part that was asked for",
        "characterise none.csv": "none.csv has no rows",
        "compare own.csv none.csv": "none.csv has no rows",
        "calibrate energy own.csv --profile other.csv": "other.csv: not a calibration profile, since it is not JSON",
        "gather own.csv": "own.csv is a file; give the folder that it is in",
    }.items():
        done = pmtpy(*words.split())
        assert done.returncode in {1, 2}, words
        assert said in done.stderr, words
    (tmp_path / "bare.csv").write_text(
        "time,elapsed,marker,lost,total_W\n0,0,,0,50\n1,1,,0,50\n"
    )  # as that message says
    assert pmtpy("plot", "bare.csv", "-o", "bare.png").returncode == 0


def test_a_region_without_a_label_is_told_how_one_is_written() -> None:
    with pytest.raises(TargetError, match=r"behind its label.*region\('solve', 'rapl'\)"):
        region("rapl:virtual")
