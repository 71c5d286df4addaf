"""Benchmarks on simulated sensors with a known truth, in simulated time; ``benchmarks/bench_repetition.py`` at size."""

from __future__ import annotations

import asyncio
import csv
import functools
import io
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.analysis.repetition.plan import Timing, plan_trial
from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS
from pmtpy.core.rows import Block
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.errors import BenchStoppedError, CoverageError, SourceLostError, TargetError, WorkFailedError
from pmtpy.lab.bench import Bench
from pmtpy.lab.bench_exports import FORMATS, extra_info
from pmtpy.lab.bench_result import BenchResult
from pmtpy.lab.bench_trial import Place, measure
from pmtpy.lab.bench_work import CommandWork
from pmtpy.regions.region import Region
from tests.support import repeated
from tests.support.repeated import FULL, PART_TIME, SENSORS, Task, World


def finished(world: World, *works: Task) -> BenchResult:
    bench = Bench(works, world.sensor, seed=world.seed, max_time_s=1e5)
    result = bench.result(bench.run())
    assert result is not None
    return result


@pytest.mark.parametrize("once_s", [0.1, 0.0263, 0.33])
@pytest.mark.parametrize("sensor", SENSORS)
def test_the_energy_of_one_work_is_within_half_a_percent(sensor: str, once_s: float) -> None:
    with World(SENSORS[sensor], seed=3) as world:
        work = Task(world, once_s)
        found = finished(world, work)
        assert found.resolved
        assert found.joules == pytest.approx(work.joules, rel=5e-3)
        assert found.sides[0].seconds.value == pytest.approx(once_s, rel=1e-6)


@pytest.mark.parametrize("sensor", SENSORS)
def test_two_percent_more_are_found_and_no_difference_is_called_none(sensor: str) -> None:
    with World(SENSORS[sensor], seed=5) as world:
        more = finished(world, Task(world), Task(world, factor=1.02))
        assert more.verdict == "more"
        assert more.difference is not None
        assert more.difference.low <= 0.02 <= more.difference.high
        same = finished(world, Task(world), Task(world))
        assert same.verdict == "no difference larger than 1 %"


def test_on_a_part_time_sensor_a_single_run_is_off_by_tens_of_percent_and_a_benchmark_is_not() -> None:
    single, ours = [], []
    for seed in range(4):
        with World(PART_TIME, seed, scatter=0.002) as world:
            work = Task(world, 0.1)
            world.clock.advance(1.0 + 0.023 * seed)
            with Region("one", {world.sensor.target: world.sensor}) as region:
                work.run(1)
            world.clock.advance(1.0)
            single.append(region[world.sensor].joules / work.joules - 1.0)
            ours.append(finished(world, work).joules / work.joules - 1.0)
    assert np.mean(np.abs(single)) > 0.15
    assert np.max(np.abs(ours)) < 0.01


def test_a_part_time_sensor_that_states_nothing_is_treated_as_one() -> None:
    with World(PART_TIME, 1, states=False) as world:
        work = Task(world, 0.1)
        found = finished(world, work)
        assert found.sides[0].plan.bursts == 8
        assert found.joules == pytest.approx(work.joules, rel=0.01)


def test_a_drift_cancels_in_the_difference_and_is_warned_of() -> None:
    with World(FULL, 2, trend=lambda t: 1.0 + 2e-3 * t) as world:
        found = finished(world, Task(world), Task(world, factor=1.02))
        assert found.difference is not None
        assert found.difference.value == pytest.approx(0.02, abs=0.01)
        assert any("drifts by +" in w for w in found.warnings)
        assert found.trials[-1].joules > 1.1 * found.trials[0].joules


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("seed", [12, 13, 15, 20, 24])
def test_what_swings_with_the_blocks_is_no_difference(seed: int, blocks: int) -> None:
    """The same work twice; the power swings by 3 % as slowly as four trials of 5.6 s last, or eight."""
    swings = 2.0 * math.pi / (22.4 * blocks)
    with World(FULL, seed, scatter=0.001, trend=lambda t: 1.0 + 0.03 * math.sin(swings * t + 1.7 * seed)) as world:
        works = [Task(world), Task(world)]
        bench = Bench(works, world.sensor, seed=seed, max_time_s=135.0)
        found = bench.result(bench.run())
        assert found is not None
        assert found.difference is not None
        assert np.median(np.diff([t.start_unix_s for t in found.trials])) == pytest.approx(5.6, abs=0.01)
        assert found.difference.low < 0.0 < found.difference.high
        first = found.order.split()[:LEAST_BLOCKS]
        assert {a == b for a, b in itertools.pairwise(first)} == {True, False}


