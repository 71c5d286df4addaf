"""True is 1 to Python, and no number in a file."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pmtpy.analysis.clocking import Polling
from pmtpy.core.numbers import real, stated, stated_whole, whole
from pmtpy.io.channels import channel_of
from pmtpy.io.recorded import aged_of, time_u_of


@pytest.mark.parametrize("text", ["true", "false", '"1"', "null", "NaN", "-Infinity", "[1]", "1" + 400 * "0"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert real(json.loads(text)) is None
    with pytest.raises(ValueError, match="joules must be a number"):
        stated({"joules": json.loads(text)}, "joules")


@pytest.mark.parametrize("text", ["true", "false", '"1"', "null", "1.0"])
def test_what_is_no_whole_number_is_none(text: str) -> None:
    assert whole(json.loads(text)) is None
    with pytest.raises(ValueError, match="ranks must be a whole number"):
        stated_whole({"ranks": json.loads(text)}, "ranks")


def test_a_number_is_kept_to_its_last_digit() -> None:
    assert (real(0), real(-2.5), whole(0), whole(1732776049123456789)) == (0.0, -2.5, 0, 1732776049123456789)


@pytest.mark.parametrize(
    ("read", "unknown"),
    [
        (lambda true: time_u_of({"time_u_s": true}), 0.0),
        (lambda true: aged_of({"aged_s": true}), 0.0),
        (lambda true: Polling.of({"polled_s": true}), None),
    ],
)
def test_true_in_metadata_is_no_second(read: Callable[[bool], object], unknown: object) -> None:
    assert read(True) == unknown


@pytest.mark.parametrize("name", ["scale", "gain_u", "window_s"])
def test_a_channel_of_which_a_number_is_true_is_none(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        channel_of({"name": "gpu", "quantity": "power", name: True})
