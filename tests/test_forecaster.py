"""The front door: a forecaster that is fitted to a frame, asked, and kept current."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import tsforecast
from tsforecast import Forecaster, StateSpaceEstimator
from tsforecast.analysis import anomalies
from tsforecast.analysis.explain import explain
from tsforecast.cli import main
from tsforecast.data.known import attach_known, with_room
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import columns_of

COLUMNS = {"item": "shop", "timestamp": "day", "target": "sales", "covariates": ["price"]}
LEVELS = [0.1, 0.5, 0.9]


def table(length=90, ahead=5):
    """Two shops whose sales fall by ten where the price rises by one; prices are known some days ahead."""
    random, parts = np.random.default_rng(0), []
    for shop in "ab":
        days = pd.date_range("2024-01-01", periods=length + ahead)
        price = random.integers(1, 4, length + ahead).astype(float)
        sales = 60 - 10 * price + 3 * np.sin(np.arange(length + ahead) * 2 * np.pi / 7) + random.normal(size=len(days))
        sales[length:] = np.nan
        parts.append(pd.DataFrame({"shop": shop, "day": days, "sales": sales, "price": price}))
    return pd.concat(parts, ignore_index=True)


def plain():
    """Without a price, in Nixtla's names."""
    frame = table(ahead=0).drop(columns="price")
    return frame.rename(columns={"shop": "unique_id", "day": "ds", "sales": "y"})


@pytest.fixture(scope="module")
def priced():
    return Forecaster(5, columns=COLUMNS).fit(table())


@pytest.fixture(scope="module")
def fitted():
    return Forecaster(horizon=5).fit(plain())


def test_predictions_are_those_of_forecast(priced, fitted):
    for forecaster, data, columns in ((priced, table(), COLUMNS), (fitted, plain(), None)):
        expected = tsforecast.forecast(data, 5, columns=columns, quantiles=LEVELS)
        pd.testing.assert_frame_equal(forecaster.predict(LEVELS), expected)


def test_numbers_that_go_on_are_covariates_as_in_forecast():
    found = Forecaster(5).fit(table()).predict(LEVELS)
    pd.testing.assert_frame_equal(found, tsforecast.forecast(table(), 5, quantiles=LEVELS))
    assert found["day"].min() == pd.Timestamp("2024-03-31")


def test_a_model_by_name_and_an_estimator():
    options = {"components": "level", "num_batches_per_epoch": 1, "trainer_kwargs": {"max_epochs": 1}}
    estimator = StateSpaceEstimator("issm", "D", 5, seed=0, **options)
    found = Forecaster(5, model=estimator).fit(plain()).predict(LEVELS)
    expected = estimator.train(plain()).predict_frame(plain(), LEVELS)
    pd.testing.assert_frame_equal(found, expected)
    for horizon in (2.5, "5"):
        with pytest.raises(ValueError, match="expected horizon to be a whole number, got"):
            Forecaster(horizon).fit(plain())
    for model, message in (("seasonal_naive", "baseline"), ("prophet", "prophet"), (3, "expected a model")):
        with pytest.raises(ValueError, match=message):
            Forecaster(5, model=model).fit(plain())


def test_new_rows_move_forecasts_on_without_training(fitted):
    data = plain()
    first = data[data["ds"] < "2024-03-01"]
    again = Forecaster(5, freq="D").fit(first)
    before = again.predictor_
    new = data[data["ds"] >= "2024-02-28"].assign(ds=lambda rows: rows["ds"].astype(str))  # one day twice, as text
    assert again.update(new) is again
    assert again.predictor_ is before
    pd.testing.assert_frame_equal(again.predict(LEVELS), before.predict_frame(data, LEVELS))
    with pytest.raises(ValueError, match="expected new rows with the columns unique_id, ds, got ds, y"):
        again.update(data[["ds", "y"]])
    with pytest.raises(ValueError, match=r"two new rows are of a, 2024-01-01"):
        again.update(data.iloc[[0, 0]])
    with pytest.raises(ValueError, match="expected new rows to have 'y', or some of these, got 'unique_id', 'ds', 'z'"):
        again.update(data.rename(columns={"y": "z"}))
    with pytest.raises(ValueError, match="twelve"):
        again.update(data.assign(y="twelve"))
    assert again.predict([0.5])["ds"].min() == data["ds"].max() + pd.Timedelta(1, "D")  # as before the faulty rows


