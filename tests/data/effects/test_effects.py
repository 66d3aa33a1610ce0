"""Effects of covariates: bases, the regression, and the way there and back."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.interpolate
import statsmodels.api as sm

from tsforecast.data.effects.basis import basis_of, half_lives, smoothed, splines
from tsforecast.data.effects.effects import COVARIATES, MEMORY, Effects
from tsforecast.data.effects.fitting import fit_effects
from tsforecast.data.effects.link import BENDS, linked, log_slope, moved, restored
from tsforecast.data.effects.regression import differences, fit

HOURS = pd.Period("2023-01-01 00:00", "h")


def load(steps=3000, seed=0, noise=0.02, heat=True):
    """Return an hourly load that cold and heat raise, the more by day, with errors of an AR(1); its temperature."""
    rng, time = np.random.default_rng(seed), np.arange(steps)
    season = 10 - 12 * np.cos(2 * np.pi * time / 8760 * 3)
    weather = np.zeros(steps)
    for k in range(1, steps):
        weather[k] = 0.97 * weather[k - 1] + rng.normal()
    warmth = season + weather + 4 * np.sin(2 * np.pi * (time % 24 - 9) / 24)
    errors = np.zeros(steps)
    for k in range(1, steps):
        errors[k] = 0.8 * errors[k - 1] + noise * rng.normal()
    need = 0.0008 * (warmth - 14) ** 2 * (1 + 0.5 * np.cos(2 * np.pi * (time % 24 - 14) / 24)) if heat else 0.0
    return 1000 * np.exp(need + 0.1 * np.sin(2 * np.pi * time / 24) + errors), warmth, 1000 * np.exp(need)


def entry(target, *covariates, start=HOURS, item="a"):
    return {"start": start, "target": target, "item_id": item, COVARIATES: np.stack(covariates)}


@pytest.fixture(scope="module")
def found():
    target, warmth, _ = load()
    effects = fit_effects([entry(target, warmth)], "h")
    assert effects is not None
    return effects


def test_splines_are_those_of_scipy():
    knots, x = (0.0, 1.0, 2.5, 4.0), np.linspace(-1, 5, 50)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=6)
    spline = scipy.interpolate.BSpline(np.r_[[0.0] * 3, knots, [4.0] * 3], weights, 3)
    np.testing.assert_allclose(splines(x, knots) @ weights, spline(x.clip(0, 4)), atol=1e-12)


def test_exponential_means_go_on_where_they_ended():
    x = np.random.default_rng(0).normal(size=40)
    whole, end = smoothed(x, 5.0)
    first, between = smoothed(x[:17], 5.0)
    rest, last = smoothed(x[17:], 5.0, between)
    np.testing.assert_allclose(np.r_[first, rest], whole, atol=1e-12)
    assert last == pytest.approx(end)
    np.testing.assert_allclose(whole, pd.Series(x).ewm(halflife=5.0, adjust=False).mean(), atol=1e-12)


@pytest.mark.parametrize("bend", BENDS)
def test_scales_are_their_own_inverse_and_have_their_slope(bend):
    y, size = np.linspace(-4, 9, 27), 2.0
    effect = np.linspace(-0.5, 0.7, 27)
    np.testing.assert_allclose(linked(moved(y, effect, bend, size), bend, size), linked(y, bend, size) + effect)
    np.testing.assert_allclose(moved(moved(y, effect, bend, size), -effect, bend, size), y, atol=1e-10)
    slope = (linked(y + 1e-5, bend, size) - linked(y - 1e-5, bend, size)) / 2e-5
    np.testing.assert_allclose(np.exp(log_slope(y, bend, size)), slope, rtol=1e-6)


def test_coefficients_are_those_of_generalised_least_squares():
    rng = np.random.default_rng(1)
    x, errors = rng.normal(size=(4000, 3)), np.zeros(4000)
    for k in range(1, 4000):
        errors[k] = 0.7 * errors[k - 1] + rng.normal()
    y = x @ [1.0, -0.5, 0.0] + errors + 3
    ours = fit([x], [y], np.array([0, 0, 1]), (1,), 6)
    theirs = sm.GLSAR(y, sm.add_constant(x), rho=1)
    result = theirs.iterative_fit(10)
    # Errors are normal here, so weights of a t distribution cost some of a standard error, and shrinkage less.
    assert np.all(np.abs(ours.coefficients - result.params[1:]) < result.bse[1:])
    assert ours.rhythm[0] == pytest.approx(theirs.rho[0], abs=0.02)
    assert ours.deviations[1] < 0.1 * ours.deviations[0]


def within_hours(values):
    """Return values less their means at each time of day, which are the calendar's and not the covariates'."""
    return values - pd.Series(values).groupby(np.arange(len(values)) % 24).transform("mean").to_numpy()


def test_errors_of_coefficients_are_as_large_as_is_said():
    """Over draws with autoregressive errors: the mean square of errors in units of their deviations is 1."""
    rng, squares = np.random.default_rng(2), []
    for _ in range(100):
        x, errors = rng.normal(size=(150, 3)), np.zeros(150)
        for k in range(1, 150):
            errors[k] = 0.5 * errors[k - 1] + rng.normal()
        ours = fit([x], [x @ [1.0, -0.5, 0.7] + errors], np.zeros(3, int), (1,), 6)
        error = ours.coefficients - [1.0, -0.5, 0.7]
        squares.append(error @ np.linalg.solve(ours.covariance, error) / 3)
    assert np.mean(squares) == pytest.approx(1, abs=4 * np.std(squares) / np.sqrt(len(squares)))


def test_uncertainty_keeps_its_variance_in_few_directions(found):
    target, warmth, _ = load(seed=9)
    less = found.adjusted({**entry(target[:-200], warmth)})
    assert less["doubt"].shape == (200, found.doubt.shape[1])
    assert found.doubt.shape[1] <= 24
    assert (np.square(less["doubt"]).sum(1) > 0).all()
    again = Effects.of_record(json.loads(json.dumps(found.record)))
    np.testing.assert_allclose(again.doubt, found.doubt, rtol=1e-4)
    assert Effects.of_record({k: v for k, v in found.record.items() if k != "doubt"}).doubt.shape == (
        found.basis.width,
        0,
    )


def test_the_effect_is_that_of_the_truth(found):
    target, warmth, truth = load(seed=1)
    ours = within_hours(found.adjusted(entry(target, warmth))["effect"])
    true = within_hours(linked(truth, found.bend, found.sizes["a"]))
    assert np.std(ours - true) < 0.2 * np.std(true)  # 96 % of its variance, in another draw of weather and errors


def test_what_is_taken_comes_back(found):
    target, warmth, _ = load(seed=2)
    target[5] = np.nan
    given = {**entry(target[:-24], warmth), "known_future": target[-24:]}
    less = found.adjusted(given)
    assert COVARIATES not in less
    assert less["effect"].shape == warmth.shape
    np.testing.assert_allclose(restored(less["target"], less["effect"][:-24], less["link"]), target[:-24])
    np.testing.assert_allclose(restored(less["known_future"], less["effect"][-24:], less["link"]), target[-24:])
    assert found.adjusted(less) is less


def test_a_series_in_pieces_has_the_effects_of_the_whole(found):
    target, warmth, _ = load(seed=3, steps=200)
    whole = found.adjusted(entry(target, warmth))
    first = found.adjusted(entry(target[:77], warmth[:77]))
    rest = found.adjusted({**entry(target[77:], warmth[77:], start=HOURS + 77), MEMORY: first[MEMORY]})
    np.testing.assert_allclose(np.r_[first["effect"], rest["effect"]], whole["effect"])
    np.testing.assert_allclose(rest[MEMORY], whole[MEMORY])
    ahead = found.adjusted({**entry(np.zeros(0), warmth[77:], start=HOURS + 77), MEMORY: first[MEMORY]})
    np.testing.assert_allclose(ahead["effect"], whole["effect"][77:])
    np.testing.assert_allclose(ahead[MEMORY], first[MEMORY])


@pytest.mark.parametrize("lowest", [0.0, -np.inf])
def test_it_is_kept_as_json(found, lowest):
    target, warmth, _ = load(seed=4, steps=100)
    found = replace(found, lowest=lowest)
    again = Effects.of_record(json.loads(json.dumps(found.record)))
    ours, theirs = (one.adjusted(entry(target, warmth)) for one in (again, found))
    for name in ("effect", "link"):
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize(
    "change",
    [
        {"coefficients": [1.0]},
        {"signals": []},
        {"pairs": [[0, 99, [0, 1, 2], [0, 1, 2]]]},
        {"bend": -1.0},
        {"own": {"a": [0.0]}},
        {"sizes": {"a": 0.0}},
        {"num_covariates": 0},
    ],
)
def test_damaged_records_are_refused(found, change):
    with pytest.raises(ValueError, match="expected effects of covariates"):
        Effects.of_record({**found.record, **change})


def test_noise_has_next_to_no_effect_and_a_pair_of_twins_no_other():
    target, warmth, _ = load(seed=5, steps=1500)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(10, len(target)))
    noisy = fit_effects([entry(target, *noise)], "h")
    assert noisy is not None
    size = np.std(np.log(target))
    # Standard errors of forty lines and curves of noise would be a few hundredths of the series.
    assert np.std(noisy.adjusted(entry(target, *noise))["effect"]) < 0.03 * size
    one = fit_effects([entry(target, warmth)], "h")
    twins = fit_effects([entry(target, warmth, warmth)], "h")
    assert one is not None
    assert twins is not None
    # Their scales may differ, so what is left of the load is compared.
    left, again = (
        within_hours(np.log(fitted.adjusted(entry(target, *given))["target"]))
        for fitted, given in ((one, [warmth]), (twins, [warmth, warmth]))
    )
    assert np.std(again - left) < 0.2 * np.std(within_hours(np.log(target)) - left)


def test_a_covariate_far_from_all_others_counts_as_the_last_of_them(found):
    target, warmth, _ = load(seed=6, steps=50)
    usual = found.adjusted(entry(target, warmth))["effect"]
    far = warmth.copy()
    far[-1] = 1e9
    effect = found.adjusted(entry(target, far))["effect"]
    assert np.abs(effect).max() < 10 * np.abs(usual).max() + 1


def test_curves_that_run_away_change_large_values_by_a_factor_of_a_thousand_at_most(found):
    target, warmth, _ = load(seed=6, steps=50)
    wild = dataclasses.replace(found, bend=0.1, coefficients=100 * found.coefficients)
    less = wild.adjusted(entry(target, warmth))
    assert np.abs(less["effect"]).max() == pytest.approx(0.1 * np.log(1000))
    assert np.all(np.abs(less["target"]) < 1001 * (target + 0.1 * wild.sizes["a"]))
    np.testing.assert_allclose(restored(less["target"], less["effect"], less["link"]), target, rtol=1e-6)


def test_a_line_goes_on_a_little_beyond_all_values_of_training():
    """Targets that follow from a covariate almost exactly do so above its highest value, too."""
    x = np.random.default_rng(4).random(120)
    y = 20 - 8 * x
    start, outside = pd.Period("2020-01-01", "D"), (x < x[:100].min()) | (x > x[:100].max())
    effects = fit_effects([entry(y[:100], x[:100], start=start)], "D")
    assert effects is not None
    assert outside.any()
    left = effects.adjusted(entry(y, x, start=start))["target"]
    np.testing.assert_allclose(left, left.mean(), atol=1e-6)


def test_an_outlier_of_training_hides_nothing():
    target, warmth, truth = load(seed=7)
    wild = warmth.copy()
    wild[100] = 1e7
    effects = fit_effects([entry(target, wild)], "h")
    assert effects is not None
    ours = within_hours(effects.adjusted(entry(target, warmth))["effect"])
    true = within_hours(linked(truth, effects.bend, effects.sizes["a"]))
    assert np.std(ours - true) < 0.2 * np.std(true)


@pytest.mark.parametrize("days", [[700], [400, 1100]])
def test_a_day_that_comes_once_or_twice_has_finite_effects(days):
    """Years after it, its mean over the past is a number next to nothing."""
    x, random = np.zeros(1500), np.random.default_rng(0)
    x[days] = 1
    basis = basis_of([x[:, None]], "D")
    assert basis is not None
    times = pd.period_range("2020-01-01", periods=1500, freq="D")
    assert all(np.isfinite(part).all() for _, part in basis.groups(times, basis.values(x[:, None])[0]))
    effects = fit_effects([entry(50 * x + random.normal(size=1500), x, start=times[0])], "D")
    assert effects is not None
    assert np.isfinite(effects.coefficients).all()


def test_nothing_is_fitted_to_what_never_changes():
    target, _, _ = load(steps=300)
    assert fit_effects([entry(target, np.ones(300))], "h") is None


def test_other_covariates_than_those_of_the_training_are_refused(found):
    target, warmth, _ = load(steps=50)
    with pytest.raises(ValueError, match="expected feat_dynamic_real of 1 rows"):
        found.adjusted(entry(target, warmth, warmth))
    with pytest.raises(ValueError, match="over 50 steps, got 49"):
        found.adjusted(entry(target, warmth[:-1]))


@pytest.mark.parametrize(("freq", "steps"), [("D", 400), ("W", 150), ("M", 60), ("Y", 20), ("15min", 3000), ("B", 300)])
def test_every_frequency_has_a_basis(freq, steps):
    rng = np.random.default_rng(0)
    x = rng.normal(size=steps)
    y = 5 + x + 0.1 * rng.normal(size=steps)
    effects = fit_effects([entry(y, x, start=pd.Period("2015-01-05", freq))], freq)
    assert effects is not None
    assert len(half_lives(freq)) >= 2
    effect = effects.adjusted(entry(y, x, start=pd.Period("2015-01-05", freq)))["effect"]
    assert np.corrcoef(effect, x)[0, 1] > 0.95


def test_columns_are_fewer_where_values_are_few():
    few, many = (np.random.default_rng(0).normal(size=(steps, 3)) for steps in (60, 5000))
    narrow, wide = basis_of([few], "h"), basis_of([many], "h")
    assert narrow is not None
    assert wide is not None
    assert narrow.width <= 6 < 100 < wide.width


def test_series_share_curves_and_differ_where_they_are_long():
    rng = np.random.default_rng(0)
    entries, sizes = [], (1.0, 50.0)
    for number, (size, slope) in enumerate(zip(sizes, (1.0, -1.0), strict=True)):
        x = rng.normal(size=3000)
        y = size * (20 + slope * x + 0.1 * rng.normal(size=3000))
        entries.append(entry(y, x, start=pd.Period("2015-01-05", "D"), item=str(number)))
    effects = fit_effects(entries, "D")
    assert effects is not None
    assert set(effects.own) == {"0", "1"}
    nameless = fit_effects([{name: x for name, x in one.items() if name != "item_id"} for one in entries], "D")
    assert nameless is not None
    assert not nameless.own  # those without a name share curves, and none has that of another
    assert not nameless.sizes
    for one, slope in zip(entries, (1.0, -1.0), strict=True):
        assert np.corrcoef(effects.adjusted(one)["effect"], slope * one[COVARIATES][0])[0, 1] > 0.98


def test_what_series_differ_by_is_that_of_a_mixed_model():
    """Random slopes against statsmodels' MixedLM: the same deviations, and the same slope of each series."""
    rng = np.random.default_rng(0)
    count, steps = 40, 60
    slopes = 0.5 + 0.3 * rng.normal(size=count)
    x = rng.normal(size=(count, steps))
    x -= x.mean(1, keepdims=True)
    y = slopes[:, None] * x + rng.normal(size=(count, steps))
    y -= y.mean(1, keepdims=True)
    columns, targets = list(x[..., None]), list(y)
    ours = fit(columns, targets, np.zeros(1, int), (1,), 20, np.ones(1, bool))
    frame = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "series": np.repeat(np.arange(count), steps)})
    theirs = sm.MixedLM.from_formula("y ~ x - 1", frame, groups="series", re_formula="~ x - 1").fit(method="powell")
    blups = np.array([theirs.random_effects[k].iloc[0] for k in range(count)])
    found = differences(columns, targets, (1,), ours)[:, 0]
    # Errors are normal: weights of a t distribution and a scale of each series cost a tenth of the variance.
    assert ours.coefficients[0] == pytest.approx(theirs.params["x"], abs=float(theirs.bse["x"]))
    assert ours.own[0] == pytest.approx(np.sqrt(theirs.cov_re.iloc[0, 0]), rel=0.15)
    assert np.corrcoef(found, blups)[0, 1] > 0.97
    errors = np.square(ours.coefficients[0] + found - slopes)
    assert errors.mean() < 1.2 * np.square(theirs.params["x"] + blups - slopes).mean()


