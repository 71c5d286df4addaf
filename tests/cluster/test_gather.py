from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pmtpy.cluster.gather import ResultFolder, add_up, all_ranks_told, gather, of_another_time, of_this_run
from pmtpy.cluster.job import JobEnergy, summed_uncertainty
from pmtpy.cluster.node import SUFFIX, NodeEnergy, NodeFile, node_energy, read_node
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import make_world
from pmtpy.errors import CoverageError, FileFormatError, SinkError, TargetError
from pmtpy.io.origin import Launch, Machine, host_names, is_shared, launch_of, tasks_per_node, this_machine
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Counter

NODE = NodeEnergy("n0", "boot0", 1000.0, 1010.0, 10.0, 500.0, 5.0, (("rapl/x//package0", 4.0),), coverage=1.0)
JOB = Launch("slurm", "7.0", 0, 8, 0, 2, 4, "n[0-3]")


def node(i: int, **other: Any) -> NodeEnergy:
    return dataclasses.replace(NODE, **{"host": f"n{i}", "node": f"boot{i}", **other})


def write(
    folder: Path,
    energy: NodeEnergy,
    launch: Launch = JOB,
    *,
    about: str = "./solve",
    status: int = 0,
    failed: Sequence[tuple[int | None, int | None]] = (),
) -> Path:
    machine = Machine(energy.host, energy.node, 8)
    file = NodeFile(folder, machine, launch, about, energy.begin_s)
    file.finish(energy, status, failed)
    return file.path


# -- the sum -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [1.0, 0.5])
def test_the_power_of_a_sum_is_that_of_its_joules_in_its_seconds(coverage: float) -> None:
    short = node(1, seconds=2.0, joules=200.0 * coverage, coverage=coverage)
    job = JobEnergy("solve", [node(0, seconds=4.0, joules=400.0), short])
    assert job.known.seconds == 4.0
    assert job.known.watts == pytest.approx(600.0 / 4.0)  # what is not covered is like the rest
    assert any("nodes measured for 2 to 4 s" in w for w in job.known.warnings)
    alike = JobEnergy("solve", [node(0, seconds=4.0, joules=400.0), node(1, seconds=3.99, joules=400.0)])
    assert not any("nodes measured for" in w for w in alike.known.warnings)


def test_what_sensors_of_one_kind_share_adds_linearly_and_the_rest_in_squares() -> None:
    assert summed_uncertainty([node(0)]) == pytest.approx(5.0)
    assert summed_uncertainty([node(i) for i in range(100)]) == pytest.approx(math.hypot(400.0, 3.0 * 10.0))
    other = node(1, common=(("nvml/y//gpu", 4.0),))
    assert summed_uncertainty([node(0), other]) == pytest.approx(math.sqrt(2 * 25.0))
    assert math.isnan(summed_uncertainty([node(0), node(1, uncertainty_joules=math.nan)]))


def test_a_job_with_a_node_that_is_not_known_has_no_total_but_says_what_is_known() -> None:
    job = JobEnergy("solve", [node(0), node(1, joules=None, why="no sensor")])
    with pytest.raises(CoverageError, match="n1: no sensor"):
        _ = job.total
    assert job.known.joules == 500.0
    assert job.known.coverage == 0.5
    rebooted = JobEnergy("solve", [node(0), node(1)], {"n1": "its clock began anew"})
    assert "n1 is not all in the sum: its clock began anew" in rebooted.known.warnings
    assert JobEnergy("solve", [node(0), node(1)]).total.joules == 1000.0
    nothing = JobEnergy("solve", [node(i, joules=None, why="no sensor") for i in range(2)])
    assert str(nothing).startswith("solve: 0 of 2 nodes: energy not known in 10 s, sum of nodes, 0.0% covered")
    never = JobEnergy("solve", [node(0, joules=None, why="no sensor", seconds=0.0)])
    assert str(never).startswith("solve: 0 of 1 nodes: energy not known, sum of nodes, 0.0% covered")


