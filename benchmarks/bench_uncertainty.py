"""How often the stated 95 % intervals of region energies hold the truth, over random sensors, loads and regions.

    python benchmarks/bench_uncertainty.py [trials per kind]

Prints one JSON document: for each kind of sensor the share covered (demand: 0.90 to 0.99), the root mean square error
in standard uncertainties, the median uncertainty relative to the energy, and how many carry a warning; as measured,
and (``corrected``) by :func:`pmtpy.analysis.correct.region_energy`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import report
from tests.correct.test_correct import region_trial
from tests.uncertainty.worlds import random_trial


def measured(kind: str, trials: int) -> dict[str, float]:
    """Judge energies as a region reports them."""
    rng = np.random.default_rng(1)
    drawn = [random_trial(rng, kind) for _ in range(trials)]
    errors = np.array([t.error for t in drawn])
    relative = [t.assessment.uncertainty_joules / abs(t.true_joules) for t in drawn]
    return {
        "trials": trials,
        "covered_95": round(float(np.mean(np.abs(errors) < 1.96)), 4),
        "rms_error_in_u": round(float(np.sqrt(np.mean(errors**2))), 3),
        "median_relative_u": round(float(np.median(relative)), 4),
        "with_warnings": round(float(np.mean([bool(t.assessment.warnings) for t in drawn])), 3),
    }


def corrected(kind: str, trials: int) -> dict[str, float]:
    """Judge energies as they are after all corrections."""
    rng = np.random.default_rng(1)
    errors = np.array([region_trial(rng, kind) for _ in range(trials)])
    return {
        "trials": trials,
        "covered_95": round(float(np.mean(np.abs(errors) < 1.96)), 4),
        "rms_error_in_u": round(float(np.sqrt(np.mean(errors**2))), 3),
    }


def main() -> None:
    """Run the trials and print the document."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    report(
        {
            "measured": {k: measured(k, trials) for k in ("full", "part-time", "averaged", "counter", "bridged")},
            # The reconstruction of averaged channels is dense and takes 0.1 s each.
            "corrected": {
                k: corrected(k, trials // (5 if k == "averaged" else 1))
                for k in ("full", "part-time", "slow", "averaged")
            },
        }
    )


if __name__ == "__main__":
    main()
