"""The conformance suite finds each fault that a backend may have, and nothing in sources that have none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pmtpy.core.channel import Channel
from pmtpy.core.clock import ManualClock
from pmtpy.core.response import UNKNOWN
from pmtpy.core.rows import Block
from pmtpy.core.source import Source, Traits
from pmtpy.emulators.world import World, make_world
from pmtpy.testing import _readings, check_lost, check_promptness, check_source
from tests.support.worlds import Counter, Gauge, Stream

LOAD = "square:low=30,high=90,hz=0.5"


def check(make: Callable[[World], Source], **changes: dict[str, Any]) -> None:
    """Run the suite on a source whose channels are changed by name; ``all`` means each of them."""

    def described(clock: ManualClock) -> Source:
        source = make(make_world(LOAD, clock=clock))
        stated = [replace(c, gain_u=0.03 if c.measures_energy else 0.0) for c in source.channels]
        if isinstance(source, Counter):  # it counts whenever it is read
            stated = [replace(c, response=UNKNOWN) for c in stated]
        source.channels = tuple(replace(c, **changes.get("all", {}), **changes.get(c.name, {})) for c in stated)
        return source

    # A gauge polled every 20 ms misplaces each edge of 60 W by up to 10 ms: 20 edges of 0.6 J in 1200 J.
    check_source(described, LOAD, relative=0.01)


@pytest.mark.parametrize("kind", [Counter, Gauge, Stream])
def test_well_behaved_sources_pass(kind: type[Counter | Gauge | Stream]) -> None:
    check(kind)


def turning(world: World) -> Counter:
    """Counters of 32 bits that count microjoules: at 60 W they turn over after more than a minute."""
    return Counter(world, wrap=2.0**32, deadline_s=3.0)


def test_counters_that_turn_over_and_say_so_pass() -> None:
    check(turning)


@pytest.mark.parametrize("refresh_s", [0.001, 0.01, 1.0])
def test_a_counter_that_is_renewed_more_often_than_stated_is_found_out(refresh_s: float) -> None:
    # What it moved by in a moment is not the energy of a whole refresh.
    with pytest.raises(AssertionError, match="state how often it is renewed"):
        check(Counter, all={"response": UNKNOWN.but(refresh_s, None, None)})


@pytest.mark.parametrize("wrap", [None, 2.0**31 * 3, 1e10])
def test_a_missing_or_wrong_wrap_is_found_out(wrap: float | None) -> None:
    with pytest.raises(AssertionError, match="check its wrap"):
        check(turning, all={"wrap": wrap})


def test_a_wrong_wrap_of_a_part_outside_of_the_total_is_found_out() -> None:
    with pytest.raises(AssertionError, match=r"package0\.core shows"):
        check(turning, **{"package0.core": {"wrap": 2.0**33}})


def test_a_deadline_that_is_too_long_is_found_out() -> None:
    def patient(world: World) -> Counter:
        source = turning(world)
        source.traits = Traits(deadline_s=None)
        return source

    with pytest.raises(AssertionError, match="the deadline"):
        check(patient)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"dram0": {"domain": "host/socket0/package"}}, "the total is off"),
        ({"dram0": {"domain": "host/socket0/package/dram"}}, "the total is off"),
        ({"package0.core": {"domain": "host/socket0/core"}}, "the total is off"),
        ({"package0.core": {"domain": "host/socket0/dram/core"}}, "is a part of dram0"),
        ({"package0.core": {"domain": "host/socket0/dram"}}, "the total is off"),
        ({"all": {"domain": ""}}, "make a total"),
        ({"dram0": {"domain": "host//dram"}}, "a domain is a path"),
        ({"all": {"gain_u": 0.0}}, "nothing is exact"),
    ],
)
def test_a_wrong_domain_or_a_perfect_gain_is_found_out(changes: dict[str, dict[str, Any]], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        check(Counter, **changes)


class Twice(Counter):
    """A counter with a second channel of one of its parts, which shows a third of it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        twin = Channel("twin", self.channels[0].quantity, 1e-6, domain=self.channels[0].domain)
        self.channels = (*self.channels, twin)

    def poll(self) -> Sequence[float]:
        counts = super().poll()
        return [*counts, counts[0] / 3]


def test_two_parts_of_one_domain_that_differ_are_found_out() -> None:
    with pytest.raises(AssertionError, match=r"breaks this clause: .* name one domain"):
        check(Twice)


