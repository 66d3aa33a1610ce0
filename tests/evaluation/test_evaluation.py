import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.dataset.split import split
from gluonts.ev.metrics import MASE, ND, Coverage, MeanWeightedSumQuantileLoss
from gluonts.model import Predictor, QuantileForecast, SampleForecast, evaluate_forecasts
from properscoring import crps_ensemble
from scipy.stats import norm
from statsforecast import models
from statsforecast.models import AutoETS

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.task import ForecastTask
from tsforecast.evaluation import (
    BASELINES,
    HUNDREDTHS,
    INTERVALS,
    LEVELS,
    TENTHS,
    default_baselines,
    evaluate,
    fit_baseline,
    format_scores,
    paired_difference,
    save_scores,
    score,
)
from tsforecast.evaluation.baselines import (
    ADDITIVE,
    NAIVE,
    NAIVE_LATER,
    NO_SEASON,
    SeasonalNaive,
    fill_missing,
    installed,
)
from tsforecast.evaluation.deepar import DeepAR
from tsforecast.evaluation.scores import totals_of_json
from tsforecast.forecasting.exact import BatchMarginals, ExactForecast
from tsforecast.models.parts.marginals import Marginals

LENGTH, HORIZON, WINDOWS = 120, 4, 3
START = pd.Period("2024-01-01", "D")


def make_task(values, horizon=HORIZON, windows=WINDOWS, freq="D"):
    start = pd.Period("2024-01-01", freq)
    entries = [{"item_id": f"s{k}", "start": start, "target": row} for k, row in enumerate(values)]
    return ForecastTask(name="toy", freq=freq, prediction_length=horizon, windows=windows, entries=entries)


def one_window(label, past=(1.0, 2.0, 4.0)):
    """Test data of one series whose last steps are `label`."""
    target = np.concatenate([np.asarray(past, float), np.asarray(label, float)])
    _, template = split([{"item_id": "s0", "start": START, "target": target}], offset=-len(label))
    return template.generate_instances(len(label))


def one_forecast(samples, past=3, item_id="s0"):
    return SampleForecast(np.asarray(samples, float), start_date=START + past, item_id=item_id)


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


def random_case(rng, kind, targets):
    """Windows with missing labels and pasts, and forecasts as samples or quantiles."""
    shape = (3, LENGTH) if targets == 1 else (3, targets, LENGTH)
    values = rng.normal(size=shape).cumsum(-1) + 5
    values[rng.random(shape) < 0.2] = np.nan
    task = make_task(values)
    forecasts = []
    for _, label in task.test("rolling"):
        future = (HORIZON,) if targets == 1 else (HORIZON, targets)
        if kind == "samples":
            forecast = SampleForecast(
                rng.normal(size=(50, *future)) + 5, start_date=label["start"], item_id=label["item_id"]
            )
        else:
            array = np.sort(rng.normal(size=(len(LEVELS), *future)), axis=0) + 5
            keys = [str(level) for level in LEVELS]
            forecast = QuantileForecast(array, start_date=label["start"], forecast_keys=keys, item_id=label["item_id"])
        forecasts.append(forecast)
    return task.test("rolling"), forecasts


def reference(forecasts, test, season, axis):
    """The scores as gluonts.ev computes them, one row per cell that `axis` keeps."""
    quantities = {"nd": ND(), "mase": MASE()}
    for name, levels in (("crps", TENTHS), ("crps_99", HUNDREDTHS)):
        quantities[name] = MeanWeightedSumQuantileLoss(levels)
    for width in INTERVALS:
        for side, level in (("low", 0.5 - width / 200), ("high", 0.5 + width / 200)):
            quantities[f"{side}_{width}"] = Coverage(round(level, 3))
    columns = {}
    for name, metric in quantities.items():
        # Two metrics of one class have the same column name, hence one at a time.
        table = evaluate_forecasts(forecasts, test_data=test, metrics=[metric], axis=axis, seasonality=season)
        columns[name] = table.iloc[:, 0].to_numpy()
    for width in INTERVALS:
        columns[f"coverage_{width}"] = columns.pop(f"high_{width}") - columns.pop(f"low_{width}")
    return columns


@pytest.mark.parametrize("kind", ["samples", "quantiles"])
@pytest.mark.parametrize("targets", [1, 2])
def test_scores_equal_gluonts(rng, kind, targets):
    test, forecasts = random_case(rng, kind, targets)
    found = score(forecasts, test)

    expected = reference(forecasts, test, season=7, axis=None)
    overall = found.overall | {f"coverage_{width}": found.overall["coverage"][str(width)] for width in INTERVALS}
    for name, value in expected.items():
        np.testing.assert_allclose(overall[name], value[0], rtol=1e-12, err_msg=name)
    assert found.overall["num_forecasts"] == 3 * WINDOWS
    assert found.overall["num_samples"] == (50 if kind == "samples" else None)

    expected = reference(forecasts, test, season=7, axis=0 if targets == 1 else (0, 1))
    assert list(found.per_horizon.index) == [1, 2, 3, 4]
    for name, value in expected.items():
        np.testing.assert_allclose(found.per_horizon[name], value, rtol=1e-12, err_msg=name)


