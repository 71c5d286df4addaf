"""The second way to the RAPL counters: the kernel's perf events, for users who may not read powercap.

Facts: Linux ``arch/x86/events/rapl.c`` (events, scales, one CPU per package or die), ``man 2 perf_event_open`` and
``include/uapi/linux/perf_event.h`` (the attribute). Counts are 64 bits wide and do not wrap; the kernel collects the
32-bit register behind them on a timer that is sized for 200 W, so the events are read more often than that.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import re
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pmtpy._handlers import of_a_handler
from pmtpy.backends._descriptor import closed_by_the_program, marked, ours
from pmtpy.backends._sysfs import optional_number, optional_text, why
from pmtpy.backends.rapl._channels import MAX_WATTS, MAX_WATTS_PLATFORM, Kind, Part, counter
from pmtpy.core.channel import Channel
from pmtpy.core.presentation import amount
from pmtpy.errors import ReadError

_KINDS = {
    "energy-pkg": Kind.PACKAGE,
    "energy-cores": Kind.CORE,
    "energy-gpu": Kind.UNCORE,
    "energy-ram": Kind.DRAM,
    "energy-psys": Kind.PSYS,
}

_SYSCALL = {"x86_64": 298}  # arch/x86/entry/syscalls/syscall_64.tbl; RAPL exists on x86 only
_ATTRIBUTE_BYTES = 128  # PERF_ATTR_SIZE_VER7; older kernels accept more bytes than they know if those are zero
_CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC


class Events(Protocol):
    """The kernel's side: opens, reads and closes counting events. The emulator has another."""

    def open(self, kind: int, config: int, cpu: int) -> int:
        """Open event ``config`` of the unit ``kind`` on ``cpu``; return its handle, or raise OSError."""
        ...

    def read(self, handle: int) -> int:
        """Return the count, or raise OSError."""
        ...

    def close(self, handle: int) -> None:
        """Release the event."""
        ...


class KernelEvents:
    """The events of the kernel that runs this process.

    A descriptor that the program has closed is a bad one (EBADF), also where its number has become another's.
    """

    def __init__(self) -> None:
        # descriptors and their marks by handle: of a closed one the number may be that of a later one
        self._open: dict[int, tuple[int, int]] = {}
        self._next = 0

    def open(self, kind: int, config: int, cpu: int) -> int:
        """Open a counting event for all processes on one CPU."""
        number = _SYSCALL.get(os.uname().machine)
        if number is None:
            msg = f"perf energy events exist on x86 only, and this is {os.uname().machine}"
            raise OSError(msg)
        attribute = struct.pack("=IIQ", kind, _ATTRIBUTE_BYTES, config).ljust(_ATTRIBUTE_BYTES, b"\0")
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        every_process, no_group = ctypes.c_long(-1), ctypes.c_long(-1)
        fd = call(
            ctypes.c_long(number),
            attribute,
            every_process,
            ctypes.c_long(cpu),
            no_group,
            ctypes.c_ulong(_CLOSE_ON_EXEC),
        )
        if fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        mark = marked(fd)
        self._next += 1
        # An event whose number this one has got was closed by the program, whatever the marks are.
        self._open = {handle: known for handle, known in self._open.items() if known[0] != fd}
        self._open[self._next] = int(fd), mark
        return self._next

    def read(self, handle: int) -> int:
        """Read the 64-bit count."""
        raw = os.read(_number(self._open.get(handle)), 8)
        return int.from_bytes(raw, "little") if len(raw) == 8 else _short(raw)

    def close(self, handle: int) -> None:
        """Close the descriptor."""
        os.close(_number(self._open.pop(handle, None)))


def _number(known: tuple[int, int] | None) -> int:
    if known is None or not ours(*known):
        raise closed_by_the_program()
    return known[0]


def _short(raw: bytes) -> int:
    msg = f"an event answered with {amount(len(raw), 'byte')} instead of 8"
    raise OSError(msg)


@dataclass(frozen=True, slots=True)
class Event:
    """One event on one CPU, and what it counts; ``scale`` is joules per count."""

    part: Part
    kind: int
    config: int
    cpu: int
    scale: float


