"""The procedures of the published evaluations as a user asks for them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmtpy.cli import main, procedures_registers
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table
from pmtpy.lab.loads import schedule
from pmtpy.lab.registers import measure_registers
from tests.cli.conftest import Pmtpy
from tests.support.worlds import WalkingClock


def _document(pmtpy: Pmtpy, *words: object) -> Any:
    ended = pmtpy("characterise", *words, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _recording(path: Path, t: Any, watts: dict[str, Any], domains: dict[str, str] | None = None) -> Path:
    """A dump whose powers are means since the row before."""
    step = np.diff(t, prepend=t[0])
    columns = {"time": 1.7e9 + t, "elapsed": t - t[0], "marker": [""] * len(t), "lost": np.zeros(len(t), int)}
    for name, w in watts.items():
        columns |= {f"{name}_W": w, f"{name}_J": np.cumsum(w * step)}
    lines = [",".join(columns)]
    lines += [
        ",".join(
            v if isinstance(v, str) else f"{v:.9f}" if name != "lost" else f"{v}"
            for name, v in zip(columns, row, strict=True)
        )
        for row in zip(*columns.values(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    if domains is not None:
        channels = [{"name": n, "quantity": "power", "form": "direct", "domain": d} for n, d in domains.items()]
        path.with_name(path.name + ".json").write_text(json.dumps({"target": "made", "channels": channels}))
    return path


def test_what_a_reading_costs_is_shown_for_both_ways_of_reading_an_occ(pmtpy: Pmtpy) -> None:
    found = _document(pmtpy, "occ:virtual", "--latency", "--reads", 200)["latency"]
    assert {way: cost["reads"] for way, cost in found.items()} == {"selected records": 200, "whole block": 200}
    assert all(cost["min_us"] <= cost["percentiles_us"]["50"] <= cost["max_us"] for cost in found.values())
    table = pmtpy("characterise", "rapl:virtual", "--latency", "--reads", 200).stdout
    assert "what one reading costs" in table
    assert "is virtual: each reading includes the work of its emulation" in table


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["rapl:virtual", "--latency", "--meter", "nosuch.csv", "--every", "5m"],
            "--latency does not take --every, --meter",
        ),
        (["a.csv", "--steps", "--window", "9s"], "--steps does not take --window; it takes --channel, --from"),
        (["a.csv", "--begin", "x"], "a characterisation does not take --begin"),
    ],
)
def test_what_a_procedure_does_not_take_is_refused(pmtpy: Pmtpy, words: list[str], why: str) -> None:
    ended = pmtpy("characterise", *words)
    assert ended.returncode == 2
    assert why in ended.stderr


def test_a_procedure_takes_a_part_of_a_recording(pmtpy: Pmtpy, tmp_path: Path) -> None:
    t = np.arange(0.0, 40.0, 0.01)
    watts = np.where(t < 20.0, 50.0, 80.0) + 0.1 * np.sin(40.0 * t)
    path = _recording(tmp_path / "run.csv", t, {"total": watts})
    whole = _document(pmtpy, path, "--stability")
    part = _document(pmtpy, path, "--stability", "--from", "22s", "--to", "38s")
    assert whole["mean_w"] == pytest.approx(65.0, abs=1.0)
    assert part["mean_w"] == pytest.approx(80.0, abs=0.1)


def test_a_sensor_against_a_reference_and_parts_against_the_whole(pmtpy: Pmtpy, tmp_path: Path) -> None:
    t = np.arange(0.0, 30.0, 0.1)
    reference = 100.0 + 10.0 * np.floor(t)  # a level for each second, as the windows have it
    sensor = _recording(tmp_path / "sensor.csv", t, {"total": 0.8 * reference - 8.0})
    _recording(tmp_path / "psu.csv", t, {"total": reference})
    found = _document(pmtpy, sensor, "--against", tmp_path / "psu.csv")
    assert [c["value"] for c in found["linear"]["coefficients"]] == pytest.approx([10.0, 1.25], rel=1e-3)
    assert found["linear"]["mape_percent"]["high"] < 0.01

    powers = {"total": reference, "node": reference, "socket": 0.7 * reference, "dram": 0.2 * reference}
    domains = {"node": "host", "socket": "host/socket0/package", "dram": "host/socket0/dram"}
    whole = _recording(tmp_path / "parts.csv", t, powers, domains)
    parts = _document(pmtpy, whole, "--parts")["wholes"]["node"]
    assert parts["parts"] == ["dram", "socket"]
    assert parts["ratio"] == pytest.approx(0.9, rel=1e-6)
    assert parts["mape_percent"]["value"] == pytest.approx(10.0, rel=1e-6)


def _dwelling(t: Any) -> Any:
    """A load of drawn levels, each held for a drawn time that ends at a row."""
    random = np.random.default_rng(8)
    ends = np.cumsum(np.round(random.uniform(0.4, 2.5, 200), 2))
    return random.uniform(50.0, 300.0, 200)[np.searchsorted(ends, t - 1e-6)]


@pytest.mark.parametrize("off_s", [1.5, -0.7])
def test_a_clock_that_differs_is_told_from_the_data_and_taken_out(off_s: float, pmtpy: Pmtpy, tmp_path: Path) -> None:
    """A sensor of ``0.95 x + 5 W``, whose clock is ahead or behind."""
    t = np.arange(0.0, 60.0, 0.02)
    sensor = _recording(tmp_path / "sensor.csv", t + off_s, {"total": 0.95 * _dwelling(t) + 5.0})
    _recording(tmp_path / "meter.csv", t, {"total": _dwelling(t)})
    found = _document(pmtpy, sensor, "--against", tmp_path / "meter.csv")
    assert found["lag_s"]["value"] == pytest.approx(off_s, abs=0.005)
    assert f"runs behind by {off_s:.4g} s" in found["notes"][0]
    assert [c["value"] for c in found["linear"]["coefficients"]] == pytest.approx([-5.263, 1.0526], rel=0.02)


def test_clocks_that_differ_by_what_cannot_be_told_are_refused(pmtpy: Pmtpy, tmp_path: Path) -> None:
    """Of a square of 4 s, 1.5 s later and 2.5 s earlier look alike."""
    t = np.arange(0.0, 60.0, 0.02)
    square = np.where(t % 4.0 < 2.0, 60.0, 200.0)
    sensor = _recording(tmp_path / "sensor.csv", t + 1.5, {"total": square})
    _recording(tmp_path / "meter.csv", t, {"total": square})
    ended = pmtpy("characterise", sensor, "--against", tmp_path / "meter.csv")
    assert ended.returncode == 1
    assert "their clocks differ, and by how much cannot be told" in ended.stderr


def test_a_reference_that_is_read_seldom_has_a_line_that_is_as_wide_as_that(pmtpy: Pmtpy, tmp_path: Path) -> None:
    """Momentary powers 10 s apart say little of loads that change each second or so."""
    t = np.arange(0.0, 240.0, 0.02)
    sensor = _recording(tmp_path / "sensor.csv", t, {"total": _dwelling(t)})
    rows = [f"{1.7e9 + at:.6f},{at:.6f},,0,{w:.3f}" for at, w in zip(t[::500], _dwelling(t[::500]), strict=True)]
    (tmp_path / "meter.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W", *rows]) + "\n")
    found = _document(pmtpy, sensor, "--against", tmp_path / "meter.csv")
    if found["linear"] is None:
        assert "by which a slope is" in found["declined"]["linear"]
    else:
        slope = found["linear"]["coefficients"][1]
        assert slope["low"] <= 1.0 <= slope["high"]


@pytest.mark.parametrize(
    ("kept", "energies"), [("all", True), ("hole", True), ("few", True), ("all", False), ("hole", False)]
)
def test_windows_that_a_reference_does_not_resolve_are_left_out_or_longer(
    kept: str, *, energies: bool, pmtpy: Pmtpy, tmp_path: Path
) -> None:
    """A sensor of ``0.95 x + 5 W``; the reference's line back is ``1.0526 y - 5.263 W``, exactly."""
    t = np.arange(0.0, 100.0, 0.05)
    levels = np.random.default_rng(3).uniform(50.0, 300.0, 200)
    reference = levels[np.ceil(t).astype(int)]  # until each whole second, as means since the row before have it
    sensor = _recording(tmp_path / "sensor.csv", t, {"total": 0.95 * reference + 5.0})
    meter = _recording(tmp_path / "meter.csv", t, {"total": reference})
    lines = meter.read_text().splitlines()
    rows = {"all": lines[1:], "hole": lines[1:402] + lines[801:], "few": lines[1::200]}[kept]
    meter.write_text("\n".join([lines[0], *rows]) + "\n")
    if not energies:
        for path in (sensor, meter):  # straight lines between the rows: half a step of 50 ms is of the level before
            path.write_text("".join(f"{line.rsplit(',', 1)[0]}\n" for line in path.read_text().splitlines()))
    found = _document(pmtpy, sensor, "--against", meter)
    assert found["workloads"] == {"all": 99, "hole": 79, "few": 9}[kept]
    c0, c1 = (c["value"] for c in found["linear"]["coefficients"])
    assert (c0, c1) == (pytest.approx(-5.263, abs=0.05), pytest.approx(1.0526, rel=1e-3))


