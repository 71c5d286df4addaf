"""Stamped regions of a part-time sensor that is polled in step: the phase of its updates is among what is not known."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.energy.live import after_s, live_energy
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Number, Response

_PERIOD_S, _WINDOW_S, _LASTS_S = 0.1, 0.025, 20.0
_CURVE = Affine(Number(1.0, 0.003), Number(0.0, 0.1))


def _regions(
    every_s: float, on_s: float, poll_s: float, seed: int, window_s: float = _WINDOW_S
) -> list[tuple[float, bool]]:
    """Return errors in half-widths, and whether it was warned, of regions of a square wave with exact stamps."""
    how = Response.stated(
        "boxcar",
        refresh_s=Number(_PERIOD_S, 2e-5),
        window_s=Number(window_s, 5e-4),
        delay_s=Number(0.0, 5e-4),
        noise=Number(0.2),
    )
    profile = Profile(Identity("meter"), "p", _CURVE, 0.0, 1000.0, how, (("made", "here"),))
    channel = Channel("p", Quantity.POWER, resolution=0.001, refresh_s=_PERIOD_S, window_s=window_s)
    rng = np.random.default_rng(seed)
    on = np.arange(0.0, _LASTS_S, every_s)
    knots = np.append(np.stack([on, on + on_s], axis=1).ravel(), _LASTS_S + 1.0)
    joules = np.append(0.0, np.cumsum(np.where(np.arange(len(knots) - 1) % 2, 60.0, 250.0) * np.diff(knots)))
    ends = _PERIOD_S * np.arange(2, int(_LASTS_S / _PERIOD_S)) + rng.uniform(0.0, _PERIOD_S)
    shown = (np.interp(ends, knots, joules) - np.interp(ends - window_s, knots, joules)) / window_s
    shown = np.round(shown + 0.2 * rng.standard_normal(len(ends)), 3)
    t = np.arange(0.5, _LASTS_S - 0.5, poll_s)
    t = t + rng.uniform(0.0, 5e-4, len(t))
    rows = shown[np.searchsorted(ends, t, side="right") - 1]
    found = []
    for _ in range(2):
        begins, seconds = float(rng.uniform(6.0, 16.0)), float(rng.uniform(0.3, 2.0))
        near = (t > begins - 5.0) & (t < begins + seconds + after_s(how))
        load = LoadIntervals(on - begins, on + on_s - begins)
        energy = live_energy(profile, channel, t[near] - begins, rows[near], seconds=seconds, aged_s=poll_s, load=load)
        assert energy is not None
        true = float(np.subtract(*np.interp([begins + seconds, begins], knots, joules)))
        found.append((abs(energy.joules - true) / (energy.high - energy.joules), bool(energy.warnings)))
    return found


@pytest.mark.parametrize("poll_s", [0.05, 0.1])
@pytest.mark.parametrize(
    ("every_s", "on_s"),
    [(0.033, 0.009), (0.20056, 0.1587), (0.0995893, 0.0785)],
    ids=["slides", "sees the top alone", "sees the top for long"],
)
def test_a_phase_that_readings_contradict_is_not_believed(every_s: float, on_s: float, poll_s: float) -> None:
    # Half of the first were off by 10 to 15 % beside +-2 %, unwarned: of wrong phases the readings showed no rise with
    # the stamps, and a power that walks just so explained them; of the others the right phase was shut out.
    found = [one for seed in range(4) for one in _regions(every_s, on_s, poll_s, seed)]
    assert sum(off > 1.0 for off, _ in found) <= 1, found
    assert all(off < 2.5 or warned for off, warned in found), found  # 10 to 25 where a wrong phase wins


@pytest.mark.parametrize("poll_s", [0.02, 0.05, 0.1])
def test_a_sensor_that_sees_all_does_not_say_that_a_load_uses_nothing(poll_s: float) -> None:
    # Three blocks of 9 ms are in each reading of 100 ms, and it hardly varies: the load was found to use none, +- 40 of
    # its 190 W, so that the regions' ends were off by 1 to 2 %, beside +- 0.9 %, in one of five.
    found = [one for seed in range(6) for one in _regions(0.033, 0.009, poll_s, seed, _PERIOD_S)]
    assert all(off < 1.0 for off, _ in found), found
