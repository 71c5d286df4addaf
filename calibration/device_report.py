"""The report on a device that ``record_device.py`` has recorded: what its channels are, and how they agree.

    python calibration/device_report.py calibration/devices/NAME

Writes ``report.md``, ``found.json`` (the documents of ``pmtpy characterise``) and pictures beside the recordings.
Without a reference meter gain and offset are not known; how the channels stand to each other is.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import pmtpy as pmt
from calibration.reporting import DARK, LIGHT, MIDDLE, panels, save, table
from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats

if TYPE_CHECKING:
    import pandas as pd

ORDER = ("idle", "step", "square-2-3", "square-3-4", "square-5-4", "square-4-3", "random")
_ENOUGH_MOVES = 8  # of a counter, before anything is said about its steps


@dataclass(frozen=True)
class Phase:
    """One recording: its rows, its load (None: none), its channels of power or energy."""

    name: str
    rows: pd.DataFrame
    load: LoadIntervals | None

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [str(c) for c in self.rows.columns]

    @property
    def powers(self) -> list[str]:
        """Names of the channels that tell a power."""
        return [c.removesuffix("_W") for c in self.columns if c.endswith("_W") and c != "total_W"]

    @property
    def counters(self) -> list[str]:
        """Names of those that count energy."""
        return [c.removesuffix("_J") for c in self.columns if c.endswith("_J")]

    def series(self, channel: str) -> Series:
        """Return what a channel showed, on wall time."""
        watts = self.rows[f"{channel}_W"].to_numpy(np.float64)
        known = np.isfinite(watts)
        return Series(self.rows["time"].to_numpy(np.float64)[known], watts[known])


def read(folder: Path) -> list[Phase]:
    """Read the recordings of a folder.

    Raises SystemExit: there are none.
    """
    phases = []
    for name in ORDER:
        path = folder / f"{name}.csv.gz"
        if not path.exists():
            continue
        stamps = pmt.load(folder / f"{name}-load.csv")["time"].to_numpy(np.float64)
        load = LoadIntervals.switched(stamps[:-1], float(stamps[-1])) if len(stamps) > 1 else None
        phases.append(Phase(name, pmt.load(path), load))
    if not phases:
        raise SystemExit(
            f"{folder} holds no recordings; make them with calibration/record_device.py TARGET -o {folder}"
        )
    return phases


def estimate(value: dict[str, float] | None, digits: int) -> str:
    """Write an estimate with its 95 % half-width."""
    if value is None:
        return "-"
    return f"{value['value']:.{digits}f} +/- {(value['high'] - value['low']) / 2.0:.{digits}f}"


def responses(found: dict[tuple[str, str], Characterisation]) -> str:
    """Write the table of periods, steps and kernels."""
    rows: list[list[Any]] = []
    for (phase, channel), each in found.items():
        document = each.document()
        kernel, step = document["kernel"], document["step"]
        width = kernel["window_ms"] or kernel["tau_ms"]
        name = "-" if kernel["family"] == "ambiguous" else f"{kernel['family']} {estimate(width, 2)}"
        rose = "-" if step["kind"] is None else f"{step['kind']}, {estimate(step['rise_ms'], 0)}"
        why = "; ".join(f"{k}: {v}" for k, v in document["declined"].items() if k in {"update_period_ms", "kernel"})
        rows.append([phase, channel, estimate(document["update_period_ms"], 3), name, rose, why])
    return table(["phase", "channel", "period ms", "kernel ms", "step: kind, rise ms", "declined"], rows)


def counter_steps(phase: Phase, channel: str) -> tuple[Floats, Floats] | None:
    """Return times between the moves of a counter, seconds, and by how much it moved, joules; None: too few moves."""
    joules = phase.rows[f"{channel}_J"].to_numpy(np.float64)
    moves = np.flatnonzero(np.diff(joules) > 0.0) + 1
    if len(moves) < _ENOUGH_MOVES:
        return None
    t = phase.rows["elapsed"].to_numpy(np.float64)[moves]
    return np.asarray(np.diff(t), np.float64), np.asarray(np.diff(joules[moves]), np.float64)


def counters(phases: list[Phase]) -> str:
    """Write how the energy counters move, and what power they show beside the channels of power."""
    rows = []
    for phase in phases:
        for channel in phase.counters:
            moved = counter_steps(phase, channel)
            if moved is None:
                rows.append([phase.name, channel, "-", "-", "-", "fewer than 8 moves"])
                continue
            times, joules = moved
            counted = float(joules.sum() / times.sum())
            beside = ", ".join(
                f"{power} {counted / mean:.4f}"
                for power in phase.powers
                if power != channel and (mean := float(np.nanmean(phase.rows[f"{power}_W"]))) > 0.0
            )
            middle, ends = np.median(times), np.percentile(times, [5, 95])
            moves = f"{1e3 * middle:.1f} ({1e3 * ends[0]:.1f} to {1e3 * ends[1]:.1f})"
            rows.append([phase.name, channel, moves, f"{np.median(joules):.4g}", f"{counted:.3f}", beside])
    head = ["phase", "counter", "time between moves ms (5 to 95 %)", "J at once", "W by the counter"]
    return table([*head, "counter / mean of"], rows)


def conditions(phases: list[Phase]) -> str:
    """Write what else was recorded: temperatures, clocks."""
    others = [
        c for c in phases[0].columns if not c.endswith(("_W", "_J")) and c not in {"time", "elapsed", "marker", "lost"}
    ]
    rows = [
        [p.name, *(f"{p.rows[c].min():.6g} to {p.rows[c].max():.6g}" for c in others), f"{1e3 * _interval(p):.2f}"]
        for p in phases
    ]
    return table(["phase", *others, "poll ms"], rows)


def _interval(phase: Phase) -> float:
    return float(np.median(np.diff(phase.rows["elapsed"].to_numpy(np.float64))))


def draw(phases: list[Phase], out: Path) -> None:
    """Draw what each channel of power showed around the load's switching."""
    shown = [p for p in phases if p.load is not None]
    figure, axes = panels(len(shown), height=2.4)
    for phase, axis in zip(shown, axes, strict=True):
        assert phase.load is not None  # noqa: S101  (chosen above)
        start = float(phase.load.on_s[0])
        t = phase.rows["time"].to_numpy(np.float64) - start
        lasts = 8.0 if phase.name == "step" else 1.5
        near = (t > -0.5) & (t < lasts)
        for on, off in zip(phase.load.on_s[:60] - start, phase.load.off_s[:60] - start, strict=True):
            axis.axvspan(on, min(off, lasts), color="0.93", linewidth=0)
        for channel, colour in zip(phase.powers, (DARK, MIDDLE, LIGHT, "0.5"), strict=False):
            axis.step(
                t[near], phase.rows[f"{channel}_W"][near], where="post", color=colour, label=channel, linewidth=1.0
            )
        axis.set_xlim(-0.5, lasts)
        axis.set_title(phase.name)
        axis.set_ylabel("W")
    axes[0].legend(frameon=False, fontsize=8, loc="upper right")
    axes[-1].set_xlabel("s since the load's start (grey: on)")
    save(figure, out / "load.png")


