"""The choice whether covariates have effects, in every way to a model."""

import logging

import numpy as np
import pandas as pd
import pytest

import tsforecast
from tsforecast.cli import choices, train_parser
from tsforecast.data import Columns, read_task
from tsforecast.data.effects import fitting
from tsforecast.forecasting import effect_choice, quick_bank, trials
from tsforecast.forecasting.estimator import StateSpaceEstimator

HORIZON, COLUMNS = 7, {"timestamp": "date", "target": "sales", "covariates": ["price"]}
SAID = {False: "they are kept", True: "they are left out"}


def table(turned: bool) -> pd.DataFrame:
    """Return sales by price; the effect turns where a covariate is worse than none."""
    rng, days = np.random.default_rng(3), np.arange(407)
    prices = rng.normal(size=len(days))
    sales = 100 + 5 * prices * np.where((days > 300) & turned, -1, 1) + rng.normal(size=len(days))
    sales[-HORIZON:] = np.nan
    return pd.DataFrame({"date": pd.date_range("2020-01-01", periods=len(days)), "sales": sales, "price": prices})


@pytest.fixture
def lines(caplog):
    """Return what the log says of the choice."""
    caplog.set_level(logging.INFO, "tsforecast.forecasting")
    return lambda: [one.getMessage() for one in caplog.records if "windows before the end" in one.getMessage()]


def trained(model: str, turned: bool, **options):
    trainer = {"enable_progress_bar": False, "max_epochs": 0}
    estimator = StateSpaceEstimator(model, "D", HORIZON, seed=0, trainer_kwargs=trainer, **options)
    known = table(turned).dropna()
    return estimator.train(known, columns=COLUMNS)


@pytest.mark.parametrize("turned", [False, True])
def test_forecasts_at_once_leave_out_what_worsens_the_last_windows(turned, lines):
    """A covariate whose effect turns is worse than none."""
    found = tsforecast.forecast(table(turned), horizon=HORIZON, columns=COLUMNS)
    (said,) = lines()
    assert SAID[turned] in said
    moved = np.corrcoef(found["0.5"], table(turned)["price"].iloc[-HORIZON:])[0, 1]
    assert abs(moved) < 0.9 if turned else moved > 0.9


@pytest.mark.parametrize(("model", "models"), [("bank", None), ("issm", None), ("auto", "bank")])
@pytest.mark.parametrize("turned", [False, True])
def test_so_do_estimators(model, models, turned, lines):
    """Also `auto`, once for all that it compares."""
    predictor = trained(model, turned, models=models)
    said = [one for one in lines() if "effects" in one]
    assert len(said) == 1
    assert SAID[turned] in said[0]
    assert bool(predictor.input_transform.effects.basis.signals) is not turned


def test_a_day_of_the_year_that_no_window_has_is_forecast_by_what_it_did(caplog):
    """Windows without it would leave it out by chance."""
    caplog.set_level(logging.INFO, "tsforecast.forecasting")
    days, random = np.arange(1200), np.random.default_rng(0)
    fair = days % 365 == 100
    frame = pd.DataFrame({"date": pd.date_range("2020-01-01", periods=1200), "fair": np.where(fair, "fair", "no")})
    frame["sales"] = np.where(days < 1190, 100 + 50 * fair + random.normal(size=1200), np.nan)
    found = tsforecast.forecast(frame)
    assert "kept without a comparison: these are the same in all of the last windows" in caplog.text
    assert found["0.5"][fair[1190:]].item() == pytest.approx(150, abs=15)
    assert np.abs(found["0.5"][~fair[1190:]] - 100).max() < 5


@pytest.mark.parametrize(("effects", "signals"), [("curves", 3), ("none", 0)])
def test_what_is_given_by_hand_is_not_compared(effects, signals, lines):
    found = trained("bank", True, effects=effects).input_transform.effects
    assert len(found.basis.signals) == signals
    assert lines() == []


def test_a_model_that_has_the_covariates_compares_nothing(lines):
    assert trained("issm", True, effects="given").input_transform.effects is None
    assert lines() == []


