"""AMD GPUs through the real wrapper: what is offered, read and refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.backends.amdsmi import discover, open_source
from pmtpy.backends.amdsmi._device import accumulator, megahertz, watts
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Frame, Layout
from pmtpy.core.source import Source
from pmtpy.emulators.amdsmi import VirtualCard, open_virtual
from pmtpy.errors import BackendUnavailableError, SourceLostError, TargetError
from pmtpy.sensor.sensor import Sensor, acquisition_of
from pmtpy.testing import check_lost, check_source

from .rig import LOAD, NOWHERE, Rig, names

UNIT = 2.0**-16


def total_channel(source: Source) -> str:
    layout = Layout(source.channels)
    (column,) = layout.in_total
    return layout.names[column]


# -- answers as numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", ["N/A", None, True, "", 0, -1, 0xFFFF, 0xFFFFFFFF, 2**64 - 1, 5001, float("nan"), [1]]
)
def test_what_is_no_power_is_none(answer: object) -> None:
    assert watts(answer) is None


@pytest.mark.parametrize("answer", [1, 255, 750, 4999.5])
def test_every_possible_power_is_kept(answer: float) -> None:
    assert watts(answer) == answer


@pytest.mark.parametrize("key", ["energy_accumulator", "power"])
def test_the_accumulator_is_found_under_both_of_its_names_and_in_the_drivers_unit(key: str) -> None:
    answer = {key: 1000, "counter_resolution": 15.300000190734863, "timestamp": 7}
    assert accumulator(answer) == (1000.0, UNIT, 7.0)
    assert accumulator({**answer, "counter_resolution": 16.0}) == (1000.0, 16.0 * 1e-6, 7.0)


@pytest.mark.parametrize(
    "answer",
    [
        None, {}, {"power": 5}, {"power": "N/A", "counter_resolution": 15.3}, {"power": 0, "counter_resolution": 15.3},
        {"power": 2**64 - 1, "counter_resolution": 15.3}, {"power": 5, "counter_resolution": 0.0},
        {"power": 5, "counter_resolution": float("inf")}, {"power": 5, "counter_resolution": 1e9},
    ],
)  # fmt: skip
def test_an_accumulator_that_cannot_be_is_none(answer: object) -> None:
    assert accumulator(answer) is None


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats() | st.booleans(), st.lists))
def test_any_answer_is_a_possible_number_or_none(answer: object) -> None:
    power = watts(answer)
    assert power is None or 0 < power <= 5000
    wrapped = {"energy_accumulator": answer, "counter_resolution": answer, "clk": answer}
    counted = accumulator(wrapped)
    assert counted is None or 0 < counted[0] < 2**53
    clock = megahertz(wrapped)
    assert clock is None or 0 <= clock <= 20_000


def test_the_clock_is_found_under_both_of_its_names() -> None:
    assert megahertz({"clk": 2100}) == megahertz({"cur_clk": 2100}) == 2100
    assert megahertz({"clk": "N/A"}) is None


# -- what is offered ---------------------------------------------------------------------------------------------------


def test_an_mi300x_offers_accumulator_current_power_temperatures_and_clocks() -> None:
    source = Rig().open()
    assert names(source) == [
        "gpu.energy", "gpu.current_power", "gpu.hotspot_temperature", "memory.temperature",
        "gpu.gfx_clock", "gpu.memory_clock",
    ]  # fmt: skip
    assert source.channels[0].scale == UNIT
    assert source.channels[0].domain == "gpu/0000:c1:00.0"
    assert source.identity.version == "26.0.2"
    assert source.identity.notes == ()
    assert Rig().rows(source, 0.0) == []


@pytest.mark.parametrize(
    ("current", "average", "energy", "total", "expected"),
    [
        (True, False, True, None, ["gpu.energy", "gpu.current_power"]),
        (False, True, True, None, ["gpu.energy", "gpu.average_power"]),
        (True, True, True, None, ["gpu.energy", "gpu.current_power", "gpu.average_power"]),
        (False, True, False, None, ["gpu.average_power"]),
        (True, False, True, "power", ["gpu.current_power"]),
        (False, False, True, None, ["gpu.energy"]),
    ],
)
def test_power_is_named_as_what_it_is(
    *, current: bool, average: bool, energy: bool, total: str | None, expected: list[str]
) -> None:
    source = Rig(VirtualCard("X", current=current, average=average, energy=energy)).open(total=total)
    assert [c.name for c in source.channels if c.measures_energy] == expected
    assert total_channel(source) == expected[0]
    assert any("no energy accumulator" in n for n in source.identity.notes) == (not energy)
    average = "gpu.average_power" in {c.name for c in source.channels}
    assert any("AMD does not state" in n for n in source.identity.notes) == average


def test_temperatures_in_thousandths_are_recognised_by_their_size() -> None:
    source = Rig(VirtualCard("X", millidegrees=True)).open()
    channel = next(c for c in source.channels if c.name == "gpu.hotspot_temperature")
    assert channel.scale == 1e-3


def test_a_total_that_the_card_lacks_is_refused() -> None:
    with pytest.raises(BackendUnavailableError, match=r"no energy accumulator; it has: gpu\.current_power"):
        Rig(VirtualCard("X", average=False, energy=False)).open(total="energy")
    with pytest.raises(TargetError, match="'energy' or 'power'"):
        Rig().open(total="average")


@pytest.mark.parametrize("call", ["amdsmi_get_energy_count", "amdsmi_get_power_info"])
@pytest.mark.parametrize("code", [8, 9, 30, 40])
def test_a_register_that_is_busy_for_a_moment_is_not_missed(call: str, code: int) -> None:
    rig = Rig()
    ask, failures = getattr(rig.amdsmi, call), [code]

    def busy_once(handle: object) -> object:
        if failures:
            rig.cards[0].codes[call] = failures.pop()
            try:
                return ask(handle)
            finally:
                del rig.cards[0].codes[call]
        return ask(handle)

    setattr(rig.amdsmi, call, busy_once)
    source = rig.open()
    assert names(source)[:2] == ["gpu.energy", "gpu.current_power"]
    assert not failures
    rig.rows(source, 0.5)
    failures.append(code)
    blocks = rig.rows(source, 0.1)
    assert not failures
    assert not any(np.isnan(block.raw).any() for block in blocks)


def test_a_power_that_is_unknown_for_a_moment_at_opening_is_not_missed() -> None:
    rig = Rig()
    ask, unknown = rig.amdsmi.amdsmi_get_power_info, [True]

    def unknown_once(handle: object) -> object:
        return {"current_socket_power": "N/A"} if unknown and unknown.pop() else ask(handle)

    rig.amdsmi.amdsmi_get_power_info = unknown_once  # type: ignore[attr-defined]
    assert names(rig.open())[:2] == ["gpu.energy", "gpu.current_power"]


def test_power_hidden_behind_a_failing_cap_is_asked_for_elsewhere() -> None:
    rig = Rig(VirtualCard("X", energy=False))
    rig.cards[0].codes["amdsmi_get_power_info"] = 2
    rig.amdsmi.amdsmi_get_gpu_metrics_info = lambda _handle: {  # type: ignore[attr-defined]
        "average_socket_power": 90, "current_socket_power": "N/A",
    }  # fmt: skip
    source = rig.open()
    (block, *_) = rig.rows(source, 1.0)
    assert names(source)[0] == "gpu.average_power"
    assert block.raw[0, 0] == 90


# -- which card --------------------------------------------------------------------------------------------------------


def two() -> Rig:
    return Rig(
        VirtualCard("AMD Instinct MI210", index=0, hip_id=1, node_id=2, serial="a"),
        VirtualCard("AMD Instinct MI300X", index=1, hip_id=0, node_id=1, serial="b"),
    )


@pytest.mark.parametrize("device", ["0", "0000:c2:00.0", "c2:00.0", "02ff74a1", "MI300", "GPU-0000000000000002"])
def test_a_card_is_found_by_hips_number_address_uuid_and_name(device: str) -> None:
    assert two().open(device).identity.model == "AMD Instinct MI300X"


@pytest.mark.parametrize("device", ["5", "AMD", "c9:00.0", "RTX"])
def test_a_name_that_fits_none_or_several_is_refused_with_a_list(device: str) -> None:
    with pytest.raises(TargetError, match="MI210"):
        two().open(device)


@pytest.mark.parametrize(
    ("variables", "model"),
    [
        ({}, "MI300X"),
        ({"HIP_VISIBLE_DEVICES": "1"}, "MI210"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "MI210"),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, "MI300X"),
        ({"ROCR_VISIBLE_DEVICES": "1"}, "MI210"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000001", "HIP_VISIBLE_DEVICES": "0"}, "MI210"),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "1"}, "MI300X"),
    ],
)
def test_a_number_counts_as_hip_does(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], model: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    source = two().open("0")
    assert source.identity.model == f"AMD Instinct {model}"
    of_order = [n for n in source.identity.notes if "AMD does not state" not in n]
    assert len(of_order) == len({n for n in variables if n != "CUDA_VISIBLE_DEVICES"} or variables)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_card_that_fails_keeps_its_number_and_the_next_one_does_not_pass_for_it(*, numbered: bool) -> None:
    rig = Rig(
        VirtualCard("AMD Instinct MI210", index=0, hip_id=0, node_id=1, serial="a"),
        VirtualCard("AMD Instinct MI300X", index=1, hip_id=1, node_id=2, serial="b"),
    )
    rig.cards[0].codes["amdsmi_get_gpu_device_bdf"] = 8
    if not numbered:
        rig.cards[1].codes |= {"amdsmi_get_gpu_enumeration_info": 2, "amdsmi_get_gpu_kfd_info": 2}
    found = discover(library=rig.amdsmi, sysfs_root=NOWHERE)
    assert found.devices == ("0", "1")
    broken = found.of("0")
    assert broken is not None
    assert not broken.usable
    with pytest.raises(BackendUnavailableError, match=r"does not tell its PCI address.*MI300X"):
        rig.open("0")
    assert rig.open("1").identity.model == "AMD Instinct MI300X"


def test_hidden_cards_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    with pytest.raises(BackendUnavailableError, match=r"HIP sees 0 of 2 GPUs .*HIP_VISIBLE_DEVICES") as caught:
        two().open()
    assert "0000:c1:00.0" in caught.value.remedy


def test_without_hips_order_the_order_is_that_of_addresses_and_is_said() -> None:
    rig = two()
    for card in rig.cards:
        card.codes |= {"amdsmi_get_gpu_enumeration_info": 2, "amdsmi_get_gpu_kfd_info": 2}
    source = rig.open("0")
    assert source.identity.model == "AMD Instinct MI210"
    assert any("order of PCI addresses" in n for n in source.identity.notes)


def test_a_second_die_or_a_partition_leads_to_the_one_that_reports() -> None:
    silent = VirtualCard("AMD Instinct MI250X", current=False, average=False, energy=False, index=1, hip_id=1)
    rig = Rig(VirtualCard("AMD Instinct MI250X", current=False, hip_id=0), silent)
    first, second = rig.open("0"), rig.open("1")
    assert first.channels[0].domain == second.channels[0].domain == "gpu/0000:c1:00.0"
    assert any("both dies" in n for n in first.identity.notes)
    assert any("reports for both" in n for n in second.identity.notes)
    silent.serial = "another card"
    with pytest.raises(BackendUnavailableError, match="reports neither power nor energy"):
        rig.open("1")


def test_partitions_that_all_report_the_power_of_their_gpu_are_one_part() -> None:
    rig = Rig(*(VirtualCard("AMD Instinct MI300X", function=i, hip_id=i, serial=f"{i}") for i in range(3)))
    sources = [rig.open(str(i)) for i in range(3)]
    assert {source.channels[0].domain for source in sources} == {"gpu/0000:c1:00.0"}
    assert not any("shared" in n for n in sources[0].identity.notes)
    assert all(any("shared" in n for n in source.identity.notes) for source in sources[1:])


def test_a_zero_of_a_second_die_is_no_power() -> None:
    silent = VirtualCard("MI250X", index=1, hip_id=1, energy=False, shows={"power": 0})
    source = Rig(VirtualCard("MI250X"), silent).open("1")
    assert any("reports for both" in n for n in source.identity.notes)


@pytest.mark.parametrize(("table", "domain"), [(b"\x78\0\2\4", "host/socket0"), (b"\x78\0\1\3", "gpu/0000:c1:00.0")])
def test_an_apu_is_known_by_the_format_of_its_metrics(tmp_path: Path, table: bytes, domain: str) -> None:
    """A desktop's APU has no NUMA node and no telling name; its one processor is the socket that RAPL measures."""
    device = tmp_path / "bus/pci/devices/0000:c1:00.0"
    device.mkdir(parents=True)
    (device / "gpu_metrics").write_bytes(table + bytes(116))
    (device / "numa_node").write_text("-1\n")
    for cpu in range(4):
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
    source = Rig(VirtualCard("AMD Radeon Graphics")).open(root=tmp_path)
    assert {c.domain for c in source.channels if c.measures_energy} == {domain}
    assert any("includes the processor" in n for n in source.identity.notes) == (domain != "gpu/0000:c1:00.0")