@pytest.mark.parametrize("kind", [Counter, Gauge])
def test_what_is_missing_because_it_was_not_believed_is_named(kind: type[Counter | Gauge]) -> None:
    # The load takes 90 W every other second.
    with pytest.raises(AssertionError, match=r"the total is off .* J; \w+: (it shows 90 W|its counter)"):
        check(kind, all={"max_watts": 20.0})


def test_a_counter_of_coarse_steps_may_differ_by_them() -> None:
    check(Twice, twin={"resolution": 3600.0})  # a meter's, of one watt-hour


def test_a_source_that_lies_about_energy_is_found_out() -> None:
    class Lying(Counter):
        def poll(self) -> Sequence[float]:
            return [c * 1.02 for c in super().poll()]

    with pytest.raises(AssertionError, match="the total is off"):
        check(Lying)


def test_a_source_that_repeats_itself_is_found_out() -> None:
    class Repeating(Stream):
        def read(self) -> Block:
            block = super().read()
            return Block(np.repeat(block.t_ns, 2), np.repeat(block.raw, 2, axis=0))

    with pytest.raises(AssertionError, match="strictly increase"):
        check(Repeating)


def test_a_reading_that_waits_is_found_out_unless_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s = [0.0]  # by a clock of the test: a busy machine lets threads wait that do not

    def wait(seconds: float) -> None:
        waited_s[0] += seconds

    time = SimpleNamespace(perf_counter=lambda: waited_s[0], thread_time=lambda: 0.0)
    monkeypatch.setattr(_readings, "time", time)
    monkeypatch.setattr(_readings, "_SCHEDULED", Path(os.devnull))

    class Slow(Counter):
        def poll(self) -> Sequence[float]:
            wait(0.01)
            return super().poll()

    class Waiting(Stream):
        def read(self) -> Block:
            block = super().read()
            if not len(block):
                wait(0.02)  # for more to come
            return block

    class Said(Slow):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            self.traits = Traits(blocking=True)

    for kind, waits in ((Slow, True), (Said, False), (Counter, False)):
        clock = ManualClock()
        source: Source = kind(make_world(LOAD, clock=clock))
        if waits:
            with pytest.raises(AssertionError, match=r"says traits\.blocking"):
                check_promptness(source, clock)
        else:
            check_promptness(source, clock)
    clock = ManualClock()
    with pytest.raises(AssertionError, match="waits"):
        check_promptness(Waiting(make_world(LOAD, clock=clock)), clock)


def test_a_buffer_that_is_used_again_is_found_out() -> None:
    class Reusing(Stream):
        buffer = np.empty((1000, 4))

        def read(self) -> Block:
            block = super().read()
            self.buffer[: len(block)] = block.raw
            return replace(block, raw=self.buffer[: len(block)])

    class SameList(Counter):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            self.counts: list[float] = []

        def poll(self) -> Sequence[float]:
            self.counts[:] = super().poll()
            return self.counts

    with pytest.raises(AssertionError, match="arrays of its own"):
        check(Reusing)
    check(SameList)  # of a poll, the numbers are taken over


def test_what_is_left_after_closing_is_found_out() -> None:
    kept: list[Source] = []
    fds: list[int] = []
    events: list[threading.Event] = []

    class OpenFile(Counter):
        def close(self) -> None:
            fds.append(os.open(os.devnull, os.O_RDONLY))

    class Running(Counter):
        def close(self) -> None:
            if not self.closed:
                self.closed = True
                events.append(threading.Event())
                threading.Thread(target=events[-1].wait, daemon=True).start()

    class Kept(Counter):
        def close(self) -> None:
            kept.append(self)

    try:
        for kind, what in (
            (OpenFile, "descriptors are left"),
            (Running, "threads are left"),
            (Kept, "gone from memory"),
        ):
            with pytest.raises(AssertionError, match=what):
                check(kind)
    finally:
        for fd in fds:
            os.close(fd)
        for event in events:
            event.set()


def test_a_device_that_is_gone_must_say_so() -> None:
    clock = ManualClock()
    source = Counter(make_world(clock=clock))
    with pytest.raises(AssertionError, match="SourceLostError"):
        check_lost(source, clock, limit_s=1.0)
    source.gone = True
    check_lost(source, clock)
