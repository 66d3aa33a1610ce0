"""Data frames go into training, prediction and evaluation as they are."""

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.core.component import equals

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator, same_forecasts, seeded
from tsforecast import StateSpaceEstimator
from tsforecast.data import Columns, check_entries, read_task
from tsforecast.evaluation import evaluate
from tsforecast.forecasting.predictor import load_predictor, save_predictor

IN_FLOAT32 = {"rtol": 1e-3, "atol": 1e-3}


def frame_of(entries, item="item_id", timestamp="timestamp", target="target", **columns):
    """Rows of all series, with further columns as functions of (number of the series, steps)."""
    frames = []
    for k, entry in enumerate(entries):
        steps = len(entry["target"])
        times = pd.period_range(entry["start"], periods=steps).to_timestamp()
        more = {name: values(k, steps) for name, values in columns.items()}
        frames.append(pd.DataFrame({item: entry["item_id"], timestamp: times, target: entry["target"], **more}))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture
def unchecked(monkeypatch):
    """As for users, whose types nobody checks before the package does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def trained_frame(**options):
    frame = frame_of(make_entries(), **options)
    return make_estimator().train(frame), frame


@pytest.mark.parametrize("names", [{}, {"item": "unique_id", "timestamp": "ds", "target": "y"}])
def test_a_frame_is_trained_on_and_forecast_as_its_entries_are(names):
    entries = make_entries()
    expected = seeded(make_estimator().train(entries), entries)
    frame = frame_of(entries, **names)
    before = frame.copy()
    predictor = make_estimator().train(frame.sample(frac=1, random_state=0).sort_values(next(iter(frame.columns))))
    same_forecasts(seeded(predictor, frame, start="each"), expected)
    same_forecasts(seeded(predictor, entries), expected)
    pd.testing.assert_frame_equal(frame, before)


def test_the_frequency_is_that_of_the_data_where_none_is_given(unchecked):
    estimator = make_estimator(freq=None)
    for data in (make_entries(freq="h"), frame_of(make_entries(freq="h"))):
        predictor = estimator.train(data)
        assert predictor.freq == "h"
        assert predictor.prediction_net.data.freq == "h"
    assert repr(estimator) == repr(make_estimator(freq=None))
    daily = estimator.train(make_entries(freq="D"))
    assert daily.freq == "D"
    with pytest.raises(ValueError, match="the data set is empty"):
        estimator.train([])


def columns(**more):
    return {"item": "shop", "timestamp": "day", "target": "sold", **more}


@pytest.mark.parametrize("form", [dict, lambda **roles: Columns(**roles)])
def test_columns_are_named_once_and_kept(form, tmp_path):
    """Covariates and text as categories, whose codes stay those of the training."""
    entries = make_entries(missing=False)
    names = {"item": "shop", "timestamp": "day", "target": "sold"}
    more = {"price": lambda k, steps: np.arange(steps) % 3 / 3, "town": lambda k, steps: ["Ulm", "Bonn", "Köln"][k % 3]}
    frame = frame_of(entries, **names, **more)
    roles = form(**names, covariates=["price"], static_categories=["town"])
    estimator = make_estimator()
    predictor = estimator.train(frame, frame, columns=roles)
    assert predictor.categories == {"town": ["Bonn", "Köln", "Ulm"]}
    rows = [{**e, "feat_static_cat": [[2, 0, 1][k % 3]]} for k, e in enumerate(entries)]
    rows = [{**e, "feat_dynamic_real": [np.arange(len(e["target"]) + HORIZON) % 3 / 3]} for e in rows]
    expected = predictor.predict_frame(rows).rename(columns={"item_id": "shop", "timestamp": "day"})
    save_predictor(predictor, tmp_path / "saved")
    future = [{**e, "target": np.r_[e["target"], [np.nan] * HORIZON]} for e in entries]
    future = frame_of(future, **names, **more)
    for model in (predictor, load_predictor(tmp_path / "saved", "cpu")):
        pd.testing.assert_frame_equal(model.predict_frame(future, start="each"), expected, **IN_FLOAT32)
        alone = model.predict_frame(future[future["shop"] == "s1"])  # its only category has the code it had
        rows_of_it = expected[expected["shop"] == "s1"].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, rows_of_it, **IN_FLOAT32)
    with pytest.raises(ValueError, match=r"DataFrame, row .*covariates of series 's0' end here, 4 steps"):
        predictor.predict_frame(frame)
    with pytest.raises(ValueError, match=r"its covariates 4 steps before the forecast .*own end \(start='each'\)"):
        predictor.predict_frame(future)
    with pytest.raises(ValueError, match="the category 'Rom' was not seen in training"):
        predictor.predict_frame(future.replace("Ulm", "Rom"))
    more = estimator.train_from(predictor, frame[frame["shop"] != "s0"])
    assert (more.columns, more.categories) == (predictor.columns, predictor.categories)


def test_a_frame_is_forecast_over_the_same_dates(caplog):
    """Also where rows or values are missing at the end of a series, whose name is among the columns that were found."""
    frame = pd.concat([frame_of(make_entries(missing=False)).assign(store=store) for store in ("x", "y")])
    predictor = make_estimator().train(frame)
    assert predictor.columns is not None
    assert predictor.columns["item"] == ["item_id", "store"]
    whole = predictor.predict_frame(frame)
    late = (frame["store"] == "x") & (frame["timestamp"] > frame["timestamp"].max() - pd.Timedelta(3, "h"))
    for cut in (frame[~late], frame.assign(target=frame["target"].mask(late))):
        caplog.clear()
        found = predictor.predict_frame(cut)
        pd.testing.assert_frame_equal(found[["item_id", "timestamp"]], whole[["item_id", "timestamp"]])
        assert "series end before others ('s0/x'" in caplog.text


def test_a_frame_of_quantiles():
    predictor, frame = trained_frame()
    table = predictor.predict_frame(frame, quantiles=[0.1, 0.5, 0.975])
    assert [*table.columns] == ["item_id", "timestamp", "mean", "0.1", "0.5", "0.975"]
    assert len(table) == 5 * HORIZON
    forecasts = seeded(predictor, frame)
    for forecast, (item, rows) in zip(forecasts, table.groupby("item_id"), strict=True):
        assert forecast.item_id == item
        assert rows["timestamp"].tolist() == [*forecast.index.to_timestamp()]
        np.testing.assert_allclose(rows["mean"], forecast.mean, rtol=1e-5, atol=1e-5)  # float32, in larger batches
        np.testing.assert_allclose(rows["0.1"], forecast.quantile(0.1), rtol=1e-5, atol=1e-5)
    for levels in ([], [0.5, 0.5], [1.5]):
        with pytest.raises(ValueError, match="expected quantiles between 0 and 1, each once"):
            predictor.predict_frame(frame, quantiles=levels)
    with pytest.raises(ValueError, match="expected quantiles to be numbers between 0 and 1, got 'median'"):
        predictor.predict_frame(frame, quantiles="median")


def test_several_targets():
    entries = make_entries(missing=False)
    frame = frame_of(entries, target="sold", stolen=lambda k, steps: np.arange(steps) % 5)
    predictor = make_estimator("gls").train(frame, columns={"target": ["sold", "stolen"]})
    table = predictor.predict_frame(frame)
    assert table["target"].unique().tolist() == ["sold", "stolen"]
    assert len(table) == 2 * 5 * HORIZON


def evaluated(*args, **options):
    torch.manual_seed(0)  # of the sample paths
    return evaluate(*args, **options)


def test_a_frame_is_evaluated(unchecked):
    entries = make_entries(length=60, missing=False)
    frame = frame_of(entries)
    task = read_task(frame, "D", HORIZON, 2)
    predictor = make_estimator().train(task.train)
    options = {"baselines": ["random_walk"], "model": "issm"}
    table, other = (
        evaluated(predictor, data, **more, **options).table() for data, more in ((frame, {"windows": 2}), (task, {}))
    )
    pd.testing.assert_frame_equal(other, table)
    assert np.isfinite(table.query("metric == 'crps'")["value"]).all()
    assert table.query("metric == 'num_forecasts' and protocol == 'rolling'")["value"].tolist() == [10, 10]
    with pytest.raises(ValueError, match="windows and columns are of a DataFrame"):
        evaluate(predictor, task, windows=2)
    with pytest.raises(ValueError, match="expected a StateSpacePredictor beside a DataFrame, got a function"):
        evaluate(lambda protocol: predictor, frame)
    with pytest.raises(ValueError, match=r"expected a ForecastTask .* got a list"):
        evaluate(predictor, entries)


def test_frames_where_none_is_taken(unchecked):
    predictor, frame = trained_frame()
    for call in (
        lambda: list(predictor.impute(frame)),
        lambda: predictor.filter(frame),
        lambda: list(predictor.forecast_from({}, frame)),
        lambda: check_entries(frame, "D"),
    ):
        with pytest.raises(ValueError, match=r"expected GluonTS data entries, got a DataFrame: .*read_task\(frame"):
            call()
    with pytest.raises(ValueError, match="dicts with 'start' and 'target', got a str: 'item_id'"):
        check_entries([*frame], "D")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="timestamp"), "DataFrame: no column looks like time stamps"),
        (lambda f: f.assign(target=f["target"].astype(object).where(f.index != 3, "many")), "DataFrame, row 3.*'many'"),
        (lambda f: pd.concat([f, f.iloc[[5]]]), "DataFrame, row 210.*"),
        (lambda f: f.assign(timestamp=f["timestamp"] + pd.to_timedelta(6 * (f.index % 3), "h")), "DataFrame"),
        (lambda f: f.iloc[:0], "no rows"),
    ],
)
def test_frames_are_checked_as_files_are(change, message):
    with pytest.raises(ValueError, match=message):
        make_estimator().train(change(frame_of(make_entries())))


def test_columns_that_are_not_known():
    entries = make_entries()
    frame = frame_of(entries)
    with pytest.raises(ValueError, match="columns: there is no role 'shop'; expected item, timestamp, target"):
        make_estimator().train(frame, columns={"shop": "item_id"})
    with pytest.raises(ValueError, match="columns are those of a DataFrame, but the training data are a list"):
        make_estimator().train(entries, columns={"target": "sold"})
    predictor = make_estimator(epochs=1).train(entries)
    with pytest.raises(ValueError, match="columns are those of a DataFrame, but the data are a list"):
        next(predictor.predict(entries, columns={"target": "sold"}))
    with pytest.raises(ValueError, match="the codes of its categories are not known"):
        predictor.predict_frame(frame, columns={"static_categories": ["town"]})


def test_the_frequency_of_a_frame():
    estimator = StateSpaceEstimator.from_inputs(frame_of(make_entries()), prediction_length=3)
    assert equals(estimator, StateSpaceEstimator("issm", "D", 3))