def shops(count=60, steps=150, seed=0):
    """Return series of goods at their own prices, at times a fifth cheaper, and by how much each then sells more."""
    rng = np.random.default_rng(seed)
    entries, truth = [], []
    for number in range(count):
        price = np.exp(rng.normal(1.5, 1.0)) * np.where(np.repeat(rng.random(steps // 5) < 0.2, 5), 0.8, 1.0)
        elasticity = -2 + 0.5 * rng.normal()
        y = np.exp(rng.normal(3, 1) + elasticity * np.log(price / price.max()) + 0.1 * rng.normal(size=steps))
        entries.append(entry(y, price, start=pd.Period("2020-01-06", "D"), item=str(number)))
        truth.append(0.8**elasticity)
    return entries, np.array(truth)


def test_a_price_counts_by_that_of_its_series_and_each_series_has_an_effect_of_its_own():
    entries, truth = shops()
    effects = fit_effects(entries, "D")
    assert effects is not None
    assert effects.basis.relative == (0,)
    assert len(effects.own) == len(entries)

    def rise(one):
        less = effects.adjusted(one)
        restored_at = moved(np.asarray(less["target"]), less["effect"], less["link"][0], less["link"][1])
        np.testing.assert_allclose(restored_at, one["target"])
        price = one[COVARIATES][0]
        cheap, dear = (less["effect"][np.isclose(price, x)].mean() for x in (price.min(), price.max()))
        value = np.array(np.median(one["target"][np.isclose(price, price.max())]))
        return moved(value, np.array(cheap - dear), less["link"][0], less["link"][1]) / value

    found = np.array([rise(one) for one in entries])
    shared = np.array([rise({**one, "item_id": f"new {one['item_id']}"}) for one in entries])
    assert np.corrcoef(found, truth)[0, 1] > 0.9
    assert np.abs(found - truth).mean() < 0.5 * np.abs(shared - truth).mean()
    assert np.median(shared) == pytest.approx(np.median(truth), rel=0.1)


def test_prices_in_pieces_have_the_effects_of_the_whole():
    entries, _ = shops()
    effects = fit_effects(entries, "D")
    assert effects is not None
    again = Effects.of_record(json.loads(json.dumps(effects.record)))
    one = {**entries[0], "item_id": "new"}
    first = again.adjusted({**one, "target": one["target"][:100]})
    rest = {"target": one["target"][100:], COVARIATES: one[COVARIATES][:, 100:], "start": one["start"] + 100}
    rest = again.adjusted({**one, **rest, MEMORY: first[MEMORY]})
    np.testing.assert_allclose(rest["effect"], first["effect"][100:])
    assert len(again.own) == len(effects.own)


def test_a_new_series_whose_prices_are_zero_has_finite_effects():
    entries, _ = shops()
    effects = fit_effects(entries, "D")
    assert effects is not None
    free = {**entries[0], "item_id": "new", COVARIATES: np.zeros_like(entries[0][COVARIATES])}
    assert np.isfinite(effects.adjusted(free)["effect"]).all()
