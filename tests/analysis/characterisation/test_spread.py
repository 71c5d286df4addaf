from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.characterisation._covariance import Noise, Spread, off_line
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats


def _slow(t: Floats, memory_s: float, rng: np.random.Generator) -> Floats:
    """An error of variance 1 that is forgotten in ``memory_s``."""
    kept = np.exp(-np.diff(t) / memory_s)
    x = [rng.standard_normal()]
    for k in kept:
        x.append(k * x[-1] + np.sqrt(1.0 - k * k) * rng.standard_normal())
    return np.array(x)


def test_noise_of_each_reading_is_told_from_what_lasts() -> None:
    rng = np.random.default_rng(1)
    t = 0.02 * np.arange(3000.0)
    residuals = 0.3 * rng.standard_normal(len(t)) + 2.0 * _slow(t, 3.0, rng)
    noise = Noise.of(residuals, residuals, np.asarray(100.0 * (np.arange(len(t)) // 50 % 2), np.float64))
    assert np.sqrt(np.median(noise.own)) == pytest.approx(0.34, rel=0.15)  # and what the slow error moves in 20 ms
    assert np.sqrt(noise.slow) == pytest.approx(2.0, rel=0.4)


def test_rounding_errs_even_where_every_reading_is_the_same() -> None:
    readings = np.repeat([60.0, 210.0], 50)
    noise = Noise.of(np.zeros(100), readings + np.arange(100) % 2, readings)
    assert np.sqrt(np.max(noise.own)) == pytest.approx(1.0 / np.sqrt(12.0))


def test_a_stray_reading_makes_no_noise_and_weighs_little() -> None:
    rng = np.random.default_rng(2)
    residuals = 0.5 * rng.standard_normal(400)
    residuals[200] = 30.0
    noise = Noise.of(residuals, np.round(residuals, 2), np.linspace(0.0, 100.0, 400))
    assert np.sqrt(np.median(noise.own)) == pytest.approx(0.5, rel=0.2)
    assert noise.own[200] > 5.0 * np.median(noise.own)


def test_the_likelihood_is_that_of_noise_with_a_memory() -> None:
    rng = np.random.default_rng(3)
    t = np.cumsum(rng.uniform(0.05, 0.2, 60))
    residuals = rng.standard_normal(60)
    noise = Noise(rng.uniform(0.05, 0.2, 60), 2.25)
    apart = np.abs(t[:, None] - t)

    each = []
    for memory in (0.3, 1.0, 3.0, 10.0):
        covariance = 2.25 * np.exp(-apart / memory) + np.diag(noise.own)
        each.append(residuals @ np.linalg.solve(covariance, residuals) + np.linalg.slogdet(covariance)[1])
    assert noise.misfit(t, residuals) == pytest.approx(np.mean(each), rel=1e-9)
    others = np.stack([np.zeros(60), residuals], axis=1)
    assert noise.misfits(t, others)[1] == pytest.approx(np.mean(each), rel=1e-9)


def test_the_likelihood_is_a_mean_over_how_far_the_times_of_updates_may_be_off() -> None:
    rng = np.random.default_rng(8)
    t = np.cumsum(rng.uniform(0.05, 0.2, 60))
    residuals, late = rng.standard_normal(60), 1.5 * rng.standard_normal(60)
    noise = Noise(rng.uniform(0.05, 0.2, 60), 2.25, late)
    apart = np.abs(t[:, None] - t)

    each = []
    for share in (0.1, 0.3, 1.0, 3.0):
        of_share = []
        for memory in (0.3, 1.0, 3.0, 10.0):
            lasting = (2.25 + share**2 * np.outer(late, late)) * np.exp(-apart / memory)
            covariance = lasting + np.diag(noise.own)
            of_share.append(residuals @ np.linalg.solve(covariance, residuals) + np.linalg.slogdet(covariance)[1])
        each.append(np.mean(of_share))
    expected = -2.0 * np.log(np.mean(np.exp(np.array(each) / -2.0)))
    assert noise.misfit(t, residuals) == pytest.approx(expected, rel=1e-9)
    # What errors of the times may have done is far likelier than without them, and no reason to name another shape.
    assert noise.misfit(t, 2.0 * late) < Noise(noise.own, 2.25).misfit(t, 2.0 * late) - 100.0
    assert noise.misfit(t, 1e6 * residuals) > 1e6  # no number is too large for it


def _spread(design: Floats, residuals: Floats, t: Floats) -> Spread:
    noise, late = Noise(np.full(len(t), 0.01), 1e-8), (np.zeros(len(t)), 0.1)
    return Spread.of(t, design, residuals, noise, prior={-1: Number(0.0, 1e3)}, late=late)


def test_of_plain_noise_the_errors_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(4)
    t = 0.1 * np.arange(200.0)
    design = np.stack([np.ones(200), rng.standard_normal(200)], axis=1)
    spread = _spread(design, np.zeros(200), t)
    assert spread.deviation(np.array([0.0, 1.0])) == pytest.approx(0.1 / np.sqrt(np.sum(design[:, 1] ** 2)), rel=0.05)
    assert spread.freedom(np.array([1.0, 0.0])) == pytest.approx(199.0, rel=0.03)
    assert spread.shift == pytest.approx([0.0, 0.0], abs=1e-9)


def test_a_parameter_that_two_readings_decide_has_hardly_a_degree_of_freedom() -> None:
    design = np.stack([np.ones(100), np.isin(np.arange(100), (40, 41))], axis=1).astype(np.float64)
    spread = _spread(design, np.zeros(100), 0.1 * np.arange(100.0))
    assert spread.freedom(np.array([0.0, 1.0])) < 2.0
    assert spread.freedom(np.array([1.0, 0.0])) > 50.0


def test_what_is_known_beforehand_takes_no_part_in_the_doubt_of_few_readings() -> None:
    design = np.stack([np.ones(100), np.isin(np.arange(100), (40, 41))], axis=1).astype(np.float64)
    noise, late = Noise(np.full(100, 0.01), 1e-8), (np.zeros(100), 0.1)
    # Two readings of 0.1 tell it to 0.07; as much is known of it beforehand, so half of it is theirs.
    alone, half = (
        Spread.of(0.1 * np.arange(100.0), design, np.zeros(100), noise, prior={1: Number(0.0, u)}, late=late)
        for u in (1e6, 0.1 / np.sqrt(2.0))
    )
    mix = np.array([0.0, 1.0])
    assert half.deviation(mix) == pytest.approx(alone.deviation(mix) / np.sqrt(2.0), rel=0.02)
    assert half.freedom(mix) > 3.0 * alone.freedom(mix)


def test_one_step_leaves_the_line_open_by_what_boards_are_off_it_and_many_blocks_by_what_is_seen() -> None:
    # R2 = 0.9999 over even levels: 0.34 % of the range each, so 0.48 % of the gain; the low level is at zero.
    step, many = np.repeat([0.0, 100.0, 0.0], 20), np.tile(np.repeat([0.0, 100.0], 5), 16)
    expected = Noise.of(np.zeros(60), np.linspace(0.0, 1.0, 60), step).slow
    gain, intercept = off_line(step, expected)
    assert gain == pytest.approx(0.0048, abs=1e-4)
    assert intercept == pytest.approx(0.34, abs=0.01)
    assert off_line(many, expected)[0] == pytest.approx(gain / 4.0, rel=0.05)
    assert Noise.of(np.zeros(160), np.linspace(0.0, 1.0, 160), many).slow == pytest.approx(expected / 16.0, rel=0.05)
