"""What a configuration's own measurements and those of the training tell of it, in one regression."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.analysis.transfer._carried import Transfer, carry, fit, together
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.rows import Floats

CLOCKS = np.array([1000.0, 1250.0, 1600.0, 2000.0])
MIDDLE = 1600.0


def kinds(rng: np.random.Generator, n: int) -> Floats:
    """Levels and slopes of power and of time, where both slopes are lines in the level of power."""
    level, other = 0.3 * rng.standard_normal((2, n))
    slopes = np.stack([1.0 + level, 1.0 - 0.5 * level]) + 0.02 * rng.standard_normal((2, n))
    return np.stack([level, slopes[0], other, slopes[1]], axis=1)


def table(each: Floats, clocks: Floats = CLOCKS) -> Table:
    """Power that rises by half of the clock's logarithm, and rooflines, exactly of the model's form."""
    rows = [
        (f"k{i}", f, math.exp(t) * (1 + kt * (MIDDLE / f - 1) / 2), math.exp(p) * (1 + kp * math.log(f / MIDDLE) / 2))
        for i, (p, kp, t, kt) in enumerate(each)
        for f in clocks
    ]
    names, mhz, time_s, power_w = zip(*rows, strict=True)
    return Table(
        tuple(names), np.array(mhz), np.array(mhz), np.full(len(mhz), math.nan), np.array(time_s), np.array(power_w)
    )


def carried(model: Transfer, one: Floats, given: list[float]) -> Floats:
    """Errors of the log energies of a configuration at all clocks, carried from the ``given`` ones."""
    truth = table(one[None, :])
    found = carry(model, truth.rows(np.flatnonzero(np.isin(truth.set_mhz, given))), CLOCKS)
    return np.asarray(found.power + found.time - np.log(truth.power_w * truth.time_s), np.float64)


def test_one_clock_tells_the_slopes_by_the_level_and_two_by_themselves() -> None:
    rng = np.random.default_rng(1)
    model = fit(table(kinds(rng, 200)))
    near, odd = np.array([0.3, 1.3, 0.0, 0.85]), np.array([0.3, 0.6, 0.0, 1.4])
    # A tenth of what the slopes differ by from the mean: the imagined configuration's share of the levels' variance.
    assert np.max(np.abs(carried(model, near, [1000.0]))) < 0.04
    assert np.max(np.abs(carried(model, odd, [1000.0]))) > 0.1
    assert np.max(np.abs(carried(model, odd, [1000.0, 2000.0]))) < 1e-3


def test_levels_that_tell_nothing_do_no_harm() -> None:
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(20):
        each, probes = (1.0 + 0.3 * rng.standard_normal((n, 4)) for n in (20, 40))
        mean, spread = together(each)
        slopes = spread[1::2, ::2] @ np.linalg.inv(spread[::2, ::2]) @ (probes - mean)[:, ::2].T
        guessed = mean[1::2] + slopes.T
        ratios.append(np.mean((guessed - probes[:, 1::2]) ** 2) / np.mean((mean - probes)[:, 1::2] ** 2))
    assert np.mean(ratios) < 1.1


def test_one_outlier_among_configurations_counts_little() -> None:
    each = kinds(np.random.default_rng(3), 30)
    spoilt = each.copy()
    spoilt[4] += 5.0
    assert np.max(np.abs(together(spoilt)[0] - together(each)[0])) < 0.1  # a plain mean would move by a sixth


def test_the_agreement_of_few_is_not_believed() -> None:
    _, spread = together(np.ones((5, 4)))
    # One imagined configuration more, anywhere between 0 and 2, is a sixth of the evidence.
    assert np.diag(spread)[1::2] == pytest.approx(1.0 / 3.0 / 6.0)


def test_nothing_is_extrapolated_far_beyond_the_training() -> None:
    model = fit(table(kinds(np.random.default_rng(5), 40)))
    far, edge = (np.array([level, 1.0, 0.0, 1.0]) for level in (20.0, 1.1))
    # A level is held three standard deviations out (0.9 and what is imagined); by a line it would have a slope of 20.
    assert carried(model, far, [1000.0]) == pytest.approx(carried(model, edge, [1000.0]), abs=0.05)
