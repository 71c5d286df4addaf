"""What holds the parts of a whole back is told of the whole."""

from __future__ import annotations

import math

from pmtpy.core.clock import ManualClock
from pmtpy.sensor._merged import limits_of
from tests.support.repeated import FULL, History, Simulated


def test_of_several_sources_each_cause_is_told_with_the_longest_time() -> None:
    sources = [Simulated(FULL, History(), ManualClock()) for _ in range(3)]
    assert limits_of(sources) == {}
    sources[0].held_back = {"power": 2.0, "heat": 1.0}
    sources[2].held_back = {"power": 3.0, "heat": math.inf}
    assert limits_of(sources) == {"power": 3.0, "heat": math.inf}