def test_an_apu_counts_as_the_socket_of_its_processor(tmp_path: Path) -> None:
    node = tmp_path / "bus/pci/devices/0000:c1:00.0"
    node.mkdir(parents=True)
    (node / "numa_node").write_text("2\n")
    rig = Rig(VirtualCard("AMD Instinct MI300A"))
    assert rig.open(root=tmp_path).channels[0].domain == "host/socket2"
    unplaced = rig.open()
    assert unplaced.channels[0].domain == ""
    assert any("in no total" in n for n in unplaced.identity.notes)


# -- truth -------------------------------------------------------------------------------------------------------------


def test_the_accumulator_keeps_the_contract_and_tells_the_truth() -> None:
    # The register moves each millisecond.
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load=LOAD),
        LOAD,
        relative=0,
        absolute_joules=1e-3 + 300 * 1e-3,
    )


def test_integrated_power_tells_the_truth_of_a_constant() -> None:
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load="constant:250", profile="rx7900"),
        "constant:250",
        relative=1e-9,
    )


def test_options_change_the_virtual_sensor() -> None:
    clock = ManualClock()
    source = open_virtual("virtual", clock=clock, load="constant:100", gain=1.05, offset_w=2, total="power")
    clock.advance(1)
    assert source.read().raw[0, 0] == 107
    assert source.identity.virtual
    with pytest.raises(TargetError, match="mi300x"):
        open_virtual("virtual", clock=clock, profile="rage128")


