from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.rapl._channels import Kind, Part, parse_zone_name
from pmtpy.core.channel import outermost

PACKAGE = Part(Kind.PACKAGE, 1)


@pytest.mark.parametrize(
    ("name", "parent", "part"),
    [
        ("package-0", None, Part(Kind.PACKAGE, 0)),
        ("package-12", None, Part(Kind.PACKAGE, 12)),
        ("package-1-die-3", None, Part(Kind.PACKAGE, 1, 3)),
        ("psys", None, Part(Kind.PSYS, 0)),
        ("psys-1", None, Part(Kind.PSYS, 1)),
        ("core", PACKAGE, Part(Kind.CORE, 1)),
        ("uncore", PACKAGE, Part(Kind.UNCORE, 1)),
        ("dram", Part(Kind.PACKAGE, 1, 2), Part(Kind.DRAM, 1, 2)),
    ],
)
def test_every_name_of_the_driver_is_understood(name: str, parent: Part | None, part: Part) -> None:
    assert parse_zone_name(name, parent) == part


@pytest.mark.parametrize(
    "name", ["", "dram", "core", "package", "package-", "package-0-die-", "package-a", "psys-", "gpu"]
)
def test_other_names_are_not_guessed(name: str) -> None:
    assert parse_zone_name(name, None) is None


def test_what_lies_below_the_platform_is_not_guessed() -> None:
    assert parse_zone_name("dram", Part(Kind.PSYS)) is None


def test_the_core_zone_of_amd_is_never_called_all_cores() -> None:
    part = parse_zone_name("core", PACKAGE, amd=True)
    assert part is not None
    assert part.name == "package1.one_core"


@given(st.text(max_size=20))
def test_any_text_is_a_name_or_none(name: str) -> None:
    part = parse_zone_name(name, PACKAGE)
    assert part is None or part.name


def test_packages_and_memory_are_added_and_nothing_else() -> None:
    parts = [Part(kind, package, die) for package in range(2) for die in range(2) for kind in Kind]
    domains = [part.domain() for part in parts]
    assert {parts[i].kind for i in outermost(domains)} == {Kind.PACKAGE, Kind.DRAM}
    assert len(outermost(domains)) == 8


def test_mirrored_dies_are_added_once_per_package() -> None:
    parts = [Part(Kind.PACKAGE, package, die) for package in range(2) for die in range(4)]
    assert outermost([part.domain(dies_mirrored=True) for part in parts]) == (0, 4)
