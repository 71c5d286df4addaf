"""Loads that ``pmtpy characterise`` and ``certify`` make: on a GPU, on all cores, or in a virtual device's world.

The schedule is one long block, for the step response, and then blocks of random lengths: such a load has none of the
coincidences with update period and window that a square wave has. A block may load a share of the device only. Each
maker notes when the load really was switched.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.lab._gpu_number import number_among

if TYPE_CHECKING:
    from typing_extensions import Self

_IDLE_S, _BLOCK_S, _PAUSE_S = 1.5, 3.0, 1.5
_MIN_BLOCK_S, _MAX_BLOCK_S = 0.012, 0.09  # of the random blocks: of the order of known windows and update periods
# of virtual sensors: within what every emulated device shows, of which the 12 bits of a Jetson's monitor end first, at
# 155 W
LEVELS_W = (40.0, 140.0)
_MATRIX = 2048  # a product takes about a millisecond on a GPU of 17 TFLOPS
# Of a share of a GPU: one product of these for each multiprocessor that is to be busy. A library cuts a larger one into
# parts for all of them.
_TILE, _DEEP = 128, 2048
_FULL_SHARE = 1.0
_UUID_BYTES = 16


class Running(Protocol):
    """A load that is being made."""

    def edges_ns(self) -> Ints:
        """When it was switched on, off, on, ... so far, on the clock."""
        ...


Maker = AbstractContextManager[Running]


def schedule(seconds: float, seed: int = 1) -> Floats:
    """Return when to switch on, off, on, ... in seconds since the start.

    Raises TargetError: too short for a step and a useful number of random blocks.
    """
    if seconds < 10.0:
        msg = f"{seconds:g} s are too short to characterise a sensor; take at least 10s, better 20s"
        raise TargetError(msg)
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.uniform(np.log(_MIN_BLOCK_S), np.log(_MAX_BLOCK_S), int(2 * seconds / _MIN_BLOCK_S)))
    first = _IDLE_S + _BLOCK_S + _PAUSE_S
    edges = first + np.concatenate([[0.0], np.cumsum(lengths)])
    edges = edges[edges < seconds - 1.0]
    edges = edges[: len(edges) // 2 * 2]
    return np.concatenate([[_IDLE_S, _IDLE_S + _BLOCK_S], edges])


class _Known:
    """A load that follows its schedule exactly."""

    def __init__(self, edges_ns: Ints, keep: object = None) -> None:
        self._edges_ns, self._keep = edges_ns, keep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep = None

    def edges_ns(self) -> Ints:
        """When it is switched."""
        return self._edges_ns


def virtual_watts(shares: Floats) -> Floats:
    """Return the power of a virtual device's world under shares of its load, watts."""
    low, high = LEVELS_W
    return np.asarray(low + (high - low) * shares, np.float64)


def virtual_load(
    options: Mapping[str, str], edges_s: Floats, clock: Clock, shares: Sequence[float] = ()
) -> tuple[Maker, Mapping[str, str]]:
    """Let the virtual device's world follow the schedule, unless a load was chosen for it.

    ``shares`` are how much of the device each block loads; none: all of it.
    """
    if "load" in options:
        return _Known(np.empty(0, np.int64)), options
    from pmtpy.emulators.world import shared_world

    levels = np.zeros(len(edges_s))
    levels[::2] = shares or _FULL_SHARE
    watts = virtual_watts(levels)
    steps = [f"0={LEVELS_W[0]:g}", *(f"{t:.6f}={w:.9g}" for t, w in zip(edges_s, watts, strict=True))]
    spec = "steps:" + ",".join(steps)
    world = shared_world(spec, clock=clock)
    edges = world.epoch_ns + np.round(np.round(edges_s, 6) * NS_PER_S).astype(np.int64)
    return _Known(edges, world), {**options, "load": spec}