def cpu_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's list of CPUs: ``0,18`` or ``0-3,8``.

    Raises ValueError: it is none.
    """
    cpus: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", piece)
        if match is None:
            msg = f"{text!r} is not a list of CPUs"
            raise ValueError(msg)
        cpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(cpus))


def _config(text: str) -> int | None:
    match = re.fullmatch(r"event=(0x[0-9a-fA-F]{1,8})", text)
    return int(match[1], 16) if match else None


def _places(root: Path, cpus: Sequence[int]) -> dict[int, tuple[int, int | None]]:
    """Package of each CPU, and its die where the kernel counts several dies of a package."""
    at: dict[int, tuple[int, int]] = {}
    for cpu in cpus:
        topology = root / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
        package = optional_number(topology / "physical_package_id")
        if package is not None and package >= 0:
            at[cpu] = package, optional_number(topology / "die_id") or 0
    packages = [package for package, _ in at.values()]
    return {cpu: (package, die if packages.count(package) > 1 else None) for cpu, (package, die) in at.items()}


def find_events(root: Path) -> tuple[Event, ...]:
    """Find the energy events of the machine; empty where the kernel offers none or describes them oddly."""
    unit = root / "bus" / "event_source" / "devices" / "power"
    kind = optional_number(unit / "type")
    try:
        cpus = cpu_list(optional_text(unit / "cpumask") or "")
    except ValueError:
        return ()
    places = _places(root, cpus)
    if kind is None or len(places) < len(cpus):  # a CPU of unknown package would be missing from the total
        return ()
    found: dict[str, Event] = {}
    for name, counted in _KINDS.items():
        config = _config(optional_text(unit / "events" / name) or "")
        scale = _scale(unit, name)
        if config is None or scale is None:
            continue
        # One register for the whole platform, which every listed CPU would show again.
        for cpu in list(places)[:1] if counted is Kind.PSYS else places:
            package, die = places[cpu]
            part = Part(counted, package, None if counted is Kind.PSYS else die)
            found.setdefault(part.name, Event(part, kind, config, cpu, scale))
    return tuple(sorted(found.values(), key=lambda event: event.part.order))


def _scale(unit: Path, name: str) -> float | None:
    """Joules per count, from the files: never assumed."""
    if optional_text(unit / "events" / f"{name}.unit") != "Joules":
        return None
    try:
        scale = float(optional_text(unit / "events" / f"{name}.scale") or "")
    except ValueError:
        return None
    return scale if 0 < scale < 1 else None


class OpenEvents:
    """The events of a machine, open; read together, as :class:`~pmtpy.backends._sysfs.Registers` reads files.

    Counts start at zero when an event is opened. One that the program has closed (with all descriptors, to become a
    daemon) is opened again by the next reading. Used by one thread at a time.

    Attributes
    ----------
    alone : frozenset of int
        The events that may fail alone; it can be changed at any time.
    renewed : set of int
        The events that were opened anew since their owner last emptied it; the others have counted all the time.
    unread : dict of int to str
        Why events that may fail alone did in the last reading, by their numbers.
    """

    def __init__(
        self, events: Sequence[Event], kernel: Events, find: Callable[[], Sequence[Event]], alone: Collection[int] = ()
    ) -> None:
        """Open the events; one that fails is later looked for among those that ``find`` finds, on whatever CPU.

        Raises OSError: one cannot be opened.
        """
        self._find, self._kernel = find, kernel
        self._events = tuple(events)
        self._handles: list[int] = []
        self.alone, self.renewed, self.unread = frozenset(alone), set[int](), dict[int, str]()
        try:
            for event in self._events:
                self._handles.append(kernel.open(event.kind, event.config, event.cpu))
        except BaseException:
            self.close()
            raise

    def numbers(self) -> list[int] | list[float]:
        """Read every event once, in order.

        Raises ReadError: an event that must not fail could not be read. The message names it and says why.
        """
        read = self._kernel.read
        if self.unread:
            self.unread = {}
        try:
            return [read(handle) for handle in self._handles]
        except OSError as error:
            if of_a_handler(error):
                raise
        # Once more, to learn which event it was.
        return [self._one(i, handle) for i, handle in enumerate(self._handles)]

    def look_again(self) -> None:
        """Open those anew that failed in the last reading, where they count again."""
        now = {event.part: event for event in self._find()} if self.unread else {}
        for i in self.unread:
            event = now.get(self._events[i].part)
            # A count of another size would be another channel.
            handle = self._counting(event) if event and event.scale == self._events[i].scale else None
            if handle is not None:
                self._renew(i, handle)

    def close(self) -> None:
        """Close all. May be called twice."""
        handles, self._handles = self._handles, []
        for handle in handles:
            self._close(handle)

    def _one(self, i: int, handle: int) -> float:
        try:
            return self._kernel.read(handle)
        except OSError as error:
            if of_a_handler(error):
                raise
            if error.errno == errno.EBADF and (again := self._counting(self._events[i])) is not None:
                self._renew(i, again)
                return self._kernel.read(again)
            told = f"perf event of {self._events[i].part.name}: {why(error)}"
            if i not in self.alone:
                raise ReadError(told) from error
            self.unread[i] = told
            return math.nan

    def _renew(self, i: int, handle: int) -> None:
        old, self._handles[i] = self._handles[i], handle
        self.renewed.add(i)
        self._close(old)

    def _counting(self, event: Event) -> int | None:
        """Open an event; None: it cannot be opened, or not be read either."""
        handle = None
        try:
            handle = self._kernel.open(event.kind, event.config, event.cpu)
            self._kernel.read(handle)
        except OSError as error:
            if handle is not None:
                self._close(handle)
            if of_a_handler(error):
                raise
            return None
        return handle

    def _close(self, handle: int) -> None:
        try:
            self._kernel.close(handle)
        except OSError as error:  # the program has closed it: nothing is left to do
            if of_a_handler(error):
                raise


def channels(events: Sequence[Event], *, dies_mirrored: bool) -> tuple[Channel, ...]:
    """Give each event its channel: the same names as those of powercap."""
    return tuple(
        counter(
            event.part,
            scale=event.scale,
            domain=event.part.domain(dies_mirrored=dies_mirrored),
            max_watts=MAX_WATTS_PLATFORM if event.part.kind is Kind.PSYS else MAX_WATTS,
            label=f"{event.part.kind.value} on cpu {event.cpu}",
        )
        for event in events
    )