@pytest.mark.parametrize("compared", [3000, 100])
def test_effects_are_fitted_to_all_data_once_and_once_to_what_lies_before_windows(compared, monkeypatch):
    """Also where windows are forecast from the last steps alone: a month of them may have no winter."""
    whole, sizes = fitting._fitted, []

    def count(entries, freq, basis=None, bend=None):
        sizes.append((len(entries[0]["target"]), bend is None and basis is None))
        return whole(entries, freq, basis, bend)

    monkeypatch.setattr(fitting, "_fitted", count)
    monkeypatch.setattr(fitting, "_KNOWN", {})
    monkeypatch.setattr(trials, "_STEPS", compared)
    trained("auto", False, models="bank")
    assert [size for size, full in sizes if full] == [400, 330]


def test_the_share_that_a_bank_learns_is_chosen_by_the_same_effects(monkeypatch):
    """Of shops with the same shocks, forecasts at once train twice, and fit no effects for that."""
    whole, sizes, rng = fitting._fitted, [], np.random.default_rng(0)

    def count(entries, freq, basis=None, bend=None):
        sizes.append((len(entries[0]["target"]), bend is None and basis is None))
        return whole(entries, freq, basis, bend)

    monkeypatch.setattr(fitting, "_fitted", count)
    monkeypatch.setattr(fitting, "_KNOWN", {})
    monkeypatch.setattr(quick_bank, "_STEPS", 2)
    days, price = pd.date_range("2020-01-01", periods=120), rng.normal(size=120)
    common = 100 + 5 * price + np.cumsum(rng.normal(size=120))
    shops = [
        pd.DataFrame({"shop": k, "date": days, "sales": common + rng.normal(size=120), "price": price})
        for k in range(20)
    ]
    frame = pd.concat(shops)
    frame.loc[frame["date"] >= days[-HORIZON], "sales"] = np.nan
    tsforecast.forecast(frame, horizon=HORIZON, columns={**COLUMNS, "item": ["shop"]})
    assert [size for size, full in sizes if full] == [113, 57]


def test_a_run_keeps_what_was_chosen(tmp_path, monkeypatch):
    """So that it goes on, and is trained again, as it began."""
    path = tmp_path / "sales.csv"
    table(True).to_csv(path, index=False)
    words = ["issm", "--data", str(path), "--target=sales", "--timestamp=date", "--covariates", "price"]
    task = read_task(path, prediction_length=HORIZON, windows=1, columns=Columns(**COLUMNS))
    monkeypatch.setattr(effect_choice, "loss_of", lambda one, *_: len(one.input_transform.effects.basis.signals))
    model, options, selection = choices.settled(train_parser.parsed(words), task)
    assert (model, options.effects, selection) == ("issm", "none", None)
    assert options.max_epochs == 40
    _, options, _ = choices.settled(train_parser.parsed([*words, "--effects=auto"]), task)  # as older files say
    assert options.effects == "none"
    model, options, _ = choices.settled(train_parser.parsed([*words, "--effects=given"]), task)
    assert options.effects == "given"


def test_several_targets_have_no_effects_by_hand():
    days = pd.DataFrame({"date": pd.date_range("2020-01-01", periods=60), "price": np.arange(60.0) % 7})
    days[["a", "b"]] = np.random.default_rng(0).normal(size=(60, 2))
    columns = {**COLUMNS, "target": ["a", "b"]}
    for effects in ("curves", "none"):
        estimator = StateSpaceEstimator("bank", "D", HORIZON, effects=effects)
        with pytest.raises(ValueError, match="expected one target where covariates have effects, or none, got several"):
            estimator.train(days, columns=columns)


def test_the_log_names_covariates(caplog):
    caplog.set_level(logging.INFO, "tsforecast.forecasting")
    frame = table(False).assign(noise=np.random.default_rng(9).normal(size=407))
    tsforecast.forecast(frame, horizon=HORIZON, columns={**COLUMNS, "covariates": ["price", "noise"]})
    assert "dropped, as they helped no forecast of later steps: 'noise'" in caplog.text
