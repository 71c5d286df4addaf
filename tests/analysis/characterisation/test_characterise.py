from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.characterisation.results import Characterisation, Series, as_widths
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from tests.support.drawn_sensors import Kernel, Polls, Sensor, draw, draw_load, record
from tests.support.recorded import read_log, read_pmd, read_stamps
from tests.support.simulated import HIGH, LOW, Bench, pseudo_random_bench, square_bench

_MODEL = SensorModel(0.1, 0.03, window_s=0.08, gain=0.95, offset_w=-3.0, noise_w=0.3, step_w=0.01)
_EPOCH_S = 1.7e9


def _run(
    bench: Bench,
    model: SensorModel = _MODEL,
    *,
    zone_s: float = 0.0,
    meter: bool = True,
    load: bool = True,
    **of_meter: float,
) -> Characterisation:
    t_ns, watts = model.record(bench.load, bench.seconds, Polling(0.008, 0.001, 0.01, stamp_step_s=0.001))
    polls = Series(np.asarray(t_ns * 1e-9 + _EPOCH_S + zone_s, np.float64), watts)
    stamps = LoadIntervals.switched(np.asarray(bench.edges_s + _EPOCH_S, np.float64), bench.seconds + _EPOCH_S)
    rng = np.random.default_rng(1)
    t = np.arange(-0.5, bench.seconds + 0.5, 1e-3)  # a meter that averages over each millisecond
    truth = np.diff(bench.load.joules(np.append(t, t[-1] + 1e-3) - 5e-4)) * 1e3 + 0.2 * rng.standard_normal(len(t))
    at = (t - 5.0) * (1.0 + of_meter.get("rate", 0.0)) + 5.0 + of_meter.get("shift", 0.0)
    metered = Series(np.asarray(at + _EPOCH_S, np.float64), truth)
    return characterise("power", polls, load=stamps if load else None, meter=metered if meter else None)


@functools.cache
def _on_strange_clocks() -> Characterisation:
    return _run(pseudo_random_bench(0.17), zone_s=5.5 * 3600.0, shift=0.4, rate=0.0009)


@functools.cache
def _of_one_step() -> Characterisation:
    return _run(Bench(np.array([2.0, 8.0]), 10.0))


def _estimates(part: Any, path: str = "") -> dict[str, Any]:
    """All {"value", "low", "high"} of a document, by path."""
    if isinstance(part, dict) and {"value", "low", "high"} == set(part):
        return {path: part}
    if isinstance(part, dict):
        return {k: v for name, below in part.items() for k, v in _estimates(below, f"{path}.{name}").items()}
    return {}


def test_the_document_has_exactly_the_public_keys_and_is_json() -> None:
    document = json.loads(json.dumps(_on_strange_clocks().document()))
    assert list(document) == [
        "channel",
        "update_period_ms",
        "step",
        "kernel",
        "levels_w",
        "gradient",
        "intercept_w",
        "energy",
        "declined",
    ]
    assert set(document["step"]) == {"kind", "rise_ms", "delay_ms"}
    assert set(document["kernel"]) == {
        *("family", "window_ms", "tau_ms", "spread_ms", "offset_ms", "lag_ms", "candidates")
    }
    assert document["kernel"]["candidates"][0]["family"] == "boxcar"
    assert sum(c["share"] for c in document["kernel"]["candidates"]) == pytest.approx(1.0)
    found = _estimates(document)
    assert found
    assert all(e["low"] <= e["value"] <= e["high"] for e in found.values())


def test_a_simulated_sensor_is_found_with_log_and_meter_on_strange_clocks() -> None:
    document = _on_strange_clocks().document()
    kernel = document["kernel"]
    assert kernel["family"] == "boxcar"
    assert kernel["window_ms"]["value"] == pytest.approx(80.0, abs=1.0)
    assert kernel["offset_ms"]["low"] - 1.0 <= 0.0 <= kernel["offset_ms"]["high"] + 1.0  # stamps are cut to 1 ms
    assert document["gradient"]["value"] == pytest.approx(0.95, abs=0.012)
    assert document["intercept_w"]["value"] == pytest.approx(-3.0, abs=2.5)
    assert abs(document["energy"]["whole"]["corrected_error_percent"]) < 0.8
    assert document["declined"].keys() == {"step"}


