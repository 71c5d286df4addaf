from __future__ import annotations

import argparse
import json
import os
import pkgutil
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from pmtpy.cli import gather, main
from pmtpy.cli.page import plain
from pmtpy.cluster.gather import gather as gathered
from pmtpy.io.origin import Launch
from tests.cli.conftest import Pmtpy, Started, wait_for
from tests.cluster.test_gather import node, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of four nodes, one of which has no sensor."""
    for i in range(3):
        write(tmp_path, node(i, waiting_joules=10.0 * i, waiting_seconds=0.1 * i))
    write(tmp_path, node(3, joules=None, why="rapl: permission denied"))
    return tmp_path


def test_the_page_shows_nodes_their_sum_and_what_is_missing(folder: Path) -> None:
    text = plain(gather.page(gathered(folder)))
    assert "sum of 3 of 4 nodes" in text
    assert "slowest: n0; the others used 30 J (2.0%) while they waited" in text
    assert "n3 is not in the sum: rapl: permission denied" in text


def test_of_very_many_nodes_those_that_used_most_are_shown(tmp_path: Path) -> None:
    from pmtpy.cluster.job import JobEnergy

    job = JobEnergy("x", [node(i, joules=float(i)) for i in range(500)])
    text = plain(gather.page(job))
    assert len(text.splitlines()) < 60
    assert "n499" in text
    assert "n3 " not in text


def test_the_document_and_the_status_say_whether_the_job_is_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(folder=str(folder), job=None, json=True)
    assert gather.run(args) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == {"n3": "rapl: permission denied"}
    assert told["known"]["joules"] == 1500.0
    write(folder, node(3))
    assert main(["gather", str(folder), "--json"]) == 1, "n3 told twice"


def test_each_node_writes_its_result_and_the_command_runs_where_there_is_no_sensor(
    pmtpy: Pmtpy, tmp_path: Path
) -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "n[0-1]"}
    into = ("run", "--into", "out")
    one = {**slurm, "SLURM_NODEID": "0", "SLURMD_NODENAME": "n0", "SLURM_LOCALID": "0", "PMT_NODE": "n0"}
    done = pmtpy(*into, "-s", "rapl:virtual", "--", "sh", "-c", "echo hello; exit 3", env=one)
    assert (done.returncode, done.stdout) == (3, "hello\n"), done.stderr
    second = {**one, "SLURM_LOCALID": "1"}
    assert pmtpy(*into, "-s", "rapl:virtual", "--", "echo", "second", env=second).stdout == "second\n"
    assert len(list((tmp_path / "out").iterdir())) == 1
    alone = pmtpy("run", "--into", "alone", "-s", "rapl:virtual", "--", "true", env={**second, "PMT_NODE": "n1"})
    assert "n1: no process has measured it" in alone.stderr
    assert "no process has measured it" in gathered(tmp_path / "alone").missing["n1"]
    other = {**one, "SLURM_NODEID": "1", "PMT_NODE": "n1", "PMT_SYSFS_ROOT": "/proc/nonexistent"}
    done = pmtpy(*into, "-s", "rapl", "--", "sh", "-c", "echo hello; exit 3", env=other)
    assert (done.returncode, done.stdout) == (3, "hello\n"), done.stderr
    job = gathered(tmp_path / "out")
    assert list(job) == ["n0", "n1"]
    assert job["n0"].joules is not None
    assert "rapl" in job.missing["n1"]
    assert sum("status 3" in p for p in job.problems) == 2


def test_a_mistake_before_the_command_is_the_reason_that_is_told_and_hinders_no_second_try(
    pmtpy: Pmtpy, tmp_path: Path
) -> None:
    into = ("run", "--into", "out")
    assert pmtpy(*into, "-s", "rapl:nonsense", "--", "sleep", "0.1").returncode == 2
    (why,) = gathered(tmp_path / "out").missing.values()
    assert "'nonsense'" in why
    assert pmtpy(*into, "-s", "rapl:virtual", "--", "sleep", "0.1").returncode == 0
    assert gathered(tmp_path / "out").complete


@pytest.mark.parametrize("step", ["Region.__exit__", "node_energy", "NodeFile.finish"])
def test_a_launcher_that_ends_a_job_behind_its_command_does_not_take_the_result(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _, name = f"pmtpy.cli.run_node.{step}".rpartition(".")
    real = pkgutil.resolve_name(owner.replace("run_node.", "run_node:")).__dict__[name]

    def ended(*of: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*of, **more)

    monkeypatch.setattr(f"{owner}.{name}", ended)
    into = str(tmp_path / "out")
    status = main(["run", "--into", into, "-s", "rapl:virtual", "-o", "load=constant:60", "--", "sleep", "0.1"])
    assert status == 128 + signal.SIGTERM
    known = gathered(Path(into)).total
    assert known.joules == pytest.approx(60.0 * known.seconds, abs=2.0 * known.uncertainty_joules)


@pytest.mark.parametrize("own", [0, 3])
def test_a_result_that_finds_no_place_is_told_and_no_success(pmtpy: Pmtpy, own: int) -> None:
    work = f"rm -rf out; exit {own}"
    done = pmtpy("run", "--into", "out", "-s", "rapl:virtual", "--", "sh", "-c", work)
    assert done.returncode == (own or 2)
    assert re.search(r"cannot write out/.*; the energy of this node is [\d.]{1,10} J \+- [\d.]{1,10} J", done.stderr)


def test_of_a_node_with_a_wrong_clock_the_process_that_reports_says_what_gather_does(
    pmtpy: Pmtpy, tmp_path: Path
) -> None:
    write(tmp_path / "out", node(1), Launch("slurm", "7.0", 1, 2, 0, 1, 2, "n[0-1]"))  # in 1970
    told = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=n0"
    told += " SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=n[0-1]"
    env = dict(each.split("=") for each in told.split())
    words = ("--mpi", "--patience", "0.1s", "--into", "out", "--json")
    done = pmtpy("run", *words, "-s", "rapl:virtual", "--", "sleep", "0.1", env=env)
    job = json.loads(done.stdout)
    assert list(job["nodes"]) == ["n0"]
    assert job["missing"].keys() == {"n1"}
    assert "another run, or a clock that is wrong" in job["missing"]["n1"]


def test_a_node_whose_clock_is_wrong_is_not_waited_for_once_it_has_told(started: Started, tmp_path: Path) -> None:
    told = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=n0"
    told += " SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=n[0-1]"
    env = dict(each.split("=") for each in told.split())
    work = ("sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.02; done")
    words = ("--mpi", "--patience", "24h", "--into", "out", "--json", "--output", "job.json")
    reporting = started("run", *words, "-s", "rapl:virtual", "--", *work, env=env)
    wait_for((tmp_path / "running").exists)
    write(tmp_path / "out", node(1), Launch("slurm", "7.0", 1, 2, 0, 1, 2, "n[0-1]"))  # in 1970
    (tmp_path / "go").touch()
    reporting.wait(240)  # and not a day
    job = json.loads((tmp_path / "job.json").read_text())
    assert list(job["nodes"]) == ["n0"]
    assert "another run, or a clock that is wrong" in job["missing"]["n1"]


def test_options_that_repeat_a_command_do_not_go_with_a_job(pmtpy: Pmtpy) -> None:
    done = pmtpy("run", "--into", "out", "--repeat", "3", "--", "true")
    assert done.returncode == 2
    assert "a job is measured as a whole" in done.stderr
