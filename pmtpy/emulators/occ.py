"""An emulated POWER9 machine: On-Chip Controllers that sample a load and copy their sensors to memory, chunk by chunk.

Everything that makes the real interface hard is there: two buffers in turn, their valid bytes, records of one buffer
from several instants, stamps of the 512 MHz time base, rails that are sampled at a quarter of the ticks although the
table says half, counters that began long ago, sensors that were never sampled.

Facts: OCC Firmware Interface Specification for POWER9 v0.24, section 11.3; OCC firmware (``sensor_main_memory.c``,
``amec_sensors_power.c``); rates and periods as measured by Tröpgen, Bielert, Ilsche, ICPE '23,
doi 10.1145/3578244.3583729.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from pmtpy.backends.occ import open_source
from pmtpy.backends.occ.layout import BLOCK_BYTES, BUFFER_BYTES, CHUNK_STRIDE, UNKNOWN_TIME
from pmtpy.core.clock import Clock
from pmtpy.core.rows import Ints
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world
from pmtpy.errors import TargetError

TICKS_PER_S = 1996.18  # measured; nominally 2000
_STEP_TICKS = 16
FILE = "firmware/opal/exports/occ_inband_sensors"

_NAMES, _PING, _PONG = 0x400, 0xDC00, 0x18C00
_CHUNK = 4096
_BULK = 1 << 16  # ticks that are summed at once when time has made a leap
_BOOT_S = 86_400.0  # how long the machine has been running when the world begins

_RECORD = np.dtype(
    {
        "names": ["gsid", "stamp", "samples", "sum", "tag"],
        "formats": [">u2", ">u8", (">u2", 9), ">u8", ">u4"],
        "offsets": [0, 2, 10, 28, 36],
        "itemsize": 48,
    }
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One sensor of an emulated OCC."""

    name: str
    units: str
    # code, location: type and place, as in the table
    code: int
    location: int
    _: KW_ONLY
    share: float = 0.0  # part of the load that it measures
    level: int = 0  # what it shows without a load, in steps
    scale: int = 0x0100  # the word of the scale factor
    every: int = 1  # ticks between two samples; 0: never sampled
    rate: int = 0x0203  # the word of the nominal rate
    truncated: bool = False  # whether samples are truncated rather than rounded
    function: int = 0  # function of the converter channel
    counter: bool = False  # whether its record has the short form


def _row(count: int, digits: int, first: Kind) -> Iterator[Kind]:
    for i in range(count):
        yield replace(first, name=f"{first.name}{i:0{digits}}")


def _powers(socket: int, sockets: int) -> Iterator[Kind]:
    """The power sensors; those of the whole machine in the first block only. The parts are shares of the load."""
    processor, memory, gpus = 0.5 / sockets, 0.1 / sockets, 0.3 / sockets
    if socket == 0:
        yield Kind("PWRSYS", "W", 0x80, 0x01, share=1.0)
    yield Kind("PWRGPU", "W", 0x80, 0x80, share=gpus)
    if socket == 0:
        # (function, share): references and idle channels are listed but never sampled.
        fed = [(20, 0.0), (1, memory), (2, memory), (5, 0.6 * processor), (6, 0.6 * processor), (9, 0.26 * processor)]
        fed += [(10, 0.26 * processor), (24, gpus), (31, gpus), (13, 0.04), (16, 0.04), (18, 0.02), (22, 1.0)]
        fed += [(21, 0.0), (28, 0.0), (0, 0.0)]
        for i, (function, share) in enumerate(fed):
            every = 1 if share else 0
            yield Kind(f"PWRAPSSCH{i}", "W", 0x80, 0x01, share=share, every=every, function=function)
    yield Kind("PWRPROC", "W", 0x80, 0x02, share=processor)
    for rail, part in (("PWRVDD", 0.6), ("PWRVDN", 0.14)):
        yield Kind(rail, "W", 0x80, 0x02, share=part * processor, every=4, rate=0x0103, truncated=True)
    yield Kind("PWRMEM", "W", 0x80, 0x08, share=memory)


