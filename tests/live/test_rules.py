"""Each line of the table of `tsforecast.live.rules`."""

import numpy as np
import pytest

from tests.live.stores import observations
from tsforecast.live.rows import NO_SEQUENCE, Rows
from tsforecast.live.rules import Pending, Rules


@pytest.fixture
def known():
    rows = Rows.empty([], 1, 0)
    rows.add(["a", "b"])
    rows.end[:2] = 100
    rows.sequence[0] = 5
    return rows


def sift(known, ordinal, item="a", sequence=None, multiple=1, **options):
    latest = options.pop("latest", None)
    rules = Rules(multiple, options.pop("max_items", 10), options.pop("max_gap", 3), **options)
    sequences = None if sequence is None else [sequence]
    request = Pending(observations([item], [ordinal], [1.0], sequences))
    steps = rules.sift(known, [request], 0, latest=latest)
    (outcome,) = request.outcomes
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


def test_a_series_does_not_begin_behind_the_last_period(known):
    assert sift(known, 500, "c", latest=500) == "applied"
    assert sift(known, 501, "c", latest=500) == "gap"
    assert sift(known, 103, latest=50) == "applied"


def test_the_steps_that_a_request_leaves_out_have_a_bound(known):
    """Of each series, however many observations share them; the next request has it anew."""
    rules = Rules(15, 10, 3)
    items, periods = ["a", "b", "a", "a", "a", "b", "b"], [1, 3, 3, 6, 4, 4, 6]
    request = Pending(observations(items, 100 + 15 * np.array(periods), np.ones(7)))
    steps = rules.sift(known, [request], 0)
    assert request.outcomes == ["applied", "applied", "applied", "gap", "applied", "applied", "gap"]
    assert request.left_out == {"a": 2, "b": 3}
    assert steps.rows.tolist() == [0, 1, 0, 0, 1]
    again = Pending(observations(["a", "a"], [100, 145], [1.0, 1.0]))
    rules.sift(known, [again], 0)
    assert again.outcomes == ["applied", "applied"]


def test_a_micro_batch_ends_where_its_room_ends_and_the_rest_follows(known):
    first = Pending(observations(["a", "a", "b", "b"], [101, 102, 100, 103], [1.0, 2.0, 3.0, 4.0]))
    second = Pending(observations(["c"], [1], [5.0]))
    rules = Rules(1, 10, 3)
    found = []
    while not (first.is_done and second.is_done):
        steps = rules.sift(known, [first, second], len(found), room=2)
        found.append(steps.values[:, 0].tolist())
        known.add(steps.names)
        known.end[steps.rows] = steps.ordinals + 1
    np.testing.assert_equal(found, [[1.0], [2.0, 3.0], [np.nan], [4.0], [5.0]])  # the gap ends a room, too
    assert first.outcomes == ["applied"] * 4
    assert first.left_out == {"a": 1, "b": 2}


def test_covariates_of_a_gap_are_not_known(known):
    assert sift(known, 101, has_covariates=True) == "covariates"
    assert sift(known, 100, has_covariates=True) == "applied"


def test_a_micro_batch_is_sifted_in_the_order_of_arrival(known):
    first = observations(["a", "c", "a", "c"], [100, 7, 101, 7], [1.0, 2.0, np.nan, 9.0], [6, 1, 7, 2])
    second = observations(["a", "c", "d", "b"], [101, 8, 1, 101], [5.0, 6.0, 7.0, 8.0], [8, NO_SEQUENCE, 1, 1])
    requests = [Pending(first), Pending(second)]
    steps = Rules(1, 3, 3).sift(known, requests, 42)
    assert [request.outcomes for request in requests] == [
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
