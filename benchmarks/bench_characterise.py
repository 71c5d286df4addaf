"""What recordings of a million polls cost: processor seconds and peak of memory of whole commands.

``python -m benchmarks.bench_characterise [POLLS]`` draws one-hour-like recordings of three registers: one of 10.7 ms
polled three times a period, one of 100 ms polled each 3.6 ms, one of 1 s polled as often; writes each with the stamps
of its load; and runs ``pmtpy characterise`` on each alone and with the stamps, and ``pmtpy compare`` of the first with
the second, which saw another load, and with one like the second that saw the same. Then a register of 100 ms beside a
meter of 5 kHz that watched it for 513 s, 2.5 million rows of a PMD: ``characterise`` with the meter, and ``compare``.
Prints one JSON document. 240 MB of disk are needed where temporary files go (TMPDIR).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import cost_of, report

_REGISTERS_S = {"10.7 ms": (0.0107, 0.0032), "100 ms": (0.1, 0.0036), "1 s": (1.003, 0.0036)}  # period, and of polls
_START_S = 1.7e9
_GRID_S = 1e-3
_METERED_S, _METER_S, _TICKS_PER_S = 513.0, 205.5e-6, 2934.5e3


def _draw(path: Path, period_s: float, poll_s: float, polls: int, load: int) -> None:
    """Write what polls of a register show that averages its period, and when its load, by that number, was switched."""
    rng, of_load = np.random.default_rng(round(1e6 * period_s)), np.random.default_rng(load)
    t = poll_s * (np.arange(polls) + rng.uniform(0.0, 0.3, polls))
    switched = np.cumsum(of_load.exponential(0.8, 2 * round(t[-1])) + 0.03)
    switched = switched[switched < t[-1] - 1.0]
    grid = np.arange(0.0, t[-1] + 1.0, _GRID_S)
    watts = np.where(np.searchsorted(switched, grid) % 2, 250.0, 80.0)
    joules = np.concatenate([[0.0], np.cumsum(watts) * _GRID_S])
    renewed = period_s * (np.arange(1, int(t[-1] / period_s)) + 1.0 / 3.0)
    ends = np.append(grid, grid[-1] + _GRID_S)
    mean = (np.interp(renewed, ends, joules) - np.interp(renewed - period_s, ends, joules)) / period_s
    shown = np.round(mean + 0.2 * rng.standard_normal(len(mean)), 2)
    read = shown[np.clip(np.searchsorted(renewed, t) - 1, 0, None)]
    with path.open("w", encoding="utf-8") as file:
        file.write("time,elapsed,marker,lost,total_W\n")
        file.writelines(f"{_START_S + at:.6f},{at:.6f},,0,{w:.2f}\n" for at, w in zip(t, read, strict=True))
    stamps = [f"{round(1e6 * (_START_S + at))}\n" for at in switched]
    _stamps(path).write_text("timestamp\n" + "".join(2 * stamp for stamp in stamps), encoding="utf-8")


def _draw_metered(folder: Path) -> tuple[Path, Path]:
    """Write what polls of a register of 100 ms show, and what a PMD saw meanwhile: its log and the meter's."""
    rng = np.random.default_rng(513)
    grid = np.arange(0.0, _METERED_S, _METER_S)
    switched = np.cumsum(rng.exponential(0.8, 2 * round(_METERED_S)) + 0.03)
    watts = np.where(np.searchsorted(switched, grid) % 2, 250.0, 80.0)
    joules = np.concatenate([[0.0], np.cumsum(watts) * _METER_S])
    ends = np.append(grid, _METERED_S)
    renewed = 0.1 * (np.arange(1, int(_METERED_S / 0.1)) + 1.0 / 3.0)
    shown = np.round((np.interp(renewed, ends, joules) - np.interp(renewed - 0.1, ends, joules)) / 0.1, 2)
    t = np.cumsum(rng.uniform(0.008, 0.02, round(_METERED_S / 0.014)))
    t = t[(t > 0.2) & (t < _METERED_S)]
    log, meter = folder / "polled.csv", folder / "PMD_data.bin"
    with log.open("w", encoding="utf-8") as file:
        file.write("time,elapsed,marker,lost,total_W\n")
        read = shown[np.clip(np.searchsorted(renewed, t) - 1, 0, None)]
        file.writelines(f"{_START_S + at:.6f},{at:.6f},,0,{w:.2f}\n" for at, w in zip(t, read, strict=True))
    words = np.zeros((len(grid), 9), "<u2")
    words[:, 0] = np.round(grid * _TICKS_PER_S).astype(np.int64) % 2**16
    words[:, 1] = 1586 << 4  # codes: 12.0 V
    words[:, 2] = np.round(watts / (1586 * 0.007568) / 0.0488 + rng.normal(0.0, 1.5, len(grid))).astype(np.uint16) << 4
    words.tofile(meter)
    (folder / "PMD_start_ts.txt").write_text(f"{round(1e6 * (_START_S + 0.05))}\n", encoding="ascii")
    return log, meter


def _stamps(path: Path) -> Path:
    return path.with_name(f"load of {path.name}")


def main() -> None:
    """Draw, run, print."""
    polls = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    verb = [sys.executable, "-m", "pmtpy"]
    found: dict[str, Any] = {"polls": polls}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.csv" for name in _REGISTERS_S]
        for load, (path, (period_s, poll_s)) in enumerate(zip(paths, _REGISTERS_S.values(), strict=True)):
            _draw(path, period_s, poll_s, polls, load)
            alone = [*verb, "characterise", str(path)]
            found[f"{path.stem}: cpu_s_and_peak_mb"] = cost_of(alone)
            found[f"{path.stem}, with stamps: cpu_s_and_peak_mb"] = cost_of([*alone, "--load", str(_stamps(path))])
        found["compare, of two loads: cpu_s_and_peak_mb"] = cost_of([*verb, "compare", *map(str, paths[:2])])
        like = Path(folder) / "100 ms of the first load.csv"
        _draw(like, *_REGISTERS_S["100 ms"], polls, 0)
        found["compare, of one load: cpu_s_and_peak_mb"] = cost_of([*verb, "compare", str(paths[0]), str(like)])
        log, meter = map(str, _draw_metered(Path(folder)))
        beside = cost_of([*verb, "characterise", log, "--meter", meter])
        found["100 ms beside a PMD of 513 s: cpu_s_and_peak_mb"] = beside
        found["compare, of the two: cpu_s_and_peak_mb"] = cost_of([*verb, "compare", log, meter])
    report(found)


if __name__ == "__main__":
    main()