def test_nothing_refreshed_adds_no_row() -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 0.5)
    rig.cards[0].frozen_ns = rig.clock.now_ns()
    assert rig.rows(source, 5.0) == []
    check_lost(source, rig.clock, limit_s=11.0)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(BackendUnavailableError, match="is not installed") as caught:
        open_source("0", clock=ManualClock(), sysfs_root=NOWHERE)
    assert caught.value.remedy == "pip install 'pmtpy[amdsmi]'"


@pytest.mark.parametrize(
    ("raising", "reason"),
    [
        ("print('noise'); raise KeyError('libamd_smi.so')", "libamd_smi.so is not found"),
        ("raise KeyError('ROCM_PATH')", "libamd_smi.so is not found"),
        ("raise OSError('broken')", "libamd_smi.so is not found"),
        ("raise AttributeError('undefined symbol: amdsmi_new')", "newer than the library"),
    ],
)
def test_an_import_that_fails_is_explained_and_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], raising: str, reason: str
) -> None:
    (tmp_path / "amdsmi").mkdir()
    (tmp_path / "amdsmi" / "__init__.py").write_text(raising + "\n")
    monkeypatch.setitem(sys.modules, "amdsmi", None)  # so that what is there now comes back afterwards
    del sys.modules["amdsmi"]
    monkeypatch.syspath_prepend(str(tmp_path))
    found = discover(sysfs_root=NOWHERE)
    assert reason in found.reason
    assert found.remedy
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("code", "reason", "cure"),
    [
        (34, "driver is not loaded", "modprobe amdgpu"),
        (18, "could not be initialised", "render"),
        (10, "permission denied", "usermod"),
    ],
)
def test_each_failure_to_start_has_its_reason_and_its_cure(code: int, reason: str, cure: str) -> None:
    rig = Rig()
    rig.library.init_code = code
    with pytest.raises(BackendUnavailableError, match=reason) as caught:
        rig.open()
    assert cure in caught.value.remedy
    assert discover(library=rig.amdsmi, sysfs_root=NOWHERE).reason == caught.value.reason


