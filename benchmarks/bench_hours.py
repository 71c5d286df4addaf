"""One unbroken stream over hours, in simulated time: whether energy, time and memory stay right.

Run: python -m benchmarks.bench_hours pmd 50    (or powersensor3; hours)
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections import deque
from typing import Any

import numpy as np

from pmtpy.backends import pmd, powersensor3
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Source
from pmtpy.emulators.pmd._board import PmdBoard
from pmtpy.emulators.powersensor3._board import UPTIME_NS, Board
from pmtpy.emulators.powersensor3._memory import MemoryTransport
from pmtpy.emulators.powersensor3._spec import BoardSpec, parse_pairs
from pmtpy.emulators.serial_board import MemoryLine
from pmtpy.emulators.world import World, make_world
from pmtpy.sensor.sensor import Sensor, acquisition_of

WATTS = 120.0
TURN_S = 1.024  # a whole number of turns of a PowerSensor3's stamp, and of its frames
PIECES = 16  # of a turn, as a relay hands them on
DRIFT = 20e-6  # of the meter's crystal against the host's
FRAME_S = 50e-6
TICK_HZ = 2_934_500.0  # of the meter
SLOW = 115200  # baud of the meter, 576 records a second: its stamps turn over as often as at any rate
RECORD = np.dtype([("tick", "<u4"), ("word", "<i2", 8)])


class Replayed:
    """A line whose far side is asked for commands alone; the stream is made here, a turn at a time."""

    def __init__(self, line: Any, clock: ManualClock) -> None:
        self.line, self.clock = line, clock
        self.turn: Any = None
        self.held: deque[tuple[int, bytes]] = deque()  # which the sensor's own thread empties too

    def __getattr__(self, name: str) -> Any:
        return getattr(self.line, name)

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the pieces that have come."""
        if self.turn is None:
            return self.line.receive()  # type: ignore[no-any-return]
        out = []
        with contextlib.suppress(IndexError):
            while True:
                out.append(self.held.popleft())
        return out

    def wait(self, timeout_s: float) -> bool:
        """Return whether any has."""
        return self.line.wait(timeout_s) if self.turn is None else bool(self.held)

    def advance(self) -> None:
        """Let one turn of the stream come."""
        start_ns = self.clock.now_ns()
        self.clock.advance(TURN_S / (1 + DRIFT))
        stream, step_ns = self.turn(), (self.clock.now_ns() - start_ns) / PIECES
        size = len(stream) // PIECES
        for i in range(PIECES):
            end = len(stream) if i == PIECES - 1 else (i + 1) * size
            self.held.append((round(start_ns + (i + 1) * step_ns), stream[i * size : end]))


def of_powersensor3(world: World, clock: ManualClock) -> tuple[Source, Replayed]:
    """Open a board with one pair; its stream is one recorded second again and again."""
    spec = BoardSpec(parse_pairs("1"), "F411", "1.6.1", noise=True, seed=1)
    board = Board(spec, world.load, epoch_ns=world.epoch_ns, start_ns=clock.now_ns() - UPTIME_NS, instant=True)
    line = Replayed(MemoryTransport(board, clock), clock)
    source = powersensor3.open_source("virtual", clock=clock, transport=line, serial="virtual", virtual=True)
    recorded = b""
    while len(recorded) < 20 * TURN_S / FRAME_S:  # more than a frame's 18 bytes
        clock.advance(0.064)
        recorded += b"".join(data for _, data in line.line.receive())
    first, second = [i for i in range(40) if recorded[i] >> 4 == 0xF and recorded[i + 1] >> 6 == 1][:2]
    turn = recorded[first : first + (second - first) * round(TURN_S / FRAME_S)]
    line.turn = lambda: turn
    return source, line


def of_pmd(world: World, clock: ManualClock) -> tuple[Source, Replayed]:
    """Open a meter; its readings have noise, and its stamps turn over every 24 minutes."""
    board = PmdBoard(world, tick_hz=TICK_HZ, noise_codes=0.0)
    line = Replayed(MemoryLine(board, clock), clock)
    source = pmd.open_source("virtual", clock=clock, transport=line, baud=SLOW)
    clock.advance(0.064)
    made = np.frombuffer(b"".join(data for _, data in line.line.receive()), RECORD)
    step = 20 * 10 / SLOW * TICK_HZ  # a record of 20 bytes on the line
    steps = np.full(round(TURN_S * TICK_HZ / step), round(step))
    state = {"tick": int(made["tick"][-1]), "left": 0.0}
    random = np.random.default_rng(1)
    noise = random.integers(-4, 5, (8, len(steps), 8)) << 4
    records = np.empty(len(steps), made.dtype)

    def turn() -> bytes:
        ticks = state["tick"] + np.cumsum(steps)
        state["tick"] = int(ticks[-1])
        # What a turn of whole records lacks of its time, or has more, is made up for by a later one.
        state["left"] += TURN_S * TICK_HZ - int(steps.sum())
        ticks[-1] += int(state["left"])
        state["tick"] += int(state["left"])
        state["left"] -= int(state["left"])
        records["tick"] = ticks % (1 << 32)
        records["word"] = made["word"][-1] + noise[random.integers(8)]
        return records.tobytes()

    line.turn = turn
    return source, line


def main() -> None:
    """Print what was measured against what is true, each hour."""
    name, hours = sys.argv[1], float(sys.argv[2])
    clock = ManualClock()
    world = make_world(f"constant:{WATTS}", clock=clock)
    source, line = {"powersensor3": of_powersensor3, "pmd": of_pmd}[name](world, clock)
    with Sensor(source, name, clock, history_s=0.5) as sensor:
        line.advance()
        sensor.read()
        line.advance()
        first = sensor.read()
        begun_s, turns = time.process_time(), round(hours * 3600 / TURN_S)
        for i in range(1, turns + 1):
            line.advance()
            state = sensor.read()
            if i % (turns // 10) == 0:
                newest = acquisition_of(sensor).newest
                assert newest is not None
                seconds = (state.t_ns - first.t_ns) / 1e9
                watts = (state.joules[0] - first.joules[0]) / (
                    seconds - (state.uncovered_ns[0] - first.uncovered_ns[0]) / 1e9
                )
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{i * TURN_S / 3600:8.3f} h: {watts:.4f} W of {WATTS:g}, {state.lost - first.lost} rows lost,"
                    f" newest row {(clock.now_ns() - newest.t_ns) / 1e3:.0f} us old, {peak:.0f} MB,"
                    f" {(time.process_time() - begun_s) / (i * TURN_S) * 1e3:.2f} ms CPU a second",
                    flush=True,
                )


if __name__ == "__main__":
    main()