def test_regions_shorter_than_the_rows_of_a_reference_are_refused(pmtpy: Pmtpy, tmp_path: Path) -> None:
    t = np.arange(0.0, 60.0, 0.1)
    power = 100.0 + 10.0 * np.floor(t)
    sensor = _recording(tmp_path / "sensor.csv", t, {"total": power})
    _recording(tmp_path / "meter.csv", t[::100], {"total": power[::100]})
    lines = sensor.read_text().splitlines()
    for row, label in ((i + at, label) for i in range(0, 480, 60) for at, label in ((20, "start"), (40, "end"))):
        fields = lines[row + 1].split(",")
        lines[row + 1] = ",".join([*fields[:2], label, *fields[3:]])
    sensor.write_text("\n".join(lines) + "\n")
    ended = pmtpy("characterise", sensor, "--against", tmp_path / "meter.csv")
    assert ended.returncode == 1
    assert "(8 more: without rows in one of the two, or too short for its rows)" in ended.stderr


def test_of_a_dump_of_several_channels_the_total_is_judged(pmtpy: Pmtpy, tmp_path: Path) -> None:
    t = np.arange(0.0, 30.0, 0.1)
    total = 100.0 + 10.0 * np.floor(t)
    run = _recording(
        tmp_path / "run.csv", t, {"total": total, "pair0": 0.25 * total, "pair1": 0.75 * total},
        {"pair0": "external/pair0", "pair1": "external/pair1"},
    )  # fmt: skip
    channels = [
        {"name": n, "quantity": "power", "form": "direct", "domain": f"external/{n}"} for n in ("pair0", "pair1")
    ]
    (tmp_path / "run.csv.json").write_text(json.dumps({"target": "made", "channels": channels}))
    (tmp_path / "work.csv").write_text("elapsed,items\n" + "".join(f"{i},1\n" for i in range(1, 21)))
    found = _document(pmtpy, run, "--work", tmp_path / "work.csv")
    assert found["channel"] == "total"
    assert found["work"][0]["joules"] == pytest.approx(20 * 195.0, rel=0.01)
    found = _document(pmtpy, run, "--work", tmp_path / "work.csv", "--channel", "pair1")
    assert found["work"][0]["joules"] == pytest.approx(20 * 195.0 * 0.75, rel=0.01)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["rapl:virtual", "--internal-rate", "--frequencies", "1995,1996"], "give three frequencies"),
        (["nvml:0", "--internal-rate"], "cannot be made on a GPU from here"),
        (["powersensor3:virtual", "--latency"], "delivers every sample by itself"),
        (["rapl:virtual", "--parts"], "make one first"),
        (["none.csv", "--against", "other.csv"], "there is no recording none.csv"),
        (["a.csv", "--latency", "--updates"], "not allowed with"),
    ],
)
def test_what_cannot_be_done_is_said(pmtpy: Pmtpy, words: list[str], why: str) -> None:
    ended = pmtpy("characterise", *words)
    assert ended.returncode in {2, 3}
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_registers_of_a_card_beside_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_no_time = functools.partial(measure_registers, clock=WalkingClock())
    monkeypatch.setattr(procedures_registers, "measure_registers", in_no_time)
    words = [
        "characterise",
        "nvml:virtual",
        "-o",
        "profile=rtx3090",
        "--registers",
        "--duration",
        "10s",
        "--interval",
        "5ms",
    ]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reference"] == {"target": "nvml:virtual", "channel": "gpu.instant"}
    assert found["virtual"] == ["nvml:virtual"]
    registers = {r["channel"]: r for r in found["registers"]}
    assert registers.keys() == {"gpu.energy", "gpu.instant", "gpu.average"}
    counter, average = registers["gpu.energy"], registers["gpu.average"]
    assert counter["counter"]["step_j"] == pytest.approx(0.001)
    assert counter["counter"]["restarts"] == 0
    assert counter["update_period_ms"]["value"] == pytest.approx(100.0, rel=2e-3)
    assert average["counter"] is None
    assert average["phase_ms"]["low"] <= 0.0 <= average["phase_ms"]["high"]  # one clock for both powers
    assert average["slide_ppm"]["low"] <= 0.0 <= average["slide_ppm"]["high"]


