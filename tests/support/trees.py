"""Trees of sysfs that live: powercap, hwmon, INA3221 and OCC files driven by time, and the clock that drives them.

Shares nothing with ``pmtpy.emulators``: what a file shows is worked out here from the load and from what the kernel's
and the firmware's documents say, so that a fault that both sides of the project have in common is seen.
"""

from __future__ import annotations

import heapq
import itertools
import math
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pmtpy.core.clock import Anchor

_PATIENCE_S = 20.0  # real time that a thread gets to come back to the clock
_BLOCKED_S = 2.0  # real time after which a thread that was woken is taken to wait for a lock of the conductor's


class SteppedClock:
    """A clock that goes from one appointment to the next, and waits for who was woken to be waiting again.

    So a background thread runs at exactly the instants that it asked for, whatever else the machine does.
    """

    def __init__(self, start_ns: int = 5_000_000_000_123) -> None:
        self._now = start_ns
        self._change = threading.Condition()
        self._waiting: list[tuple[int, int, threading.Event, threading.Event, threading.Thread]] = []
        self._given_up: set[threading.Thread] = set()  # pollers that wait for something else than this clock
        self._order = itertools.count()
        self._movers: list[Callable[[float], None]] = []
        self._conductor = threading.current_thread()
        self.reading_ns = 0  # what a look at the clock takes

    def now_ns(self) -> int:
        self._now += self.reading_ns
        return self._now

    @property
    def seconds(self) -> float:
        return self._now * 1e-9

    def anchor(self) -> Anchor:
        return Anchor(self._now, self._now + 1_700_000_000_000_000_000)

    def on_move(self, mover: Callable[[float], None]) -> None:
        """Call ``mover`` with the seconds whenever time has moved, and now."""
        self._movers.append(mover)
        mover(self.seconds)

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        if threading.current_thread() is self._conductor:  # nobody else would move it
            self.advance((t_ns - self._now) * 1e-9)
            return wake.is_set()
        go = threading.Event()
        with self._change:
            if t_ns <= self._now or wake.is_set():
                return wake.is_set()
            self._given_up.discard(threading.current_thread())
            heapq.heappush(self._waiting, (t_ns, next(self._order), go, wake, threading.current_thread()))
            self._change.notify_all()
        while not go.wait(0.002):
            if wake.is_set():
                with self._change:
                    self._waiting = [w for w in self._waiting if w[2] is not go]
                    heapq.heapify(self._waiting)
                break
        return wake.is_set()

    def _move(self, t_ns: int) -> None:
        self._now = max(self._now, t_ns)
        for mover in self._movers:
            mover(self.seconds)

    def advance(self, seconds: float, *, sleepers: int = 0) -> None:
        """Go on by ``seconds``; ``sleepers`` threads are known to wait, and are waited for after each appointment."""
        until = self._now + round(seconds * 1e9)
        while True:
            self._let_finish()
            with self._change:
                if sleepers and not self._change.wait_for(lambda: len(self._waiting) >= sleepers, _PATIENCE_S):
                    raise TimeoutError("a thread did not come back to the clock")
                if not self._waiting or self._waiting[0][0] > until:
                    break
                t_ns, _, go, _, _ = heapq.heappop(self._waiting)
                self._move(t_ns)
                go.set()
        self._move(until)

    def _let_finish(self) -> None:
        """Wait until each poller waits again or has ended: a reading during a move is stamped and read apart.

        One that waits for a lock of the conductor's comes back only later, and is given up after a moment.
        """
        given_up = time.monotonic() + _BLOCKED_S
        while busy := self._busy():
            if time.monotonic() > given_up:
                self._given_up |= busy
                return
            with self._change:
                self._change.wait(0.002)

    def _busy(self) -> set[threading.Thread]:
        pollers = {thread for thread in threading.enumerate() if thread.name.startswith("pmtpy-poller")}
        with self._change:
            waiting = {thread for _, _, _, wake, thread in self._waiting if not wake.is_set()}
        return pollers - waiting - self._given_up - {threading.current_thread()}


class Load:
    """A power over time whose energy is known in closed form."""

    def watts(self, t: float) -> float:
        raise NotImplementedError

    def joules(self, t: float) -> float:
        raise NotImplementedError

    def between(self, a_s: float, b_s: float) -> float:
        return self.joules(b_s) - self.joules(a_s)


class Constant(Load):
    def __init__(self, watts: float) -> None:
        self._watts = watts

    def watts(self, t: float) -> float:
        return self._watts

    def joules(self, t: float) -> float:
        return self._watts * t


class Square(Load):
    """``high`` for a share ``duty`` of each ``period`` seconds, then ``low``."""

    def __init__(self, low: float, high: float, period: float, duty: float = 0.5, phase: float = 0.0) -> None:
        self.low, self.high, self.period, self.duty, self.phase = low, high, period, duty, phase

    def watts(self, t: float) -> float:
        return self.high if ((t - self.phase) / self.period) % 1.0 < self.duty else self.low

    def joules(self, t: float) -> float:
        whole, part = divmod((t - self.phase) / self.period, 1.0)
        on = whole * self.duty + min(part, self.duty)
        return self.low * (t - self.phase) + (self.high - self.low) * on * self.period


