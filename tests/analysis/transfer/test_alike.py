"""What is expected of a configuration by those like it."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.transfer._nearest import MIN_ALIKE, Likeness, learn
from pmtpy.core.rows import Floats


def learnt(features: Floats, targets: Floats) -> Likeness:
    return learn(features, targets, lambda guessed: np.mean(np.abs(guessed - targets), axis=1))


def groups(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Two kinds of kernel, told apart by the first feature only."""
    kind = np.arange(n) % 2
    features = np.stack([4.0 * kind + 0.5 * rng.standard_normal(n), rng.standard_normal(n)], axis=1)
    targets = np.stack([0.2 + 1.6 * kind, 1.5 - kind], axis=1) + 0.02 * rng.standard_normal((n, 2))
    return features, targets


def test_a_configuration_is_expected_to_be_as_those_like_it() -> None:
    like = learnt(*groups(np.random.default_rng(1), 30))
    # Within the noise of the targets, and what the smoothest prior in the average draws towards the others.
    assert like.expect(np.array([0.0, 0.0])) == pytest.approx([0.2, 1.5], abs=0.15)
    assert like.expect(np.array([4.0, 0.0])) == pytest.approx([1.8, 0.5], abs=0.15)


def test_features_that_tell_nothing_do_no_harm() -> None:
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(20):
        features, targets = rng.standard_normal((20, 2)), 1.0 + 0.3 * rng.standard_normal((20, 2))
        like, probes = learnt(features, targets), rng.standard_normal((40, 2))
        truth = 1.0 + 0.3 * rng.standard_normal((40, 2))
        found = np.array([like.expect(p) for p in probes])
        ratios.append(np.mean((found - truth) ** 2) / np.mean((targets.mean(axis=0) - truth) ** 2))
    assert np.mean(ratios) < 1.1


def test_one_outlier_among_its_like_counts_little() -> None:
    features, targets = groups(np.random.default_rng(3), 30)
    spoilt = targets.copy()
    spoilt[4] += 5.0
    change = learnt(features, spoilt).expect(features[4]) - learnt(features, targets).expect(features[4])
    assert np.max(np.abs(change)) < 0.17  # a mean of its fifteen like would move by a third


def test_few_configurations_are_averaged_and_their_agreement_is_not_believed() -> None:
    features, targets = groups(np.random.default_rng(4), MIN_ALIKE - 1)
    like = learnt(features, np.ones_like(targets))
    assert like.expect(np.array([9.0, 9.0])) == pytest.approx([1.0, 1.0], abs=0.01)
    # One imagined configuration more, anywhere between 0 and 2, is a sixth of the evidence.
    assert np.diag(like.covariance) == pytest.approx(1.0 / 3.0 / MIN_ALIKE, rel=0.05)


def test_nothing_is_extrapolated_far_beyond_the_training() -> None:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((40, 2))
    like = learnt(features, np.stack([1.0 + 0.1 * features[:, 0], np.ones(40)], axis=1))
    # Features are held three standard deviations out; a straight line would be at 11 there.
    assert like.expect(np.array([100.0, 0.0]))[0] < 1.5