def _registers(path: Path, leap_s: float = 0.0) -> tuple[Path, Path]:
    """A dump of a counter and a power with 37 ms between their updates, polled every 5 ms; and the load's stamps.

    Its wall clock is set by ``leap_s`` meanwhile.
    """
    edges = schedule(12.0)
    load = Table(np.append(-100.0, edges), np.where(np.arange(len(edges) + 1) % 2, 220.0, 60.0))
    power = SensorModel(0.1, 0.011, window_s=0.1, gain=0.95, noise_w=0.3, step_w=0.001)
    counter = SensorModel(counter_update_s=0.1, phase_s=0.048, counter_step_j=0.008)
    t = np.arange(0.0, 12.0, 0.005) + np.random.default_rng(1).uniform(0.0, 1e-4, 2400)
    watts, joules = power.readings(load, t), counter.counter(load, t) - counter.counter(load, t[:1])
    lines = ["time,elapsed,marker,lost,total_W,total_J,gpu.energy_W,gpu.energy_J,gpu.instant_W,gpu.instant_J"]
    wall = 1.7e9 + t + leap_s * (t > 6.0)
    lines += [
        f"{wall[i]:.6f},{t[i]:.9f},,0,,{joules[i]:.6f},60.0,{joules[i]:.6f},{watts[i]:.4f},"
        for i in (0, *(np.flatnonzero((np.diff(watts) != 0.0) | (np.diff(joules) != 0.0)) + 1))
    ]
    path.write_text("\n".join(lines) + "\n")
    channels = [
        {"name": "gpu.energy", "quantity": "energy", "form": "direct", "scale": 0.001},
        {"name": "gpu.instant", "quantity": "power", "form": "direct", "scale": 0.001},
    ]
    facts = {"target": "made", "polled_s": 0.005, "channels": channels}
    path.with_name(path.name + ".json").write_text(json.dumps(facts))
    stamps = path.with_name("load.csv")
    stamps.write_text("\n".join(["timestamp", *(f"{round((1.7e9 + at) * 1e6)}" for at in (*edges, 12.0))]) + "\n")
    return path, stamps


