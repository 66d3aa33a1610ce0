"""Readings of nine digits, and covariates of ten, keep all their digits from the file to the forecast and back."""

import copy

import numpy as np
import pandas as pd
import pytest

from tests.forecasting.test_estimator import QUIET
from tsforecast import StateSpaceEstimator
from tsforecast.data import Columns, read_task
from tsforecast.data.buckets.bucketing import make_buckets
from tsforecast.data.folder import read_folder, write_folder
from tsforecast.data.irregular import read_irregular
from tsforecast.forecasting.data_summary import summarise
from tsforecast.forecasting.predictor import with_module

STEP, HORIZON = 7, 5
READINGS = 123_456_789 + STEP * np.arange(80) + np.random.default_rng(0).integers(-1, 2, 80)
EFFECT = 1_000_000_000 + np.arange(80) % 2


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Readings with a gap of three days, beside a covariate that changes by one in a milliard."""
    rows = {"date": pd.date_range("2023-01-01", periods=80), "reading": READINGS, "seconds": EFFECT}
    path = tmp_path_factory.mktemp("meter") / "meter.csv"
    pd.DataFrame(rows).drop(index=[20, 21, 22]).to_csv(path, index=False)
    return path


def known(target):
    return target[~np.isnan(target)]


EXPECTED = np.delete(READINGS, [20, 21, 22])


def test_every_reader_keeps_all_digits(table, tmp_path):
    columns = Columns(target="reading", covariates=["seconds"])
    task = read_task(table, "D", HORIZON, 0, columns=columns)
    (entry,) = task.entries
    np.testing.assert_array_equal(known(entry["target"]), EXPECTED)
    kept = [k for k in range(80) if k not in (20, 21, 22)]
    np.testing.assert_array_equal(entry["feat_dynamic_real"][0, kept], EFFECT[kept])
    frame = pd.read_csv(table, parse_dates=["date"])
    np.testing.assert_array_equal(
        known(read_task(frame, "D", HORIZON, 0, columns=columns).entries[0]["target"]), EXPECTED
    )
    write_folder(task, tmp_path / "folder")
    (again,) = read_folder(tmp_path / "folder", "D").entries
    np.testing.assert_array_equal(again["target"], entry["target"])
    np.testing.assert_array_equal(again["feat_dynamic_real"], entry["feat_dynamic_real"])
    make_buckets([str(table)], tmp_path / "buckets", columns=columns)
    (bucketed,) = read_task(tmp_path / "buckets", "D", HORIZON, 0, columns=columns).entries
    np.testing.assert_array_equal(known(bucketed["target"]), EXPECTED)
    (timed,) = read_irregular(table, columns=columns).entries
    np.testing.assert_array_equal(timed["target"], EXPECTED)


def test_a_covariate_that_changes_by_little_of_its_size_has_its_own_unit(table):
    task = read_task(table, "D", HORIZON, 0, columns=Columns(target="reading", covariates=["seconds"]))
    ((mean, deviation),) = summarise(task.entries).dynamic_units
    values = task.entries[0]["feat_dynamic_real"][0].astype(np.float64) - 1e9
    np.testing.assert_allclose((mean - 1e9, deviation), (values.mean(), values.std()), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("issm", {"transformation": "none"}),
        ("issm", {"transformation": "log1p"}),
        ("gls", {"transformation": "none", "components": "trend"}),
        ("bank", {"structures": "trend,level"}),
        ("sgls", {"transformation": "none", "components": "trend"}),
    ],
)
def test_forecasts_and_imputations_are_right_to_the_unit(table, model, options):
    """The parameters of a model may be in float32: what it makes of readings is as if they were in float64."""
    task = read_task(table, "D", HORIZON, 0, columns=Columns(target="reading"))
    trainer = {**QUIET, "max_epochs": 1}
    estimator = StateSpaceEstimator(
        model,
        "D",
        HORIZON,
        seed=0,
        num_batches_per_epoch=2,
        num_samples=20,
        preset="none",
        trainer_kwargs=trainer,
        **options,
    )
    narrow = estimator.train(task.entries)
    wide = with_module(narrow, copy.deepcopy(narrow.prediction_net).double())
    (filled,) = narrow.impute(task.entries, 5)
    seen = ~np.isnan(task.entries[0]["target"])
    np.testing.assert_array_equal(filled.samples[:, seen], np.tile(EXPECTED, (5, 1)))
    if narrow.has_marginals and model != "sgls":  # whose paths of switches are drawn
        ours, exact = (next(iter(x.predict(task.entries, num_samples=0))) for x in (narrow, wide))
        for level in (0.1, 0.5, 0.9):
            np.testing.assert_allclose(ours.quantile(level), exact.quantile(level), rtol=0, atol=0.05 * STEP)
        np.testing.assert_allclose(ours.mean, exact.mean, rtol=0, atol=0.05 * STEP)
    (found,) = narrow.predict(task.entries, num_samples=200)
    assert found.samples.dtype == np.float64
    spread = found.samples.std(0)
    error = np.abs(found.samples.mean(0) - READINGS[-1] - STEP * np.arange(1, HORIZON + 1))
    assert (error < 6 * (spread + STEP)).all()
    assert len(np.unique(found.samples[:, 0])) > 100  # and not a few numbers that float32 has
