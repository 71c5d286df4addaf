"""What is read: channels, rows, totals, and what happens when the driver misbehaves in the middle."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.backends.nvml import facts, open_source
from pmtpy.backends.nvml.facts import Kind
from pmtpy.core.channel import outermost
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Frame, Layout
from pmtpy.core.source import Source, Timestamps
from pmtpy.emulators.nvml import BOARDS, VirtualGpu, make_gpu, open_virtual
from pmtpy.errors import BackendUnavailableError, CoverageError, SourceLostError, TargetError
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from pmtpy.testing import check_lost, check_source

from .rig import LOAD, Rig, frame_of, names

ENERGY, INSTANT, AVERAGE = (83, 0), (186, 0), (185, 0)


def total_channel(source: Source) -> str:
    layout = Layout(source.channels)
    (column,) = layout.in_total
    return layout.names[column]


# -- channels ----------------------------------------------------------------------------------------------------------


def test_an_h100_offers_counter_both_powers_memory_temperature_and_clocks() -> None:
    source = Rig().open()
    assert names(source) == [
        "gpu.energy", "gpu.instant", "gpu.average", "memory.average",
        "gpu.temperature", "gpu.sm_clock", "gpu.memory_clock",
    ]  # fmt: skip
    assert total_channel(source) == "gpu.energy"
    by_name = {c.name: c for c in source.channels}
    assert (by_name["gpu.instant"].refresh_s, by_name["gpu.instant"].window_s) == (0.1, 0.025)
    assert (by_name["gpu.average"].refresh_s, by_name["gpu.average"].window_s) == (0.1, 1.0)
    assert by_name["gpu.energy"].wrap is None
    assert by_name["gpu.sm_clock"].scale == 1e6


@pytest.mark.parametrize(
    ("profile", "power", "total"),
    [
        ("ideal", ["gpu.energy", "gpu.instant", "gpu.average"], "gpu.energy"),
        ("a100", ["gpu.energy", "gpu.instant"], "gpu.energy"),
        ("v100", ["gpu.energy", "gpu.instant"], "gpu.energy"),
        ("p100", ["gpu.instant"], "gpu.instant"),
        ("k40m", ["gpu.instant"], "gpu.instant"),
        ("rtx3090", ["gpu.energy", "gpu.instant", "gpu.average"], "gpu.energy"),
    ],
)
def test_each_generation_offers_what_it_has(profile: str, power: list[str], total: str) -> None:
    source = Rig(make_gpu(profile)).open()
    assert [c.name for c in source.channels if c.measures_energy] == power
    assert total_channel(source) == total
    assert ("no energy counter" in " ".join(source.identity.notes)) == (total != "gpu.energy")


@pytest.mark.parametrize(
    ("total", "first"), [("energy", "gpu.energy"), ("instant", "gpu.instant"), ("average", "gpu.average")]
)
def test_the_total_is_made_of_what_was_asked_for(total: str, first: str) -> None:
    source = Rig().open(total=total)
    assert total_channel(source) == first
    assert ("gpu.energy" in names(source)) == (total == "energy")


def test_a_total_that_the_board_lacks_is_refused_with_what_it_has() -> None:
    with pytest.raises(BackendUnavailableError, match=r"no energy reading; it has: gpu\.instant"):
        Rig(make_gpu("p100")).open(total="energy")
    with pytest.raises(BackendUnavailableError, match="no average reading"):
        Rig(make_gpu("a100")).open(total="average")


@pytest.mark.parametrize(
    ("profile", "version", "channel"),
    [
        ("rtx3090", "525.85.12", "gpu.average"),
        ("rtx3090", "530.30.02", "gpu.instant"),
        ("rtx3090", "535.54.03", "gpu.average"),
        ("a100", "525.85.12", "gpu.instant"),
        ("v100", "470.57.02", "gpu.instant"),
        ("h100", "550.54.14", "gpu.average"),
    ],
)
def test_the_only_power_of_an_old_driver_is_named_as_what_it_is(profile: str, version: str, channel: str) -> None:
    gpu = make_gpu(profile)
    gpu.codes = {(f, s): 3 for f in (83, 185, 186, 191) for s in (0, 1, 2)}
    gpu.codes["nvmlDeviceGetTotalEnergyConsumption"] = 3
    source = Rig(gpu, version=version).open()
    assert [c.name for c in source.channels if c.measures_energy] == [channel]


def test_a_driver_without_fields_at_all_still_has_its_counter() -> None:
    rig = Rig(make_gpu("v100"), version="418.40.04")
    rig.driver.missing = {"nvmlDeviceGetFieldValues", "nvmlDeviceGetTemperatureV"}
    source = rig.open()
    assert names(source)[:3] == ["gpu.energy", "gpu.instant", "gpu.temperature"]
    joules, true = rig.joules(source, 10)
    assert joules == pytest.approx(true, abs=2 * 300 * 0.1)


def test_an_older_driver_is_not_asked_for_scopes_that_it_would_ignore() -> None:
    assert facts.scopes("525.105.17") == (0,)
    assert facts.scopes("535.54.03") == (0, 1)
    assert facts.scopes("550.54.14") == (0, 1, 2)
    assert facts.scopes("") == (0,)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("515.65.01", facts.Era.BEFORE), ("525.89.02", facts.Era.BEFORE), ("525.105.17", facts.Era.AFTER),
        ("530.30.02", facts.Era.AT_530), ("535.54.03", facts.Era.AFTER), ("580.10", facts.Era.AFTER),
        ("?", facts.Era.AFTER),
    ],
)  # fmt: skip
def test_drivers_fall_into_three_eras(driver: str, expected: facts.Era) -> None:
    assert facts.era(driver) is expected


def test_of_what_was_not_measured_the_slowest_is_assumed_and_said() -> None:
    blackwell = facts.timing(facts.generation(10, (12, 0)), Kind.INSTANT)
    assert (blackwell.refresh_s, blackwell.window_s) == (0.1, None)
    assert "not measured" in blackwell.reference
    assert facts.timing(facts.generation(7, (8, 0)), Kind.INSTANT).window_s == 0.025
    assert facts.timing(facts.generation(7, (8, 6)), Kind.INSTANT).window_s == 0.1


# -- modules -----------------------------------------------------------------------------------------------------------


def test_on_gh200_the_module_is_named_as_such_and_holds_the_gpu_and_its_processor() -> None:
    source = Rig(make_gpu("gh200")).open()
    power = {c.name: c.domain for c in source.channels if c.measures_energy}
    assert power["module.energy"] == power["module.instant"] == "host/socket0"
    assert power["gpu.average"].startswith("host/socket0/gpu/GPU-")
    assert "gpu.instant" not in power
    assert total_channel(source) == "module.energy"


def test_the_power_of_one_module_is_counted_once_however_many_gpus_report_it() -> None:
    rig = Rig(make_gpu("gh200", 0), make_gpu("gh200", 1))
    both = [c for d in ("0", "1") for c in rig.open(d).channels if c.measures_energy]
    domains = [c.domain for c in both]
    assert len({c.domain for c in both if c.name == "module.energy"}) == 1
    # Nor is anything added that other sensors tell of the processor in it.
    assert [domains[i] for i in outermost([*domains, "host/socket0/grace", "host/socket0/package"])] == ["host/socket0"]


def test_a_module_that_cannot_be_placed_enters_no_total() -> None:
    rig = Rig(make_gpu("gh200"))
    source = open_source("0", clock=rig.clock, library=rig.pynvml, sysfs_root="/proc/nonexistent")
    assert total_channel(source) == "gpu.average"
    assert any("module of this GPU is not known" in n for n in source.identity.notes)


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_register_that_did_not_refresh_adds_no_row() -> None:
    rig = Rig(load="constant:200")
    rows = rig.rows(rig.open(), 2.0, step_s=0.01)
    assert 19 <= len(rows) <= 21
    assert len(rig.rows(Rig(load="square:low=100,high=200,hz=3").open(), 0.0)) == 0


def test_rows_carry_the_drivers_own_time_stamps() -> None:
    rig = Rig()
    for block in rig.rows(rig.open(), 3.0, step_s=0.03):
        assert (int(block.t_ns[0]) - rig.world.epoch_ns) % 100_000_000 < 1_000


def counter_37_ms_later(rig: Rig) -> None:
    """Let the counter be renewed 37 ms after the power, which is every 100 ms, at its own stamp."""
    answer, own_ns = rig.driver._device["nvmlDeviceGetFieldValues"], rig.world.epoch_ns

    def counter_later(gpu: VirtualGpu, count: Any, values: Any) -> int:
        code = answer(gpu, count, values)
        anchor = rig.clock.anchor()
        for value in values._obj[: count.value]:
            if value.fieldId == 83:
                passed_ns = (rig.clock.now_ns() - own_ns - 37_000_000) // 100_000_000 * 100_000_000 + 37_000_000
                value.timestamp = (own_ns + passed_ns - anchor.monotonic_ns + anchor.unix_ns) // 1000
                value.value.ullVal = 10**8 + round(float(rig.world.joules(own_ns + max(0, passed_ns))) * 1000)
        return code

    rig.driver._device["nvmlDeviceGetFieldValues"] = counter_later


def test_registers_that_were_renewed_apart_between_two_polls_have_a_row_each() -> None:
    """Where both were renewed before a poll, each is dated by its own stamp."""
    rig = Rig(load="square:low=100,high=300,hz=3.3")
    own_ns = rig.world.epoch_ns
    counter_37_ms_later(rig)
    source = rig.open()
    names = [c.name for c in source.channels]
    energy, power = names.index("gpu.energy"), names.index("gpu.instant")
    last: list[float] = []
    rows = [
        (int(t), raw)
        for block in rig.rows(source, 6.0, step_s=0.09)
        for t, raw in zip(block.t_ns, block.raw.tolist(), strict=True)
    ]
    for t_ns, raw in rows[4:]:  # what the stamps mean is known after the first
        phase_ms = (t_ns - own_ns) % 100_000_000 / 1e6
        if last and raw[energy] != last[energy]:
            assert phase_ms == pytest.approx(37.0, abs=0.01)
        if last and raw[power] != last[power]:
            assert min(phase_ms, 100.0 - phase_ms) == pytest.approx(0.0, abs=0.01)
        last = raw
    assert len(rows) > 100  # two for each period


@pytest.mark.parametrize("phase_s", [0.005, 0.06])
def test_after_a_pause_no_row_says_that_a_register_still_showed_what_it_did_before(phase_s: float) -> None:
    """Half a second after the last poll both were renewed several times: one row, at the instant of the counter."""
    rig = Rig(load="steps:0=100,3.2=300")
    own_ns = rig.world.epoch_ns
    counter_37_ms_later(rig)
    source = rig.open()
    energy, power = ([c.name for c in source.channels].index(name) for name in ("gpu.energy", "gpu.instant"))
    rig.rows(source, 3.0, step_s=0.045)
    rig.clock.advance((own_ns - rig.clock.now_ns()) / 1e9 + 3.6 + phase_s)
    block = source.read()
    assert len(block) == 1
    (t_ns,), (raw,) = block.t_ns.tolist(), block.raw.tolist()
    assert raw[power] == pytest.approx(300_000.0, rel=0.02)
    assert (t_ns - own_ns) % 100_000_000 / 1e6 == pytest.approx(37.0, abs=0.01)
    assert raw[energy] == 10**8 + round(float(rig.world.joules(t_ns)) * 1000)


@pytest.mark.parametrize("counter_ms", [1.0, 10.0, 30.0])
def test_of_a_counter_that_moves_between_two_polls_every_row_shows_its_power(counter_ms: float) -> None:
    clock = ManualClock()
    source = open_virtual("virtual", clock=clock, load="constant:60", counter_ms=counter_ms)
    integrator = Integrator(Layout(source.channels))
    watts: list[float] = []
    for _ in range(100):
        clock.advance(0.0437)
        frame = integrator.advance(source.read())
        watts += frame.watts[:, 0].tolist() if isinstance(frame, Frame) else []
    source.close()
    settled = watts[10:]  # it is known by then how old stamps are
    assert sum(settled) / len(settled) == pytest.approx(60.0, rel=0.02)
    # A row is dated by the newest register: the counter's move may have been up to a renewal before.
    assert settled == pytest.approx([60.0] * len(settled), rel=counter_ms / 43.7)


def test_stamps_of_another_clock_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    anchor = rig.clock.anchor()
    monkeypatch.setattr(rig.driver, "_fields", rig.driver._fields)
    source = rig.open()
    # The driver of this world stamps by the clock's anchor; a clock set back by an hour makes its stamps wrong.
    shifted = type(anchor)(anchor.monotonic_ns, anchor.unix_ns + 3_600 * 10**9)
    read = rig.driver._fields

    def wrong(*arguments: object) -> int:
        code = read(*arguments)  # type: ignore[arg-type]
        for value in arguments[2]._obj:  # type: ignore[attr-defined]
            value.timestamp += (shifted.unix_ns - anchor.unix_ns) // 1000
        return code

    rig.driver._device["nvmlDeviceGetFieldValues"] = wrong
    for block in rig.rows(source, 2.0):
        assert int(block.t_ns[0]) <= rig.clock.now_ns()
    joules, true = rig.joules(source, 5.0)
    assert joules == pytest.approx(true, abs=2 * 300 * 0.1)


def test_stamps_older_than_the_call_tell_when_registers_were_renewed_and_others_do_not() -> None:
    rig = Rig()
    source = rig.open()
    rig.clock.advance(0.013)
    rig.rows(source, 2.0)
    assert source.traits.timestamps is Timestamps.DEVICE_UPDATE
    rig = Rig()
    answer = rig.driver._device["nvmlDeviceGetFieldValues"]

    def stamped_by_the_call(gpu: VirtualGpu, count: Any, values: Any) -> int:
        code = answer(gpu, count, values)
        for value in values._obj[: count.value]:
            value.timestamp = rig.clock.anchor().unix_ns // 1000
        return code

    rig.driver._device["nvmlDeviceGetFieldValues"] = stamped_by_the_call
    source = rig.open()
    rig.clock.advance(0.013)
    assert rig.rows(source, 2.0)
    assert source.traits.timestamps is not Timestamps.DEVICE_UPDATE


def test_polls_that_date_a_counter_late_are_in_the_uncertainty_of_regions() -> None:
    """A steady load, a driver that stamps by the call, polls up to 8 ms late: what they cost was taken for nothing."""
    rig, chance = Rig(load="constant:200"), random.Random(3)
    answer = rig.driver._device["nvmlDeviceGetFieldValues"]

    def stamped_by_the_call(gpu: VirtualGpu, count: Any, values: Any) -> int:
        code = answer(gpu, count, values)
        for value in values._obj[: count.value]:
            value.timestamp = rig.clock.anchor().unix_ns // 1000
        return code

    rig.driver._device["nvmlDeviceGetFieldValues"] = stamped_by_the_call
    off = []
    with Sensor(rig.open(), "nvml", rig.clock, interval_s=1e6) as sensor:
        made = acquisition_of(sensor)
        for _ in range(12):
            polls = [0.05 * k + 0.008 * chance.random() for k in range(20)]
            begin, end = chance.uniform(0.2, 0.3), chance.uniform(0.5, 0.9)
            start_ns = rig.clock.now_ns()
            region = Region("steady", {"nvml": sensor})
            for at, act in sorted([*((p, "poll") for p in polls), (begin, "begin"), (end, "end")]):
                rig.clock.advance(max(0.0, at - (rig.clock.now_ns() - start_ns) / 1e9))
                if act == "poll":
                    made.step()
                elif act == "begin":
                    region.__enter__()
                else:
                    region.__exit__(None, None, None)
            m = region["nvml"]
            rest = math.hypot(*(u for name, u in m.channels["gpu.energy"].components if name != "gain"))
            off.append(abs(m.joules - rig.world.joules_between(*region.span_ns)) / rest)
    assert max(off) < 1.0  # 2.6 where the age of a poll is left out


def test_an_average_that_moves_at_other_instants_makes_no_row_and_dates_none() -> None:
    plain, moving = Rig(), Rig()
    answer, calls = moving.driver._device["nvmlDeviceGetFieldValues"], itertools.count(1)

    def other_average(gpu: VirtualGpu, count: Any, values: Any) -> int:
        code = answer(gpu, count, values)
        for value in values._obj[: count.value]:
            if value.fieldId == 185:
                value.value.uiVal += next(calls)
                value.timestamp += 1_500  # less than a call in the midst of a renewal would show
        return code

    moving.driver._device["nvmlDeviceGetFieldValues"] = other_average
    rows = [[int(b.t_ns[0]) for b in rig.rows(rig.open(), 2.0, step_s=0.03)] for rig in (plain, moving)]
    assert rows[0] == rows[1]


def test_slow_calls_for_clocks_take_a_tenth_of_the_time_and_keep_no_power_waiting() -> None:
    rig = Rig(load="constant:60")
    source = rig.open(total="instant")
    asked, spent_s = rig.pynvml.nvmlDeviceGetClockInfo, []

    def slow(*given: object) -> object:
        rig.clock.advance(0.1)
        spent_s.append(0.1)
        return asked(*given)

    rig.pynvml.nvmlDeviceGetClockInfo = slow  # type: ignore[attr-defined]
    begin_ns = rig.clock.now_ns()
    blocks = rig.rows(source, 20.0)
    took_s = (rig.clock.now_ns() - begin_ns) / 1e9
    assert 0.05 * took_s < sum(spent_s) <= 0.1 * took_s + 0.2  # and the first time
    assert sum(len(block) for block in blocks) >= 0.8 * took_s / 0.1  # the power is renewed each 0.1 s
    clock = next(i for i, c in enumerate(source.channels) if c.name == "gpu.sm_clock")
    assert all(block.raw[-1, clock] > 0 for block in blocks)


def test_registers_that_are_renewed_in_the_midst_of_a_call_are_read_again() -> None:
    rig = Rig(load="constant:60")
    field = rig.driver._field

    def slow(gpu: VirtualGpu, number: int, scope: int) -> tuple[float, int]:
        found = field(gpu, number, scope)
        rig.clock.advance(0.0009)
        return found

    source = rig.open()
    rig.driver._field = slow  # type: ignore[method-assign]
    integrator = Integrator(Layout(source.channels))
    rows = [frame_of(integrator, block) for block in rig.rows(source, 3.0, step_s=0.0007)]
    assert len(rows) >= 29
    for row in rows:
        # Of a counter that is renewed with the power: what it says belongs to the row's instant.
        seconds = (int(row.t_ns[0]) - int(rows[0].t_ns[0])) / 1e9
        assert float(row.joules[0, 0]) - float(rows[0].joules[0, 0]) == pytest.approx(60.0 * seconds, abs=0.01)


def test_a_temperature_or_clock_alone_makes_no_row() -> None:
    rig = Rig(load="constant:200")
    source = rig.open()
    rig.rows(source, 0.5)
    rig.gpus[0].frozen_ns = rig.clock.now_ns()
    assert rig.rows(source, 5.0) == []


# -- truth -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [None, "energy"])
def test_the_counter_keeps_the_contract_and_tells_the_truth(total: str | None) -> None:
    # The counter moves each 0.1 s and a row is stamped with that instant: 1 mJ of quantisation is left.
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load=LOAD, total=total),
        LOAD,
        relative=0,
        absolute_joules=0.002,
    )


def test_integrated_momentary_power_tells_the_truth_within_its_sampling() -> None:
    # The mean over each update is known, and a row is stamped with the update: milliwatts of rounding are left, and at
    # the start the half row between the first reading and its stamp.
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load=LOAD, profile="ideal", total="instant"),
        LOAD,
        relative=0,
        absolute_joules=0.002,
    )


def test_the_average_of_a_constant_is_the_constant() -> None:
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load="constant:250", profile="ideal", total="average"),
        "constant:250",
        relative=1e-6,
    )


@pytest.mark.parametrize("profile", sorted(BOARDS))
def test_every_profile_shows_the_load_through_its_own_gain_and_offset(profile: str) -> None:
    gpu = make_gpu(profile)
    rig = Rig(gpu, load="constant:250")
    joules, true = rig.joules(rig.open(), 20.0)
    model = gpu.sensor
    # What is left is noise of the sensor (below 1 W), rounding, and the step of the counter.
    assert joules / true == pytest.approx((model.gain * 250 + model.offset_w) / 250, abs=0.005)


def test_options_change_the_virtual_sensor() -> None:
    clock = ManualClock()
    source = open_virtual(
        "virtual", clock=clock, load="constant:100", gain=1.05, offset_w=2, noise_w=0, total="instant"
    )
    assert source.identity.virtual
    clock.advance(1)
    assert source.read().raw[0, 0] == 107_000
    with pytest.raises(TargetError, match="h100"):
        open_virtual("virtual", clock=clock, profile="voodoo2")
    source.close()


def test_a_virtual_gpu_is_not_hidden_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    open_virtual("virtual", clock=ManualClock()).close()


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_gpu_that_falls_off_the_bus_is_lost_for_good() -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 1.0)
    rig.gpus[0].lost = True
    check_lost(source, rig.clock, limit_s=0.2)
    rig.gpus[0].lost = False
    with pytest.raises(SourceLostError, match="fallen off the bus"):
        source.read()
    source.close()


def test_a_driver_that_hangs_is_noticed() -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 1.0)
    rig.gpus[0].frozen_ns = rig.clock.now_ns()
    check_lost(source, rig.clock, limit_s=11.0)


@pytest.mark.parametrize("wrong", [0, 4294967295, 20_000_000])
def test_a_number_that_cannot_be_is_a_lost_row_and_no_value(wrong: int) -> None:
    rig = Rig(load="constant:200")
    source = rig.open(total="instant")
    rig.rows(source, 1.0)
    rig.gpus[0].garbage |= dict.fromkeys((INSTANT, AVERAGE, (185, 2)), wrong)
    assert rig.rows(source, 0.15) == []
    rig.gpus[0].garbage.clear()
    (block, *_) = rig.rows(source, 0.5)
    assert block.lost is not None
    assert block.lost[0] == 3
    assert block.raw[0, 0] == pytest.approx(200_000, rel=0.02)


@pytest.mark.parametrize("broken", ["gpu.energy", "gpu.instant", "gpu.average", "memory.average", "gpu.temperature"])
def test_a_register_that_fails_leaves_the_others_whole(broken: str) -> None:
    rig = Rig(load="constant:200")
    fields = {"gpu.energy": ENERGY, "gpu.instant": INSTANT, "gpu.average": AVERAGE, "memory.average": (185, 2)}
    with Sensor(rig.open(), "nvml", rig.clock) as sensor:
        run_for(sensor, rig, 1.0)
        rig.gpus[0].codes[fields.get(broken, "nvmlDeviceGetTemperatureV")] = 21
        rig.gpus[0].codes["nvmlDeviceGetTemperature"] = 21
        with pmt.region("work", sensor) as r:
            run_for(sensor, rig, 10.0)
        m = r["nvml"]
    for name, channel in m.channels.items():
        if name != broken:
            assert channel.coverage == 1.0, name
            assert channel.joules == pytest.approx(2000 * (0.2 if "memory" in name else 1.0), rel=0.03), name
    assert m.coverage == pytest.approx(0.0 if broken == "gpu.energy" else 1.0, abs=0.02)


def test_a_gpu_all_of_whose_registers_fail_is_lost_in_the_end() -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 1.0)
    rig.gpus[0].codes |= dict.fromkeys((ENERGY, INSTANT, AVERAGE, (185, 2)), 21)
    assert rig.rows(source, 0.3) == []
    with pytest.raises(SourceLostError, match=r"gpu\.energy: no data yet"):
        rig.rows(source, 20.0)


def run_for(sensor: Sensor, rig: Rig, seconds: float) -> None:
    for _ in range(round(seconds / 0.05)):
        rig.clock.advance(0.05)
        sensor.read()


def test_a_counter_that_restarts_adds_nothing_and_the_gap_is_marked() -> None:
    rig = Rig(load="constant:200")
    source = rig.open()
    integrator = Integrator(Layout(source.channels))
    frames = []
    for second in range(6):
        if second == 3:
            rig.gpus[0].counter_mj = 5
        frames += [frame_of(integrator, block) for block in rig.rows(source, 1.0)]
    uncovered_ns = int(frames[-1].uncovered_ns[-1, 0])
    assert 0 < uncovered_ns <= 1e8
    # From the first row, less the gap, give or take a step of the counter at the restart.
    assert float(frames[-1].joules[-1, 0]) == pytest.approx(200 * 5.9, abs=200 * 0.2)


def test_a_stuck_counter_is_named_and_leaves_the_power_beside_it_whole() -> None:
    rig = Rig(load="constant:200")
    with Sensor(rig.open(), "nvml", rig.clock) as sensor:
        run_for(sensor, rig, 1.0)
        rig.gpus[0].garbage[ENERGY] = 50_000_123
        with pmt.region("work", sensor) as r:
            run_for(sensor, rig, 40.0)
        m = r["nvml"]
        assert m.channels["gpu.instant"].joules == pytest.approx(8000, rel=0.01)
        assert m.channels["gpu.instant"].coverage == 1.0
        assert m.coverage < 0.05
        told = acquisition_of(sensor).intake.source.remarks(rig.clock.now_ns() - 1, rig.clock.now_ns()).warnings
        assert any("moved by 0 J while the power beside it says" in w for w in told)
        # It is believed again when it agrees again.
        del rig.gpus[0].garbage[ENERGY]
        run_for(sensor, rig, 12.0)
        with pmt.region("work", sensor) as r:
            run_for(sensor, rig, 5.0)
        assert r["nvml"].coverage == 1.0
        assert r["nvml"].joules == pytest.approx(1000, rel=0.03)
        assert not acquisition_of(sensor).intake.source.remarks(rig.clock.now_ns() - 1, rig.clock.now_ns()).warnings


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_counter_that_merely_disagrees_is_kept(factor: float) -> None:
    rig = Rig(load="constant:200")
    source = rig.open()
    rig.gpus[0].garbage[INSTANT] = round(200_000 * factor)
    assert len(rig.rows(source, 25.0)) > 100


def test_a_counter_absent_or_zero_at_opening_is_left_out() -> None:
    rig = Rig()
    rig.gpus[0].garbage[ENERGY] = 0
    rig.gpus[0].codes["nvmlDeviceGetTotalEnergyConsumption"] = 3
    assert total_channel(rig.open()) == "gpu.instant"


def test_a_register_that_is_not_ready_at_opening_is_named_in_the_notes() -> None:
    rig = Rig()
    rig.gpus[0].codes[AVERAGE] = 21
    source = rig.open()
    assert "gpu.average" not in names(source)
    assert any("gpu.average is left out: no data yet" in n for n in source.identity.notes)


def test_a_gpu_without_any_reading_is_unavailable() -> None:
    gpu = make_gpu("k40m")
    gpu.codes["nvmlDeviceGetPowerUsage"] = 3
    rig = Rig(gpu)
    with pytest.raises(BackendUnavailableError, match="reports neither power nor energy"):
        rig.open()
    assert rig.driver.references == 0


# -- life cycle --------------------------------------------------------------------------------------------------------


def test_each_sensor_holds_nvml_for_itself() -> None:
    rig = Rig()
    one, two = rig.open(), rig.open()
    one.close()
    one.close()
    assert rig.driver.references == 1
    assert len(rig.rows(two, 1.0)) > 5
    two.close()
    assert rig.driver.references == 0


@pytest.mark.parametrize("code", [1, 999])
def test_nvml_is_started_anew_once_when_somebody_else_ended_it(code: int) -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 0.5)
    if code == 1:
        rig.pynvml.nvmlShutdown()
    else:
        starts = rig.driver._init

        def healed(flags: int) -> int:
            rig.gpus[0].codes.clear()
            return starts(flags)

        rig.gpus[0].codes["nvmlDeviceGetFieldValues"] = 999
        rig.driver._system["nvmlInitWithFlags"] = healed
        rig.pynvml._nvmlGetFunctionPointer_cache.clear()
    assert len(rig.rows(source, 1.0)) >= 9
    assert rig.driver.references == 1


def test_a_driver_that_does_not_come_back_is_lost() -> None:
    rig = Rig()
    source = rig.open()
    rig.pynvml.nvmlShutdown()
    rig.driver.init_code = 9
    with pytest.raises(SourceLostError, match="driver is not loaded"):
        source.read()
    source.close()


# -- no reply may yield a silently wrong number ------------------------------------------------------------------------

_REPLIES = st.fixed_dictionaries(
    {},
    optional={
        key: st.one_of(
            st.tuples(st.just("code"), st.integers(1, 1000)),
            st.tuples(st.just("value"), st.sampled_from([0, 1, 255, 65535, 2**31, 2**32 - 1, 2**63, 12_000_000])),
        )
        for key in (ENERGY, INSTANT, AVERAGE, (185, 2))
    },
)


@given(at_opening=_REPLIES, later=_REPLIES)
def test_no_reply_yields_a_silently_wrong_total(
    at_opening: dict[tuple[int, int], tuple[str, int]], later: dict[tuple[int, int], tuple[str, int]]
) -> None:
    """Whatever the driver says, the total is right, or its gap is marked, or the measurement ends with an error."""
    rig = Rig(make_gpu("ideal"), load="constant:200")

    def disturb(replies: dict[tuple[int, int], tuple[str, int]]) -> None:
        # A false number that is possible cannot be recognised (a counter at rest, for ten seconds): left out.
        rig.gpus[0].codes = {k: v for k, (what, v) in replies.items() if what == "code"}
        possible = {k for k, (_, v) in replies.items() if 0 < v <= (2**53 if k == ENERGY else 10_000_000)}
        rig.gpus[0].garbage = {k: v for k, (what, v) in replies.items() if what == "value" and k not in possible}

    disturb(at_opening)
    try:
        source = rig.open()
    except BackendUnavailableError:
        return
    integrator = Integrator(Layout(source.channels))
    first = None
    try:
        for replies in (at_opening, {}, later, {}):
            disturb(replies)
            for block in rig.rows(source, 0.4):
                frame = frame_of(integrator, block)
                now = (int(frame.t_ns[-1]), float(frame.joules[-1, 0]), int(frame.uncovered_ns[-1, 0]))
                first = first or now
                seconds, unknown = (now[0] - first[0]) / 1e9, (now[2] - first[2]) / 1e9
                # A counter's step of 0.1 s at either end; what is marked as unknown may have been counted or not.
                assert 200 * (seconds - unknown - 0.2) <= now[1] - first[1] <= 200 * (seconds + 0.2)
    except SourceLostError:
        return


@pytest.mark.parametrize("field", [(186, 0), (185, 0), (185, 2)])
def test_a_power_that_the_board_cannot_draw_is_not_believed(field: tuple[int, int]) -> None:
    rig = Rig(load="constant:200")
    gpu = rig.gpus[0]
    gpu.limits_mw = (100_000, 350_000)
    with Sensor(rig.open(), "nvml", rig.clock) as sensor:
        with pmt.region("work", sensor) as r:
            for i in range(100):
                rig.clock.advance(0.05)
                if i == 40:
                    gpu.garbage[field] = 9_000_000
                if i == 42:
                    del gpu.garbage[field]
                sensor.read()
        m = r["nvml"]
        for channel in (m, *m.channels.values()):
            assert channel.watts == pytest.approx(200 * (0.2 if "memory" in channel.name else 1.0), rel=0.01)


def test_samples_that_the_board_cannot_draw_are_not_believed() -> None:
    rig = Rig(load="constant:1200")
    rig.gpus[0].limits_mw = (100_000, 350_000)
    source = rig.open(samples=True)
    rig.clock.advance(1.0)
    assert len(source.read()) == 0
    assert source.last_read_failed


# -- a GPU that sleeps -------------------------------------------------------------------------------------------------

_ALL = (ENERGY, INSTANT, AVERAGE, (185, 2))


@pytest.mark.parametrize("total", [None, "instant"])
@pytest.mark.parametrize("counts_on", [False, True])
def test_a_gpu_that_sleeps_goes_on_when_it_wakes_and_what_it_drew_meanwhile_is_not_known(
    total: str | None, *, counts_on: bool
) -> None:
    """200 W for 10 s, 60 s asleep, 200 W for 10 s: 4000 J are known, whatever the counter has done meanwhile."""
    rig = Rig(load="constant:200")
    with Sensor(rig.open(total=total), "nvml", rig.clock) as sensor:
        run_for(sensor, rig, 3.0)
        with pmt.region("work", sensor) as r:
            run_for(sensor, rig, 10.0)
            rig.gpus[0].garbage |= dict.fromkeys(_ALL, 0)
            run_for(sensor, rig, 60.0)
            rig.gpus[0].garbage.clear()
            if not counts_on:
                rig.gpus[0].counter_mj = 5
            run_for(sensor, rig, 10.0)
        m = r["nvml"]
        assert m.coverage == pytest.approx(0.25, abs=0.01)
        for name, channel in m.channels.items():
            assert channel.joules == pytest.approx(4000 * (0.2 if "memory" in name else 1.0), rel=0.02), name
        assert m.joules + m.uncertainty_joules > 4000 + 60 * 200
        assert "is asleep: all its registers of power and energy show 0" in " ".join(m.warnings)


def test_of_a_region_within_a_sleep_nothing_is_known() -> None:
    rig = Rig(load="constant:200")
    with Sensor(rig.open(), "nvml", rig.clock) as sensor:
        run_for(sensor, rig, 3.0)
        rig.gpus[0].garbage |= dict.fromkeys(_ALL, 0)
        run_for(sensor, rig, 1.0)
        with pmt.region("work", sensor) as r:
            run_for(sensor, rig, 10.0)
        before = sensor.read()
        run_for(sensor, rig, 10.0)
        rig.gpus[0].garbage.clear()
        run_for(sensor, rig, 1.0)
        assert r["nvml"].coverage == 0.0
        assert r["nvml"].uncertainty_joules > 2000
        with pytest.raises(CoverageError):
            pmt.joules(before, sensor.read())