def test_a_meter_without_load_stamps_gives_everything_but_the_offset() -> None:
    document = _run(pseudo_random_bench(0.17), load=False, shift=0.3, rate=-0.0007).document()
    assert document["kernel"]["window_ms"]["value"] == pytest.approx(80.0, abs=1.0)
    assert document["kernel"]["offset_ms"] is None
    assert document["kernel"]["lag_ms"] is None
    assert all(row["lag_ms"] is row["offset_ms"] is None for row in document["kernel"]["candidates"])
    assert all("stamps of the load" in document["declined"][f"kernel.{name}_ms"] for name in ("offset", "lag"))
    assert document["gradient"]["value"] == pytest.approx(0.95, abs=0.012)


def test_load_stamps_alone_give_the_kernel_but_no_gradient() -> None:
    document = _run(pseudo_random_bench(0.023), meter=False).document()
    assert document["kernel"]["family"] == "boxcar"
    for level, watts in (("off", LOW), ("on", HIGH)):  # of both powers of the load, what is shown
        told = document["levels_w"][level]
        assert told["low"] <= 0.95 * watts - 3.0 <= told["high"]
        assert told["high"] - told["low"] < 1.5
    assert document["gradient"] is None
    assert all(each["gradient"] is None for each in document["kernel"]["candidates"])
    assert "meter" in document["declined"]["gradient"]
    assert document["energy"] == {}


def test_stamps_of_one_step_leave_intervals_that_reach_to_none_and_not_below() -> None:
    """Widths may be none; a second one that no likely family has is bounded by what all of them have."""
    document = _run(Bench(np.array([2.0, 8.0]), 10.0), meter=False).document()
    kernel = document["kernel"]
    assert kernel["family"] == "ambiguous"
    assert all(kernel[name]["high"] > 0.0 for name in ("window_ms", "tau_ms"))
    told = _estimates({str(i): each for i, each in enumerate(kernel["candidates"])})
    assert min(e["low"] for name, e in told.items() if name.endswith(("window_ms", "tau_ms"))) >= 0.0


def test_a_width_that_no_likely_family_has_is_bounded_and_not_left_out() -> None:
    found = _on_strange_clocks()
    assert found.kernel is not None
    assert as_widths(found.kernel)["tau_ms"] is None  # a boxcar has none
    open_ = replace(found.kernel, family=AMBIGUOUS, odds=((found.kernel.best.family, 1.0),))
    tau = as_widths(open_)["tau_ms"]
    assert tau["value"] is None
    assert tau["low"] == 0.0
    assert tau["high"] == pytest.approx(80.0 / np.sqrt(12.0), rel=0.05)


@pytest.mark.parametrize("one_clock", [True, False])
def test_a_sensor_faster_than_its_polls_has_a_bound_and_beside_a_meter_gain_and_offset(*, one_clock: bool) -> None:
    """Mean of each 2 ms, published every 2 ms, polled every 2.4 ms; the meter, of each millisecond, is the truth."""
    bench = pseudo_random_bench(0.05)
    rng = np.random.default_rng(3)
    polled = np.arange(0.5, bench.seconds, 0.0024)
    u = 0.002 * np.floor(polled / 0.002)
    shown = 0.95 * np.diff([bench.load.joules(u - 0.002), bench.load.joules(u)], axis=0)[0] / 0.002 - 3.0
    t = np.arange(0.0, bench.seconds, 1e-3)
    truth = np.diff(bench.load.joules(np.append(t - 1e-3, t[-1]))) / 1e-3
    found = characterise(
        "power",
        Series(polled, shown + 0.3 * rng.standard_normal(len(polled))),
        meter=Series(t + (0.0 if one_clock else 0.7), truth),
        one_clock=one_clock,
    )
    document = found.document()
    assert document["update_period_ms"]["value"] is None
    assert 2.0 <= document["update_period_ms"]["high"] < 2.6
    assert found.transfer is not None
    assert found.transfer.gain.contains(0.95)
    assert found.transfer.gain.half_width < 0.01
    assert found.transfer.intercept_w.contains(-3.0)
    assert not {"gradient", "intercept_w"} & document["declined"].keys()
    assert document["declined"].keys() == {"update_period_ms", "step", "kernel", "energy"}
    assert any("not known" in note for note in found.notes)


