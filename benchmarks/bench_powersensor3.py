"""What a PowerSensor3 costs: decoding from memory, through a pseudo-terminal, at 20 kHz, and one reading.

The far side is a board with four pairs: in memory, or the virtual board in a process of its own behind a real
pseudo-terminal. CPU counts all threads of this process and the relay (user and system), not the
board. Prints one JSON document.

A real USB port is looked at every 8 ms instead of the 25 ms of a pseudo-terminal, so the relay's share is taken
at both.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import pmtpy as pmt
from benchmarks.common import repeat, report
from pmtpy.backends._serial.transport import DirectTransport, Piece, RelayTransport
from pmtpy.backends.powersensor3 import open_source
from pmtpy.backends.powersensor3._codec import FRAME_BYTES, Decoder
from pmtpy.backends.powersensor3._source import PowerSensor3Source
from pmtpy.backends.powersensor3._stream import FrameStream
from pmtpy.backends.powersensor3.device import Board, open_board
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Layout
from pmtpy.emulators.powersensor3 import BoardSpec, VirtualBoard, parse_pairs
from pmtpy.sensor.sensor import Sensor

REPEATS = 5
LOAD = "square:low=30,high=90,hz=5"
SPEC = BoardSpec(parse_pairs("4"))
# The stamps repeat after 512 frames of 50 us, so a stream of a multiple of that can be fed again and again.
LOOP_FRAMES = 512 * 40


def stream() -> bytes:
    """Bytes of noise in the format of a board, 20480 frames."""
    values = np.random.default_rng(1).integers(0, 1024, (LOOP_FRAMES, 9)).astype(np.uint16)
    values[:, 0] = np.arange(LOOP_FRAMES) * 50 % 1024
    ids = np.array([0xF0 | 0x4000, *(0x80 + 16 * i for i in range(8))], np.uint16)
    return (ids | values >> 6 | (values & 63) << 8).astype("<u2").tobytes()


class Memory:
    """A line to the virtual board whose stream is in memory: each receive delivers a piece of fixed size."""

    def __init__(self, line: DirectTransport, frames: int) -> None:
        self.line, self.streaming = line, False
        self.pieces = [stream()[i : i + frames * FRAME_BYTES] for i in range(0, LOOP_FRAMES * FRAME_BYTES, frames * 18)]
        self.frames = frames
        self.at = 0
        self.begin_ns = time.monotonic_ns()

    def write(self, data: bytes) -> None:
        """Pass commands on, but keep the stream off."""
        self.streaming = data == b"S" or (self.streaming and data != b"T")
        if data != b"S":
            self.line.write(data)

    def receive(self) -> list[Piece]:
        """Return the next piece, arriving when the last of its frames was measured."""
        if not self.streaming:
            return self.line.receive()
        self.at += 1
        t_ns = self.begin_ns + self.at * self.frames * 50_000
        return [(t_ns, self.pieces[self.at % len(self.pieces)])]

    def wait(self, timeout_s: float) -> bool:
        """Wait for a reply; the stream is always there."""
        return self.streaming or self.line.wait(timeout_s)

    def close(self) -> None:
        """Close the port."""
        self.line.close()


def codec_rate(frames: int) -> float:
    """Frames per second of the decoder alone, fed in pieces."""
    data, decoder = stream(), Decoder()
    pieces = [data[i : i + frames * FRAME_BYTES] for i in range(0, len(data), frames * FRAME_BYTES)]
    decoder.feed(data)
    begin, rounds = time.perf_counter(), max(1, 2_000_000 // LOOP_FRAMES)
    for _ in range(rounds):
        for piece in pieces:
            decoder.feed(piece)
    return rounds * LOOP_FRAMES / (time.perf_counter() - begin)


def decode_and_time_rate(frames: int) -> float:
    """Frames per second of the decoder with times and losses."""
    data, through = stream(), FrameStream(50.0, 0.5)
    pieces = [data[i : i + frames * FRAME_BYTES] for i in range(0, len(data), frames * FRAME_BYTES)]
    arrival = 10**12
    through.feed([(arrival, data)])
    begin, rounds = time.perf_counter(), max(1, 2_000_000 // LOOP_FRAMES)
    for _ in range(rounds):
        for piece in pieces:
            arrival += len(piece) // FRAME_BYTES * 50_000
            through.feed([(arrival, piece)])
    return rounds * LOOP_FRAMES / (time.perf_counter() - begin)


def memory_source(path: str, frames: int) -> PowerSensor3Source:
    """Open the source on a stream from memory; the configuration is that of the virtual board."""
    board: Board = open_board(path, clock=HOST_CLOCK)
    assert isinstance(board.transport, DirectTransport)
    board.transport = Memory(board.transport, frames)
    return PowerSensor3Source(board, HOST_CLOCK, virtual=True)


def pipeline_rate(source: PowerSensor3Source) -> float:
    """Frames per second from bytes to joules of every frame."""
    integrator = Integrator(Layout(source.channels))
    rows, begin = 0, time.perf_counter()
    while rows < 2_000_000:
        block = source.read()
        integrator.advance(block)
        rows += len(block)
    return rows / (time.perf_counter() - begin)


def backlog_read_us(path: str, frames: int) -> float:
    """Median microseconds of Sensor.read() that finds so many frames waiting."""
    with Sensor(memory_source(path, frames), "bench", HOST_CLOCK, interval_s=1000.0) as sensor:
        times = []
        for _ in range(500):
            begin = time.perf_counter_ns()
            sensor.read()
            times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def terminal_rate(path: str, transport: str) -> float:
    """Frames per second through a pseudo-terminal, from a board that sends as fast as it is read."""
    source = open_source(path, clock=HOST_CLOCK, transport=transport, virtual=True)
    rows, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < 2:
        rows += len(source.read())
    rate = rows / (time.perf_counter() - begin)
    source.close()
    return rate


def cpu_of(pid: int) -> float:
    """CPU seconds that a process of one thread has used: run time in ns, from the scheduler."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def streaming_share(path: str, look: int, seconds: float = 5.0) -> tuple[float, float]:
    """CPU seconds per second of a sensor at 20 kHz that nobody reads but its pump: this process, and the relay."""
    board = open_board(path, clock=HOST_CLOCK)
    assert isinstance(board.transport, DirectTransport)
    board.transport = relay = RelayTransport(
        board.transport.detach(), HOST_CLOCK, backend="powersensor3", stop=b"T", look=look
    )
    with Sensor(PowerSensor3Source(board, HOST_CLOCK, virtual=True), "bench", HOST_CLOCK):
        time.sleep(0.5)
        begin, ours, theirs = time.perf_counter(), time.process_time(), cpu_of(relay.pid)
        time.sleep(seconds)
        wall = time.perf_counter() - begin
        return (time.process_time() - ours) / wall, (cpu_of(relay.pid) - theirs) / wall


