"""Profiles: applied to their own device, refused for any other, never broken by a broken file."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.calibration.curves import Affine, CalibrationCurve, Lookup, Polynomial
from pmtpy.core.calibration.matching import Calibration, calibrate
from pmtpy.core.calibration.profile import Profile, parse_profile
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.response import UNKNOWN, Number, Response
from pmtpy.errors import CalibrationError

BOARD = Identity("nvml", "GeForce RTX 3090", "GPU-1", "535.54.03")
GPU = Channel("gpu", Quantity.POWER, scale=0.001, refresh_s=0.1, noise=0.2)
PROFILE = Profile(
    BOARD,
    "gpu",
    Affine(Number(0.95, 0.019), Number(2.0, 0.95), -0.01),
    20.0,
    350.0,
    Response.stated(
        "boxcar",
        refresh_s=Number(0.09997, 1e-5),
        window_s=Number(0.1, 0.001),
        delay_s=Number(-0.001, 0.001),
        noise=Number(0.3),
    ),
    (("date", "2026-01-01"), ("meter", "PowerSensor3")),
)
WATTS = np.array([97.0, 192.0])


def test_an_affine_curve_undoes_gain_and_offset() -> None:
    calibration = calibrate([PROFILE], BOARD, [GPU])
    assert calibration.profiles["gpu"].curve.true(WATTS) == pytest.approx([100.0, 200.0])
    assert list(calibration.profiles) == ["gpu"]


def test_no_profile_changes_nothing() -> None:
    nothing = Calibration()
    assert nothing.channels([GPU]) == (GPU,)
    assert nothing.digest == ""


def test_a_calibrated_channel_knows_how_well_it_is_known() -> None:
    (channel,) = calibrate([PROFILE], BOARD, [GPU]).channels([GPU])
    assert channel.gain_u == pytest.approx(0.02)
    assert channel.offset_u == pytest.approx(1.0)
    assert (channel.refresh_s, channel.window_s) == (0.09997, 0.1)
    assert channel.lag_s == pytest.approx(0.049)
    assert channel.noise == pytest.approx(0.3 / 0.95)
    assert PROFILE.digest in channel.reference
    assert "PowerSensor3" in channel.reference


def test_a_kernel_whose_end_is_not_known_may_be_half_a_period_off() -> None:
    unknown = replace(PROFILE, response=replace(PROFILE.response, delay_s=0.0, delay_u=math.inf))
    (channel,) = calibrate([unknown], BOARD, [GPU]).channels([GPU])
    assert channel.lag_s == pytest.approx(0.05)
    assert unknown.response.end_u == pytest.approx(0.09997 / math.sqrt(12.0), rel=1e-3)


def test_a_profile_without_behaviour_leaves_the_channel_its_own() -> None:
    (channel,) = calibrate([replace(PROFILE, response=UNKNOWN)], BOARD, [GPU]).channels([GPU])
    assert (channel.refresh_s, channel.window_s, channel.lag_s) == (0.1, None, None)


@pytest.mark.parametrize(
    "curve",
    [
        PROFILE.curve,
        Polynomial((1.0, 1.01, 1e-5), 0.01, 0.2),
        Lookup((0.0, 100.0, 400.0), (5.0, 104.0, 420.0), 0.01, 0.5),
    ],
)
def test_what_is_written_is_read_back(curve: CalibrationCurve) -> None:
    profile = replace(PROFILE, curve=curve)
    again = parse_profile(profile.to_json())
    assert again == profile
    assert again.digest == profile.digest
    assert again.digest != replace(profile, high=351.0).digest


def test_a_profile_with_its_kernel_left_open_is_known_by_one_digest_however_often_it_is_read() -> None:
    rng = np.random.default_rng(1)
    kernels = [Response.stated(family, window_s=Number(0.1, 0.01)) for family in ("boxcar", "triangular", "boxcar")]
    for _ in range(100):
        belief = rng.uniform(size=3)
        shares = [float(b / np.sum(belief)) for b in belief]
        made = replace(PROFILE, candidates=tuple(zip(shares, kernels, strict=True)))
        assert parse_profile(made.to_json()).digest == made.digest
    twice = json.loads(made.to_json())
    for row in twice["behaviour"]["candidates"]:
        row["share"] *= 2.0
    assert sum(share for share, _ in parse_profile(json.dumps(twice)).candidates) == pytest.approx(1.0)


def test_a_lookup_goes_on_with_its_last_slope() -> None:
    curve = Lookup((0.0, 100.0, 200.0), (10.0, 110.0, 310.0))
    assert curve.true(np.array([-10.0, 50.0, 150.0, 250.0])) == pytest.approx([0, 60, 210, 410])
    assert curve.slope(150.0) == 2.0


def test_a_polynomial_has_the_slope_of_its_derivative() -> None:
    curve = Polynomial((1.0, 2.0, 0.5))
    assert curve.slope(3.0) == pytest.approx(5.0)
    assert curve.true(np.array([2.0])) == pytest.approx([7.0])


@pytest.mark.parametrize(
    ("gain", "offset", "said"),
    [
        (0.95, 2.0, ""),
        # the farthest off of published boards: a K620's gain, an A5000's, a 4090's zero, a 2060 Super's
        (1.18, 0.0, ""),
        (0.873, 15.7, ""),
        (1.044, -22.6, ""),
        (0.968, 16.0, ""),
        (0.7, 0.0, "gpu: its profile takes 350 as shown for 500, and no such sensor is as far off"),
        (1.4, 0.0, "gpu: its profile takes 350 as shown for 250"),
        (1.0, -75.0, "gpu: its profile takes 20 as shown for 95"),
        (1.0, 100.0, "gpu: its profile takes 20 as shown for -80"),
        (95.0, 0.0, "gpu: its profile takes 350 as shown for 3.684"),
        (0.001, 0.0, "gpu: its profile takes 350 as shown for 3.5e+05"),
        (1.0, -400.0, "gpu: its profile takes 20 as shown for 420"),
        (1.0, 300.0, "gpu: its profile takes 20 as shown for -280"),
    ],
)
def test_a_profile_that_can_hardly_be_is_told_with_each_result(gain: float, offset: float, said: str) -> None:
    odd = replace(PROFILE, curve=Affine(Number(gain), Number(offset)))
    calibration = calibrate([odd], BOARD, [GPU])
    within = odd.curve.true(np.array([100.0, 300.0]))
    assert calibration.warning(GPU, within)[: len(said) or None] == said
    assert bool(said) == ("were sensor and meter in the same unit" in odd.doubt())


def test_a_curve_that_is_far_off_in_the_middle_of_its_range_alone_is_told() -> None:
    bent = replace(PROFILE, curve=Lookup((20.0, 180.0, 350.0), (20.0, 300.0, 350.0)))
    assert "takes 179.8 as shown for 299.7" in bent.doubt()


def test_how_far_a_sensor_can_be_off_is_told_by_what_it_states() -> None:
    odd = replace(PROFILE, curve=Affine(Number(0.7)))  # 350 W for 500
    assert odd.doubt(replace(GPU, gain_u=0.006))
    assert not odd.doubt(replace(GPU, gain_u=0.115))  # as RAPL's memory
    assert not odd.doubt(replace(GPU, offset_u=40.0))


def test_a_profile_of_which_the_total_has_nothing_is_told() -> None:
    counter = Channel("counter", Quantity.ENERGY, domain="gpu/1")
    power = replace(GPU, domain="gpu/1")
    said = "gpu: its profile changes nothing in the total, which is made of counter"
    assert calibrate([PROFILE], BOARD, [counter, power]).beside_total([counter, power]) == [said]
    assert not calibrate([PROFILE], BOARD, [power]).beside_total([power])
    assert not calibrate([PROFILE], BOARD, [GPU]).beside_total([GPU])  # there is no total


def test_values_outside_the_range_are_counted_and_said() -> None:
    shown = np.array([10.0, 20.0, 350.0, 351.0])
    true = PROFILE.curve.true(shown)
    assert PROFILE.outside(true) == 2
    calibration = calibrate([PROFILE], BOARD, [GPU])
    assert "of 4 readings 2 lie outside the calibrated range, 20 to 350 W" in calibration.warning(GPU, true)
    assert calibration.warning(GPU, true[1:3]) == ""
    assert calibration.warning(replace(GPU, name="other"), true) == ""


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (replace(BOARD, backend="amdsmi"), "backend"),
        (replace(BOARD, model="GeForce RTX 3080"), "model"),
        (replace(BOARD, serial="GPU-2"), "serial number"),
        (replace(BOARD, version="550.10"), "driver branch"),
        (replace(BOARD, virtual=True), "virtual"),
    ],
)
def test_a_profile_of_another_device_is_refused(here: Identity, why: str) -> None:
    with pytest.raises(CalibrationError, match=why):
        calibrate([PROFILE], here, [GPU])


def test_a_driver_of_the_same_branch_is_accepted() -> None:
    assert calibrate([PROFILE], replace(BOARD, version="535.183.01"), [GPU]).digest


def test_a_profile_for_a_channel_that_is_not_there_is_refused() -> None:
    with pytest.raises(CalibrationError, match="does not have; it has: average"):
        calibrate([PROFILE], BOARD, [replace(GPU, name="average")])


def test_two_profiles_for_one_channel_are_refused() -> None:
    with pytest.raises(CalibrationError, match="two calibrations"):
        calibrate([PROFILE, PROFILE], BOARD, [GPU])


def test_a_counter_of_energy_takes_a_gain_alone() -> None:
    counter = Channel("gpu", Quantity.ENERGY)
    with pytest.raises(CalibrationError, match="no offset"):
        calibrate([PROFILE], BOARD, [counter])
    gain = replace(PROFILE, curve=Affine(Number(0.95)), low=0.0, high=1e9)
    assert calibrate([gain], BOARD, [counter]).profiles["gpu"].curve.true(np.array([95.0])) == pytest.approx([100.0])


def test_a_formed_channel_is_calibrated_by_its_operands() -> None:
    formed = Channel("gpu", Quantity.POWER, derivation=Derivation.PRODUCT, operands=("u", "i"))
    with pytest.raises(CalibrationError, match="formed from u, i"):
        calibrate([PROFILE], BOARD, [formed])


def of_delay(seconds: float, step_s: float = 0.1, u: float = 0.001) -> dict[str, dict[str, object]]:
    """Return how a boxcar follows time whose readings are so late."""
    known = {"refresh_s": (step_s, 0.0), "window_s": (step_s, 0.0), "delay_s": (seconds, u)}
    return {"behaviour": {name: {"value": value, "u": spread} for name, (value, spread) in known.items()}}


@pytest.mark.parametrize(
    "behaviour",
    [
        of_delay(-0.1),  # as a stamp of when the register will be renewed
        of_delay(1.0),
        of_delay(7.0, step_s=1.0),  # a service processor that passes on what others read
        of_delay(-0.5, u=0.3),  # hardly known
    ],
)
def test_a_delay_that_may_be_is_taken(behaviour: dict[str, object]) -> None:
    profile = parse_profile(json.dumps(json.loads(PROFILE.to_json()) | behaviour))
    assert parse_profile(profile.to_json()) == profile


def test_a_refresh_that_is_not_known_is_not_written() -> None:
    profile = replace(PROFILE, response=replace(PROFILE.response, period_s=0.0, period_u=0.0))
    assert parse_profile(profile.to_json()).response.period_u == math.inf


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "other"}, "not a calibration profile"),
        ({"version": 2}, "version 2"),
        ({"version": True}, "version True"),
        ({"model": "spline"}, "unknown model"),
        ({"range": [5, 5]}, "empty"),
        ({"range": [5]}, "range must be a row of 2 numbers"),
        ({"provenance": {}}, "where it came from"),
        ({"device": []}, "device must be an object"),
        ({"behaviour": [1]}, "behaviour must be an object"),
        ({"channel": 7}, "channel must be a text"),
        ({"parameters": {"gain": {"value": 0, "u": 0}, "offset": {"value": 0, "u": 0}}}, "must be positive"),
        ({"parameters": {"gain": {"value": 1, "u": -1}, "offset": {"value": 0, "u": 0}}}, "of gain is missing or neg"),
        ({"parameters": {"gain": {"value": 1, "sigma": 0.1}, "offset": {"value": 0, "u": 0}}}, "of gain is missing"),
        ({"parameters": {"gain": {"value": 1, "u": 0.1}, "offset": {"value": 0}}}, "of offset is missing"),
        ({"parameters": {"gain": {"value": 1, "u": 0.1}, "offset": {"value": 0, "u": 1}, "covariance": 1}}, "allow"),
        ({"parameters": {"gain": {"value": True}, "offset": {"value": 0}}}, "number that a measurement can give"),
        ({"parameters": {"gain": {"value": 1e308, "u": 0.0}, "offset": {"value": 0}}}, "that a measurement can give"),
        ({"behaviour": {"noise": {"value": -1, "u": 0}}}, "noise is negative"),
        ({"behaviour": {"window_s": {"value": 1e6, "u": 0}}}, "follows the time of an hour"),
        ({"parameters": {"gain": {"value": 1, "u": 1e9}, "offset": {"value": 0, "u": 0}}}, "known to be"),
        (
            {"device": {"model": "", "serial": "", "version": "", "virtual": math.nan}},
            "must be true or false",
        ),
        ({"device": {"model": 7, "serial": "", "version": "", "virtual": False}}, "model of the device must be a text"),
        (
            {"device": {"model": "", "serial": [], "version": "", "virtual": False}},
            "serial of the device must be a text",
        ),
        (
            {"device": {"model": "", "serial": "", "version": 5.1, "virtual": False}},
            "version of the device must be",
        ),
        (
            {"device": {"model": "", "serial": "", "version": "", "virtual": "no"}},
            "not 'no'",
        ),
        ({"device": {"model": "", "version": "", "virtual": False}}, "the field 'serial' is missing"),
        ({"backend": None}, "backend must be a text"),
        ({"behaviour": []}, "behaviour must be an object"),
        ({"range": [0, math.nan]}, "range must be a number that a measurement can give, not nan"),
        ({"range": [-math.inf, 5]}, "range must be a number that a measurement can give, not -inf"),
        ({"parameters": {"gain": {"value": 1, "u": math.nan}, "offset": {"value": 0, "u": 0}}}, "u must be a number"),
        (
            {"parameters": {"gain": {"value": math.nan, "u": 0}, "offset": {"value": 0, "u": 0}}},
            "gain must be a number",
        ),
        ({"parameters": {"gain": {"value": 1, "u": 0}, "offset": {"value": 0, "u": math.inf}}}, "u must be a number"),
        (
            {"parameters": {"gain": {"value": 1, "u": 0.1}, "offset": {"value": 0, "u": 1}, "covariance": math.nan}},
            "covariance must be a number",
        ),
        (
            {"parameters": {"gain": {"value": 1, "u": 0.1}, "offset": {"value": 0, "u": 1}, "covariance": [[1, 0]]}},
            "covariance must be a number",
        ),
        ({"behaviour": {"candidates": [{"share": math.nan}]}}, "share must be a number"),
        ({"model": "polynomial", "parameters": {"coefficients": [0, 1, -0.01], "u": 0, "zero_u": 0}}, "does not rise"),
        ({"model": "polynomial", "parameters": {"coefficients": [0, 1]}}, "of a polynomial is missing"),
        ({"model": "polynomial", "parameters": {"coefficients": [], "u": 0, "zero_u": 0}}, "row of numbers"),
        ({"model": "lookup", "parameters": {"shown": [1, 1], "true": [1, 2], "u": 0, "zero_u": 0}}, "first one rising"),
        ({"behavior": {"window_s": {"value": 0.1, "u": 0}}}, "'behavior' is no key of a profile.*mean behaviour"),
        ({"behaviour": {"widow_s": {"value": 0.1, "u": 0}}}, "'widow_s' is no key of behaviour .*mean window_s"),
        ({"behaviour": {"candidates": [{"share": 1.0, "taus": {"value": 0.1, "u": 0}}]}}, "'taus' is no key of cand"),
        ({"parameters": {"coefficients": [0, 1], "u": 0, "zero_u": 0}}, "'coefficients' is no key of affine"),
        ({"behaviour": {"refresh_s": {"value": 0, "u": 0}}}, "refresh_s is 0: .* leave it out"),
        (of_delay(-1.0), "delay_s is -1 s, and readings of .* are -0.12 to 2 s late"),
        (of_delay(7.0), "delay_s is 7 s, .* leave it out where it is not known"),
        (
            {
                "behaviour": {
                    "candidates": [{"share": 1.0, "window_s": {"value": 0.1, "u": 0}} | of_delay(-1.0)["behaviour"]]
                }
            },
            "delay_s is -1 s",
        ),
        ({"behaviour": {"state": {"value": 30, "u": 0}}}, "state needs state_s"),
        ({"behaviour": {"family": "triangle"}}, "family 'triangle' is none of .*Did you mean triangular"),
        ({"behaviour": {"candidates": [{"share": 1.0, "family": "Boxcar"}]}}, "'Boxcar' is none of .*mean boxcar"),
        ({"behaviour": {"family": True}}, "family must be a text"),
        ({"behaviour": {"family": "triangular", "tau_s": {"value": 0.1, "u": 0}}}, "triangular kernel has no time con"),
        (
            {"parameters": {"gain": {"value": 0.95, "u": 0.01}, "offset": {"value": 400, "u": 1}}},
            "makes all readings up to 350 negative, up to -52.6",
        ),
    ],
)
def test_a_broken_profile_is_refused_with_the_field(change: dict[str, object], why: str) -> None:
    document = json.loads(PROFILE.to_json()) | change
    with pytest.raises(CalibrationError, match=why) as refusal:
        parse_profile(json.dumps(document), "mine.json")
    assert "mine.json" in str(refusal.value)


@pytest.mark.parametrize(
    ("once", "twice", "key"),
    [
        ('"channel": "gpu"', '"channel": "gpu", "channel": "gpu"', "'channel'"),
        ('"covariance": -0.01', '"covariance": -0.01, "covariance": 0.0', "'covariance'"),
        ('"u": 0.019', '"u": 0.019, "u": 0.0', "'u'"),
        ('"serial": "GPU-1"', '"serial": "GPU-2", "serial": "GPU-1"', "'serial'"),
    ],
)
def test_a_key_that_stands_twice_is_refused(once: str, twice: str, key: str) -> None:
    text = PROFILE.to_json()
    assert text.count(once) == 1
    with pytest.raises(CalibrationError, match=f"^mine.json: {key} stands twice in one object; keep one of the two"):
        parse_profile(text.replace(once, twice), "mine.json")


def test_a_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(CalibrationError, match="not JSON"):
        parse_profile("{")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(json.loads(PROFILE.to_json()))), JSON)
def test_any_value_in_any_field_is_a_profile_or_a_refusal(key: str, value: object) -> None:
    document = json.loads(PROFILE.to_json()) | {key: value}
    with contextlib.suppress(CalibrationError):
        assert isinstance(parse_profile(json.dumps(document)), Profile)


@given(st.floats(0.5, 2), st.floats(-50, 50), st.lists(st.floats(0, 1000), min_size=1, max_size=10))
def test_an_affine_curve_inverts_the_sensor_it_describes(gain: float, offset: float, watts: list[float]) -> None:
    true = np.array(watts)
    assert Affine(Number(gain), Number(offset)).true(gain * true + offset) == pytest.approx(true, abs=1e-9)