def test_known_covariates_stay_where_new_rows_have_targets_alone(priced):
    again = Forecaster(5, columns=COLUMNS).fit(table())
    day = pd.Timestamp("2024-03-31")
    more = pd.DataFrame({"shop": ["a", "b"], "day": day, "sales": [40.0, 41.0]})
    further = pd.DataFrame({"shop": ["a", "b"], "day": day + pd.Timedelta(5, "D"), "price": 2.0})
    found = again.update(more).update(further).predict(LEVELS)
    assert found["day"].min() == day + pd.Timedelta(1, "D")
    with pytest.raises(ValueError, match="covariates of series 'a' end here, 1 steps"):
        Forecaster(5, columns=COLUMNS).fit(table()).update(more).predict()


def test_files_are_read_as_forecast_reads_them(priced, tmp_path):
    data, fields = table(), ("target", "feat_dynamic_real")
    for name, write in (("a.csv", data.to_csv), ("a.parquet", data.to_parquet), ("a.xlsx", data.to_excel)):
        write(file := tmp_path / name, index=False)
        forecaster = Forecaster(5, model=priced.predictor_, columns=COLUMNS).fit(str(file))
        expected = read_task(file, "D", 5, columns=columns_of(COLUMNS), beyond=True).latest
        for one, other in zip(forecaster._task(forecaster._data).latest, expected, strict=True):
            assert one["start"] == other["start"]
            assert all(np.array_equal(one[name], other[name]) for name in fields)


def test_rows_of_a_file_meet_rows_of_other_cells(priced, tmp_path):
    """Text of shops, dates and numbers, and these themselves."""
    data, found = table().round(2).assign(shop=lambda rows: (rows["shop"] == "b") + 1), []
    days = pd.to_datetime(["2024-03-31", "2024-04-05"] * 2)
    new = pd.DataFrame({"shop": [1, 1, 2, 2], "day": days, "sales": [40, None, 41, None], "price": [None, 2.0] * 2})
    data.to_csv(file := tmp_path / "sales.csv", index=False)
    new.to_csv(more := tmp_path / "new.csv", index=False)
    for one, other in ((data, new), (file, new), (data, more), (file, more)):
        forecaster = Forecaster(5, model=priced.predictor_, columns=COLUMNS).fit(one).update(other)
        found.append([entry["target"] for entry in forecaster._task(forecaster._data).latest])
        np.testing.assert_array_equal(found[-1], found[0])
    assert np.shape(found[0]) == (2, 91)


def test_a_fault_in_a_file_is_named_by_its_line(tmp_path):
    (tmp_path / "sales.csv").write_text("day,sales\n2024-01-01,5\n2024-01-02,many\n2024-01-03,6\n")
    with pytest.raises(ValueError, match=r"sales.csv, line 3, column 'sales': expected a number, got 'many'"):
        Forecaster(1).fit(tmp_path / "sales.csv")
    with pytest.raises(ValueError, match="expected a frame, or a CSV, Parquet or Excel file, got"):
        Forecaster(1).fit(tmp_path)


def test_messages_name_the_options_of_their_caller(tmp_path, capsys):
    few = plain().head(12)
    with pytest.raises(ValueError, match="give a shorter horizon or fewer windows, or delete"):
        tsforecast.cross_validate(few, 50)
    for ask in (Forecaster(50).fit, lambda data: tsforecast.forecast(data, 50)):
        with pytest.raises(ValueError, match="at least 51 are needed; take a shorter horizon, or"):
            ask(few)
    few.to_csv(file := tmp_path / "few.csv", index=False)
    assert main(["forecast", str(file), "--horizon=50", "--output", str(tmp_path / "found.csv")]) == 2
    assert "take a shorter --horizon, or" in capsys.readouterr().err
    with pytest.raises(ValueError, match="give a shorter prediction_length or"):
        read_task(few, "D", 50)


