"""What is made of a recording by the stamps of the load in it: as good as what the program had at once."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.comparison.compare import compare
from pmtpy.analysis.comparison.results import Energy, Trace
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.cli import main
from pmtpy.core.channel import Identity
from pmtpy.core.clock import ManualClock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.io.convert import convert
from pmtpy.lab.correct_recording import CorrectedEnergy, correct_recording
from pmtpy.lab.loads import schedule
from pmtpy.lab.recorded import read_stamps, stamped_load, used_stamps
from pmtpy.lab.traces import side_by_side
from pmtpy.sensor.registry import opener
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.uncertainty.stamped import A100, AVERAGE, Gpu, measure, record, square

LEVELS_W = (60.0, 230.0)
IRREGULAR = square(0.13, 0.4, 20.0, 0.2, 3)
IN_STEP = square(0.104, 0.5, 20.0)  # with updates of 101.2 ms, now and then
# The first says when the device works through all of the recording; the others are asked for what it cost.
REGIONS = [(-1.5, 20.5), (9.03, 11.5), (11.8, 13.3), (13.52, 14.0)]


def corrected(path: Path, gpu: Gpu, said: list[str] | None = None, **how: Any) -> list[CorrectedEnergy]:
    table = pmt.load(path)
    profile = gpu.profile(Identity.read(table.attrs["metadata"]["identity"]))
    return correct_recording(table, profile, report=(said if said is not None else list[str]()).append, **how)


@pytest.mark.parametrize(
    ("gpu", "on"),
    [(A100, IRREGULAR), (A100, IN_STEP), (AVERAGE, IRREGULAR)],
    ids=["sees a quarter", "sees a quarter, in step", "mean of 1 s"],
)
def test_a_recording_corrected_later_tells_what_was_known_at_once(tmp_path: Path, gpu: Gpu, on: Floats) -> None:
    live = measure(gpu, on, LEVELS_W, REGIONS, stamped=True, later=True, dump=tmp_path / "run.csv")
    blind = measure(gpu, on, LEVELS_W, REGIONS, stamped=False, later=True)
    later = corrected(tmp_path / "run.csv", gpu)
    assert [each.name for each in later] == ["0", "1", "2", "3"]
    for one, known, other in zip(later, live, blind, strict=True):
        energy, measured = one.energy, known.measured
        assert "load-informed" in measured.method
        assert energy.method == "load-informed"
        assert energy.low <= known.true_joules <= energy.high
        assert energy.aliased == (energy.low, energy.high)
        # By the same readings and stamps; but the clock of the register is followed over all of the recording here, and
        # of polls in step with it the phase is known to some 20 ms only.
        assert abs(energy.joules - measured.joules) < 0.8 * measured.uncertainty_joules
        assert energy.uncertainty_joules == pytest.approx(measured.uncertainty_joules, rel=0.3)
        if gpu is A100 and on is IRREGULAR:
            assert energy.uncertainty_joules < 0.25 * other.measured.uncertainty_joules


@pytest.mark.parametrize("names", [("run.parquet",), ("run.jls",), ("run.csv", "other.parquet", "third.csv")])
def test_no_format_loses_the_stamps(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        pytest.importorskip({"parquet": "pyarrow", "jls": "pyjls"}.get(name.rpartition(".")[2], "pmtpy"))
    measure(A100, IRREGULAR, LEVELS_W, REGIONS[:2], stamped=True, later=True, dump=tmp_path / names[0])
    for before, after in itertools.pairwise(names):
        convert(tmp_path / before, tmp_path / after)
    found = corrected(tmp_path / names[-1], A100)
    assert [each.energy.method for each in found] == ["load-informed"] * 2
    load = stamped_load(pmt.load(tmp_path / names[-1], 5.0, 9.0), alone=True)
    assert load is not None
    np.testing.assert_allclose(load.off_s - load.on_s, IRREGULAR[:, 1] - IRREGULAR[:, 0], atol=1e-8)


def test_regions_that_no_stamps_tell_all_of_are_corrected_without_and_that_is_said(tmp_path: Path) -> None:
    path, said = tmp_path / "run.csv", list[str]()
    measure(A100, IRREGULAR, LEVELS_W, REGIONS[1:3], stamped=True, later=True, dump=path)
    assert [e.energy.method for e in corrected(path, A100, said)] == ["load-informed"] * 2
    assert not any("stamps" in note for note in said)
    beside = path.with_name("run.csv.json")
    facts = json.loads(beside.read_text())
    facts["load"]["known_ns"][1][0] += 500_000_000
    beside.write_text(json.dumps(facts))
    assert [e.energy.method for e in corrected(path, A100, said)] == ["load-informed", "reconstruction"]
    assert any("of 2 regions 1 is corrected without the load's stamps" in note for note in said)


def test_without_regions_the_blocks_of_the_load_have_their_energies(tmp_path: Path) -> None:
    path, on = tmp_path / "run.csv", np.array([[2.0, 4.0], [5.5, 7.25], [9.0, 9.5]])
    measure(A100, on, LEVELS_W, [(0.0, 12.0)], stamped=True, later=True, dump=path)
    beside = path.with_name("run.csv.json")
    beside.write_text(json.dumps(json.loads(beside.read_text()) | {"regions": []}))
    found = corrected(path, A100)
    assert [each.seconds for each in found] == pytest.approx([2.0, 1.75, 0.5])
    assert all(e.energy.low <= 230.0 * e.seconds <= e.energy.high for e in found)
    (part,) = corrected(path, A100, between=(found[0].start_s - 1.0, found[-1].start_s + 1.5))
    assert part.energy.method == "load-informed"
    assert part.energy.low <= 230.0 * 4.25 + 60.0 * 5.25 <= part.energy.high
    other = stamped_load(pmt.load(path))
    assert other is not None
    # Where those that are given do not tell all, they are not used, whosever they are.
    said = list[str]()
    known = replace(LoadIntervals(other.on_s, other.off_s), known_s=other.on_s[None, [0, 1]])
    (part,) = corrected(path, A100, said, load=known, between=(found[0].start_s - 1.0, found[0].start_s + 1.0))
    assert part.energy.method == "reconstruction"
    assert any("of 1 region 1 is corrected without the load's stamps" in note for note in said)
    # Stamps that are given come first.
    given = corrected(path, A100, load=LoadIntervals(other.on_s[:2], other.off_s[:2]))
    assert [each.seconds for each in given] == pytest.approx([2.0, 1.75])


def test_a_region_right_behind_the_first_row_is_in_the_recording_and_begins_where_it_was_measured(
    tmp_path: Path,
) -> None:
    """Rows that bear the device's own times tell of polls half a period beside them; times count from the row."""
    path, lead_s = tmp_path / "run.csv", 0.01
    measure(AVERAGE, np.array([[3.0, 6.0]]), LEVELS_W, [(0.0, 12.0)], stamped=True, later=True, dump=path)
    facts: dict[str, Any] = json.loads((path.with_name("run.csv.json")).read_text())
    anchor, (region,) = facts["anchors"]["start"], facts["regions"]
    first_ns = round(1e9 * float(pmt.load(path)["time"].iloc[0])) - anchor["unix_ns"] + anchor["monotonic_ns"]
    load_s = (facts["load"]["on_ns"][0][0] - first_ns) / 1e9
    region["start_ns"] = first_ns + round(1e9 * lead_s)
    path.with_name("run.csv.json").write_text(json.dumps(facts))
    said = list[str]()
    (found,) = corrected(path, AVERAGE, said)
    assert not any("left out" in note for note in said)
    assert found.start_s == pytest.approx(lead_s, abs=1e-6)
    assert found.energy.low <= 60.0 * found.seconds + 170.0 * 3.0 <= found.energy.high
    (part,) = corrected(path, AVERAGE, between=(load_s - 1.0, load_s + 1.0))
    assert part.start_s == pytest.approx(load_s - 1.0, abs=1e-6)
    assert abs(part.energy.joules - (60.0 + 230.0)) < 0.5  # half a period of the polls is 4 J


