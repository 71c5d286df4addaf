"""``pmtpy calibrate energy``: recordings corrected by a profile."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.cli import main
from pmtpy.cli.calibrate_energy import period_range
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile, parse_profile
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.response import Number, Response
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import TargetError
from pmtpy.io.channels import described
from pmtpy.io.recorded import corrected_by
from pmtpy.lab.correct_recording import correct_recording
from pmtpy.lab.recorded import read_stamps

CURVE = Affine(Number(0.95, 0.002), Number(2.0, 0.3))
RESPONSE = Response.stated("boxcar", refresh_s=Number(0.1), window_s=Number(0.1, 0.001), delay_s=Number(0.0, 0.001))
CAME = (("made", "here"),)
STEPS = np.array([0.0, 5.04, 8.04, 12.0, 12.5, 20.0])
LOAD = Table(STEPS, np.array([60.0, 300.0, 60.0, 250.0, 60.0, 60.0]))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Write a log of a slow sensor, the stamps of its load, and its profile."""
    model = SensorModel(gain=0.95, offset_w=2.0, noise_w=0.2, step_w=0.01)
    t_ns, watts = model.record(LOAD, 20.0, Polling(jitter_s=0.002))
    t = t_ns / 1e9 + 1_700_000_000
    lines = ["time,elapsed,marker,lost,total_W,total_J,gpu_W,gpu_J"]
    lines += [f"{a:.6f},{a - t[0]:.6f},,0,{w:.3f},0,{w:.3f},0" for a, w in zip(t, watts, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    stamps = np.repeat(np.round((STEPS[1:5] + 1_700_000_000) * 1e6).astype(np.int64), 2)
    (tmp_path / "stamps.csv").write_text("timestamp\n" + "\n".join(map(str, stamps)) + "\n")
    profile = Profile(Identity("nvml"), "gpu", CURVE, 10.0, 400.0, RESPONSE, CAME)
    (tmp_path / "profile.json").write_text(profile.to_json())
    return tmp_path


def energies(at: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, float]]:
    log, profile = str(at / "log.csv"), str(at / "profile.json")
    assert main(["calibrate", "energy", log, "--profile", profile, "--json", *words]) == 0
    found: list[dict[str, float]] = json.loads(capsys.readouterr().out)["energies"]
    return found


def test_a_load_that_is_known_to_be_slow_narrows_the_worst_case(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = json.loads((recorded / "profile.json").read_text())
    part_time = Response.stated("boxcar", refresh_s=Number(0.1), window_s=Number(0.025, 1e-3), delay_s=Number(0.0))
    made = replace(parse_profile(json.dumps(profile), "profile.json"), response=part_time)
    (recorded / "profile.json").write_text(made.to_json())
    between = ("--between", "1.0,18.0")
    (unknown,), (slow,) = (energies(recorded, capsys, *between, *told) for told in ([], ["--load-period", "2s.."]))
    assert slow["joules"] == unknown["joules"]
    width = [each["aliased"][1] - each["aliased"][0] for each in (unknown, slow)]  # type: ignore[index]
    assert width[1] < 0.2 * width[0]
    assert (
        main(["calibrate", "energy", "x.csv", "--profile", str(recorded / "profile.json"), "--load-period", ".."]) == 2
    )


def test_a_range_of_periods_is_read() -> None:
    read = [period_range(text) for text in ("30ms..40ms", "2s..", "..50ms", "33ms")]
    assert read == [(0.03, 0.04), (2.0, math.inf), (0.0, 0.05), (0.033, 0.033)]
    with pytest.raises(TargetError, match="longer"):
        period_range("2s..1s")


def test_each_block_of_the_load_is_corrected(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long, short = energies(recorded, capsys, "--load", str(recorded / "stamps.csv"))
    assert long["seconds"] == pytest.approx(3.0, abs=1e-5)
    # The start is sharpened by its stamp; the end may lose a quarter of the step of one update, 240 W x 0.1 s.
    assert long["joules"] == pytest.approx(900.0, abs=7.0)
    assert short["joules"] == pytest.approx(125.0, abs=6.0)
    assert long["low"] < 900.0 < long["high"]
    assert short["low"] < 125.0 < short["high"]


def test_a_load_that_never_rests_is_not_taken_for_noise(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    starts = np.cumsum(np.random.default_rng(2).uniform(0.1, 0.4, 60))
    load = Table(np.append(-1.0, starts), np.where(np.arange(61) % 2, 300.0, 60.0))
    t_ns, watts = SensorModel(gain=0.95, offset_w=2.0, noise_w=0.2, step_w=0.01).record(load, 15.0, Polling())
    t = t_ns / 1e9
    lines = ["time,elapsed,marker,lost,total_W,total_J,gpu_W,gpu_J"]
    lines += [f"{a:.6f},{a - t[0]:.6f},,0,{w:.3f},0,{w:.3f},0" for a, w in zip(t, watts, strict=True)]
    (recorded / "log.csv").write_text("\n".join(lines) + "\n")
    told = parse_profile((recorded / "profile.json").read_text())
    told = replace(told, response=replace(told.response, noise_w=0.2))
    (recorded / "profile.json").write_text(told.to_json())
    (found,) = energies(recorded, capsys, "--between", "2,12")
    true = float(np.diff(load.joules(t[0] + np.array([2.0, 12.0])))[0])
    assert found["low"] < true < found["high"]
    assert found["uncertainty_joules"] < 0.01 * true


def test_a_program_corrects_a_recording_as_the_verb_does(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb = energies(recorded, capsys, "--load", str(recorded / "stamps.csv"))
    profile = parse_profile((recorded / "profile.json").read_text())
    told: list[str] = []
    load = read_stamps(str(recorded / "stamps.csv"))
    found = correct_recording(pmt.load(recorded / "log.csv"), profile, load=load, report=told.append)
    assert [(e.energy.joules, e.energy.low, e.seconds) for e in found] == [
        (e["joules"], e["low"], e["seconds"]) for e in verb
    ]
    assert ["of which device" in text for text in told] == [True]


def test_an_interval_can_be_asked_for(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = energies(recorded, capsys, "--between", "5.5,7.5")
    assert found["joules"] == pytest.approx(600.0, rel=0.005)


def test_a_clock_that_was_set_meanwhile_changes_nothing(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = energies(recorded, capsys, "--between", "2,12")
    head, *rows = (recorded / "log.csv").read_text().splitlines()
    half = len(rows) // 2
    set_on = [f"{float(row.split(',')[0]) + 3600.0:.6f},{row.partition(',')[2]}" for row in rows[half:]]
    (recorded / "log.csv").write_text("\n".join([head, *rows[:half], *set_on]) + "\n")
    assert energies(recorded, capsys, "--between", "2,12") == before


@pytest.mark.parametrize("words", ["5,2", "2,nan", "2", "2,3,4"])
def test_an_interval_that_is_none_is_refused(recorded: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    log, profile = str(recorded / "log.csv"), str(recorded / "profile.json")
    assert main(["calibrate", "energy", log, "--profile", profile, f"--between={words}"]) == 2
    assert "the lower and the higher number" in capsys.readouterr().err


def test_without_blocks_the_whole_recording_is_taken_but_for_its_ends(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = energies(recorded, capsys)
    true = float(np.diff(LOAD.joules(np.array([found["start_s"], found["start_s"] + found["seconds"]])))[0])
    assert found["joules"] == pytest.approx(true, rel=0.005)


def test_that_the_ends_of_a_whole_recording_are_left_out_is_said(recorded: Path) -> None:
    profile = parse_profile((recorded / "profile.json").read_text())
    told: list[str] = []
    (found,) = correct_recording(pmt.load(recorded / "log.csv"), profile, report=told.append)
    (said,) = (text for text in told if "all of it but" in text)
    assert f"{1e3 * found.start_s:.3g} ms at either end" in said
    assert "--between FROM,TO takes a part" in said


def test_that_marks_stand_on_rows_behind_them_is_said(recorded: Path) -> None:
    log = (recorded / "log.csv").read_text().splitlines(keepends=True)
    slow = log[:1] + log[1::10]  # polls 30 ms apart
    for row, label in ((170, "solve start"), (185, "solve end")):
        slow[row] = slow[row].replace(",,", f",{label},", 1)
    (recorded / "log.csv").write_text("".join(slow))
    profile = parse_profile((recorded / "profile.json").read_text())
    told: list[str] = []
    correct_recording(pmt.load(recorded / "log.csv"), profile, report=told.append)
    (said,) = (text for text in told if "earlier" in text)
    assert "its marks stand on the rows behind them" in said
    told.clear()
    read_stamps(str(recorded / "log.csv"), report=told.append)
    assert said in told


def test_regions_that_touch_and_nest_have_an_energy_each(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = (recorded / "log.csv").read_text().splitlines(keepends=True)
    times = np.array([float(line.split(",")[1]) for line in log[1:]])
    wanted = {4.0: "all start;one start", 6.5: "one end;two start", 9.0: "two end;all end"}
    for seconds, label in wanted.items():
        row = 1 + int(np.searchsorted(times, seconds))
        log[row] = log[row].replace(",,", f",{label},", 1)
    (recorded / "log.csv").write_text("".join(log))
    found = {str(each["region"]): each for each in energies(recorded, capsys)}
    assert sorted(found) == ["all", "one", "two"]
    for each in found.values():
        start = float(each["start_s"])
        true = float(np.diff(LOAD.joules(np.array([start, start + float(each["seconds"])])))[0])
        assert each["low"] <= true <= each["high"]
    main(["calibrate", "energy", str(recorded / "log.csv"), "--profile", str(recorded / "profile.json")])
    assert capsys.readouterr().out.splitlines()[1].startswith("all")
    last = 1 + int(np.searchsorted(times, 19.9))
    log[last] = log[last].replace(",,", ",late start,", 1)
    log[last + 5] = log[last + 5].replace(",,", ",late end,", 1)
    (recorded / "log.csv").write_text("".join(log))
    main(["calibrate", "energy", str(recorded / "log.csv"), "--profile", str(recorded / "profile.json")])
    assert "left out 1 of 4 regions or blocks" in capsys.readouterr().err


def test_what_the_program_measured_has_an_energy_each(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    starts = 1.0 + 0.7 * np.arange(24)
    spans = [(round(s * 1e9), round((s + 0.5) * 1e9)) for s in starts.tolist()]
    facts = {
        "format": 1,
        "anchors": {"start": {"monotonic_ns": 0, "unix_ns": 1_700_000_000 * 10**9}},
        "regions": [{"label": "step", "start_ns": a, "end_ns": b} for a, b in spans],
    }
    (recorded / "log.csv.json").write_text(json.dumps(facts))
    found = energies(recorded, capsys)
    assert [str(each["region"]) for each in found] == ["step"] * 24
    ends = np.array(spans, np.float64) / 1e9
    true = LOAD.joules(ends[:, 1]) - LOAD.joules(ends[:, 0])
    held = [each["low"] <= joules <= each["high"] for each, joules in zip(found, true, strict=True)]
    assert sum(held) >= 22
    assert [each["seconds"] for each in found] == pytest.approx([0.5] * 24, abs=1e-5)


def test_marked_regions_that_are_the_work_are_stamps_of_their_own_recording(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = parse_profile((recorded / "profile.json").read_text())
    response = Response.stated("boxcar", refresh_s=Number(0.1), window_s=Number(0.025), delay_s=Number(0.0, 1e-4))
    (recorded / "profile.json").write_text(replace(profile, response=response).to_json())
    starts = 2.0 + 0.73 * np.arange(20) + np.random.default_rng(4).uniform(0.0, 0.1, 20)
    steps = np.stack([starts, starts + 0.2], axis=1).ravel()
    load = Table(np.append(-1.0, steps), np.where(np.arange(41) % 2, 250.0, 60.0))
    model = SensorModel(window_s=0.025, gain=0.95, offset_w=2.0, noise_w=0.2, step_w=0.01)
    t_ns, watts = model.record(load, 20.0, Polling(jitter_s=0.002))
    t = t_ns / 1e9
    marked = np.searchsorted(t, steps)
    at, shown = np.append(t, steps), np.append(watts, watts[marked - 1])
    marks = np.append(np.full(len(t), "", "<U3"), np.tile(["on", "off"], 20))
    lines = ["time,elapsed,marker,lost,total_W,total_J,gpu_W,gpu_J"]
    rows = zip(at, marks, shown, strict=True)
    lines += [f"{a:.6f},{a - t[0]:.6f},{mark},0,{w:.3f},0,{w:.3f},0" for a, mark, w in sorted(rows, key=lambda r: r[0])]
    (recorded / "log.csv").write_text("\n".join(lines) + "\n")
    alone, told = (energies(recorded, capsys, *more) for more in ([], ["--load", str(recorded / "log.csv")]))
    wide = [[each["high"] - each["low"] for each in found] for found in (alone, told)]
    assert np.median(wide[1]) < 0.2 * np.median(wide[0])
    true = 0.2 * 250.0
    assert all(each["low"] < true < each["high"] for each in told)


def test_the_table_names_method_and_extrapolation(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = Profile(Identity("nvml"), "gpu", CURVE, 10.0, 200.0, RESPONSE, CAME)
    (recorded / "profile.json").write_text(profile.to_json())
    words = ["calibrate", "energy", str(recorded / "log.csv"), "--profile", str(recorded / "profile.json")]
    assert main([*words, "--between", "5.5,7.5"]) == 0
    said = capsys.readouterr()
    assert "reconstruction" in said.out
    assert "outside the calibrated range" in said.err


def test_a_profile_that_cannot_be_read_or_knows_no_kernel_is_refused(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", "energy", str(recorded / "log.csv"), "--profile"]
    assert main([*words, str(recorded / "none.json")]) == 2
    level_only = Profile(Identity("nvml"), "gpu", CURVE, 10.0, 200.0, provenance=CAME)
    (recorded / "profile.json").write_text(level_only.to_json())
    assert main([*words, str(recorded / "profile.json")]) == 2
    assert "does not know the kernel" in capsys.readouterr().err


def test_a_recording_that_does_not_say_whose_it_is_is_taken_for_the_profiles_and_this_is_said(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", "energy", str(recorded / "log.csv"), "--profile", str(recorded / "profile.json")]
    assert main(words) == 0
    assert "says of which device it is" in capsys.readouterr().err


def test_a_sensor_with_another_update_period_is_refused(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(RESPONSE, period_s=0.02, period_u=1e-6)
    profile = Profile(Identity("nvml"), "gpu", CURVE, 10.0, 400.0, other, CAME)
    (recorded / "profile.json").write_text(profile.to_json())
    words = ["calibrate", "energy", str(recorded / "log.csv"), "--profile", str(recorded / "profile.json")]
    assert main(words) == 2
    assert "updates every 100 ms and the profile's sensor every 20 ms" in capsys.readouterr().err


def test_a_channel_beside_the_profiles_own_is_refused_and_one_of_another_name_is_said(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", "energy", str(recorded / "log.csv"), "--profile", str(recorded / "profile.json")]
    assert main([*words, "--channel", "total"]) == 0  # which shows the same
    assert "total of" in capsys.readouterr().err
    head, *rows = (recorded / "log.csv").read_text().splitlines()
    both = [f"{head},slow_W,slow_J", *(f"{row},100.0,0" for row in rows)]
    (recorded / "log.csv").write_text("\n".join(both) + "\n")
    assert main([*words, "--channel", "slow"]) == 2
    assert "each channel has a response of its own" in capsys.readouterr().err


def test_a_recording_of_another_device_is_refused(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = Profile(Identity("nvml", "A100", virtual=False), "gpu.instant", CURVE, 10.0, 400.0, RESPONSE, CAME)
    (recorded / "profile.json").write_text(profile.to_json())
    assert main(["dump", "nvml:virtual", "-f", str(recorded / "own.csv"), "--duration", "0.3s"]) == 0
    words = ["calibrate", "energy", str(recorded / "own.csv"), "--profile", str(recorded / "profile.json")]
    assert main(words) == 2
    assert "was made on another device" in capsys.readouterr().err


def correct_while_recording(at: Path, profile: Profile, name: str = "log.csv") -> Path:
    """Write the log as a sensor that is opened with a profile leaves it, metadata beside it."""
    channel = Channel("gpu", Quantity.POWER, resolution=0.01)
    rows = pmt.load(at / "log.csv")
    watts = profile.curve.true(rows["gpu_W"].to_numpy(float))
    rows["total_W"] = rows["gpu_W"] = watts
    spent = (watts[1:] + watts[:-1]) / 2.0 * np.diff(rows["elapsed"])
    rows["total_J"] = rows["gpu_J"] = np.append(0.0, np.cumsum(spent))
    facts = {
        "format": 1, "target": "nvml:0", "virtual": False, "complete": True, "identity": {"backend": "nvml"},
        "channels": [described(profile.calibrated(channel), in_total=True)], "calibration": "0123456789abcdef",
    }  # fmt: skip
    rows.to_csv(at / name, index=False, float_format="%.6f")
    (at / f"{name}.json").write_text(json.dumps(facts))
    return at / name


def test_rows_that_this_profile_corrected_when_they_were_recorded_are_not_corrected_twice(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = parse_profile((recorded / "profile.json").read_text())
    shown = energies(recorded, capsys, "--load", str(recorded / "stamps.csv"))
    correct_while_recording(recorded, profile)
    again = energies(recorded, capsys, "--load", str(recorded / "stamps.csv"))
    for raw, corrected in zip(shown, again, strict=True):
        assert corrected["joules"] == pytest.approx(raw["joules"], rel=1e-6)
        assert corrected["high"] == pytest.approx(raw["high"], rel=1e-6)


@pytest.mark.parametrize("mark", ["of the channel", "of the recording alone"])
def test_rows_that_another_profile_corrected_are_refused_with_the_cure(
    recorded: Path, capsys: pytest.CaptureFixture[str], mark: str
) -> None:
    profile = parse_profile((recorded / "profile.json").read_text())
    log = correct_while_recording(recorded, replace(profile, curve=Affine(Number(0.9, 0.002))))
    if mark == "of the recording alone":
        beside = log.with_name("log.csv.json")
        facts = json.loads(beside.read_text())
        del facts["channels"][0]["reference"]
        beside.write_text(json.dumps(facts))
    for channel in ((), ("--channel", "total")):
        words = [str(log), "--profile", str(recorded / "profile.json"), *channel]
        assert main(["calibrate", "energy", *words]) == 2
        assert "would correct it twice: record it as the sensor shows it, with -o calibration=none" in (
            capsys.readouterr().err
        )


def test_no_profile_is_made_of_readings_that_were_corrected(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = parse_profile((recorded / "profile.json").read_text())
    log = correct_while_recording(recorded, profile, "corrected.csv")
    assert any(f"gpu by {profile.digest}; not to be corrected again" in n for n in pmt.load(log).attrs["notes"])
    main(["characterise", str(log), "--against", str(recorded / "log.csv"), "--json"])  # whatever comes of it
    assert f"gpu by {profile.digest}; not to be corrected again" in capsys.readouterr().err
    words = ["characterise", str(log), "--load", str(recorded / "stamps.csv"), "--json"]
    assert main([*words, "--meter", str(recorded / "log.csv")]) == 2
    assert "record it as the sensor shows it, with -o calibration=none" in capsys.readouterr().err
    assert main(words) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["corrected_by"] == [profile.digest]
    assert found["update_period_ms"]["low"] < 100.0 < found["update_period_ms"]["high"]
    assert "no profile can be made of it" in said.err
    (recorded / "found.json").write_text(said.out)
    words = ["calibrate", "profile", str(recorded / "found.json"), "-o", str(recorded / "again.json")]
    assert main([*words, "--no-meter", "--target", "nvml:virtual"]) == 2
    assert "do not show what a profile has to correct" in capsys.readouterr().err
    assert not (recorded / "again.json").exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jls", "pmt"])
def test_a_converted_recording_still_says_that_it_was_corrected(recorded: Path, suffix: str) -> None:
    pytest.importorskip({"parquet": "pyarrow", "jls": "pyjls"}.get(suffix, "pmtpy"))
    profile = parse_profile((recorded / "profile.json").read_text())
    log, made = correct_while_recording(recorded, profile), recorded / f"made.{suffix}"
    assert main(["convert", str(log), str(made), *(["--format", "pmt"] if suffix == "pmt" else [])]) == 0
    table = pmt.load(made)
    powers = [name[:-2] for name in map(str, table.columns) if name.endswith("_W")]
    assert all(corrected_by(table.attrs["metadata"], name) == {profile.digest} for name in powers)


def test_a_kernel_that_was_left_open_makes_the_interval_wider_and_no_refusal(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (named,) = energies(recorded, capsys, "--between", "5.04,5.34")
    told = parse_profile((recorded / "profile.json").read_text())
    pole = Response.stated("one-pole", tau_s=Number(0.2, 0.002), delay_s=Number(0.0, 0.001))
    for window_share in (0.9, 0.5):
        candidates = ((window_share, RESPONSE), (1.0 - window_share, pole))
        (recorded / "profile.json").write_text(replace(told, candidates=candidates).to_json())
        (open_,) = energies(recorded, capsys, "--between", "5.04,5.34")
        assert open_["low"] < 0.3 * 300.0 < open_["high"]  # one of them is right
        assert open_["uncertainty_joules"] > named["uncertainty_joules"]