def test_scores_of_a_series_are_those_of_its_windows_alone(rng):
    test, forecasts = random_case(rng, "samples", 1)
    found = score(forecasts, test).per_series
    entries = list({id(entry["target"]): entry for entry in test.dataset}.values())
    assert list(found.index) == ["s0", "s1", "s2"]
    for k, entry in enumerate(entries):
        alone = split([entry], offset=-HORIZON * WINDOWS)[1].generate_instances(HORIZON, windows=WINDOWS)
        overall = score(forecasts[k * WINDOWS : (k + 1) * WINDOWS], alone).overall
        for name in ("crps", "crps_99", "crps_ensemble", "nd", "mase"):
            np.testing.assert_allclose(found.loc[f"s{k}", name], overall[name], rtol=1e-12)


def ensemble_crps(samples, label):
    """E|X - y| - E|X - X'| / 2, written out over all pairs."""
    return np.abs(samples - label).mean() - np.abs(samples[:, None] - samples).mean() / 2


@pytest.mark.parametrize("targets", [1, 2])
def test_crps_of_an_ensemble_equals_its_definition_and_properscoring(rng, targets):
    test, forecasts = random_case(rng, "samples", targets)
    found = score(forecasts, test)
    sums, size = np.zeros(HORIZON), np.zeros(HORIZON)
    for forecast, (_, future) in zip(forecasts, test, strict=True):
        labels = np.reshape(future["target"], (targets, HORIZON))
        samples = np.reshape(forecast.samples, (50, HORIZON, targets))
        for target, step in np.ndindex(targets, HORIZON):
            label, here = labels[target, step], samples[:, step, target]
            if np.isnan(label):
                continue
            value = ensemble_crps(here, label)
            np.testing.assert_allclose(crps_ensemble(label, here), value, rtol=1e-10)
            sums[step] += value
            size[step] += abs(label)
    np.testing.assert_allclose(found.per_horizon["crps_ensemble"], sums / size, rtol=1e-12)
    np.testing.assert_allclose(found.overall["crps_ensemble"], sums.sum() / size.sum(), rtol=1e-12)


def test_sums_of_parts_are_those_of_the_whole(rng):
    """Also when they were written and read on the way."""
    entries = [{"item_id": f"s{k}", "start": START, "target": rng.normal(size=6) + 4} for k in range(5)]
    forecasts = [one_forecast(rng.normal(size=(20, 3)) + 4, item_id=f"s{k}") for k in range(5)]

    def totals(own):
        return score(forecasts[own], split(entries[own], offset=-3)[1].generate_instances(3)).totals

    whole, parts = totals(slice(5)), [totals(slice(2)), totals(slice(2, 5))]
    added = totals_of_json(json.loads(json.dumps(parts[0].as_json()))) + parts[1]
    assert added.num_forecasts == added.num_series == whole.num_series == 5
    np.testing.assert_allclose(added.cells, whole.cells, rtol=1e-12)
    np.testing.assert_allclose(added.pit, whole.pit, rtol=1e-12)
    np.testing.assert_array_equal(added.inside, whole.inside)


def test_crps_of_an_ensemble_at_the_ends():
    far = np.array([1e9, 1e9 + 1, 1e9 + 3])
    found = score([one_forecast(far[:, None])], one_window([1e9 + 2])).overall["crps_ensemble"]
    assert found == pytest.approx(ensemble_crps(far - 1e9, 2.0) / (1e9 + 2), rel=1e-9)
    infinite = score([one_forecast(np.array([[0.0], [np.inf]]))], one_window([1.0])).overall
    assert infinite["crps_ensemble"] == np.inf


def test_exact_quantiles_have_no_crps_of_an_ensemble(rng):
    test, forecasts = random_case(rng, "quantiles", 1)
    assert np.isnan(score(forecasts, test).overall["crps_ensemble"])


def gaussian_forecast(mean, deviation, paths, start):
    """An exact forecast of independent steps of several series, whose paths are of another distribution."""
    marginals = Marginals.single(
        *(torch.as_tensor(x, dtype=torch.float64)[..., None] for x in (mean, deviation)), "none"
    )
    batch = BatchMarginals(marginals, np.zeros((len(mean), 1), np.int64))
    return [ExactForecast(batch, k, None if paths is None else paths[k], start, f"s{k}") for k in range(len(mean))]


