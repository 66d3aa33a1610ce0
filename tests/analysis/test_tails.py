"""Tail probabilities by ranks and by a fitted tail."""

import numpy as np
import pytest
from scipy import stats

from tsforecast.analysis.judging import Judge
from tsforecast.analysis.tails import LEAST, Tail


def test_below_the_fitted_tail_probabilities_are_ranks():
    rng = np.random.default_rng(0)
    values = rng.normal(size=80)
    tail = Tail.of(np.append(values, np.nan))
    low = np.append(values[values <= tail.start], -9.0)
    expected = [((values >= value).sum() + 1) / 81 for value in low]
    np.testing.assert_array_equal(tail.probabilities(low), expected)


@pytest.mark.parametrize("law", [stats.genpareto(0.25), stats.expon()], ids=["pareto", "exponential"])
def test_beyond_the_highest_tenth_the_tail_is_that_of_a_generalised_pareto_distribution(law):
    """Oracle: excesses of a generalised Pareto distribution have one again, of the same shape."""
    tail = Tail.of(law.ppf((np.arange(20_000) + 0.5) / 20_000))
    assert tail.shape == pytest.approx(law.args[0] if law.args else 0.0, abs=0.01)
    for probability in (1e-2, 1e-3, 1e-5):
        points = np.array([law.isf(probability), tail.quantile(probability)])
        np.testing.assert_allclose(tail.probabilities(points), probability, rtol=0.1)
        assert tail.probabilities(points)[1] == pytest.approx(probability, rel=1e-9)


def test_tails_are_at_most_so_heavy_that_they_have_a_variance_and_never_end():
    """Excesses of a heavier distribution have the shape 1/2, those of a bounded one the shape 0."""
    places = (np.arange(2000) + 0.5) / 2000
    assert Tail.of(stats.genpareto(0.9).ppf(places)).shape == 0.5
    bounded = Tail.of(places)
    assert bounded.shape == 0.0
    beyond = np.array([1.5])
    excess = places[places > bounded.start] - bounded.start
    expected = (bounded.above + 1) / 2001 * np.exp(-(beyond - bounded.start) / excess.mean())
    np.testing.assert_allclose(bounded.probabilities(beyond), expected, rtol=1e-9)


def test_what_never_changed_makes_any_change_rare():
    tail = Tail.of(np.zeros(LEAST))
    assert tail.probabilities(np.array([0.0]))[0] == 1.0
    assert tail.probabilities(np.array([1e-3]))[0] < 1e-12


def test_combined_tails_have_their_rate_whatever_the_distribution_and_the_dependence_of_the_statistics():
    """Monte Carlo: the share of steps as rare over many short series, within three of its standard errors."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(40):
        noise = rng.standard_t(3, size=(220, 1))  # the second statistic is all but the first
        statistics = np.abs(np.concatenate([noise, noise + 0.1 * rng.normal(size=(220, 1))], 1))
        found.append(Judge.of(statistics[:100]).probabilities(statistics[100:]))
    for rate in (0.2, 0.02, 0.005):
        shares = (np.array(found) <= rate).mean(1)
        assert abs(shares.mean() - rate) < 3 * shares.std(ddof=1) / np.sqrt(len(shares)), rate


def test_the_combination_is_learnt_from_quarters_by_the_other_three():
    """Oracle: each quarter of the past by tails of the rest of it, written out."""
    past = np.abs(np.random.default_rng(3).standard_t(3, size=(60, 2)))
    expected = []
    for quarter in np.array_split(np.arange(60), 4):
        tails = [Tail.of(column) for column in np.delete(past, quarter, 0).T]
        for row in past[quarter]:
            parts = zip(tails, row, strict=True)
            expected.append(-sum(np.log10(tail.probabilities(np.array([x]))[0]) for tail, x in parts))
    np.testing.assert_allclose(Judge.of(past).combined.values, np.sort(expected), rtol=1e-12)


def test_too_few_values_are_refused():
    with pytest.raises(ValueError, match=f"at least {LEAST} values to learn what is ordinary, got 3"):
        Tail.of(np.arange(3.0))