def test_the_slowest_is_who_worked_longest_not_who_waited() -> None:
    waited = node(0, waiting_seconds=8.0, waiting_joules=300.0)
    worked = node(1, waiting_seconds=0.5, waiting_joules=20.0)
    job = JobEnergy("solve", [waited, worked])
    assert job.slowest == "n1"
    assert job.imbalance_joules == 320.0


def test_two_nodes_of_one_name_stay_two() -> None:
    job = JobEnergy("solve", [node(0), dataclasses.replace(node(1), host="n0")])
    assert list(job) == ["n0", "n0 (boot1)"]
    assert job.total.joules == 1000.0


def test_a_region_becomes_a_node_with_the_gain_as_its_common_part() -> None:
    clock = ManualClock()
    source = Counter(make_world("constant:60", clock=clock))
    source.channels = tuple(dataclasses.replace(c, gain_u=0.02) for c in source.channels)
    with Sensor(source, "test", clock) as sensor:
        region = Region("x", {"test": sensor})
        with region:
            clock.advance(10.0)
        made = node_energy(region, Machine("n0", "boot", 8), dataclasses.replace(JOB, cpus=4))
    assert made.joules == pytest.approx(600.0)
    assert made.end_s - made.begin_s == pytest.approx(10.0)
    assert dict(made.common) == pytest.approx({"test/counter//package/gain": 8.0, "test/counter//dram/gain": 4.0})
    assert made.shared
    assert NodeEnergy.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize(("other", "gain"), [("package1", 0.03 * 600.0), ("dram0", 0.03 * math.hypot(400.0, 200.0))])
def test_a_sum_says_what_its_parts_say_however_it_is_made(other: str, gain: float) -> None:
    """Units of one kind are off alike, kinds by themselves: in a node, over its sensors, and over nodes."""
    clock = ManualClock()
    source = Counter(make_world("constant:60", clock=clock))
    first, _, second = [dataclasses.replace(c, gain_u=0.03, resolution=0.0) for c in source.channels]
    source.channels = first, source.channels[1], dataclasses.replace(second, name=other)
    with Sensor(source, "test", clock) as sensor:
        with Region("x", {"test": sensor}) as region:
            clock.advance(10.0)
        made = node_energy(region, Machine("n0", "boot", 8), JOB)
    assert dict(region["test"].components)["gain"] == pytest.approx(gain)
    assert region.total.uncertainty_joules == pytest.approx(region["test"].uncertainty_joules)
    assert JobEnergy("x", [made]).known.uncertainty_joules == pytest.approx(region["test"].uncertainty_joules)
    two = JobEnergy("x", [made, dataclasses.replace(made, host="n1", node="boot1")])
    assert two.known.uncertainty_joules == pytest.approx(2.0 * gain, rel=1e-4)  # beside it the ends, 0.04 J


def test_two_sensors_of_one_kind_are_off_alike_in_a_node_too() -> None:
    clock = ManualClock()
    sources = [Counter(make_world("constant:60", clock=clock)) for _ in range(2)]
    for i, source in enumerate(sources):
        one = dataclasses.replace(source.channels[0], name="gpu", domain=f"gpu/{i}", gain_u=0.05, resolution=0.0)
        source.channels = (one, *[dataclasses.replace(c, domain="") for c in source.channels[1:]])
    with Sensor(sources[0], "a", clock) as a, Sensor(sources[1], "b", clock) as b:
        with Region("x", {"a": a, "b": b}) as region:
            clock.advance(10.0)
        made = node_energy(region, Machine("n0", "boot", 8), JOB)
    assert region.total.uncertainty_joules == pytest.approx(0.05 * 800.0, rel=1e-4)
    assert JobEnergy("x", [made]).known.uncertainty_joules == pytest.approx(region.total.uncertainty_joules)


