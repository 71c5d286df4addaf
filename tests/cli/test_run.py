from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.cli import gather as gather_verb
from pmtpy.cli import report
from pmtpy.cli.command import _HEARD_S
from pmtpy.cli.page import plain
from pmtpy.cli.run import Run, document, page
from pmtpy.cluster.gather import gather
from pmtpy.cluster.node import read_node
from pmtpy.emulators.powersensor3 import VirtualBoard
from pmtpy.errors import SourceLostError
from pmtpy.regions.measurement import Measurement
from tests.cli.conftest import ROOT, Pmtpy, Started, wait_for
from tests.support.worlds import counter_sensor

MEASURED = Measurement(
    target="t", name="total", virtual=False, seconds=1.0, joules=50.0, watts=50.0, uncertainty_joules=0.1,
    method="counter", refresh_s=None, window_s=None, coverage=1.0, lost=0, warnings=(),
)  # fmt: skip
WAITING = ("sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.02; done; exit 3")


def test_the_report_of_a_run_is_complete(pmtpy: Pmtpy) -> None:
    done = pmtpy(
        "run", "-s", "rapl:virtual", "-s", "nvml:virtual", "--json", "--", "sh", "-c", "echo out; sleep 0.4; exit 3"
    )
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert "out" in done.stderr  # its stdout makes room for the document
    assert report["command"][0] == "sh"
    assert report["exit_status"] == 3
    assert report["seconds"] > 0.4
    assert [s["target"] for s in report["sensors"]] == ["rapl:virtual", "nvml:virtual"]
    for sensor in report["sensors"]:
        assert sensor["virtual"] is True
        assert set(sensor) >= {"seconds", "total", "channels", "coverage", "lost", "warnings"}
        assert set(sensor["total"]) == {"joules", "watts", "uncertainty_joules", "method"}
        assert any("virtual" in w for w in sensor["warnings"])
    both = sum(s["total"]["joules"] for s in report["sensors"])
    assert report["total"]["joules"] == pytest.approx(both, rel=1e-6)  # a processor and a GPU: both are counted


