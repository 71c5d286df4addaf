from __future__ import annotations

import importlib.util
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pmtpy.analysis.comparison.results import Compared, Comparison, Energy, RegionEnergies
from pmtpy.cli import main
from pmtpy.cli.comparison_report import page
from pmtpy.cli.page import plain
from pmtpy.core.markers import Span
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.powersensor3 import VirtualBoard
from tests.cli.conftest import Pmtpy, Started, wait_for
from tests.support.simulated import pseudo_random_bench

LOAD = "load=random:low=50,high=250,hz=4.3,seconds=60,seed=3"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A slow sensor and a meter of one load as CSV files; the sensor marks a region, the clocks differ by 5 s."""
    bench = pseudo_random_bench(0.13, 8.0)
    t_ns, watts = SensorModel(0.1, 0.03, window_s=0.1, gain=0.95, noise_w=0.2).record(
        bench.load, 8.0, Polling(0.01, 0.001)
    )
    _write(tmp_path / "gpu.csv", t_ns / 1e9, watts, {2.0: "solve start", 6.0: "solve end"})
    t = np.arange(0.0, 8.0, 1e-3)
    _write(tmp_path / "meter.csv", t + 5.0, bench.load.watts(t), {})
    return tmp_path / "gpu.csv", tmp_path / "meter.csv"


def _write(path: Path, t: np.ndarray, watts: np.ndarray, marks: dict[float, str]) -> None:
    markers = np.full(len(t), "", object)
    for at, label in marks.items():
        markers[np.searchsorted(t, at)] = label
    joules = np.concatenate([[0.0], np.cumsum(np.diff(t) * (watts[1:] + watts[:-1]) / 2)])
    columns = {
        "time": 1.7e9 + t,
        "elapsed": t - t[0],
        "marker": markers,
        "lost": 0,
        "total_W": watts,
        "total_J": joules,
    }
    pd.DataFrame(columns).to_csv(path, index=False, float_format="%.6f")


def test_recordings_are_compared_on_clocks_that_are_fitted(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "both.png"
    assert main(["compare", *map(str, files), "--json", "-o", str(picture)]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["reference"] == "meter.csv"
    assert document["clock"] == "fitted"
    gpu = document["sensors"][0]
    # Half the window of 100 ms, on a clock that is 5 s behind; half a poll of 10 ms is the age of a stamp.
    assert gpu["lag_ms"]["value"] == pytest.approx(-4950.0, abs=10.0)
    assert gpu["clock_offset_ms"]["value"] == pytest.approx(-5000.0, abs=10.0)
    assert gpu["gain"]["value"] == pytest.approx(0.95, abs=0.012)
    solve = next(r for r in document["regions"] if r["name"] == "solve")
    assert solve["seconds"] == pytest.approx(4.0, abs=0.02)
    assert {e["sensor"] for e in solve["energies"]} == {"gpu.csv", "meter.csv"}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "both.png" in err


def test_the_table_says_what_it_is_about(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *map(str, files), "--reference", "gpu.csv"]) == 0
    out = capsys.readouterr().out
    assert "reference: gpu.csv" in out
    assert "solve: " in out
    assert "calibrated is not known" in out


def test_one_fact_of_several_regions_stands_there_once() -> None:
    def energy(*told: str) -> dict[str, Energy]:
        return {"gpu": Energy(100.0, 1.0, 50.0, warnings=told)}

    regions = [
        RegionEnergies(Span(2.0, 4.0, "solve"), energy("can alias: anything from 0.5 to 30 J")),
        RegionEnergies(Span(0.0, 8.0, "whole"), energy("can alias: anything from 1.5 to 3e+02 J", "12 rows lost")),
    ]
    shown = plain(page(Comparison("gpu", True, (), tuple(regions)), []))
    assert shown.count("can alias") == 1
    assert "anything from 1.5 to 3e+02 J (whole; as well, with figures of their own: solve)" in shown
    assert "12 rows lost (whole)" in shown


def test_a_fact_of_one_region_among_others_says_of_which() -> None:
    told = {"whole": (), "solve": ("gpu: 3 rows lost",)}
    regions = [RegionEnergies(Span(0.0, 8.0, n), {"gpu": Energy(1.0, 1.0, 1.0, warnings=w)}) for n, w in told.items()]
    assert "note: gpu: 3 rows lost (solve)" in plain(page(Comparison("gpu", True, (), tuple(regions)), []))


def test_one_fact_of_several_sensors_stands_there_once() -> None:
    energies = {name: Energy(100.0, 1.0, 50.0, warnings=(f"{name}: its zero drifts",)) for name in ("gpu", "meter")}
    energies["board"] = Energy(100.0, 1.0, 50.0, warnings=("board: 12 rows lost",))
    whole = RegionEnergies(Span(0.0, 8.0, "whole"), energies)
    shown = plain(page(Comparison("gpu", True, (), (whole,)), []))
    assert "note: gpu, meter: its zero drifts\nnote: board: 12 rows lost" in shown


def test_a_reason_of_several_answers_stands_there_once() -> None:
    still = "the curve is constant within 0 W: it does not tell when anything happened; vary the load"
    why = {"lag_ms": still, "kernel": f"needs the lag: {still}", "gain": f"needs the lag: {still}"}
    found = Compared("gpu", 100, 8.0, 50.0, np.arange(100.0), declined=why)
    shown = plain(page(Comparison("meter", True, (found,), ()), []))
    assert shown.count("vary the load") == 1
    assert "note: gpu: no averaging window: needs the lag\nnote: gpu: no gain and offset: needs the lag" in shown


def test_a_file_without_power_is_named_and_not_taken_for_one_that_is_not_there(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    Path("smi.csv").write_text("timestamp, power.draw [W]\n2024/01/01 00:00:00.000, [N/A]\n", encoding="utf-8")
    assert main(["compare", "smi.csv", "meter.csv"]) == 2
    assert "smi.csv has neither a power nor marks in it" in capsys.readouterr().err
    assert main(["compare", "gpu.csv", "meter.csv", "smi.csv"]) == 0
    assert "smi.csv has neither a power nor marks in it: left out" in capsys.readouterr().out


def test_channels_of_one_file_share_its_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = pseudo_random_bench(0.13, 8.0)
    t = np.arange(0.0, 8.0, 0.01)
    late = bench.load.joules(t - 0.05) - bench.load.joules(t - 0.15)
    rows = {"a": bench.load.watts(t), "b": late / 0.1}
    table = pd.DataFrame(
        {"time": 1.7e9 + t, "elapsed": t, "marker": "", "lost": 0, "total_W": rows["a"], "total_J": 0.0}
    )
    for name, watts in rows.items():
        table[f"{name}_W"] = watts
        table[f"{name}_J"] = np.concatenate([[0.0], np.cumsum(0.01 * (watts[1:] + watts[:-1]) / 2)])
    table.to_csv(tmp_path / "run.csv", index=False, float_format="%.6f")
    assert (
        main(["compare", f"{tmp_path}/run.csv", "--channel", "a", "--channel", "b", "--reference", "a", "--json"]) == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["clock"] == "one"
    assert document["sensors"][1]["name"] == "run.csv#b"
    assert document["sensors"][1]["lag_ms"]["value"] == pytest.approx(100.0, abs=5.0)


def test_virtual_sensors_are_compared_with_each_other_and_with_the_truth(pmtpy: Pmtpy, tmp_path: Path) -> None:
    done = pmtpy(
        "compare", "rapl:virtual", "nvml:virtual", "powersensor3:virtual", "-o", LOAD, "-o", "live.svg", "--json",
        "--", "sh", "-c", "echo out; sleep 2; exit 3",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert "out" in done.stderr
    assert document["exit_status"] == 3
    assert document["clock"] == "one"
    assert document["reference"] == "powersensor3:virtual"
    (region,) = document["regions"]
    assert region["seconds"] > 2.0
    for energy in region["energies"]:
        # Three standard uncertainties: of several energies one is beyond two now and then.
        assert energy["joules"] == pytest.approx(region["true_joules"], abs=3 * energy["uncertainty_joules"]), energy
        assert abs(energy["true_error_percent"]) < 10
    assert any("virtual" in w for w in document["warnings"])
    assert "VIRTUAL" in (tmp_path / "live.svg").read_text() or (tmp_path / "live.svg").stat().st_size > 20_000


def test_what_was_seen_until_ctrl_c_is_compared(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    child = started("compare", "rapl:virtual", "nvml:virtual", "-o", LOAD, "--duration", "1h", "--json")
    # It rests half a second and then watches; both are in its log, whose rows are its clock.
    wait_for(lambda: any(_logged_s(log) > 5.0 for log in tmp_path.glob("*/0.csv")))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert 0.0 < json.loads(out)["regions"][0]["seconds"] < 3600.0


def _logged_s(log: Path) -> float:
    rows = log.read_text(encoding="utf-8").splitlines()[1:-1]
    return float(rows[-1].split(",")[1]) if rows else 0.0


def test_a_missing_package_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    assert main(["compare", "rapl:virtual", "nvml:virtual", "-o", "x.png", "--", "touch", "ran"]) == 3
    assert "pip install 'pmtpy[plot]'" in capsys.readouterr().err
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rapl:virtual"], "two or more"),
        (["rapl:virtual", "rapl:virtual"], "two or more"),
        (["gpu.csv", "rapl:virtual"], "cannot be compared at once"),
        (["gone.csv", "also-gone.csv"], "there is no file gone.csv"),
        (["gpu.csv", "meter.csv", "-o", "load=constant:5"], "recording"),
        (["gpu.csv", "meter.csv", "-o", "picture.gif"], ".png"),
        (["gpu.csv", "meter.csv", "--reference", "x"], "not one of: gpu.csv, meter.csv"),
        (["gpu.csv#nothing", "meter.csv"], "it has: total"),
        (["gpu.csv"], "two or more"),
        (["rapl:virtual", "nvml:virtual", "--clock", "one"], "live sensors have one clock"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    files: tuple[Path, Path],
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files[0].parent)
    assert main(["compare", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_what_was_seen_of_a_sensor_lost_half_way_is_still_compared(
    started: Started, board: VirtualBoard, tmp_path: Path
) -> None:
    command = ("sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.02; done")
    meter = f"powersensor3:{board.path}"
    child = started("compare", meter, "rapl:virtual", "hwmon:virtual", "--json", "--output", "c.json", "--", *command)
    wait_for((tmp_path / "running").exists)
    board.unplug()
    assert child.stderr is not None
    assert "is lost" in child.stderr.readline()
    (tmp_path / "go").touch()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors  # the command's own
    report = json.loads((tmp_path / "c.json").read_text())
    common, command_region = report["regions"]
    assert common["name"] == "whole"
    assert {e["sensor"] for e in common["energies"]} == {meter, "rapl:virtual", "hwmon:virtual"}
    assert {e["sensor"] for e in command_region["energies"]} == {"rapl:virtual", "hwmon:virtual"}
    assert any("unplugged" in w for w in report["warnings"])


def test_a_stream_that_was_dumped_with_fewer_rows_sees_all_of_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets, steps = ["powersensor3:virtual", "nvml:virtual"], ["--interval", "10ms", "--duration", "600ms", "-q"]
    assert main(["dump", *targets, "-o", LOAD, *steps, "-f", str(tmp_path / "run.csv")]) == 0
    files = [str(tmp_path / f"run-{name}-virtual.csv") for name in ("powersensor3", "nvml")]
    capsys.readouterr()
    assert main(["compare", *files, "--json"]) == 0
    energies = json.loads(capsys.readouterr().out)["regions"][0]["energies"]
    (meter,) = (e for e in energies if e["sensor"].endswith("powersensor3-virtual.csv"))
    assert not [w for w in meter["warnings"] if "of the time" in w]


def test_a_part_of_the_total_without_a_single_row_does_not_hinder_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.csv"
    steps = ["--interval", "20ms", "--duration", "300ms", "-q"]
    assert main(["dump", "rapl:virtual", "nvml:virtual", "-o", LOAD, *steps, "-f", str(run)]) == 0
    rapl = tmp_path / "run-rapl-virtual.csv"
    table = pd.read_csv(rapl)
    part = next(c for c in table.columns if c.endswith("_W") and c != "total_W")
    table[part] = np.nan
    table.to_csv(rapl, index=False)
    capsys.readouterr()
    assert main(["compare", str(rapl), str(tmp_path / "run-nvml-virtual.csv"), "--json"]) == 0
    energies = json.loads(capsys.readouterr().out)["regions"][0]["energies"]
    assert {e["sensor"] for e in energies} == {"run-rapl-virtual.csv", "run-nvml-virtual.csv"}
