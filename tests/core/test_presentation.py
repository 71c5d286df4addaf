from __future__ import annotations

import math

import pytest

from pmtpy.core.presentation import in_same_digits


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
