"""What noise readings have whose profile states none, and what is said where an energy is hardly known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis.energy._noise import noise_of
from pmtpy.analysis.energy.estimate import Energy, region_energy
from pmtpy.analysis.energy.live import after_s, live_energy
from pmtpy.analysis.signal.estimate import bend_sd
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Number, Response
from pmtpy.core.rows import Floats

_LOW_W, _RISE_W, _NOISE_W = 30.0, 60.0, 0.3
_FULL, _POLE = Response(0.1, 0.1), Response(0.1, 0.0, 0.0125)  # of an H100, the second
_KNOWS = Response.stated("one-pole", refresh_s=Number(0.1, 1e-5), tau_s=Number(0.0125, 1e-4), noise=Number(_NOISE_W))
_CHANNEL = Channel("p", Quantity.POWER, resolution=0.001, refresh_s=0.1)


def bursts(seed: int, seconds: float) -> LoadIntervals:
    """Blocks of 0.03 to 0.25 s, between which are 0.03 to 0.15 s."""
    rng = np.random.default_rng(seed)
    many = int(seconds / 0.06)
    edges = np.cumsum(np.stack([rng.uniform(0.03, 0.15, many), rng.uniform(0.03, 0.25, many)], axis=1).ravel())
    return LoadIntervals.switched(edges[: 2 * int(np.searchsorted(edges[1::2], seconds))])


def shown(load: LoadIntervals, response: Response, t_s: Floats, seed: int, noise_w: float = _NOISE_W) -> Floats:
    """What is shown of a load of two levels."""
    noise = noise_w * np.random.default_rng(seed).standard_normal(len(t_s))
    return np.asarray(_LOW_W + _RISE_W * response.shown(load, t_s) + noise, np.float64)


def profile(how: Response) -> Profile:
    curve = Affine(Number(1.0, 0.003), Number(0.0, 0.3))
    return Profile(Identity("meter"), "p", curve, 0.0, 1000.0, how, (("made", "here"),))


@pytest.mark.parametrize("response", [_FULL, _POLE, Response(0.1, 0.0, 0.25), Response(0.1, 1.0)])
def test_bursts_whose_stamps_are_known_are_not_taken_for_noise(response: Response) -> None:
    load, t = bursts(1, 100.0), np.arange(2.0, 99.0, 0.1)
    watts = shown(load, response, t, 2)
    assert bend_sd(watts) > 4.0 * _NOISE_W
    # A quartile of 970 bends, each of which shares readings with four others: 1.8 / sqrt(970) * 1.5, three times.
    assert noise_of(t, watts, response, load) == pytest.approx(_NOISE_W, rel=0.26)


def test_bursts_of_two_powers_in_turn_are_hardly_taken_for_noise() -> None:
    load, t = bursts(3, 100.0), np.arange(2.0, 99.0, 0.1)
    second = LoadIntervals(load.on_s[::2], load.off_s[::2])
    watts = shown(load, _FULL, t, 4) + 0.3 * _RISE_W * _FULL.shown(second, t)
    # Half of the rise that no line in the load explains is 9 W either way, and so is what it bends by.
    assert noise_of(t, watts, _FULL, load) < 0.3 * _RISE_W / 2.0 < bend_sd(watts)


def test_what_ran_while_no_stamps_were_taken_is_not_held_against_them() -> None:
    load, t = bursts(5, 100.0), np.arange(2.0, 99.0, 0.1)
    watts, known = shown(load, _FULL, t, 6), np.array([[60.0, 90.0]])
    stamped = (load.on_s > 60.0) & (load.off_s < 90.0)
    some = LoadIntervals(load.on_s[stamped], load.off_s[stamped], known)
    assert noise_of(t, watts, _FULL, some) == pytest.approx(_NOISE_W, rel=0.5)  # of 300 bends; see above


def test_few_readings_do_not_tell_that_there_is_no_noise() -> None:
    load, t = bursts(7, 20.0), np.arange(2.0, 19.0, 0.1)
    watts = shown(load, _FULL, t, 8, noise_w=3.0)
    few = replace(load, known_s=np.array([[10.0, 10.6]]))
    assert noise_of(t, watts, _FULL, few) == bend_sd(watts)
    assert noise_of(t[:2], watts[:2], _FULL, load) == 0.0
    assert noise_of(t[:0], watts[:0], _FULL, load) == 0.0


@pytest.mark.parametrize("noise_w", [0.3, 3.0])
def test_a_short_region_is_known_as_well_as_if_the_profile_stated_the_noise(noise_w: float) -> None:
    held, wider = [], []
    for seed in range(12):
        load, begins = bursts(seed, 12.0), 7.0
        t = np.arange(1.0 + seed / 120.0, 11.0, 0.1)
        near = t < begins + 0.48 + after_s(_KNOWS)
        watts = shown(load, _KNOWS, t[near], seed, noise_w)
        stated = replace(_KNOWS, noise_w=noise_w)
        found = [
            live_energy(
                profile(how), _CHANNEL, t[near] - begins, watts, seconds=0.48, aged_s=0.0, load=load.shifted(-begins)
            )
            for how in (replace(stated, noise_w=0.0), stated)
        ]
        energy, known = (one for one in found if one is not None)
        true = 0.48 * _LOW_W + _RISE_W * load.share(begins, begins + 0.48)
        held.append(energy.low <= true <= energy.high)
        wider.append(energy.uncertainty_joules / known.uncertainty_joules)
    assert np.mean(held) >= 0.75  # of 12: three standard errors of 0.95 are 0.19
    assert np.median(wider) < 1.3
    assert max(wider) < 2.5  # 15 and more by bends alone


def test_one_block_that_is_hardly_known_blames_no_phases() -> None:
    load = LoadIntervals(np.array([4.0]), np.array([4.11]))
    t = np.arange(0.53, 8.0, 0.1)
    found = region_energy(t, shown(load, _POLE, t, 1), replace(_POLE, noise_w=4.0), start_s=4.0, end_s=4.11, load=load)
    assert found.low <= 0.11 * (_LOW_W + _RISE_W) <= found.high
    said = [why for why in found.warnings if "tell its energy" in why]
    assert len(said) == 1, found.warnings
    assert "1 reading of 1 block" in said[0] or "2 readings of 1 block" in said[0]
    assert not any("phases" in why for why in found.warnings)


def _live(load: LoadIntervals | None, *, phase: float = 0.7, seconds: float = 0.35) -> Energy:
    """Return the energy of a block of 0.15 s that begins 0.1 s after a region does, of rows that are renewals."""
    t = (
        (np.arange(80, dtype=np.float64) - 51.0 + phase) * 0.1 * (1.0 + 1e-12)
    )  # a rounding error longer than a period apart
    true = LoadIntervals(np.array([0.1]), np.array([0.25]))
    found = live_energy(profile(_KNOWS), _CHANNEL, t, shown(true, _KNOWS, t, 1), seconds=seconds, aged_s=0.0, load=load)
    assert found is not None
    return found


def test_rows_that_are_renewals_do_not_ask_for_more_of_them() -> None:
    unsure = [found for phase in np.arange(0.0, 1.0, 0.1).tolist() if (found := _live(None, phase=phase, seconds=0.25))]
    unsure = [found for found in unsure if dict(found.parts)["reconstruction"] > 0.2 * found.joules]
    assert unsure
    assert not any("read it more often" in why for found in unsure for why in found.warnings)


def test_stamps_that_begin_within_the_region_are_not_used_and_that_is_said() -> None:
    late = LoadIntervals(np.array([0.1]), np.array([0.25]), np.array([[0.1, 2.0]]))
    found, without = _live(late), _live(None)
    assert (found.joules, found.uncertainty_joules) == (without.joules, without.uncertainty_joules)
    said = [why for why in found.warnings if "stamps tell of the region" in why]
    assert len(said) == 1
    assert "only from 100 ms after its start on" in said[0]
    assert "region.load()" in said[0]
    assert not any("stamps tell of the region" in why for why in without.warnings)


def test_stamps_of_a_part_of_the_region_say_of_how_much() -> None:
    early = LoadIntervals(np.array([0.1]), np.array([0.25]), np.array([[-3.0, 0.28]]))
    assert any("for 280 ms of its 350 ms only" in why for why in _live(early).warnings)
    elsewhere = LoadIntervals(np.array([-2.0]), np.array([-1.0]), np.array([[-3.0, -0.5]]))
    assert not any("stamps tell of the region" in why for why in _live(elsewhere).warnings)


def test_what_is_asked_of_recorded_stamps_is_said_of_them_as_well() -> None:
    load, t = LoadIntervals(np.array([4.1]), np.array([4.5]), np.array([[4.1, 9.0]])), np.arange(0.5, 9.0, 0.1)
    found = region_energy(t, shown(load, _FULL, t, 1), replace(_FULL, noise_w=0.3), start_s=4.0, end_s=5.0, load=load)
    assert found.method == "reconstruction"
    assert any("only from 100 ms after its start on" in why for why in found.warnings)