class Sum(Load):
    """Several loads at once, each times a factor."""

    def __init__(self, *parts: tuple[float, Load]) -> None:
        self.parts = parts

    def watts(self, t: float) -> float:
        return sum(f * p.watts(t) for f, p in self.parts)

    def joules(self, t: float) -> float:
        return sum(f * p.joules(t) for f, p in self.parts)


Content = Callable[[float], str | bytes | None]


class Tree:
    """Files below a root; each shows what its function says of the instant. A function that says None removes it."""

    def __init__(self, root: Path, clock: SteppedClock) -> None:
        self.root, self.clock = root, clock
        self._live: dict[Path, Content] = {}
        root.mkdir(parents=True, exist_ok=True)
        clock.on_move(self._refresh)

    def put(self, path: str, content: str | bytes | Content) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            self._live[file] = content
            self._write(file, content(self.clock.seconds))
        else:
            self._write(file, content)
        return file

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / target)

    @staticmethod
    def _write(file: Path, content: str | bytes | None) -> None:
        if content is None:
            file.unlink(missing_ok=True)
            return
        data = content.encode() if isinstance(content, str) else content
        with file.open("r+b" if file.exists() else "wb") as f:
            f.write(data)
            f.truncate()

    def _refresh(self, t: float) -> None:
        for file, content in self._live.items():
            self._write(file, content(t))


# -- powercap ----------------------------------------------------------------------------------------------------------

UNIT_J = 2.0**-14
RANGE_UJ = 262143328850


def register(
    load: Load, *, share: float = 1.0, step_s: float = 2.0**-10, unit_j: float = UNIT_J, start_j: float = 1000.0,
    range_uj: int = RANGE_UJ, dies_at: float = math.inf, restarts_at: float = math.inf,
) -> Content:  # fmt: skip
    """What ``energy_uj`` shows: the energy at the last tick of ``step_s``, in whole units, modulo the range."""

    def show(t: float) -> str:
        at = min(t, dies_at)
        tick = math.floor(at / step_s) * step_s
        joules = start_j + share * load.joules(tick) if t < restarts_at else share * load.between(restarts_at, tick)
        return f"{math.floor(joules / unit_j) * round(unit_j * 1e9) // 1000 % range_uj}\n"

    return show


def zone(
    tree: Tree, number: str, name: str, energy: str | Content, *, limits: bool = True, range_uj: int = RANGE_UJ
) -> Path:
    """A zone of powercap; ``number`` is ``0`` or ``0:1``. Returns its energy file."""
    control = "intel-rapl"
    outer = ":".join([control, number.split(":", maxsplit=1)[0]])
    place = f"devices/virtual/powercap/{control}/{outer}"
    if ":" in number:
        place += f"/{control}:{number}"
    tree.put(f"{place}/name", f"{name}\n")
    tree.put(f"{place}/max_energy_range_uj", f"{range_uj}\n")
    if limits:
        tree.put(f"{place}/constraint_0_power_limit_uw", "125000000\n")
        tree.put(f"{place}/constraint_0_max_power_uw", "125000000\n")
    file = tree.put(f"{place}/energy_uj", energy)
    tree.link(f"class/powercap/{control}:{number}", place)
    return file