def test_a_meter_that_saw_something_else_tells_no_gain_of_a_sensor_faster_than_its_polls() -> None:
    bench, rng = pseudo_random_bench(0.05), np.random.default_rng(4)
    polled = np.arange(0.5, bench.seconds, 0.0024)
    shown = bench.load.watts(polled) + 0.3 * rng.standard_normal(len(polled))
    still = Series(np.arange(0.0, bench.seconds, 1e-3), np.full(round(bench.seconds * 1e3), 50.0))
    declined = characterise("power", Series(polled, shown), meter=still, one_clock=True).declined
    assert declined["gradient"] == declined["intercept_w"]
    assert "constant" in declined["gradient"]


def test_constant_power_declines_everything_with_the_reason() -> None:
    flat = Bench(np.array([100.0, 101.0]), 10.0)
    document = _run(flat, SensorModel(0.1, step_w=1.0)).document()
    assert _estimates(document) == {}
    assert "constant" in document["declined"]["update_period_ms"]
    assert all("constant" in why for why in document["declined"].values())


def test_a_meter_of_another_time_is_declined() -> None:
    bench = pseudo_random_bench(0.05)
    document = _run(bench, shift=700.0).document()
    assert document["update_period_ms"] is not None
    assert document["gradient"] is None
    assert "do not overlap" in document["declined"]["meter"]
    assert "do not overlap" in document["declined"]["gradient"]


def test_a_meter_that_recorded_a_moment_is_declined() -> None:
    bench = pseudo_random_bench(0.05)
    t_ns, watts = _MODEL.record(bench.load, 10.0, Polling())
    t = np.arange(4.0, 4.5, 2e-4)
    load = LoadIntervals.switched(bench.edges_s, 10.0)
    moment = Series(t, bench.load.watts(t))
    found = characterise("power", Series(np.asarray(t_ns * 1e-9), watts), load=load, meter=moment)
    assert found.transfer is None
    assert "the meter recorded 0.5 s" in found.declined["meter"]


def test_a_meter_that_lost_samples_under_the_load_is_declined() -> None:
    bench = Bench(np.array([2.0, 8.0]), 11.0)
    t_ns, watts = _MODEL.record(bench.load, 11.0, Polling())
    polls, load = Series(np.asarray(t_ns * 1e-9), watts), LoadIntervals.switched(bench.edges_s, 11.0)
    t = np.arange(0.5, 10.5, 2e-4)
    power, lost = bench.load.watts(t), (t > 4.0) & (t < 4.4)
    torn = Series(t[: np.count_nonzero(~lost)], power[~lost])  # its counter of ticks turned over in between
    found = characterise("power", polls, load=load, meter=torn)
    assert _of_one_step().transfer is not None
    assert found.transfer is None
    assert "falls -0.4" in found.declined["meter"]


def test_a_meter_of_another_load_is_declined() -> None:
    bench, other = pseudo_random_bench(0.05, seed=1), pseudo_random_bench(0.07, seed=9)
    t_ns, watts = _MODEL.record(bench.load, 10.0, Polling())
    t = np.arange(0.0, 10.0, 2e-4)
    found = characterise("power", Series(np.asarray(t_ns * 1e-9), watts), meter=Series(t, other.load.watts(t)))
    assert found.transfer is None
    assert found.document()["kernel"]["family"] == "ambiguous"
    assert "kernel" in found.declined


def test_a_load_in_step_with_the_updates_is_declined_without_a_meter() -> None:
    document = _run(square_bench(0.1002), meter=False).document()
    assert "too near the update period" in document["declined"]["kernel"]
    assert document["kernel"]["window_ms"] is None


