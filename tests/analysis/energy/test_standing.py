"""Energies of live regions in which the register was not renewed for a while: against a power known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.energy.live import after_s, live_energy
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Number, Response

_PERIOD_S, _POLL_S = 0.1, 0.02
_HOW = Response.stated(
    "boxcar", refresh_s=Number(0.1, 2e-5), window_s=Number(0.1, 1e-3), delay_s=Number(0.0, 5e-4), noise=Number(0.2)
)
_PROFILE = Profile(
    Identity("meter"), "p", Affine(Number(1.0, 0.003), Number(0.0, 0.1)), 0.0, 1000.0, _HOW, (("made", "here"),)
)
_CHANNEL = Channel("p", Quantity.POWER, resolution=0.001, refresh_s=0.1, window_s=0.1)


def _energies(seed: int, stands_s: float, *, stamped: bool) -> list[bool]:
    """Whether regions of a load of random blocks hold the truth, of a register that stands each 2.7 s."""
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.exponential(float(rng.choice([0.06, 0.5])), 4000))
    edges = edges[edges < 30.0][: len(edges[edges < 30.0]) // 2 * 2]
    knots = np.concatenate([[0.0], edges, [30.0]])
    power = np.where(np.arange(len(knots) - 1) % 2, 250.0, 60.0)
    joules = np.concatenate([[0.0], np.cumsum(power * np.diff(knots))])
    k = np.arange(2, 298)
    ends = _PERIOD_S * k + 0.013
    shown = (np.interp(ends, knots, joules) - np.interp(ends - 0.1, knots, joules)) / 0.1
    shown = np.round(shown + 0.2 * rng.standard_normal(len(k)), 3)
    newest = np.maximum.accumulate(np.where(np.mod(ends, 2.7) < stands_s, 0, np.arange(len(k))))
    t = np.arange(0.4, 29.0, _POLL_S) + rng.uniform(0.0, 0.002)
    rows = shown[newest][np.searchsorted(ends, t, side="right") - 1]
    held = []
    for begins in np.arange(6.0, 25.0, 1.7):
        seconds = float(rng.uniform(0.3, 2.0))
        near = (t > begins - 5.0) & (t < begins + seconds + after_s(_HOW))
        load = LoadIntervals(edges[::2] - begins, edges[1::2] - begins) if stamped else None
        found = live_energy(
            _PROFILE, _CHANNEL, t[near] - begins, rows[near], seconds=seconds, aged_s=_POLL_S, load=load
        )
        true = float(np.subtract(*np.interp([begins + seconds, begins], knots, joules)))
        assert found is not None
        held.append(found.low <= true <= found.high)
    return held


@pytest.mark.parametrize("stands_s", [0.4, 1.0])
@pytest.mark.parametrize("stamped", [False, True], ids=["alone", "stamped"])
def test_what_the_power_was_while_the_register_stood_is_not_known(stands_s: float, *, stamped: bool) -> None:
    held = [one for seed in range(2) for one in _energies(seed, stands_s, stamped=stamped)]
    assert np.mean(held) >= 0.9, (np.sum(held), len(held))


@pytest.mark.parametrize(("poll_s", "seconds", "said"), [(0.02, 0.11, "too short"), (0.7, 2.0, "read it more often")])
def test_what_hardly_tells_an_energy_is_named(poll_s: float, seconds: float, said: str) -> None:
    t = np.arange(-5.0, 5.0, poll_s)
    ends = np.floor(t / 0.1) * 0.1  # a power that is on for the first half of each 0.42 s
    shown = 60.0 + 190.0 * np.mean([np.mod(ends - back, 0.42) < 0.21 for back in np.linspace(0.0, 0.1, 50)], axis=0)
    found = live_energy(_PROFILE, _CHANNEL, t, shown, seconds=seconds, aged_s=poll_s, load=None)
    assert found is not None
    assert [said in w for w in found.warnings if "too short" in w or "read it" in w] == [True], found.warnings
