"""How often the stated 95 % intervals of region energies hold the truth, over random sensors, loads and regions.

    python benchmarks/bench_uncertainty.py [trials per kind] [worlds per device]

Prints one JSON document: for each kind of sensor the share covered (demand: 0.90 to 0.99), the root mean square error
in standard uncertainties, the median uncertainty relative to the energy, and how many carry a warning; as measured,
and (``corrected``) by ``region_energy`` of :mod:`pmtpy.analysis.energy`. Under ``live`` the same for regions of
every kind of virtual device through its real backend, by class of length in seconds; ``[covered, median relative
uncertainty, median relative error, regions]``; and of the first regions of sensors that were opened 20 to 600 ms
before (``just opened``), and of regions beside a poller that is held up for 0.3 s in the mean after 3 of 100 polls
(``starved``). Under ``calibrated live`` regions of sensors with a profile, of all
loads and (``busy``) of loads of two levels whose program says when it is busy; ``[covered, median relative
uncertainty, root mean square relative error, regions]``.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import report
from pmtpy.core.rows import Floats
from tests.analysis.energy.test_energy import region_trial
from tests.support.uncertainty import stamped
from tests.support.uncertainty.live import DEVICES, LOADS, Device, Trial, measure, measure_first
from tests.support.uncertainty.worlds import random_trial

LENGTHS = (0.03, 0.1, 0.2, 0.4, 0.8, 2.0, 8.0, 30.0)
PROFILED = {"1 s average": stamped.AVERAGE, "A100, part-time": stamped.A100, "full window": stamped.FULL}
SLOW_TO_EMULATE = {"occ": 4, "powersensor3": 8}  # so many times fewer worlds


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


def live(device: Device, worlds: int) -> dict[str, dict[str, list[float]]]:
    """Judge regions of 0.05 to 30 s on a virtual device."""
    found: dict[str, list[Trial]] = {name: [] for name in device.shares}
    for seed in range(worlds):
        kind = LOADS[seed % len(LOADS)]
        for name, more in measure(device, kind, 1000 + seed, count=40, seconds=40.0, lengths=(0.05, 30.0)).items():
            found[name] += more
    return {name: by_length(trials) for name, trials in found.items()}


def just_opened(device: Device, worlds: int) -> dict[str, dict[str, list[float]]]:
    """Judge the first regions of 0.1 to 3 s of sensors that were just opened."""
    found: dict[str, list[Trial]] = {name: [] for name in device.shares}
    for seed in range(worlds):
        for kind in ("square", "steps", "random"):
            for name, more in measure_first(device, kind, 1000 + seed).items():
                found[name] += more
    return {name: by_length(trials) for name, trials in found.items()}


def starved(device: Device, worlds: int) -> dict[str, dict[str, list[float]]]:
    """Judge regions of 0.1 to 3 s beside a poller that is held up now and then."""
    found: dict[str, list[Trial]] = {name: [] for name in device.shares}
    for seed in range(worlds):
        for kind in ("square", "steps", "random"):
            more = measure(device, kind, 1000 + seed, count=6, lengths=(0.1, 3.0), gain_known=True, starved=True)
            for name, each in more.items():
                found[name] += each
    return {name: by_length(trials) for name, trials in found.items()}


def calibrated(gpu: stamped.Gpu, worlds: int) -> dict[str, list[float]]:
    """Judge regions of 0.2 to 8 s of any load on a virtual GPU with a profile, gain and zero off as it states."""
    device, found = Device("nvml", {gpu.channel: 1}, gpu.options), list[Trial]()
    for seed in range(worlds):
        kind = LOADS[seed % len(LOADS)]
        more = measure(device, kind, seed, count=20, seconds=20.0, lengths=(0.2, 8.0), profile=gpu.profile)
        found += more[gpu.channel]
    return _classes(
        np.array([t.seconds for t in found]),
        np.array([t.error_joules / t.true_joules for t in found]),
        np.array([t.uncertainty_joules / t.true_joules for t in found]),
    )


def busy(gpu: stamped.Gpu, worlds: int, *, told: bool, period_s: float = 0.0) -> dict[str, list[float]]:
    """Judge the same of loads of two levels, whose program says when it is busy or does not."""
    found: list[stamped.Outcome] = []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        period = period_s or float(np.exp(rng.uniform(np.log(0.03), np.log(5.0))))
        on = stamped.square(period, 0.5 if period_s else rng.uniform(0.2, 0.8), 22.0, 0.0 if period_s else 0.05, seed)
        low = float(rng.uniform(20, 80))
        levels = (low, low + float(rng.uniform(20, 350)))
        lengths = np.exp(rng.uniform(np.log(0.2), np.log(8.0), 20))
        chosen = [(a, a + float(length)) for length in lengths for a in [float(rng.uniform(1.0, 19.0 - length))]]
        found += stamped.measure(gpu, on, levels, chosen, stamped=told, seed=seed)
    return _classes(
        np.array([o.measured.seconds for o in found]),
        np.array([o.off for o in found]),
        np.array([o.measured.uncertainty_joules / o.true_joules for o in found]),
    )


def _classes(seconds: Floats, off: Floats, wide: Floats) -> dict[str, list[float]]:
    out = {}
    for low, high in pairwise((0.2, 0.4, 0.8, 2.0, 8.0)):
        some = (seconds >= low) & (seconds < high)
        if np.any(some):
            held, rms = np.mean(np.abs(off[some]) <= 1.96 * wide[some]), np.sqrt(np.mean(off[some] ** 2))
            shares = [round(float(x), 4) for x in (held, np.median(wide[some]), rms)]
            out[f"{low:g} to {high:g}"] = [*shares, int(np.sum(some))]
    return out


def by_length(trials: list[Trial]) -> dict[str, list[float]]:
    """Share covered, median uncertainty and error relative to the energy, and number, of each class of length."""
    out = {}
    for low, high in pairwise(LENGTHS):
        some = [t for t in trials if low <= t.seconds < high]
        if some:
            wide = np.median([t.uncertainty_joules / t.true_joules for t in some])
            off = np.median([abs(t.error_joules / t.true_joules) for t in some])
            shares = [round(float(x), 4) for x in (np.mean([t.held for t in some]), wide, off)]
            out[f"{low:g} to {high:g}"] = [*shares, len(some)]
    return out


def main() -> None:
    """Run the trials and print the document."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    worlds = int(sys.argv[2]) if len(sys.argv) > 2 else 28
    report(
        {
            "measured": {k: measured(k, trials) for k in ("full", "part-time", "averaged", "counter", "bridged")},
            # The reconstruction of averaged channels is dense and takes 0.1 s each.
            "corrected": {
                k: corrected(k, trials // (5 if k == "averaged" else 1))
                for k in ("full", "part-time", "slow", "averaged")
            },
            "calibrated live": {
                name: {
                    "any load": calibrated(gpu, worlds),
                    "two levels": busy(gpu, worlds, told=False),
                    "two levels, busy": busy(gpu, worlds, told=True),
                    "104 ms": busy(gpu, worlds, told=False, period_s=0.104),
                    "104 ms, busy": busy(gpu, worlds, told=True, period_s=0.104),
                }
                for name, gpu in PROFILED.items()
            },
            "just opened": {k: just_opened(d, 5 * worlds) for k, d in DEVICES.items() if k not in SLOW_TO_EMULATE},
            "starved": {k: starved(d, worlds) for k, d in DEVICES.items() if k not in SLOW_TO_EMULATE},
            "live": {k: live(d, max(2, worlds // SLOW_TO_EMULATE.get(k, 1))) for k, d in DEVICES.items()},
        }
    )


if __name__ == "__main__":
    main()