def test_a_command_whose_words_are_no_utf8_keeps_its_results(pmtpy: Pmtpy, tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\xffb")
    command = ("sh", "-c", "exit 3", odd)
    for options in (("--into", "nodes"), ("--dump", f"{odd}.csv")):
        done = pmtpy("run", "-s", "rapl:virtual", *options, "--", *command)
        assert done.returncode == 3, done.stderr
    (node,) = (tmp_path / "nodes").iterdir()
    assert json.loads(node.read_text())["energy"]
    metadata = json.loads((tmp_path / f"{odd}.csv.json").read_text())
    assert metadata["complete"] is True
    assert metadata["regions"][0]["label"] == " ".join(command)
    for trace in ("r.pftrace", "r.json", "r.otf2"):
        assert pmtpy("convert", f"{odd}.csv", trace).returncode == 0
    events = json.loads((tmp_path / "r.json").read_text())["traceEvents"]
    assert any(event.get("name") == r"sh -c exit 3 a\udcffb" for event in events)
    assert not list(tmp_path.glob("**/*.tmp"))


def test_a_meter_and_a_processor_have_no_total(pmtpy: Pmtpy, tmp_path: Path) -> None:
    both = ("run", "-s", "rapl:virtual", "-s", "powersensor3:virtual")
    done = pmtpy(*both, "--json", "--output", "r.json", "--", "true")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["total"] is None
    said = "an external meter (powersensor3:virtual) may see what a built-in sensor sees (rapl:virtual)"
    assert f"no total: {said}" in " ".join(pmtpy(*both, "--", "true").stderr.split())


def test_the_report_goes_to_the_file_and_the_streams_stay_the_commands_own(pmtpy: Pmtpy, tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write(sys.stdin.read()); sys.stderr.write('err')"
    done = pmtpy(
        "run", "-s", "rapl:virtual", "--json", "--output", "r.json", "--", sys.executable, "-c", code, input="a b\n"
    )
    assert (done.stdout, done.stderr) == ("a b\n", "err")
    assert json.loads((tmp_path / "r.json").read_text())["exit_status"] == 0


@pytest.mark.parametrize("others", [[], ["-s", "rapl:virtual"]])
def test_a_sensor_lost_meanwhile_costs_neither_the_report_nor_the_status_of_the_command(
    started: Started, board: VirtualBoard, tmp_path: Path, others: list[str]
) -> None:
    child = started("run", "-s", f"powersensor3:{board.path}", *others, "--json", "--output", "r.json", "--", *WAITING)
    wait_for((tmp_path / "running").exists)
    board.unplug()
    assert child.stderr is not None
    assert "is lost" in child.stderr.readline()
    (tmp_path / "go").touch()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 3, errors
    assert "Traceback" not in errors
    report = json.loads((tmp_path / "r.json").read_text())
    lost, *measured = report["sensors"]
    assert "unplugged" in lost["error"]
    assert report["seconds"] > 0.0
    assert report["total"] is None
    assert [m["target"] for m in measured] == others[1:]
    assert all(m["total"]["joules"] > 0.0 for m in measured)


@pytest.mark.parametrize("others", [[], ["-s", "rapl:virtual"]])
def test_a_sensor_lost_before_the_run_begins_does_not_keep_the_command_from_starting(
    started: Started, board: VirtualBoard, tmp_path: Path, others: list[str]
) -> None:
    script = "[ -e warm ] && { touch ran; exit 3; }; touch warm; while [ ! -e go ]; do sleep 0.02; done"
    child = started(
        "run", "-s", f"powersensor3:{board.path}", *others, "--warmup", "1", "--dump", "rows.csv", "--json", "--output",
        "r.json", "--", "sh", "-c", script,
    )  # fmt: skip
    wait_for((tmp_path / "warm").exists)
    board.unplug()
    assert child.stderr is not None
    assert "is lost" in child.stderr.readline()  # and only then the region of the run is entered
    (tmp_path / "go").touch()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 3, errors
    assert (tmp_path / "ran").exists()
    assert "is not logged" in errors
    assert "Traceback" not in errors
    report = json.loads((tmp_path / "r.json").read_text())
    lost, *measured = report["sensors"]
    assert "unplugged" in lost["error"]
    assert report["seconds"] > 0.0
    assert report["total"] is None
    assert [m["target"] for m in measured] == others[1:]
    assert all(m["total"]["joules"] > 0.0 for m in measured)


@pytest.mark.parametrize("verb", [("run", "-s"), ("dump",), ("compare", "nvml:virtual")])
def test_a_report_that_cannot_be_written_is_refused_before_the_command_runs(
    pmtpy: Pmtpy, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    done = pmtpy(*verb, "rapl:virtual", "--output", "nowhere/r.txt", "--", "touch", "ran")
    assert done.returncode == 2
    assert "cannot write nowhere/r.txt: there is no folder nowhere" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_report_that_cannot_be_written_after_all_is_not_lost(pmtpy: Pmtpy, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = pmtpy("run", "-s", "rapl:virtual", "--output", "out/r.txt", "--", "sh", "-c", "rmdir out; exit 3")
    assert done.returncode == 3
    assert "cannot write out/r.txt" in done.stderr
    assert "package0" in done.stderr


def test_a_command_without_the_dashes_is_told_where_they_go(pmtpy: Pmtpy) -> None:
    done = pmtpy("run", "-s", "rapl:virtual", "sleep", "1")
    assert done.returncode == 2
    assert "a command goes after --" in done.stderr


def test_a_command_in_quotation_marks_is_told_to_leave_them_out(pmtpy: Pmtpy) -> None:
    found = pmtpy("run", "-s", "rapl:virtual", "--", "sleep 1")
    assert found.returncode == 127
    assert "sleep 1: command not found; leave out the quotation marks" in found.stderr


def test_a_table_says_what_it_is(pmtpy: Pmtpy) -> None:
    done = pmtpy("run", "-s", "rapl:virtual", "--baseline", "50ms", "--", "sleep", "0.1")
    assert done.stdout == ""
    for word in ("joules", "package0", "virtual", "not subtracted", "one standard uncertainty"):
        assert word in done.stderr


def test_a_run_says_what_its_calibration_corrected(pmtpy: Pmtpy, tmp_path: Path) -> None:
    estimate = {"value": 1000.0, "low": 999.0, "high": 1001.0}
    found = {
        "channel": "gpu.average",
        "update_period_ms": {"value": 100.0, "low": 99.99, "high": 100.01},
        "kernel": {"family": "boxcar", "window_ms": estimate, "tau_ms": None, "offset_ms": None},
        "gradient": {"value": 1.0, "low": 0.99, "high": 1.01},
        "intercept_w": {"value": 0.0, "low": -0.5, "high": 0.5},
    }
    (tmp_path / "found.json").write_text(json.dumps(found))
    made = pmtpy(
        "calibrate", "profile", "found.json", "--target", "nvml:virtual", "--range", "20,700", "-o", "profile.json"
    )
    assert made.returncode == 0, made.stderr
    target = ("-s", "nvml:virtual", "-o", "calibration=profile.json", "-o", "total=average")
    done = pmtpy("run", *target, "--json", "--", "sleep", "0.9")
    (sensor,) = json.loads(done.stdout)["sensors"]
    assert sensor["total"]["method"] == sensor["channels"]["gpu.average"]["method"] == "integrated, reconstruction"
    assert sensor["channels"]["gpu.instant"]["method"] == "integrated, lag corrected"  # its window is stated
    shown = pmtpy("run", *target, "--", "sleep", "0.9").stderr
    assert "integrated, reconstruction, virtual" in shown


def test_repeats_have_mean_spread_and_interval(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy(
        "run", "-s", "rapl:virtual", "-o", "load=constant:50", "--repeat", "3", "--warmup", "1", "--json",
        "--output", "r.json", "--", "sh", "-c", "echo ran; sleep 0.1",
    )  # fmt: skip
    assert done.stdout == "ran\n" * 4
    repeat = json.loads((tmp_path / "r.json").read_text())["repeat"]
    assert repeat["n"] == 3
    energy = repeat["sensors"]["rapl:virtual"]["joules"]
    assert energy["low"] < energy["mean"] < energy["high"]
    assert energy["std"] > 0
    assert repeat["sensors"]["rapl:virtual"]["watts"]["mean"] == pytest.approx(50, rel=0.02)


def test_a_run_that_fails_ends_the_repeats(pmtpy: Pmtpy) -> None:
    done = pmtpy("run", "-s", "rapl:virtual", "--repeat", "5", "--", "sh", "-c", "echo ran; exit 9")
    assert done.returncode == 9
    assert done.stdout == "ran\n"
    assert "run 1 of 5 ended with status 9" in done.stderr


def test_a_run_that_failed_is_in_no_mean() -> None:
    runs = [Run(0, 1.0, {}, None, {}), Run(0, 3.0, {}, None, {}), Run(7, 90.0, {}, None, {})]
    repeat = document(["x"], runs, None, 5)["repeat"]
    assert (repeat["n"], repeat["asked"], repeat["seconds"]["mean"]) == (2, 5, 2.0)
    assert document(["x"], runs[1:], None, 5)["repeat"]["seconds"] is None
    for seen in (False, True):
        shown = plain(page(runs, None, 5, seen=seen))
        assert "run 3 of 5 ended with status 7" in shown
        assert "2 runs that ended well" in shown
        assert "the last of" not in shown


def test_a_run_whose_energy_is_not_known_is_in_no_mean() -> None:
    def measured(joules: float, coverage: float) -> Measurement:
        return replace(MEASURED, joules=joules, coverage=coverage)

    shares = ((50.0, 1.0), (48.5, 0.97), (20.0, 0.4))
    runs = [Run(0, 1.0, {"t": measured(*share)}, None, {}) for share in shares]
    (found,) = document(["x"], runs, None, 3)["repeat"]["sensors"].values()
    assert (found["n"], found["joules"]["mean"], found["joules"]["std"]) == pytest.approx((2, 50.0, 0.0))
    for seen in (False, True):
        shown = plain(page(runs, None, 3, seen=seen))
        assert "t: left out 1 of 3 runs: less than 95% of their energy is known" in shown


def test_the_page_tells_each_key_of_the_document() -> None:
    def measured(name: str, **channels: Measurement) -> Measurement:
        return replace(MEASURED, target="TARGET", name=name, channels=channels)

    def keys(found: object) -> set[str]:
        inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        return set(found if isinstance(found, dict) else ()).union(*map(keys, inner))

    one = measured("total", CHANNEL=measured("CHANNEL"))
    lost = Run(0, 1.0, {"TARGET": SourceLostError("gone")}, None, {"TARGET": one})
    runs = [Run(0, 1.0, {"TARGET": one}, one, {}), Run(0, 1.0, {"TARGET": one}, one, {}), lost]
    made = keys(document(["x"], runs, {"TARGET": one}, 3)) - {"TARGET", "CHANNEL"}
    told = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    assert len(made) > 20
    assert not [key for key in made if f"`{key}`" not in told]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["nosuchcommand"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["sh", "-c", "kill -9 $$"], 137),
    ],
)
def test_the_status_is_the_commands_own(pmtpy: Pmtpy, command: list[str], status: int) -> None:
    assert pmtpy("run", "-s", "rapl:virtual", "--", *command).returncode == status


@pytest.mark.parametrize(("command", "status"), [("nosuchcommand", 127), ("/etc/passwd", 126)])
def test_of_a_command_that_never_ran_nothing_is_reported(pmtpy: Pmtpy, command: str, status: int) -> None:
    done = pmtpy("run", "-s", "rapl:virtual", "--", command)
    assert len(done.stderr.splitlines()) == 1
    told = json.loads(pmtpy("run", "-s", "rapl:virtual", "--json", "--", command).stdout)
    assert (told["exit_status"], told["sensors"], told["total"]) == (status, [], None)


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["dump", "rapl:virtual", "-f", "out.csv"], 1),
        (["compare", "rapl:virtual", "nvml:virtual"], 0),
        (["compare", "rapl:virtual", "nvml:virtual", "--json"], 0),
    ],
)
def test_nor_is_it_by_the_other_verbs(pmtpy: Pmtpy, tmp_path: Path, words: list[str], files: int) -> None:
    done = pmtpy(*words, "--", "nosuchcommand")
    assert done.returncode == 127
    assert done.stdout == ""
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["pmtpy", "written"][: 1 + files]
    assert len(list(tmp_path.glob("*.csv"))) == files


