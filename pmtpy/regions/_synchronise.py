"""Work that runs elsewhere: waiting for a device, and its own account of how long it worked.

A call that starts work on a GPU returns before the work is done, so a region around it would end too early and begin
with the work of those before. Packages are imported when they are named, and never otherwise.

What each offers: PyTorch waits by ``torch.cuda.synchronize`` (also ROCm; MPS and XPU have their own) and times by
``torch.cuda.Event(enable_timing=True)``; CuPy by ``Device.synchronize`` and ``cupy.cuda.get_elapsed_time``; JAX has no
events, and waits for effects and for all arrays that live (``jax.effects_barrier``, ``jax.block_until_ready``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal, Protocol

from pmtpy._extras import extra
from pmtpy.errors import TargetError

Sync = Literal["torch", "cupy", "jax"] | Callable[[], object]

_NS_PER_MS = 1e6
# Waiting for the device behind an event takes longer than this where another stream still works. No sensor resolves it.
_OTHER_STREAMS_NS = 1_000_000


class Device(Protocol):
    """What a region needs of a device that works on its own."""

    def wait(self) -> None:
        """Wait until all work that was started is done."""
        ...

    def begin(self, now_ns: Callable[[], int]) -> None:
        """Note that the region begins; nothing is waited for."""
        ...

    def end(self) -> tuple[int, int] | None:
        """Wait, and return from when to when the device worked (ns, by ``now_ns``), where it says so."""
        ...


class Waiting:
    """A device without events."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self._wait = wait

    def wait(self) -> None:
        """Wait.

        Raises TargetError: the callable hands out something that is to be awaited, so it has not waited.
        """
        awaitable = self._wait()
        if hasattr(awaitable, "__await__"):
            getattr(awaitable, "close", lambda: None)()  # else Python says later that it was never awaited
            msg = f"sync={self._wait!r} is asynchronous, and a region awaits nothing: give a function that waits itself"
            raise TargetError(msg)

    def begin(self, now_ns: Callable[[], int]) -> None:
        """Note nothing."""

    def end(self) -> None:
        """Wait; nothing tells when it worked."""
        self.wait()


class Timed:
    """A device with events: one is put before the work of the region and one behind it.

    Parameters
    ----------
    ready : callable
        Whether the device has been used; until then there is nothing to wait for, and asking it would set it up.
    event : callable
        Makes an event with ``record()``.
    elapsed_ms : callable
        Milliseconds from event to event.
    """

    def __init__(
        self,
        wait: Callable[[], object],
        ready: Callable[[], bool],
        event: Callable[[], Any],
        elapsed_ms: Callable[[Any, Any], float],
    ) -> None:
        self._wait, self._ready, self._event, self._elapsed_ms = wait, ready, event, elapsed_ms
        self._begun: tuple[Callable[[], int], int, Any] | None = None

    def wait(self) -> None:
        """Wait, if it was used."""
        if self._ready():
            self._wait()

    def begin(self, now_ns: Callable[[], int]) -> None:
        """Put the first event; the device is idle, so it passes it now."""
        if self._ready():
            event = self._event()
            event.record()
            self._begun = (now_ns, now_ns(), event)

    def end(self) -> tuple[int, int] | None:
        """Put the last event, wait for it and for all else, and return when the device worked."""
        if not self._ready():
            return None
        begun, self._begun = self._begun, None
        if begun is None:
            self._wait()
            return None
        now_ns, start_ns, first = begun
        last = self._event()
        last.record()
        last.synchronize()
        passed_ns = now_ns()
        self._wait()
        done_ns = now_ns()
        try:
            worked_ns = round(self._elapsed_ms(first, last) * _NS_PER_MS)
        except (RuntimeError, ValueError):  # the program went to another device meanwhile: nothing is known of this one
            return None
        # An event sees the stream alone that it is in.
        return start_ns, done_ns if done_ns - passed_ns > _OTHER_STREAMS_NS else start_ns + worked_ns


def device_of(sync: Sync) -> Device:
    """Return the device that is meant.

    Raises BackendUnavailableError: its package is not installed.
    Raises TargetError: nothing of that name is known.
    """
    if callable(sync):
        return Waiting(sync)
    made = {"torch": _torch, "cupy": _cupy, "jax": _jax}.get(sync) if isinstance(sync, str) else None
    if made is None:
        msg = f"sync={sync!r} is none of: torch, cupy, jax, or a callable that waits for the work to be done"
        raise TargetError(msg)
    with extra(sync, f"sync={sync!r} (a callable that waits needs no package)"):
        package = importlib.import_module(sync)
    return made(package)


def _torch(torch: Any) -> Device:
    for name in ("mps", "xpu"):
        part = getattr(torch, name, None)
        if part is not None and not torch.cuda.is_available() and getattr(part, "is_available", lambda: False)():
            return Waiting(part.synchronize)
    return Timed(
        torch.cuda.synchronize,
        lambda: bool(torch.cuda.is_available() and torch.cuda.is_initialized()),
        lambda: torch.cuda.Event(enable_timing=True),
        lambda a, b: float(a.elapsed_time(b)),
    )


def _cupy(cupy: Any) -> Device:
    return Timed(
        lambda: cupy.cuda.Device().synchronize(),
        lambda: True,
        cupy.cuda.Event,
        lambda a, b: float(cupy.cuda.get_elapsed_time(a, b)),
    )


def _jax(jax: Any) -> Device:
    def wait() -> None:
        jax.effects_barrier()
        jax.block_until_ready(jax.live_arrays())

    return Waiting(wait)
