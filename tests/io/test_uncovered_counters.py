"""For how long nothing is known of a counter of which rows were lost: of what it shows behind them, and how late."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Layout
from pmtpy.io.recorded import UncoveredTime


@pytest.mark.parametrize(
    ("gap_s", "moved_j", "watts", "behind_w", "unknown_s"),
    [
        (20.0, 0.0, 200.0, math.nan, 20.0),  # it began anew: a GPU that slept, a sensor that was opened again
        (20.0, 0.0, 200.0, 200.0, 20.0),
        (20.0, 4000.0, 200.0, 200.0, 0.0),  # it counted on
        (20.0, 0.0, 0.0, 0.0, 0.0),  # a part that is switched off
        (0.2, 0.0, 200.0, 200.0, 0.0),  # its next move is still to come
    ],
)
def test_a_counter_that_shows_no_energy_behind_losses_began_anew_and_else_counts_on(
    gap_s: float, moved_j: float, watts: float, behind_w: float, unknown_s: float
) -> None:
    energy = Channel("gpu.energy", Quantity.ENERGY, scale=1e-3, domain="gpu/0", refresh_s=0.1)
    rule = UncoveredTime.of(Layout((energy,)))
    t = np.arange(0.0, 10.05, 0.1)
    t_s = np.concatenate([t, t[-1] + gap_s + t])
    joules = np.concatenate([watts * t, watts * t[-1] + moved_j + watts * t])
    power = np.full(len(t_s), watts)
    power[len(t)] = behind_w
    lost = np.zeros(len(t_s), np.int64)
    lost[len(t)] = round(gap_s / 0.1)
    twice = np.stack([power, power], axis=1), np.stack([joules, joules], axis=1)  # the total, and its only part
    unknown_ns = rule.add(np.rint(t_s * 1e9).astype(np.int64), *twice, lost)
    assert unknown_ns[-1] / 1e9 == pytest.approx([unknown_s] * 2, abs=1e-6)
    assert not unknown_ns[len(t) - 1].any()