def test_calibrate_energy_takes_them_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.csv"
    live = measure(A100, IRREGULAR, LEVELS_W, REGIONS[:2], stamped=True, later=True, dump=path)
    profile = A100.profile(Identity.read(pmt.load(path).attrs["metadata"]["identity"]))
    (tmp_path / "gpu.json").write_text(profile.to_json())
    assert main(["calibrate", "energy", str(path), "--profile", str(tmp_path / "gpu.json"), "--json"]) == 0
    energies = json.loads(capsys.readouterr().out)["energies"]
    assert [e["method"] for e in energies] == ["load-informed"] * 2
    assert all(e["low"] <= known.true_joules <= e["high"] for e, known in zip(energies, live, strict=True))


# -- characterise ------------------------------------------------------------------------------------------------------


def characterised(path: Path, capsys: pytest.CaptureFixture[str], *how: str) -> tuple[dict[str, Any], str]:
    assert main(["characterise", str(path), "--channel", "gpu.instant", "--json", *how]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


_SCHEDULED_S = 14.0  # the random blocks begin at 6 s


@pytest.mark.parametrize("untold_s", [0.0, 5.0, 9.0])
def test_characterise_finds_the_kernel_by_the_stamps_of_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], untold_s: float
) -> None:
    """The program says when the device works, from the first block after ``untold_s`` on."""
    path, clock, rng = tmp_path / "run.csv", ManualClock(), np.random.default_rng(1)
    edges = schedule(_SCHEDULED_S)
    first = 2 * int(np.searchsorted(edges[::2], untold_s))
    since_s = float(edges[first]) - 1e-3 if untold_s else 0.0
    steps = ",".join(f"{t:.6f}={40 if i % 2 else 140}" for i, t in enumerate(edges))
    source = opener("nvml", "virtual")("virtual", clock=clock, load=f"steps:0=40,{steps}", profile="a100")
    source.traits = replace(source.traits, deadline_s=None)
    with Sensor(source, "nvml:virtual", clock, interval_s=1e6) as sensor:
        made, epoch_s = acquisition_of(sensor), clock.now_ns() / 1e9
        made.intake.period_s = 0.005
        record(sensor, path)
        events = [(t, "off" if i % 2 else "on") for i, t in enumerate(edges) if i >= first]
        events += [(0.005 * k + rng.uniform(0.0, 0.002), "poll") for k in range(round(_SCHEDULED_S / 0.005))]
        events += [(since_s, "say")]
        for t, what in sorted(events):
            clock.advance(max(0.0, epoch_s + t - clock.now_ns() / 1e9))
            if what == "poll":
                made.step()
            elif what != "off":
                sensor.load().__enter__()
            if what in {"off", "say"}:
                sensor.load().__exit__(None, None, None)
    found, said = characterised(path, capsys)
    kernels = [found["kernel"]] if untold_s < 8.0 else []
    if untold_s:  # the registers, each fitted by itself, are told by the same stamps
        registers, also_said = characterised(path, capsys, "--registers")
        (instant,) = (each for each in registers["registers"] if each["channel"] == "gpu.instant")
        kernels += [instant["kernel"]] if untold_s < 8.0 else []
    if untold_s > 8.0:
        for text in (said, also_said):
            assert re.search(r"tell of 4\.\d+ of its 1[34][.0-9]* s in one go: they are not used", text)
        assert "kernel" in found["declined"]
        assert instant["kernel"] is None
        found, said = characterised(path, capsys, "--load", str(path))  # who asks for them gets what they tell
        kernels = [found["kernel"]]
    assert (untold_s > 0.0) == ("what is found by them is found there alone" in said)
    for kernel in kernels:
        assert kernel["tau_ms"]["low"] <= 12.5 <= kernel["tau_ms"]["high"]
        assert kernel["tau_ms"]["high"] - kernel["tau_ms"]["low"] < 2.0


