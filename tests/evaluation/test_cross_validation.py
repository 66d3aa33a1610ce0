"""Forecasts of rolling windows as a frame: windows, names, and the scores that anybody can compute from it."""

import numpy as np
import pandas as pd
import pytest
from gluonts.model import Predictor, SampleForecast
from statsforecast import StatsForecast
from statsforecast.models import Naive, SeasonalNaive

import tsforecast
from tsforecast import StateSpaceEstimator
from tsforecast.cli import main
from tsforecast.data import read_task
from tsforecast.data.task import with_windows
from tsforecast.evaluation import TENTHS, evaluate, fit_baseline
from tsforecast.evaluation.cross_validation import Kept, validation_frame

QUICK = {"components": "level", "num_batches_per_epoch": 1, "trainer_kwargs": {"max_epochs": 1}}
LEVELS = [str(level) for level in TENTHS]


def table(freq="D", season=7, lengths=(80, 60, 90)):
    """Series of several lengths that end on different days, in the names of Nixtla's libraries."""
    random = np.random.default_rng(0)
    frames = []
    for number, length in enumerate(lengths):
        steps = np.arange(length)
        values = 20 + random.normal(size=length).cumsum() + 3 * np.sin(2 * np.pi * steps / season)
        stamps = pd.date_range("2020-01-01", periods=length, freq=freq)
        frames.append(pd.DataFrame({"unique_id": "abc"[number], "ds": stamps, "y": values}))
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize(("freq", "season"), [("D", 7), ("MS", 12)])
@pytest.mark.parametrize(("horizon", "windows", "step"), [(5, 3, 5), (6, 4, 2), (2, 3, 4)])
def test_windows_and_naive_means_are_those_of_statsforecast(freq, season, horizon, windows, step):
    data = table(freq, season)
    theirs = StatsForecast([Naive(), SeasonalNaive(season)], freq=freq).cross_validation(
        df=data, h=horizon, n_windows=windows, step_size=step
    )
    given = None if step == horizon else step
    for model, name in (("random_walk", "Naive"), (f"seasonal_naive-{season}", "SeasonalNaive")):
        found = tsforecast.cross_validate(data, horizon, windows=windows, step=given, model=model, quantiles=[0.5])
        assert list(found.columns) == ["unique_id", "ds", "cutoff", "y", "mean", "0.5"]
        keys = ["unique_id", "ds", "cutoff", "y"]
        pd.testing.assert_frame_equal(found[keys], theirs[keys], check_dtype=False)
        np.testing.assert_allclose(found["mean"], theirs[name], rtol=1e-6)
        np.testing.assert_allclose(found["0.5"], theirs[name], rtol=1e-6)


def scores_of(rows, data, season):
    """The weighted quantile loss, the MASE and the share in the 80 % interval, by plain pandas."""
    rows = rows.dropna(subset="y")
    losses = [2 * np.maximum(q * (rows["y"] - rows[str(q)]), (q - 1) * (rows["y"] - rows[str(q)])) for q in TENTHS]
    crps = np.mean([loss.sum() for loss in losses]) / rows["y"].abs().sum()
    scaled = []
    for (item, cutoff), window in rows.groupby(["unique_id", "cutoff"]):
        past = data[(data["unique_id"] == item) & (data["ds"] <= cutoff)].set_index("ds")["y"].asfreq("D")
        scaled.append((window["y"] - window["0.5"]).abs() / past.diff(season).abs().mean())
    inside = rows["y"].between(rows["0.1"], rows["0.9"]).mean()
    return {"crps": crps, "mase": pd.concat(scaled).mean(), "coverage": inside}