def test_a_node_of_which_too_much_is_not_known_is_not_known() -> None:
    clock = ManualClock()
    source = Counter(make_world("constant:60", clock=clock))
    with Sensor(source, "test", clock, open_again=lambda: Counter(source.world)) as sensor:
        region = Region("x", {"test": sensor})
        with region:
            clock.advance(5.0)
            source.gone = True
            with pytest.raises(Exception, match="pulled out"):
                sensor.read()
            clock.advance(5.0)
            sensor.reopen()
            clock.advance(1.0)
        made = node_energy(region, Machine("n0", "boot", 8), JOB)
    assert made.joules is None
    assert "the energy is not known" in made.why


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_whole_job_is_added_up(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, node(i))
    job = gather(tmp_path)
    assert job.complete, job.problems
    assert job.total.joules == 2000.0
    assert job.total.target == "4 nodes"


def test_nodes_that_told_nothing_are_named(tmp_path: Path) -> None:
    write(tmp_path, node(0))
    write(tmp_path, node(2, joules=None, why="rapl: permission denied"))
    NodeFile(tmp_path, Machine("n3", "boot3", 8), JOB, "./solve", 1000.0)
    job = gather(tmp_path)
    assert not job.complete
    assert "no result" in job.missing["n1"]
    assert "permission denied" in job.missing["n2"]
    assert "did not end" in job.missing["n3"]
    assert job.known.joules == 500.0


def test_of_two_nodes_of_one_name_the_one_that_was_killed_is_not_passed_over(tmp_path: Path) -> None:
    launch = dataclasses.replace(JOB, size=2, local_size=1, nodes=2, hosts="")
    write(tmp_path, node(0, host="localhost"), launch)
    NodeFile(tmp_path, Machine("localhost", "boot1", 8), launch, "./solve", 1000.0)
    job = gather(tmp_path)
    assert not job.complete
    assert "did not end" in job.missing["localhost (boot1)"]
    assert job.known.target == "1 of 2 nodes"


def test_nodes_are_counted_where_their_names_are_not_said(tmp_path: Path) -> None:
    torch = Launch("torchrun", "", 0, 8, 0, 2, 4)
    for i in range(3):
        write(tmp_path, node(i), torch)
    assert "4 nodes, and 3 told something" in gather(tmp_path).problems[0]
    mpich = Launch("mpich", "", 0, 8, 0, 2)
    other = tmp_path / "other"
    for i in range(3):
        write(other, node(i), mpich)
    assert "8 ranks, and nodes with 6 of them" in gather(other).problems[0]


@pytest.mark.parametrize("launcher", ["openmpi", "mpich"])
def test_nodes_of_the_allocation_that_ran_no_rank_of_the_job_are_not_missed(launcher: str, tmp_path: Path) -> None:
    # mpiexec -n 4 on two nodes of an allocation of four: Slurm's variables are those of the allocation.
    launch = Launch(launcher, "7/a", 0, 4, 0, 2, 4, "n[0-3]")
    write(tmp_path, node(0), launch)
    assert gather(tmp_path).missing.keys() == {"n1", "n2", "n3"}
    assert not all_ranks_told(ResultFolder(tmp_path).look()[0])
    write(tmp_path, node(2), launch)
    assert all_ranks_told(ResultFolder(tmp_path).look()[0])
    job = gather(tmp_path)
    assert job.complete, (job.missing, job.problems)
    assert job.total.joules == 1000.0


def test_two_jobs_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, node(i))
        write(tmp_path, node(i, joules=1.0), dataclasses.replace(JOB, job="8.0"))
    with pytest.raises(TargetError, match=r"several jobs: '7\.0', '8\.0'"):
        gather(tmp_path)
    assert gather(tmp_path, job="7.0").total.joules == 2000.0
    assert gather(tmp_path, job="8.0").total.joules == 4.0
    with pytest.raises(TargetError, match="no result of the job '9'"):
        gather(tmp_path, job="9")


