"""Energy at other clocks: the published recipe, its failure, and what does better, on public tuning results.

    python calibration/frequency_report.py

Reads the public recordings (``PMTPY_SHARED``); writes ``report.md`` and ``frequency.png`` to
``calibration/reports/frequency``. Random training sets, everything else predicted.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from calibration.published_models import PowerCurve, fit_power_curve, shared_curve_energy
from calibration.reporting import DARK, LIGHT, MIDDLE, folder, options, panels, recordings, save, table
from pmtpy.analysis.transfer.predict import Prediction, fit_transfer, folds_of, predict
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.rows import Floats
from pmtpy.lab.tuning_table import read_table

TRAINING = (3, 10, 20, 50)
MEASURED = ((1485.0,), (1635.0,), (1815.0,), (1485.0, 1815.0))
ROUNDS = 10
CAP_W = 139.0  # of the RTX A4000 fixture: its two highest settings stay at this power and 1740 to 1752 MHz


@dataclass(frozen=True)
class Scores:
    """Relative errors of energies, and whether their intervals hold the truth."""

    errors: Floats
    held: Floats
    warmth: float


def choose(results: Table, names: set[str], *, drop: bool = False) -> Table:
    """Return the rows of some configurations, or of all others."""
    return results.rows(np.array([i for i, c in enumerate(results.config) if (c in names) != drop]))


@dataclass(frozen=True)
class Learnt:
    """What some configurations tell, and all others."""

    predict: Callable[[Table, Sequence[float]], list[Prediction]]
    warmth: float
    rest: Table


def learnt(results: Table, training: int, seed: int) -> Learnt:
    """Train on some configurations."""
    names = list(results.by_config())
    seen = {str(n) for n in np.random.default_rng(seed).choice(names, training, replace=False)}
    model = fit_transfer(choose(results, seen))
    folds = folds_of(model.train)
    rest = choose(results, seen, drop=True)
    return Learnt(lambda given, wanted: predict(model, given, wanted, folds), model.power.warmth, rest)


def score(by: Learnt, measured: tuple[float, ...]) -> Scores:
    """Predict the other configurations at the clocks at which they were not measured."""
    rest = by.rest
    given = rest.rows(np.flatnonzero(np.isin(rest.set_mhz, measured)))
    wanted = [float(c) for c in np.unique(rest.set_mhz) if c not in measured]
    truth = {(c, s): t * p for c, s, t, p in zip(rest.config, rest.set_mhz, rest.time_s, rest.power_w, strict=True)}
    found = by.predict(given, wanted)
    true = np.array([truth[p.config, p.set_mhz] for p in found])
    energy = np.array([p.energy_j for p in found])
    held = [p.energy_low_j <= t <= p.energy_high_j for p, t in zip(found, true, strict=True)]
    return Scores(energy / true - 1.0, np.array(held, np.float64), by.warmth)


def row_of(trained: Mapping[int, Sequence[Learnt]], patterns: Sequence[tuple[float, ...]]) -> list[str]:
    """Mean error, 95 % quantile of the errors and coverage for each size of the training set."""
    row = []
    for training in TRAINING:
        scores = [score(by, m) for m in patterns for by in trained[training]]
        error, tail = np.mean([np.mean(np.abs(s.errors)) for s in scores]), np.quantile(_all(scores), 0.95)
        row.append(f"{100 * error:.2f}, {100 * tail:.1f} % ({100 * np.mean([s.held.mean() for s in scores]):.0f} %)")
    return row


def _all(scores: list[Scores]) -> Floats:
    return np.concatenate([np.abs(s.errors) for s in scores])


def published(results: Table, *, own_time: bool) -> Floats:
    """Mean absolute error of the published recipe, for each choice of the one configuration."""
    energy = results.time_s * results.power_w
    errors = []
    for reference in results.by_config():
        found = shared_curve_energy(results, reference, 1485.0, own_time=own_time)
        use = np.isfinite(found) & (results.set_mhz != 1485.0)
        errors.append(float(np.mean(np.abs(found[use] / energy[use] - 1.0))))
    return np.array(errors)


def fixture() -> tuple[Floats, Floats, PowerCurve]:
    """Fit the ridge model to the RTX A4000 fixture."""
    with (recordings() / "rtxa4000-frequency-power" / "fp32.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    mhz = np.array([float(r["core_freq_mhz"]) for r in rows])
    watts = np.array([float(r["nvml_power_w"]) for r in rows])
    return mhz, watts, fit_power_curve(mhz, watts, cap_w=CAP_W, noise=0.01)


def draw(path: Path, one_for_all: Floats, best: Scores, ridge: tuple[Floats, Floats, PowerCurve]) -> None:
    """Draw the errors of both, and the ridge."""
    figure, (errors, power) = panels(2)
    bins = np.logspace(-4, 1, 60)
    errors.hist(np.abs(one_for_all), bins=list(bins), color=LIGHT, density=False, label="one curve for all (published)",
                weights=np.full(len(one_for_all), 100.0 / len(one_for_all)))  # fmt: skip
    errors.hist(np.abs(best.errors), bins=list(bins), histtype="step", color=DARK, lw=1.5, label="own level, one clock",
                weights=np.full(len(best.errors), 100.0 / len(best.errors)))  # fmt: skip
    errors.set(
        xscale="log", xlabel="relative error of the energy", ylabel="share (%)", title="RTX 4000 Ada, beamformer"
    )
    errors.legend(frameon=False, loc="upper left")
    mhz, watts, curve = ridge
    fine = np.linspace(float(mhz.min()), float(mhz.max()), 300)
    power.plot(mhz, watts, "o", color=DARK, label="measured clock and power")
    power.plot(fine, curve.watts(fine), "-", color=MIDDLE, label="ridge model")
    power.axvspan(curve.ridge_mhz.low, curve.ridge_mhz.high, color="0.9", label="ridge, 95 %")
    power.set(xlabel="clock (MHz)", ylabel="power (W)", title="RTX A4000, FP32 kernel")
    power.legend(frameon=False, loc="upper left")
    save(figure, path)


_TRANSFER = (
    "{} configurations at {} clocks: mean absolute error of the energy, 95 % quantile of the errors (share of truths "
    "inside the 95 % interval), {} random training sets each.\n"
)
_RIDGE = "RTX A4000: {0.value:.0f} MHz ({0.low:.0f} to {0.high:.0f} at 1 % noise), residual {1:.2f} %.\n"


def main() -> None:
    """Write the report."""
    out = folder("frequency", options("frequency", __doc__).parse_args().output)
    results = read_table(recordings() / "rtx4000ada-tuning" / "beamformer_dev.csv.gz")
    ones = [(float(c),) for c in np.unique(results.set_mhz)]
    trained = {training: [learnt(results, training, seed) for seed in range(ROUNDS)] for training in TRAINING}
    rows = [[" and ".join(f"{c:g}" for c in m) + " MHz", *row_of(trained, [m])] for m in MEASURED]
    rows.append(["any one clock, mean of the ten", *row_of(trained, ones)])
    shared, own = published(results, own_time=False), published(results, own_time=True)
    ridge = fixture()
    best = score(trained[20][0], (1635.0,))
    reference = list(results.by_config())[int(np.argsort(shared)[len(shared) // 2])]
    use = results.set_mhz != 1485.0
    energy = results.time_s * results.power_w
    all_alike = (shared_curve_energy(results, reference, 1485.0) / energy - 1.0)[use]
    draw(out / "frequency.png", all_alike[np.isfinite(all_alike)], best, ridge)
    quartiles = [f"{100 * np.quantile(shared, q):.0f}" for q in (0.25, 0.5, 0.75)]
    text = [
        "# Energy at other clocks\n",
        _TRANSFER.format(len(results.by_config()), len(np.unique(results.set_mhz)), ROUNDS),
        table(["measured at", *(f"{n} for training" for n in TRAINING)], rows),
        f"Effect of temperature on power, 20 for training: {1e3 * best.warmth:.2f} per mille per degree.\n",
        "# The published recipe\n",
        table(
            ["recipe", "here", "published"],
            [
                [
                    "one configuration's curves for all",
                    f"{quartiles[1]} % (quartiles {quartiles[0]}, {quartiles[2]})",
                    "38 %",
                ],
                ["the same, with measured times", f"{100 * np.median(own):.1f} %", "4.7 %"],
            ],
        ),
        "# Ridge of a single kernel\n",
        _RIDGE.format(ridge[2].ridge_mhz, 100 * ridge[2].residual),
        "![errors and ridge](frequency.png)\n",
    ]
    (out / "report.md").write_text("\n".join(text), encoding="utf-8")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
