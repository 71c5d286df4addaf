"""The usual time between rows is found once for many intervals of one recording, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.interval_statistics import summarise, usual_s
from pmtpy.core.channel import Channel, Quantity


@pytest.mark.parametrize("refresh_s", [None, 0.02, 0.5])
@pytest.mark.parametrize("rows", [2, 3, 500])
def test_what_was_found_before_is_what_is_found_anew(rows: int, refresh_s: float | None) -> None:
    rng = np.random.default_rng(rows)
    t_s = np.cumsum(rng.uniform(0.05, 0.15, rows)) - 0.3
    watts = rng.uniform(30.0, 90.0, (1, rows))
    channels = [Channel("p", Quantity.POWER, refresh_s=refresh_s, window_s=0.03, domain="x")]
    plain = Interval(0.7, [42.0], [0.0], aged_s=0.1)
    found = summarise(channels, t_s, watts, plain)
    assert summarise(channels, t_s, watts, plain._replace(spacing_s=usual_s(np.diff(t_s)))) == found


def test_the_usual_time_is_the_middle_one_and_of_an_even_number_the_longer() -> None:
    assert usual_s(np.array([0.1, 9.0, 0.2])) == 0.2
    assert usual_s(np.array([0.1, 0.3, 0.2, 9.0])) == 0.3
    assert usual_s(np.empty(0)) == 0.0