def test_a_scenario_of_targets_and_of_prices(priced):
    usual = priced.predict(LEVELS)
    day = usual["day"].iloc[2]
    given = priced.scenario(pd.DataFrame({"shop": ["a"], "day": [day], "sales": [70.0]}), LEVELS)
    assert list(given.columns) == list(usual.columns)
    at = (given["shop"] == "a") & (given["day"] == day)
    np.testing.assert_allclose(given.loc[at, ["mean", "0.1", "0.9"]], 70.0, atol=1e-4)
    other = usual["shop"] == "b"
    pd.testing.assert_frame_equal(given[other], usual[other])
    higher = pd.DataFrame({"shop": "a", "day": [day], "price": 9.0})
    dearer = priced.scenario(higher, LEVELS)
    changed = table()
    changed.loc[(changed["shop"] == "a") & (changed["day"] == day), "price"] = 9.0
    expected = priced.predictor_.predict_frame(changed, LEVELS)
    pd.testing.assert_frame_equal(dearer, expected, rtol=1e-5)
    assert dearer.loc[at, "mean"].item() < usual.loc[at, "mean"].item() - 10


def test_a_scenario_may_bring_the_future_of_covariates():
    """Of all steps of the forecasts; of a series that ends before others, its covariates up to there are data."""
    whole = table()
    short = whole[whole["sales"].notna() & ~((whole["shop"] == "b") & (whole["day"] > "2024-03-27"))]
    prices = whole[["shop", "day", "price"]]
    ahead = prices[prices["day"] > "2024-03-30"]
    forecaster = Forecaster(5, columns=COLUMNS).fit(short)
    with pytest.raises(ValueError, match="'price' of series 'b' is not known for 2024-03-28; add it to the data"):
        forecaster.scenario(ahead)
    forecaster.update(prices[(prices["day"] > "2024-03-27") & (prices["day"] < "2024-03-31")])
    with pytest.raises(ValueError, match="'price' of series 'a' is not known for 2024-04-03; add it here"):
        forecaster.scenario(ahead[ahead["day"] < "2024-04-03"])
    expected = Forecaster(5, columns=COLUMNS).fit(short).update(prices).predict(LEVELS)
    pd.testing.assert_frame_equal(forecaster.scenario(ahead, LEVELS), expected, rtol=1e-5)


def test_categories_are_covariates_and_parts_of_scenarios(tmp_path):
    """By the names of their columns of 0 and 1, or by the column of text."""
    data = table().drop(columns="price")
    fair = np.random.default_rng(1).random(len(data)) < 0.15
    data["sales"] += 30.0 * fair
    data["event"] = np.where(fair, "fair", None)
    forecaster = Forecaster(5).fit(data)
    usual = forecaster.predict(LEVELS)
    day = usual["day"][(usual["shop"] == "a") & (usual["mean"] < 45)].iloc[0]
    at = (usual["shop"] == "a") & (usual["day"] == day)
    given = {"shop": ["a"], "day": [day]}
    by_name = forecaster.scenario(pd.DataFrame(given | {"event=fair": [1.0]}), LEVELS)
    by_text = forecaster.scenario(pd.DataFrame(given | {"event": ["fair"]}), LEVELS)
    pd.testing.assert_frame_equal(by_name, by_text)
    other = usual["shop"] == "b"  # days behind the fair may feel it, too
    pd.testing.assert_frame_equal(by_name[other], usual[other])
    assert by_name.loc[at, "mean"].item() > usual.loc[at, "mean"].item() + 15
    file = tmp_path / "known.csv"
    pd.DataFrame(given | {"event": ["fair"]}).to_csv(file, index=False)
    roles = columns_of(forecaster.predictor_.columns)
    entries = with_room(forecaster._task(data, whole=True)).ending_together().latest
    known = attach_known(entries, file, 5, roles)
    assert known[0]["feat_dynamic_real"][0, -5:].sum() == entries[0]["feat_dynamic_real"][0, -5:].sum() + 1


