"""Regions of an MPI program, under a real MPI: four ranks on two nodes, which one machine plays."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.cluster.clocks import Clocks
from pmtpy.cluster.gather import gather
from pmtpy.cluster.mpi import MpiRegion, _Place, _Told
from pmtpy.cluster.node import NodeEnergy
from pmtpy.cluster.visible import differ, limits, numbered
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.nvml import VirtualDriver, make_gpu, private_pynvml
from pmtpy.emulators.world import make_world
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.io.origin import Launch, Machine

ROOT = Path(__file__).parents[2]
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
WATTS = {"nodea": 100, "nodeb": 60}

pytest.importorskip("mpi4py", reason="mpi4py is not installed (extra mpi)")


def mpi(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMT_", "PMI_", "SLURM_"))}
    return subprocess.run(
        [str(MPIEXEC), "-launcher", "fork", "-hosts", "nodea:2,nodeb:2", "-n", "4", *words],
        env={**clean, "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[dict[str, Any]]]:
    """The status of a program that goes through all that can happen, and what its ranks told."""
    if MPIEXEC is None:
        pytest.skip("no mpiexec beside Python (pip install mpich)")
    out = tmp_path_factory.mktemp("solved")
    done = mpi(sys.executable, str(ROOT / "tests/cluster/programs/solver.py"), str(out))
    told = [json.loads(file.read_text()) for file in sorted(out.glob("?.json"))]
    known = Clocks.read(out / "clocks").nodes  # both have this machine's clock: nothing is ahead
    assert {n: len(c.offsets) for n, c in known.items()} == {"nodea": 2, "nodeb": 2}
    assert all(abs(o.ahead_ns) <= o.error_ns for c in known.values() for o in c.offsets)
    assert len(told) == 4, done.stdout + done.stderr
    return done.returncode, told


Solved = tuple[int, list[dict[str, Any]]]


@pytest.mark.parametrize("how", ["works", "works again"])
def test_each_node_is_measured_once_and_every_rank_knows_the_sum(how: str, solved: Solved) -> None:
    told = [t[how] for t in solved[1]]
    assert all(t == told[0] for t in told)
    nodes = told[0]["nodes"]
    assert {n: v["ranks"] for n, v in nodes.items()} == {"nodea": [0, 1], "nodeb": [2, 3]}
    for name, node in nodes.items():
        truth = WATTS[name] * node["seconds"]
        assert abs(node["joules"] - truth) <= 4 * node["uncertainty_joules"]
        assert 0.0 <= node["waiting_seconds"] <= node["seconds"]
        assert node["virtual"]
    assert told[0]["joules_of"] == {name: node["joules"] for name, node in nodes.items()}
    assert told[0]["total"] == pytest.approx(sum(v["joules"] for v in nodes.values()))
    assert told[0]["complete"]
    assert told[0]["slowest"] in nodes
    assert told[0]["imbalance_joules"] == pytest.approx(sum(v["waiting_joules"] for v in nodes.values()))


def test_without_barriers_nothing_is_exchanged_until_all_ask(solved: Solved) -> None:
    told = [t["short"] for t in solved[1]]
    assert all("let every rank call collect()" in t["raised"] for t in told)
    assert all(len(t["nodes"]) == 2 and not t["problems"] for t in told)
    assert told[0]["imbalance_joules"] is None


def test_a_rank_that_stays_longer_than_the_one_that_reads_is_told_of(solved: Solved) -> None:
    for told in (t["longer"] for t in solved[1]):
        said = " ".join(told["nodes"]["nodeb"]["warnings"])
        longer = re.search(r"before rank 2, which reads, and for (\S+) s after it", said)
        assert longer
        assert float(longer[1]) >= 0.15  # less what that rank was late itself
        assert "without barriers" in " ".join(told["known"]["warnings"])


def test_a_rank_that_names_other_sensors_than_the_one_that_reads_is_not_passed_over(solved: Solved) -> None:
    for told in (t["apart"] for t in solved[1]):
        assert not told["complete"]
        assert told["nodes"]["nodea"]["joules"] is None
        why = "rank 0 names rapl:virtual and rank 1 names jetson:virtual, rapl:virtual: name on each all sensors"
        assert why in told["missing"]["nodea"]
        assert told["nodes"]["nodeb"]["joules"] > 0


def test_ranks_that_may_see_one_gpu_each_do_not_pass_for_all_of_them() -> None:
    each = [(i, limits({"CUDA_VISIBLE_DEVICES": str(i)})) for i in range(2)]
    assert "another one to each (rank 0 has CUDA_VISIBLE_DEVICES=0 and rank 1 has" in differ(each)
    assert not differ([each[0], each[0]])
    assert "and rank 1 has no such limit" in differ([each[0], (1, limits({}))])
    alike = [(i, limits({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": str(i)})) for i in range(2)]
    assert "--gpus-per-node" in differ(alike)
    assert numbered(("rapl", "nvml:0"))
    assert numbered(("amdsmi",))
    assert not numbered(("nvml:0000:3b:00.0", "nvml:GPU-1f2e", "nvml:virtual", "rapl"))


@pytest.mark.parametrize(("how", "why"), [("without", "no counters on this node"), ("loses", "pulled out")])
def test_a_node_without_a_sensor_or_that_lost_it_is_named_and_not_summed_over(
    how: str, why: str, solved: Solved
) -> None:
    for t in (t[how] for t in solved[1]):
        assert not t["complete"]
        assert why in t["missing"]["nodeb"]
        assert "nodeb" in t["total"], "the sum is refused"
        assert t["known"]["joules"] == t["nodes"]["nodea"]["joules"]
        assert t["known"]["target"] == "1 of 2 nodes"
        assert "not in the sum: nodeb" in t["text"]


def test_an_exception_on_one_rank_leaves_nobody_waiting(solved: Solved) -> None:
    told = [t["raises"] for t in solved[1]]
    assert told[3]["raised"].startswith("ValueError")
    assert all("rank 3 raised ValueError" in t["raised"] for t in told[:3])


def test_a_rank_that_dies_ends_the_job_rather_than_let_it_hang(solved: Solved) -> None:
    assert solved[0] != 0


def run_on_nodes(out: Path, *words: str, without: str = "") -> subprocess.CompletedProcess[str]:
    programs = ROOT / "tests/cluster/programs"
    command = [sys.executable, str(programs / "ranks.py"), *words]
    return mpi(sys.executable, str(programs / "on_node.py"), str(out), *command, env={"WITHOUT": without})


@pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec beside Python (pip install mpich)")
def test_a_command_under_mpiexec_is_measured_once_on_each_node(tmp_path: Path) -> None:
    out = tmp_path / "nodes"
    done = run_on_nodes(out)
    assert (done.returncode, done.stdout) == (0, "6 of 4\n"), done.stderr
    told = json.loads((tmp_path / "nodes.json").read_text())
    assert told["complete"], told
    for name, node in told["nodes"].items():
        assert abs(node["joules"] - WATTS[name] * node["seconds"]) <= 4 * node["uncertainty_joules"]
    assert gather(out).total.joules == pytest.approx(told["known"]["joules"])

    done = run_on_nodes(out, without="nodeb")  # again into the same folder: the earlier run is not of this one
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "nodes.json").read_text())
    assert list(told["missing"]) == ["nodeb"]
    assert "rapl" in told["missing"]["nodeb"]
    with pytest.raises(TargetError, match="results of several jobs"):
        gather(out)


@pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec beside Python (pip install mpich)")
def test_a_node_whose_command_is_killed_is_told_of_by_gather(tmp_path: Path) -> None:
    out = tmp_path / "nodes"
    done = run_on_nodes(out, "dies")
    assert done.returncode != 0
    job = gather(out)
    assert not job.complete
    assert any("nodeb" in text for text in (*job.problems, *job.missing))


class TwoRanks:
    """What the first of two ranks of one node has for a communicator; the other has told ``other``."""

    rank = 0

    def __init__(self, other: _Told, *, local_size: int | None = None, late_s: float = 0.0) -> None:
        self._other, self._late_s = other, late_s
        self._launch = Launch(local_size=local_size)

    def Get_attr(self, _key: object) -> _Place:  # noqa: N802  (as mpi4py calls it)
        alone = SimpleNamespace(gather=lambda own: [own])
        node = SimpleNamespace(gather=self.gather, Barrier=lambda: time.sleep(self._late_s))
        return _Place(self, node, alone, Machine("here", "here", 1), self._launch, (0, 1))

    def Barrier(self) -> None:  # noqa: N802  (as above)
        """Wait for nobody."""

    def gather(self, own: _Told) -> list[_Told]:
        return [own, replace(self._other, begin_ns=own.begin_ns, end_ns=own.end_ns)]

    def bcast(self, told: object) -> object:
        return told


@pytest.fixture
def without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library, where a communicator is one of :class:`TwoRanks`."""
    ready = {"Intracomm": TwoRanks, "COMM_NULL": None, "Is_initialized": lambda: True, "Is_finalized": lambda: False}
    monkeypatch.setattr("pmtpy.cluster.mpi._key", lambda _library: 0)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(**ready))


