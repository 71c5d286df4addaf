"""A million spoilt recordings of every format through ``pmt.load``: how many are read, refused, or end otherwise.

Only two ends are allowed: a table whose clock goes on and whose energies are finite, or a FileFormatError that names
the file. Anything else, and whatever takes longer than a second of this process, is listed with the seed that makes it.
What is read is held against the sound recording: ``read`` is the same rows and joules, ``noted`` others with a note or
with lines that are named, ``silent`` others without a word. Formats that write nothing twice (PMT, nvidia-smi, PMD)
cannot notice another digit; our own can, so there each is listed.

Usage: ``bench_mutants.py [MUTANTS] [FIRST_SEED] [FILE_TO_GO_ON_WITH]``. The report is printed; with a file, it is
written there every 20,000 mutants as well.
"""

from __future__ import annotations

import collections
import json
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.common import report
from pmtpy import load
from pmtpy.errors import FileFormatError
from tests.support.mutants import companions, make_seeds, spoil

if TYPE_CHECKING:
    import pandas as pd

MUTANTS = 1_000_000
SLOW_S = 1.0
LISTED = 300
EVERY = 20_000
SAME = 1e-5  # relative; a sixth digit is what the text formats have
OURS = {"board.csv", "board.parquet", "counter.csv", "killed.parquet", "packed.csv.gz"}


def facts(table: pd.DataFrame) -> tuple[int, float, float]:
    """Return what must not change unnoticed: rows, seconds, joules."""
    joules, seconds = table["total_J"].to_numpy(), table["elapsed"].to_numpy()
    return len(joules), float(seconds[-1]) if len(seconds) else 0.0, float(joules[-1]) if len(joules) else 0.0


def outcome(path: Path, sound: tuple[int, float, float], *, skip_broken: bool) -> str:
    """Load one mutant; say how that ended."""
    try:
        table = load(path, skip_broken=skip_broken)
    except FileFormatError as error:
        return "refused" if path.name in str(error) else "refused without its name"
    except Exception as error:  # noqa: BLE001  (what is looked for)
        return f"{type(error).__name__}: {error}"[:200]
    told = bool(table.attrs["notes"] or table.attrs["broken_lines"] or table.attrs["uncovered_s"])
    table.attrs = {}  # pandas copies them whenever a column is taken
    elapsed = table["elapsed"].to_numpy()
    if not (np.isfinite(elapsed).all() and (np.diff(elapsed) >= 0).all()):
        return "a clock that goes back"
    if np.isinf(table["total_J"].to_numpy()).any():
        return "an infinite energy"
    if np.allclose(facts(table), sound, rtol=SAME, atol=1e-9, equal_nan=True):
        return "read"
    return "noted" if told else "silent"


def main() -> None:
    """Try, count, print."""
    mutants = int(sys.argv[1]) if len(sys.argv) > 1 else MUTANTS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    log = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    warnings.simplefilter("ignore")
    counts: dict[str, collections.Counter[str]] = {}
    found: list[dict[str, Any]] = []
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        parts = [(Path(folder) / n, p) for n in make_seeds(Path(folder)) for p in companions(Path(folder) / n)]
        wholes = {part: part.read_bytes() for _, part in parts}
        sound = {recording: facts(load(recording)) for recording, _ in parts}
        for seed in range(first, first + mutants):
            recording, part = parts[seed % len(parts)]
            part.write_bytes(spoil(wholes[part], random.Random(seed)))
            begin = time.process_time()
            end = outcome(recording, sound[recording], skip_broken=bool(seed // len(parts) % 2))
            took = time.process_time() - begin
            part.write_bytes(wholes[part])
            if took > SLOW_S:
                end = f"took {took:.1f} s"
            allowed = end in {"read", "refused", "noted", "silent"}
            counts.setdefault(recording.name, collections.Counter())[end if allowed else "wrong"] += 1
            if not allowed or (end == "silent" and recording.name in OURS):
                found.append({"seed": seed, "file": recording.name, "part": part.name, "end": end})
            tried += 1
            if log is not None and tried % EVERY == 0:
                log.write_text(json.dumps({"tried": tried, "first_seed": first, "ends": counts, "found": found}))
    report({"mutants": tried, "first_seed": first, "ends": counts, "found": found[:LISTED]})


if __name__ == "__main__":
    main()
