"""Calibrate a PowerSensor3 pair from its samples, and report: zero, gain, error model, noise against rate.

    python calibration/powersensor3_report.py                        # on the virtual board
    python calibration/powersensor3_report.py --idle idle.csv --load load.csv --pair pair0 --supply 12 --supply-u 0.01

The files are dumps of 6.4 s or more at full rate (``pmtpy dump powersensor3 -f idle.csv --duration 7s``): one with the
module unloaded and the known supply connected, one at a constant load. Written to ``calibration/reports/powersensor3``:
``report.md``, ``noise.png`` and one profile for the current and one for the voltage.
"""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import pmtpy as pmt
from calibration.meter import (
    TABLE_I,
    Allan,
    NoiseAt,
    allan,
    noise_by_rate,
    power_error,
    steady_mean,
    voltage_gain,
    zero_vref,
)
from calibration.reporting import DARK, LIGHT, MIDDLE, folder, options, panels, save, table
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Identity
from pmtpy.core.clock import ManualClock
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats
from pmtpy.emulators.powersensor3.source import open_virtual

RATE_HZ = 20_000.0
SECONDS = 6.6
# Table II of the paper: standard deviation in watts at 0.5 A and at 1 A.
TABLE_II = {
    20_000: (0.718, 0.722),
    10_000: (0.507, 0.511),
    5_000: (0.358, 0.362),
    1_000: (0.160, 0.163),
    500: (0.113, 0.117),
}
LEVEL_V = 3.3 / 1023  # one level at the pin


@dataclass(frozen=True)
class Stored:
    """Calibration that the board held when it was sampled; by default that of a 12 V / 10 A module."""

    vref: float = 1.65
    sensitivity: float = 0.12
    gain: float = 0.091
    known: bool = False

    @staticmethod
    def of(current: tuple[float, float], voltage: tuple[float, float]) -> Stored:
        """Return what scale and offset of the two channels (in levels) say."""
        return Stored(-current[1] * LEVEL_V, LEVEL_V / current[0], LEVEL_V / voltage[0], known=True)


@dataclass(frozen=True)
class Samples:
    """Volts and amperes of one pair, and where they came from."""

    volts: Floats
    amps: Floats
    origin: str
    identity: Identity
    stored: Stored


def virtual(load: str) -> Samples:
    """Sample the virtual board: one 12 V / 10 A module, on a clock that is turned by hand."""
    clock = ManualClock()
    source = open_virtual(clock=clock, load=load, pairs="MLX10:12:1:gpu")
    amps, volts = source.channels[:2]
    parts = []
    for _ in range(round(SECONDS / 0.1)):
        clock.advance(0.1)
        parts.append(np.asarray(source.read().raw, np.float64))
    source.close()
    levels = np.concatenate(parts)
    return Samples(
        (levels[:, 1] + volts.offset) * volts.scale,
        (levels[:, 0] + amps.offset) * amps.scale,
        f"virtual board, load {load}",
        source.identity,
        Stored.of((amps.scale, amps.offset), (volts.scale, volts.offset)),
    )


def recorded(path: str, pair: str) -> Samples:
    """Read a dump, and whose it is from the file beside it."""
    frame = pmt.load(path)
    beside = frame.attrs.get("metadata")
    device, stored = {}, Stored()
    if isinstance(beside, dict):
        device = beside["identity"]
        scales = {c["name"]: (float(c["scale"]), float(c["offset"])) for c in beside["channels"]}
        stored = Stored.of(scales[f"{pair}.current"], scales[f"{pair}.voltage"])
    identity = Identity(
        "powersensor3",
        model=device.get("model", ""),
        serial=device.get("serial", ""),
        version=device.get("version", ""),
        virtual=bool(frame.attrs["virtual"]),
    )
    volts, amps = (np.asarray(frame[f"{pair}_{unit}"], np.float64) for unit in "VA")
    return Samples(volts, amps, path, identity, stored)


