"""How rare steps are by their errors: planted events, false alarms, and nothing of later steps."""

import numpy as np
import pytest
from scipy import stats

from tsforecast.analysis.error_sizes import of_season, scaled, sizes
from tsforecast.analysis.judging import grown
from tsforecast.analysis.rarity import _of_stretches, _ordinary, _stretches, rarity
from tsforecast.analysis.tails import Tail

STEPS, LEARN, AT, LENGTH = 500, 200, 350, 24


def tails(errors, floor=0.0, learn=LEARN):
    return rarity(errors, errors, np.full(len(errors), floor), learn, LENGTH, 0.001).tails


def volatile(steps, rng, new=0.1, kept=0.88):
    """GARCH(1, 1), with a variance of 1."""
    found, square = np.empty(steps + 100), 1.0
    for time in range(len(found)):
        found[time] = np.sqrt(square) * rng.normal()
        square = 1 - new - kept + new * found[time] ** 2 + kept * square
    return found[100:]


LAWS = {
    "Gaussian": lambda steps, rng: rng.normal(size=steps),
    "volatile": volatile,
    "bursts": lambda steps, rng: volatile(steps, rng, 0.2, 0.75),
}


@pytest.mark.parametrize("law", LAWS)
def test_false_alarms_have_the_rate_also_where_volatility_clusters(law):
    """Monte Carlo: the share of flagged steps over series is no more than the rate and three of its standard errors."""
    rng = np.random.default_rng(5)
    found = np.array([tails(LAWS[law](STEPS, rng))[LEARN:] for _ in range(25)])
    for rate in (0.05, 0.01, 0.001):
        shares = (found <= rate).mean(1)
        assert shares.mean() <= rate + 3 * max(shares.std(ddof=1), rate) / np.sqrt(len(shares)), rate
    assert (found <= 0.05).mean() > 0.02  # nor are all steps called ordinary


def test_volatility_is_followed_where_there_is_some_and_only_there():
    rng = np.random.default_rng(1)
    for law, spread in (("Gaussian", 0.02), ("volatile", 0.3)):
        size = sizes(LAWS[law](2000, rng), np.zeros(2000), 0, 600)[600:]
        assert (size.std() > 0.2) == (spread > 0.1)
        assert size.mean() == pytest.approx(1.0, abs=0.2)


def test_the_size_of_gaussian_errors_is_their_standard_deviation():
    """Errors are the quantiles of the distribution, in any order, so that the size has no error of chance.

    To be clipped at three sizes makes a mean square smaller by .5 %: the size is right in the first part, where it is
    one equation, and behind it, where it is a running mean.
    """
    count = 4000
    errors = np.random.default_rng(3).permutation(stats.norm.ppf((np.arange(count) + 0.5) / count))
    for true in (0.2, 30.0):
        size = sizes(np.append(true * errors, true * errors), np.zeros(2 * count), 0, count)
        assert size[count - 1] == pytest.approx(true, rel=1e-3)  # quantiles leave out what is behind the last
        assert size[-1] == pytest.approx(true, rel=1e-3)


def test_a_size_that_does_not_change_is_estimated_from_all_errors():
    """So no error changes the size by more than its share of all; at the end it is as near to 1 as so many tell."""
    steps, count = 400, 25
    found = [sizes(np.random.default_rng(k).normal(size=steps), np.zeros(steps), 0, 200)[300:] for k in range(count)]
    assert np.sqrt(np.mean([(x[-1] - 1) ** 2 for x in found])) < 2 / np.sqrt(2 * steps)
    calm = [np.abs(np.diff(x)).max() < 9 / (2 * 200) for x in found]  # a square is at most nine times the mean
    assert np.mean(calm) > 0.8  # chance prefers a volatility in few


def test_what_an_outlier_adds_to_the_size_halves_with_every_stretch():
    errors = np.zeros(STEPS)
    errors[AT] = 30.0
    size = scaled(errors, np.zeros(STEPS), 0, LEARN, LENGTH)[1]
    np.testing.assert_allclose(size[AT + 1 + LENGTH : AT + 90], size[AT + 1 : AT + 90 - LENGTH] / 2)
    assert size[AT + 1] > 1


