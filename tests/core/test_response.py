"""One record of how a sensor follows time: what is stated, what is not known, and what follows from both."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pmtpy.core import Channel, Quantity, Response
from pmtpy.core.response import TRIANGULAR, UNKNOWN, Number


def test_a_channel_shows_what_its_maker_states() -> None:
    channel = Channel("gpu", Quantity.POWER, refresh_s=0.1, window_s=0.025, lag_s=0.02)
    assert (channel.refresh_s, channel.window_s) == (0.1, 0.025)
    assert channel.lag_s == pytest.approx(0.02)
    assert channel.response == Response(0.1, 0.025, delay_s=0.02 - 0.0125, tau_u=math.inf)


def test_a_channel_of_which_nothing_is_stated_knows_nothing() -> None:
    channel = Channel("gpu", Quantity.POWER)
    assert channel.response == UNKNOWN
    assert (channel.refresh_s, channel.window_s, channel.lag_s) == (None, None, None)
    assert not channel.response.shaped


def test_a_one_pole_shows_the_boxcar_that_sees_as_much() -> None:
    channel = Channel("gpu", Quantity.POWER, response=Response(0.1, tau_s=0.0125, delay_s=0.001))
    assert channel.window_s == pytest.approx(0.025)
    assert channel.lag_s == pytest.approx(0.0135)


def test_another_statement_leaves_the_rest_as_it_was() -> None:
    known = Channel("gpu", Quantity.POWER, response=Response(0.1, tau_s=0.0125, family="one-pole"))
    faster = known.timed(refresh_s=0.02)
    assert faster.response == replace(known.response, period_s=0.02)
    assert replace(known, name="other").response == known.response


def test_an_end_that_nobody_knows_is_half_a_period_either_way() -> None:
    stated = Response.stated("boxcar", refresh_s=Number(0.1, 1e-5), window_s=Number(0.1, 0.001))
    assert stated.delay_s == 0.0
    assert stated.end_u == pytest.approx(0.1 / math.sqrt(12.0))
    assert stated.lag_u == pytest.approx(math.hypot(0.0005, stated.end_u))


@pytest.mark.parametrize("wrong", [{"period_s": -0.1}, {"window_s": -1.0}, {"tau_s": -1.0}, {"gain": 0.0}])
def test_what_no_sensor_can_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not negative"):
        Response(**wrong)  # type: ignore[arg-type]


def test_a_triangle_is_two_equal_boxcars_in_a_row() -> None:
    t, half = np.linspace(-0.01, 0.09, 101), 0.035
    ages = (np.arange(2000) + 0.5) / 2000 * half
    twice = np.mean(np.clip((t[:, None] - ages) / half, 0.0, 1.0), axis=1)
    triangle = Response(0.1, 2.0 * half, family=TRIANGULAR)
    assert triangle.step(t) == pytest.approx(twice, abs=1e-6)
    assert triangle.lag_s == pytest.approx(half)
