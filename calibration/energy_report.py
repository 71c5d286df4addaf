"""Energies of recorded load steps: as a naive program finds them, corrected, and by the external meter.

    python calibration/energy_report.py

Reads the public recordings (``PMTPY_SHARED``); writes ``report.md`` and ``energy.png`` to
``calibration/reports/energy``.
The last two parts simulate what no recording here shows: sensors of other kinds beside the metered power of these
steps, and a part-time sensor on a load that aliases with it.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import pmtpy as pmt
from calibration.published_corrections import burtscher, folded_energy, held_energy, invert_one_pole
from calibration.reporting import DARK, LIGHT, MIDDLE, folder, options, panels, recordings, save, table
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.energy.estimate import Energy, region_energy
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import CoverageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LENGTHS_S = (6.0, 1.0, 0.3)
# Ticks of the meter's clock per millisecond, found from many load edges in the same session as these steps.
TICKS_PER_MS = 2936.06


@dataclass(frozen=True)
class Case:
    """A recording, which column of it, and the response published or found for that card."""

    title: str
    folder: str
    column: str
    response: Response
    published: str


CASES = (
    Case(
        "RTX 3090, instant",
        "rtx3090-step",
        "instant",
        Response(0.09997, 0.0999, 0.0, -0.001, 0.948, 1.4, 0.003, 0.5, 0.001, 0.0, 0.3),
        "-0.4 / -1.3 / -3.8",
    ),
    Case(
        "Tesla K40m",
        "k40m-step",
        "power.draw",
        Response(0.01541, 0.0, 0.0546, 0.0, 1.021, 0.8, 0.003, 0.2, 0.001, 0.002, 0.15),
        "-0.6 / -1.3 / -3.1",
    ),
)

# Sensors beside which the metered power of these steps is imagined: time between updates, window, time constant.
IMAGINED = {
    "sees a quarter": (0.1, 0.025, 0.0),
    "sees an eighth, low-pass": (0.1, 0.0, 0.0125),
    "sees half": (0.1, 0.05, 0.0),
    "sees half, fast": (0.02, 0.01, 0.0),
    "sees all": (0.1, 0.1, 0.0),
    "slow low-pass": (0.1, 0.0, 0.2),
}


@dataclass(frozen=True)
class Step:
    """One recorded step on a common clock that starts with the kernel."""

    updates: Updates
    meter_t: Floats
    meter_w: Floats
    returned_s: float

    def meter_joules(self, end_s: float) -> float:
        """Energy from the start, by the meter."""
        joules = np.concatenate([[0.0], np.cumsum((self.meter_w[1:] + self.meter_w[:-1]) / 2 * np.diff(self.meter_t))])
        return float(np.interp(end_s, self.meter_t, joules) - np.interp(0.0, self.meter_t, joules))


def read(case: Case) -> Step:
    """Read log, meter and load stamps of a case."""
    at = recordings() / case.folder
    stamps = np.array([float(x) for x in (at / "timestamps.csv").read_text(encoding="utf-8").split()[1::2]]) * 1e-6
    log = pmt.load(at / "gpudata.csv.gz", utc_offset_s=3600.0)
    column = next(c for c in log.columns if c.endswith("_W") and case.column in c and c != "total_W")
    t, watts = np.asarray(log["time"], np.float64) - stamps[0], np.asarray(log[column], np.float64)
    meter = pmt.load(at / "PMD_data.bin.gz", ticks_per_ms=TICKS_PER_MS)
    return Step(
        update_series(t, watts, estimate_updates(t, watts)),
        np.asarray(meter["time"], np.float64) - stamps[0],
        np.asarray(meter["total_W"], np.float64),
        float(stamps[1] - stamps[0]),
    )


def percent(found: float, true: float) -> str:
    """Signed error in percent."""
    return f"{100 * (found / true - 1):+.2f}"


def rows_of(case: Case, step: Step) -> tuple[list[list[str]], list[Energy]]:
    """Errors of each method over each length."""
    u, rows, kept = step.updates, [], []
    for length in LENGTHS_S:
        end = min(length, step.returned_s)
        true = step.meter_joules(end)
        held = held_energy(u.t_s, u.watts, start_s=0.0, end_s=end, period_s=u.period_s)
        found = region_energy(u.t_s, u.watts, case.response, start_s=0.0, end_s=end)
        known = region_energy(
            u.t_s,
            u.watts,
            case.response,
            start_s=0.0,
            end_s=end,
            load=LoadIntervals(np.zeros(1), np.array([step.returned_s])),
        )
        kept.append(found)
        inside = "yes" if found.low <= true <= found.high else "no"
        stated = f"{100 * found.uncertainty_joules / found.joules:.2f}"
        errors = [percent(joules, true) for joules in (held, found.joules, known.joules)]
        rows.append([case.title, f"{end:.2f}", f"{true:.1f}", *errors, stated, inside, found.method])
    return rows, kept


def draw(axis: Axes, case: Case, step: Step) -> None:
    """Draw meter, readings and what is made of them, around the start."""
    u, response = step.updates, case.response
    near = (step.meter_t > -0.3) & (step.meter_t < 1.2)
    axis.plot(step.meter_t[near], step.meter_w[near], color="0.75", lw=0.6, label="external meter")
    axis.step(u.t_s, u.watts, where="post", color=MIDDLE, lw=1.2, label="as shown")
    power = response.power(u.watts)
    if response.tau_s:
        power = invert_one_pole(u.t_s, power, response.tau_s)
        middle = u.t_s - u.period_s / 2.0
        plain = burtscher(u.t_s, response.power(u.watts), 0.84, 300.0)
        axis.plot(u.t_s, plain, ":", color=LIGHT, lw=0.9, label="Burtscher with C = 840 ms")
    else:
        middle = u.t_s - response.lag_s
    axis.step(middle, power, where="mid", color=DARK, lw=1.4, label="corrected")
    axis.set(xlim=(-0.25, 1.1), xlabel="time since the kernel started (s)", ylabel="power (W)", title=case.title)
    axis.set_ylim(0, 1.25 * float(np.max(step.meter_w[near])))
    axis.legend(edgecolor="none", loc="lower right", fontsize=8)


def aliasing(trials: int = 200) -> list[list[str]]:
    """Standard deviation of energies of a 104 ms square wave on a 101.2 ms sensor with a one-pole of 12.5 ms."""
    response = Response(0.1012, 0.0, 0.0125, noise_w=0.5)
    rows = []
    for length in (1.0, 2.0, 4.0):
        errors: dict[str, list[float]] = {"shifted by the lag": [], "folded": [], "load-informed": []}
        for seed in range(trials):
            rng = np.random.default_rng(seed)
            on = np.arange(0, 30, 0.104) + rng.normal(0, 0.0003, 289)
            load = Table(np.stack([on, on + 0.052], 1).ravel(), np.tile([193.0, 65.0], len(on)))
            model = SensorModel(0.1012, rng.uniform(0, 0.1), 0.004, 0.0, 0.0125, noise_w=0.5, seed=seed)
            k = np.arange(10, 280)
            t, watts, start = model.tick_times(k), model.tick_readings(load, k), rng.uniform(3, 20)
            end = start + length
            true = float(load.joules(np.array(end)) - load.joules(np.array(start)))
            plain = region_energy(t, watts, response, start_s=start, end_s=end)
            errors["shifted by the lag"].append(plain.joules / true - 1)
            informed = region_energy(t, watts, response, start_s=start, end_s=end, load=LoadIntervals(on, on + 0.052))
            errors["load-informed"].append(informed.joules / true - 1)
            try:
                folded = folded_energy(t, watts, response, 0.104, start_s=start, end_s=end)
            except CoverageError:
                continue
            errors["folded"].append(folded.joules / true - 1)
        cells = [f"{100 * np.std(e):.2f}" if len(e) > trials / 2 else "declined" for e in errors.values()]
        rows.append([f"{length:g} s", *cells])
    return rows


def imagined(title: str, step: Step, phases: int = 20) -> list[list[str]]:
    """Root mean square error, half-width and hold of energies by sensors that look at the metered power."""
    rows, load = [], Table(step.meter_t, step.meter_w)
    stamps = LoadIntervals(np.zeros(1), np.array([step.returned_s]))
    for name, (period, window, tau) in IMAGINED.items():
        response = Response(period, window, tau, gain_u=0.0025, offset_u=0.1, lag_u=0.0007, noise_w=0.15, step_w=0.01)
        first, last = (float(at) / period for at in (step.meter_t[0] + window, step.meter_t[-1]))
        k = np.arange(math.ceil(first), int(last))
        for length in LENGTHS_S:
            end = min(length, step.returned_s)
            true, cells = float(load.joules(np.array(end)) - load.joules(np.array(0.0))), list[str]()
            for known in (None, stamps):
                found = []
                for seed in range(phases):
                    model = SensorModel(period, period * seed / phases, 0.0, window, tau, noise_w=0.15, seed=seed)
                    t, watts = model.tick_times(k), model.tick_readings(load, k)
                    found.append(region_energy(t, watts, response, start_s=0.0, end_s=end, load=known))
                off, half = (np.array([getattr(e, n) for e in found]) for n in ("joules", "high"))
                off, half = off - true, half - off
                held = int(np.sum(np.abs(off) <= half))
                cells += [f"{100 * np.sqrt(np.mean(off**2)) / true:.2f}", f"{100 * np.median(half) / true:.2f}"]
                cells.append(f"{held} of {phases}")
            rows.append([title, name, f"{end:.2f}", *cells])
    return rows


_STEPS = """From the start of the kernel, error in percent of the external meter. Held: each value from its publication
to the next. Start known: with the host's stamp of the start, which cuts the update it falls into. The stated
uncertainty is the standard one; inside: whether the 95 % interval holds the meter.
"""
_IMAGINED = """Sensors that look at the metered power of these steps, at twenty phases: root mean square error and half
of the 95 % interval (median) in percent of the meter, and how many intervals hold it; without stamps of the load, and
with them.
"""
_ALIASING = """Simulated: 104 ms square wave of 65 and 193 W, updates every 101.2 ms, one-pole of 12.5 ms; standard
deviation in percent over 200 random windows.
"""


def main() -> None:
    """Write the report."""
    out = folder("energy", options("energy", __doc__).parse_args().output)
    steps = [read(case) for case in CASES]
    rows = [row for case, step in zip(CASES, steps, strict=True) for row in rows_of(case, step)[0]]
    others = [row for case, step in zip(CASES, steps, strict=True) for row in imagined(case.title, step)]
    figure, axes = panels(len(CASES))
    for axis, case, step in zip(axes, CASES, steps, strict=True):
        draw(axis, case, step)
    save(figure, out / "energy.png")
    published = [[c.title, c.published] for c in CASES]
    text = [
        "# Energies of recorded steps\n",
        _STEPS,
        table(["recording", "s", "meter J", "held", "corrected", "start known", "stated", "inside", "method"], rows),
        "Gain and lag alone, as found before for these recordings (6 / 1 / 0.3 s):\n",
        table(["recording", "percent"], published),
        "![steps](energy.png)\n",
        "# Other sensors on the same power\n",
        _IMAGINED,
        table(["recording", "sensor", "s", *(["error", "half-width", "held"] * 2)], others),
        "# A part-time sensor that aliases\n",
        _ALIASING,
        table(["window", "shifted by the lag", "folded", "load-informed"], aliasing()),
    ]
    (out / "report.md").write_text("\n".join(text), encoding="utf-8")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