def test_own_stamps_are_used_where_they_tell_of_changes_in_half_of_the_readings() -> None:
    polls, said = Series(np.arange(0.0, 20.0, 0.1), np.ones(200)), list[str]()
    on = np.arange(0.25, 20.0, 1.0)
    load = LoadIntervals(on, on + 0.5, np.array([[0.0, 3.0], [4.0, 15.0]]))
    assert used_stamps(polls, load, "run.csv", said.append) is load
    assert not said
    assert used_stamps(polls, replace(load, known_s=load.known_s[:1]), "run.csv", said.append) is None
    assert used_stamps(polls, replace(load, on_s=on[:0], off_s=on[:0]), "run.csv", said.append) is None
    assert "tell of 3 of its 19.9 s in one go: they are not used; with --load run.csv that time is looked at" in said[0]
    assert "tell of 11 of its 19.9 s in one go, and of no change" in said[1]


def test_stamps_of_the_load_come_before_markers_that_may_be_anything(tmp_path: Path) -> None:
    path, on = tmp_path / "run.csv", np.array([[2.0, 4.0], [5.5, 7.25]])
    measure(A100, on, LEVELS_W, [(0.0, 12.0)], stamped=True, later=True, dump=path)
    rows = path.read_text().splitlines(keepends=True)
    for row, label in ((10, "all start"), (len(rows) - 10, "all end")):
        rows[row] = rows[row].replace(",,", f",{label},", 1)
    path.write_text("".join(rows))
    load = read_stamps(str(path))
    assert (load.off_s - load.on_s).tolist() == pytest.approx([2.0, 1.75], abs=1e-6)
    assert load.known_s[0, 1] - load.known_s[0, 0] == pytest.approx(12.0, abs=1e-6)