def sensors_of(socket: int, sockets: int = 2) -> list[Kind]:
    """All sensors of one OCC, grouped by type as the firmware does: 337 of the first, 320 of the others."""
    slow, quick = 2000, 16  # once a second, and every 8 ms
    hz1, hz125, hz500 = 0x0100, 0x7D00, 0x0502
    kinds = [
        Kind("CURVDD", "A", 0x02, 0x10, level=2500, scale=0x01FE, every=4, rate=hz500),
        Kind("CURVDN", "A", 0x02, 0x10, level=800, scale=0x01FE, every=4, rate=hz500),
        Kind("VOLTVDD", "mV", 0x04, 0x10, level=9000, scale=0x01FF, every=4, rate=hz500),
        Kind("VOLTVDN", "mV", 0x04, 0x10, level=7000, scale=0x01FF, every=4, rate=hz500),
        Kind("VOLTVDDSENSE", "mV", 0x04, 0x10, level=8900, scale=0x01FF, every=4, rate=hz500),
        Kind("VOLTVDNSENSE", "mV", 0x04, 0x10, level=6900, scale=0x01FF, every=4, rate=hz500),
        *_row(24, 2, Kind("VOLTDROOPCNTC", "#", 0x04, 0x40, counter=True, level=3, every=quick, rate=hz125)),
        *_row(6, 1, Kind("VOLTDROOPCNTQ", "#", 0x04, 0x100, counter=True, level=3, every=quick, rate=hz125)),
        Kind("TEMPNEST", "C", 0x08, 0x02, level=41, every=slow, rate=hz1),
        Kind("TEMPVDD", "C", 0x08, 0x10, level=52, every=slow, rate=hz1),
        *_row(24, 2, Kind("TEMPPROCTHRMC", "C", 0x08, 0x40, level=45, every=slow, rate=hz1)),
        *_row(6, 1, Kind("TEMPQ", "C", 0x08, 0x100, level=44, every=slow, rate=hz1)),
        *_row(34, 2, Kind("TEMPDIMM", "C", 0x08, 0x08, level=36, every=slow, rate=hz1)),
        *_row(3, 1, Kind("TEMPGPU", "C", 0x08, 0x80, level=38, every=slow, rate=hz1)),
        *_row(3, 1, Kind("TEMPGPUMEM", "C", 0x08, 0x80, level=37, every=slow, rate=hz1)),
        Kind("UTIL", "%", 0x10, 0x02, level=5000, scale=0x01FE, every=quick, rate=hz125),
        *_row(24, 2, Kind("UTILC", "%", 0x10, 0x40, level=5000, scale=0x01FE, every=quick, rate=hz125)),
        Kind("FREQA", "MHz", 0x40, 0x02, level=3450, every=quick, rate=hz125),
        *_row(24, 2, Kind("FREQAC", "MHz", 0x40, 0x40, level=3450, every=quick, rate=hz125)),
        *_powers(socket, sockets),
        *_row(24, 2, Kind("IPSC", "MIP", 0x200, 0x40, level=1000, every=quick, rate=hz125)),
        *_row(64, 2, Kind("MRDM", "GBs", 0x200, 0x08, level=900, scale=0x40FB, every=quick, rate=hz125)),
        *_row(64, 2, Kind("MWRM", "GBs", 0x200, 0x08, level=300, scale=0x40FB, every=quick, rate=hz125)),
        Kind("STOPDEEPC", "ss", 0x200, 0x40, level=1, every=quick, rate=hz125),
        *_row(4, 1, Kind("PROCOT", "#", 0x200, 0x02, counter=True, every=quick, rate=hz125)),
    ]
    assert len(kinds) == (337 if socket == 0 else 320)  # noqa: S101  (the lists of the machine that was measured)
    return kinds