def test_no_card_is_said() -> None:
    rig = Rig()
    rig.library.cards.clear()
    with pytest.raises(BackendUnavailableError, match="finds no AMD GPU"):
        rig.open()


@pytest.mark.parametrize(
    ("wrapper", "library", "word"),
    [
        ("7.0.2", 26, ""),
        ("26.0.2", 26, ""),
        ("6.4.4", 25, ""),
        ("6.3.3", 24, ""),
        ("7.0.2", 25, "newer"),
        ("", 26, "compared"),
    ],
)
def test_versions_of_wrapper_and_library_are_compared(wrapper: str, library: int, word: str) -> None:
    rig = Rig(version=(library, 0, 2))
    rig.amdsmi.__dict__["__version__"] = wrapper
    notes = rig.open().identity.notes
    assert (word in notes[0]) if word else not notes


def test_a_wrapper_older_than_its_library_is_not_trusted() -> None:
    rig = Rig(version=(26, 0, 2))
    rig.amdsmi.__dict__["__version__"] = "6.3.3"
    with pytest.raises(BackendUnavailableError, match="older than the library"):
        rig.open()


@pytest.mark.parametrize("code", [8, 9, 30, 43])
def test_a_call_that_fails_for_a_moment_is_unknown_by_itself_and_all_that_fail_are_a_lost_row(code: int) -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 0.5)
    rig.cards[0].codes["amdsmi_get_power_info"] = code
    for block in rig.rows(source, 0.2):
        assert np.isnan(block.raw[0]).tolist() == [c.name == "gpu.current_power" for c in source.channels]
    rig.cards[0].codes["amdsmi_get_energy_count"] = code
    assert rig.rows(source, 0.2) == []
    rig.cards[0].codes.clear()
    (block, *_) = rig.rows(source, 0.2)
    assert block.lost is not None
    assert block.lost[0] == 4