# -- compare -----------------------------------------------------------------------------------------------------------


def test_compare_corrects_by_them_where_one_clock_stamped_all() -> None:
    """A sensor that sees a quarter of the time beside a meter that sees all; powers are known in closed form."""
    rng = np.random.default_rng(2)
    on = square(0.13, 0.4, 14.0, 0.2, 3) + 1.0
    load = LoadIntervals(on[:, 0], on[:, 1])
    low, rise = LEVELS_W[0], LEVELS_W[1] - LEVELS_W[0]
    t, fine = np.arange(0.05, 16.0, 0.1), np.arange(0.0, 16.0, 1e-3)
    shown = low + rise * Response(0.1, 0.025).shown(load, t) + rng.normal(0.0, 0.3, len(t))
    polls = np.arange(0.0, 16.0, 0.01) + rng.uniform(0.0, 2e-3, 1600)
    held = shown[np.clip(np.searchsorted(t, polls, side="right") - 1, 0, None)]
    meter = Trace("meter", fine, low + rise * Response(1e-3).shown(load, fine))
    sensor = Trace("gpu", polls, held, load=load)
    span = Span(5.0, 6.0, "work")
    truth = low + rise * float(PowerTrace.of_load(load).energy(5.0, 6.0))

    def corrected_by(trace: Trace, *, one_clock: bool) -> Energy:
        found = compare([trace, meter], reference="meter", one_clock=one_clock, regions=[span], whole=False)
        return found.regions[0].energies["gpu"]

    by_stamps, blind = (corrected_by(replace(sensor, load=known), one_clock=True) for known in (load, None))
    assert by_stamps.corrected_j is not None
    assert blind.corrected_j is not None
    assert by_stamps.corrected_j.low <= truth <= by_stamps.corrected_j.high
    assert by_stamps.corrected_j.half_width < 0.3 * blind.corrected_j.half_width
    apart = [corrected_by(replace(sensor, load=known), one_clock=False).corrected_j for known in (load, None)]
    assert apart[0] == apart[1]


def test_a_trace_of_a_recording_has_its_stamps_on_its_clock(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        measure(A100, IRREGULAR, LEVELS_W, REGIONS[:1], stamped=name == "a.csv", later=True, dump=tmp_path / name)
    a, b = side_by_side([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], ["gpu.instant"]).traces
    assert b.load is None
    assert a.load is not None
    assert a.load.known_s[0, 0] > a.t_s[0] > 1e9
    shifted = a.shifted(-5.0)
    assert shifted.load is not None
    np.testing.assert_allclose(shifted.load.edges + 5.0, a.load.edges)
    np.testing.assert_allclose(shifted.t_s + 5.0, a.t_s)