class EmulatedOcc:
    """One OCC: samples its sensors at every tick and writes its block, step by step.

    Attributes
    ----------
    image : bytearray
        The block, as the host sees it.
    running : bool
        False: it has died, and its last readings stay marked as valid.
    time_known : bool
        False: there is no time of day, and stamps are all ones.
    """

    def __init__(self, world: World, kinds: Sequence[Kind], *, shift: int = 0, gsid: int = 1) -> None:
        self._world = world
        self._shift = shift  # ticks by which its cycle lags behind that of the first OCC
        self.running = True
        self.time_known = True
        self.image = bytearray(BLOCK_BYTES)
        self._full = [k for k in kinds if not k.counter]
        self._place(kinds, gsid)
        self._level = np.array([k.level for k in self._full])
        self._every = np.array([k.every for k in self._full])
        self._cadence = np.maximum(self._every, 1)
        self._share_of = np.array([k.share for k in self._full])
        self._loaded = np.flatnonzero(self._share_of)
        self._share = self._share_of[self._loaded]
        self._round = np.array([0.0 if self._full[i].truncated else 0.5 for i in self._loaded])
        watching = [(every, np.flatnonzero(self._every[self._loaded] == every)) for every in (1, 4)]
        self._watching = [(every, some) for every, some in watching if len(some)]
        self._steady = np.where(self._share_of == 0, self._level, 0).astype(np.uint64)  # of the others, the load says
        self._sum = np.zeros(len(self._full), np.uint64)
        self._tag = np.zeros(len(self._full), np.uint64)
        self._latest = np.zeros((3, len(self._full)), np.int64)  # sample, lowest, highest
        self._tick = -6 * _STEP_TICKS * (self._chunks + 1)
        self._first_step = 0
        self._next_cycle()
        self._since_boot(round(_BOOT_S * TICKS_PER_S))

    def restart(self) -> None:
        """Count from zero again, with both buffers invalid until the first one is filled. Stamps go on."""
        self._sum[:] = self._tag[:] = 0
        self._latest[:] = 0
        self.image[_PING] = self.image[_PONG] = 0
        self._next_cycle()
        self.running = True

    def set_counters(self, name: str, total: int, tag: int) -> None:
        """Let the sum and the number of samples of a sensor continue from other values, such as just below a wrap."""
        i = [k.name for k in self._full].index(name)
        self._sum[i], self._tag[i] = total, tag

    def advance(self, now_ns: int) -> None:
        """Let time go on to ``now_ns``."""
        target = int(self._world.seconds_since_epoch(now_ns) * TICKS_PER_S)
        cycle = _STEP_TICKS * (self._chunks + 1)
        if not self.running:
            self._tick = max(self._tick, target)  # time passes without samples
            self._next_cycle()
            return
        # Only the last cycles can still be seen; what lies before is summed at once.
        visible = self._step_of(target - 4 * cycle) // (self._chunks + 1) * (self._chunks + 1)
        self._first_step = max(self._first_step, visible)
        while self._first_step <= self._step_of(target):
            self._sample(self._first_step * _STEP_TICKS + self._shift)
            self._copy(self._first_step)
            self._first_step += 1

    # -- what the firmware does ------------------------------------------------------------------------------------

    def _step_of(self, tick: int) -> int:
        return (tick - self._shift) // _STEP_TICKS

    def _next_cycle(self) -> None:
        """Go on with the first chunk of a buffer."""
        steps = self._chunks + 1
        self._first_step = (self._step_of(self._tick) // steps + 1) * steps

    def _place(self, kinds: Sequence[Kind], first_gsid: int) -> None:
        """Write header and table, and lay the records out."""
        self._records = bytearray(BUFFER_BYTES)
        self._spans: list[tuple[int, int, int]] = []  # rows from, to (of the full ones), offset of the first
        self._counters: list[tuple[Kind, int, int]] = []
        offset, row = 8, 0
        for i, kind in enumerate(kinds):
            gsid = first_gsid + i
            struct.pack_into(
                ">16s4sHIIHHBIB", self.image, _NAMES + 48 * i, kind.name.encode(), kind.units.encode(), gsid, kind.rate,
                kind.scale, kind.code, kind.location, 2 if kind.counter else 1, offset, kind.function,
            )  # fmt: skip
            if kind.counter:
                self._counters.append((kind, offset, gsid))
                offset += 24
                continue
            if self._spans and self._spans[-1][2] + 48 * (row - self._spans[-1][0]) == offset:
                self._spans[-1] = (self._spans[-1][0], row + 1, self._spans[-1][2])
            else:
                self._spans.append((row, row + 1, offset))
            struct.pack_into(">H", self._records, offset, gsid if kind.every else 0)
            offset, row = offset + 48, row + 1
        self._bytes = offset
        self._chunks = -(-offset // CHUNK_STRIDE)
        struct.pack_into(">BBHB3xIBB2xII", self.image, 0, 1, 1, len(kinds), 1, _NAMES, 1, 48, _PING, _PONG)
        # Of each chunk the records that lie in it, wholly or in part: rows from, to, and where they are written.
        self._parts = [list(self._records_in(chunk * CHUNK_STRIDE)) for chunk in range(self._chunks)]

    def _records_in(self, begin: int) -> Iterator[tuple[int, int, np.ndarray[tuple[int], np.dtype[np.void]]]]:
        for start, to, at in self._spans:
            first = start + max(0, (begin - at) // 48)
            end = min(to, start - (at - begin - _CHUNK) // 48)
            if first < end:
                yield first, end, np.frombuffer(self._records, _RECORD, end - first, at + 48 * (first - start))

    def _since_boot(self, ticks: int) -> None:
        """Count what has been sampled before the world began, at the power of its beginning."""
        samples = self._level.copy()
        samples[self._loaded] = self._powers(np.array([self._tick]))[:, 0]
        counted = np.where(self._every > 0, ticks // np.maximum(self._every, 1), 0)
        self._tag += counted.astype(np.uint64)
        self._sum += (counted * samples).astype(np.uint64)
        self._latest[:] = samples * (self._every > 0)

    def _powers(self, ticks: Ints) -> Ints:
        """Return what each sensor that watches the load reads at each tick."""
        watts = self._world.load.watts(ticks / TICKS_PER_S)
        samples = np.floor(self._share[:, None] * watts + self._round[:, None])
        return np.asarray(samples, np.int64)

    def _sample(self, target: int) -> None:
        """Take the samples of all ticks up to ``target``."""
        while self._tick < target:
            ticks = np.arange(self._tick + 1, min(target, self._tick + _BULK) + 1)
            due = ticks[-1] // self._cadence - self._tick // self._cadence
            self._tick = int(ticks[-1])
            taken = np.where(self._every > 0, due, 0).astype(np.uint64)
            first = self._tag[self._loaded] == 0
            self._tag += taken
            self._sum += taken * self._steady
            steady = (taken > 0) & (self._share_of == 0)
            self._latest[:, steady] = self._level[steady]
            powers = self._powers(ticks)
            for every, some in self._watching:
                samples = powers[some][:, ticks % every == 0]
                if not samples.shape[1]:
                    continue
                rows = self._loaded[some]
                lowest = np.where(first[some], 0xFFFF, self._latest[1, rows])
                self._sum[rows] += samples.sum(axis=1).astype(np.uint64)
                self._latest[0, rows] = samples[:, -1]
                self._latest[1, rows] = np.minimum(lowest, samples.min(axis=1))
                self._latest[2, rows] = np.maximum(self._latest[2, rows], samples.max(axis=1))

    def _stamp(self) -> int:
        if not self.time_known:
            return UNKNOWN_TIME
        return int((_BOOT_S + 10 + self._tick / TICKS_PER_S) * 512e6) & ~0xF

    def _copy(self, step: int) -> None:
        """Do one step of the copying: a chunk of the records, or the valid byte."""
        cycle, chunk = divmod(step, self._chunks + 1)
        buffer = _PONG if cycle % 2 else _PING
        if chunk == self._chunks:
            self.image[buffer] = 1
            return
        stamp = self._stamp()
        sampled = self._tag > 0
        for start, to, view in self._parts[chunk]:
            view["stamp"] = np.where(sampled[start:to], stamp, 0)
            view["samples"] = self._latest[[0, 1, 2, 1, 2, 1, 2, 1, 2], start:to].T
            view["sum"] = self._sum[start:to]
            view["tag"] = self._tag[start:to] % (1 << 32)
        for kind, offset, gsid in self._counters:
            struct.pack_into(">HQQB", self._records, offset, gsid, stamp, kind.level * (self._tick + 10**6) // 1000, 0)
        start = chunk * CHUNK_STRIDE
        part = self._records[start : min(start + _CHUNK, self._bytes)]
        self.image[buffer + start : buffer + start + len(part)] = part


class Machine:
    """An emulated POWER9 machine with its exported file.

    Attributes
    ----------
    occs : list of EmulatedOcc
    """

    def __init__(self, world: World, sockets: int = 2) -> None:
        # Every firmware numbers its sensors in its own way, and the cycles of two chips are not in step.
        self.occs = [EmulatedOcc(world, sensors_of(i, sockets), shift=37 * i, gsid=1 + 100 * i) for i in range(sockets)]
        self.advance(world.clock.now_ns())

    def advance(self, now_ns: int) -> None:
        """Let time go on to ``now_ns``."""
        for occ in self.occs:
            occ.advance(now_ns)

    @property
    def image(self) -> bytes:
        """The content of the exported file."""
        return b"".join(occ.image for occ in self.occs)


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    sockets: int = 2,
    sensors: str | Sequence[str] = (),
    whole: bool = False,
) -> Source:
    """Open the real backend on an emulated machine that draws the shared load.

    Parameters
    ----------
    sockets : int
        Number of processors, 1 to 8.
    sensors, whole
        As for the real one.
    """
    check_device("occ", device)
    if not 1 <= sockets <= 8:
        msg = f"an emulated POWER9 machine has 1 to 8 sockets, not {sockets}"
        raise TargetError(msg)
    world = shared_world(load, clock=clock)
    machine = Machine(world, sockets)
    tree = Tree()

    def refresh(now_ns: int) -> None:
        machine.advance(now_ns)
        tree.write_bytes(FILE, machine.image)

    refresh(clock.now_ns())
    return open_on(
        world,
        lambda far: open_source(clock=far, sysfs_root=tree.root, sensors=sensors, whole=whole),
        refresh=refresh,
        leave=tree.close,
    )
