"""A million spoilt recordings of every format through ``pmt.load``: how many are read, refused, or end otherwise.

Only two ends are allowed: a table whose clock goes on and whose energies are finite, or a FileFormatError that names
the file. Anything else is listed with the seed that makes it. Usage: ``bench_mutants.py [MUTANTS] [FIRST_SEED]``.
"""

from __future__ import annotations

import collections
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report
from pmtpy import load
from pmtpy.errors import FileFormatError
from tests.support.mutants import companions, make_seeds, spoil

MUTANTS = 1_000_000


def outcome(path: Path, *, skip_broken: bool) -> str:
    """Load one mutant; say how that ended."""
    try:
        table = load(path, skip_broken=skip_broken)
    except FileFormatError as error:
        return "refused" if path.name in str(error) else "refused without its name"
    except Exception as error:  # noqa: BLE001  (what is looked for)
        return f"{type(error).__name__}: {error}"[:200]
    elapsed = table["elapsed"].to_numpy()
    if not (np.isfinite(elapsed).all() and (np.diff(elapsed) >= 0).all()):
        return "a clock that goes back"
    return "an infinite energy" if np.isinf(table["total_J"]).any() else "read"


def main() -> None:
    """Try, count, print."""
    mutants = int(sys.argv[1]) if len(sys.argv) > 1 else MUTANTS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    warnings.simplefilter("ignore")
    counts: dict[str, collections.Counter[str]] = {}
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        parts = [(Path(folder) / n, p) for n in make_seeds(Path(folder)) for p in companions(Path(folder) / n)]
        wholes = {part: part.read_bytes() for _, part in parts}
        for seed in range(first, first + mutants):
            recording, part = parts[seed % len(parts)]
            part.write_bytes(spoil(wholes[part], random.Random(seed)))
            end = outcome(recording, skip_broken=bool(seed // len(parts) % 2))
            part.write_bytes(wholes[part])
            counts.setdefault(recording.name, collections.Counter())[
                end if end in {"read", "refused"} else "wrong"
            ] += 1
            if end not in {"read", "refused"}:
                found.append({"seed": seed, "file": recording.name, "part": part.name, "end": end})
    report({"mutants": mutants, "first_seed": first, "ends": counts, "wrong": found[:100]})


if __name__ == "__main__":
    main()
