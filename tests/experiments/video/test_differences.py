"""The difference of two models over independent sequences."""

import numpy as np
import pytest
from scipy import stats

from experiments.video.differences import mean_difference


def test_means_over_independent_pairs_have_students_interval():
    generator = np.random.default_rng(0)
    first = generator.normal(size=7)
    second = first + generator.normal(0.3, 0.1, size=7)
    found = mean_difference(first, second)
    oracle = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert found.estimate == pytest.approx((first - second).mean())
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    alone = mean_difference([2.0], [1.0])
    assert (alone.estimate, alone.low, alone.high) == (1.0, -np.inf, np.inf)
    for bad in ([1.0, 2.0], [], [[1.0]]):
        with pytest.raises(ValueError, match="expected two vectors of scores"):
            mean_difference(bad, [1.0] if bad else [])
