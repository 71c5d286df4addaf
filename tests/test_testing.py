from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block
from pmtpy.emulators.world import make_world
from pmtpy.testing import check_lost, check_source
from tests.support.worlds import Counter, Gauge, Stream

LOAD = "square:low=30,high=90,hz=0.5"


@pytest.mark.parametrize("kind", [Counter, Gauge, Stream])
def test_well_behaved_sources_pass(kind: type[Counter | Gauge | Stream]) -> None:
    # A gauge polled every 20 ms misplaces each edge of 60 W by up to 10 ms: 20 edges of 0.6 J in 1200 J.
    check_source(lambda clock: kind(make_world(LOAD, clock=clock)), LOAD, relative=0.01)


def test_a_source_that_lies_about_energy_is_found_out() -> None:
    class Lying(Counter):
        def poll(self) -> Sequence[float]:
            return [c * 1.02 for c in super().poll()]

    with pytest.raises(AssertionError, match="the total is off"):
        check_source(lambda clock: Lying(make_world(LOAD, clock=clock)), LOAD, relative=0.01)


def test_a_source_that_repeats_itself_is_found_out() -> None:
    class Repeating(Stream):
        def read(self) -> Block:
            block = super().read()
            return Block(np.repeat(block.t_ns, 2), np.repeat(block.raw, 2, axis=0))

    with pytest.raises(AssertionError, match="strictly increase"):
        check_source(lambda clock: Repeating(make_world(LOAD, clock=clock)), LOAD)


def test_a_device_that_is_gone_must_say_so() -> None:
    clock = ManualClock()
    source = Counter(make_world(clock=clock))
    with pytest.raises(AssertionError, match="SourceLostError"):
        check_lost(source, clock, limit_s=1.0)
    source.gone = True
    check_lost(source, clock)