TEXT = """# {model}

{target}, driver or firmware {version}; {virtual}recorded with `calibration/record_device.py`, evaluated with
`calibration/device_report.py`. Estimates with 95 % half-widths. There was no reference meter, so gain and offset are
not known.

## Response

{responses}
## Energy counters

{counters}
A ratio of one says that the counter and the mean of the power agree over the phase; polls are spread evenly enough
that the mean of what they show is a mean over time.

## Conditions

{conditions}
![Channels around the load](load.png)
"""


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    phases = read(folder)
    facts = phases[0].rows.attrs["metadata"] or {}
    found = {(p.name, c): characterise(c, p.series(c), load=p.load) for p in phases for c in p.powers}
    identity = facts.get("identity", {})
    text = TEXT.format(
        model=identity.get("model") or facts.get("target", folder.name),
        target=facts.get("target", "?"),
        version=identity.get("version") or "?",
        virtual="an emulated device, " if facts.get("virtual") else "",
        responses=responses(found),
        counters=counters(phases),
        conditions=conditions(phases),
    )
    (folder / "report.md").write_text(text, encoding="utf-8")
    documents = {p.name: {c: found[p.name, c].document() for c in p.powers} for p in phases}
    (folder / "found.json").write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    draw(phases, folder)
    print(f"written to {folder}")


if __name__ == "__main__":
    main()