@pytest.mark.parametrize(("job", "hosts"), [("7.0", {"n0", "n1"}), ("", {"n0"})])
def test_processes_of_a_job_may_run_different_commands(job: str, hosts: set[str], tmp_path: Path) -> None:
    launch = dataclasses.replace(JOB, job=job)
    own = read_node(write(tmp_path, node(0), launch, about="./server"))
    read_node(write(tmp_path, node(1), launch, about="./client"))
    found, _ = ResultFolder(tmp_path).look()
    assert {f.host for f in of_this_run(found, own)} == hosts


def test_of_a_node_with_nothing_of_this_run_it_is_said_what_is_there_of_another_time(tmp_path: Path) -> None:
    own = read_node(write(tmp_path, node(0)))
    write(tmp_path, node(0, begin_s=NODE.begin_s - 3600.0, end_s=NODE.end_s - 3600.0))  # an earlier run
    write(tmp_path, node(1, begin_s=NODE.begin_s + 3600.0, end_s=NODE.end_s + 3600.0))  # its clock is wrong
    write(tmp_path, node(2, begin_s=NODE.begin_s - 100.0))  # it ran when this run did
    write(tmp_path, node(9, begin_s=NODE.begin_s - 100.0))  # none of the job's
    found, _ = ResultFolder(tmp_path).look()
    job = add_up([*of_this_run(found, own), *of_another_time(found, own)])
    assert {name: " ".join(why.split()[:9]) for name, why in job.missing.items()} == {
        "n1": "it measured at another time than the others, +3600",
        "n2": "it measured at another time than the others, -100",
        "n3": "no result of it is here",
    }
    assert job.known.joules == NODE.joules
    write(tmp_path, node(1))
    assert "n1" not in {f.host for f in of_another_time(ResultFolder(tmp_path).look()[0], own)}


def test_a_folder_that_is_looked_at_again_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(2):
        write(tmp_path, node(i))
    begun = NodeFile(tmp_path, Machine("n2", "boot2", 8), JOB, "./solve", 1000.0)
    folder = ResultFolder(tmp_path)
    assert [f.energy is None for f in folder.look()[0]] == [False, False, True]
    begun.finish(node(2))
    write(tmp_path, node(3))
    opened: list[str] = []
    read = Path.read_bytes

    def noted(path: Path) -> bytes:
        opened.append(path.name[:2])
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    found, problems = folder.look()
    assert (len(found), problems) == (4, [])
    assert all(f.energy is not None for f in found)
    assert opened == ["n2", "n3"]


def test_a_result_does_not_grow_with_the_number_of_nodes(tmp_path: Path) -> None:
    launch = launch_of({**SLURM, "SLURM_STEP_NODELIST": "n[0-9999]", "SLURM_STEP_NUM_NODES": "10000"})
    assert write(tmp_path, node(0), launch).stat().st_size < 2000
    job = gather(tmp_path)
    assert "n1" in job.missing
    assert "9999 nodes" in job.problems[0]


def test_a_node_that_told_twice_is_not_counted_twice(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, node(i))
    write(tmp_path, dataclasses.replace(node(3), host="container17"))  # another name, the same kernel
    job = gather(tmp_path)
    assert not job.complete
    assert "would count twice" in next(iter(job.missing.values()))
    assert job.known.joules == 1500.0


def test_a_node_that_measured_at_another_time_is_not_added(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path, node(i, begin_s=1000.0 + 0.2 * i))
    write(tmp_path, node(3, begin_s=8000.0, end_s=8010.0))
    job = gather(tmp_path)
    assert "at another time" in job.missing["n3"]
    assert job.known.joules == 1500.0


def spans(folder: Path, *begins_and_lengths: tuple[float, float]) -> JobEnergy:
    """A job of two nodes, each of which measured its own stretch with 10 W."""
    launch = Launch("slurm", "7.0", 0, 2, 0, 1, 2, "n[0-1]")
    for i, (begin, length) in enumerate(begins_and_lengths):
        one = node(i, begin_s=1000.0 + begin, end_s=1000.0 + begin + length, seconds=length, joules=10 * length)
        write(folder, one, launch)
    return gather(folder)