@pytest.mark.parametrize("shown", [0, 0xFFFF, 0xFFFFFFFF, 6000])
def test_a_sentinel_is_a_lost_row_and_no_power(shown: int) -> None:
    rig = Rig()
    source = rig.open(total="power")
    rig.rows(source, 0.5)
    rig.cards[0].shows["power"] = shown
    with pytest.raises(SourceLostError, match=r"readings in a row failed.*no possible number"):
        rig.rows(source, 4.0)


def test_an_accumulator_that_runs_back_once_is_a_fault_and_not_a_restart() -> None:
    rig = Rig(load="constant:200")
    source = rig.open()
    before = rig.rows(source, 1.0)[-1]
    rig.cards[0].shows["energy"] = int(before.raw[0, 0]) - 1000
    assert all(np.isnan(block.raw[0, 0]) for block in rig.rows(source, 0.1))
    rig.cards[0].shows.clear()
    (block, *_) = rig.rows(source, 0.1)
    assert block.raw[0, 0] > before.raw[0, 0]


def test_an_accumulator_that_stays_back_has_restarted_and_the_gap_is_marked() -> None:
    rig = Rig(load="constant:200")
    source = rig.open()
    integrator = Integrator(Layout(source.channels))
    for second in range(3):
        if second == 1:
            rig.cards[0].count = 5 - round(200 / UNIT)
        for block in rig.rows(source, 1.0):
            last = integrator.advance(block)
    assert isinstance(last, Frame)
    # Three readings are doubted, the fourth is believed: 0.2 s are not known.
    assert last.uncovered_ns[-1, 0] == pytest.approx(0.2e9, abs=2e6)
    assert last.joules[-1, 0] == pytest.approx(200 * (2.95 - 0.2), abs=1)


def test_a_stuck_accumulator_is_named_and_leaves_the_power_beside_it_whole() -> None:
    rig = Rig(load="constant:200")
    with Sensor(rig.open(), "amdsmi", rig.clock) as sensor:
        rig.clock.advance(0.1)
        sensor.read()
        rig.cards[0].shows["energy"] = 10_000_000 + round(200 / UNIT)
        with pmt.region("work", sensor) as r:
            for _ in range(400):
                rig.clock.advance(0.05)
                sensor.read()
        told = acquisition_of(sensor).intake.source.remarks(rig.clock.now_ns() - 1, rig.clock.now_ns()).warnings
    m = r["amdsmi"]
    assert m.channels["gpu.current_power"].joules == pytest.approx(4000, rel=0.01)
    assert m.channels["gpu.current_power"].coverage == 1.0
    assert m.coverage < 0.1
    assert any("the energy counter moved by 0 J while the power beside it says" in w for w in told)


