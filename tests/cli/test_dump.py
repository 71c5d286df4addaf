from __future__ import annotations

import argparse
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.cli import main
from pmtpy.cli.dump import add_arguments, dump_paths, linger
from pmtpy.cli.stopping import Stop
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.powersensor3 import VirtualBoard
from pmtpy.emulators.world import make_world
from pmtpy.errors import SourceLostError
from pmtpy.io.write import FILE_FORMATS, FORMATS
from pmtpy.lab.correct_recording import correct_recording
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.cli.conftest import Pmtpy, Started, wait_for
from tests.support.uncertainty.stamped import AVERAGE
from tests.support.worlds import Gauge, counter_sensor


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_a_board_is_logged_frame_by_frame(pmtpy: Pmtpy, board: VirtualBoard, tmp_path: Path) -> None:
    done = pmtpy("dump", f"powersensor3:{board.path}", "-f", "run.csv", "--duration", "500ms")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "joules" in done.stderr
    rows = rows_of(tmp_path / "run.csv")
    steps = [float(b["elapsed"]) - float(a["elapsed"]) for a, b in pairwise(rows)]
    assert max(steps) < 60e-6
    assert len(rows) > 9000
    assert float(rows[-1]["total_J"]) == pytest.approx(60 * float(rows[-1]["elapsed"]), rel=0.002)
    described = json.loads((tmp_path / "run.csv.json").read_text())
    assert described["complete"] is True
    assert described["rows"] == len(rows)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_dump_that_is_stopped_ends_cleanly(started: Started, tmp_path: Path, number: int) -> None:
    path = tmp_path / "run.csv"
    child = started("dump", "powersensor3:virtual", "-f", path)
    wait_for(lambda: size(path) > 100_000)
    child.send_signal(number)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert json.loads(path.with_name("run.csv.json").read_text())["complete"] is True
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the processes of a group")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_signal_to_every_process_of_a_dump_ends_it_whole(
    started: Started, board: VirtualBoard, tmp_path: Path, suffix: str
) -> None:
    """As systemd and Slurm end a job: the relay that reads the port is told as well."""
    path = tmp_path / f"run.{suffix}"
    child = started("dump", f"powersensor3:{board.path}", "-f", path)
    wait_for(lambda: size(path) > 100_000)
    family = [child.pid, *_descendants(child.pid)]
    assert len(family) > 1
    for pid in family:
        os.kill(pid, signal.SIGTERM)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    table = pmt.load(path)
    assert table.attrs["complete"] is True
    assert len(table) > 1000
    assert not table["lost"].any()