def test_a_node_on_which_the_command_does_not_start_has_used_nothing_that_is_known(pmtpy: Pmtpy) -> None:
    assert pmtpy("run", "--into", "out", "-s", "rapl:virtual", "--", "nosuchcommand").returncode == 127
    told = pmtpy("gather", "out", "--json")
    assert told.returncode == 1
    assert "nosuchcommand could not be started" in told.stdout


RAPL = ("-s", "rapl:virtual", "-o", "load=constant:60")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs sockets without a file")
Rank = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def rank(started: Started, tmp_path: Path) -> Rank:
    """Start the command of one of two processes of a node."""

    def of(number: int, *command: str, into: str = "--into") -> subprocess.Popen[str]:
        ompi = {"RANK": number, "SIZE": 2, "LOCAL_RANK": number, "LOCAL_SIZE": 2}
        env = {"PMIX_NAMESPACE": str(tmp_path), **{f"OMPI_COMM_WORLD_{k}": str(v) for k, v in ompi.items()}}
        return started("run", *into.split(), "out", *RAPL, "--", *command, env=env)

    return of


def of_node(tmp_path: Path) -> dict[str, Any]:
    (file,) = (tmp_path / "out").iterdir()
    return dict(json.loads(file.read_text())["energy"])


@linux
def test_a_node_is_measured_until_the_last_command_of_its_job_has_ended(rank: Rank, tmp_path: Path) -> None:
    other = rank(1, "sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.02; done")
    reader = rank(0, "touch", "ended")
    for name in ("running", "ended"):
        wait_for((tmp_path / name).exists)
    time.sleep(0.3)  # which the other takes longer
    (tmp_path / "go").touch()
    assert (other.wait(), reader.wait()) == (0, 0)
    assert of_node(tmp_path)["seconds"] >= 0.3