def test_registers_of_a_recording_beside_each_other(pmtpy: Pmtpy, tmp_path: Path) -> None:
    recording, stamps = _registers(tmp_path / "run.csv")
    found = _document(pmtpy, recording, "--registers", "--load", stamps)
    assert found["reference"]["channel"] == "gpu.instant"
    counter, power = found["registers"]
    assert (counter["channel"], power["channel"]) == ("gpu.energy", "gpu.instant")
    assert counter["counter"]["step_j"] == pytest.approx(0.008)
    assert counter["counter"]["restarts"] is None  # what began again was put right when it was recorded
    for name, truth in (("phase_ms", 37.0), ("slide_ppm", 0.0), ("behind_ms", 0.0), ("ratio", 1.0 / 0.95)):
        assert counter[name]["low"] <= truth <= counter[name]["high"], name
    assert power["phase_ms"] is None
    without = pmtpy("characterise", recording, "--registers", "--channel", "gpu.energy").stdout
    assert "not determined, gpu.instant, kernel: needs the stamps of a load" in without
    assert "reference" in next(line for line in without.splitlines() if line.startswith("gpu.energy "))
    leaps, _ = _registers(tmp_path / "leaps.csv", 3600.0)  # a recording that stands alone goes by its elapsed time
    again = pmtpy("characterise", leaps, "--registers", "--channel", "gpu.energy").stdout
    assert again.splitlines()[1:] == without.splitlines()[1:]


def test_registers_need_powers_one_clock_and_each_target_once(pmtpy: Pmtpy, tmp_path: Path) -> None:
    recording, _ = _registers(tmp_path / "run.csv")
    other, _ = _registers(tmp_path / "other.csv")
    for words, why in (
        (["nvml:virtual", "nvml:virtual"], "one of them is named twice"),
        ([recording, other], "were stamped by different clocks, which have no phase to each other"),
        ([recording, "nvml:virtual"], "nvml:virtual is a sensor, this procedure needs a recording"),
        (["nvml:virtual", "--load", tmp_path / "load.csv"], "--load goes with recordings; for nvml:virtual a load is"),
        ([tmp_path / "load.csv"], "load.csv has no power in it"),
        ([recording, "--channel", "gpu.nope"], "there is no register gpu.nope; there are gpu.energy, gpu.instant"),
        ([recording, "--updates"], "not allowed with"),
    ):
        refused = pmtpy("characterise", *words, "--registers")
        assert refused.returncode == 2
        assert why in refused.stderr, refused.stderr