@pytest.mark.parametrize(("more", "said"), [(0.008, False), (0.08, True)])
def test_a_trial_far_from_all_others_is_warned_of_if_it_is_so_by_more_than_the_target(
    more: float, *, said: bool
) -> None:
    with World(FULL, 2, scatter=1e-5, trend=lambda t: 1.0 + more * (20.0 < t < 30.0)) as world:
        found = finished(world, Task(world), Task(world))
        joules = [t.joules for t in found.trials]
        assert max(joules) > (1.0 + 0.5 * more) * np.median(joules)
        assert any("far from" in w for w in found.warnings) is said


def test_many_trials_far_from_the_others_are_told_in_one_line() -> None:
    with World(FULL, 2, scatter=1e-5, trend=lambda t: 1.0 + 0.08 * (10.0 < t % 40.0 < 20.0)) as world:
        bench = Bench([Task(world)], world.sensor, seed=2, target=0.02, max_time_s=1e5)
        found = bench.result(bench.run())
        assert found is not None
        assert sum("something else ran there" in w for w in found.warnings) == 1
        assert any(
            re.search(r"work: of \d+ trials (1 lies|\d+ lie) far from most others \(", w) for w in found.warnings
        )


class Lossy(repeated.Simulated):
    """Loses the one reading that comes in the second after an instant, and says so."""

    lost_after_ns = 0

    def read(self) -> Block:
        block = super().read()
        gone = np.zeros(len(block.t_ns), np.bool_)
        gone[np.flatnonzero(block.t_ns > self.lost_after_ns)[:1]] = self.lost_after_ns > 0
        if not gone.any() or gone[-1]:  # what follows has to tell of the loss
            return block
        self.lost_after_ns = 0
        return replace(
            block, t_ns=block.t_ns[~gone], raw=block.raw[~gone], lost=np.roll(gone, 1)[~gone].astype(np.int64)
        )


