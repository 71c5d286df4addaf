"""How often the stated 95 % intervals of region energies hold the truth, over random sensors, loads and regions.

    python benchmarks/coverage.py [trials per kind]

Prints one JSON document: for each kind of sensor the share covered (demand: 0.90 to 0.99), the root mean square error
in standard uncertainties, and the median uncertainty relative to the energy.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.uncertainty.worlds import random_trial


def main() -> None:
    """Run the trials and print the document."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    kinds: dict[str, dict[str, float]] = {}
    begin = time.perf_counter()
    for kind in ("full", "part-time", "averaged", "counter"):
        rng = np.random.default_rng(1)
        drawn = [random_trial(rng, kind) for _ in range(trials)]
        errors = np.array([t.error for t in drawn])
        relative = [t.assessment.uncertainty_joules / abs(t.true_joules) for t in drawn]
        kinds[kind] = {
            "covered_95": round(float(np.mean(np.abs(errors) < 1.96)), 4),
            "rms_error_in_u": round(float(np.sqrt(np.mean(errors**2))), 3),
            "median_relative_u": round(float(np.median(relative)), 4),
            "with_warnings": round(float(np.mean([bool(t.assessment.warnings) for t in drawn])), 3),
        }
    document = {
        "benchmark": "coverage of region energies",
        "machine": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "trials_per_kind": trials,
        "seconds": round(time.perf_counter() - begin, 1),
        "kinds": kinds,
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
