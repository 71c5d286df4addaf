from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.cli import main
from pmtpy.cli.characterise import page
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.lab.loads import gpu_load, schedule
from pmtpy.lab.record import Recorder
from tests.support.simulated import pseudo_random_bench
from tests.support.worlds import WalkingClock


@pytest.fixture
def recording(tmp_path: Path) -> dict[str, Path]:
    """An nvidia-smi log, load stamps, and a meter's CSV of one pseudo-random load; the log is in another zone."""
    from datetime import datetime, timezone

    bench = pseudo_random_bench(0.17)
    model = SensorModel(0.1, 0.03, window_s=0.08, gain=0.95, offset_w=-3.0, noise_w=0.3, step_w=0.01)
    t_ns, watts = model.record(bench.load, 10.0, Polling(0.008, 0.001, stamp_step_s=0.001))
    epoch = 1_700_000_000.0
    log = ["timestamp, power.draw.average [W], power.draw.instant [W]"]
    for t, w in zip(t_ns / 1e9 + epoch + 2.0 * 3600.0, watts, strict=True):
        stamp = datetime.fromtimestamp(round(t, 3), timezone.utc).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        log.append(f"{stamp}, 100.00, {w:.2f}")
    stamps = [f"{round((epoch + t) * 1e6)}" for t in (*bench.edges_s, 10.0)]
    at = np.arange(0.0, 10.0, 2.5e-4)
    meter = ["time,elapsed,marker,lost,total_W,total_J,a_W,a_J"]
    truth, joules = bench.load.watts(at), bench.load.joules(at)
    meter += [f"{epoch + t:.6f},{t:.6f},,0,{w},{j},{w},{j}" for t, w, j in zip(at, truth, joules, strict=True)]
    files = {"log": log, "load": ["timestamp", *stamps], "meter": meter}
    for name, lines in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {name: tmp_path / f"{name}.csv" for name in files}


