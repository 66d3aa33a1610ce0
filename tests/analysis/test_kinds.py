"""Kinds of anomalies by gains in likelihood, and the rarity of runs of missing values."""

import itertools

import numpy as np
import pytest

from tsforecast.analysis.judged import _events
from tsforecast.analysis.kinds import SPIKE, VARIANCE, kind_of, missing_tails

STEPS, AT = 100, 60


@pytest.mark.parametrize(("length", "kind"), [(24, VARIANCE), (1, SPIKE)])
def test_a_variance_goes_on_behind_the_only_step_that_is_flagged(length, kind):
    errors = np.random.default_rng(0).normal(size=STEPS)
    errors[AT : AT + 24] = 3 * (-1.0) ** np.arange(24)
    assert kind_of(AT, AT, errors, {}, 1.0, length, np.zeros(STEPS, bool)) == kind


def test_runs_of_missing_values_are_as_rare_as_a_markov_chain_says():
    """Oracle: transitions of the first part, counted one by one with half a count each."""
    missing = np.array([0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0], bool)
    learn = 10
    pairs = [(bool(a), bool(b)) for a, b in itertools.pairwise(missing[:learn])]
    begins = (pairs.count((False, True)) + 0.5) / (pairs.count((False, True)) + pairs.count((False, False)) + 1)
    goes_on = (pairs.count((True, True)) + 0.5) / (pairs.count((True, True)) + pairs.count((True, False)) + 1)
    found = missing_tails(missing, learn)
    np.testing.assert_array_equal(np.isnan(found), ~missing)
    np.testing.assert_allclose(found[11:14], begins * goes_on ** np.arange(3))
    assert found[16] == pytest.approx(begins)


def test_flagged_steps_no_further_apart_than_a_stretch_are_one_event():
    flagged = np.zeros(STEPS, bool)
    flagged[[10, 34, 59, 60]] = True
    assert _events(flagged, 24)[flagged].tolist() == [1, 1, 2, 2]