def processor(tree: Tree, vendor: int, packages: int = 1) -> None:
    """What the kernel says of the processors: vendor (0 Intel, 2 AMD) and the package of each CPU."""
    tree.put("devices/system/cpu/modalias", f"cpu:type:x86,ven{vendor:04X}fam0006mod0055:feature:,0000\n")
    for cpu in range(2 * packages):
        tree.put(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{cpu // 2}\n")


# -- hwmon -------------------------------------------------------------------------------------------------------------


def chip(tree: Tree, number: int, name: str, files: Mapping[str, str | Content], *, device: str = "") -> Path:
    """A chip of the hwmon class; with ``device`` (``i2c-1/1-0040``, ``platform/...``) below that device."""
    place = f"devices/{device or f'virtual/chip{number}'}/hwmon/hwmon{number}"
    tree.put(f"{place}/name", f"{name}\n")
    for file, content in files.items():
        tree.put(f"{place}/{file}", content)
    tree.link(f"class/hwmon/hwmon{number}", place)
    if device:
        tree.link(f"{place}/device", f"devices/{device}")
    return tree.root / place


class Ina3221:
    """The converter: its three channels one after the other, shunt then bus, 1.1 ms each, and a register that averages.

    Each conversion moves the register by (new - old) / n (data sheet SBOS576); shown are whole steps of 40 uV and 8 mV.
    Conversions lie on a lattice of the chip's own, which begins at ``phase_s``.
    """

    def __init__(self, loads: list[Load], *, volts: float = 5.0, shunt: float = 0.005, samples: int = 1,
                 phase_s: float = 0.0, conversion_s: float = 1.1e-3) -> None:  # fmt: skip
        self.loads, self.volts, self.shunt, self.samples, self.phase_s = loads, volts, shunt, samples, phase_s
        self.conversion_s = conversion_s
        self.cycle_s = conversion_s * 2 * len(loads)
        self._done: int | None = None
        self._amps: list[float] = []

    @property
    def update_ms(self) -> int:
        return max(1, round(self.cycle_s * self.samples * 1e3))

    def _convert(self, cycle: int, i: int) -> float:
        start = self.phase_s + cycle * self.cycle_s + 2 * i * self.conversion_s
        return self.loads[i].between(start, start + self.conversion_s) / self.conversion_s / self.volts

    def amps(self, t: float, i: int) -> float:
        now = math.floor((t - self.phase_s) / self.cycle_s) - 1  # the last whole cycle
        if self._done is None or now - self._done > 40 * self.samples + 100:
            self._done = now - 8 * self.samples - 1
            self._amps = [self._convert(self._done, j) for j in range(len(self.loads))]
        while self._done < now:
            self._done += 1
            for j in range(len(self.loads)):
                self._amps[j] += (self._convert(self._done, j) - self._amps[j]) / self.samples
        step = 40e-6 / self.shunt
        return round(self._amps[i] / step) * step

    def _milliamperes(self, i: int) -> Content:
        return lambda t: f"{round(self.amps(t, i) * 1e3)}\n"

    def put(self, tree: Tree, number: int, labels: list[str], address: str = "1-0040") -> Path:
        files: dict[str, str | Content] = {
            "samples": f"{self.samples}\n",
            "update_interval": f"{self.update_ms}\n",
        }
        for i, label in enumerate(labels):
            n = i + 1
            files[f"in{n}_label"] = f"{label}\n"
            files[f"in{n}_enable"] = "1\n"
            files[f"in{n}_input"] = f"{round(self.volts / 8e-3) * 8}\n"
            files[f"curr{n}_input"] = self._milliamperes(i)
            files[f"shunt{n}_resistor"] = f"{round(self.shunt * 1e6)}\n"
        return chip(tree, number, "ina3221", files, device=f"i2c-1/{address}")


# -- OCC ---------------------------------------------------------------------------------------------------------------

BLOCK = 153_600
_NAMES, _PING, _PONG = 0x400, 0xDC00, 0x18C00
TIMEBASE_HZ = 512e6


class Occ:
    """One block of the exported file (OCC interface specification 0.24, section 11.3)."""

    def __init__(self, sensors: dict[str, tuple[Load, float]], *, cycle_s: float = 0.0401, tick_s: float = 0.5e-3,
                 phase_s: float = 0.0, dies_at: float = math.inf) -> None:  # fmt: skip
        """``sensors``: name to its load and its rate of samples (Hz)."""
        self.sensors, self.cycle_s, self.tick_s, self.phase_s, self.dies_at = sensors, cycle_s, tick_s, phase_s, dies_at
        self._sums: dict[str, list[float]] = {}
        self._from_s: float | None = None

    def header(self) -> bytes:
        head = struct.pack(">BBHB3xIBBHII", 1, 1, len(self.sensors), 1, _NAMES, 1, 48, 0, _PING, _PONG)
        table = b""
        for i, (name, (_, rate)) in enumerate(self.sensors.items()):
            exponent = 0
            number = round(rate)
            freq = (number << 8) | exponent
            scale = (1 << 8) | 0
            table += struct.pack(">16s4sHIIHHBIB8x", name.encode(), b"W", i + 1, freq, scale, 0x80, 1, 1, 8 + 48 * i, 0)
        return head.ljust(0x400, b"\0") + table

    def _record(self, i: int, name: str, at: float) -> bytes:
        load, rate = self.sensors[name]
        if self._from_s is None:
            self._from_s = at - 10.0
        first, last = math.floor(self._from_s * rate), math.floor(at * rate)
        # Each sample is the rounded power of its period.
        sums = self._sums.setdefault(name, [0.0, float(first)])
        k = int(sums[1])
        while k < last:
            k += 1
            sums[0] += round(load.between((k - 1) / rate, k / rate) * rate)
        sums[1] = k
        sample = round(load.between((last - 1) / rate, last / rate) * rate)
        stamp = round(last / rate * TIMEBASE_HZ)
        return struct.pack(
            ">HQHHHHHHHHHQI8x", i + 1, stamp, sample, 0, 65535, 0, 65535, 0, 65535, 0, 65535,
            int(sums[0]) + 10**6, (k - first) & 0xFFFFFFFF,
        )  # fmt: skip

    def _buffer(self, cycle: int) -> bytes:
        at = min(self.phase_s + cycle * self.cycle_s, self.dies_at)
        return b"\1".ljust(8, b"\0") + b"".join(self._record(i, n, at) for i, n in enumerate(self.sensors))

    def show(self, t: float) -> bytes:
        cycle = math.floor((min(t, self.dies_at) - self.phase_s) / self.cycle_s) - 1
        older, newer = self._buffer(cycle - 1), self._buffer(cycle)
        ping, pong = (newer, older) if cycle % 2 else (older, newer)
        block = bytearray(BLOCK)
        head = self.header()
        block[: len(head)] = head
        block[_PING : _PING + len(ping)] = ping
        block[_PONG : _PONG + len(pong)] = pong
        return bytes(block)