def dump_share(path: str, folder: Path, seconds: float = 5.0, suffix: str = ".csv") -> float:
    """CPU seconds per second of a dump of every frame at 20 kHz: this process with its writer, and the relay."""
    board = open_board(path, clock=HOST_CLOCK)
    assert isinstance(board.transport, DirectTransport)
    board.transport = relay = RelayTransport(board.transport.detach(), HOST_CLOCK, backend="powersensor3", stop=b"T")
    source = PowerSensor3Source(board, HOST_CLOCK, virtual=True)
    with Sensor(source, "bench", HOST_CLOCK) as sensor, sensor.dump(folder / f"bench{suffix}", overwrite=True):
        time.sleep(0.5)
        begin, ours, theirs = time.perf_counter(), time.process_time(), cpu_of(relay.pid)
        time.sleep(seconds)
        used = time.process_time() - ours + cpu_of(relay.pid) - theirs
        return used / (time.perf_counter() - begin)


def resident_mb() -> float:
    """Resident memory of this process, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def memory_growth(path: str, seconds: float = 40.0) -> dict[str, float]:
    """How memory grows while a fast board is measured: hours of a real stream, and MB more at the end than early on."""
    source = open_source(path, clock=HOST_CLOCK, virtual=True)
    with Sensor(source, "bench", HOST_CLOCK, interval_s=0.001) as sensor:
        time.sleep(seconds / 4)
        early, first = resident_mb(), sensor.read()
        time.sleep(seconds)
        last = sensor.read()
        return {
            "hours_of_the_board": pmt.seconds(first, last) / 3600,
            "megabytes_more": resident_mb() - early,
            "megabytes": early,
        }


def live_read_us(path: str, gap_s: float) -> float:
    """Median microseconds of Sensor.read() at 20 kHz, so long after the one before."""
    with Sensor(open_source(path, clock=HOST_CLOCK, virtual=True), "bench", HOST_CLOCK) as sensor:
        times = []
        for _ in range(round(3 / (gap_s + 0.001))):
            time.sleep(gap_s)
            begin = time.perf_counter_ns()
            sensor.read()
            times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def main() -> None:
    """Take all figures."""
    figures: dict[str, object] = {}
    for frames in (200, 2048):
        figures[f"codec_frames_per_s_in_pieces_of_{frames}"] = repeat(lambda n=frames: codec_rate(n), REPEATS)  # type: ignore[misc]
        figures[f"codec_and_time_frames_per_s_in_pieces_of_{frames}"] = repeat(
            lambda n=frames: decode_and_time_rate(n),  # type: ignore[misc]
            REPEATS,
        )
    with VirtualBoard(LOAD, SPEC) as board:
        for frames in (512, 2048):
            source = memory_source(board.path, frames)
            figures[f"bytes_to_joules_frames_per_s_in_pieces_of_{frames}"] = repeat(
                lambda s=source: pipeline_rate(s),  # type: ignore[misc]
                REPEATS,
            )
            source.close()
        for frames in (1400, 2048):  # a full backlog is what comes in one period of the pump, 70 ms
            figures[f"read_us_with_a_backlog_of_{frames}_frames"] = repeat(
                lambda n=frames: backlog_read_us(board.path, n),  # type: ignore[misc]
                REPEATS,
            )
        figures["read_us_in_a_loop_at_20_khz"] = repeat(lambda: live_read_us(board.path, 0.0), 3)
        figures["read_us_every_50_ms_at_20_khz"] = repeat(lambda: live_read_us(board.path, 0.05), 3)
        for look in (25, 8):
            shares = [streaming_share(board.path, look) for _ in range(3)]
            name = f"cpu_share_at_20_khz_looking_every_{look}_ms"
            figures[name] = repeat(iter([a + b for a, b in shares]).__next__, 3)
            figures[f"{name}_relay_alone"] = repeat(iter([b for _, b in shares]).__next__, 3)
        with tempfile.TemporaryDirectory() as folder:
            figures["cpu_share_at_20_khz_with_csv_dump"] = repeat(lambda: dump_share(board.path, Path(folder)), 3)
    with VirtualBoard(LOAD, SPEC, fast=True) as board:
        figures["memory_over_hours_of_the_board"] = memory_growth(board.path)
        for transport in ("relay", "direct"):
            figures[f"terminal_frames_per_s_{transport}"] = repeat(
                lambda t=transport: terminal_rate(board.path, t),  # type: ignore[misc]
                3,
            )
    report(figures)


if __name__ == "__main__":
    main()