def test_stretches_are_judged_by_the_errors_given_the_past():
    errors, ahead = np.random.default_rng(12).normal(size=(2, STEPS)).clip(-2, 2)
    ahead[AT : AT + LENGTH] += 1.6
    found = rarity(errors, ahead, np.zeros(STEPS), LEARN, LENGTH, 0.001).tails
    flagged = np.flatnonzero(found <= 0.001)
    assert len(flagged)
    assert AT < flagged[0] < AT + LENGTH


def test_after_what_never_changed_a_spike_is_one_step_and_a_shift_a_few():
    errors = np.zeros(STEPS)
    errors[AT] = 30.0
    assert np.flatnonzero(tails(errors) <= 0.001).tolist() == [AT]
    errors[AT : AT + 3] = 30.0
    errors[AT + 3 :] = 30.0 * 0.02 ** np.arange(1, STEPS - AT - 2)  # the model follows
    assert np.flatnonzero(tails(errors) <= 0.001).tolist() == [AT, AT + 1, AT + 2]
    noise = np.random.default_rng(0).uniform(-1e-6, 1e-6, STEPS) * np.linspace(0.1, 1, STEPS)
    assert (tails(noise, floor=1e-6)[LEARN:] == 1).all()  # rounding is no news


def test_errors_of_the_beginning_and_earlier_spikes_hide_no_drop():
    rng = np.random.default_rng(2)
    errors = rng.normal(size=STEPS)
    errors[:12] *= 100 * 0.7 ** np.arange(12)  # until the model has found the level
    errors[[100, 150, 250]] = 80.0
    errors[AT] = -12.0
    found = tails(errors)
    assert found[AT] < 1e-4
    assert (found[LEARN:] <= 0.001).sum() <= 4


@pytest.mark.parametrize("kind", ["shift", "variance"])
def test_a_stretch_is_flagged_where_no_step_alone_is(kind):
    rng = np.random.default_rng(3)
    errors = rng.normal(size=STEPS).clip(-2, 2)
    errors[AT : AT + LENGTH] = errors[AT : AT + LENGTH] + 1.6 if kind == "shift" else 2.4 * (-1.0) ** np.arange(LENGTH)
    found = np.flatnonzero(tails(errors) <= 0.001)
    assert len(found)
    assert AT < found[0] < AT + LENGTH


def test_an_event_hides_no_later_one_and_a_change_that_stays_is_learnt():
    rng = np.random.default_rng(7)
    errors = rng.normal(size=900)
    errors[260:284] *= 5.0
    errors[AT] = 6.0
    found = tails(errors)
    assert (found[260:284] <= 0.001).any()
    assert found[AT] <= 0.001
    assert (found[AT + 1 :] <= 0.001).mean() <= 0.01
    lasting = np.random.default_rng(2).normal(size=900) + 2.5 * (np.arange(900) >= AT)
    found = tails(lasting) <= 0.001
    assert found[AT + 24 : AT + 40].all()
    assert found[AT + 100 :].mean() < 0.1


def test_errors_have_the_size_of_their_step_of_the_season_where_sizes_differ():
    rng, season = np.random.default_rng(8), 12
    true = np.where(np.arange(season) < 6, 0.5, 2.0)
    errors = rng.normal(size=STEPS) * np.tile(true, STEPS)[:STEPS]
    share = of_season(errors, 0, LEARN, season)[:season]
    small, large = np.log(share).reshape(2, 6)
    error = np.pi / 8**0.5 * (2 / (LEARN / 2)) ** 0.5  # logs of sizes have variance pi^2 / 8
    assert abs(large.mean() - small.mean() - np.log(2.0 / 0.5)) < 4 * error
    assert share[6:].min() > share[:6].max()
    errors[300] = 4.0  # eight of its sizes, and two of others
    for known, rare in ((season, True), (1, False)):
        found = rarity(errors, errors, np.zeros(STEPS), LEARN, LENGTH, 0.001, known)
        assert (found.tails[300] <= 0.001) == rare
        assert (found.reach[303:STEPS:12].mean() < 0.5 * found.reach[309:STEPS:12].mean()) == rare
    alike = rng.normal(size=STEPS)
    np.testing.assert_array_equal(of_season(alike, 0, LEARN, season), 1.0)


