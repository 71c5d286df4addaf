"""What the estimators find in the public recordings, beside what was published, with pictures.

    python calibration/characterise_report.py

Reads the public recordings (``PMTPY_SHARED``); writes ``report.md`` and its pictures to
``calibration/reports/characterise``. Published: Yang, Adamek and Armour, arXiv 2312.02741, their results sheet, and
their per-run estimates.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import pmtpy as pmt
from calibration.reporting import DARK, LIGHT, MIDDLE, folder, options, panels, recordings, save, table
from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.results import Characterisation, Series
from pmtpy.analysis.clocking import PublishingClock, estimate_updates, update_series
from pmtpy.analysis.signal.clock_fit import fit_clock
from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Case:
    """A recording, a channel of it, and what was published: period, window or time constant, gradient, intercept."""

    folder: str
    channel: str
    published: tuple[str, str, str, str]


CASES = (
    Case("rtx3090-update-period", "power.draw.instant", ("100", "-", "-", "-")),
    Case("rtx3090-squarewave", "power.draw.instant", ("100", "boxcar 99.9", "0.948", "+1.4")),
    Case("rtx3090-step", "power.draw.instant", ("100", "boxcar 99.9", "0.948", "+1.4")),
    Case("rtx3090-step", "power.draw.average", ("100", "1 s mean", "0.944", "+4.6")),
    Case("k40m-step", "power.draw", ("15", "logarithmic", "1.024", "+0.8")),
    Case("rtx4000ada-pmt", "gpu_instant", ("100", "-", "-", "-")),
)
STEPS = {  # rise and delay in ms, as published: mean of 32 runs
    ("rtx3090-step", "power.draw.instant"): ("249", "136"),
    ("rtx3090-step", "power.draw.average"): ("912", "597"),
    ("k40m-step", "power.draw"): ("90", "33"),
}


@dataclass(frozen=True)
class Recorded:
    """One recording on the host's clock, with what was found in it."""

    case: Case
    polls: Series
    load: LoadIntervals | None
    meter: Series | None
    found: Characterisation

    @property
    def lattice(self) -> PublishingClock:
        """The update lattice, on the polls' own clock."""
        return estimate_updates(self.polls.t_s, self.polls.watts)

    @property
    def updates(self) -> Updates:
        """The updates on the host's clock."""
        updates = update_series(self.polls.t_s, self.polls.watts, self.lattice)
        return updates if self.load is None else updates.shifted(self.zone_s)

    @property
    def zone_s(self) -> float:
        """Whole half-hours between the log's clock and the load's."""
        assert self.load is not None  # noqa: S101  (asked for where there is one)
        return 1800.0 * round(float(self.load.on_s[0] - self.polls.t_s[0]) / 1800.0)

    def metered(self) -> PowerTrace:
        """Return the meter's curve on the host's clock."""
        assert self.meter is not None  # noqa: S101
        assert self.load is not None  # noqa: S101
        curve = self.meter.curve()
        return fit_clock(curve, self.load.on_s, self.load.off_s).on_host(curve)


def _series(path: Path, column: str) -> Series:
    frame = pmt.load(path)
    return Series(frame["time"].to_numpy(np.float64), frame[column].to_numpy(np.float64))


def read(root: Path, case: Case) -> Recorded:
    """Read a recording and characterise it."""
    place = root / case.folder
    log = next(p for p in (place / "gpudata.csv.gz", place / "pmt-nvml.log") if p.exists())
    polls = _series(log, f"{case.channel}_W")
    load = meter = None
    if (place / "PMD_data.bin.gz").exists():
        stamps = pmt.load(place / "timestamps.csv")["time"].to_numpy(np.float64)
        load = LoadIntervals.switched(stamps[:-1], float(stamps[-1]))
        meter = _series(place / "PMD_data.bin.gz", "total_W")
    return Recorded(case, polls, load, meter, characterise(case.channel, polls, load=load, meter=meter))


def _text(estimate: dict[str, float] | None, digits: int) -> str:
    if estimate is None:
        return "-"
    half = (estimate["high"] - estimate["low"]) / 2.0
    return f"{estimate['value']:.{digits}f} +/- {half:.{digits}f}"


def _range(estimate: dict[str, float]) -> str:
    return f"{estimate['value']:.0f} ({estimate['low']:.0f} to {estimate['high']:.0f})"