@pytest.mark.parametrize("later", [12.0, 3600.0])
def test_two_nodes_that_measured_one_after_the_other_are_no_job(later: float, tmp_path: Path) -> None:
    job = spans(tmp_path, (0, 10), (later, 10))
    assert list(job.missing) == ["n1"]
    assert "another time" in job.missing["n1"]
    assert job.known.joules == 100.0


@pytest.mark.parametrize(("later", "length"), [(9.0, 10.0), (0.0, 1.0), (9.0, 1.0)])
def test_a_node_that_measured_little_of_the_jobs_time_is_told(later: float, length: float, tmp_path: Path) -> None:
    job = spans(tmp_path, (0, 10), (later, length))
    assert not job.complete
    assert "n1 measured" in " ".join(job.problems)


def test_nodes_whose_commands_end_one_after_the_other_are_a_job(tmp_path: Path) -> None:
    assert spans(tmp_path, (0, 10), (0.5, 8)).complete


def test_what_is_no_node_of_the_job_is_not_added(tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path, node(i, host=f"N{i}.cluster.org"))
    job = gather(tmp_path)
    assert list(job.missing) == ["N4.cluster.org"]
    assert job.known.joules == 2000.0
    other = tmp_path / "other"
    for i in range(3):
        write(other, node(i), Launch("slurm", "7.0", 0, 2, 0, 1, 2))
    assert "has 2 nodes, and results are of 3" in gather(other).problems[0]


def test_a_result_of_half_of_the_time_is_none_whoever_wrote_it(tmp_path: Path) -> None:
    write(tmp_path, node(0, coverage=0.5))
    assert "50.0% of the time" in gather(tmp_path).missing["n0"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"joules": -500.0}, "-500 J"),
        ({"joules": -1.0, "uncertainty_joules": math.nan}, "-1 J"),
        ({"uncertainty_joules": -5.0}, "uncertainty is below"),
        ({"common": (("a", -4.0),)}, "uncertainty is below"),
        ({"seconds": -10.0}, "-10 s"),
        ({"seconds": math.nan}, "not the whole file"),
        ({"coverage": math.nan}, "not the whole file"),
    ],
)
def test_a_result_that_cannot_be_one_is_named_and_not_added(said: dict[str, Any], why: str, tmp_path: Path) -> None:
    write(tmp_path, node(0, **said))
    write(tmp_path, node(1))
    job = gather(tmp_path)
    assert why in " ".join([*job.missing.values(), *job.problems])
    assert job.known.joules == 500.0
    with pytest.raises(CoverageError):
        _ = job.total


def test_an_idle_node_whose_energy_is_zero_within_its_uncertainty_counts(tmp_path: Path) -> None:
    write(tmp_path, node(0, joules=-3.0))
    assert gather(tmp_path).known.joules == -3.0


def test_what_a_file_says_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    evil = "n1\x1b[31m\nn9 100 J"
    write(tmp_path, node(1, host=evil, why=evil, warnings=(evil,)), Launch(), about=evil)
    told = json.dumps(gather(tmp_path).to_dict()) + str(gather(tmp_path))
    assert "\\u001b" not in told
    assert "\x1b" not in told
    assert "n1?[31m; n9 100 J" in told


def test_a_step_of_a_wall_clock_within_the_run_is_no_reason_to_leave_a_node_out(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, node(i, begin_s=1000.0 - 3.0 * (i == 2)))  # still at the same time for seven seconds
    assert gather(tmp_path).complete


def test_a_file_that_is_half_written_is_told_of(tmp_path: Path) -> None:
    for i in range(4):
        path = write(tmp_path, node(i))
    whole = path.read_bytes().rstrip()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileFormatError, match="not the whole file"):
            read_node(path)
    job = gather(tmp_path)
    assert any("not the whole file" in p for p in job.problems)
    assert "no result" in job.missing["n3"]
    path.with_name(path.name + ".0123abcd.tmp").write_bytes(whole)
    assert any("was not written to its end" in p for p in gather(tmp_path).problems)