SAME = _Told(1, None, ("rapl:virtual",), (), 0, 0)


@pytest.mark.usefixtures("without_mpi")
def test_no_rank_of_a_node_begins_before_it_is_measured() -> None:
    with pmt.create("rapl:virtual") as sensor, pmt.mpi.region("solve", TwoRanks(SAME, late_s=0.05), sensor) as region:
        pass
    assert region["here"].seconds >= 0.1, "the barriers of the node at either end are within"


@pytest.mark.usefixtures("without_mpi")
@pytest.mark.parametrize(("started", "said"), [(None, 0), (2, 0), (3, 1)])
def test_that_other_processes_of_the_node_are_in_its_energy_is_said(started: int | None, said: int) -> None:
    ranks = TwoRanks(SAME, local_size=started)
    with pmt.create("rapl:virtual") as sensor, pmt.mpi.region("solve", ranks, sensor) as region:
        time.sleep(0.02)
    about = "the communicator has 2 of 3 processes that the launcher started on the node"
    assert sum(w.startswith(about) for w in region["here"].warnings) == said


@pytest.mark.usefixtures("without_mpi")
def test_a_gpu_by_number_is_found_among_the_rails_of_a_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (extra nvml)")
    driver = VirtualDriver(make_world("constant:100", clock=HOST_CLOCK), [make_gpu("h100", 0)])
    monkeypatch.setitem(sys.modules, "pynvml", private_pynvml(driver))
    for name in limits(os.environ):
        monkeypatch.delenv(name.partition("=")[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def measured(visible: str, *rails: str) -> NodeEnergy:
        with pmt.combine("accelerator", ["nvml:0", "rapl:virtual"]) as sensor:
            other = _Told(1, None, tuple(sorted(rails)), (f"CUDA_VISIBLE_DEVICES={visible}",), 0, 0)
            with pmt.mpi.region("solve", TwoRanks(other), sensor) as region:
                time.sleep(0.05)
            return region.result["here"]

    assert not measured("0", "nvml:0", "rapl:virtual").why
    assert "rank 0 has CUDA_VISIBLE_DEVICES=0 and rank 1 has" in measured("1", "nvml:0", "rapl:virtual").why
    assert "and rank 1 names nvml:1, rapl:virtual: name on each all" in measured("0", "nvml:1", "rapl:virtual").why


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_that_leaves_the_region_says_nothing_to_the_other_ranks() -> None:
    asked: list[str] = []

    class Communicator:
        rank = 0

        def Barrier(self) -> None:  # noqa: N802  (as mpi4py calls it)
            asked.append("barrier")

        def gather(self, own: object) -> list[object]:
            asked.append("gather")
            return [own]

        def bcast(self, told: object) -> object:
            asked.append("bcast")
            return told

    world = Communicator()
    place = _Place(world, world, world, Machine("here", "here", 1), Launch(), (0,))
    with MpiRegion("solve", place, (), {}, "no sensor", barrier=True) as region:
        before = len(asked)
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                region.__exit__(KeyError, KeyError("child"), None)
            os._exit(len(asked) - before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked[before:] == ["barrier", "barrier", "gather", "gather", "bcast"]


def test_what_is_no_communicator_is_refused_and_nothing_is_imported_for_it() -> None:
    with pytest.raises(TargetError, match="at least one sensor"):
        pmt.mpi.region("solve", None)
    with pytest.raises(TargetError, match="no sensor is called"):
        pmt.mpi.region("solve", None, "rapk")
    if "mpi4py.MPI" not in sys.modules:
        with pytest.raises(BackendUnavailableError, match=r"pip install 'pmtpy\[mpi\]'"):
            pmt.mpi.region("solve", object(), "rapl:virtual")
        assert "mpi4py.MPI" not in sys.modules