def summary(every: list[Recorded]) -> str:
    """Write the table of everything found beside everything published."""
    rows: list[list[Any]] = []
    for each in every:
        found, said = each.found.document(), each.case.published
        kernel = found["kernel"]
        width = kernel["window_ms"] or kernel["tau_ms"]
        name = "-" if kernel["family"] == "ambiguous" else f"{kernel['family']} {_text(width, 2)}"
        rows.append(
            [
                each.case.folder,
                each.case.channel,
                *(said[0], _text(found["update_period_ms"], 3)),
                *(said[1], name),
                *(said[2], _text(found["gradient"], 4)),
                *(said[3], _text(found["intercept_w"], 2)),
            ]
        )
    head = ["recording", "channel", "period ms, published", "found", "kernel ms, published", "found"]
    return table([*head, "gradient, published", "found", "intercept W, published", "found"], rows)


def steps(every: list[Recorded]) -> str:
    """Write the table of step responses and of energies."""
    rows = []
    for each in every:
        found = each.found.document()
        said = STEPS.get((each.case.folder, each.case.channel))
        if said is None:
            continue
        step = found["step"]
        rise, delay = (_range(step[name]) for name in ("rise_ms", "delay_ms"))
        errors = ", ".join(
            f"{e['held_error_percent']:+.1f} -> {e['corrected_error_percent']:+.2f}" for e in found["energy"].values()
        )
        rows.append([each.case.folder, each.case.channel, step["kind"], said[0], rise, said[1], delay, errors])
    head = ["recording", "channel", "kind", "rise ms, published", "found", "delay ms, published", "found"]
    return table([*head, "energy error %, 6 / 1 / 0.3 s: held -> corrected"], rows)


def declined(every: list[Recorded]) -> str:
    """Write what was declined, and why."""
    rows = [(e.case.folder, e.case.channel, n, why) for e in every for n, why in e.found.declined.items()]
    return table(["recording", "channel", "declined", "because"], rows)


# --- pictures ---


def draw_periods(every: list[Recorded], out: Path) -> None:
    """Draw where in the update period each change was seen, over the recording."""
    shown = [e for e in every if e.case.folder in {"rtx3090-update-period", "k40m-step", "rtx4000ada-pmt"}]
    figure, axes = panels(len(shown), height=2.4)
    for each, axis in zip(shown, axes, strict=True):
        lattice = each.lattice
        period = lattice.period_s.value
        at = np.flatnonzero(np.diff(each.polls.watts) != 0)
        before, after = each.polls.t_s[at], each.polls.t_s[at + 1]
        k = np.round(((before + after) / 2.0 - lattice.phase_s.value) / period)
        u = lattice.phase_s.value + k * period
        t = before - each.polls.t_s[0]
        axis.vlines(t, 1e3 * (before - u), 1e3 * (after - u), color=LIGHT, linewidth=1.0)
        nominal = lattice.blocks_s - each.polls.t_s[0]
        if len(nominal) > 1:
            axis.plot(nominal, 1e3 * lattice.block_phase_s, color=MIDDLE, marker="o", label="phase by block")
            axis.legend(edgecolor="none", loc="upper right")
        axis.axhline(0.0, color=DARK, linewidth=0.8)
        axis.set_ylim(-550 * period, 550 * period)
        axis.set_title(
            f"{each.case.folder}, {each.case.channel}: T = {_text(each.found.document()['update_period_ms'], 3)} ms"
        )
        axis.set_ylabel("polls around\nchange, ms")
    axes[-1].set_xlabel("s")
    save(figure, out / "periods.png")


def draw_kernels(every: list[Recorded], out: Path) -> None:
    """Draw readings against the meter through the kernel found, and the residuals."""
    shown = [e for e in every if e.meter is not None and e.case.channel != "power.draw.average"]
    figure, axes = panels(len(shown), height=2.6)
    for each, axis in zip(shown, axes, strict=True):
        _kernel(each, axis)
    axes[-1].set_xlabel("s since the load's start")
    save(figure, out / "kernels.png")


def _kernel(each: Recorded, axis: Axes) -> None:
    fit, transfer, load = each.found.kernel, each.found.transfer, each.load
    assert fit is not None  # noqa: S101  (chosen above)
    assert transfer is not None  # noqa: S101
    assert load is not None  # noqa: S101
    meter, updates, best = each.metered(), each.updates, fit.best
    start = float(load.on_s[0])
    t = np.arange(start - 0.3, start + 1.5, 5e-4)
    respond = Responder(meter)
    axis.plot(t - start, respond(t, 2e-3, 0.0), color=LIGHT, linewidth=0.8, label="meter")
    window = best.window_s.value if best.window_s else 0.0
    tau = best.tau_s.value if best.tau_s else 0.0
    offset = each.found.offset_s.value if each.found.offset_s else best.offset_s.value
    through = transfer.gain.value * respond(t - offset, window, tau) + transfer.intercept_w.value
    axis.plot(t - start, through, color=DARK, linewidth=1.0, label="meter through the kernel, gain and intercept")
    near = updates.between(t[0], t[-1])
    axis.plot(near.t_s - start, near.watts, "o", color=MIDDLE, markersize=4, label="updates of the sensor")
    width = best.window_s or best.tau_s
    shown = _text(width.scaled(1e3).as_dict(), 2) if width else ""
    axis.set_title(f"{each.case.folder}: {fit.family} {shown} ms, residual {best.residual_w:.2f} W")
    axis.set_ylabel("W")
    axis.legend(edgecolor="none", loc="lower right", fontsize=8)