@pytest.mark.timeout(60)
def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path, node(0))
    os.mkfifo(path.with_name(f"pipe{SUFFIX}"))
    assert any("no ordinary file" in problem for problem in gather(tmp_path).problems)


def test_a_reason_of_several_lines_is_told_on_one(tmp_path: Path) -> None:
    write(tmp_path, node(0, joules=None, why="rapl: there is none\n  remedy: load it"))
    assert gather(tmp_path).missing["n0"] == "rapl: there is none; remedy: load it"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "true", '"5"', '"5"x', "[]", "{}"])
def test_joules_that_are_none_are_refused(value: str, tmp_path: Path) -> None:
    path = write(tmp_path, node(0))
    path.write_text(path.read_text().replace('"joules": 500.0', f'"joules": {value}'))
    with pytest.raises(FileFormatError):
        read_node(path)


@pytest.mark.parametrize("name", ["pmtpy_node", "begun_s", "begin_s", "coverage", "waiting_joules"])
def test_true_is_no_number_of_a_node(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, node(0))
    facts = json.loads(path.read_text())
    (facts if name in facts else facts["energy"])[name] = True
    path.write_text(json.dumps(facts))
    with pytest.raises(FileFormatError):
        read_node(path)


def test_a_shared_node_and_a_failed_command_are_told(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, node(i, shared=i == 1), status=9 * (i == 2))
    job = gather(tmp_path)
    assert any("n1: the job has not all CPUs" in w for w in job.known.warnings)
    assert job.problems == ("n2: the command of rank 0 ended with status 9",)


def test_energy_that_two_jobs_of_a_folder_both_have_is_told_with_its_time(tmp_path: Path) -> None:
    one, other = Launch("slurm", "7.1", 0, 2, 0, 1, 2, "n[0-1]"), Launch("slurm", "7.2", 0, 2, 0, 1, 2, "n[0-1]")
    for i in range(2):
        write(tmp_path, node(i), one)  # from 1000 to 1010 s
        write(tmp_path, node(i, begin_s=1007.5 + i, end_s=1030.0, seconds=22.5 - i), other)
    behind = Launch("slurm", "7.3", 0, 2, 0, 1, 2, "n[0-1]")
    for i in range(2):
        write(tmp_path, node(i, begin_s=1030.0, end_s=1040.0), behind)
    both = gather(tmp_path, job="7.1")
    assert both.complete
    (said,) = both.known.warnings
    assert said.startswith("n0, n1: measured by another job of the folder as well, for up to 2.5 s of the same time")
    assert said.endswith("so do not add them ('7.2')")
    assert not gather(tmp_path, job="7.3").known.warnings
    write(tmp_path, node(1, begin_s=900.0, end_s=1009.0), Launch("slurm", "8"), about="./other")
    assert any("for up to 9 s" in w and "('7.2', '8')" in w for w in gather(tmp_path, job="7.1").known.warnings)


def test_who_has_no_energy_or_another_node_has_none_in_common(tmp_path: Path) -> None:
    for i, job in enumerate("abcd"):
        unknown = {"joules": None, "why": "no sensor"} if job == "c" else {}
        write(tmp_path, node(0 if job == "c" else i, **unknown), Launch("slurm", job))
    NodeFile(tmp_path, Machine("n0", "boot0", 8), Launch("slurm", "e"), "./solve", 1000.0)  # killed, or still runs
    assert not gather(tmp_path, job="a").known.warnings


def test_of_every_rank_that_did_not_end_well_it_is_told_how(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, node(i), dataclasses.replace(JOB, rank=2 * i), failed=[(2 * i + 1, 5)] if i == 3 else [])
    assert gather(tmp_path).problems == ("n3: the command of rank 7 ended with status 5",)
    assert not gather(tmp_path).complete
    several = tmp_path / "several"
    failed = [*((r, 5) for r in range(40, 0, -1)), (41, 137), (42, None), (None, 3)]
    for i in range(4):
        write(several, node(i), status=5 * (i == 0), failed=failed if i == 0 else [])
    assert gather(several).problems == (
        f"n0: the command of ranks {', '.join(map(str, range(20)))} and 21 more ended with status 5",
        "n0: the command of rank 41 ended with status 137",
        "n0: how the command of rank 42 ended is not known, nor whether its energy is all in: its pmtpy run was killed",
        "n0: the command ended with status 3",
    )
    path = write(tmp_path / "odd", node(0))
    path.write_text(json.dumps({**json.loads(path.read_text()), "failed": [7]}))
    with pytest.raises(FileFormatError):
        read_node(path)