def test_an_absurd_leap_of_the_accumulator_adds_no_energy() -> None:
    rig = Rig(load="constant:200")
    source = rig.open()
    rig.rows(source, 0.5)
    rig.cards[0].count += 2**40
    points = rig.curve(source, 2.0)
    assert points[-1][1] < 200 * 2.1


def test_a_library_shut_down_by_somebody_else_is_started_anew_once() -> None:
    rig = Rig()
    one, two_ = rig.open(), rig.open()
    one.close()
    assert rig.library.started
    rig.amdsmi.amdsmi_shut_down()
    assert len(rig.rows(two_, 1.0)) == 20
    rig.amdsmi.amdsmi_shut_down()
    rig.library.init_code = 34
    with pytest.raises(SourceLostError, match="driver is not loaded"):
        rig.rows(two_, 1.0)


def test_a_card_that_disappears_is_lost() -> None:
    rig = Rig()
    source = rig.open()
    rig.rows(source, 0.5)
    rig.library.cards.clear()
    check_lost(source, rig.clock)


_REPLIES = st.fixed_dictionaries(
    {},
    optional={
        "amdsmi_get_power_info": st.integers(1, 60),
        "amdsmi_get_energy_count": st.integers(1, 60),
        "amdsmi_get_temp_metric": st.integers(1, 60),
        "power": st.sampled_from([0, 255, 0xFFFF, 0xFFFFFFFF, 7000]),
        "energy": st.sampled_from([0, 2**53, 2**64 - 1, 1]),
    },
)


@given(at_opening=_REPLIES, later=_REPLIES)
def test_no_reply_yields_a_silently_wrong_total(at_opening: dict[str, int], later: dict[str, int]) -> None:
    """Whatever the library says, the total is right, or its gap is marked, or the measurement ends with an error."""
    rig = Rig(load="constant:255")
    card = rig.cards[0]

    def disturb(replies: dict[str, int]) -> None:
        card.codes = {k: v for k, v in replies.items() if k.startswith("amdsmi_")}
        # A possible but false count cannot be told from a true one for some seconds.
        card.shows = {k: v for k, v in replies.items() if k in {"power", "energy"} and (k, v) != ("energy", 1)}

    disturb(at_opening)
    try:
        source = rig.open()
        first = None
        for replies in (at_opening, {}, later, {}):
            disturb(replies)
            for t_ns, joules, uncovered_ns in rig.curve(source, 0.4):
                first = first or (t_ns, joules, uncovered_ns)
                seconds = (t_ns - first[0]) / 1e9
                unknown = (uncovered_ns - first[2]) / 1e9
                # A millisecond of the register at either end; what is marked as unknown may have been counted or not.
                assert 255 * (seconds - unknown) - 1 <= joules - first[1] <= 255 * seconds + 1
            first = None
    except (BackendUnavailableError, SourceLostError):
        return


@pytest.mark.parametrize("version", ["6.3.3", "25.1.0+8dc45db"])
def test_the_virtual_gpu_refuses_a_wrapper_whose_structures_are_others(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: version)
    with pytest.raises(BackendUnavailableError, match=f"amdsmi {re.escape(version)} is of an older one") as refused:
        pmt.create("amdsmi", "virtual")
    assert "pip install 'amdsmi>=7'" in str(refused.value)


def test_a_card_that_may_not_be_read_names_the_groups() -> None:
    """It was said to be a partition, or a second die."""
    codes = {f"amdsmi_get_{call}": 10 for call in ("power_info", "energy_count", "gpu_metrics_info")}
    with pytest.raises(BackendUnavailableError, match="permission denied") as refused:
        Rig(VirtualCard("AMD Instinct MI300X", codes=codes)).open()
    assert "-G render,video" in refused.value.remedy