def test_a_step_gives_kind_rise_and_delay() -> None:
    step = _run(Bench(np.array([2.0, 8.0]), 10.0), meter=False).document()["step"]
    assert step["kind"] == "instant"
    assert step["rise_ms"]["low"] <= 64.0 <= step["rise_ms"]["high"]
    assert step["delay_ms"]["low"] <= 40.0 <= step["delay_ms"]["high"]


def test_a_sharp_step_leaves_the_kernel_ambiguous_but_gives_gradient_and_honest_energies() -> None:
    # One update on each flank: a boxcar and a one-pole can both be bent to fit it.
    found = _of_one_step()
    document = found.document()
    kernel = document["kernel"]
    assert kernel["family"] == "ambiguous"
    assert "of the probability, and it takes odds of 20 to 1 to name one" in document["declined"]["kernel"]
    # Either width may be none; both have a bound, as have lag and offset, and each candidate says what it would be.
    assert kernel["window_ms"]["low"] == kernel["tau_ms"]["low"] == 0.0
    assert kernel["window_ms"]["high"] >= 25.0
    assert kernel["tau_ms"]["high"] > 0.0
    named = {c["family"]: c for c in kernel["candidates"]}
    assert sum(c["share"] for c in named.values()) == pytest.approx(1.0)
    assert all(named["boxcar"][key] is not None for key in ("window_ms", "offset_ms", "lag_ms", "gradient"))
    assert document["levels_w"] is named["boxcar"]["levels_w"] is None  # a meter makes a gain of them
    assert document["gradient"]["value"] == pytest.approx(0.95, abs=0.012)
    assert set(document["energy"]) == {"whole", "first_1s", "first_0.3s"}
    assert all(e.corrected_j.contains(e.reference_j) for e in found.energy.values())


def _recorded(recordings: Path, folder: str, column: str) -> dict[str, Any]:
    stamps = read_stamps(recordings / folder / "timestamps.csv")
    return characterise(
        column,
        Series(*read_log(recordings / folder / "gpudata.csv.gz", column)),
        load=LoadIntervals.switched(stamps[:-1], float(stamps[-1])),
        meter=Series(*read_pmd(recordings / folder)),
    ).document()


def test_the_recorded_ampere_step_is_reproduced(recordings: Path) -> None:
    document = _recorded(recordings, "rtx3090-step", "power.draw.instant [W]")
    assert document["update_period_ms"]["value"] == pytest.approx(99.970, rel=0.001)
    assert document["kernel"]["window_ms"]["value"] == pytest.approx(100.0, abs=8.0)
    assert document["kernel"]["offset_ms"]["value"] == pytest.approx(-1.0, abs=3.0)
    assert document["gradient"]["value"] == pytest.approx(0.948, abs=0.012)
    energy = document["energy"]
    assert energy["whole"]["held_error_percent"] == pytest.approx(-5.9, abs=0.3)
    assert energy["first_0.3s"]["held_error_percent"] == pytest.approx(-31.0, abs=0.5)
    for name, limit in (("whole", 0.8), ("first_1s", 1.5), ("first_0.3s", 4.0)):
        assert abs(energy[name]["corrected_error_percent"]) < limit


def test_the_recorded_ampere_square_wave_is_reproduced(recordings: Path) -> None:
    document = _recorded(recordings, "rtx3090-squarewave", "power.draw.instant [W]")
    assert document["kernel"]["family"] == "boxcar"
    assert document["kernel"]["window_ms"]["value"] == pytest.approx(99.9, abs=1.0)
    assert document["gradient"]["value"] == pytest.approx(0.948, abs=0.012)
    assert document["intercept_w"]["value"] == pytest.approx(1.4, abs=2.5)
    assert abs(document["energy"]["whole"]["corrected_error_percent"]) < 0.8


def test_the_recorded_kepler_step_is_reproduced(recordings: Path) -> None:
    document = _recorded(recordings, "k40m-step", "power.draw [W]")
    assert document["kernel"]["family"] == "one-pole"
    assert document["kernel"]["tau_ms"]["value"] == pytest.approx(54.6, rel=0.08)
    assert document["gradient"]["value"] == pytest.approx(1.024, abs=0.012)
    assert abs(document["energy"]["first_0.3s"]["corrected_error_percent"]) < 1.0
    assert abs(document["energy"]["whole"]["corrected_error_percent"]) < 0.8


