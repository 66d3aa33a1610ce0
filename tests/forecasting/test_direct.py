"""Direct forecasts: regressions on days, alone and mixed with a model."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RationalQuadratic
from sklearn.linear_model import Ridge

from tsforecast import StateSpaceEstimator
from tsforecast.analysis.explain import explain
from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.past import PAST
from tsforecast.forecasting import direct
from tsforecast.forecasting.adaptation import AdaptivePredictor
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.direct import Directs, direct_forecast, has_days, is_long
from tsforecast.forecasting.predictor import load_predictor, save_predictor
from tsforecast.forecasting.ridge import as_recent, curved, ridge
from tsforecast.forecasting.rolling import rolling
from tsforecast.forecasting.serialization import RECORD

DAY, HORIZON = 24, 30


def hours(days: int, seed: int = 0, scale: float = 1.0, name: str = "a") -> dict:
    """An entry: a day's shape that is flatter at weekends, and noise."""
    steps, random = np.arange(24 * days), np.random.default_rng(seed)
    shape = np.sin(2 * np.pi * steps / 24) * np.where(steps // 24 % 7 < 5, 2.0, 1.0)
    return {
        "item_id": name,
        "start": to_period("2024-01-01", "h"),
        "target": scale * (10 + shape + random.normal(0, 0.3, len(steps))),
    }


def predictor_of(entries: list[dict], direct: float, **options):
    """A bank that only conditions, beside direct forecasts."""
    options = {"seed": 0, "trainer_kwargs": {"max_epochs": 0, "enable_progress_bar": False}, **options}
    return StateSpaceEstimator("bank", "h", HORIZON, direct=direct, **options).train(entries)


@pytest.fixture(scope="module")
def entries() -> list[dict]:
    """Two series that have direct forecasts, one with a scale of its own; and one that is too short."""
    return [hours(60), hours(50, 1, 1e12, "b"), hours(15, 2, name="c")]


@pytest.fixture(scope="module")
def pair(entries):
    """The same model without and with direct forecasts."""
    return predictor_of(entries, 0.0), predictor_of(entries, 0.5)


def test_ridge_and_its_errors_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    features, ahead, latest = random.normal(size=(40, 60)), random.normal(size=(40, 3)), random.normal(size=60)
    ahead += features[:, :3] * 2
    mean, errors = ridge(features, ahead, latest)
    fits = {penalty: Ridge(alpha=penalty).fit(features, ahead) for penalty in (3, 10, 30, 100, 300, 1e3, 3e3, 1e4)}
    left_out = {
        penalty: np.stack(
            [
                ahead[k] - Ridge(alpha=penalty).fit(np.delete(features, k, 0), np.delete(ahead, k, 0)).predict(row)[0]
                for k, row in enumerate(features[:, None])
            ]
        )
        for penalty in fits
    }
    best = min(fits, key=lambda penalty: np.abs(left_out[penalty]).mean())
    np.testing.assert_allclose(mean, fits[best].predict(latest[None])[0], atol=1e-8)
    np.testing.assert_allclose(errors, left_out[best], atol=1e-8)


def test_curved_regression_is_that_of_the_features_of_its_kernel():
    random = np.random.default_rng(4)
    features, ahead = random.normal(size=(41, 6)), random.normal(size=(40, 3))
    kernel = features @ features.T + 6 * RationalQuadratic(length_scale=np.sqrt(6), alpha=1)(features)
    known = np.linalg.cholesky(kernel)
    for one, other in zip(curved(features, ahead), ridge(known[:-1], ahead, known[-1]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def test_curved_regression_finds_a_product():
    random = np.random.default_rng(5)
    features = random.normal(size=(401, 2))
    goal = features.prod(1, keepdims=True)
    curve, line = curved(features, goal[:-1])[1], ridge(features[:-1], goal[:-1], features[-1])[1]
    assert np.abs(curve).mean() < 0.2 * np.abs(line).mean()


@pytest.mark.parametrize("lag", [1, 3])
def test_errors_are_as_large_as_those_known_at_the_end(lag):
    errors = np.random.default_rng(6).normal(size=(30, 4)) * np.linspace(1, 3, 30)[:, None]
    sizes, recent = np.abs(errors).mean(1), []
    for origin in range(31):
        known = sizes[: max(origin - lag + 1, 0)]
        weights = 0.5 ** (np.arange(len(known))[::-1] / 5)
        recent.append((weights @ known + 1.5 * sizes.mean()) / (weights.sum() + 1.5))
    factors = np.clip(np.sqrt(recent[-1] / np.array(recent[:-1])), 0.5, 2)
    np.testing.assert_allclose(as_recent(errors, lag), errors * factors[:, None])
    np.testing.assert_allclose(as_recent(errors, 40), errors)


def test_covariates_end_with_the_horizon_where_a_series_begins_late():
    weather = np.random.default_rng(7).normal(size=(60 * DAY + HORIZON, 1))
    values = hours(60)["target"] + 3 * weather[: 60 * DAY, 0]
    late, cut = (direct_forecast(values[9 * DAY :], DAY, HORIZON, one) for one in (weather, weather[9 * DAY :]))
    assert late is not None
    assert cut is not None
    np.testing.assert_array_equal(late.mean, cut.mean)


def test_a_curved_function_is_fitted_to_the_last_origins(monkeypatch):
    """It costs the cube of their number; the linear one has all."""
    values = hours(60)["target"]
    whole = direct_forecast(values, DAY, HORIZON)
    sizes = []
    monkeypatch.setattr(direct, "_CURVED", 30)
    monkeypatch.setattr(direct, "curved", lambda x, y: (sizes.append((len(x), len(y))), curved(x, y))[1])
    found = direct_forecast(values, DAY, HORIZON)
    assert whole is not None
    assert found is not None
    assert sizes == [(31, 30)]
    assert len(found.errors) == 30 < len(whole.errors)
    assert np.abs(found.mean - whole.mean).max() < whole.errors.std()


def test_weeks_that_repeat_go_on():
    week = np.random.default_rng(1).normal(size=7 * DAY)
    found = direct_forecast(100 + np.tile(week, 12), DAY, HORIZON)
    assert found is not None
    shape = 100 + np.tile(week, 2)[:HORIZON]
    assert np.abs(found.mean - shape).max() < 0.15 * week.std()


def test_a_covariate_of_the_day_ahead_moves_it():
    random = np.random.default_rng(2)
    weather = np.repeat(random.normal(size=102), DAY)[: 100 * DAY + HORIZON, None]
    values = 5 + 2 * weather[: 100 * DAY, 0] + random.normal(0, 0.1, 100 * DAY)
    found = direct_forecast(values, DAY, HORIZON, weather)
    assert found is not None
    actual = 5 + 2 * weather[-HORIZON:, 0]
    blind = direct_forecast(values, DAY, HORIZON)
    assert blind is not None
    assert np.abs(found.mean - actual).mean() < 0.25 * np.abs(blind.mean - actual).mean()


def test_missing_values_and_one_that_is_mistyped_matter_little():
    values = hours(60)["target"]
    whole, gaps = direct_forecast(values, DAY, HORIZON), values.copy()
    gaps[300:330] = np.nan
    gaps[-5:] = np.nan
    gaps[700] = 1e9
    found = direct_forecast(gaps, DAY, HORIZON)
    assert whole is not None
    assert found is not None
    assert np.abs(found.mean - whole.mean).max() < 0.5


@pytest.mark.parametrize("lost", [slice(0, 48 * DAY), slice(-DAY, None), slice(None)])
def test_without_enough_origins_or_a_last_week_there_is_none(lost):
    values = hours(60)["target"].copy()
    values[lost] = np.nan
    assert direct_forecast(values, DAY, HORIZON) is None


@pytest.mark.parametrize(("jump", "is_like"), [(0.3, True), (30.0, False)])
def test_a_last_day_like_none_before_has_no_direct_forecast(jump, is_like):
    """Regressions would go back to where the series was, and be sure of it."""
    values = hours(60)["target"].copy()
    values[-2 * DAY :] += jump
    assert (direct_forecast(values, DAY, HORIZON) is not None) == is_like


def test_days_have_steps_and_series_have_weeks():
    assert [freq for freq in ("ms", "s", "7s", "min", "15min", "h", "6h", "12h", "D", "ME") if has_days(freq)] == [
        "s", "min", "15min", "h", "6h"]  # fmt: skip
    assert is_long(21 * 24 + 24, "h", 24)
    assert not is_long(21 * 24 + 23, "h", 24)
    assert is_long(14 * 24, "h", 3)  # blocks of the horizon take the place of days
    assert not is_long(14 * 24, "h", 4)
    assert is_long(22 * 60, "min", 60)  # also of less than a day
    assert not is_long(22 * 60 - 1, "min", 60)


@pytest.mark.parametrize("days", [1.0, 2.0, 3.5, 6.0])
def test_blocks_of_a_few_days_go_on(days):
    """Each hour begins with ten minutes of load; noise has a deviation of .3."""
    steps = np.arange(int(1440 * days) + 60)
    values = 10 + 5 * (steps % 60 < 10) + 2 * np.sin(2 * np.pi * steps / 1440)
    noise = np.random.default_rng(0).normal(0, 0.3, len(steps))
    found = direct_forecast((values + noise)[:-60], 1440, 60, block=60)
    assert found is not None
    assert np.abs(found.mean - values[-60:]).mean() < 0.3


def test_seconds_have_hours_in_the_place_of_days():
    steps = np.arange(25 * 360)
    values = 10 + np.where(steps % 360 < 60, 5.0, 0.0) + np.random.default_rng(0).normal(0, 0.3, len(steps))
    start = to_period("2024-01-01 00:00", "10s")
    task = ForecastTask("seconds", "10s", 60, 2, [{"item_id": "a", "start": start, "target": values}])
    predictor = fitted(task)
    errors = []
    for (_, label), forecast in zip(task.test(), predictor.predict([past for past, _ in task.test()]), strict=True):
        assert "regression on hours" in forecast.weights
        errors.append(np.abs(forecast.quantile(0.5) - label["target"]).mean())
    assert np.mean(errors) < 0.4  # noise alone has .24, and the hour's mean 1.4


def test_walks_of_less_than_three_weeks_lie_within_the_errors_of_blocks():
    """In four of five steps within their middle 80 %, which for the mixture have been narrowed."""
    walks = np.random.default_rng(4).normal(size=(120, 12 * 96 + 12, 1)).cumsum(1)
    seen, known = np.ones((12 * 96, 1), bool), np.full((12, 1), np.nan)
    windows = [{"past_target": walk[:-12], "past_observed": seen, "known_future": known} for walk in walks]
    found = [one for series in Directs(windows, "15min", 12, 0.5, 1).found for one in series or ()]
    assert [one.kind for one in found] == ["blocks"] * len(walks)
    low, high = (np.stack([one.mean + np.quantile(one.errors, at, 0) / 0.85 for one in found]) for at in (0.1, 0.9))
    held = ((walks[:, -12:, 0] > low) & (walks[:, -12:, 0] < high)).mean(1)
    assert abs(held.mean() - 0.8) < 3 * held.std() / np.sqrt(len(held))


def test_a_mixture_has_half_of_each_distribution(entries, pair):
    model, both = (list(one.predict(entries, num_samples=0)) for one in pair)
    for entry, alone, mixed in zip(entries[:2], model, both, strict=False):
        own = direct_forecast(entry["target"], DAY, HORIZON)
        assert own is not None
        means, deviations = own.parts()
        for level in (0.1, 0.5, 0.9):
            at = mixed.quantile(level)
            scores = torch.tensor((at - means) / deviations).numpy()
            direct = torch.special.ndtr(torch.tensor(scores)).mean(0).numpy()
            grid = np.linspace(0.001, 0.999, 999)
            known = np.stack([alone.quantile(one) for one in grid])
            below = [np.interp(value, row, grid) for value, row in zip(at, known.T, strict=True)]
            np.testing.assert_allclose(0.5 * direct + 0.5 * np.array(below), level, atol=2e-3)
        np.testing.assert_allclose(mixed.mean, (alone.mean + means.mean(0)) / 2, rtol=1e-3)
    np.testing.assert_array_equal(both[2].quantile(0.9), model[2].quantile(0.9))
    assert dict(both[0].weights)["regression on days"] == pytest.approx(0.5)
    assert sum(both[2].weights.values()) == pytest.approx(1.0)
    assert both[2].weights["regression on days"] == 0


def test_paths_are_of_both_and_have_the_moments_of_the_mixture(entries, pair):
    torch.manual_seed(3)
    count = 4000
    found, short = (next(iter(pair[1].predict([entry], num_samples=count))) for entry in (entries[0], entries[2]))
    paths = found.samples
    error = paths.std(0) / np.sqrt(count)
    assert np.all(np.abs(paths.mean(0) - found.mean) < 5 * error + 1e-3)
    for level in (0.1, 0.9):  # the share below a quantile is binomial
        share = (paths < found.quantile(level)).mean(0)
        assert np.all(np.abs(share - level) < 5 * np.sqrt(level * (1 - level) / count) + 0.01)
    torch.manual_seed(3)
    alone = next(iter(pair[0].predict([entries[2]], num_samples=count)))
    np.testing.assert_array_equal(short.samples.shape, alone.samples.shape)
    assert abs(short.samples.mean() - alone.samples.mean()) < 5 * alone.samples.std() / np.sqrt(count)


def test_paths_of_several_targets_have_the_errors_of_the_same_days():
    first, other = hours(60)["target"], hours(60, 5)["target"]
    entry = {**hours(60), "target": np.stack([first, 2 * first, other])}
    window = {
        "past_target": entry["target"].T,
        "past_observed": np.ones(entry["target"].T.shape, bool),
        "known_future": np.full((HORIZON, 3), np.nan),
    }
    (paths,) = Directs([window], "h", HORIZON, 0.5, 3).exchanged([np.full((200, HORIZON, 3), np.nan)], False)
    drawn = paths[~np.isnan(paths[:, 0, 0])]
    assert len(drawn) == 100
    np.testing.assert_allclose(drawn[..., 1], 2 * drawn[..., 0], rtol=1e-9)
    apart = [np.corrcoef(drawn[:, step, 0], drawn[:, step, 2])[0, 1] for step in range(HORIZON)]
    assert np.abs(np.mean(apart)) < 0.5


def test_where_a_part_of_the_future_is_known_the_model_says_the_rest(entries, pair, caplog):
    known = np.full(HORIZON, np.nan)
    known[3] = 12.0
    caplog.set_level("INFO")
    asked = [{**entries[0], "known_future": known}]
    model, both = (next(iter(one.predict(asked, num_samples=0))) for one in pair)
    np.testing.assert_array_equal(both.quantile(0.9), model.quantile(0.9))
    assert sum("a known part of the future are of the model alone" in text for text in caplog.messages) == 1


def test_covariates_of_the_past_alone_have_no_direct_forecast(pair):
    entry = {**hours(60), PAST: hours(60, 7)["target"][None]}
    model, both = (predictor_of([entry], share) for share in (0.0, 0.5))
    alone, mixed = (next(iter(one.predict([entry], num_samples=40))) for one in (model, both))
    assert mixed.samples.shape == alone.samples.shape == (40, HORIZON)
    assert mixed.weights["regression on days"] == pytest.approx(0.5)
    assert np.abs(mixed.quantile(0.5) - alone.quantile(0.5)).max() > 0


def test_what_is_of_the_model_alone_is_said(entries, pair, caplog):
    caplog.set_level("INFO")
    for one in pair:
        beliefs = one.filter(entries[:1])
        alone = next(iter(one.forecast_from(beliefs, num_samples=0)))
        explain(one, entries[:1])
    model = next(iter(pair[0].predict(entries[:1], num_samples=0)))
    np.testing.assert_allclose(alone.quantile(0.9), model.quantile(0.9), rtol=1e-4)
    said = [record.message for record in caplog.records if "of the model alone" in record.message]
    assert [one.split(" of ")[0] for one in said] == ["forecasts from beliefs are", "parts are those"]


def test_learning_on_changes_the_model_beside_direct_forecasts(entries, pair, caplog):
    caplog.set_level("INFO")
    task = ForecastTask("hours", "h", HORIZON, 2, entries[:1])
    for one in pair:
        result = rolling(AdaptivePredictor(one), task, 20)
        assert result.windows["moved"].iloc[1] > 0
        for forecast in result.forecasts:
            assert forecast.weights.get("regression on days", 0.0) == pytest.approx(one.direct)
    said = [message for message in caplog.messages if "of the model alone" in message]
    assert [one.split(":")[0] for one in said] == ["what periods teach are parameters of the model alone"]


def test_saved_and_read_it_forecasts_the_same(entries, pair, tmp_path):
    save_predictor(pair[1], tmp_path / "both")
    again = load_predictor(tmp_path / "both")
    assert again.direct == 0.5
    record = tmp_path / "both" / RECORD
    record.write_text(record.read_text().replace('"direct": 0.5', '"direct": 1.5'))
    with pytest.raises(ValueError, match=r"expected direct of at least 0 and below 1, got 1\.5"):
        load_predictor(tmp_path / "both")
    before, after = (next(iter(one.predict(entries[:1], num_samples=0))) for one in (pair[1], again))
    np.testing.assert_array_equal(before.quantile(0.9), after.quantile(0.9))


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="expected direct of at least 0 and below 1"):
        StateSpaceEstimator("bank", "h", HORIZON, direct=share)


def test_auto_compares_it():
    entries = [hours(60, seed, name=str(seed)) for seed in range(2)]
    options = {"seed": 0, "trainer_kwargs": {"max_epochs": 1, "enable_progress_bar": False}}
    estimator = StateSpaceEstimator("auto", "h", 24, num_batches_per_epoch=1, **options)
    chosen = estimator.choose(entries)
    shares = {trial.candidate.options.get("direct", 0.0) for trial in chosen.trials}
    assert shares >= {0.0, 0.5}
