"""Frames of other libraries go in, and frames of their kind come out."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tsforecast
from tests.forecasting.test_estimator import make_estimator
from tsforecast.data import Columns, read_task
from tsforecast.data.tables.dataframes import alike, as_pandas


def table():
    days = pd.date_range("2024-01-01", periods=40)
    values = 10 + np.random.default_rng(0).normal(size=40)
    return pd.concat([pd.DataFrame({"unique_id": name, "ds": days, "y": values}) for name in "ab"], ignore_index=True)


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


def polars_dates(frame):
    pl = pytest.importorskip("polars")
    return pl.from_pandas(frame).with_columns(pl.col("ds").cast(pl.Date), pl.col("unique_id").cast(pl.Categorical))


def arrow_dates(frame):
    found = arrow(frame)
    return found.set_column(1, "ds", found["ds"].cast(pa.timestamp("s")).cast(pa.date32()))


@pytest.mark.parametrize("kind", [arrow, arrow_dates, polars, polars_dates])
def test_the_answer_is_a_frame_of_the_kind_that_came_in(kind):
    data = kind(table())
    expected = tsforecast.forecast(table(), horizon=3)
    found = tsforecast.forecast(data, horizon=3)
    assert type(found) is type(data)
    pd.testing.assert_frame_equal(as_pandas(found), expected, check_dtype=False)
    rows = tsforecast.cross_validate(data, 3, windows=1, model="random_walk")
    assert type(rows) is type(data)
    names = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    assert names[:4] == ["unique_id", "ds", "cutoff", "y"]
    predictor = make_estimator(freq="D").train(data)
    assert type(predictor.predict_frame(data)) is type(data)


def test_columns_that_pandas_keeps_in_arrow_are_read():
    kept = table().convert_dtypes(dtype_backend="pyarrow")
    kept.loc[3, "y"] = pd.NA
    plain = table().assign(y=lambda frame: frame["y"].where(frame.index != 3))
    found, expected = (read_task(frame, columns=Columns(ahead=True)) for frame in (kept, plain))
    for one, other in zip(found.entries, expected.entries, strict=True):
        assert one["item_id"] == other["item_id"]
        assert one["start"] == other["start"]
        np.testing.assert_array_equal(one["target"], other["target"])


def test_others_stay_as_they_are():
    frame, entries = table(), read_task(table()).entries
    assert as_pandas(frame) is frame
    assert as_pandas(entries) is entries
    assert alike(frame, entries) is frame


def test_a_lazy_frame_is_to_be_collected():
    with pytest.raises(ValueError, match="expected a frame, got a lazy one, LazyFrame: collect it first"):
        tsforecast.forecast(polars(table()).lazy(), horizon=3)