@linux
@pytest.mark.parametrize("heard", ["exit 0", "touch ignored"])
@pytest.mark.parametrize("killed", [True, False])
def test_what_was_used_until_a_launcher_asks_to_end_is_known_even_if_it_kills_what_does_not(
    *, heard: str, killed: bool, rank: Rank, tmp_path: Path
) -> None:
    until = "while [ ! -e go ]; do sleep 0.02; done"
    other = rank(1, "sh", "-c", until)
    reader = rank(0, "sh", "-c", f"trap '{heard}' TERM; touch running; {until}")
    wait_for((tmp_path / "running").exists)
    time.sleep(0.5)  # which is to be measured
    reader.send_signal(signal.SIGTERM)
    wait_for(lambda: all(read_node(file).energy for file in (tmp_path / "out").glob("*.json")))
    if killed:
        reader.kill()
    else:
        (tmp_path / "go").touch()
    assert reader.wait() == (-signal.SIGKILL if killed else 0)
    (tmp_path / "go").touch()
    assert other.wait() == 0
    job = gather(tmp_path / "out")
    assert job.complete == (not killed)
    assert any("what was used from then on is not in its energy" in text for text in job.problems) == killed
    assert job.known.seconds >= 0.5
    assert job.known.joules == pytest.approx(60.0 * job.known.seconds, abs=2.0 * job.known.uncertainty_joules)


