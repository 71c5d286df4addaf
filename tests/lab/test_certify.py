"""The whole procedure on virtual cards, in no time: on a clock that walks."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.analysis.procedures.certificate import Level, late_s, line_through, settled, trials_of
from pmtpy.analysis.signal.estimate import NO_VALUE, Estimate
from pmtpy.backends.nvml._source import RegisterSource
from pmtpy.cli import certify as verb
from pmtpy.cli import main
from pmtpy.cli.page import Table
from pmtpy.core.calibration.matching import refuse_unfit
from pmtpy.core.channel import Identity
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.emulators.world import make_world
from pmtpy.errors import CalibrationError, DeclinedError, MissingPackageError, TargetError
from pmtpy.lab._reference import Known, Reference, of_meter, of_world, opened
from pmtpy.lab.certify import Certificate, certify
from pmtpy.lab.certify_plan import Plan
from pmtpy.lab.certify_rules import Rules, judged, rulings
from pmtpy.lab.loads import cpu_load, virtual_load
from pmtpy.lab.make_profile import profile_of
from pmtpy.lab.record import Recorder
from pmtpy.sensor.registry import create
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.worlds import Stream, WalkingClock

_BRIEF = Plan(response_s=12.0, level_s=0.8, rounds=1, shares=(0.3, 0.6, 1.0), trials=2, repetitions=6)


def test_a_virtual_card_is_certified_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = {"total": "instant", "profile": "rtx3090"}
    rules = Rules().but({"gain": 3.0})
    made = certify("nvml:virtual", options, _BRIEF, rules, clock=WalkingClock(), interval_s=0.015)
    found = {verdict.rule: verdict.passed for verdict in made.verdicts}
    assert found.pop("gain") is False
    assert found.pop("power shown") is False
    assert found.pop("energies repeat") is None  # of two trials
    assert all(found.values()), made.verdicts
    assert not made.passed
    assert made.line is not None
    assert made.line.gain.contains(0.948)  # that of the virtual card, after a published one
    assert made.line.gain.half_width < 0.01
    _tells_whose_it_is(made)
    _can_be_used(made, tmp_path)
    _is_printed(made, monkeypatch, capsys, tmp_path)


def _tells_whose_it_is(made: Certificate) -> None:
    document = json.loads(json.dumps(made.document()))
    assert document["virtual"] is True
    assert document["identity"]["serial"].startswith("GPU-")
    assert document["identity"]["version"] == "570.86.15"
    assert document["conditions"]["settings"] == {"power limit": "700 W"}
    assert {"gpu.temperature_C", "gpu.sm_clock_Hz"} <= document["conditions"]["ranges"].keys()
    there = {level["share"]: level["reference_w"] for level in document["levels"]}
    assert there == pytest.approx({0.0: 40.0, 0.3: 70.0, 0.6: 100.0, 1.0: 140.0}, abs=1e-3)
    shown = "\n".join(getattr(line, "text", "") for line in verb.page(made))
    for told in ("FAILS", "power limit: 700 W", "is virtual", "GPU-", "driver 570.86.15", "update period"):
        assert told in shown
    _says_first_how_it_ended(made)


def _says_first_how_it_ended(made: Certificate) -> None:
    kept = tuple(replace(v, passed=True) for v in made.verdicts)
    open_rule = (replace(kept[0], passed=None), *kept[1:])
    once = tuple({level.share: level for level in made.levels}.values())
    first = [verb.page(replace(made, verdicts=v, levels=once)) for v in (kept, open_rule)]
    heads = [getattr(page[0], "text", "").partition(": ")[2] for page in first]
    assert heads == ["passes", f"breaks no rule, but 1 of {len(kept)} rules could not be judged"]
    (levels,) = [part.rows for part in first[0] if isinstance(part, Table)]
    assert {row[2] for row in levels[1:]} == {NO_VALUE}  # one round differs from no other


def _can_be_used(made: Certificate, folder: Path) -> None:
    profile = profile_of(made.profiled(), made.channel, (("certified against", made.reference),))
    (folder / "own.json").write_text(profile.to_json(), encoding="utf-8")
    clock = WalkingClock()
    options: dict[str, Any] = {"profile": "rtx3090", "load": "constant:150", "total": "instant", "clock": clock}
    with create("nvml:virtual", calibration=folder / "own.json", **options) as sensor:
        assert not [n for n in sensor.identity.notes if n.startswith("gpu.instant: not calibrated")]
        clock.advance(1.0)
        assert sensor.read().watts[1] == pytest.approx(150.0, rel=0.01)
    with create("nvml:virtual", **options) as sensor:
        assert [n for n in sensor.identity.notes if n.startswith("gpu.instant: not calibrated; 5 cards of this model")]


def _is_printed(
    made: Certificate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr(verb, "certify", lambda *_, **__: made)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    report, profile = folder / "report.json", folder / "verb.json"
    words = ["certify", "nvml:virtual", "--json", "--store", "--report", str(report), "--profile", str(profile)]
    assert main(words) == verb.BROKEN
    told = capsys.readouterr()
    assert json.loads(told.out) == json.loads(report.read_text(encoding="utf-8"))
    assert json.loads(profile.read_text(encoding="utf-8"))["channel"] == "gpu.instant"
    assert "not stored: the profile cannot be found again by the device, since it is virtual" in told.err
    assert ["certified against", made.reference] in _came_from(profile)
    bare = folder / "bare.json"
    monkeypatch.setattr(verb, "certify", lambda *_, **__: replace(made, line=None, reference="powersensor3"))
    assert main(["certify", "nvml:virtual", "--profile", str(bare)]) == verb.BROKEN
    assert ["certified against", "nothing: powersensor3 told no gain"] in _came_from(bare)
    monkeypatch.setattr(verb, "certify", lambda *_, **__: made)
    capsys.readouterr()
    report.write_text("another card's", encoding="utf-8")
    assert main(words) == 2
    assert "report.json exists already" in capsys.readouterr().err
    assert report.read_text(encoding="utf-8") == "another card's"
    assert main([*words, "--overwrite"]) == verb.BROKEN
    assert json.loads(report.read_text(encoding="utf-8"))["target"] == "nvml:virtual"
    capsys.readouterr()
    for never in ("gain=x", "coverage=5", "gain=1e9"):
        assert main(["certify", "nvml:virtual", "--rule", never]) == 2
    assert "the rules are period, coverage" in capsys.readouterr().err


def _came_from(profile: Path) -> list[list[str]]:
    return [list(pair) for pair in json.loads(profile.read_text(encoding="utf-8"))["provenance"].items()]


def test_a_load_of_its_own_and_plans_that_prove_nothing_are_refused() -> None:
    with pytest.raises(TargetError, match="makes the load itself"):
        certify("nvml:virtual", {"load": "constant:60"}, _BRIEF, Rules(), clock=WalkingClock())
    for again in ("nvml:virtual", "nvidia:virtual"):
        with pytest.raises(TargetError, match="give another one"):
            certify("nvml:virtual", {}, _BRIEF, Rules(), meter=again, clock=WalkingClock())
    with pytest.raises(TargetError, match="two different shares"):
        Plan(shares=(0.5, 0.5))
    with pytest.raises(TargetError, match="two trials"):
        Plan(trials=1)


def test_a_package_that_is_missing_is_said_before_the_load_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="scipy is not installed"):
        certify("rapl:virtual", {}, Plan(), Rules(), progress=pytest.fail)


def test_phases_differ_from_trial_to_trial_and_the_scheme_is_in_order() -> None:
    scheme = Plan().scheme()
    assert np.all(np.diff(scheme.edges_s) > 0.0)
    assert len(scheme.edges_s) == 2 * len(scheme.shares)
    firsts = [scheme.edges_s[scheme.edges_s > begin][0] for begin, _ in scheme.trials]
    phases = np.array(firsts) % 0.1
    assert np.min(np.diff(np.sort(phases))) > 1e-3
    for share, begin, end in scheme.levels:
        inside = scheme.edges_s[(scheme.edges_s > begin + 1e-9) & (scheme.edges_s < end - 1e-9)]
        assert not len(inside), share


def test_a_line_is_found_within_its_interval_and_bent_levels_are_seen() -> None:
    there = np.linspace(60.0, 300.0, 7)
    wobble = np.array([0.3, -0.2, 0.1, -0.3, 0.2, -0.2, 0.1])
    straight = [Level(i / 6.0, 0.95 * w + 2.0 + e, w) for i, (w, e) in enumerate(zip(there, wobble, strict=True))]
    line = line_through(straight)
    assert line.gain.contains(0.95)
    assert line.offset_w.contains(2.0)
    assert line.deviation.high < 0.01
    assert line.deviation.low == 0.0  # of a single round: noise, as far as anybody knows
    bent = [Level(i / 6.0, w - 4e-4 * w * w + e, w) for e in (-0.3, 0.3) for i, w in enumerate(there)]
    assert line_through(bent).deviation.low > 0.01
    once = line_through(bent[:7]).deviation
    assert once.low == 0.0
    assert once.value > 0.01
    with pytest.raises(DeclinedError, match="--meter"):
        line_through([Level(0.5, 100.0)])
    with pytest.raises(DeclinedError, match="takes 3 of them or more"):
        line_through(straight[:2])


def test_what_lies_across_a_limit_is_not_decided() -> None:
    wide = judged("gain", "", Estimate(1.04, 0.99, 1.09), "", (0.95, 1.05))
    assert wide.passed is None
    assert "too uncertain" in wide.found
    assert judged("gain", "", Estimate(1.04, 1.03, 1.049), "", (0.95, 1.05)).passed is True
    assert math.isclose(trials_of([0.99, 1.01]).sd.value, math.sqrt(2.0) * 0.01)
    assert settled(1.0, 3.0) == (2.0, 3.0)
    with pytest.raises(DeclinedError):
        trials_of([1.0])


def test_verdicts_of_levels_and_trials_that_scatter_hold_nineteen_times_in_twenty() -> None:
    rng, missed = np.random.default_rng(5), np.zeros(4, np.int64)
    shares = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for _ in range(400):
        bent = 2.0 * np.sin(np.pi * shares)  # watts, on a span of about 150
        levels = [
            Level(s, 60.0 + 150.0 * s + b + rng.normal(0.0, 3.0), 60.0 + 150.0 * s)
            for _ in range(2)
            for s, b in zip(shares, bent, strict=True)
        ]
        x, y = 60.0 + 150.0 * shares, bent - np.polyval(np.polyfit(shares, bent, 1), shares)
        line, trials = line_through(levels), trials_of((1.03 + rng.normal(0.0, 0.02, 4)).tolist())
        span = max(level.shown_w for level in levels) - min(level.shown_w for level in levels)
        shown_at = line.gain.value * line.level_at_w + line.offset_w.value
        truth = np.polyval(np.polyfit(x, x + bent, 1), line.level_at_w)
        missed += np.array([
            not line.deviation.contains(float(np.max(np.abs(y))) / span),
            abs(shown_at - truth) > 2.2 * line.level_u,
            not trials.sd.contains(0.02),
            not trials.mean.contains(1.03),
        ])  # fmt: skip
    assert np.all(missed / 400 < 0.08), missed


def test_what_noise_alone_may_do_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    plan = Plan(response_s=10.0, level_s=0.8, rounds=2, shares=(0.25, 0.5, 0.75, 1.0), trials=4, repetitions=4)
    options = {"noise_w": "30", "total": "instant"}
    made = certify("nvml:virtual", options, plan, Rules(), clock=WalkingClock(), interval_s=0.03)
    straight = next(v for v in made.verdicts if v.rule == "linearity")
    assert straight.passed is None
    assert "too uncertain to decide; more --rounds" in straight.found


def test_a_sensor_that_does_not_see_the_load_keeps_no_rule_of_energies(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    options = {"gain": "0.001", "offset_w": "60", "noise_w": "0.05", "total": "instant"}
    plan = Plan(response_s=10.0, level_s=0.8, rounds=2, shares=(0.5, 1.0), trials=4, repetitions=6)
    made = certify("nvml:virtual", options, plan, Rules(), clock=WalkingClock(), interval_s=0.03)
    for rule in ("energies repeat", "short loads"):
        (found,) = [v for v in made.verdicts if v.rule == rule]
        assert found.passed is None, found
        assert "see that the load runs on the device" in found.found


def test_a_meter_of_something_else_tells_of_no_line() -> None:
    rng, shares, declined = np.random.default_rng(2), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0] * 2, 0
    for _ in range(100):
        levels = [Level(s, 40.0 + 90.0 * s + rng.normal(0.0, 1.0), 40.0 + rng.normal(0.0, 0.1)) for s in shares]
        try:
            line_through(levels)
        except DeclinedError as error:
            declined += "both measure the same power" in str(error)
    assert declined > 90  # noise of a meter rises with anything at 1 in 40


def test_what_makes_no_profile_is_not_stored_and_does_not_end_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from pmtpy.lab import certify as lab

    def profile_of(*_: object) -> None:
        raise CalibrationError("the valid range is empty")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    plan = Plan(response_s=10.0, level_s=0.8, rounds=1, shares=(0.5, 1.0), trials=2, repetitions=2)
    made = certify("nvml:virtual", {"total": "instant"}, plan, Rules(), clock=WalkingClock(), interval_s=0.03)
    monkeypatch.setattr(verb, "certify", lambda *_, **__: made)
    monkeypatch.setattr(verb, "profile_of", profile_of)
    assert main(["certify", "nvml:virtual", "--store"]) == (verb.PASSED if made.passed else verb.BROKEN)
    assert "not stored: the valid range is empty" in capsys.readouterr().err
    assert main(["certify", "nvml:virtual", "--profile", str(tmp_path / "own.json")]) == 2


def test_a_power_limit_that_is_set_anew_meanwhile_is_told_and_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    told = iter(["350 W", "80 W"])
    monkeypatch.setattr(RegisterSource, "settings", lambda _: {"power limit": next(told)})
    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    plan = Plan(response_s=10.0, level_s=0.8, rounds=1, shares=(0.5, 1.0), trials=2, repetitions=2)
    made = certify("nvml:virtual", {"total": "instant"}, plan, Rules(), clock=WalkingClock(), interval_s=0.03)
    assert made.conditions["settings"] == {"power limit": "350 W, then 80 W"}
    (found,) = [v for v in made.verdicts if v.rule == "steady clocks"]
    assert found.passed is False
    assert found.found == "it was set anew meanwhile: power limit 350 W, then 80 W"


def test_a_power_that_is_a_product_of_volts_and_amperes_is_judged_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    why = {"update_period_ms": "readings jump"}
    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel, declined=why))
    plan = Plan(response_s=10.0, level_s=0.8, rounds=2, shares=(0.5, 1.0), trials=3, repetitions=6)
    made = certify("jetson:virtual", {}, plan, Rules(), clock=WalkingClock(), interval_s=0.004)
    assert made.channel.name == "vdd_in"
    assert made.reference == "the load of its own world"
    assert made.line is not None
    assert made.line.gain.value == pytest.approx(1.0, abs=0.01)
    for level in made.levels:
        assert level.shown_w == pytest.approx(level.reference_w, rel=0.01)
    shown = "\n".join(getattr(line, "text", "") for line in verb.page(made))
    assert shown.count("readings jump") == 1


def test_a_power_that_is_a_sum_and_a_count_of_samples_is_their_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    plan = Plan(response_s=10.0, level_s=0.8, rounds=2, shares=(0.5, 1.0), trials=3, repetitions=6)
    made = certify("occ:virtual", {}, plan, Rules(), clock=WalkingClock(), interval_s=0.006)
    assert made.channel.name == "system"
    assert made.line is not None
    for level in made.levels:
        assert level.shown_w == pytest.approx(level.reference_w, abs=0.5)  # samples are whole watts
    assert made.trials is not None
    assert made.trials.mean.contains(1.0)
    profile = profile_of(made.profiled(), made.channel, (("made", "here"),))
    with pytest.raises(CalibrationError, match="corrects recordings alone"):  # so it is not stored
        refuse_unfit(profile, made.channel)


def test_the_end_of_a_level_is_not_taken_from_a_move_of_a_counter_that_lies_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pmtpy.lab import certify as lab

    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    plan = Plan(response_s=10.0, level_s=2.0, rounds=2, shares=(0.5, 1.0), trials=2, repetitions=4)
    made = certify("cray:virtual", {}, plan, Rules(), clock=WalkingClock(), interval_s=0.003)
    for level in made.levels:
        # Of 0.9 s, 100 ms of it as what lies behind would be up to 4 W; whole joules are 1.1 W.
        assert level.shown_w == pytest.approx(level.reference_w, abs=1.6)
    assert made.line is not None
    assert made.line.gain.contains(1.0)


@pytest.mark.parametrize("channel", [None, "package0.dram"])
def test_a_counter_of_a_part_is_judged_by_its_own_energies_and_not_by_the_load_of_all(
    monkeypatch: pytest.MonkeyPatch, channel: str | None
) -> None:
    from pmtpy.lab import certify as lab

    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    plan = Plan(response_s=10.0, level_s=0.8, rounds=2, shares=(0.5, 1.0), trials=3, repetitions=6)
    made = certify("rapl:virtual", {}, plan, Rules(), channel=channel, clock=WalkingClock(), interval_s=0.01)
    assert made.line is None
    assert made.trials is not None
    assert made.trials.mean.contains(1.0)
    assert made.trials.sd.value < 0.01
    shown = {level.share: level.shown_w for level in made.levels}
    assert (shown[0.5] - shown[0.0]) / (shown[1.0] - shown[0.0]) == pytest.approx(0.5, abs=0.005)
    assert not [v for v in made.verdicts if v.passed is False]


@pytest.mark.parametrize("shift_s", [-3.0, -1.5, 0.0, 0.02, 0.2, 1.5, 3.0])
def test_how_late_a_meter_shows_the_levels_is_seen(shift_s: float) -> None:
    shares = (0.0, 0.5, 1.0, 0.25, 0.75, 1.0, 0.0, 0.5, 0.25, 0.75)
    levels = [(share, 20.0 + 2.0 * i, 22.0 + 2.0 * i) for i, share in enumerate(shares)]
    t = np.arange(0.0, 45.0, 0.01)
    of = np.clip(((t - shift_s - 20.0) // 2.0).astype(int), 0, len(shares) - 1)
    watts = 60.0 + 140.0 * np.array(shares)[of] + np.random.default_rng(1).normal(0.0, 5.0, len(t))
    found = late_s(t, watts, levels, allowed_s=0.1)
    assert found == (pytest.approx(shift_s, abs=0.05) if abs(shift_s) > 0.1 else 0.0)
    assert late_s(t, watts, levels, allowed_s=4.0) == 0.0
    assert late_s(t, np.full(len(t), 60.0), levels, allowed_s=0.1) == 0.0


def test_a_meter_beside_it_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    plan = Plan(response_s=10.0, level_s=0.6, rounds=1, shares=(0.5, 1.0), trials=2, repetitions=4)
    clock, scheme = WalkingClock(), plan.scheme()
    sensor = {"nvml:virtual": {"profile": "rtx3090", "total": "instant"}}
    (polls,) = Recorder(scheme.seconds, None, 0.02, clock).together(sensor, scheme.edges_s, scheme.shares)
    truth = of_world(polls.edges_s, scheme.shares)

    def doubled(start_s: float, end_s: float) -> Known:  # a meter of both supplies of a machine, say
        return Known(2.0 * truth.mean(start_s, end_s).watts)

    monkeypatch.setattr(lab, "characterise", lambda channel, *_, **__: Characterisation(channel))
    made = lab.judge("nvml:virtual", polls, scheme, Rules(), meter=Reference("powersensor3", doubled))
    assert made.reference == "powersensor3"
    assert made.line is not None
    assert made.line.gain.contains(0.948 / 2.0)
    assert made.verdicts[0].passed is None
    assert made.verdicts[0].rule == "update period"
    t = np.arange(0.0, scheme.seconds, 0.01)
    of = np.searchsorted(polls.edges_s, t - 0.7, "right")
    loaded = np.where(of % 2, np.array([*scheme.shares, 0.0])[np.minimum(of // 2, len(scheme.shares))], 0.0)
    off = Reference("ipmi", doubled, curve=Series(t, 100.0 + 200.0 * loaded))
    unknown = lab.judge("nvml:virtual", polls, scheme, Rules(), meter=off)
    assert unknown.line is None
    assert any("shows the levels 0.7 s later" in v.found for v in unknown.verdicts), unknown.verdicts
    slow = lab.judge("nvml:virtual", polls, scheme, Rules(), meter=Reference("ipmi", doubled, reach_s=3.0))
    assert slow.line is None
    assert slow.trials == made.trials
    assert {v.passed for v in slow.verdicts if "too short for the meter" in v.found} == {None}


def test_a_meter_that_lost_single_rows_still_tells_a_level() -> None:
    clock = ManualClock()
    world = make_world("constant:60", clock=clock)
    stream, start_ns = Stream(world), clock.now_ns()
    stream.drop = {stream.sent_ns + 1_000_000 * row for row in range(550, 1050, 100)}  # of a thousand in a second
    with Sensor(stream, "meter", clock, history_s=10.0) as meter:
        for _ in range(40):
            clock.advance(0.1)
            meter.read()
        tells = of_meter(meter, meter.history(), "meter", start_ns).mean
        lossy, whole, blind = tells(0.3, 2.3), tells(2.0, 3.5), tells(0.5475, 0.5525)
    assert (lossy.watts, whole.watts) == pytest.approx((60.0, 60.0), abs=1e-6)
    assert lossy.own_u < 0.01 * 60.0  # five rows of two thousand
    assert math.isnan(blind.watts)


def test_a_slow_meter_is_asked_for_the_midst_of_levels_or_not_at_all() -> None:
    clock, shares = ManualClock(), (0.3, 0.6, 1.0)
    maker, given = virtual_load({}, np.array([1.03, 3.03, 3.46, 5.46, 5.87, 7.87]), clock, shares)
    options: dict[str, Any] = dict(given)
    with maker as running, ExitStack() as opened:
        start_ns, edges = clock.now_ns(), running.edges_ns()
        meters = {n: opened.enter_context(create(n, clock=clock, **options)) for n in ("cray:virtual", "ipmi:virtual")}
        opened.enter_context(pmt.region("levels", *meters.values()))
        for _ in range(200):
            clock.advance(0.05)
            for meter in meters.values():
                meter.read()
        counter, chassis = (of_meter(meter, meter.history(), name, start_ns) for name, meter in meters.items())
        for share, (on_s, off_s) in zip(shares, ((edges - start_ns) / 1e9).reshape(-1, 2).tolist(), strict=True):
            assert counter.mean(on_s, off_s).watts < 0.997 * (40.0 + 100.0 * share)  # a cell reaches over each end
            there = counter.mean(*settled(on_s, off_s, there_s=counter.reach_s))
            # As levels are seen to change, the load may have done so at both ends as well.
            assert abs(there.watts - 40.0 - 100.0 * share) < 2.0 * there.own_u < 0.07 * there.watts
            with pytest.raises(DeclinedError, match="too short for the meter; give --level-time"):
                settled(on_s, off_s, there_s=chassis.reach_s)


@pytest.mark.parametrize(("meter", "asked_s", "polled_s"), [
    ("rapl:virtual", None, 0.005),
    ("rapl:virtual", 0.02, 0.02),
    ("ipmi:virtual", None, 1.0),
])  # fmt: skip
def test_a_meter_is_read_all_the_time_as_often_as_it_refreshes_and_is_useful(
    meter: str, asked_s: float | None, polled_s: float
) -> None:
    with opened(meter, HOST_CLOCK, history_s=1.0, interval_s=asked_s) as sensor:
        demand = acquisition_of(sensor).demand
        assert demand.dump_s == demand.interval_s == polled_s


def test_where_a_meter_is_too_coarse_the_stamps_of_the_load_tell_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtpy.lab import certify as lab

    plan = Plan(response_s=12.0, level_s=0.8, rounds=2, shares=(0.5, 1.0), trials=2, repetitions=4)
    scheme, options = plan.scheme(), {"profile": "rtx3090", "total": "instant"}
    recorder = Recorder(scheme.seconds, interval_s=0.015, clock=WalkingClock())
    (polls,) = recorder.together({"nvml:virtual": options}, scheme.edges_s, scheme.shares)
    truth = of_world(polls.edges_s, scheme.shares)
    t = np.arange(0.5, scheme.seconds - 0.5, 0.5)
    watts = np.array([truth.mean(a, a + 0.5).watts for a in t - 0.5])
    made = lab.judge("nvml:virtual", polls, scheme, Rules(), meter=replace(truth, curve=Series(t, watts)))
    assert made.found.found.kernel is not None
    assert made.found.found.kernel.family == "boxcar"


@pytest.mark.parametrize("opening_s", [0.0, 0.3, 2.0, 40.0])
def test_the_load_waits_for_the_first_reading_of_both(opening_s: float) -> None:
    clock, opened = WalkingClock(), []

    @contextmanager
    def slowly(_whose: Identity) -> Iterator[None]:
        clock.advance(opening_s)
        opened.append(clock.now_ns())
        yield

    edges_s = np.array([0.5, 0.9])
    (polls,) = Recorder(1.0, clock=clock, beside=slowly).together({"nvml:virtual": {}}, edges_s)
    assert polls.edges_s[0] >= 0.25  # half of the rest before the load is left
    assert np.diff(polls.edges_s) == pytest.approx(np.diff(edges_s))
    assert 0.0 <= polls.t_s[0] < 0.01
    assert polls.start_ns >= opened[-1]
    assert len(opened) == {0.0: 1, 0.3: 2, 2.0: 2, 40.0: 4}[opening_s]


def test_a_load_that_begins_before_the_first_reading_is_no_recording() -> None:
    clock = WalkingClock()

    @contextmanager
    def slowly(_whose: Identity) -> Iterator[None]:
        clock.advance(100.0)
        yield

    with pytest.raises(DeclinedError, match="before the first reading"):
        Recorder(1.0, clock=clock, beside=slowly).together({"nvml:virtual": {}}, np.array([0.5, 0.9]))


def test_what_the_meter_does_not_know_is_in_the_interval_and_in_the_verdict() -> None:
    levels = [Level(w / 100.0, 0.95 * w, w, 1.0, 0.02 * w) for w in (60.0, 100.0, 150.0, 200.0)]
    line = line_through(levels)
    assert line.gain.half_width == pytest.approx(4.3 * 0.95 * math.hypot(0.02, 1.0 / 106.2), rel=0.02)
    found = rulings(Characterisation("x"), Rules(), refresh_s=None, line=(line, ""), trials=(None, ""), limits=({}, []))
    assert [v.passed for v in found if v.rule == "linearity"] == [None]  # 1 % of 133 W, by a meter that is off by 1 W


def test_a_virtual_meter_sees_the_load_of_the_sensor_beside_it() -> None:
    seen: list[float] = []

    @contextmanager
    def beside(_whose: Identity) -> Iterator[None]:
        with create("rapl:virtual") as meter:
            before = meter.read()
            yield
            seen.append(pmt.joules(before, meter.read()))

    Recorder(0.3, interval_s=0.01, beside=beside).together({"nvml:virtual": {}}, np.array([60.0, 61.0]))
    assert seen[0] > 0.0


def test_stretches_follow_the_load_as_it_really_was() -> None:
    scheme = _BRIEF.scheme()
    late = scheme.met(scheme.edges_s + 0.4)
    assert late.levels[0][1] == pytest.approx(scheme.levels[0][1] + 0.4)
    assert late.trials[1][0] == pytest.approx(scheme.trials[1][0] + 0.4)
    with pytest.raises(DeclinedError, match="ended early"):
        scheme.met(scheme.edges_s[:-2])


def test_a_cpu_is_loaded_by_a_share_of_its_cores() -> None:
    edges, never = np.array([0.02, 0.06, 0.08, 0.12]), threading.Event()
    with cpu_load(edges, HOST_CLOCK, (0.5, 1.0)) as running:
        while len(running.edges_ns()) < 4:
            HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + 10_000_000, never)
    assert np.all(np.diff(running.edges_ns()) > 0)


@pytest.mark.parametrize(("gain", "zero_w", "worst"), [(1.0, 25.0, 1.25), (0.99, -2.0, 0.97), (1.02, -7.0, 0.95)])
def test_a_zero_that_is_off_is_no_pass_though_the_gain_is_right(gain: float, zero_w: float, worst: float) -> None:
    """At rest, where boards use little, watts that are off are many percent: only levels under load count."""
    there = {0.0: 20.0, 0.25: 100.0, 0.5: 150.0, 1.0: 250.0}
    line = line_through([Level(share, gain * w + zero_w, w) for share, w in there.items() for _ in range(2)])
    assert line.shown.value == pytest.approx(worst)
    found = rulings(
        Characterisation("x"), Rules(gain=5.1), refresh_s=None, line=(line, ""), trials=(None, ""), limits=({}, [])
    )
    passed = {v.rule: v.passed for v in found}
    assert (passed["gain"], passed["power shown"]) == (True, worst < 1.0)