@pytest.mark.parametrize("count", [0, 100])
def test_exact_forecasts_are_scored_by_their_quantiles_and_questions_of_the_horizon_by_their_paths(rng, count):
    series = 40
    mean, deviation = rng.normal(size=(series, HORIZON)), rng.uniform(0.5, 2.0, (series, HORIZON))
    labels = mean + deviation * rng.normal(size=(series, HORIZON))
    labels[:4, 1] = np.nan
    task = make_task(np.concatenate([rng.normal(size=(series, LENGTH - HORIZON)), labels], 1), windows=1)
    test = task.test("rolling")
    paths = rng.normal(size=(series, count, HORIZON)) if count else None
    start = next(iter(test))[1]["start"]
    exact = score(gaussian_forecast(mean, deviation, paths, start), test)
    levels = norm.ppf(LEVELS)[:, None, None]
    keys = [str(level) for level in LEVELS]
    quantiles = np.moveaxis(mean + deviation * levels, 1, 0)
    known = score([QuantileForecast(q, start, keys, item_id=f"s{k}") for k, q in enumerate(quantiles)], test)
    for name in ("crps", "crps_99", "nd", "mase"):
        np.testing.assert_allclose(exact.overall[name], known.overall[name], rtol=1e-12)
    assert exact.overall["coverage"] == known.overall["coverage"]
    pd.testing.assert_frame_equal(exact.calibration, known.calibration)
    assert (exact.overall["num_exact"], exact.overall["num_samples"]) == (series, count or None)
    if paths is None:
        assert np.isnan([exact.overall[name] for name in ("crps_ensemble", "sum_50", "max_95")]).all()
        return
    drawn = score([SampleForecast(one, start, f"s{k}") for k, one in enumerate(paths)], test)
    for name in ("crps_ensemble", "sum_50", "sum_80", "max_80", "max_95"):
        assert exact.overall[name] == drawn.overall[name]
    assert exact.overall["crps"] != drawn.overall["crps"]
    for name, aggregate in (("sum", np.sum), ("max", np.max)):
        rank = (aggregate(paths[4:], axis=2) < aggregate(labels[4:], axis=1)[:, None]).sum(1)
        # Of 100 paths the ends of the interval of 80 % lie between the 10th and 11th, and the 90th and 91st.
        sure, possible = ((low <= rank) & (rank <= high) for low, high in ((11, 90 - 1), (10, 90)))
        assert sure.mean() <= exact.overall[f"{name}_80"] <= possible.mean()
        assert drawn.per_series[f"{name}_80"].isna().sum() == 4  # those with a missing label


def test_intervals_of_few_paths_hold_what_they_say(rng):
    """Of a sum that is exchangeable with those of the paths."""
    series, count = 1000, 39  # the ends of all intervals are paths, none is interpolated
    values = rng.standard_cauchy(size=(series, count + 1, 2))
    task = make_task(np.concatenate([rng.normal(size=(series, 10)), values[:, 0]], 1), windows=1, horizon=2)
    test = task.test("rolling")
    start = next(iter(test))[1]["start"]
    found = score([SampleForecast(v[1:], start, f"s{k}") for k, v in enumerate(values)], test).overall
    for width in INTERVALS:
        for name in ("sum", "max"):
            share = width / 100
            assert abs(found[f"{name}_{width}"] - share) < 4.5 * (share * (1 - share) / series) ** 0.5


def test_crps_by_hand():
    # Of 11 samples 0..10 the order statistic of level a is 10 a. Losses 2 |a - 1[5 < q]| |5 - q| of the tenths:
    losses = [0.8, 1.2, 1.2, 0.8, 0.0, 0.8, 1.2, 1.2, 0.8]
    found = score([one_forecast(np.arange(11.0)[:, None])], one_window([5.0])).overall
    assert found["crps"] == pytest.approx(sum(losses) / 9 / 5)
    assert found["nd"] == 0
    assert found["coverage"] == {"50": 1, "80": 1, "95": 1}


def test_denominator_is_shared_by_all_cells():
    # A point forecast of 10 for labels 12 and -8: each level's losses are 2 a 2 + 2 (1 - a) 18, the denominator 20.
    found = score([one_forecast(np.full((5, 2), 10.0))], one_window([12.0, -8.0])).overall
    assert found["crps"] == pytest.approx(np.mean([(4 * a + 36 * (1 - a)) / 20 for a in TENTHS]))
    assert found["nd"] == pytest.approx(20 / 20)
    # Past 1 2 4, season 1 because the week of daily data is longer than it: seasonal error 1.5.
    assert found["mase"] == pytest.approx(np.mean([2, 18]) / 1.5)


def test_mase_of_daily_data_looks_back_a_week(rng):
    past = rng.normal(size=50).cumsum()
    found = score([one_forecast(np.zeros((5, 1)), past=50)], one_window([3.0], past)).overall
    assert found["mase"] == pytest.approx(3 / np.mean(np.abs(past[7:] - past[:-7])))
    found = score([one_forecast(np.zeros((5, 1)), past=50)], one_window([3.0], past), season=2).overall
    assert found["mase"] == pytest.approx(3 / np.mean(np.abs(past[2:] - past[:-2])))


def test_missing_labels_count_nowhere(rng):
    samples = rng.normal(size=(20, 3)) + 4
    both = score([one_forecast(samples)], one_window([5.0, np.nan, 3.0]))
    seen = score([one_forecast(samples[:, [0, 2]])], one_window([5.0, 3.0]))
    joint = {name: both.overall.pop(name) for name in [*both.overall] if name[:4] in ("sum_", "max_")}
    assert len(joint) == 6
    assert np.isnan([*joint.values()]).all()  # whose sum and maximum are not known
    ensembles = [one.overall.pop("crps_ensemble") for one in (both, seen)]
    assert ensembles[0] == pytest.approx(ensembles[1], rel=1e-12)
    assert both.overall == {name: value for name, value in seen.overall.items() if name not in joint}
    assert both.per_horizon.loc[2].isna().all()
    pd.testing.assert_frame_equal(both.calibration, seen.calibration)
    infinite = score([one_forecast(samples)], one_window([5.0, np.inf, 3.0]))
    assert both.overall.items() <= infinite.overall.items()


