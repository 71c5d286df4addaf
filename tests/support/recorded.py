"""Small readers of the public recordings, for the tests of the estimators only."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from pmtpy.core.rows import Floats

TICKS_PER_MS = 2933.5


def read_log(path: Path, column: str) -> tuple[Floats, Floats]:
    """Return local time as Unix seconds (as if it were UTC) and watts of one column of an nvidia-smi log."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    stamps = [datetime.strptime(r["timestamp"], "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=timezone.utc) for r in rows]
    return np.array([s.timestamp() for s in stamps]), np.array([float(r[column]) for r in rows])


def read_stamps(path: Path) -> Floats:
    """Return the load's switching instants, Unix seconds: on, off, on, ... (every value is written twice)."""
    return np.array([float(x) for x in path.read_text(encoding="utf-8").split()[1:]])[::2] * 1e-6


def read_pmd(folder: Path, ticks_per_ms: float = TICKS_PER_MS) -> tuple[Floats, Floats]:
    """Return Unix seconds and watts of the meter, at its nominal tick rate."""
    words = np.frombuffer(gzip.decompress((folder / "PMD_data.bin.gz").read_bytes()), "<u2")
    words = words[: words.size // 9 * 9].reshape(-1, 9).astype(np.int64)
    ticks = np.concatenate([[0], np.cumsum(np.diff(words[:, 0]) % 65536)])
    codes = words[:, 1:] >> 4
    codes = np.where(codes & 0x800, 0, codes)
    watts = np.sum((codes[:, 0::2] * 0.007568) * (codes[:, 1::2] * 0.0488), axis=1)
    start = float((folder / "PMD_start_ts.txt").read_text(encoding="utf-8")) * 1e-6 - 0.05
    return start + ticks / ticks_per_ms * 1e-3, np.asarray(watts, np.float64)
