"""Each line of the table of `tsforecast.live.rules`."""

import numpy as np
import pytest

from tests.live.stores import observations
from tsforecast.live.rows import NO_SEQUENCE, Rows
from tsforecast.live.rules import Rules


@pytest.fixture
def known():
    rows = Rows.empty([], 1, 0)
    rows.add(["a", "b"])
    rows.end[:2] = 100
    rows.sequence[0] = 5
    return rows


def sift(known, ordinal, item="a", sequence=None, multiple=1, **options):
    rules = Rules(multiple, options.pop("max_items", 10), options.pop("max_gap", 3), **options)
    sequences = None if sequence is None else [sequence]
    steps, ((outcome,),) = rules.sift(known, [observations([item], [ordinal], [1.0], sequences)], 0)
    assert len(steps.rows) == (outcome == "applied")
    return outcome


@pytest.mark.parametrize(
    ("ordinal", "sequence", "outcome"),
    [
        (100, None, "applied"),
        (100, 6, "applied"),
        (103, None, "applied"),
        (104, None, "gap"),
        (100, 5, "repeated"),
        (200, 4, "repeated"),
        (99, None, "repeated"),
        (99, 6, "repeated"),
        (98, None, "late"),
        (98, 6, "late"),
    ],
)
def test_of_a_series_that_is_known(known, ordinal, sequence, outcome):
    assert sift(known, ordinal, sequence=sequence) == outcome


def test_periods_of_several_units(known):
    assert sift(known, 115, multiple=15) == "applied"
    assert sift(known, 107, multiple=15) == "grid"
    assert sift(known, 85, multiple=15) == "repeated"


def test_of_a_series_that_is_not(known):
    assert sift(known, 3, "c") == "applied"
    assert sift(known, 3, "c", max_items=2) == "full"
    assert sift(known, 3, "c", has_static_numbers=True) == "unknown"


def test_covariates_of_a_gap_are_not_known(known):
    assert sift(known, 101, has_covariates=True) == "covariates"
    assert sift(known, 100, has_covariates=True) == "applied"


def test_a_micro_batch_is_sifted_in_the_order_of_arrival(known):
    first = observations(["a", "c", "a", "c"], [100, 7, 101, 7], [1.0, 2.0, np.nan, 9.0], [6, 1, 7, 2])
    second = observations(["a", "c", "d", "b"], [101, 8, 1, 101], [5.0, 6.0, 7.0, 8.0], [8, NO_SEQUENCE, 1, 1])
    steps, outcomes = Rules(1, 3, 3).sift(known, [first, second], 42)
    assert outcomes == [
        ["applied", "applied", "applied", "repeated"],
        ["repeated", "applied", "full", "applied"],
    ]
    assert (steps.number, steps.names) == (42, ["c"])
    assert steps.rows.tolist() == [0, 2, 0, 2, 1]
    assert steps.ordinals.tolist() == [100, 7, 101, 8, 101]
    assert steps.sequences.tolist() == [6, 1, 7, NO_SEQUENCE, 1]
    np.testing.assert_array_equal(steps.values[:, 0], [1.0, 2.0, np.nan, 6.0, 8.0])
    assert known.end[:2].tolist() == [100, 100]
    assert len(known) == 2