def test_a_folder_that_is_none_or_holds_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no folder"):
        gather(tmp_path / "x")
    with pytest.raises(TargetError, match="holds no result"):
        gather(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot make"):
        NodeFile(tmp_path / "file", Machine("n0", "b", 1), JOB, "x", 0.0)


def test_a_hostile_name_stays_in_the_folder(tmp_path: Path) -> None:
    file = NodeFile(tmp_path / "in", Machine("../../etc/x\n", "b", 1), JOB, "x", 0.0)
    assert file.path.parent == tmp_path / "in"
    assert file.path.exists()


# -- launchers ---------------------------------------------------------------------------------------------------------

SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_NODELIST": "node[01-03,7]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_CPUS_ON_NODE": "4", "SLURMD_NODENAME": "node03",
}  # fmt: skip


def test_slurm_says_where_a_task_stands() -> None:
    found = launch_of(SLURM)
    assert found == Launch("slurm", "77.2", 5, 7, 1, 2, 4, "node[01-03,7]", 4)
    assert not found.reads
    assert is_shared(found, Machine("x", "y", 8))
    assert is_shared(found, Machine("x", "y", 4)) is False
    assert is_shared(Launch(), Machine("x", "y", 4)) is None
    assert this_machine(SLURM).host == "node03"