def test_what_one_burst_lacks_is_added_to_that_burst_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bursts of 4.9 s at 100 W, as before and after them; of the first a reading is not known."""
    monkeypatch.setattr(repeated, "PATTERN", ((1.0, 100.0),))
    monkeypatch.setattr(repeated, "IDLE_W", 100.0)
    monkeypatch.setattr(repeated, "Simulated", Lossy)
    with World(replace(PART_TIME, noise_w=0.0), 1, scatter=0.0) as world:
        source, work = world.source, Task(world, 4.9)
        assert isinstance(source, Lossy)
        plan = plan_trial(Timing(0.1, 0.25, 0.1, 0.1), 4.9, 0.5)
        assert (plan.bursts, plan.repetitions, plan.lead) == (2, 1, 0)
        world.clock.advance(1.0)
        source.lost_after_ns = world.clock.now_ns() + 10**9
        trial = measure(world.sensor, work, plan, Place(0, 0, 0, 0.0, 0))
        assert 0.95 < trial.coverage < 0.98
        assert trial.joules == pytest.approx(490.0, rel=1e-4)


def test_of_a_sensor_that_shows_nothing_no_difference_is_told() -> None:
    with World(replace(FULL, gain=1e-6, noise_w=0.0), 1) as world:
        bench = Bench([Task(world), Task(world, factor=1.2)], world.sensor, seed=1, max_time_s=200.0)
        with pytest.raises(CoverageError, match=r"work 0 J and work 0 J: of energies that are not above zero"):
            bench.run()
        found = bench.result("failed")
        assert found is not None
        assert (found.verdict, found.advice) == ("unresolved", "")
        assert not any("the same to the last digit" in w for w in found.warnings)
        assert json.loads(FORMATS["json"](found))["difference"]["high"] is None


def test_the_gain_is_in_the_interval_of_one_and_not_of_the_difference() -> None:
    with World(FULL, 1) as world:
        found = finished(world, Task(world), Task(world))
        joules = found.sides[0].joules
        assert joules.high / joules.value - 1.0 > 1.96 * 0.05 * 0.99  # gain_u = 5 %
        assert found.difference is not None
        assert found.difference.high - found.difference.low < 0.02


def test_a_rounding_coarser_than_the_scatter_does_not_make_a_narrow_interval() -> None:
    coarse = SensorModel(update_s=0.1, window_s=0.1, step_w=20.0)
    with World(coarse, 1, scatter=0.0) as world:
        steady = Task(world, 0.1)
        found = finished(world, steady)
        assert found.sides[0].joules.low <= steady.joules <= found.sides[0].joules.high
        assert any("same to the last digit" in w for w in found.warnings) or found.sides[0].joules.repeatability > 0


def test_it_ends_when_the_time_is_over_and_says_how_much_is_missing() -> None:
    with World(FULL, 1, scatter=0.2) as world:
        bench = Bench([Task(world), Task(world)], world.sensor, target=0.001, max_time_s=200.0, seed=1)
        assert bench.run() == "time"
        found = bench.result("time")
        assert found is not None
        assert found.verdict == "unresolved"
        assert found.planned_blocks > found.blocks >= 5
        assert world.now_s <= 200.0
        assert all(t.held_back == {} for t in found.trials)


def test_what_it_advises_where_it_is_unresolved_resolves_it() -> None:
    with World(FULL, 1, scatter=0.012) as world:
        bench = Bench([Task(world), Task(world)], world.sensor, target=0.01, max_time_s=150.0, seed=1)
        found = bench.result(bench.run())
    assert found is not None
    assert not found.resolved
    allowed, reached = re.search(r"--max-time (\d+); what is known does for --target ([\d.]+)%", found.advice).groups()  # type: ignore[union-attr]
    for target, max_time_s in ((0.01, float(allowed)), (float(reached) / 100.0, 165.0)):
        with World(FULL, 1, scatter=0.012) as world:
            bench = Bench([Task(world), Task(world)], world.sensor, target=target, max_time_s=max_time_s, seed=1)
            again = bench.result(bench.run())
            assert again is not None
            assert again.resolved
            assert again.advice == ""


def test_where_more_time_is_no_help_it_says_so() -> None:
    with World(SensorModel(update_s=0.1, window_s=0.1, step_w=20.0), 1, scatter=0.0) as world:
        found = finished(world, Task(world), Task(world, factor=1.001))
        assert found.verdict == "unresolved"
        assert "more blocks do not help" in found.advice
        assert found.advice in str(found)


def test_work_that_became_slower_on_the_way_is_not_promised_an_end() -> None:
    with World(FULL, 1) as world:
        calls = itertools.count()
        slow = lambda: Task(world, 0.1 if next(calls) < 200 else 3.0).run(1)  # noqa: E731
        found = pmt.bench(slow, sensor=world.sensor, max_time=100, warmup=0, target=0.001)
        assert world.now_s <= 100.0 + 50 * 3.0  # a trial that has begun is ended
        assert "more than a day" in found.advice


def test_large_differences_are_written_out() -> None:
    with World(FULL, 1) as world:
        found = finished(world, Task(world), Task(world, factor=3.0))
        assert "+200 %" in found.sentence or "+201 %" in found.sentence or "+199 %" in found.sentence
        assert "a verdict takes 5 blocks, not 3" in replace(found, blocks=3).sentence


@pytest.mark.parametrize("max_time", [6.0, 0.05])
def test_without_time_for_a_single_trial_it_says_how_much_is_needed(max_time: float) -> None:
    with World(FULL, 1) as world:
        run = work_function(Task(world))
        with pytest.raises(CoverageError, match="no trial fits") as told:
            pmt.bench(run, sensor=world.sensor, max_time=max_time, warmup=2.0)
        assert world.now_s <= max(max_time, 0.1) + 1e-6  # one run is not cut short
        needed = re.search(r"about ([\d.]+) s", str(told.value))
        assert needed is not None
        assert pmt.bench(run, sensor=world.sensor, max_time=float(needed[1]) * 1.1).blocks >= 5


def test_what_held_the_clocks_back_is_told_of_each_trial_and_in_a_warning() -> None:
    with World(FULL, 1) as world:
        run, source = work_function(Task(world)), world.source

        def hot() -> None:
            source.held_back = {"power": source.held_back.get("power", 5.0) + 0.01, "heat": math.inf}
            run()

        found = pmt.bench(run, hot, sensor=world.sensor, target=0.05, warmup=0.0, seed=1)
    a, b = ([t.held_back for t in found.trials if t.side == side] for side in (0, 1))
    assert all(math.isnan(t["heat"]) for t in [*a, *b])  # it was never taken back
    assert all(t["power"] == pytest.approx(0.01 * found.sides[1].plan.runs) for t in b)
    assert all("power" not in t for t in a)
    said = "\n".join(found.warnings)
    assert f"held back by power in {len(b)} of {len(found.trials)} trials (0 of " in said
    assert ", for " in said
    assert json.loads(FORMATS["json"](found))["trials"][-1]["held_back"]["heat"] is None


def test_what_failed_on_the_way_loses_nothing_of_what_was_measured() -> None:
    with World(FULL, 1) as world:
        work = Task(world)
        work.fail_at = 150  # a trial is 56 runs
        with pytest.raises(BenchStoppedError, match="the work failed") as stopped:
            pmt.bench(work_function(work), sensor=world.sensor, target=1e-5, warmup=0.0)
        found = stopped.value.result
        assert isinstance(found, BenchResult)
        assert found.ended == "failed"
        assert len(found.trials) > 0
        assert any("the work failed" in w for w in found.warnings)
        assert isinstance(stopped.value.__cause__, RuntimeError)


def test_a_sensor_that_is_lost_on_the_way_loses_nothing_of_what_was_measured() -> None:
    with World(FULL, 1) as world:
        work, run = Task(world), work_function(Task(world))

        def until() -> None:
            work.calls += 1
            world.source.gone = work.calls > 400
            run()

        with pytest.raises(BenchStoppedError, match="pulled out") as stopped:
            pmt.bench(until, sensor=world.sensor, target=1e-5, warmup=0.0)
        assert isinstance(stopped.value.__cause__, SourceLostError)
        found = stopped.value.result
        assert isinstance(found, BenchResult)
        assert found.ended == "lost"
        assert len(found.trials) > 0


def test_after_an_interruption_there_is_a_result() -> None:
    with World(FULL, 1) as world:
        calls = iter(range(400))
        run = work_function(Task(world))

        def until() -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            run()

        found = pmt.bench(until, sensor=world.sensor, target=1e-5, warmup=0.0)
        assert found.ended == "interrupted"
        assert not found.resolved
        assert len(found.trials) > 0


def work_function(task: Task) -> Callable[[], None]:
    return lambda: task.run(1)


@pytest.mark.skipif(os.name != "posix", reason="needs a pipe with a name, and that children inherit descriptors")
@pytest.mark.parametrize("goes_on", [True, False])
def test_what_a_command_leaves_behind_is_told(tmp_path: Path, *, goes_on: bool) -> None:
    """What is left behind waits until somebody opens a pipe, which happens here at the end; the other is waited for."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    works = [
        CommandWork(["sh", "-c", f"cat {gate} > /dev/null &" if goes_on else "true & wait"]),
        CommandWork(["true"]),
    ]
    try:
        works[0].run(1)
        with World(FULL, 1) as world:
            bench = Bench(works, world.sensor, seed=1, max_time_s=1e5)
            bench.plans = [plan_trial(bench.timing, 1.0, 0.5)] * 2
            for side, work in enumerate(works):
                world.clock.advance(1.0)
                bench.trials.append(measure(world.sensor, Task(world), bench.plans[side], Place(side, 0, 0, 0.0, 0)))
                assert work.goes_on is (goes_on and side == 0)
            found = bench.result("time")
        assert found is not None
        assert [w.startswith("sh -c") for w in found.warnings if "let it wait for what it starts" in w] == [
            True
        ] * goes_on
    finally:
        if goes_on:
            gate.write_bytes(b"")