def test_a_recording_gives_one_json_document_and_nothing_else(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["characterise", str(recording["log"]), "--channel", "power.draw.instant [W]", "--json"]
    assert main([*words, "--load", str(recording["load"]), "--meter", str(recording["meter"])]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["channel"] == "power.draw.instant"
    assert document["update_period_ms"]["value"] == pytest.approx(100.0, rel=0.001)
    assert document["kernel"]["family"] == "boxcar"
    assert document["kernel"]["window_ms"]["value"] == pytest.approx(80.0, abs=1.0)
    assert document["gradient"]["value"] == pytest.approx(0.95, abs=0.012)
    assert "note: the readings' clock was shifted by" in captured.err


def test_a_missing_file_and_a_folder_are_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["characterise", str(tmp_path / "gpudata.csv")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["characterise", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_without_json_a_table_shows_values_and_what_was_declined(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["characterise", str(recording["log"])]) == 0
    out = capsys.readouterr().out
    assert "update period" in out
    assert "95 %" in out
    assert "not determined, gradient: needs a meter" in out


def test_an_unknown_channel_names_those_there_are(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["characterise", str(recording["log"]), "--channel", "nothing"]) == 2
    assert "power.draw.average, power.draw.instant" in capsys.readouterr().err


def test_a_load_file_without_markers_is_refused(recording: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["characterise", str(recording["log"]), "--load", str(recording["meter"])]) == 2
    assert "no markers" in capsys.readouterr().err


def test_a_report_has_the_digits_that_the_interval_lets_count() -> None:
    document = {
        "channel": "gpu.instant",
        "update_period_ms": {"value": 100.00112, "low": 99.9663, "high": 100.0402},
        "step": {"kind": "instant", "rise_ms": None, "delay_ms": {"value": 101.118, "low": 3.6331, "high": 105.5976}},
        "kernel": {"family": "one-pole"} | dict.fromkeys(("window_ms", "tau_ms", "offset_ms", "spread_ms")),
        "gradient": None, "intercept_w": None, "energy": {}, "declined": {},
    }  # fmt: skip
    text = "\n".join(str(getattr(each, "text", each)) for each in page("nvml:virtual", document))
    assert "100.001 ms  (95 %: 99.966 to 100.040)" in text
    assert "101 ms  (95 %: 4 to 106)" in text


def test_a_report_names_the_kernels_that_are_left_and_what_is_known_all_the_same() -> None:
    lag = {"value": 44.2, "low": 40.1, "high": 52.3}
    none = dict.fromkeys(("window_ms", "offset_ms", "spread_ms"))
    shares = {"boxcar": 0.5, "one-pole": 0.46, "two-pole": 0.04}
    document = {
        "channel": "gpu.instant",
        "update_period_ms": None,
        "step": dict.fromkeys(("kind", "rise_ms", "delay_ms")),
        "kernel": none | {"family": "ambiguous", "tau_ms": {"value": None, "low": 0.0, "high": 29.12}, "lag_ms": lag,
                          "candidates": [{"family": f, "share": share} for f, share in shares.items()]},
        "levels_w": {"off": None, "on": {"value": 200.1, "low": 198.4, "high": 201.8}},
        "gradient": None, "intercept_w": None, "energy": {}, "declined": {},
    }  # fmt: skip
    text = "\n".join(str(getattr(each, "text", each)) for each in page("nvml:virtual", document))
    assert "boxcar 50 %, one-pole 46 %\n" in text + "\n"
    assert "below 29.12 ms" in text
    assert re.search(r"mean lag +44.2 ms +\(95 %: 40.1 to 52.3\)", text)
    assert re.search(r"shown, load on +200.1 W +\(95 %: 198.4 to 201.8\)", text)


@pytest.mark.parametrize("option", ["--load", "--meter"])
@pytest.mark.parametrize("name", ["none.csv", "."])
def test_a_file_that_cannot_be_opened_is_named(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    missing = recording["log"].parent / name
    assert main(["characterise", str(recording["log"]), option, str(missing)]) == 2
    assert f"cannot read {missing}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("load", "give it with --load"),
        ("pmd", "this one with --meter"),
        ("log --load log", "a log of power goes with --meter"),
        ("log --meter load", "give it with --load"),
        ("log --meter log", "cannot be its own meter"),
    ],
)
def test_files_in_each_others_places_are_refused_with_where_they_belong(
    recording: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    words: str,
    why: str,
) -> None:
    pmd = recording["log"].with_name("PMD_data.bin")
    pmd.write_bytes((np.arange(9 * 1000).reshape(-1, 9) % 4096 * 16).astype("<u2").tobytes())
    of = {name: str(path) for name, path in recording.items()} | {"pmd": str(pmd)}
    assert main(["characterise", *(of.get(word, word) for word in words.split())]) == 2
    assert why in capsys.readouterr().err


def test_a_log_of_several_gpus_asks_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = [f"2023/07/13 18:15:{30 + ms // 1000}.{ms % 1000:03d}" for ms in range(0, 2000, 10)]
    rows = [f"{gpu}, {stamp}, {100 + gpu}.00" for stamp in at for gpu in (0, 1)]
    (tmp_path / "log.csv").write_text("index, timestamp, power.draw [W]\n" + "\n".join(rows) + "\n")
    assert main(["characterise", str(tmp_path / "log.csv")]) == 2
    assert "--channel: gpu0.power.draw, gpu1.power.draw" in capsys.readouterr().err
    assert main(["characterise", str(tmp_path / "log.csv"), "--channel", "gpu0.power.draw"]) == 0
    assert "the power is constant" in capsys.readouterr().out


def test_a_last_line_that_was_cut_off_is_left_out_and_said(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = recording["log"].read_text()
    recording["log"].write_text(text[:-3])
    assert main(["characterise", str(recording["log"]), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["update_period_ms"]["value"] == pytest.approx(100.0, rel=0.001)
    assert "left out 1 line that cannot be read" in said.err


def test_a_broken_line_within_is_an_error_unless_it_is_to_be_skipped(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = recording["log"].read_text().splitlines()
    lines[40] = lines[40][:-3] + "x.y"
    recording["log"].write_text("\n".join(lines) + "\n")
    assert main(["characterise", str(recording["log"])]) == 1
    assert "line 41" in (said := capsys.readouterr().err)
    assert "--skip-broken" in said
    assert main(["characterise", str(recording["log"]), "--skip-broken"]) == 0


def test_a_meter_for_a_live_sensor_is_refused_with_the_way_to_do_it(
    recording: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["characterise", "nvml:virtual", "--meter", str(recording["meter"])]) == 2
    assert "pmtpy dump nvml:virtual" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "family", "width_s"),
    [
        ({"profile": "h100"}, "one-pole", 0.0125),
        ({"profile": "h100", "window_ms": "60", "tau_ms": "0", "period_ms": "90"}, "boxcar", 0.06),
    ],
)
def test_a_virtual_gpu_is_found_to_be_what_it_is(options: dict[str, str], family: str, width_s: float) -> None:
    live = Recorder(12.0, "gpu.instant", 0.006, WalkingClock()).alone("nvml:virtual", options)
    found = characterise(live.about.name, live.series, load=live.load)
    assert found.kernel is not None
    assert found.kernel.family == family
    width = found.kernel.best.window_s or found.kernel.best.tau_s
    assert width is not None
    assert width.value == pytest.approx(width_s, rel=0.08)
    assert found.step is not None
    assert found.step.kind == "instant"


def test_a_counter_is_characterised_by_its_moves() -> None:
    live = Recorder(12.0, "gpu.energy", 0.006, WalkingClock()).alone("nvml:virtual", {})
    found = characterise(live.about.name, live.series, load=live.load)
    assert found.lattice is not None
    assert found.lattice.period_s.value == pytest.approx(0.1, rel=0.001)
    assert found.kernel is not None
    assert found.kernel.best.window_s is not None
    assert found.kernel.best.window_s.value == pytest.approx(0.1, rel=0.05)  # the mean between two moves


def test_a_dump_of_ours_is_characterised_by_its_first_power_poll_by_poll(
    recording: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = pseudo_random_bench(0.17)
    model = SensorModel(0.1, 0.03, window_s=0.08, gain=0.95, offset_w=-3.0, noise_w=0.3, step_w=0.01)
    t_ns, watts = model.record(bench.load, 10.0, Polling(0.007, 0.0))
    kept = np.concatenate([[True], np.diff(watts) != 0.0])  # a poll that brings nothing new makes no row
    lines = ["time,elapsed,marker,lost,total_W,total_J,gpu.energy_W,gpu.energy_J,gpu.instant_W,gpu.instant_J"]
    lines += [
        f"{1.7e9 + t:.6f},{t:.9f},,0,1,{t},1,{t},{w},0" for t, w in zip(t_ns[kept] / 1e9, watts[kept], strict=True)
    ]
    (tmp_path / "dump.csv").write_text("\n".join(lines) + "\n")
    channels = [
        {"name": "gpu.energy", "quantity": "energy", "form": "direct", "in_total": True},
        {"name": "gpu.instant", "quantity": "power", "form": "direct", "in_total": False, "gain_u": 0.05},
    ]
    identity = {"backend": "nvml", "serial": "GPU-1", "virtual": True}
    facts = {
        "format": 1,
        "target": "nvml:virtual",
        "identity": identity,
        "virtual": True,
        "channels": channels,
        "polled_s": 0.007,
        "stamped": False,
    }
    (tmp_path / "dump.csv.json").write_text(json.dumps(facts))
    words = ["characterise", str(tmp_path / "dump.csv"), "--load", str(recording["load"])]
    assert main([*words, "--meter", str(recording["meter"]), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["channel"] == "gpu.instant"
    assert document["target"] == "nvml:virtual"
    assert document["virtual"] is True
    assert document["identity"]["serial"] == "GPU-1"
    assert document["shown_w"][0] < 100.0 < document["shown_w"][1]
    assert document["stated"] == {"gain_u": pytest.approx(0.05), "offset_u": 0.0}
    assert document["update_period_ms"]["low"] < 100.0 < document["update_period_ms"]["high"]
    assert document["kernel"]["window_ms"]["value"] == pytest.approx(80.0, abs=1.0)
    assert document["gradient"]["value"] == pytest.approx(0.95, abs=0.012)


def test_a_virtual_device_with_a_load_of_its_own_has_no_stamps() -> None:
    live = Recorder(10.0, None, 0.01, WalkingClock()).alone("nvml:virtual", {"load": "constant:100"})
    assert live.load is None
    assert live.identity.virtual
    found = characterise(live.about.name, live.series)
    assert found.kernel is None


def test_a_stream_and_an_unknown_channel_are_refused() -> None:
    with pytest.raises(TargetError, match="nothing to characterise"):
        Recorder(10.0).alone("powersensor3:virtual", {})
    with pytest.raises(TargetError, match="no channel"):
        Recorder(10.0, "gpu.magic", clock=WalkingClock()).alone("nvml:virtual", {})


def test_a_sensor_is_characterised_with_the_options_of_the_settings_file_but_without_its_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PMT_CONFIG", raising=False)
    asked: list[dict[str, str]] = []

    def note(_how: Recorder, _target: str, options: dict[str, str]) -> None:
        asked.append(options)
        raise TargetError("enough")

    monkeypatch.setattr("pmtpy.lab.record.Recorder.alone", note)
    table = ['[options."nvml:virtual"]', 'profile = "rtx3090"', 'calibration = "p.json"', 'interval = "20ms"']
    (tmp_path / "pmtpy.toml").write_text("\n".join([*table, 'load = "constant:60"']))
    assert main(["characterise", "nvidia:virtual", "-o", "load=constant:80"]) == 2
    assert asked == [{"profile": "rtx3090", "load": "constant:80"}]
    (tmp_path / "pmtpy.toml").write_text('[options."nvml:virtual"]\nprofiel = "rtx3090"\n')
    assert main(["characterise", "nvml:virtual"]) == 2
    assert "line 2" in capsys.readouterr().err


def test_a_profile_is_no_option_of_a_characterisation() -> None:
    with pytest.raises(TargetError, match="as it is, without a profile"):
        Recorder(10.0).alone("nvml:virtual", {"calibration": "p.json"})


def test_too_short_a_recording_is_refused() -> None:
    with pytest.raises(TargetError, match="too short"):
        schedule(3.0)


def test_the_schedule_has_a_step_and_then_blocks_of_all_lengths() -> None:
    edges = schedule(20.0)
    assert np.all(np.diff(edges) > 0)
    assert len(edges) % 2 == 0
    assert edges[1] - edges[0] >= 1.5
    assert np.min(np.diff(edges)[3:]) < 0.015
    assert np.max(np.diff(edges)[3:]) > 0.08


def test_a_gpu_load_without_a_library_says_what_to_install() -> None:
    try:
        gpu_load("0", "", schedule(20.0), HOST_CLOCK)
    except BackendUnavailableError as error:
        assert "PyTorch or CuPy" in error.reason  # noqa: PT017  (a machine with a GPU and a library has no error)
        assert "pip install torch" in error.remedy  # noqa: PT017
