"""The emulated world: one load, one clock, one epoch. Every virtual sensor of a process lives in the same one.

So two different virtual sensors can be compared with each other and with the truth. Whoever opens the first virtual
sensor chooses the load; the others join. When the last one is closed the world ends.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.rows import Floats, Ints
from pmtpy.emulators.load import Load, Work, parse_load
from pmtpy.errors import TargetError

DEFAULT_LOAD = "square:low=30,high=90,hz=1"


@dataclass(frozen=True, eq=False)
class World:
    """A load on a clock."""

    load: Load  # the truth, in seconds since the epoch
    clock: Clock  # the host clock that the emulated devices and the sensors share
    epoch_ns: int  # the instant of the clock at which the load's time is 0
    spec: str = ""  # the text of the load, for other processes
    seed: int = 1  # seed of all noise

    def seconds_since_epoch(self, t_ns: Ints | int) -> Floats:
        """Time of the load for instants of the clock."""
        return np.asarray((np.asarray(t_ns, np.int64) - self.epoch_ns) / NS_PER_S, np.float64)

    def watts(self, t_ns: Ints | int) -> Floats:
        """True power at the instants, watts."""
        return self.load.watts(self.seconds_since_epoch(t_ns))

    def joules(self, t_ns: Ints | int) -> Floats:
        """True energy from the epoch to the instants, joules."""
        return self.load.joules(self.seconds_since_epoch(t_ns))

    def joules_between(self, a_ns: int, b_ns: int) -> float:
        """True energy between two instants, joules."""
        return float(self.joules(b_ns) - self.joules(a_ns))


def make_world(load: str | Load = DEFAULT_LOAD, *, clock: Clock) -> World:
    """Make a world of its own, whose load begins now. For tests."""
    spec = load if isinstance(load, str) else repr(load)
    return World(parse_load(load) if isinstance(load, str) else load, clock, clock.now_ns(), spec)


_shared: weakref.WeakValueDictionary[int, World] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def shared_world(load: str | None, *, clock: Clock) -> World:
    """Join the world of this process, or begin it with ``load``. Keep the result as long as the sensor is open.

    One world for each clock, held by its inhabitants alone.

    Raises TargetError: another load than the one that the open virtual sensors watch.
    """
    given: object = load  # an option of create(), which knows no types
    if given is not None and not isinstance(given, str):
        msg = f"a load is a text such as 'constant:60', not {load!r}"
        raise TargetError(msg)
    with _shared_lock:
        world = _shared.get(id(clock))
        if world is not None and load is not None and load != world.spec:
            del world  # a closed sensor that only a cycle of references still holds does not watch anything
            gc.collect()
            world = _shared.get(id(clock))
        if world is None or world.clock is not clock:
            world = make_world(load or DEFAULT_LOAD, clock=clock)
            _shared[id(clock)] = world
        elif load is not None and load != world.spec:
            msg = f"the open virtual sensors watch the load {world.spec!r}; close them before choosing {load!r}"
            raise TargetError(msg)
        return world


def unheld(world: World) -> World:
    """Return the world in a way that does not keep it alive. May be called with what it returned."""
    known: object = world
    return world if type(known) in weakref.ProxyTypes else cast("World", weakref.proxy(world))


def open_world(clock: Clock) -> World | None:
    """Return the world that the open virtual sensors on this clock live in, for the truth; None where there is none."""
    with _shared_lock:
        world = _shared.get(id(clock))
        return world if world is not None and world.clock is clock else None


@contextmanager
def work(clock: Clock = HOST_CLOCK) -> Iterator[None]:
    """Let the open virtual sensors, opened with ``load="work:low=30,high=90"``, show high power: ``with work(): ...``.

    Raises TargetError: no virtual sensor of this load is open.
    """
    world = open_world(clock)
    if world is None or not isinstance(world.load, Work):
        msg = "no virtual sensor with a load that the program makes is open; open one with load='work:low=30,high=90'"
        raise TargetError(msg)
    world.load.begin(float(world.seconds_since_epoch(clock.now_ns())))
    try:
        yield
    finally:
        world.load.end(float(world.seconds_since_epoch(clock.now_ns())))