def test_series_without_labels_or_seasonal_error_has_no_scores():
    found = score([one_forecast(np.ones((5, 2)))], one_window([np.nan, np.nan])).overall
    assert np.isnan([found["crps"], found["nd"], found["mase"], found["coverage"]["50"]]).all()
    found = score([one_forecast(np.ones((5, 2)))], one_window([1.0, 2.0], past=[3.0, 3.0, 3.0])).overall
    assert np.isnan(found["mase"])
    assert found["nd"] == pytest.approx(1 / 3)


def test_infinite_quantiles_are_scored_as_infinite():
    samples = np.full((100, 1), 2.0)
    samples[-3:] = np.inf
    found = score([one_forecast(samples)], one_window([2.0])).overall
    assert found["crps"] == 0
    assert found["crps_99"] == np.inf


def test_pit_of_a_label_exchangeable_with_the_samples_is_uniform():
    # A label takes each of the five ranks among four samples once.
    past = [0.0, 0.0, 0.0]
    test = one_window([0.5, 1.5, 2.5, 3.5, 4.5], past)
    pit = score([one_forecast(np.tile([[1.0], [2.0], [3.0], [4.0]], 5))], test).calibration["pit"]
    np.testing.assert_allclose(pit, pit.index, atol=1e-12)
    # A label equal to every sample says nothing about its rank.
    pit = score([one_forecast(np.zeros((4, 1)))], one_window([0.0])).calibration["pit"]
    np.testing.assert_allclose(pit, pit.index, atol=1e-12)
    # Above all samples: the last of five ranks.
    pit = score([one_forecast(np.zeros((4, 1)))], one_window([1.0])).calibration["pit"]
    np.testing.assert_allclose(pit, np.clip((pit.index - 0.8) / 0.2, 0, 1), atol=1e-12)


def test_pit_and_coverage_of_quantiles():
    levels = np.array(LEVELS)
    truth = norm.ppf((np.arange(1000) + 0.5) / 1000)
    array = np.tile(norm.ppf(levels)[:, None], len(truth))
    forecast = QuantileForecast(array, START + 3, [str(level) for level in LEVELS], item_id="s0")
    frame = score([forecast], one_window(truth)).calibration
    np.testing.assert_allclose(frame["pit"], frame.index, atol=1e-3)
    cover = frame["coverage"].dropna()
    assert list(cover.index) == pytest.approx([k / 50 for k in range(51)])
    np.testing.assert_allclose(cover, cover.index, atol=1e-3)


@pytest.mark.parametrize(
    ("forecasts", "message"),
    [
        ([], "ended after 0"),
        ([one_forecast(np.ones((5, 1)))] * 2, "there are more"),
        ([one_forecast(np.ones((5, 1)), item_id="other")], "of series 's0', but it is of 'other'"),
        ([one_forecast(np.ones((5, 1)), past=4)], "from 2024-01-04, not 2024-01-05"),
        ([one_forecast(np.ones((5, 2)))], r"shape \(1,\) for series 's0', but it has \(2,\)"),
        ([one_forecast(np.full((5, 1), np.nan))], "'s0' from 2024-01-04 contains NaN"),
    ],
)
def test_forecasts_that_do_not_fit_the_windows_are_refused(forecasts, message):
    with pytest.raises(ValueError, match=message):
        score(forecasts, one_window([1.0]))


# Baselines

# Those of statsforecast beside AutoETS take the same path; ARIMA is slow, and fitted without seasons here.
QUICK = [name for name in BASELINES if name not in ("auto_arima", "auto_theta", "deepar")]


def quantiles(name, task, protocol="long_term", season=7):
    horizon = task.prediction_length * (task.windows if protocol == "long_term" else 1)
    fitted = fit_baseline(name, task.train, season)
    return np.stack([f.forecast_array for f in fitted.predictor(horizon).predict(task.test(protocol).input)])


@pytest.fixture(scope="module")
def task(rng):
    return make_task(rng.normal(size=(2, LENGTH)).cumsum(1) + 3 * np.sin(np.arange(LENGTH) * 2 * np.pi / 7) - 4)


