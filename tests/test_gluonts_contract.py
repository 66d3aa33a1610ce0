"""What GluonTS' estimators take and promise, beyond training and prediction."""

import logging

import numpy as np
import pandas as pd
import pytest
from gluonts.dataset.common import ListDataset
from gluonts.itertools import Cyclic

from tests.test_estimator import HORIZON, make_entries, make_estimator, same_forecasts, seeded

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


def warnings_of(caplog):
    """What the package has warned of since the last call."""
    found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and r.name.startswith("tsforecast")]
    caplog.clear()
    return found


def hidden(target):
    """A masked array that hides numbers where the target has NaN."""
    return np.ma.array(np.nan_to_num(target, nan=1e6), mask=np.isnan(target))


@pytest.mark.parametrize("written", [hidden, lambda target: [None if np.isnan(x) else float(x) for x in target]])
def test_masked_values_and_none_are_missing_values(written):
    entries = make_entries()
    others = [{**e, "target": written(e["target"])} for e in entries]
    expected = seeded(make_estimator().train(entries), entries)
    predictor = make_estimator().train(others)
    same_forecasts(seeded(predictor, others), expected)
    beliefs = predictor.update(predictor.filter(others[:1]), [{**others[0], "start": entries[0]["start"] + 40}])
    assert beliefs["s0"].end == entries[0]["start"] + 80


@pytest.mark.parametrize("freq", ["ms", "10ms", "us", "ns"])
def test_steps_below_a_second(freq):
    entries = make_entries(2, freq=freq)
    estimator = make_estimator("deepstate", freq=freq, epochs=1, components="level+cycle_of_10")
    (forecast, _) = estimator.train(entries).predict(entries)
    assert forecast.start_date == entries[0]["start"] + 40
    assert np.isfinite(forecast.samples).all()


def test_data_that_never_end_are_refused():
    entries = make_entries(2)
    with pytest.raises(ValueError, match="expected data that end, got GluonTS' Cyclic"):
        make_estimator().train(Cyclic(entries))
    with pytest.raises(ValueError, match="expected data that end, got GluonTS' Cyclic"):
        make_estimator().train(entries, Cyclic(entries))


def test_fields_that_no_model_reads_are_named_once(caplog):
    entries = [{**e, "past_feat_dynamic_real": np.ones((1, len(e["target"])))} for e in make_entries()]
    make_estimator(epochs=1).train(entries)
    (message,) = warnings_of(caplog)
    assert message.startswith("the data have past_feat_dynamic_real, which no model reads")


def with_categories(entries):
    return [{**e, "feat_static_cat": [k % 2]} for k, e in enumerate(entries)]


@pytest.mark.parametrize("model", ["issm", "deepstate", "rsgls-issm"])
def test_a_series_without_its_category_is_of_an_unknown_one(model, caplog):
    entries = make_entries(missing=False)
    predictor = make_estimator(model, epochs=3).train(with_categories(entries))
    assert warnings_of(caplog) == []
    unknown = seeded(predictor, entries)
    (message,) = warnings_of(caplog)
    assert message.startswith("series 's0' has no feat_static_cat, with which the model was trained")
    for category in (0, 1):
        known = seeded(predictor, [{**e, "feat_static_cat": [category]} for e in entries])
        assert not np.array_equal(known[0].samples, unknown[0].samples)
    if model == "issm":  # an unknown category deviates in nothing
        for table in predictor.network.parameters_of_series.categories:
            table.data.zero_()
        same_forecasts(seeded(predictor, with_categories(entries)), unknown)


def test_static_categories_can_be_left_out(caplog):
    entries = make_entries()
    predictor = make_estimator(use_feat_static_cat=False).train(with_categories(entries))
    expected = seeded(make_estimator().train(entries), entries)
    same_forecasts(seeded(predictor, entries), expected)
    same_forecasts(seeded(predictor, with_categories(entries)), expected)
    assert warnings_of(caplog) == []


def test_huge_codes_of_categories_are_refused():
    huge = [{**e, "feat_static_cat": [10**9 + k]} for k, e in enumerate(make_entries())]
    with pytest.raises(ValueError, match=r"below 10000, got 1000000004: number them one by one .*use_feat_static_cat"):
        make_estimator().train(huge)
    make_estimator(epochs=1, use_feat_static_cat=False).train(huge)
    predictor = make_estimator(epochs=1).train(with_categories(make_entries()))
    with pytest.raises(ValueError, match=r"'s0': expected static categories below \[2\]"):
        list(predictor.predict([{**make_entries()[0], "feat_static_cat": [1e300]}]))


def test_data_sets_of_gluonts_with_none():
    rows = [{"start": "2024-01-02", "target": [1.0, None, *range(30)], "item_id": "a"}]
    data = ListDataset(rows, freq="D")
    (forecast,) = make_estimator(epochs=1).train(data).predict([{**rows[0], "start": pd.Period("2024-01-02", "D")}])
    assert forecast.samples.shape == (10, HORIZON)