@pytest.mark.parametrize("step", [None, 2])
def test_scores_of_the_frame_are_those_of_evaluate(step):
    """With a missing value among the actual ones, which counts nowhere."""
    data = table()
    data.loc[[70, 78], "y"] = np.nan
    task = read_task(data, "D", 5, 3, step=step)
    predictor = StateSpaceEstimator("issm", "D", 5, seed=0, **QUICK).train(task.train)
    reported = evaluate(predictor, task, baselines=["seasonal_naive"], num_samples=10)
    for model, name in ((predictor, "model"), ("seasonal_naive", "seasonal_naive")):
        rows = tsforecast.cross_validate(task, model=model)
        assert rows["y"].isna().any()
        assert len(rows) == 3 * 3 * 5
        overall = reported.scores[name]["rolling"].overall
        own = scores_of(rows, data, season=7)
        assert own["crps"] == pytest.approx(overall["crps"], rel=1e-6)
        assert own["mase"] == pytest.approx(overall["mase"], rel=1e-6)
        assert own["coverage"] == pytest.approx(overall["coverage"]["80"], abs=1e-12)


def test_a_model_is_trained_again_on_all_before_each_window():
    data = table(lengths=(40, 40))
    data["y"] += np.where(data["ds"] > "2020-02-03", 50, 0)  # a level that the first window does not know
    estimator = StateSpaceEstimator("issm", "D", 3, seed=0, **QUICK)
    once, again = (tsforecast.cross_validate(data, 3, windows=3, model=estimator, refit=on) for on in (False, True))
    first = once["cutoff"] == once["cutoff"].min()
    pd.testing.assert_frame_equal(once[first], again[first])
    last = again["cutoff"] == again["cutoff"].max()
    assert not np.allclose(once.loc[last, LEVELS], again.loc[last, LEVELS])
    cutoff = again.loc[last, "cutoff"].iloc[0]
    past = data[data["ds"] <= cutoff]
    direct = estimator.train(past).predict_frame(past)
    np.testing.assert_allclose(again.loc[last, LEVELS], direct[LEVELS], rtol=1e-5)


def test_the_model_of_forecast_is_the_default_and_short_series_are_said(caplog):
    data = table(lengths=(60, 60, 11))
    found = tsforecast.cross_validate(data, 6, windows=2, quantiles=[0.1, 0.9])
    assert found["unique_id"].unique().tolist() == ["a", "b"]
    assert "1 series with no more than the 12 steps of the test windows are left out: 'c'" in caplog.text
    assert (found["0.1"] < found["0.9"]).all()
    with pytest.raises(ValueError, match="3 of 3 series can not be used"):
        tsforecast.cross_validate(data, 30, windows=2)


def test_rows_behind_the_last_target_are_what_is_known_and_no_window():
    """As for `tsforecast.forecast`: categories that go on there are covariates."""
    data, random = table(lengths=(200,)), np.random.default_rng(1)
    fair = random.random(200) < 0.2
    data = data.assign(event=np.where(fair, "fair", "none"), y=(data["y"] + 50 * fair).where(np.arange(200) < 190))
    found = tsforecast.cross_validate(data, windows=3)
    assert found["ds"].max() == data["ds"][189]
    assert found["y"].notna().all()
    assert len(found) == 30  # three windows of the ten steps that are known ahead
    assert np.abs(found["y"] - found["0.5"]).mean() < 10


def test_as_many_windows_as_fit():
    """A step is left to train on; each window more takes so many steps as they are apart."""
    task = read_task(table(lengths=(20, 20)), "D", 5, 1, step=2)
    assert with_windows(task, 8).test_length == 19
    with pytest.raises(ValueError, match="expected 0 to 8 windows"):
        with_windows(task, 9)


