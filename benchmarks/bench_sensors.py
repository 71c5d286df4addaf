"""How often twice the stated uncertainty holds the energy of a region, for each on-board sensor, the gain part removed.

    python -m benchmarks.bench_sensors [WORLDS] [FIRST SEED] [SENSOR...]

Every world draws a load (squares of 0.2 to 33 Hz, random, steps, constant, sines; apart, ``fast`` squares of 3 to
47 Hz) and twelve regions of 0.2 to 8 s, half of them from one change of the load to another, evaluated at once. Prints
one JSON document; for each sensor: share held (demand: 0.92 to 0.98), by length and by load, the largest error in
standard uncertainties, the share of regions that are off by more than a tenth, and of those without any warning.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))

import itertools

from benchmarks.common import report
from tests.support.uncertainty.live import DEVICES, LOADS, Device, Trial, measure

SENSORS = {
    "rapl": DEVICES["rapl"],
    "jetson": DEVICES["jetson"],
    "amdsmi, current power": Device("amdsmi", {"gpu.current_power": 1}),
    "amdsmi, total=power": Device("amdsmi", {"total": 1}, {"total": "power"}),
    "occ": DEVICES["occ"],
    "hwmon, INA226": DEVICES["hwmon"],
}
LENGTHS = (0.2, 0.6, 2.0, 8.1)
SLOW_TO_EMULATE = {"occ": 4}  # so many times fewer worlds
OFF = 0.1


def trials(device: Device, kinds: tuple[str, ...], worlds: int, seed: int) -> list[tuple[str, Trial]]:
    """Measure regions of several worlds, whose loads go through the kinds."""
    found: list[tuple[str, Trial]] = []
    for world in range(worlds):
        kind = kinds[world % len(kinds)]
        drawn = measure(device, kind, seed + world, count=12, seconds=20.0, lengths=(0.2, 8.0), gain_known=True)
        found += [(kind, trial) for some in drawn.values() for trial in some]
    return found


def judged(found: list[tuple[str, Trial]]) -> dict[str, object]:
    """Return what is said of each sensor."""
    z = np.array([abs(t.error_joules) / max(t.uncertainty_joules, 1e-12) for _, t in found])
    off = np.array([abs(t.error_joules) > OFF * abs(t.true_joules) for _, t in found])
    silent = off & ~np.array([t.warned for _, t in found])
    seconds = np.array([t.seconds for _, t in found])
    kinds = np.array([kind for kind, _ in found])

    def held(some: npt.NDArray[np.bool_]) -> list[float]:
        of = z[some]
        return [round(float(np.mean(of <= 2.0)), 3), len(of)] if len(of) else []

    return {
        "held": held(np.ones(len(z), np.bool_)),
        "worst": round(float(np.max(z)), 1),
        "relative uncertainty": round(float(np.median([t.uncertainty_joules / t.true_joules for _, t in found])), 4),
        "off by a tenth": round(float(np.mean(off)), 3),
        "off without a warning": round(float(np.mean(silent)), 4),
        "by length": {
            f"{a:g} to {b:g} s": held((seconds >= a) & (seconds < b)) for a, b in itertools.pairwise(LENGTHS)
        },
        "by load": {kind: held(kinds == kind) for kind in dict.fromkeys(kinds.tolist())},
    }


def main() -> None:
    """Measure and print."""
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 56
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    names = sys.argv[3:] or list(SENSORS)
    out = {}
    for name in names:
        number = max(7, worlds // SLOW_TO_EMULATE.get(name, 1))
        all_of = judged(trials(SENSORS[name], LOADS, number, seed))
        out[name] = {**all_of, "fast": judged(trials(SENSORS[name], ("fast",), max(4, number // 4), seed + 10_000))}
    report(out)


if __name__ == "__main__":
    main()