def _descendants(pid: int) -> list[int]:
    """Processes that a process has started, and that these have."""
    own = [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    return [*own, *(each for one in own for each in _descendants(one))]


def test_a_killed_dump_leaves_whole_lines_and_a_quiet_board(
    started: Started, board: VirtualBoard, tmp_path: Path
) -> None:
    path = tmp_path / "run.csv"
    child = started("dump", f"powersensor3:{board.path}", "-f", path)
    wait_for(lambda: size(path) > 1_000_000)
    child.kill()
    killed_at = time.time()
    child.wait()
    text = path.read_bytes()
    if not text.endswith(b"\n"):  # the kill fell into a call to the system, which had put a part of it into the file
        notes = pmt.load(path).attrs["notes"]
        assert any("was cut off when the writer was stopped" in note for note in notes), notes
        path.write_bytes(text[: text.rfind(b"\n") + 1])
    rows = rows_of(path)
    assert killed_at - float(rows[-1]["time"]) < 1.0
    assert None not in rows[-1].values()
    assert json.loads(path.with_name("run.csv.json").read_text())["complete"] is False
    frames = -1

    def quiet() -> bool:
        nonlocal frames
        before, frames = frames, board.history().frames
        time.sleep(0.05)
        return bool(before == frames)

    wait_for(quiet)


def test_unplugging_ends_the_dump_with_status_4_and_a_readable_file(
    started: Started, board: VirtualBoard, tmp_path: Path
) -> None:
    path = tmp_path / "run.csv"
    child = started("dump", f"powersensor3:{board.path}", "-f", path)
    wait_for(lambda: size(path) > 100_000)
    board.unplug()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 4, errors
    assert "unplugged" in errors
    assert json.loads(path.with_name("run.csv.json").read_text())["complete"] is False
    assert len(rows_of(path)) > 100


def test_a_sensor_lost_meanwhile_does_not_end_the_files_of_the_others(
    started: Started, board: VirtualBoard, tmp_path: Path
) -> None:
    child = started("dump", f"powersensor3:{board.path}", "rapl:virtual", "--interval", "5ms", "-f", "run.csv")
    other = tmp_path / "run-rapl-virtual.csv"
    wait_for(lambda: size(other) > 1000)
    board.unplug()
    assert child.stderr is not None
    assert "is lost" in child.stderr.readline()
    then = size(other)
    wait_for(lambda: size(other) > then + 1000)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 4, errors
    assert json.loads(other.with_name(f"{other.name}.json").read_text())["complete"] is True


def test_a_reader_that_goes_away_ends_the_dump(started: Started) -> None:
    child = started("dump", "rapl:virtual", "--interval", "5ms")
    assert child.stdout is not None
    assert child.stdout.readline().startswith("time,elapsed,marker,lost,total_W,total_J")
    child.stdout.close()
    assert child.wait(timeout=120) == 0
    assert child.stderr is not None
    assert "Traceback" not in child.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_and_counted(pmtpy: Pmtpy) -> None:
    done = pmtpy("dump", "rapl:virtual", "-f", "/dev/full", "--overwrite", "--interval", "5ms", "--duration", "300ms")
    assert done.returncode != 0
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_for_a_while_does_not_end_the_measurement(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    command = [sys.executable, "-m", "pmtpy", "dump", "powersensor3:virtual", "-f", "run.csv", "--duration", "2s"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (32_000, 32_000)),
    )  # fmt: skip
    assert done.returncode == 1
    assert "the measurement goes on, and writing is tried again" in done.stderr
    told = re.search(r"powersensor3:virtual +([\d.]+) ", done.stderr)
    assert told is not None, done.stderr
    assert float(told[1]) >= 2.0
    assert "rows are missing" in done.stderr


def test_a_file_that_exists_is_kept(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("precious")
    done = pmtpy("dump", "rapl:virtual", "-f", "run.csv", "--duration", "10ms")
    assert done.returncode == 2
    assert "--overwrite" in done.stderr
    assert (tmp_path / "run.csv").read_text() == "precious"


def test_a_file_that_was_deleted_meanwhile_is_not_called_written(pmtpy: Pmtpy) -> None:
    done = pmtpy("dump", "rapl:virtual", "-f", "run.csv", "--", "rm", "run.csv")
    assert "the rows of run.csv are lost: it was deleted meanwhile" in done.stderr
    assert "written: " not in done.stderr


def test_a_folder_that_is_not_there_is_named(pmtpy: Pmtpy) -> None:
    done = pmtpy("dump", "rapl:virtual", "-f", "no/such/folder/run.csv", "--duration", "10ms")
    assert done.returncode == 2
    assert "no/such/folder" in done.stderr


def test_a_command_is_measured_and_keeps_its_streams_and_status(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy(
        "dump",
        "rapl:virtual",
        "nvml:virtual",
        "-f",
        "run.csv",
        "--",
        "sh",
        "-c",
        'cat; echo "a  b"; exit 7',
        input="in\n",
    )
    assert done.returncode == 7
    assert done.stdout == "in\na  b\n"
    assert {p.name for p in tmp_path.glob("*.csv")} == {"run-rapl-virtual.csv", "run-nvml-virtual.csv"}


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["dump", "nosuch"], 2, "powersensor3"),
        (["dump"], 2, "TARGET"),
        (["dump", "rapl:virtual", "rapl:virtual"], 2, "twice"),
        (["dump", "rapl:virtual", "-o", "nosuch=1"], 2, "load"),
        (["dump", "rapl:virtual", "-o", "nosuch"], 2, "key=value"),
        (["dump", "rapl:virtual", "-o", "load=cube:1"], 2, "square:low"),
        (["dump", "rapl:virtual", "--interval", "soon"], 2, "10ms"),
        (["dump", "rapl", "-o", "sysfs_root=/proc/nonexistent"], 3, "remedy"),
        (["dump", "powersensor3:/dev/nosuch"], 3, "/dev/nosuch"),
        (["read", "rapl:virtual", "--", "true"], 2, "no command"),
        (["nosuchverb"], 2, "is not one of: doctor, list"),
        ([], 2, "usage"),
    ],
)
def test_what_is_wrong_is_said_with_the_right_status(pmtpy: Pmtpy, args: list[str], status: int, message: str) -> None:
    done = pmtpy(*args)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_user_of_a_board_is_told_who_has_it(pmtpy: Pmtpy, started: Started, board: VirtualBoard) -> None:
    first = started("dump", f"powersensor3:{board.path}", "-f", "first.csv")
    wait_for(lambda: board.history().frames > 100)
    second = pmtpy("read", f"powersensor3:{board.path}")
    assert second.returncode == 3
    assert str(first.pid) in second.stderr or "in use" in second.stderr


def test_the_environment_gives_target_and_interval(pmtpy: Pmtpy, tmp_path: Path) -> None:
    settings = {"PMT_NAME": "rapl", "PMT_DEVICE": "virtual", "PMT_DUMP_FILE": "env.csv", "PMT_DUMP_INTERVAL": "20"}
    done = pmtpy("dump", "--duration", "205ms", env=settings)
    assert done.returncode == 0, done.stderr
    assert 8 <= len(rows_of(tmp_path / "env.csv")) <= 18  # and one where the summary begins, and where it ends


def test_pmt_dump_is_dump(tmp_path: Path) -> None:
    code = "import sys; from pmtpy.__main__ import main_dump; sys.exit(main_dump())"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, "rapl:virtual", "--duration", "50ms"],
        env={**os.environ, "PYTHONPATH": root}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("time,elapsed")