def test_names_of_columns():
    """Those of the table; of the project where there are none; and `actual` where a name would occur twice."""
    data = table(lengths=(30, 30)).rename(columns={"unique_id": "shop", "ds": "day", "y": "mean"})
    columns = {"item": "shop", "timestamp": "day", "target": "mean"}
    find = lambda frame, **roles: tsforecast.cross_validate(  # noqa: E731
        frame, 2, windows=1, model="random_walk", quantiles=[0.5], columns=roles or None
    )
    assert list(find(data, **columns)) == ["shop", "day", "cutoff", "actual", "mean", "0.5"]
    wide = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=30), "x": 1.0, "z": np.arange(30.0)})
    assert list(find(wide, timestamp="day", wide=True)) == ["item_id", "day", "cutoff", "target", "mean", "0.5"]
    both = find(wide, timestamp="day", target=["x", "z"])
    assert list(both) == ["day", "target", "cutoff", "actual", "mean", "0.5"] or both.columns[0] == "item_id"
    assert both.query("target == 'z'")["actual"].tolist() == [28.0, 29.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "expected horizon of at least 1, got 0"),
        ({"step": 0}, "expected step of at least 1, got 0"),
        ({"model": "prophet"}, "'prophet'"),
        ({"model": 3}, "expected a model by its name"),
        ({"model": StateSpaceEstimator("issm", "D", 9)}, "a model that forecasts 2 steps, got one of 9"),
        ({"quantiles": [10.0]}, "quantiles between 0 and 1"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        tsforecast.cross_validate(table(), **{"horizon": 2, **options})


class Paths(Predictor):
    """Random walks, each call with others."""

    def __init__(self, random):
        super().__init__(prediction_length=5)
        self.random = random

    def predict(self, dataset, **kwargs):
        for entry in dataset:
            paths = entry["target"][-1] + self.random.normal(size=(50, 5)).cumsum(1)
            yield SampleForecast(paths, entry["start"] + len(entry["target"]), item_id=entry["item_id"])


def test_quantiles_are_of_the_very_paths_that_are_scored():
    data, random = table(), np.random.default_rng(1)
    task, kept = read_task(data, "D", 5, 2), []

    def predictor_for(protocol):
        if protocol == "long_term":
            return fit_baseline("random_walk", task.train, 7).predictor(10)
        kept.append(Kept(Paths(random), TENTHS))
        return kept[-1]

    reported = evaluate(predictor_for, task, baselines=[])
    rows = validation_frame(kept[0].forecasts, task, TENTHS)
    overall = reported.scores["model"]["rolling"].overall
    assert scores_of(rows, data, season=7)["crps"] == pytest.approx(overall["crps"], rel=1e-6)


def test_evaluate_writes_the_frame_of_a_run(tmp_path, capsys):
    data = table(lengths=(40, 40))
    data.to_csv(tmp_path / "table.csv", index=False)
    run, out = str(tmp_path / "run"), tmp_path / "rows.csv"
    words = ["--data", str(tmp_path / "table.csv"), "--prediction_length=3", "--windows=2", "--num_batches_per_epoch=1"]
    assert main(["train", "issm", *words, "--components=level", "--max_epochs=1", "--output", run]) == 0
    options = ["--baselines=none", "--num_samples=10"]
    assert main(["evaluate", run, *options, "--plot_series=0", f"--frame={out}"]) == 0
    rows = pd.read_csv(out, parse_dates=["ds", "cutoff"])
    assert list(rows.columns) == ["unique_id", "ds", "cutoff", "y", "mean", *LEVELS]
    scores = pd.read_csv(tmp_path / "run" / "scores.csv").query("protocol == 'rolling'").set_index("metric")["value"]
    own = scores_of(rows, data, season=7)
    assert own["crps"] == pytest.approx(scores["crps"], rel=1e-6)
    assert own["mase"] == pytest.approx(scores["mase"], rel=1e-6)
    again = tmp_path / "again.parquet"
    assert main(["evaluate", run, *options, "--plot_series=0", "--refit", f"--frame={again}"]) == 0
    refitted = pd.read_parquet(again)
    assert not np.allclose(refitted["0.5"], rows["0.5"])
    second = pd.read_csv(tmp_path / "run" / "scores.csv").query("model == 'issm+refit' and metric == 'crps'")
    assert scores_of(refitted, data, season=7)["crps"] == pytest.approx(second["value"].item(), rel=1e-6)
    assert main(["evaluate", run, "--frame=rows.txt"]) == 2
    assert "expected --frame to end with .csv" in capsys.readouterr().err