def profiles(idle: Samples, pair: str, supply: float, supply_u: float) -> list[Profile]:
    """Make the two profiles: zero of the current, gain of the voltage."""
    zero = steady_mean(idle.amps, "zero of the current")
    shown = steady_mean(idle.volts, "gain of the voltage")
    gain = shown.value / supply
    gain_u = gain * float(np.hypot(shown.u / shown.value, supply_u / supply))
    came = (
        ("data", idle.origin),
        ("date", dt.datetime.now(tz=dt.timezone.utc).date().isoformat()),
        ("reference", f"unloaded; supply {supply:g} V, standard uncertainty {supply_u:g} V"),
        ("samples", str(zero.samples)),
    )
    current = Affine(Number(1.0), Number(zero.value, zero.u))
    voltage = Affine(Number(gain, gain_u), Number(0.0))
    return [
        Profile(idle.identity, f"{pair}.current", current, -10.0, 10.0, provenance=came),
        Profile(idle.identity, f"{pair}.voltage", voltage, 0.8 * supply, 1.2 * supply, provenance=came),
    ]


def picture(path: Path, loaded: Floats, rows: list[NoiseAt], stability: Allan) -> None:
    """Draw noise against rate beside Table II, the Allan deviation, and a piece of the samples."""
    figure, (noise, drift, trace) = panels(3)
    rates = [r.rate_hz / 1e3 for r in rows]
    noise.loglog(rates, [r.std for r in rows], "o", color=DARK, label="this sensor")
    noise.loglog(rates, [r.predicted_std for r in rows], "-", color=LIGHT, label="white noise, 1/sqrt(n)")
    published = [(k / 1e3, v[1]) for k, v in TABLE_II.items()]
    noise.loglog(*zip(*published, strict=True), "x", ms=9, color=MIDDLE, label="published, 1 A")
    noise.set(xlabel="rate (kHz)", ylabel="standard deviation (W)", title="Noise of block means against rate")
    noise.legend(frameon=False)
    drift.loglog(stability.tau_s, stability.deviation, "o-", color=DARK, ms=3, label="this sensor")
    drift.loglog(
        stability.tau_s,
        stability.deviation[0] * np.sqrt(stability.tau_s[0] / stability.tau_s),
        "--",
        color=MIDDLE,
        label="slope -1/2 (white)",
    )
    drift.set(xlabel="averaging time (s)", ylabel="Allan deviation (W)", title="Stability")
    drift.legend(frameon=False)
    n = int(0.1 * RATE_HZ)
    t = 1e3 * np.arange(n) / RATE_HZ
    trace.plot(t, loaded[:n], color=LIGHT, lw=0.5, label="20 kHz")
    means = loaded[: n // 20 * 20].reshape(-1, 20).mean(axis=1)
    trace.plot(t[10::20], means, color=DARK, lw=1.2, label="1 kHz")
    trace.set(xlabel="time (ms)", ylabel="power (W)", title="Constant load")
    trace.legend(frameon=False, loc="upper right")
    save(figure, path)


_SETTINGS = (
    "At 115 mA rms of Hall noise the paper expects 0.3 mA from 128 k samples. The new settings start from what {}: "
    "{:g} V, {:g} V/A and {:g}; the profiles beside this file do not need it.\n"
)


def _allan_text(found: Allan) -> str:
    kind = "white" if found.white else "not white"
    return (
        f"Allan deviation up to 0.1 s falls with slope {found.slope.value:.3f} ({found.slope.low:.3f} to "
        f"{found.slope.high:.3f}): {kind}. Lowest value {found.floor * 1e3:.1f} mW at "
        f"{found.tau_s[int(np.argmin(found.deviation))]:.2g} s.\n"
    )


def report(
    idle: Samples, loaded: Samples, pair: str, supply: float, supply_u: float
) -> tuple[str, list[NoiseAt], Allan]:
    """Write the text."""
    was = idle.stored
    whose = "the board held" if was.known else "such a module mostly holds"
    zero, gain = zero_vref(idle.amps, was.vref, was.sensitivity), voltage_gain(idle.volts, was.gain, supply, supply_u)
    mean_a, mean_v = steady_mean(idle.amps, "amperes"), steady_mean(idle.volts, "volts")
    power = loaded.volts * loaded.amps
    rows, stability = noise_by_rate(power, RATE_HZ), allan(power, RATE_HZ)
    level = steady_mean(power, "power")
    text = [
        f"# PowerSensor3, {pair}\n",
        f"Idle: {idle.origin} ({len(idle.amps)} samples). Load: {loaded.origin} ({level.value:.3f} W).",
        "A virtual board: this rehearses the procedure and checks the emulator.\n" * idle.identity.virtual,
        "## Zero and gain\n",
        table(
            ["quantity", "shown", "standard error", "new setting (95 %)"],
            [
                ["current without load", f"{mean_a.value * 1e3:.2f} mA", f"{mean_a.u * 1e3:.2f} mA",
                 f"vref {was.vref:.5f} -> {zero.value:.5f} V ({zero.low:.5f} to {zero.high:.5f})"],
                [f"voltage at {supply:g} V", f"{mean_v.value:.4f} V", f"{mean_v.u * 1e3:.2f} mV",
                 f"gain {was.gain:.6f} -> {gain.value:.6f} ({gain.low:.6f} to {gain.high:.6f})"],
            ],
        ),
        _SETTINGS.format(whose, was.vref, was.sensitivity, was.gain),
        "## Error model (Table I)\n",
        table(
            ["module", "published", "by the formula, 10 A"],
            [[name, f"{m.published_w:.1f} W", f"{power_error(m.volts, m.volts_error, 10.0, m.amps_error):.2f} W"]
             for name, m in TABLE_I.items()],
        ),
        "## Noise against rate (Table II)\n",
        table(
            ["rate", "std", "white noise would give", "published 0.5 A / 1 A", "peak to peak"],
            [[f"{r.rate_hz / 1e3:g} kHz", f"{r.std:.3f} W", f"{r.predicted_std:.3f} W",
              "{} / {} W".format(*TABLE_II[round(r.rate_hz)]), f"{r.peak_to_peak:.2f} W"] for r in rows],
        ),
        _allan_text(stability),
        "![noise](noise.png)\n",
    ]  # fmt: skip
    return "\n".join(text), rows, stability


def main() -> None:
    """Read or rehearse, and write the report."""
    parser = options("powersensor3", __doc__)
    parser.add_argument("--idle", metavar="DUMP", help="unloaded, known supply connected")
    parser.add_argument("--load", metavar="DUMP", help="at a constant load")
    parser.add_argument("--pair", default="pair0", help="pair to calibrate")
    parser.add_argument("--supply", type=float, default=12.0, metavar="VOLT", help="true voltage of the supply")
    parser.add_argument("--supply-u", type=float, default=0.0, metavar="VOLT", help="its standard uncertainty")
    args = parser.parse_args()
    if bool(args.idle) != bool(args.load):
        parser.error("give both --idle and --load, or neither for the virtual board")
    idle = recorded(args.idle, args.pair) if args.idle else virtual("constant:0")
    loaded = recorded(args.load, args.pair) if args.load else virtual("constant:12")
    out = folder("powersensor3", args.output)
    text, rows, stability = report(idle, loaded, args.pair, args.supply, args.supply_u)
    picture(out / "noise.png", loaded.volts * loaded.amps, rows, stability)
    (out / "report.md").write_text(text, encoding="utf-8")
    for profile in profiles(idle, args.pair, args.supply, args.supply_u):
        (out / f"{profile.channel}.json").write_text(profile.to_json(), encoding="utf-8")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