def test_a_failed_command_says_what_it_said() -> None:
    code = "import sys; sys.exit('no such matrix')"
    with pytest.raises(WorkFailedError, match=r"status 1\n  no such matrix"):
        CommandWork([sys.executable, "-c", code]).run(1)
    with pytest.raises(WorkFailedError, match="command not found"):
        CommandWork(["/nowhere/solve"]).run(1)
    with pytest.raises(WorkFailedError, match="SIGTERM"):
        CommandWork([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]).run(1)


def test_what_makes_no_sense_is_refused() -> None:
    with World(FULL, 1) as world:
        for wrong in (0.0, 1.0, math.nan, -0.1, "1%"):
            with pytest.raises(TargetError, match="a target of"):
                pmt.bench(print, sensor=world.sensor, target=wrong)  # type: ignore[arg-type]  # text too
        with pytest.raises(TargetError, match="a list of words"):
            pmt.bench("ls -l", sensor=world.sensor)
        with pytest.raises(TargetError, match="more than 0 s"):
            pmt.bench(print, sensor=world.sensor, max_time=0.0)


@pytest.fixture(scope="module")
def compared() -> BenchResult:
    with World(PART_TIME, 4) as world:
        return finished(world, Task(world, label="old"), Task(world, factor=0.9, label="new"))


