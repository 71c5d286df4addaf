"""``pmtpy calibrate profile``: from what was found to a profile that its own device takes and no other."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.analysis.uncertainty.budget import of_another, uncertainty_budget
from pmtpy.analysis.uncertainty.interval import IntervalStatistics
from pmtpy.cli import main
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile, parse_profile
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.response import UNKNOWN, Number
from pmtpy.errors import CalibrationError
from pmtpy.lab.make_profile import calibration_line
from pmtpy.sensor.sensor import acquisition_of

TARGET = "nvml:virtual"


def estimate(value: float, half: float) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


FOUND: dict[str, object] = {
    "channel": "",
    "update_period_ms": estimate(99.97, 0.02),
    "kernel": {"family": "boxcar", "window_ms": estimate(100.0, 0.196), "tau_ms": None, "offset_ms": estimate(-1, 0.5)},
    "gradient": estimate(0.95, 0.0196),
    "intercept_w": estimate(2.0, 0.98),
    "declined": {},
}


@pytest.fixture
def power_channel() -> str:
    with pmt.create(TARGET) as sensor:
        return next(c.name for c in sensor.channels if c.quantity.value == "W")


def test_a_profile_is_made_for_the_device_and_applied_to_it(
    tmp_path: Path, power_channel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "found.json").write_text(json.dumps(FOUND | {"channel": power_channel}))
    out = tmp_path / "profile.json"
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--target", TARGET, "--range", "20,700"]
    assert main([*words, "-o", str(out)]) == 0
    profile = parse_profile(out.read_text())
    assert profile.channel == power_channel
    assert profile.device.virtual
    assert profile.response.window_u == pytest.approx(1e-4, rel=1e-4)
    assert profile.response.tau_u == math.inf
    assert profile.digest in capsys.readouterr().err
    with pmt.create(TARGET, calibration=out) as sensor:
        channel = next(c for c in sensor.channels if c.name == power_channel)
        assert channel.gain_u == pytest.approx(math.hypot(0.01 / 0.95, 0.0025), rel=1e-4)
        assert channel.window_s == pytest.approx(0.1)
    assert main([*words, "-o", str(tmp_path / "no" / "p.json")]) == 2


def test_the_noise_of_single_readings_goes_into_the_profile_and_is_none_where_it_is_not_told(
    tmp_path: Path,
) -> None:
    for name, noise in (("told", 0.35), ("untold", None)):
        (tmp_path / f"{name}.json").write_text(json.dumps(FOUND | {"channel": "gpu", "noise_w": noise}))
        words = [str(tmp_path / f"{name}.json"), "--device", "a card", "--range", "20,700"]
        assert main(["calibrate", "profile", *words, "-o", str(tmp_path / f"{name}.profile")]) == 0
    told, untold = (parse_profile((tmp_path / f"{name}.profile").read_text()) for name in ("told", "untold"))
    assert told.response.noise_w == 0.35
    assert untold.response.noise_w == 0.0


def test_without_a_meter_a_profile_has_the_kernel_and_what_the_device_states_of_its_gain(
    tmp_path: Path, power_channel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = FOUND | {"channel": power_channel, "gradient": None, "intercept_w": None}
    (tmp_path / "found.json").write_text(json.dumps(blind))
    out = tmp_path / "profile.json"
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--no-meter", "--range", "20,700", "-o", str(out)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"the gain of {power_channel} is as uncertain as is stated of it, and nothing is" in said
    assert "--target" in said
    assert main([*words, "--target", TARGET]) == 0
    with pmt.create(TARGET) as plain, pmt.create(TARGET, calibration=out) as sensor:
        before = next(c for c in plain.channels if c.name == power_channel)
        after = next(c for c in sensor.channels if c.name == power_channel)
        assert (after.gain_u, after.offset_u) == (before.gain_u, before.offset_u)
        assert "no meter" in after.reference
        assert after.window_s == pytest.approx(0.1)


def test_without_a_meter_what_the_recordings_state_of_the_gain_goes_into_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = FOUND | {"channel": "gpu", "gradient": None, "intercept_w": None}
    states = {"one": {"gain_u": 0.05, "offset_u": 0.5}, "other": {"gain_u": 0.03, "offset_u": 2.0}, "none": None}
    for i, (name, stated) in enumerate(states.items()):
        document = blind | {"stated": stated, "update_period_ms": estimate(99.97 + i, 0.02)}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "old.json").write_text(json.dumps(blind))  # of a version that did not write it
    out = tmp_path / "profile.json"

    def made(*names: str, words: tuple[str, ...] = ()) -> int:
        files = [str(tmp_path / f"{name}.json") for name in names]
        rest = ["--no-meter", "--range", "20,700", "--device", "a card", "--overwrite", "-o", str(out)]
        return main(["calibrate", "profile", *files, *rest, *words])

    assert made("one") == 0
    curve = parse_profile(out.read_text()).curve
    assert isinstance(curve, Affine)
    assert (curve.gain, curve.offset) == (Number(1.0, 0.05), Number(0.0, 0.5))
    assert made("one", "other") == 0
    curve = parse_profile(out.read_text()).curve
    assert isinstance(curve, Affine)
    assert (curve.gain.u, curve.offset.u) == (0.05, 2.0)
    capsys.readouterr()
    for names, words in [(("old",), ()), (("one", "none"), ()), (("one",), ("--channel", "module"))]:
        assert made(*names, words=words) == 2
        assert "is stated of it, and nothing is" in capsys.readouterr().err


def test_a_profile_of_a_device_that_is_elsewhere_is_for_recordings_and_no_sensor_takes_it(
    tmp_path: Path, power_channel: str
) -> None:
    (tmp_path / "found.json").write_text(json.dumps(FOUND | {"channel": power_channel}))
    out = tmp_path / "profile.json"
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--device", "Tesla V100", "--range", "20,700"]
    assert main([*words, "-o", str(out)]) == 0
    profile = parse_profile(out.read_text())
    assert (profile.device.backend, profile.device.model) == ("recording", "Tesla V100")
    assert profile.channel == power_channel
    with pytest.raises(CalibrationError, match="another device"):
        pmt.create(TARGET, calibration=out)


@pytest.mark.parametrize(
    ("change", "extra", "code", "why"),
    [
        ({"gradient": None, "declined": {"gradient": "no meter"}}, [], 2, "no gradient in what was found: no meter"),
        ({"channel": "nowhere"}, [], 2, "has no channel 'nowhere'; it has: "),
        ({}, ["--range", "20"], 2, "write the lower and the higher number"),
    ],
)
def test_what_makes_no_profile_is_refused(
    tmp_path: Path,
    power_channel: str,
    capsys: pytest.CaptureFixture[str],
    *,
    change: dict[str, object],
    extra: list[str],
    code: int,
    why: str,
) -> None:
    (tmp_path / "found.json").write_text(json.dumps([FOUND | {"channel": power_channel} | change]))
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--target", TARGET, "--range", "20,700", *extra]
    assert main([*words, "-o", str(tmp_path / "p.json")]) == code
    assert why in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("text", ["{", "7", "[]"])
def test_a_file_that_characterise_did_not_write_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "found.json").write_text(text)
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--target", TARGET, "--range", "20,700", "-o", "p"]
    assert main(words) == 1
    assert "found.json" in capsys.readouterr().err


def profile_of(tmp_path: Path, *found: dict[str, object], words: tuple[str, ...] = ()) -> Profile | int:
    """Make a profile of what several recordings gave; its exit status where it was refused."""
    names = []
    for i, document in enumerate(found):
        names.append(str(tmp_path / f"found{i}.json"))
        Path(names[-1]).write_text(json.dumps(document))
    out = tmp_path / "of_several.json"
    code = main(["calibrate", "profile", *names, "--range", "20,700", "-o", str(out), *words])
    return parse_profile(out.read_text()) if code == 0 else code


def gains(*values: float) -> list[dict[str, object]]:
    return [FOUND | {"channel": "gpu", "gradient": estimate(v, 0.00196)} for v in values]


def test_two_recordings_that_agree_by_chance_are_no_surer_than_is_published() -> None:
    alike = [FOUND | {"gradient": estimate(1.0, 1e-6), "noise_w": noise} for noise in (1.0, 1.1)]
    line, _ = calibration_line(alike, None)
    assert isinstance(line, Affine)
    assert line.gain.u == pytest.approx(0.0025, rel=0.01)


def test_several_recordings_tell_how_much_another_one_may_differ(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, *gains(0.944, 0.950, 0.956))
    assert isinstance(profile, Profile)
    assert isinstance(profile.curve, Affine)
    assert profile.curve.gain.value == pytest.approx(0.95)
    # Prediction interval of the next of a normal: t(2) s sqrt(1 + 1/3), as a standard uncertainty of 95 %.
    assert profile.curve.gain.u == pytest.approx(4.303 * 0.006 * math.sqrt(4 / 3) / 1.96, rel=1e-3)
    assert profile.curve.offset.u == pytest.approx(0.5, rel=1e-3)  # all alike: what each of them states
    assert dict(profile.provenance)["repeatability"] == "found from 3 recordings"


def test_intervals_for_another_recording_hold_it_however_few_there_are() -> None:
    rng = np.random.default_rng(4)
    for k in (2, 3, 8):
        held = 0
        for _ in range(1000):
            *seen, another = 0.95 + 0.003 * rng.standard_normal(k + 1)
            mean, u = of_another(seen, [0.0] * k)
            held += abs(another - mean) < 1.96 * u
        assert 0.93 <= held / 1000 <= 0.97
    assert of_another([0.95, 0.95], [0.01, 0.01]) == pytest.approx((0.95, 0.01))


@pytest.mark.parametrize(("gain", "told"), [(0.95, False), (0.00103, True)])  # the latter by a meter in milliwatts
def test_a_gain_that_can_hardly_be_is_told_when_the_profile_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, gain: float, told: bool
) -> None:
    assert isinstance(profile_of(tmp_path, *gains(gain)), Profile)
    assert ("were sensor and meter in the same unit" in capsys.readouterr().err) == told


def test_the_repeatability_of_a_single_recording_can_be_stated(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, *gains(0.95), words=("--repeatability", "1"))
    assert isinstance(profile, Profile)
    assert isinstance(profile.curve, Affine)
    assert profile.curve.gain.u == pytest.approx(math.hypot(0.001, 0.0095))
    assert profile.curve.offset.u == pytest.approx(0.5, rel=1e-4)
    assert profile_of(tmp_path, *gains(0.95), words=("--repeatability", "-1")) == 2
    assert profile_of(tmp_path, *gains(0.95, 0.96), words=("--repeatability", "1")) == 2


def test_recordings_that_cannot_be_of_one_sensor_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = gains(0.95, 0.951)
    kernel = {"family": "one-pole", "window_ms": None, "tau_ms": estimate(12.5, 1.0), "offset_ms": estimate(0, 1)}
    assert profile_of(tmp_path, one, other | {"kernel": kernel}) == 2
    assert "disagree about the kernel: boxcar, one-pole" in capsys.readouterr().err
    assert profile_of(tmp_path, one, other | {"channel": "module"}) == 2
    assert "different channels: gpu, module" in capsys.readouterr().err
    assert profile_of(tmp_path, one, other, one | {"target": "a copy.csv"}) == 2
    assert "given twice" in capsys.readouterr().err


def test_what_was_found_and_then_damaged_is_refused_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = gains(0.95)
    changes: list[dict[str, object]]
    changes = [{"level": {"u": 1.0}}, {"state": {"watts": {}}}, {"update_period_ms": estimate(-100.0, 1.0)}]
    for change in changes:
        assert profile_of(tmp_path, one | change) == 2
        assert "a field is missing or wrong" in capsys.readouterr().err
    assert (
        profile_of(
            tmp_path, json.loads(Profile(Identity("nvml"), "gpu", Affine(), 1, 2, provenance=(("a", "b"),)).to_json())
        )
        == 1
    )
    assert "a calibration profile already" in capsys.readouterr().err
    assert profile_of(tmp_path, {"traceEvents": []}) == 1  # and not: state which watts it showed
    assert "JSON of something else" in capsys.readouterr().err


def test_a_recording_that_says_of_which_device_it_is_needs_no_target_and_no_range(tmp_path: Path) -> None:
    with pmt.create(TARGET) as sensor:
        identity = sensor.identity
    own = {"channel": "gpu.instant", "identity": asdict(identity), "shown_w": [42.0, 260.5]}
    (tmp_path / "found.json").write_text(json.dumps(FOUND | own))
    assert main(["calibrate", "profile", str(tmp_path / "found.json"), "-o", str(tmp_path / "p.json")]) == 0
    profile = parse_profile((tmp_path / "p.json").read_text())
    assert profile.device == replace(identity, notes=())
    assert (profile.low, profile.high) == (42.0, 260.5)
    with pmt.create(TARGET, calibration=tmp_path / "p.json") as sensor:
        assert acquisition_of(sensor).calibration is not None


@pytest.mark.parametrize("words", [[], ["--target", TARGET], ["--device", "a card"]])
def test_recordings_of_another_device_make_no_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pmt.create(TARGET) as sensor:
        identity = asdict(sensor.identity)
    for i, serial in enumerate((identity["serial"], "GPU-another")):
        own = {"channel": "gpu.instant", "identity": identity | {"serial": serial}, "shown_w": [42.0, 260.5]}
        (tmp_path / f"{i}.json").write_text(json.dumps(FOUND | own))
    names = [str(tmp_path / f"{i}.json") for i in range(2)]
    assert main(["calibrate", "profile", *names, *words, "-o", str(tmp_path / "p.json")]) == 2
    assert "another device: its serial number is 'GPU-another'" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        ({"backend": "nvml", "virtual": "false"}, "virtual of the device must be true or false, not 'false'"),
        ({"backend": "nvml", "virtual": None}, "virtual of the device must be true or false, not None"),
        ({"backend": "nvml", "serial": 7}, "serial of the device must be a text, not 7"),
        ({"model": "X"}, "the identity of the device has no backend"),
        ("X", "the identity of the device must be an object, not 'X'"),
    ],
)
def test_a_device_that_is_not_told_as_it_should_be_makes_no_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], identity: object, why: str
) -> None:
    own = {"channel": "gpu.instant", "identity": identity, "shown_w": [42.0, 260.5]}
    (tmp_path / "found.json").write_text(json.dumps(FOUND | own))
    assert main(["calibrate", "profile", str(tmp_path / "found.json"), "-o", str(tmp_path / "p.json")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(("words", "model"), [(["--device", "a card"], "a card"), ([], "")])
def test_a_converted_log_makes_the_profile_that_the_log_itself_makes(
    tmp_path: Path, words: list[str], model: str
) -> None:
    told: dict[str, object] = {"backend": "recording", "model": "gpudata.csv", "virtual": None, "notes": []}
    made = []
    for name, identity in (("log", None), ("converted", told)):
        own = {"channel": "power.draw", "identity": identity, "shown_w": [42.0, 260.5]}
        (tmp_path / f"{name}.json").write_text(json.dumps(FOUND | own))
        target = tmp_path / f"{name}-profile.json"
        assert main(["calibrate", "profile", str(tmp_path / f"{name}.json"), *words, "-o", str(target)]) == 0
        made.append(replace(parse_profile(target.read_text()), provenance=(("made", "here"),)))
    assert made[0] == made[1]
    assert made[1].device.model == model


def test_the_options_of_the_target_reach_it(tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text(json.dumps(FOUND | {"channel": "gpu.instant"}))
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--target", TARGET, "--range", "20,700"]
    assert main([*words, "--option", "profile=rtx3090", "-o", str(tmp_path / "p.json")]) == 0
    assert "3090" in parse_profile((tmp_path / "p.json").read_text()).device.model


def test_without_a_range_in_the_file_one_must_be_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "found.json").write_text(json.dumps(FOUND | {"channel": "gpu.instant"}))
    assert main(["calibrate", "profile", str(tmp_path / "found.json"), "-o", str(tmp_path / "p.json")]) == 2
    assert "--range LOW,HIGH" in capsys.readouterr().err


def test_a_kernel_that_was_left_open_is_in_the_profile_with_all_that_it_may_be(tmp_path: Path) -> None:
    none = {"window_ms": None, "tau_ms": None, "offset_ms": None}
    kernel = {
        "family": "ambiguous",
        "window_ms": {"value": 100.0, "low": 0.0, "high": 110.0},
        "tau_ms": {"value": 0.0, "low": 0.0, "high": 40.0},
        "offset_ms": estimate(0.0, 20.0),
        "candidates": [
            {"family": "boxcar", "share": 0.6, **none, "window_ms": estimate(100.0, 9.8), "offset_ms": estimate(0, 1)},
            {"family": "two-pole", "share": 0.2, **none},
            {"family": "one-pole", "share": 0.2, **none, "tau_ms": estimate(30.0, 5.88), "offset_ms": estimate(20, 1)},
        ],
    }
    (tmp_path / "found.json").write_text(json.dumps(FOUND | {"channel": "gpu", "kernel": kernel}))
    out = tmp_path / "profile.json"
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--device", "a card", "--range", "20,700"]
    assert main([*words, "-o", str(out)]) == 0
    made = parse_profile(out.read_text())
    assert [(round(share, 9), how.family) for share, how in made.candidates] == [(0.75, "boxcar"), (0.25, "one-pole")]
    boxcar, pole = (how for _, how in made.candidates)
    assert (boxcar.window_s, boxcar.window_u, boxcar.tau_s) == pytest.approx((0.1, 0.005, 0.0), rel=1e-4)
    assert (pole.tau_s, pole.tau_u, pole.delay_s) == pytest.approx((0.03, 0.003, 0.02), rel=1e-4)
    assert parse_profile(made.to_json()).to_json() == made.to_json()
    broken = json.loads(made.to_json())
    broken["behaviour"]["candidates"] = [{"share": -1.0}]
    with pytest.raises(CalibrationError, match="negative"):
        parse_profile(json.dumps(broken))


def test_for_a_kernel_that_is_none_of_the_families_those_that_come_nearest_stand(tmp_path: Path) -> None:
    none = {"window_ms": None, "tau_ms": None, "offset_ms": None}
    near = {
        "family": "boxcar*one-pole",
        "share": 1e-86,
        "window_ms": estimate(50.0, 4.0),
        "tau_ms": estimate(20.0, 2.0),
    }
    rows = [
        {"family": "two-pole", "share": 1.0, **none},
        near | {"offset_ms": estimate(5.0, 1.0)},
        {
            "family": "one-pole",
            "share": 1e-153,
            **none,
            "tau_ms": estimate(30.0, 1.0),
            "offset_ms": estimate(20.0, 1.0),
        },
    ]
    kernel = {"family": "ambiguous", **none, "candidates": rows}
    (tmp_path / "found.json").write_text(json.dumps(FOUND | {"channel": "gpu", "kernel": kernel}))
    out = tmp_path / "profile.json"
    words = ["calibrate", "profile", str(tmp_path / "found.json"), "--device", "a card", "--range", "20,700"]
    assert main([*words, "-o", str(out)]) == 0
    made = parse_profile(out.read_text())
    (share, only), known = made.candidates[0], made.response
    assert len(made.candidates) == share == 1
    for how in (only, known):
        assert (how.window_s, how.tau_s, how.delay_s) == pytest.approx((0.05, 0.02, 0.005))
    assert known.family == "ambiguous"


@pytest.mark.parametrize("many", [1, 2])
def test_a_triangle_goes_into_the_profile(tmp_path: Path, many: int) -> None:
    none = {"window_ms": None, "tau_ms": None, "offset_ms": estimate(5.0, 1.0)}
    rows = [
        none | {"family": "triangular", "share": 1.0, "window_ms": estimate(50.0, 4.0)},
        none | {"family": "boxcar*one-pole", "share": 1e-86, "window_ms": estimate(30.0, 4.0)},
    ]
    files = [str(tmp_path / f"found{i}.json") for i in range(many)]
    for i, file in enumerate(files):
        kernel = {"family": "ambiguous", **none, "candidates": rows}
        found = FOUND | {"channel": "gpu", "kernel": kernel, "noise_w": 1.0 + i}
        Path(file).write_text(json.dumps(found))
    out = tmp_path / "profile.json"
    assert main(["calibrate", "profile", *files, "--device", "a card", "--range", "20,700", "-o", str(out)]) == 0
    made = parse_profile(out.read_text())
    assert made.response.family == "triangular"
    assert made.response.window_s == pytest.approx(0.05)
    assert made.response.step(np.array([0.025]))[0] == pytest.approx(0.5)
    assert [how.family for _, how in made.candidates] == (["triangular"] if many == 1 else [])


def test_gain_and_level_are_known_apart_and_gain_and_offset_are_not() -> None:
    # A line through 400 W that is known to 1 W there, and a gain to 5 %: at zero it is off by 20 W, at 400 W by 1 W.
    found = FOUND | {"gradient": estimate(1.0, 1.96 * 0.05), "intercept_w": estimate(0.0, 1.96 * 20.0)}
    line, _ = calibration_line([found | {"level": {"at_w": 400.0, "u": 1.0}}], 0.0)
    assert line.offset.u == pytest.approx(math.hypot(1.0, 20.0), rel=1e-3)
    assert line.covariance == pytest.approx(-400.0 * 0.05**2, rel=1e-3)
    profile = Profile(Identity("nvml", serial="1"), "gpu", line, 1.0, 700.0, UNKNOWN, (("made", "by hand"),))
    channel = profile.calibrated(Channel("gpu", Quantity.POWER))
    assert parse_profile(profile.to_json()).calibrated(Channel("gpu", Quantity.POWER)) == channel
    for watts in (0.0, 100.0, 400.0, 600.0):
        parts = dict(
            uncertainty_budget(channel, IntervalStatistics(seconds=10.0, joules=10.0 * watts, rows=100)).components
        )
        found_u = math.hypot(parts.get("gain", 0.0), parts.get("offset", 0.0)) / 10.0
        assert found_u == pytest.approx(math.hypot(1.0, 0.05 * (watts - 400.0)), rel=1e-3)
    independent, _ = calibration_line([found], 0.0)
    assert independent.covariance == 0.0
    assert independent.offset.u == pytest.approx(20.0, rel=1e-3)


def test_lines_of_several_recordings_are_pooled_where_they_are_known() -> None:
    lines = [(0.95, 10.0), (1.05, -30.0)]  # they meet at 400 W
    found = [
        FOUND | {"gradient": estimate(g, 0.01), "intercept_w": estimate(o, 4.0), "level": {"at_w": 400.0, "u": 0.1}}
        for g, o in lines
    ]
    line, _ = calibration_line(found, None)
    at_w = -line.covariance / line.gain.u**2
    assert at_w == pytest.approx(400.0)
    assert line.gain.value * at_w + line.offset.value == pytest.approx(390.0)
    level_u = math.sqrt(line.offset.u**2 - (at_w * line.gain.u) ** 2)
    assert level_u < 0.2 < line.offset.u
