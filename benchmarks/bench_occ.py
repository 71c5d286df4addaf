"""Cost of one reading of the OCC's memory interface: the whole block, and only what is needed of it.

    python -m benchmarks.bench_occ [readings]

Both ways are those of the backend (option ``whole=``) and decode alike; they are measured in turns, and their ratio is
the median over the rounds. The file is a still image of one block of 337 sensors in memory (``/dev/shm``), where a
reading's bytes cost least; calls and bytes stand beside each figure, and ``through sysfs`` tells what the same calls
cost on a binary attribute of this machine's own sysfs, of which the kernel gives a page at a time. For comparison: a
C++ reader on the real machine took 10.8 us for the whole block and 3.8 us for the records of one sensor (Troepgen,
Bielert, Ilsche, ICPE '23).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.common import report, spread
from pmtpy.backends.occ import open_source
from pmtpy.backends.occ._device import BlockReader, Export
from pmtpy.backends.occ.layout import BLOCK_BYTES, POWER, Table
from pmtpy.core.clock import HostClock, ManualClock
from pmtpy.core.source import Source
from pmtpy.emulators.occ import EmulatedOcc, Machine, sensors_of
from pmtpy.emulators.world import make_world

ROUNDS = 25
MEMORY = "/dev/shm"  # noqa: S108  (a folder of its own is made there)
ATTRIBUTE = Path("/sys/kernel/btf/vmlinux")  # a binary attribute large enough, on most kernels of today
PING, PONG = 0xDC00, 0x18C00
PAPER_US = {"whole block": 10.8, "optimised": 3.8}


class Counting(Export):
    """Counts the calls to the system and the bytes that they bring."""

    __slots__ = ("calls",)

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.calls: list[tuple[int, int]] = []

    def read(self, offset: int, size: int) -> bytes:
        """Read, and note it."""
        self.calls.append((offset, size))
        return super().read(offset, size)

    def fill(self, buffer: bytearray, offset: int, done: int = 0) -> None:
        """Fill, and note it."""
        self.calls.append((offset, len(buffer)))
        super().fill(buffer, offset, done)


def cost(call: Callable[[], object], readings: int) -> float:
    """Microseconds of processor time per call: other programs that want the processor do not count."""
    begin = time.thread_time_ns()
    for _ in range(readings):
        call()
    return (time.thread_time_ns() - begin) / readings / 1000


def in_turns(whole: Callable[[], object], needed: Callable[[], object], readings: int) -> dict[str, object]:
    """Cost of both, and of the second in terms of the first."""
    rounds = [(cost(whole, readings), cost(needed, readings)) for _ in range(ROUNDS)]
    return {
        "whole_us": spread([a for a, _ in rounds]),
        "optimised_us": spread([b for _, b in rounds]),
        "optimised_over_whole": round(statistics.median(b / a for a, b in rounds), 3),
    }


def always_new(reader: BlockReader) -> Callable[[], object]:
    """Let the reader forget what it read last, so that records are decoded every time as if they were new."""

    def read() -> object:
        reader._data = b""  # noqa: SLF001  (a still image never changes)
        return reader.read()

    return read


def through_sysfs(calls: list[tuple[int, int]], readings: int) -> dict[str, float] | None:
    """What the same calls cost on an attribute of this machine, looped as short reads demand; None without one."""
    try:
        file = os.open(ATTRIBUTE, os.O_RDONLY)
    except OSError:
        return None

    def read() -> int:
        count = 0
        for offset, size in calls:
            at = offset
            while at < offset + size:
                at += len(os.pread(file, offset + size - at, at))
                count += 1
        return count

    try:
        if os.fstat(file).st_size < BLOCK_BYTES:
            return None
        return {"us": round(min(cost(read, readings) for _ in range(5)), 2), "calls": read()}
    finally:
        os.close(file)


def compare(path: Path, names: list[str], readings: int) -> dict[str, object]:
    """Both ways to read the sensors named, their calls and bytes."""
    export = Counting(str(path))
    clock = HostClock()
    readers = {whole: BlockReader(export, 0, names, clock, whole=whole) for whole in (True, False)}
    asked = {}
    for whole, reader in readers.items():
        export.calls.clear()
        reader.read()
        calls = list(export.calls)
        asked["whole" if whole else "optimised"] = {
            "calls": len(calls),
            "bytes": sum(size for _, size in calls),
            "through sysfs": through_sysfs(calls, max(1, readings // 10)),
        }
    export.close()
    plain = Export(str(path))
    anew = {whole: always_new(BlockReader(plain, 0, names, clock, whole=whole)) for whole in (True, False)}
    figures = in_turns(anew[True], anew[False], readings)
    plain.close()
    return {"sensors": len(names), **figures, "asked": asked}


def images() -> Iterator[tuple[str, bytes]]:
    """Blocks with one and with both buffers valid, of an OCC in which every channel of the converter is connected."""
    clock = ManualClock()
    kinds = [replace(k, share=k.share or 0.01, every=k.every or 1) if k.code == POWER else k for k in sensors_of(0)]
    occ = EmulatedOcc(make_world("constant:530", clock=clock), kinds)
    found: dict[str, bytes] = {}
    while len(found) < 2:
        clock.advance(0.0041)
        occ.advance(clock.now_ns())
        both = occ.image[PING] == occ.image[PONG] == 1
        found["both buffers valid" if both else "one buffer valid"] = bytes(occ.image)
    yield from found.items()


def of_source(folder: Path) -> dict[str, object]:
    """Cost of ``Source.read_row``, one block, when there is a new row and when there is none."""
    clock = ManualClock()
    machine = Machine(make_world("square:low=100,high=500,hz=1", clock=clock), 1)
    path = folder / "moving"
    history = []
    for _ in range(400):
        clock.advance(0.0400754)
        machine.advance(clock.now_ns())
        history.append((clock.now_ns(), bytes(machine.image)))
    figures: dict[str, list[float]] = {}
    path.write_bytes(history[0][1])
    with path.open("r+b", buffering=0) as file:
        sources: dict[str, tuple[ManualClock, Source]] = {}
        for label, whole in (("whole", True), ("optimised", False)):
            then = ManualClock(start_ns=history[0][0])
            sources[label] = then, open_source(clock=then, file=path, whole=whole)
        for now_ns, image in history[1:]:
            file.seek(0)
            file.write(image)
            for label, (then, source) in sources.items():
                then.advance((now_ns - then.now_ns()) * 1e-9)
                for what in ("a new row", "nothing new"):
                    figures.setdefault(f"{label}, {what}", []).append(cost(source.read_row, 1))
        channels = len(next(iter(sources.values()))[1].channels)
        for _, source in sources.values():
            source.close()
    return {"channels": channels, **{f"{label}_us": spread(values) for label, values in figures.items()}}


def main() -> None:
    """Run and print the document."""
    readings = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    figures: dict[str, object] = {"paper_c++_us": PAPER_US}
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as name:
        path = Path(name) / "occ_inband_sensors"
        for label, image in images():
            path.write_bytes(image)
            table = Table.parse(image)
            powers = [e.name for e in table.entries.values() if e.kind == POWER]
            machine = [n for n in powers if not n.startswith("PWRAPSSCH")]
            for what, names in (("one sensor", ["PWRSYS"]), ("the machine's", machine), ("all powers", powers)):
                figures[f"{label}, {what}"] = compare(path, names, readings)
        export = Export(str(path))
        figures["table parsed anew_us"] = cost(lambda: Table.parse(export.read(0, BLOCK_BYTES)), 50)
        export.close()
        figures["Source.read_row"] = of_source(Path(name))
    report(figures)


if __name__ == "__main__":
    main()
