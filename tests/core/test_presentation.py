from __future__ import annotations

import math

import pytest

from pmtpy.core.presentation import amount, duration, in_same_digits, said_once


@pytest.mark.parametrize(
    ("value", "uncertainty", "shown"),
    [
        (45.512, 4.3, ("45.5", "4.3")),
        (45.512, 0.0, ("45.512", "0")),
        (0.0, math.nan, ("0", "?")),
        (0.0, 4.1e-7, ("0.000000", "4.1e-07")),
        (-0.3, 4800.0, ("0", "4800")),
        (-0.004, 1.3, ("0.0", "1.3")),
    ],
)
def test_a_number_has_as_many_digits_as_its_uncertainty_lets_count(
    value: float, uncertainty: float, shown: tuple[str, str]
) -> None:
    assert in_same_digits(value, uncertainty) == shown


def test_nearly_a_second_is_no_thousand_milliseconds() -> None:
    assert [duration(s) for s in (0.9994, 0.99995, 1.0)] == ["999 ms", "1 s", "1 s"]


def test_what_is_said_of_many_names_alike_is_said_once_where_it_was_said_first() -> None:
    rails = [f"rail{i}" for i in range(9)]
    few, many = [f"{n}: late" for n in rails[:3]], [f"{n}: off" for n in rails]
    assert said_once([*many, "of all", *few, "other: off"], rails) == [
        "rail0, rail1 and 7 others: off",
        "of all",
        "rail0, rail1 and rail2: late",
        "other: off",
    ]
    assert said_once(few[:2], rails) == few[:2]
    assert said_once(["rail0: a: b", "rail1: a: c", "rail2: a: b"], rails) == [
        "rail0: a: b",
        "rail1: a: c",
        "rail2: a: b",
    ]


def test_one_thing_is_no_several() -> None:
    assert [amount(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [amount(n, "row is", "rows are") for n in (1, 3)] == ["1 row is", "3 rows are"]
    assert amount(12_345, "row", form=",") == "12,345 rows"