def test_sizes_of_steps_of_a_season_shrink_towards_each_other():
    """Monte Carlo, where differences are found: nearer to the truth than means of logarithms, by three errors."""
    gains, season, learn = [], 12, 96
    for seed in range(60):
        rng = np.random.default_rng(seed)
        true = rng.normal(0, 0.6, season)
        errors = rng.normal(size=learn) * np.exp(np.tile(true, learn // season))
        found = np.log(of_season(errors, 0, learn, season)[:season])
        bounded = np.maximum(np.abs(errors), 0.05 * np.median(np.abs(errors)))  # a logarithm of nearly 0 is no size
        means = np.log(bounded).reshape(-1, season).mean(0)
        distances = [np.square(x - x.mean() - true + true.mean()).mean() for x in (means, found)]
        if found.any():
            gains.append(distances[0] - distances[1])
    assert len(gains) > 20
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / len(gains) ** 0.5


def test_statistics_of_a_stretch_leave_out_its_largest_error():
    """Oracle: the cube root of the mean square of the others, each bounded; the mean has all."""
    errors = np.random.default_rng(9).normal(size=60)
    errors[20], errors[40:43] = 5.0, np.nan
    mean, square = _stretches(errors, 8)
    for end in range(8, 60):
        own = errors[end - 7 : end + 1]
        own = own[~np.isnan(own)].clip(-3, 3)
        rest = np.sort(np.abs(own))[:-1]
        assert mean[end] == pytest.approx([own.mean(), len(own) ** 0.5])
        assert square[end] == pytest.approx([3 * np.mean(rest**2) ** (1 / 3), (len(own) / 2) ** 0.5])


def test_what_is_not_rare_enough_for_an_event_stays_in_the_past():
    """Oracle: all steps before a block teach, where none of them is as rare as an event by the smallest of its tails.

    One by itself and a stretch are between that rarity and the threefold of it.
    """
    errors = np.random.default_rng(11).normal(size=STEPS).clip(-2.5, 2.5)
    errors[230], errors[300:324] = 3.4, errors[300:324] + 0.75
    floor = np.zeros(STEPS)
    first = LENGTH  # errors begin at once
    single, _, inner = scaled(errors, floor, first, LEARN, LENGTH)
    mean, square = _stretches(inner, LENGTH)
    expected, alone, both, time = np.full(STEPS, np.nan), np.full(STEPS, np.nan), np.full(STEPS, np.nan), LEARN
    while time < STEPS:
        end = grown(time)
        alone[time:end] = Tail.of(_ordinary(np.abs(single[first:time]))).probabilities(np.abs(single[time:end]))
        parts = [_of_stretches(x[first:time], x[time:end], LENGTH, k) for k, x in enumerate((mean, square))]
        both[time:end] = np.fmin(*parts)
        expected[time:end] = np.minimum(3 * np.fmin(alone[time:end], both[time:end]), 1)
        time = end
    assert np.nanmin(expected) > 0.001
    assert np.nanmin(alone) < 0.001
    assert np.nanmin(both) < 0.001
    np.testing.assert_array_equal(tails(errors), expected)


def test_no_step_is_judged_by_a_later_one():
    errors = LAWS["volatile"](STEPS, np.random.default_rng(4))
    errors[300] = np.nan
    first = tails(errors)
    assert np.isnan(first).nonzero()[0].tolist() == [*range(LEARN), 300]
    np.testing.assert_array_equal(tails(errors[:400]), first[:400])


@pytest.mark.parametrize("known", [20, 30])
def test_few_errors_of_a_first_part_are_enough_where_predictions_begin_in_it(known):
    errors = np.random.default_rng(5).normal(size=120)
    errors[: 40 - known], errors[80] = np.nan, 9.0
    found = tails(errors, learn=40)
    assert np.isnan(found).nonzero()[0].tolist() == [*range(40)]
    assert np.flatnonzero(found <= 0.001).tolist() == [80]


def test_too_few_errors_are_refused():
    errors = np.full(STEPS, np.nan)
    errors[LEARN - 5 :] = 1.0
    with pytest.raises(ValueError, match="at least 20 predicted values before the judged part, got 5"):
        tails(errors)