def test_seasonal_naive_by_hand(task):
    train = task.train[0]["target"]
    std = np.sqrt(np.mean((train[7:] - train[:-7]) ** 2))
    found = quantiles("seasonal_naive", task)[0]
    for step in (0, 6, 7, 11):
        expected = train[len(train) - 7 + step % 7] + std * np.sqrt(step // 7 + 1) * norm.ppf(LEVELS)
        np.testing.assert_allclose(found[:, step], expected)
    np.testing.assert_array_equal(quantiles("random_walk", task), quantiles("seasonal_naive-1", task))


def test_empirical_changes_by_hand(task):
    train = task.train[0]["target"]
    walk, seasonal = quantiles("empirical_random_walk", task)[0], quantiles("empirical_seasonal", task)[0]
    for step in (0, 6, 7, 11):
        expected = train[-1] + np.quantile(train[step + 1 :] - train[: -step - 1], LEVELS)
        np.testing.assert_allclose(walk[:, step], expected)
        lag = 7 * (step // 7 + 1)
        expected = train[len(train) - 7 + step % 7] + np.quantile(train[lag:] - train[:-lag], LEVELS)
        np.testing.assert_allclose(seasonal[:, step], expected)


@pytest.mark.parametrize("name", QUICK)
def test_baselines_know_the_past_and_nothing_of_the_future(rng, task, name):
    changed = [entry["target"].copy() for entry in task.entries]
    cut = LENGTH - HORIZON * WINDOWS
    for row in changed:
        row[cut:] += rng.normal(size=len(row) - cut) * 10
    before, after = quantiles(name, task, "rolling"), quantiles(name, make_task(changed), "rolling")
    np.testing.assert_array_equal(before[::WINDOWS], after[::WINDOWS])  # the first window of each series
    assert np.abs(before[1::WINDOWS] - after[1::WINDOWS]).max() > 0.1
    assert (np.diff(before, axis=1) >= 0).all()


@pytest.mark.parametrize("name", QUICK)
def test_baselines_see_missing_values_as_the_last_one(task, name):
    holes, filled = [entry["target"].copy() for entry in task.entries], []
    for row in holes:
        row[[0, 1, 30, 31, LENGTH - 14, LENGTH - 13]] = np.nan  # leading, inside, and just before the forecast
        filled.append(fill_missing(row))
    np.testing.assert_array_equal(quantiles(name, make_task(holes)), quantiles(name, make_task(filled)))


@pytest.mark.parametrize("name", QUICK)
def test_quantiles_are_negative_only_where_the_past_is(name):
    values = np.random.default_rng(0).gamma(0.5, size=(2, LENGTH))
    values[1, 50] = -0.1
    values[1, LENGTH - HORIZON * WINDOWS - 1] = 0.0  # the last one that is known: changes go down from here
    found = quantiles(name, make_task(values))
    assert (found[0] >= 0).all()
    assert found[1].min() < 0


@pytest.mark.parametrize("name", ["seasonal_naive", "random_walk", "empirical_seasonal", "empirical_random_walk"])
def test_quantiles_are_negative_once_the_series_has_been(name):
    values = np.ones((1, LENGTH))
    values[0, -HORIZON * WINDOWS :] = -5.0  # from the first test window on
    task = make_task(values)
    found = fit_baseline(name, task.train, 1).predictor(HORIZON).predict(task.test("rolling").input)
    medians = np.stack([forecast.quantile(0.5) for forecast in found])
    np.testing.assert_array_equal(medians, np.repeat([[1.0], [-5.0], [-5.0]], HORIZON, axis=1))


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("past", [[2.0] * 60, [np.nan] * 60, [1.0], [0.0, 3.0, 1.0], [0.0] * 59 + [1.0]])
def test_baselines_of_odd_series_are_finite(rng, name, past):
    found = quantiles(name, make_task([np.array([*past, *rng.normal(size=HORIZON * WINDOWS)])]), "rolling")
    assert np.isfinite(found).all()


def test_a_classic_without_its_library_is_refused_by_name_and_left_out_by_default(monkeypatch, caplog):
    monkeypatch.setattr("tsforecast.evaluation.classical.find_spec", lambda _: None)
    train = [{"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.arange(9.0)}]
    with pytest.raises(ValueError, match=r"auto_ets-7: needs statsforecast: `pip install 'tsforecast\[baselines\]'`"):
        fit_baseline("auto_ets-7", train, 7)
    assert installed(["seasonal_naive", "auto_ets", "mstl-7"]) == ["seasonal_naive"]
    assert "left out: auto_ets, mstl-7: needs statsforecast" in caplog.text


@pytest.mark.parametrize("name", ["auto_ets", "auto_theta", "mstl", "auto_arima-1"])
@pytest.mark.parametrize("level", [0.0, 40.0])  # positive series let multiplicative forms into the searches
def test_classics_equal_statsforecast_at_the_end_of_training(task, name, level):
    build = {
        "auto_ets": lambda: models.AutoETS(season_length=7),
        "auto_theta": lambda: models.AutoTheta(season_length=7),
        "mstl": lambda: models.MSTL(season_length=7),
        "auto_arima-1": lambda: models.AutoARIMA(season_length=1),
    }[name]
    widths = [2, 50, 80, 98]
    same = make_task([level + np.exp(0.2 * entry["target"]) for entry in task.entries])
    expected = build().forecast(y=same.train[0]["target"].astype(float), h=12, level=widths)
    found = quantiles(name, same)[0]
    for width in widths:
        for side, share in (("lo", 0.5 - width / 200), ("hi", 0.5 + width / 200)):
            bound = np.maximum(expected[f"{side}-{width}"], 0)
            np.testing.assert_allclose(found[LEVELS.index(round(share, 2))], bound, rtol=1e-6)


def test_a_season_needs_three_cycles_unless_it_is_asked_for(task, caplog):
    rows = [entry["target"][-40:] for entry in task.entries]  # 28 of them for training
    for name in ("seasonal_naive", "empirical_seasonal", "auto_ets", "mstl"):
        fitted = fit_baseline(name, make_task(rows).train, 10)
        assert fitted.deviations == {NO_SEASON: 2}
        assert f"{name}: 2 of 2 {NO_SEASON}" in caplog.text
        np.testing.assert_array_equal(
            quantiles(name, make_task(rows), season=10), quantiles(f"{name}-1", make_task(rows))
        )
        assert not fit_baseline(name, make_task(rows).train, 9).deviations
    asked = fit_baseline("seasonal_naive-10", make_task(rows).train, 10)
    assert not asked.deviations
    assert asked.series["s0"][0].season == 10


def overflow(monkeypatch, searches, behind=0):
    """Makes AutoETS overflow: its forecasts by these searches, from more than so many values, have a bound of 1e6."""
    forward = AutoETS.forward

    def changed(self, y, h, level):
        found = forward(self, y=y, h=h, level=level)
        return found | {"hi-98": np.full(h, 1e6)} if self.model in searches and len(y) > behind else found

    monkeypatch.setattr(AutoETS, "forward", changed)


def test_a_search_that_overflows_is_made_again_over_additive_forms(task, monkeypatch, caplog):
    train = task.train[0]["target"].astype(float)
    expected = AutoETS(season_length=7, model="AZZ").forecast(y=train, h=12, level=[80])
    overflow(monkeypatch, ["ZZZ"])
    assert fit_baseline("auto_ets", task.train, 7).deviations == {ADDITIVE: 2}
    assert f"auto_ets: 2 of 2 {ADDITIVE}" in caplog.text
    np.testing.assert_allclose(quantiles("auto_ets", task)[0, LEVELS.index(0.1)], expected["lo-80"])


def test_a_random_walk_takes_the_place_of_searches_that_all_overflow(task, monkeypatch):
    overflow(monkeypatch, ["ZZZ", "AZZ"])
    assert fit_baseline("auto_ets", task.train, 7).deviations == {NAIVE: 2}
    np.testing.assert_array_equal(quantiles("auto_ets", task), quantiles("random_walk", task))


def test_a_random_walk_takes_the_place_of_a_later_forecast_that_overflows(task, monkeypatch):
    overflow(monkeypatch, ["ZZZ"], behind=len(task.train[0]["target"]))
    fitted = fit_baseline("auto_ets", task.train, 7)
    assert not fitted.deviations
    test = task.test("rolling")
    later = [f.forecast_array for f in fitted.predictor(HORIZON).predict(test.input)][1]
    assert fitted.deviations == {NAIVE_LATER: 2 * (WINDOWS - 1)}
    history = task.entries[0]["target"][: LENGTH - (WINDOWS - 1) * HORIZON]
    np.testing.assert_array_equal(later, SeasonalNaive.fit(history, 1).quantiles(history, HORIZON))


def test_mstl_takes_the_week_of_hours_where_it_is_long_enough(rng):
    values = np.sin(np.arange(400) * 2 * np.pi / 24) + 3 * (np.arange(400) // 24 % 7 == 0) + 0.01 * rng.normal(size=400)
    fitted = fit_baseline("mstl", [{"item_id": "x", "target": values}], 24)
    (row,) = fitted.series["x"]
    ahead = row.quantiles(values, 168)[LEVELS.index(0.5)]
    expected = np.sin(np.arange(400, 568) * 2 * np.pi / 24) + 3 * (np.arange(400, 568) // 24 % 7 == 0)
    assert np.abs(ahead - expected).mean() < 0.2


def test_deepar_sees_the_training_range_and_forecasts_both_horizons(rng):
    """GluonTS' network by its own estimator: what is ours is the coding of the series, the seed and the horizons."""
    task = make_task(10 + rng.normal(size=(2, LENGTH)))
    fitted = DeepAR.fit(task, "deepar-1")
    for protocol, horizon in (("rolling", HORIZON), ("long_term", HORIZON * WINDOWS)):
        test = task.test(protocol)
        first, again = (list(fitted.predictor(horizon).predict(test.input, num_samples=20)) for _ in range(2))
        assert [f.item_id for f in first] == [entry["item_id"] for entry in test.input]
        for one, other in zip(first, again, strict=True):
            assert one.samples.shape == (20, horizon)
            np.testing.assert_array_equal(one.samples, other.samples)
        assert np.isfinite(score(first, test).overall["crps"])
    filters = list(warnings.filters)
    next(fitted.predictor(HORIZON).predict(task.test("rolling").input, num_samples=2))
    assert warnings.filters == filters
    assert fitted.iterations == 50
    for name in ("deepar-0", "deepar-x"):
        with pytest.raises(ValueError, match="expected deepar, or with a number of epochs"):
            DeepAR.fit(task, name)
    with pytest.raises(ValueError, match="deepar forecasts one target"):
        DeepAR.fit(make_task([np.stack([e["target"] for e in task.entries])]))


def test_the_seed_of_deepar_is_that_of_its_training_and_of_nothing_else(rng):
    task = make_task(10 + rng.normal(size=(2, LENGTH)))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one, again, other = (DeepAR.fit(task, "deepar-1", seed) for seed in (1, 1, 2))
    torch.testing.assert_close(torch.rand(2), expected, rtol=0, atol=0)
    for name, weight in one.weights.items():
        torch.testing.assert_close(again.weights[name], weight, rtol=0, atol=0)
    assert any(not torch.equal(other.weights[name], weight) for name, weight in one.weights.items())


def test_evaluate_passes_its_seed_on(task, monkeypatch):
    seeds = []

    def fit(task, name, seed):
        seeds.append((name, seed))
        return fit_baseline("random_walk", task.train, 1)

    monkeypatch.setattr(DeepAR, "fit", fit)
    horizons = {"rolling": HORIZON, "long_term": HORIZON * WINDOWS}
    evaluate(lambda protocol: Constant(horizons[protocol]), task, baselines=["deepar-3"], num_samples=2, seed=5)
    assert seeds == [("deepar-3", 5)]


def test_failed_fits_are_counted_and_said(caplog):
    task = make_task([np.arange(3.0 + HORIZON * WINDOWS), np.sin(np.arange(90.0))])
    fitted = fit_baseline("auto_ets-1", task.train, 7)
    assert fitted.deviations == {NAIVE: 1}
    assert f"auto_ets-1: 1 of 2 {NAIVE}" in caplog.text
    np.testing.assert_array_equal(quantiles("auto_ets-1", task)[0], quantiles("random_walk", task)[0])


def test_the_foot_of_the_table_says_how_baselines_are_not_as_their_names_say(rng):
    task = make_task(10 + rng.normal(size=(2, 32)))  # 20 of them for training
    horizons = {"rolling": HORIZON, "long_term": HORIZON * WINDOWS}
    found = evaluate(lambda p: Constant(horizons[p]), task, baselines=["seasonal_naive"], num_samples=2)
    foot = format_scores(found).splitlines()[-2:]
    assert "fitted once" in foot[0]
    assert "below 0 are 0" in foot[0]
    assert foot[1] == f"seasonal_naive: 2 {NO_SEASON}."


def test_multivariate_baselines_are_those_of_each_target(task):
    both = np.stack([entry["target"] for entry in task.entries])
    for name in QUICK:
        together = quantiles(name, make_task([both]))
        np.testing.assert_array_equal(together[0].transpose(2, 0, 1), quantiles(name, task))


def test_processes_do_not_change_the_fits(task):
    alone, spread = (fit_baseline("auto_ets", task.train, 7, workers=workers) for workers in (1, 2))
    for item, rows in alone.series.items():
        for one, other in zip(rows, spread.series[item], strict=True):
            history = task.train[0]["target"]
            np.testing.assert_array_equal(one.quantiles(history, 5), other.quantiles(history, 5))


@pytest.mark.parametrize("name", ["", "naive", "auto_ets-0", "auto_ets-x", "auto_ets-2.5"])
def test_unknown_baselines_are_refused(task, name):
    with pytest.raises(ValueError, match="expected one of seasonal_naive"):
        fit_baseline(name, task.train, 7)


def test_a_series_that_was_not_trained_on_is_refused(task):
    predictor = fit_baseline("random_walk", task.train[:1], 7).predictor(HORIZON)
    with pytest.raises(ValueError, match="'s1' was not"):
        list(predictor.predict(task.test("rolling").input))


def test_default_baselines_differ_from_each_other():
    assert default_baselines(7) == BASELINES[:5]
    assert default_baselines(1) == ("seasonal_naive", "empirical_random_walk", "auto_ets")


def test_business_days_raise_no_warnings(rng, recwarn):
    with expected_alias_warnings():
        task = make_task(rng.normal(size=(1, 60)), freq="B")
    recwarn.clear()
    predictor = fit_baseline("random_walk", task.train, 5).predictor(HORIZON)
    forecasts = list(predictor.predict(task.entries))
    assert forecasts[0].item_id == "s0"
    test = task.test("rolling")
    assert score(predictor.predict(test.input), test).overall["num_forecasts"] == WINDOWS
    assert not recwarn.list


# Evaluation


class Constant(Predictor):
    def predict(self, dataset, num_samples=100):
        for entry in dataset:
            samples = np.linspace(-2, 4, num_samples)[:, None] * np.ones(self.prediction_length)
            yield SampleForecast(samples, start_date=entry["start"] + len(entry["target"]), item_id=entry["item_id"])


@pytest.fixture(scope="module")
def evaluation(task):
    silent = task.entries[1]["target"].copy()
    silent[-HORIZON * WINDOWS :] = np.nan
    half = make_task([task.entries[0]["target"], silent])
    horizons = {"rolling": HORIZON, "long_term": HORIZON * WINDOWS}
    return evaluate(
        lambda protocol: Constant(horizons[protocol]),
        half,
        model="issm",
        baselines=["seasonal_naive", "auto_ets-1"],
        num_samples=60,
    )


def test_evaluation_has_model_and_baselines_under_both_protocols(evaluation):
    found = evaluation.to_dict()
    assert found["dataset"] == "toy"
    assert list(found["baselines"]) == ["seasonal_naive", "auto_ets-1"]
    metrics = {
        "crps",
        "crps_99",
        "crps_ensemble",
        "nd",
        "mase",
        "mse",
        "coverage",
        "num_forecasts",
        "num_exact",
        "num_samples",
    }
    metrics |= {f"{name}_{width}" for name in ("sum", "max") for width in INTERVALS}
    for scores in (found, *found["baselines"].values()):
        for protocol, count in (("rolling", 2 * WINDOWS), ("long_term", 2)):
            assert set(scores[protocol]) == metrics
            assert set(scores[protocol]["coverage"]) == {"50", "80", "95"}
            assert scores[protocol]["num_forecasts"] == count
    assert found["rolling"]["num_samples"] == 60
    assert found["baselines"]["auto_ets-1"]["rolling"]["num_samples"] is None
    assert (found["rolling"]["num_exact"], found["baselines"]["auto_ets-1"]["long_term"]["num_exact"]) == (0, 2)
    assert found["baselines"]["auto_ets-1"]["deviations"] == {}
    assert len(evaluation.per_horizon()) == 3 * (HORIZON + HORIZON * WINDOWS)
    assert len(evaluation.per_series()) == 3 * 2 * 2


def test_saved_files_agree_with_the_evaluation(evaluation, tmp_path):
    evaluation.scores["issm"]["rolling"].overall["mase"] = np.inf
    paths = save_scores(evaluation, tmp_path / "new")
    assert sorted(path.name for path in paths) == [
        "calibration.csv",
        "per_forecast.csv",
        "per_horizon.csv",
        "per_series.csv",
        "scores.csv",
        "scores.json",
    ]
    assert sorted(paths) == sorted((tmp_path / "new").iterdir())  # no temporary file is left
    found = json.loads(paths[0].read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["rolling"]["mase"] is None
    assert found["rolling"]["crps"] == evaluation.scores["issm"]["rolling"].overall["crps"]
    long = pd.read_csv(tmp_path / "new" / "scores.csv").set_index(["protocol", "model", "metric"])["value"]
    assert long["long_term", "seasonal_naive", "coverage_80"] == pytest.approx(
        evaluation.scores["seasonal_naive"]["long_term"].overall["coverage"]["80"]
    )
    series = pd.read_csv(tmp_path / "new" / "per_series.csv").set_index(["protocol", "model", "item_id"])
    assert np.isnan(series.loc[("rolling", "issm", "s1"), "crps"])  # every label of it is missing
    assert series.loc[("rolling", "issm", "s0"), "crps"] == pytest.approx(found["rolling"]["crps"])


def test_table_shows_every_model_once_per_protocol(evaluation):
    text = format_scores(evaluation)
    assert "toy, rolling: 2 series, 6 forecasts of 4 steps" in text
    assert "toy, long-term: 2 series, 2 forecasts of 12 steps" in text
    for name, scores in evaluation.scores.items():
        lines = [line for line in text.splitlines() if line.startswith(name + " ")]
        assert len(lines) == 2
        assert f"{scores['rolling'].overall['crps']:#.4g}" in lines[0]
        assert f"{scores['long_term'].overall['crps']:#.4g}" in lines[1]
    assert "60 sample paths of issm; exact quantiles of seasonal_naive, auto_ets-1." in text


def test_names_must_differ(task):
    with pytest.raises(ValueError, match="names that differ"):
        evaluate(lambda _: Constant(HORIZON), task, model="auto_ets", baselines=["auto_ets"])


def forecasts_table(rng, series=6, windows=21, shift=0.0, spread=0.1):
    """Scores as `Scores.per_forecast` has them, with what is common to a window and to a series."""
    index = pd.MultiIndex.from_product(
        [[f"s{k}" for k in range(series)], pd.date_range("2024-01-01", periods=windows)], names=["item_id", "start"]
    )
    common = rng.normal(size=(series, 1)) * spread + rng.normal(size=(1, windows)) * spread
    noise = common + rng.normal(size=(series, windows)) * spread
    return pd.DataFrame({"crps": 1 + shift + noise.ravel(), "size": rng.uniform(1, 2, series * windows)}, index=index)


def test_scores_of_single_forecasts_add_up(rng):
    for targets in (1, 2):
        test, forecasts = random_case(rng, "samples", targets)
        scores = score(forecasts, test)
        table = scores.per_forecast.dropna(subset=["crps"])  # NaN where nothing was observed
        assert len(scores.per_forecast) == len(forecasts)
        assert np.average(table["crps"], weights=table["size"]) == pytest.approx(scores.overall["crps"])


def test_paired_differences_are_those_of_the_crps(rng):
    first, second = forecasts_table(rng), forecasts_table(rng)
    second["size"] = first["size"]
    found = paired_difference(first, second)
    expected = np.average(first["crps"], weights=first["size"]) - np.average(second["crps"], weights=first["size"])
    assert found.estimate == pytest.approx(expected)
    assert found.low < found.estimate < found.high
    shifted = paired_difference(first.assign(crps=first["crps"] - 0.25), first)
    assert (shifted.estimate, shifted.low, shifted.high) == pytest.approx((-0.25,) * 3)
    with pytest.raises(ValueError, match="same series and windows"):
        paired_difference(first, second[:-1])
    with pytest.raises(ValueError, match="as many windows"):
        paired_difference(first[:-1], second[:-1])


@pytest.mark.parametrize(("series", "windows"), [(6, 21), (30, 70), (1, 70), (30, 1)])
def test_intervals_of_paired_differences_cover(series, windows):
    """Without a difference 95 % of intervals hold 0, also with few series and blocks."""
    rng, trials, inside = np.random.default_rng(0), 400, 0
    for _ in range(trials):
        index = pd.MultiIndex.from_product([range(series), range(windows)], names=["item_id", "start"])
        common = (rng.normal(size=(series, 1)) if series > 1 else 0) + (rng.normal(size=windows) if windows > 1 else 0)
        crps = (common + rng.normal(size=(series, windows))).ravel()
        first = pd.DataFrame({"crps": crps, "size": rng.uniform(1, 2, crps.size)}, index=index)
        found = paired_difference(first, first.assign(crps=0.0))
        inside += found.low <= 0 <= found.high
    assert abs(inside / trials - 0.95) < 3 * np.sqrt(0.95 * 0.05 / trials)


def test_nothing_is_known_of_the_difference_of_one_forecast(rng):
    one = forecasts_table(rng, series=1, windows=1)
    assert paired_difference(one, one).high == np.inf