@linux
def test_of_a_launcher_that_asks_to_end_while_others_run_it_is_said_that_their_rest_is_not_in(
    rank: Rank, tmp_path: Path
) -> None:
    other = rank(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done")
    reader = rank(0, "sh", "-c", "trap '' TERM; sleep 0.3; touch ended")
    wait_for((tmp_path / "ended").exists)

    def has_ended() -> bool:  # the first may still be its command's
        reader.send_signal(signal.SIGTERM)
        return reader.poll() is not None

    wait_for(has_ended)
    assert reader.wait() in {128 + signal.SIGTERM, -signal.SIGTERM}  # it is asked once more on its way out
    (tmp_path / "go").touch()
    assert other.wait() == 0
    job = gather(tmp_path / "out")
    assert "asked to end while other processes of the node ran" in " ".join(job.problems)
    assert job.known.joules == pytest.approx(60.0 * job.known.seconds, abs=2.0 * job.known.uncertainty_joules)


@linux
def test_one_that_is_told_without_a_pause_sees_its_command_end(rank: Rank, tmp_path: Path) -> None:
    # For each signal the witness is asked, which takes longer than it takes the next one to come.
    reader = rank(0, "sh", "-c", "trap '' TERM; touch running; sleep 1; touch ended")
    wait_for((tmp_path / "running").exists)

    def has_ended() -> bool:
        reader.send_signal(signal.SIGTERM)
        return reader.poll() is not None

    wait_for(has_ended)
    assert (tmp_path / "ended").exists()


@linux
@pytest.mark.parametrize(
    ("ends", "status", "said"),
    [
        ("exit 5", 5, "the command of rank 1 ended with status 5"),
        ("kill -KILL $$", -signal.SIGKILL, "the command of rank 1 ended with status 137"),
        ("kill -TERM $$", 143, "the command of rank 1 ended with status 143"),
        (
            "kill -KILL $PPID",
            -signal.SIGKILL,
            "how the command of rank 1 ended is not known, nor whether its energy is all in: its pmtpy run was killed",
        ),
    ],
)
def test_a_rank_that_fails_while_the_first_does_not_is_named_by_the_first(
    ends: str, status: int, said: str, rank: Rank, tmp_path: Path
) -> None:
    # A launcher may let the others go on (that of MPICH, where a command exits before it has called MPI).
    reader = rank(0, "true", into="--mpi --json --patience 24h --into")
    other = rank(1, "sh", "-c", f"touch running; while [ ! -e go ]; do sleep 0.02; done; {ends}")
    wait_for((tmp_path / "running").exists)
    (tmp_path / "go").touch()
    assert other.wait() == status
    out, _ = reader.communicate()
    assert reader.returncode == 0  # its own command's
    told = json.loads(out)
    (problem,) = told["problems"]
    assert said in problem
    assert not told["complete"]
    assert gather(tmp_path / "out").problems == (problem,)
    assert "sum of 1 node" in plain(gather_verb.page(gather(tmp_path / "out")))


@linux
def test_of_a_first_that_fails_what_others_had_ended_with_by_then_is_told_as_well(rank: Rank, tmp_path: Path) -> None:
    reader = rank(0, "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; exit 3")
    assert rank(1, "sh", "-c", "exit 5").wait() == 5
    (tmp_path / "go").touch()
    assert reader.wait() == 3
    said = [problem.partition(": ")[2] for problem in gather(tmp_path / "out").problems]
    assert said == [f"the command of rank {n} ended with status {status}" for n, status in ((0, 3), (1, 5))]
    assert not any("others of the node ran" in w for w in of_node(tmp_path)["warnings"])


@linux
def test_of_a_first_that_fails_it_is_said_that_what_others_use_further_on_is_not_in(rank: Rank, tmp_path: Path) -> None:
    reader = rank(0, "sh", "-c", "while [ ! -e running ]; do sleep 0.02; done; exit 3")
    other = rank(1, "sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.02; done")
    assert reader.wait() == 3
    (tmp_path / "go").touch()
    assert other.wait() == 0
    said = "the command of the process that measures failed while others of the node ran"
    assert sum(w.startswith(said) for w in of_node(tmp_path)["warnings"]) == 1


@pytest.fixture
def sysfs(tmp_path: Path) -> Iterator[Path]:
    """A machine with a counter that shows 100 W, for whoever reads it."""
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "262143328850"), ("energy_uj", "0" * 14)):
        (zone / name).write_text(f"{text}\n")
    ended = threading.Event()

    def move() -> None:
        with (zone / "energy_uj").open("r+b", buffering=0) as file:
            while not ended.wait(0.001):
                os.pwrite(file.fileno(), b"%014d\n" % (time.monotonic_ns() // 10 % 10**14), 0)

    mover = threading.Thread(target=move)
    mover.start()
    yield tmp_path / "sys"
    ended.set()
    mover.join()


@linux
@pytest.mark.parametrize("folders", [("out", "out"), ("out", "other")])
def test_of_two_jobs_that_share_a_node_each_says_that_the_other_has_its_energy(
    folders: tuple[str, str], sysfs: Path, started: Started, tmp_path: Path
) -> None:
    runs = []
    for number, folder in enumerate(folders):
        ompi = dict(each.split("=") for each in OPEN_MPI.format(0, 1).split()) | {"OMPI_COMM_WORLD_SIZE": "1"}
        env = {**ompi, "PMIX_NAMESPACE": f"{tmp_path}/{number}", "PMT_SYSFS_ROOT": str(sysfs)}
        words = f"touch running{number}; while [ ! -e go{number} ]; do sleep 0.02; done"
        command = ("run", "--mpi", "--json", "--into", folder, "-s", "rapl", "--", "sh", "-c", words)
        runs.append(started(*command, env=env))
        wait_for((tmp_path / f"running{number}").exists)
    shown = sysfs / "class/powercap/intel-rapl:0/energy_uj"
    first_uj = int(shown.read_text())
    wait_for(lambda: int(shown.read_text()) > first_uj + 10**8)  # a second, all of which a busy machine may not read
    said = []
    for number in (1, 0):  # the first runs while the second is reported, whose result the first then finds
        (tmp_path / f"go{number}").touch()
        out, errors = runs[number].communicate()
        assert runs[number].returncode == 0, errors
        known = json.loads(out)["known"]
        assert known["joules"] is not None, known
        said.append(known["warnings"])
    assert all(sum("measured by another pmtpy command at the same time" in w for w in each) == 1 for each in said)
    of_the_folder = [w for w in said[1] if "measured by another job of the folder as well" in w]
    assert len(of_the_folder) == (folders[0] == folders[1])
    if of_the_folder:  # the second is within the first
        (within,) = gather(tmp_path / "out", job=f"{tmp_path}/1").values()
        assert f"for up to {within.end_s - within.begin_s:.4g} s of the same time" in of_the_folder[0]


@linux
def test_of_two_commands_that_are_measured_at_once_each_says_that_the_other_is_in_its_energy(
    sysfs: Path, started: Started, tmp_path: Path
) -> None:
    runs = []
    for number in range(2):
        words = f"touch running{number}; while [ ! -e go{number} ]; do sleep 0.02; done"
        command = ("run", "--json", "-s", "rapl", "--", "sh", "-c", words)
        runs.append(started(*command, env={"PMT_SYSFS_ROOT": str(sysfs)}))
        wait_for((tmp_path / f"running{number}").exists)
    for number, run in enumerate(runs):
        (tmp_path / f"go{number}").touch()
        out, errors = run.communicate()
        assert run.returncode == 0, errors
        said = json.loads(out)
        warnings = [*said["sensors"][0]["warnings"]]
        assert sum("measured by another pmtpy command at the same time" in w for w in warnings) == 1


LISTENER = """
import os, signal, sys
heard = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
with open("heard", "w", buffering=1) as file:
    print("ready", file=file)
    while True:
        number = signal.sigwait(heard)
        print(number.name, file=file)
        if number == signal.SIGUSR2:
            sys.exit()
"""


@pytest.fixture
def listening(started: Started, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A job of one process in a session of its own, as launchers start it, whose command writes down what it hears."""
    words = ("run", "--into", "out", *RAPL, "--", sys.executable, "-c", LISTENER)
    child = started(*words, start_new_session=True)
    wait_for(lambda: heard_in(tmp_path)[:1] == ["ready"])
    yield child
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def heard_in(folder: Path) -> list[str]:
    file = folder / "heard"
    return file.read_text().splitlines() if file.exists() else []


@linux
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_what_a_launcher_tells_to_a_whole_group_its_command_hears_once(
    number: signal.Signals, listening: subprocess.Popen[str], tmp_path: Path
) -> None:
    group, before = [number.name], list[str]()
    for i in range(2):  # another witness, once the command has heard: two signals that nobody has taken yet are one
        wait_for(lambda old=before: len(now := witnesses(listening.pid)) == 1 and now != old)  # type: ignore[misc]
        before = witnesses(listening.pid)
        os.killpg(listening.pid, number)
        wait_for(lambda i=i: len(heard_in(tmp_path)) == 2 + i)  # type: ignore[misc]
    wait_for(lambda: len(witnesses(listening.pid)) == 1 and witnesses(listening.pid) != before)
    listening.send_signal(signal.SIGUSR2)  # to it alone: that is passed on
    assert listening.wait(240) == 0
    assert heard_in(tmp_path) == ["ready", *group * 2, "SIGUSR2"]


@linux
def test_what_a_group_is_told_is_heard_once_also_where_the_witness_comes_to_it_late(
    listening: subprocess.Popen[str], tmp_path: Path
) -> None:
    wait_for(lambda: len(witnesses(listening.pid)) == 1)
    (witness,) = before = witnesses(listening.pid)
    os.kill(int(witness), signal.SIGSTOP)
    state = Path(f"/proc/{witness}/stat")
    wait_for(lambda: state.read_text("utf-8").rpartition(") ")[2].startswith("T"))
    os.killpg(listening.pid, signal.SIGUSR1)
    wait_for(lambda: len(heard_in(tmp_path)) == 2)
    time.sleep(2.0 * _HEARD_S)  # longer than it is waited for
    os.kill(int(witness), signal.SIGCONT)
    wait_for(lambda: len(witnesses(listening.pid)) == 1 and witnesses(listening.pid) != before)
    listening.send_signal(signal.SIGUSR2)
    assert listening.wait(240) == 0
    assert heard_in(tmp_path) == ["ready", "SIGUSR1", "SIGUSR2"]


@linux
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_what_is_told_to_the_process_that_measures_alone_its_command_hears_as_well(
    number: signal.Signals, listening: subprocess.Popen[str], tmp_path: Path
) -> None:
    listening.send_signal(number)
    wait_for(lambda: heard_in(tmp_path) == ["ready", number.name])
    listening.send_signal(signal.SIGUSR2)
    assert listening.wait(240) == 0


@pytest.fixture
def in_a_batch(started: Started, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The script of a batch of Slurm, whose command is in a group of its own and writes down what it hears."""
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}
    child = started("run", *RAPL, "--", sys.executable, "-c", LISTENER, env=job, start_new_session=True)
    wait_for(lambda: heard_in(tmp_path)[:1] == ["ready"])
    yield child
    for pid in below(child.pid):
        os.kill(pid, signal.SIGKILL)


@linux
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_what_slurm_tells_to_every_process_of_a_job_a_command_apart_hears_once(
    number: signal.Signals, in_a_batch: subprocess.Popen[str], tmp_path: Path
) -> None:
    child, before = in_a_batch, list[int]()
    for i in range(2):
        wait_for(lambda old=before: len(now := below(child.pid)) == 2 and now != old)  # type: ignore[misc]
        before = below(child.pid)
        for pid in (*before, child.pid):  # of three groups; the one that waits for the others last
            os.kill(pid, number)
        wait_for(lambda i=i: len(heard_in(tmp_path)) == 2 + i)  # type: ignore[misc]
    wait_for(lambda: len(below(child.pid)) == 2 and below(child.pid) != before)
    child.send_signal(signal.SIGUSR2)  # to it alone: that is passed on
    assert child.wait(240) == 0
    assert heard_in(tmp_path) == ["ready", *[number.name] * 2, "SIGUSR2"]


@linux
def test_of_one_that_is_killed_nothing_is_left_but_its_command(
    listening: subprocess.Popen[str], tmp_path: Path
) -> None:
    wait_for(lambda: len(witnesses(listening.pid)) == 1)
    listening.kill()
    listening.wait()
    wait_for(lambda: not witnesses(listening.pid))
    os.killpg(listening.pid, signal.SIGUSR2)
    wait_for(lambda: heard_in(tmp_path) == ["ready", "SIGUSR2"])


def below(parent: int) -> list[int]:
    """The processes that one has started and that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, ppid, *_ = stat.read_text("utf-8", "replace").rpartition(") ")[2].split()
            if int(ppid) == parent and state not in "ZX":
                found.append(int(stat.parent.name))
    return sorted(found)


def witnesses(group: int) -> list[str]:
    """The processes of a group that only listen."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, _, rest = stat.read_text("utf-8", "replace").partition(" (")
            name, _, fields = rest.rpartition(") ")
            if name == "cat" and fields.split()[0] not in "ZX" and int(fields.split()[2]) == group:
                found.append(pid)
    return found


OPEN_MPI = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK={} OMPI_COMM_WORLD_LOCAL_SIZE={}"


@pytest.mark.parametrize(
    ("into", "told", "lines"),
    [
        ("", OPEN_MPI.format(0, 4), 1),
        ("", OPEN_MPI.format(3, 4), 0),  # once is enough
        ("", OPEN_MPI.format(0, 1), 0),
        ("", "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=1,2 SLURM_NODEID=1 SLURM_LOCALID=0", 1),
        ("", "SLURM_JOB_ID=7 SLURM_TASKS_PER_NODE=2 SLURM_NODEID=0 SLURM_LOCALID=0", 0),  # a batch script is one
        ("--into=out", OPEN_MPI.format(0, 4), 0),
    ],
)
def test_where_a_launcher_started_several_processes_on_a_node_it_is_said_that_a_sensor_sees_all_of_them(
    into: str, told: str, lines: int, pmtpy: Pmtpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith(("SLURM_", "OMPI_", "PMI", "LOCAL_RANK")):
            monkeypatch.delenv(name)
    env = dict(each.split("=") for each in told.split())
    done = pmtpy("run", *filter(None, [into]), "-s", "rapl:virtual", "--", "true", env=env)
    assert done.returncode == 0
    assert sum("--mpi (or --into DIR)" in line for line in done.stderr.splitlines()) == lines
    dumped = pmtpy("dump", "rapl:virtual", "-f", "run.csv", "--", "true", env=env)
    assert dumped.returncode == 0
    assert sum("one dump on each node is enough" in line for line in dumped.stderr.splitlines()) == (
        lines or bool(into)
    )


BATCH = "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=n[0-1] SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0"
SHELL = "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1"
STEP = "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)"


@pytest.mark.parametrize(
    ("told", "of_run", "of_dump"),
    [
        (f"{BATCH} SLURMD_NODENAME=n0", "n0 alone", "n0 alone"),  # the script of a batch
        (f"{BATCH} SLURMD_NODENAME=n0 {SHELL} SLURM_STEP_NODELIST=n0", "n0 alone", "n0 alone"),  # salloc
        (BATCH, "no node of this job (n[0-1])", "no node of this job"),  # its shell on a login node
        ("SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n0", "no node of this job (n0)", "no node of"),
        ("SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n0 SLURMD_NODENAME=n0", "", ""),
        (f"{BATCH} SLURMD_NODENAME=n0 {STEP} SLURM_STEP_NODELIST=n[0-1]", "n0 alone", ""),  # a log of each node
    ],
)
def test_where_a_job_has_other_nodes_it_is_said_that_the_numbers_are_those_of_one(
    told: str, of_run: str, of_dump: str, pmtpy: Pmtpy
) -> None:
    env = dict(each.split("=") for each in told.split())
    for said, words in ((of_run, ("run", "-s")), (of_dump, ("dump", "-f", "run.csv"))):
        done = pmtpy(*words, "rapl:virtual", "--", "true", env=env)
        assert done.returncode == 0
        assert said in done.stderr
        assert ("of this job" in done.stderr or "this job has" in done.stderr) == bool(said)


def test_the_script_of_a_batch_waits_for_no_node_but_says_that_they_lack(pmtpy: Pmtpy) -> None:
    env = dict(each.split("=") for each in f"{BATCH} SLURMD_NODENAME=n0".split())
    words = ("run", "--mpi", "--patience", "24h", "--json", "-s", "rapl:virtual", "--", "true")
    done = pmtpy(*words, env=env)  # and not a day
    assert "this job has 2 nodes, and the numbers are those of n0 alone; started by the launcher" in done.stderr
    assert json.loads(done.stdout)["missing"] == {"n1": "no result of it is here"}


GPUS = """
import sys
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.nvml import VirtualDriver, make_gpu, private_pynvml
from pmtpy.emulators.world import make_world
driver = VirtualDriver(make_world("constant:100", clock=HOST_CLOCK), [make_gpu("h100", i) for i in range(2)])
sys.modules["pynvml"] = private_pynvml(driver)
from pmtpy.__main__ import main
sys.exit(main())
"""


@linux
@pytest.mark.parametrize(("seen", "target"), [("0", "nvml:0"), ("1", "nvml:0"), ("1", "accelerator")])
def test_a_number_that_means_another_gpu_to_each_process_of_a_node_makes_no_energy(
    seen: str, target: str, tmp_path: Path
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (extra nvml)")
    (tmp_path / "pmtpy.toml").write_text('[combine.accelerator]\nrails = ["nvml:0", "rapl:virtual"]\n')
    words = [sys.executable, "-c", GPUS, "run", "--into", "out", "-s", target, "--", "sleep", "0.3"]
    ranks = []
    for i, visible in enumerate(("0", seen)):
        ompi = {"RANK": i, "SIZE": 2, "LOCAL_RANK": i, "LOCAL_SIZE": 2}
        env = {"PMIX_NAMESPACE": str(tmp_path), **{f"OMPI_COMM_WORLD_{k}": str(v) for k, v in ompi.items()}}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMT_", "SLURM_"))}
        env |= {**clean, "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": str(ROOT)}
        ranks.append(subprocess.Popen(words, cwd=tmp_path, env=env))
    assert [one.wait(240) for one in ranks] == [0, 0]
    energy = of_node(tmp_path)
    if seen == "0":
        assert energy["joules"] == pytest.approx(100.0 * energy["seconds"], abs=2.0 * energy["uncertainty_joules"])
    else:
        assert energy["joules"] is None
        assert "rank 0 has CUDA_VISIBLE_DEVICES=0 and rank 1 has CUDA_VISIBLE_DEVICES=1" in energy["why"]


@linux
def test_no_command_of_a_node_begins_before_it_is_measured(rank: Rank, tmp_path: Path) -> None:
    # Each says when it ran, in Unix seconds; that of the one that measures is over at once.
    say = "date +%s.%N > begun$0; sleep $0; date +%s.%N > ended$0"
    ranks = [rank(i, "sh", "-c", say, f"0.{2 * i}") for i in (1, 0)]
    assert [one.wait() for one in ranks] == [0, 0]
    energy = of_node(tmp_path)
    assert energy["begin_s"] <= min(float(f.read_text()) for f in tmp_path.glob("begun*"))
    assert energy["end_s"] >= max(float(f.read_text()) for f in tmp_path.glob("ended*"))
    assert not any("pmtpy run" in w for w in energy["warnings"])


@linux
def test_a_process_of_a_node_that_never_comes_is_said(rank: Rank, tmp_path: Path) -> None:
    assert rank(0, "true").wait() == 0
    (told,) = [w for w in of_node(tmp_path)["warnings"] if "pmtpy run" in w]
    assert told.startswith("1 of 2 processes that the launcher started on this node began no command")


@linux
def test_a_process_of_a_node_that_nobody_measures_says_so_and_runs(rank: Rank) -> None:
    alone = rank(1, "sh", "-c", "exit 7")
    _, err = alone.communicate()
    assert alone.returncode == 7
    assert "the process that measures it was not there" in err


def test_options_of_the_command_are_its_own(pmtpy: Pmtpy) -> None:
    done = pmtpy("run", "-s", "rapl:virtual", "--", "echo", "-n", "--json", "-s", "x  y")
    assert done.stdout == "--json -s x  y"


def test_without_any_sensor_it_says_so_before_running_the_command(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy("run", "-s", "rapl", "-o", "sysfs_root=/proc/nonexistent", "--", "touch", "ran")
    assert done.returncode == 3
    assert not (tmp_path / "ran").exists()
    assert "the command was not started, because a sensor that -s names cannot be used" in done.stderr


def test_a_signal_reaches_the_command_and_what_it_started(started: Started, tmp_path: Path) -> None:
    script = "trap 'echo got; exit 5' TERM; echo $$ > pid; (sleep 60 & echo $! > child; wait) & wait"
    child = started("run", "-s", "rapl:virtual", "--", "sh", "-c", script)
    end = time.monotonic() + 240
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=120)
    assert "got" in out
    assert child.returncode == 5
    left = int((tmp_path / "child").read_text())
    for _ in range(500):
        try:
            state = Path(f"/proc/{left}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            break
        if state == "Z":
            break
        time.sleep(0.01)
    else:
        pytest.fail("what the command started outlived it")


def test_a_command_that_is_stopped_and_let_go_on_is_waited_for(pmtpy: Pmtpy) -> None:
    # As a batch system that suspends a job, or a tool that limits the command's share of the processor.
    script = "(sleep 0.3; kill -CONT $$) & kill -STOP $$; wait; exit 3"
    done = pmtpy("run", "-s", "rapl:virtual", "--json", "--", "sh", "-c", script, stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    assert json.loads(done.stdout)["seconds"] > 0.3


@pytest.mark.parametrize("verb", ["run -s rapl:virtual", "dump rapl:virtual -f d.csv"])
def test_what_a_command_leaves_behind_goes_on_and_is_said(pmtpy: Pmtpy, tmp_path: Path, verb: str) -> None:
    script = "(sleep 1; echo whole > written) & echo out"
    done = pmtpy(*verb.split(), "--", "sh", "-c", script, stdin=subprocess.DEVNULL)
    assert "not all that it started: sh (pid" in done.stderr
    assert "is not in the numbers" in done.stderr
    wait_for((tmp_path / "written").exists)
    quiet = pmtpy(*verb.split(), "--overwrite", "--", "true")
    assert "not all" not in quiet.stderr


def test_on_a_terminal_ctrl_c_reaches_the_command_and_the_report_still_comes() -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        script = "trap 'echo interrupted; exit 4' INT; echo ready; read line; echo never"
        words = [sys.executable, "-m", "pmtpy", "run", "-s", "rapl:virtual", "--", "sh", "-c", script]
        os.execv(sys.executable, words)  # noqa: S606  (a terminal of its own needs a fork)
    seen = b""
    end = time.monotonic() + 240
    sent = False
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:
                break
        if b"ready" in seen and not sent:
            os.write(fd, b"\x03")
            sent = True
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert b"interrupted" in seen
    assert b"package0" in seen
    assert os.waitstatus_to_exitcode(status) == 4


def test_what_a_lost_sensor_measured_before_stands_beside_its_error() -> None:
    clock, source, sensor = counter_sensor("constant:10")
    with sensor:
        with pmt.region("half", sensor) as r:
            clock.advance(3)
            sensor.read()
            source.gone = True
            clock.advance(1)
        made = Run(0, r.seconds, r.outcomes(), None, r.until_lost())
    (lost,) = document(["true"], [made], None)["sensors"]
    assert "pulled out" in lost["error"]
    assert lost["target"] == "test"
    assert (lost["coverage"], lost["seconds"]) == pytest.approx((0.75, 4.0))
    assert lost["total"]["joules"] == pytest.approx(30, abs=1e-4)
    assert lost["channels"]["package0"]["watts"] == pytest.approx(20 / 3, abs=1e-4)
    shown = plain(page([made], None))
    assert "75.00% covered" in shown
    assert "note: test: test counter: pulled out" in shown


@pytest.mark.parametrize(
    ("words", "streams", "lost"),
    [
        ("run -s rapl:virtual --json", {"stdout": "full"}, True),
        ("run -s rapl:virtual --json", {"stdout": "gone"}, False),  # whoever goes has seen enough
        ("run -s rapl:virtual", {"stderr": "full"}, True),
        ("run -s rapl:virtual", {"stderr": "gone"}, False),
        ("run -s rapl:virtual --output /dev/full", {}, True),
        ("run -s rapl:virtual --output /dev/full", {"stderr": "full"}, True),
        ("dump rapl:virtual -f d.csv --overwrite", {"stderr": "full"}, False),  # the result is the file
        ("compare rapl:virtual nvml:virtual --json", {"stdout": "gone"}, False),
        ("compare rapl:virtual nvml:virtual", {"stderr": "full"}, True),
    ],
)
@pytest.mark.parametrize("status", [7, 0])
def test_a_report_that_is_lost_is_no_success_and_hides_no_failure_of_the_command(
    started: Started, words: str, streams: dict[str, str], *, lost: bool, status: int
) -> None:
    read, write = os.pipe()
    os.close(read)
    with Path("/dev/full").open("w", encoding="utf-8") as full, os.fdopen(write, "w") as gone:
        taken = {name: {"full": full, "gone": gone}[kind] for name, kind in streams.items()}
        child = started(*words.split(), "--", "sh", "-c", f"exit {status}", **taken)
        _, err = child.communicate(timeout=240)
    assert child.returncode == (status or (2 if lost else 0))
    if "stderr" not in streams:
        assert ("cannot write" in err) == lost


def test_messages_and_report_do_not_go_to_stdout_where_stderr_is_closed() -> None:
    words = ["run", "-s", "rapl:virtual", "--json", "--", "sh", "-c", "echo of the command"]
    code = f"import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, '-m', 'pmtpy', *{words!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["exit_status"] == 0


def test_no_total_is_said_for_its_own_reason() -> None:
    lost = report.page({"a": SourceLostError("gone"), "b": SourceLostError("gone too")}, None)
    shown = plain(lost)
    assert "no total: nothing is known of a, b" in shown
    assert "note: a: gone\n" in shown
    assert "same device" not in shown