class _Switched:
    """A thread that switches a load by the schedule and notes when it did.

    Parameters
    ----------
    work : callable
        Loads a share of the device until an instant of the clock, and returns when the device has finished.
    """

    def __init__(
        self, work: Callable[[int, float], None], edges_s: Floats, clock: Clock, shares: Sequence[float]
    ) -> None:
        self._work, self._edges_s, self._clock = work, edges_s, clock
        self._shares = shares or [_FULL_SHARE] * (len(edges_s) // 2)
        self._edges: list[int] = []
        self._end = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="pmtpy-load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def edges_ns(self) -> Ints:
        """When it was switched; an error of the load is raised here."""
        if self._error is not None:
            raise BackendUnavailableError("characterise", f"the load failed: {self._error}") from self._error
        return np.array(self._edges[: len(self._edges) // 2 * 2], np.int64)

    def _run(self) -> None:
        start = self._clock.now_ns()
        try:
            for (on_s, off_s), share in zip(self._edges_s.reshape(-1, 2), self._shares, strict=True):
                if self._clock.wait_until(start + round(on_s * NS_PER_S), self._end):
                    return
                self._edges.append(self._clock.now_ns())
                self._work(start + round(off_s * NS_PER_S), share)
                self._edges.append(self._clock.now_ns())
        except Exception as error:  # noqa: BLE001  (whatever a vendor's library raises is told at the end)
            self._error = error


def gpu_load(device: str | None, serial: str, edges_s: Floats, clock: Clock, shares: Sequence[float] = ()) -> Maker:
    """Multiply matrices on a GPU, with whichever library for it is installed.

    A block with a share below one is made of as many products as that share of the multiprocessors: how much of the
    device is busy then is known roughly, and what power it takes not at all. ``device`` is as the target names it,
    ``serial`` what the sensor says of itself.

    Raises BackendUnavailableError: none is, or it sees no GPU, or not this one.
    """
    product = _torch(device, serial) or _cupy(device, serial)
    if product is None:
        raise BackendUnavailableError(
            "characterise",
            "making a load on a GPU needs PyTorch or CuPy with CUDA or ROCm, and neither is installed or sees a GPU",
            "pip install torch (or cupy-cuda12x); or record with 'pmtpy dump' while a load of your own runs, and "
            "characterise the file with --load",
        )
    multiply = product

    def work(until_ns: int, share: float) -> None:
        while clock.now_ns() < until_ns:
            multiply(share)

    return _Switched(work, edges_s, clock, shares)


def _torch(given: str | None, serial: str) -> Callable[[float], None] | None:
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():  # that is what HIP is called, too
        return None
    about = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    uuids = [str(getattr(found, "uuid", "")) for found in about]  # since PyTorch 2.4; of HIP it is another one
    number = number_among([""] * len(uuids) if torch.version.hip else uuids, given, serial)
    device = f"cuda:{number}"
    a: Any = torch.rand((_MATRIX, _MATRIX), device=device)
    many = int(torch.cuda.get_device_properties(number).multi_processor_count)
    left: Any = torch.rand((many, _TILE, _DEEP), device=device)
    right: Any = torch.rand((many, _DEEP, _TILE), device=device)

    def product(share: float) -> None:
        if share >= _FULL_SHARE:
            torch.matmul(a, a)
        else:
            some = max(1, round(share * many))
            torch.bmm(left[:some], right[:some])
        torch.cuda.synchronize(number)

    product(_FULL_SHARE)  # the library sets itself up at the first product, which takes seconds
    product(0.5)
    return product


def _cupy(given: str | None, serial: str) -> Callable[[float], None] | None:
    try:
        import cupy
    except ImportError:
        return None
    runtime = cupy.cuda.runtime
    try:
        about = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
        if not about:
            return None
        # A UUID with a byte of zero ends there: it is not known then.
        uuids = [found["uuid"].hex() if len(found.get("uuid", b"")) == _UUID_BYTES else "" for found in about]
        number = number_among(uuids, given, serial)
        with cupy.cuda.Device(number) as device:
            many = int(device.attributes["MultiProcessorCount"])
            a: Any = cupy.random.rand(_MATRIX, _MATRIX, dtype=cupy.float32)
            left: Any = cupy.random.rand(many, _TILE, _DEEP, dtype=cupy.float32)
            right: Any = cupy.random.rand(many, _DEEP, _TILE, dtype=cupy.float32)
    except runtime.CUDARuntimeError:
        return None

    def product(share: float) -> None:
        with cupy.cuda.Device(number):
            if share >= _FULL_SHARE:
                cupy.matmul(a, a)
            else:
                some = max(1, round(share * many))
                cupy.matmul(left[:some], right[:some])
            cupy.cuda.get_current_stream().synchronize()

    product(_FULL_SHARE)
    product(0.5)
    return product


class _Processes:
    """Processes that compute until they are left, one for each core but one, which is left to the polling.

    Parameters
    ----------
    compute : callable
        What each does: of the barrier at which all begin, an event to end, an event of its own, and what is ``given``.
    """

    def __init__(self, compute: Callable[..., None], *given: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._ready = context.Barrier(max(os.cpu_count() or 2, 2))
        self.busy = [context.Event() for _ in range(self._ready.parties - 1)]
        self._processes = [
            context.Process(target=compute, args=(self._ready, self._stop, busy, *given), daemon=True)
            for busy in self.busy
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        self._ready.wait(60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for busy in self.busy:
            busy.set()
        for process in self._processes:
            process.join()


def _compute(ready: Any, stop: Any, busy: Any) -> None:
    """Load one core whenever ``busy`` is set, until ``stop``. Runs in a process of its own."""
    ready.wait(60.0)
    a = np.full((64, 64), 1.0 / 64.0)
    while not stop.is_set():
        busy.wait()
        while busy.is_set() and not stop.is_set():
            for _ in range(20):
                a = a @ a


@contextmanager
def cpu_load(edges_s: Floats, clock: Clock, shares: Sequence[float] = ()) -> Iterator[Running]:
    """Compute on all cores but the one that polls, or on a share of them."""
    never = threading.Event()
    with _Processes(_compute) as cores:

        def work(until_ns: int, share: float) -> None:
            some = cores.busy[: max(1, round(share * len(cores.busy)))]
            for busy in some:
                busy.set()
            clock.wait_until(until_ns, never)
            for busy in some:
                busy.clear()

        with _Switched(work, edges_s, clock, shares) as load:
            yield load


def _compute_at(ready: Any, stop: Any, _busy: Any, hz: float, start_ns: int) -> None:
    """Load one core in the first half of each period since ``start_ns``. Runs in a process of its own."""
    ready.wait(60.0)
    a, never = np.full((32, 32), 1.0 / 32.0), threading.Event()
    period_ns = NS_PER_S / hz
    while not stop.is_set():
        for _ in range(round(hz / 10.0) + 1):  # the flag is another process's: asked ten times a second
            period = math.floor((HOST_CLOCK.now_ns() - start_ns) / period_ns)
            half_ns, end_ns = (start_ns + round((period + part) * period_ns) for part in (0.5, 1.0))
            while HOST_CLOCK.now_ns() < half_ns:
                a = a @ a
            HOST_CLOCK.wait_until(end_ns, never)


def fast_load(hz: float, clock: Clock) -> AbstractContextManager[object]:
    """Compute on all cores but one during half of each period of a frequency, which is the clock's."""
    return _Processes(_compute_at, hz, clock.now_ns())
