"""Record everything that a sensor shows under loads whose switching is known: the raw material of a device's report.

    python calibration/record_device.py nvml:0 -o calibration/devices/NAME
    python calibration/device_report.py calibration/devices/NAME

Needs numpy, and on a GPU PyTorch or CuPy for the load; the report needs the rest and can be made on another machine.
Phases: idle; one long step; square waves whose periods are the fractions of the update period that the published method
uses (Yang, Adamek and Armour, arXiv 2312.02741); blocks of random lengths. Each becomes ``PHASE.csv.gz`` with all
channels poll by poll, as ``pmt.load`` reads it, its metadata beside it, and ``PHASE-load.csv`` with the load's stamps.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import pmtpy as pmt
from pmtpy.cli.common import parse_options
from pmtpy.core.channel import Quantity
from pmtpy.core.clock import HOST_CLOCK, Clock
from pmtpy.core.rows import Floats
from pmtpy.errors import PmtError
from pmtpy.lab.loads import schedule
from pmtpy.lab.record import Polls, Recorder

_FRACTIONS = (("2-3", 2 / 3), ("3-4", 3 / 4), ("5-4", 5 / 4), ("4-3", 4 / 3))
_UNITS = {Quantity.POWER: "W", Quantity.ENERGY: "J"}


@dataclass(frozen=True)
class Phase:
    """One recording: its name, how long, and when the load is switched on, off, on, ... in seconds."""

    name: str
    seconds: float
    edges_s: Floats


def phases(period_s: float, factor: float = 1.0) -> Iterator[Phase]:
    """Return the phases for a sensor with this update period; ``factor`` scales how long they last."""
    yield Phase("idle", 12.0 * factor, np.empty(0, np.float64))
    yield Phase("step", 14.0, np.array([3.0, 9.0]))
    for name, fraction in _FRACTIONS:
        half, seconds = fraction * period_s / 2.0, 10.0 * factor
        blocks = int((seconds - 2.0) / half) // 2
        yield Phase(f"square-{name}", seconds, 1.0 + half * np.arange(2 * blocks, dtype=np.float64))
    seconds = max(10.0, 25.0 * factor)
    yield Phase("random", seconds, schedule(seconds))


def write(phase: Phase, polls: Polls, target: str, folder: Path, clock: Clock) -> None:
    """Write one recording, its metadata and the stamps of its load."""
    anchor = clock.anchor()
    start_us = (polls.start_ns - anchor.monotonic_ns + anchor.unix_ns) / 1e3
    total = polls.watts(polls.chosen)
    known = np.isfinite(total)
    columns: dict[str, Floats] = {"total_W": total}
    for i, channel in enumerate(polls.channels):
        columns[f"{channel.name}_{_UNITS.get(channel.quantity, channel.unit)}"] = polls.values[:, i]
        if channel.quantity is Quantity.ENERGY:
            columns[f"{channel.name}_W"] = polls.watts(i)
    with gzip.GzipFile(folder / f"{phase.name}.csv.gz", "wb", mtime=0) as file:
        file.write((",".join(["time", "elapsed", "marker", "lost", *columns]) + "\n").encode())
        for row in np.flatnonzero(known).tolist():
            # Twelve digits: a counter of millijoules may have counted for years.
            numbers = [f"{column[row]:.12g}" if np.isfinite(column[row]) else "" for column in columns.values()]
            t = polls.t_s[row]
            file.write((",".join([f"{start_us / 1e6 + t:.6f}", f"{t:.6f}", "", "0", *numbers]) + "\n").encode())
    facts = {
        "format": 1,
        "target": target,
        "virtual": polls.identity.virtual,
        "identity": asdict(polls.identity),
        "channels": [
            {"name": c.name, "quantity": c.quantity.value, "refresh_s": c.refresh_s, "window_s": c.window_s}
            for c in polls.channels
        ],
        "chosen": polls.channels[polls.chosen].name,
        "rows": int(known.sum()),
        "complete": True,
        "written_by": f"pmtpy {pmt.__version__}, calibration/record_device.py",
    }
    (folder / f"{phase.name}.csv.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    stamps = [*polls.edges_s.tolist(), phase.seconds]
    lines = [f"{round(start_us + 1e6 * t)}\n" for t in stamps for _ in range(2)]  # as the published logger: twice each
    (folder / f"{phase.name}-load.csv").write_text("timestamp\n" + "".join(lines), encoding="utf-8")


def record_device(
    target: str,
    options: Mapping[str, str],
    folder: Path,
    *,
    wanted: Sequence[str] = (),
    period_s: float = 0.1,
    factor: float = 1.0,
    clock: Clock = HOST_CLOCK,
) -> list[str]:
    """Record all phases (or those ``wanted``); return their names. ``period_s`` is the sensor's update period."""
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    for phase in phases(period_s, factor):
        if wanted and phase.name not in wanted:
            continue
        (polls,) = Recorder(phase.seconds, clock=clock).together({target: options}, phase.edges_s)
        write(phase, polls, target, folder, clock)
        done.append(phase.name)
        print(f"{phase.name}: {len(polls.t_s)} polls", flush=True)
        # A virtual device's world lives as long as anything of it is referred to, and the next phase has another load.
        del polls
    return done


def main() -> int:
    """Record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("target", help="a sensor that is polled: name[:device]")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the backend")
    parser.add_argument("--phase", action="append", default=[], metavar="NAME", help="only this phase (repeatable)")
    parser.add_argument("--period-ms", type=float, default=100.0, help="update period, as far as it is known (100)")
    parser.add_argument("--factor", type=float, default=1.0, help="how much longer than usual (or shorter)")
    args = parser.parse_args()
    period_s, options = args.period_ms / 1e3, parse_options(args.option)
    names = [p.name for p in phases(period_s)]
    if not set(args.phase) <= set(names):
        parser.error(f"the phases are {', '.join(names)}")
    try:
        record_device(args.target, options, Path(args.output), wanted=args.phase, period_s=period_s, factor=args.factor)
    except PmtError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
