"""Models from whose targets curves of covariates are taken: forecasts, beliefs, imputations and answers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tsforecast.analysis.anomalies import anomalies
from tsforecast.analysis.explain import explain
from tsforecast.analysis.news import news
from tsforecast.data.effects.effects import MEMORY
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import load_predictor, save_predictor, with_prediction_length

HORIZON, STEPS = 7, 500


def sales(seed=0, steps=STEPS):
    """Return daily sales that cold and heat raise, and their temperature over the horizon too."""
    rng = np.random.default_rng(seed)
    time = np.arange(steps + HORIZON)
    warmth = 12 - 10 * np.cos(2 * np.pi * time / 365.25) + 4 * rng.normal(size=len(time))
    target = 200 * np.exp(0.004 * (warmth - 12) ** 2 + 0.1 * (time % 7 == 0) + 0.03 * rng.normal(size=len(time)))
    return target, warmth


def entry(target, warmth, steps=STEPS, begin=0, item="shop"):
    start = pd.Period("2020-01-06", "D") + begin
    known = warmth[None, begin : steps + HORIZON]
    return {"start": start, "target": target[begin:steps], "item_id": item, "feat_dynamic_real": known}


def trained(model="bank", epochs=0, **options):
    target, warmth = sales()
    trainer = {"enable_progress_bar": False, "max_epochs": epochs}
    estimator = StateSpaceEstimator(model, "D", HORIZON, seed=0, trainer_kwargs=trainer, **options)
    return estimator.train([entry(target, warmth)])


@pytest.fixture(scope="module")
def bank():
    return trained()


def test_forecasts_follow_a_curve(bank):
    straight, misses = trained(effects="given"), {}
    target, warmth = sales()
    for name, predictor in (("curves", bank), ("given", straight)):
        days = range(300, STEPS, 10)
        forecasts = predictor.predict([entry(target, warmth, day) for day in days], num_samples=0)
        errors = [np.abs(f.quantile(0.5) - target[d : d + HORIZON]) for f, d in zip(forecasts, days, strict=True)]
        misses[name] = np.mean(errors, 1)
    gain = misses["given"] - misses["curves"]
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))
    assert misses["curves"].mean() < 0.5 * misses["given"].mean()


@pytest.mark.parametrize("model", ["issm", "gls"])
def test_other_models_follow_it_too(model):
    target, warmth = sales()
    (forecast,) = trained(model, 2).predict([entry(target, warmth)], num_samples=5)
    lower, upper = (forecast.quantile(q) for q in (0.01, 0.99))
    far = np.abs(warmth[STEPS:] - 12) > 8  # a straight line sees nothing there
    assert np.all((target[STEPS:] > lower) & (target[STEPS:] < upper))
    assert forecast.samples.shape == (5, HORIZON)
    assert far.any()


SHORT = {"preset": "none", "num_particles": 4, "context_length": 28, "batch_size": 8}
FEW = {"regimes": 2, "order": 0, "seasonal": False, "stages": 1, "switching": "scale", "scaling": "training"}


@pytest.mark.parametrize(
    ("model", "options"), [("markov", FEW), ("deepstate", {}), ("sgls", SHORT), ("rsgls-issm", SHORT)]
)
def test_models_with_regimes_or_networks_follow_it_too(model, options):
    """Given the covariates they are off by a sixth: a straight line sees nothing here, and a network little so soon."""
    target, warmth = sales()
    usual = "curves" if model in ("deepstate", "sgls") else "auto"  # by hand where networks read covariates
    predictor = trained(model, 1, num_batches_per_epoch=2, effects=usual, **options)
    assert predictor.input_transform.effects is not None
    (forecast,) = predictor.predict([entry(target, warmth)], num_samples=20)
    assert np.abs(forecast.quantile(0.5) / target[STEPS:] - 1).mean() < 0.1


def test_regimes_that_differ_in_effects_have_the_covariates():
    predictor = trained("markov", 0, **{**FEW, "switching": "scale+effects"})
    assert predictor.input_transform.effects is None


def test_a_mean_is_that_of_the_distribution_and_paths_have_its_quantiles(bank):
    target, warmth = sales()
    (forecast,) = bank.predict([entry(target, warmth)], num_samples=4000)
    error = forecast.samples.std(0) / np.sqrt(4000)
    assert np.all(np.abs(forecast.mean - forecast.samples.mean(0)) < 4 * error)
    below = (forecast.samples < forecast.quantile(0.9)).mean(0)
    assert np.all(np.abs(below - 0.9) < 4 * np.sqrt(0.09 / 4000))


def test_beliefs_go_on_with_what_covariates_have_been(bank, tmp_path):
    target, warmth = sales()
    first = entry(target, warmth, 480)
    whole = bank.filter([{**first, "feat_dynamic_real": warmth[None, :480]}])
    save_beliefs(tmp_path / "beliefs.pt", whole.values(), bank.prediction_net)
    kept = load_beliefs(tmp_path / "beliefs.pt", bank.prediction_net)
    later = bank.update(kept, [entry(target, warmth, STEPS, 480)])
    future = {"item_id": "shop", "feat_dynamic_real": warmth[None, STEPS:]}
    (moved,) = bank.forecast_from(later, [future], num_samples=0)
    # Scales are those with which filtering began: the forecast from all at once begins there, too.
    again = bank.update(
        bank.filter([{**first, "feat_dynamic_real": warmth[None, :480]}]), [entry(target, warmth, STEPS, 480)]
    )
    (other,) = bank.forecast_from(again, [future], num_samples=0)
    np.testing.assert_allclose(moved.quantile(0.3), other.quantile(0.3), rtol=1e-6)
    (direct,) = bank.predict([entry(target, warmth)], num_samples=0)
    np.testing.assert_allclose(moved.quantile(0.5), direct.quantile(0.5), rtol=0.02)
    with pytest.raises(ValueError, match="feat_dynamic_real"):
        list(bank.forecast_from(later, [{"item_id": "shop"}], num_samples=0))


def test_it_is_saved_and_read_again_and_takes_another_horizon(bank, tmp_path):
    target, warmth = sales()
    save_predictor(bank, tmp_path / "model")
    again = load_predictor(tmp_path / "model")
    (one,), (two,) = (p.predict([entry(target, warmth)], num_samples=0) for p in (bank, again))
    np.testing.assert_array_equal(one.quantile(0.2), two.quantile(0.2))
    shorter = {**entry(target, warmth), "feat_dynamic_real": warmth[None, : STEPS + 3]}
    (three,) = with_prediction_length(again, 3).predict([shorter], num_samples=0)
    np.testing.assert_allclose(three.quantile(0.2), one.quantile(0.2)[:3], rtol=1e-6)


def test_gaps_are_filled_by_the_weather_of_their_days(bank):
    target, warmth = sales()
    holed = target.copy()
    gap, steps = np.arange(60, 110), 150
    holed[gap] = np.nan
    (filled,) = bank.impute([entry(holed, warmth, steps)], 20)
    seen = ~np.isnan(holed[:steps])
    np.testing.assert_allclose(filled.samples[:, seen], np.broadcast_to(holed[:steps][seen], (20, seen.sum())))
    found = np.median(filled.samples, 0)[gap]
    assert np.corrcoef(np.log(found), np.log(target[gap]))[0, 1] > 0.9


def test_a_belief_that_is_damaged_is_refused(bank, tmp_path):
    """What is kept of covariates has its own length, and is checked where it is read and where it is used."""
    target, warmth = sales()
    given = {**entry(target, warmth, 480), "feat_dynamic_real": warmth[None, :480]}
    (known,) = bank.filter([given]).values()
    path, net = tmp_path / "beliefs.pt", bank.prediction_net
    memory = known.static[MEMORY]
    for damaged in (memory[:-1], np.r_[-1.0, memory[1:]], np.full_like(memory, np.inf)):
        save_beliefs(path, [known, replace(known, item_id="b", static={MEMORY: damaged})], net)
        with pytest.raises(ValueError, match=r"'b': expected effect_memory of . finite numbers, the first above 0"):
            load_beliefs(path, net)
    save_beliefs(path, [replace(known, static={MEMORY: memory[:-1]})], net)
    with pytest.raises(ValueError, match=r"expected effect_memory of . numbers, as the curves of this model have"):
        bank.update(load_beliefs(path, net), [entry(target, warmth, STEPS, 480)])


def test_parts_add_up_to_the_forecast(bank):
    target, warmth = sales()
    frame = explain(bank, [entry(target, warmth)])
    parts = frame.pivot_table(index="timestamp", columns="part", values="mean")
    (forecast,) = bank.predict([entry(target, warmth)], num_samples=0)
    np.testing.assert_allclose(parts.drop(columns="fit").sum(axis=1), parts["fit"], rtol=1e-6)
    np.testing.assert_allclose(parts["fit"], forecast.mean, rtol=0.01)  # the mean of a bent scale is near its bent mean
    assert np.corrcoef(parts["covariates"], (warmth[STEPS:] - 12) ** 2)[0, 1] > 0.9


def test_a_hot_day_is_no_anomaly_but_a_lost_one_is(bank):
    target, warmth = sales()
    target[280] *= 0.5
    frame = anomalies([entry(target, warmth, 300, 150)], bank, rate=0.01)
    assert frame["flagged"][280 - 150]
    assert frame["flagged"].mean() < 0.05
    inside = (frame["value"] > frame["lower"]) & (frame["value"] < frame["upper"])
    assert inside[200 - 150 :].mean() > 0.9


def test_intervals_hold_the_uncertainty_of_coefficients():
    """Of few observations they are wider; not where a value is known."""
    target, warmth = sales(steps=60)
    warmth[60:] = np.linspace(12, 22, HORIZON)
    trainer = {"enable_progress_bar": False, "max_epochs": 0}
    given = {**entry(target, warmth, 60), "feat_dynamic_real": warmth[None]}
    known = {**given, "feat_dynamic_real": warmth[None, :60]}
    predictor = StateSpaceEstimator("bank", "D", HORIZON, seed=0, trainer_kwargs=trainer).train([known])
    free = {**given, "known_future": np.where(np.arange(HORIZON) == 5, 250.0, np.nan)}
    widths, paths = [], []
    for _ in range(2):
        (forecast,) = predictor.predict([free], num_samples=2000)
        widths.append(forecast.quantile(0.9) - forecast.quantile(0.1))
        paths.append(forecast.samples)
        below = (forecast.samples < forecast.quantile(0.9)).mean(0)[[0, 6]]
        assert np.all(np.abs(below - 0.9) < 5 * np.sqrt(0.09 / 2000))
        effects = predictor.input_transform.effects
        predictor.input_transform.effects = replace(effects, doubt=0 * effects.doubt)
    gain = widths[0] / np.maximum(widths[1], 1e-9)
    assert gain[6] > 1.005
    assert (np.delete(gain, 5) > 1).all()
    for one in paths:
        np.testing.assert_allclose(one[:, 5], 250.0, rtol=1e-5)


def test_known_values_of_the_future_stay(bank):
    target, warmth = sales()
    known = np.full(HORIZON, np.nan)
    known[2] = 321.0
    (forecast,) = bank.predict([{**entry(target, warmth), "known_future": known}], num_samples=10)
    np.testing.assert_allclose(forecast.samples[:, 2], 321.0, rtol=1e-5)


@pytest.mark.parametrize("effects", ["curves", "given"])
def test_a_range_of_a_covariate_is_in_the_intervals(bank, effects):
    """Its paths are those of forecasts at places of the range, as many of each; other entries stay as they are."""
    predictor = bank if effects == "curves" else trained(effects="given")
    target, warmth = sales()
    whole = entry(target, warmth)
    low, high = np.full((1, HORIZON), np.nan), np.full((1, HORIZON), np.nan)
    low[0, 3:], high[0, 3:] = 12.0, 26.0
    given = [whole, {**whole, "covariate_range": np.stack([low, high])}, whole]
    alone, over, again = predictor.predict(given, num_samples=2000)
    assert over.samples.shape == (2000, HORIZON)
    np.testing.assert_array_equal(alone.quantile(0.3), again.quantile(0.3))
    places = []
    for place in (np.arange(20) + 0.5) / 20:
        known = whole["feat_dynamic_real"].copy()
        known[0, STEPS + 3 :] = 12 + 14 * place
        places += predictor.predict([{**whole, "feat_dynamic_real": known}], num_samples=0)
    middle = np.median(over.samples, 0)
    below = np.mean([_cdf(one, middle) for one in places], 0)
    assert np.all(np.abs(below - 0.5) < 5 * np.sqrt(0.25 / 2000) + 0.01)
    if effects == "curves":  # a straight line sees nothing here
        wider = over.quantile(0.9) - over.quantile(0.1)
        assert np.all(wider[3:] > 1.5 * (alone.quantile(0.9) - alone.quantile(0.1))[3:])
    with pytest.raises(ValueError, match=r"expected covariate_range of shape \(2, 1, 7\), low values at or below"):
        list(predictor.predict([{**whole, "covariate_range": np.stack([high, low])}]))


def _cdf(forecast, values):
    """Return the probability of at most some values, between quantiles of a forecast."""
    levels = np.linspace(0.005, 0.995, 100)
    quantiles = forecast.quantiles(tuple(levels.tolist()))
    return np.array([np.interp(x, own, levels, 0.0, 1.0) for x, own in zip(values, quantiles.T, strict=True)])


@pytest.mark.parametrize("model", ["bank", "gls"])
def test_news_lead_from_one_forecast_to_the_other(bank, model):
    """Causes add up between the means that `predict` has; a hot day that was expected is no news."""
    predictor = bank if model == "bank" else trained(model, 1)
    target, warmth = sales()
    target[471] = np.nan
    warmth[480:] = 24 - np.arange(len(warmth) - 480) / 2  # far above the days before
    target[480:STEPS] = 200 * np.exp(0.004 * (warmth[480:STEPS] - 12) ** 2)
    begin = 420  # what every value of the past did takes time
    before, after = (entry(target, warmth, steps, begin) for steps in (480, 483))
    before["feat_dynamic_real"] = warmth[None, begin : 480 + HORIZON]
    after["target"] = np.where(np.arange(begin, 483) == 474, target[begin:483] + 30, target[begin:483])
    after["target"][471 - begin] = 260.0
    hot = np.where(np.isin(np.arange(483 + HORIZON), [476, 485]), 24.0, warmth[: 483 + HORIZON])
    after["feat_dynamic_real"] = hot[None, begin:]
    found = news(predictor, [before], [after])
    steps = found.groupby("timestamp")
    start, end = steps["before"].first(), steps["after"].first()
    np.testing.assert_allclose(start + steps["impact"].sum(), end, rtol=0, atol=1e-9)
    (old,), (new,) = (predictor.predict([one], num_samples=0) for one in (before, after))
    np.testing.assert_allclose(start, old.mean[3:], rtol=1e-4)
    np.testing.assert_allclose(end, new.mean[: HORIZON - 3], rtol=1e-4)
    revised = found[found["kind"] == "revised"]
    np.testing.assert_allclose(revised["value"] - revised["expected"], 30, rtol=1e-4)
    fresh = found[(found["kind"] == "new") & (found["source"] > pd.Timestamp("2020-01-06") + pd.Timedelta(days=479))]
    assert fresh["source"].nunique() == 3
    # Cold or heat has moved the sales by a half, and the expectation of these days knows it.
    far = fresh.drop_duplicates("source")
    assert (far["value"] > 1.4 * 200).all()
    np.testing.assert_allclose(far["expected"], far["value"], rtol=0.2)
    moved = found[found["kind"] == "covariates"].groupby("timestamp")["impact"].sum()
    assert moved.abs().idxmax() == pd.Timestamp("2020-01-06") + pd.Timedelta(days=485)


def test_what_has_no_curves_says_so():
    with pytest.raises(ValueError, match="expected effects"):
        StateSpaceEstimator("bank", "D", HORIZON, effects="bent")