def test_renewals_that_did_not_come_do_not_slow_the_kernel() -> None:
    """A fifth of them: with the value before in their place a time constant was 5 to 11 % too long, and named."""
    rng = np.random.default_rng(3)
    sensor = Sensor(0.08, Kernel("one-pole", tau_s=0.06), phase_s=0.03, noise_w=0.3, resolution_w=0.01)
    power = draw_load("telegraph", 0.08, 20.0, rng)
    d = record(sensor, power, Polls("irregular", 0.008, 0.001), 20.0, seed=3)
    changed = np.diff(d.watts, prepend=np.nan) != 0.0
    lost = changed & (rng.random(len(changed)) < 0.2)  # what was shown before such a change stands on after it
    shown, watts = float(d.watts[0]), np.empty(len(d.watts))
    for i, (new, gone) in enumerate(zip(changed, lost, strict=True)):
        shown = float(d.watts[i]) if new and not gone else shown
        watts[i] = shown
    found = characterise("x", Series(d.t_s, watts), load=LoadIntervals.switched(d.edges_s, 20.0))
    assert found.kernel is not None
    assert found.kernel.family == "one-pole"
    tau = found.kernel.best.tau_s
    assert tau is not None
    assert tau.contains(0.06)
    assert tau.half_width < 0.002
    assert any("were not renewed" in note for note in found.notes)


def test_stamps_do_not_place_energies_where_the_meter_is_too_coarse_for_them() -> None:
    # With rows 20 ms apart nothing ties the meter to the stamps: 13 of 22 energies of a second were off, silently.
    bench, rng = pseudo_random_bench(0.17, seconds=30.0), np.random.default_rng(3)
    t_ns, watts = _MODEL.record(bench.load, bench.seconds, Polling(0.008, 0.001, 0.01, stamp_step_s=0.001))
    t = np.arange(-0.5, bench.seconds + 0.5, 0.02)
    means = np.diff(bench.load.joules(np.append(t - 0.02, t[-1]))) / 0.02
    meter = Series(np.asarray(t, np.float64), np.asarray(means + 0.2 * rng.standard_normal(len(t)), np.float64))
    stamps = LoadIntervals.switched(bench.edges_s, bench.seconds)
    found = characterise("power", Series(np.asarray(t_ns * 1e-9, np.float64), watts), load=stamps, meter=meter)
    assert found.transfer is not None
    assert found.transfer.gain.contains(0.95)
    assert list(found.energy) == ["whole"]
    whole = found.energy["whole"]
    assert whole.corrected_j.contains(whole.reference_j)
    assert any("with a row each 20 ms" in note for note in found.notes)


def test_a_meter_in_other_units_is_said() -> None:
    bench = pseudo_random_bench(0.17)
    milli = replace(_MODEL, gain=1000.0 * _MODEL.gain, offset_w=1000.0 * _MODEL.offset_w, noise_w=300.0, step_w=10.0)
    assert any("about 1,000 times what the reference shows" in note for note in _run(bench, milli).notes)


def test_a_phase_that_slides_under_a_load_in_step_does_not_pass_for_a_shape() -> None:
    """Of some edges, met again and again by updates whose times are off by 2 ms and dated to 1.2, no shape is told.

    With times that were held to be right, a wrong one was named, at odds of 1e59 to 1 against the right one.
    """
    drawn = draw(3088, family="triangular", load="slots in step", polls="irregular", phase="sliding", seconds=20.0)
    load = LoadIntervals.switched(drawn.edges_s, drawn.seconds)
    meter = drawn.meter(np.random.default_rng(3088), rate=3e-4, shift_s=0.2)
    found = characterise("drawn", Series(drawn.t_s, drawn.watts), load=load, meter=Series(*meter)).kernel
    assert found is not None
    assert found.family == "ambiguous"
    assert dict(found.odds)["triangular"] > 1e-9