def test_help_and_page_say_where_several_sensors_are_written_without_a_file() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert "several write TARGET.csv each" in " ".join(parser.format_help().split())
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    assert "several write `rapl-virtual.csv` and so on" in page


def test_files_of_several_sensors_have_the_usual_suffix_of_each_format() -> None:
    for kind in FORMATS:
        (usual,) = (f.suffixes[0] for f in FILE_FORMATS if f.name == kind)
        assert dump_paths(["rapl:0", "nvml:0"], None, kind) == [Path(f"rapl-0{usual}"), Path(f"nvml-0{usual}")]
    assert dump_paths(["a", "b"], None, "powersensor3")[0] == Path("a.ps3")


def beyond_s(path: Path) -> float:
    """Return for how long a dump goes on behind the end of its last region."""
    facts: dict[str, Any] = json.loads(path.with_name(path.name + ".json").read_text())
    assert facts["complete"] is True
    start = facts["anchors"]["start"]
    end_s: float = (facts["regions"][-1]["end_ns"] - start["monotonic_ns"] + start["unix_ns"]) / 1e9
    return float(rows_of(path)[-1]["time"]) - end_s


@pytest.mark.parametrize(
    "words", [("run", "--repeat", 2, "-s", "nvml:virtual", "--dump"), ("dump", "nvml:virtual", "-f")]
)
def test_a_dump_of_a_command_goes_on_for_as_long_as_its_region_can_be_corrected_by(
    pmtpy: Pmtpy, tmp_path: Path, words: tuple[object, ...]
) -> None:
    """A mean of 1 s that is renewed each 0.1 s is half a second late: it shows the end of a region 1.7 s later."""
    options = ("-o", "noise_w=0.3", "-o", "load=constant:100", "-o", "calibration=none")
    done = pmtpy(*words, "run.csv", *options, "--", sys.executable, "-c", "import time; time.sleep(0.4)")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "run.csv"
    assert beyond_s(path) > 0.5 + 1.0 + 2.0 * 0.1
    table = pmt.load(path)
    profile, said = AVERAGE.profile(Identity.read(table.attrs["metadata"]["identity"])), list[str]()
    found = correct_recording(table, profile, report=said.append)
    assert len(found) == (2 if "run" in words else 1)
    assert not any("left out" in note for note in said)
    assert all(e.energy.low <= 100.0 * e.seconds <= e.energy.high for e in found)


class _Power(Gauge):
    """A power that is renewed as often as is said, or nobody knows how often."""

    def __init__(self, clock: ManualClock, refresh_s: float | None) -> None:
        super().__init__(make_world("constant:100", clock=clock))
        self.channels = (Channel("gpu", Quantity.POWER, scale=1e-3, refresh_s=refresh_s), self.channels[1])


@pytest.mark.parametrize(("refresh_s", "rest_s"), [(0.1, 0.2), (5.0, 2.0), (None, 0.0)])
def test_how_long_a_dump_goes_on_is_asked_of_its_sensors(
    monkeypatch: pytest.MonkeyPatch, refresh_s: float | None, rest_s: float
) -> None:
    rests: list[float] = []
    looks: list[float] = []

    def rest(_self: Stop, seconds: float, tell: Callable[[float], None]) -> None:
        rests.append(seconds)
        tell(0.1)  # rows of a stream have come by then, and are forgotten after two seconds

    monkeypatch.setattr(Stop, "rest", rest)
    monkeypatch.setattr(Region, "outcomes", lambda _self: looks.append(1.0))
    clock, _, counter = counter_sensor()
    with counter, Sensor(_Power(clock, refresh_s), "gpu", clock, interval_s=1e6) as gpu:
        with pmt.region("work", gpu, counter) as work:
            clock.advance(1.0)
        for sensors in ([gpu, counter], [counter], []):  # a counter shows an end once it has moved
            linger(work, sensors, Stop())
        acquisition_of(gpu).fail(SourceLostError("it is gone"))
        linger(work, [gpu], Stop())
    assert rests == [pytest.approx(rest_s), 0.0, 0.0, 0.0]
    assert len(looks) == 4


@pytest.mark.parametrize("words", [("run", "-s", "nvml:virtual", "--dump"), ("dump", "nvml:virtual", "-f")])
def test_ctrl_c_ends_a_dump_that_goes_on_behind_its_command_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def rest(_self: Stop, seconds: float, _tell: object) -> None:
        assert seconds == pytest.approx(1.7)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")

    monkeypatch.setattr(Stop, "rest", rest)
    assert main([*words, str(tmp_path / "run.csv"), "--", "sh", "-c", "exit 7"]) == 7
    assert json.loads((tmp_path / "run.csv.json").read_text())["complete"] is True


def test_a_duration_beside_a_command_is_said_to_do_nothing(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy("dump", "rapl:virtual", "-f", "run.csv", "--duration", "1h", "--", "true")
    assert done.returncode == 0
    assert "note: the dump ends with the command, not after --duration" in done.stderr
    assert (tmp_path / "run.csv").exists()