def draw_losses(root: Path, every: list[Recorded], out: Path) -> None:
    """Draw loss against window beside the publishers' curve, and their estimates beside ours."""
    each = next(e for e in every if e.case.folder == "rtx3090-squarewave")
    meter, updates = each.metered(), each.updates
    inside = updates.between(meter.start_s + 0.3, meter.end_s)
    respond = Responder(meter)
    windows = np.arange(1.0, 200.0, 2.0) * 1e-3
    losses = [_least_loss(respond, inside, float(w)) for w in windows]
    with (root / "published" / "loss_func_rtx3090.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figure, axes = panels(2)
    published = [[float(r[c]) for r in rows] for c in ("avg_windows", "losses", "pmd_losses")]
    axes[0].plot(published[0], published[2], color=MIDDLE, marker=".", label="published, against the meter")
    axes[0].plot(
        published[0], published[1], color=MIDDLE, linestyle=":", label="published, against an ideal square wave"
    )
    axes[0].plot(1e3 * windows, losses, color=DARK, label="found, meter, load period of 99.7 ms")
    axes[0].set_xlabel("window, ms")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("loss of z-scores, 2 (1 - r)")
    axes[0].legend(frameon=False, fontsize=8)
    text = (root / "published" / "window_estimates_rtx3090.csv").read_text(encoding="utf-8").split()
    blocks = np.array([[float(x) for x in line.split(",")] for line in text[1:]])
    periods, with_meter = text[0].split(","), blocks[8:12]
    for i, runs in enumerate(with_meter):
        scatter = np.random.default_rng(i).uniform(-0.15, 0.15, len(runs))
        axes[1].plot(i + scatter, runs, ".", color=MIDDLE, label="published, single runs" if i == 0 else None)
    kernel = each.found.document()["kernel"]["window_ms"]
    axes[1].axhspan(kernel["low"], kernel["high"], color=DARK, alpha=0.6, label="found, one run, 95 %")
    axes[1].set_xticks(range(len(periods)), [f"{p} ms load" for p in periods])
    axes[1].set_ylabel("window, ms")
    axes[1].legend(frameon=False, fontsize=8)
    save(figure, out / "losses.png")


def _least_loss(respond: Responder, updates: Updates, window: float) -> float:
    offsets: Floats = np.linspace(-0.06, 0.06, 121) + (0.1 - window) / 2.0
    x = respond(updates.t_s - offsets[:, None], window, 0.0)
    x = x - np.mean(x, axis=1, keepdims=True)
    y = updates.watts - np.mean(updates.watts)
    r = (x @ y) / np.sqrt(np.maximum(np.sum(x * x, axis=1), 1e-9) * float(y @ y))
    return float(2.0 * (1.0 - np.max(r)))


TEXT = """# The estimators on public recordings

Published values are those of Yang, Adamek and Armour (arXiv 2312.02741 and its results sheet); of the RTX 4000 Ada
there are none but the period. Found: with 95 % half-widths. The meter's clock is found from the load's edges or
within the fit, the log's time zone from the load's stamps.

{summary}
The K40m's published class is "logarithmic", and its time constant here is that of a one-pole; 10 to 90 % of it take
ln 9 = 2.197 time constants. A running mean of one second holds eleven updates of 100 ms.

## Load steps

{steps}
A published rise or delay is a mean of 32 runs, each at another phase of the update period; of one run the interval
holds all phases. Why the published rise of the K40m is shorter than its time constant asks for is not known.

## What was declined

{declined}
## Pictures

![Polls around each change against the lattice](periods.png)

![Readings against the meter through the kernel](kernels.png)

![Loss against window](losses.png)

The published curve is of a load whose period suits the measurement. That of the recording at hand nearly equals window
and update period, where an ideal square wave shows nothing at all: what fixes the window to 0.1 ms are the
load's irregularities, which the meter has seen.
"""


def main() -> None:
    """Write the report."""
    out, root = folder("characterise", options("characterise", __doc__).parse_args().output), recordings()
    every = [read(root, case) for case in CASES]
    text = TEXT.format(summary=summary(every), steps=steps(every), declined=declined(every))
    (out / "report.md").write_text(text, encoding="utf-8")
    draw_periods(every, out)
    draw_kernels(every, out)
    draw_losses(root, every, out)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
