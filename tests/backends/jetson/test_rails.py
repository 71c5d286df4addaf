from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.jetson._channels import BOARDS, plan, unused
from pmtpy.core.channel import outermost

TX2 = ["VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_4V0_WIFI", "VDD_IN", "VDD_SYS_CPU", "VDD_SYS_DDR"]
TX2_MAINLINE = ["VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_3V8_WIFI", "VDD_IN", "VDD_SYS_CPU", "VDD_5V0_DDR"]
TX1_CARRIER = ["VDD_MUX", "VDD_5V0_IO_SYS", "VDD_3V3_SYS", "VDD_3V3_IO_SLP", "VDD_1V8_IO", "VDD_M2_IN"]


def total(names: list[str], *, whole_kit: bool = False) -> set[str]:
    domains = plan(names, whole_kit=whole_kit).domains
    return {names[i] for i in outermost([domains[n] for n in names])}


@pytest.mark.parametrize(
    ("names", "board", "expected"),
    [
        (["POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"], "Nano", {"POM_5V_IN"}),
        (["VDD_IN", "VDD_GPU", "VDD_CPU"], "TX1", {"VDD_IN"}),
        (["VDD_IN", "VDD_GPU", "VDD_CPU", *TX1_CARRIER], "TX1", {"VDD_IN"}),
        (TX2, "TX2", {"VDD_IN"}),
        (TX2_MAINLINE, "TX2", {"VDD_IN"}),
        ([*TX1_CARRIER, *TX2], "TX2", {"VDD_IN"}),
        (["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"], "Orin NX", {"VDD_IN"}),
        (
            ["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"],
            "AGX Xavier",
            {"GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"},
        ),
        (
            ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"],
            "AGX Orin",
            {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"},
        ),
        (
            ["VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0", "VIN"],
            "Thor",
            {"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"},
        ),
    ],
)
def test_each_board_has_its_total(names: list[str], board: str, expected: set[str]) -> None:
    for order in (names, names[::-1]):
        assert total(order) == expected
    found = plan(names).board
    assert found is not None
    assert board in found.name


def test_the_input_of_the_kit_contains_the_module() -> None:
    assert total(["VDD_IN", "VDD_GPU", "VDD_CPU", *TX1_CARRIER], whole_kit=True) == {"VDD_MUX"}
    assert total(["VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0", "VIN"], whole_kit=True) == {"VIN"}


@pytest.mark.parametrize(
    "names",
    [
        ["RAIL_A", "RAIL_B"],
        ["VDD_M2_IN", "VDD_GPU_SOC"],
        ["VDD_GPU_SOC", "VDD_CPU_CV", "VDDQ_VDD2_1V8AO"],  # an AGX Orin without its third rail
        ["GPU", "CPU", "SOC", "CV", "VDDRQ"],
        ["VIN"],
        [""],
        [],
    ],
)
def test_unknown_or_incomplete_rails_have_no_total(names: list[str]) -> None:
    chosen = plan(names)
    assert total(names) == set()
    assert "no total" in chosen.rule


def test_an_unknown_board_whose_input_has_the_usual_name_is_measured_there() -> None:
    assert total(["VDD_IN", "RAIL_A"]) == {"VDD_IN"}
    assert "not known" in plan(["VDD_IN", "RAIL_A"]).rule


def test_a_rail_that_is_there_twice_makes_no_total() -> None:
    assert total(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC", "VDD_IN"]) == set()
    assert "several channels are called VDD_IN" in plan(["VDD_IN", "VDD_IN"]).rule


def test_a_carrier_with_further_rails_leaves_the_module_as_it_is() -> None:
    assert total(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC", "FAN", "", ""]) == {"VDD_IN"}


@pytest.mark.parametrize("label", ["", "NC", "nc", "(null)", "sum of shunt voltages"])
def test_channels_without_a_rail_are_known(label: str) -> None:
    assert unused(label)


@given(
    st.lists(
        st.sampled_from(sorted({r for b in BOARDS for r in (*b.total, *b.inside)} | set(TX1_CARRIER))), unique=True
    )
)
def test_no_set_of_rails_adds_a_rail_and_what_feeds_it(names: list[str]) -> None:
    added = total(names)
    feeds = {(inner, outer) for board in BOARDS for inner, outer in board.inside.items()}
    assert not {pair for pair in feeds if set(pair) <= added}
    assert not added or added in [set(board.total) for board in BOARDS]
