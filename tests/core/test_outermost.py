from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.channel import outermost

DOMAINS = st.sampled_from(
    [
        "",
        "host",
        "host/socket0/package",
        "host/socket0/package/core",
        "host/socket0/dram",
        "gpu/a",
        "gpu/a/memory",
        "external/x",
    ]
)


def test_a_part_inside_another_is_not_added_to_it() -> None:
    assert outermost(["host/socket0/package/core", "host/socket0/package", "host/socket0/dram"]) == (1, 2)


def test_one_part_measured_twice_counts_by_its_first_channel() -> None:
    assert outermost(["gpu/a", "gpu/a", "", "gpu/b"]) == (0, 3)


def test_the_meter_of_the_whole_machine_contains_its_graphics_cards() -> None:
    assert outermost(["gpu/a", "host/socket0/package", "host"]) == (2,)


def test_what_is_external_is_not_inside_the_machine() -> None:
    assert outermost(["host", "external/x"]) == (0, 1)


@given(st.lists(DOMAINS, max_size=8))
def test_nothing_taken_lies_in_another_and_all_that_is_left_out_does(domains: list[str]) -> None:
    taken = {domains[i] for i in outermost(domains)}
    assert len(taken) == len(outermost(domains))
    assert not any(a != b and a.startswith(b + "/") for a in taken for b in taken)
    for domain in set(domains) - taken - {""}:
        assert any(domain.startswith(t + "/") or (t == "host" and not domain.startswith("external")) for t in taken)