class TestExports:
    def test_json_holds_everything(self, compared: BenchResult) -> None:
        document = json.loads(FORMATS["json"](compared))
        assert document["verdict"] == "less"
        assert document["difference"]["value"] == pytest.approx(-0.1, abs=0.01)
        assert [s["label"] for s in document["sides"]] == ["old", "new"]
        assert len(document["trials"]) == 4 * document["blocks"]
        assert document["sensor"]["target"] == "test:simulated"
        assert document["machine"]["host"]
        assert set(document["order"]) == {"A", "B", " "} or set(document["order"]) == {"A", "B"}
        assert document["trials"][0]["before"]["gpu.temperature_C"] == 50.0

    def test_csv_has_a_line_for_each_trial(self, compared: BenchResult) -> None:
        rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](compared))))
        assert len(rows) == len(compared.trials)
        mean = np.mean([float(r["joules"]) for r in rows if r["work"] == "old"])
        assert mean == pytest.approx(compared.sides[0].joules.value)

    def test_other_tools_get_what_they_take(self, compared: BenchResult) -> None:
        old = compared.sides[0].joules
        assert extra_info(compared)["joules"] == old.value
        assert json.loads(FORMATS["asv"](compared))["old"] == {"value": old.value, "unit": "J"}
        action = json.loads(FORMATS["github-action-benchmark"](compared))
        first = action[0]
        assert (first["name"], first["unit"], first["value"]) == ("old", "J", old.value)
        assert float(first["range"]) == pytest.approx((old.high - old.low) / 2, rel=0.01)
        energy = json.loads(FORMATS["bencher"](compared))["old"]["energy"]
        assert energy == {"value": old.value, "lower_value": old.low, "upper_value": old.high}
        assert json.loads(FORMATS["pytest-benchmark"](compared))["new"]["energy_resolved"] is True


def test_what_is_not_known_after_one_trial_is_no_number_and_equal_commands_have_two_names() -> None:
    with World(FULL, seed=4) as world:
        bench = Bench([Task(world), Task(world)], world.sensor, seed=4, max_time_s=40.0)
        bench.run()
        found = bench.result("time")
    assert found is not None
    assert not found.resolved
    first = found.sides[0].label
    assert (first, found.sides[1].label) == ("work (1)", "work (2)")
    for name, write in FORMATS.items():
        text = write(found)
        assert not re.search(r"NaN|Infinity|\binf\b", text), name  # no JSON, and nothing that a reader expects
        if name != "csv":
            json.loads(text)
    assert set(json.loads(FORMATS["bencher"](found))[first]["energy"]) >= {"value"}
    assert len(json.loads(FORMATS["asv"](found))) == 2


async def _waits() -> None:
    await asyncio.sleep(0)


class _Waiting:
    async def __call__(self) -> None:
        await asyncio.sleep(0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("work", [_waits, functools.partial(_waits), _Waiting(), lambda: _waits()])  # noqa: PLW0108
def test_what_only_makes_something_to_be_awaited_is_refused(work: Callable[[], object]) -> None:
    with pytest.raises(TargetError, match=r"wrap it: lambda: asyncio\.run\(f\(\)\)"):
        pmt.bench(work, sensor="rapl:virtual", max_time=3.0, warmup=0.1)
