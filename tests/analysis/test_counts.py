"""Negative binomial distributions of counts around a model's medians."""

import numpy as np
import pytest
from scipy import stats

from tsforecast.analysis.counts import Counts

STEPS = 400


@pytest.fixture(scope="module")
def weeks():
    """Counts of a week, and what is expected of them."""
    mean = np.tile([0.5, 1, 2, 4, 6, 4, 2], STEPS)[:STEPS]
    return mean, lambda size: np.random.default_rng(0).negative_binomial(size, size / (size + mean)).astype(float)


def gaussian(values, mean, spread=2.0):
    return stats.norm.cdf(values + 0.5, mean, spread) - stats.norm.cdf(values - 0.5, mean, spread)


def test_mean_and_dispersion_are_learnt_from_the_first_part_alone(weeks):
    """Oracle: the size of the simulated distribution, within three standard errors of its likelihood's curvature."""
    mean, draw = weeks
    values, learn = draw(3.0), np.arange(STEPS) < 300
    found = Counts.likelier(values, 0.8 * mean, gaussian(values, mean), learn)
    np.testing.assert_allclose(found.mean[learn].sum(), values[learn].sum())

    def loss(size):
        return stats.nbinom(size, size / (size + found.mean[learn])).logpmf(values[learn]).sum()

    step = 0.1
    curvature = (loss(3 + step) - 2 * loss(3) + loss(3 - step)) / step**2
    assert abs(found.size - 3) < 3 / np.sqrt(-curvature)
    later = np.where(learn, values, 100.0)
    again = Counts.likelier(later, 0.8 * mean, gaussian(later, mean), learn)
    assert again.size == found.size


def test_scores_are_normal_and_quantiles_their_inverse(weeks):
    mean, draw = weeks
    values = draw(1e4)
    counts = Counts(mean, 1e4)
    scores = counts.scores(np.where(np.arange(STEPS) == 3, np.nan, values))
    assert np.isnan(scores).nonzero()[0].tolist() == [3]
    known = np.delete(scores, 3)
    assert abs(known.mean()) < 3 / np.sqrt(STEPS)
    law = stats.nbinom(1e4, 1e4 / (1e4 + 0.5))
    assert counts.scores(np.full(STEPS, 5.0))[0] == pytest.approx(stats.norm.isf(law.sf(5) + law.pmf(5) / 2))
    table = counts.quantiles(np.stack([np.full(STEPS, score) for score in (-3.0, 0.0, 3.0)]))
    np.testing.assert_array_equal(table[1], stats.nbinom(1e4, 1e4 / (1e4 + mean)).median())
    outside = ((values < table[0]) | (values > table[2])).mean()
    assert outside < 0.0027 + 3 * np.sqrt(0.0027 / STEPS)


def test_what_is_no_count_or_is_likelier_otherwise_stays_with_its_model(weeks):
    mean, draw = weeks
    values, learn = draw(3.0), np.ones(STEPS, bool)
    alike = np.random.default_rng(1).normal(100, 1, size=STEPS).round()
    assert Counts.likelier(alike, np.full(STEPS, 100.0), gaussian(alike, 100.0, 1.0), learn) is None
    for wrong in (values + 0.5, values - 5, np.zeros(STEPS)):
        assert Counts.likelier(wrong, mean, np.zeros(STEPS), learn) is None