def test_in_the_script_or_the_shell_of_a_job_nothing_was_started_yet() -> None:
    said = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "4"}
    said |= {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[0-1]"}
    script = launch_of(said)
    assert script == Launch("slurm", "77", nodes=2, hosts="n[0-1]")
    assert script.in_front
    assert script.reads
    step = {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n0", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert launch_of({**said, **step, "SLURM_STEP_ID": "4294967290"}) == script
    assert not launch_of({**said, **step, "SLURM_STEP_ID": "0"}).in_front
    assert not launch_of({}).in_front


@pytest.mark.parametrize(
    ("here", "named", "hosts", "host"),
    [
        ("node07", "node01", "node[01-03,07]", "node07"),  # mpiexec of MPICH: the environment is the first node's
        ("NODE07.cluster.org", "node01", "node[01-03,07]", "node07"),
        ("node01.cluster.org", "node01", "node[01-03]", "node01"),
        ("vm", "n2", "n[1-2]", "n2"),  # a name of Slurm's own
        ("vm", "n2", "", "n2"),
        ("vm", "", "n[1-2]", "vm"),  # the login node
    ],
)
def test_a_node_is_called_as_slurm_calls_it_and_not_as_another_whose_environment_was_inherited(
    here: str, named: str, hosts: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: here)
    environ = {"SLURMD_NODENAME": named, "SLURM_JOB_NODELIST": hosts}
    assert this_machine(environ).host == host
    assert this_machine({**environ, "PMT_NODE": "mine"}).host == "mine"


@pytest.mark.parametrize(
    ("here", "each", "cpus"),
    [
        ("n1", "8", 8),
        ("n3", "8(x3)", 8),
        ("n2", "8(x2),4", 8),
        ("n3", "8(x2),4", 4),
        ("vm", "8(x2),4", 1),
        ("n1", "", 1),
    ],
)
def test_the_cpus_of_a_job_are_not_those_of_one_of_its_steps(
    here: str, each: str, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun -n1 in an allocation of the whole node: the step has one CPU, and nobody else's job is there."""
    monkeypatch.setattr("platform.node", lambda: here)
    said = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_NODELIST": "n[1-3]"}
    assert launch_of({**said, "SLURM_JOB_CPUS_PER_NODE": each}).cpus == cpus


def test_a_job_that_is_put_into_the_queue_again_is_another_each_time() -> None:
    named = {**SLURM, "SLURM_CLUSTER_NAME": "big"}
    ids = [launch_of({**named, "SLURM_RESTART_COUNT": n}).job for n in ("", "0", "1", "2")]
    assert ids == ["big.77.2", "big.77.2", "big.77r1.2", "big.77r2.2"]
    by_mpiexec = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "7", "SLURM_RESTART_COUNT": "1"}
    assert launch_of({**named, **by_mpiexec}).job == "big.77r1/7"


def test_workers_of_one_node_that_torchrun_starts_anew_are_another_job_each_time() -> None:
    torch = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "mine"}
    ids = [launch_of({**torch, "TORCHELASTIC_RESTART_COUNT": n}).job for n in ("", "0", "1", "2")]
    assert ids == ["mine", "mine", "miner1", "miner2"]
    # Of several nodes each counts those of its own workers alone, so that they would not find each other.
    assert launch_of({**torch, "WORLD_SIZE": "4", "TORCHELASTIC_RESTART_COUNT": "1"}).job == "mine"
    nameless = {**torch, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}
    assert launch_of(nameless).job == ""


def test_of_workers_that_were_started_anew_it_is_said_and_no_energy_is_lost(tmp_path: Path) -> None:
    launch = Launch("torchrun", "mine", 0, 4, 0, 2, 2)
    for begin_s in (1000.0, 1020.0):
        write(tmp_path, node(0, begin_s=begin_s, end_s=begin_s + 10.0), launch)
    (why,) = (why for name, why in gather(tmp_path).missing.items() if name == node(0).host)
    assert "2 results are of this node, and would count twice" in why
    assert "of workers that torchrun started anew, give each a folder of its own" in why
    assert why.count(f" ({node(0).joules:g} J)") == 2


def test_the_innermost_launcher_knows_the_rank_and_slurm_the_job() -> None:
    torch = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    found = launch_of({**SLURM, **torch, "SLURM_LOCALID": "0"})
    assert (found.scheduler, found.job, found.rank, found.local_rank, found.nodes) == ("torchrun", "77.2", 3, 1, 4)
    mpich = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    assert launch_of(mpich, list) == Launch("mpich", "", 2, 4, 0, 2)
    above = [["sh", "solve.sh"], ["hydra_pmi_proxy", "--control-port", "login:33577", "--rmk", "user", ""], ["--x"]]
    assert launch_of(mpich, lambda: above).job == "login:33577"
    assert launch_of({**SLURM, **mpich}, lambda: above).job == "77/login:33577", "one of the mpiexecs of a batch"
    assert launch_of({**SLURM, **mpich}).job == "77.2", "nothing tells it from others"
    assert launch_of(mpich).job == "", "no mpiexec of MPICH is above these tests"
    ompi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert launch_of({**ompi, "PMIX_NAMESPACE": "prterun-x"}).job == "prterun-x"
    by_daemon = {**SLURM, **ompi, "PMIX_NAMESPACE": "prterun-x"}
    by_mpiexec = {name: said for name, said in by_daemon.items() if name != "SLURM_STEP_ID"}
    assert launch_of(by_daemon).job == launch_of(by_mpiexec).job == "77/prterun-x"
    assert launch_of({}) == Launch()
    assert launch_of({}).reads
    assert launch_of({"SLURM_JOB_ID": "1", "SLURM_LOCALID": "x"}).local_rank is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10],m[1,3]-x", ["n08", "n09", "n10", "m1-x", "m3-x"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[x]", []),
    ],
)
def test_lists_of_hosts_are_expanded(text: str, names: list[str]) -> None:
    assert list(host_names(text)) == names


def test_lists_of_tasks_are_expanded() -> None:
    assert list(tasks_per_node("2(x3),1")) == [2, 2, 2, 1]