def test_wrong_scenarios(priced):
    row = {"shop": ["a"], "day": ["2024-04-01"], "sales": [1.0]}
    for change, message in (
        ({"shop": ["c"]}, "there is no series 'c'"),
        ({"day": ["2024-05-01"]}, "outside the forecast of series 'a'"),
        ({"sales": ["many"]}, "expected a number, got 'many'"),
    ):
        with pytest.raises(ValueError, match=message):
            priced.scenario(pd.DataFrame(row | change))
    with pytest.raises(ValueError, match="expected known to have 'sales', 'price', or some of these"):
        priced.scenario(pd.DataFrame(row).rename(columns={"sales": "sold"}))


def test_explanations_and_anomalies_are_those_of_the_analysis():
    options = {"components": "level", "num_batches_per_epoch": 1, "trainer_kwargs": {"max_epochs": 1}}
    forecaster = Forecaster(5, model=StateSpaceEstimator("issm", "D", 5, seed=0, **options)).fit(plain())
    pd.testing.assert_frame_equal(forecaster.explain(), explain(forecaster.predictor_, plain()))
    found = forecaster.anomalies(rate=0.01, since="2024-03-01")
    expected = anomalies(plain(), forecaster.predictor_, rate=0.01, since="2024-03-01")
    pd.testing.assert_frame_equal(found, expected)
    assert list(found.columns[:3]) == ["unique_id", "ds", "value"]


def test_pictures(fitted):
    figure = fitted.plot()
    assert isinstance(figure, Figure)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a", "b"]
    assert len(fitted.plot(["b"]).axes) == 1
    with pytest.raises(ValueError, match="there is no series 'c', only 'a', 'b'"):
        fitted.plot(["c"])


def test_a_notebook_shows_the_page_of_a_forecaster(fitted):
    page = fitted.page()
    assert page.title == "y: forecasts of 5 days by bank (a mixture of structural models)"
    assert [chart.name for section in page.sections for chart in section.charts] == ["a", "b"]
    assert fitted._repr_html_() == page._repr_html_()
    assert Forecaster(5)._repr_html_() is None


def test_answers_are_of_the_kind_that_came_in():
    arrow = pa.Table.from_pandas(plain(), preserve_index=False)
    forecaster = Forecaster(5).fit(arrow)
    assert isinstance(forecaster.predict(), pa.Table)
    assert isinstance(forecaster.explain(), pa.Table)  # of a bank
    known = pa.table({"unique_id": ["a"], "ds": ["2024-04-01"], "y": [50.0]})
    assert isinstance(forecaster.scenario(known), pa.Table)


def test_wide_frames_and_indices():
    days = pd.date_range("2024-01-01", periods=60, name="day")
    wide = pd.DataFrame({"x": np.arange(60.0), "z": 5.0 + np.arange(60) % 7}, index=days)
    forecaster = Forecaster(3, columns={"wide": True}).fit(wide.iloc[:50])
    found = forecaster.update(wide.iloc[50:]).predict([0.5])
    assert list(found.columns) == ["item_id", "day", "mean", "0.5"]
    assert found["day"].min() == pd.Timestamp("2024-03-01")
    assert len(forecaster.plot().axes) == 2


@pytest.mark.parametrize("name", ["predict", "explain", "anomalies", "plot", "page"])
def test_answers_before_the_fit_are_refused(name):
    with pytest.raises(ValueError, match=rf"call fit\(frame\) before {name}"):
        getattr(Forecaster(5), name)()
    with pytest.raises(ValueError, match=r"call fit\(frame\) before update"):
        Forecaster(5).update(plain())
    with pytest.raises(ValueError, match="expected a frame of pandas or polars"):
        Forecaster(5).fit([1, 2])


def test_a_scenario_takes_ranges_of_covariates():
    """The interval holds the effects of all values in the range."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=127)
    heat = rng.normal(size=127)
    frame = pd.DataFrame({"ds": days, "y": 50 + 5 * heat + rng.normal(size=127), "heat": heat})
    frame.loc[120:, "y"] = np.nan
    forecaster = Forecaster(horizon=7).fit(frame)
    rows = pd.DataFrame({"ds": days[120:], "heat_low": -2.0, "heat_high": 2.0})
    given, ranged = forecaster.predict(), forecaster.scenario(rows)
    assert ((ranged["0.9"] - ranged["0.1"]) > 2 * (given["0.9"] - given["0.1"])).all()
